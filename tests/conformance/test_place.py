"""Heads of which the last features rotate, and pairs that rotate backwards."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropelab
from ropelab.conformance.check import check
from ropelab.testing import assert_rope
from tests.conformance.test_planted import PLAIN
from tests.texts import mentions

SIZES = {"hidden_size": 1024, "num_attention_heads": 8}
LENGTH = {"max_position_embeddings": 32768}
MISTRAL4: dict[str, Any] = {**SIZES, **LENGTH, "model_type": "mistral4"}
MISTRAL4 |= {"head_dim": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64}
MISTRAL4["rope_parameters"] = {
    "rope_type": "linear",
    "factor": 1.0,
    "rope_theta": 1e4,
    "partial_rotary_factor": 0.5,
    "original_max_position_embeddings": 32768,
    "llama_4_scaling_beta": 0.1,
}
DEEPSEEK4: dict[str, Any] = {**SIZES, **LENGTH, "model_type": "deepseek_v4"}
DEEPSEEK4 |= {"head_dim": 512, "num_hidden_layers": 2}
DEEPSEEK4["layer_types"] = ["sliding_attention", "sliding_attention"]
NANOCHAT: dict[str, Any] = {**PLAIN, "model_type": "nanochat", "rope_theta": 1e4}


def rotate_adjacent(first: int, width: int = 64) -> Any:
    """A code that rotates so many features from the first on, in adjacent pairs."""
    theta = 1e4 ** (-np.arange(width // 2) / (width // 2))

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        angles = np.asarray(positions)[:, None] * theta
        block = x[:, first : first + width].reshape(len(x), -1, 2)
        turned = (block[..., 0] + 1j * block[..., 1]) * np.exp(1j * angles)
        y = np.array(x, dtype=np.float64)
        pairs = np.stack([turned.real, turned.imag], -1)
        y[:, first : first + width] = pairs.reshape(len(x), -1)
        return y

    return rotate


def rotate_halves(sign: int) -> Any:
    theta = 1e4 ** (-np.arange(32) / 32)

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        angles = sign * np.asarray(positions)[:, None] * theta
        a, b = x[:, :32], x[:, 32:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    return rotate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "layer", "first"), [(MISTRAL4, "", 64), (DEEPSEEK4, "main", 448)]
)
def test_the_last_features_rotate_in_right_code(
    config: dict[str, Any], layer: str, first: int
) -> None:
    assert_rope(rotate_adjacent(first), config, layer_type=layer)
    says = f"features 0 to 63 rotate instead of {first} to {first + 63}"
    with pytest.raises(AssertionError, match=says):
        assert_rope(rotate_adjacent(0), config, layer_type=layer)


def test_code_that_rotates_backwards_is_right_where_the_class_does() -> None:
    assert_rope(rotate_halves(-1), NANOCHAT)
    with pytest.raises(AssertionError, match="the rotation has the wrong sign"):
        assert_rope(rotate_halves(1), NANOCHAT)


@pytest.mark.parametrize(
    ("config", "code"),
    [(MISTRAL4, rotate_adjacent(64)), (NANOCHAT, rotate_halves(-1))],
)
def test_a_kit_rotates_what_the_class_rotates(
    tmp_path: Path, config: dict[str, Any], code: Any
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    ropelab.vectors(str(tmp_path / "config.json"), str(tmp_path))
    with np.load(tmp_path / "vectors.npz") as stored:
        arrays = dict(stored)
    for name in ("q", "k"):
        for row, place in zip(
            arrays[f"{name}_rotated"], arrays["positions"], strict=True
        ):
            ours = code(arrays[name], np.full(len(row), place))
            np.testing.assert_allclose(row, ours, atol=1e-9)
    assert not check(str(tmp_path / "vectors.npz")).wrong
    for name, says in json.loads((tmp_path / "about.json").read_text())[
        "mistakes"
    ].items():
        np.savez(tmp_path / "mine.npz", k_rotated=arrays[f"mistake_{name}"])
        done = check(str(tmp_path / "mine.npz"))
        assert done.wrong
        assert says in done.answer


def test_the_readme_of_a_kit_names_the_features(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MISTRAL4))
    ropelab.vectors(str(tmp_path / "config.json"), str(tmp_path))
    text = (tmp_path / "README.md").read_text()
    assert mentions(text, "64 + 2i", "64 + 2i + 1", "64 to 127")
