"""Trainers that make a rotation of their own from their command line.

Read from megatron-core 0.16.1 (models/common/embeddings/rotary_pos_embedding.py, models/gpt) with
Megatron-LM's arguments, and from llamafactory 0.9.5 (model/model_utils/rope.py).
"""

import math
from typing import Any

from ropelab.audit.runtimes import reader
from ropelab.audit.runtimes.reader import KEPT, Made, Method, Reader, Settings
from ropelab.audit.runtimes.spec import NotModelledError, RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import MAXIMUM, ORIGINAL, Trace, rope_block
from ropelab.audit.runtimes.transformers import Transformers4

# Flags with a value, and switches.
_SETTINGS = ("rotary_base", "rotary_percent", "kv_channels", "rope_scaling_factor", "cutoff_len")
FLAGS = {f"--{name.replace('_', '-')}": name for name in _SETTINGS}
FLAGS["--rotary-seq-len-interpolation-factor"] = "interpolation"
SWITCHES = {f"--{n.replace('_', '-')}": n for n in ("use_rope_scaling", "rotary_interleaved")}
LLAMAFACTORY = ("linear", "dynamic", "yarn", "llama3")


class Megatron(Reader):
    """Megatron-LM's GPT model with --position-embedding-type rope: no key of the file counts."""

    def settings(self, trace: Trace) -> dict[str, Settings]:
        if trace.family.latent:
            raise NotModelledError("Megatron-LM's latent attention")
        settings, flags = Settings(trace), trace.flags
        base = "--rotary-base" if "rotary_base" in flags else "default of --rotary-base"
        settings.put("rope_theta", flags.get("rotary_base", 10000), base)
        settings.put("partial_rotary_factor", flags.get("rotary_percent", 1.0), "--rotary-percent")
        kinds = {"llama3": "use_rope_scaling", "linear": "interpolation"}
        kind = [name for name, flag in kinds.items() if flags.get(flag)]
        if kind[1:]:
            raise NotModelledError("--use-rope-scaling with an interpolation factor")
        settings.put("rope_type", kind[0] if kind else "default", "flags")
        return {"all": settings}

    def head_dim(self, trace: Trace) -> int:
        width = trace.flags.get("kv_channels")
        if width is None:
            hidden, heads = trace.text.get("hidden_size"), trace.text.get("num_attention_heads")
            width = whole(hidden, "hidden_size") // whole(heads, "num_attention_heads")
        width = whole(width, "--kv-channels")
        if width > reader.MOST_FEATURES:
            raise RefusedError(f"heads of {width} features")
        return width

    def pairing(self, trace: Trace) -> Any:
        return "interleaved" if trace.flags.get("rotary_interleaved") else "half"


def megatron_llama3(settings: Settings) -> Made:
    # The other three numbers are constants in its code.
    factor = settings.trace.flags.get("rope_scaling_factor", 8.0)
    settings.values |= {"factor": factor, **KEPT, ORIGINAL: 8192}
    return reader.llama3(settings)


def megatron_linear(settings: Settings) -> Made:
    settings.values["factor"] = settings.trace.flags["interpolation"]
    return reader.linear(settings)


Megatron.methods = {
    "default": Method(reader.unscaled),
    "llama3": Method(megatron_llama3),
    "linear": Method(megatron_linear),
}


def llamafactory(trace: Trace) -> dict[str, RopeSpec]:
    """Return what transformers reads after LLaMA-Factory has replaced the block."""
    kind = trace.flags.get("rope_scaling")
    if kind is not None and kind not in LLAMAFACTORY:
        raise RefusedError(f"rope_scaling must be one of {', '.join(LLAMAFACTORY)}")
    if kind is not None:
        trace.text = {**trace.text, **replaced(trace, kind)}
    return Transformers4("factor", "switch").read(trace)


def replaced(trace: Trace, kind: str) -> dict[str, Any]:
    """Return the keys that it sets for training; none if its cutoff is not beyond the length."""
    block = rope_block(trace.text)[1] if trace.has("rope_scaling") else {}
    old = whole(block.get(ORIGINAL, trace.text.get(MAXIMUM)), MAXIMUM)
    factor = math.ceil(number(trace.flags.get("cutoff_len", 2048), "--cutoff-len") / old)
    return lengthened(kind, old, factor) if factor > 1 else {}


def lengthened(kind: str, original: int, factor: int) -> dict[str, Any]:
    """Return the keys of a scaling from the original length by a whole factor."""
    block: dict[str, Any] = {"rope_type": kind, "factor": float(factor)}
    if kind != "linear":
        block[ORIGINAL] = original
    if kind == "llama3":
        block |= KEPT
    return {MAXIMUM: original * factor, "rope_scaling": block}
