"""ExLlamaV3: transformers' older formulas, one table for all lengths.

Read from exllamav3/util/rope.py, model/config.py and architecture/*.py of exllamav3 1.6.5.
"""

from ropelab.audit.runtimes import parts
from ropelab.audit.runtimes.families import Family
from ropelab.audit.runtimes.mlx import take
from ropelab.audit.runtimes.parts import Settings
from ropelab.audit.runtimes.spec import NotModelledError, RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import Trace
from ropelab.math.scaling import Scaling

Made = tuple[Scaling, float, int]

ARCHITECTURES = frozenset(
    [
        "llama",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "mistral",
        "mixtral",
        "phi3",
        "olmo2",
        "granite",
        "deepseek_v2",
        "deepseek_v3",
    ]
)
"""Those whose file calls the common reader of the rope settings without defaults of its own."""


def read(trace: Trace) -> dict[str, RopeSpec]:
    """One spec."""
    if trace.model_type not in ARCHITECTURES:
        raise NotModelledError(f"the architecture file for '{trace.model_type}' was not read")
    family = parts.family_for(trace)
    settings = settings_of(trace)
    head_dim, source = parts.head_dim_of(trace, family)
    scaling, attention, trained = method(trace, settings, family)
    return {
        "all": parts.finished(
            RopeSpec(
                base=settings.number("rope_theta"),
                head_dim=head_dim,
                rotary_dim=width(trace, head_dim, settings),
                scaling=scaling,
                trained_len=trained,
                claimed_len=longest(trace),
                attention_factor=attention,
                softmax_factor=softmax_factor(family, settings),
                pairing="interleaved" if family.latent else "half",
                sources=parts.merged(settings, {"head_dim": source}),
            )
        )
    }


def settings_of(trace: Trace) -> Settings:
    """Base from top level, else from rope_parameters, else 10000 for every family."""
    settings = Settings()
    where = "rope_scaling" if trace.block("rope_scaling") is not None else "rope_parameters"
    for name, value in (trace.block(where) or {}).items():
        settings.put(name, value, f"{where}.{name}")
    base, path = trace.first(("rope_theta", "rope_parameters.rope_theta"), 10000.0)
    settings.put("rope_theta", base, path or "default of model/config.py")
    return settings


def width(trace: Trace, head_dim: int, settings: Settings) -> int:
    """rotary_dim, else the share at top level or in rope_parameters."""
    if (given := trace.get("rotary_dim")) is not None:
        return whole(given, "rotary_dim")
    if settings.get("rope_type") == "proportional":
        return head_dim
    paths = ("partial_rotary_factor", "rope_parameters.partial_rotary_factor")
    share, _ = trace.first(paths, 1.0)
    return parts.width_of(head_dim, number(share, "partial_rotary_factor"))


def longest(trace: Trace) -> int | None:
    """max_position_embeddings if it is there."""
    value = trace.get("max_position_embeddings")
    return None if value is None else whole(value, "max_position_embeddings")


def method(trace: Trace, settings: Settings, family: Family) -> Made:
    """The scaling by rope_type, else type."""
    kind = settings.get("rope_type", settings.get("type"))
    take(trace, settings, "rope_type" if "rope_type" in settings.values else "type")
    trained = longest(trace) or 2048
    if kind in (None, "default", "mrope"):
        return (*parts.unscaled(), trained)
    if kind == "yarn":
        return yarn(trace, settings, family)
    if not isinstance(kind, str) or kind not in METHODS:
        raise RefusedError(f"unknown rope type '{kind}'")
    return METHODS[kind](trace, settings, trained)


def linear(trace: Trace, settings: Settings, trained: int) -> Made:
    take(trace, settings, "factor")
    return (*parts.linear(settings.number("factor", 1.0)), trained)


def llama3(trace: Trace, settings: Settings, trained: int) -> Made:
    """Every key has a default: 8, 1, 4 and 8192."""
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    take(trace, settings, *names)
    values = zip(names[:3], (8.0, 1.0, 4.0), strict=True)
    original = whole(settings.get(names[3], 8192), names[3])
    return (*parts.llama3(*(settings.number(*value) for value in values)), original)


def yarn(trace: Trace, settings: Settings, family: Family) -> Made:
    """With an original length the factor is max_position_embeddings over it."""
    maximum = longest(trace)
    if maximum is None:
        raise RefusedError("yarn without max_position_embeddings")
    take(trace, settings, "beta_fast", "beta_slow", "attention_factor", "truncate")
    original = settings.get("original_max_position_embeddings")
    if original is None:
        take(trace, settings, "factor")
        factor, trained = settings.number("factor"), maximum
    else:
        take(trace, settings, "original_max_position_embeddings")
        trained = whole(original, "original_max_position_embeddings")
        factor = maximum / trained
        if "factor" in settings.sources:
            trace.mark(settings.sources["factor"], "overridden", "max / original wins")
    made = parts.yarn(
        factor,
        yarn_attention(settings, family, factor),
        beta_fast=settings.number("beta_fast", 32),
        beta_slow=settings.number("beta_slow", 1),
        truncate=bool(settings.get("truncate", True)),
    )
    return (*made, trained)


def yarn_attention(settings: Settings, family: Family, factor: float) -> float:
    """attention_factor; the mscale ratio for DeepSeek only; 1 beside llama_4_scaling_beta."""
    if settings.get("attention_factor") is not None:
        return settings.number("attention_factor")
    mscale, all_dim = settings.get("mscale"), settings.get("mscale_all_dim")
    if family.latent and mscale and all_dim:
        over = parts.magnitude(factor, number(mscale, "mscale"))
        return over / parts.magnitude(factor, number(all_dim, "mscale_all_dim"))
    return 1.0 if settings.get("llama_4_scaling_beta") else parts.magnitude(factor)


def longrope(trace: Trace, settings: Settings, maximum: int) -> Made:
    """The long table if the maximum exceeds the original length, else the short one."""
    take(trace, settings, "short_factor", "long_factor", "original_max_position_embeddings")
    original = settings.get("original_max_position_embeddings")
    if original is None:
        original = trace.get("original_max_position_embeddings")
    if original is None:
        raise RefusedError("longrope without original_max_position_embeddings")
    trained = whole(original, "original_max_position_embeddings")
    ratio = maximum / trained
    table = parts.factor_list(settings, "long_factor" if ratio > 1 else "short_factor")
    made = parts.longrope(table, table, ratio, parts.longrope_attention(ratio, trained))
    return (*made, trained)


def proportional(trace: Trace, settings: Settings, trained: int) -> Made:
    take(trace, settings, "factor", "partial_rotary_factor")
    paths = ("partial_rotary_factor", "rope_parameters.partial_rotary_factor")
    share, _ = trace.first(paths, 1.0)
    made = parts.proportional(number(share, "share"), settings.number("factor", 1.0))
    return (*made, trained)


METHODS = {
    "linear": linear,
    "llama3": llama3,
    "longrope": longrope,
    "su": longrope,
    "proportional": proportional,
}


def softmax_factor(family: Family, settings: Settings) -> float:
    """DeepSeek's factor on whole scores, from the factor that stands in the block."""
    all_dim = settings.get("mscale_all_dim") or 0
    kind = settings.get("rope_type", settings.get("type", "default"))
    if not family.latent or not all_dim or kind == "default":
        return 1.0
    return parts.magnitude(settings.number("factor"), number(all_dim, "mscale_all_dim")) ** 2
