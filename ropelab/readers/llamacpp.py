"""llama.cpp: the rotation that follows from the fields of a GGUF file.

The fields are read from a file, or as the converter would write them for a
configuration; flags of the server come on top.

Read from src/llama-context.cpp, src/llama-model.cpp, src/models/*.cpp and
ggml/src/ggml-cpu/ops.cpp of llama.cpp 0c1e570 (2026-10-01), as shipped with
llama-cpp-python 0.3.36.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropelab.math.scaling import LongRope, PositionInterpolation, Scaling, Yarn
from ropelab.readers import scaling_types
from ropelab.readers.llamacpp_converter import (
    DIVISORS,
    LONG_DIVISORS,
    NAMES,
    SHORT_DIVISORS,
    USUAL_BASE,
    Fields,
    convert,
    convert_params,
    find_architecture,
    is_loaded,
    is_ocr,
    mark_params,
)
from ropelab.readers.mistral_params import OWN_PARAMS
from ropelab.readers.spec import (
    FrequencyFactors,
    NotModelledError,
    RefusedError,
    RopeSpec,
    require_number,
    require_numbers,
    require_whole,
)
from ropelab.readers.trace import Trace

# A field that a file may have, and that llama.cpp computes anew from the factor.
RECOMPUTED = "rope.scaling.yarn_attn_factor"
# The beginnings of model types that multiply whole scores (`find_softmax_factor`).
TYPES_WITH_SOFTMAX_FACTOR = tuple(NAMES["types_with_softmax_factor"])

# The flags of the server that are about the rotation, each with its name here.
FLAGS = {f"--{name.replace('_', '-')}": name for name in NAMES["settings"]} | {
    "-c": "ctx_size"
}


def read(trace: Trace) -> dict[str, RopeSpec]:
    """Return the specs of a GGUF file, or of a configuration after conversion."""
    if OWN_PARAMS in trace.language_part:
        fields, architecture = convert_params(trace.language_part[OWN_PARAMS])
        mark_params(trace, architecture)
        return read_fields(trace, fields, architecture)

    fields_of_gguf = ("attention.head_count", DIVISORS)
    is_gguf = any(name in trace.language_part for name in fields_of_gguf)
    if not is_gguf:
        return read_fields(trace, convert(trace), find_architecture(trace))

    fields = dict(trace.language_part)
    for name in fields:
        if is_loaded(name, trace.model_type):
            trace.mark(name, "used")
        else:
            trace.mark(name, "ignored", "not loaded for this architecture")
    if RECOMPUTED in fields:
        trace.mark(RECOMPUTED, "overridden", "computed anew from the factor")
    check_whole_heads(fields, trace.model_type)
    fields = fill_sliding_base(fields, trace.model_type, trace.flags)
    return read_fields(trace, fields, trace.model_type)


def check_whole_heads(fields: Fields, architecture: str) -> None:
    """Raise RefusedError for a file that rotates a part of its heads, if llama.cpp
    rotates whole heads of this architecture.
    """
    if architecture not in NAMES["whole_heads"]:
        return
    head_dim, rotary_dim = read_widths(fields)
    if rotary_dim != head_dim:
        raise RefusedError(
            f"rope.dimension_count is {rotary_dim}, and heads have {head_dim} features:"
            f" a {architecture} rotates whole heads"
        )


def fill_sliding_base(
    fields: Fields, architecture: str, flags: Mapping[str, Any]
) -> Fields:
    """Return the fields with the base that llama.cpp gives layers with a sliding window.

    Files of some architectures state no base for these layers. llama.cpp then rotates
    them by a base from its code, without a scaling. Most of these architectures have no
    such layers if the file states no window.
    """
    rule = NAMES["sliding"].get(architecture)
    if rule is None:
        return fields
    window = fields.get("attention.sliding_window")
    if not rule["always"] and not window:
        return {
            name: value
            for name, value in fields.items()
            if name != "rope.freq_base_swa"
        }
    if not rule["base"]:
        base, _ = read_base(fields, flags)
        return {**fields, "rope.freq_base_swa": base}
    return {"rope.freq_base_swa": rule["base"], **fields}


def read_fields(
    trace: Trace, fields_of_file: Fields, architecture: str
) -> dict[str, RopeSpec]:
    """Return what the runtime computes from fields and from the flags of its server."""
    fields = {
        name: value
        for name, value in fields_of_file.items()
        if is_loaded(name, architecture)
    }

    # The order of the following steps decides which of several errors is reported.
    flags = trace.flags
    context = require_whole(fields.get("context_length"), "context_length")
    head_dim, rotary_dim = read_widths(fields)
    base, base_source = read_base(fields, flags)

    type_in_file = fields.get("rope.scaling.type", "linear")
    scaling_type = flags.get("rope_scaling") or type_in_file
    if scaling_type not in ("none", "linear", "yarn", "longrope"):
        raise RefusedError(f"unknown scaling type '{scaling_type}'")
    factor = 1.0
    if scaling_type != "none":
        factor = find_factor(fields, flags)
    trained_of_file = fields.get("rope.scaling.original_context_length", context)
    trained = require_whole(
        flags.get("yarn_orig_ctx") or trained_of_file, "original context length"
    )
    scaling, attention = make_scaling(fields, flags, scaling_type, factor, rotary_dim)
    multiplier = fields.get("rope.scaling.yarn_log_multiplier")
    if multiplier and architecture == "mistral3" and isinstance(scaling, Yarn):
        # The factor on cos and sin is the ratio of `mscale_ratio`. The file has no mscale,
        # which counts as 1; the multiplier is mscale_all_dim.
        attention *= scaling_types.yarn_attention(factor)
        attention /= scaling_types.yarn_attention(
            factor, require_number(multiplier, "yarn_log_multiplier")
        )
        scaling = replace(scaling, attention_factor=attention)

    # A flag that sets YaRN, with another factor than the file's, extends the length
    # that llama.cpp claims for the model.
    claimed = context
    is_yarn_by_flag = scaling_type == "yarn" and flags.get("rope_scaling")
    if is_yarn_by_flag and factor != find_factor(fields, {}):
        claimed = int(trained * factor)

    first_feature = 0
    if trace.family.rotated_end == "last":
        first_feature = head_dim - rotary_dim
    spec = RopeSpec(
        base=base,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        place=first_feature,
        scaling=scaling,
        trained_len=trained,
        claimed_len=claimed,
        attention_factor=attention,
        softmax_factor=find_softmax_factor(trace, fields, factor),
        pairing="half" if is_ocr(trace) else trace.family.pairing,
        base_source=base_source,
    ).check()

    sliding_base = fields.get("rope.freq_base_swa")
    if sliding_base is None:
        return {"all": spec}
    sliding = spec.unscaled(require_number(sliding_base, "rope.freq_base_swa")).check()
    return {"full_attention": spec, "sliding_attention": sliding}


def read_widths(fields: Fields) -> tuple[int, int]:
    """Return the number of features of a head, and the number of features that rotate."""
    key_length = fields.get("attention.key_length")
    if key_length is None:
        heads = fields.get("attention.head_count")
        # A list has a number for each layer, of which the first decides for all.
        if isinstance(heads, list):
            heads = heads[0] if heads else 0
            if not heads:
                raise NotModelledError(
                    "a first layer without heads and no attention.key_length"
                )
        heads = require_whole(heads, "attention.head_count")
        hidden = require_whole(fields.get("embedding_length"), "embedding_length")
        key_length = hidden // heads

    head_dim = require_whole(key_length, "attention.key_length")
    rotary_dim = fields.get("rope.dimension_count", head_dim)
    rotary_dim = require_whole(rotary_dim, "rope.dimension_count")
    if rotary_dim % 2 or rotary_dim > head_dim:
        raise NotModelledError(f"{rotary_dim} rotated of {head_dim} features")
    return head_dim, rotary_dim


def read_base(fields: Fields, flags: Mapping[str, Any]) -> tuple[float, str]:
    """Return the base, and the field or flag that it comes from."""
    base = flags.get("rope_freq_base")
    if base:
        return require_number(base, "base"), "--rope-freq-base"
    if "rope.freq_base" in fields:
        return require_number(fields["rope.freq_base"], "base"), "rope.freq_base"
    return USUAL_BASE, "default of llama.cpp"


def find_softmax_factor(trace: Trace, fields: Fields, factor: float) -> float:
    """Return DeepSeek's factor on whole scores, (1 + multiplier ln(factor))^2."""
    multiplier = fields.get("rope.scaling.yarn_log_multiplier")
    if not multiplier or not trace.model_type.startswith(TYPES_WITH_SOFTMAX_FACTOR):
        return 1.0
    multiplier = require_number(multiplier, "yarn_log_multiplier")
    return (1 + multiplier * math.log(max(1.0, factor))) ** 2


