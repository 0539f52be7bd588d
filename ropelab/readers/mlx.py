"""MLX-LM: the model file of a type decides which keys exist, and what each does.

Read from mlx_lm/models/rope_utils.py, utils.py and the model files of mlx-lm 0.32.2;
mlx.toml has a row for each of these.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropelab.math.scaling import LongRope
from ropelab.readers import reader
from ropelab.readers.families import table
from ropelab.readers.reader import Made, Reader, Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
    numbers,
    short,
    whole,
)
from ropelab.readers.trace import LISTS, MAXIMUM, ORIGINAL, Trace

Row = Mapping[str, Any]

ROWS: dict[str, Row] = table("mlx")
WHOLES = ("llama4",)
USUAL_BASE = 10000.0
SHARE = "partial_rotary_factor"


def find_row(trace: Trace) -> Row:
    """Return what the model file of a configuration does; NotModelledError if unread."""
    name = trace.model_type
    # The file of the whole has a language part of its own, unlike that of the part.
    if trace.whole.get("model_type") in WHOLES:
        name = str(trace.whole["model_type"])
    if name not in ROWS:
        raise NotModelledError(f"the model file for '{short(name)}' was not read")
    return ROWS[name]


class Mlx(Reader):
    """MLX-LM: one rotation per layer type, by the row of its model file."""

    unknown = "unsupported rope type '{}'"
    # Only dynamic and longrope need it.
    lengths = (MAXIMUM,)
    allows_usual = False

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        row = find_row(trace)
        refuse_missing_keys(trace, row)
        refuse_block(trace, row)
        specs = reader.widen_full_attention(trace, super().read(trace))
        if "local_key" not in row:
            return specs

        full = specs["all"]
        key = row["local_key"]
        base = number(trace.get(key, row.get("local_base", full.base)), key)
        sliding = full.unscaled(base)
        if head_key := row.get("local_head_key"):
            head_dim = whole(trace.get(head_key), head_key)
            width = reader.width_of(head_dim, read_share(trace, row))
            sliding = replace(sliding, head_dim=head_dim, rotary_dim=width).check()
        return {"full_attention": full, "sliding_attention": sliding}

    def settings(self, trace: Trace) -> dict[str, Settings]:
        row = find_row(trace)
        if "by_layer" in row:
            return {
                layer: read_layer(trace, row, layer)
                for layer in list_layer_types(trace, row)
            }

        if row.get("by_list"):
            return read_listed(trace)

        block, where = find_block(trace, row)
        base, source = find_base(trace, row)
        settings = Settings(trace, {} if row.get("unscaled") else block, where)
        if settings.get(ORIGINAL) is None:
            # A value of null is a missing one.
            settings.values.pop(ORIGINAL, None)
            if "default_original" in row:
                words = f"default of MLX-LM's {trace.model_type}.py"
                settings.put(ORIGINAL, row["default_original"], words)
        settings.put("rope_theta", base, source)
        return {"all": settings}

    def spec(self, settings: Settings) -> RopeSpec:
        spec = super().spec(settings)
        if isinstance(spec.scaling, LongRope):
            # SuScaledRoPE has no other pairs, whatever the model file asks for.
            return replace(spec, pairing="half")
        return spec

    def longest(self, trace: Trace) -> int:
        has_default = trace.model_type in ("phi3", "phimoe")
        if has_default and trace.get(MAXIMUM) is None:
            return 131072
        return super().longest(trace)

    def head_dim(self, trace: Trace) -> int:
        row = find_row(trace)
        keys = trace.family.head_keys
        if "head_key" in row:
            keys = (row["head_key"],)
        if row.get("headless"):
            width = reader.head_dim_of(trace, ())
        elif trace.first(keys)[0] is not None:
            width = reader.head_dim_of(trace, keys)
        elif "head_parts" in row:
            width = sum(whole(trace.get(key), key) for key in row["head_parts"])
        elif "head_dim" in row:
            width = row["head_dim"]
        else:
            width = reader.head_dim_of(trace, ())

        hidden, _ = trace.first(("hidden_size", "n_embd"))
        heads, _ = trace.first(("num_attention_heads", "n_head"))
        if row.get("fills") and hidden and heads and width * heads != hidden:
            raise RefusedError(
                f"{heads} heads of {width} features do not fill hidden_size {hidden}"
            )
        return width

    def kind(self, settings: Settings) -> Any:
        row = find_row(settings.trace)
        if "kind" in row and settings.trace.block("rope_scaling"):
            return row["kind"]
        # These model files read rope_type alone.
        if "plain" in row:
            kind = settings.read("rope_type", "default")
            return "default" if kind in row["plain"] else kind
        if settings.get("type"):
            settings.mark("rope_type", "overridden", "type wins in MLX-LM")
        return super().kind(settings)

    def method(self, settings: Settings) -> Made:
        row = find_row(settings.trace)
        if row.get("top_original") and settings.trace.block("rope_scaling"):
            return long_table_with_mscale(settings)
        if row.get("default_long") and settings.get("long_factor") is None:
            pairs = self.head_dim(settings.trace) // 2
            for name in LISTS:
                settings.put(name, [1.0] * pairs, "default of the model file")
        if settings.trace.model_type != "phi3":
            return super().method(settings)
        # phi3.py reads `type` alone, and knows longrope and linear. The base is always among
        # the values: if it is the only one, there is no block.
        if len(settings.values) == 1:
            return reader.unscaled(settings)
        settings.needs("long_factor", "type")
        if settings.read("type") == "linear":
            return self.methods["linear"].make_scaling(settings)
        if settings.get("type") not in ("longrope", "su"):
            return reader.unscaled(settings)
        # Its original length is at top level.
        return long_table(settings, whole(settings.trace.get(ORIGINAL, 4096), ORIGINAL))

    def width(self, settings: Settings, head_dim: int) -> int:
        trace = settings.trace
        row = find_row(trace)
        if key := row.get("width_key"):
            given = trace.get(key, row.get("width"))
            if given is not None:
                return reader.width_of(head_dim, whole(given, key) / head_dim)
        if "share" not in row:
            return reader.width_of(head_dim, 1.0)

        # A share inside the block counts only where the file hands that block on.
        inside = row.get("parameters") == "all" or "by_layer" in row
        if (inside or row.get("by_list")) and SHARE in settings.values:
            return reader.width_of(head_dim, settings.number(SHARE))
        return reader.width_of(head_dim, read_share(trace, row))

    def softmax_factor(self, settings: Settings) -> float:
        if find_row(settings.trace).get("plain_softmax"):
            return 1.0
        return super().softmax_factor(settings)

    def pairing(self, trace: Trace) -> Any:
        row = find_row(trace)
        given = None
        if "interleaved_key" in row:
            given = trace.get(row["interleaved_key"])
        if given is None:
            given = row.get("interleaved", False)
        return "interleaved" if given else "half"


def read_share(trace: Trace, row: Row) -> float:
    """Return the rotated share by the key beside the block, or the file's default."""
    share = row["share"]
    if key := row.get("share_key", SHARE):
        share = number(trace.get(key, share), key)
    return float(share)


