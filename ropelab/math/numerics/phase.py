"""The worst angle error over a range of positions, exactly, without visiting most of them.

The supremum over positions has no closed form: the rounding of m * theta_i hops about. But it has a
bound that grows with m (half a last place per rounding), so blocks of positions are visited from
the far end, pair with the largest bound first, and whatever cannot beat what was found is left out.
The result is that of a visit to every position and pair, with one exception: half a turn is the
worst there can be, so an error beyond LOST_RAD ends the search, and what is reported is that one.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.ranges import BLOCK, blocks, octaves, span

STRETCH = 1 << 14
"""Positions that share one bound."""

NEAR = 1024
"""Octaves that end before this are visited as a whole, which is quicker than a search."""

LOST_RAD = 3.14
"""An angle this wrong says nothing about the position any more; worse is not looked for."""


@dataclass(frozen=True)
class Worst:
    """The largest wrapped angle error in [start, stop).

    error_rad: nan if a stored angle overflowed there; then `position` is the first that did.
    """

    start: int
    stop: int
    error_rad: float
    position: int
    pair: int

    @property
    def overflowed(self) -> bool:
        """Whether something became infinite or not a number."""
        return math.isnan(self.error_rad)


@np.errstate(invalid="ignore")
def wrapped(error: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """|error| as an angle on the circle, in [0, pi]; changes its argument."""
    turns = error * (1 / (2 * math.pi))
    np.rint(turns, out=turns)
    turns *= 2 * math.pi
    error -= turns
    return np.abs(error, out=error)


def worst_by_octave(chain: Chain, offset: int, length: int) -> list[Worst]:
    """The worst error in each octave [2^k, 2^(k+1)) of positions that the range touches.

    Args:
        offset, length: the positions offset .. offset + length - 1.
    """
    limit = first_overflow(chain, offset, length)
    ranges = list(octaves(offset, offset + length))
    lost = [o for o in ranges if limit is not None and limit < o[1]]
    near = [o for o in ranges if o[1] <= NEAR and o not in lost]
    far = [o for o in ranges if o not in near and o not in lost]
    return [
        *_visited(chain, near),
        *(_searched(chain, *octave) for octave in far),
        *(_overflowed(chain, *octave, limit or 0) for octave in lost),
    ]


def worst(chain: Chain, offset: int, length: int) -> Worst:
    """The worst error of the whole range."""
    limit = first_overflow(chain, offset, length)
    if limit is not None:
        return _overflowed(chain, offset, offset + length, limit)
    return _searched(chain, offset, offset + length)


def first_beyond(chain: Chain, found: Sequence[Worst], tolerance_rad: float) -> int | None:
    """The first position at which some pair's wrapped error exceeds the tolerance; None: nowhere.

    A position that overflows counts.

    Args:
        found: the worst errors of consecutive ranges, as worst_by_octave gives them.
        tolerance_rad: below LOST_RAD.
    """
    for octave in found:
        if octave.error_rad <= tolerance_rad:
            continue
        for low, high in blocks(octave.start, octave.stop, BLOCK // chain.spectrum.pairs):
            errors = wrapped(chain.angle_errors(span(low, high))).max(0)
            beyond = ~(errors <= tolerance_rad)
            if beyond.any():
                return low + int(beyond.argmax())
    return None


def first_overflow(chain: Chain, offset: int, length: int) -> int | None:
    """The first position with a stored angle that is not finite; None: nowhere.

    Stored angles grow with the position, so bisection finds it.
    """
    if not _lost(chain, offset + length - 1).any():
        return None
    candidates = range(offset, offset + length)
    place = bisect_left(candidates, True, key=lambda m: bool(_lost(chain, m).any()))
    return candidates[place]


def _lost(chain: Chain, position: int) -> Bool[np.ndarray, " pairs"]:
    return ~np.isfinite(chain.angles(span(position, position + 1))[:, 0])


def _overflowed(chain: Chain, start: int, stop: int, limit: int) -> Worst:
    position = max(limit, start)
    return Worst(start, stop, math.nan, position, int(_lost(chain, position).argmax()))


def _visited(chain: Chain, ranges: list[tuple[int, int]]) -> list[Worst]:
    """Consecutive short ranges: every position and pair at once."""
    if not ranges:
        return []
    first = ranges[0][0]
    errors = wrapped(chain.angle_errors(span(first, ranges[-1][1])))
    found = []
    for start, stop in ranges:
        part = errors[:, start - first : stop - first]
        pair, position = divmod(int(part.argmax()), stop - start)
        found.append(Worst(start, stop, float(part[pair, position]), start + position, pair))
    return found


def _searched(chain: Chain, start: int, stop: int) -> Worst:
    """Stretches from the far end; in each, the pair with the largest bound first."""
    best = Worst(start, stop, 0.0, start, 0)
    stretches = list(blocks(start, stop, STRETCH))
    ends = np.array([high - 1 for _, high in stretches], dtype=np.float64)
    bounds = chain.error_bounds(ends)
    largest = bounds.max(0).tolist()
    for number in reversed(range(len(stretches))):
        if largest[number] > best.error_rad:
            leaders = bounds[:, number] == largest[number]
            best = _improved(best, chain, stretches[number], leaders)
            rest = (bounds[:, number] > best.error_rad) & ~leaders
            best = _improved(best, chain, stretches[number], rest)
    return best


def _improved(
    best: Worst, chain: Chain, stretch: tuple[int, int], pairs: Bool[np.ndarray, " pairs"]
) -> Worst:
    """The worst of `best` and some pairs of a stretch; stops where nothing can get worse."""
    count = int(pairs.sum())
    for low, high in blocks(*stretch, BLOCK // count) if count else ():
        if best.error_rad < LOST_RAD:
            best = _better(best, chain, low, high, pairs)
    return best


def _better(
    best: Worst, chain: Chain, low: int, high: int, pairs: Bool[np.ndarray, " pairs"]
) -> Worst:
    """The worst of `best` and one block of some pairs."""
    errors = wrapped(chain.angle_errors(span(low, high), pairs))
    pair, position = divmod(int(errors.argmax()), high - low)
    error = float(errors[pair, position])
    if error <= best.error_rad:
        return best
    which = int(np.flatnonzero(pairs)[pair])
    return Worst(best.start, best.stop, error, low + position, which)
