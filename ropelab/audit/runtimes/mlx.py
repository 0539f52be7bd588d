"""MLX-LM: every model file keeps the keys that its arguments name, and drops the others.

Read from mlx_lm/models/rope_utils.py and the model files of mlx-lm 0.32.2.
"""

from dataclasses import dataclass

from ropelab.audit.runtimes import parts
from ropelab.audit.runtimes.families import Family
from ropelab.audit.runtimes.parts import Settings
from ropelab.audit.runtimes.spec import NotModelledError, RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import Trace
from ropelab.math.scaling import Scaling

Made = tuple[Scaling, float, int]


@dataclass(frozen=True)
class ModelFile:
    """What one model file does: its default base, whether it scales, what it knows of version 5.

    base is None where the file insists on the key.
    """

    base: float | None = 10000.0
    scales: bool = True
    reads_parameters: bool = False
    share: bool = False
    interleaved: bool = False


FILES = {
    "llama": ModelFile(),
    "mistral": ModelFile(),
    "qwen2": ModelFile(1e6),
    "qwen3": ModelFile(None, reads_parameters=True),
    "mixtral": ModelFile(1e6, scales=False),
    "gemma2": ModelFile(scales=False),
    "phi3": ModelFile(share=True),
    "gpt_oss": ModelFile(150000.0),
    "deepseek_v3": ModelFile(interleaved=True),
    "glm": ModelFile(scales=False, interleaved=True),
    "stablelm": ModelFile(None, scales=False, share=True),
    "olmo2": ModelFile(),
}


def read(trace: Trace) -> dict[str, RopeSpec]:
    """One spec; the model file decides which keys exist."""
    file = FILES.get(trace.model_type)
    if file is None:
        raise NotModelledError(f"the model file for '{trace.model_type}' was not read")
    family = parts.family_for(trace)
    settings = settings_of(trace, file)
    head_dim, source = head_dim_of(trace, family)
    longest, length_source = maximum(trace, file)
    scaling, attention, trained = method(trace, settings, longest, file)
    share = number(trace.get("partial_rotary_factor", 1.0), "share") if file.share else 1.0
    return {
        "all": parts.finished(
            RopeSpec(
                base=settings.number("rope_theta"),
                head_dim=head_dim,
                rotary_dim=parts.width_of(head_dim, share),
                scaling=scaling,
                trained_len=trained,
                claimed_len=None if length_source == "not read" else longest,
                attention_factor=attention,
                softmax_factor=softmax_factor(family, settings),
                pairing="interleaved" if file.interleaved else "half",
                sources=parts.merged(settings, {"head_dim": source}),
            )
        )
    }


def maximum(trace: Trace, file: ModelFile) -> tuple[int, str]:
    """max_position_embeddings; only dynamic and longrope need it."""
    value = trace.get("max_position_embeddings")
    if value is None:
        return (131072 if trace.model_type == "phi3" else 2048), "not read"
    return whole(value, "max_position_embeddings"), "max_position_embeddings"


def head_dim_of(trace: Trace, family: Family) -> tuple[int, str]:
    """phi3.py and stablelm.py know no head_dim."""
    if trace.model_type in ("phi3", "stablelm") and trace.has("head_dim"):
        hidden, heads = trace.get("hidden_size"), trace.get("num_attention_heads")
        width = whole(hidden, "hidden_size") // whole(heads, "num_attention_heads")
        return width, "hidden_size / num_attention_heads"
    return parts.head_dim_of(trace, family)


def settings_of(trace: Trace, file: ModelFile) -> Settings:
    """Base and block, from the places that the file knows."""
    settings = Settings()
    base, block, where = trace.get("rope_theta"), trace.block("rope_scaling"), "rope_scaling"
    source = "rope_theta"
    if file.reads_parameters and (parameters := trace.block("rope_parameters")):
        if base is None:
            base, source = trace.get("rope_parameters.rope_theta"), "rope_parameters.rope_theta"
        if block is None:
            block, where = parameters, "rope_parameters"
    if base is None and file.base is None:
        raise RefusedError("rope_theta is missing, and the model file has no default")
    if base is None:
        base, source = file.base, f"default of mlx_lm/models/{trace.model_type}.py"
    for name, value in (block or {}).items() if file.scales else ():
        settings.put(name, value, f"{where}.{name}")
    settings.put("rope_theta", base, source)
    return settings


