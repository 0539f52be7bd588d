"""Parts of a model that act beside the frequencies, by the runtimes of beside.toml."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ropelab.audit.layers import LAYER_KEYS, UNROTATED, find_rule, list_rotating
from ropelab.audit.overview import AuditCase, agrees
from ropelab.audit.words import EXTRA_NAMES, describe_place
from ropelab.math.rotary import axis_of_pairs
from ropelab.readers.extra_rotations import list_rotations
from ropelab.readers.registry import Reading
from ropelab.readers.spec import SHAPE, RopeSpec
from ropelab.readers.trace import language_part, rope_paths
from ropelab.runs.files import table_beside
from ropelab.runs.rows import grouped
from ropelab.runs.sentences import typed

READ = table_beside(__file__)


@dataclass(frozen=True)
class Aspect:
    """One such part: in words what each runtime does, and those whose code was not read
    for it.
    """

    name: str
    does: Mapping[str, str]
    unread: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.does.values())) > 1

    def in_words(self) -> str:
        parts = []
        by_words = grouped((words, runtime) for runtime, words in self.does.items())
        for words, names in by_words.items():
            parts.append(f"{words} in {', '.join(names)}")
        if self.unread:
            parts.append(f"not looked at in {', '.join(self.unread)}")
        return f"{self.name}: {'; '.join(parts)}"


Does = Callable[[Reading], str]  # nothing where the code was not read


def list_aspects(case: AuditCase) -> list[Aspect]:
    """Return what a file says beside the frequencies of its main layers."""
    aspects = []
    for name, describe in choose_aspects(case):
        does = {}
        unread = []
        for reading in case.readings:
            if not reading.layers:
                continue
            words = describe(reading)
            if words:
                does[reading.runtime.name] = words
            else:
                unread.append(reading.runtime.name)
        aspects.append(Aspect(name, does, tuple(unread)))
    return aspects


def choose_aspects(case: AuditCase) -> Iterator[tuple[str, Does]]:
    """Yield the aspects that a file or its class has, each with its description."""
    _, text = language_part(case.document.config)
    model_type = case.reference.model_type
    for layer, right in case.reference.layers.items():
        if right is not case.spec:
            yield f"{layer} layers", partial(describe_layer, layer=layer, right=right)

    for name in list_rotations(text):
        describe = partial(describe_rotation, case=case, name=name)
        yield EXTRA_NAMES[name], describe

    by_class = any(model_type in READ[rule] for rule in UNROTATED)
    if by_class or any(key in text for key in LAYER_KEYS):
        yield "layers without rotation", partial(describe_unrotated, text=text)

    tempered = any(text.get(key) for key in READ["temperature"]["keys"])
    if model_type == "llama4_text" or tempered:
        name = "factor on queries in layers without rotation"
        yield name, partial(describe_temperature, text=text)
    if case.block.get("llama_4_scaling_beta"):
        yield "factor on queries (llama_4_scaling_beta)", describe_beta

    vision = case.document.config.get("vision_config")
    if isinstance(vision, Mapping) and "rope" in " ".join(rope_paths(vision)):
        yield "rotation of the vision part", describe_nothing

    for key in READ["unread"]:
        value = text.get(key) or case.document.config.get(key)
        if value:
            yield key, partial(describe_unread, key=key, value=value)
    if case.block.get("mrope_section") or text.get("rope_3d"):
        name = "pairs per position axis, for images"
        yield name, partial(describe_axes, block=case.block)


def describe_rotation(reading: Reading, case: AuditCase, name: str) -> str:
    """Say which features a rotation beside that of attention turns, where it was
    read.
    """
    rotation = case.read_rotation(reading, name)
    if rotation.spec is None:
        return rotation.problem if rotation.outcome == "refused" else ""
    shape = {name: getattr(rotation.spec, name) for name in SHAPE}
    return describe_place(shape)


def describe_layer(reading: Reading, layer: str, right: RopeSpec) -> str:
    own = reading.layers.get(layer)
    if own is None:
        return ""
    spec = right if agrees(own, right) else own
    return f"base {typed(spec.base)}, {spec.method}"


def describe_unrotated(reading: Reading, text: Mapping[str, Any]) -> str:
    rule = find_rule(reading.model_type, reading.runtime.name)
    rotating = list_rotating(rule, reading.model_type, text) if rule else None
    if rotating is None:
        return "every 4th" if rule == "fourth" else ""

    unrotated = [layer for layer, rotates in enumerate(rotating) if not rotates]
    return name_layers(unrotated, len(rotating))


def name_layers(layers: list[int], count: int) -> str:
    """Return numbers of layers, counted from 0, in words.

    >>> name_layers([3, 7], 8), name_layers([1, 3], 4), name_layers([0, 5], 8)
    ('every 4th of 8', 'every 2nd of 4', '0, 5 of 8')
    """
    if not layers:
        return f"none of {count}"
    step = layers[0] + 1
    if layers == list(range(layers[0], count, step)):
        if step == 1:
            return f"all {count}"
        ending = {2: "nd", 3: "rd"}.get(step, "th")
        return f"every {step}{ending} of {count}"

    numbers = ", ".join(str(layer) for layer in layers[:6])
    more = ", ..." if len(layers) > 6 else ""
    return f"{numbers}{more} of {count}"


def describe_temperature(reading: Reading, text: Mapping[str, Any]) -> str:
    runtime = reading.runtime.name
    if reading.model_type != "llama4_text":
        # Only Llama 4's code has these keys.
        return "none" if runtime == "transformers-5" else ""

    on = True
    floor = 8192
    scale = 0.1
    if runtime in READ["temperature"]["read_by"]:
        on = bool(text.get("attn_temperature_tuning", True))
        floor = text.get("floor_scale", floor)
        scale = text.get("attn_scale", scale)
    elif runtime != "llama.cpp":  # which has the numbers in its code
        return ""
    return f"1 + {scale!s:.12} ln(floor((p + 1) / {floor!s:.12}) + 1)" if on else "none"


def describe_beta(reading: Reading) -> str:
    if reading.runtime.name != "transformers-5":
        return ""
    by_position = reading.model_type in ("ministral3", "mistral4")
    return "1 + beta ln(1 + floor(p / original length))" if by_position else "none"


def describe_nothing(reading: Reading) -> str:
    """Say nothing: the positions of images have axes, and no reader was written."""
    return ""


def describe_unread(reading: Reading, key: str, value: Any) -> str:
    runtime = reading.runtime.name
    if runtime in READ["unread"][key]:
        return "without effect"
    # SGLang's attention for it has to be chosen when the server starts.
    chunks = key == "dual_chunk_attention_config" and isinstance(value, Mapping)
    if runtime == "sglang" and chunks and reading.model_type in ("qwen2", "qwen2_moe"):
        return f"chunks of {value.get('chunk_size', 8192)!s:.12} tokens"
    return ""


def describe_axes(reading: Reading, block: Mapping[str, Any]) -> str:
    layout = READ["axes"].get(reading.model_type)
    sections = block.get("mrope_section", ())
    if not layout or reading.runtime.name not in ("transformers-5", "sglang"):
        return ""
    if not isinstance(sections, list) or len(sections) != 3:
        return ""
    if any(not isinstance(pairs, int) or pairs < 0 for pairs in sections):
        return ""
    if not reading.main or sum(sections) != reading.main.rotary_dim // 2:
        return ""

    if reading.runtime.name == "sglang":  # which goes by the key, whatever the model
        layout = "mrope_interleaved" if block.get("mrope_interleaved") else "mrope"
    axes = axis_of_pairs(layout, sections)
    counts = np.bincount(axes, minlength=3).tolist()
    order = "in runs" if layout == "mrope" else "interleaved"
    asked = f", asked for {sections}" if counts != sections else ""
    return f"{counts} {order}{asked}"
