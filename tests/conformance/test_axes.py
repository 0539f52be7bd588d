"""Positions of several axes: time, height and width of an image's patches."""

from typing import Any

import numpy as np
import pytest

from ropelab.conformance.calls import ask_function
from ropelab.conformance.check import Check, judge_code
from ropelab.conformance.expected import expect_config
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


def test_code_that_takes_one_axis_is_not_accused() -> None:
    def tables(positions: np.ndarray) -> Any:
        assert positions.ndim == 1
        angles = positions[:, None] * THETA
        return np.cos(angles), np.sin(angles)

    done = checked(TURNS, tables)
    assert not done.wrong
    assert mentions(done.answer, "axes of positions", "not judged")
