"""The change of a score over one token, against mpmath, singular values and torch's
softmax.
"""

import math
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.chain import Spectrum
from ropelab.math.numerics.formats import FORMATS
from ropelab.math.numerics.scores import (
    Alignment,
    compute_largest_step,
    compute_neighbouring_scores,
    compute_scores_and_steps,
    draw,
    measure_score_margins,
)

DISTANCES = np.array([0.0, 1.0, 7.0, 100.0])
SLOW = np.full(16, 2 * math.pi / 1e6)
ROPE = inverse_frequencies(32, 1e4)
FOUND = ("float32", "float16", "bfloat16")


def margins(inv_freq: np.ndarray) -> dict[tuple[Any, Any], Any]:
    """The margins by vectors and format."""
    found = measure_score_margins(
        inv_freq, [FORMATS[name] for name in FOUND], DISTANCES, 50, seed=0
    )
    return {(signal.vectors, signal.format): signal for signal in found.itertuples()}


def rotations(inv_freq: np.ndarray, distance: float) -> np.ndarray:
    """The rotation of a whole head by a distance, as a matrix."""
    angles = inv_freq * distance
    blocks = [
        np.array([[c, -s], [s, c]])
        for c, s in zip(np.cos(angles), np.sin(angles), strict=True)
    ]
    return scipy.linalg.block_diag(*blocks)


@pytest.mark.parametrize("alignment", ["random", "aligned"])
@pytest.mark.parametrize("inv_freq", [SLOW, ROPE], ids=["one", "rope"])
def test_steps_are_right_to_all_digits(alignment, inv_freq):
    draws = draw(3, len(inv_freq), alignment, seed=4)
    _, steps = compute_scores_and_steps(inv_freq, draws, DISTANCES)
    (q1, q2), (k1, k2) = draws.query, draws.key
    with mpmath.workdps(50):
        for n, at in np.ndindex(steps.shape):
            exact = mpmath.mpf(0)
            for i, theta in enumerate(inv_freq):
                dot = mpmath.mpf(q1[n, i, 0] * k1[n, i, 0] + q2[n, i, 0] * k2[n, i, 0])
                cross = mpmath.mpf(
                    q1[n, i, 0] * k2[n, i, 0] - q2[n, i, 0] * k1[n, i, 0]
                )
                for sign, distance in ((1, DISTANCES[at] + 1), (-1, DISTANCES[at])):
                    angle = mpmath.mpf(theta) * mpmath.mpf(distance)
                    exact += sign * (
                        dot * mpmath.cos(angle) + cross * mpmath.sin(angle)
                    )
            exact /= mpmath.sqrt(2 * len(inv_freq))
            assert abs(steps[n, at] - exact) <= 1e-12 * float(np.abs(steps).max())


@pytest.mark.parametrize("inv_freq", [SLOW, ROPE], ids=["one", "rope"])
@pytest.mark.parametrize("vectors", ["aligned at 0", "aligned", "random"])
def test_steps_are_the_mean_squares_of_many_draws(vectors, inv_freq):
    places = np.zeros(1) if vectors == "aligned at 0" else DISTANCES
    alignment: Alignment = "random" if vectors == "random" else "aligned"
    score, step = compute_scores_and_steps(
        inv_freq, draw(20000, 16, alignment, seed=7), places
    )
    found = margins(inv_freq)[vectors, "float32"]
    assert found.score_step == pytest.approx(math.sqrt((step**2).mean()), rel=0.02)

    scale = math.sqrt((score**2).mean())
    assert scale / 2**25 < found.rounding <= scale / 2**24 * 1.02
    assert found.step_to_rounding == found.score_step / found.rounding


def test_no_margin_of_the_answer_depends_on_the_draws():
    columns = ["vectors", "format", "score_step", "rounding", "step_to_rounding"]
    formats = [FORMATS[name] for name in FOUND]
    one, other = (
        measure_score_margins(ROPE, formats, DISTANCES, count, seed)[columns]
        for count, seed in ((4, 0), (30, 9))
    )
    assert one.equals(other)


def test_scores_are_those_of_the_rotation():
    draws = draw(5, 16, "random", seed=1)
    here, there = compute_neighbouring_scores(Spectrum(ROPE), draws, DISTANCES)
    score, step = compute_scores_and_steps(ROPE, draws, DISTANCES)
    np.testing.assert_allclose(score, here, rtol=0, atol=1e-12)
    np.testing.assert_allclose(score + step, there, rtol=0, atol=1e-12)


@given(st.lists(st.floats(1e-6, 3.0), min_size=1, max_size=6), st.integers(0, 1000))
@settings(max_examples=30)
def test_the_largest_step_is_a_singular_value_and_no_draw_exceeds_it(thetas, distance):
    inv_freq = np.array(thetas)
    width = math.sqrt(2 * len(thetas))
    turned = rotations(inv_freq, distance + 1.0) - rotations(inv_freq, float(distance))
    largest = np.linalg.svd(turned, compute_uv=False)[0] * width
    assert compute_largest_step(inv_freq) == pytest.approx(largest, rel=1e-9, abs=1e-9)
    draws = draw(200, len(thetas), "random", seed=0)
    _, steps = compute_scores_and_steps(inv_freq, draws, np.array([float(distance)]))
    lengths = [np.sqrt((a**2 + b**2).sum(1)[:, 0]) for a, b in (draws.query, draws.key)]
    allowed = compute_largest_step(inv_freq) * lengths[0] * lengths[1] / width**2
    assert (np.abs(steps[:, 0]) <= allowed * (1 + 1e-12)).all()


def test_where_the_key_is_the_query_one_slow_frequency_changes_no_float32_score():
    slow, rope = margins(SLOW), margins(ROPE)
    aligned = slow["aligned at 0", "float32"]
    assert aligned.unchanged_fraction == 1
    assert aligned.status == "every score stays equal"
    # |q|^2/sqrt(d) (1 - cos theta), and the mean of |q|^2 is d
    expected = math.sqrt(32) * 2 * math.sin(math.pi / 1e6) ** 2
    assert aligned.score_step == pytest.approx(expected, rel=0.2)
    assert slow["random", "float32"].status == "above the rounding"
    assert slow["random", "bfloat16"].status == "below the rounding"
    assert {signal.status for signal in rope.values()} == {"above the rounding"}


def test_without_a_frequency_nothing_changes():
    for signal in margins(np.zeros(16)).values():
        assert (signal.score_step, signal.weight_change) == (0, 0)
        assert signal.status == "every score stays equal"


def test_softmax_gives_the_neighbour_that_much_more():
    for signal in margins(ROPE).values():
        weights = torch.softmax(
            torch.tensor([0.3, 0.3 + signal.score_step]).double(), 0
        )
        assert float(weights[1] / weights[0]) - 1 == pytest.approx(
            signal.weight_change, rel=1e-6
        )


def test_the_rounding_is_what_storing_a_score_costs_at_most():
    score, _ = compute_scores_and_steps(ROPE, draw(50, 16, "random", seed=0), DISTANCES)
    stored = torch.from_numpy(score).bfloat16().double().numpy()
    error = np.median(np.abs(stored - score))
    assert 0.2 < error / margins(ROPE)["random", "bfloat16"].rounding < 1
