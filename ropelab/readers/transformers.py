"""transformers: 5 reads one dict of parameters, or one per layer type; 4 reads two
keys.

5 moves older files into `rope_parameters`. 4 has `rope_theta` and `rope_scaling` beside
each other; its YaRN changed three times. Read from
src/transformers/modeling_rope_utils.py and configuration_utils.py, the configuration
classes of 5.24.0, and the Llama, Phi-3, Gemma 3 and GPT-NeoX classes of 4.44.2, 4.48.3,
4.51.3, 4.55.4 and 4.57.1.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ropelab.readers import reader
from ropelab.readers.declared import check_values
from ropelab.readers.layers import find_rule
from ropelab.readers.reader import MadeScaling, Reader, Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
    whole,
)
from ropelab.readers.trace import MAXIMUM, ORIGINAL, OUTSIDE, Trace

Block = Mapping[str, Any]

# Scaling types that start from an original length.
SCALED = ("llama3", "yarn", "longrope")
# The layer types of a class that was not asked for its own.
LAYER_TYPES = ("full_attention", "sliding_attention")
# A list of layer types with more entries is not looked at.
MOST_LABELS = 2**16
# The dict of a layer type that a file leaves out.
UNSCALED = {"rope_type": "default"}
# The classes that take the type `mrope`, in transformers 5 and in transformers 4.
WITH_AXES_5 = ("qwen2_vl", "qwen2_5_vl")
WITH_AXES_4 = (*WITH_AXES_5, "qwen2_5_omni")


class Transformers(Reader):
    """What transformers 4 and 5 have in common: classes stop at some blocks."""

    def make_scaling(self, settings: Settings) -> MadeScaling:
        for name, value in settings.trace.family.constants.items():
            settings.mark(name, "ignored", "a constant of this class")
            settings.put(name, value, "constant of its class")

        refuse_by_class(settings)
        return super().make_scaling(settings)

    def find_type(self, settings: Settings) -> Any:
        if settings.get("rope_type") == "axial":
            raise RefusedError("rope type 'axial' needs a vision model")
        return settings.get("rope_type")


def refuse_by_class(settings: Settings) -> None:
    """Raise RefusedError for a block or a scaling type at which the class stops."""
    family = settings.trace.family
    block_keys = set(settings.trace.block("rope_scaling") or ())
    if family.needs_block and not block_keys:
        raise RefusedError(f"'{family.name}' needs a block rope_scaling")

    # Some classes of transformers 4 insist on certain keys and, if the older key `type` is
    # one of them, allow no others.
    required_keys = set(family.block_keys)
    is_incomplete = not required_keys <= block_keys
    has_others = "type" in required_keys and not block_keys <= required_keys
    if block_keys and (is_incomplete or has_others):
        raise RefusedError(
            f"'{family.name}' takes a block of {', '.join(family.block_keys)}"
        )

    kind = settings.get("rope_type")
    if kind in family.refuses and (block_keys or kind != "default"):
        raise RefusedError(f"'{family.name}' takes no rope type '{kind}'")

    head_dim, _ = settings.trace.first(family.head_keys)
    if head_dim is None and kind in family.refuses_without_head_dim:
        raise RefusedError(f"'{family.name}' with '{kind}' needs a head_dim")


class Transformers5(Transformers):
    """transformers 5. Its settings are those of the configuration after loading."""

    multiplies_unscaled = False

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        check_values(trace)
        return reader.widen_full_attention(trace, super().read(trace))

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        name = "rope_parameters"
        block = trace.block(name)
        scaling = trace.block("rope_scaling")
        if trace.family.layers:
            return read_layers(trace, block, scaling)

        if scaling:
            for key in block or ():
                note = "rope_scaling replaces the whole dict"
                trace.mark(f"rope_parameters.{key}", "overridden", note)
            name = "rope_scaling"
            block = scaling

        # A block may have a dict for each layer type.
        labels = find_labels(trace)
        parts = {
            label: part
            for label, part in (block or {}).items()
            if label in labels and isinstance(part, Mapping)
        }

        if not parts:
            return {"all": fill_block(trace, name, block)}
        if trace.family.known:
            raise RefusedError(
                f"'{trace.family.name}' has one rotation, not one per layer type"
            )
        mark_others(trace, name, block, parts)
        return {
            label: fill_block(trace, f"{name}.{label}", part, label)
            for label, part in parts.items()
        }

    def find_width(self, settings: Settings, head_dim: int) -> int:
        family = settings.trace.family
        kind = settings.get("rope_type")
        is_unscaled = kind == "default"
        default_share = 1.0
        if is_unscaled and family.usual_share:
            default_share = family.usual_share
        share = settings.number("partial_rotary_factor", default_share)

        # Most classes read no share in compute_default_rope_parameters, which is called if
        # there is no scaling.
        if is_unscaled and not family.shares:
            note = "this class rotates the whole head when unscaled"
            settings.mark("partial_rotary_factor", "ignored", note)
            share = 1.0

        if kind == "proportional":
            # The scaling itself leaves the other pairs unrotated.
            return head_dim
        return reader.width_of(head_dim, share)


def load_block(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block as transformers 5 fills it in, or one for each layer type."""
    blocks = {}
    for label, settings in Transformers5().read_settings(Trace(text)).items():
        blocks[label] = settings.values
    return blocks.get("all", blocks)


