"""The exact bound against brute force, arbitrary precision and the literature."""

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
    find_lowest,
    scan,
)
from ropelab.math.bounds.intervals import (
    Tangents,
    UndecidedIntervals,
    find_admissible,
    find_excluded_end,
    is_excluded,
    value_and_slope,
)
from ropelab.math.bounds.survey import find_low_positions
from ropelab.runs.errors import InputError

LLAMA = Similarity.of_head(128)
HEADS = st.builds(
    Similarity.of_head,
    st.integers(8, 64).map(lambda pairs: 2 * pairs),
)


def windows(similarity: Similarity, context: int) -> list[tuple[float, float]]:
    found = Walk(similarity, context).find_windows(0.0)
    return [(math.exp(a), math.exp(min(b, 700))) for a, b in found]


def smallest_base(similarity: Similarity, context: int, start: float) -> float:
    found = Walk(similarity, context).find_first(start)
    assert found is not None
    return math.exp(found[0])


def brute(similarity: Similarity, context: int, bases: np.ndarray) -> np.ndarray:
    """Which bases are admissible: every position for every base, in float64."""
    positions = np.arange(context, dtype=np.float64)
    return np.array(
        [similarity.evaluate(positions, math.log(b)).min() >= 0 for b in bases]
    )


@given(HEADS, st.floats(2, 1e6), st.integers(0, 3000), st.integers(1, 5000))
@settings(max_examples=30)
def test_the_scan_is_the_sum(similarity, base, start, count):
    positions = np.arange(start, start + count, dtype=np.float64)
    exact = similarity.evaluate(positions, math.log(base))
    found = scan(similarity, math.log(base), start, start + count)
    assert np.abs(found - exact).max() < similarity.single_error


@given(
    HEADS,
    st.floats(1.5, 15),
    st.floats(1e-7, 1e-2),
    st.lists(st.integers(1, 4000), min_size=1),
)
@settings(max_examples=60)
def test_bisected_cells_are_where_no_position_fails(similarity, low, width, positions):
    m = np.unique(positions).astype(np.float64)
    pieces = find_admissible(
        similarity, UndecidedIntervals.one(similarity, m, low, low + width, width / 50)
    )
    for u in np.linspace(low, low + width, 101):
        smallest = similarity.evaluate(m, u).min()
        admitted = any(start <= u <= end for start, end in pieces)
        assert admitted == (smallest >= 0) or abs(smallest) < 1e-6
    assert all(low <= start < end <= low + width for start, end in pieces)


def test_cells_bisected_together_come_out_as_alone():
    m = np.arange(1, 400, dtype=np.float64)
    cells = [
        UndecidedIntervals.one(LLAMA, m, u, u + 0.01, 1e-4)
        for u in (6.9, 7.1, 7.4, 7.7)
    ]
    alone = [piece for cell in cells for piece in find_admissible(LLAMA, cell)]
    assert sorted(find_admissible(LLAMA, UndecidedIntervals.join(cells))) == sorted(
        alone
    )
    assert alone


@given(
    HEADS,
    st.floats(1.5, 15),
    st.integers(100, 20_000),
    st.floats(-2, 2),
    st.integers(0, 99),
)
@settings(max_examples=60)
def test_bases_are_excluded_only_where_a_position_is_negative(
    similarity, u, context, turns, seed
):
    generator = np.random.default_rng(seed)
    positions = np.unique(generator.integers(1, context, 400)).astype(np.float64)
    centre = u + abs(turns) / (context * similarity.slope_typical(u) + 1)
    inv_freq = similarity.inv_freq(np.array([centre]))
    at_centre = value_and_slope(similarity, positions, inv_freq, in_float64=False)
    end = find_excluded_end(similarity, Tangents(positions, *at_centre), u, centre)
    for base in np.linspace(u, end, 41) if end > u else ():
        assert similarity.evaluate(positions, base).min() < 0