def find_factor(fields: Fields, flags: Mapping[str, Any]) -> float:
    """Return the factor by which positions are divided."""
    if flags.get("rope_scale"):
        return require_number(flags["rope_scale"], "--rope-scale")
    if flags.get("rope_freq_scale"):
        return 1 / require_number(flags["rope_freq_scale"], "--rope-freq-scale")

    # Older files have the factor in another field.
    factor_of_older_file = fields.get("rope.scale_linear", 0.0)
    factor = fields.get("rope.scaling.factor", factor_of_older_file)
    # A factor of 0 counts as missing.
    return require_number(factor, "rope.scaling.factor") or 1.0


def make_scaling(
    fields: Fields,
    flags: Mapping[str, Any],
    scaling_type: str,
    factor: float,
    rotary_dim: int,
) -> tuple[Scaling, float]:
    """Return the scaling and the factor on cos and sin.

    Args:
        fields: the fields of the file.
        flags: the flags of the server.
        scaling_type: the name of the scaling, such as yarn.
        factor: the factor by which positions are divided.
        rotary_dim: the number of features that rotate.
    """
    # Only this field sets the factor on cos and sin.
    field = "rope.scaling.attn_factor"
    own_attention = require_number(fields.get(field, 1.0), field)
    has_ramp = find_ramp_weight(fields, flags, scaling_type) > 0

    if DIVISORS in fields or LONG_DIVISORS in fields or SHORT_DIVISORS in fields:
        if DIVISORS not in fields and not (
            LONG_DIVISORS in fields and SHORT_DIVISORS in fields
        ):
            raise NotModelledError(f"only one of {LONG_DIVISORS} and {SHORT_DIVISORS}")
        if has_ramp and factor != 1:
            raise NotModelledError("the yarn ramp on top of a tensor of divisors")
        return divide_by_tensors(
            fields, factor, rotary_dim, own_attention
        ), own_attention

    if not has_ramp:
        return PositionInterpolation(factor=factor), own_attention

    fast = flags.get("yarn_beta_fast", fields.get("rope.scaling.yarn_beta_fast", 32.0))
    slow = flags.get("yarn_beta_slow", fields.get("rope.scaling.yarn_beta_slow", 1.0))
    # DeepSeek's log multiplier (both mscales taken as equal) replaces the usual factor.
    attention = own_attention
    if not fields.get("rope.scaling.yarn_log_multiplier"):
        attention = scaling_types.yarn_attention(factor) * own_attention
    scaling = Yarn(
        factor=factor,
        beta_fast=require_number(fast, "yarn_beta_fast"),
        beta_slow=require_number(slow, "yarn_beta_slow"),
        attention_factor=attention,
    )
    return scaling, attention


