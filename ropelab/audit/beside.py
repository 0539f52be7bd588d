"""Parts of a model that act beside the frequencies, by the runtimes of beside.toml."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ropelab.audit.layers import UNROTATED, find_rule, list_rotating
from ropelab.audit.overview import Case, agrees
from ropelab.math.rotary import axis_of_pairs
from ropelab.readers.indexer import read_indexer
from ropelab.readers.registry import Reading
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import language_part
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
        groups = grouped((words, runtime) for runtime, words in self.does.items())
        parts = [f"{words} in {', '.join(names)}" for words, names in groups.items()]
        if self.unread:
            parts.append(f"not looked at in {', '.join(self.unread)}")
        return f"{self.name}: {'; '.join(parts)}"


Does = Callable[[Reading], str]  # nothing where the code was not read


def aspects(case: Case) -> list[Aspect]:
    """Return what a file says beside the frequencies of its main layers."""
    found = []
    for name, does in rules(case):
        said = {r.runtime.name: does(r) for r in case.readings if r.layers}
        known = {runtime: words for runtime, words in said.items() if words}
        found.append(
            Aspect(name, known, tuple(one for one in said if one not in known))
        )
    return found


def rules(case: Case) -> Iterator[tuple[str, Does]]:
    _, text = language_part(case.document.config)
    kind = case.reference.model_type
    for layer, right in case.reference.layers.items():
        if right is not case.spec:
            yield f"{layer} layers", partial(of_layer, layer=layer, right=right)
    indexer = read_indexer(text, case.reference.layers)
    if indexer is not None:
        yield "indexer of sparse attention", partial(describe_indexer, text=text)
    named = {"no_rope_layers", "no_rope_layer_interval"} & text.keys()
    if named or any(kind in READ[rule] for rule in UNROTATED):
        yield "layers without rotation", partial(unrotated_layers, text=text)
    if kind == "llama4_text" or any(
        text.get(key) for key in READ["temperature"]["keys"]
    ):
        yield (
            "factor on queries in layers without rotation",
            partial(temperature, text=text),
        )
    if case.block.get("llama_4_scaling_beta"):
        yield "factor on queries (llama_4_scaling_beta)", beta
    for key in READ["unread"]:
        if value := text.get(key) or case.document.config.get(key):
            yield key, partial(unread, key=key, value=value)
    if case.block.get("mrope_section") or text.get("rope_3d"):
        yield "pairs per position axis, for images", partial(axes, block=case.block)


def describe_indexer(reading: Reading, text: Mapping[str, Any]) -> str:
    """Say what the indexer rotates, where its code was read."""
    if reading.runtime.name not in READ["indexer"]["read_by"]:
        return ""
    indexer = read_indexer(text, reading.layers)
    if indexer is None:
        return ""

    pairing = indexer.pairing
    if reading.runtime.name == "sglang":
        if reading.model_type == "deepseek_v4":
            return ""  # a class of its own, which was not read
        # It goes by the key alone, whatever the model.
        pairing = "interleaved" if text.get("indexer_rope_interleave") else "half"
    pairs = "adjacent pairs" if pairing == "interleaved" else "pairs of halves"
    end = "last" if indexer.place else "first"
    return f"the {end} {indexer.rotary_dim} of {indexer.head_dim} features in {pairs}"


def of_layer(reading: Reading, layer: str, right: RopeSpec) -> str:
    own = reading.layers.get(layer)
    if own is None:
        return ""
    shown = right if agrees(own, right) else own
    return f"base {typed(shown.base)}, {shown.method}"


def unrotated_layers(reading: Reading, text: Mapping[str, Any]) -> str:
    rule = find_rule(reading.model_type, reading.runtime.name)
    rotating = list_rotating(rule, reading.model_type, text) if rule else None
    if rotating is None:
        return "every 4th" if rule == "fourth" else ""

    unrotated = [layer for layer, rotates in enumerate(rotating) if not rotates]
    return layers_in_words(unrotated, len(rotating))


def layers_in_words(layers: list[int], count: int) -> str:
    """Return numbers of layers, counted from 0, in words.

    >>> layers_in_words([3, 7], 8), layers_in_words([1, 3], 4), layers_in_words([0, 5], 8)
    ('every 4th of 8', 'every 2nd of 4', '0, 5 of 8')
    """
    if not layers:
        return f"none of {count}"
    step = layers[0] + 1
    if layers == list(range(layers[0], count, step)):
        ordinal = f"{step}{({2: 'nd', 3: 'rd'}).get(step, 'th')}"
        return f"every {ordinal} of {count}" if step > 1 else f"all {count}"
    return (
        f"{', '.join(map(str, layers[:6]))}{', ...' if layers[6:] else ''} of {count}"
    )


def temperature(reading: Reading, text: Mapping[str, Any]) -> str:
    runtime = reading.runtime.name
    if reading.model_type != "llama4_text":
        # Only Llama 4's code has these keys.
        return "none" if runtime == "transformers-5" else ""
    on, floor, scale = True, 8192, 0.1
    if runtime in READ["temperature"]["read_by"]:
        on = bool(text.get("attn_temperature_tuning", True))
        floor, scale = text.get("floor_scale", floor), text.get("attn_scale", scale)
    elif runtime != "llama.cpp":  # which has the numbers in its code
        return ""
    return f"1 + {scale!s:.12} ln(floor((p + 1) / {floor!s:.12}) + 1)" if on else "none"


def beta(reading: Reading) -> str:
    if reading.runtime.name != "transformers-5":
        return ""
    by_position = reading.model_type in ("ministral3", "mistral4")
    return "1 + beta ln(1 + floor(p / original length))" if by_position else "none"


def unread(reading: Reading, key: str, value: Any) -> str:
    runtime = reading.runtime.name
    if runtime in READ["unread"][key]:
        return "without effect"
    # SGLang's attention for it has to be chosen when the server starts.
    chunks = key == "dual_chunk_attention_config" and isinstance(value, Mapping)
    if runtime == "sglang" and chunks and reading.model_type in ("qwen2", "qwen2_moe"):
        return f"chunks of {value.get('chunk_size', 8192)!s:.12} tokens"
    return ""


def axes(reading: Reading, block: Mapping[str, Any]) -> str:
    sections, layout = (
        block.get("mrope_section", ()),
        READ["axes"].get(reading.model_type),
    )
    read = layout and reading.runtime.name in ("transformers-5", "sglang")
    three = isinstance(sections, list) and len(sections) == 3
    counts = (
        read and three and all(isinstance(one, int) and one >= 0 for one in sections)
    )
    if not counts or not reading.main or sum(sections) != reading.main.rotary_dim // 2:
        return ""
    if reading.runtime.name == "sglang":  # which goes by the key, whatever the model
        layout = "mrope_interleaved" if block.get("mrope_interleaved") else "mrope"
    realised = np.bincount(axis_of_pairs(layout, sections), minlength=3).tolist()
    asked = f", asked for {sections}" if realised != sections else ""
    return f"{realised} {'in runs' if layout == 'mrope' else 'interleaved'}{asked}"
