"""The block of a configuration as transformers 5 fills it in after loading.

A block is a dict about rotation: `rope_parameters`, the older `rope_scaling`, or the
dict of one layer type inside of one of these. Type, base, rotated share and original
length come from the block, from keys beside it, or from the class.

A label is the name of a layer type, and a part is the dict of one layer type. A `Trace`
is a configuration that notes which of its keys were read, and `trace.family` has the
facts about the class of its model type.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NoReturn

from ropelab.readers import reader
from ropelab.readers.families import read_table
from ropelab.readers.layers import find_rule
from ropelab.readers.reader import Reader
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    require_number,
    require_whole,
)
from ropelab.readers.trace import (
    ABSENT,
    MAXIMUM,
    ORIGINAL,
    OUTSIDE,
    TYPES_WITH_ORIGINAL,
    Trace,
)

Block = Mapping[str, Any]

# The layer types of a class whose own layer types are not known here.
LAYER_TYPES = ("full_attention", "sliding_attention")
# Some classes take the dicts of layer types from the key of transformers 4, too.
IN_OLDER_KEY = "dicts of layer types in rope_scaling"
# Lists of at least this many layer types are ignored.
FIRST_IGNORED_LABEL_COUNT = 2**16
# The dict of a layer type for which the file has none.
UNSCALED_PART = {"rope_type": "default"}
# The beginnings of the model types whose classes take the scaling type `mrope`.
MROPE_TYPES = tuple(read_table("names")["mrope_types"]["transformers-5"])


def find_labels(trace: Trace) -> Collection[str]:
    """Return the layer types that a file declares, or else the layer types of its
    class.
    """
    declared = trace.language_part.get("layer_types")
    if isinstance(declared, list) and len(declared) < FIRST_IGNORED_LABEL_COUNT:
        labels = {label for label in declared if isinstance(label, str)}
        if labels:
            return labels

    if trace.family.has_known_defaults:
        return trace.family.layer_types
    return LAYER_TYPES


def mark_keys_outside_parts(
    trace: Trace, where: str, block: Block | None, parts: Block
) -> None:
    """Mark the keys of a block that are beside the dicts of the layer types as ignored.

    Args:
        trace: the configuration.
        where: the path of the block.
        block: the block.
        parts: the dicts of the layer types.
    """
    for key, value in (block or {}).items():
        if key not in parts and value is not None:
            trace.mark(f"{where}.{key}", "ignored", OUTSIDE)


def read_layers(
    trace: Trace, block: Block | None, scaling: Block | None
) -> dict[str, Settings]:
    """Return the settings of classes that have a dict per layer type.

    Args:
        trace: the configuration.
        block: the dict rope_parameters of the configuration.
        scaling: its dict rope_scaling, as files for transformers 4 have it.
    """
    family = trace.family
    stated_parts = {
        key: part for key, part in (block or {}).items() if key in family.layer_blocks
    }
    if family.name == "deepseek_v4" and not stated_parts:
        if scaling is None:
            return read_compressed(trace, "rope_parameters", block)
        return read_compressed(trace, "rope_scaling", scaling or block)

    labels = set(family.layer_blocks)
    if family.declares_layer_types:
        labels = list_declared(trace)
        stated_parts = complete_declared(stated_parts, labels)
        if stated_parts:
            scaling = None
        block = stated_parts or None

    # These classes fill in the layer types that a block lacks.
    fills_missing = bool(family.scaled_layer_types or family.layer_base_keys)
    # A flat block has the keys of one rotation, and no dict of a layer type.
    is_flat = block is not None and not stated_parts
    is_refused = bool(scaling) and not family.scaled_layer_types
    if is_flat:
        # A rope_scaling, even an empty one, is laid over the dicts of the layer types,
        # and a flat block has none of these.
        has_scaling = scaling is not None
        is_refused = (
            has_scaling or bool(block and family.refuses_flat) or not fills_missing
        )
    elif family.refuses_flat:
        # These classes take nothing beside the dicts.
        is_refused = is_refused or any(
            value is not None and not isinstance(value, Mapping)
            for value in (block or {}).values()
        )
    if is_refused:
        if not labels.isdisjoint(scaling or ()):
            raise NotModelledError(IN_OLDER_KEY)
        refuse_layers(trace)

    keeps_null = not family.scaled_layer_types and not family.replaces_null_block
    if block is None and keeps_null and trace.has_null("rope_scaling"):
        raise RefusedError(
            "rope_scaling is null, which replaces the dicts of its class"
        )

    mark_keys_outside_parts(trace, "rope_parameters", block, stated_parts)
    parts = stated_parts
    if not stated_parts:
        parts = list_usual_parts(trace, labels)
    elif fills_missing:
        parts = complete_parts(trace, stated_parts)
    return fill_parts(trace, parts, scaling)


def refuse_layers(trace: Trace) -> NoReturn:
    """Raise RefusedError for a file without the dicts that its class needs."""
    layers = ", ".join(trace.family.layer_blocks)
    raise RefusedError(f"'{trace.family.name}' needs a dict for each of {layers}")


def complete_parts(trace: Trace, stated_parts: Block) -> dict[str, Any]:
    """Return a dict for each layer type of a class that fills in missing dicts.

    RefusedError: a dict of the file is null, and its class takes only dicts.
    """
    parts: dict[str, Any] = dict.fromkeys(trace.family.layer_blocks, UNSCALED_PART)
    for label, part in stated_parts.items():
        if part is not None:
            parts[label] = part
        elif trace.family.refuses_flat:
            refuse_layers(trace)
    return parts


def refuse_incomplete_layers(trace: Trace) -> None:
    """Raise RefusedError for dicts of layer types at which the rotary class stops.

    Some classes of transformers 5 take rope_parameters as it is, and fill in nothing.
    In these classes the older key, rope_scaling, replaces rope_parameters.

    NotModelledError: the older key has the dicts.
    """
    family = trace.family
    scaling = trace.language_part.get("rope_scaling")
    if family.keeps_rope_scaling and scaling is not None:
        needed = find_labels(trace) or family.layer_blocks
        if isinstance(scaling, Mapping) and set(needed) <= scaling.keys():
            raise NotModelledError(IN_OLDER_KEY)
        raise RefusedError(
            "rope_scaling replaces rope_parameters, and has no dict for each of"
            f" {', '.join(family.layer_blocks)}"
        )

    labels = find_labels(trace) or family.layer_blocks
    unknown = sorted(set(labels) - set(family.layer_blocks))
    takes_unknown_types = family.declares_layer_types or family.has_unrotated_types
    if unknown and family.has_known_defaults and not takes_unknown_types:
        raise RefusedError(
            f"'{family.name}' has no rotation for layers of type {', '.join(unknown)}"
        )

    block = trace.block("rope_parameters")
    if block is None or not family.needs_each_layer:
        return
    for label in labels:
        if label not in family.layer_blocks:
            continue
        part = block.get(label, ABSENT)
        # Only classes that keep rope_scaling accept null, for layers without positions.
        is_null = part is None and not family.keeps_rope_scaling
        if part is ABSENT or is_null:
            refuse_layers(trace)
        has_no_base = isinstance(part, Mapping) and "rope_theta" not in part
        if has_no_base and family.keeps_rope_scaling:
            raise RefusedError(f"rope_parameters.{label}.rope_theta is missing")


def list_declared(trace: Trace) -> set[str]:
    """Return the layer types that a file declares, all of which its class knows.

    NotModelledError: the class does not know one of these types.
    """
    types = trace.language_part.get("layer_types")
    if not isinstance(types, list):
        return {"full_attention"}
    labels = {str(label) for label in types}
    if labels - trace.family.layer_blocks.keys():
        raise NotModelledError("layer types of their own")
    return labels


def complete_declared(stated_parts: Block, labels: Collection[str]) -> dict[str, Any]:
    """Return a dict for each of the file's own layer types, or none at all."""
    complete = {}
    for label, part in stated_parts.items():
        if label not in labels:
            continue
        if isinstance(part, dict):
            part = {"partial_rotary_factor": 1.0} | part
        complete[label] = part
    if complete.keys() != set(labels):
        return {}
    return complete


