"""Vectors at positions of several axes, and what engines make of them."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropelab
from ropelab.conformance.check import check
from ropelab.conformance.diagnosis import Check
from ropelab.runs.errors import InputError
from tests.conformance.several_axes import ENCODERS, MODELS
from tests.small import mostly_slow
from tests.texts import mentions

KITS = {
    "qwen2_5_vl": MODELS["qwen2_5_vl"],
    "glm4v": MODELS["glm4v"],
    "ernie4_5_vl_moe": MODELS["ernie4_5_vl_moe"],
    **ENCODERS,
}


@pytest.fixture
def folders(tmp_path: Path, request: pytest.FixtureRequest) -> list[Path]:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(KITS[request.param]))
    done = ropelab.vectors(str(config), str(tmp_path / "kit"))
    return [Path(folder) for folder in done.folders]


def judged(folder: Path, **arrays: Any) -> Check:
    np.savez(folder / "mine.npz", **arrays)
    return check(str(folder / "mine.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("folders", mostly_slow(KITS, ["dinov3_vit"]), indirect=True)
def test_right_vectors_are_right_and_every_mistake_is_named(
    folders: list[Path],
) -> None:
    for folder in folders:
        arrays = dict(np.load(folder / "vectors.npz"))
        about = json.loads((folder / "about.json").read_text())
        rounded = arrays["axes_k_rotated"].astype(np.float32)
        assert not judged(folder, axes_k_rotated=rounded).wrong

        for name, says in about["mistakes"].items():
            kind, _, rest = name.partition("_")
            mistake = arrays.get(f"{kind}_mistake_{rest}")
            if mistake is None:
                continue
            given = "prompt_positions" if kind == "prompt" else "axes_k_rotated"
            done = judged(folder, **{given: mistake})
            assert done.wrong
            assert says in done.answer


@pytest.mark.parametrize("folders", ["qwen2_5_vl"], indirect=True)
def test_text_that_is_right_hides_no_axes_that_are_wrong(folders: list[Path]) -> None:
    folder = next(each for each in folders if each.name == "all")
    arrays = dict(np.load(folder / "vectors.npz"))
    done = judged(
        folder,
        k_rotated=arrays["k_rotated"],
        axes_k_rotated=arrays["axes_mistake_order_1"],
    )
    assert done.wrong
    assert mentions(done.answer, "k at several axes")


@pytest.mark.parametrize("folders", ["qwen2_5_vl"], indirect=True)
def test_an_engine_may_bring_positions_of_several_axes(folders: list[Path]) -> None:
    folder = next(each for each in folders if each.name == "all")
    arrays = dict(np.load(folder / "vectors.npz"))
    done = judged(
        folder,
        positions=arrays["axes_positions"],
        cos=arrays["axes_cos"],
        sin=arrays["axes_sin"],
    )
    assert not done.wrong
    done = judged(
        folder,
        positions=arrays["axes_positions"][::-1],
        cos=arrays["axes_cos"],
        sin=arrays["axes_sin"],
    )
    assert done.wrong


@pytest.mark.parametrize("folders", ["qwen2_5_vl"], indirect=True)
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_tables_that_are_not_finite_are_named(
    folders: list[Path], number: float
) -> None:
    folder = next(each for each in folders if each.name == "all")
    arrays = dict(np.load(folder / "vectors.npz"))
    cos = arrays["axes_cos"].copy()
    cos[-1, -1] = number
    done = judged(folder, axes_cos=cos, axes_sin=arrays["axes_sin"])
    assert done.wrong
    assert mentions(done.answer, "numbers that are not finite")


def test_a_kit_has_the_prompt_that_was_asked_for(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(MODELS["qwen2_vl"]))
    ropelab.vectors(
        str(config), str(tmp_path / "kit"), prompt="text 2, image 4x8, text 1"
    )
    folder = tmp_path / "kit" / "all"
    right = np.load(folder / "vectors.npz")["prompt_positions"]
    assert right[0].tolist() == [0, 1, *[2] * 8, 6]
    assert not judged(folder, prompt_positions=right).wrong
    done = judged(folder, prompt_positions=right[[0, 2, 1]])
    assert done.wrong
    assert mentions(done.answer, "height and width are exchanged")


def test_a_prompt_is_refused_where_the_axes_are_not_known(tmp_path: Path) -> None:
    """It would be left out of the kit without a word."""
    model = copy.deepcopy(MODELS["qwen3_vl"])
    model["text_config"]["rope_parameters"]["mrope_section"] = [4, 6, 5]
    config = tmp_path / "config.json"
    config.write_text(json.dumps(model))
    kit = tmp_path / "kit"
    with pytest.raises(InputError, match="axes of its positions are not known"):
        ropelab.vectors(str(config), str(kit), prompt="text 2, image 4x8")
    assert not kit.exists()


@pytest.mark.parametrize("folders", ["qwen2_5_vl"], indirect=True)
def test_every_sentence_of_a_kit_comes_once(folders: list[Path]) -> None:
    for folder in folders:
        about = json.loads((folder / "about.json").read_text())
        sentences = list(about["mistakes"].values())
        assert len(sentences) == len(set(sentences))

        arrays = dict(np.load(folder / "vectors.npz"))
        answer = judged(folder, **arrays).answer
        assert answer.count("at several axes") <= 1
        assert "not judged" not in answer.replace("pairs were not judged", "")


@pytest.mark.parametrize("folders", ["qwen2_5_vl"], indirect=True)
def test_an_engine_may_bring_its_own_vectors_of_several_heads(
    folders: list[Path],
) -> None:
    """Vectors before and after, [positions, heads, head_dim] both."""
    folder = next(each for each in folders if each.name == "all")
    arrays = dict(np.load(folder / "vectors.npz"))
    after = arrays["axes_k_rotated"]
    before = np.broadcast_to(arrays["k"], after.shape)
    assert not judged(folder, axes_k=before, axes_k_rotated=after).wrong
    assert judged(folder, axes_k=before, axes_k_rotated=before[::-1]).wrong


def round_to_bfloat16(values: np.ndarray) -> np.ndarray:
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x8000) & 0xFFFF0000).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("folders", mostly_slow(KITS, ["qwen2_5_vl"]), indirect=True)
def test_a_number_beside_its_pair_is_found(folders: list[Path]) -> None:
    """Unit vectors show the tables of their pairs, and all other features are 0."""
    random = np.random.default_rng(0)
    for folder in folders:
        arrays = dict(np.load(folder / "vectors.npz"))
        for name in ("axes_q_rotated", "axes_k_rotated"):
            rounded = round_to_bfloat16(arrays[name])
            assert not judged(folder, **{name: rounded}).wrong
            count, vectors, width = rounded.shape
            for _ in range(4):
                vector, feature = random.integers(vectors), random.integers(width)
                wrong = rounded.copy()
                wrong[random.integers(count), vector, feature] += 0.4
                assert judged(folder, **{name: wrong}).wrong, (vector, feature)
