"""The sinusoidal code and its frequencies, and the series behind the figures that show it."""

import math
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike

from ropelab.claims.numbers import Array, frequencies

Spacing = Literal["exponential", "harmonic"]
BASE = 10000.0
SPACINGS: dict[Spacing, tuple[int, int]] = {"harmonic": (64, 512), "exponential": (512, 512)}
"""Width and length at which the figures show each spacing."""


def spaced(spacing: Spacing, width: int, length: int) -> Float[Array, " pairs"]:
    """Radians per token: base^(-2i/d), or whole multiples of 2 pi / length."""
    if spacing == "exponential":
        return frequencies(width, BASE)
    return np.arange(1, width // 2 + 1) * (2 * math.pi / length)


def code(positions: ArrayLike, omega: Float[Array, " pairs"]) -> Float[Array, "n width"]:
    """(sin, cos, sin, cos, ...) at the given positions, which need not be whole."""
    angles = np.asarray(positions, dtype=float)[:, None] * omega
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(len(angles), -1)


def code_series(width: int = 32, length: int = 64) -> pd.DataFrame:
    """The code itself: position_tokens, feature, value."""
    values = code(np.arange(length), frequencies(width, BASE))
    table = pd.DataFrame(values).rename_axis("position_tokens").reset_index()
    return table.melt("position_tokens", var_name="feature", value_name="value")


def sum_series(length: float = 64.0, points: int = 257) -> pd.DataFrame:
    """The sum of all features, F(t), from 0 on and from one period of the slowest wave on.

    Returns:
        spacing, period_tokens, start, position_tokens (after the start), value (of F, divided by
        the number of pairs).
    """
    after = np.linspace(0, length, points)
    tables = []
    for spacing, (width, multiple) in SPACINGS.items():
        omega = spaced(spacing, width, multiple)
        period = 2 * math.pi / float(omega.min())
        for name, start in (("0", 0.0), ("period", period)):
            value = code(after + start, omega).sum(-1) / len(omega)
            about = {"spacing": spacing, "period_tokens": period, "start": name}
            tables.append(pd.DataFrame({**about, "position_tokens": after, "value": value}))
    return pd.concat(tables, ignore_index=True)


def distance_series(farthest: int = 1280) -> pd.DataFrame:
    """The product of the codes of two positions: spacing, distance_tokens, value (1 at 0)."""
    distance = np.arange(1, farthest + 1)
    values = {
        spacing: np.cos(distance[:, None] * spaced(spacing, *sizes)).mean(-1)
        for spacing, sizes in SPACINGS.items()
    }
    tables = (
        pd.DataFrame({"spacing": spacing, "distance_tokens": distance, "value": value})
        for spacing, value in values.items()
    )
    return pd.concat(tables, ignore_index=True)


def shift_series(angle: float = 0.5, shift: float = 0.9) -> pd.DataFrame:
    """One pair as an arrow (sin, cos): at x, at x + delta, and x turned as is usual.

    Args:
        angle, shift: omega x and omega delta, in radians.
    Returns:
        vector, x (the sine), y (the cosine).
    """
    here, later = (np.array([math.sin(a), math.cos(a)]) for a in (angle, angle + shift))
    c, s = math.cos(shift), math.sin(shift)
    turned = np.array([[c, -s], [s, c]]) @ here
    rows = [("code of x", *here), ("code of x + δ", *later), ("R(ωδ) times code of x", *turned)]
    return pd.DataFrame(rows, columns=["vector", "x", "y"])
