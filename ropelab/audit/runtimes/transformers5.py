"""transformers 5: one `rope_parameters` dict, or one per layer type; older files are moved into it.

Read from src/transformers/modeling_rope_utils.py, configuration_utils.py and the configuration
classes of 5.23.0.
"""

from collections.abc import Mapping
from typing import Any

from ropelab.audit.runtimes import reader
from ropelab.audit.runtimes.reader import Made, Method, Reader, Settings
from ropelab.audit.runtimes.spec import RefusedError, number
from ropelab.audit.runtimes.trace import BANDS, LISTS, MAXIMUM, ORIGINAL, OUTSIDE, Trace

Block = Mapping[str, Any]

SCALED = ("llama3", "yarn", "longrope")
LAYER_TYPES = {"full_attention", "sliding_attention", "main", "compress"}


class Transformers5(Reader):
    """transformers 5; the settings are those of the configuration object after loading."""

    multiplies_unscaled = False

    def settings(self, trace: Trace) -> dict[str, Settings]:
        name, block = "rope_parameters", trace.block("rope_parameters") or {}
        if scaling := trace.block("rope_scaling"):
            for key in block:
                note = "rope_scaling replaces the whole dict"
                trace.mark(f"rope_parameters.{key}", "overridden", note)
            name, block = "rope_scaling", scaling
        # Layer types are those that the configuration declares, else the usual ones.
        declared = trace.text.get("layer_types")
        labels = declared if isinstance(declared, list) and len(declared) < 2**16 else []
        known = {x for x in labels if isinstance(x, str)} or LAYER_TYPES
        nested = [key for key in block if key in known]
        inner = {key: block[key] for key in nested if isinstance(block[key], Mapping)}
        if trace.family.local_base_key:
            return two_layer_types(trace, name, block, inner)
        if not nested:
            return {"all": filled(trace, name, block)}
        for key, value in block.items():
            if key not in nested and not isinstance(value, Mapping):
                trace.mark(f"{name}.{key}", "ignored", OUTSIDE)
        return {k: filled(trace, f"{name}.{k}", part, nested=True) for k, part in inner.items()}

    def kind(self, settings: Settings) -> Any:
        if settings.get("rope_type") == "axial":
            raise RefusedError("rope type 'axial' needs a vision model")
        return settings.get("rope_type")

    def width(self, settings: Settings, head_dim: int) -> int:
        kind, share = settings.get("rope_type"), settings.number("partial_rotary_factor", 1.0)
        # Without a scaling, compute_default_rope_parameters of most classes reads no share.
        if kind == "default" and settings.trace.family.partial is None:
            note = "this class rotates the whole head when unscaled"
            settings.mark("partial_rotary_factor", "ignored", note)
            share = 1.0
        return head_dim if kind == "proportional" else reader.width_of(head_dim, share)


def filled(trace: Trace, where: str, block: Block, nested: bool = False) -> Settings:
    """Return a block with type, base, rotated share and original length filled in."""
    settings, family = Settings(trace, block, where), trace.family

    if "rope_type" in block:
        trace.get(f"{where}.rope_type")
        if "type" in block:
            trace.mark(f"{where}.type", "overridden", "rope_type wins in transformers 5")
    else:
        kind = trace.get(f"{where}.type", "default", "translated")
        settings.put("rope_type", kind, f"{where}.type" if "type" in block else "default")
    if trace.model_type == "phi3" and settings.get("rope_type") in ("su", "yarn"):
        settings.values["rope_type"] = "longrope"
    if settings.get("rope_type") == "mrope" and "mrope_section" in block:
        settings.values["rope_type"] = "default"

    usual = f"default of the {family.name or 'model'} class"
    for name, keys, default, source in (
        ("rope_theta", family.base_keys, family.base, usual),
        ("partial_rotary_factor", family.partial_keys, family.partial, "class default"),
    ):
        if name in block:
            trace.get(f"{where}.{name}")
            for key in keys if name == "rope_theta" else ():
                if trace.has(key):
                    trace.mark(key, "overridden", f"{where}.rope_theta wins")
            continue
        value, path = trace.first(keys, default)
        if path:
            trace.mark(path, "translated", "moved into rope_parameters")
        if value is not None:
            settings.put(name, value, path or source)

    if "partial_rotary_factor" not in block and family.width_key:
        share = reader.share_of(trace, reader.head_dim_of(trace))
        if share is not None and not trace.has("partial_rotary_factor"):
            settings.put("partial_rotary_factor", share, family.width_key)
    if settings.get("rope_type") in SCALED:
        # A top-level original length wins in a flat dict; without any it is the maximum.
        if trace.has(ORIGINAL) and not nested:
            if ORIGINAL in block:
                trace.mark(f"{where}.{ORIGINAL}", "overridden", "the top-level key wins")
            settings.put(ORIGINAL, trace.get(ORIGINAL), ORIGINAL)
        elif ORIGINAL in block:
            trace.get(f"{where}.{ORIGINAL}")
        else:
            settings.put(ORIGINAL, Transformers5().longest(trace), MAXIMUM)
    return settings


def two_layer_types(trace: Trace, name: str, block: Block, inner: Block) -> dict[str, Settings]:
    """Return Gemma 3's settings: an old flat block scales the global layers only."""
    full = inner.get("full_attention", {} if inner else block)
    glob = filled(trace, f"{name}.full_attention" if inner else name, full, nested=True)
    where = f"{name}.sliding_attention"
    local = Settings(trace, inner.get("sliding_attention"), where)
    for key in local.values:
        trace.get(f"{where}.{key}")
    local.values.setdefault("rope_type", "default")
    if "rope_theta" not in local.values:
        key = trace.family.local_base_key
        local.put("rope_theta", trace.get(key, trace.family.local_base, "translated"), key)
    return {"full_attention": glob, "sliding_attention": local}


def factor_or_ratio(settings: Settings, trained: int) -> float:
    factor = settings.read("factor")
    return settings.longest / trained if factor is None else number(factor, "factor")


def yarn(settings: Settings) -> Made:
    trained = settings.original()
    factor = factor_or_ratio(settings, trained)
    attention = reader.stated_attention(settings, factor)
    settings.drop_empty("beta_fast", "beta_slow")  # `rope_parameters_dict.get(..) or 32`
    # truncate is read from the outer dict, so that inside a layer type's dict it does nothing.
    if inside := settings.sources.get("truncate", "").count(".") > 1:
        settings.mark("truncate", "ignored", "read from the outer dict only")
    return reader.coded_yarn(settings, factor, attention, trained, truncate=inside or None)


def longrope(settings: Settings) -> Made:
    trained = settings.original()
    factor = factor_or_ratio(settings, trained)
    attention = settings.read("attention_factor")
    if attention is None:
        attention = reader.longrope_attention(factor, trained)
    short, long = settings.lists()
    return reader.longrope(short, long, factor, number(attention, "attention_factor"), trained)


Transformers5.methods = {
    "default": Method(reader.unscaled),
    "linear": Method(reader.linear, ("factor",)),
    "dynamic": Method(reader.dynamic, ("factor",)),
    "yarn": Method(yarn, ("factor", ORIGINAL)),
    "llama3": Method(reader.llama3, ("factor", ORIGINAL, *BANDS[1:])),
    "longrope": Method(longrope, (*LISTS, ORIGINAL)),
    "proportional": Method(reader.proportional),
}
