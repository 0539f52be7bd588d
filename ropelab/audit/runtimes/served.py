"""vLLM and SGLang: they load configurations with transformers 5 and compute frequencies themselves.

Read from vllm 0.33.0 (model_executor/layers/rotary_embedding, transformers_utils/config.py,
config/model.py) and sglang 0.5.23 (srt/layers/rotary_embedding, srt/models/llama.py,
srt/utils/hf_transformers/common.py).
"""

from collections.abc import Callable

from ropelab.audit.runtimes import parts, transformers5
from ropelab.audit.runtimes.parts import Settings
from ropelab.audit.runtimes.spec import NotModelledError, RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import Trace
from ropelab.audit.runtimes.transformers5 import take
from ropelab.math.scaling import Scaling

Made = tuple[Scaling, float, int]
Maker = Callable[[Trace, Settings, int], Made]

SCALED_LENGTHS = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
"""Types for which vLLM does not multiply the allowed length by the factor."""

VLLM_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
)
SGLANG_LENGTHS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)


def read_vllm(trace: Trace) -> dict[str, RopeSpec]:
    """Specs by layer type as vLLM builds them."""
    specs = {}
    for kind, settings in standardised(trace).items():
        legacy_types(trace, settings)
        transformers5.check(settings)
        specs[kind] = build(trace, settings, VLLM, vllm_length(trace, settings))
    return specs


def read_sglang(trace: Trace) -> dict[str, RopeSpec]:
    """Specs by layer type as SGLang builds them."""
    specs = {}
    for kind, settings in standardised(trace).items():
        transformers5.check(settings)
        specs[kind] = build(trace, settings, SGLANG, sglang_length(trace, settings))
    return specs


def standardised(trace: Trace) -> dict[str, Settings]:
    """transformers' own loading, and the family's own type for latent attention."""
    return transformers5.standardise(trace)


def legacy_types(trace: Trace, settings: Settings) -> None:
    """vLLM refuses two different type names, but for two pairs that mean the same."""
    old, new = settings.get("type"), settings.get("rope_type")
    same = old is None or old == new or (old, new) in (("su", "longrope"), ("mrope", "default"))
    if not same:
        raise RefusedError(f"conflict between rope_type={new} and type={old}")


def build(
    trace: Trace, settings: Settings, methods: dict[str, Maker], claimed: tuple[int, str]
) -> RopeSpec:
    """One spec."""
    family = parts.family_for(trace)
    longest, _ = parts.longest(trace, 2048)
    head_dim, head_source = parts.head_dim_of(trace, family)
    kind = settings.get("rope_type")
    if family.latent and kind != "default":
        kind = "deepseek_yarn"
    if kind not in methods:
        raise RefusedError(f"unknown rope type '{kind}'")
    scaling, attention, trained = methods[kind](trace, settings, longest)
    return parts.finished(
        RopeSpec(
            base=settings.number("rope_theta"),
            head_dim=head_dim,
            rotary_dim=width(trace, settings, head_dim, methods),
            scaling=scaling,
            trained_len=trained,
            claimed_len=claimed[0],
            attention_factor=attention,
            softmax_factor=softmax_factor(settings, kind),
            pairing=family.pairing,
            sources=parts.merged(settings, {"head_dim": head_source, "claimed_len": claimed[1]}),
        )
    )


def width(trace: Trace, settings: Settings, head_dim: int, methods: dict[str, Maker]) -> int:
    """vLLM takes the share from rope_parameters; SGLang's Llama from an attribute of the class."""
    if settings.get("rope_type") == "proportional":
        return head_dim
    family = parts.family_for(trace)
    if methods is SGLANG and family.partial is None:
        return parts.width_of(head_dim, 1.0)
    take(trace, settings, "partial_rotary_factor")
    return parts.width_of(head_dim, settings.number("partial_rotary_factor", 1.0))


def softmax_factor(settings: Settings, kind: str) -> float:
    """The DeepSeek classes' factor on whole scores."""
    all_dim = settings.get("mscale_all_dim")
    if kind != "deepseek_yarn" or not all_dim or settings.get("attention_factor") == 1.0:
        return 1.0
    return parts.magnitude(settings.number("factor"), number(all_dim, "mscale_all_dim")) ** 2


def vllm_length(trace: Trace, settings: Settings) -> tuple[int, str]:
    """The shortest of the length keys, times the factor for linear, dynamic and ntk."""
    given = [(trace.get(name), name) for name in VLLM_LENGTHS if trace.text.get(name) is not None]
    shortest, source = min(
        ((whole(value, name), name) for value, name in given), default=(2048, "default")
    )
    if trace.text.get("model_max_length"):
        shortest, source = (
            whole(trace.get("model_max_length"), "model_max_length"),
            "model_max_length",
        )
    kind = settings.get("rope_type")
    if kind == "longrope":
        original = trace.get("original_max_position_embeddings")
        if original is not None:
            return whole(original, "original length"), "original_max_position_embeddings"
        return shortest, source
    factor = settings.get("factor")
    if kind in SCALED_LENGTHS or factor is None or "gemma3" in trace.model_type:
        return shortest, source
    return int(shortest * number(factor, "factor")), f"{source} x factor"


def sglang_length(trace: Trace, settings: Settings) -> tuple[int, str]:
    """The first of the length keys, times the factor unless an original length is there."""
    name = next((name for name in SGLANG_LENGTHS if trace.text.get(name) is not None), "")
    length = whole(trace.get(name), name) if name else 2048
    factor = settings.get("factor")
    nested = settings.sources.get("rope_type", "").count(".") > 1
    known = "original_max_position_embeddings" in settings.values
    flat = not parts.family_for(trace).local_base_key and not nested
    if not flat or known or settings.get("rope_type") == "llama3" or factor is None:
        return length, name or "default"
    return int(length * number(factor, "factor")), f"{name or 'default'} x factor"


