"""Which axis of a position moves each pair, in language models and encoders of images.

Positions of text and images have a time, a height and a width; those in an encoder have a
row and a column of patches. The facts on the classes that were read are in axes.toml.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ropelab.math.axes import Axes
from ropelab.math.rotary import name_axes
from ropelab.math.scaling import Unscaled
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    require_number,
    require_whole,
)
from ropelab.readers.trace import MAXIMUM, find_language_part, find_rope_block
from ropelab.runs.errors import InputError
from ropelab.runs.files import read_table_beside

FACTS = read_table_beside(__file__)
# The layer type of the encoder of images. All other layer types belong to the language
# model.
VISION = "vision"
TIME_HEIGHT_WIDTH = name_axes(3)
HEIGHT_WIDTH = name_axes(2)
# The number of patches along an axis if neither the file nor the class states it.
USUAL_PATCHES = 64
# The part of a file that describes the encoder, in all of these classes.
VISION_CONFIG = "vision_config"
# Runtimes whose code was read for the axes of language models.
RUNTIMES_WITH_AXES = ("transformers-5", "sglang")


@dataclass(frozen=True)
class PromptRule:
    """How a model counts the positions of text, images and clips."""

    # The patches along a side that become one token.
    merged: int
    # The frames of a clip that become one frame.
    merged_frames: int
    # True if the frames of a clip are separate images, with text between them.
    frames_apart: bool
    # The steps along time for one second of a clip. None: each frame is one step.
    steps_per_second: int | None


def find_facts(group: str, model_type: str) -> Mapping[str, Any] | None:
    """Return the facts on a model type; None: there are none.

    The types of the parts of a model may end in `_text` and `_vision`.
    """
    rows: Mapping[str, Any] = FACTS[group]
    for ending in ("", "_text", "_vision"):
        name = model_type.removesuffix(ending)
        if name in rows:
            return rows[name]
    return None


def read_axes(
    language_part: Mapping[str, Any], spec: RopeSpec, runtime: str
) -> Axes | None:
    """Return which axis moves each pair of a language model's heads.

    None: positions have one axis, or it is not known which pairs each axis moves, or
    the sections of the file do not fit the pairs. RefusedError: the class stops at such
    sections.
    """
    _, block = find_rope_block(language_part)
    facts = find_facts("text", str(language_part.get("model_type")))
    sections = block.get("mrope_section")
    arrangement = None
    if facts is not None:
        arrangement = facts["arrangement"]
        sections = block.get("mrope_section", facts["usual"])
    if runtime == "sglang" and "mrope_section" not in block:
        return None
    # SGLang reads the key mrope_interleaved for every model. If a class was not looked at,
    # the key still says that axes alternate; without it nothing is known.
    if runtime == "sglang" and facts is not None and arrangement != "last behind":
        arrangement = "turns" if block.get("mrope_interleaved") else "runs"
    elif facts is None and block.get("mrope_interleaved") is True:
        arrangement = "turns"

    if arrangement is None:
        return None
    pairs = spec.rotary_dim // 2
    if facts is not None and runtime.startswith("transformers"):
        _refuse_sections(sections, pairs, arrangement)
    if not isinstance(sections, list) or not do_sections_fit(sections, pairs):
        return None
    order = (facts or {}).get("order", range(3))
    return Axes(TIME_HEIGHT_WIDTH, tuple(sections), tuple(order), arrangement)


def do_sections_fit(sections: list[Any], pairs: int) -> bool:
    """Return True for three whole numbers that add up to all pairs."""
    if len(sections) != 3:
        return False
    if any(type(size) is not int or size < 0 for size in sections):
        return False
    return sum(sections) == pairs


def _refuse_sections(sections: object, pairs: int, arrangement: str) -> None:
    """Raise RefusedError for sections at which a class of transformers stops."""
    sizes = sections if isinstance(sections, list) else []
    are_whole = all(isinstance(size, int) for size in sizes)
    if arrangement == "turns":
        # The sizes of height and width end the steps from one pair of an axis to the
        # next, wherever the pairs end.
        if len(sizes) < len(TIME_HEIGHT_WIDTH) or not are_whole:
            raise RefusedError(f"sections {sections} are no three whole numbers")
        return

    if arrangement == "last behind":
        if not do_sections_fit(sizes, pairs):
            raise RefusedError(f"sections {sections} do not add up to {pairs} pairs")
        if sizes[0] != sizes[1]:
            # Pairs of height and width take turns.
            raise RefusedError(f"sections {sections} have other heights than widths")
        return

    # torch cuts cos and sin into sizes that add up to all pairs, or into chunks of one
    # size. Axes take turns, however many sizes there are.
    if type(sections) is int and sections > 0:
        return
    if not are_whole or min(sizes, default=-1) < 0 or sum(sizes) != pairs:
        raise RefusedError(f"sections {sections} do not add up to {pairs} pairs")


def is_encoder(config: Mapping[str, Any]) -> bool:
    """Return True for a file of an encoder of images without a language model, if
    ropelab knows how its class rotates.
    """
    if {VISION_CONFIG, "vocab_size", MAXIMUM} & config.keys():
        return False
    model_type = str(config.get("model_type"))
    facts = find_facts("vision", model_type)
    if facts is None:
        return False
    # A type without this ending may be the type of a whole model, with language.
    return facts.get("alone", False) or model_type.endswith("_vision")


def find_vision(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the model type and the keys of an encoder of images, if there is one."""
    outer = str(config.get("model_type"))
    vision_part = config.get(VISION_CONFIG)
    if isinstance(vision_part, Mapping):
        return str(vision_part.get("model_type") or outer), vision_part
    if is_encoder(config):
        return outer, config
    return None


