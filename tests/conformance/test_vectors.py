"""Vectors for engines, the budgets of honest codes, and the mistakes that check
names.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ropelab
from ropelab.conformance.check import check
from ropelab.conformance.diagnosis import Check
from ropelab.runs.errors import InputError
from ropelab.testing import assert_rope
from tests.conformance.test_planted import HEAD, LLAMA3, PLAIN
from tests.models.released.architectures import ARCHITECTURES
from tests.models.released.tiny import config as tiny
from tests.test_cli import call
from tests.texts import mentions

__all__ = ["call"]  # a fixture
PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 32,
    "long_factor": [1.0 + 0.13 * i for i in range(32)],
    "original_max_position_embeddings": 4096,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "llama3": {**PLAIN, "rope_scaling": LLAMA3},
    "yarn": {
        **PLAIN,
        "rope_theta": 1e6,
        "max_position_embeddings": 131072,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
        },
    },
    "longrope": {**PLAIN, "rope_scaling": LONGROPE},
    "odd width": {**PLAIN, "head_dim": 96},
    "partial": {**PLAIN, "model_type": "stablelm", "partial_rotary_factor": 0.25},
    "interleaved": {**PLAIN, "model_type": "cohere", "head_dim": 64, "rope_theta": 1e4},
}


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[request.param]))
    ropelab.vectors(str(tmp_path / "config.json"), str(tmp_path))
    return tmp_path


every = pytest.mark.parametrize("folder", CONFIGS, indirect=True)


def inverse(config: dict[str, Any], kind: str = "product") -> tuple[np.ndarray, float]:
    """Frequencies in float32 as transformers computes them, or ggml, and the attention
    factor.
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    given = tiny(**{"head_dim": HEAD, **config})
    width = round(config.get("head_dim", HEAD) * config.get("partial_rotary_factor", 1))
    parameters = given.rope_parameters
    base = np.float32(config["rope_theta"])
    if kind == "product":
        plain = (
            1.0 / (float(base) ** (torch.arange(0, width, 2).float() / width)).numpy()
        )
    else:
        step, found = base ** np.float32(-2 / width), [np.float32(1)]
        while len(found) < width // 2:
            found.append(found[-1] * step)
        plain = np.array(found)
    if parameters["rope_type"] == "default":
        return plain.astype(np.float32), 1.0
    length = config["max_position_embeddings"]
    scaled, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](
        given, "cpu", seq_len=length
    )
    return scaled.numpy() * (
        plain / inverse({**config, "rope_scaling": None})[0]
    ), factor


def honest(arrays: Any, config: dict[str, Any], kind: str) -> dict[str, torch.Tensor]:
    """Rotated q and k of a code that loses nothing without need, one line after the
    other.
    """
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    inv_freq, factor = inverse(config)
    places = np.asarray(arrays["positions"]).astype(np.float32)
    if kind == "recurrence":
        # ggml: the angle of the next pair is this one's times a constant, in float32.
        step = np.float32(config["rope_theta"]) ** np.float32(-1 / len(inv_freq))
        ratios = inv_freq / inverse({**config, "rope_scaling": None})[0]
        columns = [places]
        while len(columns) < len(inv_freq):
            columns.append(columns[-1] * step)
        angles = torch.tensor(np.stack(columns, -1) * ratios.astype(np.float32))
    else:
        angles = torch.tensor(places[:, None] * inv_freq)
    assert angles.dtype == torch.float32
    cos, sin = ((f(angles) * factor).to(dtype)[:, None] for f in (torch.cos, torch.sin))
    half = len(inv_freq)
    result = {}
    for name in ("q", "k"):
        x = (
            torch.tensor(arrays[name])
            .to(dtype)[None]
            .expand(len(places), -1, -1)
            .clone()
        )
        if config["model_type"] == "cohere":
            one, two = x[..., 0::2].clone(), x[..., 1::2].clone()
            x[..., 0::2], x[..., 1::2] = one * cos - two * sin, two * cos + one * sin
        else:
            one, two = x[..., :half].clone(), x[..., half : 2 * half].clone()
            x[..., :half], x[..., half : 2 * half] = (
                one * cos - two * sin,
                two * cos + one * sin,
            )
        result[f"{name}_rotated"] = x
    return result


