"""The steps that vLLM and SGLang share: both load configurations by transformers 5, and
compute frequencies by their own code.

The steps of one server alone, with the sources that were read, are in vllm.py and
sglang.py. A model file is the code of a server for a model type. A `Trace` is a
configuration that notes which of its keys were read, and `trace.family` has the facts
about its model type.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ropelab.readers import reader, scaling_types
from ropelab.readers.blocks import fill_block, stop_unrotated
from ropelab.readers.families import read_table
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
from ropelab.readers.trace import MAXIMUM, ORIGINAL, Trace
from ropelab.readers.transformers import Transformers5

# The scaling type of scaled models with latent attention.
LATENT_TYPE = "deepseek_yarn"
_NAMES: dict[str, list[str]] = read_table("names")["servers"]
# The beginnings of model types whose configuration class raises an error for some
# scaling types, in every runtime that loads it.
STRICT_TYPES = tuple(_NAMES["strict_types"])
# Model types with latent attention whose scaling type is not replaced by LATENT_TYPE.
TYPES_WITH_OWN_SCALING = tuple(_NAMES["types_with_own_scaling"])
# Model types whose key partial_rotary_factor is about another part of the head.
TYPES_WITH_OTHER_SHARE = tuple(_NAMES["types_with_other_share"])
# The keys of the length, if the class fills in no maximum. vLLM takes the smallest of
# their values.
VLLM_LENGTHS = tuple(_NAMES["vllm_lengths"])


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
        scaling_type = Transformers5.find_type(self, settings)
        if isinstance(scaling_type, str) and scaling_type in Transformers5.rules:
            settings.needs(*Transformers5.rules[scaling_type].needs)

        family = settings.trace.family
        base = settings.get("rope_theta")
        if base is None:
            stop_unrotated(settings.trace)
        if family.unrotated_at_zero and base == 0:
            raise NotModelledError("a base of 0, with which its layers rotate nothing")

        # The configuration class refuses the type.
        if family.name.startswith(STRICT_TYPES) and scaling_type in family.refuses:
            raise RefusedError(f"'{family.name}' takes no rope type '{scaling_type}'")
        is_compressed = family.name == "deepseek_v4" and settings.layer == "compress"
        if is_compressed and scaling_type != "yarn":
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
        scaling_type = settings.get("rope_type")
        family = settings.trace.family
        if family.drops_scaling:
            return "default"
        is_scaled_latent = family.latent and scaling_type != "default"
        if is_scaled_latent and family.name not in TYPES_WITH_OWN_SCALING:
            return LATENT_TYPE
        return scaling_type

    def find_width(self, settings: Settings, head_dim: int) -> int:
        family = settings.trace.family
        is_proportional = settings.get("rope_type") == "proportional"
        has_other_share = family.name in TYPES_WITH_OTHER_SHARE
        if family.drops_share or is_proportional or has_other_share:
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


def read_scaling_beside_base(trace: Trace) -> Settings:
    """Return the settings of Grok, whose keys of a scaling are beside the base."""
    base, source = trace.first(("rope_theta", "rope_parameters.rope_theta"), 10000.0)
    settings = Settings(trace)
    settings.put("rope_theta", base, source or "default of the model file")

    scaling_type = trace.get("rope_type") or "original"
    settings.put("rope_type", "default", "rope_type")
    if scaling_type == "original":
        return settings
    if scaling_type not in ("yarn", "yarn_linear"):
        raise NotModelledError(f"a rope_type of '{shorten_value(scaling_type)}'")

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


SERVER_RULES = {**Transformers5.rules, **scaling_types.read_rules("servers")}