def find_labels(trace: Trace) -> Collection[str]:
    """Return the layer types that a file declares, or those of its class."""
    declared = trace.text.get("layer_types")
    if isinstance(declared, list) and len(declared) < MOST_LABELS:
        labels = {label for label in declared if isinstance(label, str)}
        if labels:
            return labels

    if trace.family.known:
        return trace.family.labels
    return LAYER_TYPES


def mark_others(trace: Trace, where: str, block: Block | None, parts: Block) -> None:
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
        block: its dict rope_parameters.
        scaling: its dict rope_scaling, by the rules of transformers 4.
    """
    family = trace.family
    given = {key: part for key, part in (block or {}).items() if key in family.layers}
    if family.name == "deepseek_v4" and not given:
        if scaling is None:
            return read_compressed(trace, "rope_parameters", block)
        return read_compressed(trace, "rope_scaling", scaling or block)

    labels = set(family.layers)
    if family.declares:
        labels = list_declared(trace)
        given = complete_declared(given, labels)
        if given:
            scaling = None
        block = given or None

    # A flat block has the keys of one rotation, and no dict of a layer type.
    is_flat = block is not None and not given
    is_refused = bool(scaling) and not family.scaled
    if is_flat:
        is_refused = bool(scaling) or family.refuses_flat or not family.scaled
    if is_refused:
        layers = ", ".join(family.layers)
        raise RefusedError(f"'{family.name}' needs a dict for each of {layers}")

    mark_others(trace, "rope_parameters", block, given)
    parts = given
    if not given:
        parts = list_usual_parts(trace, labels)
    elif family.scaled:
        # Missing layer types are filled in.
        parts = dict.fromkeys(family.layers, UNSCALED) | given
    return fill_parts(trace, parts, scaling)


def list_declared(trace: Trace) -> set[str]:
    """Return the layer types that a file declares, all of which its class knows.

    NotModelledError: the class does not know one of them.
    """
    types = trace.text.get("layer_types")
    if not isinstance(types, list):
        return {"full_attention"}
    labels = {str(label) for label in types}
    if labels - trace.family.layers.keys():
        raise NotModelledError("layer types of their own")
    return labels


def complete_declared(given: Block, labels: Collection[str]) -> dict[str, Any]:
    """Return a dict for each of the file's own layer types, or none at all."""
    complete = {}
    for label, part in given.items():
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
    for label, part in family.layers.items():
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
        if scaling and label in trace.family.scaled:
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

    `name` is that of the block.
    """
    head_dim = reader.head_dim_of(trace)
    share, _ = trace.first(("partial_rotary_factor",))
    if share is None:
        width = trace.get("qk_rope_head_dim")
        if width is not None:
            share = whole(width, "qk_rope_head_dim") / head_dim

    settings_by_layer = {}
    base_keys = {"compress": "compress_rope_theta", "main": "rope_theta"}
    for label, base_key in base_keys.items():
        usual = trace.family.layers[label]
        values = {
            "rope_theta": trace.get(base_key, usual["rope_theta"]),
            "partial_rotary_factor": usual["partial_rotary_factor"],
        }
        if share is not None:
            values["partial_rotary_factor"] = share

        where = base_key
        if label == "compress":
            # The base beside the block wins over one inside.
            values = {**(block or {}), **values}
            where = name
        if "yarn" in (values.get("rope_type"), values.get("type")):
            # Without the key there is no factor on attention.
            values.setdefault("attention_factor", 1.0)
        settings_by_layer[label] = fill_block(trace, where, values, label)
    return settings_by_layer


def refuse_null(trace: Trace, keys: Iterable[str]) -> None:
    """Raise RefusedError if one of the keys of a base is there, and thus null: no power
    can be taken of it.

    It is called if none of the keys has a value. NotModelledError: the model file then
    rotates nothing.
    """
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
    types = trace.text.get("layer_types")
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
        block: its values; None if the file has none, and those of the class count.
        layer: the layer type that it is for; empty for a block that is for all layers.
    """
    family = trace.family
    values = family.rope if block is None else block
    settings = Settings(trace, values, where)
    settings.layer = layer
    usual_source = f"default of the {family.name or 'model'} class"
    for name, path in settings.sources.items():
        if not trace.has(path):
            settings.sources[name] = usual_source

    fill_type(settings, where)
    fill_base_and_share(settings, where, usual_source)

    # Some families give the rotated width itself.
    has_share = block is not None and "partial_rotary_factor" in values
    if family.width_key and not has_share:
        share = reader.share_of(trace, reader.head_dim_of(trace))
        if share is not None and not trace.has("partial_rotary_factor"):
            settings.put("partial_rotary_factor", share, family.width_key)

    if settings.get("rope_type") in SCALED:
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
        kind = trace.get(f"{where}.type", "default", "translated")
        source = f"{where}.type" if "type" in settings.values else "default"
        settings.put("rope_type", kind, source)

    kind = settings.get("rope_type")
    name = trace.family.name
    if name == "phi3" and kind in ("su", "yarn"):
        if kind == "su" and ORIGINAL not in settings.values:
            # The class fills it in, but only after it has looked for it.
            raise RefusedError(f"su without {ORIGINAL} beside it")
        settings.values["rope_type"] = "longrope"
    if name == "sarvam_mla" and kind == "deepseek_yarn":
        # Its class drops the older key, too.
        settings.values["rope_type"] = "yarn"
        settings.values.pop("type", None)
    if name == "hunyuan_vl_text" and kind == "xdrope":
        settings.values["rope_type"] = "dynamic"

    has_axes = name.startswith(WITH_AXES_5) or not trace.family.known
    if kind == "mrope" and has_axes:
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
    defaults: Block = family.filled.get(layer) or {}
    base_keys = family.base_keys
    if family.layers:
        base_keys = ()
        if layer in family.layer_base_keys:
            base_keys = (family.layer_base_keys[layer],)

    if "rope_theta" in settings.values:
        trace.get(f"{where}.rope_theta")
        for key in base_keys:
            if trace.has(key):
                trace.mark(key, "overridden", f"{where}.rope_theta wins")
    else:
        base, path = trace.first(base_keys, defaults.get("rope_theta", family.base))
        if not path:
            refuse_null(trace, base_keys)
        base = choose_for_layer(trace, base, layer)
        if family.ratio_key:
            base = base * number(trace.get(family.ratio_key, 1.0), family.ratio_key)
        put_moved(settings, "rope_theta", base, path, usual_source)

    name = "partial_rotary_factor"
    if name in settings.values:
        trace.get(f"{where}.{name}")
    else:
        default_share = defaults.get(name, family.partial)
        share, path = trace.first(family.partial_keys, default_share)
        share = choose_for_layer(trace, share, layer)
        put_moved(settings, name, share, path, usual_source)


