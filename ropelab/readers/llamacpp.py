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
from ropelab.readers.document import OWN_PARAMS
from ropelab.readers.families import RELEASES, table
from ropelab.readers.reader import Settings
from ropelab.readers.spec import (
    FrequencyFactors,
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
    numbers,
    short,
    whole,
)
from ropelab.readers.trace import BANDS, LISTS, MAXIMUM, ORIGINAL, Trace

Fields = dict[str, Any]
# Tensors with a divisor for the frequency of each pair.
FREQS = "rope_freqs.weight"
LONG = "rope_factors_long.weight"
SHORT = "rope_factors_short.weight"
# A field that a file may have, and that llama.cpp computes anew from the factor.
RECOMPUTED = "rope.scaling.yarn_attn_factor"
USUAL_BASE = 10000.0
# The beginnings of model types whose graphs scale whole scores by DeepSeek's multiplier.
MULTIPLIED = ("deepseek", "kimi", "mistral4")

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

    is_gguf = "attention.head_count" in trace.text or FREQS in trace.text
    if not is_gguf:
        return read_fields(trace, convert(trace), find_architecture(trace))

    fields = dict(trace.text)
    for name in fields:
        if is_loaded(name, trace.model_type):
            trace.mark(name, "used")
        else:
            trace.mark(name, "ignored", "not loaded for this architecture")
    if RECOMPUTED in fields:
        trace.mark(RECOMPUTED, "overridden", "computed anew from the factor")
    return read_fields(trace, fields, trace.model_type)


def is_loaded(field: str, architecture: str) -> bool:
    """Return True if llama.cpp loads a field for an architecture; most it always does."""
    loading = NAMES["loads"].get(field)
    return loading is None or architecture in loading


def find_architecture(trace: Trace) -> str:
    """Return the architecture that the converter writes for a configuration.

    Only those that load further fields have to be told apart from the model type.
    """
    if trace.family.latent:
        return "deepseek2"
    if trace.family.name == "ministral3":
        return "mistral3"
    return trace.model_type


