"""Parts of a model that act beside the frequencies, by the runtimes whose code was read for them.

Read for Llama 4 and SmolLM3: transformers 5.23.0, 4.57.1, 4.55.4 and 4.51.3, SGLang 0.5.23,
MLX-LM 0.32.2, llama.cpp 8a5c4e0 and a0b8c17; for Cohere 2, EXAONE 4 and several position axes:
transformers 5.23.0, and SGLang 0.5.23 for the axes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ropelab.audit.overview import Case, agrees
from ropelab.audit.runtimes.registry import Reading
from ropelab.audit.runtimes.trace import language_part
from ropelab.math.rotary import axis_of_pairs
from ropelab.runs.sentences import typed

NEWER = ("transformers-5", "transformers-4.57", "transformers-4.55")
# Layers without rotation: the runtimes that read no_rope_layers (1 = rotate), those that skip every
# fourth layer whatever the file says, and those that rotate in layers of a sliding window only.
LISTED = {
    "llama4_text": NEWER,
    "smollm3": (*NEWER, "mlx-lm"),
    "mistral_large4": ("transformers-5",),
}
FOURTH = {
    "llama4_text": ("transformers-4.51", "sglang", "llama.cpp"),
    "llama4": ("llama.cpp",),  # the architecture in a GGUF file
    "smollm3": ("llama.cpp",),
}
WINDOWED = {"cohere2": ("transformers-5",), "exaone4": ("transformers-5",)}
# Factors on queries that grow with the position.
TEMPERATURE = ("attn_temperature_tuning", "floor_scale", "attn_scale")
# Keys of the first Qwen and of Qwen2.5-1M, whose names occur nowhere in these packages.
UNREAD = {
    "use_dynamic_ntk": ("transformers-5", "mlx-lm", "sglang"),
    "use_logn_attn": ("transformers-5", "mlx-lm", "sglang"),
    "dual_chunk_attention_config": ("transformers-5", "mlx-lm"),
}
AXES = {
    "mrope": ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"),
    "mrope_interleaved": (
        *("qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"),
        *("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
    ),
}
MOST_LAYERS = 4096


@dataclass(frozen=True)
class Aspect:
    """One such part: in words what each runtime does, and those whose code was not read for it."""

    name: str
    does: Mapping[str, str]
    unread: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.does.values())) > 1

    def in_words(self) -> str:
        groups: dict[str, list[str]] = {}
        for runtime, words in self.does.items():
            groups.setdefault(words, []).append(runtime)
        parts = [f"{words} in {', '.join(names)}" for words, names in groups.items()]
        if self.unread:
            parts.append(f"not looked at in {', '.join(self.unread)}")
        return f"{self.name}: {'; '.join(parts)}"


Does = Callable[[Reading], str]  # nothing where the code was not read


def aspects(case: Case) -> list[Aspect]:
    """Return what a file says beside the frequencies of its main layers."""
    found = []
    for name, does in rules(case):
        told = {r.runtime.name: does(r) for r in case.readings if r.layers}
        known = {runtime: words for runtime, words in told.items() if words}
        found.append(Aspect(name, known, tuple(one for one in told if one not in known)))
    return found


def rules(case: Case) -> Iterator[tuple[str, Does]]:
    _, text = language_part(case.document.config)
    kind = case.reference.model_type
    for layer, right in case.reference.layers.items():
        if right is case.spec:
            continue

        def of_layer(reading: Reading, layer: str = layer) -> str:
            own = reading.layers.get(layer)
            if own is None:
                return ""
            same = agrees(own, case.reference.layers[layer])
            shown = case.reference.layers[layer] if same else own
            return f"base {typed(shown.base)}, {shown.method}"

        yield f"{layer} layers", of_layer

    named = {"no_rope_layers", "no_rope_layer_interval"} & text.keys()
    if named or any(kind in table for table in (LISTED, FOURTH, WINDOWED)):
        yield "layers without rotation", partial(unrotated_layers, text=text)
    if kind == "llama4_text" or any(text.get(key) for key in TEMPERATURE):
        yield "factor on queries in layers without rotation", partial(temperature, text=text)
    if case.block.get("llama_4_scaling_beta"):
        yield "factor on queries (llama_4_scaling_beta)", beta
    for key, without in UNREAD.items():
        if text.get(key):
            yield key, partial(unread, key=key, without=without, text=text)
    if sections := case.block.get("mrope_section"):
        yield (
            "pairs per position axis, for images",
            partial(axes, block=case.block, sections=sections),
        )


def unrotated_layers(reading: Reading, text: Mapping[str, Any]) -> str:
    runtime, kind = reading.runtime.name, reading.model_type
    count = text.get("num_hidden_layers", text.get("block_count"))
    if not isinstance(count, int) or not 1 <= count <= MOST_LAYERS:
        return "every 4th" if runtime in FOURTH.get(kind, ()) else ""
    rotated: Any = [(layer + 1) % 4 for layer in range(count)]
    if runtime in LISTED.get(kind, ()):
        step = text.get("no_rope_layer_interval", 4)
        if not isinstance(step, int) or step < 1:
            return ""
        listed = text.get("no_rope_layers")
        rotated = listed or [(layer + 1) % step for layer in range(count)]
        if not isinstance(rotated, list) or len(rotated) != count:
            return ""
    elif runtime in WINDOWED.get(kind, ()):
        types = text.get("layer_types")
        if not isinstance(types, list) or len(types) != count or not text.get("sliding_window"):
            return ""
        rotated = [one == "sliding_attention" for one in types]
    elif runtime not in FOURTH.get(kind, ()):
        return ""
    return layers_in_words([layer for layer, flag in enumerate(rotated) if not flag], count)


def layers_in_words(layers: list[int], count: int) -> str:
    """Return numbers of layers, counted from 0, in words.

    >>> layers_in_words([3, 7], 8), layers_in_words([], 8), layers_in_words([0, 5], 8)
    ('every 4th of 8', 'none of 8', '0, 5 of 8')
    """
    if not layers:
        return f"none of {count}"
    step = layers[0] + 1
    if layers == list(range(layers[0], count, step)):
        return f"every {step}th of {count}" if step > 1 else f"all {count}"
    some = ", ".join(map(str, layers[:6]))
    return f"{some}{', ...' if layers[6:] else ''} of {count}"


def temperature(reading: Reading, text: Mapping[str, Any]) -> str:
    runtime = reading.runtime.name
    if reading.model_type != "llama4_text":
        # Only Llama 4's code has these keys.
        return "none" if runtime == "transformers-5" else ""
    on, floor, scale = True, 8192, 0.1
    if runtime in (*NEWER, "transformers-4.51", "sglang"):
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


def unread(reading: Reading, key: str, without: tuple[str, ...], text: Mapping[str, Any]) -> str:
    runtime, value = reading.runtime.name, text[key]
    if runtime in without:
        return "without effect"
    # SGLang's attention for it has to be chosen when the server starts.
    chunks = key == "dual_chunk_attention_config" and isinstance(value, Mapping)
    if runtime == "sglang" and chunks and reading.model_type in ("qwen2", "qwen2_moe"):
        return f"chunks of {value.get('chunk_size', 8192)!s:.12} tokens"
    return ""


def axes(reading: Reading, block: Mapping[str, Any], sections: Any) -> str:
    runtime, kind = reading.runtime.name, reading.model_type
    pairs = reading.main.rotary_dim // 2 if reading.main else 0
    whole = isinstance(sections, list) and len(sections) == 3
    if not whole or not all(isinstance(one, int) and one >= 0 for one in sections):
        return ""
    if sum(sections) != pairs:
        return ""
    layout = next((name for name, kinds in AXES.items() if kind in kinds), "")
    if not layout or runtime not in ("transformers-5", "sglang"):
        return ""
    if runtime == "sglang":  # transformers' classes have one layout each, whatever the key says
        layout = "mrope_interleaved" if block.get("mrope_interleaved") else "mrope"
    interleaved = layout == "mrope_interleaved"
    owners = axis_of_pairs("mrope_interleaved" if interleaved else "mrope", sections)
    realised = np.bincount(owners, minlength=3).tolist()
    asked = f", asked for {sections}" if realised != sections else ""
    return f"{realised} {'interleaved' if interleaved else 'in runs'}{asked}"
