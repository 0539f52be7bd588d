"""transformers 5: one `rope_parameters` dict, or one per layer type; older files are moved into it.

Read from src/transformers/modeling_rope_utils.py, configuration_utils.py and the configuration
classes of 5.23.0. vLLM and SGLang load configurations through it, so they start from `standardise`.
"""

from collections.abc import Mapping
from typing import Any

from ropelab.audit.runtimes import parts
from ropelab.audit.runtimes.families import Family
from ropelab.audit.runtimes.parts import Settings
from ropelab.audit.runtimes.spec import RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import Trace
from ropelab.math.scaling import Scaling

SCALED = ("llama3", "yarn", "longrope")
REQUIRED = {
    "default": (),
    "axial": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
    "llama3": (
        "factor",
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
    ),
    "proportional": (),
}


def read(trace: Trace) -> dict[str, RopeSpec]:
    """Specs by layer type."""
    return {kind: build(trace, settings) for kind, settings in standardise(trace).items()}


def standardise(trace: Trace) -> dict[str, Settings]:
    """What the configuration object holds after loading, by layer type ('all' for a flat dict)."""
    name, block = chosen_block(trace)
    family = parts.family_for(trace)
    if family.local_base_key:
        return two_layer_types(trace, name, block, family)
    nested = nested_keys(trace, block)
    if not nested:
        return {"all": filled(trace, name, block, family)}
    for key, value in block.items():
        if key not in nested and not isinstance(value, Mapping):
            trace.mark(f"{name}.{key}", "ignored", "stands beside the dicts of the layer types")
    inner = {key: block[key] for key in nested if isinstance(block[key], Mapping)}
    return {k: filled(trace, f"{name}.{k}", part, family, nested=True) for k, part in inner.items()}


def chosen_block(trace: Trace) -> tuple[str, Mapping[str, Any]]:
    """rope_scaling if it says anything, else rope_parameters; it replaces the other as a whole."""
    scaling, parameters = trace.block("rope_scaling"), trace.block("rope_parameters")
    if not scaling:
        return "rope_parameters", parameters or {}
    for key in parameters or {}:
        trace.mark(f"rope_parameters.{key}", "overridden", "rope_scaling replaces the whole dict")
    return "rope_scaling", scaling


def nested_keys(trace: Trace, block: Mapping[str, Any]) -> list[str]:
    """The keys of the block that are layer types the configuration declares."""
    declared = trace.text.get("layer_types")
    labels = set(declared) if isinstance(declared, list) and len(declared) < 2**16 else set()
    labels = {label for label in labels if isinstance(label, str)}
    usual = {"full_attention", "sliding_attention", "main", "compress"}
    return [key for key in block if key in labels or (key in usual and not labels)]


def filled(
    trace: Trace, where: str, block: Mapping[str, Any], family: Family, nested: bool = False
) -> Settings:
    """A block with type, base, rotated share and original length filled in."""
    settings = Settings()
    for key, value in block.items():
        settings.put(key, value, f"{where}.{key}")
    _type(trace, where, block, settings)
    _base(trace, where, settings, family)
    _share(trace, where, settings, family)
    if settings.get("rope_type") in SCALED:
        _original(trace, where, settings, nested)
    return settings


def _type(trace: Trace, where: str, block: Mapping[str, Any], settings: Settings) -> None:
    if "rope_type" in block:
        trace.get(f"{where}.rope_type")
        if "type" in block:
            trace.mark(f"{where}.type", "overridden", "rope_type wins in transformers 5")
    else:
        kind = trace.get(f"{where}.type", "default", "translated")
        settings.put("rope_type", kind, f"{where}.type" if "type" in block else "default")
    if trace.model_type == "phi3" and settings.get("rope_type") in ("su", "yarn"):
        settings.values["rope_type"] = "longrope"
    if settings.get("rope_type") == "mrope" and "mrope_section" in settings.values:
        settings.values["rope_type"] = "default"


