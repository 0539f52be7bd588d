"""Neighbouring positions of one frequency, and what its cosine resolves.

The stored cosine and sine of an angle stay the same between two breakpoints: angles at
which the cosine or the sine is halfway between two numbers of the format. So a step
wider than the widest gap between breakpoints always changes one of them.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from ropelab.math.bounds.walls import proved_below
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import BLOCK, blocks, span
from ropelab.math.numerics.formats import FloatFormat, round_to
from ropelab.runs.arrays import Float

# Formats with more significant bits have too many breakpoints to list.
LISTED = 16
# Positions in which a period that loses neighbours is sought, the factor from one
# period to the next, and the longest period that is tried, as a multiple of the first.
SEARCHED = 1 << 17
FACTOR = 1 + 2.0**-10
UP_TO = 4.0
# Covers what float64 loses in an angle.
MARGIN = 1 + 1e-9


@cache
def widest_gap(fmt: FloatFormat) -> float:
    """Return an angle in radians: any wider step changes the stored cos or sin.

    For formats of up to 16 significant bits it is the widest gap between breakpoints,
    so it is sharp; for others the diagonal of the largest cell of rounding.
    """
    # Numbers from 1/2 to 1 are half an epsilon apart, smaller ones less.
    side = fmt.epsilon / 2
    if fmt.precision > LISTED:
        half_diagonal = side / math.sqrt(2)
        return 2 * math.asin(half_diagonal) * MARGIN

    midway = _midpoints_below_one(fmt)
    angles = np.concatenate((np.arccos(midway), np.arcsin(midway)))
    # An eighth of the circle has all gaps but those across its ends, which reflections
    # continue.
    eighth = angles[angles <= math.pi / 4]
    breakpoints = np.concatenate((-eighth, eighth, math.pi / 2 - eighth))
    gaps = np.diff(np.unique(breakpoints))
    return float(gaps.max()) * MARGIN


def _midpoints_below_one(fmt: FloatFormat) -> Float[np.ndarray, " midpoints"]:
    """Return the midpoints of neighbouring values of a format between 0 and 1."""
    count = 2 ** (fmt.precision - 1)
    fractions = np.arange(count) * fmt.epsilon + fmt.epsilon / 2
    exponents = np.arange(fmt.min_exponent, 0)[:, None]

    subnormal = np.ldexp(fractions, fmt.min_exponent)
    normal = np.ldexp(1 + fractions, exponents)
    return np.concatenate((subnormal, normal.ravel()))


def longest_kept_period(fmt: FloatFormat, offset: int, length: int) -> float:
    """Return a period in tokens up to which one frequency keeps all its neighbours.

    Proved for every period from 2 tokens up to it, wherever the positions are; infinite
    where it is proved for every period at these positions.
    """
    if _is_proved(fmt, offset, length):
        return math.inf
    return 2 * math.pi / widest_gap(fmt)


def shortest_losing_period(fmt: FloatFormat, offset: int, length: int) -> float | None:
    """Return a period just above `longest_kept_period` at which neighbours are equal.

    Found by counting, so there may be a shorter one in between. None: not found.
    """
    period = longest_kept_period(fmt, offset, length)
    last = UP_TO * period
    count = min(length, SEARCHED)
    last_start = offset + length - count

    while period < last < math.inf:
        # Gaps are widest at 45 degrees, an eighth of the period away from 0.
        middle = round(period / 8)
        start = max(middle - count // 2, offset)
        start = min(start, last_start)
        theta = 2 * math.pi / period
        (equal,) = count_equal_neighbours(theta, [fmt], start, count)
        if equal:
            return period
        period *= FACTOR
    return None


def count_equal_neighbours(
    theta: float,
    formats: Sequence[FloatFormat],
    offset: int,
    length: int,
) -> list[int]:
    """Count, per format, positions whose cos and sin are stored as those of the next.

    Both positions are in offset .. offset + length - 1; theta in radians per token.
    """
    step = abs(math.remainder(theta, 2 * math.pi))
    counts = dict.fromkeys(formats, 0)
    doubtful = []
    for fmt in counts:
        is_proved = theta <= math.pi and _is_proved(fmt, offset, length)
        if step <= widest_gap(fmt) and not is_proved:
            doubtful.append(fmt)
    if not doubtful:
        return [0] * len(formats)

    last = offset + length - 1
    for low, high in blocks(offset, last, BLOCK):
        angles = theta * span(low, high + 1)
        cos = np.cos(angles)
        sin = np.sin(angles)
        both = np.stack((cos, sin))
        for fmt in doubtful:
            stored = round_to(both, fmt)
            here = stored[:, :-1]
            there = stored[:, 1:]
            equal = (here == there).all(0)
            counts[fmt] += int(equal.sum())
    return [counts[fmt] for fmt in formats]


def first_resolved_distance(
    theta: float,
    component: str,
    fmt: FloatFormat,
    offset: int,
    length: int,
) -> int | None:
    """Return the distance from which on no two places have an equal cos (or sin).

    In tokens. None where the positions span more than the half turn in which it only
    rises or only falls.
    """
    wave: np.ufunc
    if component == "sin":
        wave = np.sin
        # A sine rises or falls for half a turn from a quarter turn on.
        quarter = math.pi / 2
    else:
        wave = np.cos
        quarter = 0.0

    def half_turns(position: int) -> int:
        return math.floor((theta * position + quarter) / math.pi)

    last = offset + length - 1
    if theta == 0 or half_turns(offset) != half_turns(last):
        return None

    longest = 0
    begin = offset
    value = math.nan
    for low, high in blocks(offset, offset + length, BLOCK):
        angles = theta * span(low, high)
        stored = round_to(wave(angles), fmt)
        is_change = np.diff(stored, prepend=value) != 0
        changes = low + np.flatnonzero(is_change)
        begins = np.concatenate(([begin], changes))
        ends = np.concatenate((changes, [high]))
        lengths = ends - begins
        longest = max(longest, int(lengths.max()))
        begin = int(begins[-1])
        value = float(stored[-1])
    return longest


def _is_proved(fmt: FloatFormat, offset: int, length: int) -> bool:
    """Return True if pairs of every period keep all neighbours at these positions."""
    # The proof compares positions m and m + 1 for m below the bound.
    return offset + length - 1 <= proved_below(CastPlan(table=fmt))