@pytest.mark.parametrize("context", [1500, 50_000, 600_000])
def test_the_hunt_finds_positions_that_fail(context):
    u = math.log(context)
    found = find_low_positions(LLAMA, u, context)
    assert found.positions.max() < context
    assert found.values.min() < -1
    values, slopes = value_and_slope(
        LLAMA, found.positions, LLAMA.inv_freq(np.array([u])), True
    )
    assert np.abs(found.values - values).max() < LLAMA.single_error
    allowed = LLAMA.single_error * LLAMA.slope_bound(u) * found.positions
    assert (np.abs(found.slopes - slopes) < allowed).all()


def test_the_first_admissible_base_of_4m_tokens():
    """Just below it a position fails, in a window of relative width 2.4e-7 none
    does.
    """
    low = math.log(905_907_787.673)
    found = smallest_base(LLAMA, 2**22, low - 1e-6)
    assert math.log(found) == pytest.approx(low, abs=1e-9)
    assert find_first_negative(LLAMA, math.exp(low + 1e-7), 2**22) is None
    assert find_first_negative(LLAMA, math.exp(low - 1e-8), 2**22) is not None


def test_float64_error_is_below_its_bound():
    position, base = 1_048_575, 65_374_956.0
    with mpmath.workdps(40):
        exact = mpmath.fsum(
            mpmath.cos(position * mpmath.mpf(base) ** (-mpmath.mpf(i) / 64))
            for i in range(64)
        )
        error = abs(
            mpmath.mpf(
                float(LLAMA.evaluate(np.array([float(position)]), math.log(base))[0])
            )
            - exact
        )
    assert error < LLAMA.rounding_error(position + 1)


@pytest.mark.parametrize(
    ("context", "base"),
    [
        (1024, 4293.44),
        (2048, 11587.2),
        (4096, 26952.3),
        (8192, 83763.8),
        (16384, 231644),
    ],
)
def test_first_admissible_bases_of_128_features(context, base):
    first = smallest_base(LLAMA, context, math.log(base) - 0.05)
    assert first == pytest.approx(base, rel=1e-5)


def test_windows_at_1k():
    found = windows(LLAMA, 1024)
    assert [(round(a), round(b)) for a, b in found[:2]] == [(4293, 4330), (5602, 5644)]
    assert len(found) == 3
    assert found[2][0] == pytest.approx(6018.28, abs=0.01)
    assert found[2][1] > 1e300


def test_64_features_need_more_at_4k():
    first = smallest_base(Similarity.of_head(64), 4096, math.log(9e4))
    assert first == pytest.approx(1.00e5, rel=5e-3)


@pytest.mark.parametrize(
    ("pairs", "context"), [(64, 300), (32, 200), (12, 64), (5, 30), (2, 12)]
)
def test_windows_agree_with_brute_force(pairs, context):
    similarity = Similarity.of_head(2 * pairs)
    found = windows(similarity, context)
    bases = np.exp(np.linspace(1e-3, math.log(found[-1][0]) + 1, 4000))
    inside = np.array([any(a <= b <= c for a, c in found) for b in bases])
    edges = np.array([x for window in found for x in window])
    away = np.abs(np.log(bases)[:, None] - np.log(edges)).min(axis=1) > 1e-6
    assert (inside == brute(similarity, context, bases))[away].all()


def test_edges_are_changes_of_sign_at_thirty_digits():
    first, last = windows(LLAMA, 1024)[0]
    positions = range(1024)
    with mpmath.workdps(30):

        def smallest(base):
            theta = [mpmath.mpf(base) ** (-mpmath.mpf(i) / 64) for i in range(64)]
            return min(mpmath.fsum(mpmath.cos(m * t) for t in theta) for m in near)

        sums = LLAMA.evaluate(np.array(positions, dtype=np.float64), math.log(first))
        others = LLAMA.evaluate(np.array(positions, dtype=np.float64), math.log(last))
        near = sorted(set(np.argsort(sums)[:5]) | set(np.argsort(others)[:5]))
        near = [int(m) for m in near]
        for edge, inward in ((first, 1 + 1e-9), (last, 1 - 1e-9)):
            assert smallest(edge * inward) >= 0
            assert smallest(edge / inward) < 0


def test_a_longer_context_admits_no_base_that_a_shorter_one_refuses():
    short, long = windows(LLAMA, 512), windows(LLAMA, 1024)
    for low, high in long:
        assert any(a - 1e-6 <= low and high <= b * (1 + 1e-6) for a, b in short)