def list_usual_parts(trace: Trace, labels: Collection[str]) -> dict[str, Any]:
    """Return the dicts that a class has where a file gives none."""
    family = trace.family
    parts = {}
    for label, part in family.layer_blocks.items():
        if label not in labels:
            continue
        parts[label] = part
        # A base in the class's own dict yields to a key beside it, where there is one.
        if part and label in family.layer_base_keys:
            parts[label] = {k: v for k, v in part.items() if k != "rope_theta"}
    return parts


def fill_parts(
    trace: Trace, parts: Mapping[str, Any], scaling: Block | None
) -> dict[str, Settings]:
    """Return the settings of each layer type, full attention first."""
    settings_by_layer = {}
    for label, part in sorted(parts.items()):
        # Layers of this type have no positions.
        if part is None:
            continue

        where = f"rope_parameters.{label}"
        if not isinstance(part, Mapping):
            raise RefusedError(f"{where} must be a dict")
        if scaling and label in trace.family.scaled_layer_types:
            where = "rope_scaling"
            part = {**part, **scaling}
        settings_by_layer[label] = fill_block(trace, where, part, label)

    if not settings_by_layer:
        raise NotModelledError("no layer type has a rotation")
    return settings_by_layer


def read_compressed(
    trace: Trace, name: str, block: Block | None
) -> dict[str, Settings]:
    """Return DeepSeek-V4's settings: only layers with a compressor are scaled.

    `name` is the name of the block.
    """
    head_dim = reader.read_head_dim(trace)
    share, _ = trace.first(("partial_rotary_factor",))
    if share is None:
        width = trace.get("qk_rope_head_dim")
        if width is not None:
            share = require_whole(width, "qk_rope_head_dim") / head_dim

    settings_by_layer = {}
    base_keys = {"compress": "compress_rope_theta", "main": "rope_theta"}
    for label, base_key in base_keys.items():
        default_block = trace.family.layer_blocks[label]
        values = {
            "rope_theta": trace.get(base_key, default_block["rope_theta"]),
            "partial_rotary_factor": default_block["partial_rotary_factor"],
        }
        if share is not None:
            values["partial_rotary_factor"] = share

        where = base_key
        if label == "compress":
            # The base beside the block wins over one inside.
            values = {**(block or {}), **values}
            where = name
        if "yarn" in (values.get("rope_type"), values.get("type")):
            # If the file lacks attention_factor, cos and sin are not multiplied.
            values.setdefault("attention_factor", 1.0)
        settings_by_layer[label] = fill_block(trace, where, values, label)
    return settings_by_layer


