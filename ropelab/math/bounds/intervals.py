"""Intervals of bases: proved excluded or admissible, or halved until they are.

On an interval of half-width h around c (in u = ln b), Taylor's theorem gives for one
position m
|S(m, u) - S(m, c)| <= |S'(m, c)| h + (c1 m + c2 m^2) h^2 / 2. If S(m, c) is below minus that, m
excludes the whole interval; if it is above that, m threatens no base in it. What
remains is halved, with the positions that could still fail in it, down to ``EDGE``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ropelab.math.bounds.similarity import Floats, Similarity, Singles, reduce_angle

# Width in ln b at which a change of sign is taken as located.
EDGE = 1e-11
# Pairs of a position and an interval computed at once, so that a block stays in the
# cache.
BLOCK = 1 << 9

Window = tuple[float, float]


def value_and_slope(
    similarity: Similarity,
    positions: Floats,
    inv_freq: Floats,
    exact: bool,
) -> tuple[NDArray, NDArray]:
    """Return S and dS/du = m sum_i a_i b^(-a_i) sin(m b^(-a_i)) of positions."""
    # ``inv_freq`` has a row per position, or one for all. Not ``exact``: in float32.
    angle: NDArray = positions[:, None] * inv_freq
    if not exact:
        angle = reduce_angle(angle)
    value = np.cos(angle).sum(axis=-1) + similarity.unrotated
    weight = (similarity.a * inv_freq).astype(angle.dtype)
    slope_per_position = np.einsum("pi,pi->p", np.sin(angle), weight)
    return value, slope_per_position * positions


def is_excluded(
    similarity: Similarity,
    positions: Floats,
    low: float,
    high: float,
) -> bool:
    """Return True if some position has S < 0 in all of [low, high]."""
    interval = Undecided.one(similarity, positions, low, high, fine=0.0)
    _, highest = _ranges(similarity, interval)
    return bool((highest < 0).any())


@dataclass(frozen=True)
class Tangents:
    """S and dS/du of some positions at one base, as exact as float32 cosines."""

    positions: Floats
    values: Floats | Singles
    slopes: Floats


def excluded_upto(
    similarity: Similarity,
    tangents: Tangents,
    u: float,
    centre: float,
) -> float:
    """Return the largest u' with every base from u to u' excluded, or u itself."""
    # Stretches in which a position's S stays negative are joined from u <= ``centre``
    # on.
    positions = tangents.positions
    c1, c2 = similarity.curvature_bounds(np.array(u))

    # S is at most c + b x + a x^2 at distance x from the centre, on either side:
    # negative between the roots of that parabola. A larger a is still a bound, and
    # makes it never 0.
    a = (positions * c1 + positions**2 * c2) / 2 + 1e-9
    slope_errors = similarity.single_error * positions * similarity.slope_bound(u)
    c = tangents.values.astype(np.float64) + similarity.single_error

    sides = np.array([[-1.0], [1.0]])
    b = sides * tangents.slopes + slope_errors
    discriminant = b**2 - 4 * a * c
    root = np.sqrt(np.maximum(discriminant, 0))

    # Both ends of the interval are moved inwards by more than their rounding.
    near = np.maximum((-b - root) / (2 * a), 0)
    near *= 1 + 1e-9
    far = (-b + root) / (2 * a)
    far *= 1 - 1e-9

    left, right = (root > 0) & (far > near)
    low_left = -far[0, left]
    high_left = -near[0, left]
    low = np.concatenate((low_left, near[1, right]))
    high = np.concatenate((high_left, far[1, right]))

    # Stretches that meet at the centre itself still do.
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

    The rows of ``intervals`` are low, high, the width that counts, the width below
    which float64 decides, and the two curvature bounds that hold there.
    """

    intervals: Floats
    positions: Floats
    owner: NDArray[np.intp]  # the number of each position's interval, ascending

    @classmethod
    def one(
        cls,
        similarity: Similarity,
        positions: Floats,
        low: float,
        high: float,
        fine: float,
    ) -> "Undecided":
        c1, c2 = similarity.curvature_bounds(np.array(low))
        column = [low, high, high - low, fine, float(c1), float(c2)]
        intervals = np.array(column)[:, None]
        owner = np.zeros(len(positions), dtype=np.intp)
        return cls(intervals, positions, owner)

    @classmethod
    def join(cls, parts: Sequence["Undecided"]) -> "Undecided":
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
        intervals: NDArray[np.bool_],
        pairs: NDArray[np.bool_],
    ) -> "Undecided":
        """Cut the chosen intervals in two, with the chosen positions in both halves."""
        chosen = self.intervals[:, intervals]
        count = chosen.shape[1]

        # Both halves inherit the curvature bounds of the lower end, which hold for all
        # larger u.
        lower = chosen.copy()
        upper = chosen.copy()
        middle = (chosen[0] + chosen[1]) / 2
        lower[1] = middle
        upper[0] = middle
        lower[2] = middle - chosen[0]
        upper[2] = lower[2]

        kept = np.flatnonzero(pairs & intervals[self.owner])
        positions = self.positions[kept]
        new_numbers = intervals.cumsum() - 1
        owner = new_numbers[self.owner[kept]]

        return Undecided(
            np.concatenate((lower, upper), axis=1),
            np.concatenate((positions, positions)),
            np.concatenate((owner, owner + count)),
        )


