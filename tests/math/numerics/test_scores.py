"""Attention scores under a plan, against the rotation of rope/ and torch's own
bfloat16.
"""

import math

import numpy as np
import torch

from ropelab.math.numerics.casts import CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.scores import (
    Features,
    compute_neighbouring_scores,
    compute_scores,
    draw,
    draw_earlier_keys,
    measure_shift_errors,
    rms_error,
    sample_positions,
)
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.rope import cos_sin, rotate
from tests.math.numerics.spectra import rope

QUERIES = np.array([3.0, 500.0, 100_000.0])
KEYS = np.array([1.0, 0.0, 99_000.0])


def vectors(features: Features) -> torch.Tensor:
    """(x1, x2) of every pair as vectors of the half layout, [draws, 1, width]."""
    return torch.from_numpy(np.concatenate(features, axis=1).swapaxes(1, 2))


def test_exact_scores_are_dot_products_of_rotated_vectors():
    spectrum = rope()
    draws = draw(5, spectrum.pairs, "random", seed=0)
    plan = RopePlan(spectrum.inv_freq)
    query = rotate(
        vectors(draws.query).expand(-1, 3, -1),
        *cos_sin(torch.from_numpy(QUERIES), plan),
    )
    key = rotate(
        vectors(draws.key).expand(-1, 3, -1), *cos_sin(torch.from_numpy(KEYS), plan)
    )
    expected = (query * key).sum(-1) / math.sqrt(64)
    ours = compute_scores(Chain(CastPlan(), spectrum), draws, QUERIES, KEYS)
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


def test_a_bfloat16_rotation_is_that_of_torch():
    spectrum = rope()
    draws = draw(4, spectrum.pairs, "aligned", seed=1)
    chain = Chain(parse_cast("table=bfloat16,rotation=bfloat16"), spectrum)
    tables = cos_sin(torch.from_numpy(QUERIES), RopePlan(spectrum.inv_freq))
    cos, sin = (part.bfloat16() for part in tables)
    rotated = rotate(
        vectors(draws.query).bfloat16().expand(-1, 3, -1), cos, sin
    ).double()
    expected = (rotated * rotated).sum(-1) / math.sqrt(64)
    ours = compute_scores(chain, draws, QUERIES, QUERIES)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)


def test_draws_are_bfloat16_numbers_of_a_seed():
    first, again, other = (draw(3, 8, "random", seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.query[0], again.query[0])
    assert (first.query[0] != other.query[0]).any()
    stored = torch.from_numpy(first.key[1]).bfloat16().double()
    np.testing.assert_array_equal(stored, first.key[1])


def test_shifts_show_rounded_positions_but_not_a_rounded_frequency():
    spectrum = rope()
    draws = draw(8, spectrum.pairs, "random", seed=0)
    deltas = np.array([1.0, 64.0])
    shifts = np.array([16.0, 4096.0])
    errors = {
        stage: measure_shift_errors(
            Chain(parse_cast(f"{stage}=bfloat16"), spectrum), draws, 0, deltas, shifts
        )
        for stage in ("inv_freq", "position")
    }
    assert np.abs(errors["inv_freq"]).max() < 1e-9
    assert np.abs(errors["position"][0]).max() < 1e-9  # integers up to 256 are exact
    assert np.abs(errors["position"][1]).max() > 0.01
    exact, rounded = (
        compute_scores(Chain(plan, spectrum), draws, QUERIES, KEYS)
        for plan in (CastPlan(), parse_cast("inv_freq=bfloat16"))
    )
    assert rms_error(rounded, exact) > 0.01


def test_exact_scores_do_not_depend_on_the_shift():
    spectrum = rope()
    draws = draw(8, spectrum.pairs, "aligned", seed=0)
    positions = 2.0 ** np.arange(20)
    errors = measure_shift_errors(
        Chain(CastPlan(), spectrum), draws, 7, positions[:5], positions
    )
    assert np.abs(errors).max() < 1e-9


def test_steps_compare_a_distance_with_the_next():
    spectrum = rope()
    draws = draw(2, spectrum.pairs, "random", seed=0)
    deltas = np.array([0.0, 1.0, 2.0])
    here, there = compute_neighbouring_scores(spectrum, draws, deltas)
    np.testing.assert_array_equal(here[:, 1:], there[:, :-1])


def test_samples_are_all_positions_or_evenly_spread_ones():
    np.testing.assert_array_equal(sample_positions(5, 10, 10), np.arange(5.0, 15.0))
    spread = sample_positions(100, 1001, 11)
    np.testing.assert_array_equal(spread, 100 + 100 * np.arange(11.0))


def test_keys_come_before_their_queries():
    queries = sample_positions(50, 10_000, 100)
    keys = draw_earlier_keys(queries, 50, seed=0)
    assert ((keys >= 50) & (keys <= queries)).all()
    assert (keys[1:] < queries[1:]).all()
