"""Two cast plans beside each other, compared with plain float32 arithmetic of NumPy."""

import re
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision import results as precision
from ropelab.experiments.precision.against import (
    compare_angles,
    compare_scores,
    state_against,
)
from ropelab.experiments.precision.shared import make_spectrum
from ropelab.math.numerics.casts import parse_cast
from ropelab.math.numerics.chain import Chain
from ropelab.runs.cell import Context
from ropelab.runs.config import build
from ropelab.runs.errors import InputError
from tests.models.tasks.running import made

LENGTH = 3000
PLAIN = {"base": 1e4, "head_dim": 16, "length": LENGTH, "schemes": "rope", "draws": 4}
PLAIN |= {"against": "angle=float32,inv_freq=float32"}


@cache
def shared() -> Context:
    """Cells that every test here may use once one has computed them."""
    return Context()


def compare(**changes: object) -> pd.DataFrame:
    config = build(PrecisionConfig, {**PLAIN, **changes})
    return made(precision, config, shared())["against"]


def test_angles_and_tables_are_those_of_plain_arithmetic():
    row = compare(cast="angle=bfloat16,inv_freq=float32").iloc[0]
    inv_freq = (1e4 ** (-np.arange(8) / 8)).astype(np.float32)
    angles = np.arange(LENGTH, dtype=np.float32)[:, None] * inv_freq
    rounded = torch.from_numpy(angles).bfloat16().double().numpy()
    exact = angles.astype(np.float64)
    apart = np.abs(np.angle(np.exp(1j * (rounded - exact))))
    assert row["max_angle_difference_rad"] == pytest.approx(apart.max(), rel=1e-9)
    assert apart[row["worst_position"], row["worst_pair"]] == pytest.approx(apart.max())
    first = int((apart > 0.01).any(axis=1).argmax())
    assert row["first_position_over_tolerance"] == first

    differences = []
    for function in (np.cos, np.sin):
        differences.append(np.abs(function(rounded) - function(exact)).max())
    assert row["max_table_difference"] == pytest.approx(max(differences), rel=1e-9)


@pytest.mark.parametrize("offset", [0, 70000])
def test_places_count_from_the_first_position(offset: int) -> None:
    """Also behind the first block of positions, and where no run begins at 0."""
    length = 20000
    row = compare(
        cast="angle=bfloat16,inv_freq=float32", offset=offset, length=length
    ).iloc[0]
    inv_freq = (1e4 ** (-np.arange(8) / 8)).astype(np.float32)
    positions = np.arange(offset, offset + length)
    angles = positions.astype(np.float32)[:, None] * inv_freq
    rounded = torch.from_numpy(angles).bfloat16().double().numpy()
    apart = np.abs(np.angle(np.exp(1j * (rounded - angles.astype(np.float64)))))
    assert offset <= row["worst_position"] < offset + length
    worst = apart[row["worst_position"] - offset, row["worst_pair"]]
    assert worst == pytest.approx(apart.max())
    first = offset + int((apart > 0.01).any(axis=1).argmax())
    assert row["first_position_over_tolerance"] == first


@pytest.mark.parametrize("sign", [1, -1])
def test_tables_differ_by_as_much_in_either_direction(sign: int) -> None:
    """The largest difference may be below 0 and above it."""

    class Fixed:
        def __init__(self, value: float) -> None:
            self.value = value

        def angle_errors(self, positions: np.ndarray) -> np.ndarray:
            return np.zeros((1, len(positions)))

        def table(self, positions: np.ndarray) -> Any:
            values = np.full((1, len(positions)), self.value)
            return values, np.zeros_like(values)

    config = build(PrecisionConfig, {**PLAIN, "cast": "bf16", "length": 8})
    found = compare_angles(Fixed(sign * 0.25), Fixed(0.0), config)  # type: ignore[arg-type]
    assert found["max_table_difference"] == 0.25


def test_a_difference_of_scores_says_over_what_it_is_a_mean():
    (said,) = state_against(compare(cast="angle=bfloat16"))
    assert (
        "(root mean square, brackets of 95 % over random vectors and positions;" in said
    )


def test_a_plan_against_itself_differs_in_nothing():
    row = compare(cast=PLAIN["against"]).iloc[0]
    assert row["max_angle_difference_rad"] == 0
    assert row["max_table_difference"] == 0
    assert row["rms_score_difference"] == 0
    assert row["rms_score_error"] == row["against_rms_score_error"] > 0
    assert pd.isna(row["first_position_over_tolerance"])


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64"])
def test_a_format_by_one_name_is_one_plan(name: str) -> None:
    row = compare(cast=name, against=name, length=100).iloc[0]
    assert row["max_angle_difference_rad"] == 0
    assert row["rms_score_difference"] == 0


