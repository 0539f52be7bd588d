"""Right codes in the shapes of vLLM, transformers, Megatron-LM and FLUX, and a wrong twin
of each.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ropelab.conformance.calls import ask_function
from ropelab.conformance.check_code import judge_code
from ropelab.conformance.diagnosis import Check
from ropelab.conformance.expected import expect_config

SIZES: dict[str, Any] = {"hidden_size": 256, "num_attention_heads": 4}
SIZES |= {"max_position_embeddings": 4096, "rope_theta": 1e4}
PLAIN = {**SIZES, "model_type": "llama"}
ADJACENT = {**SIZES, "model_type": "cohere"}
BLOCK = {"rope_type": "default", "mrope_section": [8, 12, 12]}
AXES = {**SIZES, "model_type": "qwen2_vl_text", "rope_scaling": BLOCK}


def ladder(base: float) -> Tensor:
    return base ** (-torch.arange(32) / 32)


def checked(config: dict[str, Any], code: Any) -> Check:
    expected = expect_config("config.json", config, None)["all"]
    return judge_code(
        lambda spec, at: ask_function(code, "code", spec, at), expected, 0.01
    )


def turn_half(x: Tensor) -> Tensor:
    return torch.cat([-x[..., 32:], x[..., :32]], -1)


def flattened_heads(base: float) -> Any:
    """vLLM's: a head or more in a row; other shapes give rows that are repeated."""
    angles = torch.arange(4096)[:, None] * ladder(base)

    def rotate(positions: Tensor, query: Tensor) -> Tensor:
        cos, sin = angles[positions].cos(), angles[positions].sin()
        x = query.view(len(query), -1, 64)
        first, second = x.chunk(2, -1)
        cos, sin = cos[:, None], sin[:, None]
        turned = [first * cos - second * sin, second * cos + first * sin]
        return torch.cat(turned, -1).flatten(1)

    return rotate


def sections_in_apply(base: float) -> Any:
    """Qwen2-VL's: of positions [n] the first three are taken for the axes of all."""

    def tables(x: Tensor, position_ids: Tensor) -> Any:
        if position_ids.ndim == 2:
            position_ids = position_ids[None].expand(3, -1, -1)
        angles = position_ids[..., None] * ladder(base)
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()

    def apply(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
        def choose(table: Tensor) -> Tensor:
            parts = table.split([8, 12, 12] * 2, -1)
            return torch.cat([part[i % 3] for i, part in enumerate(parts)], -1)

        cos, sin = choose(cos), choose(sin)
        return q * cos + turn_half(q) * sin, k * cos + turn_half(k) * sin

    return tables, apply


def signed_sines(base: float) -> Any:
    """Tables for code that exchanges halves without a sign."""

    def tables(positions: np.ndarray) -> Any:
        angles = np.asarray(positions)[:, None] * ladder(base).numpy()
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([cos, cos], -1), np.concatenate([-sin, sin], -1)

    return tables


def matrices(base: float) -> Any:
    """FLUX's: a matrix of 2 x 2 for each pair."""

    def make(positions: Tensor) -> Tensor:
        angles = torch.as_tensor(positions)[:, None] * ladder(base)
        entries = [angles.cos(), -angles.sin(), angles.sin(), angles.cos()]
        return torch.stack(entries, -1).reshape(-1, 32, 2, 2)

    def apply(x: Tensor, freqs_cis: Tensor) -> Tensor:
        pairs = x.reshape(*x.shape[:-1], 32, 1, 2)
        turned = freqs_cis[..., 0] * pairs[..., 0] + freqs_cis[..., 1] * pairs[..., 1]
        return turned.reshape(x.shape)

    return make, apply


def tables_of_angles(base: float) -> Any:
    """Megatron-LM's: angles [n, 1, 1, features], and vectors in the same shape."""

    def make(max_seq_len: int) -> Tensor:
        angles = torch.arange(max_seq_len)[:, None] * ladder(base)
        return torch.cat([angles, angles], -1)[:, None, None]

    def apply(t: Tensor, freqs: Tensor) -> Tensor:
        return t * freqs.cos() + turn_half(t) * freqs.sin()

    return make, apply


CODES = {
    "a row of heads": (PLAIN, flattened_heads),
    "sections in apply": (AXES, sections_in_apply),
    "signed sines": (PLAIN, signed_sines),
    "matrices": (ADJACENT, matrices),
    "tables of angles": (PLAIN, tables_of_angles),
}


@pytest.mark.parametrize("name", CODES)
def test_right_code_of_this_style_is_right(name: str) -> None:
    config, make = CODES[name]
    done = checked(config, make(1e4))
    assert not done.wrong, done.answer
    if config is AXES:
        assert "axes of positions are right" in done.answer


@pytest.mark.parametrize("name", CODES)
def test_another_base_is_named_in_this_style(name: str) -> None:
    config, make = CODES[name]
    done = checked(config, make(2e4))
    assert done.wrong
    assert "base 20000 instead of 10000" in done.answer


def test_a_rotation_that_turns_back_is_named_in_signed_sines() -> None:
    right = signed_sines(1e4)

    def tables(positions: np.ndarray) -> Any:
        cos, sin = right(positions)
        return cos, -sin

    done = checked(PLAIN, tables)
    assert done.wrong
    assert "wrong sign" in done.answer
