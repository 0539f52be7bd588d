"""llama.cpp: what it makes of a file, or of a configuration that its converter wrote, and of flags.

Read from src/llama-context.cpp, src/llama-model.cpp and ggml/src/ggml-cpu/ops.cpp of llama.cpp
0c1e570 (2026-10-01), as shipped with llama-cpp-python 0.3.36.
"""

import math
from collections.abc import Mapping
from typing import Any

from ropelab.audit.runtimes import parts
from ropelab.audit.runtimes.llamacpp_file import FREQS, LONG, SHORT, Fields, converted
from ropelab.audit.runtimes.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
    numbers,
    whole,
)
from ropelab.audit.runtimes.trace import Trace
from ropelab.math.scaling import LongRope, Scaling, Unscaled

FLAGS = {
    "--rope-scaling": "rope_scaling",
    "--rope-scale": "rope_scale",
    "--rope-freq-scale": "rope_freq_scale",
    "--rope-freq-base": "rope_freq_base",
    "--yarn-orig-ctx": "yarn_orig_ctx",
    "--yarn-ext-factor": "yarn_ext_factor",
    "--yarn-attn-factor": "yarn_attn_factor",
    "--yarn-beta-fast": "yarn_beta_fast",
    "--yarn-beta-slow": "yarn_beta_slow",
    "-c": "ctx_size",
    "--ctx-size": "ctx_size",
}


def read(trace: Trace) -> dict[str, RopeSpec]:
    """Specs of a configuration after conversion, or of a GGUF file; flags change both."""
    if "attention.head_count" in trace.text or FREQS in trace.text:
        return of_fields(trace, from_file(trace))
    return of_fields(trace, converted(trace))


def from_file(trace: Trace) -> Fields:
    """The fields of a file, each marked as used; the one that is overwritten as such."""
    fields = dict(trace.text)
    for name in fields:
        trace.mark(name, "used")
    if "rope.scaling.yarn_attn_factor" in fields:
        trace.mark("rope.scaling.yarn_attn_factor", "overridden", "computed anew from the factor")
    return fields


