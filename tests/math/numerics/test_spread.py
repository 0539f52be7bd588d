"""The spread of a score: exact values, and simulations that know no formula."""

import math

import numpy as np
import pytest

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics import spread
from ropelab.math.numerics.casts import parse_cast
from ropelab.math.numerics.chain import Chain, Spectrum, list_positions
from ropelab.math.numerics.scores import compute_scores, draw
from ropelab.math.numerics.spread import SpreadMeter


def spreads(cast: str, base: float, length: int, offset: int = 0) -> SpreadMeter:
    spectrum = Spectrum(inverse_frequencies(64, base), base, 64)
    return SpreadMeter(Chain(parse_cast(cast), spectrum), offset, length, seed=0)


def directly(chain: Chain, offset: int, length: int, distance: int) -> float:
    """The definition: the variance over places of z(m) conj z(m - D), pair by pair."""
    cos, sin = chain.table(list_positions(offset, offset + length))
    z = cos + 1j * sin
    return math.sqrt((z[:, distance:] * z[:, :-distance].conj()).var(1).mean())


@pytest.mark.parametrize(
    "cast",
    [
        "position=bfloat16",
        "angle=float32",
        "angle=tf32",
        "table=float8_e5m2",
        "table=float32",
        "inv_freq=bfloat16,table=bfloat16",
        "position=float32,inv_freq=float32,angle=float32,angles=recurrence",
    ],
)
def test_every_distance_has_the_variance_of_the_definition(cast):
    found = spreads(cast, 1e4, 600, offset=1500)
    every = [
        found.measure_at_distance(distance).value
        for distance in range(1, found.farthest + 1)
    ]
    expected = [directly(found.chain, 1500, 600, d) for d in range(1, 451)]
    assert every == pytest.approx(expected, rel=1e-4)
    overall = found.measure_overall()
    assert overall.value == pytest.approx(math.sqrt(np.mean(np.square(expected))), 1e-4)
    assert overall.low == overall.high == overall.value


def test_places_that_are_shifted_alike_have_no_spread():
    spectrum = Spectrum(inverse_frequencies(2, 1e9), 1e9, 2)
    chain = Chain(parse_cast("position=float16"), spectrum)
    found = SpreadMeter(chain, 5000, 1500, seed=0)
    # Float16 stores every fourth or eighth position here, so distances of whole steps stay.
    for distance in (8, 16, 32, 512):
        assert directly(chain, 5000, 1500, distance) < 1e-12
        assert found.measure_at_distance(distance).value == 0
    between = found.measure_at_distance(5).value
    assert between == pytest.approx(directly(chain, 5000, 1500, 5), rel=1e-4)


# 131,072 positions at base 1e6, rounded to bfloat16; distances 1 to 49,152.
PUBLISHED = {
    "angle": (0.08, 0.29, 0.48, 0.60, 0.55, 0.57, 0.60),
    "position": (0.08, 0.28, 0.48, 0.53, 0.13, 0.32, 0.56),
}


@pytest.mark.parametrize("stage", PUBLISHED)
def test_the_spread_by_distance_is_the_known_one(stage):
    found = spreads(f"{stage}=bfloat16", 1e6, 131072)
    distances = (1, 16, 64, 256, 1024, 8192, 49152)
    values = [found.measure_at_distance(distance).value for distance in distances]
    assert values == pytest.approx(PUBLISHED[stage], abs=0.006)
    assert (
        round(found.measure_overall().value, 2)
        == {"angle": 0.60, "position": 0.58}[stage]
    )


@pytest.mark.parametrize("cast", ["position=bfloat16", "table=bfloat16"])
def test_random_vectors_spread_as_much_as_the_formula_says(cast):
    found = spreads(cast, 1e4, 4096)
    distance = 700
    # Every seventh place, as an even step would meet the steps of bfloat16.
    places = list_positions(0, 4096 - distance)[::7]
    drawn = draw(200, 32, "random", seed=3)
    rows = compute_scores(found.chain, drawn, places + distance, places)
    simulated = math.sqrt(rows.var(axis=1).mean())
    assert found.measure_at_distance(distance).value == pytest.approx(
        simulated, rel=0.05
    )


# Spreads measured with another draw of vectors, distances and places; heads of 64.
MEASURED = [
    (1e5, 2048, "position=bfloat16", 0.30),
    (1e5, 2048, "angle=bfloat16", 0.33),
    (1e5, 2048, "angle=float16", 0.05),
    (1e5, 2048, "inv_freq=bfloat16", 0.0),
    (1e5, 2048, "table=bfloat16", 0.002),
    (1e4, 8192, "position=bfloat16", 0.45),
    (1e4, 8192, "angle=bfloat16", 0.48),
    (1e4, 8192, "table=bfloat16", 0.002),
]


@pytest.mark.parametrize(("base", "length", "cast", "measured"), MEASURED)
def test_the_spread_is_near_the_measured_one(base, length, cast, measured):
    value = spreads(cast, base, length).measure_overall().value
    assert value == pytest.approx(measured, rel=0.2, abs=1e-12)


def test_positions_that_are_all_stored_as_one_lose_what_distances_change():
    assert spreads("position=bfloat16", 1e5, 256, 65536).measure_overall().value > 0.2
    assert spreads("inv_freq=bfloat16", 1e5, 256, 65536).measure_overall().value == 0


def test_an_overflow_has_no_spread():
    assert math.isnan(spreads("position=float16", 1e4, 70000).measure_overall().value)


@pytest.mark.parametrize(
    "cast", ["rotation=bfloat16", "score=bfloat16", "all=bfloat16"]
)
def test_what_is_rounded_after_the_table_has_an_interval(cast):
    found = spreads(cast, 1e4, 2048)
    value = found.measure_overall()
    assert value.low < value.value < value.high
    random = np.random.default_rng(1)
    variances = []
    for distance in random.integers(1, 1536, 40).tolist():
        places = random.integers(0, 2048 - distance, 40).astype(float)
        drawn = draw(10, 32, "random", seed=distance)
        rows = compute_scores(found.chain, drawn, places + distance, places)
        variances.append(rows.var(axis=1, ddof=1).mean())
    assert value.value == pytest.approx(math.sqrt(np.mean(variances)), rel=0.1)


def test_long_ranges_are_sampled_and_say_so(monkeypatch):
    exact = spreads("angle=bfloat16", 1e6, 8192)
    value, at = exact.measure_overall().value, exact.measure_at_distance(100).value
    monkeypatch.setattr(spread, "LONGEST_COUNTED", 100)
    drawn = spreads("angle=bfloat16", 1e6, 8192)
    overall, there = drawn.measure_overall(), drawn.measure_at_distance(100)
    assert overall.low < value < overall.high
    assert there.low < at < there.high
    assert overall.high - overall.low < 0.1 * value
