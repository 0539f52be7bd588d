"""The rotation that `emit` writes into a model's file: the file's own scaling, or
another scaling.

A user wants a model to read a longer context. The file's own scaling is kept, with a
larger factor if the context needs it (`keep_scaling`), or another method takes its
place (`choose_scaling`). A file may have several rotations. Only the rotation of its
main layers is scaled. The rotations of other layers stay.

A block is the part of a file that has the keys of the scaling, such as rope_scaling.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ropelab.math import scaling as scalings
from ropelab.math.methods import parse_scaling
from ropelab.math.models import KnownModel
from ropelab.readers import registry
from ropelab.readers.families import (
    CLASSES,
    TRAINED_LENGTHS,
    find_family,
    is_unscalable,
)
from ropelab.readers.family import Family
from ropelab.readers.scaling_types import yarn_attention
from ropelab.readers.servers import VLLM_LENGTHS
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import (
    BLOCKS,
    MAXIMUM,
    ORIGINAL,
    find_language_part,
    find_rope_block,
)
from ropelab.readers.transformers import load_block
from ropelab.runs.errors import InputError

# Some keys of a configuration, with their values.
Fragment = dict[str, Any]

# Scaling types whose factor can be raised for a longer context.
TYPES_WITH_RAISABLE_FACTOR = ("linear", "yarn", "llama3")
# The key of the share of a head that rotates.
SHARE = "partial_rotary_factor"
# The parameters of YaRN's ramp, with their usual values.
BETAS = {"beta_fast": 32, "beta_slow": 1}


@dataclass(frozen=True)
class ModelFile:
    """A model's file, and the part of the file that is about the language model."""

    config: Mapping[str, Any]
    # The keys that lead to the part, such as text_config; empty if the part is the
    # whole file.
    nest: Sequence[str] = ()
    # The part itself.
    language_part: Mapping[str, Any] = field(default_factory=dict)
    # The layer type that is scaled.
    scaled_layer: str = ""
    # The block of each layer type, where each has one.
    layers: Fragment = field(default_factory=dict)
    # The rotations of the other layer types.
    other_layers: Mapping[str, RopeSpec] = field(default_factory=dict)
    # True for each layer that rotates. None: all layers rotate, or it is not known
    # which.
    rotating: tuple[bool, ...] | None = None
    # The number of tokens that the rotating layers see, if all rotating layers have a
    # window.
    window: int | None = None
    # The rotation of the file as it is.
    released_spec: RopeSpec | None = None
    # The model type, where its class in transformers reads no scaling; empty otherwise.
    unscalable: str = ""

    @property
    def block(self) -> tuple[str, Mapping[str, Any]]:
        """The name and the content of the block that is scaled."""
        name, block = find_rope_block(self.language_part)
        return name, self.layers.get(self.scaled_layer, block)

    @property
    def present(self) -> set[str]:
        """The names of blocks, lengths and sizes of a head that the file gives."""
        names = (*BLOCKS, "head_dim", SHARE, *BETAS, *VLLM_LENGTHS)
        _, block = self.block
        return {
            name for name in names if self.language_part.get(name) or block.get(name)
        }

    @property
    def older_family(self) -> Family:
        """The facts about the class of the model type in transformers 4."""
        model_type = str(self.language_part.get("model_type"))
        return find_family(model_type, registry.RUNTIMES["transformers-4.57"].release)


@dataclass(frozen=True, kw_only=True)
class WantedRotation(RopeSpec):
    """A rotation to be written into a file."""

    # The length that the user asks for, or the largest length that the scaling reaches,
    # if that is less.
    context: int
    source: ModelFile
    # The length that the user asks for, if the file's own scaling does not reach it;
    # else 0.
    unreached_length: int = 0
    # The file's own block, which stays. None: another scaling takes its place.
    own_block: Fragment | None = None
    # True if the factor in the file's own block is raised.
    has_raised_factor: bool = False
    # Keys of the block, on axes of positions, that stay with any scaling.
    axes_keys: Fragment = field(default_factory=dict)

    @property
    def is_released(self) -> bool:
        """True if the file as it is has this rotation, and reaches the context."""
        released = self.source.released_spec
        return (
            released is not None
            and self.context <= released.length
            and self.scaling == released.scaling
            and self.base == released.base
        )


# The scaling types of files, by the names of the methods of known models.
TYPE_OF_METHOD = {"pi": "linear", "yarn": "yarn", "llama3": "llama3"}


