"""How many different codes some positions have, exactly, by hashing.

The leading pairs of every position are hashed to 64 bits. Different hashes prove different codes.
Positions with equal hashes are hashed again with more pairs, until they part or no pair is left;
what is left is compared number by number.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ropelab.numerics.code import Code
from ropelab.numerics.formats import FloatFormat, round_to
from ropelab.numerics.ranges import BLOCK, blocks

Integers = Int[Tensor, "n"]


def keys_of(values: Float[Tensor, "features n"], fmt: FloatFormat) -> Int[Tensor, "features n"]:
    """The stored numbers as integers that are equal exactly when the numbers are."""
    return round_to(values, fmt).add(0.0).view(torch.int64)  # + 0.0 makes -0 and 0 one number


def mixed(keys: Int[Tensor, "features n"], seed: Tensor | None = None) -> Int[Tensor, "n"]:
    """A 64-bit hash of every column; a single number is hashed without loss."""
    state = torch.zeros_like(keys[0]) if seed is None else seed
    for row in keys:
        state = (state ^ row).mul_(-0x61C8864680B583EB)
        state ^= state >> 32
    return state.mul_(-0x40A7B892E31B1A47)


def count_distinct(code: Code, fmt: FloatFormat, hashes: Integers, positions: Integers) -> int:
    """The number of different codes among positions whose leading pairs hash to `hashes`."""
    lead = code.leading(fmt)
    distinct = 0
    for pairs in groups(range(lead.stop, code.pairs.stop), len(lead)):
        distinct += hashes.numel()
        hashes, positions = _repeated(hashes, positions)
        distinct -= hashes.numel()
        if not hashes.numel():
            return distinct
        hashes = _extended(code, fmt, hashes, positions, pairs)
    distinct += hashes.numel()
    hashes, positions = _repeated(hashes, positions)
    return distinct - hashes.numel() + _count_equal(code, fmt, hashes, positions)


def groups(pairs: range, size: int) -> list[range]:
    """A range of pairs in pieces of at most `size`."""
    return [pairs[at : at + size] for at in range(0, len(pairs), size)]


def _repeated(hashes: Integers, positions: Integers) -> tuple[Integers, Integers]:
    """Those whose hash occurs more than once, sorted by hash."""
    hashes, order = hashes.sort()
    equal = hashes[1:] == hashes[:-1]
    if not equal.any():
        return hashes[:0], positions[:0]
    repeated = torch.zeros_like(hashes, dtype=torch.bool)
    repeated[1:] |= equal
    repeated[:-1] |= equal
    return hashes[repeated], positions[order[repeated]]


def _extended(
    code: Code, fmt: FloatFormat, hashes: Integers, positions: Integers, pairs: range
) -> Integers:
    """The hashes with more pairs mixed in."""
    parts = [
        mixed(_keys(code, fmt, positions[start:stop], pairs), hashes[start:stop])
        for start, stop in blocks(0, hashes.numel(), BLOCK // len(pairs))
    ]
    return torch.cat(parts)


def _count_equal(code: Code, fmt: FloatFormat, hashes: Integers, positions: Integers) -> int:
    """Different codes among positions sorted by the hash of their whole code.

    Each is compared with the first of its hash; those that differ from it although their hashes
    are equal (chance: 2^-64 for two positions) are counted by comparing them all.
    """
    if not hashes.numel():
        return 0
    first = torch.ones_like(hashes, dtype=torch.bool)
    first[1:] = hashes[1:] != hashes[:-1]
    if code.single:  # and then its hash is the code
        return int(first.sum())
    leaders = positions[first.nonzero()[:, 0][first.cumsum(0) - 1]]
    strangers = []
    for start, stop in blocks(0, hashes.numel(), BLOCK // len(code.pairs)):
        here = _keys(code, fmt, positions[start:stop], code.pairs)
        there = _keys(code, fmt, leaders[start:stop], code.pairs)
        strangers.append(here[:, (here != there).any(0)])
    different = torch.cat(strangers, dim=1)
    return int(first.sum()) + (different.unique(dim=1).shape[1] if different.numel() else 0)


def _keys(code: Code, fmt: FloatFormat, positions: Integers, pairs: range) -> Tensor:
    return keys_of(code.values(positions.double(), pairs), fmt)
