"""Ranges of positions, cut into octaves and into blocks that fit into a cache."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

BLOCK = 1 << 15
"""Numbers worked on at once: small enough for the cache."""


def octaves(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """[start, stop) cut at the powers of two; 0 belongs to the octave of 1."""
    while start < stop:
        end = min(stop, 1 << max(start, 1).bit_length())
        yield start, end
        start = end


def blocks(start: int, stop: int, size: int = BLOCK) -> Iterator[tuple[int, int]]:
    """[start, stop) in pieces of at most `size`, one after the other: there may be many."""
    return ((at, min(at + size, stop)) for at in range(start, stop, size))


def span(start: int, stop: int) -> Float[np.ndarray, " n"]:
    """The positions start .. stop - 1 in float64."""
    return np.arange(start, stop, dtype=np.float64)
