"""Frequencies against their formula, arbitrary precision, and the two ends."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelab.math.frequencies import (
    Geometry,
    inverse_frequencies,
    rotations,
    wavelengths,
)
from ropelab.runs.errors import InputError

DIMS = st.integers(1, 128).map(lambda pairs: 2 * pairs)
BASES = st.floats(1.001, 1e12)


@given(DIMS, BASES)
def test_first_pair_turns_a_radian_and_neighbours_have_one_ratio(dim, base):
    inv_freq = inverse_frequencies(dim, base)
    assert inv_freq.dtype == np.float64
    assert inv_freq.shape == (dim // 2,)
    assert inv_freq[0] == 1
    expected = np.full(dim // 2 - 1, base ** (-2 / dim))
    np.testing.assert_allclose(
        inv_freq[1:] / inv_freq[:-1], expected, rtol=1e-13, atol=0
    )


@pytest.mark.parametrize(
    ("dim", "base"), [(128, 10000.0), (64, 1e6), (256, 5e5), (6, 3.7)]
)
def test_agrees_with_fifty_digits(dim, base):
    with mpmath.workdps(50):
        exact = [
            float(mpmath.mpf(base) ** (mpmath.mpf(-2 * i) / dim))
            for i in range(dim // 2)
        ]
    found = inverse_frequencies(dim, base)
    np.testing.assert_allclose(found, np.array(exact), rtol=3e-16, atol=0)


@given(DIMS, BASES, st.integers(2, 10**6))
def test_turns_are_length_over_wavelength(dim, base, length):
    inv_freq = inverse_frequencies(dim, base)
    np.testing.assert_allclose(
        rotations(inv_freq, length), length / wavelengths(inv_freq)
    )


def test_periods_of_a_model_with_64_features_and_base_1e6():
    found = wavelengths(inverse_frequencies(64, 1e6))
    assert found[0] == 2 * math.pi
    assert found[15] == pytest.approx(4.08e3, rel=1e-3)
    assert found[31] == pytest.approx(4.08e6, rel=1e-3)


def test_a_dropped_pair_has_an_infinite_wavelength():
    assert np.isinf(wavelengths(np.array([0, 5e-324, 1e-308]))).all()


@pytest.mark.parametrize("dim", [0, 1, -2, 7])
def test_refuses_widths_that_are_not_pairs(dim):
    with pytest.raises(InputError, match="even number of at least 2"):
        inverse_frequencies(dim, 1e4)


@pytest.mark.parametrize("base", [1.0, 0.5, -3.0, 0.0, math.nan, math.inf])
def test_refuses_bases_that_do_not_slow_down(base):
    with pytest.raises(InputError, match="above 1"):
        Geometry(64, base, 2048)


def test_refuses_a_length_without_neighbours():
    with pytest.raises(InputError, match="at least 2 tokens"):
        Geometry(64, 1e4, 1)
