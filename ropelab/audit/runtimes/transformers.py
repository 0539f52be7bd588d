"""transformers: 5 reads one dict of parameters, or one per layer type; 4 reads two keys.

5 moves older files into `rope_parameters`. 4 has `rope_theta` and `rope_scaling` beside each other;
its YaRN changed three times. Read from src/transformers/modeling_rope_utils.py and
configuration_utils.py, the configuration classes of 5.23.0, and the Llama, Phi-3, Gemma 3 and
GPT-NeoX classes of 4.44.2, 4.48.3, 4.51.3, 4.55.4 and 4.57.1.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ropelab.audit.runtimes import reader
from ropelab.audit.runtimes.reader import Made, Method, Reader, Settings
from ropelab.audit.runtimes.spec import RefusedError, RopeSpec, number, whole
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


@dataclass
class Transformers4(Reader):
    """One release, by its differences from the others."""

    # Ramp length and factor from: max_position_embeddings and factor; original length and
    # max/original; original length and factor.
    yarn_rule: Literal["maximum", "ratio", "factor"]
    # The long table from the start; no switch in the Llama class; a switch by length.
    longrope_rule: Literal["static", "short", "switch"]
    truncate: bool = True  # YaRN reads truncate
    phi3_share: bool = True  # Phi-3 reads partial_rotary_factor
    types: Collection[str] = ()
    other = "of that release the class of '{}' was not read"

    def __post_init__(self) -> None:
        self.methods = {
            "default": Method(reader.unscaled),
            "linear": Method(reader.linear, ("factor",)),
            "dynamic": Method(reader.dynamic, ("factor",)),
            "yarn": Method(self.yarn, ("factor",)),
            "llama3": Method(reader.llama3, (*BANDS, ORIGINAL)),
            "longrope": Method(self.longrope, LISTS),
        }

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        specs, local = super().read(trace), trace.family.local_base_key
        if not local:
            return specs
        # Gemma 3's sliding-window layers have a base of their own and are never scaled.
        sliding = specs["all"].unscaled(number(trace.get(local, trace.family.local_base), local))
        return {"full_attention": specs["all"], "sliding_attention": sliding}

    def settings(self, trace: Trace) -> dict[str, Settings]:
        # Base and share are beside rope_scaling; rope_parameters is not known to these releases.
        family, block = trace.family, trace.block("rope_scaling") or {}
        settings = Settings(trace, block, "rope_scaling")
        kind, path = trace.first(("rope_scaling.type", "rope_scaling.rope_type"), "default")
        if path == "rope_scaling.type" and "rope_type" in block:
            trace.mark("rope_scaling.rope_type", "overridden", "type wins in transformers 4")
        # Phi3Config._rope_scaling_adjustment renames both on loading.
        if family.name == "phi3" and kind in ("su", "yarn"):
            kind = "longrope"
        settings.put("rope_type", "default" if kind == "mrope" else kind, path)
        usual = f"default of the {family.name or 'model'} class"
        settings.put_first("rope_theta", family.base_keys, family.earlier_base, usual)
        share, source = trace.first(family.partial_keys, family.partial or 1.0)
        if (width := reader.share_of(trace, reader.head_dim_of(trace))) is not None:
            share = width
        settings.put("partial_rotary_factor", share, source)
        return {"all": settings}

    def kind(self, settings: Settings) -> Any:
        return settings.get("rope_type")

    def width(self, settings: Settings, head_dim: int) -> int:
        # Phi-3 of 4.48 and before rotates all of the head.
        if settings.trace.family.name == "phi3" and not self.phi3_share:
            return reader.width_of(head_dim, 1.0)
        return super().width(settings, head_dim)

    def yarn(self, settings: Settings) -> Made:
        trained, rule = settings.longest, self.yarn_rule
        if rule == "ratio" and ORIGINAL in settings.values:
            trained = settings.original()
            settings.mark("factor", "overridden", "max_position_embeddings / original wins")
            factor = settings.longest / trained
        else:
            factor = settings.number("factor")
            if rule == "factor" and settings.get(ORIGINAL):
                trained = settings.original()
        attention = reader.stated_attention(settings, factor, mscales=rule != "maximum")
        settings.drop_empty("beta_fast", "beta_slow")  # `config.rope_scaling.get(..) or 32`
        truncate = None if self.truncate else True
        return reader.coded_yarn(settings, factor, attention, trained, truncate)

    def longrope(self, settings: Settings) -> Made:
        static, attention = self.longrope_rule == "static", settings.read("attention_factor")
        short, long = settings.lists()
        if static and attention is None:
            raise RefusedError("longrope without attention_factor: its check compares None with 0")
        trained, given = settings.longest, settings.get("factor")
        # Only an original length at top level counts, not the one in the block.
        original = settings.trace.get(ORIGINAL)
        if original is not None:
            trained = whole(original, ORIGINAL)
            given = settings.longest / trained
        elif given is None and (static or attention is None):
            raise RefusedError("longrope without a factor and without a top-level original length")
        else:
            settings.read("factor")
        factor = 1.0 if given is None else number(given, "factor") or 1.0
        if attention is None:
            attention = reader.longrope_attention(factor, trained)
        if static:
            short = long = long if factor > 1 else short
        elif self.longrope_rule == "short" and settings.trace.model_type != "phi3":
            long = short
        return reader.longrope(short, long, factor, number(attention, "attention_factor"), trained)