def refuse_null_base(trace: Trace, keys: Iterable[str]) -> None:
    """Raise RefusedError if a key of the base is null, of which no power can be taken.

    Only call this if none of the keys has a value: a key that the file has is then
    null. NotModelledError: the model file rotates nothing if the base is null.
    """
    if trace.family.replaces_null_base:
        return
    for key in keys:
        if trace.has(key):
            stop_unrotated(trace)
            raise RefusedError(f"{key} is null")


def stop_unrotated(trace: Trace) -> None:
    """Raise NotModelledError for a model file that rotates nothing at a base of null."""
    # A class with a list of bases refuses the file before its model file sees it.
    has_list = find_rule(trace.model_type, "transformers-5") == "bases"
    if trace.family.unrotated_at_null and not has_list:
        raise NotModelledError("a base of null, with which its layers rotate nothing")


def choose_for_layer(trace: Trace, value: Any, layer: str) -> Any:
    """Return the value of a layer type, where a file has one for each layer (Step 3.5)."""
    types = trace.language_part.get("layer_types")
    if not isinstance(value, list) or not isinstance(types, list):
        return value
    if layer not in types[: len(value)]:
        return value
    return value[types.index(layer)]


def fill_block(
    trace: Trace, where: str, block: Block | None, layer: str = ""
) -> Settings:
    """Return a block with type, base, rotated share and original length filled in.

    Args:
        trace: the configuration.
        where: the path of the block.
        block: the values of the block; None if the file has no block, so that the
            values of the class count.
        layer: the layer type that the block is for; empty for a block that is for all
            layers.
    """
    family = trace.family
    values = family.rope_block if block is None else block
    settings = Settings(trace, values, where)
    settings.layer = layer
    usual_source = f"default of the {family.name or 'model'} class"
    for name, path in settings.sources.items():
        if not trace.has(path):
            settings.sources[name] = usual_source

    fill_type(settings, where)
    fill_base_and_share(settings, where, usual_source)

    # Some families give the rotated width itself.
    share_in_block = block is not None and "partial_rotary_factor" in values
    has_share = share_in_block or trace.has("partial_rotary_factor")
    if family.width_key and (family.width_before_share or not has_share):
        share = reader.find_rotated_share(trace, reader.read_head_dim(trace))
        if share is not None:
            settings.put("partial_rotary_factor", share, family.width_key)

    if settings.get("rope_type") in TYPES_WITH_ORIGINAL:
        fill_original(settings, where, usual_source)
    return settings


def fill_type(settings: Settings, where: str) -> None:
    """Set the scaling type, which the classes of some models rename."""
    trace = settings.trace
    if "rope_type" in settings.values:
        trace.get(f"{where}.rope_type")
        if "type" in settings.values:
            note = "rope_type wins in transformers 5"
            trace.mark(f"{where}.type", "overridden", note)
    else:
        scaling_type = trace.get(f"{where}.type", "default", "translated")
        source = f"{where}.type" if "type" in settings.values else "default"
        settings.put("rope_type", scaling_type, source)

    scaling_type = settings.get("rope_type")
    name = trace.family.name
    if name == "phi3" and scaling_type in ("su", "yarn"):
        if scaling_type == "su" and ORIGINAL not in settings.values:
            # The class fills in the length, but only after it has asked for it.
            raise RefusedError(f"su without {ORIGINAL} beside it")
        settings.values["rope_type"] = "longrope"
    if name == "sarvam_mla" and scaling_type == "deepseek_yarn":
        # The class of this model also drops the older key.
        settings.values["rope_type"] = "yarn"
        settings.values.pop("type", None)
    if name == "hunyuan_vl_text" and scaling_type == "xdrope":
        settings.values["rope_type"] = "dynamic"

    has_axes = name.startswith(MROPE_TYPES) or not trace.family.has_known_defaults
    if scaling_type == "mrope" and has_axes:
        settings.values["rope_type"] = "default"