def make_file(model: KnownModel) -> Fragment:
    """Return the keys about rotation that the config.json of a known model has."""
    keys: Fragment = {
        "hidden_size": model.head_dim,
        "num_attention_heads": 1,
        MAXIMUM: model.released_len,
        "rope_theta": model.base,
    }
    family = find_family(model.model_type)
    if family.latent:
        keys["qk_rope_head_dim"] = model.rotary_width
    elif family.width_key:
        keys[family.width_key] = model.rotary_width
    elif model.rotary_width != model.head_dim:
        keys[SHARE] = model.rotary_width / model.head_dim
    if "head_dim" in family.head_keys and not family.latent:
        keys["head_dim"] = model.head_dim

    if model.scaled_by_file:
        keys["rope_scaling"] = make_block(model)
    elif model.sections:
        keys["rope_scaling"] = {"type": "mrope", "mrope_section": [*model.sections]}

    inner = CLASSES["texts"].get(model.model_type)
    if inner and model.model_type not in CLASSES["flat"]:
        language_part = {"model_type": inner, **keys}
        return {"model_type": model.model_type, "text_config": language_part}
    return {"model_type": model.model_type, **keys}


def make_block(model: KnownModel) -> Fragment:
    """Return a known model's own scaling as its file has it."""
    scaling = parse_scaling(model.method)
    block: Fragment = {"rope_type": TYPE_OF_METHOD[scaling.name]}
    for parameter in fields(scaling):
        value = getattr(scaling, parameter.name)
        if value is not None:
            block[parameter.name] = value
    if scaling.name != "pi":
        block[ORIGINAL] = model.trained_len
    return block


def copy_fields(spec: RopeSpec) -> dict[str, Any]:
    """Return the fields of a rotation by name, from which another rotation is made."""
    return {each.name: getattr(spec, each.name) for each in fields(RopeSpec)}


def read_model_file(name: str, config: Mapping[str, Any]) -> tuple[ModelFile, RopeSpec]:
    """Return a file, and the rotation in it that is to be scaled.

    Both are as transformers 5 reads them or, if it does not read the file, as another
    runtime does.
    """
    prefix, language_part = find_language_part(config)
    reading = registry.read_by_reference(name, config)
    by_reference = reading.runtime.name == registry.REFERENCE
    spec = reading.layers[reading.main_layer]
    # Of longrope vLLM claims less by default than the file states, and of a dynamic scaling
    # servers claim more.
    is_changed_by_server = (
        isinstance(spec.scaling, scalings.LongRope) or spec.multiplied_len
    )
    if not by_reference and is_changed_by_server:
        spec = replace(spec, claimed_len=language_part.get(MAXIMUM), multiplied_len=0)
    factor = getattr(spec.scaling, "factor", 1.0)
    if math.isinf(factor * max(spec.length, spec.trained_len)):
        raise InputError(f"{name}: no length is {factor:g} times the trained length")
    scaled_length = round(factor * spec.length)
    if any(language_part.get(key) == scaled_length for key in VLLM_LENGTHS):
        # The file states the length after scaling under one of these keys, and the
        # length before scaling as the maximum.
        spec = replace(spec, claimed_len=scaled_length)

    # Only transformers 5 has layer types.
    scaled_layer = reading.main_layer if by_reference else "all"
    other_layers = {}
    if by_reference:
        other_layers = dict(reading.layers)
        other_layers.pop(scaled_layer, None)
    layers = load_block(language_part) if scaled_layer != "all" else {}
    family = find_family(reading.model_type)
    file = ModelFile(
        config,
        nest=prefix.split(".")[:-1],
        language_part=language_part,
        scaled_layer=scaled_layer,
        layers=layers,
        other_layers=other_layers,
        rotating=reading.rotating,
        window=reading.window,
        released_spec=spec,
        unscalable=reading.model_type if is_unscalable(family) else "",
    )
    return file, spec


def keep_scaling(
    name: str, source: ModelFile, spec: RopeSpec, context: int
) -> tuple[WantedRotation, str]:
    """Return a file's own scaling, with a larger factor if the context needs it.

    The second value is a note on the factor; it is empty if the factor stays.
    """
    key, block = source.block
    raised_block, note = raise_factor(spec, block, context)
    # There is a note if the file's own scaling does not reach the context. If it has no
    # factor that can be raised either, the text reaches only the length of the file.
    can_be_raised = raised_block["rope_type"] in TYPES_WITH_RAISABLE_FACTOR
    has_raised_factor = bool(note) and can_be_raised
    unreached_length = 0
    reached = context
    if note and not has_raised_factor:
        unreached_length = context
        reached = spec.length
    # The length of the file may not change if dynamic scaling starts at it, or the
    # factor of longrope comes from it.
    is_fixed = isinstance(spec.scaling, scalings.DynamicNtk | scalings.LongRope)
    longest = spec.length
    if not is_fixed:
        longest = max(spec.length, reached)

    kept_block: Fragment = {**raised_block, "rope_theta": spec.base}
    patched: Fragment = {**source.language_part, MAXIMUM: longest, key: kept_block}
    # In files of transformers 5 each layer type may have a block.
    if source.layers:
        if "rope_scaling" in patched:
            # Some classes refuse the key, null included.
            patched["rope_scaling"] = None
        patched["rope_parameters"] = {**source.layers, source.scaled_layer: kept_block}
    config = merge_into_part(source.config, patched, source.nest)
    rotation_fields = copy_fields(registry.read_main_rotation(name, config))
    rotation_fields["claimed_len"] = longest
    rotation = WantedRotation(
        **rotation_fields,
        context=reached,
        source=source,
        unreached_length=unreached_length,
        own_block=raised_block,
        has_raised_factor=has_raised_factor,
    )
    return rotation, note


