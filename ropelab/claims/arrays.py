"""Tools of the checks: random vectors by seed, rotated pairs, numbers in words."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropelab.math.frequencies import inverse_frequencies
from ropelab.runs.arrays import Float

Array = NDArray[np.floating[Any]]
Pairing = Literal["half", "interleaved"]
frequencies = inverse_frequencies

# Rotation is written with complex numbers here, not taken from ropelab.math.rotary, so
# that a check of the one does not rest on itself.


def gaussian(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def largest(x: ArrayLike) -> float:
    return float(np.abs(np.asarray(x)).max())


def write_magnitude(value: float) -> str:
    """Write a number that should be zero by its magnitude, `3.2e-16`, or as `0`."""
    return f"{value:.1e}" if value else "0"


def write_hits(hits: int, total: int) -> str:
    """Write `none of 3`, `2 of 3` or `all 3`."""
    if hits == total:
        return f"all {total}"
    return f"{hits} of {total}" if hits else f"none of {total}"


def softmax(scores: Float[Array, "... n"]) -> Float[Array, "... n"]:
    # the largest is 1: no overflow
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def split(x: Float[Array, "... d"], pairing: Pairing) -> tuple[Array, Array]:
    """Return first and second features of all pairs: the two halves, or neighbours."""
    if pairing == "half":
        half = x.shape[-1] // 2
        return x[..., :half], x[..., half:]
    return x[..., 0::2], x[..., 1::2]


def join(
    first: Float[Array, "... pairs"],
    second: Float[Array, "... pairs"],
    pairing: Pairing,
) -> Float[Array, "... d"]:
    if pairing == "half":
        return np.concatenate((first, second), -1)
    return np.stack((first, second), -1).reshape(*first.shape[:-1], -1)


def rotate(
    x: Float[Array, "... d"],
    angles: Float[Array, "... pairs"],
    pairing: Pairing = "half",
) -> Float[Array, "... d"]:
    first, second = split(x, pairing)
    wave = (first + 1j * second) * np.exp(1j * angles)
    return join(wave.real, wave.imag, pairing)


def swap_pairs(x: Float[Array, "... d"], pairing: Pairing) -> Float[Array, "... d"]:
    """Return (-x2, x1) of every pair: the factor of the sines in the elementwise
    form.
    """
    first, second = split(x, pairing)
    return join(-second, first, pairing)


def rotation_matrix(angles: Float[Array, " pairs"]) -> Float[Array, "d d"]:
    """Return the matrix [d, d] of one 2x2 counterclockwise rotation per neighbouring
    pair.
    """
    # Rotating the unit vectors gives the columns of the matrix.
    return rotate(np.eye(2 * len(angles)), angles, "interleaved").T
