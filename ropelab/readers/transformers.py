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
from ropelab.readers.reader import Made, Reader, Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
    whole,
)
from ropelab.readers.trace import MAXIMUM, ORIGINAL, OUTSIDE, Trace

Block = Mapping[str, Any]

# Scaling types with an original length.
SCALED = ("llama3", "yarn", "longrope")
# The layer types of a class that was not asked for its own.
LAYER_TYPES = ("full_attention", "sliding_attention")
DEFAULT = {"rope_type": "default"}
# The classes that take the type `mrope`; that of Omni does in transformers 4 alone.
WITH_AXES = ("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni")


class Transformers(Reader):
    """What transformers 4 and 5 have in common: classes stop at some blocks."""

    def method(self, settings: Settings) -> Made:
        family = settings.trace.family
        for name, value in family.constants.items():
            settings.mark(name, "ignored", "a constant of this class")
            settings.put(name, value, "constant of its class")

        kind = settings.get("rope_type")
        block = set(settings.trace.block("rope_scaling") or ())
        keys = set(family.block_keys)
        if family.needs_block and not block:
            raise RefusedError(f"'{family.name}' needs a block rope_scaling")
        if block and (keys - block or ("type" in keys and block - keys)):
            raise RefusedError(
                f"'{family.name}' takes a block of {', '.join(family.block_keys)}"
            )

        if kind in family.refuses and (block or kind != "default"):
            raise RefusedError(f"'{family.name}' takes no rope type '{kind}'")
        without = settings.trace.first(family.head_keys)[0] is None
        if without and kind in family.refuses_without_head_dim:
            raise RefusedError(f"'{family.name}' with '{kind}' needs a head_dim")
        return super().method(settings)

    def kind(self, settings: Settings) -> Any:
        if settings.get("rope_type") == "axial":
            raise RefusedError("rope type 'axial' needs a vision model")
        return settings.get("rope_type")


class Transformers5(Transformers):
    """transformers 5. Its settings are those of the configuration after loading."""

    multiplies_unscaled = False

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        check_values(trace)
        return reader.widen_full_attention(trace, super().read(trace))

    def settings(self, trace: Trace) -> dict[str, Settings]:
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

        # Layer types are those that the configuration declares.
        declared = trace.text.get("layer_types")
        labels: list[Any] = []
        if isinstance(declared, list) and len(declared) < 2**16:
            labels = declared
        known: Collection[str] = {label for label in labels if isinstance(label, str)}
        if not known:
            known = trace.family.labels if trace.family.known else LAYER_TYPES
        parts = {k: v for k, v in (block or {}).items() if isinstance(v, Mapping)}
        inner = {label: part for label, part in parts.items() if label in known}

        if inner and trace.family.known:
            raise RefusedError(
                f"'{trace.family.name}' has one rotation, not one per layer type"
            )
        if not inner:
            return {"all": fill_block(trace, name, block)}
        return {
            k: fill_block(trace, f"{name}.{k}", v, k)
            for k, v in list_parts(trace, name, block, inner)
        }

    def width(self, settings: Settings, head_dim: int) -> int:
        kind = settings.get("rope_type")
        family = settings.trace.family
        usual = family.usual_share if kind == "default" else None
        share = settings.number("partial_rotary_factor", usual or 1.0)

        # Most classes read no share in compute_default_rope_parameters, which is called if
        # there is no scaling.
        if kind == "default" and not family.shares:
            note = "this class rotates the whole head when unscaled"
            settings.mark("partial_rotary_factor", "ignored", note)
            share = 1.0

        if kind == "proportional":
            return head_dim
        return reader.width_of(head_dim, share)


