"""MLX-LM: the model file of a type decides which keys exist, and what each key does.

Read from mlx_lm/models/rope_utils.py, utils.py and the model files of mlx-lm 0.32.2;
mlx.toml has a row for each model file.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from ropelab.math.scaling import LongRope
from ropelab.readers import reader, scaling_types
from ropelab.readers.families import read_table
from ropelab.readers.reader import Reader
from ropelab.readers.scaling_types import MadeScaling
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    require_number,
    require_numbers,
    require_whole,
    shorten_value,
)
from ropelab.readers.trace import LISTS, MAXIMUM, ORIGINAL, Trace

Row = Mapping[str, Any]

# The facts about the model file of each type. The head of mlx.toml explains the keys.
ROWS: dict[str, Row] = read_table("mlx")
# Model types whose model file differs from the model file of their language part.
WHOLES = frozenset(read_table("names")["mlx_wholes"])
# The model file of a language part, by the type of the whole; names.toml explains it.
FILES_OF_TEXTS: dict[str, list[str]] = read_table("names")["mlx_texts"]
USUAL_BASE = 10000.0
SHARE = "partial_rotary_factor"


def name_file(trace: Trace) -> str:
    """Return the type whose model file runs the language model of a configuration."""
    outer = trace.outer_type
    if outer in WHOLES:
        return outer
    files = FILES_OF_TEXTS.get(outer)
    if not files or not trace.prefix:
        return trace.model_type
    usual_file, *types_with_own_file = files
    return trace.model_type if trace.model_type in types_with_own_file else usual_file


def find_row(trace: Trace) -> Row:
    """Return what the model file of a configuration does; NotModelledError if unread."""
    name = name_file(trace)
    if name not in ROWS:
        raise NotModelledError(
            f"the model file for '{shorten_value(name)}' was not read"
        )
    return ROWS[name]


class Mlx(Reader):
    """MLX-LM: one rotation per layer type, by the row of its model file."""

    refusal_of_type = "unsupported rope type '{}'"
    # Only dynamic and longrope need a length.
    length_keys = (MAXIMUM,)
    default_is_limit = False

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        row = find_row(trace)
        refuse_missing_keys(trace, row)
        refuse_block(trace, row)
        specs = reader.widen_full_attention(trace, super().read(trace))
        if "local_key" not in row:
            return specs

        # Layers with a sliding window have a separate base, and in some models a
        # separate head.
        full = specs["all"]
        key = row["local_key"]
        usual_base = row.get("local_base", full.base)
        sliding = full.unscaled(require_number(trace.get(key, usual_base), key))
        if head_key := row.get("local_head_key"):
            head_dim = require_whole(trace.get(head_key), head_key)
            width = reader.compute_rotated_width(head_dim, read_share(trace, row))
            sliding = replace(sliding, head_dim=head_dim, rotary_dim=width).check()
        return {"full_attention": full, "sliding_attention": sliding}

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        row = find_row(trace)
        if "by_layer" in row:
            layers = list_layer_types(trace, row)
            return {layer: read_layer(trace, row, layer) for layer in layers}
        if row.get("by_list"):
            return read_listed(trace)

        block, where = find_block(trace, row)
        base, source = find_base(trace, row)
        if row.get("unscaled"):
            block = {}
        settings = Settings(trace, block, where)
        if settings.get(ORIGINAL) is None:
            # A value of null counts as missing.
            settings.values.pop(ORIGINAL, None)
            if "default_original" in row:
                words = f"default of MLX-LM's {name_file(trace)}.py"
                settings.put(ORIGINAL, row["default_original"], words)

        settings.put("rope_theta", base, source)
        return {"all": settings}

    def make_spec(self, settings: Settings) -> RopeSpec:
        spec = super().make_spec(settings)
        if isinstance(spec.scaling, LongRope):
            # SuScaledRoPE has these pairs only, whatever the model file asks for.
            return replace(spec, pairing="half")
        return spec

    def find_longest(self, trace: Trace) -> int:
        has_default = name_file(trace) in ("phi3", "phimoe")
        if has_default and trace.get(MAXIMUM) is None:
            return 131072
        return super().find_longest(trace)

    def read_head_dim(self, trace: Trace) -> int:
        row = find_row(trace)
        head_dim = self._read_head_dim(trace, row)

        # Some model files give hidden_size features to all heads together.
        hidden, _ = trace.first(("hidden_size", "n_embd"))
        heads, _ = trace.first(("num_attention_heads", "n_head"))
        if row.get("fills") and hidden and heads and head_dim * heads != hidden:
            raise RefusedError(
                f"{heads} heads of {head_dim} features do not fill hidden_size {hidden}"
            )
        return head_dim

    def _read_head_dim(self, trace: Trace, row: Row) -> int:
        """Return the features of a head by the keys that the model file reads."""
        keys = trace.family.head_keys
        if "head_key" in row:
            keys = (row["head_key"],)
        if row.get("headless"):
            return reader.read_head_dim(trace, ())

        width, _ = trace.first(keys)
        if width is not None:
            return reader.read_head_dim(trace, keys)
        if "head_parts" in row:
            return sum(require_whole(trace.get(key), key) for key in row["head_parts"])
        if "head_dim" in row:
            return int(row["head_dim"])
        return reader.read_head_dim(trace, ())

    def find_type(self, settings: Settings) -> Any:
        row = find_row(settings.trace)
        if "kind" in row and settings.trace.block("rope_scaling"):
            return row["kind"]
        # These model files read only rope_type, and do not scale by some types.
        if "plain" in row:
            scaling_type = settings.read("rope_type", "default")
            if scaling_type in row["plain"]:
                return "default"
            return scaling_type
        if settings.get("type"):
            settings.mark("rope_type", "overridden", "type wins in MLX-LM")
        return super().find_type(settings)

    def make_scaling(self, settings: Settings) -> MadeScaling:
        trace = settings.trace
        row = find_row(trace)
        if row.get("top_original") and trace.block("rope_scaling"):
            return make_long_table_with_mscale(settings)
        if name_file(trace) == "phi3":
            return self._make_scaling_of_phi3(settings)

        if row.get("default_long") and settings.get("long_factor") is None:
            pairs = self.read_head_dim(trace) // 2
            for name in LISTS:
                settings.put(name, [1.0] * pairs, "default of the model file")
        return super().make_scaling(settings)

    def _make_scaling_of_phi3(self, settings: Settings) -> MadeScaling:
        """Make the scaling like phi3.py, which reads only `type`, and knows longrope
        and linear.
        """
        # The base is always among the values. If it is the only value, there is no
        # block.
        if len(settings.values) == 1:
            return scaling_types.make_unscaled(settings)

        settings.needs("long_factor", "type")
        scaling_type = settings.read("type")
        if scaling_type == "linear":
            return self.rules["linear"].make_scaling(settings)
        if scaling_type not in ("longrope", "su"):
            return scaling_types.make_unscaled(settings)
        # phi3.py reads the original length at top level.
        trained = require_whole(settings.trace.get(ORIGINAL, 4096), ORIGINAL)
        return make_long_table(settings, trained)

    def find_width(self, settings: Settings, head_dim: int) -> int:
        trace = settings.trace
        row = find_row(trace)
        if key := row.get("width_key"):
            width = trace.get(key, row.get("width"))
            if width is not None:
                return reader.check_rotated_width(head_dim, require_whole(width, key))
        if "share" not in row:
            return reader.compute_rotated_width(head_dim, 1.0)

        # A share inside the block counts only if the model file passes this block on.
        passes_block_on = row.get("parameters") == "all" or "by_layer" in row
        if (passes_block_on or row.get("by_list")) and SHARE in settings.values:
            return reader.compute_rotated_width(head_dim, settings.number(SHARE))
        return reader.compute_rotated_width(head_dim, read_share(trace, row))

    def find_softmax_factor(self, settings: Settings) -> float:
        if find_row(settings.trace).get("plain_softmax"):
            return 1.0
        return super().find_softmax_factor(settings)

    def find_pairing(self, trace: Trace) -> Any:
        row = find_row(trace)
        is_interleaved = None
        if "interleaved_key" in row:
            is_interleaved = trace.get(row["interleaved_key"])
        if is_interleaved is None:
            is_interleaved = row.get("interleaved", False)
        return "interleaved" if is_interleaved else "half"


def read_share(trace: Trace, row: Row) -> float:
    """Return the rotated share by the key beside the block, or the model file's
    default.
    """
    share = row["share"]
    if key := row.get("share_key", SHARE):
        share = require_number(trace.get(key, share), key)
    return float(share)


def refuse_missing_keys(trace: Trace, row: Row) -> None:
    """Raise RefusedError for a key without which the arguments cannot be built."""
    for key in row.get("needs", ()):
        # A scaling of null means no scaling. Any other key counts as missing if it is
        # null.
        is_missing = not trace.has(key)
        if key != "rope_scaling":
            is_missing = trace.language_part.get(key) is None
        if is_missing:
            raise RefusedError(f"{key} is missing, and the model file has no default")

    # The model file asks for the first layer of each of these types.
    declared = trace.get("layer_types")
    for name in row.get("needs_layers", ()):
        if isinstance(declared, list) and declared and name not in declared:
            raise RefusedError(f"layer_types has no {name}")


def refuse_block(trace: Trace, row: Row) -> None:
    """Raise RefusedError for a scaling block at which the model file stops."""
    name = "rope_scaling"
    if row.get("parameters") == "all":
        name = "rope_parameters"
    block = trace.block(name)
    if not block:
        if row.get("needs_block"):
            raise RefusedError(f"{name} is missing, and the model file reads its keys")
        # Most model files skip an empty block; phimoe.py skips only a block of null.
        if block is None or not row.get("top_original"):
            return

    missing = [key for key in row.get("block_keys", ()) if key not in block]
    if missing:
        raise RefusedError(f"{name} must contain {', '.join(missing)}")

    scaling_type = block.get("type") or block.get("rope_type")
    if "rope_type" in row.get("block_keys", ()):
        scaling_type = block["rope_type"]
    if "kinds" in row and scaling_type not in row["kinds"]:
        raise RefusedError(f"only rope type {' or '.join(row['kinds'])} is supported")


def find_block(trace: Trace, row: Row) -> tuple[Mapping[str, Any] | None, str]:
    """Return the scaling block that counts, and the name of its key."""
    scaling = trace.block("rope_scaling")
    parameters = trace.block("rope_parameters")
    rule = row.get("parameters")
    if rule == "all":
        return parameters, "rope_parameters"
    if rule == "else" and scaling is None and parameters:
        return parameters, "rope_parameters"
    return scaling, "rope_scaling"


def find_base(trace: Trace, row: Row) -> tuple[Any, str]:
    """Return the base and the key that it comes from, or the default in words."""
    key = row.get("base_key", "rope_theta")
    key_in_block = "rope_parameters.rope_theta"
    default = row.get("base", USUAL_BASE)

    # The first of these keys that the file has counts.
    paths = [key] if key else []
    rule = row.get("parameters")
    if rule == "else":
        paths.append(key_in_block)
    elif rule == "base":
        paths.insert(0, key_in_block)
    elif rule == "all" and trace.block("rope_parameters"):
        paths = [key_in_block]
        default = row.get("block_base", default)

    for path in paths:
        if path == key_in_block and trace.has_null(path):
            refuse_null_base(path, row)
        base = trace.get(path)
        if base is not None:
            return base, path
    if row.get("base_needed"):
        raise RefusedError(f"{key} is missing, and the model file has no default")
    return default, f"default of MLX-LM's {name_file(trace)}.py"


def refuse_null_base(path: str, row: Row) -> NoReturn:
    """Raise the error for a base of null in a block, which nothing replaces."""
    if row.get("unrotated_at_null"):
        raise NotModelledError("a base of null, with which its layers rotate nothing")
    raise RefusedError(f"{path} is null")


def list_layer_types(trace: Trace, row: Row) -> list[str]:
    """Return the layer types of a file, full attention first."""
    declared = trace.language_part.get("layer_types") or list(row["by_layer"])
    if not isinstance(declared, list) or not all(isinstance(n, str) for n in declared):
        raise RefusedError(f"layer_types must be a list, not {shorten_value(declared)}")
    return sorted({*declared})


def read_layer(trace: Trace, row: Row, layer: str) -> Settings:
    """Return the settings of one layer type of a file that has a dict for each."""
    where = f"rope_parameters.{layer}"
    usual_source = f"default of MLX-LM's {name_file(trace)}.py"
    given_blocks = trace.block("rope_parameters")
    blocks = row["by_layer"] if given_blocks is None else given_blocks
    block = blocks.get(layer) or {}
    if not isinstance(block, Mapping):
        raise RefusedError(f"{where} must be a dict")

    settings = Settings(trace, block, where)
    settings.layer = layer
    if given_blocks is None:
        settings.sources = dict.fromkeys(settings.values, usual_source)

    if settings.get("rope_theta") is None:
        if row.get("base_needed"):
            raise RefusedError(f"{where}.rope_theta is missing")
        settings.put("rope_theta", USUAL_BASE, usual_source)
    return settings


def read_listed(trace: Trace) -> dict[str, Settings]:
    """Return the settings of a file that has lists with a number for each layer."""
    count = require_whole(trace.get("num_hidden_layers"), "num_hidden_layers")
    types = trace.language_part.get("layer_types") or ["all"] * count
    if not isinstance(types, list) or len(types) < count:
        raise RefusedError("layer_types must be a list with a name for each layer")
    scaled_types = trace.get("yarn_only_types") or types

    settings_by_type = {}
    for layer_type in sorted({*map(str, types[:count])}):
        layers = [layer for layer in range(count) if types[layer] == layer_type]
        block = None
        if layer_type in scaled_types:
            block = trace.block("rope_scaling")
        settings = Settings(trace, block, "rope_scaling")
        settings.layer = layer_type

        bases = trace.get("rope_theta", USUAL_BASE)
        settings.put("rope_theta", choose_listed(bases, layers), "rope_theta")

        # A layer beyond the end of the list has the whole share.
        shares = trace.get("partial_rotary_factors") or 1.0
        if isinstance(shares, list):
            shares = shares + [1.0] * count
        share = choose_listed(shares, layers)
        settings.put(SHARE, share, "partial_rotary_factors")
        settings_by_type[layer_type] = settings
    return settings_by_type


def choose_listed(values: Any, layers: list[int]) -> Any:
    """Return the value that some layers have in a list of values by layer.

    A value that is not a list holds for all layers. NotModelledError: the layers
    differ.
    """
    if not isinstance(values, list):
        return values
    if layers[-1] >= len(values):
        raise RefusedError("a list has no number for the last layers")
    first = values[layers[0]]
    if any(values[layer] != first for layer in layers):
        raise NotModelledError("layers of one type with numbers of their own")
    return first


@scaling_types.scaling_type("mlx-lm", "mrope")
def make_mlx_mrope(settings: Settings) -> MadeScaling:
    """Scale nothing."""
    # rope_utils.py asserts three sections, although it rotates only text.
    sections = settings.read("mrope_section", [])
    if not isinstance(sections, list) or len(sections) != 3:
        raise RefusedError("mrope_section must have three numbers")
    return scaling_types.make_unscaled(settings)


@scaling_types.scaling_type("mlx-lm", "dynamic")
def make_mlx_dynamic(settings: Settings) -> MadeScaling:
    """Raise the base with the length of the context, beyond a maximum."""
    # Of all scaling types only dynamic insists on a maximum.
    trace = settings.trace
    if find_row(trace).get("lengthless") or not trace.has(MAXIMUM):
        raise RefusedError(f"dynamic without {MAXIMUM}")
    return scaling_types.make_dynamic(settings)


@scaling_types.scaling_type("mlx-lm", "longrope")
def make_long_table(settings: Settings, trained: int | None = None) -> MadeScaling:
    """Return longrope with its long table at every length.

    The trained length is None if it is in the block.
    """
    if find_row(settings.trace).get("lengthless"):
        raise RefusedError("longrope without a length, which the model file keeps back")
    made = scaling_types.make_one_table(
        settings, "long_factor", trained or settings.original()
    )
    settings.mark("short_factor", "ignored", "always the long table")
    return made


def make_long_table_with_mscale(settings: Settings) -> MadeScaling:
    """Return Phi-MoE's long table, whose factor on cos and sin the block gives."""
    trained = require_whole(settings.trace.get(ORIGINAL, 4096), ORIGINAL)
    settings.needs("long_factor")
    _, attention, _ = make_long_table(settings, trained)
    settings.mark("short_mscale", "ignored", "always the long table")
    mscale = settings.number("long_mscale")
    # A value of 0 counts as missing.
    if mscale:
        attention = mscale

    divisors = require_numbers(settings.get("long_factor"), "long_factor")
    factor = settings.longest / trained
    return scaling_types.make_longrope((divisors, divisors), factor, trained, attention)


Mlx.rules = scaling_types.read_rules("unscaled") | scaling_types.read_rules("mlx-lm")