@every
def test_the_three_files_hold_the_same_numbers(folder: Path) -> None:
    with np.load(folder / "vectors.npz") as stored:
        arrays = dict(stored)
    tensors = load_file(folder / "vectors.safetensors")
    document = json.loads((folder / "vectors.json").read_text())
    assert list(arrays) == list(document["arrays"])
    for name, array in arrays.items():
        np.testing.assert_array_equal(tensors[name].numpy(), array)
        written = document["arrays"][name]
        assert tuple(written["shape"]) == array.shape
        values = [
            x if isinstance(x, int) else float.fromhex(x) for x in written["data"]
        ]
        np.testing.assert_array_equal(np.reshape(values, array.shape), array)
    wanted = {
        0,
        1,
        255,
        256,
        257,
        4095,
        4096,
        4097,
        32767,
        32768,
        32769,
        131071,
        1_000_000,
    }
    assert wanted <= set(arrays["positions"].tolist())


@every
@pytest.mark.parametrize("kind", ["float32", "recurrence", "bfloat16"])
def test_honest_codes_stay_within_a_budget_that_is_not_loose(
    folder: Path, kind: str
) -> None:
    config = json.loads((folder / "config.json").read_text())
    with np.load(folder / "vectors.npz") as stored:
        arrays = dict(stored)
    theirs = honest(arrays, config, kind)
    far = arrays["positions"] >= 255
    bound = arrays[f"budget_{kind}_rotated"]
    lost = np.zeros(len(far))
    for name, rotated in theirs.items():
        lost = np.maximum(
            lost, np.abs(rotated.double().numpy() - arrays[name]).max(axis=(1, 2))
        )
    assert (lost <= bound).all(), (lost / bound).max()
    assert (
        np.median(bound[far] / lost[far])
        < {"recurrence": 25, "float32": 25, "bfloat16": 6}[kind]
    )
    save_file(
        {n: t.contiguous() for n, t in theirs.items()}, folder / "mine.safetensors"
    )
    done = check(str(folder / "mine.safetensors"))
    assert not done.wrong, done.answer
    assert mentions(done.answer, "q: right")


@every
def test_every_mistake_is_named_by_check(folder: Path) -> None:
    about = json.loads((folder / "about.json").read_text())
    assert len(about["mistakes"]) >= 10
    with np.load(folder / "vectors.npz") as stored:
        arrays = dict(stored)
    for name, says in about["mistakes"].items():
        wrong = arrays[f"mistake_{name}"]
        assert np.abs(wrong - arrays["k_rotated"]).max() > 0.01
        np.savez(folder / "mine.npz", k_rotated=wrong, q_rotated=arrays["q_rotated"])
        done = check(str(folder / "mine.npz"))
        assert done.wrong, name
        # The short table of this longrope divides by 1, so that two names fit.
        same = "the short table is used" if "longrope" in says else says
        assert same in done.answer
        assert done.answer.startswith("k: ")


def test_layers_that_do_not_rotate_are_named(tmp_path: Path) -> None:
    """Of Cohere 2's layers every fourth has no positions; check does not judge them."""
    config = {**PLAIN, "model_type": "cohere2", "num_hidden_layers": 8}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    (row,) = ropelab.vectors(str(path), str(tmp_path / "kit")).rows["layers"]
    assert row["unrotated_layers"] == [3, 7]
    (tmp_path / "mine.npz").write_bytes((tmp_path / "kit" / "vectors.npz").read_bytes())
    done = check(str(tmp_path / "mine.npz"), config=str(path))
    assert "6 of 8 layers" in done.answer


