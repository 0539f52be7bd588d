"""vLLM and SGLang: they load configurations by transformers 5, and compute frequencies
by their own code.

Read from vllm 0.33.0 (model_executor/layers/rotary_embedding,
transformers_utils/config.py, config/model.py) and sglang 0.5.23
(srt/layers/rotary_embedding, srt/models/llama.py, srt/utils/hf_transformers/common.py).

A model file is the code of a server for a model type. A `Trace` is a configuration that
notes which of its keys were read, and `trace.family` has the facts about its model type.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ropelab.math.scaling import NtkAware
from ropelab.readers import reader, scaling_types
from ropelab.readers.blocks import fill_block, stop_unrotated
from ropelab.readers.families import read_table
from ropelab.readers.mistral_params import OWN_PARAMS
from ropelab.readers.scaling_types import MadeScaling
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    require_number,
    require_whole,
    shorten_value,
)
from ropelab.readers.trace import MAXIMUM, MSCALES, ORIGINAL, Trace
from ropelab.readers.transformers import Transformers5

# The scaling type of scaled models with latent attention.
LATENT_TYPE = "deepseek_yarn"
# The beginnings of model types whose configuration class raises an error for some
# scaling types, in every runtime that loads it.
STRICT_TYPES = ("phi", "dory")
# The beginnings of model types that pass mrope_positions_factor=1, so that the table is
# not made longer, unless videos are pruned.
TYPES_WITH_USUAL_TABLE = ("qwen3", "qwen4")

_NAMES: dict[str, list[str]] = read_table("names")["servers"]
# The scaling types whose factor does not multiply the length in vLLM.
TYPES_WITHOUT_LENGTH_FACTOR = tuple(_NAMES["types_without_length_factor"])
# The keys of the length, of which vLLM takes the smallest value and SGLang the first.
VLLM_LENGTHS = tuple(_NAMES["vllm_lengths"])
SGLANG_LENGTHS = tuple(_NAMES["sglang_lengths"])
# The model types whose scaling SGLang does not read.
SGLANG_UNSCALED_TYPES = tuple(_NAMES["sglang_unscaled_types"])


def read_lengths(trace: Trace, names: tuple[str, ...]) -> Iterator[int]:
    """Yield the values of some keys of lengths, after the class filled in a maximum."""
    maximum, _ = trace.first((MAXIMUM,), trace.family.max_position_embeddings)
    for name in names:
        if name == MAXIMUM:
            length = maximum
        else:
            length = trace.get(name)
        if length is not None:
            yield require_whole(length, name)


class Server(Transformers5):
    """The steps that vLLM and SGLang share."""

    # The keys of the length, if the class fills in no maximum.
    length_keys = VLLM_LENGTHS
    # `get_rope` keeps its tables by the items of the block, which no dict may be among.
    stops_at_nested_block = True

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        refuse_missing(trace)
        refuse_layers(trace)
        specs = super().read(trace)

        key = trace.family.local_head_key
        if not key or not trace.has(key) or "sliding_attention" not in specs:
            return specs
        # Layers with a window have heads of another width.
        head_dim = require_whole(trace.get(key), key)
        share = require_number(
            trace.get("partial_rotary_factor", 1.0), "partial_rotary_factor"
        )
        width = reader.compute_rotated_width(head_dim, share)
        sliding = replace(
            specs["sliding_attention"], head_dim=head_dim, rotary_dim=width
        )
        return {**specs, "sliding_attention": sliding.check()}

    def check_forward(self, trace: Trace) -> None:
        """Do nothing: the model file of the server has a forward pass of its own."""

    def check_layers(self, trace: Trace) -> None:
        if "layer_blocks" in trace.served.facts:
            # The model file has defaults of its own.
            return
        try:
            super().check_layers(trace)
        except RefusedError as error:
            raise NotModelledError(f"what the model file does where {error}") from error

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        if trace.family.has_scaling_beside_base:
            return {"all": read_scaling_beside_base(trace)}
        if trace.family.makes_own_block:
            return {"all": fill_block(trace, "rope_parameters", None)}
        settings = super().read_settings(trace)
        if trace.family.sliding_as_full and "sliding_attention" in settings:
            fill_sliding(settings["full_attention"], settings["sliding_attention"])
        return settings

    def make_spec(self, settings: Settings) -> RopeSpec:
        # The loading by transformers has to pass first.
        kind = Transformers5.find_type(self, settings)
        if isinstance(kind, str) and kind in Transformers5.rules:
            settings.needs(*Transformers5.rules[kind].needs)

        family = settings.trace.family
        base = settings.get("rope_theta")
        if base is None:
            stop_unrotated(settings.trace)
        if family.unrotated_at_zero and base == 0:
            raise NotModelledError("a base of 0, with which its layers rotate nothing")

        # The configuration class refuses the type.
        if family.name.startswith(STRICT_TYPES) and kind in family.refuses:
            raise RefusedError(f"'{family.name}' takes no rope type '{kind}'")
        is_compressed = family.name == "deepseek_v4" and settings.layer == "compress"
        if is_compressed and kind != "yarn":
            raise NotModelledError(
                "DeepSeek-V4's compressed layers with anything but yarn"
            )

        if family.fixed_base is not None:
            settings.mark("rope_theta", "ignored", "the model file has its own base")
            settings.put("rope_theta", family.fixed_base, "its model file")
        return super().make_spec(settings)

    def read_head_dim(self, trace: Trace) -> int:
        if not trace.family.latent:
            return super().read_head_dim(trace)

        width = trace.get("qk_rope_head_dim")
        # DeepSeek 1 has a width of 0, and the usual attention.
        if width == 0:
            return reader.read_head_dim(trace, ())
        # Only classes of transformers read the key head_dim.
        if width is not None or trace.family.has_known_defaults:
            return reader.read_head_dim(trace, ("qk_rope_head_dim",))
        return super().read_head_dim(trace)

    def check_width(self, trace: Trace, width: int) -> None:
        # The servers have their own attention code, whose parts are in served.toml.
        pass

    def find_pairing(self, trace: Trace) -> Any:
        # DeepSeek 1 again, which has the usual pairs, too.
        if trace.get("qk_rope_head_dim") == 0:
            return "half"
        return super().find_pairing(trace)

    def make_scaling(self, settings: Settings) -> MadeScaling:
        # The servers have their own rotary classes, which accept files that the rotary
        # classes of transformers refuse.
        return reader.Reader.make_scaling(self, settings)

    def find_type(self, settings: Settings) -> Any:
        kind = settings.get("rope_type")
        family = settings.trace.family
        if family.drops_scaling:
            return "default"
        # The type of every scaled model with latent attention is replaced, but for
        # MiniCPM3.
        if family.latent and kind != "default" and family.name != "minicpm3":
            return LATENT_TYPE
        return kind

    def find_width(self, settings: Settings, head_dim: int) -> int:
        family = settings.trace.family
        is_proportional = settings.get("rope_type") == "proportional"
        # The key partial_rotary_factor of bailing_hybrid is about another part of the
        # head.
        is_of_other_part = family.name == "bailing_hybrid"
        if family.drops_share or is_proportional or is_of_other_part:
            return head_dim

        # The share in the block is read, also where the class of transformers rotates the
        # whole head.
        settings.mark("partial_rotary_factor", "used")
        return reader.compute_rotated_width(
            head_dim, settings.number("partial_rotary_factor", 1.0)
        )

    def find_softmax_factor(self, settings: Settings) -> float:
        # `attention_factor: 1` switches DeepSeek's factor on whole scores off.
        if settings.get("attention_factor") == 1.0:
            return 1.0
        return super().find_softmax_factor(settings)


def refuse_missing(trace: Trace) -> None:
    """Raise RefusedError for a configuration without what its model file needs."""
    if trace.served.refusal:
        raise RefusedError(trace.served.refusal)
    family = trace.family
    if family.needs_remote and not trace.whole.get("auto_map"):
        raise RefusedError(
            "the model file needs the configuration class of the weights (auto_map)"
        )
    if family.needs_block and not trace.block("rope_scaling"):
        raise RefusedError("the model file stops without rope_scaling")
    if family.needs_head_dim and not trace.get("head_dim"):
        raise RefusedError("the model file needs a head_dim")
    if family.keeps_null_head_dim and trace.has_null("head_dim"):
        refuse_null_head_dim(trace)
    for key in family.needs_keys:
        if not trace.has(key):
            raise RefusedError(f"the model file needs the key {key}")


def refuse_null_head_dim(trace: Trace) -> None:
    """Raise RefusedError if the configuration class leaves a head_dim of null as it is.

    NotModelledError: that class comes with the weights, and may replace it.
    """
    if not trace.family.has_known_defaults:
        raise NotModelledError("a head_dim of null, in a class that was not read")
    # The scalings of transformers stop at a null, too, unless the class replaces it. A class
    # that does not declare the key leaves it as it is.
    is_declared = "head_dim" in trace.family.key_types
    if trace.family.stops_at_null_head_dim or not is_declared:
        raise RefusedError("head_dim is null, which the model file takes for a size")


def refuse_layers(trace: Trace) -> None:
    """Raise RefusedError for a configuration without the lists that its model file needs.

    NotModelledError: some layers have a rotation that is not computed here.
    """
    family = trace.family
    scaled_types = trace.get("yarn_only_types")
    if family.needs_lists and not isinstance(trace.get("rope_theta"), list):
        raise RefusedError("the model file needs lists with a number for each layer")
    is_scaled = family.name == "step3p5" and trace.block("rope_scaling")
    if is_scaled and scaled_types != ["full_attention"]:
        raise NotModelledError("a scaling of layers other than full attention")

    block = trace.block("rope_parameters")
    if family.sliding_as_full and block and "full_attention" not in block:
        raise NotModelledError("a dict that its configuration class passes over")


def refuse_params(trace: Trace) -> None:
    """Raise RefusedError for a params.json that SGLang does not load.

    NotModelledError: it is loaded as a model whose code was not read for it
    (adapt_config_dict in srt/utils/hf_transformers/mistral_utils.py).
    """
    params = trace.text.get(OWN_PARAMS)
    if params is None:
        return

    experts = params.get("moe")
    if not experts:
        if trace.family.latent:
            raise NotModelledError("a params.json of latent attention without experts")
        return
    if not trace.family.latent:
        raise NotModelledError("a params.json of experts without latent attention")
    queries = params.get("llama_4_scaling")
    needed = {"beta", "original_max_position_embeddings"}
    if not isinstance(queries, Mapping) or not needed <= queries.keys():
        raise RefusedError(
            "a params.json with shared experts needs llama_4_scaling, with beta and"
            " original_max_position_embeddings"
        )


class Vllm(Server):
    def make_spec(self, settings: Settings) -> RopeSpec:
        # The types under both keys may differ if they mean the same scaling.
        older_type = settings.get("type")
        newer_type = settings.get("rope_type")
        are_different = older_type not in (None, newer_type)
        mean_the_same = (older_type, newer_type) in scaling_types.SAME_TYPES
        if are_different and not mean_the_same:
            raise RefusedError(
                f"conflict between rope_type={newer_type} and type={older_type}"
            )

        # This type is renamed after loading, and then filled in as transformers does it.
        if newer_type == "su":
            settings.values["rope_type"] = "longrope"
            paths = (ORIGINAL, f"rope_scaling.{ORIGINAL}", MAXIMUM)
            settings.put_first_found(ORIGINAL, paths, None, "")
        drop_unforwarded(settings)
        return super().make_spec(settings)

    def limit_length(self, settings: Settings) -> tuple[int, int]:
        trace = settings.trace
        length = min(read_lengths(trace, VLLM_LENGTHS), default=2048)
        if trace.text.get("model_max_length"):
            length = require_whole(trace.get("model_max_length"), "model_max_length")

        kind = settings.get("rope_type")
        if kind == "longrope":
            original = trace.get(ORIGINAL)
            if original is not None:
                return require_whole(original, "original length"), 0

        factor = settings.get("factor")
        # Gemma 3 files state the length after scaling, so that _get_and_verify_max_len
        # does not multiply it.
        if (
            kind in TYPES_WITHOUT_LENGTH_FACTOR
            or factor is None
            or "gemma3" in trace.model_type
        ):
            return length, 0
        return int(length * require_number(factor, "factor")), length


def drop_unforwarded(settings: Settings) -> None:
    """Drop the keys that a model file of vLLM does not hand on (gpt-oss)."""
    handed_on = settings.trace.family.passed_yarn_keys
    if not handed_on:
        return

    # The model file has a default for one of the keys that it hands on.
    settings.needs(*(name for name in handed_on if name != "truncate"))
    for name in settings.values.keys() - {*handed_on, "rope_theta"}:
        if name != "rope_type":
            settings.mark(name, "ignored", "its model file does not hand it on")
        del settings.values[name]
    settings.values["rope_type"] = "yarn"


class Sglang(Server):
    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        refuse_params(trace)
        return super().read(trace)

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        settings = super().read_settings(trace)
        if trace.family.has_no_block:
            fill_blockless(settings["all"])
        return settings

    def make_spec(self, settings: Settings) -> RopeSpec:
        if settings.get("rope_theta") is None:
            stop_unrotated(settings.trace)
        if settings.trace.family.whole_base:
            base = int(settings.number("rope_theta"))
            settings.put("rope_theta", base, settings.sources["rope_theta"])
        return super().make_spec(settings)

    def find_pairing(self, trace: Trace) -> Any:
        # The weights beside a params.json have adjacent pairs. vLLM reorders them,
        # SGLang rotates them as they are (mistral_utils.py:93).
        if OWN_PARAMS in trace.text and not trace.family.latent:
            return "interleaved"
        return super().find_pairing(trace)

    def find_type(self, settings: Settings) -> Any:
        family = settings.trace.family
        if family.name in SGLANG_UNSCALED_TYPES:
            return "default"
        kind = super().find_type(settings)
        # mistral_utils.py:163 names the scaling of any params.json so.
        if OWN_PARAMS in settings.trace.text and kind == "yarn":
            return LATENT_TYPE
        return kind

    def limit_length(self, settings: Settings) -> tuple[int, int]:
        trace = settings.trace
        factor = settings.get("factor")
        if OWN_PARAMS in trace.text:
            # _remap_general_mistral_args fills in this key, which comes before the usual
            # one.
            length, _ = trace.first(("max_seq_len",), 128_000)
            return require_whole(length, "max_seq_len"), 0
        length = next(read_lengths(trace, SGLANG_LENGTHS), 2048)
        # The factor multiplies in a flat block only, and only without an original
        # length.
        # The path of a key in the dict of a layer type has two dots, as in
        # rope_parameters.full_attention.rope_type.
        dots = settings.sources.get("rope_type", "").count(".")
        is_nested = trace.family.layer_blocks or dots > 1
        is_llama3 = settings.get("rope_type") == "llama3"
        has_original = ORIGINAL in settings.values or is_llama3
        if is_nested or has_original or factor is None:
            return length, 0
        return int(length * require_number(factor, "factor")), length

    def find_width(self, settings: Settings, head_dim: int) -> int:
        if settings.trace.get("rope_rotate_half_dims") is True:
            return reader.compute_rotated_width(head_dim, 0.5)
        if settings.trace.family.sglang_share_keys:
            return find_width_by_keys(settings, head_dim)
        # gpt_j.py passes the width on.
        width = reader.find_cut_width(settings.trace, head_dim)
        if width is not None:
            return width
        is_proportional = settings.get("rope_type") == "proportional"
        if not settings.trace.family.reads_share_unscaled and not is_proportional:
            return reader.compute_rotated_width(head_dim, 1.0)
        return super().find_width(settings, head_dim)


def find_width_by_keys(settings: Settings, head_dim: int) -> int:
    """Return the rotated width of model files that read the share outside the block.

    They have `getattr(config, "partial_rotary_factor", 1)`.

    transformers 5.19, which SGLang 0.5.23 runs, leaves the key of the file there
    (modeling_rope_utils.py:763), also beside a block that has another share.
    """
    trace = settings.trace
    family = trace.family
    note = "the model file takes the share from beside the block"
    settings.mark("partial_rotary_factor", "ignored", note)

    for key in family.sglang_share_keys:
        if trace.has(key):
            value = trace.get(key)
            trace.mark(key, "used")
            # This key has the width itself, and the other keys have the share.
            if key == "rotary_dim":
                return reader.check_rotated_width(head_dim, require_whole(value, key))
            return reader.compute_rotated_width(head_dim, require_number(value, key))
        if key == "partial_rotary_factor" and family.share is not None:
            return reader.compute_rotated_width(head_dim, family.share)

    if family.usual_width:
        return reader.check_rotated_width(head_dim, family.usual_width)
    return reader.compute_rotated_width(head_dim, 1.0)


def fill_blockless(settings: Settings) -> None:
    """Set the base of a class that has no block (GPT-J).

    transformers 5.19 takes both keys of an older file out of the configuration
    (configuration_utils.py:345), and a base inside rope_parameters is not looked at.
    """
    trace = settings.trace
    base = trace.get("rope_theta", 10000.0)
    source = "rope_theta"

    if trace.block("rope_scaling") and base:
        note = "dropped with rope_scaling before the model file looks"
        trace.mark("rope_theta", "ignored", note)
        base = 10000.0
        source = "default of the model file"
    settings.put("rope_theta", base, source)


def read_scaling_beside_base(trace: Trace) -> Settings:
    """Return the settings of Grok, whose keys of a scaling are beside the base."""
    base, source = trace.first(("rope_theta", "rope_parameters.rope_theta"), 10000.0)
    settings = Settings(trace)
    settings.put("rope_theta", base, source or "default of the model file")

    kind = trace.get("rope_type") or "original"
    settings.put("rope_type", "default", "rope_type")
    if kind == "original":
        return settings
    if kind not in ("yarn", "yarn_linear"):
        raise NotModelledError(f"a rope_type of '{shorten_value(kind)}'")

    settings.put("rope_type", "yarn", "rope_type")
    key_of_value = {
        "factor": "scaling_factor",
        ORIGINAL: ORIGINAL,
        "extrapolation_factor": "extrapolation_factor",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
    }
    for name, key in key_of_value.items():
        value = trace.get(key)
        if value is not None:
            settings.put(name, value, key)
    return settings


def fill_sliding(full: Settings, sliding: Settings) -> None:
    """Set base and share of layers with a window, if missing, to base and share of full
    attention.
    """
    own_base_key = sliding.trace.family.layer_base_keys.get("sliding_attention", "")
    for name in ("rope_theta", "partial_rotary_factor"):
        source = sliding.sources.get(name, "")
        is_in_block = source.startswith("rope_parameters.sliding_attention")
        is_missing = source != own_base_key and not is_in_block
        if is_missing and name in full.values:
            sliding.put(name, full.values[name], full.sources[name])


@scaling_types.scaling_type("servers", "linear")
def make_linear_of_float(settings: Settings) -> MadeScaling:
    """Divide all positions by a factor that is written with a point."""
    # The server stops at a factor that is written as a whole number, since it then
    # iterates over it as over a list.
    if isinstance(settings.get("factor"), int):
        raise RefusedError("linear with a whole number as factor: write 4.0, not 4")
    return scaling_types.make_linear(settings)


@scaling_types.scaling_type("vllm", "yarn", "telechat3-yarn")
def make_vllm_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN by vLLM's rules."""
    factor = settings.number("factor")
    trained = settings.original()
    if settings.get("rope_type") == "telechat3-yarn":
        return scaling_types.make_yarn(
            settings, factor, scaling_types.yarn_attention(factor, 0.7)
        )

    # The table of models with position axes is longer, and the ramp comes from its
    # length.
    is_lengthened = not settings.trace.model_type.startswith(TYPES_WITH_USUAL_TABLE)
    if settings.get("mrope_section") and is_lengthened:
        trained *= 4
    # attention_factor counts, as in transformers.
    attention = scaling_types.find_attention(settings, factor)
    return scaling_types.make_yarn(settings, factor, attention, trained)