def load_block(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block as transformers 5 fills it in, or one for each layer type."""
    blocks = {
        label: settings.values
        for label, settings in Transformers5().settings(Trace(text)).items()
    }
    return blocks.get("all", blocks)


def list_parts(
    trace: Trace, at: str, block: Block | None, inner: Block
) -> Iterable[tuple[str, Block]]:
    """Return the dicts of the layer types; other keys in the block are ignored."""
    for key, value in (block or {}).items():
        if key not in inner and value is not None:
            trace.mark(f"{at}.{key}", "ignored", OUTSIDE)
    return inner.items()


def read_layers(
    trace: Trace, block: Block | None, scaling: Block | None
) -> dict[str, Settings]:
    """Return the settings of classes that have a dict per layer type."""
    family = trace.family
    given = {k: v for k, v in (block or {}).items() if k in family.layers}
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

    flat = block is not None and not given
    unfit = bool(scaling) and not family.scaled
    if flat:
        unfit = bool(scaling) or family.refuses_flat or not family.scaled
    if unfit:
        layers = ", ".join(family.layers)
        raise RefusedError(f"'{family.name}' needs a dict for each of {layers}")

    parts: dict[str, Any] = dict(list_parts(trace, "rope_parameters", block, given))
    if not parts:
        parts = list_usual_parts(trace, labels)
    elif family.scaled:
        # Missing layer types are filled in.
        parts = dict.fromkeys(family.layers, DEFAULT) | parts
    return fill_parts(trace, parts, scaling)


def list_declared(trace: Trace) -> set[str]:
    """Return the layer types that a file has, of those that its class knows."""
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
    for label, usual in family.layers.items():
        if label not in labels:
            continue
        part = usual
        # A base in the class's own dict yields to a key beside it, where there is one.
        if usual and label in family.layer_base_keys:
            part = {k: v for k, v in usual.items() if k != "rope_theta"}
        parts[label] = part
    return parts


def fill_parts(
    trace: Trace, parts: Mapping[str, Any], scaling: Block | None
) -> dict[str, Settings]:
    """Return the settings of each layer type, full attention first."""
    settings = {}
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
        settings[label] = fill_block(trace, where, part, label)

    if not settings:
        raise NotModelledError("no layer type has a rotation")
    return settings


def read_compressed(
    trace: Trace, name: str, block: Block | None
) -> dict[str, Settings]:
    """Return DeepSeek-V4's settings: only layers with a compressor are scaled."""
    family = trace.family
    head_dim = reader.head_dim_of(trace)
    share, _ = trace.first(("partial_rotary_factor",))
    wide = trace.get("qk_rope_head_dim") if share is None else None
    if wide is not None:
        share = whole(wide, "qk_rope_head_dim") / head_dim

    settings = {}
    for label, key in (("compress", "compress_rope_theta"), ("main", "rope_theta")):
        usual = family.layers[label]
        own = {
            "rope_theta": trace.get(key, usual["rope_theta"]),
            "partial_rotary_factor": usual["partial_rotary_factor"],
        }
        if share is not None:
            own["partial_rotary_factor"] = share

        where = key
        if label == "compress":
            # The base beside the block wins over one inside.
            own = {**(block or {}), **own}
            where = name
        if "yarn" in (own.get("rope_type"), own.get("type")):
            # Without the key there is no factor on attention.
            own.setdefault("attention_factor", 1.0)
        settings[label] = fill_block(trace, where, own, label)
    return settings


def refuse_null(trace: Trace, keys: Iterable[str]) -> None:
    """Raise RefusedError for a base of null, which no power can be taken of.

    NotModelledError: the model file then rotates nothing.
    """
    for key in keys:
        if not trace.has(key):
            continue
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
    """Return a block with type, base, rotated share and original length filled in."""
    family = trace.family
    usual = f"default of the {family.name or 'model'} class"
    silent = block is None
    values = dict(family.rope if block is None else block)
    settings = Settings(trace, values, where)
    settings.layer = layer
    for name, path in settings.sources.items():
        if not trace.has(path):
            settings.sources[name] = usual

    fill_type(settings, where)
    fill_base_and_share(settings, where, usual)
    if family.width_key and (silent or "partial_rotary_factor" not in values):
        share = reader.share_of(trace, reader.head_dim_of(trace))
        if share is not None and not trace.has("partial_rotary_factor"):
            settings.put("partial_rotary_factor", share, family.width_key)
    if settings.get("rope_type") in SCALED:
        fill_original(settings, where, usual)
    return settings


def fill_type(settings: Settings, where: str) -> None:
    """Set the scaling type, by the names that the classes of some models change."""
    trace = settings.trace
    family = trace.family
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
    if family.name == "phi3" and kind in ("su", "yarn"):
        if kind == "su" and ORIGINAL not in settings.values:
            raise RefusedError(f"su without {ORIGINAL} beside it")  # filled in too late
        settings.values["rope_type"] = "longrope"
    if family.name == "sarvam_mla" and kind == "deepseek_yarn":
        # Its class renames it, and drops the older key.
        settings.values["rope_type"] = "yarn"
        settings.values.pop("type", None)
    if family.name == "hunyuan_vl_text" and kind == "xdrope":
        settings.values["rope_type"] = "dynamic"  # its class renames it
    axes = family.name.startswith(WITH_AXES[:2]) or not family.known
    if kind == "mrope" and axes:
        settings.values["rope_type"] = "default"


def fill_base_and_share(settings: Settings, where: str, usual: str) -> None:
    """Set base and rotated share from the block, keys beside it, or the class."""
    trace = settings.trace
    family = trace.family
    layer = settings.layer
    own: Block = family.filled.get(layer) or {}
    base_keys = family.base_keys
    if family.layers:
        base_keys = ()
        if layer in family.layer_base_keys:
            base_keys = (family.layer_base_keys[layer],)

    for name, keys, default in (
        ("rope_theta", base_keys, family.base),
        ("partial_rotary_factor", family.partial_keys, family.partial),
    ):
        is_base = name == "rope_theta"
        if name in settings.values:
            trace.get(f"{where}.{name}")
            for key in keys:
                if is_base and trace.has(key):
                    trace.mark(key, "overridden", f"{where}.rope_theta wins")
            continue

        value, path = trace.first(keys, own.get(name, default))
        if is_base and not path:
            refuse_null(trace, keys)
        value = choose_for_layer(trace, value, layer)
        if is_base and family.ratio_key:
            value = value * number(trace.get(family.ratio_key, 1.0), family.ratio_key)
        if path:
            trace.mark(path, "translated", "moved into rope_parameters")
        if value is not None:
            settings.put(name, value, path or usual)


def fill_original(settings: Settings, where: str, usual: str) -> None:
    """Set the length that a scaling starts from; without any it is the maximum.

    A top-level one wins in a flat dict, also one that the class has as its default.
    """
    trace = settings.trace
    top = None
    if not settings.layer:
        top = trace.get(ORIGINAL, trace.family.original_max_position_embeddings)

    if top is not None:
        if ORIGINAL in settings.values:
            note = "the top-level key wins"
            trace.mark(f"{where}.{ORIGINAL}", "overridden", note)
        settings.put(ORIGINAL, top, ORIGINAL if trace.has(ORIGINAL) else usual)
    elif ORIGINAL in settings.values:
        trace.get(f"{where}.{ORIGINAL}")
    else:
        settings.put(ORIGINAL, Transformers5().longest(trace), MAXIMUM)


def factor_or_ratio(settings: Settings, trained: int) -> float:
    factor = settings.read("factor")
    if factor is None:
        return settings.longest / trained
    return number(factor, "factor")


@reader.scaling_type("transformers-5", "yarn")
def yarn(settings: Settings) -> Made:
    trained = settings.original()
    factor = factor_or_ratio(settings, trained)
    attention = reader.find_attention(settings, factor)

    # `rope_parameters_dict.get(..) or 32`
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
def longrope(settings: Settings, switches: bool = True) -> Made:
    trained = settings.original()
    short, long = settings.lists()
    factor = factor_or_ratio(settings, trained)
    attention = find_own_attention(settings)

    # PhiMoE's class asks for a table without a length, and so never gets the long one.
    if not switches or settings.trace.family.name == "phimoe":
        long = short
    return reader.longrope((short, long), factor, trained, attention)


Transformers5.methods = reader.COMMON | reader.methods_of("transformers-5")


@dataclass
class Transformers4(Transformers):
    """One release, by its differences from the others."""

    # Ramp length and factor from: max_position_embeddings and factor; original length
    # and max/original; original length and factor.
    yarn_rule: Literal["maximum", "ratio", "factor"]
    # The long table from the start; no switch in the Llama class; a switch by length.
    longrope_rule: Literal["static", "short", "switch"]
    truncate: bool = True  # YaRN reads truncate
    phi3_share: bool = True  # Phi-3 reads partial_rotary_factor
    types: Collection[str] = ()
    reads_local = True
    unmultiplied = ("deepseek_v2",)
    other = "of that release the class of '{}' was not read"

    def __post_init__(self) -> None:
        methods = reader.methods_of("transformers-4")
        # These two go by the rules of the release.
        methods["yarn"] = replace(methods["yarn"], make=self.yarn)
        methods["longrope"] = replace(methods["longrope"], make=self.longrope)
        self.methods = reader.COMMON | methods

    def settings(self, trace: Trace) -> dict[str, Settings]:
        # Base and share are beside rope_scaling; rope_parameters is not known to these
        # releases.
        family = trace.family
        block = trace.block("rope_scaling") or {}
        if not trace.has("rope_scaling"):  # null is no scaling
            block = family.rope
        settings = Settings(trace, block, "rope_scaling")

        usual = block.get("rope_type", "default")
        names = ("rope_scaling.type", "rope_scaling.rope_type", "rotary.type")
        kind, path = trace.first(names, usual)
        if path == "rope_scaling.type" and "rope_type" in block:
            note = "type wins in transformers 4"
            trace.mark("rope_scaling.rope_type", "overridden", note)
        # Phi3Config._rope_scaling_adjustment renames both on loading.
        if family.name == "phi3" and kind in ("su", "yarn"):
            kind = "longrope"
        if kind == "mrope" and family.name.startswith(WITH_AXES):
            kind = "default"
        settings.put("rope_type", kind, path)

        usual = f"default of the {family.name or 'model'} class"
        if not trace.first(family.base_keys)[1]:
            refuse_null(trace, family.base_keys)
        settings.put_first("rope_theta", family.base_keys, family.base, usual)
        share, source = trace.first(family.partial_keys, family.partial or 1.0)
        by_width = reader.share_of(trace, reader.head_dim_of(trace))
        if by_width is not None:
            share = by_width
        settings.put("partial_rotary_factor", share, source)
        return {"all": settings}

    def width(self, settings: Settings, head_dim: int) -> int:
        # Phi-3 of 4.48 and before wants longrope's lists for all of the head.
        whole_head = settings.trace.family.name == "phi3" and not self.phi3_share
        if whole_head and settings.get("rope_type") != "default":
            return reader.width_of(head_dim, 1.0)
        return super().width(settings, head_dim)

    @reader.scaling_type("transformers-4", "yarn")
    def yarn(self, settings: Settings) -> Made:
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
        # `config.rope_scaling.get(..) or 32`
        settings.drop_empty("beta_fast", "beta_slow")
        truncate = None if self.truncate else True
        return reader.make_yarn(settings, factor, attention, trained, truncate)

    @reader.scaling_type("transformers-4", "longrope")
    def longrope(self, settings: Settings) -> Made:
        static = self.longrope_rule == "static"
        attention = find_own_attention(settings)
        short, long = settings.lists()
        if static and attention is None:
            raise RefusedError(
                "longrope without attention_factor: its check compares None with 0"
            )

        trained = settings.longest
        given = settings.get("factor")
        # Only an original length at top level counts, not the one in the block.
        family = settings.trace.family
        own = settings.read(ORIGINAL) if family.attention_keys else None
        top = family.original_max_position_embeddings or own
        original = settings.trace.get(ORIGINAL, top)
        if original is not None:
            trained = whole(original, ORIGINAL)
            given = settings.longest / trained
        elif given is None and (static or attention is None):
            raise RefusedError(
                "longrope without a factor and without a top-level original length"
            )
        else:
            settings.read("factor")

        factor = 1.0
        if given is not None:
            factor = number(given, "factor") or 1.0
        own_switch = settings.trace.model_type == "phi3"
        never_long = self.longrope_rule == "short" and not own_switch
        if static and factor > 1:
            short = long
        elif static or never_long:
            long = short
        return reader.longrope((short, long), factor, trained, attention)
