"""llama.cpp: what its converter writes for a configuration, and what it makes of a file and flags.

Read from src/llama-context.cpp, src/llama-model.cpp, ggml/src/ggml-cpu/ops.cpp and conversion/*.py
of llama.cpp 0c1e570 (2026-10-01), as shipped with llama-cpp-python 0.3.36.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ropelab.rope.frequencies import inverse_frequencies
from ropelab.rope.scaling import LongRope, Scaling
from ropelab.runtimes import parts
from ropelab.runtimes.families import Family
from ropelab.runtimes.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
    numbers,
    whole,
)
from ropelab.runtimes.trace import Trace

Fields = dict[str, Any]
FREQS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"

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


def converted(trace: Trace) -> Fields:
    """What the converter writes: rope_parameters if the key is there, else rope_scaling.

    It loads the configuration with transformers 4.57.6, whose class fills in a base that the file
    does not give and lets `type` win over `rope_type`.
    """
    family = parts.family_for(trace)
    name = "rope_parameters" if "rope_parameters" in trace.text else "rope_scaling"
    block = dict(trace.block(name) or {})
    if nested := block.get("full_attention"):
        block, name = dict(nested) if isinstance(nested, Mapping) else {}, f"{name}.full_attention"
    for key in block:
        trace.mark(f"{name}.{key}", "ignored")
    fields = sizes(trace, block, family)
    base = block.get("rope_theta")
    if base is None:
        keys = ("global_rope_theta", "rope_theta", "rotary_emb_base")
        base, _ = trace.first(keys, family.earlier_base)
    else:
        trace.mark(f"{name}.rope_theta", "translated", "written as rope.freq_base")
    fields["rope.freq_base"] = number(base, "rope_theta")
    local, _ = trace.first(("local_rope_theta", "rope_local_base_freq"))
    if local is not None:
        fields["rope.freq_base_swa"] = number(local, "local base")
    fields |= scaling_fields(trace, name, block, fields, family)
    return fields


def sizes(trace: Trace, block: Mapping[str, Any], family: Family) -> Fields:
    """Context length and rotated width."""
    keys = ("max_position_embeddings", "n_ctx", "n_positions", "model_max_length")
    context, _ = trace.first(keys)
    if context is None:
        raise RefusedError("no context length is written, and llama.cpp needs one")
    head_dim, _ = parts.head_dim_of(trace, family)
    share = block.get("partial_rotary_factor")
    if share is None:
        share, _ = trace.first(family.partial_keys, family.partial or 1.0)
    if family.partial is None:
        share = 1.0
    return {
        "context_length": whole(context, "context length"),
        "attention.key_length": head_dim,
        "rope.dimension_count": parts.width_of(head_dim, number(share, "share")),
    }


def scaling_fields(
    trace: Trace, name: str, block: Mapping[str, Any], fields: Fields, family: Family
) -> Fields:
    """The keys and tensors of the scaling type; types the converter does not know are dropped."""
    first, second = ("type", "rope_type") if name == "rope_scaling" else ("rope_type", "type")
    kind = block.get(first, block.get(second))
    if kind is None:
        return {}
    trace.mark(f"{name}.{first if first in block else second}", "translated")
    writers = {"linear": linear, "yarn": yarn, "llama3": llama3, "longrope": longrope}
    writer = writers.get("longrope" if kind == "su" else kind) if isinstance(kind, str) else None
    if family.name == "phi3" and kind == "yarn":
        raise NotModelledError("phi3 with yarn, whose class writes only an attention factor")
    return writer(trace, name, block, fields) if writer else {}


def written(trace: Trace, name: str, block: Mapping[str, Any], *keys: str) -> None:
    """Mark keys that end up in the file under another name."""
    for key in keys:
        if key in block:
            trace.mark(f"{name}.{key}", "translated", "written into the file")


def linear(trace: Trace, name: str, block: Mapping[str, Any], fields: Fields) -> Fields:
    if block.get("factor") is None:
        return {}
    written(trace, name, block, "factor")
    return {"rope.scaling.type": "linear", "rope.scaling.factor": block["factor"]}


def yarn(trace: Trace, name: str, block: Mapping[str, Any], fields: Fields) -> Fields:
    """The original length is needed; mscale, mscale_all_dim and truncate are dropped."""
    if block.get("factor") is None:
        return {}
    original = block.get("original_max_position_embeddings")
    if original is None:
        original = trace.get("original_max_position_embeddings")
    if original is None:
        raise RefusedError("the converter needs original_max_position_embeddings for yarn")
    made = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": block["factor"],
        "rope.scaling.original_context_length": original,
    }
    written(trace, name, block, "factor", "original_max_position_embeddings")
    names = {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
    names["extrapolation_factor"] = "yarn_ext_factor"
    for key, target in names.items():
        if block.get(key) is not None:
            made[f"rope.scaling.{target}"] = block[key]
            written(trace, name, block, key)
    for key in ("attention_factor", "attn_factor"):
        if key in block:
            trace.mark(f"{name}.{key}", "overridden", "written, then computed anew on loading")
    family = parts.family_for(trace)
    if family.latent and block.get("mscale_all_dim") is not None:
        written(trace, name, block, "mscale_all_dim")
        made["rope.scaling.yarn_log_multiplier"] = 0.1 * number(block["mscale_all_dim"], "mscale")
    return made


def llama3(trace: Trace, name: str, block: Mapping[str, Any], fields: Fields) -> Fields:
    """One divisor per pair, in a tensor; every key has a default: 8, 1, 4, 8192."""
    keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    written(trace, name, block, *keys)
    original = block.get(keys[3])
    if original is None:
        original = trace.get(keys[3], 8192)
    values = zip(keys[:3], (8.0, 1.0, 4.0), strict=True)
    factor, low, high = (number(block.get(key, default), key) for key, default in values)
    width, base = fields["attention.key_length"], fields.get("rope.freq_base", 10000.0)
    scaling, _ = parts.llama3(factor, low, high)
    spec = RopeSpec(
        base=base,
        head_dim=width,
        rotary_dim=width,
        scaling=scaling,
        trained_len=whole(original, keys[3]),
    )
    plain = np.asarray(inverse_frequencies(width, base), dtype=np.float64)
    return {FREQS: (plain / parts.finished(spec).inv_freq(1)).tolist()}


def longrope(trace: Trace, name: str, block: Mapping[str, Any], fields: Fields) -> Fields:
    """Two tensors and an attention factor from the lengths; only the Phi-3 class writes them."""
    if trace.model_type != "phi3":
        return {"rope.scaling.type": "longrope"}
    original = block.get("original_max_position_embeddings")
    if original is None:
        original = trace.get("original_max_position_embeddings")
    trained = whole(original, "original_max_position_embeddings")
    written(trace, name, block, "short_factor", "long_factor", "original_max_position_embeddings")
    return {
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": trained,
        "rope.scaling.attn_factor": parts.longrope_attention(
            fields["context_length"] / trained, trained
        ),
        LONG: block.get("long_factor"),
        SHORT: block.get("short_factor"),
    }


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
    spec = parts.finished(spec)
    local = fields.get("rope.freq_base_swa")
    if local is None:
        return {"all": spec}
    plain, _ = parts.unscaled()
    sliding = RopeSpec(
        base=number(local, "rope.freq_base_swa"),
        head_dim=head_dim,
        rotary_dim=width,
        scaling=plain,
        trained_len=trained,
        claimed_len=claimed,
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
