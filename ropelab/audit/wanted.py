"""A rotation that is to be written into a model's file: its own scaling, or another."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ropelab.math import scaling as scalings
from ropelab.math.methods import parse_scaling
from ropelab.math.models import KnownModel
from ropelab.readers import registry
from ropelab.readers.families import CLASSES, TRAINED, Family, family_of
from ropelab.readers.reader import magnitude
from ropelab.readers.servers import VLLM_LENGTHS
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import BLOCKS, MAXIMUM, ORIGINAL, language_part, rope_block
from ropelab.readers.transformers import load_block
from ropelab.runs.errors import InputError

Fragment = dict[str, Any]  # keys of a configuration

# Types of a file whose factor can be raised for a longer context than the file reaches.
RAISED = ("linear", "yarn", "llama3")
SHARE = "partial_rotary_factor"
BETAS = {"beta_fast": 32, "beta_slow": 1}


@dataclass(frozen=True)
class ModelFile:
    """A model's file, the part that a text changes, and the rotations of its other
    layers.
    """

    config: Mapping[str, Any]
    nest: Sequence[str] = ()  # the keys that lead to the part
    text: Mapping[str, Any] = field(default_factory=dict)  # the part
    main: str = ""  # the layer type that is scaled
    # the blocks, where each type has one
    layers: Fragment = field(default_factory=dict)
    # the rotations of the others
    beside: Mapping[str, RopeSpec] = field(default_factory=dict)
    # for each layer whether it rotates; None: all do, or it is not known
    rotating: tuple[bool, ...] | None = None
    # the tokens that the rotating layers see, where all of these have a window
    window: int | None = None
    released: RopeSpec | None = None  # the rotation of the file as it is
    # the model type, where its class in transformers reads no scaling
    unscalable: str = ""

    @property
    def block(self) -> tuple[str, Mapping[str, Any]]:
        """Name and content of the block that is scaled."""
        name, block = rope_block(self.text)
        return name, self.layers.get(self.main, block)

    @property
    def present(self) -> set[str]:
        """The names among its keys of blocks and lengths, and of the head's size."""
        names = (*BLOCKS, "head_dim", SHARE, *BETAS, *VLLM_LENGTHS)
        _, block = self.block
        return {name for name in names if self.text.get(name) or block.get(name)}

    @property
    def older(self) -> Family:
        """Its class in transformers 4."""
        kind = str(self.text.get("model_type"))
        return family_of(kind, registry.RUNTIMES["transformers-4.57"].release)


@dataclass(frozen=True, kw_only=True)
class Wanted(RopeSpec):
    """A rotation to be written into a file."""

    context: int  # as asked; the file itself may allow more
    source: ModelFile
    beyond: int = 0  # as asked, where the file's own scaling does not reach it
    own: Fragment | None = None  # the file's own block, which stays
    raised: bool = False  # but for its factor
    # keys of the block that any scaling keeps
    axes_keys: Fragment = field(default_factory=dict)

    @property
    def is_released(self) -> bool:
        """True if the file as it is rotates so, and reaches the context."""
        released = self.source.released
        return (
            released is not None
            and self.context <= released.length
            and self.scaling == released.scaling
            and self.base == released.base
        )


# The names in files of the methods that known models have.
TYPES = {"pi": "linear", "yarn": "yarn", "llama3": "llama3"}


def make_file(model: KnownModel) -> Fragment:
    """Return the keys of a known model's config.json that concern its rotation."""
    keys: Fragment = {
        "hidden_size": model.head_dim,
        "num_attention_heads": 1,
        MAXIMUM: model.file_len,
        "rope_theta": model.base,
    }
    family = family_of(model.model_type)
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
        text = {"model_type": inner, **keys}
        return {"model_type": model.model_type, "text_config": text}
    return {"model_type": model.model_type, **keys}


def make_block(model: KnownModel) -> Fragment:
    """Return a known model's own scaling as its file has it."""
    scaling = parse_scaling(model.method)
    block: Fragment = {"rope_type": TYPES[scaling.name]}
    for parameter in fields(scaling):
        value = getattr(scaling, parameter.name)
        if value is not None:
            block[parameter.name] = value
    if scaling.name != "pi":
        block[ORIGINAL] = model.trained_len
    return block


def copy_fields(spec: RopeSpec) -> dict[str, Any]:
    """Return the fields of a rotation, for one with more of them."""
    return {each.name: getattr(spec, each.name) for each in fields(RopeSpec)}


def read_model_file(name: str, config: Mapping[str, Any]) -> tuple[ModelFile, RopeSpec]:
    """Return a file and the rotation that is to be scaled in it, as the reference reads
    them.
    """
    prefix, text = language_part(config)
    reading = registry.reading_of(name, config)
    by_reference = reading.runtime.name == registry.REFERENCE
    spec = reading.layers[reading.label]
    # vLLM allows less by itself.
    if not by_reference and isinstance(spec.scaling, scalings.LongRope):
        spec = replace(spec, claimed_len=text.get(MAXIMUM))
    scaled = round(getattr(spec.scaling, "factor", 1.0) * spec.length)
    if any(text.get(key) == scaled for key in VLLM_LENGTHS):
        spec = replace(spec, claimed_len=scaled)  # the maximum is before it

    # Another runtime's layer types are not the reference's.
    main = reading.label if by_reference else "all"
    beside = {}
    if by_reference:
        beside = {k: layer for k, layer in reading.layers.items() if k != main}
    layers = load_block(text) if main != "all" else {}
    family = family_of(reading.model_type)
    file = ModelFile(
        config,
        nest=prefix.split(".")[:-1],
        text=text,
        main=main,
        layers=layers,
        beside=beside,
        rotating=reading.rotating,
        window=reading.window,
        released=spec,
        unscalable=reading.model_type if family.unscalable else "",
    )
    return file, spec


