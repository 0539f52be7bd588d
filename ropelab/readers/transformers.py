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

SCALED = ("llama3", "yarn", "longrope")
LAYER_TYPES = ("full_attention", "sliding_attention")  # where the class was not asked
DEFAULT = {"rope_type": "default"}
# The classes that take `mrope` for a name; of these, Omni's in transformers 4 only.
WITH_AXES = ("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni")


class Transformers(Reader):
    """Both versions, whose classes stop at some blocks."""

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
    """transformers 5; the settings are those of the configuration object after
    loading.
    """

    multiplies_unscaled = False

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        check_values(trace)
        return reader.widen_full_attention(trace, super().read(trace))

    def settings(self, trace: Trace) -> dict[str, Settings]:
        name = "rope_parameters"
        block = trace.block(name)
        scaling = trace.block("rope_scaling")
        if trace.family.layers:
            return of_layers(trace, block, scaling)
        if scaling:
            for key in block or ():
                note = "rope_scaling replaces the whole dict"
                trace.mark(f"rope_parameters.{key}", "overridden", note)
            name = "rope_scaling"
            block = scaling

        # Layer types are those that the configuration declares.
        declared = trace.text.get("layer_types")
        labels = (
            declared if isinstance(declared, list) and len(declared) < 2**16 else []
        )
        usual = trace.family.labels if trace.family.known else LAYER_TYPES
        known = {label for label in labels if isinstance(label, str)} or usual
        inner = {
            k: v
            for k, v in (block or {}).items()
            if k in known and isinstance(v, Mapping)
        }
        if inner and trace.family.known:
            raise RefusedError(
                f"'{trace.family.name}' has one rotation, not one per layer type"
            )
        if not inner:
            return {"all": filled(trace, name, block)}
        return {
            k: filled(trace, f"{name}.{k}", v, k)
            for k, v in nested(trace, name, block, inner)
        }

    def width(self, settings: Settings, head_dim: int) -> int:
        kind = settings.get("rope_type")
        family = settings.trace.family
        usual = family.usual_share if kind == "default" else None
        share = settings.number("partial_rotary_factor", usual or 1.0)

        # Without a scaling, compute_default_rope_parameters of most classes reads no
        # share.
        if kind == "default" and not family.shares:
            note = "this class rotates the whole head when unscaled"
            settings.mark("partial_rotary_factor", "ignored", note)
            share = 1.0

        if kind == "proportional":
            return head_dim
        return reader.width_of(head_dim, share)


