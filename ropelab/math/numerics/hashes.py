"""Distinct columns of stored numbers, counted by hashes of 64 bits.

A column has the numbers that are stored for one position. To compare all columns with
each other would take too long. So each column is hashed, and only columns with equal
hashes are compared number by number (`count_equal_hashes`).
"""

import numpy as np

from ropelab.math.numerics.chain import BLOCK, Positions, cut_into_blocks
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import FloatFormat, round_to
from ropelab.runs.arrays import Bool, Float, Int

# The bits of stored numbers as integers: a column per position, a row per number.
Bits = Int[np.ndarray, "numbers n"]
Integers = Int[np.ndarray, "n"]


def read_bits(values: Float[np.ndarray, "numbers n"], fmt: FloatFormat) -> Bits:
    """Round numbers to a format, and return the bits of the results as integers.

    The integers are equal exactly where the rounded numbers are equal.
    """
    # Adding 0.0 turns -0.0 into 0.0. These two are equal but have different bits.
    stored = round_to(values, fmt) + 0.0
    return stored.view(np.int64)


def pack_two(bits: Bits) -> Bits:
    """Return two rows of numbers that float32 holds as one row of 64 bits."""
    singles = bits.view(np.float64).astype(np.float32)
    first, second = singles.view(np.uint32).astype(np.int64)
    return ((first << 32) | second)[None]


def find_equal_to_next(bits: Bits) -> Bool[np.ndarray, " n-1"]:
    """Return True at every column that equals the next column in all rows."""
    columns = bits[:, :-1]
    next_columns = bits[:, 1:]
    return np.asarray((columns == next_columns).all(0))


def mark_run_starts(values: Integers) -> Bool[np.ndarray, " n"]:
    """Return True at the first value, and at each that differs from the value before."""
    differs = values[1:] != values[:-1]
    return np.append(True, differs)


def mix_bits(bits: Bits, seed: Integers | None = None) -> Integers:
    """Return a 64-bit hash of every column; a single number is hashed without loss.

    ``seed`` has the hash of earlier rows of the same columns, which is continued.
    """
    if seed is None:
        state = np.zeros_like(bits[0])
    else:
        state = seed.copy()

    # Every step can be undone (the multiplication by an odd number, and the xor with
    # the upper half), so that no two numbers get one hash. The upper half is shifted as
    # an unsigned number. A shift that keeps the sign would give x and ~x the same hash.
    # The odd numbers come from Fibonacci hashing (2^64 over the golden ratio) and from
    # splitmix64, and are written as signed numbers.
    for row in bits:
        state ^= row
        state *= -0x61C8864680B583EB
        upper_half = state.view(np.uint64) >> np.uint64(32)
        state ^= upper_half.view(np.int64)
    state *= -0x40A7B892E31B1A47
    return state


def count_equal_hashes(
    encoding: PositionEncoding,
    fmt: FloatFormat,
    hashes: Integers,
    positions: Positions,
) -> int:
    """Count the distinct encodings of some positions.

    ``hashes`` has the hash of each position's leading pairs, a few pairs that separate
    most positions.
    """
    group_size = len(encoding.leading(fmt))
    further_pairs = encoding.pairs[group_size:]
    distinct = 0

    # A position whose hash no other position has is distinct, and is set aside. The
    # hashes of all other positions take in further pairs, in groups as large as the
    # group of leading pairs, until all pairs are in.
    while True:
        count = hashes.size
        hashes, positions = _select_repeated(hashes, positions)
        distinct += count - hashes.size
        if not (further_pairs and hashes.size):
            break

        pairs = further_pairs[:group_size]
        further_pairs = further_pairs[group_size:]
        parts = []
        for low, high in cut_into_blocks(0, hashes.size, BLOCK // len(pairs)):
            values = encoding.values(positions[low:high], pairs)
            longer_hashes = mix_bits(read_bits(values, fmt), hashes[low:high])
            parts.append(longer_hashes)
        hashes = np.concatenate(parts)

    if not hashes.size:
        return distinct
    is_first = mark_run_starts(hashes)
    distinct += int(is_first.sum())
    return distinct + _count_chance_equals(encoding, fmt, is_first, positions)


def _count_chance_equals(
    encoding: PositionEncoding,
    fmt: FloatFormat,
    is_first: Bool[np.ndarray, " n"],
    positions: Positions,
) -> int:
    """Count the encodings whose hash equals that of another encoding by chance.

    Positions are sorted by their hash, and ``is_first`` marks the first position of
    each hash. Two different encodings have the same hash with a chance of 2^-64.
    """
    number_of_hash = is_first.cumsum() - 1
    first_positions = positions[is_first]
    compared_with = first_positions[number_of_hash]

    pairs = encoding.pairs
    parts = []
    for low, high in cut_into_blocks(0, positions.size, BLOCK // len(pairs)):
        values = encoding.values(positions[low:high], pairs)
        values_of_first = encoding.values(compared_with[low:high], pairs)
        bits = read_bits(values, fmt)
        bits_of_first = read_bits(values_of_first, fmt)
        differs = (bits != bits_of_first).any(0)
        parts.append(bits[:, differs])

    differing_columns = np.concatenate(parts, axis=1)
    if not differing_columns.size:
        return 0
    return np.unique(differing_columns, axis=1).shape[1]


def _select_repeated(
    hashes: Integers,
    positions: Positions,
) -> tuple[Integers, Positions]:
    """Return the hashes that occur more than once, and their positions.

    Both are sorted by hash.
    """
    order = np.argsort(hashes)
    hashes = hashes[order]
    equals_next = hashes[1:] == hashes[:-1]
    is_repeated = np.zeros(hashes.size, dtype=bool)
    is_repeated[1:] |= equals_next
    is_repeated[:-1] |= equals_next
    return hashes[is_repeated], positions[order[is_repeated]]
