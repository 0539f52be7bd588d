"""The worst errors of angles and tables over positions, few of which are visited.

The rounding of m * theta_i has no closed form, but a bound that grows with m (half a
last place per rounding). So blocks of positions are visited from the far end, the pair
with the largest bound first, and blocks whose bound is below the worst error so far are
left out. The result is exact, but an error beyond LOST_RAD, nearly half a turn, ends
the search. A cos or sin of an angle that is off by e is off by at most the chord 2
sin(e / 2), and half a last place below 1 by rounding.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import BLOCK, Chain, blocks, half_step, octaves, span
from ropelab.math.numerics.formats import Values
from ropelab.runs.arrays import Bool, Float

PairMask = Bool[np.ndarray, " pairs"]
PerStretch = Float[np.ndarray, " stretches"]

# Positions that share one bound.
STRETCH = 1 << 14
# Octaves that end before this are visited as a whole, which is quicker than a search.
NEAR = 1024
# An angle this wrong says nothing about the position any more; worse is not searched
# for.
LOST_RAD = 3.14
# The table error returned is the largest there is, up to this share of it.
WITHIN = 1e-3
# Cosines computed at once: few, for the first ones often settle it.
NUMBERS = 1 << 13


@dataclass(frozen=True)
class Worst:
    """The largest wrapped angle error in [start, stop)."""

    start: int
    stop: int
    error_rad: float  # nan if a stored angle overflowed, first at `position`
    position: int
    pair: int

    @property
    def overflows(self) -> bool:
        return math.isnan(self.error_rad)


@np.errstate(invalid="ignore")
def wrap_angle(error: Values) -> Values:
    """Return |error| as an angle on the circle, in [0, pi]; changes its argument."""
    whole_turns = error * (1 / (2 * math.pi))
    np.rint(whole_turns, out=whole_turns)
    whole_turns *= 2 * math.pi
    error -= whole_turns
    return np.abs(error, out=error)


def worst_by_octave(chain: Chain, offset: int, length: int) -> list[Worst]:
    """Return the worst error in each octave [2^k, 2^(k+1)) of a range of positions."""
    limit = first_overflow(chain, offset, length)
    near = []
    far = []
    lost = []
    for start, stop in octaves(offset, offset + length):
        if limit is not None and limit < stop:
            lost.append(_report_overflow(chain, start, stop, limit))
        elif stop <= NEAR:
            near.append((start, stop))
        else:
            far.append(_search_stretches(chain, start, stop))
    return [*_visit(chain, near), *far, *lost]


def worst(chain: Chain, offset: int, length: int) -> Worst:
    limit = first_overflow(chain, offset, length)
    if limit is not None:
        return _report_overflow(chain, offset, offset + length, limit)
    return _search_stretches(chain, offset, offset + length)


def first_beyond(
    chain: Chain,
    ranges: Iterable[Worst],
    tolerance_rad: float,
) -> int | None:
    """Return the first position with an error beyond the tolerance, or overflow.

    Some ranges of positions are searched, whose worst errors are known.
    """
    size = BLOCK // chain.spectrum.pairs
    for each in ranges:
        if each.error_rad <= tolerance_rad:
            continue

        for low, high in blocks(each.start, each.stop, size):
            errors = wrap_angle(chain.angle_errors(span(low, high)))
            # An error that overflowed is nan, and not within the tolerance either.
            within = errors.max(0) <= tolerance_rad
            if not within.all():
                return low + int(within.argmin())
    return None


def first_overflow(chain: Chain, offset: int, length: int) -> int | None:
    def is_lost(position: int) -> bool:
        return bool(_lost_pairs(chain, position).any())

    if not is_lost(offset + length - 1):
        return None
    # Stored angles grow with the position, so bisection finds it.
    positions = range(offset, offset + length)
    return positions[bisect_left(positions, True, key=is_lost)]


def _lost_pairs(chain: Chain, position: int) -> PairMask:
    angles = chain.angles(span(position, position + 1))
    return ~np.isfinite(angles[:, 0])


def _report_overflow(
    chain: Chain,
    start: int,
    stop: int,
    limit: int,
) -> Worst:
    position = max(limit, start)
    pair = int(_lost_pairs(chain, position).argmax())
    return Worst(start, stop, math.nan, position, pair)


def _visit(chain: Chain, ranges: list[tuple[int, int]]) -> list[Worst]:
    """Compute every position and pair of consecutive short ranges at once."""
    if not ranges:
        return []

    first = ranges[0][0]
    last_stop = ranges[-1][1]
    errors = wrap_angle(chain.angle_errors(span(first, last_stop)))
    rows = []
    for start, stop in ranges:
        part = errors[:, start - first : stop - first]
        pair, column = _largest_place(part)
        error = float(part[pair, column])
        rows.append(Worst(start, stop, error, start + column, pair))
    return rows


def _search_stretches(chain: Chain, start: int, stop: int) -> Worst:
    """Visit stretches from the far end, and pairs with the largest bound first."""
    best = Worst(start, stop, 0.0, start, 0)
    stretches = list(blocks(start, stop, STRETCH))
    ends = np.array([high - 1 for _, high in stretches], dtype=np.float64)
    bounds_by_stretch = chain.error_bounds(ends).T

    for stretch, bounds in zip(
        reversed(stretches),
        reversed(bounds_by_stretch),
        strict=True,
    ):
        largest = bounds.max()
        if largest > best.error_rad:
            leaders = bounds == largest
            best = _search_pairs(best, chain, stretch, leaders)
            rest = (bounds > best.error_rad) & ~leaders
            best = _search_pairs(best, chain, stretch, rest)
    return best


def _search_pairs(
    best: Worst,
    chain: Chain,
    stretch: tuple[int, int],
    pairs: PairMask,
) -> Worst:
    """Return the worst of `best` and some pairs of a stretch."""
    numbers = np.flatnonzero(pairs)
    if not numbers.size:
        return best

    start, stop = stretch
    for low, high in blocks(start, stop, BLOCK // numbers.size):
        if best.error_rad >= LOST_RAD:
            break
        errors = chain.angle_errors(span(low, high), pairs)
        errors = wrap_angle(errors)
        row, column = _largest_place(errors)
        error = float(errors[row, column])
        if error > best.error_rad:
            pair = int(numbers[row])
            best = Worst(best.start, best.stop, error, low + column, pair)
    return best


def _largest_place(table: Float[np.ndarray, "rows columns"]) -> tuple[int, int]:
    """Return the row and the column of the largest number, or of the first nan."""
    return divmod(int(table.argmax()), table.shape[1])


@np.errstate(invalid="ignore", over="ignore")
def worst_table_error(chain: Chain, ranges: Sequence[Worst]) -> float:
    """Return the largest |stored - exact| of any cos or sin, up to `WITHIN`.

    nan: an angle overflows.
    """
    if any(each.overflows for each in ranges):
        return math.nan

    stretches = []
    largest_errors = []
    for each in ranges:
        error = each.error_rad
        if error >= LOST_RAD:
            error = math.pi
        for stretch in blocks(each.start, each.stop, STRETCH):
            stretches.append(stretch)
            largest_errors.append(error)

    ends = np.array([stop - 1 for _, stop in stretches], dtype=np.float64)
    bounds = _table_error_bounds(chain, ends, np.array(largest_errors))

    exact = Chain(CastPlan(), chain.spectrum)
    best = 0.0
    for number in np.argsort(-bounds.max(0), kind="stable"):
        start, stop = stretches[number]
        while start < stop:
            worth_a_visit = best * (1 + WITHIN)
            pairs = np.flatnonzero(bounds[:, number] > worth_a_visit)
            if not pairs.size:
                break

            size = max(NUMBERS // pairs.size, 1)
            end = min(stop, start + size)
            positions = span(start, end)
            stored_cos, stored_sin = chain.table(positions, pairs)
            exact_cos, exact_sin = exact.table(positions, pairs)
            cos_error = np.abs(stored_cos - exact_cos).max()
            sin_error = np.abs(stored_sin - exact_sin).max()
            best = max(best, float(cos_error), float(sin_error))
            start = end
    return best


def _table_error_bounds(
    chain: Chain,
    ends: PerStretch,
    largest: PerStretch,
) -> Float[np.ndarray, "pairs stretches"]:
    """Bound the error of cos and sin of each pair in stretches of positions.

    ``ends``: the last position of each; ``largest``: the largest angle error there is.
    """
    table = chain.plan.table
    rounding = 0.0
    if table.precision < 53:
        rounding = table.epsilon / 4

    # At an angle a near 0 a cosine is rounded by at most its distance a^2 / 2 from 1,
    # and a sine by half a step at a, at most to 0. Without this, pairs that hardly
    # rotate are all searched.
    angles = np.abs(np.outer(chain.spectrum.inv_freq, ends))
    near_cos = angles**2 / 2
    near_sin = np.minimum(half_step(angles, table), angles)
    near = np.maximum(near_cos, near_sin)
    roundings = np.minimum(rounding, near)

    # The margin covers what float64 loses in computing a bound.
    largest = largest * (1 + 1e-9)
    angle_errors = np.minimum(chain.error_bounds(ends), largest)
    chords = 2 * np.sin(angle_errors / 2)
    return chords + roundings