def admissible(similarity: Similarity, undecided: Undecided) -> list[Window]:
    """Return all admissible pieces of the intervals."""
    windows: list[Window] = []

    # There are hundreds of thousands of intervals with a few positions each. All intervals
    # of a level are therefore examined by one pass over arrays.
    while undecided.intervals.size:
        count = undecided.intervals.shape[1]
        lowest, highest = _ranges(similarity, undecided)
        failing = np.zeros(count, dtype=bool)
        threatened = np.zeros(count, dtype=bool)
        failing[undecided.owner[highest < 0]] = True
        threatened[undecided.owner[lowest < 0]] = True

        low, high, width = undecided.intervals[:3]
        # Below EDGE an interval is taken as a change of sign, not as a window.
        standing = ~(failing | (width < EDGE))
        clear = standing & ~threatened
        lows = low[clear].tolist()
        highs = high[clear].tolist()
        windows += zip(lows, highs, strict=True)
        undecided = undecided.halves(standing & threatened, lowest < 0)
    return windows


def _ranges(similarity: Similarity, undecided: Undecided) -> tuple[Floats, Floats]:
    """Bound S from below and above, for every position over its interval."""
    low, high, width, fine, c1, c2 = undecided.intervals
    m = undecided.positions
    owner = undecided.owner

    # S changes by about 1e-3 in these, and float32 errors would keep many of them
    # undecided.
    exact = width < fine
    inv_freq = similarity.inv_freq((low + high) / 2)

    # If one row of frequencies serves all positions, nothing is copied per position.
    if len(low) == 1:
        value, slope = value_and_slope(similarity, m, inv_freq, bool(exact[0]))
    else:
        value = np.empty_like(m)
        slope = np.empty_like(m)
        for in_float64 in set(exact.tolist()):
            chosen = np.flatnonzero(exact[owner] == in_float64)
            for start in range(0, len(chosen), BLOCK):
                some = chosen[start : start + BLOCK]
                value[some], slope[some] = value_and_slope(
                    similarity,
                    m[some],
                    inv_freq[owner[some]],
                    in_float64,
                )

    error = np.full(len(low), similarity.single_error)
    if exact.any():
        # reduceat needs every interval to have a position, and owners to ascend.
        firsts = owner.searchsorted(np.arange(len(low)))
        longest = np.maximum.reduceat(m, firsts)
        error[exact] = similarity.rounding_error(longest[exact])

    # Rounded up, as a bound on a smaller interval would prove nothing at its ends.
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
