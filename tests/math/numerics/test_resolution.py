"""Collisions and distinct encodings, against comparing every encoding with every
other.
"""

import math

import numpy as np
import pytest

from ropelab.math.numerics import hashes
from ropelab.math.numerics.casts import EXACT, CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain, Spectrum, list_positions
from ropelab.math.numerics.distinct import can_prove_distinct, count_angles
from ropelab.math.numerics.encoding import PositionEncoding, measure_neighbour_steps
from ropelab.math.numerics.formats import FORMATS, FloatFormat, round_to, spacing
from ropelab.math.numerics.resolution import count_distinct, take_census
from tests.math.numerics.spectra import rope

NAMES = [
    "float64",
    "float32",
    "tf32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
]
FOUND = [FORMATS[name] for name in NAMES]
ROPE = rope(16, 1e4)
SINGLE = Spectrum(np.array([2 * math.pi / 3000]))


def naive(
    encoding: PositionEncoding, fmt: FloatFormat, offset: int, length: int
) -> tuple[int, np.ndarray]:
    """Distinct encodings and the neighbours that collide, from the whole table at
    once.
    """
    table = (
        round_to(
            encoding.values(list_positions(offset, offset + length), encoding.pairs),
            fmt,
        )
        + 0.0
    )
    adjacent = (table[:, 1:] == table[:, :-1]).all(0)
    return np.unique(table, axis=1).shape[1], adjacent


def encoded(
    component: str, pairs: range, cast: str = "", spectrum: Spectrum = ROPE
) -> PositionEncoding:
    return PositionEncoding(Chain(parse_cast(cast), spectrum), component, pairs)


ENCODINGS = {
    "single cos": encoded("cos", range(1), spectrum=SINGLE),
    "single sin": encoded("sin", range(1), spectrum=SINGLE),
    "single pair": encoded("pair", range(1), spectrum=SINGLE),
    "rope slowest pair": encoded("pair", range(7, 8)),
    "rope vector": encoded("vector", range(8)),
    "rope cosines": encoded("cos", range(8)),
    "rope score": encoded("score", range(8)),
    "two slow pairs": encoded("vector", range(6, 8)),
    "bfloat16 positions": encoded("vector", range(8), "position=bfloat16"),
    "bfloat16 angles": encoded("vector", range(8), "angle=bfloat16"),
    "all bfloat16": encoded("vector", range(8), "all=bfloat16"),
    "float8 inv_freq": encoded("vector", range(8), "inv_freq=float8_e5m2"),
}


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize(("offset", "length"), [(0, 4000), (1021, 3000), (0, 1)])
def test_the_census_counts_what_comparing_everything_counts(name, offset, length):
    encoding = ENCODINGS[name]
    for fmt, census in zip(
        FOUND, take_census(encoding, FOUND, offset, length), strict=True
    ):
        expected, adjacent = naive(encoding, fmt, offset, length)
        places = np.flatnonzero(adjacent)
        assert census.distinct == expected, fmt.name
        assert census.adjacent_collisions == adjacent.sum(), fmt.name
        assert census.first_collision == (offset + places[0] if places.size else None)
        for start, stop, count in census.by_octave:
            assert count == adjacent[start - offset : stop - offset].sum()


@pytest.mark.parametrize("name", ENCODINGS)
def test_streaming_in_shares_changes_nothing(name):
    whole = take_census(ENCODINGS[name], FOUND, 0, 3000)
    assert take_census(ENCODINGS[name], FOUND, 0, 3000, hashes_in_memory=257) == whole


@pytest.mark.parametrize("stage", ["position", "inv_freq", "angle"])
@pytest.mark.parametrize("name", NAMES[1:])
def test_distinct_angles_are_counted_by_their_runs(stage, name):
    chain = Chain(parse_cast(f"{stage}={name}"), ROPE)
    encoding = PositionEncoding(chain, "angle", range(8))
    census = take_census(encoding, [FORMATS["float64"]], 0, 3000)[0]
    table = chain.angles(list_positions(0, 3000)).view(
        np.int64
    )  # bits: nan is one value
    assert census.distinct == np.unique(table, axis=1).shape[1]


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize(
    ("offset", "length"), [(0, 20_000), (1021, 3000), (65_000, 30_000)]
)
@pytest.mark.parametrize("base", [1e4, 30.0])
def test_angles_counted_by_their_steps_are_those_of_a_visit_to_all(
    name, offset, length, base
):
    chain = Chain(parse_cast(f"angle={name}"), rope(16, base))
    table = chain.angles(list_positions(offset, offset + length)).view(np.int64)
    expected = 1 + (table[:, 1:] != table[:, :-1]).any(0).sum()
    assert count_angles(chain, offset, length) in (None, expected)
    assert count_distinct(chain, [EXACT], offset, length) == {EXACT: expected}