def loaded_block(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block as version 5 fills it in, or one for each layer type."""
    found = {
        label: made.values
        for label, made in Transformers5().settings(Trace(text)).items()
    }
    return found.get("all", found)


def nested(
    trace: Trace, at: str, block: Block | None, inner: Block
) -> Iterable[tuple[str, Block]]:
    """Return the dicts of the layer types; keys beside them are passed over."""
    for key, value in (block or {}).items():
        if key not in inner and value is not None:
            trace.mark(f"{at}.{key}", "ignored", OUTSIDE)
    return inner.items()


def of_layers(
    trace: Trace, block: Block | None, scaling: Block | None
) -> dict[str, Settings]:
    """Return the settings of classes that have a dict per layer type."""
    family, name = trace.family, "rope_parameters"
    given = {k: v for k, v in (block or {}).items() if k in family.layers}
    if family.name == "deepseek_v4" and not given:
        return compressed(
            trace, name if scaling is None else "rope_scaling", scaling or block
        )
    labels = set(family.layers)
    if family.declares:  # a dict for each of the file's own layer types, or none counts
        types = trace.text.get("layer_types")
        labels = {*map(str, types)} if isinstance(types, list) else {"full_attention"}
        if labels - family.layers.keys():
            raise NotModelledError("layer types of their own")
        share = {"partial_rotary_factor": 1.0}
        own = {
            k: share | v if isinstance(v, dict) else v
            for k, v in given.items()
            if k in labels
        }
        given, scaling = (own, None) if labels == own.keys() else ({}, scaling)
        block = given or None
    flat = block is not None and not given
    if (scaling and not family.scaled) or (
        flat and (scaling or family.refuses_flat or not family.scaled)
    ):
        raise RefusedError(
            f"'{family.name}' needs a dict for each of {', '.join(family.layers)}"
        )
    parts: dict[str, Any] = dict(nested(trace, name, block, given))
    if not parts:
        # A base in the class's own dict yields to a key beside it, where there is one.
        passed = dict.fromkeys(family.layer_base_keys, ("rope_theta",))
        parts = {
            label: part
            and {k: v for k, v in part.items() if k not in passed.get(label, ())}
            for label, part in family.layers.items()
            if label in labels
        }
    elif family.scaled:  # missing layer types are filled in
        parts = dict.fromkeys(family.layers, DEFAULT) | parts
    found = {}
    for label, part in sorted(parts.items()):  # full attention first
        if part is None:
            continue  # layers without positions
        if not isinstance(part, Mapping):
            raise RefusedError(f"{name}.{label} must be a dict")
        merged = bool(scaling) and label in family.scaled
        where = "rope_scaling" if merged else f"{name}.{label}"
        found[label] = filled(
            trace, where, {**part, **(scaling or {})} if merged else part, label
        )
    if not found:
        raise NotModelledError("no layer type has a rotation")
    return found


def compressed(trace: Trace, name: str, block: Block | None) -> dict[str, Settings]:
    """Return DeepSeek-V4's settings: only layers with a compressor are scaled."""
    family, head_dim = trace.family, reader.head_dim_of(trace)
    given, _ = trace.first(("partial_rotary_factor",))
    if given is None and (wide := trace.get("qk_rope_head_dim")) is not None:
        given = whole(wide, "qk_rope_head_dim") / head_dim
    found = {}
    for label, key in (("compress", "compress_rope_theta"), ("main", "rope_theta")):
        usual = family.layers[label]
        own = {
            "rope_theta": trace.get(key, usual["rope_theta"]),
            "partial_rotary_factor": usual["partial_rotary_factor"]
            if given is None
            else given,
        }
        # The base beside the block wins over one inside.
        inner = {**(block or {}), **own} if label == "compress" else own
        if "yarn" in (inner.get("rope_type"), inner.get("type")):
            inner.setdefault("attention_factor", 1.0)  # none unless it is given
        found[label] = filled(trace, name if label == "compress" else key, inner, label)
    return found


def refuse_null(trace: Trace, keys: Iterable[str]) -> None:
    """Raise RefusedError for a base of null, which no power can be taken of."""
    for key in keys:
        if trace.has(key):
            raise RefusedError(f"{key} is null")


def of_layer(trace: Trace, value: Any, layer: str) -> Any:
    """Return the value of a layer type where a file has one for each layer (Step
    3.5).
    """
    types = trace.text.get("layer_types")
    if (
        isinstance(value, list)
        and isinstance(types, list)
        and layer in types[: len(value)]
    ):
        return value[types.index(layer)]
    return value


def filled(trace: Trace, where: str, block: Block | None, layer: str = "") -> Settings:
    """Return a block with type, base, rotated share and original length filled in."""
    family = trace.family
    usual = f"default of the {family.name or 'model'} class"
    silent = block is None
    block = dict(family.rope if block is None else block)
    settings = Settings(trace, block, where)
    settings.layer = layer
    settings.sources = {
        k: p if trace.has(p) else usual for k, p in settings.sources.items()
    }

    if "rope_type" in block:
        trace.get(f"{where}.rope_type")
        if "type" in block:
            trace.mark(
                f"{where}.type", "overridden", "rope_type wins in transformers 5"
            )
    else:
        kind = trace.get(f"{where}.type", "default", "translated")
        settings.put(
            "rope_type", kind, f"{where}.type" if "type" in block else "default"
        )
    if family.name == "phi3" and settings.get("rope_type") in ("su", "yarn"):
        if settings.get("rope_type") == "su" and ORIGINAL not in block:
            raise RefusedError(f"su without {ORIGINAL} beside it")  # filled in too late
        settings.values["rope_type"] = "longrope"
    if family.name == "sarvam_mla" and settings.get("rope_type") == "deepseek_yarn":
        # Its class renames it, and drops the older key.
        settings.values["rope_type"] = "yarn"
        settings.values.pop("type", None)
    if family.name == "hunyuan_vl_text" and settings.get("rope_type") == "xdrope":
        settings.values["rope_type"] = "dynamic"  # its class renames it
    axes = family.name.startswith(WITH_AXES[:2]) or not family.known
    if settings.get("rope_type") == "mrope" and axes:
        settings.values["rope_type"] = "default"

    own: Block = family.filled.get(layer) or {}
    bases = (family.layer_base_keys[layer],) if layer in family.layer_base_keys else ()
    for name, keys, default in (
        ("rope_theta", bases if family.layers else family.base_keys, family.base),
        ("partial_rotary_factor", family.partial_keys, family.partial),
    ):
        if name in block:
            trace.get(f"{where}.{name}")
            for key in keys if name == "rope_theta" else ():
                if trace.has(key):
                    trace.mark(key, "overridden", f"{where}.rope_theta wins")
            continue
        value, path = trace.first(keys, own.get(name, default))
        if name == "rope_theta" and not path:
            refuse_null(trace, keys)
        value = of_layer(trace, value, layer)
        if name == "rope_theta" and family.ratio_key:
            value = value * number(trace.get(family.ratio_key, 1.0), family.ratio_key)
        if path:
            trace.mark(path, "translated", "moved into rope_parameters")
        if value is not None:
            settings.put(name, value, path or usual)

    if family.width_key and (silent or "partial_rotary_factor" not in block):
        share = reader.share_of(trace, reader.head_dim_of(trace))
        if share is not None and not trace.has("partial_rotary_factor"):
            settings.put("partial_rotary_factor", share, family.width_key)
    if settings.get("rope_type") in SCALED:
        # A top-level original length wins in a flat dict, also one that the class has
        # as its default; without any it is the maximum.
        top = (
            trace.get(ORIGINAL, family.original_max_position_embeddings)
            if not layer
            else None
        )
        if top is not None:
            if ORIGINAL in block:
                trace.mark(
                    f"{where}.{ORIGINAL}", "overridden", "the top-level key wins"
                )
            settings.put(ORIGINAL, top, ORIGINAL if trace.has(ORIGINAL) else usual)
        elif ORIGINAL in block:
            trace.get(f"{where}.{ORIGINAL}")
        else:
            settings.put(ORIGINAL, Transformers5().longest(trace), MAXIMUM)
    return settings


def factor_or_ratio(settings: Settings, trained: int) -> float:
    factor = settings.read("factor")
    if factor is None:
        return settings.longest / trained
    return number(factor, "factor")


@reader.scaling_type("transformers-5", "yarn")
def yarn(settings: Settings) -> Made:
    trained = settings.original()
    factor = factor_or_ratio(settings, trained)
    attention = reader.stated_attention(settings, factor)
    # `rope_parameters_dict.get(..) or 32`
    settings.drop_empty("beta_fast", "beta_slow")
    # truncate is read from the outer dict, so that inside a layer type's dict it does
    # nothing.
    if settings.layer:
        settings.mark("truncate", "ignored", "read from the outer dict only")
    return reader.coded_yarn(
        settings, factor, attention, trained, bool(settings.layer) or None
    )


def own_attention(settings: Settings) -> Any:
    """Return the factor on cos and sin that a file gives; PhiMoE has one for each
    table.
    """
    keys = settings.trace.family.attention_keys
    if len(given := {settings.number(key) for key in keys}) > 1:
        raise NotModelledError(f"{' and '.join(keys)} that differ")
    return given.pop() if given else settings.read("attention_factor")


@reader.scaling_type("transformers-5", "longrope")
@reader.scaling_type("unsloth", "longrope")
def longrope(settings: Settings, switches: bool = True) -> Made:
    trained = settings.original()
    short, long = settings.lists()
    factor = factor_or_ratio(settings, trained)
    attention = own_attention(settings)

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
        family, block = trace.family, trace.block("rope_scaling") or {}
        if not trace.has("rope_scaling"):  # null is no scaling
            block = family.rope
        settings = Settings(trace, block, "rope_scaling")
        usual = block.get("rope_type", "default")
        names = ("rope_scaling.type", "rope_scaling.rope_type", "rotary.type")
        kind, path = trace.first(names, usual)
        if path == "rope_scaling.type" and "rope_type" in block:
            trace.mark(
                "rope_scaling.rope_type", "overridden", "type wins in transformers 4"
            )
        # Phi3Config._rope_scaling_adjustment renames both on loading.
        if family.name == "phi3" and kind in ("su", "yarn"):
            kind = "longrope"
        axes = kind == "mrope" and family.name.startswith(WITH_AXES)
        settings.put("rope_type", "default" if axes else kind, path)
        usual = f"default of the {family.name or 'model'} class"
        if not trace.first(family.base_keys)[1]:
            refuse_null(trace, family.base_keys)
        settings.put_first("rope_theta", family.base_keys, family.base, usual)
        share, source = trace.first(family.partial_keys, family.partial or 1.0)
        if (width := reader.share_of(trace, reader.head_dim_of(trace))) is not None:
            share = width
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
        trained, rule = settings.longest, self.yarn_rule
        if rule == "ratio" and ORIGINAL in settings.values:
            trained = settings.original()
            settings.mark(
                "factor", "overridden", "max_position_embeddings / original wins"
            )
            factor = settings.longest / trained
        else:
            factor = settings.number("factor")
            if rule == "factor" and settings.get(ORIGINAL):
                trained = settings.original()
        attention = reader.stated_attention(settings, factor, mscales=rule != "maximum")
        # `config.rope_scaling.get(..) or 32`
        settings.drop_empty("beta_fast", "beta_slow")
        truncate = None if self.truncate else True
        return reader.coded_yarn(settings, factor, attention, trained, truncate)

    @reader.scaling_type("transformers-4", "longrope")
    def longrope(self, settings: Settings) -> Made:
        static, attention = self.longrope_rule == "static", own_attention(settings)
        short, long = settings.lists()
        if static and attention is None:
            raise RefusedError(
                "longrope without attention_factor: its check compares None with 0"
            )
        trained, given = settings.longest, settings.get("factor")
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
        factor = 1.0 if given is None else number(given, "factor") or 1.0
        if static:
            short = long = long if factor > 1 else short
        elif self.longrope_rule == "short" and settings.trace.model_type != "phi3":
            long = short
        return reader.longrope((short, long), factor, trained, attention)
