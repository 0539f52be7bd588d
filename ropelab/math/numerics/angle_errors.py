"""The worst errors of angles and tables over a range of positions, without visiting
most of them.

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
from ropelab.runs.arrays import Bool, Float

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
def wrap_angle(error: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return |error| as an angle on the circle, in [0, pi]; changes its argument."""
    turns = error * (1 / (2 * math.pi))
    np.rint(turns, out=turns)
    turns *= 2 * math.pi
    error -= turns
    return np.abs(error, out=error)


def worst_by_octave(chain: Chain, offset: int, length: int) -> list[Worst]:
    """Return the worst error in each octave [2^k, 2^(k+1)) of offset .. offset + length
    - 1.
    """
    limit = first_overflow(chain, offset, length)
    ranges = list(octaves(offset, offset + length))
    lost = [o for o in ranges if limit is not None and limit < o[1]]
    near = [o for o in ranges if o[1] <= NEAR and o not in lost]
    far = [o for o in ranges if o not in near and o not in lost]
    return [
        *_visit(chain, near),
        *(_search_stretches(chain, *octave) for octave in far),
        *(_report_overflow(chain, *octave, limit or 0) for octave in lost),
    ]


def worst(chain: Chain, offset: int, length: int) -> Worst:
    limit = first_overflow(chain, offset, length)
    if limit is not None:
        return _report_overflow(chain, offset, offset + length, limit)
    return _search_stretches(chain, offset, offset + length)


def first_beyond(
    chain: Chain,
    found: Iterable[Worst],
    tolerance_rad: float,
) -> int | None:
    """Return the first position of some ranges with an error beyond the tolerance, or
    overflow.
    """
    for octave in found:
        if octave.error_rad <= tolerance_rad:
            continue
        for low, high in blocks(
            octave.start, octave.stop, BLOCK // chain.spectrum.pairs
        ):
            beyond = ~(
                wrap_angle(chain.angle_errors(span(low, high))).max(0) <= tolerance_rad
            )
            if beyond.any():
                return low + int(beyond.argmax())
    return None


def first_overflow(chain: Chain, offset: int, length: int) -> int | None:
    # Stored angles grow with the position, so bisection finds it.
    if not _lost(chain, offset + length - 1).any():
        return None
    places = range(offset, offset + length)
    return places[bisect_left(places, True, key=lambda m: bool(_lost(chain, m).any()))]


def _lost(chain: Chain, position: int) -> Bool[np.ndarray, " pairs"]:
    return ~np.isfinite(chain.angles(span(position, position + 1))[:, 0])


def _report_overflow(chain: Chain, start: int, stop: int, limit: int) -> Worst:
    position = max(limit, start)
    return Worst(start, stop, math.nan, position, int(_lost(chain, position).argmax()))


def _visit(chain: Chain, ranges: list[tuple[int, int]]) -> list[Worst]:
    """Compute every position and pair of consecutive short ranges at once."""
    if not ranges:
        return []
    first = ranges[0][0]
    errors = wrap_angle(chain.angle_errors(span(first, ranges[-1][1])))
    found = []
    for start, stop in ranges:
        part = errors[:, start - first : stop - first]
        pair, position = divmod(int(part.argmax()), stop - start)
        found.append(
            Worst(start, stop, float(part[pair, position]), start + position, pair)
        )
    return found


def _search_stretches(chain: Chain, start: int, stop: int) -> Worst:
    """Visit stretches from the far end; in each, the pair with the largest bound
    first.
    """
    best = Worst(start, stop, 0.0, start, 0)
    stretches = list(blocks(start, stop, STRETCH))
    ends = np.array([high - 1 for _, high in stretches], dtype=np.float64)
    bounds = chain.error_bounds(ends)
    largest = bounds.max(0).tolist()
    for number in reversed(range(len(stretches))):
        if largest[number] > best.error_rad:
            leaders = bounds[:, number] == largest[number]
            best = _search_pairs(best, chain, stretches[number], leaders)
            rest = (bounds[:, number] > best.error_rad) & ~leaders
            best = _search_pairs(best, chain, stretches[number], rest)
    return best


def _search_pairs(
    best: Worst,
    chain: Chain,
    stretch: tuple[int, int],
    pairs: Bool[np.ndarray, " pairs"],
) -> Worst:
    """Return the worst of `best` and some pairs of a stretch."""
    count = int(pairs.sum())
    for low, high in blocks(*stretch, BLOCK // count) if count else ():
        if best.error_rad >= LOST_RAD:
            break
        errors = wrap_angle(chain.angle_errors(span(low, high), pairs))
        pair, position = divmod(int(errors.argmax()), high - low)
        error = float(errors[pair, position])
        if error > best.error_rad:
            which = int(np.flatnonzero(pairs)[pair])
            best = Worst(best.start, best.stop, error, low + position, which)
    return best


@np.errstate(invalid="ignore", over="ignore")
def worst_table_error(chain: Chain, found: Sequence[Worst]) -> float:
    """Return the largest |stored - exact| of any cos or sin, up to `WITHIN`; nan:
    overflow.
    """
    if any(octave.overflows for octave in found):
        return math.nan

    parts = [list(blocks(octave.start, octave.stop, STRETCH)) for octave in found]
    stretches = [stretch for part in parts for stretch in part]
    ends = np.array([stop - 1 for _, stop in stretches], dtype=np.float64)
    known = [o.error_rad if o.error_rad < LOST_RAD else math.pi for o in found]
    # The margin covers what float64 loses in computing a bound.
    largest = np.repeat(known, [len(part) for part in parts]) * (1 + 1e-9)

    table = chain.plan.table
    rounding = 0.0 if table.precision == 53 else table.epsilon / 4

    # At an angle a near 0 a cosine is rounded by at most its distance a^2 / 2 from 1,
    # and a sine by half a step at a, at most to 0. Without this, pairs that hardly
    # rotate are all searched.
    angles = np.abs(np.outer(chain.spectrum.inv_freq, ends))
    near = np.maximum(angles**2 / 2, np.minimum(half_step(angles, table), angles))
    known_errors = 2 * np.sin(np.minimum(chain.error_bounds(ends), largest) / 2)
    bounds = known_errors + np.minimum(rounding, near)

    exact = Chain(CastPlan(), chain.spectrum)
    best = 0.0
    for number in np.argsort(-bounds.max(0), kind="stable"):
        start, stop = stretches[number]
        while start < stop:
            pairs = np.flatnonzero(bounds[:, number] > best * (1 + WITHIN))
            if not pairs.size:
                break
            end = min(stop, start + max(NUMBERS // pairs.size, 1))
            both = (each.table(span(start, end), pairs) for each in (chain, exact))
            for ours, true in zip(*both, strict=True):
                best = max(best, float(np.abs(ours - true).max()))
            start = end
    return best