@scaling_types.scaling_type("vllm", "ntk")
def make_vllm_ntk(settings: Settings) -> MadeScaling:
    """Multiply the base by the factor, and divide each frequency by factor^(2/width) on
    top.
    """
    if settings.get("mixed_b") is not None:
        raise NotModelledError("ntk with mixed_b")

    server = Vllm()
    factor = settings.number("factor")
    head_dim = server.read_head_dim(settings.trace)
    pairs = server.find_width(settings, head_dim) // 2
    # The divisor of pair i is factor^(i / pairs), from the base, times factor^(1 / pairs).
    divisors = tuple(factor ** (pair / pairs) for pair in range(1, pairs + 1))
    return scaling_types.make_longrope((divisors, divisors), 1.0, settings.longest)


@scaling_types.scaling_type("sglang", "yarn")
def make_sglang_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN by SGLang's rules."""
    if settings.get("extrapolation_factor", 1) != 1:
        raise NotModelledError("an extrapolation_factor other than 1")

    factor = settings.number("factor")
    family = settings.trace.family
    if family.name == "deepseek_v4" or family.has_scaling_beside_base:
        # Their classes rotate by their own tables, without a factor on cos and sin.
        return scaling_types.make_yarn(settings, factor, 1.0)
    if family.counts_attention_factor and settings.get("attention_factor") is not None:
        return scaling_types.make_yarn(
            settings, factor, settings.number("attention_factor")
        )

    attention = scaling_types.yarn_attention(factor)
    # Unlike in transformers, mscales of 0 count.
    if all(settings.get(name) is not None for name in MSCALES):
        attention = scaling_types.mscale_ratio(settings, factor)
    # attention_factor is not read; attn_factor multiplies.
    attention *= settings.number("attn_factor", 1.0)
    return scaling_types.make_yarn(settings, factor, attention)


