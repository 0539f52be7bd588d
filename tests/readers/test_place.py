"""Which features of a head rotate, where the head is wider than what rotates."""

from typing import Any

import pytest
import torch
from transformers.models.deepseek_v4 import modeling_deepseek_v4

from ropelab.readers import registry
from ropelab.readers.spec import NotModelledError, RopeSpec

SIZES = {"hidden_size": 1024, "num_attention_heads": 8}
MISTRAL4 = {**SIZES, "model_type": "mistral4", "head_dim": 128, "qk_rope_head_dim": 64}
DEEPSEEK4 = {**SIZES, "model_type": "deepseek_v4", "head_dim": 512}


def read_spec(config: dict[str, Any], layer: str) -> RopeSpec:
    reading = registry.read(registry.RUNTIMES["transformers-5"], config)
    return reading.layers[layer]


@pytest.mark.parametrize(
    ("config", "layer", "features"),
    [
        (MISTRAL4, "all", range(64, 128)),
        (DEEPSEEK4, "main", range(448, 512)),
        (DEEPSEEK4, "compress", range(448, 512)),
        ({**SIZES, "model_type": "glm4", "head_dim": 128}, "all", range(64)),
        ({**SIZES, "model_type": "llama"}, "all", range(128)),
        ({**SIZES, "model_type": "deepseek_v3"}, "all", range(64)),
    ],
)
def test_what_rotates(config: dict[str, Any], layer: str, features: range) -> None:
    assert read_spec(config, layer).rotated == features


def test_deepseek_v4_rotates_what_its_own_function_rotates() -> None:
    spec = read_spec(DEEPSEEK4, "main")
    angle = torch.full((1, 1, spec.rotary_dim // 2), 0.5)
    ones = torch.ones(1, 1, 1, spec.head_dim)

    turned = modeling_deepseek_v4.apply_rotary_pos_emb(ones, angle.cos(), angle.sin())

    moved = (turned[0, 0, 0] != 1).nonzero().flatten().tolist()
    assert moved == list(spec.rotated)


def test_vllm_rotates_the_last_features_too() -> None:
    yarn = {
        "rope_type": "yarn",
        "factor": 16,
        "original_max_position_embeddings": 65536,
    }
    config = {**DEEPSEEK4, "architectures": ["DeepseekV4ForCausalLM"]}
    config["rope_scaling"] = yarn
    reading = registry.read(registry.RUNTIMES["vllm"], config)
    assert reading.layers["main"].rotated == range(448, 512)


def test_a_place_has_to_fit_into_the_head() -> None:
    spec = read_spec({**SIZES, "model_type": "llama"}, "all")
    with pytest.raises(NotModelledError):
        RopeSpec(**{**vars(spec), "place": 2}).check()
