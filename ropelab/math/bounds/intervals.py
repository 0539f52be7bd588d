"""Intervals of bases: proved excluded or admissible, or halved until they are.

S(m, u) is the sum of cos(m b^(-a_i)) over the pairs i of a head, with u = ln b. A base
fails if S is negative at some position m. On an interval of half-width h around c,
Taylor's theorem bounds the change of S at one position by

    |S(m, u) - S(m, c)| <= |S'(m, c)| h + (c1 m + c2 m^2) h^2 / 2,

where c1 m + c2 m^2 is a bound on the second derivative (`Similarity.curvature_bounds`).
If S(m, c) is below minus this bound, m excludes the whole interval. If it is above the
bound, m threatens no base in the interval. Other intervals are halved, with the positions
that could still fail in them, down to the width ``EDGE``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ropelab.math.bounds.similarity import Floats, Similarity, Singles, reduce_angle

# The width in ln b at which a change of sign is taken as located.
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
    exact: bool,
) -> tuple[NDArray, NDArray]:
    """Return S and dS/du = m sum_i a_i b^(-a_i) sin(m b^(-a_i)) of positions.

    ``inv_freq`` has a row per position, or one row for all. The sums are computed in
    float64 if ``exact``, else in float32.
    """
    angle: NDArray = positions[:, None] * inv_freq  # [positions, pairs]
    if not exact:
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
    interval = Undecided.one(similarity, positions, low, high, fine=0.0)
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
    # Each position excludes stretches of u around ``centre`` in which its S stays
    # negative. The stretches are joined from u on, until one leaves a gap.
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
    # more. An end at the centre itself stays, so that the stretches on its two sides
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
class Undecided:
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
        fine: float,
    ) -> "Undecided":
        """Make a single interval; below the width ``fine`` float64 decides."""
        c1, c2 = similarity.curvature_bounds(np.array(low))
        column = [low, high, high - low, fine, float(c1), float(c2)]
        intervals = np.array(column)[:, None]
        owner = np.zeros(len(positions), dtype=np.intp)
        return cls(intervals, positions, owner)

    @classmethod
    def join(cls, parts: Sequence["Undecided"]) -> "Undecided":
        """Put the intervals of several objects into one."""
        owners = []
        count = 0
        for part in parts:
            owners.append(part.owner + count)
            count += part.intervals.shape[1]

        intervals = np.concatenate([part.intervals for part in parts], axis=1)
        positions = np.concatenate([part.positions for part in parts])
        return cls(intervals, positions, np.concatenate(owners))

    def halves(
        self,
        chosen_intervals: NDArray[np.bool_],
        chosen_positions: NDArray[np.bool_],
    ) -> "Undecided":
        """Cut the chosen intervals in two, with the chosen positions in both halves."""
        chosen = self.intervals[:, chosen_intervals]
        count = chosen.shape[1]

        # Both halves keep the curvature bounds of the whole, which hold for all u above
        # its lower end.
        low, high = chosen[:2]
        middle = (low + high) / 2
        width = middle - low
        lower = chosen.copy()
        lower[1] = middle
        lower[2] = width
        upper = chosen.copy()
        upper[0] = middle
        upper[2] = width

        kept = np.flatnonzero(chosen_positions & chosen_intervals[self.owner])
        positions = self.positions[kept]
        new_numbers = chosen_intervals.cumsum() - 1
        owner = new_numbers[self.owner[kept]]

        return Undecided(
            np.concatenate((lower, upper), axis=1),
            np.concatenate((positions, positions)),
            np.concatenate((owner, owner + count)),
        )


def find_admissible(similarity: Similarity, undecided: Undecided) -> list[Window]:
    """Return all admissible pieces of the intervals."""
    windows: list[Window] = []

    # There are hundreds of thousands of intervals with a few positions each. Each round
    # therefore examines all intervals together, as arrays, and then halves some.
    while undecided.intervals.size:
        count = undecided.intervals.shape[1]
        lowest, highest = _bound_ranges(similarity, undecided)
        failing = np.zeros(count, dtype=bool)
        threatened = np.zeros(count, dtype=bool)
        failing[undecided.owner[highest < 0]] = True
        threatened[undecided.owner[lowest < 0]] = True

        low, high, width = undecided.intervals[:3]
        # An interval narrower than EDGE is taken as a change of sign, not as a window.
        is_open = ~(failing | (width < EDGE))
        is_clear = is_open & ~threatened
        lows = low[is_clear].tolist()
        highs = high[is_clear].tolist()
        windows += zip(lows, highs, strict=True)
        undecided = undecided.halves(is_open & threatened, lowest < 0)
    return windows


def _bound_ranges(
    similarity: Similarity, undecided: Undecided
) -> tuple[Floats, Floats]:
    """Bound S from below and above, for every position over its interval."""
    low, high, width, fine, c1, c2 = undecided.intervals
    m = undecided.positions
    owner = undecided.owner

    # In intervals narrower than `fine` S changes by about 1e-3. The errors of float32
    # would keep many of these intervals undecided, so that their sums are computed in
    # float64.
    exact = width < fine
    inv_freq = similarity.inv_freq((low + high) / 2)

    # A single interval has one row of frequencies for all positions.
    if len(low) == 1:
        value, slope = value_and_slope(similarity, m, inv_freq, bool(exact[0]))
    else:
        value = np.empty_like(m)
        slope = np.empty_like(m)
        for in_float64 in set(exact.tolist()):
            chosen = np.flatnonzero(exact[owner] == in_float64)
            for start in range(0, len(chosen), BLOCK):
                block = chosen[start : start + BLOCK]
                value[block], slope[block] = value_and_slope(
                    similarity,
                    m[block],
                    inv_freq[owner[block]],
                    in_float64,
                )

    error = np.full(len(low), similarity.single_error)
    if exact.any():
        # The largest position of each interval. `reduceat` takes the maximum from each
        # first index to the next, as every interval has a position and owners ascend.
        firsts = owner.searchsorted(np.arange(len(low)))
        longest = np.maximum.reduceat(m, firsts)
        error[exact] = similarity.rounding_error(longest[exact])

    # The half-width is rounded up: a bound on a smaller interval would prove nothing at
    # the ends of this one.
    rounded_up = 0.5 * (1 + 1e-9)
    half_widths = (high - low) * rounded_up + np.spacing(high)
    half = half_widths[owner]
    slope_bounds = (similarity.a * inv_freq).sum(-1)
    steepest = m * slope_bounds[owner]
    curvature = m * c1[owner] + m**2 * c2[owner]

    first_order = np.abs(slope) * half
    second_order = curvature * half**2 / 2
    errors = error[owner] * (1 + steepest * half)
    radius = first_order + second_order + errors
    return value - radius, value + radius
