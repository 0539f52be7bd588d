"""The indexer of sparse attention: a rotation of its own, asked for by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.deepseek_v32 import modeling_deepseek_v32
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa

import ropelab
from ropelab.conformance.check import check
from ropelab.conformance.expected import expect_config
from ropelab.runs.errors import InputError
from ropelab.testing import assert_rope
from tests.texts import mentions

SIZES: dict[str, Any] = {"hidden_size": 1024, "num_attention_heads": 8}
SIZES |= {"max_position_embeddings": 32768, "rope_theta": 1e4}
SIZES |= {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "index_head_dim": 128}
DEEPSEEK = {**SIZES, "model_type": "deepseek_v32"}
GLM = {**SIZES, "model_type": "glm_moe_dsa", "indexer_rope_interleave": True}
THETA = 1e4 ** (-np.arange(32) / 32)


def rotate_halves(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return rotated(x, positions, np.arange(32), np.arange(32, 64))


def rotate_neighbours(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return rotated(x, positions, np.arange(0, 64, 2), np.arange(1, 64, 2))


def rotated(
    x: np.ndarray, positions: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    angles = np.asarray(positions)[:, None] * THETA
    cos, sin = np.cos(angles), np.sin(angles)
    y = np.array(x, dtype=np.float64)
    y[:, first] = x[:, first] * cos - x[:, second] * sin
    y[:, second] = x[:, second] * cos + x[:, first] * sin
    return y


@pytest.mark.parametrize(
    ("config", "right", "wrong", "says"),
    [
        (
            DEEPSEEK,
            rotate_halves,
            rotate_neighbours,
            "adjacent pairing instead of half",
        ),
        (GLM, rotate_neighbours, rotate_halves, "half pairing instead of adjacent"),
    ],
)
def test_the_indexer_is_judged_by_its_own_pairs(
    config: dict[str, Any], right: Any, wrong: Any, says: str
) -> None:
    assert_rope(right, config, layer_type="indexer")
    with pytest.raises(AssertionError, match=says):
        assert_rope(wrong, config, layer_type="indexer")
    # The main rotation of both has neighbours.
    assert_rope(rotate_neighbours, config)


@pytest.mark.parametrize(
    ("config", "module", "name"),
    [
        (DEEPSEEK, modeling_deepseek_v32, "apply_rotary_pos_emb"),
        (GLM, modeling_glm_moe_dsa, "apply_rotary_pos_emb_interleave"),
    ],
)
def test_the_indexers_of_transformers_are_right(
    config: dict[str, Any], module: Any, name: str
) -> None:
    apply = getattr(module, name)

    def rotate(q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor) -> Any:
        angles = positions.reshape(-1, 1).float() * torch.tensor(THETA).float()
        angles = torch.cat([angles, angles], -1)[None]
        given = [x[None, :, None, :64] for x in (q, k)]
        turned = apply(*given, angles.cos(), angles.sin(), unsqueeze_dim=2)
        return [
            torch.cat([x[0, :, 0], rest[:, 64:]], -1)
            for x, rest in zip(turned, (q, k), strict=True)
        ]

    assert_rope(rotate, config, layer_type="indexer")


def test_deepseek_v4_has_the_last_features_and_the_frequencies_of_compressed_keys() -> (
    None
):
    config = {**SIZES, "model_type": "deepseek_v4", "head_dim": 512}
    layers = expect_config("config.json", config, None)
    indexer, compress = layers["indexer"].spec, layers["compress"].spec
    assert indexer.rotated == range(64, 128)
    assert (indexer.base, indexer.pairing) == (compress.base, "interleaved")


def test_a_kit_has_a_folder_for_the_indexer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GLM))
    done = ropelab.vectors(str(tmp_path / "config.json"), str(tmp_path / "kit"))
    assert [row["layer_type"] for row in done.rows["layers"]] == ["all", "indexer"]
    folder = tmp_path / "kit" / "indexer"
    with np.load(folder / "vectors.npz") as stored:
        arrays = dict(stored)
    assert not check(str(folder / "vectors.npz")).wrong
    np.savez(folder / "mine.npz", k_rotated=arrays["mistake_pairing"])
    done_wrong = check(str(folder / "mine.npz"))
    assert mentions(done_wrong.answer, "k: half", "instead of adjacent")


def test_a_name_that_a_model_does_not_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**SIZES, "model_type": "llama"}))
    with pytest.raises(InputError, match="layer type"):
        check("x:y", config=str(tmp_path / "config.json"), layer_type="indexer")
