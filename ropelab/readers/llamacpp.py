"""llama.cpp: the fields that its converter writes, and the rotation that follows.

A GGUF file has fields such as `rope.freq_base`. They are read from a file, or as the
converter would write them for a configuration; flags of the server come on top.

Read from conversion/*.py, src/llama-context.cpp, src/llama-model.cpp, src/models/*.cpp and
ggml/src/ggml-cpu/ops.cpp of llama.cpp 0c1e570 (2026-10-01), as shipped with
llama-cpp-python 0.3.36.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import Llama3, LongRope, PositionInterpolation, Scaling, Yarn
from ropelab.readers import reader
from ropelab.readers import spec as values
from ropelab.readers.document import OWN_PARAMS
from ropelab.readers.families import RELEASES, table
from ropelab.readers.reader import Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
    whole,
)
from ropelab.readers.trace import BANDS, LISTS, MAXIMUM, ORIGINAL, Trace

Fields = dict[str, Any]
FREQS, LONG, SHORT = (
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
)

NAMES = table("names")["llamacpp"]
FLAGS = {f"--{name.replace('_', '-')}": name for name in NAMES["settings"]} | {
    "-c": "ctx_size"
}


def read(trace: Trace) -> dict[str, RopeSpec]:
    """Return the specs of a GGUF file, or of a configuration after conversion."""
    if OWN_PARAMS in trace.text:
        fields, architecture = convert_params(trace.text[OWN_PARAMS])
        mark_params(trace, architecture)
        return read_fields(trace, fields, architecture)
    if "attention.head_count" not in trace.text and FREQS not in trace.text:
        architecture = trace.model_type
        if trace.family.latent:
            architecture = "deepseek2"
        elif trace.family.name == "ministral3":
            architecture = "mistral3"
        return read_fields(trace, convert(trace), architecture)

    fields, dead = dict(trace.text), "rope.scaling.yarn_attn_factor"
    for name in fields:
        trace.mark(name, "used")
        if not is_loaded(name, trace.model_type):
            trace.mark(name, "ignored", "not loaded for this architecture")
    if dead in fields:
        trace.mark(dead, "overridden", "computed anew from the factor")
    return read_fields(trace, fields, trace.model_type)


def read_fields(trace: Trace, given: Fields, architecture: str) -> dict[str, RopeSpec]:
    """Return what the runtime computes from fields and from the flags of its server."""
    flags = trace.flags
    fields = {n: value for n, value in given.items() if is_loaded(n, architecture)}
    context = whole(fields.get("context_length"), "context_length")
    head = fields.get("attention.key_length")
    if head is None:
        heads = fields.get("attention.head_count")
        # A list has a number for each layer, of which the first decides for all.
        if isinstance(heads, list):
            heads = heads[0] if heads else 0
            if not heads:
                raise NotModelledError(
                    "a first layer without heads and no attention.key_length"
                )
        heads = whole(heads, "attention.head_count")
        head = whole(fields.get("embedding_length"), "embedding_length") // heads
    head_dim = whole(head, "attention.key_length")
    width = whole(fields.get("rope.dimension_count", head_dim), "rope.dimension_count")
    if width % 2 or width > head_dim:
        raise NotModelledError(f"{width} rotated of {head_dim} features")
    source = "rope.freq_base" if "rope.freq_base" in fields else "default of llama.cpp"
    source = "--rope-freq-base" if flags.get("rope_freq_base") else source
    base = number(
        flags.get("rope_freq_base") or fields.get("rope.freq_base", 10000.0), "base"
    )

    kind = flags.get("rope_scaling") or fields.get("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise RefusedError(f"unknown scaling type '{kind}'")
    factor = 1.0 if kind == "none" else factor_of(fields, flags)
    usual = fields.get("rope.scaling.original_context_length", context)
    trained = whole(flags.get("yarn_orig_ctx") or usual, "original context length")
    scaling, attention = scaling_of(fields, flags, kind, factor, width)
    log = fields.get("rope.scaling.yarn_log_multiplier")
    if log and architecture == "mistral3" and isinstance(scaling, Yarn):
        # mscale counts as 1, so that the factor is the ratio of two magnitudes.
        attention *= reader.magnitude(factor)
        attention /= reader.magnitude(factor, number(log, "yarn_log_multiplier"))
        scaling = replace(scaling, attention_factor=attention)
    longer = (
        kind == "yarn" and flags.get("rope_scaling") and factor != factor_of(fields, {})
    )
    claimed = int(trained * factor) if longer else context

    softmax, multiplier = 1.0, fields.get("rope.scaling.yarn_log_multiplier")
    if multiplier and trace.model_type.startswith(("deepseek", "kimi", "mistral4")):
        # These graphs scale whole scores by (1 + multiplier ln(factor))^2.
        multiplier = number(multiplier, "yarn_log_multiplier")
        softmax = (1 + multiplier * math.log(max(1.0, factor))) ** 2

    spec = RopeSpec(
        base=base,
        head_dim=head_dim,
        rotary_dim=width,
        place=head_dim - width if trace.family.place == "last" else 0,
        scaling=scaling,
        trained_len=trained,
        claimed_len=claimed,
        attention_factor=attention,
        softmax_factor=softmax,
        pairing="half" if is_ocr(trace) else trace.family.pairing,
        base_source=source,
    ).check()
    if (local := fields.get("rope.freq_base_swa")) is None:
        return {"all": spec}
    sliding = spec.unscaled(number(local, "rope.freq_base_swa")).check()
    return {"full_attention": spec, "sliding_attention": sliding}


def is_loaded(field: str, architecture: str) -> bool:
    """Return True if the class of an architecture loads a field of its file."""
    return field not in NAMES["loads"] or architecture in NAMES["loads"][field]


def factor_of(fields: Fields, flags: Mapping[str, Any]) -> float:
    """Return the factor by which positions are divided."""
    if flags.get("rope_scale"):
        return number(flags["rope_scale"], "--rope-scale")
    if flags.get("rope_freq_scale"):
        return 1 / number(flags["rope_freq_scale"], "--rope-freq-scale")
    given = fields.get("rope.scaling.factor", fields.get("rope.scale_linear", 0.0))
    return number(given, "rope.scaling.factor") or 1.0


def scaling_of(
    fields: Fields, flags: Mapping[str, Any], kind: str, factor: float, width: int
) -> tuple[Scaling, float]:
    """Return the scaling and the factor on cos and sin."""
    # A file sets the factor on cos and sin with this key alone. Another, yarn_attn_factor,
    # is computed anew.
    key = "rope.scaling.attn_factor"
    own = number(fields.get(key, 1.0), key)
    weight = flags.get("yarn_ext_factor", fields.get("rope.scaling.yarn_ext_factor"))
    weight = -1.0 if weight is None else number(weight, "yarn_ext_factor")
    # A negative weight means that none is set.
    if weight < 0:
        weight = 1.0 if kind == "yarn" else 0.0
    if weight not in (0.0, 1.0):
        raise NotModelledError(f"a ramp weighted by {weight:g}")

    if FREQS in fields or LONG in fields or SHORT in fields:
        if FREQS not in fields and not (LONG in fields and SHORT in fields):
            raise NotModelledError(f"only one of {LONG} and {SHORT}")
        if weight and factor != 1:
            raise NotModelledError("the yarn ramp on top of a tensor of divisors")
        names = (FREQS, FREQS) if FREQS in fields else (SHORT, LONG)
        short, long = (values.numbers(fields[name], name) for name in names)
        if len(short) != width // 2 or len(long) != width // 2:
            raise RefusedError(f"{len(short)} divisors for {width // 2} pairs")
        # ops.cpp divides by the tensor and multiplies by freq_scale: both apply.
        made = values.FrequencyFactors if FREQS in fields else LongRope
        divided = made(
            long_factor=tuple(factor * value for value in long),
            short_factor=tuple(factor * value for value in short),
            factor=1.0,
            attention_factor=own,
        )
        return divided, own

    if not weight:
        return PositionInterpolation(factor=factor), own
    fast = flags.get("yarn_beta_fast", fields.get("rope.scaling.yarn_beta_fast", 32.0))
    slow = flags.get("yarn_beta_slow", fields.get("rope.scaling.yarn_beta_slow", 1.0))
    # DeepSeek's log multiplier (both mscales taken as equal) replaces the usual factor.
    attention = own
    if not fields.get("rope.scaling.yarn_log_multiplier"):
        attention = reader.magnitude(factor) * own
    scaling = Yarn(
        factor=factor,
        beta_fast=number(fast, "yarn_beta_fast"),
        beta_slow=number(slow, "yarn_beta_slow"),
        attention_factor=attention,
    )
    return scaling, attention


def is_ocr(trace: Trace) -> bool:
    """Return True for DeepSeek-OCR, which has the attention of DeepSeek's first models."""
    return "DeepseekOCRForCausalLM" in str(trace.whole.get("architectures"))


