"""How many different codes some positions have, exactly, by hashing.

The leading pairs of every position are hashed to 64 bits. Different hashes prove different codes.
Positions with equal hashes are hashed again with more pairs, until they part or no pair is left;
what is left is compared number by number.
"""

import numpy as np
from jaxtyping import Float, Int

from ropelab.numerics.code import Code
from ropelab.numerics.formats import FloatFormat, round_to
from ropelab.numerics.ranges import BLOCK, blocks

Integers = Int[np.ndarray, "n"]


def keys_of(
    values: Float[np.ndarray, "features n"], fmt: FloatFormat
) -> Int[np.ndarray, "features n"]:
    """The stored numbers as integers that are equal exactly when the numbers are."""
    return (round_to(values, fmt) + 0.0).view(np.int64)  # + 0.0 makes -0 and 0 one number


def mixed(
    keys: Int[np.ndarray, "features n"], seed: Integers | None = None
) -> Int[np.ndarray, "n"]:
    """A 64-bit hash of every column; a single number is hashed without loss."""
    state = np.zeros_like(keys[0]) if seed is None else seed.copy()
    for row in keys:
        state ^= row
        state *= -0x61C8864680B583EB
        state ^= state >> 32
    state *= -0x40A7B892E31B1A47
    return state


def count_distinct(code: Code, fmt: FloatFormat, hashes: Integers, positions: Integers) -> int:
    """The number of different codes among positions whose leading pairs hash to `hashes`."""
    lead = code.leading(fmt)
    distinct = 0
    for pairs in groups(range(lead.stop, code.pairs.stop), len(lead)):
        distinct += hashes.size
        hashes, positions = _repeated(hashes, positions)
        distinct -= hashes.size
        if not hashes.size:
            return distinct
        hashes = _extended(code, fmt, hashes, positions, pairs)
    distinct += hashes.size
    hashes, positions = _repeated(hashes, positions)
    return distinct - hashes.size + _count_equal(code, fmt, hashes, positions)


def groups(pairs: range, size: int) -> list[range]:
    """A range of pairs in pieces of at most `size`."""
    return [pairs[at : at + size] for at in range(0, len(pairs), size)]


def _repeated(hashes: Integers, positions: Integers) -> tuple[Integers, Integers]:
    """Those whose hash occurs more than once, sorted by hash."""
    order = np.argsort(hashes)
    hashes = hashes[order]
    equal = hashes[1:] == hashes[:-1]
    if not equal.any():
        return hashes[:0], positions[:0]
    repeated = np.zeros(hashes.size, dtype=bool)
    repeated[1:] |= equal
    repeated[:-1] |= equal
    return hashes[repeated], positions[order[repeated]]


def _extended(
    code: Code, fmt: FloatFormat, hashes: Integers, positions: Integers, pairs: range
) -> Integers:
    """The hashes with more pairs mixed in."""
    parts = [
        mixed(_keys(code, fmt, positions[start:stop], pairs), hashes[start:stop])
        for start, stop in blocks(0, hashes.size, BLOCK // len(pairs))
    ]
    return np.concatenate(parts)


def _count_equal(code: Code, fmt: FloatFormat, hashes: Integers, positions: Integers) -> int:
    """Different codes among positions sorted by the hash of their whole code.

    Each is compared with the first of its hash; those that differ from it although their hashes
    are equal (chance: 2^-64 for two positions) are counted by comparing them all.
    """
    if not hashes.size:
        return 0
    first = np.ones(hashes.size, dtype=bool)
    first[1:] = hashes[1:] != hashes[:-1]
    if code.single:  # and then its hash is the code
        return int(first.sum())
    leaders = positions[np.flatnonzero(first)[first.cumsum() - 1]]
    strangers = []
    for start, stop in blocks(0, hashes.size, BLOCK // len(code.pairs)):
        here = _keys(code, fmt, positions[start:stop], code.pairs)
        there = _keys(code, fmt, leaders[start:stop], code.pairs)
        strangers.append(here[:, (here != there).any(0)])
    different = np.concatenate(strangers, axis=1)
    return int(first.sum()) + (np.unique(different, axis=1).shape[1] if different.size else 0)


def _keys(
    code: Code, fmt: FloatFormat, positions: Integers, pairs: range
) -> Int[np.ndarray, "features n"]:
    return keys_of(code.values(positions.astype(np.float64), pairs), fmt)
