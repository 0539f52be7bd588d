"""transformers 4: `rope_theta` and `rope_scaling` beside each other; YaRN changed three times.

Read from src/transformers/modeling_rope_utils.py and the Llama, Phi-3, Gemma 3 and GPT-NeoX classes
of 4.44.2, 4.48.3, 4.51.3, 4.55.4 and 4.57.1.
"""

from dataclasses import dataclass
from typing import Any

from ropelab.audit.runtimes import parts
from ropelab.audit.runtimes.families import Family
from ropelab.audit.runtimes.parts import Settings
from ropelab.audit.runtimes.spec import NotModelledError, RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import Trace
from ropelab.math.scaling import Scaling


@dataclass(frozen=True)
class Rules:
    """What differs between the releases.

    yarn: where ramp length and factor come from; "maximum": max_position_embeddings and factor,
        "ratio": original length, and max/original as the factor, "factor": original and factor.
    longrope: "static": long table from the start, "short": never switches (its Llama class),
        "switch": by length.
    absent: model types that the release does not have, or whose classes read no rope_scaling.
    truncate, phi3_share: whether YaRN reads truncate, and Phi-3 partial_rotary_factor.
    """

    yarn: str
    longrope: str
    truncate: bool = True
    phi3_share: bool = True
    absent: frozenset[str] = frozenset()


def read(trace: Trace, rules: Rules) -> dict[str, RopeSpec]:
    """Specs by layer type: one, or Gemma 3's two."""
    if trace.model_type in rules.absent:
        raise NotModelledError(f"that release has no '{trace.model_type}' that reads rope_scaling")
    family = parts.family_for(trace)
    settings = settings_of(trace, family)
    spec = build(trace, family, settings, rules)
    if not family.local_base_key:
        return {"all": spec}
    return {"full_attention": spec, "sliding_attention": local(trace, family, spec)}


def settings_of(trace: Trace, family: Family) -> Settings:
    """The block under rope_scaling with the base beside it; rope_parameters is not known here."""
    settings = Settings()
    block = trace.block("rope_scaling") or {}
    for name, value in block.items():
        settings.put(name, value, f"rope_scaling.{name}")
    kind, path = trace.first(("rope_scaling.type", "rope_scaling.rope_type"), "default")
    if path == "rope_scaling.type" and "rope_type" in block:
        trace.mark("rope_scaling.rope_type", "overridden", "type wins in transformers 4")
    settings.put("rope_type", translated(kind, family, block), path or "no block")
    base, source = trace.first(family.base_keys, family.earlier_base)
    settings.put("rope_theta", base, source or f"default of the {family.name or 'model'} class")
    return settings


def translated(kind: Any, family: Family, block: Any) -> Any:
    """Names that a class turns into others; an empty block has no type."""
    if family.name == "phi3" and kind in ("su", "yarn"):
        return "longrope"
    if kind == "mrope":
        return "default"
    return kind


def build(trace: Trace, family: Family, settings: Settings, rules: Rules) -> RopeSpec:
    """One spec from the settings."""
    longest, length_source = parts.longest(trace, 2048)
    head_dim, head_source = parts.head_dim_of(trace, family)
    share, share_source = trace.first(family.partial_keys, family.partial or 1.0)
    if family.name == "phi3" and not rules.phi3_share:
        share = 1.0
    kind = settings.get("rope_type")
    maker = METHODS.get(kind) if isinstance(kind, str) else None
    if maker is None:
        raise RefusedError(f"unknown rope type '{kind}'")
    scaling, attention, trained = maker(trace, settings, longest, rules)
    width = parts.width_of(head_dim, number(share, "partial_rotary_factor"))
    sources = {
        "head_dim": head_source,
        "rotary_dim": share_source or "class default",
        "claimed_len": length_source,
    }
    return parts.finished(
        RopeSpec(
            base=settings.number("rope_theta"),
            head_dim=head_dim,
            rotary_dim=width,
            scaling=scaling,
            trained_len=trained,
            claimed_len=longest,
            attention_factor=attention,
            softmax_factor=softmax_factor(family, settings, scaling),
            pairing=family.pairing,
            sources=parts.merged(settings, sources),
        )
    )


def softmax_factor(family: Family, settings: Settings, scaling: Scaling) -> float:
    """DeepSeek's square of 0.1 mscale_all_dim ln(factor) + 1; it takes the factor of the block."""
    all_dim = settings.get("mscale_all_dim") or 0.0
    if not family.latent or not all_dim:
        return 1.0
    return parts.magnitude(settings.number("factor"), number(all_dim, "mscale_all_dim")) ** 2


Made = tuple[Scaling, float, int]


def default(trace: Trace, settings: Settings, longest: int, rules: Rules) -> Made:
    return (*parts.unscaled(), longest)


def linear(trace: Trace, settings: Settings, longest: int, rules: Rules) -> Made:
    settings.needs("factor")
    trace.get("rope_scaling.factor")
    return (*parts.linear(settings.number("factor")), longest)


def dynamic(trace: Trace, settings: Settings, longest: int, rules: Rules) -> Made:
    settings.needs("factor")
    trace.get("rope_scaling.factor")
    return (*parts.dynamic(settings.number("factor")), longest)


