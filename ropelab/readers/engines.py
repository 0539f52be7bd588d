"""ExLlamaV3, TensorRT-LLM and TGI: each reads config.json itself, for one layer type.

Read from exllamav3/util/rope.py, model/config.py and architecture/*.py of exllamav3
1.6.5; from RopeParams.from_config in
tensorrt_llm/_torch/attention_backend/interface.py, in a copy of 2026 whose release is
not known; from server/text_generation_server/layers/rotary.py of
text-generation-inference db931fc (2026-01-08).

`settings.read` marks the key of a value as used, and `settings.get` does not. `trace.get`
reads a key beside the block of the scaling.
"""

from collections.abc import Mapping
from typing import Any

from ropelab.math.scaling import Yarn
from ropelab.readers import reader, scaling_types
from ropelab.readers.families import read_table
from ropelab.readers.reader import Reader
from ropelab.readers.scaling_types import MadeScaling
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    require_number,
    require_whole,
)
from ropelab.readers.trace import MAXIMUM, MSCALES, ORIGINAL, Trace
from ropelab.readers.transformers import Transformers5

# The model types whose model file in TGI reads head_dim; the others divide hidden_size.
TGI_TYPES_WITH_HEAD_DIM = frozenset(read_table("names")["tgi_head_dim"])


class Exllama(Reader):
    """ExLlamaV3: transformers' older formulas, one table for all lengths."""

    model_types = frozenset(read_table("names")["exllama"])
    refusal_of_model = "the architecture file for '{}' was not read"
    # `Reader` explains these values. A file without a maximum gets 2048 tokens from there;
    # only YaRN stops without one.
    length_keys = (MAXIMUM,)
    default_is_limit = False
    multiplies_unscaled_scores = False

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        where = "rope_parameters"
        if trace.block("rope_scaling") is not None:
            where = "rope_scaling"
        settings = Settings(trace, trace.block(where), where)
        for name, default in (("rope_theta", 10000.0), ("partial_rotary_factor", 1.0)):
            keys = (name, f"rope_parameters.{name}")
            settings.put_first_found(name, keys, default, "default of model/config.py")
        return {"all": settings}

    def find_type(self, settings: Settings) -> Any:
        name = "type"
        if "rope_type" in settings.values:
            name = "rope_type"
        kind = settings.read(name)
        # A type of null means no scaling.
        return "default" if kind is None else kind

    def find_width(self, settings: Settings, head_dim: int) -> int:
        width = settings.trace.get("rotary_dim")
        if width is not None:
            return require_whole(width, "rotary_dim")
        if settings.get("rope_type") == "proportional":
            return head_dim
        return reader.compute_rotated_width(
            head_dim, settings.number("partial_rotary_factor")
        )

    def find_pairing(self, trace: Trace) -> Any:
        # Neighbouring features form a pair only in latent attention, whatever the
        # model.
        return "interleaved" if trace.family.latent else "half"


@scaling_types.scaling_type("exllamav3", "yarn")
def make_exllama_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN by ExLlamaV3's rules."""
    if settings.trace.get(MAXIMUM) is None:
        raise RefusedError(f"yarn without {MAXIMUM}")

    if settings.get(ORIGINAL) is None:
        trained = settings.longest
        factor = settings.number("factor")
    else:
        trained = settings.original()
        factor = settings.longest / trained
        settings.mark("factor", "overridden", "max / original wins")

    if settings.read("attention_factor") is not None:
        attention = settings.number("attention_factor")
    elif settings.trace.family.latent and all(settings.get(name) for name in MSCALES):
        # The keys of mscale are read only for latent attention.
        attention = scaling_types.mscale_ratio(settings, factor)
    elif settings.get("llama_4_scaling_beta"):
        attention = 1.0
    else:
        attention = scaling_types.yarn_attention(factor)
    return scaling_types.make_yarn(settings, factor, attention, trained)


@scaling_types.scaling_type("exllamav3", "longrope", "su")
def choose_table_by_lengths(settings: Settings) -> MadeScaling:
    """Return longrope with the table that the lengths in the file choose."""
    original = settings.read(ORIGINAL)
    if original is None:
        original = settings.trace.get(ORIGINAL)
    if original is None:
        raise RefusedError(f"longrope without {ORIGINAL}")

    # The table is chosen once, not by the length of a prompt.
    trained = require_whole(original, ORIGINAL)
    name = "long_factor" if settings.longest > trained else "short_factor"
    return scaling_types.make_one_table(settings, name, trained)


# `read_rules` looks up the functions above, so that it is called after them.
Exllama.rules = scaling_types.read_rules("unscaled") | scaling_types.read_rules(
    "exllamav3"
)


