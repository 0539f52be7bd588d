"""How slow one frequency may be, what a cosine resolves, and which pairs lose
neighbours.
"""

import math

import numpy as np
import pytest

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.chain import list_positions
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.numerics.neighbours import (
    count_equal_neighbours,
    find_longest_kept_period,
    find_losing_period,
    find_resolved_distance,
    find_widest_gap,
)
from ropelab.math.numerics.scores import (
    compute_scores_and_steps,
    compute_typical_step,
    draw,
)

SIXTEEN = ["float16", "bfloat16"]
LENGTH = 131072


def stored(theta: float, name: str, length: int) -> np.ndarray:
    angles = theta * list_positions(0, length)
    return round_to(np.stack((np.cos(angles), np.sin(angles))), FORMATS[name])


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_no_arc_of_equal_codes_is_wider_than_the_widest_gap(name):
    fmt = FORMATS[name]
    angles = np.linspace(0, 2 * math.pi, 2_000_001)
    codes = round_to(np.stack((np.cos(angles), np.sin(angles))), fmt)
    changes = np.flatnonzero((codes[:, 1:] != codes[:, :-1]).any(0))
    widest = np.diff(angles[changes]).max()
    assert find_widest_gap(fmt) == pytest.approx(widest, abs=4e-6)


def test_the_slowest_period_of_a_format_is_bracketed():
    brackets = {"float16": (9230, 9249), "bfloat16": (1154, 1156)}
    for name, (low, high) in brackets.items():
        kept = find_longest_kept_period(FORMATS[name], 0, LENGTH)
        losing = find_losing_period(FORMATS[name], 0, LENGTH)
        assert losing is not None
        assert low < kept < losing < high
        for period, equal in ((0.999 * kept, False), (losing, True)):
            codes = stored(2 * math.pi / period, name, LENGTH)
            same = (codes[:, 1:] == codes[:, :-1]).all(0)
            assert same.any() == equal


def test_float32_keeps_neighbours_at_every_period_of_short_texts():
    float32 = FORMATS["float32"]
    assert find_longest_kept_period(float32, 0, LENGTH) == math.inf
    assert find_losing_period(float32, 0, LENGTH) is None
    for period in (1e6, 1e8, 1e10, 1e14):
        assert count_equal_neighbours(2 * math.pi / period, [float32], 0, 5000) == [0]
    far = find_longest_kept_period(float32, 0, 2**24)
    assert 7.4e7 < far < 7.5e7
    losing = find_losing_period(float32, 0, 2**24)
    assert losing is not None
    assert far < losing < 1.01 * far


def test_pairs_that_lose_neighbours_are_those_of_the_count():
    formats = [FORMATS[name] for name in ("float32", *SIXTEEN)]
    counts = np.array(
        [
            count_equal_neighbours(theta, formats, 0, LENGTH)
            for theta in inverse_frequencies(64, 1e6).tolist()
        ]
    )
    assert not counts[:, 0].any()
    assert int((counts[:, 1] > 0).argmax()) == 17
    assert int((counts[:, 2] > 0).argmax()) == 13
    codes = stored(1e6 ** (-2 * 20 / 64), "float16", LENGTH)
    assert counts[20, 1] == (codes[:, 1:] == codes[:, :-1]).all(0).sum()


def test_frequencies_near_whole_turns_lose_neighbours_too():
    (count,) = count_equal_neighbours(
        2 * math.pi / 1.00001, [FORMATS["bfloat16"]], 0, 10_000
    )
    assert count > 5_000


def test_a_cosine_tells_places_apart_from_some_distance_on():
    theta = 2 * math.pi / 1e6
    float32 = FORMATS["float32"]
    assert find_resolved_distance(theta, "cos", float32, 0, LENGTH) == 39
    cos = round_to(np.cos(theta * list_positions(0, LENGTH)), float32)
    assert (cos[38:] == cos[:-38]).any()
    assert not (cos[39:] == cos[:-39]).any()
    # It comes back within the positions: no distance is enough.
    assert find_resolved_distance(2 * math.pi / 1e5, "cos", float32, 0, 99_000) is None
    assert find_resolved_distance(theta, "sin", float32, 0, LENGTH) == 1


@pytest.mark.parametrize("pairs", [1, 32])
def test_the_typical_step_is_the_root_mean_square_of_many_draws(pairs):
    inv_freq = inverse_frequencies(64, 1e6)[:pairs]
    distances = np.array([0.0, 5.0, 300.0])
    _, step = compute_scores_and_steps(
        inv_freq, draw(4000, pairs, "random", 0), distances
    )
    found = np.sqrt((step**2).mean(0))
    assert found == pytest.approx(compute_typical_step(inv_freq), rel=0.08)


def test_the_typical_step_does_not_depend_on_the_number_of_equal_pairs():
    theta = 2 * math.pi / 1e6
    one = compute_typical_step(np.array([theta]))
    assert one == pytest.approx(theta, rel=1e-9)
    assert compute_typical_step(np.full(32, theta)) == pytest.approx(one, rel=1e-12)