def fill_base_and_share(settings: Settings, where: str, usual_source: str) -> None:
    """Set base and rotated share from the block, keys beside it, or the class.

    Args:
        settings: the settings of a block.
        where: the path of the block.
        usual_source: the source of a default of the class, in words.
    """
    trace = settings.trace
    family = trace.family
    layer = settings.layer
    defaults: Block = family.layer_blocks_from_empty.get(layer) or {}
    base_keys = family.base_keys
    if family.layer_blocks:
        base_keys = ()
        if layer in family.layer_base_keys:
            base_keys = (family.layer_base_keys[layer],)
    has_block = trace.has("rope_parameters") or bool(trace.block("rope_scaling"))
    if family.has_block_of_whole and not has_block:
        base_keys = ()

    if "rope_theta" in settings.values:
        trace.get(f"{where}.rope_theta")
        for key in base_keys:
            if trace.has(key):
                trace.mark(key, "overridden", f"{where}.rope_theta wins")
    else:
        base, path = trace.first(base_keys, defaults.get("rope_theta", family.base))
        if not path:
            refuse_null_base(trace, base_keys)
        base = choose_for_layer(trace, base, layer)
        if family.ratio_key:
            base = base * require_number(
                trace.get(family.ratio_key, 1.0), family.ratio_key
            )
        put_moved(settings, "rope_theta", base, path, usual_source)

    name = "partial_rotary_factor"
    if name in settings.values:
        trace.get(f"{where}.{name}")
    else:
        default_share = defaults.get(name, family.share)
        for key in family.share_keys:
            if trace.has_null(key):
                default_share = read_null_share(trace, key)
        share, path = trace.first(family.share_keys, default_share)
        share = choose_for_layer(trace, share, layer)
        put_moved(settings, name, share, path, usual_source)


def read_null_share(trace: Trace, key: str) -> float:
    """Return the rotated share of a file in which the key of the share is null.

    The class keeps the null in place of its default and moves no share into the block,
    whose code then has `.get("partial_rotary_factor", 1.0)`. RefusedError: the class
    multiplies by the null.
    """
    if trace.family.multiplies_share or key != "partial_rotary_factor":
        raise RefusedError(f"{key} is null")
    return 1.0


def put_moved(
    settings: Settings, name: str, value: Any, path: str, usual_source: str
) -> None:
    """Set a value of a block to the value of a key beside the block, or to a default.

    Args:
        settings: the settings of the block.
        name: the name of the value.
        value: the value; None if the file gives none.
        path: the key that the value comes from; empty for a default.
        usual_source: the source of a default, in words.
    """
    if path:
        settings.trace.mark(path, "translated", "moved into rope_parameters")
    if value is not None:
        settings.put(name, value, path or usual_source)


def fill_original(settings: Settings, where: str, usual_source: str) -> None:
    """Set the length that a scaling starts from. If no key gives it, it is the maximum
    length.

    A length beside the block wins over a length inside, even if the length beside it is
    only a default of the class. In the dict of a layer type the length inside wins. The
    arguments have the same meaning as in `fill_base_and_share`.
    """
    trace = settings.trace
    beside = None
    if not settings.layer:
        beside = trace.get(ORIGINAL, trace.family.original_max_position_embeddings)
        if trace.has_null(ORIGINAL):
            # The null replaces the length in the block, and no number is divided by it.
            raise RefusedError(f"{ORIGINAL} is null")

    if beside is not None:
        if ORIGINAL in settings.values:
            note = "the top-level key wins"
            trace.mark(f"{where}.{ORIGINAL}", "overridden", note)
        source = ORIGINAL if trace.has(ORIGINAL) else usual_source
        settings.put(ORIGINAL, beside, source)
    elif ORIGINAL in settings.values:
        trace.get(f"{where}.{ORIGINAL}")
    elif trace.family.older_needs_original and where.startswith("rope_scaling"):
        raise RefusedError(f"{where}.{ORIGINAL} is missing")
    else:
        settings.put(ORIGINAL, Reader().find_longest(trace), MAXIMUM)
