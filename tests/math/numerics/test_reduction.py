"""Sines of large angles in float32, by the terms that 2 pi is taken in."""

import math

import numpy as np
import pytest

from ropelab.math.numerics.reduction import (
    REDUCTIONS,
    Reduction,
    halve_period,
    reduce_angles,
    reduced_tables,
    reduction_errors,
    split_period,
)


@pytest.mark.parametrize(("terms", "error"), [(1, 1.8e-7), (2, 1.1e-10), (3, 1e-14)])
def test_the_terms_add_up_to_the_period(terms: int, error: float) -> None:
    parts = split_period(terms)
    assert all(float(np.float32(part)) == part for part in parts)
    assert abs(math.fsum(parts) - math.tau) < error


def test_a_short_first_term_has_exact_products() -> None:
    periods = np.arange(2**16, dtype=np.float64)
    for short in (REDUCTIONS[2].terms[0], REDUCTIONS[3].terms[0]):
        products = periods * short
        np.testing.assert_array_equal(products, products.astype(np.float32))


@pytest.mark.parametrize(
    ("terms", "fused", "position", "loss"),
    [
        (1, False, 131071, 0.0075),
        (1, False, 1048575, 0.060),
        (1, True, 131071, 0.0036),
        (1, True, 1048575, 0.029),
        (2, False, 131071, 2.1e-6),
        # From 2^16 periods on (411,775 rad) the first product is rounded.
        (2, False, 1048575, 0.031),
        (2, True, 1048575, 1.8e-6),
        (3, True, 1048575, 1.2e-7),
    ],
)
def test_what_each_loses_near_a_position(
    terms: int, fused: bool, position: int, loss: float
) -> None:
    places = np.arange(position - 2000, position + 1, dtype=np.float64)
    reduction = Reduction(REDUCTIONS[terms].terms, fused)
    largest = np.abs(reduction_errors(places, reduction)).max()
    assert largest == pytest.approx(loss, rel=0.05)


def test_errors_are_those_of_the_sines() -> None:
    places = np.arange(1_000_000, 1_000_512, dtype=np.float64)
    for reduction in (REDUCTIONS[1], halve_period(REDUCTIONS[1]), REDUCTIONS[2]):
        cos, sin = reduced_tables(places, reduction)
        off = np.angle((cos + 1j * sin) * np.exp(-1j * places))
        np.testing.assert_allclose(off, reduction_errors(places, reduction), atol=1e-9)


def test_small_angles_are_left_as_they_are() -> None:
    angles = np.linspace(-3, 3, 101).astype(np.float32)
    for reduction in REDUCTIONS.values():
        left, periods = reduce_angles(angles, reduction)
        np.testing.assert_array_equal(left, angles)
        assert not periods.any()