def refuse_missing_keys(trace: Trace, row: Row) -> None:
    """Raise RefusedError for a key without which the arguments cannot be built."""
    for key in row.get("needs", ()):
        # A null means no scaling; for other keys it is a missing value.
        missing = not trace.has(key)
        if key != "rope_scaling":
            missing = missing or trace.text.get(key) is None
        if missing:
            raise RefusedError(f"{key} is missing, and the model file has no default")


def refuse_block(trace: Trace, row: Row) -> None:
    """Raise RefusedError for a scaling block at which the model file stops."""
    name = "rope_parameters" if row.get("parameters") == "all" else "rope_scaling"
    block = trace.block(name)
    if not block:
        if row.get("needs_block"):
            raise RefusedError(f"{name} is missing, and the model file reads its keys")
        return

    missing = [key for key in row.get("block_keys", ()) if key not in block]
    if missing:
        raise RefusedError(f"{name} must contain {', '.join(missing)}")
    kind = block.get("type") or block.get("rope_type")
    if "kinds" in row and kind not in row["kinds"]:
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
    inside = "rope_parameters.rope_theta"
    usual = row.get("base", USUAL_BASE)
    paths = [key] if key else []
    rule = row.get("parameters")
    if rule == "else":
        paths.append(inside)
    elif rule == "base":
        paths.insert(0, inside)
    elif rule == "all" and trace.block("rope_parameters"):
        paths = [inside]
        usual = row.get("block_base", usual)

    for path in paths:
        value = trace.get(path)
        if value is not None:
            return value, path
    if row.get("base_needed"):
        raise RefusedError(f"{key} is missing, and the model file has no default")
    return usual, f"default of MLX-LM's {trace.model_type}.py"