def find_ramp_weight(
    fields: Fields, flags: Mapping[str, Any], scaling_type: str
) -> float:
    """Return the weight of YaRN's ramp: 1 applies it, 0 divides all positions alike.

    NotModelledError: a weight between them.
    """
    name = "yarn_ext_factor"
    weight = flags.get(name, fields.get(f"rope.scaling.{name}"))
    weight = -1.0 if weight is None else require_number(weight, name)
    # A negative weight means that none is set.
    if weight < 0:
        return 1.0 if scaling_type == "yarn" else 0.0
    if weight not in (0.0, 1.0):
        raise NotModelledError(f"a ramp weighted by {weight:g}")
    return weight


def refuse_odd_divisors(fields: Fields, name: str) -> None:
    """Raise NotModelledError for divisors that llama.cpp takes, although no rotation
    follows from them.
    """
    divisors = fields[name] if isinstance(fields[name], list) else []
    for divisor in divisors:
        if isinstance(divisor, float) and not 0 < divisor < math.inf:
            raise NotModelledError(f"{name} has a divisor of {divisor:g}")


def divide_by_tensors(
    fields: Fields, factor: float, rotary_dim: int, attention: float
) -> LongRope:
    """Return the scaling of a file with tensors of divisors, one for all lengths or a
    short and a long one.
    """
    if DIVISORS in fields:
        short_name = DIVISORS
        long_name = DIVISORS
        scaling_class: type[LongRope] = FrequencyFactors
    else:
        short_name = SHORT_DIVISORS
        long_name = LONG_DIVISORS
        scaling_class = LongRope

    refuse_odd_divisors(fields, short_name)
    refuse_odd_divisors(fields, long_name)
    short_table = require_numbers(fields[short_name], short_name)
    long_table = require_numbers(fields[long_name], long_name)
    pairs = rotary_dim // 2
    if len(short_table) != pairs or len(long_table) != pairs:
        raise RefusedError(f"{len(short_table)} divisors for {pairs} pairs")

    # ops.cpp divides by the tensor and multiplies by freq_scale: both apply.
    return scaling_class(
        long_factor=tuple(factor * divisor for divisor in long_table),
        short_factor=tuple(factor * divisor for divisor in short_table),
        factor=1.0,
        attention_factor=attention,
    )
