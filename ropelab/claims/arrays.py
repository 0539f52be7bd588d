"""Functions for the checks of claims: random vectors, rotations, and numbers in words.

The rotation is written with complex numbers here, and not taken from
ropelab.math.rotary: a check of that code must not use the code itself.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropelab.math.frequencies import inverse_frequencies
from ropelab.runs.arrays import Float

Array = NDArray[np.floating[Any]]
# The places of the two features of a pair: in the two halves of a vector, or next to each
# other.
Pairing = Literal["half", "interleaved"]
# The frequencies (width, base) in radians per token. They are the only part of
# ropelab.math that checks of the rotation use.
frequencies = inverse_frequencies


def gaussian(seed: int, *shape: int) -> Array:
    """Draw standard normal numbers, in an array of that shape."""
    return np.random.default_rng(seed).standard_normal(shape)


def max_abs(x: ArrayLike) -> float:
    """Return the largest magnitude of some numbers."""
    return float(np.abs(np.asarray(x)).max())


def write_magnitude(value: float) -> str:
    """Write a number that should be zero: `0`, or its magnitude, such as `3.2e-16`."""
    if value == 0:
        return "0"
    return f"{value:.1e}"


def write_zero(value: float, bound: float, otherwise: str) -> str:
    """Write a difference that should be 0: `0 within rounding` up to a bound, and
    `otherwise` beyond it.
    """
    return "0 within rounding" if value <= bound else otherwise


def write_hits(hits: int, total: int) -> str:
    """Write `none of 3`, `2 of 3` or `all 3`."""
    if hits == total:
        return f"all {total}"
    if hits == 0:
        return f"none of {total}"
    return f"{hits} of {total}"


def softmax(scores: Float[Array, "... keys"]) -> Float[Array, "... keys"]:
    """Return the softmax of the scores of each query."""
    # The largest score is subtracted, so that no exponential overflows.
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def split(
    x: Float[Array, "... d"], pairing: Pairing
) -> tuple[Float[Array, "... pairs"], Float[Array, "... pairs"]]:
    """Return the first and the second features of all pairs."""
    if pairing == "half":
        half = x.shape[-1] // 2
        return x[..., :half], x[..., half:]
    return x[..., 0::2], x[..., 1::2]


def join(
    first: Float[Array, "... pairs"],
    second: Float[Array, "... pairs"],
    pairing: Pairing,
) -> Float[Array, "... d"]:
    """Make vectors from the first and the second features of all pairs."""
    if pairing == "half":
        return np.concatenate((first, second), axis=-1)
    # An array [..., pairs, 2], whose last two axes become one.
    by_pair = np.stack((first, second), axis=-1)
    return by_pair.reshape(*first.shape[:-1], -1)


def rotate(
    x: Float[Array, "... d"],
    angles: Float[Array, "... pairs"],
    pairing: Pairing = "half",
) -> Float[Array, "... d"]:
    """Rotate each pair by its angle, in radians, counterclockwise."""
    first, second = split(x, pairing)
    # A pair is a complex number, and a rotation multiplies it by e^(i angle).
    rotated = (first + 1j * second) * np.exp(1j * angles)
    return join(rotated.real, rotated.imag, pairing)


def swap_pairs(x: Float[Array, "... d"], pairing: Pairing) -> Float[Array, "... d"]:
    """Return (-x2, x1) for every pair (x1, x2).

    The rotation is then x * cos + swap_pairs(x) * sin.
    """
    first, second = split(x, pairing)
    return join(-second, first, pairing)


def rotation_matrix(angles: Float[Array, " pairs"]) -> Float[Array, "d d"]:
    """Return the matrix that rotates each pair of neighbouring features by its angle,
    counterclockwise.
    """
    unit_vectors = np.eye(2 * len(angles))
    # The rotated unit vectors, which are rows here, are the columns of the matrix.
    return rotate(unit_vectors, angles, "interleaved").T