def yarn(trace: Trace, settings: Settings, longest: int, rules: Rules) -> Made:
    settings.needs("factor")
    factor, trained = yarn_lengths(trace, settings, longest, rules)
    for name in ("beta_fast", "beta_slow", "attention_factor"):
        trace.get(f"rope_scaling.{name}")
    truncate = True
    if rules.truncate:
        truncate = bool(trace.get("rope_scaling.truncate", True))
    return (
        *parts.yarn(
            factor,
            yarn_attention(trace, settings, factor, rules),
            beta_fast=number(settings.get("beta_fast") or 32, "beta_fast"),
            beta_slow=number(settings.get("beta_slow") or 1, "beta_slow"),
            truncate=truncate,
        ),
        trained,
    )


def yarn_lengths(trace: Trace, settings: Settings, longest: int, rules: Rules) -> tuple[float, int]:
    """The factor and the ramp's length, by the release's rule."""
    path = "rope_scaling.original_max_position_embeddings"
    original = settings.get("original_max_position_embeddings")
    if rules.yarn == "maximum" or (not original and rules.yarn == "factor"):
        trace.get("rope_scaling.factor")
        settings.sources["trained_len"] = "max_position_embeddings"
        return settings.number("factor"), longest
    if rules.yarn == "ratio" and "original_max_position_embeddings" in settings.values:
        trained = whole(trace.get(path), "original_max_position_embeddings")
        trace.mark("rope_scaling.factor", "overridden", "max_position_embeddings / original wins")
        settings.sources["factor"] = "max_position_embeddings / original_max_position_embeddings"
        return longest / trained, trained
    trace.get("rope_scaling.factor")
    if not original:
        settings.sources["trained_len"] = "max_position_embeddings"
        return settings.number("factor"), longest
    return settings.number("factor"), whole(trace.get(path), "original_max_position_embeddings")


def yarn_attention(trace: Trace, settings: Settings, factor: float, rules: Rules) -> float:
    """attention_factor, else the ratio of both mscales where the release knows them."""
    if settings.get("attention_factor") is not None:
        return settings.number("attention_factor")
    mscale, all_dim = settings.get("mscale"), settings.get("mscale_all_dim")
    if rules.yarn != "maximum" and mscale and all_dim:
        trace.get("rope_scaling.mscale")
        trace.get("rope_scaling.mscale_all_dim")
        over = parts.magnitude(factor, number(mscale, "mscale"))
        return over / parts.magnitude(factor, number(all_dim, "mscale_all_dim"))
    return parts.magnitude(factor)


def llama3(trace: Trace, settings: Settings, longest: int, rules: Rules) -> Made:
    names = (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    )
    settings.needs(*names)
    factor, low, high, _ = (number(trace.get(f"rope_scaling.{name}"), name) for name in names)
    trained = whole(settings.get(names[3]), names[3])
    return (*parts.llama3(factor, low, high), trained)


def longrope(trace: Trace, settings: Settings, longest: int, rules: Rules) -> Made:
    settings.needs("short_factor", "long_factor")
    for name in ("short_factor", "long_factor", "attention_factor"):
        trace.get(f"rope_scaling.{name}")
    if rules.longrope == "static" and settings.get("attention_factor") is None:
        raise RefusedError("longrope without attention_factor: its check compares None with 0")
    factor, trained = longrope_lengths(trace, settings, longest)
    if rules.longrope == "static" and factor is None:
        raise RefusedError("longrope without a factor and without a top-level original length")
    factor = factor or 1.0
    attention = settings.get("attention_factor")
    if attention is None:
        attention = parts.longrope_attention(factor, trained)
    short = parts.factor_list(settings, "short_factor")
    long = parts.factor_list(settings, "long_factor")
    if rules.longrope == "static":
        short = long = long if factor > 1 else short
    elif rules.longrope == "short" and trace.model_type != "phi3":
        long = short
    made = parts.longrope(short, long, factor, number(attention, "attention_factor"))
    return (*made, trained)


def longrope_lengths(trace: Trace, settings: Settings, longest: int) -> tuple[float | None, int]:
    """Only an original length at top level counts; the one inside the block is not read."""
    original = trace.get("original_max_position_embeddings")
    if original is not None:
        trained = whole(original, "original_max_position_embeddings")
        return longest / trained, trained
    if settings.get("factor") is None and settings.get("attention_factor") is None:
        raise RefusedError("longrope without a factor and without a top-level original length")
    trace.get("rope_scaling.factor")
    factor = settings.get("factor")
    return (None if factor is None else number(factor, "factor")), longest


METHODS = {
    "default": default,
    "linear": linear,
    "dynamic": dynamic,
    "yarn": yarn,
    "llama3": llama3,
    "longrope": longrope,
}


def local(trace: Trace, family: Family, spec: RopeSpec) -> RopeSpec:
    """Gemma 3's sliding-window layers: a base of their own, unscaled."""
    base = trace.get(family.local_base_key, 10000.0)
    scaling, attention = parts.unscaled()
    return RopeSpec(
        base=number(base, family.local_base_key),
        head_dim=spec.head_dim,
        rotary_dim=spec.rotary_dim,
        scaling=scaling,
        trained_len=spec.trained_len,
        claimed_len=spec.claimed_len,
        attention_factor=attention,
        pairing=spec.pairing,
        sources={"base": family.local_base_key},
    )