class TensorRt(Reader):
    """TensorRT-LLM, its PyTorch path."""

    default_longest = None
    usual_factor = 1.0

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        specs = super().read(trace)
        if not trace.family.local_base_key:
            return specs

        # modeling_gemma3.py: layers with a window have the base that transformers loads
        # for them, and no scaling.
        loaded = Transformers5().read_settings(trace).get("sliding_attention")
        if loaded is None:
            return specs
        full = specs["all"]
        sliding = full.unscaled(loaded.number("rope_theta"))
        return {"full_attention": full, "sliding_attention": sliding}

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        # transformers loads the file. Of several layer types full attention is read, which
        # is the first.
        loaded = next(iter(Transformers5().read_settings(trace).values()))
        if loaded.layer == "compress":
            raise NotModelledError(
                "DeepSeek-V4's bases by layer, with a rule of its own"
            )

        # The original length at top level wins. If no length is given, or 0, it is
        # 1024.
        original_beside_block = trace.get(ORIGINAL)
        if original_beside_block:
            loaded.put(ORIGINAL, original_beside_block, ORIGINAL)
            return {"all": loaded}

        # If the block has no original length, transformers copies the maximum there.
        # TensorRT-LLM does not, so that such a copy does not count.
        source = loaded.sources.get(ORIGINAL, "")
        is_copy = source == MAXIMUM
        original_in_block = 0 if is_copy else loaded.get(ORIGINAL)
        loaded.put(ORIGINAL, original_in_block or 1024, source)
        return {"all": loaded}

    def find_type(self, settings: Settings) -> Any:
        # An empty name means no scaling.
        return super().find_type(settings) or "default"

    def find_pairing(self, trace: Trace) -> Any:
        # modeling_deepseekv3.py passes is_neox=False, whatever rope_interleave says.
        return "interleaved" if trace.family.latent else super().find_pairing(trace)

    def find_width(self, settings: Settings, head_dim: int) -> int:
        trace = settings.trace
        # The base of GPT-NeoX, rotary_emb_base, is taken for a width.
        for name in ("rotary_dim", "rotary_emb_base", "qk_rope_head_dim"):
            width = trace.get(name)
            if width:
                return reader.check_rotated_width(head_dim, require_whole(width, name))

        share = trace.get("rotary_pct") or settings.read("partial_rotary_factor") or 1.0
        return reader.compute_rotated_width(head_dim, require_number(share, "share"))


@scaling_types.scaling_type("tensorrt-llm", "longrope", "su")
def choose_table_by_limit(settings: Settings) -> MadeScaling:
    """Return longrope with the table that the limit of the runtime chooses."""
    trained = settings.original()
    # Without max_seq_len the long table is used.
    limit = settings.trace.get("max_seq_len")
    is_long = limit is None or require_number(limit, "max_seq_len") > trained
    name = "long_factor" if is_long else "short_factor"
    return scaling_types.make_one_table(settings, name, trained)


TensorRt.rules = scaling_types.read_rules("unscaled") | scaling_types.read_rules(
    "tensorrt-llm"
)


class Tgi(Reader):
    """text-generation-inference: the block of transformers 4, with its own scaling types."""

    refusal_of_type = "rope scaling type '{}' is not implemented"
    multiplies_unscaled_scores = False
    reads_local_base = True

    def read_head_dim(self, trace: Trace) -> int:
        family = trace.family
        if family.latent or family.name in TGI_TYPES_WITH_HEAD_DIM:
            return super().read_head_dim(trace)
        return reader.read_head_dim(trace, ())

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        block: Mapping[str, Any] = trace.block("rope_scaling") or {}
        # The variables ROPE_SCALING and ROPE_FACTOR replace the block. They are among the
        # flags here.
        if "rope_scaling" in trace.flags:
            block = {
                "type": trace.flags["rope_scaling"],
                "factor": trace.flags.get("rope_factor"),
            }
        settings = Settings(trace, block, "rope_scaling")
        settings.put_first_found(
            "rope_theta", trace.family.base_keys, trace.family.base, "class default"
        )
        return {"all": settings}

    def find_pairing(self, trace: Trace) -> Any:
        # flash_deepseek_v2 and _v3 sort the features of neighbours into halves first.
        return "interleaved" if trace.family.latent else super().find_pairing(trace)

    def find_width(self, settings: Settings, head_dim: int) -> int:
        # Only flash_gptj, flash_phi and flash_neox rotate a part of the head. The files of
        # GPT-J give the width of this part, which `find_rotated_width` reads; it returns
        # None for models without such a key.
        trace = settings.trace
        family = trace.family
        if family.name in ("phi", "gpt_neox"):
            share, _ = trace.first(family.share_keys, family.share or 1.0)
            share = require_number(share, "share")
            return reader.compute_rotated_width(head_dim, share)
        width = reader.find_rotated_width(trace) or head_dim
        return reader.check_rotated_width(head_dim, width)


@scaling_types.scaling_type("tgi", "default", "linear", "mrope")
def make_tgi_unscaled(settings: Settings) -> MadeScaling:
    """Scale nothing."""
    settings.mark("factor", "ignored", "linear is not applied on this path")
    return scaling_types.make_unscaled(settings)


@scaling_types.scaling_type("tgi", "yarn")
def make_tgi_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN by TGI's rules."""
    # Betas are fixed at 32 and 1, and only one mscale is read. attention_factor and
    # truncate are not read.
    factor = settings.number("factor")
    attention = scaling_types.mscale_ratio(settings, factor)
    scaling = Yarn(factor=factor, attention_factor=attention)
    return scaling, attention, settings.original()


@scaling_types.scaling_type("tgi", "longrope", "su")
def refuse_tgi_longrope(settings: Settings) -> MadeScaling:
    raise NotModelledError(
        "two tables inside one sequence: short below the original length"
    )


Tgi.rules = scaling_types.read_rules("tgi")
