"""vLLM and SGLang: configurations by transformers 5, frequencies of their own.

Read from vllm 0.33.0 (model_executor/layers/rotary_embedding, transformers_utils/config.py,
config/model.py) and sglang 0.5.23 (srt/layers/rotary_embedding, srt/models/llama.py,
srt/utils/hf_transformers/common.py).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from ropelab.audit.runtimes import reader
from ropelab.audit.runtimes.families import table
from ropelab.audit.runtimes.reader import Made, Method, Settings
from ropelab.audit.runtimes.spec import NotModelledError, RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import LISTS, MAXIMUM, MSCALES, ORIGINAL, Trace
from ropelab.audit.runtimes.transformers import Transformers5
from ropelab.math.scaling import NtkAware

LATENT = "deepseek_yarn"

UNMULTIPLIED, VLLM_LENGTHS, SGLANG_LENGTHS = (tuple(row) for row in table("names")["servers"])


def lengths(trace: Trace, names: tuple[str, ...]) -> Iterator[int]:
    """Yield the lengths of the loaded configuration, where the class fills in a maximum."""
    usual = trace.first((MAXIMUM,), trace.family.max_position_embeddings)[0]
    given = ((name, usual if name == MAXIMUM else trace.get(name)) for name in names)
    return (whole(value, name) for name, value in given if value is not None)


class Server(Transformers5):
    """The steps that vLLM and SGLang share."""

    def spec(self, settings: Settings) -> RopeSpec:
        # The loading by transformers has to pass first.
        kind = Transformers5.kind(self, settings)
        if not isinstance(kind, str) or kind not in Transformers5.methods:
            raise RefusedError(self.unknown.format(kind))
        settings.needs(*Transformers5.methods[kind].needs)
        return super().spec(settings)

    def head_dim(self, trace: Trace) -> int:
        if trace.family.latent and trace.get("qk_rope_head_dim") == 0:  # attention of DeepSeek 1
            return reader.head_dim_of(trace, ())
        return super().head_dim(trace)

    def pairing(self, trace: Trace) -> Any:
        return "half" if trace.get("qk_rope_head_dim") == 0 else super().pairing(trace)

    def method(self, settings: Settings) -> Made:
        return reader.Reader.method(self, settings)  # rotary classes of their own

    def kind(self, settings: Settings) -> Any:
        # Every scaled model with latent attention but MiniCPM3 gets its type replaced.
        kind, family = settings.get("rope_type"), settings.trace.family
        return LATENT if family.latent and kind != "default" and family.name != "minicpm3" else kind

    def width(self, settings: Settings, head_dim: int) -> int:
        # The share in the block counts also where transformers' class rotates the whole head.
        if settings.get("rope_type") == "proportional":
            return head_dim
        settings.mark("partial_rotary_factor", "used")
        return reader.width_of(head_dim, settings.number("partial_rotary_factor", 1.0))

    def softmax_factor(self, settings: Settings) -> float:
        # `attention_factor: 1` switches DeepSeek's factor on whole scores off.
        if settings.get("attention_factor") == 1.0:
            return 1.0
        return super().softmax_factor(settings)


class Vllm(Server):
    def spec(self, settings: Settings) -> RopeSpec:
        # Two type names may differ only where they mean the same.
        old, new = settings.get("type"), settings.get("rope_type")
        if old not in (None, new) and (old, new) not in reader.SAME_TYPES:
            raise RefusedError(f"conflict between rope_type={new} and type={old}")
        if new == "su":  # renamed after loading, and then filled in as by transformers
            settings.values["rope_type"] = "longrope"
            settings.put_first(ORIGINAL, (ORIGINAL, f"rope_scaling.{ORIGINAL}", MAXIMUM), None, "")
        return super().spec(settings)

    def claimed(self, settings: Settings) -> tuple[int, bool]:
        trace = settings.trace
        length = min(lengths(trace, VLLM_LENGTHS), default=2048)
        if trace.text.get("model_max_length"):
            length = whole(trace.get("model_max_length"), "model_max_length")
        kind, factor = settings.get("rope_type"), settings.get("factor")
        if kind == "longrope" and (original := trace.get(ORIGINAL)) is not None:
            return whole(original, "original length"), False
        # Gemma 3 files state the length after scaling: _get_and_verify_max_len leaves them alone.
        if kind in UNMULTIPLIED or factor is None or "gemma3" in trace.model_type:
            return length, False
        return int(length * number(factor, "factor")), True


class Sglang(Server):
    def claimed(self, settings: Settings) -> tuple[int, bool]:
        trace, factor = settings.trace, settings.get("factor")
        length = next(lengths(trace, SGLANG_LENGTHS), 2048)
        # The factor multiplies in a flat block only, and only without an original length.
        flat = not trace.family.layers and settings.sources.get("rope_type", "").count(".") <= 1
        known = ORIGINAL in settings.values or settings.get("rope_type") == "llama3"
        if not flat or known or factor is None:
            return length, False
        return int(length * number(factor, "factor")), True

    def width(self, settings: Settings, head_dim: int) -> int:
        # SGLang's Llama takes the share from an attribute of the class, not from the block.
        if not settings.trace.family.shares and settings.get("rope_type") != "proportional":
            return reader.width_of(head_dim, 1.0)
        return super().width(settings, head_dim)


def linear_of_float(settings: Settings) -> Made:
    # A factor written as a whole number is iterated over, which stops the server.
    if isinstance(settings.get("factor"), int):
        raise RefusedError("linear with a whole number as factor: write 4.0, not 4")
    return reader.linear(settings)


def vllm_yarn(settings: Settings) -> Made:
    # attention_factor counts, as in transformers.
    factor = settings.number("factor")
    return reader.coded_yarn(settings, factor, reader.stated_attention(settings, factor))


def sglang_yarn(settings: Settings) -> Made:
    if settings.get("extrapolation_factor", 1) != 1:
        raise NotModelledError("an extrapolation_factor other than 1")
    factor = settings.number("factor")
    attention = reader.magnitude(factor)
    # Unlike in transformers, mscales of 0 count.
    if all(settings.get(name) is not None for name in MSCALES):
        attention = reader.mscale_ratio(settings, factor)
    # attention_factor is not read; attn_factor multiplies.
    return reader.coded_yarn(settings, factor, attention * settings.number("attn_factor", 1.0))


def sglang_latent_yarn(settings: Settings) -> Made:
    # attn_factor multiplies here, too.
    scaling, attention, trained = reader.mscale_yarn(settings)
    return scaling, attention * settings.number("attn_factor", 1.0), trained


def longrope(settings: Settings) -> Made:
    # factor and attention_factor are not read; the ratio of the lengths decides.
    tables, trained = settings.lists(), settings.original()
    ratio = settings.longest / trained
    attention = reader.longrope_attention(ratio, trained)
    for name in ("short_mscale", "long_mscale"):
        if settings.number(name, attention) != attention:
            raise NotModelledError(f"{name}, a factor on cos and sin that changes with the table")
    return reader.longrope(tables, ratio, trained)


def vllm_dynamic(settings: Settings) -> Made:
    if "alpha" in settings.values:
        return reader.of_alpha(settings)
    # Static, and without max_trained_positions the multiplier is 1: nothing is scaled.
    longest, factor = settings.longest, settings.number("factor")
    trained = whole(settings.get("max_trained_positions", longest), "max_trained_positions")
    if trained == longest:
        settings.mark("factor", "ignored", "the multiplier is 1 at this length")
    return NtkAware(factor=factor * longest / trained - (factor - 1)), 1.0, longest


def sglang_dynamic(settings: Settings) -> Made:
    if "alpha" in settings.values:
        return reader.of_alpha(settings)
    # Static: the base of the longest sequence from position 0 on.
    factor = settings.number("factor")
    return NtkAware(factor=factor * factor - (factor - 1)), 1.0, settings.longest


COMMON = {
    **Transformers5.methods,
    "linear": Method(linear_of_float, ("factor",)),
    "longrope": Method(longrope, (*LISTS, ORIGINAL)),
    "proportional": Method(partial(reader.proportional, factor=1.0)),
}
Vllm.methods = {
    **COMMON,
    "yarn": Method(vllm_yarn, ("factor", ORIGINAL)),
    "dynamic": Method(vllm_dynamic, ("factor",)),
    LATENT: Method(reader.mscale_yarn),
}
Sglang.methods = {
    **COMMON,
    "yarn": Method(sglang_yarn, ("factor", ORIGINAL)),
    "dynamic": Method(sglang_dynamic, ("factor",)),
    LATENT: Method(sglang_latent_yarn),
}