def read_vision(config: Mapping[str, Any]) -> RopeSpec | None:
    """Return the rotation of a file's encoder of images, if ropelab knows its class.

    Lengths are counted in patches along an axis. The result is also None if the values
    of the file give no rotation.
    """
    try:
        return make_vision(config)
    except (RefusedError, NotModelledError, InputError, ArithmeticError):
        return None


def explain_vision(config: Mapping[str, Any]) -> str:
    """Return which value of a file's encoder of images gives no rotation, or nothing."""
    try:
        make_vision(config)
    except NotModelledError:
        return ""
    except (RefusedError, InputError, ArithmeticError) as error:
        return str(error)
    return ""


def make_vision(config: Mapping[str, Any]) -> RopeSpec | None:
    """Return the rotation of an encoder of images; an error names a refused value."""
    encoder = find_vision(config)
    if encoder is None:
        return None
    model_type, vision_part = encoder
    facts = find_facts("vision", model_type)
    if facts is None:
        return None

    _, block = find_rope_block(vision_part)
    head_dim = read_head_dim(vision_part, facts)
    usual_base = facts.get("base", 10000.0)
    base = block.get("rope_theta", vision_part.get("rope_theta", usual_base))
    patches = read_patches(vision_part, facts)
    # One half of the pairs rotates by the row of a patch, and the other half by its
    # column.
    pairs_per_axis = head_dim // 4
    axes = Axes(
        HEIGHT_WIDTH,
        sections=(pairs_per_axis, pairs_per_axis),
        order=(0, 1),
        ladder=facts["ladder"],
        centred=facts.get("centred", False),
        block=1 if facts.get("alone") else read_merged(vision_part),
    )
    return RopeSpec(
        base=require_number(base, "rope_theta"),
        head_dim=head_dim,
        rotary_dim=4 * pairs_per_axis,
        scaling=Unscaled(),
        trained_len=patches or USUAL_PATCHES,
        axes=axes,
        states_trained_len=patches is not None,
    ).check()


def read_head_dim(vision_part: Mapping[str, Any], facts: Mapping[str, Any]) -> int:
    """Return the features of a head of the encoder."""
    head_dim = vision_part.get("head_dim")
    if head_dim is not None:
        return require_whole(head_dim, "head_dim")

    width_key, usual_width = facts["width"]
    heads_key, usual_heads = facts["heads"]
    width = require_whole(vision_part.get(width_key, usual_width), width_key)
    heads = vision_part.get(
        heads_key, vision_part.get("num_attention_heads", usual_heads)
    )
    return width // require_whole(heads, heads_key)


def read_merged(vision_part: Mapping[str, Any]) -> int:
    """Return the patches along a side that become one token."""
    return require_whole(vision_part.get("spatial_merge_size", 2), "spatial_merge_size")


def read_patches(
    vision_part: Mapping[str, Any], facts: Mapping[str, Any]
) -> int | None:
    """Return the patches along a side of the image that the file or class states."""
    if "patches" not in facts:
        return None
    usual_image, usual_patch = facts["patches"]
    image = vision_part.get("image_size", usual_image)
    patch = vision_part.get("patch_size", usual_patch)
    if type(image) is not int or type(patch) is not int or not 0 < patch <= image // 2:
        return None
    return image // patch


def read_prompt_rule(config: Mapping[str, Any]) -> PromptRule | None:
    """Return how a model counts positions, if its class was looked at.

    The result is also None if the class refuses a value of the file.
    """
    try:
        return make_prompt_rule(config)
    except RefusedError:
        return None


def make_prompt_rule(config: Mapping[str, Any]) -> PromptRule | None:
    """Return how a model counts positions; an error names a refused value."""
    _, language_part = find_language_part(config)
    facts = find_facts("text", str(language_part.get("model_type")))
    if facts is None:
        return None

    vision_part = config.get(VISION_CONFIG)
    vision = vision_part if isinstance(vision_part, Mapping) else {}
    merged_frames = 1
    if "temporal" in facts:
        key, default = facts["temporal"]
        merged_frames = require_whole(vision.get(key, default), key)
    steps = None
    if "rate" in facts:
        key, default = facts["rate"]
        steps = require_whole(vision.get(key, default), key)
    return PromptRule(
        merged=read_merged(vision),
        merged_frames=merged_frames,
        frames_apart=facts["clips"] == "apart",
        steps_per_second=steps,
    )


def add_axes(
    config: Mapping[str, Any],
    layers: dict[str, RopeSpec],
    runtime: str,
) -> dict[str, RopeSpec]:
    """Return the layers of a language model with the axes that move their pairs."""
    if runtime not in RUNTIMES_WITH_AXES:
        return layers
    _, language_part = find_language_part(config)
    return {
        name: replace(spec, axes=read_axes(language_part, spec, runtime))
        for name, spec in layers.items()
    }