def convert(trace: Trace) -> Fields:
    """Return the fields that the converter writes for a configuration."""
    family = trace.family
    name, block, sliding = choose_block(trace)
    settings = Settings(trace, block, name)
    for key in block:
        settings.mark(key, "ignored")

    context = find_context(trace)
    widths = width_fields(trace, name)
    fields: Fields = {"context_length": whole(context, "context length"), **widths}
    fields |= base_fields(settings, name, sliding)

    # These classes write no scaling of the file.
    if family.converted:
        return {**fields, **family.converted}
    if is_ocr(trace):
        return {**fields, "rope.scaling.type": "none"}

    # The converter loads files with transformers 4.57.6, where `type` wins.
    first, second = "rope_type", "type"
    if name == "rope_scaling":
        first, second = "type", "rope_type"
    kind = block.get(first, block.get(second))
    if kind is None:
        return fields

    settings.mark(first if first in block else second, "translated")
    unread = kind == "llama3" and trace.model_type not in NAMES["llama3"]
    if kind in family.unconverted or unread:
        raise NotModelledError(
            f"'{family.name}' with '{kind}', which has a rule of its own"
        )
    return fields | scaling_fields(settings, kind, fields)


def convert_params(params: Mapping[str, Any]) -> tuple[Fields, str]:
    """Return the fields that are written for Mistral's params.json, and the architecture.

    That is `convert_hf_to_gguf.py --mistral-format` (conversion/mistral.py).
    """
    if params.get("moe") is not None:
        raise NotModelledError("a params.json with experts, converted as DeepSeek-V2")
    # Without a factor on queries the file gets the architecture of the first Llamas.
    architecture = "llama"
    if params.get("llama_4_scaling") is not None:
        architecture = "mistral3"
    if params.get(MAXIMUM) is None:
        raise RefusedError("no context length is written, and llama.cpp needs one")
    if params.get("head_dim") is None:
        raise RefusedError("the converter asks for head_dim, which is missing")

    fields: Fields = {
        "context_length": whole(params[MAXIMUM], "context length"),
        "attention.key_length": whole(params["head_dim"], "head_dim"),
        "rope.freq_base": number(params.get("rope_theta", 10000.0), "rope_theta"),
    }
    if "yarn" not in params:
        return fields, architecture

    block = params["yarn"]
    if not isinstance(block, Mapping):
        raise RefusedError(f"yarn must be a dict, not {values.short(block)}")
    needed = ("apply_scale", "factor", "beta", "alpha", ORIGINAL)
    missing = [name for name in needed if name not in block]
    if missing:
        raise RefusedError(
            f"the converter asks for yarn.{missing[0]}, which is missing"
        )
    fields |= {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": number(block["factor"], "factor"),
        "rope.scaling.original_context_length": whole(block[ORIGINAL], ORIGINAL),
        "rope.scaling.yarn_beta_fast": number(block["beta"], "beta"),
        "rope.scaling.yarn_beta_slow": number(block["alpha"], "alpha"),
        "rope.scaling.yarn_log_multiplier": 0.0 if block["apply_scale"] else 1.0,
    }
    return fields, architecture