@scaling_types.scaling_type("sglang", "deepseek_yarn")
def make_sglang_latent_yarn(settings: Settings) -> MadeScaling:
    """Return the YaRN of latent attention by SGLang's rules."""
    # attn_factor multiplies the factor on cos and sin here, too.
    scaling, attention, trained = scaling_types.make_mscale_yarn(settings)
    return scaling, attention * settings.number("attn_factor", 1.0), trained


@scaling_types.scaling_type("servers", "longrope")
def make_server_longrope(settings: Settings) -> MadeScaling:
    """Return longrope, whose factor is the ratio of the lengths."""
    # factor and attention_factor are not read.
    tables = settings.lists()
    trained = settings.original()
    ratio = settings.longest / trained
    attention = scaling_types.longrope_attention(ratio, trained)
    for name in ("short_mscale", "long_mscale"):
        if settings.number(name, attention) != attention:
            raise NotModelledError(
                f"{name}, a factor on cos and sin that changes with the table"
            )
    return scaling_types.make_longrope(tables, ratio, trained)


@scaling_types.scaling_type("vllm", "dynamic")
def make_vllm_dynamic(settings: Settings) -> MadeScaling:
    """Raise the base at every length, to the base that the longest context needs."""
    if "alpha" in settings.values:
        return scaling_types.raise_base(settings)

    longest = settings.longest
    factor = settings.number("factor")
    key = "max_trained_positions"
    trained = require_whole(settings.get(key, longest), key)
    # Without max_trained_positions the multiplier is 1: nothing is scaled.
    multiplier = factor * longest / trained - (factor - 1)
    if trained == longest:
        settings.mark("factor", "ignored", "the multiplier is 1 at this length")
    return NtkAware(factor=multiplier), 1.0, longest


@scaling_types.scaling_type("sglang", "dynamic")
def make_sglang_dynamic(settings: Settings) -> MadeScaling:
    """Raise the base at every length, to the base that the longest sequence needs."""
    if "alpha" in settings.values:
        return scaling_types.raise_base(settings)

    # The longest sequence has `factor` times the tokens of the maximum.
    factor = settings.number("factor")
    multiplier = factor * factor - (factor - 1)
    return NtkAware(factor=multiplier), 1.0, settings.longest


SERVER_RULES = {**Transformers5.rules, **scaling_types.read_rules("servers")}
Vllm.rules = SERVER_RULES | scaling_types.read_rules("vllm")
Sglang.rules = SERVER_RULES | scaling_types.read_rules("sglang")
