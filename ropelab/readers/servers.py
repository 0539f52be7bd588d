"""vLLM and SGLang: configurations by transformers 5, frequencies of their own.

Read from vllm 0.33.0 (model_executor/layers/rotary_embedding,
transformers_utils/config.py, config/model.py) and sglang 0.5.23
(srt/layers/rotary_embedding, srt/models/llama.py, srt/utils/hf_transformers/common.py).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ropelab.math.scaling import NtkAware
from ropelab.readers import reader
from ropelab.readers.families import table
from ropelab.readers.reader import Made, Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
    short,
    whole,
)
from ropelab.readers.trace import MAXIMUM, MSCALES, ORIGINAL, Trace
from ropelab.readers.transformers import (
    Transformers5,
    fill_block,
    stop_unrotated,
)

LATENT = "deepseek_yarn"
# Types whose configuration class stops at scaling types, whoever runs the model.
STRICT = ("phi", "dory")
# Model types that pass mrope_positions_factor=1, unless videos are pruned.
UNLENGTHENED = ("qwen3", "qwen4")

UNMULTIPLIED, VLLM_LENGTHS, SGLANG_LENGTHS, UNSCALED = map(
    tuple, table("names")["servers"]
)


def lengths(trace: Trace, names: tuple[str, ...]) -> Iterator[int]:
    """Yield the values of some keys of lengths, after the class filled in a maximum."""
    usual, _ = trace.first((MAXIMUM,), trace.family.max_position_embeddings)
    for name in names:
        value = usual if name == MAXIMUM else trace.get(name)
        if value is not None:
            yield whole(value, name)


class Server(Transformers5):
    """The steps that vLLM and SGLang share."""

    # The keys of the length, if the class fills in no maximum.
    lengths = VLLM_LENGTHS

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        family = trace.family
        if family.needs_remote and not trace.whole.get("auto_map"):
            raise RefusedError(
                "the model file needs the configuration class of the weights (auto_map)"
            )
        if family.needs_block and not trace.block("rope_scaling"):
            raise RefusedError("the model file stops without rope_scaling")
        if family.needs_head_dim and not trace.get("head_dim"):
            raise RefusedError("the model file needs a head_dim")
        for key in family.needs_keys:
            if not trace.has(key):
                raise RefusedError(f"the model file needs the key {key}")

        scaled_types = trace.get("yarn_only_types")
        if family.needs_lists and not isinstance(trace.get("rope_theta"), list):
            raise RefusedError(
                "the model file needs lists with a number for each layer"
            )
        is_step = family.name == "step3p5" and trace.block("rope_scaling")
        if is_step and scaled_types != ["full_attention"]:
            raise NotModelledError("a scaling of layers other than full attention")

        block = trace.block("rope_parameters")
        if family.sliding_as_full and block and "full_attention" not in block:
            raise NotModelledError("a dict that its configuration class passes over")

        specs = super().read(trace)
        key = family.local_head_key
        if not key or not trace.has(key) or "sliding_attention" not in specs:
            return specs
        sliding = specs["sliding_attention"]
        head_dim = whole(trace.get(key), key)
        share = number(trace.get("partial_rotary_factor", 1.0), "partial_rotary_factor")
        width = reader.width_of(head_dim, share)
        wider = replace(sliding, head_dim=head_dim, rotary_dim=width).check()
        return {**specs, "sliding_attention": wider}

    def settings(self, trace: Trace) -> dict[str, Settings]:
        if trace.family.scaled_beside:
            return {"all": read_beside(trace)}
        if trace.family.own_block:
            return {"all": fill_block(trace, "rope_parameters", None)}
        settings = super().settings(trace)
        if trace.family.sliding_as_full and "sliding_attention" in settings:
            fill_sliding(settings["full_attention"], settings["sliding_attention"])
        return settings

    def spec(self, settings: Settings) -> RopeSpec:
        # The loading by transformers has to pass first.
        kind = Transformers5.kind(self, settings)
        if isinstance(kind, str) and kind in Transformers5.methods:
            settings.needs(*Transformers5.methods[kind].needs)

        family = settings.trace.family
        base = settings.get("rope_theta")
        if base is None:
            stop_unrotated(settings.trace)
        if family.unrotated_at_zero and base == 0:
            raise NotModelledError("a base of 0, with which its layers rotate nothing")
        # The configuration class refuses the type.
        if family.name.startswith(STRICT) and kind in family.refuses:
            raise RefusedError(f"'{family.name}' takes no rope type '{kind}'")
        is_compressed = family.name == "deepseek_v4" and settings.layer == "compress"
        if is_compressed and kind != "yarn":
            raise NotModelledError(
                "DeepSeek-V4's compressed layers with anything but yarn"
            )
        if family.fixed_base is not None:
            settings.mark("rope_theta", "ignored", "the model file has its own base")
            settings.put("rope_theta", family.fixed_base, "its model file")
        return super().spec(settings)

    def head_dim(self, trace: Trace) -> int:
        # A width of 0 is that of DeepSeek 1, which has the usual attention.
        if trace.family.latent and trace.get("qk_rope_head_dim") == 0:
            return reader.head_dim_of(trace, ())
        # The key head_dim is read by classes of transformers alone.
        if trace.family.latent and trace.get("qk_rope_head_dim") is not None:
            return reader.head_dim_of(trace, ("qk_rope_head_dim",))
        return super().head_dim(trace)

    def pairing(self, trace: Trace) -> Any:
        return "half" if trace.get("qk_rope_head_dim") == 0 else super().pairing(trace)

    def method(self, settings: Settings) -> Made:
        # The servers have rotary classes of their own, not those of transformers.
        return reader.Reader.method(self, settings)

    def kind(self, settings: Settings) -> Any:
        # The type of every scaled model with latent attention is replaced, but for
        # MiniCPM3.
        kind = settings.get("rope_type")
        family = settings.trace.family
        if family.unscaled:
            return "default"
        if family.latent and kind != "default" and family.name != "minicpm3":
            return LATENT
        return kind

    def width(self, settings: Settings, head_dim: int) -> int:
        # The share in the block is read, also where the class of transformers rotates the
        # whole head.
        kind = settings.get("rope_type")
        family = settings.trace.family
        # The share of bailing_hybrid is that of another part.
        if (
            family.rotates_whole
            or kind == "proportional"
            or family.name == "bailing_hybrid"
        ):
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
        # Two names of the type may differ if they mean the same.
        old = settings.get("type")
        new = settings.get("rope_type")
        if old not in (None, new) and (old, new) not in reader.SAME_TYPES:
            raise RefusedError(f"conflict between rope_type={new} and type={old}")
        # It is renamed after loading, and then filled in as transformers does it.
        if new == "su":
            settings.values["rope_type"] = "longrope"
            paths = (ORIGINAL, f"rope_scaling.{ORIGINAL}", MAXIMUM)
            settings.put_first(ORIGINAL, paths, None, "")
        hand_on(settings)
        return super().spec(settings)

    def limit_length(self, settings: Settings) -> tuple[int, int]:
        trace = settings.trace
        length = min(lengths(trace, VLLM_LENGTHS), default=2048)
        if trace.text.get("model_max_length"):
            length = whole(trace.get("model_max_length"), "model_max_length")

        kind = settings.get("rope_type")
        factor = settings.get("factor")
        original = trace.get(ORIGINAL) if kind == "longrope" else None
        if original is not None:
            return whole(original, "original length"), 0
        # Gemma 3 files state the length after scaling: _get_and_verify_max_len leaves
        # them alone.
        if kind in UNMULTIPLIED or factor is None or "gemma3" in trace.model_type:
            return length, 0
        return int(length * number(factor, "factor")), length


def hand_on(settings: Settings) -> None:
    """Drop the keys that a model file of vLLM does not hand on (gpt-oss)."""
    handed_on = settings.trace.family.handed_on
    if not handed_on:
        return

    settings.needs(*(name for name in handed_on if name != "truncate"))
    for name in settings.values.keys() - {*handed_on, "rope_theta"}:
        if name != "rope_type":
            settings.mark(name, "ignored", "its model file does not hand it on")
        del settings.values[name]
    settings.values["rope_type"] = "yarn"


class Sglang(Server):
    def settings(self, trace: Trace) -> dict[str, Settings]:
        settings = super().settings(trace)
        if trace.family.blockless:
            fill_blockless(settings["all"])
        return settings

    def spec(self, settings: Settings) -> RopeSpec:
        if settings.get("rope_theta") is None:
            stop_unrotated(settings.trace)
        if settings.trace.family.whole_base:
            base = int(settings.number("rope_theta"))
            settings.put("rope_theta", base, settings.sources["rope_theta"])
        return super().spec(settings)

    def kind(self, settings: Settings) -> Any:
        family = settings.trace.family
        if family.name in UNSCALED:
            return "default"
        return super().kind(settings)

    def limit_length(self, settings: Settings) -> tuple[int, int]:
        trace = settings.trace
        factor = settings.get("factor")
        length = next(lengths(trace, SGLANG_LENGTHS), 2048)
        # The factor multiplies in a flat block only, and only without an original
        # length.
        depth = settings.sources.get("rope_type", "").count(".")
        nested = trace.family.layers or depth > 1
        known = ORIGINAL in settings.values or settings.get("rope_type") == "llama3"
        if nested or known or factor is None:
            return length, 0
        return int(length * number(factor, "factor")), length

    def width(self, settings: Settings, head_dim: int) -> int:
        if settings.trace.get("rope_rotate_half_dims") is True:
            return reader.width_of(head_dim, 0.5)
        if settings.trace.family.share_keys:
            return width_by_keys(settings, head_dim)
        proportional = settings.get("rope_type") == "proportional"
        if not settings.trace.family.shares and not proportional:
            return reader.width_of(head_dim, 1.0)
        return super().width(settings, head_dim)


def width_by_keys(settings: Settings, head_dim: int) -> int:
    """Return the rotated width of model files that read the share outside the block.

    They have `getattr(config, "partial_rotary_factor", 1)`.

    transformers 5.19, which SGLang 0.5.23 runs, leaves the key of the file there
    (modeling_rope_utils.py:763), also beside a block that has another share.
    """
    trace = settings.trace
    family = trace.family
    note = "the model file takes the share from beside the block"
    settings.mark("partial_rotary_factor", "ignored", note)

    for key in family.share_keys:
        is_width = key == "rotary_dim"
        if trace.has(key):
            value = trace.get(key)
            trace.mark(key, "used")
            if is_width:
                return reader.width_of(head_dim, whole(value, key) / head_dim)
            return reader.width_of(head_dim, number(value, key))
        if key == "partial_rotary_factor" and family.partial is not None:
            return reader.width_of(head_dim, family.partial)
    if family.usual_width:
        return reader.width_of(head_dim, family.usual_width / head_dim)
    return reader.width_of(head_dim, 1.0)


def fill_blockless(settings: Settings) -> None:
    """Set the base of a class without a block of its own (GPT-J).

    transformers 5.19 takes both keys of an older file out of the configuration
    (configuration_utils.py:345), and a base inside rope_parameters is not looked at.
    """
    trace = settings.trace
    base = trace.get("rope_theta", 10000.0)
    source = "rope_theta"
    if trace.block("rope_scaling") and base:
        note = "dropped with rope_scaling before the model file looks"
        trace.mark("rope_theta", "ignored", note)
        base = 10000.0
        source = "default of the model file"
    settings.put("rope_theta", base, source)


def read_beside(trace: Trace) -> Settings:
    """Return the settings of Grok, whose keys of a scaling are beside the base."""
    base, source = trace.first(("rope_theta", "rope_parameters.rope_theta"), 10000.0)
    settings = Settings(trace)
    settings.put("rope_theta", base, source or "default of the model file")

    kind = trace.get("rope_type") or "original"
    settings.put("rope_type", "default", "rope_type")
    if kind == "original":
        return settings
    if kind not in ("yarn", "yarn_linear"):
        raise NotModelledError(f"a rope_type of '{short(kind)}'")

    settings.put("rope_type", "yarn", "rope_type")
    for name, key in (
        ("factor", "scaling_factor"),
        (ORIGINAL, ORIGINAL),
        ("extrapolation_factor", "extrapolation_factor"),
        ("beta_fast", "beta_fast"),
        ("beta_slow", "beta_slow"),
    ):
        if trace.get(key) is not None:
            settings.put(name, trace.get(key), key)
    return settings


def fill_sliding(full: Settings, sliding: Settings) -> None:
    """Set base and share of layers with a window to those of full attention if missing."""
    family = sliding.trace.family
    own = {family.layer_base_keys.get("sliding_attention", "")}
    for name in ("rope_theta", "partial_rotary_factor"):
        source = sliding.sources.get(name, "")
        if source in own or source.startswith("rope_parameters.sliding_attention"):
            continue
        if name in full.values:
            sliding.put(name, full.values[name], full.sources[name])


@reader.scaling_type("servers", "linear")
def linear_of_float(settings: Settings) -> Made:
    # A factor written as a whole number is iterated over, which stops the server.
    if isinstance(settings.get("factor"), int):
        raise RefusedError("linear with a whole number as factor: write 4.0, not 4")
    return reader.linear(settings)


@reader.scaling_type("vllm", "yarn", "telechat3-yarn")
def vllm_yarn(settings: Settings) -> Made:
    # attention_factor counts, as in transformers.
    factor = settings.number("factor")
    trained = settings.original()
    if settings.get("rope_type") == "telechat3-yarn":
        return reader.make_yarn(settings, factor, reader.magnitude(factor, 0.7))
    # The table of models with position axes is longer, and the ramp comes from its
    # length.
    shorter = settings.trace.model_type.startswith(UNLENGTHENED)
    if settings.get("mrope_section") and not shorter:
        trained *= 4
    attention = reader.find_attention(settings, factor)
    return reader.make_yarn(settings, factor, attention, trained)


@reader.scaling_type("vllm", "ntk")
def vllm_ntk(settings: Settings) -> Made:
    # The base times the factor, and each frequency divided by factor^(2/width) on top.
    if settings.get("mixed_b") is not None:
        raise NotModelledError("ntk with mixed_b")
    server = Vllm()
    factor = settings.number("factor")
    pairs = server.width(settings, server.head_dim(settings.trace)) // 2
    divisors = tuple(factor ** (pair / pairs) for pair in range(1, pairs + 1))
    return reader.longrope((divisors, divisors), 1.0, settings.longest)


@reader.scaling_type("sglang", "yarn")
def sglang_yarn(settings: Settings) -> Made:
    if settings.get("extrapolation_factor", 1) != 1:
        raise NotModelledError("an extrapolation_factor other than 1")
    factor = settings.number("factor")
    family = settings.trace.family
    if family.name == "deepseek_v4" or family.scaled_beside:
        # Their classes rotate by tables of their own, without a factor on cos and sin.
        return reader.make_yarn(settings, factor, 1.0)
    if family.counts_attention_factor and settings.get("attention_factor") is not None:
        return reader.make_yarn(settings, factor, settings.number("attention_factor"))

    attention = reader.magnitude(factor)
    # Unlike in transformers, mscales of 0 count.
    if all(settings.get(name) is not None for name in MSCALES):
        attention = reader.mscale_ratio(settings, factor)
    # attention_factor is not read; attn_factor multiplies.
    attention *= settings.number("attn_factor", 1.0)
    return reader.make_yarn(settings, factor, attention)


@reader.scaling_type("sglang", "deepseek_yarn")
def sglang_latent_yarn(settings: Settings) -> Made:
    # attn_factor multiplies here, too.
    scaling, attention, trained = reader.mscale_yarn(settings)
    return scaling, attention * settings.number("attn_factor", 1.0), trained


@reader.scaling_type("servers", "longrope")
def longrope(settings: Settings) -> Made:
    # factor and attention_factor are not read; the ratio of the lengths decides.
    tables = settings.lists()
    trained = settings.original()
    ratio = settings.longest / trained
    attention = reader.longrope_attention(ratio, trained)
    for name in ("short_mscale", "long_mscale"):
        if settings.number(name, attention) != attention:
            raise NotModelledError(
                f"{name}, a factor on cos and sin that changes with the table"
            )
    return reader.longrope(tables, ratio, trained)


@reader.scaling_type("vllm", "dynamic")
def vllm_dynamic(settings: Settings) -> Made:
    if "alpha" in settings.values:
        return reader.raise_base(settings)
    # Static, and without max_trained_positions the multiplier is 1: nothing is scaled.
    longest = settings.longest
    factor = settings.number("factor")
    key = "max_trained_positions"
    trained = whole(settings.get(key, longest), key)
    if trained == longest:
        settings.mark("factor", "ignored", "the multiplier is 1 at this length")
    return NtkAware(factor=factor * longest / trained - (factor - 1)), 1.0, longest


@reader.scaling_type("sglang", "dynamic")
def sglang_dynamic(settings: Settings) -> Made:
    if "alpha" in settings.values:
        return reader.raise_base(settings)
    # Static: the base of the longest sequence from position 0 on.
    factor = settings.number("factor")
    return NtkAware(factor=factor * factor - (factor - 1)), 1.0, settings.longest


COMMON = {**Transformers5.methods, **reader.methods_of("servers")}
Vllm.methods = COMMON | reader.methods_of("vllm")
Sglang.methods = COMMON | reader.methods_of("sglang")
