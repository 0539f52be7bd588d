"""Small configurations of models whose positions have several axes, by model type."""

from typing import Any

VISION: dict[str, Any] = {"depth": 2, "num_heads": 2, "spatial_merge_size": 2}
TEXT: dict[str, Any] = {
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 32768,
    "vocab_size": 256,
    "head_dim": 32,
}


def make_config(
    model_type: str,
    block: dict[str, Any],
    vision: dict[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """Return the configuration of a whole model."""
    text = {**TEXT, "model_type": f"{model_type}_text", **more}
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, **block}
    return {
        "model_type": model_type,
        "text_config": text,
        "vision_config": {**VISION, **vision},
    }


RUNS = {"mrope_section": [4, 6, 6]}
TURNS = {"mrope_section": [6, 5, 5], "mrope_interleaved": True}
MODELS: dict[str, dict[str, Any]] = {
    "qwen2_vl": make_config("qwen2_vl", RUNS, {"embed_dim": 64, "hidden_size": 128}),
    "qwen2_5_vl": make_config(
        "qwen2_5_vl",
        RUNS,
        {"hidden_size": 64, "out_hidden_size": 128, "tokens_per_second": 2},
    ),
    "qwen3_vl": make_config(
        "qwen3_vl",
        TURNS,
        {"hidden_size": 64, "out_hidden_size": 128, "deepstack_visual_indexes": []},
    ),
    "glm4v": make_config(
        "glm4v",
        {"mrope_section": [2, 3, 3], "partial_rotary_factor": 0.5},
        {"hidden_size": 64, "out_hidden_size": 128, "image_size": 28},
    ),
    "ernie4_5_vl_moe": make_config(
        "ernie4_5_vl_moe",
        {"mrope_section": [5, 5, 6]},
        {"hidden_size": 64, "in_channels": 3},
        moe_num_experts=4,
        moe_k=2,
        moe_num_shared_experts=1,
        moe_intermediate_size=[32, 16],
    ),
}
PIXTRAL = {
    "model_type": "pixtral",
    "hidden_size": 64,
    "num_attention_heads": 2,
    "image_size": 512,
    "patch_size": 16,
    "rope_theta": 10000.0,
}
DINOV3 = {
    "model_type": "dinov3_vit",
    "hidden_size": 128,
    "num_attention_heads": 4,
    "image_size": 224,
    "patch_size": 16,
    "rope_theta": 100.0,
}
ENCODERS: dict[str, dict[str, Any]] = {"pixtral": PIXTRAL, "dinov3_vit": DINOV3}
