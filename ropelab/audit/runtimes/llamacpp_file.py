"""What llama.cpp's converter writes into a GGUF file for a configuration.

Read from conversion/*.py of llama.cpp 0c1e570 (2026-10-01), as shipped with llama-cpp-python
0.3.36.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ropelab.audit.runtimes import parts
from ropelab.audit.runtimes.families import Family
from ropelab.audit.runtimes.spec import NotModelledError, RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import Trace
from ropelab.math.frequencies import inverse_frequencies

Fields = dict[str, Any]
FREQS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"


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
