"""Positions of several axes: time, height and width of an image's patches."""

from typing import Any

import numpy as np
import pytest

from ropelab.conformance.calls import ask_function
from ropelab.conformance.check_code import judge_code
from ropelab.conformance.diagnosis import Check
from ropelab.conformance.expected import expect_config
from ropelab.math.numerics.formats import FORMATS, round_to
from tests.texts import mentions

SIZES: dict[str, Any] = {"hidden_size": 512, "num_attention_heads": 8}
SIZES |= {"max_position_embeddings": 32768, "rope_theta": 1e6, "head_dim": 64}
SECTIONS = (12, 10, 10)
BLOCK = {"rope_type": "default", "mrope_section": list(SECTIONS)}
RUNS = {**SIZES, "model_type": "qwen2_5_vl_text", "rope_scaling": BLOCK}
TURNS = {**SIZES, "model_type": "qwen3_vl_text"}
TURNS["rope_scaling"] = {**BLOCK, "mrope_interleaved": True}
THETA = 1e6 ** (-np.arange(32) / 32)
IN_RUNS = np.repeat([0, 1, 2], SECTIONS)
IN_TURNS = np.array([0, 1, 2] * 10 + [0, 0])


def reading(axes: np.ndarray, vectors: bool) -> Any:
    """A code whose pairs read these axes; of a text, all are alike."""

    def angles(position_ids: np.ndarray) -> np.ndarray:
        places = np.broadcast_to(position_ids, (3, position_ids.shape[-1]))
        return places[axes].T * THETA

    def tables(position_ids: np.ndarray) -> Any:
        return np.cos(angles(position_ids)), np.sin(angles(position_ids))

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        cos, sin = tables(positions)
        a, b = x[:, :32], x[:, 32:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    return rotate if vectors else tables


def checked(config: dict[str, Any], code: Any) -> Check:
    wanted = expect_config("config.json", config, None)["all"]
    return judge_code(
        lambda spec, at: ask_function(code, "code", spec, at), wanted, 0.01
    )


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize(("config", "axes"), [(RUNS, IN_RUNS), (TURNS, IN_TURNS)])
def test_the_configured_axes_are_right(
    config: dict[str, Any], axes: np.ndarray, vectors: bool
) -> None:
    done = checked(config, reading(axes, vectors))
    assert not done.wrong
    assert mentions(done.answer, "axes of positions", "right")


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize(
    ("config", "axes", "says"),
    [
        (TURNS, IN_RUNS, "come in runs of pairs instead of taking turns"),
        (RUNS, IN_TURNS, "take turns instead of coming in runs of pairs"),
        (RUNS, 0 * IN_RUNS, "all pairs read the axis of time"),
        (TURNS, np.array([0, 2, 1])[IN_TURNS], "the order time, width, height"),
        (TURNS, IN_TURNS[::-1], "other axes of the position than configured"),
    ],
)
def test_other_axes_are_named(
    config: dict[str, Any], axes: np.ndarray, says: str, vectors: bool
) -> None:
    done = checked(config, reading(axes, vectors))
    assert done.wrong
    assert says in done.answer


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        (
            np.array([1, 2, 0] * 10 + [0, 0]),
            "height, width, time in turns, 30 to 31 time",
        ),
        (np.repeat([0, 2], [22, 10]), "pairs 0 to 21 time, 22 to 31 width"),
    ],
)
def test_axes_in_no_known_order_are_listed(axes: np.ndarray, says: str) -> None:
    done = checked(TURNS, reading(axes, vectors=True))
    assert done.wrong
    assert says in done.answer


def test_two_features_that_read_different_axes() -> None:
    """The sections count features, and the second half of the head reads on."""
    axis_of_feature = np.repeat([0, 1, 2], 2 * np.array(SECTIONS))

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        places = np.broadcast_to(positions, (3, positions.shape[-1]))
        angles = places[axis_of_feature].T * np.tile(THETA, 2)
        turned = np.concatenate([-x[:, 32:], x[:, :32]], -1)
        return x * np.cos(angles) + turned * np.sin(angles)

    done = checked(RUNS, rotate)
    assert done.wrong
    assert mentions(done.answer, "its two features", "read different axes")


def test_code_that_takes_one_axis_is_not_accused() -> None:
    def tables(positions: np.ndarray) -> Any:
        assert positions.ndim == 1
        angles = positions[:, None] * THETA
        return np.cos(angles), np.sin(angles)

    done = checked(TURNS, tables)
    assert not done.wrong
    assert mentions(done.answer, "axes of positions", "not judged")


# Codes of one configuration each, in several styles, and with one mistake each.
Pairs = np.ndarray
LLAMA_LIKE = {"num_attention_heads": 4, "max_position_embeddings": 32768}
ERNIE = {
    **LLAMA_LIKE,
    "model_type": "ernie4_5_vl_moe_text",
    "hidden_size": 256,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 500000.0,
        "mrope_section": [11, 11, 10],
    },
}
ERNIE_THETA = 5e5 ** (-np.arange(32) / 32)
# Height and width take turns in the first 22 pairs, and time has the others.
OF_ERNIE = np.array([1, 2] * 11 + [0] * 10)