def put_moved(
    settings: Settings, name: str, value: Any, path: str, usual_source: str
) -> None:
    """Set a value of a block to that of a key beside it, or to a default.

    Args:
        settings: the settings of the block.
        name: the name of the value.
        value: the value; None: there is none.
        path: the key that it comes from; empty for a default.
        usual_source: the source of a default, in words.
    """
    if path:
        settings.trace.mark(path, "translated", "moved into rope_parameters")
    if value is not None:
        settings.put(name, value, path or usual_source)


def fill_original(settings: Settings, where: str, usual_source: str) -> None:
    """Set the length that a scaling starts from; without any it is the maximum.

    One beside the block wins over one inside, also one that the class has as its default,
    but not over the dict of a layer type. The arguments are those of
    `fill_base_and_share`.
    """
    trace = settings.trace
    beside = None
    if not settings.layer:
        beside = trace.get(ORIGINAL, trace.family.original_max_position_embeddings)

    if beside is not None:
        if ORIGINAL in settings.values:
            note = "the top-level key wins"
            trace.mark(f"{where}.{ORIGINAL}", "overridden", note)
        source = ORIGINAL if trace.has(ORIGINAL) else usual_source
        settings.put(ORIGINAL, beside, source)
    elif ORIGINAL in settings.values:
        trace.get(f"{where}.{ORIGINAL}")
    else:
        settings.put(ORIGINAL, Transformers5().find_longest(trace), MAXIMUM)