def choose_scaling(
    source: ModelFile, spec: RopeSpec, context: int, method: str
) -> tuple[WantedRotation, str]:
    """Return the scaling of a method, or YaRN if the context needs one.

    The second value is a note on the trained length; it may be empty.
    """
    model_type = str(source.language_part.get("model_type"))
    trained = TRAINED_LENGTHS.get((model_type, spec.trained_len))
    is_unscaled = isinstance(spec.scaling, scalings.Unscaled)
    note = ""
    if trained is not None and is_unscaled and context > spec.trained_len:
        allowed = spec.trained_len
        note = (
            f"{model_type} was trained with {trained} of the {allowed} tokens allowed"
        )
        spec = replace(spec, trained_len=trained)

    factor = context / spec.trained_len
    usual_method = "yarn" if factor > 1 and source.window is None else "unscaled"
    scaling = parse_scaling(method or usual_method, max(1.0, factor))
    factor_methods = scalings.Yarn | scalings.PositionInterpolation | scalings.Llama3
    if isinstance(scaling, factor_methods):
        reach = round(scaling.factor * spec.trained_len)
        if reach < context:
            raise InputError(f"{scaling.label} reaches {reach} tokens, not {context}")

    length = max(context, spec.length)
    rotation_fields = copy_fields(spec)
    rotation_fields["scaling"] = scaling
    rotation_fields["claimed_len"] = length
    rotation_fields["attention_factor"] = scaling.plan(
        spec.geometry, length
    ).attention_factor
    rotation_fields["softmax_factor"] = 1.0
    _, block = source.block
    axes_keys = {key: value for key, value in block.items() if key.startswith("mrope_")}
    rotation = WantedRotation(
        **rotation_fields, context=context, source=source, axes_keys=axes_keys
    )
    return rotation, note


def merge_into_part(
    config: Mapping[str, Any], patch: Fragment, nest: Sequence[str]
) -> Fragment:
    """Return a file with other values of some keys in one of its parts.

    ``nest``: the keys that lead to the part.
    """
    if not nest:
        return {**config, **patch}
    first, *inner_nest = nest
    return {**config, first: merge_into_part(config[first], patch, inner_nest)}


def raise_factor(
    spec: RopeSpec, block: Mapping[str, Any], context: int
) -> tuple[Fragment, str]:
    """Return the file's own block, with a larger factor if the context needs it.

    The second value is a note on the factor; it is empty if the context needs none.
    """
    scaling_type = block.get("rope_type") or block.get("type")
    is_longrope = isinstance(spec.scaling, scalings.LongRope)
    raised_block: Fragment = {"rope_type": "longrope" if is_longrope else scaling_type}
    for key, value in block.items():
        if key not in ("type", "rope_type", "rope_theta"):
            raised_block[key] = value

    factor = getattr(spec.scaling, "factor", 1.0)
    reach = round(factor * spec.trained_len)
    limit = spec.length
    if isinstance(spec.scaling, scalings.Yarn | scalings.Llama3):
        limit = max(limit, reach)
    if context <= limit or isinstance(spec.scaling, scalings.DynamicNtk):
        return raised_block, ""

    # YaRN reaches its factor times the trained length, whatever the file states.
    if isinstance(spec.scaling, scalings.Yarn):
        limit = reach
    note = f"the file's own {scaling_type} reaches {limit} tokens"
    if scaling_type not in TYPES_WITH_RAISABLE_FACTOR:
        return raised_block, f"{note}, and has no factor to raise; --method replaces it"

    raised_block["factor"] = factor * context / limit
    note = f"{note}: its factor is raised from {factor:g} to {raised_block['factor']:g}"
    attention_factor = raised_block.get("attention_factor")
    if attention_factor is None:
        return raised_block, note
    if not math.isclose(attention_factor, yarn_attention(factor), rel_tol=1e-6):
        return raised_block, f"{note}, its attention_factor stays {attention_factor:g}"

    # The factor on attention follows the raised factor, as it would without the key.
    raised_attention = yarn_attention(raised_block["factor"])
    raised_block["attention_factor"] = raised_attention
    follows = (
        f"{attention_factor:g}, the default for {factor:g}, to {raised_attention:g}"
    )
    return raised_block, f"{note}, its attention_factor from {follows}"
