"""When encodings come back, against a count in exact fractions and in many digits."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.encoding import (
    find_common_period,
    find_first_repeat,
    find_whole_period,
    list_distinct_positions,
)

COMPONENTS = ("cos", "sin", "pair")
HALF = Fraction(1, 2)


def exact(position: int, period: Fraction, component: str) -> Fraction:
    """The angle in turns, up to the difference that the component does not see."""
    turns = (position / period) % 1
    if component == "cos":
        return min(turns, (-turns) % 1)
    if component == "sin":
        return min(turns, (HALF - turns) % 1)
    return turns


PERIODS = st.builds(
    Fraction, st.integers(5, 400), st.sampled_from([1, 1, 2, 3, 10])
).filter(lambda period: period > 2)


@given(PERIODS, st.sampled_from(COMPONENTS), st.integers(0, 1000), st.integers(1, 900))
@settings(max_examples=200)
def test_as_many_encodings_as_different_fractions(period, component, offset, length):
    found = list_distinct_positions(period.numerator, component, offset, length)
    codes = {exact(m, period, component) for m in range(offset, offset + length)}
    assert len(found) == len(codes)
    assert {exact(int(m), period, component) for m in found} == codes


@given(PERIODS, st.sampled_from(COMPONENTS))
@settings(max_examples=100)
def test_the_first_repeat_is_the_first_encoding_that_was_there_before(
    period, component
):
    seen, position = set(), 0
    while (code := exact(position, period, component)) not in seen:
        seen.add(code)
        position += 1
    assert find_first_repeat(period.numerator, component) == position


def test_360_positions_at_one_degree_a_token_in_forty_digits():
    with mpmath.workdps(50):
        codes = {
            tuple(
                mpmath.nstr(
                    mpmath.chop(f(2 * mpmath.pi * m / 360), mpmath.mpf(10) ** -40), 38
                )
                for f in (mpmath.cos, mpmath.sin)
            )
            for m in range(1000)
        }
    assert len(codes) == len(list_distinct_positions(360, "pair", 0, 1000)) == 360


@given(PERIODS)
def test_a_period_is_read_back_from_its_frequency(period):
    assert find_whole_period(2 * math.pi / float(period)) == period.numerator


@pytest.mark.parametrize("period", [1e6, 6.2832, 123.456, 1e9, 3.0])
def test_typed_periods_are_fractions(period):
    assert find_whole_period(2 * math.pi / period) == Fraction(str(period)).numerator


@pytest.mark.parametrize("base", [100.0, 1e4, 5e5, 1e6, 1e7])
def test_the_frequencies_of_rope_never_come_back(base):
    inv_freq = inverse_frequencies(256, base)
    assert not any(map(find_whole_period, inv_freq.tolist()))
    assert find_common_period(inv_freq.tolist()) is None


def test_periods_return_together_and_a_still_pair_waits_for_none():
    assert find_common_period([2 * math.pi / 12, 2 * math.pi / 8, 0.0]) == 24
    assert find_common_period([2 * math.pi / 12, 1.0]) is None
    assert find_common_period(np.zeros(3).tolist()) == 1