def test_settled_positions_do_not_change_the_windows():
    half = list(Walk(LLAMA, 512).find_windows(0.0))
    helped = list(Walk(LLAMA, 1024, (half[-1][0], 512)).find_windows(half[0][0]))
    alone = list(Walk(LLAMA, 1024).find_windows(0.0))
    np.testing.assert_allclose(np.array(helped), np.array(alone), rtol=1e-9)


def test_the_certificate_from_above_holds():
    u = find_certified_u(LLAMA, 1024)
    assert brute(LLAMA, 1024, np.exp(u + np.array([0.0, 0.5, 2.0, 10.0]))).all()


@pytest.mark.parametrize(("base", "position"), [(1e4, 1707), (5e5, 18438)])
def test_first_failing_positions(base, position):
    assert find_first_negative(LLAMA, base, 65536) == position
    assert find_first_negative(LLAMA, base, position) is None


@given(HEADS, st.floats(2, 1e5), st.integers(2, 3000))
@settings(max_examples=30)
def test_first_failing_position_and_lowest_are_those_of_brute_force(
    similarity, base, context
):
    sums = similarity.evaluate(np.arange(context, dtype=np.float64), math.log(base))
    negative = np.flatnonzero(sums < -1e-6)
    found = find_first_negative(similarity, base, context)
    assert (
        found == (int(negative[0]) if len(negative) else None)
        or abs(sums[found or 0]) < 1e-6
    )
    place, value = find_lowest(similarity, base, context)
    assert value == pytest.approx(sums.min(), abs=similarity.single_error)
    assert sums[place] == pytest.approx(sums.min(), abs=2 * similarity.single_error)


def test_half_rotated_heads_have_no_lower_bound():
    half = Similarity.of_head(128, rotary_dim=64)
    assert half.unrotated == 32
    assert find_first_negative(half, 1.5, 5000) is None
    assert windows(half, 4096)[0][0] == 1.0


def test_every_base_serves_two_tokens():
    assert windows(LLAMA, 2)[0][0] == 1.0


def test_a_single_pair_serves_no_context_beyond_two():
    assert windows(Similarity.of_head(2), 2)
    assert not windows(Similarity.of_head(2), 3)


def test_p_rope_and_dropped_pairs_count_as_one():
    kept = Similarity.of_head(8, kept_share=0.5)
    assert kept == Similarity((0.0, 0.25), unrotated=2)
    dropped = Similarity.of_head(8, dropped_pairs=(3, 2))
    assert dropped == kept
    value = kept.evaluate(np.array([7.0]), math.log(16.0))[0]
    assert value == pytest.approx(2 + math.cos(7) + math.cos(7 / 2))


def test_no_positions_exclude_nothing():
    assert not is_excluded(LLAMA, np.empty(0), 1.0, 2.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_dim": 7}, "head_dim must be an even number"),
        ({"head_dim": 0}, "head_dim must be an even number"),
        ({"head_dim": 8, "rotary_dim": 3}, "rotary_dim must be an even number"),
        ({"head_dim": 8, "rotary_dim": 16}, "wider than the head"),
        ({"head_dim": 8, "dropped_pairs": (4,)}, "no pair 4 to drop: pairs are 0 to 3"),
    ],
)
def test_refuses_impossible_heads(arguments, message):
    with pytest.raises(InputError, match=message):
        Similarity.of_head(**arguments)


def test_a_sum_that_is_negative_within_its_rounding_is_a_threat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sum of the last position of a block, just above what the interval allows it to
    lose, is negative within the error of float32.
    """
    low, high, context = 9.0, 9.0001, 100
    change = LLAMA.slope_bound(low) * (high - low) / 2
    value = change * (context - 1) + LLAMA.single_error / 2
    sums = np.full(context - 1, 50.0, dtype=np.float64)
    sums[-1] = value
    monkeypatch.setattr(
        "ropelab.math.bounds.admissible.scan", lambda *_: sums, raising=True
    )
    positions, _ = Walk(LLAMA, context)._find_threats(low, high)
    assert positions.tolist() == [context - 1]