def keep_scaling(
    name: str, source: ModelFile, spec: RopeSpec, context: int
) -> tuple[Wanted, str]:
    """Return a file's scaling, its factor raised if the context needs it, and a note
    then.
    """
    key, block = source.block
    own, note = raise_factor(spec, block, context)
    raised = bool(note) and own["rope_type"] in RAISED
    beyond = context if note and not raised else 0
    reached = spec.length if beyond else context
    # Dynamic scaling starts at this length, and longrope's factor comes from it.
    fixed = isinstance(spec.scaling, scalings.DynamicNtk | scalings.LongRope)
    longest = spec.length if fixed else max(spec.length, reached)

    kept: Fragment = {**own, "rope_theta": spec.base}
    patched: Fragment = {**source.text, MAXIMUM: longest, key: kept}
    if source.layers:  # as transformers 5 has them
        patched["rope_scaling"] = None
        patched["rope_parameters"] = {**source.layers, source.main: kept}
    config = lay_over(source.config, patched, source.nest)
    rotation = copy_fields(registry.reference(name, config))
    rotation["claimed_len"] = longest
    wanted = Wanted(
        **rotation,
        context=reached,
        source=source,
        beyond=beyond,
        own=own,
        raised=raised,
    )
    return wanted, note


def choose_scaling(
    source: ModelFile, spec: RopeSpec, context: int, method: str
) -> tuple[Wanted, str]:
    """Return the scaling that was asked for, or YaRN if one is needed, and a note on
    its start.
    """
    model_type = str(source.text.get("model_type"))
    trained = TRAINED.get((model_type, spec.trained_len))
    unscaled = isinstance(spec.scaling, scalings.Unscaled)
    note = ""
    if trained is not None and unscaled and context > spec.trained_len:
        allowed = spec.trained_len
        note = (
            f"{model_type} was trained with {trained} of the {allowed} tokens allowed"
        )
        spec = replace(spec, trained_len=trained)

    factor = context / spec.trained_len
    usual = "yarn" if factor > 1 and source.window is None else "unscaled"
    scaling = parse_scaling(method or usual, max(1.0, factor))
    by_factor = scalings.Yarn | scalings.PositionInterpolation | scalings.Llama3
    if isinstance(scaling, by_factor):
        reach = round(scaling.factor * spec.trained_len)
        if reach < context:
            raise InputError(f"{scaling.label} reaches {reach} tokens, not {context}")

    length = max(context, spec.length)
    rotation = copy_fields(spec)
    rotation["scaling"] = scaling
    rotation["claimed_len"] = length
    rotation["attention_factor"] = scaling.plan(spec.geometry, length).attention_factor
    rotation["softmax_factor"] = 1.0
    _, block = source.block
    axes_keys = {key: value for key, value in block.items() if key.startswith("mrope_")}
    return Wanted(**rotation, context=context, source=source, axes_keys=axes_keys), note


def lay_over(
    config: Mapping[str, Any], patch: Fragment, nest: Sequence[str]
) -> Fragment:
    """Return a file with other values of some keys of its part ``nest``."""
    if not nest:
        return {**config, **patch}
    first, *rest = nest
    return {**config, first: lay_over(config[first], patch, rest)}


def raise_factor(
    spec: RopeSpec, block: Mapping[str, Any], context: int
) -> tuple[Fragment, str]:
    """Return the file's own block, its factor raised if the context needs it, and a
    note then.
    """
    kind = block.get("rope_type") or block.get("type")
    longrope = isinstance(spec.scaling, scalings.LongRope)
    own: Fragment = {"rope_type": "longrope" if longrope else kind}
    for key, value in block.items():
        if key not in ("type", "rope_type", "rope_theta"):
            own[key] = value

    factor = getattr(spec.scaling, "factor", 1.0)
    reach = round(factor * spec.trained_len)
    limit = spec.length
    if isinstance(spec.scaling, scalings.Yarn | scalings.Llama3):
        limit = max(limit, reach)
    if context <= limit or isinstance(spec.scaling, scalings.DynamicNtk):
        return own, ""

    if isinstance(spec.scaling, scalings.Yarn):
        limit = reach  # not the file's maximum
    note = f"the file's own {kind} reaches {limit} tokens"
    if kind not in RAISED:
        return own, f"{note}, and has no factor to raise; --method replaces it"

    own["factor"] = factor * context / limit
    note = f"{note}: its factor is raised from {factor:g} to {own['factor']:g}"
    given = own.get("attention_factor")
    if given is None:
        return own, note
    if not math.isclose(given, magnitude(factor), rel_tol=1e-6):
        return own, f"{note}, its attention_factor stays {given:g}"

    own["attention_factor"] = magnitude(own["factor"])  # as without the key
    follows = f"{given:g}, the default for {factor:g}, to {own['attention_factor']:g}"
    return own, f"{note}, its attention_factor from {follows}"
