"""Pairs of features turned by angles, as the checks write it: complex numbers."""

from typing import Literal

import numpy as np
from jaxtyping import Float

from ropelab.claims.numbers import Array

Pairing = Literal["half", "interleaved"]


def split(x: Float[Array, "... d"], pairing: Pairing) -> tuple[Array, Array]:
    """First and second features of all pairs: the two halves, or neighbours."""
    if pairing == "half":
        half = x.shape[-1] // 2
        return x[..., :half], x[..., half:]
    return x[..., 0::2], x[..., 1::2]


def join(
    first: Float[Array, "... pairs"], second: Float[Array, "... pairs"], pairing: Pairing
) -> Float[Array, "... d"]:
    """The inverse of `split`."""
    if pairing == "half":
        return np.concatenate((first, second), -1)
    return np.stack((first, second), -1).reshape(*first.shape[:-1], -1)


def turned(
    x: Float[Array, "... d"], angles: Float[Array, "... pairs"], pairing: Pairing = "half"
) -> Float[Array, "... d"]:
    """Every pair turned counterclockwise by its angle, in radians."""
    first, second = split(x, pairing)
    wave = (first + 1j * second) * np.exp(1j * angles)
    return join(wave.real, wave.imag, pairing)


def swapped(x: Float[Array, "... d"], pairing: Pairing) -> Float[Array, "... d"]:
    """(-x2, x1) of every pair: what the elementwise form multiplies with the sines."""
    first, second = split(x, pairing)
    return join(-second, first, pairing)


def rotation_matrix(angles: Float[Array, " pairs"]) -> Float[Array, "d d"]:
    """The sparse matrix of neighbouring pairs: a 2x2 counterclockwise rotation for each."""
    return turned(np.eye(2 * len(angles)), angles, "interleaved").T
