"""What a position code can still tell apart: colliding neighbours and distinct codes, exactly.

Two positions collide when all the stored numbers of their codes are equal. Positions are streamed,
so memory does not grow with the length.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ropelab.math.numerics.code import Code
from ropelab.math.numerics.distinct import Tally, keys_of
from ropelab.math.numerics.formats import FloatFormat
from ropelab.math.numerics.neighbours import Neighbours
from ropelab.math.numerics.ranges import BLOCK, blocks, octaves, span
from ropelab.math.numerics.sieve import proves_distinct
from ropelab.math.numerics.steps import count_angles

HELD = 1 << 24
"""Hashes held at once, 8 bytes each; a longer range is streamed several times, a share each."""

Advance = Callable[[float], object]
Block = tuple[Float[np.ndarray, " n"], Float[np.ndarray, "features n"], int]


@dataclass(frozen=True)
class Census:
    """What is known of one code in one format over one range of positions.

    adjacent_collisions: positions m with code(m) = code(m+1), both in the range.
    first_collision: the smallest such m, None if there is none.
    by_octave: (start, stop, collisions) for the octaves of m.
    """

    positions: int
    distinct: int
    adjacent_collisions: int
    first_collision: int | None
    by_octave: tuple[tuple[int, int, int], ...]


def take_census(
    code: Code,
    formats: Sequence[FloatFormat],
    offset: int,
    length: int,
    advance: Advance = lambda steps: None,
    held: int = HELD,
) -> list[Census]:
    """Count collisions and distinct codes for every format in which the code may be stored.

    Args:
        offset, length: the positions offset .. offset + length - 1.
        advance: told the share of the work done since the last call; the shares add up to 1.
        held: at most about this many hashes are held at once, per format.
    """
    counters = _counted(code, formats, offset, length, advance, held, neighbours=True)
    return [counter.census() for counter in counters]


def count_distinct(
    code: Code, formats: Sequence[FloatFormat], offset: int, length: int, held: int = HELD
) -> list[int]:
    """The distinct codes alone, as `take_census` counts them, for every format."""
    alone = code.channel == "angle"  # their number follows from the neighbours'
    if alone and len(code.pairs) == code.chain.spectrum.pairs:
        found = count_angles(code.chain, offset, length)
        if found is not None:
            return [found] * len(formats)
    counters = _counted(code, formats, offset, length, lambda steps: None, held, neighbours=alone)
    return [counter.distinct for counter in counters]


class _Counter:
    """The running census of one format."""

    def __init__(self, code: Code, fmt: FloatFormat, offset: int, length: int, held: int) -> None:
        self.code, self.fmt, self.length = code, fmt, length
        self.neighbours = Neighbours(code, fmt, list(octaves(offset, offset + length)))
        self.tally = Tally(code, fmt, -(-length // held))
        self.proved = proves_distinct(code, fmt, offset, length)

    def add(self, share: int, block: Block, neighbours: bool) -> None:
        """One block of values of leading pairs, for at least as many as this format needs."""
        positions, values, count = block
        if self.code.per_pair:
            values = values[: len(self.code.leading(self.fmt)) * self.code.per_pair]
        keys = keys_of(values, self.fmt)
        if share == 0 and neighbours:
            self.neighbours.add(positions, values, keys)
        if self.code.channel != "angle":
            self.tally.add(share, positions[:count], keys[:, :count])

    @property
    def distinct(self) -> int:
        """The number of different codes."""
        if self.proved:
            return self.length
        if self.neighbours.monotone:
            return self.length - int(self.neighbours.collisions.sum())
        return self.tally.distinct

    def census(self) -> Census:
        """The result."""
        counts = self.neighbours.collisions.tolist()
        edges = zip(self.neighbours.edges, counts, strict=True)
        by_octave = tuple((*edge, count) for edge, count in edges)
        first = self.neighbours.first_collision
        return Census(self.length, self.distinct, sum(counts), first, by_octave)


def _counted(
    code: Code,
    formats: Sequence[FloatFormat],
    offset: int,
    length: int,
    advance: Advance,
    held: int,
    neighbours: bool,
) -> list[_Counter]:
    """Stream the range through a counter per format, and once more for what hashes left open."""
    counters = [_Counter(code, fmt, offset, length, held) for fmt in formats]
    open_ = [counter for counter in counters if not counter.proved]
    lead = max((code.leading(counter.fmt) for counter in open_), key=len, default=range(0))
    shares = 1 if code.channel == "angle" else -(-length // held)
    for share in range(shares if open_ else 0):
        for block in _blocks(code, offset, offset + length, lead):
            for counter in open_:
                counter.add(share, block, neighbours)
            advance(block[2] / length / shares)
        for counter in open_:
            counter.tally.close_share()
    advance(0 if open_ else 1)
    _look_again([counter.tally for counter in open_], code, offset, offset + length)
    return counters


def _look_again(tallies: Sequence[Tally], code: Code, start: int, stop: int) -> None:
    """Compare the positions whose hashes are equal, as many of them at once as may be held."""
    doubtful = [tally for tally in tallies if tally.doubtful]
    rounds = max((tally.rounds for tally in doubtful), default=0)
    for number in range(rounds):
        for low, high in blocks(start, stop):
            for tally in doubtful:
                tally.gather(number, rounds, span(low, high))
        for tally in doubtful:
            tally.compare()


def _blocks(code: Code, start: int, stop: int, lead: range) -> Iterator[Block]:
    """Positions, the values of some pairs there, and how many of them are the block's own.

    One position more than the block, to compare its last one with its neighbour.
    """
    for low, high in blocks(start, stop, BLOCK // max(len(lead) * code.per_pair, 2)):
        positions = span(low, min(high + 1, stop))
        yield positions, code.values(positions, lead), high - low
