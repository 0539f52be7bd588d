"""Neighbouring positions of one frequency: are their stored cosines and sines equal?

The stored cosine and sine of an angle stay the same between two breakpoints. A
breakpoint is an angle at which the cosine or the sine is halfway between two numbers of
the format. A step of the angle that is wider than the widest gap between breakpoints
therefore always changes the stored cosine or the stored sine. The step from one
position to the next is the frequency, in radians per token, and the period is 2 pi over
the frequency.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from ropelab.math.bounds.walls import find_proved_limit
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import BLOCK, cut_into_blocks, list_positions
from ropelab.math.numerics.formats import FloatFormat, round_to
from ropelab.runs.arrays import Float

# The most significant bits of a format whose breakpoints are few enough to be listed.
MOST_LISTED_BITS = 16
# In the search for a period at which neighbours are equal, the factor from a period to
# the next one that is tried.
PERIOD_GROWTH = 1 + 2.0**-10
# The longest period that is tried, as a multiple of the first.
MOST_GROWTH = 4.0
# The number of positions at which each period is tried.
POSITIONS_PER_PERIOD = 1 << 17
# The factor on a gap that covers the error of float64 in an angle.
MARGIN = 1 + 1e-9


@cache
def find_widest_gap(fmt: FloatFormat) -> float:
    """Return a step of the angle, in radians; any wider step changes stored cos or sin.

    For formats of up to MOST_LISTED_BITS significant bits the result is the widest gap
    between breakpoints, which is the least step with this property. For other formats
    it is a larger step: the arc over the diagonal of the largest square whose points
    (cos, sin) are stored alike.
    """
    # Numbers from 1/2 to 1 are half an epsilon apart, and smaller numbers are closer.
    side = fmt.epsilon / 2
    if fmt.precision > MOST_LISTED_BITS:
        half_diagonal = side / math.sqrt(2)
        return 2 * math.asin(half_diagonal) * MARGIN

    midpoints = _list_midpoints_below_one(fmt)
    angles = np.concatenate((np.arccos(midpoints), np.arcsin(midpoints)))
    # Reflections of one eighth of the circle give the other seven eighths. The two
    # neighbours of the eighth are added for the gaps across its ends, at 0 and at 45
    # degrees.
    eighth = angles[angles <= math.pi / 4]
    breakpoints = np.concatenate((-eighth, eighth, math.pi / 2 - eighth))
    gaps = np.diff(np.unique(breakpoints))
    return float(gaps.max()) * MARGIN


def _list_midpoints_below_one(fmt: FloatFormat) -> Float[np.ndarray, " midpoints"]:
    """Return the midpoints of neighbouring values of a format between 0 and 1.

    A subnormal value is f * 2^e with the least exponent e, and a normal value is
    (1 + f) * 2^e with any exponent e.
    """
    count = 2 ** (fmt.precision - 1)
    fractions = np.arange(count) * fmt.epsilon + fmt.epsilon / 2
    exponents = np.arange(fmt.min_exponent, 0)[:, None]  # [exponents, 1]

    subnormal = np.ldexp(fractions, fmt.min_exponent)
    normal = np.ldexp(1 + fractions, exponents)
    return np.concatenate((subnormal, normal.ravel()))


def find_longest_kept_period(fmt: FloatFormat, offset: int, length: int) -> float:
    """Return the period, in tokens, up to which one frequency keeps neighbours apart.

    This is proved for every period from 2 tokens up to the returned period, wherever
    the positions are. The result is infinite if the same is proved for every period at
    the positions offset .. offset + length - 1.
    """
    if _is_proved(fmt, offset, length):
        return math.inf
    return 2 * math.pi / find_widest_gap(fmt)


@cache
def find_losing_period(fmt: FloatFormat, offset: int, length: int) -> float | None:
    """Return a period just above `find_longest_kept_period` at which neighbours are equal.

    The function counts equal neighbours at some periods and positions only, so that a
    shorter period may exist. None if none of these periods has equal neighbours.
    """
    period = find_longest_kept_period(fmt, offset, length)
    last = MOST_GROWTH * period
    count = min(length, POSITIONS_PER_PERIOD)
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
        period *= PERIOD_GROWTH
    return None


def count_equal_neighbours(
    theta: float,
    formats: Sequence[FloatFormat],
    offset: int,
    length: int,
) -> list[int]:
    """Count, for each format, the positions that are stored like the next position.

    Stored cos and sin are then equal. Both positions are among the `length` positions
    from `offset` on. `theta` is in radians per token.
    """
    step = abs(math.remainder(theta, 2 * math.pi))
    counts = dict.fromkeys(formats, 0)
    # The formats in which neighbours may be equal, since no proof excludes this.
    unproved = []
    for fmt in counts:
        is_proved = theta <= math.pi and _is_proved(fmt, offset, length)
        if step <= find_widest_gap(fmt) and not is_proved:
            unproved.append(fmt)
    if not unproved:
        return [0] * len(formats)

    last = offset + length - 1
    for low, high in cut_into_blocks(offset, last, BLOCK):
        angles = theta * list_positions(low, high + 1)
        cos = np.cos(angles)
        sin = np.sin(angles)
        waves = np.stack((cos, sin))  # [2, positions]
        for fmt in unproved:
            stored = round_to(waves, fmt)
            is_equal = (stored[:, :-1] == stored[:, 1:]).all(0)
            counts[fmt] += int(is_equal.sum())
    return [counts[fmt] for fmt in formats]


def find_resolved_distance(
    theta: float,
    component: str,
    fmt: FloatFormat,
    offset: int,
    length: int,
) -> int | None:
    """Return the distance in tokens from which on stored waves always differ.

    The wave is the cos or the sin of one frequency (``component``). The result is None if
    the positions span more than the half rotation in which the wave only rises or only
    falls: positions far apart may then be equal, too.
    """
    wave: np.ufunc
    if component == "sin":
        wave = np.sin
        # A sine changes its direction a quarter of a rotation after a cosine.
        quarter = math.pi / 2
    else:
        wave = np.cos
        quarter = 0.0

    def half_turns(position: int) -> int:
        return math.floor((theta * position + quarter) / math.pi)

    last = offset + length - 1
    if theta == 0 or half_turns(offset) != half_turns(last):
        return None

    # Equal values stand next to each other, in a run of positions. A run may go on from
    # block to block, so that the beginning and the value of the last run are passed on.
    longest = 0
    begin = offset
    value = math.nan
    for low, high in cut_into_blocks(offset, offset + length, BLOCK):
        angles = theta * list_positions(low, high)
        stored = round_to(wave(angles), fmt)
        is_change = np.diff(stored, prepend=value) != 0
        changes = low + np.flatnonzero(is_change)
        begins_of_runs = np.concatenate(([begin], changes))
        ends_of_runs = np.concatenate((changes, [high]))
        lengths_of_runs = ends_of_runs - begins_of_runs
        longest = max(longest, int(lengths_of_runs.max()))
        begin = int(begins_of_runs[-1])
        value = float(stored[-1])
    return longest


def _is_proved(fmt: FloatFormat, offset: int, length: int) -> bool:
    """Return True if neighbours are proved to be stored differently at every period.

    The neighbours are in offset .. offset + length - 1.
    """
    # The proof compares positions m and m + 1 for m below the bound.
    return offset + length - 1 <= find_proved_limit(CastPlan(table=fmt))
