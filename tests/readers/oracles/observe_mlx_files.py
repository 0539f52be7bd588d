"""What the model files of MLX-LM build: `python observe_mlx_files.py SITE OUT`.

Each model file that has a row in mlx.toml builds a small model from a few
configurations, and every rotation in its layers turns unit vectors at position 1. OUT
has, by model type and configuration, the different rotations of the layers as pairing,
rotated features, second and last frequency, and the factor on cos and sin. A
configuration at which the file stops is left out.
"""

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])

import mlx.core as mx
import numpy as np
from mlx_lm.utils import MODEL_REMAPPING

from ropelab.readers.mlx import ROWS

mx.set_default_device(mx.cpu)

# Sizes of a small model, for the arguments that insist on a value.
SIZES: dict[str, Any] = {
    "block_ff_dim": 64,
    "block_multiple_of": 8,
    "conv_L_cache": 3,
    "first_k_dense_replace": 1,
    "full_attention_interval": 2,
    "index_head_dim": 64,
    "index_n_heads": 2,
    "intermediate_size": 64,
    "kv_lora_rank": 32,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "linear_key_head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 32,
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "moe_layer_freq": 1,
    "n_embd": 256,
    "n_group": 1,
    "n_head": 4,
    "n_layer": 6,
    "n_routed_experts": 4,
    "num_layers": 6,
    "q_lora_rank": 32,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "v_head_dim": 64,
    "vocab_size": 64,
}
# What a few files want beside these.
OWN: dict[str, dict[str, Any]] = {
    "exaone4": {"sliding_window_pattern": "LLLG"},
    "exaone_moe": {"is_moe_layer": [False] * 6},
    "gemma3n_text": {
        "activation_sparsity_pattern": [0.0] * 6,
        "intermediate_size": [64] * 6,
    },
    "gemma4_text": {"num_kv_shared_layers": 0},
    "granitemoehybrid": {
        "layer_types": ["attention", "mamba"] * 3,
        "mamba_d_conv": 4,
        "mamba_d_head": 64,
        "mamba_d_state": 8,
        "mamba_n_groups": 1,
        "mamba_n_heads": 4,
        "mamba_proj_bias": False,
        "shared_intermediate_size": 32,
    },
    "llama4": {"num_experts_per_tok": 1},
    "mimo_v2_flash": {
        "hybrid_layer_pattern": [1, 0] * 3,
        "moe_layer_freq": [0] * 6,
        "swa_v_head_dim": 64,
    },
    "llama4_text": {"no_rope_layers": [1, 1, 1, 0, 1, 1]},
    "plamo3": {"sliding_window_pattern": 2},
    "lfm2": {"layer_types": ["full_attention", "conv"] * 3},
    "lfm2_moe": {"layer_types": ["full_attention", "conv"] * 3},
    "openelm": {
        "ffn_multipliers": [1.0] * 6,
        "model_dim": 256,
        "num_kv_heads": [2] * 6,
        "num_query_heads": [4] * 6,
        "num_transformer_layers": 6,
    },
    "qwen3_5_moe_text": {"num_experts": 0},
    "qwen3_5_text": {"num_experts": 0},
}
# Files and classes of language parts that have no file of their own name.
PARTS = {
    "gemma3n_text": ("gemma3n", "LanguageModel", "TextConfig"),
    "llama4": ("llama4", "LlamaModel", "TextArgs"),
    "qwen2_5_vl": ("qwen2", "Model", "ModelArgs"),
    "qwen2_5_vl_text": ("qwen2", "Model", "ModelArgs"),
    "qwen2_vl": ("qwen2", "Model", "ModelArgs"),
    "qwen2_vl_text": ("qwen2", "Model", "ModelArgs"),
    "qwen3_5_moe_text": ("qwen3_5", "TextModel", "TextModelArgs"),
    "qwen3_5_text": ("qwen3_5", "TextModel", "TextModelArgs"),
    "qwen3_vl_moe_text": ("qwen3_moe", "Model", "ModelArgs"),
    "qwen3_vl_text": ("qwen3", "Model", "ModelArgs"),
}


def observe(kind: str, keys: dict[str, Any]) -> list[list[Any]]:
    """Return the different rotations that the file of a type builds."""
    usual = (MODEL_REMAPPING.get(kind, kind), "Model", "ModelArgs")
    name, model_class, arguments_class = PARTS.get(kind, usual)
    module = importlib.import_module(f"mlx_lm.models.{name}")
    arguments = getattr(module, arguments_class)

    given = {**keys, **OWN.get(kind, {})}
    for parameter in inspect.signature(arguments).parameters.values():
        if parameter.name in given or is_about_rotation(parameter.name):
            continue
        if parameter.name in SIZES:
            given[parameter.name] = SIZES[parameter.name]
        elif parameter.default is inspect.Parameter.empty:
            given[parameter.name] = fill(parameter)
    model = getattr(module, model_class)(arguments.from_dict(given))

    found = []
    for path, rope in model.named_modules():
        rotates = "RoPE" in type(rope).__name__ or "Rotary" in type(rope).__name__
        if not rotates or "indexer" in path:
            continue
        rotation = describe(rope)
        if rotation not in found:
            found.append(rotation)
    return sorted(found)


def is_about_rotation(name: str) -> bool:
    keys = ("head_dim", "partial_rotary_factor", "qk_rope_head_dim", "rotary_dim")
    return name in keys or "rope" in name or "rotary" in name


def fill(parameter: inspect.Parameter) -> Any:
    """Return a small value of the declared type."""
    declared = str(parameter.annotation)
    usual = {"bool": False, "float": 1.0, "int": 2, "ist": [], "ict": {}}
    if "act" in parameter.name:
        return "silu"
    return next((usual[word] for word in usual if word in declared), "x")


def describe(rope: Any) -> list[Any]:
    """Return pairing, rotated features, two frequencies, and the factor on cos, sin."""
    width = getattr(rope, "dims", None) or getattr(rope, "dim", None)
    if width is None:  # DeepSeek-V2's own class
        width = 2 * len(np.array(rope._freqs))
    unit = np.zeros((1, 1, 2, width), np.float32)
    unit[..., 0] = 1
    turned = np.array(rope(mx.array(unit)))[0, 0, 1]
    if np.abs(turned[1:]).argmax() == 0:
        pairing, first, second = "interleaved", slice(0, None, 2), slice(1, None, 2)
    else:
        pairing, first, second = "half", slice(0, width // 2), slice(width // 2, None)

    ones = np.zeros((1, 1, 2, width), np.float32)
    ones[..., first] = 1
    turned = np.array(rope(mx.array(ones)))[0, 0, 1]
    angles = np.arctan2(turned[second], turned[first])
    factor = np.hypot(turned[first], turned[second]).mean()
    numbers = [float(f"{value:.6g}") for value in (angles[1], angles[-1], factor)]
    return [pairing, width, *numbers]


def main() -> None:
    asked = json.loads((Path(__file__).parent / "mlx_files.json").read_text())
    answers: dict[str, dict[str, Any]] = {}
    for kind in ROWS:
        answers[kind] = {}
        for name, keys in asked.items():
            try:
                answers[kind][name] = observe(kind, {**keys, "model_type": kind})
            except Exception:  # whatever stops the file
                continue
    lines = [f"{json.dumps(kind)}: {json.dumps(own)}" for kind, own in answers.items()]
    Path(sys.argv[2]).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