def method(trace: Trace, settings: Settings, longest: int, file: ModelFile) -> Made:
    """The scaling by its type; `type` wins over `rope_type`."""
    if trace.model_type == "phi3":
        return phi3(trace, settings, longest)
    kind = settings.get("type") or settings.get("rope_type", "default")
    take(trace, settings, "type" if settings.get("type") else "rope_type")
    if settings.get("type") and "rope_type" in settings.values:
        trace.mark(settings.sources["rope_type"], "overridden", "type wins in MLX-LM")
    if kind == "mrope" or kind == "default":
        return (*parts.unscaled(), longest)
    if not isinstance(kind, str) or kind not in METHODS:
        raise RefusedError(f"unsupported rope type '{kind}'")
    return METHODS[kind](trace, settings, longest)


def phi3(trace: Trace, settings: Settings, longest: int) -> Made:
    """phi3.py: only `type`, only longrope and linear; the original length stands at top level."""
    if len(settings.values) == 1:
        return (*parts.unscaled(), longest)
    settings.needs("long_factor", "type")
    take(trace, settings, "type")
    if settings.get("type") == "linear":
        return linear(trace, settings, longest)
    if settings.get("type") not in ("longrope", "su"):
        return (*parts.unscaled(), longest)
    trained = whole(trace.get("original_max_position_embeddings", 4096), "original length")
    return long_table(trace, settings, longest, trained)


def linear(trace: Trace, settings: Settings, longest: int) -> Made:
    take(trace, settings, "factor")
    return (*parts.linear(settings.number("factor")), longest)


def dynamic(trace: Trace, settings: Settings, longest: int) -> Made:
    if not trace.has("max_position_embeddings"):
        raise RefusedError("dynamic without max_position_embeddings")
    take(trace, settings, "factor")
    return (*parts.dynamic(settings.number("factor")), longest)


def yarn(trace: Trace, settings: Settings, longest: int) -> Made:
    """The original length defaults to 4096, a lone mscale counts, the ramp is truncated."""
    names = ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
    take(trace, settings, *names, "original_max_position_embeddings")
    made = parts.yarn_of_mscales(settings, settings.number("factor"))
    return (*made, original(settings, 4096))


def llama3(trace: Trace, settings: Settings, longest: int) -> Made:
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    take(trace, settings, *names)
    low, high = settings.number("low_freq_factor", 1.0), settings.number("high_freq_factor", 4.0)
    return (*parts.llama3(settings.number("factor"), low, high), original(settings, 8192))


def longrope(trace: Trace, settings: Settings, longest: int) -> Made:
    """Always the long table."""
    settings.needs("original_max_position_embeddings", "short_factor", "long_factor")
    take(trace, settings, "original_max_position_embeddings")
    return long_table(trace, settings, longest, original(settings, 4096))


def long_table(trace: Trace, settings: Settings, longest: int, trained: int) -> Made:
    take(trace, settings, "long_factor")
    if "short_factor" in settings.sources:
        trace.mark(settings.sources["short_factor"], "ignored", "always the long table")
    long = parts.factor_list(settings, "long_factor")
    ratio = longest / trained
    made = parts.longrope(long, long, ratio, parts.longrope_attention(ratio, trained))
    return (*made, trained)


def proportional(trace: Trace, settings: Settings, longest: int) -> Made:
    take(trace, settings, "partial_rotary_factor", "factor")
    share = settings.number("partial_rotary_factor", 1.0)
    return (*parts.proportional(share, settings.number("factor", 1.0)), longest)


METHODS = {
    "linear": linear,
    "dynamic": dynamic,
    "yarn": yarn,
    "deepseek_yarn": yarn,
    "telechat3-yarn": yarn,
    "llama3": llama3,
    "longrope": longrope,
    "proportional": proportional,
}


def original(settings: Settings, default: int) -> int:
    """The original length inside the block."""
    given = settings.get("original_max_position_embeddings")
    if given is None:
        settings.sources["trained_len"] = f"default {default} of rope_utils.py"
        return default
    return whole(given, "original_max_position_embeddings")


def softmax_factor(family: Family, settings: Settings) -> float:
    """DeepSeek's factor on whole scores."""
    all_dim = settings.get("mscale_all_dim") or 0
    if not family.latent or not all_dim:
        return 1.0
    return parts.magnitude(settings.number("factor"), number(all_dim, "mscale_all_dim")) ** 2


def take(trace: Trace, settings: Settings, *names: str) -> None:
    """Mark the keys behind those settings as used."""
    for name in names:
        if trace.has(settings.sources.get(name, "")):
            trace.mark(settings.sources[name], "used")