def _base(trace: Trace, where: str, settings: Settings, family: Family) -> None:
    if "rope_theta" in settings.values:
        trace.get(f"{where}.rope_theta")
        for key in family.base_keys:
            if trace.has(key):
                trace.mark(key, "overridden", f"{where}.rope_theta wins")
        return
    base, path = trace.first(family.base_keys, family.base)
    if path:
        trace.mark(path, "translated", "moved into rope_parameters")
    settings.put("rope_theta", base, path or f"default of the {family.name or 'model'} class")


def _share(trace: Trace, where: str, settings: Settings, family: Family) -> None:
    if "partial_rotary_factor" in settings.values:
        trace.get(f"{where}.partial_rotary_factor")
        return
    share, path = trace.first(family.partial_keys, family.partial)
    if path:
        trace.mark(path, "translated", "moved into rope_parameters")
    if share is not None:
        settings.put("partial_rotary_factor", share, path or "class default")


def _original(trace: Trace, where: str, settings: Settings, nested: bool) -> None:
    """A top-level original length wins in a flat dict; absent everywhere it becomes the maximum."""
    key = "original_max_position_embeddings"
    if trace.has(key) and not nested:
        if key in settings.values:
            trace.mark(f"{where}.{key}", "overridden", "the top-level key wins")
        settings.put(key, trace.get(key), key)
    elif key in settings.values:
        trace.get(f"{where}.{key}")
    else:
        settings.put(key, parts.longest(trace, 2048)[0], "max_position_embeddings")


def two_layer_types(
    trace: Trace, name: str, block: Mapping[str, Any], family: Family
) -> dict[str, Settings]:
    """Gemma 3: an old flat block scales the global layers only."""
    inner = {key: block[key] for key in nested_keys(trace, block)}
    inner = {key: value for key, value in inner.items() if isinstance(value, Mapping)}
    full = inner.get("full_attention", {} if inner else block)
    where = f"{name}.full_attention" if inner else name
    glob = filled(trace, where, full, family, nested=True)
    local = Settings()
    sliding = inner.get("sliding_attention", {})
    for key, value in sliding.items():
        trace.get(f"{name}.sliding_attention.{key}")
        local.put(key, value, f"{name}.sliding_attention.{key}")
    local.values.setdefault("rope_type", "default")
    if "rope_theta" not in local.values:
        base = trace.get(family.local_base_key, 10000.0, "translated")
        local.put("rope_theta", base, family.local_base_key)
    return {"full_attention": glob, "sliding_attention": local}


def build(trace: Trace, settings: Settings) -> RopeSpec:
    """The spec that transformers' own classes compute from standardised settings."""
    family = parts.family_for(trace)
    longest, length_source = parts.longest(trace, 2048)
    head_dim, head_source = parts.head_dim_of(trace, family)
    check(settings)
    scaling, attention, trained = METHODS[settings.get("rope_type")](trace, settings, longest)
    width = rotated(trace, settings, head_dim, family)
    return parts.finished(
        RopeSpec(
            base=settings.number("rope_theta"),
            head_dim=head_dim,
            rotary_dim=width,
            scaling=scaling,
            trained_len=trained,
            claimed_len=longest,
            attention_factor=attention,
            softmax_factor=softmax_factor(family, settings),
            pairing=family.pairing,
            sources=parts.merged(settings, {"head_dim": head_source, "claimed_len": length_source}),
        )
    )


def check(settings: Settings) -> None:
    """Unknown types and missing keys stop the loading of the configuration."""
    kind = settings.get("rope_type")
    if not isinstance(kind, str) or kind not in REQUIRED:
        raise RefusedError(f"unknown rope type '{kind}'")
    if kind == "axial":
        raise RefusedError("rope type 'axial' needs a vision model")
    settings.needs(*REQUIRED[kind])


def rotated(trace: Trace, settings: Settings, head_dim: int, family: Family) -> int:
    """The rotated width; classes that do not expect a share rotate everything when unscaled."""
    share = settings.number("partial_rotary_factor", 1.0)
    kind = settings.get("rope_type")
    if kind == "proportional":
        return head_dim
    if kind == "default" and family.partial is None:
        source = settings.sources.get("partial_rotary_factor", "")
        if source:
            trace.mark(source, "ignored", "this class rotates the whole head when unscaled")
        return parts.width_of(head_dim, 1.0)
    return parts.width_of(head_dim, share)


