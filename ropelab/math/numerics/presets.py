"""What real implementations do, as cast plans, each with the code or thread it models."""

from dataclasses import dataclass

from ropelab.errors import unknown_name
from ropelab.math.numerics.casts import CastPlan, parse_cast


@dataclass(frozen=True)
class Preset:
    """A named plan: what it models, and where that can be read."""

    name: str
    plan: CastPlan
    models: str
    source: str


def _preset(name: str, cast: str, models: str, source: str) -> Preset:
    return Preset(name, parse_cast(cast), models, source)


_FLOAT32 = "position=float32,inv_freq=float32,angle=float32,frequencies=float32_pow"

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        _preset("float64", "", "everything in float64: the reference", "this project"),
        _preset(
            "float32",
            "all=float32,frequencies=float32_pow",
            "a model run in float32 throughout",
            "transformers LlamaRotaryEmbedding, dtype float32",
        ),
        _preset(
            "float32_pow",
            "inv_freq=float32,frequencies=float32_pow",
            "only 1/(base ** (2i/d)) in float32, everything after it exact",
            "the line shared by transformers, torchtitan, nanochat and most others",
        ),
        _preset(
            "transformers_llama",
            f"{_FLOAT32},table=bfloat16,rotation=bfloat16,score=bfloat16",
            "angles in float32 by an elementwise product, cos and sin cast to the model's "
            "bfloat16, rotation in bfloat16",
            "transformers 5.23 modeling_llama.py, LlamaRotaryEmbedding.forward",
        ),
        _preset(
            "transformers_to_bfloat16",
            f"{_FLOAT32},inv_freq=bfloat16,table=bfloat16,rotation=bfloat16,score=bfloat16",
            "the same module after model.to(bfloat16): the inv_freq buffer is cast with the "
            "weights, and .float() cannot bring the lost bits back",
            "transformers#29496, sglang-jax#1472, modalities#462",
        ),
        _preset(
            "half_cache_float16",
            "all=float16,frequencies=float32_pow",
            "positions, frequencies, angles and cache all in the model's float16",
            "EleutherAI/gpt-neox#1003, transformers#25681",
        ),
        _preset(
            "half_cache_bfloat16",
            "all=bfloat16,frequencies=float32_pow",
            "positions and frequencies cast to bfloat16 before the product; also what autocast "
            "makes of that product when it is a matmul",
            "huggingface/candle#3520 (qwen2.rs), diffusers#13920",
        ),
        _preset(
            "positions_bfloat16",
            f"{_FLOAT32},position=bfloat16,table=bfloat16,rotation=bfloat16,score=bfloat16",
            "only the positions are built in the model's dtype",
            "oarriaga/paz#415 (positions as a cumsum in the input dtype)",
        ),
        _preset(
            "tf32_matmul",
            f"{_FLOAT32},position=tf32,inv_freq=tf32,table=bfloat16,rotation=bfloat16,score=bfloat16",
            "angles as a float32 matmul that the GPU runs in TF32: both factors are rounded, the "
            "product is not",
            "transformers#48428 (up to 4.x; an elementwise product since), batch_invariant_ops#23",
        ),
        _preset(
            "nanochat",
            f"{_FLOAT32},table=bfloat16,rotation=bfloat16,score=bfloat16",
            "tables computed in float32 once and kept in bfloat16; turns the other way, which "
            "changes no score",
            "karpathy/nanochat gpt.py, _precompute_rotary_embeddings",
        ),
        _preset(
            "torchtitan",
            f"{_FLOAT32},table=float32,rotation=float32,score=bfloat16",
            "complex64 table, rotation in float32, result cast back to bfloat16",
            "pytorch/torchtitan models/common/rope.py, ComplexRoPE",
        ),
        _preset(
            "ggml",
            "position=float32,inv_freq=float32,angle=float32,angles=recurrence,"
            "table=float32,rotation=float32,score=float16",
            "angle of the next pair = angle of this pair * theta_scale, all in float32; keys "
            "cached in float16",
            "ggml_rope_cache_init in ggml-cpu/ops.cpp (llama.cpp)",
        ),
    )
}


def preset_named(name: str) -> Preset:
    """The preset of that name; InputError with the nearest name if there is none."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name]
