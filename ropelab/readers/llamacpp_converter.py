"""The fields that llama.cpp's converter writes into a GGUF file for a configuration.

llama.cpp reads no config.json. Its converter, convert_hf_to_gguf.py, makes a GGUF file
from it, which has fields such as `rope.freq_base`. Here a key belongs to the
configuration, and a field to the GGUF file.

Read from conversion/*.py of llama.cpp 0c1e570 (2026-10-01), as shipped with
llama-cpp-python 0.3.36.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import Llama3
from ropelab.readers import reader, scaling_types
from ropelab.readers.families import RELEASES, TYPE_COPIES, read_table
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    require_number,
    require_whole,
    shorten_value,
)
from ropelab.readers.trace import BANDS, LISTS, MAXIMUM, ORIGINAL, Trace

Fields = dict[str, Any]
# The names of tensors in a file that have a divisor for the frequency of each pair: one
# tensor for all lengths, or a tensor for long texts and a tensor for short texts.
DIVISORS = "rope_freqs.weight"
LONG_DIVISORS = "rope_factors_long.weight"
SHORT_DIVISORS = "rope_factors_short.weight"
# The base of a file without the field.
USUAL_BASE = 10000.0

# Lists of keys, fields, flags and model types, by what they are for: see names.toml.
NAMES = read_table("names")["llamacpp"]


def is_loaded(field: str, architecture: str) -> bool:
    """Return True if llama.cpp loads a field for an architecture.

    Most fields are loaded for all architectures, and some fields only for a few.
    """
    architectures = NAMES["loads"].get(field)
    return architectures is None or architecture in architectures


def find_architecture(trace: Trace) -> str:
    """Return the architecture that the converter writes for a configuration.

    Only architectures that load further fields have to be distinguished from the model
    type.
    """
    if trace.family.latent:
        return "deepseek2"
    if trace.family.name == "ministral3":
        return "mistral3"
    return trace.model_type


def is_ocr(trace: Trace) -> bool:
    """Return True for DeepSeek-OCR, which has the attention of DeepSeek's first models."""
    return "DeepseekOCRForCausalLM" in str(trace.whole.get("architectures"))


def convert(trace: Trace) -> Fields:
    """Return the fields that the converter writes for a configuration."""
    refuse_merged(trace)
    family = trace.family
    name, block, sliding = choose_block(trace)
    settings = Settings(trace, block, name)
    for key in block:
        settings.mark(key, "ignored")

    context = find_context(trace)
    widths = write_widths(trace, name)
    fields: Fields = {
        "context_length": require_whole(context, "context length"),
        **widths,
    }
    fields |= write_bases(settings, name, sliding)

    # These classes write no scaling of the file.
    if family.converter_writes:
        return {**fields, **family.converter_writes}
    if is_ocr(trace):
        return {**fields, "rope.scaling.type": "none"}

    # The converter loads files with transformers 4.57.6, where `type` wins in some
    # classes.
    keys = ("rope_type", "type")
    if name == "rope_scaling" and family.name in TYPE_COPIES:
        keys = ("type", "rope_type")
    key = keys[0] if keys[0] in block else keys[1]
    scaling_type = block.get(key)
    if scaling_type is None:
        return fields

    settings.mark(key, "translated")
    is_unread_llama3 = (
        scaling_type == "llama3" and trace.model_type not in NAMES["llama3"]
    )
    if scaling_type in family.converter_unread_types or is_unread_llama3:
        raise NotModelledError(
            f"'{family.name}' with '{scaling_type}', which has a rule of its own"
        )
    return fields | write_scaling(settings, scaling_type, fields)