def test_layer_types_have_a_folder_each_and_their_own_answers(tmp_path: Path) -> None:
    tiny("gemma3_text", **ARCHITECTURES["gemma3_text"]).save_pretrained(tmp_path)
    done = ropelab.vectors(str(tmp_path), str(tmp_path / "out"))
    assert set(done.tables["layers"].layer_type) == {
        "full_attention",
        "sliding_attention",
    }
    local, whole = (tmp_path / "out" / f"{n}_attention" for n in ("sliding", "full"))
    with np.load(local / "vectors.npz") as one, np.load(whole / "vectors.npz") as other:
        wrong = {"k_rotated": one["k_rotated"], "q_rotated": other["q_rotated"]}
    np.savez(whole / "mine.npz", **wrong)
    answer = check(str(whole / "mine.npz")).answer
    assert mentions(answer, "k: rotates", "sliding_attention", "base 10000, unscaled")
    assert not check(str(whole / "vectors.npz")).wrong
    # The folder has the arrays of one layer type, and another may be asked for.
    full = str(whole / "vectors.npz")
    assert not check(full, layer_type="full_attention").wrong
    asked = check(full, layer_type="sliding_attention")
    assert asked.wrong
    assert mentions(asked.answer, "rotates as full_attention layers should")
    with pytest.raises(InputError, match="unknown layer type 'bogus'"):
        check(full, layer_type="bogus")


def test_the_commands_and_their_statuses(tmp_path: Path, call: Any) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(PLAIN))
    status, out, _ = call("vectors", "--config", config, "--out", tmp_path / "v")
    assert status == 0
    assert f"ropelab check {tmp_path}/v/mine.npz" in " ".join(out.split()).replace(
        "- ", "-"
    )
    with np.load(tmp_path / "v" / "vectors.npz") as stored:
        arrays = dict(stored)
    mine = tmp_path / "v" / "mine.npz"
    for change, expected, says in (
        ({}, 0, "q: right, as an honest float32 code loses as much (0, allowed"),
        ({"k_rotated": arrays["mistake_shifted"]}, 3, "k: positions are shifted by 1"),
        (
            {"k_rotated": arrays["k_rotated"] * np.nan},
            3,
            "k: rotated vectors are not finite",
        ),
        ({"k_rotated": arrays["k_rotated"] * 0}, 3, "k: most of cos and sin are zero"),
        (
            {"k": arrays["k"] * 0, "k_rotated": arrays["k_rotated"] * 0},
            2,
            "k needs finite numbers",
        ),
        ({"k": arrays["k"] * np.nan}, 2, "k needs finite numbers, and none"),
        (
            {"q_rotated": arrays["k_rotated"]},
            2,
            "q_rotated has shape (13, 4, 64) instead of",
        ),
        (
            {"cos": arrays["sin"], "sin": arrays["cos"]},
            3,
            "cos and sin: cos and sin are swapped",
        ),
        (
            {"K_rotated": arrays["k_rotated"]},
            2,
            "K_rotated is not read, call it q_rotated or k_",
        ),
    ):
        rotated = {name: arrays[name] for name in ("q_rotated", "k_rotated")} | change
        np.savez(mine, **rotated)
        status, out, err = call("check", mine)
        assert (status, says in " ".join((out + err).split())) == (expected, True)
        assert "ropelab audit" not in out
    # What is typed next asks the same again.
    np.savez(mine, k_rotated=arrays["mistake_shifted"])
    options = ("--length", "4096", "--tolerance", "0.001")
    _, out, _ = call("check", mine, *options)
    assert " ".join(options) in " ".join(out.split())
    assert call("vectors", "--config", config, "--out", "")[0] == 2
    (tmp_path / "file").write_text("")
    status, _, err = call("vectors", "--config", config, "--out", tmp_path / "file")
    assert (status, err.count("\n")) == (2, 1)
    assert "cannot write to" in err


