"""The worst errors of angles and tables over positions, few of which are visited.

A chain has the stored angle of each pair i at each position m, and the exact angle
m * theta_i. The rounding error has no closed form, but a bound that grows with m: half a
unit in the last place per rounding. Stretches of positions are therefore visited from
the far end, the pair with the largest bound first. Stretches whose bound is below the
worst error so far are left out. The result is exact, except that an error beyond
HOPELESS_RAD, nearly half a rotation, ends the search.

If an angle is wrong by e, its cos or sin is wrong by at most the chord 2 sin(e / 2).
The rounding of the table adds half a unit in the last place below 1.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import (
    BLOCK,
    Chain,
    cut_into_blocks,
    cut_into_octaves,
    half_step,
    list_positions,
)
from ropelab.math.numerics.formats import FLOAT64_BITS, Values
from ropelab.runs.arrays import Bool, Float

PairMask = Bool[np.ndarray, " pairs"]
PerStretch = Float[np.ndarray, " stretches"]

# The number of positions in a stretch, which share one bound.
STRETCH = 1 << 14
# The last end of an octave that is visited as a whole, which is quicker than a search.
LAST_NEAR_STOP = 1024
# The error of an angle at which the search ends. So wrong an angle tells nothing about
# the position any more.
HOPELESS_RAD = 3.14
# The share by which the returned table error may be too small.
TABLE_SHORTFALL = 1e-3
# The number of cosines that are computed together. They are few, because the first
# cosines often show that all further ranges need no search.
COSINES_TOGETHER = 1 << 13


@dataclass(frozen=True)
class Worst:
    """The largest angle error in [start, stop), reduced to half a rotation."""

    start: int
    stop: int
    error_rad: float  # nan if a stored angle overflows
    position: int  # of the error, or of the first overflow
    pair: int

    @property
    def overflows(self) -> bool:
        return math.isnan(self.error_rad)


@np.errstate(invalid="ignore")
def wrap_angle(error: Values) -> Values:
    """Return |error| without whole rotations, in [0, pi].

    The argument itself is overwritten, which saves the memory of a copy.
    """
    whole_turns = error * (1 / (2 * math.pi))
    np.rint(whole_turns, out=whole_turns)
    whole_turns *= 2 * math.pi
    error -= whole_turns
    return np.abs(error, out=error)


def find_worst_by_octave(chain: Chain, offset: int, length: int) -> list[Worst]:
    """Return the worst error in each octave [2^k, 2^(k+1)) of a range of positions."""
    overflow = find_first_overflow(chain, offset, length)

    # Octaves ascend, and so do the three lists if they are joined in this order: stored
    # angles grow with the position, and overflow in the last octaves only.
    near_octaves = []
    worst_of_far = []
    worst_of_overflown = []
    for start, stop in cut_into_octaves(offset, offset + length):
        if overflow is not None and overflow < stop:
            worst_of_overflown.append(_report_overflow(chain, start, stop, overflow))
        elif stop <= LAST_NEAR_STOP:
            near_octaves.append((start, stop))
        else:
            worst_of_far.append(_search_stretches(chain, start, stop))
    worst_of_near = _search_ranges(chain, near_octaves)
    return [*worst_of_near, *worst_of_far, *worst_of_overflown]


def find_worst(chain: Chain, offset: int, length: int) -> Worst:
    """Return the worst error in the positions offset .. offset + length - 1."""
    overflow = find_first_overflow(chain, offset, length)
    if overflow is not None:
        return _report_overflow(chain, offset, offset + length, overflow)
    return _search_stretches(chain, offset, offset + length)


def find_first_wrong(
    chain: Chain,
    ranges: Iterable[Worst],
    tolerance_rad: float,
) -> int | None:
    """Return the first position with an error beyond the tolerance, or an overflow.

    ``ranges`` have the worst error of each range of positions, so that ranges within the
    tolerance are left out. None: there is no such position.
    """
    size = BLOCK // chain.spectrum.pairs
    for worst_of_range in ranges:
        if worst_of_range.error_rad <= tolerance_rad:
            continue

        for low, high in cut_into_blocks(
            worst_of_range.start, worst_of_range.stop, size
        ):
            errors = wrap_angle(chain.angle_errors(list_positions(low, high)))
            # An error that overflowed is nan, which no comparison finds within the
            # tolerance.
            is_tolerable = errors.max(0) <= tolerance_rad
            if not is_tolerable.all():
                # `argmin` returns the index of the first False.
                return low + int(is_tolerable.argmin())
    return None


def find_first_overflow(chain: Chain, offset: int, length: int) -> int | None:
    """Return the first position at which a stored angle overflows; None without one."""

    def overflows_at(position: int) -> bool:
        return bool(_find_overflowing_pairs(chain, position).any())

    last = offset + length - 1
    if not overflows_at(last):
        return None
    # Stored angles grow with the position, so that bisection finds the first overflow.
    positions = range(offset, offset + length)
    return positions[bisect_left(positions, True, key=overflows_at)]


def _find_overflowing_pairs(chain: Chain, position: int) -> PairMask:
    angles = chain.angles(list_positions(position, position + 1))
    return ~np.isfinite(angles[:, 0])


def _report_overflow(
    chain: Chain,
    start: int,
    stop: int,
    overflow: int,
) -> Worst:
    """Return the result for a range with overflows.

    ``overflow`` is the first position with an overflow, perhaps before the range.
    """
    position = max(overflow, start)
    pair = int(_find_overflowing_pairs(chain, position).argmax())
    return Worst(start, stop, math.nan, position, pair)


def _search_ranges(chain: Chain, ranges: list[tuple[int, int]]) -> list[Worst]:
    """Compute every position and pair of consecutive short ranges at once."""
    if not ranges:
        return []

    first = ranges[0][0]
    last_stop = ranges[-1][1]
    errors = wrap_angle(chain.angle_errors(list_positions(first, last_stop)))
    rows = []
    for start, stop in ranges:
        errors_of_range = errors[:, start - first : stop - first]
        pair, column = _find_largest_place(errors_of_range)
        error = float(errors_of_range[pair, column])
        rows.append(Worst(start, stop, error, start + column, pair))
    return rows


def _search_stretches(chain: Chain, start: int, stop: int) -> Worst:
    """Visit stretches from the far end, and pairs with the largest bound first."""
    worst_so_far = Worst(start, stop, error_rad=0.0, position=start, pair=0)
    stretches = list(cut_into_blocks(start, stop, STRETCH))
    ends = np.array([high - 1 for _, high in stretches], dtype=np.float64)
    bounds_by_stretch = chain.error_bounds(ends).T  # [stretches, pairs]

    for stretch, bounds in zip(
        reversed(stretches),
        reversed(bounds_by_stretch),
        strict=True,
    ):
        largest = bounds.max()
        if largest > worst_so_far.error_rad:
            has_largest = bounds == largest
            worst_so_far = _search_pairs(worst_so_far, chain, stretch, has_largest)
            other_pairs = (bounds > worst_so_far.error_rad) & ~has_largest
            worst_so_far = _search_pairs(worst_so_far, chain, stretch, other_pairs)
    return worst_so_far


def _search_pairs(
    worst_so_far: Worst,
    chain: Chain,
    stretch: tuple[int, int],
    pairs: PairMask,
) -> Worst:
    """Return the worst error so far, or a larger error of some pairs in a stretch."""
    indices_of_pairs = np.flatnonzero(pairs)
    if not indices_of_pairs.size:
        return worst_so_far

    start, stop = stretch
    for low, high in cut_into_blocks(start, stop, BLOCK // indices_of_pairs.size):
        if worst_so_far.error_rad >= HOPELESS_RAD:
            break
        errors = chain.angle_errors(list_positions(low, high), pairs)
        errors = wrap_angle(errors)
        row, column = _find_largest_place(errors)
        error = float(errors[row, column])
        if error > worst_so_far.error_rad:
            worst_so_far = Worst(
                worst_so_far.start,
                worst_so_far.stop,
                error,
                position=low + column,
                pair=int(indices_of_pairs[row]),
            )
    return worst_so_far


def _find_largest_place(table: Float[np.ndarray, "rows columns"]) -> tuple[int, int]:
    """Return the row and the column of the largest number, or of the first nan."""
    return divmod(int(table.argmax()), table.shape[1])


@np.errstate(invalid="ignore", over="ignore")
def find_worst_table_error(chain: Chain, ranges: Sequence[Worst]) -> float:
    """Return the largest |stored - exact| of any cos or sin in some ranges of positions.

    The result may be too small by the share TABLE_SHORTFALL, and is nan if an angle
    overflows. ``ranges`` have the worst angle error of each range.
    """
    if any(worst_of_range.overflows for worst_of_range in ranges):
        return math.nan

    stretches = []
    largest_errors = []
    for worst_of_range in ranges:
        error = worst_of_range.error_rad
        if error >= HOPELESS_RAD:
            # The search ended there, so that the error may be as large as any.
            error = math.pi
        for stretch in cut_into_blocks(
            worst_of_range.start, worst_of_range.stop, STRETCH
        ):
            stretches.append(stretch)
            largest_errors.append(error)

    ends = np.array([stop - 1 for _, stop in stretches], dtype=np.float64)
    bounds = _table_error_bounds(chain, ends, np.array(largest_errors))

    exact_chain = Chain(CastPlan(), chain.spectrum)
    largest_error = 0.0
    # The stretches with the largest bounds come first.
    for number in np.argsort(-bounds.max(0), kind="stable"):
        start, stop = stretches[number]
        while start < stop:
            # A pair is visited only if its bound is above this number.
            least_bound = largest_error * (1 + TABLE_SHORTFALL)
            pairs = np.flatnonzero(bounds[:, number] > least_bound)
            if not pairs.size:
                break

            size = max(COSINES_TOGETHER // pairs.size, 1)
            end = min(stop, start + size)
            positions = list_positions(start, end)
            stored_cos, stored_sin = chain.table(positions, pairs)
            exact_cos, exact_sin = exact_chain.table(positions, pairs)
            cos_error = float(np.abs(stored_cos - exact_cos).max())
            sin_error = float(np.abs(stored_sin - exact_sin).max())
            largest_error = max(largest_error, cos_error, sin_error)
            start = end
    return largest_error


def _table_error_bounds(
    chain: Chain,
    ends: PerStretch,
    largest_errors: PerStretch,
) -> Float[np.ndarray, "pairs stretches"]:
    """Bound the error of cos and sin of each pair in stretches of positions.

    ``ends`` has the last position of each stretch, and ``largest_errors`` the largest
    angle error in each stretch.
    """
    table = chain.plan.table
    # Numbers from 1/2 to 1 are half an epsilon apart. Rounding moves them by at most
    # half of this distance.
    rounding = 0.0
    if table.precision < FLOAT64_BITS:
        rounding = table.epsilon / 4

    # At an angle a near 0 a cosine is rounded by at most its distance a^2 / 2 from 1. A
    # sine is rounded by at most half a step at a, and by no more than a, to 0. These
    # smaller bounds save the visit of pairs that hardly rotate.
    angles = np.abs(np.outer(chain.spectrum.inv_freq, ends))  # [pairs, stretches]
    rounding_of_cos = angles**2 / 2
    rounding_of_sin = np.minimum(half_step(angles, table), angles)
    near_zero = np.maximum(rounding_of_cos, rounding_of_sin)
    roundings = np.minimum(rounding, near_zero)

    # The margin covers what float64 loses in computing a bound.
    error_limits = largest_errors * (1 + 1e-9)
    angle_errors = np.minimum(chain.error_bounds(ends), error_limits)
    chords = 2 * np.sin(angle_errors / 2)
    return chords + roundings
