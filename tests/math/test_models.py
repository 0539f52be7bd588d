"""Known models are possible, sourced, their methods run, and transformers agrees with
them.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    DeepseekV3Config,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPTJConfig,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Phi3Config,
    RoFormerConfig,
)
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.roformer.modeling_roformer import (
    RoFormerSinusoidalPositionalEmbedding,
)

from ropelab.math.frequencies import Geometry
from ropelab.math.methods import parse_scaling
from ropelab.math.models import MODELS, OTHER_NAMES, find_model, is_known
from ropelab.math.scaling import Yarn
from ropelab.runs.errors import InputError


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_is_possible_and_sourced(name):
    model = MODELS[name]
    geometry = Geometry(model.rotary_width, model.base, model.trained_len)
    plan = parse_scaling(model.method).plan(geometry, model.promised_len)
    assert len(plan.inv_freq) == model.rotary_width // 2
    assert model.rotary_width <= model.head_dim
    assert model.promised_len >= model.trained_len
    assert "config.json" in model.source


def test_llama_3_1():
    model = find_model("Llama-3.1-8B")
    assert (model.base, model.head_dim, model.trained_len, model.promised_len) == (
        500000,
        128,
        8192,
        131072,
    )
    assert model.method == "llama3(factor=8)"


# Configuration classes whose defaults are these models' numbers, and the length that
# theirs names (None where the default is not the model's).
DEFAULTS = {
    "gpt-neox-20b": (GPTNeoXConfig, "trained_len"),
    "falcon-7b": (FalconConfig, "trained_len"),
    "llama-2-7b": (LlamaConfig, None),
    "mistral-7b-v0.1": (MistralConfig, None),
    "mixtral-8x7b": (MixtralConfig, None),
    "gemma-2-9b": (Gemma2Config, "trained_len"),
    "gemma-3-4b": (Gemma3TextConfig, "promised_len"),
    "phi-3-mini-4k": (Phi3Config, "trained_len"),
    "deepseek-v3": (DeepseekV3Config, "trained_len"),
    "gpt-oss-20b": (GptOssConfig, "promised_len"),
}


def rope_of(config: Any) -> dict[str, Any]:
    """theta, the rotated share of a head and the scaling: one dict since transformers
    5.
    """
    rope = getattr(config, "rope_parameters", None)
    if rope is None:
        share = getattr(config, "partial_rotary_factor", 1)
        rope = {"rope_theta": config.rope_theta, "partial_rotary_factor": share}
        rope |= getattr(config, "rope_scaling", None) or {}
    return rope.get("full_attention", rope)


def head_of(config: Any) -> int:
    """Features of a query head."""
    if hasattr(config, "qk_nope_head_dim"):
        return config.qk_nope_head_dim + config.qk_rope_head_dim
    given = getattr(config, "head_dim", None)
    return given or config.hidden_size // config.num_attention_heads


def rotated_of(config: Any) -> int:
    """Rotated features of a query head."""
    whole = getattr(config, "qk_rope_head_dim", None) or head_of(config)
    return round(whole * rope_of(config).get("partial_rotary_factor", 1))


@pytest.mark.parametrize("name", DEFAULTS)
def test_transformers_has_the_same_numbers(name):
    config_class, length = DEFAULTS[name]
    config, model = config_class(), MODELS[name]
    assert rope_of(config)["rope_theta"] == model.base
    assert (head_of(config), rotated_of(config)) == (model.head_dim, model.rotary_width)
    if length is not None:
        assert config.max_position_embeddings == getattr(model, length)


def test_transformers_turns_gpt_j_alike():
    config, model = GPTJConfig(), MODELS["gpt-j-6b"]
    assert (head_of(config), config.rotary_dim) == (model.head_dim, model.rotary_width)
    assert config.n_positions == model.trained_len
    sines = create_sinusoidal_positions(2, config.rotary_dim)[
        1, : config.rotary_dim // 2
    ]
    exact = [
        math.sin(model.base ** (-2 * i / model.rotary_width))
        for i in range(model.rotary_width // 2)
    ]
    torch.testing.assert_close(
        sines.double(), torch.tensor(exact).double(), rtol=1e-5, atol=0
    )


def test_transformers_scales_gpt_oss_alike():
    given, model = rope_of(GptOssConfig()), MODELS["gpt-oss-20b"]
    scaling = parse_scaling(model.method)
    assert isinstance(scaling, Yarn)
    assert (scaling.name, scaling.factor) == (given["rope_type"], given["factor"])
    assert (scaling.beta_fast, scaling.beta_slow) == (
        given["beta_fast"],
        given["beta_slow"],
    )
    assert scaling.truncate is given["truncate"] is False
    assert given["original_max_position_embeddings"] == model.trained_len


def test_transformers_pairs_deepseek_v3_alike():
    assert DeepseekV3Config().rope_interleave
    assert "interleaved" in MODELS["deepseek-v3"].note


def test_an_unknown_model_gets_the_nearest():
    with pytest.raises(InputError, match=r"did you mean 'llama-3.1-8b'"):
        find_model("llama-3.1-9b")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("roformer", "roformer"),
        ("RoFormer-Chinese-Base", "roformer"),
        ("llama-1", "llama-7b"),
        ("LLaMA", "llama-7b"),
        ("llama-65b", "llama-7b"),
    ],
)
def test_a_model_is_found_under_its_other_names(name, model):
    assert is_known(name)
    assert find_model(name).name == model


def test_other_names_are_no_models_of_the_table():
    assert OTHER_NAMES.keys().isdisjoint(MODELS)


def test_roformer_has_the_numbers_of_its_class():
    """Its base is a constant of the class, which rotates neighbouring features."""
    model = MODELS["roformer"]
    config = RoFormerConfig()
    assert config.hidden_size // config.num_attention_heads == model.rotary_width
    assert config.max_position_embeddings == model.trained_len

    table = RoFormerSinusoidalPositionalEmbedding(1536, model.head_dim).create_weight()
    inv_freq = Geometry(model.rotary_width, model.base, model.trained_len).inv_freq
    sines = np.sin(np.arange(1536)[:, None] * inv_freq)
    np.testing.assert_allclose(table[:, : model.rotary_width // 2], sines, atol=1e-6)
