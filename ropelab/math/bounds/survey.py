"""Looking at all positions at once for one base.

cos((p + q) theta) = cos(p theta) cos(q theta) - sin(p theta) sin(q theta): with every position
written as p + q on two grids of about sqrt(length) points, the sums over pairs are one matrix
product, and only 2 sqrt(length) cosines per pair are computed.
"""

import math
from collections.abc import Iterator

import numpy as np

from ropelab.math.bounds.similarity import Floats, Similarity, Singles, wrapped

BLOCK = 1 << 22
"""Positions in memory at once."""


def scan(similarity: Similarity, u: float, start: int, stop: int) -> Singles:
    """S at every position from ``start`` to below ``stop``, within ``similarity.single_error``."""
    count = stop - start
    columns = max(1, math.isqrt(count))
    rows = -(-count // columns)
    starts = start + columns * np.arange(rows, dtype=np.float64)
    return block_sums(similarity, u, starts, columns).ravel()[:count]


def block_sums(
    similarity: Similarity,
    u: float,
    starts: Floats,
    columns: int,
    step: int = 1,
    first_pair: int = 0,
) -> Singles:
    """S at start + step * column in float32, for each start and column: [starts, columns].

    Within ``similarity.single_error``. With ``first_pair`` > 0 the faster pairs are left out.
    """
    inv_freq = similarity.inv_freq(u)[first_pair:]
    left = _angles(starts, inv_freq)
    right = _angles(step * np.arange(columns, dtype=np.float64), inv_freq)
    tall = np.concatenate((np.cos(left), -np.sin(left)), axis=1)
    wide = np.concatenate((np.cos(right), np.sin(right)), axis=1)
    sums: Singles = tall @ wide.T
    sums += np.float32(similarity.unrotated)
    return sums


def block_tangents(
    similarity: Similarity, u: float, starts: Floats, columns: int
) -> tuple[Singles, Singles]:
    """S and dS/du / position at start + column in float32, for each: [starts, columns].

    S within ``similarity.single_error``, the other within that times ``similarity.slope_bound(u)``.
    """
    inv_freq = similarity.inv_freq(u)
    left, right = _angles(starts, inv_freq), _angles(np.arange(columns, dtype=np.float64), inv_freq)
    cos, sin, wide = np.cos(left), np.sin(left), np.concatenate((np.cos(right), np.sin(right)), 1).T
    weight = (similarity.a * inv_freq).astype(np.float32)
    sums: Singles = np.concatenate((cos, -sin), axis=1) @ wide
    slopes: Singles = np.concatenate((sin * weight, cos * weight), axis=1) @ wide
    return sums + np.float32(similarity.unrotated), slopes


def blocks(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """[start, stop) in pieces that fit in memory."""
    for low in range(start, stop, BLOCK):
        yield low, min(low + BLOCK, stop)


def first_negative(similarity: Similarity, base: float, length: int) -> int | None:
    """The smallest position below ``length`` where S < 0, decided in float64; None where none is.

    Sums that float64 cannot tell from zero (|S| below ``rounding_error``) count as not negative.
    """
    u = math.log(base)
    sure = 2 * similarity.single_error + similarity.rounding_error(length)
    for low, high in blocks(0, length):
        sums = scan(similarity, u, low, high)
        surely = np.flatnonzero(sums < -sure)[:1]
        until = int(surely[0]) + 1 if len(surely) else len(sums)
        near = np.flatnonzero(sums[:until] < similarity.single_error)
        positions = (near + low).astype(np.float64)
        negative = positions[_negative(similarity, positions, u, length)]
        if len(negative):
            return int(negative[0])
    return None


def lowest(similarity: Similarity, base: float, length: int) -> tuple[int, float]:
    """The position below ``length`` with the smallest S, and S there (float32 accuracy)."""
    found = (0, math.inf)
    for low, high in blocks(0, length):
        sums = scan(similarity, math.log(base), low, high)
        place = int(sums.argmin())
        if sums[place] < found[1]:
            found = (low + place, float(sums[place]))
    return found


def _negative(similarity: Similarity, positions: Floats, u: float, length: int) -> np.ndarray:
    return similarity.at(positions, u) < -similarity.rounding_error(length)


def _angles(positions: Floats, inv_freq: Floats) -> Singles:
    return wrapped(np.multiply.outer(positions, inv_freq))
