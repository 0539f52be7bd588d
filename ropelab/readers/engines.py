"""ExLlamaV3, TensorRT-LLM and TGI: each reads config.json itself, for one layer type.

Read from exllamav3/util/rope.py, model/config.py and architecture/*.py of exllamav3
1.6.5; from RopeParams.from_config in
tensorrt_llm/_torch/attention_backend/interface.py, in a copy of 2026 whose release is
not known; from server/text_generation_server/layers/rotary.py of
text-generation-inference db931fc (2026-01-08).
"""

from collections.abc import Mapping
from typing import Any

from ropelab.math.scaling import Yarn
from ropelab.readers import reader
from ropelab.readers.families import table
from ropelab.readers.reader import Made, Reader, Settings
from ropelab.readers.spec import NotModelledError, RefusedError, number, whole
from ropelab.readers.trace import MAXIMUM, MSCALES, ORIGINAL, Trace
from ropelab.readers.transformers import Transformers5


class Exllama(Reader):
    """ExLlamaV3: transformers' older formulas, one table for all lengths."""

    types = frozenset(table("names")["exllama"])
    other = "the architecture file for '{}' was not read"
    # Scaling types that do not need a maximum take 2048.
    lengths = (MAXIMUM,)
    allows_usual = False
    multiplies_unscaled = False

    def settings(self, trace: Trace) -> dict[str, Settings]:
        where = "rope_parameters"
        if trace.block("rope_scaling") is not None:
            where = "rope_scaling"
        settings = Settings(trace, trace.block(where), where)
        for name, usual in (("rope_theta", 10000.0), ("partial_rotary_factor", 1.0)):
            keys = (name, f"rope_parameters.{name}")
            settings.put_first(name, keys, usual, "default of model/config.py")
        return {"all": settings}

    def kind(self, settings: Settings) -> Any:
        # `rope_type` wins over `type`; null is no scaling.
        kind = settings.read("rope_type" if "rope_type" in settings.values else "type")
        return "default" if kind is None else kind

    def width(self, settings: Settings, head_dim: int) -> int:
        given = settings.trace.get("rotary_dim")
        if given is not None:
            return whole(given, "rotary_dim")
        if settings.get("rope_type") == "proportional":
            return head_dim
        return reader.width_of(head_dim, settings.number("partial_rotary_factor"))

    def pairing(self, trace: Trace) -> Any:
        # Neighbouring features form a pair in latent attention alone, whatever the model.
        return "interleaved" if trace.family.latent else "half"


@reader.scaling_type("exllamav3", "yarn")
def exllama_yarn(settings: Settings) -> Made:
    if settings.trace.get(MAXIMUM) is None:
        raise RefusedError(f"yarn without {MAXIMUM}")
    trained = settings.longest
    if settings.get(ORIGINAL) is None:
        factor = settings.number("factor")
    else:
        trained = settings.original()
        factor = settings.longest / trained
        settings.mark("factor", "overridden", "max / original wins")

    if settings.read("attention_factor") is not None:
        attention = settings.number("attention_factor")
    elif settings.trace.family.latent and all(settings.get(name) for name in MSCALES):
        # Mscales are read for latent attention alone.
        attention = reader.mscale_ratio(settings, factor)
    else:
        # With llama_4_scaling_beta the factor on cos and sin is 1.
        beta = settings.get("llama_4_scaling_beta")
        attention = 1.0 if beta else reader.magnitude(factor)
    return reader.make_yarn(settings, factor, attention, trained)


@reader.scaling_type("exllamav3", "longrope", "su")
def table_by_ratio(settings: Settings) -> Made:
    original = settings.read(ORIGINAL)
    if original is None:
        original = settings.trace.get(ORIGINAL)
    if original is None:
        raise RefusedError(f"longrope without {ORIGINAL}")
    trained = whole(original, ORIGINAL)
    # The table is chosen once, by the lengths in the file, not by the length of a
    # prompt.
    name = "long_factor" if settings.longest > trained else "short_factor"
    return reader.one_table(settings, name, trained)


Exllama.methods = reader.methods_of("unscaled") | reader.methods_of("exllamav3")


