"""The positions that stay distinct: colliding neighbours and distinct encodings.

An encoding is what represents a position: cosines, sines or angles of some pairs. Two
positions collide when all stored numbers of their encodings are equal. A census counts
the positions that collide with the next one, and the distinct encodings.

The census hashes the leading pairs of every position, a few pairs that separate most
positions (hashes.py). A proof, or the steps of stored angles, often save this work
(distinct.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ropelab.math.numerics.casts import EXACT
from ropelab.math.numerics.chain import (
    BLOCK,
    Chain,
    Positions,
    cut_into_blocks,
    cut_into_octaves,
    list_positions,
)
from ropelab.math.numerics.distinct import can_prove_distinct, count_angles
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import FloatFormat
from ropelab.math.numerics.hashes import (
    Bits,
    Integers,
    count_equal_hashes,
    find_equal_to_next,
    mark_run_starts,
    mix_bits,
    pack_two,
    read_bits,
)
from ropelab.runs.arrays import Float

# The number of hashes in memory at once, 8 bytes each. If there are more positions, all
# positions are hashed several times, and each time another share of the hashes is kept.
HASHES_IN_MEMORY = 1 << 24

# Called with the share of the work that was done since the last call.
Advance = Callable[[float], object]


@dataclass(frozen=True)
class Census:
    """The counts of an encoding in a format over a range of positions."""

    positions: int
    distinct: int
    adjacent_collisions: int  # positions m that collide with m+1, both in the range
    first_collision: int | None  # the smallest such m; None if no position collides
    by_octave: tuple[tuple[int, int, int], ...]  # (start, stop, collisions)


def take_census(
    encoding: PositionEncoding,
    formats: Sequence[FloatFormat],
    offset: int,
    length: int,
    advance: Advance = lambda share: None,
    hashes_in_memory: int = HASHES_IN_MEMORY,
    neighbours: bool = True,
) -> list[Census]:
    """Count collisions and distinct encodings for every format.

    Args:
        encoding: the numbers that represent a position.
        formats: the formats in which these numbers are stored.
        offset: the first position.
        length: the number of positions.
        advance: is called with shares of the work that add up to 1.
        hashes_in_memory: the number of hashes in memory at once, for each format.
        neighbours: False leaves collisions at 0, which is quicker.
    """
    stop = offset + length
    edges = [start for start, _ in cut_into_octaves(offset, stop)]
    edges.append(stop)

    counters = []
    for fmt in formats:
        proved = can_prove_distinct(encoding, fmt, offset, length)
        counters.append(_Counter(encoding, fmt, edges, proved))

    unproved = [counter for counter in counters if not counter.proved]
    if not unproved:
        advance(1)
        return [counter.census() for counter in counters]

    # Coarse formats need more leading pairs. Those of the coarsest format serve all
    # formats.
    leading_by_format = [encoding.leading(counter.fmt) for counter in unproved]
    leading_pairs = max(leading_by_format, key=len)
    numbers = max(len(leading_pairs) * encoding.per_pair, 2)
    size = BLOCK // numbers

    # The number of distinct angles follows from the collisions of neighbours (see
    # `census`). So does the number of distinct values of a single number that only
    # rises or only falls.
    is_hashed = encoding.component != "angle"
    compares_neighbours = neighbours or encoding.single or not is_hashed
    shares = 1
    if is_hashed:
        shares = -(-length // hashes_in_memory)  # rounded up

    for share in range(shares):
        for low, high in cut_into_blocks(offset, stop, size):
            # The positions go one beyond the block, so that its last position is compared
            # with its neighbour.
            positions = list_positions(low, min(high + 1, stop))
            values = encoding.values(positions, leading_pairs)
            for counter in unproved:
                bits = counter.read_leading_bits(values)
                if share == 0 and compares_neighbours:
                    counter.compare_neighbours(positions, bits, values[0])
                if is_hashed:
                    block = slice(high - low)
                    counter.keep_hashes(positions[block], bits[:, block], share, shares)
            advance((high - low) / length / shares)
        for counter in unproved:
            counter.close_share()

    advance(0)
    return [counter.census() for counter in counters]


def count_distinct(
    chain: Chain,
    tables: Sequence[FloatFormat],
    offset: int,
    length: int,
) -> dict[FloatFormat, int]:
    """Count the positions with distinct stored cos and sin.

    `tables` are the formats in which cos and sin are stored, each with its own count.
    """
    counts = {}
    pairs = range(chain.spectrum.pairs)
    if EXACT in tables:
        # Exact cosines and sines differ where the angles differ: no two stored angles
        # have the same direction.
        count = count_angles(chain, offset, length)
        if count is None:
            angles = PositionEncoding(chain, "angle", pairs)
            (census,) = take_census(angles, [EXACT], offset, length)
            count = census.distinct
        counts[EXACT] = count

    rounded_tables = [table for table in tables if table != EXACT]
    vector = PositionEncoding(chain, "vector", pairs)
    censuses = take_census(vector, rounded_tables, offset, length, neighbours=False)
    for fmt, census in zip(rounded_tables, censuses, strict=True):
        counts[fmt] = census.distinct
    return counts


def count_distinct_among(
    encoding: PositionEncoding,
    fmt: FloatFormat,
    positions: Positions,
) -> int:
    """Count the distinct stored encodings of a few positions, by sorting them."""
    bits = read_bits(encoding.values(positions, encoding.pairs), fmt)
    order = np.lexsort(bits)
    differs = ~find_equal_to_next(bits[:, order])
    return 1 + int(differs.sum())


def count_by_first_equals(
    census: Census,
    encoding: PositionEncoding,
    fmt: FloatFormat,
    first_equals: Integers,
) -> Census:
    """Return a census whose collisions are counted by the smallest positions that have
    the same encodings in exact arithmetic.

    Neighbours that are equal without any rounding differ by the errors of sines in
    float64, which some formats store as two numbers.
    """
    representatives, place = np.unique(first_equals, return_inverse=True)
    positions = representatives.astype(np.float64)
    bits = read_bits(encoding.values(positions, encoding.pairs), fmt)
    # The last position has no neighbour in the range, and is not marked.
    is_equal = find_equal_to_next(bits[:, place])

    offset = census.by_octave[0][0]
    colliding = offset + np.flatnonzero(is_equal)
    by_octave = []
    for start, stop, _ in census.by_octave:
        inside = (colliding >= start) & (colliding < stop)
        by_octave.append((start, stop, int(inside.sum())))
    return replace(
        census,
        adjacent_collisions=colliding.size,
        first_collision=int(colliding[0]) if colliding.size else None,
        by_octave=tuple(by_octave),
    )


@dataclass(eq=False)
class _Counter:
    """The running counts of one format.

    For each block of positions it compares neighbours and keeps hashes. `close_share`
    counts the distinct hashes of a share of the positions.
    """

    encoding: PositionEncoding
    fmt: FloatFormat
    edges: Sequence[int]  # of the octaves that the range touches
    proved: bool  # no two positions collide, so that nothing need be counted
    first_collision: int | None = None
    distinct_hashed: int = 0  # distinct encodings in the finished shares
    rising: bool = True  # no number was below the number before it
    falling: bool = True  # no number was above the number before it
    hashes: list[Integers] = field(default_factory=list)
    positions: list[Positions] = field(default_factory=list)

    def __post_init__(self) -> None:
        # The collisions in each octave.
        self.collisions = np.zeros(len(self.edges) - 1, dtype=np.int64)

    def read_leading_bits(self, values: Float[np.ndarray, "numbers n"]) -> Bits:
        """Return the bits of the stored numbers of the leading pairs."""
        pairs = self.encoding.leading(self.fmt)
        # A score is one number for all pairs together, so that `per_pair` is 0.
        count = max(len(pairs) * self.encoding.per_pair, 1)
        return read_bits(values[:count], self.fmt)

    def compare_neighbours(
        self,
        positions: Positions,
        bits: Bits,
        first_number: Positions,
    ) -> None:
        """Count the positions whose encoding equals that of the next position.

        ``bits`` are the bits of the leading pairs. ``first_number`` has, for each
        position, the first number of the encoding before rounding.
        """
        encoding = self.encoding
        if encoding.single and (self.rising or self.falling):
            numbers = first_number[:-1]
            next_numbers = first_number[1:]
            self.rising &= bool((next_numbers >= numbers).all())
            self.falling &= bool((next_numbers <= numbers).all())

        is_equal = find_equal_to_next(bits)
        if not is_equal.any():
            return

        # Two positions that are stored as one number have one encoding, too. Only the
        # others are doubtful. The bits of stored positions are compared, since a
        # position that overflows to nan equals itself only in its bits.
        stored_bits = encoding.chain.positions(positions).view(np.int64)
        differs_from_next = stored_bits[1:] != stored_bits[:-1]
        doubtful_places = np.flatnonzero(is_equal & differs_from_next)
        equal_places = self._compare_further_pairs(positions, doubtful_places)
        is_equal[doubtful_places] = False
        is_equal[equal_places] = True

        colliding_positions = positions[:-1][is_equal]
        if colliding_positions.size and self.first_collision is None:
            self.first_collision = int(colliding_positions[0])
        counts_before_edges = np.searchsorted(colliding_positions, self.edges)
        self.collisions += np.diff(counts_before_edges)

    def _compare_further_pairs(
        self, positions: Positions, doubtful_places: Integers
    ) -> Integers:
        """Return the doubtful places whose position equals the next one in all pairs.

        Places are indices of ``positions``. The leading pairs of doubtful places are
        equal to those of the next position.
        """
        encoding = self.encoding
        compared = len(encoding.leading(self.fmt))
        further_pairs = encoding.pairs[compared:]
        while further_pairs and doubtful_places.size:
            # Each position is computed once, even if it is doubtful and also the
            # neighbour of a doubtful position. Marks are five times as quick as
            # np.union1d.
            is_needed = np.zeros(positions.size, dtype=bool)
            is_needed[doubtful_places] = True
            is_needed[doubtful_places + 1] = True
            needed_places = np.flatnonzero(is_needed)

            count = max(BLOCK // needed_places.size, 1)
            pairs = further_pairs[:count]
            further_pairs = further_pairs[count:]
            values = encoding.values(positions[needed_places], pairs)
            is_equal = find_equal_to_next(read_bits(values, self.fmt))

            # The column of each doubtful place among the needed places.
            columns = is_needed.cumsum()[doubtful_places] - 1
            doubtful_places = doubtful_places[is_equal[columns]]
        return doubtful_places

    def keep_hashes(
        self,
        positions: Positions,
        bits: Bits,
        share: int,
        shares: int,
    ) -> None:
        """Keep the hashes of the positions that are in a share.

        The positions are kept too, unless a hash holds all bits of an encoding.
        """
        is_lossless = self.encoding.packs(self.fmt)
        if is_lossless and len(bits) == 2:
            bits = pack_two(bits)
        hashes = mix_bits(bits)

        # Positions that certainly equal the position before are left out: positions
        # with the same hash if hashes lose nothing, else positions that are stored as
        # the same number.
        identity = hashes
        if not is_lossless:
            identity = self.encoding.chain.positions(positions).view(np.int64)
        is_kept = mark_run_starts(identity)
        if shares > 1:
            # Equal hashes are in one share. The lowest bits of a hash are mixed least.
            is_kept &= (hashes >> 17) % shares == share

        self.hashes.append(hashes[is_kept])
        if not is_lossless:
            self.positions.append(positions[is_kept])

    def close_share(self) -> None:
        """Count the distinct encodings by the hashes that were kept, and drop these."""
        if not self.hashes:
            return

        hashes = np.concatenate(self.hashes)
        self.hashes.clear()
        if self.encoding.packs(self.fmt):
            hashes.sort()
            if hashes.size:
                self.distinct_hashed += int(mark_run_starts(hashes).sum())
            return

        positions = np.concatenate(self.positions)
        self.positions.clear()
        self.distinct_hashed += count_equal_hashes(
            self.encoding, self.fmt, hashes, positions
        )

    def census(self) -> Census:
        """Return the counts of the whole range."""
        first = self.edges[0]
        stop = self.edges[-1]
        length = stop - first
        collisions = self.collisions.tolist()
        # Rounding keeps order. If a number only rises or only falls with the position,
        # its equal values are therefore neighbours. Stored angles only grow with the
        # position.
        is_monotone = self.encoding.single and (self.rising or self.falling)
        if self.proved:
            distinct = length
        elif is_monotone or self.encoding.component == "angle":
            distinct = length - sum(collisions)
        else:
            distinct = self.distinct_hashed

        starts = self.edges[:-1]
        stops = self.edges[1:]
        by_octave = zip(starts, stops, collisions, strict=True)
        return Census(
            positions=length,
            distinct=distinct,
            adjacent_collisions=sum(collisions),
            first_collision=self.first_collision,
            by_octave=tuple(by_octave),
        )
