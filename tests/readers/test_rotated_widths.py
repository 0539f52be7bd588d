"""Rotated widths of heads where int(head_dim * (width / head_dim)) loses a feature."""

from collections.abc import Mapping
from typing import Any

import pytest

from ropelab.readers import registry

# The model files take the width as it is: modeling_gptj.py and modeling_codegen.py of
# transformers, gpt_j.py, minimax_m2.py and bailing_moe.py of SGLang, gptj.py, minimax.py
# and bailing_moe.py of MLX-LM, conversion/minimax.py of llama.cpp.
WIDTHS = [(98, 64), (44, 30), (88, 60), (92, 52), (90, 26), (86, 62), (52, 30), (94, 6)]


def make_gptj(head_dim: int, width: int, name: str = "gptj") -> Mapping[str, Any]:
    architecture = {"gptj": "GPTJForCausalLM", "codegen": "CodeGenForCausalLM"}[name]
    return {
        "model_type": name,
        "architectures": [architecture],
        "n_embd": 8 * head_dim,
        "n_head": 8,
        "n_positions": 2048,
        "rotary_dim": width,
    }


def make_other(head_dim: int, width: int, name: str) -> Mapping[str, Any]:
    architecture = {
        "minimax_m2": "MiniMaxM2ForCausalLM",
        "bailing_moe": "BailingMoeForCausalLM",
    }[name]
    return {
        "model_type": name,
        "architectures": [architecture],
        "hidden_size": 8 * head_dim,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "num_hidden_layers": 4,
        "head_dim": head_dim,
        "max_position_embeddings": 4096,
        "rope_theta": 5e6,
        "rotary_dim": width,
    }


@pytest.mark.parametrize(("head_dim", "width"), WIDTHS)
@pytest.mark.parametrize(
    ("runtime", "name"),
    [
        ("transformers-5", "gptj"),
        ("transformers-5", "codegen"),
        ("transformers-4.57", "gptj"),
        ("sglang", "gptj"),
        ("mlx-lm", "gptj"),
        ("tgi", "gptj"),
        ("sglang", "minimax_m2"),
        ("mlx-lm", "minimax_m2"),
        ("llama.cpp", "minimax_m2"),
        ("tensorrt-llm", "minimax_m2"),
        ("sglang", "bailing_moe"),
        ("mlx-lm", "bailing_moe"),
    ],
)
def test_a_width_that_is_taken_as_it_is_loses_nothing(
    runtime: str, name: str, head_dim: int, width: int
) -> None:
    assert int(head_dim * (width / head_dim)) == width - 1
    make = make_gptj if name in ("gptj", "codegen") else make_other
    config = make(head_dim, width, name)
    spec = registry.read(registry.RUNTIMES[runtime], config).main_spec
    assert spec is not None
    assert (spec.rotary_dim, spec.head_dim) == (width, head_dim)


def test_a_width_beside_a_share_that_counts_is_ignored() -> None:
    config = {**make_other(128, 64, "minimax_m2"), "partial_rotary_factor": 0.25}
    reading = registry.read(registry.RUNTIMES["transformers-5"], config)
    assert reading.main_spec is not None
    assert reading.main_spec.rotary_dim == 32
    status_of = {use.path: use.status for use in reading.keys}
    assert status_of["rotary_dim"] == "ignored"


@pytest.mark.parametrize(
    ("runtime", "name"),
    [
        ("vllm", "gptj"),
        ("vllm", "minimax_m2"),
        ("vllm", "bailing_moe"),
        # configuration_minimax_m2.py:102
        ("transformers-5", "minimax_m2"),
    ],
)
def test_a_width_that_becomes_a_share_loses_a_feature(runtime: str, name: str) -> None:
    make = make_gptj if name == "gptj" else make_other
    reading = registry.read(registry.RUNTIMES[runtime], make(98, 64, name))
    assert reading.outcome == "not modelled"
    assert reading.problem == "an odd rotated width of 63"


@pytest.mark.parametrize(
    ("name", "rotated"),
    [
        # hidden_size / heads: flash_llama_modeling.py:148, flash_qwen2_modeling.py:82,
        # flash_mixtral_modeling.py:195, flash_starcoder2_modeling.py:187,
        # flash_cohere_modeling.py:211
        ("llama", 128),
        ("granite", 128),
        ("phi3", 128),
        ("qwen2", 128),
        ("mixtral", 128),
        ("starcoder2", 128),
        ("cohere", 128),
        # flash_mistral_modeling.py:120, flash_gemma2_modeling.py:170
        ("mistral", 96),
        ("gemma", 96),
        ("gemma2", 96),
        ("gemma3_text", 96),
    ],
)
def test_tgi_reads_a_head_dim_in_few_files(name: str, rotated: int) -> None:
    config = {
        "model_type": name,
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "head_dim": 96,
        "max_position_embeddings": 4096,
        "rope_theta": 1e6,
    }
    spec = registry.read(registry.RUNTIMES["tgi"], config).main_spec
    assert spec is not None
    assert (spec.rotary_dim, spec.head_dim) == (rotated, rotated)
