"""transformers 5: one `rope_parameters` dict, or one per layer type; older files are moved into it.

Read from src/transformers/modeling_rope_utils.py, configuration_utils.py and the configuration
classes of 5.23.0. vLLM and SGLang load configurations through it, so their readers are its heirs.
"""

from collections.abc import Mapping
from typing import Any

from ropelab.audit.runtimes.reader import (
    BANDS,
    LISTS,
    ORIGINAL,
    Made,
    Method,
    Reader,
    Settings,
    dynamic,
    linear,
    llama3,
    longrope_attention,
    proportional,
    ramp,
    stated_attention,
    tables,
    unscaled,
    width_of,
)
from ropelab.audit.runtimes.spec import RefusedError, number, numbers
from ropelab.audit.runtimes.trace import Trace

Block = Mapping[str, Any]

SCALED = ("llama3", "yarn", "longrope")


class Transformers5(Reader):
    """transformers 5; the settings are those of the configuration object after loading."""

    multiplies_unscaled = False

    def settings(self, trace: Trace) -> dict[str, Settings]:
        """Return the settings by layer type, 'all' for a flat dict."""
        name, block = chosen_block(trace)
        nested = nested_keys(trace, block)
        inner = {key: block[key] for key in nested if isinstance(block[key], Mapping)}
        if trace.family.local_base_key:
            return two_layer_types(trace, name, block, inner)
        if not nested:
            return {"all": filled(trace, name, block)}
        for key, value in block.items():
            if key not in nested and not isinstance(value, Mapping):
                trace.mark(f"{name}.{key}", "ignored", "stands beside the dicts of the layer types")
        return {k: filled(trace, f"{name}.{k}", part, nested=True) for k, part in inner.items()}

    def kind(self, settings: Settings) -> Any:
        """Return the type that the loading has put into the block."""
        if settings.get("rope_type") == "axial":
            raise RefusedError("rope type 'axial' needs a vision model")
        return settings.get("rope_type")

    def width(self, settings: Settings, head_dim: int) -> int:
        """Return the share of the head; some classes rotate all of it when unscaled."""
        kind = settings.get("rope_type")
        if kind == "default" and settings.family.partial is None:
            settings.number("partial_rotary_factor", 1.0)  # must be a number all the same
            if source := settings.sources.get("partial_rotary_factor", ""):
                note = "this class rotates the whole head when unscaled"
                settings.trace.mark(source, "ignored", note)
            return width_of(head_dim, 1.0)
        share = settings.number("partial_rotary_factor", 1.0)
        return head_dim if kind == "proportional" else width_of(head_dim, share)


def chosen_block(trace: Trace) -> tuple[str, Block]:
    """Return rope_scaling if it says anything, else rope_parameters, with its name."""
    scaling, parameters = trace.block("rope_scaling"), trace.block("rope_parameters")
    if not scaling:
        return "rope_parameters", parameters or {}
    for key in parameters or {}:
        trace.mark(f"rope_parameters.{key}", "overridden", "rope_scaling replaces the whole dict")
    return "rope_scaling", scaling


def nested_keys(trace: Trace, block: Block) -> list[str]:
    """Return the keys of the block that are layer types which the configuration declares."""
    declared = trace.text.get("layer_types")
    labels = set(declared) if isinstance(declared, list) and len(declared) < 2**16 else set()
    labels = {label for label in labels if isinstance(label, str)}
    usual = {"full_attention", "sliding_attention", "main", "compress"}
    return [key for key in block if key in labels or (key in usual and not labels)]


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

    if "rope_theta" in block:
        trace.get(f"{where}.rope_theta")
        for key in family.base_keys:
            if trace.has(key):
                trace.mark(key, "overridden", f"{where}.rope_theta wins")
    else:
        usual = f"default of the {family.name or 'model'} class"
        moved(settings, "rope_theta", family.base_keys, family.base, usual)
    if "partial_rotary_factor" in block:
        trace.get(f"{where}.partial_rotary_factor")
    else:
        keys, share = family.partial_keys, family.partial
        moved(settings, "partial_rotary_factor", keys, share, "class default")

    if settings.get("rope_type") in SCALED:
        # A top-level original length wins in a flat dict; without any it is the maximum.
        if trace.has(ORIGINAL) and not nested:
            if ORIGINAL in block:
                trace.mark(f"{where}.{ORIGINAL}", "overridden", "the top-level key wins")
            settings.put(ORIGINAL, trace.get(ORIGINAL), ORIGINAL)
        elif ORIGINAL in block:
            trace.get(f"{where}.{ORIGINAL}")
        else:
            longest, _ = Transformers5().longest(trace)
            settings.put(ORIGINAL, longest, "max_position_embeddings")
    return settings


def moved(settings: Settings, name: str, keys: tuple[str, ...], usual: Any, source: str) -> None:
    """Set a value from the first of some top-level keys, else from the class if it has one."""
    value, path = settings.trace.first(keys, usual)
    if path:
        settings.trace.mark(path, "translated", "moved into rope_parameters")
    if value is not None:
        settings.put(name, value, path or source)


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
        local.put("rope_theta", trace.get(key, 10000.0, "translated"), key)
    return {"full_attention": glob, "sliding_attention": local}


def factor_or_ratio(settings: Settings, trained: int) -> float:
    """Return the factor of the block, else max_position_embeddings / original."""
    factor = settings.get("factor")
    return settings.longest / trained if factor is None else number(factor, "factor")


def yarn(settings: Settings) -> Made:
    """The coded ramp; a beta of 0 counts as missing."""
    trained = settings.original()
    factor = factor_or_ratio(settings, trained)
    attention = stated_attention(settings, factor)
    fast = number(settings.get("beta_fast") or 32, "beta_fast")
    slow = number(settings.get("beta_slow") or 1, "beta_slow")
    # truncate is read from the outer dict, so that inside a layer type's dict it does nothing.
    path = settings.sources.get("truncate", "")
    truncate = True
    if path.count(".") > 1:
        settings.trace.mark(path, "ignored", "read from the outer dict only")
    else:
        settings.take("truncate")
        truncate = bool(settings.get("truncate", True))
    return ramp(factor, attention, fast, slow, truncate), attention, trained


def longrope(settings: Settings) -> Made:
    """Two tables; factor and attention_factor from the block if it has them."""
    trained = settings.original()
    factor = factor_or_ratio(settings, trained)
    attention = settings.get("attention_factor")
    if attention is None:
        attention = longrope_attention(factor, trained)
    short, long = (numbers(settings.get(name), name) for name in LISTS)
    attention = number(attention, "attention_factor")
    return tables(short, long, factor, attention), attention, trained


Transformers5.methods = {
    "default": Method(unscaled),
    "linear": Method(linear, ("factor",), needs=("factor",)),
    "dynamic": Method(dynamic, ("factor",), needs=("factor",)),
    "yarn": Method(
        yarn, ("factor", "beta_fast", "beta_slow", "attention_factor"), needs=("factor", ORIGINAL)
    ),
    "llama3": Method(llama3, BANDS, needs=("factor", ORIGINAL, *BANDS[1:])),
    "longrope": Method(longrope, (*LISTS, "factor", "attention_factor"), needs=(*LISTS, ORIGINAL)),
    "proportional": Method(proportional, ("factor", "partial_rotary_factor")),
}