def of_fields(trace: Trace, fields: Fields) -> dict[str, RopeSpec]:
    """What the runtime computes from the fields of a file and the flags of its command line."""
    flags = trace.flags
    context = whole(fields.get("context_length"), "context_length")
    head_dim, width = widths(fields)
    base = number(flags.get("rope_freq_base") or fields.get("rope.freq_base", 10000.0), "base")
    kind = flags.get("rope_scaling") or fields.get("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise RefusedError(f"unknown scaling type '{kind}'")
    factor = 1.0 if kind == "none" else stretch(fields, flags)
    default = fields.get("rope.scaling.original_context_length", context)
    trained = whole(flags.get("yarn_orig_ctx") or default, "original context length")
    scaling, attention = scaling_of(fields, flags, kind, factor, width)
    claimed = context
    if kind == "yarn" and flags.get("rope_scaling") and factor != given_factor(fields):
        claimed = int(trained * factor)
    spec = RopeSpec(
        base=base,
        head_dim=head_dim,
        rotary_dim=width,
        scaling=scaling,
        trained_len=trained,
        claimed_len=claimed,
        attention_factor=attention,
        softmax_factor=softmax_factor(trace, fields, factor),
        pairing=parts.family_for(trace).pairing,
        sources={"base": "rope.freq_base" if "rope.freq_base" in fields else "default 10000"},
    )
    return by_layer_type(parts.finished(spec), fields.get("rope.freq_base_swa"))


def by_layer_type(spec: RopeSpec, local: Any) -> dict[str, RopeSpec]:
    """The spec, and beside it that of layers with a sliding window, if they have a base."""
    if local is None:
        return {"all": spec}
    sliding = RopeSpec(
        base=number(local, "rope.freq_base_swa"),
        head_dim=spec.head_dim,
        rotary_dim=spec.rotary_dim,
        scaling=Unscaled(),
        trained_len=spec.trained_len,
        claimed_len=spec.claimed_len,
        pairing=spec.pairing,
        sources={"base": "rope.freq_base_swa"},
    )
    return {"full_attention": spec, "sliding_attention": parts.finished(sliding)}


def widths(fields: Fields) -> tuple[int, int]:
    """Features of a head and of its rotated part."""
    head = fields.get("attention.key_length")
    if head is None:
        heads = whole(fields.get("attention.head_count"), "attention.head_count")
        head = whole(fields.get("embedding_length"), "embedding_length") // heads
    head_dim = whole(head, "attention.key_length")
    width = whole(fields.get("rope.dimension_count", head_dim), "rope.dimension_count")
    if width % 2 or width > head_dim:
        raise NotModelledError(f"{width} rotated of {head_dim} features")
    return head_dim, width


def given_factor(fields: Fields) -> float:
    """The factor in the file, 1 where there is none; the older key counts too."""
    factor = fields.get("rope.scaling.factor", fields.get("rope.scale_linear", 0.0))
    return number(factor, "rope.scaling.factor") or 1.0


def stretch(fields: Fields, flags: Mapping[str, Any]) -> float:
    """The factor, by flag or from the file."""
    if flags.get("rope_scale"):
        return number(flags["rope_scale"], "--rope-scale")
    if flags.get("rope_freq_scale"):
        return 1 / number(flags["rope_freq_scale"], "--rope-freq-scale")
    return given_factor(fields)


def scaling_of(
    fields: Fields, flags: Mapping[str, Any], kind: str, factor: float, width: int
) -> tuple[Scaling, float]:
    """The scaling with its tensors, and the factor on cos and sin.

    With the ramp on, the factor is computed from the stretch whatever the file and the flag say
    about yarn_attn_factor; rope.scaling.attn_factor multiplies it.
    """
    own = number(fields.get("rope.scaling.attn_factor", 1.0), "rope.scaling.attn_factor")
    extra = flags.get("yarn_ext_factor", fields.get("rope.scaling.yarn_ext_factor"))
    ramp = (1.0 if kind == "yarn" else 0.0) if extra is None else number(extra, "yarn_ext_factor")
    if ramp not in (0.0, 1.0):
        raise NotModelledError(f"a ramp weighted by {ramp:g}")
    if FREQS in fields or LONG in fields:
        return with_tensors(fields, factor, ramp, own, width)
    if not ramp:
        return parts.linear(factor)[0], own
    return ramped(fields, flags, factor, own)


def ramped(
    fields: Fields, flags: Mapping[str, Any], factor: float, own: float
) -> tuple[Scaling, float]:
    """The coded ramp, its ends rounded to whole pairs."""
    fast = flags.get("yarn_beta_fast", fields.get("rope.scaling.yarn_beta_fast", 32.0))
    slow = flags.get("yarn_beta_slow", fields.get("rope.scaling.yarn_beta_slow", 1.0))
    attention = yarn_attention(fields, factor) * own
    return parts.yarn(
        factor,
        attention,
        beta_fast=number(fast, "yarn_beta_fast"),
        beta_slow=number(slow, "yarn_beta_slow"),
    )


def yarn_attention(fields: Fields, factor: float) -> float:
    """0.1 ln(factor) + 1; 1 where DeepSeek's log multiplier is there (both mscales taken equal)."""
    if fields.get("rope.scaling.yarn_log_multiplier"):
        return 1.0
    return parts.magnitude(factor)


def with_tensors(
    fields: Fields, factor: float, ramp: float, own: float, width: int
) -> tuple[Scaling, float]:
    """Divisors from tensors, on top of the stretch: both apply."""
    if ramp and factor != 1:
        raise NotModelledError("the yarn ramp on top of a tensor of divisors")
    if FREQS in fields:
        short = long = numbers(fields[FREQS], FREQS)
    else:
        short, long = numbers(fields[SHORT], SHORT), numbers(fields[LONG], LONG)
    if len(short) != width // 2 or len(long) != width // 2:
        raise RefusedError(f"{len(short)} divisors for {width // 2} pairs")
    short, long = (tuple(factor * value for value in table) for table in (short, long))
    if min(short + long) <= 0 or not all(map(math.isfinite, short + long)):
        raise NotModelledError("divisors that are not positive numbers")
    scaling = LongRope(long_factor=long, short_factor=short, factor=1.0, attention_factor=own)
    return scaling, own


def softmax_factor(trace: Trace, fields: Fields, factor: float) -> float:
    """DeepSeek's (1 + log multiplier ln(factor))^2 on whole scores."""
    multiplier = fields.get("rope.scaling.yarn_log_multiplier")
    if not multiplier or not trace.model_type.startswith(("deepseek", "kimi")):
        return 1.0
    return (1 + number(multiplier, "yarn_log_multiplier") * math.log(max(1.0, factor))) ** 2