def read_fields(
    trace: Trace, fields_of_file: Fields, architecture: str
) -> dict[str, RopeSpec]:
    """Return what the runtime computes from fields and from the flags of its server."""
    fields = {
        name: value
        for name, value in fields_of_file.items()
        if is_loaded(name, architecture)
    }

    # The order of these steps decides which of several errors is reported.
    flags = trace.flags
    context = whole(fields.get("context_length"), "context_length")
    head_dim, width = read_widths(fields)
    base, base_source = read_base(fields, flags)

    kind = flags.get("rope_scaling") or fields.get("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise RefusedError(f"unknown scaling type '{kind}'")
    factor = 1.0
    if kind != "none":
        factor = find_factor(fields, flags)
    usual_trained = fields.get("rope.scaling.original_context_length", context)
    trained = whole(
        flags.get("yarn_orig_ctx") or usual_trained, "original context length"
    )
    scaling, attention = make_scaling(fields, flags, kind, factor, width)
    multiplier = fields.get("rope.scaling.yarn_log_multiplier")
    if multiplier and architecture == "mistral3" and isinstance(scaling, Yarn):
        # mscale counts as 1, so that the factor is the ratio of two magnitudes.
        attention *= reader.magnitude(factor)
        attention /= reader.magnitude(factor, number(multiplier, "yarn_log_multiplier"))
        scaling = replace(scaling, attention_factor=attention)

    # Flags that set YaRN, with another factor than that of the file, set the length, too.
    claimed = context
    sets_yarn = kind == "yarn" and flags.get("rope_scaling")
    if sets_yarn and factor != find_factor(fields, {}):
        claimed = int(trained * factor)

    first_feature = 0
    if trace.family.place == "last":
        first_feature = head_dim - width
    spec = RopeSpec(
        base=base,
        head_dim=head_dim,
        rotary_dim=width,
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
    sliding = spec.unscaled(number(sliding_base, "rope.freq_base_swa")).check()
    return {"full_attention": spec, "sliding_attention": sliding}


def read_widths(fields: Fields) -> tuple[int, int]:
    """Return the features of a head, and how many of them rotate."""
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
        heads = whole(heads, "attention.head_count")
        hidden = whole(fields.get("embedding_length"), "embedding_length")
        key_length = hidden // heads

    head_dim = whole(key_length, "attention.key_length")
    width = whole(fields.get("rope.dimension_count", head_dim), "rope.dimension_count")
    if width % 2 or width > head_dim:
        raise NotModelledError(f"{width} rotated of {head_dim} features")
    return head_dim, width


def read_base(fields: Fields, flags: Mapping[str, Any]) -> tuple[float, str]:
    """Return the base, and the field or flag that it comes from."""
    base = flags.get("rope_freq_base")
    if base:
        return number(base, "base"), "--rope-freq-base"
    if "rope.freq_base" in fields:
        return number(fields["rope.freq_base"], "base"), "rope.freq_base"
    return USUAL_BASE, "default of llama.cpp"


def find_softmax_factor(trace: Trace, fields: Fields, factor: float) -> float:
    """Return DeepSeek's factor on whole scores, (1 + multiplier ln(factor))^2."""
    multiplier = fields.get("rope.scaling.yarn_log_multiplier")
    if not multiplier or not trace.model_type.startswith(MULTIPLIED):
        return 1.0
    multiplier = number(multiplier, "yarn_log_multiplier")
    return (1 + multiplier * math.log(max(1.0, factor))) ** 2


def find_factor(fields: Fields, flags: Mapping[str, Any]) -> float:
    """Return the factor by which positions are divided."""
    if flags.get("rope_scale"):
        return number(flags["rope_scale"], "--rope-scale")
    if flags.get("rope_freq_scale"):
        return 1 / number(flags["rope_freq_scale"], "--rope-freq-scale")

    older = fields.get("rope.scale_linear", 0.0)
    factor = fields.get("rope.scaling.factor", older)
    # A factor of 0 is a missing one.
    return number(factor, "rope.scaling.factor") or 1.0


def make_scaling(
    fields: Fields, flags: Mapping[str, Any], kind: str, factor: float, width: int
) -> tuple[Scaling, float]:
    """Return the scaling and the factor on cos and sin.

    Args:
        fields: the fields of the file.
        flags: the flags of the server.
        kind: the scaling type.
        factor: the factor by which positions are divided.
        width: the number of features that rotate.
    """
    # A file sets the factor on cos and sin with this key alone.
    key = "rope.scaling.attn_factor"
    own_attention = number(fields.get(key, 1.0), key)
    has_ramp = find_ramp_weight(fields, flags, kind) > 0

    if FREQS in fields or LONG in fields or SHORT in fields:
        if FREQS not in fields and not (LONG in fields and SHORT in fields):
            raise NotModelledError(f"only one of {LONG} and {SHORT}")
        if has_ramp and factor != 1:
            raise NotModelledError("the yarn ramp on top of a tensor of divisors")
        return divide_by_tensors(fields, factor, width, own_attention), own_attention

    if not has_ramp:
        return PositionInterpolation(factor=factor), own_attention

    fast = flags.get("yarn_beta_fast", fields.get("rope.scaling.yarn_beta_fast", 32.0))
    slow = flags.get("yarn_beta_slow", fields.get("rope.scaling.yarn_beta_slow", 1.0))
    # DeepSeek's log multiplier (both mscales taken as equal) replaces the usual factor.
    attention = own_attention
    if not fields.get("rope.scaling.yarn_log_multiplier"):
        attention = reader.magnitude(factor) * own_attention
    scaling = Yarn(
        factor=factor,
        beta_fast=number(fast, "yarn_beta_fast"),
        beta_slow=number(slow, "yarn_beta_slow"),
        attention_factor=attention,
    )
    return scaling, attention


def find_ramp_weight(fields: Fields, flags: Mapping[str, Any], kind: str) -> float:
    """Return the weight of YaRN's ramp: 1 applies it, 0 divides all positions alike.

    NotModelledError: a weight between them.
    """
    name = "yarn_ext_factor"
    weight = flags.get(name, fields.get(f"rope.scaling.{name}"))
    weight = -1.0 if weight is None else number(weight, name)
    # A negative weight means that none is set.
    if weight < 0:
        return 1.0 if kind == "yarn" else 0.0
    if weight not in (0.0, 1.0):
        raise NotModelledError(f"a ramp weighted by {weight:g}")
    return weight


def divide_by_tensors(
    fields: Fields, factor: float, width: int, attention: float
) -> LongRope:
    """Return the scaling of a file with tensors of divisors, one for all lengths or a
    short and a long one.
    """
    short_name = SHORT
    long_name = LONG
    kind: type[LongRope] = LongRope
    if FREQS in fields:
        short_name = long_name = FREQS
        kind = FrequencyFactors

    short_table = numbers(fields[short_name], short_name)
    long_table = numbers(fields[long_name], long_name)
    pairs = width // 2
    if len(short_table) != pairs or len(long_table) != pairs:
        raise RefusedError(f"{len(short_table)} divisors for {pairs} pairs")

    # ops.cpp divides by the tensor and multiplies by freq_scale: both apply.
    return kind(
        long_factor=tuple(factor * divisor for divisor in long_table),
        short_factor=tuple(factor * divisor for divisor in short_table),
        factor=1.0,
        attention_factor=attention,
    )


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
    widths = write_widths(trace, name)
    fields: Fields = {"context_length": whole(context, "context length"), **widths}
    fields |= write_bases(settings, name, sliding)

    # These classes write no scaling of the file.
    if family.converted:
        return {**fields, **family.converted}
    if is_ocr(trace):
        return {**fields, "rope.scaling.type": "none"}

    # The converter loads files with transformers 4.57.6, where `type` wins.
    keys = ("rope_type", "type")
    if name == "rope_scaling":
        keys = ("type", "rope_type")
    key = keys[0] if keys[0] in block else keys[1]
    kind = block.get(key)
    if kind is None:
        return fields

    settings.mark(key, "translated")
    is_unread_llama3 = kind == "llama3" and trace.model_type not in NAMES["llama3"]
    if kind in family.unconverted or is_unread_llama3:
        raise NotModelledError(
            f"'{family.name}' with '{kind}', which has a rule of its own"
        )
    return fields | write_scaling(settings, kind, fields)


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
        "rope.freq_base": number(params.get("rope_theta", USUAL_BASE), "rope_theta"),
    }
    if "yarn" not in params:
        return fields, architecture

    block = params["yarn"]
    if not isinstance(block, Mapping):
        raise RefusedError(f"yarn must be a dict, not {short(block)}")
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
    field_of_key = {
        MAXIMUM: "context_length",
        "head_dim": "attention.key_length",
        "rope_theta": "rope.freq_base",
        "rope_scaling.rope_type": "rope.scaling.type",
        "rope_scaling.factor": "rope.scaling.factor",
        f"rope_scaling.{ORIGINAL}": "rope.scaling.original_context_length",
        "rope_scaling.beta_fast": "rope.scaling.yarn_beta_fast",
        "rope_scaling.beta_slow": "rope.scaling.yarn_beta_slow",
        # `apply_scale: false` is a factor of 1 there.
        "rope_scaling.attention_factor": "rope.scaling.yarn_log_multiplier",
    }

    for key, field in field_of_key.items():
        if is_loaded(field, architecture):
            trace.mark(key, "translated", f"written as {field}")
        else:
            trace.mark(key, "ignored", "written, and not loaded for this architecture")


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
    block = trace.block(name) or {}
    if not trace.has(name):
        # A block of null is there, and means no scaling.
        block = family.rope

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
        # The converter knows two files by their lengths, and writes the trained ones.
        context = {8192: 2048, 2048: 512}.get(whole(context, path), context)
    if context is None:
        raise RefusedError("no context length is written, and llama.cpp needs one")
    return context


def write_widths(trace: Trace, block: str) -> Fields:
    """Return the fields of a head's width and of the part that rotates.

    `block` is the name of the block that is read.
    """
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
        usual_keys = (
            f"{block}.partial_rotary_factor",
            "partial_rotary_factor",
            *family.partial_keys,
        )
        share_keys = tuple(NAMES["shares"].get(family.name, usual_keys))
        share, _ = trace.first(share_keys, family.partial or 1)
        share_by_width = reader.share_of(trace, head_dim)
        if share_by_width is not None:
            share = share_by_width
    return {
        "attention.key_length": head_dim,
        "rope.dimension_count": reader.width_of(head_dim, number(share, "share")),
    }


def write_bases(settings: Settings, block: str, sliding: Mapping[str, Any]) -> Fields:
    """Return the fields of the base, and of that of sliding layers.

    Args:
        settings: the settings of a configuration.
        block: the name of the block that is read.
        sliding: the block of sliding layers; it may be empty.
    """
    trace = settings.trace
    family = trace.family
    key_in_block = f"{block}.rope_theta"
    usual_keys: tuple[str, ...] = (
        key_in_block,
        "global_rope_theta",
        "rope_theta",
        *family.base_keys,
    )
    default = family.base
    if not is_filled(trace):
        usual_keys = (*usual_keys, "rotary_emb_base")
        default = USUAL_BASE

    keys = tuple(NAMES["bases"].get(family.name, usual_keys))
    base, path = trace.first(keys, default)
    if path == key_in_block:
        settings.mark("rope_theta", "translated", "written as rope.freq_base")
    if family.ratio_key:
        base *= number(trace.get(family.ratio_key, 1.0), family.ratio_key)
    fields: Fields = {"rope.freq_base": number(base, "rope_theta")}

    sliding_keys = ("local_rope_theta", "swa_rope_theta", "rope_local_base_freq")
    sliding_base, _ = trace.first(sliding_keys)
    # Sliding layers are never scaled, in files without the key either.
    if family.local_base_key:
        # The first of these that is there and not 0.
        sliding_base = (
            sliding_base or sliding.get("rope_theta") or family.local_base or base
        )
    if sliding_base is not None and family.name not in NAMES["one_base"]:
        fields["rope.freq_base_swa"] = number(sliding_base, "local base")
    return fields


def write_scaling(settings: Settings, kind: Any, fields: Fields) -> Fields:
    """Return the fields of a scaling; types that the converter lacks are dropped.

    Args:
        settings: the settings of a configuration.
        kind: their scaling type.
        fields: the fields that are written before.
    """
    block = settings.values
    if kind in ("longrope", "su"):
        return write_longrope(settings, fields)
    if kind == "llama3":
        original = block.get(ORIGINAL)
        if original is None:
            original = settings.trace.get(ORIGINAL, 8192)
        mark_written(settings, *BANDS, ORIGINAL)
        head_dim = fields["attention.key_length"]
        base = fields.get("rope.freq_base", USUAL_BASE)
        return {FREQS: compute_divisors(block, original, head_dim, base)}

    if block.get("factor") is None:
        return {}
    if kind == "linear":
        mark_written(settings, "factor")
        return {"rope.scaling.type": "linear", "rope.scaling.factor": block["factor"]}
    if kind == "yarn":
        return write_yarn(settings)
    return {}


def mark_written(settings: Settings, *keys: str) -> None:
    """Mark keys of a configuration as written into the file."""
    for key in keys:
        settings.mark(key, "translated", "written into the file")


def write_yarn(settings: Settings) -> Fields:
    """Return the fields of YaRN.

    mscale, truncate and, but for DeepSeek, mscale_all_dim have no field and are lost.
    """
    trace = settings.trace
    block = settings.values
    original = block.get(ORIGINAL)
    if original is None:
        original = trace.get(ORIGINAL)
    if original is None:
        raise RefusedError(f"the converter needs {ORIGINAL} for yarn")

    fields: Fields = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": block["factor"],
        "rope.scaling.original_context_length": original,
    }
    mark_written(settings, "factor", ORIGINAL)
    for key, name in NAMES["yarn"].items():
        if block.get(key) is None:
            continue
        field = f"rope.scaling.{name}"
        fields[field] = block[key]
        if trace.family.name == "ministral3" or field not in NAMES["loads"]:
            mark_written(settings, key)
        else:
            settings.mark(key, "ignored", "written, and not loaded for this model")
    for key in ("attention_factor", "attn_factor"):
        settings.mark(key, "overridden", "written, then computed anew on loading")

    has_multiplier = trace.family.latent or trace.family.name == "ministral3"
    if has_multiplier and block.get("mscale_all_dim") is not None:
        mark_written(settings, "mscale_all_dim")
        multiplier = number(block["mscale_all_dim"], "mscale_all_dim")
        if trace.family.latent:
            # Taken back on loading (TAG_DEEPSEEK2_YARN_LOG_MUL_FIX).
            multiplier *= 0.1
        fields["rope.scaling.yarn_log_multiplier"] = multiplier
    return fields


