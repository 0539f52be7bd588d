"""The indexer of sparse attention: a rotation of its own, asked for by name."""

import inspect
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig
from transformers.models.deepseek_v32 import modeling_deepseek_v32
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa

import ropelab
from ropelab.conformance.check import check
from ropelab.conformance.expected import expect_config
from ropelab.readers.spec import RopeSpec
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


class KeysOfIndexer:
    """A cache that keeps the keys of an indexer."""

    def __init__(self) -> None:
        self.keys = torch.empty(0)

    def update_indexer(self, keys: torch.Tensor, layer: int) -> torch.Tensor:
        self.keys = keys
        return keys


@pytest.mark.parametrize(
    "kind", ["axk2", "deepseek_v32", "glm_moe_dsa", "hy_v4", "mistral_large4_text"]
)
def test_an_indexer_of_transformers_rotates_its_keys_by_our_spec(kind: str) -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "q_lora_rank": 32}
    sizes |= {"index_n_heads": 2, "index_topk": 4, "num_hidden_layers": 2}
    sizes |= {"qk_rope_head_dim": 16, "index_head_dim": 48}
    config = AutoConfig.for_model(kind, **sizes)
    module = import_module(type(config).__module__.replace("configuration", "modeling"))
    (name,) = (name for name in vars(module) if name.endswith("Indexer"))
    torch.manual_seed(0)
    indexer = getattr(module, name)(config, 0).double()

    hidden = torch.randn(1, 5, 64, dtype=torch.float64)
    positions = torch.arange(5)[None]
    spec = expect_config(kind, {**sizes, "model_type": kind}, 4096)["indexer"].spec
    angles = positions[..., None] * torch.from_numpy(spec.inv_freq(4096))
    tables = [table.repeat(1, 1, 2) for table in (angles.cos(), angles.sin())]
    cache = KeysOfIndexer()
    q_resid = torch.randn(1, 5, 32, dtype=torch.float64)
    known = {
        "hidden_states": hidden,
        "q_resid": q_resid,
        "position_embeddings": tables,
        "attention_mask": torch.zeros(1, 1, 5, 5),
        "position_ids": positions,
        "cache": cache,
        "past_key_values": cache,  # its name in older releases
    }
    wanted = inspect.signature(indexer.forward).parameters
    indexer(**{name: value for name, value in known.items() if name in wanted})

    plain = indexer.k_norm(indexer.wk(hidden))[0]
    rotated_keys = plain.clone()
    first, second = (spec.place + features for features in pairs_of(spec))
    cos, sin = angles[0].cos(), angles[0].sin()
    rotated_keys[:, first] = plain[:, first] * cos - plain[:, second] * sin
    rotated_keys[:, second] = plain[:, second] * cos + plain[:, first] * sin
    # Classes with adjacent pairs leave the features in another order, in queries and
    # keys alike, which no product sees.
    keys = cache.keys.double().reshape(5, -1)
    products = rotated_keys.double() @ rotated_keys.double().T
    assert torch.allclose(keys @ keys.T, products, atol=1e-4)


def pairs_of(spec: RopeSpec) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the second features of the pairs that rotate."""
    pairs = np.arange(spec.rotary_dim // 2)
    if spec.pairing == "interleaved":
        return 2 * pairs, 2 * pairs + 1
    return pairs, pairs + spec.rotary_dim // 2


def test_deepseek_v4_has_the_last_features_and_the_frequencies_of_compressed_keys() -> (
    None
):
    config = {**SIZES, "model_type": "deepseek_v4", "head_dim": 512}
    layers = expect_config("config.json", config, None)
    indexer, compress = layers["indexer"].spec, layers["compress"].spec
    assert indexer.rotated == range(64, 128)
    assert (indexer.base, indexer.pairing) == (compress.base, "interleaved")
    assert layers["compressed_keys"].spec.rotated == range(448, 512)
    assert layers["compressed_keys"].spec.base == compress.base


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