def refuse_merged(trace: Trace) -> None:
    """Raise NotModelledError for keys beside the language model that count for it.

    The converter lays the language part over the whole (conversion/base.py:1354). A
    class of transformers 4.57 that loads the file has filled in the part before, with
    all but the newer block.
    """
    names = ["rope_parameters"]
    if trace.outer_type not in RELEASES["4.57.1"]:
        names += ["rope_scaling", "rope_theta", "partial_rotary_factor"]
    merged = [
        name
        for name in names
        if trace.whole.get(name) and name not in trace.language_part
    ]
    if trace.prefix and merged:
        part_name = trace.prefix.removesuffix(".")
        raise NotModelledError(
            f"{', '.join(merged)} beside {part_name}, which the converter merges"
        )


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
        "context_length": require_whole(params[MAXIMUM], "context length"),
        "attention.key_length": require_whole(params["head_dim"], "head_dim"),
        "rope.freq_base": require_number(
            params.get("rope_theta", USUAL_BASE), "rope_theta"
        ),
    }
    if "yarn" not in params:
        return fields, architecture

    block = params["yarn"]
    if not isinstance(block, Mapping):
        raise RefusedError(f"yarn must be a dict, not {shorten_value(block)}")
    needed = ("apply_scale", "factor", "beta", "alpha", ORIGINAL)
    missing = [name for name in needed if name not in block]
    if missing:
        raise RefusedError(
            f"the converter asks for yarn.{missing[0]}, which is missing"
        )
    fields |= {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": require_number(block["factor"], "factor"),
        "rope.scaling.original_context_length": require_whole(
            block[ORIGINAL], ORIGINAL
        ),
        "rope.scaling.yarn_beta_fast": require_number(block["beta"], "beta"),
        "rope.scaling.yarn_beta_slow": require_number(block["alpha"], "alpha"),
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
        # `apply_scale: false` becomes an attention_factor of 1 in a config.json.
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
    if "rope_parameters" in trace.language_part:
        name = "rope_parameters"
    block = trace.block(name) or {}
    if not trace.has(name):
        # A block that is null counts as present, and means no scaling.
        block = family.rope_block

    if family.converter_unread_types == ("any",):
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
    """Return the length that a file states, unchecked; RefusedError: it states none."""
    family = trace.family
    names = (MAXIMUM, *NAMES["lengths"])
    context, path = trace.first(names, family.max_position_embeddings)
    if family.name == "nomic_bert" and path == "n_positions":
        # The converter recognises two models by their lengths, and writes their trained
        # lengths.
        context = {8192: 2048, 2048: 512}.get(require_whole(context, path), context)
    if context is None:
        raise RefusedError("no context length is written, and llama.cpp needs one")
    return context


def write_widths(trace: Trace, block: str) -> Fields:
    """Return the fields of the width of a head, and of the width of its rotated part.

    `block` is the name of the block that is read.
    """
    family = trace.family
    keys = family.head_keys
    if is_ocr(trace):
        keys = ()
    elif family.latent:
        keys = ("qk_rope_head_dim",)

    head_dim = reader.read_head_dim(trace, keys)
    if family.head_dim and not is_filled(trace) and trace.first(keys)[0] is None:
        raise NotModelledError(
            f"without {keys[0]} the converter has no class to fill it in"
        )
    if family.name in NAMES["headless"] and head_dim != reader.read_head_dim(trace, ()):
        raise NotModelledError(
            "the converter does not read head_dim, and writes another width"
        )

    # Classes that rotate the whole head write no share.
    share: Any = 1.0
    width = None
    if family.reads_share_unscaled or family.name in NAMES["shares"]:
        usual_keys = (
            f"{block}.partial_rotary_factor",
            "partial_rotary_factor",
            *family.share_keys,
        )
        share_keys = tuple(NAMES["shares"].get(family.name, usual_keys))
        share, path = trace.first(share_keys, family.share or 1)
        nulls = [key for key in share_keys if trace.has(key)]
        if not path and nulls:
            share = replace_null_share(trace, nulls)
        if family.name not in NAMES["shares"]:
            width = reader.find_rotated_width(trace)
    if width is None:
        share = require_number(share, "share")
        width = reader.compute_rotated_width(head_dim, share)
    return {
        "attention.key_length": head_dim,
        "rope.dimension_count": reader.check_rotated_width(head_dim, width),
    }


def replace_null_share(trace: Trace, nulls: list[str]) -> float:
    """Return the share that a class of the converter has where the key is null.

    A null beside the block counts as missing (conversion/base.py:1374).

    Args:
        trace: the configuration.
        nulls: the keys of the share that are null.
    """
    name = trace.family.name
    if name in NAMES["stops_at_null_share"]:
        raise RefusedError(f"{nulls[0]} is null")
    if name not in NAMES["null_shares"]:
        raise NotModelledError("a rotated share of null")

    in_block = [key for key in nulls if "." in key]
    if in_block:
        # The class multiplies by the null.
        raise RefusedError(f"{in_block[0]} is null")
    return float(NAMES["null_shares"][name])


def write_bases(settings: Settings, block: str, sliding: Mapping[str, Any]) -> Fields:
    """Return the fields of the base, and of the base of sliding layers.

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
        base *= require_number(trace.get(family.ratio_key, 1.0), family.ratio_key)
    fields: Fields = {"rope.freq_base": require_number(base, "rope_theta")}

    sliding_keys = ("local_rope_theta", "swa_rope_theta", "rope_local_base_freq")
    sliding_base, _ = trace.first(sliding_keys)
    # llama.cpp never scales sliding layers. So these classes write a base for them even
    # if the file has no key for it.
    if family.local_base_key:
        # The first of these values that is neither missing nor 0.
        sliding_base = (
            sliding_base or sliding.get("rope_theta") or family.local_base or base
        )
    if sliding_base is not None and family.name not in NAMES["one_base"]:
        fields["rope.freq_base_swa"] = require_number(sliding_base, "local base")
    return fields


def write_scaling(settings: Settings, scaling_type: Any, fields: Fields) -> Fields:
    """Return the fields of a scaling; types that the converter lacks are dropped.

    Args:
        settings: the settings of a configuration.
        scaling_type: the scaling type of the configuration.
        fields: the fields that are already written.
    """
    block = settings.values
    if scaling_type in ("longrope", "su"):
        return write_longrope(settings, fields)
    if scaling_type == "llama3":
        original = block.get(ORIGINAL)
        if original is None:
            original = settings.trace.get(ORIGINAL, 8192)
        mark_written(settings, *BANDS, ORIGINAL)
        head_dim = fields["attention.key_length"]
        base = fields.get("rope.freq_base", USUAL_BASE)
        return {DIVISORS: compute_divisors(block, original, head_dim, base)}

    if block.get("factor") is None:
        return {}
    if scaling_type == "linear":
        mark_written(settings, "factor")
        return {"rope.scaling.type": "linear", "rope.scaling.factor": block["factor"]}
    if scaling_type == "yarn":
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
        multiplier = require_number(block["mscale_all_dim"], "mscale_all_dim")
        if trace.family.latent:
            # Taken back on loading (TAG_DEEPSEEK2_YARN_LOG_MUL_FIX).
            multiplier *= 0.1
        fields["rope.scaling.yarn_log_multiplier"] = multiplier
    return fields


def write_longrope(settings: Settings, fields: Fields) -> Fields:
    """Return the fields of longrope. Each class of the converter writes a different
    set.

    `fields` are the fields that are already written.
    """
    trace = settings.trace
    block = settings.values
    tables = {
        LONG_DIVISORS: block.get("long_factor"),
        SHORT_DIVISORS: block.get("short_factor"),
    }
    if trace.model_type in NAMES["types_with_tables_alone"]:
        # These classes write no factor, and no original length.
        mark_written(settings, *LISTS)
        return tables
    if trace.model_type not in NAMES["types_with_longrope"]:
        # Other classes write no tables.
        return {"rope.scaling.type": "longrope"}

    original = block.get(ORIGINAL)
    if original is None:
        original = trace.get(ORIGINAL)
    trained = require_whole(original, ORIGINAL)
    mark_written(settings, *LISTS, ORIGINAL)
    attention = scaling_types.longrope_attention(
        fields["context_length"] / trained, trained
    )
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
    defaults = {"factor": 8.0, **scaling_types.USUAL_BANDS}
    bands = {}
    for name, default in defaults.items():
        bands[name] = require_number(block.get(name, default), name)

    geometry = Geometry(head_dim, base, require_whole(original, ORIGINAL))
    scaling_types.check_bands(bands)
    scaled = Llama3(**bands).plan(geometry, 1).inv_freq
    return (np.asarray(geometry.inv_freq) / np.asarray(scaled)).tolist()