def test_vectors_that_cannot_all_be_written_are_beside_no_other_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, out = tmp_path / "config.json", tmp_path / "out"
    config.write_text(json.dumps(PLAIN))
    ropelab.vectors(str(config), str(out))
    before = (out / "vectors.json").read_bytes()
    config.write_text(json.dumps({**PLAIN, "rope_theta": 1e4}))

    write = Path.write_bytes

    def written(path: Path, content: bytes) -> int:
        if content.startswith(b"{"):
            path.touch()
            raise OSError(28, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", written)
    with pytest.raises(InputError, match="No space left"):
        ropelab.vectors(str(config), str(out))
    assert (out / "vectors.json").read_bytes() == before
    assert not (out / "about.json").exists()
    assert not [*out.glob(".*.new")]


def test_the_example_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine of 15 lines that reads the JSON file, in docs/audit.md."""
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(PLAIN))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    ropelab.vectors("config.json", "kit")
    exec(code, {})
    assert "q: right" in check("kit/mine.npz").answer
    exec(code.replace("a * s + b * c", "b * c - a * s"), {})
    answer = check("kit/mine.npz").answer
    assert mentions(answer, "q and k:", "second feature", "sin", "wrong sign")
    assert f"kit/mine.npz: {answer}" in " ".join(PAGE.read_text().split())


def test_vectors_that_tell_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    ropelab.vectors(str(tmp_path / "config.json"), str(tmp_path))
    with np.load(tmp_path / "vectors.npz") as stored:
        given, rotated = stored["k"], stored["k_rotated"]
    mine = tmp_path / "mine.npz"
    one = np.where(
        np.arange(HEAD) == 3, np.array([np.nan, np.inf, 0, 1e200])[:, None, None], given
    )
    for before in (*one, given[:0]):
        np.savez(mine, k=before, k_rotated=rotated[:, : len(before)])
        with pytest.raises(
            InputError, match="k needs finite numbers, and none of its columns"
        ):
            check(str(mine))
    np.savez(mine, k=given, k_rotated=rotated * 1e308)
    assert mentions(check(str(mine)).answer, "k:", "not finite")


@pytest.mark.parametrize("length", [float("inf"), -5, 2.5, True, 10**400, 1e300])
def test_a_length_that_is_none_is_one_line(length: float, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    ropelab.vectors(str(tmp_path / "config.json"), str(tmp_path))
    about = json.loads((tmp_path / "about.json").read_text()) | {"length": length}
    (tmp_path / "about.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="was not written by ropelab vectors"):
        check(str(tmp_path / "vectors.npz"))


def test_the_name_of_a_layer_type_leads_nowhere_else(tmp_path: Path) -> None:
    path, names = tmp_path / "config.json", ["full_attention", "../../elsewhere"]
    layers = {
        name: {"rope_type": "default", "rope_theta": 10.0**n}
        for n, name in enumerate(names, 4)
    }
    # A class of transformers 5 refuses such names; without a type only the folder's
    # maker does.
    for kind, says in (
        ("gemma3_text", "list of known names"),
        (None, "no name for a folder"),
    ):
        config = {
            **PLAIN,
            "model_type": kind,
            "layer_types": names,
            "rope_parameters": layers,
        }
        path.write_text(json.dumps(config))
        with pytest.raises(InputError, match=says):
            ropelab.vectors(str(path), str(tmp_path / "a" / "b"))
        assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {
            "config.json"
        }
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("about", ["{}", "[1]", '{"config": 1, "length": 2}', "{"])
def test_a_folder_of_something_else_is_one_line(about: str, tmp_path: Path) -> None:
    (tmp_path / "about.json").write_text(about)
    np.savez(tmp_path / "mine.npz", q_rotated=np.zeros(()))
    with pytest.raises(InputError, match=r"about\.json"):
        check(str(tmp_path / "mine.npz"))
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    with pytest.raises(InputError, match="q_rotated has shape"):
        check(str(tmp_path / "mine.npz"), config=str(tmp_path / "config.json"))


def test_limits_of_a_configuration(tmp_path: Path) -> None:
    """A head of 2048 features is refused, and `Infinity` stays out of the strict
    JSON.
    """
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**PLAIN, "head_dim": 2048}))
    with pytest.raises(InputError, match="2048 features are too large"):
        ropelab.vectors(str(path), str(tmp_path / "v"))
    path.write_text(json.dumps({**PLAIN, "limit": float("inf")}))
    ropelab.vectors(str(path), str(tmp_path / "v"))
    assert "Infinity" not in (tmp_path / "v" / "vectors.json").read_text()
    assert not check(str(tmp_path / "v" / "vectors.safetensors")).wrong


def test_an_engine_may_bring_its_own_vectors(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    theta, places = 500000.0 ** (-np.arange(32) / 32), np.arange(8)
    given = np.random.default_rng(0).normal(size=(6, 64))
    cos, sin = (f(places[:, None, None] * theta) for f in (np.cos, np.sin))
    one, two = given[:, :32], given[:, 32:]
    right = np.concatenate([one * cos - two * sin, two * cos + one * sin], -1)
    minus = np.concatenate([one * cos - two * sin, two * cos - one * sin], -1)
    for rotated, says in (
        (right, "q: right"),
        (minus, "q: the second feature of a pair has sin"),
    ):
        np.savez(tmp_path / "own.npz", q=given, q_rotated=rotated, positions=places)
        done = check(str(tmp_path / "own.npz"), config=str(tmp_path / "config.json"))
        assert says in done.answer


def test_the_error_that_is_said_is_the_largest_share_of_what_is_allowed(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    ropelab.vectors(str(tmp_path / "config.json"), str(tmp_path / "v"))
    with np.load(tmp_path / "v" / "vectors.npz") as kit:
        positions, rotated = kit["positions"], kit["k_rotated"].copy()
    at = list(positions).index(131071)
    rotated[at, 0, 0] += 1e-3
    np.savez(tmp_path / "v" / "mine.npz", positions=positions, k_rotated=rotated)
    answer = check(str(tmp_path / "v" / "mine.npz")).answer
    assert "(0.001, allowed " in answer
    assert "at position 131071)" in answer


def rotations(x: np.ndarray, angles: np.ndarray, sign: int = 1) -> np.ndarray:
    cos, sin, (one, two) = np.cos(angles), np.sin(angles), np.split(x, 2, axis=-1)
    return np.concatenate([one * cos - two * sin, sign * two * cos + one * sin], -1)


@pytest.mark.parametrize("shape", [(64,), (1, 64), (2, 64), (3, 64), (8, 64)])
@pytest.mark.parametrize("first", [0, 1, 7])
def test_each_position_may_have_vectors_of_its_own(
    tmp_path: Path, shape: tuple[int, ...], first: int
) -> None:
    """The usual dump of an engine: [positions, heads, head_dim], or one head without
    its axis.
    """
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    places = np.arange(first, first + 40, 3)
    angles = (places[:, None] * 500000.0 ** (-np.arange(32) / 32)).reshape(
        len(places), *[1] * (len(shape) - 1), 32
    )
    given = np.random.default_rng(0).normal(size=(len(places), *shape))

    def answer(rotated: np.ndarray) -> Check:
        np.savez(tmp_path / "own.npz", q=given, q_rotated=rotated, positions=places)
        return check(str(tmp_path / "own.npz"), config=str(tmp_path / "config.json"))

    assert mentions(answer(rotations(given, angles)).answer, "q: right")
    wrong = answer(rotations(given, -angles))
    assert wrong.wrong
    few = len(shape) < 2 or shape[0] < 3
    reason = "too few vectors" if few else "without position 1 the mistake has no name"
    named = first == 1 and not few
    assert ("wrong sign" if named else reason) in wrong.answer
    if not few:  # a mistake in the pairs needs no position
        moved = rotations(given[..., ::-1], angles)[..., ::-1]
        assert answer(moved).wrong


def test_vectors_of_each_position_in_another_order_or_with_a_head_left_out(
    tmp_path: Path,
) -> None:
    config = {**PLAIN, "model_type": "cohere", "head_dim": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    places = np.arange(2, 40, 3)
    angles = (places[:, None] * 500000.0 ** (-np.arange(32) / 32))[:, None]

    def answer(given: np.ndarray, rotated: np.ndarray) -> str:
        np.savez(tmp_path / "own.npz", k=given, k_rotated=rotated, positions=places)
        return check(
            str(tmp_path / "own.npz"), config=str(tmp_path / "config.json")
        ).answer

    for heads in (1, 8):
        given = np.random.default_rng(0).normal(size=(len(places), heads, 64))
        halves = rotations(
            np.concatenate([given[..., ::2], given[..., 1::2]], -1), angles
        )
        pairs = np.stack(np.split(halves, 2, axis=-1), -1).reshape(given.shape)
        assert mentions(answer(given, pairs), "k: right", "float32")
        assert mentions(answer(given, halves), "scores", "do not see")
        assert "right" not in answer(given, rotations(given, angles))
    pairs[:, 5] = given[:, 5]
    assert mentions(answer(given, pairs), "k:", "vector 5 of 8", "not rotated")


@pytest.mark.parametrize(
    ("shape", "rotated", "positions", "says"),
    [
        (
            (1, 5, 8, 64),
            (1, 5, 8, 64),
            5,
            "shape (1, 5, 8, 64) instead of [positions, heads, 64]",
        ),
        (
            (5, 512),
            (5, 512),
            5,
            "(5, 512) instead of [positions, heads, 64], beside q likewise",
        ),
        ((5, 8, 64), (5, 4, 64), 5, "q has (5, 8, 64)"),
        ((5, 8, 64), (5, 8, 64), 4, "4 positions for 5 rows"),
        ((1, 8, 64), (1, 8, 64), 1, "has no position above 0"),
    ],
)
def test_dumps_of_another_shape_are_told_what_is_expected(
    tmp_path: Path,
    shape: tuple[int, ...],
    rotated: tuple[int, ...],
    positions: int,
    says: str,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    arrays: dict[str, Any] = {"q": np.ones(shape), "q_rotated": np.ones(rotated)}
    np.savez(tmp_path / "own.npz", positions=np.arange(positions), **arrays)
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        check(str(tmp_path / "own.npz"), config=str(tmp_path / "config.json"))
    assert "\n" not in str(caught.value)


def test_heads_that_are_rotated_otherwise_than_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    ropelab.vectors(str(tmp_path / "config.json"), str(tmp_path))
    with np.load(tmp_path / "vectors.npz") as stored:
        given, right, back = (
            stored["k"],
            stored["k_rotated"],
            stored["mistake_direction"],
        )
    for wrong, heads, says in (
        (
            np.broadcast_to(given, right.shape),
            [1, 2, 3],
            "k: vectors 1, 2, 3 of 4: not rotated",
        ),
        (
            back,
            [2],
            "k: vector 2 of 4: rotated otherwise than the others, which are right",
        ),
        (right, [], "right, as an honest float32 code"),
    ):
        rotated = right.copy()
        rotated[:, heads] = wrong[:, heads]
        np.savez(tmp_path / "mine.npz", k_rotated=rotated)
        done = check(str(tmp_path / "mine.npz"))
        assert (done.wrong, says in done.answer) == (bool(heads), True), done.answer


def test_assert_rope(tmp_path: Path) -> None:
    theta = 500000.0 ** (-np.arange(32) / 32)

    def tables(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.cos(positions[:, None] * theta), np.sin(positions[:, None] * theta)

    assert_rope(tables, PLAIN)
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    assert_rope(tables, tmp_path)
    with pytest.raises(AssertionError, match="base 500000 instead of 10000"):
        assert_rope(tables, {**PLAIN, "rope_theta": 10000.0})
    with pytest.raises(InputError, match="head_dim"):
        assert_rope(tables, {})


def test_assert_rope_takes_modules() -> None:
    class Tables(torch.nn.Module):
        def forward(
            self, position_ids: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            angles = position_ids[:, None] * 500000.0 ** (-torch.arange(32.0) / 32)
            return angles.cos()[None, :, None], angles.sin()[None, :, None]

    assert_rope(Tables(), PLAIN)
    with pytest.raises(AssertionError, match="base 500000 instead of 10000"):
        assert_rope(Tables(), {**PLAIN, "rope_theta": 10000.0})


def test_assert_rope_takes_a_class_of_transformers() -> None:
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    llama = tiny("llama", rope_theta=500000.0)
    assert_rope(LlamaRotaryEmbedding(llama), llama.to_dict())
    gemma = tiny("gemma3_text", **ARCHITECTURES["gemma3_text"])
    for layer in ("full_attention", "sliding_attention"):
        assert_rope(Gemma3RotaryEmbedding(gemma), gemma.to_dict(), layer_type=layer)


@pytest.mark.parametrize("name", ["../x", "..", "a/b", "a b", "."])
def test_layer_types_of_a_file_without_a_model_type_make_no_folders_elsewhere(
    tmp_path: Path, name: str
) -> None:
    part = {"rope_type": "default", "rope_theta": 1e4}
    config: dict[str, Any] = {"hidden_size": 256, "num_attention_heads": 4}
    config |= {"max_position_embeddings": 4096, "layer_types": [name, "full_attention"]}
    config |= {"rope_parameters": {name: part, "full_attention": part}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="is no name for a folder"):
        ropelab.vectors(str(tmp_path / "config.json"), str(tmp_path / "kit"))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
