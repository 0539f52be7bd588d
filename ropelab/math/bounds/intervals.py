"""Intervals of bases, which are proved excluded or admissible, or else halved.

S(m, u) is the sum of cos(m b^(-a_i)) over the pairs i of a head, with u = ln b. A base
fails if S is negative at some position m. On an interval of half-width h around c,
Taylor's theorem bounds the change of S at one position by

    |S(m, u) - S(m, c)| <= |S'(m, c)| h + (c1 m + c2 m^2) h^2 / 2,

where c1 m + c2 m^2 is a bound on the second derivative (`Similarity.curvature_bounds`).
If S(m, c) is below minus this bound, m excludes the whole interval. If S(m, c) is above
the bound, m threatens no base in the interval. Other intervals are halved, with the
positions that could still fail in them, down to the width ``EDGE``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ropelab.math.bounds.similarity import Floats, Similarity, Singles, reduce_angle

# The width in ln b of an interval that is not halved any more: the sign of a sum
# changes in it.
EDGE = 1e-11
# The number of positions that are computed together, few enough for the processor's
# cache.
BLOCK = 1 << 9

# The lower and the upper end of an interval of u.
Window = tuple[float, float]


def value_and_slope(
    similarity: Similarity,
    positions: Floats,
    inv_freq: Floats,
    in_float64: bool,
) -> tuple[NDArray, NDArray]:
    """Return S and dS/du = m sum_i a_i b^(-a_i) sin(m b^(-a_i)) of positions.

    ``inv_freq`` has a row per position, or one row for all positions. The sums are
    computed in float64 if ``in_float64``, else in float32.
    """
    angle: NDArray = positions[:, None] * inv_freq  # [positions, pairs]
    if not in_float64:
        angle = reduce_angle(angle)
    value = np.cos(angle).sum(axis=-1) + similarity.unrotated
    weight = (similarity.a * inv_freq).astype(angle.dtype)
    # The sum over pairs of sines times weights, without an array of the products.
    slope_over_position = np.einsum("pi,pi->p", np.sin(angle), weight)
    return value, slope_over_position * positions


def is_excluded(
    similarity: Similarity,
    positions: Floats,
    low: float,
    high: float,
) -> bool:
    """Return True if some position has S < 0 in all of [low, high]."""
    interval = UndecidedIntervals.one(
        similarity, positions, low, high, float64_width=0.0
    )
    _, highest = _bound_ranges(similarity, interval)
    return bool((highest < 0).any())


@dataclass(frozen=True)
class Tangents:
    """S and dS/du of some positions at one base, computed with float32 cosines."""

    positions: Floats
    values: Floats | Singles
    slopes: Floats


def find_excluded_end(
    similarity: Similarity,
    tangents: Tangents,
    u: float,
    centre: float,
) -> float:
    """Return the largest u' with every base from u to u' excluded, or u itself."""
    # Each position excludes intervals of u around ``centre`` in which its S stays
    # negative. The intervals are joined from u on, until one leaves a gap.
    positions = tangents.positions
    c1, c2 = similarity.curvature_bounds(np.array(u))

    # At distance x from the centre, on either side, S is at most
    # constant + linear x + quadratic x^2, and therefore negative between the roots of this
    # parabola. The small number keeps `quadratic` from being 0; a larger number is still a
    # bound.
    quadratic = (positions * c1 + positions**2 * c2) / 2 + 1e-9
    slope_errors = similarity.single_error * positions * similarity.slope_bound(u)
    constant = tangents.values.astype(np.float64) + similarity.single_error

    # Row 0 is the side below the centre, row 1 the side above it: [sides, positions].
    sides = np.array([[-1.0], [1.0]])
    linear = sides * tangents.slopes + slope_errors
    discriminant = linear**2 - 4 * quadratic * constant
    root = np.sqrt(np.maximum(discriminant, 0))

    # S is negative from `near` to `far`. Both are moved inwards by more than their
    # rounding.
    near = np.maximum((-linear - root) / (2 * quadratic), 0)
    near *= 1 + 1e-9
    far = (-linear + root) / (2 * quadratic)
    far *= 1 - 1e-9

    is_below, is_above = (root > 0) & (far > near)
    low_below = -far[0, is_below]
    high_below = -near[0, is_below]
    low = np.concatenate((low_below, near[1, is_above]))
    high = np.concatenate((high_below, far[1, is_above]))

    # The sum of an end and the centre is rounded, so that ends are moved inwards once
    # more. An end at the centre itself stays, so that the intervals on its two sides
    # still meet.
    inward = np.spacing(centre)
    low = centre + low + inward * (low != 0)
    high = centre + high - inward * (high != 0)

    order = np.argsort(low)
    starts = low[order].tolist()
    ends = high[order].tolist()
    for start, end in zip(starts, ends, strict=True):
        if start > u:
            break
        u = max(u, end)
    return u


@dataclass(frozen=True)
class UndecidedIntervals:
    """Intervals of ln b to be decided, and the positions that could fail in them.

    The rows of ``intervals`` are the lower end, the upper end, the width (exact, where
    the difference of the ends is rounded), the width below which float64 decides, and
    the two curvature bounds c1 and c2 of the interval.
    """

    intervals: Floats  # [6, intervals]
    positions: Floats
    # The number of the interval that each position threatens, ascending.
    owner: NDArray[np.intp]

    @classmethod
    def one(
        cls,
        similarity: Similarity,
        positions: Floats,
        low: float,
        high: float,
        float64_width: float,
    ) -> "UndecidedIntervals":
        """Make a single interval; below the width ``float64_width`` float64 decides."""
        c1, c2 = similarity.curvature_bounds(np.array(low))
        column = [low, high, high - low, float64_width, float(c1), float(c2)]
        intervals = np.array(column)[:, None]
        owner = np.zeros(len(positions), dtype=np.intp)
        return cls(intervals, positions, owner)

    @classmethod
    def join(cls, parts: Sequence["UndecidedIntervals"]) -> "UndecidedIntervals":
        """Put the intervals of several objects into one."""
        owners = []
        count = 0
        for part in parts:
            owners.append(part.owner + count)
            count += part.intervals.shape[1]

        intervals = np.concatenate([part.intervals for part in parts], axis=1)
        positions = np.concatenate([part.positions for part in parts])
        return cls(intervals, positions, np.concatenate(owners))

    def halve(
        self,
        chosen_intervals: NDArray[np.bool_],
        chosen_positions: NDArray[np.bool_],
    ) -> "UndecidedIntervals":
        """Cut the chosen intervals in two, with the chosen positions in both halves."""
        whole_intervals = self.intervals[:, chosen_intervals]
        count = whole_intervals.shape[1]

        # Both halves keep the curvature bounds of the whole interval, which hold for
        # all u above its lower end.
        low, high = whole_intervals[:2]
        middle = (low + high) / 2
        width = middle - low
        lower_halves = whole_intervals.copy()
        lower_halves[1] = middle
        lower_halves[2] = width
        upper_halves = whole_intervals.copy()
        upper_halves[0] = middle
        upper_halves[2] = width

        chosen_indices = np.flatnonzero(chosen_positions & chosen_intervals[self.owner])
        positions = self.positions[chosen_indices]
        new_numbers = chosen_intervals.cumsum() - 1
        owner = new_numbers[self.owner[chosen_indices]]

        return UndecidedIntervals(
            np.concatenate((lower_halves, upper_halves), axis=1),
            np.concatenate((positions, positions)),
            np.concatenate((owner, owner + count)),
        )


def find_admissible(
    similarity: Similarity, undecided: UndecidedIntervals
) -> list[Window]:
    """Return all admissible pieces of the intervals."""
    windows: list[Window] = []

    # There are hundreds of thousands of intervals with a few positions each. Each round
    # therefore examines all intervals together, as arrays, and then halves some of
    # them.
    while undecided.intervals.size:
        count = undecided.intervals.shape[1]
        lowest, highest = _bound_ranges(similarity, undecided)
        is_failing = np.zeros(count, dtype=bool)
        is_threatened = np.zeros(count, dtype=bool)
        is_failing[undecided.owner[highest < 0]] = True
        is_threatened[undecided.owner[lowest < 0]] = True

        low, high, width = undecided.intervals[:3]
        # An interval narrower than EDGE is taken as a change of sign, not as a window.
        is_open = ~(is_failing | (width < EDGE))
        is_clear = is_open & ~is_threatened
        lows = low[is_clear].tolist()
        highs = high[is_clear].tolist()
        windows += zip(lows, highs, strict=True)
        undecided = undecided.halve(is_open & is_threatened, lowest < 0)
    return windows


def _bound_ranges(
    similarity: Similarity, undecided: UndecidedIntervals
) -> tuple[Floats, Floats]:
    """Bound S from below and above, for every position over its interval."""
    low, high, width, float64_width, c1, c2 = undecided.intervals
    m = undecided.positions
    owner = undecided.owner

    # In intervals narrower than `float64_width` S changes by about 1e-3. The errors of
    # float32 would keep many of these intervals undecided, so that their sums are
    # computed in float64.
    uses_float64 = width < float64_width
    inv_freq = similarity.inv_freq((low + high) / 2)

    # A single interval has one row of frequencies for all positions.
    if len(low) == 1:
        in_float64 = bool(uses_float64[0])
        value, slope = value_and_slope(similarity, m, inv_freq, in_float64)
    else:
        value = np.empty_like(m)
        slope = np.empty_like(m)
        for in_float64 in set(uses_float64.tolist()):
            places = np.flatnonzero(uses_float64[owner] == in_float64)
            for start in range(0, len(places), BLOCK):
                block = places[start : start + BLOCK]
                value[block], slope[block] = value_and_slope(
                    similarity,
                    m[block],
                    inv_freq[owner[block]],
                    in_float64,
                )

    error = np.full(len(low), similarity.single_error)
    if uses_float64.any():
        # The largest position of each interval. `reduceat` takes the maximum from each
        # first index to the next, as every interval has a position and owners ascend.
        first_indices = owner.searchsorted(np.arange(len(low)))
        largest_positions = np.maximum.reduceat(m, first_indices)
        rounding_errors = similarity.rounding_error(largest_positions[uses_float64])
        error[uses_float64] = rounding_errors

    # The half-width is rounded up: a bound on a smaller interval would prove nothing at
    # the ends of this one.
    rounded_up = 0.5 * (1 + 1e-9)
    half_widths = (high - low) * rounded_up + np.spacing(high)
    # From here on there is a number for each position.
    half_width = half_widths[owner]
    slope_bounds = (similarity.a * inv_freq).sum(-1)
    steepest = m * slope_bounds[owner]
    curvature = m * c1[owner] + m**2 * c2[owner]

    first_order = np.abs(slope) * half_width
    second_order = curvature * half_width**2 / 2
    errors = error[owner] * (1 + steepest * half_width)
    radius = first_order + second_order + errors
    return value - radius, value + radius
