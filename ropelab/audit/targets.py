"""The keys of a configuration, or the flags, that each target is given.

A target is one or several runtimes that take the same text. It has a record in
targets.toml, and functions here that write keys and flags for a wanted rotation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ropelab.audit.wanted import BETAS, SHARE, Fragment, WantedRotation
from ropelab.math import scaling as scalings
from ropelab.readers import registry
from ropelab.readers.scaling_types import longrope_attention, yarn_attention
from ropelab.readers.servers import VLLM_LENGTHS
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import BANDS, MAXIMUM, ORIGINAL, TYPES_WITH_ORIGINAL
from ropelab.readers.trainers import LLAMAFACTORY
from ropelab.runs.errors import InputError
from ropelab.runs.files import read_table_beside

# Returns the keys, or the flags, for a wanted rotation.
Writer = Callable[[WantedRotation], Fragment]
KEYS: dict[str, Writer] = {}
FLAGS: dict[str, Writer] = {}


def register_keys_writer(*targets: str) -> Callable[[Writer], Writer]:
    """Register a function that writes keys of a configuration for these targets."""

    def register(writer: Writer) -> Writer:
        KEYS.update(dict.fromkeys(targets, writer))
        return writer

    return register


def register_flags_writer(*targets: str) -> Callable[[Writer], Writer]:
    """Register a function that writes the flags of some targets."""

    def register(writer: Writer) -> Writer:
        FLAGS.update(dict.fromkeys(targets, writer))
        return writer

    return register


def write_nothing(rotation: WantedRotation) -> Fragment:
    return {}


# -- Parts of a text that several targets share. --


def make_block(rotation: WantedRotation) -> Fragment:
    """Return the scaling block, with the axes of a model of images."""
    block = make_scaling_block(rotation)
    if not rotation.axes_keys:
        return block
    return {**(block or {"rope_type": "default"}), **rotation.axes_keys}


def make_scaling_block(rotation: WantedRotation) -> Fragment:
    """Return the scaling block, with the name of the type that all runtimes know."""
    scaling = rotation.scaling
    original = {ORIGINAL: rotation.trained_len}
    if rotation.own_block:
        if rotation.own_block["rope_type"] in TYPES_WITH_ORIGINAL:
            return {**rotation.own_block, **original}
        return dict(rotation.own_block)

    match scaling:
        case scalings.Unscaled():
            return {}
        case scalings.PositionInterpolation():
            return {"rope_type": "linear", "factor": float(scaling.factor)}
        case scalings.DynamicNtk():
            return {"rope_type": "dynamic", "factor": float(scaling.factor)}
        case scalings.Llama3():
            bands = {name: float(getattr(scaling, name)) for name in BANDS}
            return {"rope_type": "llama3", **bands, **original}
        case scalings.Yarn():
            block = {"rope_type": "yarn", "factor": float(scaling.factor), **original}
            # Keys at the default that all runtimes share are left out.
            for name, usual_value in {**BETAS, "truncate": True}.items():
                value = getattr(scaling, name)
                if value != usual_value:
                    block[name] = value if isinstance(value, bool) else float(value)
            return {**block, **state_attention(rotation)}
        case scalings.LongRope():
            long_factor = list(scaling.long_factor)
            short_factor = list(scaling.short_factor)
            if not short_factor:
                short_factor = [1.0] * len(long_factor)
            return {
                "rope_type": "longrope",
                "short_factor": short_factor,
                "long_factor": long_factor,
                "factor": float(scaling.factor),
                **original,
                **state_attention(rotation),
            }
    raise InputError(
        f"no configuration has a name for {scaling.name}; one with a name is yarn"
    )


def state_attention(rotation: WantedRotation) -> Fragment:
    """Return the key attention_factor, unless runtimes compute the wanted factor
    without it.
    """
    usual_factor = compute_usual_attention(rotation)
    if math.isclose(rotation.attention_factor, usual_factor, rel_tol=1e-12):
        return {}
    return {"attention_factor": rotation.attention_factor}


def compute_usual_attention(spec: RopeSpec) -> float:
    """Return the factor on cos and sin that runtimes compute if a file gives none."""
    factor = getattr(spec.scaling, "factor", 1.0)
    if isinstance(spec.scaling, scalings.LongRope):
        return longrope_attention(factor, spec.trained_len)
    return yarn_attention(factor)


def make_lengths(rotation: WantedRotation) -> Fragment:
    """Return the keys of the length, and head_dim where a class needs it."""
    source = rotation.source
    # Dynamic scaling starts at max_position_embeddings, so that it has to be the
    # trained length.
    length = rotation.length
    if isinstance(rotation.scaling, scalings.DynamicNtk):
        length = rotation.trained_len
    keys: Fragment = {MAXIMUM: length}
    for name in VLLM_LENGTHS:
        if name in source.present:
            keys[name] = length

    # Some classes build scaled tables only if the file states a head_dim.
    lacks_head = "head_dim" not in source.present
    if (
        source.older_family.refuses_without_head_dim
        and lacks_head
        and make_block(rotation)
    ):
        keys["head_dim"] = rotation.head_dim
    return keys


def make_share(rotation: WantedRotation) -> Fragment:
    """Return partial_rotary_factor unless the whole head rotates."""
    rotates_whole = rotation.rotary_dim == rotation.head_dim
    # If the file has a share in its block, a server keeps it unless the text has one. So
    # the share is also written where it is 1.
    if rotates_whole and (rotation.own_block or SHARE not in rotation.source.present):
        return {}
    return {SHARE: rotation.rotary_dim / rotation.head_dim}


def make_newer_block(rotation: WantedRotation) -> Fragment:
    """Return rope_parameters, which holds the base and the share of a head, too."""
    scaling_block = make_block(rotation) or {"rope_type": "default"}
    block = {"rope_theta": rotation.base, **scaling_block, **make_share(rotation)}
    if rotation.source.layers:
        return {**rotation.source.layers, rotation.source.scaled_layer: block}
    return block


# -- Keys of a configuration. --


@register_keys_writer("hf4", "mlx", "trtllm", "exllama", "tgi", "portable")
def write_hf4(rotation: WantedRotation) -> Fragment:
    """Return rope_theta and rope_scaling, the type under both of its names."""
    source = rotation.source
    block = make_block(rotation)
    if not block and source.older_family.needs_block:
        block = {"rope_type": "default"}
    if block:
        scaling_type = block["rope_type"]
        block = {"rope_type": scaling_type, "type": scaling_type, **block}
        names = source.older_family.block_keys
        # Classes that require the key `type` take only the keys that they list.
        if "type" in names:
            block = {name: block[name] for name in names if name in block}

    keys = {**make_lengths(rotation), "rope_theta": rotation.base}
    # transformers 4 reads longrope's original length at top level only.
    if isinstance(rotation.scaling, scalings.LongRope):
        keys[ORIGINAL] = rotation.trained_len
    keys |= make_share(rotation)
    if "rope_parameters" in source.present:
        keys["rope_parameters"] = make_newer_block(rotation)

    base_keys = source.older_family.layer_base_keys
    for label, key in base_keys.items():
        if label in source.layers:
            keys[key] = source.layers[label]["rope_theta"]
    # The base of the main layers is written last, since some classes have one key for all
    # layer types.
    if source.scaled_layer in base_keys:
        keys[base_keys[source.scaled_layer]] = rotation.base
    return {**keys, "rope_scaling": block or None}


@register_keys_writer("hf5", "axolotl")
def write_hf5(rotation: WantedRotation) -> Fragment:
    """Return rope_parameters, for a configuration that was read already."""
    return {**make_lengths(rotation), "rope_parameters": make_newer_block(rotation)}


@register_keys_writer("vllm", "vllm-draft")
def write_vllm(rotation: WantedRotation) -> Fragment:
    """Return what transformers 5 takes, with the length that vLLM multiplies by itself."""
    fragment = write_hf5(rotation)
    scaling = rotation.scaling
    # vLLM multiplies the lengths of all models but Gemma 3.
    if "gemma3" in rotation.source.older_family.name:
        return fragment
    if isinstance(scaling, scalings.PositionInterpolation):
        fragment[MAXIMUM] = round(rotation.length / scaling.factor)
    if isinstance(scaling, scalings.DynamicNtk):
        # vLLM scales by one base from the first token on, whatever the length is, and
        # refuses what is longer. So the length is that which the user wants.
        longest = max(rotation.length, rotation.context)
        fragment[MAXIMUM] = math.ceil(longest / scaling.factor)
    return fragment


@register_keys_writer("sglang")
def write_sglang(rotation: WantedRotation) -> Fragment:
    """Return what vLLM takes, with the block as rope_scaling.

    SGLang multiplies attn_factor by YaRN's usual factor on cos and sin. So the wanted
    factor divided by the usual factor is written.
    """
    # DeepSeek-V4 has one block for SGLang.
    if rotation.source.scaled_layer == "compress":
        source = replace(rotation.source, layers={})
        rotation = replace(
            rotation, source=source, base=source.other_layers["main"].base
        )

    if rotation.source.layers:
        fragment = write_hf5(rotation)
        block = fragment["rope_parameters"][rotation.source.scaled_layer]
    else:
        fragment = write_vllm(rotation)
        block = fragment.pop("rope_parameters")
        fragment["rope_scaling"] = block

    attention = block.pop("attention_factor", None)
    if attention and block["rope_type"] == "yarn":
        block["attn_factor"] = attention / yarn_attention(block["factor"])
    return fragment


# -- Flags. --


@register_flags_writer("llamafactory")
def write_llamafactory(rotation: WantedRotation) -> Fragment:
    scaling_type = None
    if rotation.has_raised_factor or not rotation.own_block:
        scaling_type = make_block(rotation).get("rope_type")
    scaling = scaling_type if scaling_type in LLAMAFACTORY else "null"
    return {"rope_scaling": scaling, "cutoff_len": rotation.context}


@register_flags_writer("llama.cpp")
def write_llamacpp(rotation: WantedRotation) -> Fragment:
    scaling = rotation.scaling
    flags: Fragment = {"ctx_size": rotation.context}
    if isinstance(scaling, scalings.PositionInterpolation):
        flags["rope_scaling"] = "linear"
        flags["rope_scale"] = scaling.factor
    if isinstance(scaling, scalings.Yarn):
        flags["rope_scaling"] = "yarn"
        flags["rope_scale"] = scaling.factor
        flags["yarn_orig_ctx"] = rotation.trained_len
        # Betas are left out at the default, unless the file has a value.
        for name, usual_value in BETAS.items():
            value = getattr(scaling, name)
            if name in rotation.source.present or value != usual_value:
                flags[f"yarn_{name}"] = value
    return flags


@register_flags_writer("koboldcpp", "lmstudio")
def write_koboldcpp(rotation: WantedRotation) -> Fragment:
    # Within the length of the file koboldcpp changes nothing by itself.
    if rotation.is_released:
        return {"ctx_size": rotation.context}

    # Both the scale and the base are given. If scale or base is missing, koboldcpp
    # chooses the missing number by its own rule.
    flags: Fragment = {
        "ctx_size": rotation.context,
        "rope_freq_scale": 1.0,
        "rope_freq_base": rotation.base,
    }
    if isinstance(rotation.scaling, scalings.PositionInterpolation):
        flags["rope_freq_scale"] = 1 / rotation.scaling.factor
        flags["rope_scaling"] = "linear"
    elif not isinstance(rotation.scaling, scalings.Unscaled) and not rotation.own_block:
        # koboldcpp has no flags for other methods. The base of NTK-aware by the same
        # factor is nearer to what is wanted than no scaling.
        factor = max(1.0, rotation.context / rotation.trained_len)
        flags["rope_freq_base"] = scalings.ntk_base(rotation.geometry, factor)
    return flags


@dataclass(frozen=True)
class Target:
    """One or several runtimes that take the same text."""

    # The runtimes whose readers read the text back.
    runtimes: Sequence[str]
    write_keys: Writer
    write_flags: Writer
    # The text, with fields in braces: the keys over several lines (lines) or in one
    # (json), the length, all flags, or a single flag by its name.
    text: str = "{lines}"
    # The text where the file has the keys already; empty: the same text.
    unchanged: str = ""
    # True if the text sets rope_scaling to null, since this key would replace
    # rope_parameters.
    replaces: bool = False
    # True if the text can set keys only at the top of a file.
    flat: bool = False

    @property
    def as_flag(self) -> bool:
        """True if the keys are the value of a flag: the server lays them over the file."""
        return "{json}" in self.text


def make_target(name: str, row: dict[str, Any]) -> Target:
    """Return a target of targets.toml, with the functions that write for it."""
    about = dict(row)
    # A target that lists no runtimes is for all runtimes, except the runtimes whose names
    # begin so.
    left_out = tuple(about.pop("without", ()))
    if "runtimes" not in about:
        runtime_names = [
            each for each in registry.RUNTIMES if not each.startswith(left_out)
        ]
        about["runtimes"] = runtime_names
    write_keys = KEYS.get(name, write_nothing)
    write_flags = FLAGS.get(name, write_nothing)
    return Target(write_keys=write_keys, write_flags=write_flags, **about)


TARGETS = {
    name: make_target(name, row) for name, row in read_table_beside(__file__).items()
}