def test_each_plan_has_its_own_errors_and_order_does_not_matter():
    ours = compare(cast="angle=bfloat16", against="table=bfloat16").iloc[0]
    theirs = compare(cast="table=bfloat16", against="angle=bfloat16").iloc[0]
    assert ours["rms_score_error"] == theirs["against_rms_score_error"]
    assert ours["max_angle_error_rad"] == theirs["against_max_angle_error_rad"] > 0
    assert ours["against_max_angle_error_rad"] == 0
    assert ours["max_angle_difference_rad"] == theirs["max_angle_difference_rad"]
    assert ours["rms_score_difference"] == theirs["rms_score_difference"]


def test_the_interval_of_scores_covers_the_mean_of_many_draws():
    """The mean square over thirty seeds, and how many intervals contain it."""
    asked: dict[str, Any] = {**PLAIN, "cast": "angle=bfloat16", "draws": 32}
    spectrum = make_spectrum(build(PrecisionConfig, asked))
    ours, theirs = (
        Chain(parse_cast(text), spectrum) for text in ("angle=bfloat16", "float64")
    )
    rows = []
    for seed in range(30):
        config = build(PrecisionConfig, {**asked, "seed": seed})
        rows.append(compare_scores(ours, theirs, config))
    table = pd.DataFrame(rows)

    value = table["rms_score_difference"]
    low = table["rms_score_difference_ci_low"]
    high = table["rms_score_difference_ci_high"]
    mean = np.sqrt((value**2).mean())
    assert ((low <= mean) & (mean <= high)).sum() >= 26
    assert ((low < value) & (value < high)).all()


def test_an_overflow_is_a_status_and_no_number():
    row = compare(cast="position=float8_e4m3fn").iloc[0]
    assert row["status"].startswith("overflows from position 4")
    assert pd.isna(row["max_angle_difference_rad"])
    # Four binary digits hold 16 and no 17, long before the format ends.
    assert row["first_position_over_tolerance"] == 17
    assert row["worst_position"] > 400


@pytest.mark.parametrize(
    ("cast", "against", "says"),
    [
        (
            "angle=float16",
            "float64",
            "angle=float16 against float64: angle=float16 overflows from position 65520,"
            " and beyond the tolerance from position 52 on",
        ),
        (
            "position=bfloat16",
            "angle=float16",
            "position=bfloat16 against angle=float16: angle=float16 overflows from"
            " position 65520, and beyond the tolerance from position 52 on",
        ),
        (
            "position=float16",
            "angle=float16",
            "position=float16 against angle=float16: both overflow from position 65520,"
            " and beyond the tolerance from position 52 on",
        ),
        # 257 is no number of bfloat16, and no sampled position.
        (
            "position=bfloat16",
            "float64",
            "position=bfloat16 against float64: angles differ by 1 rad at most (pair 0,"
            " position 257), and beyond the tolerance from position 257 on; no sampled"
            " score differs",
        ),
    ],
)
@pytest.mark.filterwarnings("error")
def test_who_overflows_and_what_no_score_shows(
    cast: str, against: str, says: str
) -> None:
    length = 259 if (cast, against) == ("position=bfloat16", "float64") else 65600
    changes = {"cast": cast, "against": against, "length": length, "base": 1e6}
    (sentence,) = state_against(compare(**changes, head_dim=64, draws=8))
    assert sentence == says


def test_equal_angles_have_no_place_where_they_differ() -> None:
    (sentence,) = state_against(
        compare(cast="table=bfloat16", against="float64", length=600)
    )
    assert sentence.endswith("no angle differs")


def test_the_answer_begins_with_it_and_the_short_table_has_it():
    config = build(PrecisionConfig, {**PLAIN, "cast": "angle=bfloat16"})
    tables = made(precision, config, Context())
    answer = precision.answer(tables)
    assert answer.startswith("angle=bfloat16 against ")
    # A number of drawn vectors has its interval.
    assert re.search(r"scores differ by 0\.\d+ \[[\d.]+, [\d.]+\]", answer), answer
    short = precision.make_further_tables(tables)["against"]
    assert len(short) == 1
    assert len(short["score"].item()) <= len("0.00")


@pytest.mark.parametrize(
    "changes",
    [
        {"against": "float3", "cast": "bfloat16"},
        {"against": "angel=float16", "cast": "bf16"},
        {"against": "q8_0", "cast": "bf16"},
        {"against": "float32,bfloat16", "cast": "bf16"},
        {},
    ],
)
def test_what_cannot_be_compared_is_refused(changes: dict[str, Any]):
    with pytest.raises(InputError):
        precision.check(build(PrecisionConfig, {**PLAIN, **changes}))
