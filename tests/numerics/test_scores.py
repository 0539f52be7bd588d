"""Attention scores under a plan, against the rotation of rope/ and torch's own bfloat16."""

import math

import pytest
import torch

from ropelab.numerics.accuracy import ScoreSample, TableSample, earlier_keys, sample_positions
from ropelab.numerics.casts import CastPlan, alone, parse_cast
from ropelab.numerics.chain import Chain, Spectrum
from ropelab.numerics.formats import FORMATS
from ropelab.numerics.scores import draw, score_steps, scores, shift_errors
from ropelab.rope.frequencies import inverse_frequencies
from ropelab.rope.rotary import cos_sin, rotate
from ropelab.rope.scaling import RopePlan

QUERIES = torch.tensor([3.0, 500.0, 100_000.0], dtype=torch.float64)
KEYS = torch.tensor([1.0, 0.0, 99_000.0], dtype=torch.float64)


def rope(rotary_dim=64, base=1e6):
    return Spectrum(inverse_frequencies(rotary_dim, base), base, rotary_dim)


def vectors(features):
    """(x1, x2) of every pair as vectors of the half layout, [draws, 1, width]."""
    return torch.cat(features, dim=1).transpose(1, 2)


def test_exact_scores_are_dot_products_of_rotated_vectors():
    spectrum = rope()
    draws = draw(5, spectrum.pairs, "random", seed=0)
    plan = RopePlan(spectrum.inv_freq)
    query = rotate(vectors(draws.query).expand(-1, 3, -1), *cos_sin(QUERIES, plan))
    key = rotate(vectors(draws.key).expand(-1, 3, -1), *cos_sin(KEYS, plan))
    expected = (query * key).sum(-1) / math.sqrt(64)
    assert torch.allclose(scores(Chain(CastPlan(), spectrum), draws, QUERIES, KEYS), expected)


def test_a_bfloat16_rotation_is_that_of_torch():
    spectrum = rope()
    draws = draw(4, spectrum.pairs, "aligned", seed=1)
    chain = Chain(parse_cast("table=bfloat16,rotation=bfloat16"), spectrum)
    cos, sin = (part.bfloat16() for part in cos_sin(QUERIES, RopePlan(spectrum.inv_freq)))
    rotated = rotate(vectors(draws.query).bfloat16().expand(-1, 3, -1), cos, sin).double()
    expected = (rotated * rotated).sum(-1) / math.sqrt(64)
    assert torch.allclose(scores(chain, draws, QUERIES, QUERIES), expected, rtol=0, atol=1e-12)


def test_draws_are_bfloat16_numbers_of_a_seed():
    first, again, other = (draw(3, 8, "random", seed) for seed in (5, 5, 6))
    assert torch.equal(first.query[0], again.query[0])
    assert not torch.equal(first.query[0], other.query[0])
    assert torch.equal(first.key[1].bfloat16().double(), first.key[1])


def test_shifts_show_rounded_positions_but_not_a_rounded_frequency():
    spectrum = rope()
    draws = draw(8, spectrum.pairs, "random", seed=0)
    deltas = torch.tensor([1.0, 64.0], dtype=torch.float64)
    shifts = torch.tensor([16.0, 4096.0], dtype=torch.float64)
    errors = {
        stage: shift_errors(
            Chain(alone(stage, FORMATS["bfloat16"]), spectrum), draws, 0, deltas, shifts
        )
        for stage in ("inv_freq", "position")
    }
    assert errors["inv_freq"].abs().max() < 1e-9
    assert errors["position"][0].abs().max() < 1e-9  # integers up to 256 are exact
    assert errors["position"][1].abs().max() > 0.01
    sample = ScoreSample(spectrum, draws, QUERIES, KEYS)
    assert sample.rms_error(alone("inv_freq", FORMATS["bfloat16"])) > 0.01


def test_exact_scores_do_not_depend_on_the_shift():
    spectrum = rope()
    draws = draw(8, spectrum.pairs, "aligned", seed=0)
    positions = 2.0 ** torch.arange(20, dtype=torch.float64)
    errors = shift_errors(Chain(CastPlan(), spectrum), draws, 7, positions[:5], positions)
    assert errors.abs().max() < 1e-9


def test_steps_compare_a_distance_with_the_next():
    spectrum = rope()
    draws = draw(2, spectrum.pairs, "random", seed=0)
    deltas = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    here, there = score_steps(spectrum, draws, deltas)
    assert torch.equal(here[:, 1:], there[:, :-1])


@pytest.mark.parametrize(("name", "bound"), [("bfloat16", 2**-9), ("float16", 2**-12)])
def test_rounding_a_table_costs_half_a_last_place_below_one(name, bound):
    sample = TableSample(rope(), sample_positions(0, 10**6, 2000))
    error = sample.largest_error(alone("table", FORMATS[name]))
    assert 0.99 * bound < error <= bound


def test_samples_are_all_positions_or_evenly_spread_ones():
    assert torch.equal(sample_positions(5, 10, 10), torch.arange(5.0, 15.0, dtype=torch.float64))
    spread = sample_positions(100, 1001, 11)
    assert torch.equal(spread, 100 + 100 * torch.arange(11, dtype=torch.float64))


def test_keys_come_before_their_queries():
    queries = sample_positions(50, 10_000, 100)
    keys = earlier_keys(queries, 50, seed=0)
    assert ((keys >= 50) & (keys <= queries)).all()
    assert (keys[1:] < queries[1:]).all()