class TensorRt(Reader):
    """TensorRT-LLM, its PyTorch path."""

    usual_longest = None
    usual_factor = 1.0

    def settings(self, trace: Trace) -> dict[str, Settings]:
        # transformers loads the file. Of several layer types full attention is read, which
        # is the first.
        loaded = next(iter(Transformers5().settings(trace).values()))
        if loaded.layer == "compress":
            raise NotModelledError(
                "DeepSeek-V4's bases by layer, with a rule of its own"
            )
        # The original length at top level wins; one that is missing or 0 is 1024.
        top = trace.get(ORIGINAL)
        source = loaded.sources.get(ORIGINAL, "")
        inside = 0 if source == MAXIMUM else loaded.get(ORIGINAL)
        loaded.put(ORIGINAL, top or inside or 1024, ORIGINAL if top else source)
        return {"all": loaded}

    def kind(self, settings: Settings) -> Any:
        # An empty name is no scaling.
        return super().kind(settings) or "default"

    def width(self, settings: Settings, head_dim: int) -> int:
        trace = settings.trace
        # The base of GPT-NeoX, rotary_emb_base, is taken for a width.
        for name in ("rotary_dim", "rotary_emb_base", "qk_rope_head_dim"):
            given = trace.get(name)
            if given:
                return reader.width_of(head_dim, whole(given, name) / head_dim)
        share = trace.get("rotary_pct") or settings.read("partial_rotary_factor") or 1.0
        return reader.width_of(head_dim, number(share, "share"))


@reader.scaling_type("tensorrt-llm", "longrope", "su")
def table_by_limit(settings: Settings) -> Made:
    trained = settings.original()
    # Without max_seq_len the long table is used.
    limit = settings.trace.get("max_seq_len")
    is_long = limit is None or number(limit, "max_seq_len") > trained
    name = "long_factor" if is_long else "short_factor"
    return reader.one_table(settings, name, trained)


TensorRt.methods = reader.methods_of("unscaled") | reader.methods_of("tensorrt-llm")


class Tgi(Reader):
    """text-generation-inference: the block of transformers 4, with its own scaling types."""

    unknown = "rope scaling type '{}' is not implemented"
    multiplies_unscaled = False
    reads_local = True

    def settings(self, trace: Trace) -> dict[str, Settings]:
        block: Mapping[str, Any] = trace.block("rope_scaling") or {}
        # The variables ROPE_SCALING and ROPE_FACTOR replace the block. They are among the
        # flags here.
        if "rope_scaling" in trace.flags:
            block = {
                "type": trace.flags["rope_scaling"],
                "factor": trace.flags.get("rope_factor"),
            }
        settings = Settings(trace, block, "rope_scaling")
        settings.put_first(
            "rope_theta", trace.family.base_keys, trace.family.base, "class default"
        )
        return {"all": settings}

    def width(self, settings: Settings, head_dim: int) -> int:
        # flash_phi, flash_neox and flash_gptj read the share, the others rotate the
        # whole head.
        trace = settings.trace
        family = trace.family
        share = reader.share_of(trace, head_dim) or 1.0
        if family.name in ("phi", "gpt_neox"):
            share, _ = trace.first(family.partial_keys, family.partial or 1.0)
        return reader.width_of(head_dim, number(share, "share"))


@reader.scaling_type("tgi", "default", "linear", "mrope")
def tgi_unscaled(settings: Settings) -> Made:
    settings.mark("factor", "ignored", "linear is not applied on this path")
    return reader.unscaled(settings)


@reader.scaling_type("tgi", "yarn")
def tgi_yarn(settings: Settings) -> Made:
    # Betas are fixed at 32 and 1, and one mscale alone is read. attention_factor and
    # truncate are not.
    factor = settings.number("factor")
    attention = reader.mscale_ratio(settings, factor)
    scaling = Yarn(factor=factor, attention_factor=attention)
    return scaling, attention, settings.original()


@reader.scaling_type("tgi", "longrope", "su")
def tgi_longrope(settings: Settings) -> Made:
    raise NotModelledError(
        "two tables inside one sequence: short below the original length"
    )


Tgi.methods = reader.methods_of("tgi")