def test_coarse_angles_are_counted_by_their_steps():
    chain = Chain(parse_cast("angle=bfloat16"), rope(64, 1e6))
    assert count_angles(chain, 0, 131072) is not None
    assert count_angles(Chain(CastPlan(), ROPE), 0, 1000) is None


def test_equal_hashes_of_different_encodings_are_counted_apart(monkeypatch):
    encoding = ENCODINGS["rope vector"]
    monkeypatch.setattr(
        hashes, "mix_bits", lambda keys, seed=None: np.zeros_like(keys[0])
    )
    positions = list_positions(0, 500)
    same_hash = np.zeros(500, dtype=np.int64)
    for name in ("float16", "float8_e5m2"):
        expected, _ = naive(encoding, FORMATS[name], 0, 500)
        assert (
            hashes.count_equal_hashes(encoding, FORMATS[name], same_hash, positions)
            == expected
        )


@pytest.mark.parametrize("fmt", FOUND, ids=NAMES)
@pytest.mark.parametrize(
    "name", [n for n in ENCODINGS if "cos" not in n and "score" not in n]
)
def test_the_proof_proves_only_what_is_true(name, fmt):
    encoding = ENCODINGS[name]
    if can_prove_distinct(encoding, fmt, 0, 3000):
        assert naive(encoding, fmt, 0, 3000)[0] == 3000


def test_the_proof_proves_the_usual_cases():
    spectrum = rope(64, 1e6)
    for plan in (CastPlan(), parse_cast("inv_freq=bfloat16,angle=float32")):
        encoding = PositionEncoding(Chain(plan, spectrum), "vector", range(32))
        assert all(
            can_prove_distinct(encoding, FORMATS[n], 0, 131072) for n in NAMES[:5]
        )
    assert not can_prove_distinct(ENCODINGS["single cos"], FORMATS["float64"], 0, 100)


def test_a_period_shorter_than_the_range_repeats():
    spectrum = Spectrum(np.array([2 * math.pi / 64]))
    encoding = PositionEncoding(Chain(CastPlan(), spectrum), "pair", range(1))
    assert take_census(encoding, [FORMATS["float16"]], 0, 1000)[0].distinct == 64


def test_neighbour_steps_are_differences_in_last_places():
    encoding = ENCODINGS["single cos"]
    positions = list_positions(100, 110)
    steps = measure_neighbour_steps(encoding, FORMATS["bfloat16"], positions)
    here, there = (np.cos(2 * math.pi / 3000 * p) for p in (positions, positions + 1))
    expected = np.abs(there - here) / spacing(here, FORMATS["bfloat16"])
    np.testing.assert_allclose(steps, expected, rtol=1e-9)


def test_progress_adds_up_to_one():
    reported: list[float] = []
    take_census(
        ENCODINGS["single cos"], FOUND, 0, 3000, reported.append, hashes_in_memory=1000
    )
    take_census(ENCODINGS["rope vector"], FOUND[:1], 0, 3000, reported.append)
    assert sum(reported) == pytest.approx(2)


def test_a_single_number_is_hashed_without_loss():
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 1000)
    # A shift that keeps the sign makes x and ~x one after the multiplication by an odd
    # number.
    odd = -0x61C8864680B583EB
    inverse = pow(odd, -1, 2**64)
    partners = np.array(
        [(~(int(key) * odd) * inverse) % 2**64 for key in keys], dtype=np.uint64
    )
    both = np.concatenate([keys, partners.view(np.int64)])
    assert np.unique(hashes.mix_bits(both[None])).size == np.unique(both).size == 2000