def factor_or_ratio(settings: Settings, trained: int) -> float:
    """Return the factor of a scaling, by its key or by the ratio of both lengths."""
    factor = settings.read("factor")
    if factor is None:
        return settings.longest / trained
    return number(factor, "factor")


@reader.scaling_type("transformers-5", "yarn")
def make_transformers_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN by the rules of transformers 5."""
    trained = settings.original()
    factor = factor_or_ratio(settings, trained)
    attention = reader.find_attention(settings, factor)

    # The code has `rope_parameters_dict.get(..) or 32`, so that 0 is a missing value.
    settings.drop_empty("beta_fast", "beta_slow")
    # truncate is read from the outer dict, so that inside a layer type's dict it does
    # nothing.
    truncate = None
    if settings.layer:
        settings.mark("truncate", "ignored", "read from the outer dict only")
        truncate = True
    return reader.make_yarn(settings, factor, attention, trained, truncate)


def find_own_attention(settings: Settings) -> Any:
    """Return the factor on cos and sin that a file gives; PhiMoE has one for each
    table.
    """
    keys = settings.trace.family.attention_keys
    given = {settings.number(key) for key in keys}
    if len(given) > 1:
        raise NotModelledError(f"{' and '.join(keys)} that differ")
    if given:
        return given.pop()
    return settings.read("attention_factor")


@reader.scaling_type("transformers-5", "longrope")
@reader.scaling_type("unsloth", "longrope")
def make_transformers_longrope(
    settings: Settings, switches: bool = True
) -> MadeScaling:
    """Return longrope by the rules of transformers 5.

    `switches` is False for a runtime that always uses the short table.
    """
    trained = settings.original()
    short, long = settings.lists()
    factor = factor_or_ratio(settings, trained)
    attention = find_own_attention(settings)

    # PhiMoE's class asks for a table without a length, and so never gets the long one.
    if not switches or settings.trace.family.name == "phimoe":
        long = short
    return reader.make_longrope((short, long), factor, trained, attention)


Transformers5.rules = reader.COMMON_RULES | reader.read_rules("transformers-5")


@dataclass
class Transformers4(Transformers):
    """One release, by its differences from the others."""

    # The length that YaRN's ramp is made for, and its factor. maximum: they are
    # max_position_embeddings and `factor`. ratio: the original length, and the ratio of
    # both lengths. factor: the original length and `factor`.
    yarn_rule: Literal["maximum", "ratio", "factor"]
    # The tables of longrope. static: the long one at every length. short: the short one,
    # except in the class of Phi-3. switch: the length of the context chooses.
    longrope_rule: Literal["static", "short", "switch"]
    # True if YaRN reads the key truncate.
    truncate: bool = True
    # True if Phi-3 reads the key partial_rotary_factor.
    phi3_share: bool = True
    model_types: Collection[str] = ()
    reads_local = True
    unmultiplied = ("deepseek_v2",)
    refusal_of_model = "of that release the class of '{}' was not read"

    def __post_init__(self) -> None:
        rules = reader.read_rules("transformers-4")
        # These two differ from release to release.
        rules["yarn"] = replace(rules["yarn"], make=self.make_yarn)
        rules["longrope"] = replace(rules["longrope"], make=self.make_longrope)
        self.rules = reader.COMMON_RULES | rules

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        # Base and share are beside rope_scaling; rope_parameters is not known to these
        # releases.
        family = trace.family
        block = trace.block("rope_scaling") or {}
        if not trace.has("rope_scaling"):
            # A block of null is there, and means no scaling.
            block = family.rope
        settings = Settings(trace, block, "rope_scaling")

        default_type = block.get("rope_type", "default")
        names = ("rope_scaling.type", "rope_scaling.rope_type", "rotary.type")
        kind, path = trace.first(names, default_type)
        if path == "rope_scaling.type" and "rope_type" in block:
            note = "type wins in transformers 4"
            trace.mark("rope_scaling.rope_type", "overridden", note)
        # Phi3Config._rope_scaling_adjustment renames both on loading.
        if family.name == "phi3" and kind in ("su", "yarn"):
            kind = "longrope"
        if kind == "mrope" and family.name.startswith(WITH_AXES_4):
            kind = "default"
        settings.put("rope_type", kind, path)

        _, base_path = trace.first(family.base_keys)
        if not base_path:
            refuse_null(trace, family.base_keys)
        usual_source = f"default of the {family.name or 'model'} class"
        settings.put_first("rope_theta", family.base_keys, family.base, usual_source)

        share, source = trace.first(family.partial_keys, family.partial or 1.0)
        share_by_width = reader.share_of(trace, reader.head_dim_of(trace))
        if share_by_width is not None:
            share = share_by_width
        settings.put("partial_rotary_factor", share, source)
        return {"all": settings}

    def find_width(self, settings: Settings, head_dim: int) -> int:
        # Phi-3 of 4.48 and before wants longrope's lists for all of the head.
        rotates_whole = settings.trace.family.name == "phi3" and not self.phi3_share
        if rotates_whole and settings.get("rope_type") != "default":
            return reader.width_of(head_dim, 1.0)
        return super().find_width(settings, head_dim)

    @reader.scaling_type("transformers-4", "yarn")
    def make_yarn(self, settings: Settings) -> MadeScaling:
        trained = settings.longest
        rule = self.yarn_rule
        if rule == "ratio" and ORIGINAL in settings.values:
            trained = settings.original()
            note = "max_position_embeddings / original wins"
            settings.mark("factor", "overridden", note)
            factor = settings.longest / trained
        else:
            factor = settings.number("factor")
            if rule == "factor" and settings.get(ORIGINAL):
                trained = settings.original()

        mscales = rule != "maximum"
        attention = reader.find_attention(settings, factor, mscales=mscales)
        # The code has `config.rope_scaling.get(..) or 32`, so that 0 is a missing value.
        settings.drop_empty("beta_fast", "beta_slow")
        truncate = None if self.truncate else True
        return reader.make_yarn(settings, factor, attention, trained, truncate)

    @reader.scaling_type("transformers-4", "longrope")
    def make_longrope(self, settings: Settings) -> MadeScaling:
        is_static = self.longrope_rule == "static"
        attention = find_own_attention(settings)
        short, long = settings.lists()
        if is_static and attention is None:
            raise RefusedError(
                "longrope without attention_factor: its check compares None with 0"
            )

        # Only an original length at top level counts, not the one in the block, but for
        # PhiMoE.
        family = settings.trace.family
        inside = None
        if family.attention_keys:
            inside = settings.read(ORIGINAL)
        default = family.original_max_position_embeddings or inside
        original = settings.trace.get(ORIGINAL, default)

        trained = settings.longest
        factor = settings.get("factor")
        if original is not None:
            trained = whole(original, ORIGINAL)
            factor = settings.longest / trained
        elif factor is None and (is_static or attention is None):
            raise RefusedError(
                "longrope without a factor and without a top-level original length"
            )
        else:
            # The key counts as used.
            settings.read("factor")
        if factor is None:
            factor = 1.0
        # A factor of 0 is a missing one.
        factor = number(factor, "factor") or 1.0

        has_switch = settings.trace.model_type == "phi3"
        is_short = self.longrope_rule == "short" and not has_switch
        if is_static and factor > 1:
            short = long
        elif is_static or is_short:
            long = short
        return reader.make_longrope((short, long), factor, trained, attention)