def list_layer_types(trace: Trace, row: Row) -> list[str]:
    """Return the layer types of a file, full attention first."""
    declared = trace.text.get("layer_types") or list(row["by_layer"])
    if not isinstance(declared, list) or not all(isinstance(n, str) for n in declared):
        raise RefusedError(f"layer_types must be a list, not {short(declared)}")
    return sorted({*declared})


def read_layer(trace: Trace, row: Row, layer: str) -> Settings:
    """Return the settings of one layer type of a file that has a dict for each."""
    blocks = trace.block("rope_parameters")
    usual = blocks is None
    if blocks is None:
        blocks = row["by_layer"]
    block = blocks.get(layer) or {}
    if not isinstance(block, Mapping):
        raise RefusedError(f"rope_parameters.{layer} must be a dict")

    where = f"rope_parameters.{layer}"
    settings = Settings(trace, block, where)
    settings.layer = layer
    words = f"default of MLX-LM's {trace.model_type}.py"
    if usual:
        settings.sources = dict.fromkeys(settings.values, words)
    if settings.get("rope_theta") is None:
        if row.get("base_needed"):
            raise RefusedError(f"{where}.rope_theta is missing")
        settings.put("rope_theta", USUAL_BASE, words)
    return settings


def read_listed(trace: Trace) -> dict[str, Settings]:
    """Return the settings of a file that has lists with a number for each layer."""
    count = whole(trace.get("num_hidden_layers"), "num_hidden_layers")
    types = trace.text.get("layer_types") or ["all"] * count
    if not isinstance(types, list) or len(types) < count:
        raise RefusedError("layer_types must be a list with a name for each layer")
    scaled_types = trace.get("yarn_only_types") or types

    settings_by_type = {}
    for layer in sorted({*map(str, types[:count])}):
        places = [place for place in range(count) if types[place] == layer]
        block = trace.block("rope_scaling") if layer in scaled_types else None
        settings = Settings(trace, block, "rope_scaling")
        settings.layer = layer
        bases = trace.get("rope_theta", USUAL_BASE)
        settings.put("rope_theta", choose_listed(bases, places), "rope_theta")

        # A layer beyond the end of the list has the whole share.
        shares = trace.get("partial_rotary_factors") or 1.0
        if isinstance(shares, list):
            shares = shares + [1.0] * count
        share = choose_listed(shares, places)
        settings.put(SHARE, share, "partial_rotary_factors")
        settings_by_type[layer] = settings
    return settings_by_type


def choose_listed(values: Any, places: list[int]) -> Any:
    """Return the value that all layers at some places have in a list, or the only one."""
    if not isinstance(values, list):
        return values
    if places[-1] >= len(values):
        raise RefusedError("a list has no number for the last layers")
    first = values[places[0]]
    if any(values[place] != first for place in places):
        raise NotModelledError("layers of one type with numbers of their own")
    return first


@reader.scaling_type("mlx-lm", "mrope")
def three_axes(settings: Settings) -> Made:
    # rope_utils.py asserts three sections, although it rotates text alone.
    sections = settings.read("mrope_section", [])
    if not isinstance(sections, list) or len(sections) != 3:
        raise RefusedError("mrope_section must have three numbers")
    return reader.unscaled(settings)


@reader.scaling_type("mlx-lm", "dynamic")
def mlx_dynamic(settings: Settings) -> Made:
    # No other method insists on a maximum.
    trace = settings.trace
    if find_row(trace).get("lengthless") or not trace.has(MAXIMUM):
        raise RefusedError(f"dynamic without {MAXIMUM}")
    return reader.dynamic(settings)


@reader.scaling_type("mlx-lm", "longrope")
def long_table(settings: Settings, trained: int | None = None) -> Made:
    if find_row(settings.trace).get("lengthless"):
        raise RefusedError("longrope without a length, which the model file keeps back")
    made = reader.one_table(settings, "long_factor", trained or settings.original())
    settings.mark("short_factor", "ignored", "always the long table")
    return made


def long_table_with_mscale(settings: Settings) -> Made:
    """Return Phi-MoE's long table, whose factor on cos and sin the block gives."""
    trained = whole(settings.trace.get(ORIGINAL, 4096), ORIGINAL)
    settings.needs("long_factor")
    _, attention, _ = long_table(settings, trained)
    settings.mark("short_mscale", "ignored", "always the long table")
    given = settings.number("long_mscale")
    # A value of 0 is a missing one.
    if given:
        attention = given
    tables = (numbers(settings.get("long_factor"), "long_factor"),) * 2
    return reader.longrope(tables, settings.longest / trained, trained, attention)


Mlx.methods = reader.methods_of("unscaled") | reader.methods_of("mlx-lm")
