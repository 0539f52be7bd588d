"""text-generation-inference: the block of version 4, with scaling types of its own making.

Read from server/text_generation_server/layers/rotary.py of db931fc (2026-01-08).
"""

from ropelab.audit.runtimes import parts
from ropelab.audit.runtimes.mlx import take
from ropelab.audit.runtimes.parts import Settings
from ropelab.audit.runtimes.spec import NotModelledError, RefusedError, RopeSpec, whole
from ropelab.audit.runtimes.trace import Trace
from ropelab.math.scaling import Scaling

Made = tuple[Scaling, float, int]


def read(trace: Trace) -> dict[str, RopeSpec]:
    """One spec; ROPE_SCALING and ROPE_FACTOR (flags here) replace the block."""
    settings = settings_of(trace)
    family = parts.family_for(trace)
    longest, length_source = parts.longest(trace, 2048)
    head_dim, head_source = parts.head_dim_of(trace, family)
    kind = settings.get("rope_type")
    if not isinstance(kind, str) or kind not in METHODS:
        raise RefusedError(f"rope scaling type '{kind}' is not implemented")
    scaling, attention, trained = METHODS[kind](trace, settings, longest)
    return {
        "all": parts.finished(
            RopeSpec(
                base=settings.number("rope_theta"),
                head_dim=head_dim,
                rotary_dim=parts.width_of(head_dim, family.partial or 1.0),
                scaling=scaling,
                trained_len=trained,
                claimed_len=longest,
                attention_factor=attention,
                pairing=family.pairing,
                sources=parts.merged(
                    settings, {"head_dim": head_source, "claimed_len": length_source}
                ),
            )
        )
    }


def settings_of(trace: Trace) -> Settings:
    """Base at top level, and the block or the two environment variables."""
    settings, block = Settings(), trace.block("rope_scaling") or {}
    if "rope_scaling" in trace.flags:
        block = {"type": trace.flags["rope_scaling"], "factor": trace.flags.get("rope_factor")}
    for name, value in block.items():
        settings.put(name, value, f"rope_scaling.{name}")
    kind = settings.get("type") or settings.get("rope_type", "default")
    take(trace, settings, "type" if settings.get("type") else "rope_type")
    settings.values["rope_type"] = kind
    family = parts.family_for(trace)
    base, path = trace.first(family.base_keys, family.earlier_base)
    settings.put("rope_theta", base, path or "class default")
    return settings


def plain(trace: Trace, settings: Settings, longest: int) -> Made:
    """default; and linear, whose factor the usual path never applies."""
    if "factor" in settings.sources:
        trace.mark(settings.sources["factor"], "ignored", "linear is not applied on this path")
    return (*parts.unscaled(), longest)


def dynamic(trace: Trace, settings: Settings, longest: int) -> Made:
    take(trace, settings, "factor")
    return (*parts.dynamic(settings.number("factor")), longest)


def llama3(trace: Trace, settings: Settings, longest: int) -> Made:
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    settings.needs(*names)
    take(trace, settings, *names)
    trained = whole(settings.get(names[3]), names[3])
    return (*parts.llama3(*(settings.number(name) for name in names[:3])), trained)


def yarn(trace: Trace, settings: Settings, longest: int) -> Made:
    """betas fixed at 32 and 1, a lone mscale counts, attention_factor and truncate are not read."""
    settings.needs("factor", "original_max_position_embeddings")
    take(trace, settings, "factor", "original_max_position_embeddings", "mscale", "mscale_all_dim")
    factor = settings.number("factor")
    over = parts.magnitude(factor, settings.number("mscale", 1.0))
    attention = over / parts.magnitude(factor, settings.number("mscale_all_dim", 0.0))
    trained = whole(settings.get("original_max_position_embeddings"), "original length")
    return (*parts.yarn(factor, attention), trained)


def longrope(trace: Trace, settings: Settings, longest: int) -> Made:
    raise NotModelledError("two tables inside one sequence: short below the original length")


METHODS = {
    "default": plain,
    "linear": plain,
    "mrope": plain,
    "dynamic": dynamic,
    "llama3": llama3,
    "yarn": yarn,
    "longrope": longrope,
    "su": longrope,
}