def vllm_yarn(trace: Trace, settings: Settings, longest: int) -> Made:
    take(trace, settings, "factor", "beta_fast", "beta_slow", "attention_factor", "truncate")
    factor = settings.number("factor")
    made = parts.yarn(
        factor,
        transformers5.yarn_attention(trace, settings, factor),
        beta_fast=settings.number("beta_fast", 32),
        beta_slow=settings.number("beta_slow", 1),
        truncate=bool(settings.get("truncate", True)),
    )
    return (*made, trained_length(settings))


def sglang_yarn(trace: Trace, settings: Settings, longest: int) -> Made:
    """attention_factor is not read; attn_factor multiplies."""
    take(trace, settings, "factor", "beta_fast", "beta_slow", "attn_factor", "truncate")
    if settings.get("extrapolation_factor", 1) != 1:
        raise NotModelledError("an extrapolation_factor other than 1")
    factor = settings.number("factor")
    made = parts.yarn(
        factor,
        sglang_attention(trace, settings, factor),
        beta_fast=settings.number("beta_fast", 32),
        beta_slow=settings.number("beta_slow", 1),
        truncate=bool(settings.get("truncate", True)),
    )
    return (*made, trained_length(settings))


def sglang_attention(trace: Trace, settings: Settings, factor: float) -> float:
    """The ratio of the mscales if both are there, else from the factor; times attn_factor."""
    both = "mscale" in settings.values and "mscale_all_dim" in settings.values
    mscale, all_dim = settings.get("mscale"), settings.get("mscale_all_dim")
    if both and mscale is not None and all_dim is not None:
        take(trace, settings, "mscale", "mscale_all_dim")
        over = parts.magnitude(factor, number(mscale, "mscale"))
        ours = over / parts.magnitude(factor, number(all_dim, "mscale_all_dim"))
    else:
        ours = parts.magnitude(factor)
    return ours * settings.number("attn_factor", 1.0)


def deepseek_yarn(trace: Trace, settings: Settings, longest: int) -> Made:
    """A lone mscale counts, the ramp is always truncated, attention_factor is not read."""
    take(trace, settings, "factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
    made = parts.yarn_of_mscales(settings, settings.number("factor"))
    return (*made, trained_length(settings))


def sglang_deepseek_yarn(trace: Trace, settings: Settings, longest: int) -> Made:
    scaling, attention, trained = deepseek_yarn(trace, settings, longest)
    return scaling, attention * settings.number("attn_factor", 1.0), trained


def longrope(trace: Trace, settings: Settings, longest: int) -> Made:
    """factor and attention_factor are not read; the ratio of the lengths decides."""
    take(trace, settings, "short_factor", "long_factor", "short_mscale", "long_mscale")
    trained = trained_length(settings)
    attention = parts.longrope_attention(longest / trained, trained)
    for name in ("short_mscale", "long_mscale"):
        if settings.get(name) is not None and settings.number(name) != attention:
            raise NotModelledError(f"{name}, a factor on cos and sin that changes with the table")
    short, long = (parts.factor_list(settings, f"{which}_factor") for which in ("short", "long"))
    return (*parts.longrope(short, long, longest / trained, attention), trained)


def linear(trace: Trace, settings: Settings, longest: int) -> Made:
    """A factor written as a whole number is iterated over and stops the server."""
    if isinstance(settings.get("factor"), int):
        raise RefusedError("linear with a whole number as factor: write 4.0, not 4")
    return transformers5.linear(trace, settings, longest)


def vllm_dynamic(trace: Trace, settings: Settings, longest: int) -> Made:
    """Static, and without `max_trained_positions` its multiplier is 1: nothing is scaled."""
    if "alpha" in settings.values:
        take(trace, settings, "alpha")
        return (*parts.ntk(settings.number("alpha")), longest)
    factor, trained = settings.number("factor"), settings.get("max_trained_positions", longest)
    trained = whole(trained, "max_trained_positions")
    if trained == longest and "factor" in settings.sources:
        trace.mark(settings.sources["factor"], "ignored", "the multiplier is 1 at this length")
    return (*parts.ntk(factor * longest / trained - (factor - 1)), longest)


def sglang_dynamic(trace: Trace, settings: Settings, longest: int) -> Made:
    """Static: the base of the longest sequence from position 0 on."""
    if "alpha" in settings.values:
        take(trace, settings, "alpha")
        return (*parts.ntk(settings.number("alpha")), longest)
    take(trace, settings, "factor")
    factor = settings.number("factor")
    return (*parts.ntk(factor * factor - (factor - 1)), longest)


def proportional(trace: Trace, settings: Settings, longest: int) -> Made:
    """The factor is not read."""
    take(trace, settings, "partial_rotary_factor")
    return (*parts.proportional(settings.number("partial_rotary_factor", 1.0)), longest)


def trained_length(settings: Settings) -> int:
    """The original length that the loading has put into the block."""
    return whole(settings.get("original_max_position_embeddings"), "original length")


COMMON: dict[str, Maker] = {
    "default": transformers5.default,
    "linear": linear,
    "llama3": transformers5.llama3,
    "longrope": longrope,
    "proportional": proportional,
}
VLLM: dict[str, Maker] = {
    **COMMON,
    "yarn": vllm_yarn,
    "dynamic": vllm_dynamic,
    "deepseek_yarn": deepseek_yarn,
}
SGLANG: dict[str, Maker] = {
    **COMMON,
    "yarn": sglang_yarn,
    "dynamic": sglang_dynamic,
    "deepseek_yarn": sglang_deepseek_yarn,
}
