"""Proving, for a small interval of bases, that a position fails there or that none does.

On a cell of half-width h around c (in u = ln b), Taylor's theorem gives for one position m
|S(m, u) - S(m, c)| <= |S'(m, c)| h + (c1 m + c2 m^2) h^2 / 2. If S(m, c) is below minus that, m
excludes the whole cell; if it is above that, m is harmless in the whole cell.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ropelab.math.bounds.similarity import Floats, Similarity, Singles, wrapped


def excluded(similarity: Similarity, positions: Floats, low: float, high: float) -> bool:
    """Whether some position has S < 0 in all of [low, high]."""
    if not len(positions):
        return False
    inv_freq = similarity.inv_freq(np.array([(low + high) / 2]))
    value, slope = value_and_slope(similarity, positions, inv_freq, exact=False)
    half = half_width(low, high)
    c1, c2 = similarity.curvature_bounds(np.array(low))
    bent = positions * c1 + positions**2 * c2
    steepest = positions * (similarity.a * inv_freq).sum()
    radius = np.abs(slope) * half + bent * half**2 / 2
    radius += similarity.single_error * (1 + steepest * half)
    return bool((value + radius < 0).any())


@dataclass(frozen=True)
class Tangents:
    """S and dS/du of some positions at one base, as exact as float32 cosines make them."""

    positions: Floats
    values: Floats | Singles
    slopes: Floats

    def __len__(self) -> int:
        return len(self.positions)


def excluded_upto(similarity: Similarity, tangents: Tangents, u: float, centre: float) -> float:
    """The largest u' such that every base from u to u' is excluded; u itself where there is none.

    At ``centre`` >= u each position gives the stretches in which its S stays negative by Taylor's
    theorem; those that follow on one another from u on are joined.
    """
    low, high = _negative_stretches(similarity, tangents, u, centre)
    order = np.argsort(low)
    for start, end in zip(low[order].tolist(), high[order].tolist(), strict=True):
        if start > u:
            break
        u = max(u, end)
    return u


def _negative_stretches(
    similarity: Similarity, tangents: Tangents, u: float, centre: float
) -> tuple[Floats, Floats]:
    """[low, high] in ln b, above u and around ``centre``, in which a position's S is negative.

    On either side, at distance x from the centre, S is at most c + b x + a x^2: negative between
    the roots of that parabola.
    """
    positions = tangents.positions
    c1, c2 = similarity.curvature_bounds(np.array(u))
    a = (positions * c1 + positions**2 * c2) / 2 + 1e-9  # a larger bound, and never 0
    uncertain = similarity.single_error * positions * similarity.slope_bound(u)
    c = tangents.values.astype(np.float64) + similarity.single_error
    sides = np.array([[-1.0], [1.0]])
    b = sides * tangents.slopes + uncertain
    root = np.sqrt(np.maximum(b**2 - 4 * a * c, 0))
    near = np.maximum((-b - root) / (2 * a), 0) * (1 + 1e-9)
    far = (-b + root) / (2 * a) * (1 - 1e-9)
    left, right = (root > 0) & (far > near)
    low = np.concatenate((-far[0, left], near[1, right]))
    high = np.concatenate((-near[0, left], far[1, right]))
    inward = np.spacing(centre)  # stretches that meet at the centre itself still do
    return centre + low + inward * (low != 0), centre + high - inward * (high != 0)


def value_and_slope(
    similarity: Similarity, positions: Floats, inv_freq: Floats, exact: bool
) -> tuple[NDArray, NDArray]:
    """S and dS/du = m sum_i a_i b^(-a_i) sin(m b^(-a_i)), each at its frequencies or all at one.

    In float64 if ``exact``, else within ``similarity.single_error``.
    """
    angle: NDArray = positions[:, None] * inv_freq
    if not exact:
        angle = wrapped(angle)
    value = np.cos(angle).sum(axis=-1) + similarity.unrotated
    weight = (similarity.a * inv_freq).astype(angle.dtype)
    return value, np.einsum("pi,pi->p", np.sin(angle), weight) * positions


def half_width(low: Floats | float, high: Floats | float) -> Floats:
    """Half of high - low, rounded up."""
    return (high - low) * (0.5 * (1 + 1e-9)) + np.spacing(high)