def write_longrope(settings: Settings, fields: Fields) -> Fields:
    """Return the fields of longrope, of which each class writes others.

    `fields` are those that are written before.
    """
    trace = settings.trace
    block = settings.values
    tables = {LONG: block.get("long_factor"), SHORT: block.get("short_factor")}
    if trace.model_type in ("minicpm", "minicpm3"):
        # These classes write no factor, and no original length.
        mark_written(settings, *LISTS)
        return tables
    if trace.model_type not in ("phi3", "phimoe"):
        # Other classes write no tables.
        return {"rope.scaling.type": "longrope"}

    original = block.get(ORIGINAL)
    if original is None:
        original = trace.get(ORIGINAL)
    trained = whole(original, ORIGINAL)
    mark_written(settings, *LISTS, ORIGINAL)
    attention = reader.longrope_attention(fields["context_length"] / trained, trained)
    return {
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": trained,
        "rope.scaling.attn_factor": attention,
        **tables,
    }


def compute_divisors(
    block: Mapping[str, Any], original: Any, head_dim: int, base: float
) -> list[float]:
    """Return the divisor of each pair that stands for llama3 in a file.

    Args:
        block: the numbers of llama3, which have defaults.
        original: the length that the scaling starts from, unchecked.
        head_dim: the features of a head, all of which rotate.
        base: the base.
    """
    defaults = {"factor": 8.0, **reader.KEPT}
    bands = {}
    for name, default in defaults.items():
        bands[name] = number(block.get(name, default), name)

    geometry = Geometry(head_dim, base, whole(original, ORIGINAL))
    reader.check_bands(bands)
    scaled = Llama3(**bands).plan(geometry, 1).inv_freq
    return (np.asarray(geometry.inv_freq) / np.asarray(scaled)).tolist()