def softmax_factor(family: Family, settings: Settings) -> float:
    """DeepSeek's factor on whole scores."""
    all_dim = settings.get("mscale_all_dim")
    if not family.latent or settings.get("rope_type") == "default" or not all_dim:
        return 1.0
    return parts.magnitude(settings.number("factor"), number(all_dim, "mscale_all_dim")) ** 2


Made = tuple[Scaling, float, int]


def default(trace: Trace, settings: Settings, longest: int) -> Made:
    return (*parts.unscaled(), longest)


def linear(trace: Trace, settings: Settings, longest: int) -> Made:
    take(trace, settings, "factor")
    return (*parts.linear(settings.number("factor")), longest)


def dynamic(trace: Trace, settings: Settings, longest: int) -> Made:
    take(trace, settings, "factor")
    return (*parts.dynamic(settings.number("factor")), longest)


def yarn(trace: Trace, settings: Settings, longest: int) -> Made:
    take(trace, settings, "factor", "beta_fast", "beta_slow", "attention_factor")
    trained = whole(settings.get("original_max_position_embeddings"), "original length")
    factor = settings.get("factor")
    factor = longest / trained if factor is None else number(factor, "factor")
    made = parts.yarn(
        factor,
        yarn_attention(trace, settings, factor),
        beta_fast=number(settings.get("beta_fast") or 32, "beta_fast"),
        beta_slow=number(settings.get("beta_slow") or 1, "beta_slow"),
        truncate=truncation(trace, settings),
    )
    return (*made, trained)


def truncation(trace: Trace, settings: Settings) -> bool:
    """`truncate` is read from the outer dict, so one inside a layer type's dict does nothing."""
    path = settings.sources.get("truncate", "")
    if path.count(".") > 1:
        trace.mark(path, "ignored", "read from the outer dict only")
        return True
    take(trace, settings, "truncate")
    return bool(settings.get("truncate", True))


def yarn_attention(trace: Trace, settings: Settings, factor: float) -> float:
    """attention_factor, else the ratio of both mscales when neither is 0, else from the factor."""
    if settings.get("attention_factor") is not None:
        return settings.number("attention_factor")
    mscale, all_dim = settings.get("mscale"), settings.get("mscale_all_dim")
    if not (mscale and all_dim):
        return parts.magnitude(factor)
    take(trace, settings, "mscale", "mscale_all_dim")
    over = parts.magnitude(factor, number(mscale, "mscale"))
    return over / parts.magnitude(factor, number(all_dim, "mscale_all_dim"))


def llama3(trace: Trace, settings: Settings, longest: int) -> Made:
    names = ("factor", "low_freq_factor", "high_freq_factor")
    take(trace, settings, *names)
    trained = whole(settings.get("original_max_position_embeddings"), "original length")
    return (*parts.llama3(*(settings.number(name) for name in names)), trained)


def longrope(trace: Trace, settings: Settings, longest: int) -> Made:
    take(trace, settings, "short_factor", "long_factor", "factor", "attention_factor")
    trained = whole(settings.get("original_max_position_embeddings"), "original length")
    factor = settings.get("factor")
    factor = longest / trained if factor is None else number(factor, "factor")
    attention = settings.get("attention_factor")
    if attention is None:
        attention = parts.longrope_attention(factor, trained)
    short, long = (parts.factor_list(settings, f"{which}_factor") for which in ("short", "long"))
    made = parts.longrope(short, long, factor, number(attention, "attention_factor"))
    return (*made, trained)


def proportional(trace: Trace, settings: Settings, longest: int) -> Made:
    take(trace, settings, "factor", "partial_rotary_factor")
    share, factor = settings.number("partial_rotary_factor", 1.0), settings.number("factor", 1.0)
    return (*parts.proportional(share, factor), longest)


METHODS = {
    "default": default,
    "linear": linear,
    "dynamic": dynamic,
    "yarn": yarn,
    "llama3": llama3,
    "longrope": longrope,
    "proportional": proportional,
}


def take(trace: Trace, settings: Settings, *names: str) -> None:
    """Mark the keys behind those settings as used."""
    for name in names:
        path = settings.sources.get(name, "")
        if trace.has(path):
            trace.mark(path, "used")
