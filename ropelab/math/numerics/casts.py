"""Cast plans: which number format each stage of a rotary implementation rounds to.

A rotary implementation is a chain of six stages, and a bug report about precision is nearly always
one of them in the wrong format:

    position   m, as it enters the product
    inv_freq   theta_i, as it is stored
    angle      m * theta_i, as the product returns it
    table      cos and sin of the angle, as they are stored
    rotation   x1 cos - x2 sin and x1 sin + x2 cos: every product and every sum
    score      the rotated query and key as they enter the dot product, and the score itself
               (the sum inside is exact: matrix units accumulate more widely than they store)

Two differences between real implementations are not casts and have fields of their own: how
frequencies are computed (`frequencies`) and how angles are (`angles`).
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from ropelab.errors import InputError, unknown_name
from ropelab.math.numerics.formats import FORMATS, FloatFormat, format_named

Stage = Literal["position", "inv_freq", "angle", "table", "rotation", "score"]
STAGES: tuple[Stage, ...] = get_args(Stage)

# exact: base^(-2i/d) in float64, then one rounding to the format of inv_freq.
# float32_pow: 1 / base^(2i/d) with every step rounded to float32, as nearly all code writes it; the
# power itself is taken as correctly rounded, which math libraries miss by a last place or two.
Frequencies = Literal["exact", "float32_pow"]
# product: m * theta_i. recurrence: start at m, multiply by base^(-2/d) from pair to pair, each
# product rounded to the format of the angle (ggml's `theta *= theta_scale`).
Angles = Literal["product", "recurrence"]
RULES: dict[str, tuple[str, ...]] = {
    "frequencies": get_args(Frequencies),
    "angles": get_args(Angles),
}

EXACT = FORMATS["float64"]


@dataclass(frozen=True, kw_only=True)
class CastPlan:
    """The format of every stage and the two rules; by default everything is float64 and exact."""

    position: FloatFormat = EXACT
    inv_freq: FloatFormat = EXACT
    angle: FloatFormat = EXACT
    table: FloatFormat = EXACT
    rotation: FloatFormat = EXACT
    score: FloatFormat = EXACT
    frequencies: Frequencies = "exact"
    angles: Angles = "product"

    @property
    def label(self) -> str:
        """The plan as `parse_cast` reads it, 'float64' for the exact one.

        >>> CastPlan(table=FORMATS["bfloat16"]).label
        'table=bfloat16'
        """
        parts = [
            f"{name}={value.name if isinstance(value, FloatFormat) else value}"
            for name, value in self.inexact()
        ]
        return ",".join(parts) or EXACT.name

    @property
    def phase(self) -> "CastPlan":
        """The part that decides the angles: equal phases have equal angle errors."""
        return replace(self, table=EXACT, rotation=EXACT, score=EXACT)

    @property
    def stored(self) -> "CastPlan":
        """The part that decides the stored cos and sin."""
        return replace(self, rotation=EXACT, score=EXACT)

    def format_of(self, stage: Stage) -> FloatFormat:
        """Return the format of one stage."""
        value: FloatFormat = getattr(self, stage)
        return value

    def inexact(self) -> list[tuple[str, FloatFormat | str]]:
        """Return the stages and rules that are not exact, in the order of the chain."""
        values = [(field.name, getattr(self, field.name), field.default) for field in fields(self)]
        return [(name, value) for name, value, exact in values if value != exact]

    def repaired(self, name: str) -> "CastPlan":
        """Return the same plan with one stage or rule made exact."""
        changes: dict[str, Any] = {name: getattr(CastPlan(), name)}
        return replace(self, **changes)


def alone(stage: Stage, fmt: FloatFormat) -> CastPlan:
    """Return the plan in which everything is exact but one stage."""
    values: dict[str, Any] = {stage: fmt}
    return CastPlan(**values)


def everything(fmt: FloatFormat) -> CastPlan:
    """Return the plan with every stage in one format, frequencies exact before they are rounded."""
    values: dict[str, Any] = dict.fromkeys(STAGES, fmt)
    return CastPlan(**values)


def parse_cast(text: str) -> CastPlan:
    """Read `inv_freq=bfloat16,table=float16`; `all=...` sets every stage, later parts win.

    Raises:
        InputError: an unknown stage, format or rule, with the nearest one; a part without '='.
    """
    if text == EXACT.name:  # the label of the exact plan
        return CastPlan()
    values: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"cannot read cast '{part}': write stage=format, such as angle=tf32")
        if name in RULES:
            if value not in RULES[name]:
                raise unknown_name(f"value of {name}", value, RULES[name])
            values[name] = value
        elif name == "all":
            values |= dict.fromkeys(STAGES, format_named(value))
        elif name in STAGES:
            values[name] = format_named(value)
        else:
            raise unknown_name("stage", name, ("all", *STAGES, *RULES))
    return CastPlan(**values)


@dataclass(frozen=True)
class Preset:
    """A cast plan of a real implementation: the code it models, and a thread or file to read."""

    name: str
    plan: CastPlan
    models: str
    source: str


_FLOAT32 = "position=float32,inv_freq=float32,angle=float32,frequencies=float32_pow"
_BFLOAT16_AFTER = "table=bfloat16,rotation=bfloat16,score=bfloat16"

# name, casts, models, source
_PRESETS = (
    ("float64", "", "everything in float64: the reference", "this project"),
    (
        "float32",
        "all=float32,frequencies=float32_pow",
        "a model run in float32 throughout",
        "transformers LlamaRotaryEmbedding, dtype float32",
    ),
    (
        "float32_pow",
        "inv_freq=float32,frequencies=float32_pow",
        "only 1/(base ** (2i/d)) in float32, everything after it exact",
        "the line shared by transformers, torchtitan, nanochat and most others",
    ),
    (
        "transformers_llama",
        f"{_FLOAT32},{_BFLOAT16_AFTER}",
        "angles in float32 by an elementwise product, cos and sin cast to the model's bfloat16, "
        "rotation in bfloat16",
        "transformers 5.23 modeling_llama.py, LlamaRotaryEmbedding.forward",
    ),
    (
        "transformers_to_bfloat16",
        f"{_FLOAT32},inv_freq=bfloat16,{_BFLOAT16_AFTER}",
        "the same module after model.to(bfloat16): the inv_freq buffer is cast with the weights, "
        "and .float() cannot bring the lost bits back",
        "transformers#29496, sglang-jax#1472, modalities#462",
    ),
    (
        "half_cache_float16",
        "all=float16,frequencies=float32_pow",
        "positions, frequencies, angles and cache all in the model's float16",
        "EleutherAI/gpt-neox#1003, transformers#25681",
    ),
    (
        "half_cache_bfloat16",
        "all=bfloat16,frequencies=float32_pow",
        "positions and frequencies cast to bfloat16 before the product; also the effect of "
        "autocast on that product when it is a matmul",
        "huggingface/candle#3520 (qwen2.rs), diffusers#13920",
    ),
    (
        "positions_bfloat16",
        f"{_FLOAT32},position=bfloat16,{_BFLOAT16_AFTER}",
        "only the positions are built in the model's dtype",
        "oarriaga/paz#415 (positions as a cumsum in the input dtype)",
    ),
    (
        "tf32_matmul",
        f"{_FLOAT32},position=tf32,inv_freq=tf32,{_BFLOAT16_AFTER}",
        "angles as a float32 matmul that the GPU runs in TF32: both factors are rounded, the "
        "product is not",
        "transformers#48428 (up to 4.x; an elementwise product since), batch_invariant_ops#23",
    ),
    (
        "nanochat",
        f"{_FLOAT32},{_BFLOAT16_AFTER}",
        "tables computed in float32 once and kept in bfloat16; rotates the other way, which "
        "changes no score",
        "karpathy/nanochat gpt.py, _precompute_rotary_embeddings",
    ),
    (
        "torchtitan",
        f"{_FLOAT32},table=float32,rotation=float32,score=bfloat16",
        "complex64 table, rotation in float32, result cast back to bfloat16",
        "pytorch/torchtitan models/common/rope.py, ComplexRoPE",
    ),
    (
        "ggml",
        "position=float32,inv_freq=float32,angle=float32,angles=recurrence,"
        "table=float32,rotation=float32,score=float16",
        "angle of the next pair = angle of this pair * theta_scale, all in float32; keys cached in "
        "float16",
        "ggml_rope_cache_init in ggml-cpu/ops.cpp (llama.cpp)",
    ),
)
PRESETS: dict[str, Preset] = {
    name: Preset(name, parse_cast(cast), models, source) for name, cast, models, source in _PRESETS
}


def preset_named(name: str) -> Preset:
    """Return the preset of that name; InputError with the nearest name if there is none."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name]
