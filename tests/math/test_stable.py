"""Stable bases, sought from above in boxes: against the search from below, and brute
force.
"""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelab.math.bounds import (
    Similarity,
    Walk,
    find_certified_u,
    find_first_negative,
)
from ropelab.math.bounds.boxes import (
    Boxes,
    find_threatened,
    gather_intervals,
    lowest_sums,
)

LLAMA = Similarity.of_head(128)
HEADS = st.builds(Similarity.of_head, st.integers(3, 64).map(lambda pairs: 2 * pairs))


def boxes_left(
    similarity: Similarity, first: int, stop: int, low: float, high: float
) -> Boxes:
    found = find_threatened(similarity, first, stop, low, high)
    assert found is not None
    return found


@given(
    HEADS,
    st.floats(0.5, 25),
    st.integers(1, 2**21),
    st.integers(0, 12),
    st.floats(1e-9, 1),
)
@settings(max_examples=200)
def test_no_sum_in_a_box_is_below_its_bound(similarity, u, first, power, width):
    box = Boxes(np.array([float(first)]), np.array([u]), 1 << power, width)
    bound = lowest_sums(similarity, box, first + box.run)[0]
    generator = np.random.default_rng(first)
    positions = np.append(
        generator.integers(first, first + box.run, 50), first + box.run - 1
    )
    bases = np.append(generator.uniform(u, u + width, 50), u + width)
    assert similarity.evaluate(positions.astype(np.float64), bases).min() >= bound


@given(HEADS, st.floats(0.5, 25), st.integers(1, 2**21))
def test_a_narrow_box_of_one_position_has_its_sum(similarity, u, position):
    box = Boxes(np.array([float(position)]), np.array([u]), 1, 1e-13)
    exact = similarity.evaluate(box.first, u)[0]
    error = 4 * similarity.single_error + 1e-12 * position
    assert exact - error <= lowest_sums(similarity, box, position + 1)[0] <= exact


def test_bounds_of_boxes_hold_at_thirty_digits():
    """Near an edge, where the sum of a position changes sign, rounding does not
    decide.
    """
    stable = Walk(LLAMA, 4096).find_stable()
    position = find_first_negative(LLAMA, math.exp(stable - 1e-9), 4096)
    assert position is not None
    box = Boxes(np.array([float(position)]), np.array([stable]), 1, 1e-12)
    with mpmath.workdps(30):
        exact = mpmath.fsum(
            mpmath.cos(position * mpmath.exp(-mpmath.mpf(stable) * i / 64))
            for i in range(64)
        )
    assert exact - 1e-3 < lowest_sums(LLAMA, box, 4096)[0] <= exact


@given(
    HEADS,
    st.floats(2, 14),
    st.floats(1e-4, 0.5),
    st.integers(1, 300),
    st.integers(20, 900),
)
@settings(max_examples=60)
def test_every_negative_sum_is_in_a_box_that_is_left(
    similarity, low, width, first, count
):
    boxes = boxes_left(similarity, first, first + count, low, low + width)
    positions = np.arange(first, first + count, dtype=np.float64)
    for u in np.linspace(low, low + width, 60):
        holding = (boxes.low - 1e-12 <= u) & (u <= boxes.low + boxes.width + 1e-12)
        negative = positions[similarity.evaluate(positions, u) < 0]
        assert set(negative) <= set(boxes.first[holding])
    assert len(boxes) == 0 or boxes.run == 1


def test_too_many_boxes_are_refused():
    assert find_threatened(LLAMA, 1, 4096, 3.0, 4.0, most_boxes=100) is None


def test_cells_have_all_that_threatens_them():
    boxes = boxes_left(LLAMA, 1, 1024, 8.0, 8.5)
    found = gather_intervals(LLAMA, boxes, 1e-6)
    assert found.intervals.shape[1] == len(np.unique(boxes.low)) < len(boxes)
    assert (np.diff(found.owner) >= 0).all()
    pairs = {
        (m, found.intervals[0, owner])
        for m, owner in zip(found.positions, found.owner, strict=True)
    }
    assert pairs == set(zip(boxes.first, boxes.low, strict=True))


@pytest.mark.parametrize(
    "similarity",
    [
        LLAMA,
        Similarity.of_head(64),
        Similarity.of_head(96, rotary_dim=72),
        Similarity.of_head(128, kept_share=0.75),
        Similarity.of_head(12),
    ],
)
@pytest.mark.parametrize("context", [2, 3, 100, 700, 2048])
def test_from_above_it_is_what_the_search_from_below_finds(similarity, context):
    stable = Walk(similarity, context).find_stable()
    found = Walk(similarity, context).find_first(max(0.0, stable - 1e-9))
    assert found == pytest.approx((stable, math.inf), abs=1e-10)
    if stable > 0:
        assert (
            find_first_negative(similarity, math.exp(stable - 1e-8), context)
            is not None
        )


@given(HEADS, st.integers(3, 700))
@settings(max_examples=40)
def test_above_the_stable_base_no_base_fails_and_just_below_it_one_does(
    similarity, context
):
    stable = Walk(similarity, context).find_stable()
    positions = np.arange(1, context, dtype=np.float64)
    certified = find_certified_u(similarity, context)
    for u in np.linspace(stable + 1e-9, certified, 200):
        assert similarity.evaluate(positions, u).min() > -1e-9
    assert similarity.evaluate(positions, stable - 1e-8).min() < 0


@pytest.mark.parametrize(
    ("power", "base"),
    [
        (12, 58789.5041520),
        (14, 1321077.95740),
        (16, 14949413.9265),
        (18, 269364728.553),
    ],
)
def test_stable_bases_are_those_of_a_search_of_all_windows(power, base):
    """All windows up to 2^18 were searched from below, without boxes, which took 25
    minutes.
    """
    assert math.exp(Walk(LLAMA, 2**power).find_stable()) == pytest.approx(
        base, rel=1e-10
    )


@pytest.mark.parametrize("power", [20, 22])
def test_stable_bases_of_long_contexts_divide_bases_that_fail_from_those_that_work(
    power,
):
    stable = Walk(LLAMA, 2**power).find_stable()
    assert find_first_negative(LLAMA, math.exp(stable - 1e-9), 2**power) is not None
    for above in (1e-9, 1e-7, 1e-3, 0.1, 1.0):
        assert find_first_negative(LLAMA, math.exp(stable + above), 2**power) is None


def test_settled_positions_are_left_out():
    half = Walk(LLAMA, 2048).find_stable()
    alone = Walk(LLAMA, 4096).find_stable()
    assert Walk(LLAMA, 4096, (half, 2048)).find_stable() == pytest.approx(
        alone, abs=1e-10
    )


def test_a_head_with_enough_unturned_features_has_no_stable_base():
    assert Walk(Similarity.of_head(128, rotary_dim=64), 4096).find_stable() == 0


def test_no_base_is_proved_for_two_pairs():
    assert Walk(Similarity.of_head(4), 64).find_stable() == math.inf


def test_a_single_token_needs_no_base():
    assert boxes_left(LLAMA, 1, 1, 1.0, 2.0).first.size == 0
