"""A rotation that is to be written into a model's file: its own scaling, or another."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ropelab.audit.layers import find_window
from ropelab.math import scaling as scalings
from ropelab.math.methods import parse_scaling
from ropelab.math.models import KnownModel
from ropelab.readers import registry
from ropelab.readers.families import CLASSES, TRAINED, Family, family_of
from ropelab.readers.reader import magnitude
from ropelab.readers.servers import VLLM_LENGTHS
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import (
    BLOCKS,
    MAXIMUM,
    ORIGINAL,
    language_part,
    rope_block,
)
from ropelab.readers.transformers import loaded_block
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
    # the tokens that the rotating layers see, where all of these have a window
    window: int | None = None
    released: RopeSpec | None = None  # the rotation of the file as it is

    @property
    def block(self) -> tuple[str, Mapping[str, Any]]:
        """Name and content of the block that is scaled."""
        name, block = rope_block(self.text)
        return name, self.layers.get(self.main, block)

    @property
    def present(self) -> set[str]:
        """The names among its keys of blocks and lengths, and of the head's size."""
        names, block = (
            (*BLOCKS, "head_dim", SHARE, *BETAS, *VLLM_LENGTHS),
            self.block[1],
        )
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
    axes: Fragment = field(default_factory=dict)

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
        keys["qk_rope_head_dim"] = model.rotated
    elif model.rotated != model.head_dim:
        keys[SHARE] = model.rotated / model.head_dim
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
    parameters = {
        name: value for name, value in vars(scaling).items() if value is not None
    }
    block: Fragment = {"rope_type": TYPES[scaling.name], **parameters}
    if scaling.name != "pi":
        block[ORIGINAL] = model.trained_len
    return block


def source_of(name: str, config: Mapping[str, Any]) -> tuple[ModelFile, RopeSpec]:
    """Return a file and the rotation that is to be scaled in it, as the reference reads
    them.
    """
    prefix, text = language_part(config)
    reading = registry.reading_of(name, config)
    spec, ours = (
        reading.layers[reading.label],
        reading.runtime.name == registry.REFERENCE,
    )
    # vLLM allows less by itself
    if not ours and isinstance(spec.scaling, scalings.LongRope):
        spec = replace(spec, claimed_len=text.get(MAXIMUM))
    scaled = round(getattr(spec.scaling, "factor", 1.0) * spec.length)
    if scaled in map(text.get, VLLM_LENGTHS):  # the maximum is before it
        spec = replace(spec, claimed_len=scaled)
    # Another runtime's layer types are not the reference's.
    main = reading.label if ours else "all"
    beside = {k: v for k, v in reading.layers.items() if ours and k != main}
    layers = loaded_block(text) if main != "all" else {}
    window = find_window(reading.model_type, text)
    nest = prefix.split(".")[:-1]
    return ModelFile(config, nest, text, main, layers, beside, window, spec), spec


def with_own_scaling(
    name: str, source: ModelFile, spec: RopeSpec, context: int
) -> tuple[Wanted, str]:
    """Return a file's scaling, its factor raised if the context needs it, and a note
    then.
    """
    key, block = source.block
    own, note = raised(spec, block, context)
    extended = bool(note) and own["rope_type"] in RAISED
    beyond = context if note and not extended else 0
    reached = spec.length if beyond else context
    # Dynamic scaling starts at this length, and longrope's factor comes from it.
    fixed = isinstance(spec.scaling, scalings.DynamicNtk | scalings.LongRope)
    longest = spec.length if fixed else max(spec.length, reached)
    kept: Fragment = {**own, "rope_theta": spec.base}
    patched: Fragment = {**source.text, MAXIMUM: longest, key: kept}
    if source.layers:  # as transformers 5 has them
        patched |= {
            "rope_scaling": None,
            "rope_parameters": {**source.layers, source.main: kept},
        }
    found = registry.reference(name, laid_over(source.config, patched, source.nest))
    rotation = {
        **vars(found),
        "claimed_len": longest,
        "context": reached,
        "source": source,
    }
    return Wanted(**rotation, beyond=beyond, own=own, raised=extended), note


def with_new_scaling(
    source: ModelFile, spec: RopeSpec, context: int, method: str
) -> tuple[Wanted, str]:
    """Return the scaling that was asked for, or YaRN if one is needed, and a note on
    its start.
    """
    model_type = str(source.text.get("model_type"))
    trained = TRAINED.get((model_type, spec.trained_len))
    note = ""
    if (
        trained is not None
        and context > spec.trained_len
        and isinstance(spec.scaling, scalings.Unscaled)
    ):
        note = (
            f"{model_type} was trained with {trained} of the {spec.trained_len} tokens"
            " allowed"
        )
        spec = replace(spec, trained_len=trained)

    factor = context / spec.trained_len
    usual = "yarn" if factor > 1 and source.window is None else "unscaled"
    scaling = parse_scaling(method or usual, max(1.0, factor))
    if isinstance(
        scaling, scalings.Yarn | scalings.PositionInterpolation | scalings.Llama3
    ):
        reach = round(scaling.factor * spec.trained_len)
        if reach < context:
            raise InputError(f"{scaling.label} reaches {reach} tokens, not {context}")

    length = max(context, spec.length)
    attention = scaling.plan(spec.geometry, length).attention_factor
    spec = replace(
        spec,
        scaling=scaling,
        claimed_len=length,
        attention_factor=attention,
        softmax_factor=1.0,
    )
    axes = {
        key: value for key, value in source.block[1].items() if key.startswith("mrope_")
    }
    return Wanted(**vars(spec), context=context, source=source, axes=axes), note


def laid_over(
    config: Mapping[str, Any], patch: Fragment, nest: Sequence[str]
) -> Fragment:
    """Return a file with other values of some keys of its part ``nest``."""
    inner = {nest[0]: laid_over(config[nest[0]], patch, nest[1:])} if nest else patch
    return {**config, **inner}


def raised(
    spec: RopeSpec, block: Mapping[str, Any], context: int
) -> tuple[Fragment, str]:
    """Return the file's own block, its factor raised if the context needs it, and a
    note then.
    """
    own = {
        k: v for k, v in block.items() if k not in ("type", "rope_type", "rope_theta")
    }
    kind = block.get("rope_type") or block.get("type")
    own = {
        "rope_type": (
            "longrope" if isinstance(spec.scaling, scalings.LongRope) else kind
        ),
        **own,
    }
    factor, limit = getattr(spec.scaling, "factor", 1.0), spec.length
    reach = round(factor * spec.trained_len)
    if isinstance(spec.scaling, scalings.Yarn | scalings.Llama3):
        limit = max(limit, reach)
    if context <= limit or isinstance(spec.scaling, scalings.DynamicNtk):
        return own, ""
    # not the file's maximum
    limit = reach if isinstance(spec.scaling, scalings.Yarn) else limit
    reach = f"the file's own {kind} reaches {limit} tokens"
    if kind not in RAISED:
        return own, f"{reach}, and has no factor to raise; --method replaces it"
    own["factor"] = factor * context / limit
    note = f"{reach}: its factor is raised from {factor:g} to {own['factor']:g}"
    if (given := own.get("attention_factor")) is None:
        return own, note
    if not math.isclose(given, magnitude(factor), rel_tol=1e-6):
        return own, f"{note}, its attention_factor stays {given:g}"
    own["attention_factor"] = magnitude(own["factor"])  # as without the key
    follows = f"{given:g}, the default for {factor:g}, to {own['attention_factor']:g}"
    return own, f"{note}, its attention_factor from {follows}"
