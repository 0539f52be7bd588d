"""TensorRT-LLM, its PyTorch path.

Read from RopeParams.from_config in tensorrt_llm/_torch/attention_backend/interface.py, in a copy of
2026 whose release is not known.
"""

from ropelab.audit.runtimes import parts
from ropelab.audit.runtimes.mlx import take
from ropelab.audit.runtimes.parts import Settings
from ropelab.audit.runtimes.spec import RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import Trace
from ropelab.math.scaling import Scaling

Made = tuple[Scaling, float, int]
ORIGINAL = "original_max_position_embeddings"


def read(trace: Trace) -> dict[str, RopeSpec]:
    """One spec."""
    settings, family = settings_of(trace), parts.family_for(trace)
    longest, length_source = parts.longest(trace)
    head_dim, head_source = parts.head_dim_of(trace, family)
    kind = settings.get("type") or settings.get("rope_type") or "default"
    take(trace, settings, "type" if settings.get("type") else "rope_type")
    if not isinstance(kind, str) or kind not in METHODS:
        raise RefusedError(f"unknown rope type '{kind}'")
    scaling, attention, trained = METHODS[kind](trace, settings, longest)
    return {
        "all": parts.finished(
            RopeSpec(
                base=settings.number("rope_theta"),
                head_dim=head_dim,
                rotary_dim=width(trace, head_dim),
                scaling=scaling,
                trained_len=trained,
                claimed_len=longest,
                attention_factor=attention,
                softmax_factor=softmax_factor(trace, settings),
                pairing=family.pairing,
                sources=parts.merged(
                    settings, {"head_dim": head_source, "claimed_len": length_source}
                ),
            )
        )
    }


def settings_of(trace: Trace) -> Settings:
    """rope_scaling, else rope_parameters (full attention preferred); base default 10000."""
    settings = Settings()
    parameters = trace.block("rope_parameters") or {}
    where = "rope_parameters"
    if isinstance(parameters.get("full_attention"), dict):
        parameters, where = parameters["full_attention"], "rope_parameters.full_attention"
    if trace.block("rope_scaling") is not None:
        block, place = trace.block("rope_scaling") or {}, "rope_scaling"
    else:
        block, place = parameters, where
    for name, value in block.items():
        settings.put(name, value, f"{place}.{name}")
    if "rope_theta" in parameters:
        settings.put("rope_theta", trace.get(f"{where}.rope_theta"), f"{where}.rope_theta")
    else:
        base, path = trace.first(("rope_theta",), 10000.0)
        settings.put("rope_theta", base, path or "default 10000")
    return settings


def width(trace: Trace, head_dim: int) -> int:
    """rotary_dim, else rotary_emb_base (taken for a width), else the latent part, else a share."""
    for name in ("rotary_dim", "rotary_emb_base", "qk_rope_head_dim"):
        given = trace.get(name)
        if given:
            return parts.width_of(head_dim, whole(given, name) / head_dim)
    share, _ = trace.first(("rotary_pct", "partial_rotary_factor"), 1.0)
    return parts.width_of(head_dim, number(share, "share"))


def original(trace: Trace, settings: Settings) -> int:
    """At top level, else in the block, else 1024."""
    given = trace.get(ORIGINAL) or settings.get(ORIGINAL)
    take(trace, settings, ORIGINAL)
    return whole(given or 1024, ORIGINAL)


def plain(trace: Trace, settings: Settings, longest: int) -> Made:
    return (*parts.unscaled(), longest)


def linear(trace: Trace, settings: Settings, longest: int) -> Made:
    take(trace, settings, "factor")
    return (*parts.linear(settings.number("factor", 1.0)), longest)


def dynamic(trace: Trace, settings: Settings, longest: int) -> Made:
    """Hunyuan's alpha; the factor is not used."""
    take(trace, settings, "alpha")
    return (*parts.ntk(settings.number("alpha", 1.0)), longest)


def llama3(trace: Trace, settings: Settings, longest: int) -> Made:
    take(trace, settings, "factor", "low_freq_factor", "high_freq_factor")
    low, high = settings.number("low_freq_factor", 1.0), settings.number("high_freq_factor", 4.0)
    made = parts.llama3(settings.number("factor", 1.0), low, high)
    return (*made, original(trace, settings))


def yarn(trace: Trace, settings: Settings, longest: int) -> Made:
    """A lone mscale counts; attention_factor and truncate are not read."""
    take(trace, settings, "factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
    made = parts.yarn_of_mscales(settings, settings.number("factor", 1.0))
    return (*made, original(trace, settings))


def longrope(trace: Trace, settings: Settings, longest: int) -> Made:
    """The long table if max_seq_len is not set or exceeds the original length."""
    take(trace, settings, "short_factor", "long_factor")
    trained = original(trace, settings)
    limit = trace.get("max_seq_len")
    long_wanted = limit is None or number(limit, "max_seq_len") > trained
    table = parts.factor_list(settings, "long_factor" if long_wanted else "short_factor")
    ratio = longest / trained
    made = parts.longrope(table, table, ratio, parts.longrope_attention(ratio, trained))
    return (*made, trained)


METHODS = {
    "default": plain,
    "mrope": plain,
    "linear": linear,
    "dynamic": dynamic,
    "llama3": llama3,
    "yarn": yarn,
    "longrope": longrope,
    "su": longrope,
}


def softmax_factor(trace: Trace, settings: Settings) -> float:
    """DeepSeek's factor, applied in the attention operator."""
    all_dim = settings.get("mscale_all_dim") or 0
    if not parts.family_for(trace).latent or not all_dim:
        return 1.0
    factor = settings.number("factor", 1.0)
    return parts.magnitude(factor, number(all_dim, "mscale_all_dim")) ** 2
