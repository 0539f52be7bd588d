"""Tools of the checks: random vectors, rotations, and numbers in words.

The rotation is written with complex numbers here, and not taken from
ropelab.math.rotary, so that a check of that code does not rest on itself.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropelab.math.frequencies import inverse_frequencies
from ropelab.runs.arrays import Float

Array = NDArray[np.floating[Any]]
Pairing = Literal["half", "interleaved"]
# The frequencies are the part of ropelab.math that checks of the rotation may rest on.
frequencies = inverse_frequencies


def gaussian(seed: int, *shape: int) -> Array:
    """Draw standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape)


def largest(x: ArrayLike) -> float:
    """Return the largest magnitude of some numbers."""
    return float(np.abs(np.asarray(x)).max())


def write_magnitude(value: float) -> str:
    """Write a number that should be zero: `0`, or its magnitude, such as `3.2e-16`."""
    if value == 0:
        return "0"
    return f"{value:.1e}"


def write_hits(hits: int, total: int) -> str:
    """Write `none of 3`, `2 of 3` or `all 3`."""
    if hits == total:
        return f"all {total}"
    if hits == 0:
        return f"none of {total}"
    return f"{hits} of {total}"


def softmax(scores: Float[Array, "... n"]) -> Float[Array, "... n"]:
    # The largest exponential is 1, so none overflows.
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def split(x: Float[Array, "... d"], pairing: Pairing) -> tuple[Array, Array]:
    """Return the first and the second features of all pairs.

    The two features of a pair are in the two halves of a vector, or neighbours.
    """
    if pairing == "half":
        half = x.shape[-1] // 2
        return x[..., :half], x[..., half:]
    return x[..., 0::2], x[..., 1::2]


def join(
    first: Float[Array, "... pairs"],
    second: Float[Array, "... pairs"],
    pairing: Pairing,
) -> Float[Array, "... d"]:
    """Make vectors of the first and the second features of their pairs."""
    if pairing == "half":
        return np.concatenate((first, second), -1)
    return np.stack((first, second), -1).reshape(*first.shape[:-1], -1)


def rotate(
    x: Float[Array, "... d"],
    angles: Float[Array, "... pairs"],
    pairing: Pairing = "half",
) -> Float[Array, "... d"]:
    """Rotate each pair by its angle, in radians, counterclockwise."""
    first, second = split(x, pairing)
    wave = (first + 1j * second) * np.exp(1j * angles)
    return join(wave.real, wave.imag, pairing)


def swap_pairs(x: Float[Array, "... d"], pairing: Pairing) -> Float[Array, "... d"]:
    """Return (-x2, x1) for every pair (x1, x2).

    The elementwise form of the rotation multiplies the result by the sines.
    """
    first, second = split(x, pairing)
    return join(-second, first, pairing)


def rotation_matrix(angles: Float[Array, " pairs"]) -> Float[Array, "d d"]:
    """Return the matrix that rotates each pair of neighbours by its angle,
    counterclockwise.
    """
    # Rotating the unit vectors gives the columns of the matrix.
    return rotate(np.eye(2 * len(angles)), angles, "interleaved").T
