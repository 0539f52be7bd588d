"""Collisions and distinct codes, against comparing every code with every other."""

import math

import numpy as np
import pytest

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics import distinct, resolution
from ropelab.math.numerics.casts import CastPlan, alone, everything, parse_cast
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.code import Code, neighbour_steps
from ropelab.math.numerics.formats import FORMATS, round_to, spacing
from ropelab.math.numerics.ranges import span
from ropelab.math.numerics.resolution import take_census
from ropelab.math.numerics.sieve import proves_distinct
from ropelab.math.numerics.steps import count_angles

NAMES = ["float64", "float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
FOUND = [FORMATS[name] for name in NAMES]
SINGLE = Spectrum(np.array([2 * math.pi / 3000]))


def rope(rotary_dim=16, base=1e4):
    return Spectrum(inverse_frequencies(rotary_dim, base), base, rotary_dim)


def naive(code, fmt, offset, length):
    """Distinct codes and the neighbours that collide, from the whole table at once."""
    table = round_to(code.values(span(offset, offset + length), code.pairs), fmt) + 0.0
    adjacent = (table[:, 1:] == table[:, :-1]).all(0)
    return np.unique(table, axis=1).shape[1], adjacent


CODES = {
    "single cos": Code(Chain(CastPlan(), SINGLE), "cos", range(1)),
    "single sin": Code(Chain(CastPlan(), SINGLE), "sin", range(1)),
    "single pair": Code(Chain(CastPlan(), SINGLE), "pair", range(1)),
    "rope slowest pair": Code(Chain(CastPlan(), rope()), "pair", range(7, 8)),
    "rope vector": Code(Chain(CastPlan(), rope()), "vector", range(8)),
    "rope cosines": Code(Chain(CastPlan(), rope()), "cos", range(8)),
    "rope score": Code(Chain(CastPlan(), rope()), "score", range(8)),
    "two slow pairs": Code(Chain(CastPlan(), rope()), "vector", range(6, 8)),
    "bfloat16 positions": Code(
        Chain(alone("position", FORMATS["bfloat16"]), rope()), "vector", range(8)
    ),
    "bfloat16 angles": Code(Chain(alone("angle", FORMATS["bfloat16"]), rope()), "vector", range(8)),
    "all bfloat16": Code(Chain(everything(FORMATS["bfloat16"]), rope()), "vector", range(8)),
    "float8 inv_freq": Code(
        Chain(alone("inv_freq", FORMATS["float8_e5m2"]), rope()), "vector", range(8)
    ),
}


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize(("offset", "length"), [(0, 4000), (1021, 3000), (0, 1)])
def test_the_census_counts_what_comparing_everything_counts(name, offset, length):
    code = CODES[name]
    for fmt, census in zip(FOUND, take_census(code, FOUND, offset, length), strict=True):
        expected, adjacent = naive(code, fmt, offset, length)
        places = np.flatnonzero(adjacent)
        assert census.distinct == expected, fmt.name
        assert census.adjacent_collisions == adjacent.sum(), fmt.name
        assert census.first_collision == (offset + places[0] if places.size else None)
        for start, stop, count in census.by_octave:
            assert count == adjacent[start - offset : stop - offset].sum()


@pytest.mark.parametrize("name", CODES)
def test_streaming_in_shares_changes_nothing(name):
    whole = take_census(CODES[name], FOUND, 0, 3000)
    assert take_census(CODES[name], FOUND, 0, 3000, held=257) == whole


@pytest.mark.parametrize("stage", ["position", "inv_freq", "angle"])
@pytest.mark.parametrize("name", NAMES[1:])
def test_distinct_angles_are_counted_by_their_runs(stage, name):
    chain = Chain(alone(stage, FORMATS[name]), rope())
    code = Code(chain, "angle", range(8))
    census = take_census(code, [FORMATS["float64"]], 0, 3000)[0]
    table = chain.angles(span(0, 3000)).view(np.int64)  # bits: nan is one code
    assert census.distinct == np.unique(table, axis=1).shape[1]


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize(("offset", "length"), [(0, 20_000), (1021, 3000), (65_000, 30_000)])
@pytest.mark.parametrize("base", [1e4, 30.0])
def test_angles_counted_by_their_steps_are_those_of_a_visit_to_all(name, offset, length, base):
    chain = Chain(alone("angle", FORMATS[name]), rope(base=base))
    table = chain.angles(span(offset, offset + length)).view(np.int64)
    expected = 1 + (table[:, 1:] != table[:, :-1]).any(0).sum()
    assert count_angles(chain, offset, length) in (None, expected)
    code = Code(chain, "angle", range(8))
    assert resolution.count_distinct(code, [FORMATS["float64"]], offset, length) == [expected]


def test_coarse_angles_are_counted_by_their_steps():
    chain = Chain(alone("angle", FORMATS["bfloat16"]), rope(64, 1e6))
    assert count_angles(chain, 0, 131072) is not None
    assert count_angles(Chain(CastPlan(), rope()), 0, 1000) is None


def test_equal_hashes_of_different_codes_are_told_apart(monkeypatch):
    code = CODES["rope vector"]
    monkeypatch.setattr(distinct, "mixed", lambda keys, seed=None: np.zeros_like(keys[0]))
    positions = np.arange(500)
    same_hash = np.zeros_like(positions)
    for name in ("float16", "float8_e5m2"):
        expected, _ = naive(code, FORMATS[name], 0, 500)
        assert distinct.count_equal_hashes(code, FORMATS[name], same_hash, positions) == expected


@pytest.mark.parametrize("fmt", FOUND, ids=NAMES)
@pytest.mark.parametrize("name", [n for n in CODES if "cos" not in n and "score" not in n])
def test_the_sieve_proves_only_what_is_true(name, fmt):
    code = CODES[name]
    if proves_distinct(code, fmt, 0, 3000):
        assert naive(code, fmt, 0, 3000)[0] == 3000


def test_the_sieve_proves_the_usual_cases():
    spectrum = rope(64, 1e6)
    for plan in (CastPlan(), parse_cast("inv_freq=bfloat16,angle=float32")):
        code = Code(Chain(plan, spectrum), "vector", range(32))
        assert all(proves_distinct(code, FORMATS[n], 0, 131072) for n in NAMES[:5])
    assert not proves_distinct(CODES["single cos"], FORMATS["float64"], 0, 100)


def test_a_period_shorter_than_the_range_repeats():
    spectrum = Spectrum(np.array([2 * math.pi / 64]))
    code = Code(Chain(CastPlan(), spectrum), "pair", range(1))
    assert take_census(code, [FORMATS["float16"]], 0, 1000)[0].distinct == 64


def test_neighbour_steps_are_differences_in_last_places():
    code = CODES["single cos"]
    positions = span(100, 110)
    steps = neighbour_steps(code, FORMATS["bfloat16"], positions)
    here, there = (np.cos(2 * math.pi / 3000 * p) for p in (positions, positions + 1))
    expected = np.abs(there - here) / spacing(here, FORMATS["bfloat16"])
    np.testing.assert_allclose(steps, expected, rtol=1e-9)


def test_progress_adds_up_to_one():
    told = []
    take_census(CODES["single cos"], FOUND, 0, 3000, told.append, held=1000)
    take_census(CODES["rope vector"], FOUND[:1], 0, 3000, told.append)
    assert sum(told) == pytest.approx(2)
