"""What a model does with positions besides the frequencies of its main layers.

Such an aspect is the rotation of other layers, layers without rotation, factors on
queries, an encoder of images, or axes of positions. Of some aspects only the code of a
few runtimes was read. aspects.toml names these runtimes.

A ladder is a sequence of frequencies, from the fastest to the slowest pair. Axes of
positions may share a ladder, or have a ladder each.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ropelab.audit.audit_case import AuditCase, have_equal_rotation
from ropelab.audit.words import EXTRA_NAMES, describe_place
from ropelab.math.axes import describe_pairs
from ropelab.readers.axes import VISION_CONFIG, find_facts, find_vision, read_vision
from ropelab.readers.extra_rotations import list_rotations
from ropelab.readers.layers import FLAG_KEYS
from ropelab.readers.registry import Reading
from ropelab.readers.spec import SHAPE, RopeSpec, shorten_value
from ropelab.readers.trace import find_language_part, list_rope_paths
from ropelab.runs.files import read_table_beside
from ropelab.runs.rows import group_pairs
from ropelab.runs.sentences import write_number

# For each aspect the keys that show it, and the runtimes whose code was read; and model
# types with code of their own.
ASPECT_FACTS = read_table_beside(__file__)


@dataclass(frozen=True)
class Aspect:
    """What each runtime does about one aspect, in words."""

    name: str
    # The words, by the name of the runtime.
    words_by_runtime: Mapping[str, str]
    # The names of the runtimes whose code was not read for this aspect.
    unread_runtimes: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """True if two runtimes do different things."""
        return len(set(self.words_by_runtime.values())) > 1

    def describe(self) -> str:
        """Return the aspect in one phrase, runtimes with the same words together."""
        parts = []
        by_words = group_pairs(
            (words, runtime) for runtime, words in self.words_by_runtime.items()
        )
        for words, names in by_words.items():
            parts.append(f"{words} in {', '.join(names)}")
        if self.unread_runtimes:
            parts.append(f"not looked at in {', '.join(self.unread_runtimes)}")
        return f"{self.name}: {'; '.join(parts)}"


# Returns in words what a runtime does about an aspect. Empty: its code was not read.
Describe = Callable[[Reading], str]


def list_aspects(case: AuditCase) -> list[Aspect]:
    """Return the aspects of a file, with what each runtime does about them."""
    descriptions = [*choose_rotations(case), *choose_others(case)]
    return [describe_aspect(case, *each) for each in descriptions]


def list_other_aspects(case: AuditCase) -> list[Aspect]:
    """Return the aspects that are not among those of `choose_rotations`."""
    return [describe_aspect(case, *each) for each in choose_others(case)]


def describe_aspect(case: AuditCase, name: str, describe: Describe) -> Aspect:
    """Return an aspect with what each runtime does about it."""
    words_by_runtime = {}
    unread_runtimes = []
    for reading in case.readings:
        if not reading.layers:
            continue
        words = describe(reading)
        if words:
            words_by_runtime[reading.runtime.name] = words
        else:
            unread_runtimes.append(reading.runtime.name)
    return Aspect(name, words_by_runtime, tuple(unread_runtimes))


def choose_rotations(case: AuditCase) -> Iterator[tuple[str, Describe]]:
    """Yield the rotations beside that of the main layers, and the pairs of features,
    where a file or its class has them, each with its description.
    """
    _, language_part = find_language_part(case.document.config)
    for layer, reference_spec in case.reference.layers.items():
        # The rotation of the main layers is compared elsewhere.
        if reference_spec is not case.spec:
            describe = partial(
                describe_layer, layer=layer, reference_spec=reference_spec
            )
            yield f"{layer} layers", describe

    for name in list_rotations(language_part):
        describe = partial(describe_rotation, case=case, name=name)
        yield EXTRA_NAMES[name], describe

    if any(key in language_part for key in ASPECT_FACTS["pairing"]["keys"]):
        yield "pairs of features", describe_pairing


def choose_others(case: AuditCase) -> Iterator[tuple[str, Describe]]:
    """Yield the aspects of a file or its class that are not among those of
    `choose_rotations`, each with its description.
    """
    _, language_part = find_language_part(case.document.config)
    model_type = case.reference.model_type
    has_keys = any(key in language_part for key in FLAG_KEYS)
    rule = case.reference.layer_rule
    if has_keys or rule not in ("", "every") or has_unrotated(case):
        yield "layers without rotation", describe_unrotated

    has_temperature = any(
        language_part.get(key) for key in ASPECT_FACTS["temperature"]["keys"]
    )
    if model_type in ASPECT_FACTS["temperature"]["types"] or has_temperature:
        name = "factor on queries in layers without rotation"
        yield name, partial(describe_temperature, language_part=language_part)
    if case.block.get("llama_4_scaling_beta"):
        yield "factor on queries (llama_4_scaling_beta)", describe_beta

    if model_type in ASPECT_FACTS["learned"]["types"]:
        yield "factor on each frequency, in the weights", describe_learned

    vision = case.document.config.get(VISION_CONFIG)
    if isinstance(vision, Mapping):
        spec = read_vision(case.document.config)
        if spec is not None or "rope" in " ".join(list_rope_paths(vision)):
            name = name_vision(case.document.config)
            yield name, partial(describe_vision, spec=spec)

    for key in ASPECT_FACTS["unread"]:
        value = language_part.get(key) or case.document.config.get(key)
        if value:
            yield key, partial(describe_unread, key=key, value=value)
    has_keys_of_axes = case.block.get("mrope_section") or language_part.get("rope_3d")
    types_with_axes = ASPECT_FACTS["axes"]["types"]
    has_axes = case.document.config.get("model_type") in types_with_axes
    if has_keys_of_axes or has_axes or case.spec.axes is not None:
        name = "pairs per position axis, for images"
        yield name, partial(describe_axes, block=case.block)


def has_unrotated(case: AuditCase) -> bool:
    """Return True if a runtime leaves a layer without a rotation."""
    return any(
        reading.rotating is not None and not all(reading.rotating)
        for reading in case.readings
    )


def describe_rotation(reading: Reading, case: AuditCase, name: str) -> str:
    """Say which features an indexer or compressed keys rotate."""
    rotation = case.read_rotation(reading, name)
    if rotation.spec is None:
        return rotation.problem if rotation.outcome == "refused" else ""
    shape = {name: getattr(rotation.spec, name) for name in SHAPE}
    return describe_place(shape)


def describe_layer(reading: Reading, layer: str, reference_spec: RopeSpec) -> str:
    """Say how layers of a type rotate; ``reference_spec`` is their rotation in the
    reference.
    """
    spec = reading.layers.get(layer)
    if spec is None:
        return ""
    # Two runtimes that compute the same are described in the same words.
    if have_equal_rotation(spec, reference_spec):
        spec = reference_spec
    return f"base {write_number(spec.base)}, {spec.method}"


def describe_pairing(reading: Reading) -> str:
    """Say which features of a head form a pair."""
    if reading.main_spec is None:
        return ""
    return "adjacent" if reading.main_spec.pairing == "interleaved" else "halves"


def describe_unrotated(reading: Reading) -> str:
    """Say which layers do not rotate."""
    rotating = reading.rotating
    if rotating is None:
        return "every 4th" if reading.layer_rule == "fourth" else ""

    unrotated = [layer for layer, rotates in enumerate(rotating) if not rotates]
    return name_layers(unrotated, len(rotating))


def name_layers(layers: list[int], count: int) -> str:
    """Return numbers of layers, counted from 0, in words.

    >>> name_layers([3, 7], 8), name_layers([1, 3], 4), name_layers([0, 5], 8)
    ('every 4th of 8', 'every 2nd of 4', '0, 5 of 8')
    """
    if not layers:
        return f"none of {count}"
    first, *_ = layers
    step = first + 1
    if layers == list(range(first, count, step)):
        if step == 1:
            return f"all {count}"
        ending = {2: "nd", 3: "rd"}.get(step, "th")
        return f"every {step}{ending} of {count}"

    numbers = ", ".join(str(layer) for layer in layers[:6])
    more = ", ..." if len(layers) > 6 else ""
    return f"{numbers}{more} of {count}"


def describe_temperature(reading: Reading, language_part: Mapping[str, Any]) -> str:
    """Say by which factor queries at position p are multiplied in Llama 4."""
    runtime = reading.runtime.name
    if reading.model_type not in ASPECT_FACTS["temperature"]["types"]:
        # Only the code of Llama 4 reads these keys.
        return "none" if runtime == "transformers-5" else ""

    is_applied = True
    floor = 8192
    scale = 0.1
    if runtime in ASPECT_FACTS["temperature"]["read_by"]:
        is_applied = bool(language_part.get("attn_temperature_tuning", True))
        floor = language_part.get("floor_scale", floor)
        scale = language_part.get("attn_scale", scale)
    elif runtime != "llama.cpp":
        # llama.cpp has the numbers above in its code. The code of no other runtime was
        # read.
        return ""
    if not is_applied:
        return "none"
    return f"1 + {scale!s:.12} ln(floor((p + 1) / {floor!s:.12}) + 1)"


def describe_beta(reading: Reading) -> str:
    """Say by which factor queries at position p are multiplied in Ministral 3."""
    if reading.runtime.name != "transformers-5":
        return ""
    by_position = reading.model_type in ASPECT_FACTS["beta"]["types"]
    return "1 + beta ln(1 + floor(p / original length))" if by_position else "none"


def name_vision(config: Mapping[str, Any]) -> str:
    """Name the encoder of images, with its model type where no class was read for it.

    >>> name_vision({"model_type": "llava", "vision_config": {"model_type": "radio"}})
    'rotation of the vision part (radio)'
    """
    name = "rotation of the vision part"
    encoder = find_vision(config)
    if encoder is None:
        return name
    model_type, *_ = encoder
    if find_facts("vision", model_type) is not None:
        return name
    return f"{name} ({shorten_value(model_type)})"


def describe_vision(reading: Reading, spec: RopeSpec | None) -> str:
    """Say which axis moves which pairs of an encoder of images, by which ladder."""
    if spec is None or spec.axes is None or reading.runtime.name != "transformers-5":
        return ""

    axes = spec.axes
    ladders = {
        "head": "one ladder",
        "section": "a ladder each",
        "alternating": "every second frequency of the head each",
    }
    counted = "counted from 0"
    if axes.centred:
        counted = "centred: 2 pi ((2p + 1) / n - 1) for patch p of n"

    pairs = describe_pairs(axes.axis_of_pair, axes.names)
    features = f"{spec.rotary_dim} of {spec.head_dim} features"
    return (
        f"{pairs}, {ladders[axes.ladder]}, base {write_number(spec.base)}, {features},"
        f" {counted}"
    )


def describe_learned(reading: Reading) -> str:
    """Say nothing of a factor that is in the weights alone."""
    return ""


def describe_unread(reading: Reading, key: str, value: Any) -> str:
    """Say what a runtime does with a key that most runtimes do not read."""
    runtime = reading.runtime.name
    if runtime in ASPECT_FACTS["unread"][key]:
        return "without effect"
    # SGLang divides attention into chunks if its server is started with that attention.
    has_chunks = key == "dual_chunk_attention_config" and isinstance(value, Mapping)
    reads_chunks = reading.model_type in ASPECT_FACTS["chunks"]["types"]
    if runtime == "sglang" and has_chunks and reads_chunks:
        return f"chunks of {value.get('chunk_size', 8192)!s:.12} tokens"
    return ""


def describe_axes(reading: Reading, block: Mapping[str, Any]) -> str:
    """Say how many pairs each axis has, and which pairs these are."""
    if reading.main_spec is None or reading.main_spec.axes is None:
        return ""
    axes = reading.main_spec.axes
    counts = [len(axes.pairs_of(axis)) for axis in range(axes.count)]
    order = "in runs" if axes.arrangement == "runs" else "interleaved"
    requested_sections = ""
    sections = block.get("mrope_section", counts)
    # The sections of a file are in the order of `axes.order`: ERNIE's have height and width
    # before time.
    in_order = [sections[axes.order.index(axis)] for axis in range(axes.count)]
    if counts != in_order:
        requested_sections = f", asked for {sections}"
    pairs = describe_pairs(axes.axis_of_pair, axes.names)
    return f"{counts} {order}{requested_sections}: {pairs}"