def mark_params(trace: Trace, architecture: str) -> None:
    """Set the status of the keys of a params.json, under their names in a config.json."""
    block = {"rope_type": "rope.scaling.type", "factor": "rope.scaling.factor"}
    block[ORIGINAL] = "rope.scaling.original_context_length"
    block["beta_fast"] = "rope.scaling.yarn_beta_fast"
    block["beta_slow"] = "rope.scaling.yarn_beta_slow"
    # `apply_scale: false` is a factor of 1 there.
    block["attention_factor"] = "rope.scaling.yarn_log_multiplier"

    written = {MAXIMUM: "context_length", "head_dim": "attention.key_length"}
    written["rope_theta"] = "rope.freq_base"
    written |= {f"rope_scaling.{name}": field for name, field in block.items()}
    for path, field in written.items():
        if is_loaded(field, architecture):
            trace.mark(path, "translated", f"written as {field}")
        else:
            trace.mark(path, "ignored", "written, and not loaded for this architecture")


def is_filled(trace: Trace) -> bool:
    """Return True if a class of the converter's transformers fills in what a file lacks."""
    return trace.model_type in RELEASES[trace.release]


def choose_block(trace: Trace) -> tuple[str, Mapping[str, Any], Mapping[str, Any]]:
    """Return the name and the values of the block that is read.

    The third value is the block of layers with a sliding window; it may be empty.
    """
    family = trace.family
    name = "rope_scaling"
    if "rope_parameters" in trace.text:
        name = "rope_parameters"
    block = trace.block(name) or ({} if trace.has(name) else family.rope)

    if family.unconverted == ("any",):
        raise NotModelledError(
            f"the converter's class for '{family.name}' was not read"
        )
    for key in NAMES["needs"].get(family.name, ()):
        if not trace.has(key):
            raise NotModelledError(f"the converter asks for {key}, which is missing")

    sliding = block.get("sliding_attention")
    if not isinstance(sliding, Mapping):
        sliding = {}
    nested = block.get("full_attention")
    if not nested:
        return name, block, sliding
    if not isinstance(nested, Mapping):
        nested = {}
    return f"{name}.full_attention", nested, sliding


