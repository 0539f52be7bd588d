"""Random vectors that depend on a seed alone, frequencies as arrays, numbers as words."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropelab.math.frequencies import inverse_frequencies

Array = NDArray[np.floating[Any]]


def gaussian(seed: int, *shape: int) -> Array:
    """Independent standard normal numbers in float64."""
    return np.random.default_rng(seed).standard_normal(shape)


def frequencies(rotary_dim: int, base: float) -> Array:
    """Radians per token of every pair, base^(-2i/d) [rotary_dim / 2]."""
    return np.asarray(inverse_frequencies(rotary_dim, base))


def largest(x: ArrayLike) -> float:
    """The largest absolute value."""
    return float(np.abs(np.asarray(x)).max())


def tiny(value: float) -> str:
    """A number that should be zero, by its order of magnitude.

    >>> tiny(0.0), tiny(3.21e-16)
    ('0', '3.2e-16')
    """
    return f"{value:.1e}" if value else "0"


def count_of(hits: int, total: int) -> str:
    """Hits among a total, as people say it.

    >>> count_of(0, 3), count_of(2, 3), count_of(3, 3)
    ('none of 3', '2 of 3', 'all 3')
    """
    if hits == total:
        return f"all {total}"
    return f"{hits} of {total}" if hits else f"none of {total}"