def adjacent(axes: np.ndarray, theta: np.ndarray, scale: Any = 1.0) -> Any:
    """A code that rotates adjacent pairs by positions [3, n]."""

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        places = np.broadcast_to(positions, (3, positions.shape[-1]))
        angles = (places * np.reshape(scale, (-1, 1)))[axes].T * theta
        cos, sin = np.cos(angles), np.sin(angles)
        a, b = x[:, ::2], x[:, 1::2]
        rotated = np.stack([a * cos - b * sin, b * cos + a * sin], -1)
        return rotated.reshape(x.shape)

    return rotate


def test_ernie_counts_height_and_width_before_time() -> None:
    done = checked(ERNIE, adjacent(OF_ERNIE, ERNIE_THETA))
    assert not done.wrong
    assert mentions(done.answer, "axes of positions are right")


@pytest.mark.parametrize(
    ("axes", "scale", "says"),
    [
        (np.repeat([1, 2, 0], [11, 11, 10]), 1.0, "come in runs of pairs"),
        (np.array([2, 1] * 11 + [0] * 10), 1.0, "height and width are exchanged"),
        (np.array([0] * 10 + [1, 2] * 11), 1.0, "that read time come first"),
    ],
)
def test_mistakes_in_ernie_s_order(axes: Any, scale: Any, says: str) -> None:
    done = checked(ERNIE, adjacent(axes, ERNIE_THETA, scale))
    assert done.wrong
    assert says in done.answer


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: p * [[2], [1], [1]], "positions of time are multiplied by 2"),
        (lambda p: p // [[4], [1], [1]], "positions of time are p // 4"),
        (lambda p: p + np.array([[0], [1], [1]]), "height and width are off by 1"),
        (lambda p: p * [[1], [1], [0]], "positions of width do not move any pair"),
        (lambda p: p * [[1], [-1], [1]], "positions of height turn the wrong way"),
    ],
)
def test_positions_of_one_axis_that_are_changed(change: Any, says: str) -> None:
    """Such a code is right for text, where it merges no axes."""

    def tables(positions: np.ndarray) -> Any:
        places = np.broadcast_to(positions, (3, positions.shape[-1]))
        if positions.ndim > 1 and (positions[0] != positions[1]).any():
            places = change(places)
        angles = places[IN_TURNS].T * THETA
        return np.cos(angles), np.sin(angles)

    done = checked(TURNS, tables)
    assert done.wrong
    assert says in done.answer


@pytest.mark.parametrize(
    ("config", "change", "says"),
    [
        (TURNS, lambda p: p + np.array([[0], [1], [0]]), "of height are off by 1"),
        (TURNS, lambda p: p / [[2], [1], [1]], "of time are divided by 2"),
        (RUNS, lambda p: p / [[2], [1], [1]], "of time are divided by 2"),
        (RUNS, lambda p: p * [[1], [2], [2]], "height and width are multiplied by 2"),
    ],
)
def test_positions_of_some_axes_that_are_changed_in_text_too(
    config: dict[str, Any], change: Any, says: str
) -> None:
    """What is wrong in text is named by its axes, not as frequencies or rounding."""
    axes = IN_RUNS if config is RUNS else IN_TURNS

    def tables(positions: np.ndarray) -> Any:
        places = change(np.broadcast_to(positions, (3, positions.shape[-1])))
        angles = places[axes].T * THETA
        return np.cos(angles), np.sin(angles)

    done = checked(config, tables)
    assert done.wrong
    assert says in done.answer


def test_frequencies_of_turns_that_come_in_runs() -> None:
    """Such code sorts them for a class that puts axes in turns, and does so twice."""
    theta = ERNIE_THETA[np.r_[0:22:2, 1:22:2, 22:32]]
    done = checked(ERNIE, adjacent(OF_ERNIE, theta))
    assert done.wrong
    assert mentions(done.answer, "take turns", "frequencies come in runs")


def test_frequencies_of_a_run_for_each_axis_that_takes_turns() -> None:
    """Frequencies were divided among the axes before the pairs were put in turns."""
    theta = np.empty_like(ERNIE_THETA)
    theta[0:22:2] = ERNIE_THETA[:11]
    theta[1:22:2] = ERNIE_THETA[11:22]
    theta[22:] = ERNIE_THETA[22:]
    done = checked(ERNIE, adjacent(OF_ERNIE, theta))
    assert done.wrong
    assert mentions(done.answer, "a run of the head's frequencies", "take turns")


def test_turns_that_do_not_end_with_the_sections() -> None:
    block = {**BLOCK, "mrope_section": [20, 6, 6], "mrope_interleaved": True}
    config = {**TURNS, "rope_scaling": block}
    right = np.array([0, 1, 2] * 6 + [0] * 14)
    assert not checked(config, reading(right, False)).wrong
    done = checked(config, reading(np.arange(32) % 3, False))
    assert done.wrong
    assert "take turns up to the last pair" in done.answer