def find_context(trace: Trace) -> Any:
    """Return the length of a file, unchecked; RefusedError without one."""
    family = trace.family
    names = (MAXIMUM, *NAMES["lengths"])
    context, path = trace.first(names, family.max_position_embeddings)
    if family.name == "nomic_bert" and path == "n_positions":
        # The converter knows two files by their lengths.
        context = {8192: 2048, 2048: 512}.get(whole(context, path), context)
    if context is None:
        raise RefusedError("no context length is written, and llama.cpp needs one")
    return context


def width_fields(trace: Trace, block: str) -> Fields:
    """Return the fields of a head's width and of the part that rotates."""
    family = trace.family
    keys = family.head_keys
    if is_ocr(trace):
        keys = ()
    elif family.latent:
        keys = ("qk_rope_head_dim",)

    head_dim = reader.head_dim_of(trace, keys)
    if family.head_dim and not is_filled(trace) and trace.first(keys)[0] is None:
        raise NotModelledError(
            f"without {keys[0]} the converter has no class to fill it in"
        )
    if family.name in NAMES["headless"] and head_dim != reader.head_dim_of(trace, ()):
        raise NotModelledError(
            "the converter does not read head_dim, and writes another width"
        )

    # Classes that rotate the whole head write no share.
    share: Any = 1.0
    if family.shares or family.name in NAMES["shares"]:
        usual = (
            f"{block}.partial_rotary_factor",
            "partial_rotary_factor",
            *family.partial_keys,
        )
        names = tuple(NAMES["shares"].get(family.name, usual))
        share, _ = trace.first(names, family.partial or 1)
        width = reader.share_of(trace, head_dim)
        if width is not None:
            share = width
    return {
        "attention.key_length": head_dim,
        "rope.dimension_count": reader.width_of(head_dim, number(share, "share")),
    }


def base_fields(settings: Settings, block: str, sliding: Mapping[str, Any]) -> Fields:
    """Return the fields of the base, and of that of sliding layers."""
    trace = settings.trace
    family = trace.family
    usual = (
        f"{block}.rope_theta",
        "global_rope_theta",
        "rope_theta",
        *family.base_keys,
    )
    default = family.base
    if not is_filled(trace):
        usual = (*usual, "rotary_emb_base")
        default = 10000.0

    base, path = trace.first(tuple(NAMES["bases"].get(family.name, usual)), default)
    if path == usual[0]:
        settings.mark("rope_theta", "translated", "written as rope.freq_base")
    if family.ratio_key:
        base *= number(trace.get(family.ratio_key, 1.0), family.ratio_key)
    fields: Fields = {"rope.freq_base": number(base, "rope_theta")}

    names = ("local_rope_theta", "swa_rope_theta", "rope_local_base_freq")
    local, _ = trace.first(names)
    # Sliding layers are never scaled, in files without the key either.
    if family.local_base_key:
        local = local or sliding.get("rope_theta") or family.local_base or base
    if local is not None and family.name not in NAMES["one_base"]:
        fields["rope.freq_base_swa"] = number(local, "local base")
    return fields


