"""What casts cost along frames, rows and columns."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import ropelab
from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.axes import compute_axes, state_axes
from ropelab.runs.config import build
from ropelab.runs.errors import InputError
from tests.texts import mentions

QWEN: dict[str, Any] = {"base": 1e6, "head_dim": 128, "sections": (16, 24, 24)}
TOWER: dict[str, Any] = {
    "base": 1e4,
    "head_dim": 80,
    "sections": (20, 20),
    "layout": "axial",
}


def row_of(config: PrecisionConfig, axis: str, name: str) -> dict[str, Any]:
    rows: list[dict[Any, Any]] = compute_axes(config).to_dict("records")
    return next(row for row in rows if (row["axis"], row["name"]) == (axis, name))


def test_positions_of_frames_and_rows_in_bfloat16() -> None:
    config = build(PrecisionConfig, QWEN)
    time = row_of(config, "time", "position=bfloat16")
    assert time["positions"] == 10_000
    assert time["pairs"] == 16
    # 257 is the first whole number that bfloat16 does not hold, and time has the pair
    # of frequency 1.
    assert time["first_position_over_tolerance"] == 257
    assert time["max_angle_error_rad"] == pytest.approx(np.pi, abs=0.1)

    # The fastest pair of width, number 40, turns by 1e6^(-40/64) = 1.8e-4 rad a step,
    # and positions below 4,096 are off by 8 at most.
    width = row_of(config, "width", "position=bfloat16")
    largest = 1e6 ** (-40 / 64)
    assert width["max_angle_error_rad"] == pytest.approx(8 * largest, rel=1e-3)
    assert pd.isna(width["first_position_over_tolerance"])


def test_axes_of_an_encoder_have_a_ladder_each() -> None:
    config = build(PrecisionConfig, {**TOWER, "cast": "angle=bfloat16"})
    table = compute_axes(config)
    assert table["axis"].tolist() == ["height", "width"]
    assert table["positions"].tolist() == [4096, 4096]
    assert table["max_angle_error_rad"].nunique() == 1
    assert table["first_position_over_tolerance"].tolist() == [7, 7]


def test_every_position_of_a_long_axis_is_looked_at() -> None:
    """float16 holds every eighth whole number from 8,192 on, every fourth below."""
    lengths = {"axis_lengths": (10_000, 10_000, 64), "tolerance": 0.1}
    config = build(PrecisionConfig, {**QWEN, **lengths})
    height = row_of(config, "height", "position=float16")
    assert height["positions"] == 10_000

    # The fastest pair of height, number 16, is off by 0.0949 rad at 8,195, which becomes
    # 8,192, and by 0.126 at 8,196.
    largest = 1e6 ** (-16 / 64)
    assert height["max_angle_error_rad"] == pytest.approx(4 * largest, rel=1e-3)
    assert height["first_position_over_tolerance"] == 8196
    assert row_of(config, "width", "position=float16")["positions"] == 64


def test_a_position_that_overflows_is_wrong() -> None:
    """The pairs of width are slow, so that nothing else is wrong there."""
    config = build(PrecisionConfig, {**QWEN, "axis_lengths": (64, 64, 70_000)})
    width = row_of(config, "width", "position=float16")
    assert pd.isna(width["max_angle_error_rad"])
    # The first whole number that float16 rounds to infinity.
    assert width["first_position_over_tolerance"] == 65_520


def test_the_command_says_what_is_lost() -> None:
    run = ropelab.precision(**TOWER, length=64, long_lengths=(128,))
    assert {"axis", "max_angle_error_rad"} <= {*run.tables["axes"].columns}
    assert mentions(run.answer, "4096 positions of height", "bfloat16")


@pytest.mark.parametrize(
    "change",
    [
        {"sections": (1, 2)},
        {"sections": (), "layout": "axial"},
        {"axis_lengths": (5,)},
        {"method": "ntk"},
    ],
)
def test_axes_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        build(PrecisionConfig, {**TOWER, **change})


def test_axes_name_the_stages_of_the_formats_that_are_typed() -> None:
    values: dict[str, Any] = {
        **QWEN,
        "formats": "float8_e5m2",
        "axis_lengths": (64,) * 3,
    }
    config = build(PrecisionConfig, values)
    clauses = state_axes(compute_axes(config), ["float8_e5m2"])
    assert "no angle is wrong" not in clauses[0]
    assert mentions(clauses[0], "64 positions of time", "float8_e5m2 for position")