def test_code_that_takes_a_number_for_one_axis_is_right() -> None:
    """A table that is looked up, of which vLLM takes the rows of three axes."""

    def tables(positions: np.ndarray) -> Any:
        places = np.asarray(positions)
        if places.ndim == 1:
            places = np.stack([places] * 3)
        angles = places[..., None] * THETA
        cos, sin = np.cos(angles), np.sin(angles)
        by_axis = [axis == IN_TURNS for axis in range(3)]
        cos_of_axes, sin_of_axes = cos[0], sin[0]
        for axis in (1, 2):
            cos_of_axes = np.where(by_axis[axis], cos[axis], cos_of_axes)
            sin_of_axes = np.where(by_axis[axis], sin[axis], sin_of_axes)
        return cos_of_axes, sin_of_axes

    done = checked(TURNS, tables)
    assert not done.wrong
    assert mentions(done.answer, "axes of positions are right")


def test_sections_in_another_order() -> None:
    block = {**BLOCK, "mrope_section": [8, 12, 12]}
    config = {**RUNS, "rope_scaling": block}
    done = checked(config, reading(np.repeat([0, 1, 2], [12, 12, 8]), False))
    assert done.wrong
    assert mentions(done.answer, "sections [12, 12, 8] instead of [8, 12, 12]")


@pytest.mark.parametrize(
    ("ladder", "says"),
    [
        (1e6 ** (-np.concatenate([np.arange(n) / n for n in SECTIONS])), "of its own"),
        (THETA[np.concatenate([np.arange(n) for n in SECTIONS])], "start again at 0"),
    ],
)
def test_another_ladder_shows_in_text_and_is_named(ladder: Any, says: str) -> None:
    def tables(positions: np.ndarray) -> Any:
        places = np.broadcast_to(positions, (3, positions.shape[-1]))
        angles = places[IN_RUNS].T * ladder
        return np.cos(angles), np.sin(angles)

    done = checked(RUNS, tables)
    assert done.wrong
    assert says in done.answer


@pytest.mark.parametrize("shape", ["[3, n]", "[n, 3]", "[3, 1, n]"])
def test_code_that_takes_nothing_but_several_axes(shape: str) -> None:
    def tables(position_ids: np.ndarray) -> Any:
        places = position_ids
        if shape == "[n, 3]":
            assert places.shape[-1] == 3
            places = places.T
        elif shape == "[3, 1, n]":
            assert places.shape[:2] == (3, 1)
            places = places[:, 0]
        assert places.shape[0] == 3
        assert places.ndim == 2
        angles = places[IN_TURNS].T * THETA
        return np.cos(angles), np.sin(angles)

    done = checked(TURNS, tables)
    assert not done.wrong
    assert mentions(done.answer, "axes of positions are right")


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("last", [1, 4])
def test_slow_pairs_with_another_axis_are_named(last: int, vectors: bool) -> None:
    """The slowest pair turns by a third of a degree in 4,096 tokens."""
    axes = IN_RUNS.copy()
    axes[-last:] = 0
    done = checked({**RUNS, "head_dim": 64}, reading(axes, vectors))
    assert done.wrong
    assert mentions(done.answer, f"pair {32 - last} moves with time, not with width")


def test_pairs_that_rounding_hides_are_named_by_number() -> None:
    """In bfloat16 the slow pairs of a short text stand still."""
    config = {**RUNS, "max_position_embeddings": 4096, "rope_theta": 1e8}
    theta = 1e8 ** (-np.arange(32) / 32)

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        places = np.broadcast_to(positions, (3, positions.shape[-1]))
        angles = places[IN_RUNS].T * theta
        cos, sin = np.cos(angles), np.sin(angles)
        a, b = x[:, :32], x[:, 32:]
        rotated = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
        return round_to(rotated, FORMATS["bfloat16"])

    done = checked(config, rotate)
    assert not done.wrong
    assert "axes of positions are right, but for pairs" in done.answer
    assert "to 31, which turn too little up to position 4095" in done.answer


def rotate_half(x: Any) -> Any:
    import torch

    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


@pytest.mark.parametrize(("order", "is_wrong"), [((0, 1, 2), False), ((0, 2, 1), True)])
def test_tables_that_take_text_and_three_axes_are_judged(
    order: tuple[int, ...], is_wrong: bool
) -> None:
    """transformers takes position ids [batch, n] and [3, batch, n]."""
    import torch

    theta = torch.tensor(THETA)
    axes = torch.tensor(order)[torch.tensor(IN_RUNS)]

    def tables(x: Any, position_ids: Any) -> Any:
        if position_ids.ndim == 2:
            position_ids = position_ids[None].expand(3, -1, -1)
        angles = position_ids[axes].permute(1, 2, 0) * theta
        both = torch.cat((angles, angles), -1)
        return both.cos(), both.sin()

    def apply(q: Any, k: Any, cos: Any, sin: Any) -> Any:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin

    done = checked(RUNS, (tables, apply))
    assert done.wrong == is_wrong
    assert "not judged" not in done.answer
    if is_wrong:
        assert "height and width are exchanged" in done.answer