def scaling_fields(settings: Settings, kind: Any, fields: Fields) -> Fields:
    """Return the fields of a scaling; types that the converter lacks are dropped."""
    trace, block = settings.trace, settings.values

    def written(*keys: str) -> None:
        for key in keys:
            settings.mark(key, "translated", "written into the file")

    scales = kind in ("llama3", "longrope", "su") or block.get("factor") is not None
    if not scales or kind not in ("linear", "yarn", "llama3", "longrope", "su"):
        return {}
    if kind == "linear":
        written("factor")
        return {"rope.scaling.type": "linear", "rope.scaling.factor": block["factor"]}
    if kind in ("longrope", "su") and trace.model_type in ("minicpm", "minicpm3"):
        # These classes write no factor, and no original length.
        written(*LISTS)
        return {LONG: block.get("long_factor"), SHORT: block.get("short_factor")}
    if kind in ("longrope", "su") and trace.model_type not in ("phi3", "phimoe"):
        # Other classes write no tables.
        return {"rope.scaling.type": "longrope"}
    original = block.get(ORIGINAL)
    if original is None:
        original = trace.get(ORIGINAL, 8192 if kind == "llama3" else None)
    if kind == "llama3":
        written(*BANDS, ORIGINAL)
        base = fields.get("rope.freq_base", 10000.0)
        return {FREQS: divisors(block, original, fields["attention.key_length"], base)}
    if original is None and kind == "yarn":
        raise RefusedError(f"the converter needs {ORIGINAL} for yarn")
    if kind == "yarn":
        # mscale, truncate and, but for DeepSeek, mscale_all_dim have no field and are
        # lost.
        given = [key for key in NAMES["yarn"] if block.get(key) is not None]
        written("factor", ORIGINAL)
        for key in given:
            name = f"rope.scaling.{NAMES['yarn'][key]}"
            if trace.family.name == "ministral3" or name not in NAMES["loads"]:
                written(key)
            else:
                settings.mark(key, "ignored", "written, and not loaded for this model")
        for key in ("attention_factor", "attn_factor"):
            settings.mark(key, "overridden", "written, then computed anew on loading")
        made = {f"rope.scaling.{NAMES['yarn'][key]}": block[key] for key in given}
        weighed = trace.family.latent or trace.family.name == "ministral3"
        if weighed and block.get("mscale_all_dim") is not None:
            written("mscale_all_dim")
            log = number(block["mscale_all_dim"], "mscale_all_dim")
            if trace.family.latent:
                # Taken back on loading (TAG_DEEPSEEK2_YARN_LOG_MUL_FIX).
                log *= 0.1
            made["rope.scaling.yarn_log_multiplier"] = log
        kept = {"rope.scaling.type": "yarn", "rope.scaling.factor": block["factor"]}
        return {**kept, "rope.scaling.original_context_length": original, **made}
    trained = whole(original, ORIGINAL)
    written(*LISTS, ORIGINAL)
    attention = reader.longrope_attention(fields["context_length"] / trained, trained)
    return {
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": trained,
        "rope.scaling.attn_factor": attention,
        LONG: block.get("long_factor"),
        SHORT: block.get("short_factor"),
    }


def divisors(
    block: Mapping[str, Any], original: Any, width: int, base: float
) -> list[float]:
    usual = {"factor": 8.0, **reader.KEPT}
    bands = {
        name: number(block.get(name, value), name) for name, value in usual.items()
    }
    geometry = Geometry(width, base, whole(original, ORIGINAL))
    scaled = Llama3(**reader.divisible(bands)).plan(geometry, 1).inv_freq
    return (np.asarray(geometry.inv_freq) / np.asarray(scaled)).tolist()
