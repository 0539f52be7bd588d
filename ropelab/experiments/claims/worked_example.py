"""Claims of note 002: its worked example with d = 4, cell by cell, and the formulas around it."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ropelab.experiments.claims.record import Claim, Evidence, limit, part

VECTORS = ((1, 0, 1, 0), (0, 1, 0, 1), (1, 1, 1, 1), (1, -1, 1, -1), (0.5, 0.5, 0.5, 0.5))
PRINTED = (
    (1, 0, 1, 0),
    (-0.8415, 0.5403, -0.0100, 0.9999),
    (-1.3254, 0.4932, 0.9798, 1.0198),
    (-0.8489, 1.1311, 1.0296, -0.9696),
    (0.0516, -0.7052, 0.4796, 0.5196),
)
Numbers = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Example:
    """Five vectors of width 4, the table of their rotations as printed, and its digits."""

    vectors: Numbers = VECTORS
    printed: Numbers = PRINTED
    base: float = 10000.0
    digits: int = 4
    product: Literal["matrix times column", "row times matrix"] = "matrix times column"

    def angles(self) -> NDArray[np.float64]:
        """Angle of every position and pair, as the example works them out: m base^(-2i/d)."""
        width = len(self.vectors[0])
        exponents = -np.arange(0, width, 2) / width
        return np.outer(np.arange(len(self.vectors)), self.base**exponents)

    def rotated(self, sign: int = 1) -> NDArray[np.float64]:
        """Every vector turned at its position, in full precision."""
        pairs = np.array(self.vectors, dtype=float).reshape(len(self.vectors), -1, 2)
        turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(sign * 1j * self.angles())
        return np.stack([turned.real, turned.imag], -1).reshape(len(self.vectors), -1)


def table_digits(given: Example) -> Evidence:
    """Round every true cell to the printed digits and compare."""
    true, printed = given.rotated(), np.array(given.printed)
    unit = 10.0**-given.digits
    off = np.abs(printed - true)
    wrong = [(int(m), int(i)) for m, i in np.argwhere(off > unit / 2)]
    listed = ", ".join(
        f"position {m} feature {i + 1} printed {printed[m, i]:.{given.digits}f}, "
        f"is {true[m, i]:.{given.digits + 4}f}"
        for m, i in wrong
    )
    return Evidence(
        expected=f"every cell within half a unit of its digit {given.digits}",
        findings=(
            part(
                "cells that are rounded right",
                f"{off.size - len(wrong)} of {off.size}" + (f" ({listed})" if listed else ""),
                not wrong,
                float(off.size - len(wrong)),
            ),
            limit(
                "cells right to one unit of the last digit",
                f"{int((off <= unit).sum())} of {off.size}",
                bool((off <= unit).all()),
            ),
        ),
        series={"worked_example": _cells(given, true, off <= unit / 2)},
    )


def _cells(given: Example, true: NDArray[np.float64], right: NDArray[np.bool_]) -> pd.DataFrame:
    rows = [
        (m, i, given.vectors[m][i], given.printed[m][i], true[m, i], bool(right[m, i]))
        for m, i in np.ndindex(true.shape)
    ]
    names = ["position", "feature", "vector", "printed", "rotated", "rounded_right"]
    return pd.DataFrame(rows, columns=names)


def printed_matrix(given: Example) -> Evidence:
    """Apply [[cos, sin], [-sin, cos]] from either side and compare with the printed table."""
    printed, unit = np.array(given.printed), 10.0**-given.digits
    column = float(np.abs(given.rotated(sign=-1) - printed).max())
    row = float(np.abs(given.rotated(sign=1) - printed).max())
    stated = column if given.product == "matrix times column" else row
    other = row if given.product == "matrix times column" else column
    return Evidence(
        expected=f"the printed table, to {unit:g}",
        findings=(
            part(f"off as {given.product}", f"{stated:.2g}", stated <= unit, stated),
            limit("off from the other side", f"{other:.2g}", other <= unit, other),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class AngleFormula:
    """An angle formula n f^(-2i/d), the frequency it uses, and the angle of the example."""

    f: float = 1 / 10000
    width: int = 4
    pair: int = 1
    position: int = 1
    angle: float = 1 / 100


def angle_formula(given: AngleFormula) -> Evidence:
    """Put the example's numbers into the formula."""
    angle = given.position * given.f ** (-2 * given.pair / given.width)
    return Evidence(
        expected=f"{given.angle:g}, the angle of the worked example",
        findings=(
            part(
                f"the formula at position {given.position}, pair {given.pair}",
                f"{angle:g}",
                math.isclose(angle, given.angle, rel_tol=1e-9),
                angle,
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="worked-example",
        source="note 002 §3 (table)",
        statement="The printed table of five rotated vectors, d = 4 and base 10000, is right to "
        "its four digits.",
        inputs=Example(),
        check=table_digits,
    ),
    Claim(
        id="worked-example-matrix",
        source="note 002 §3 (rotation matrix)",
        statement="The table follows from the printed matrix [[cos, sin], [-sin, cos]] applied to "
        "each pair as a column.",
        inputs=Example(),
        check=printed_matrix,
    ),
    Claim(
        id="base-frequency-formula",
        source="note 002 §3 (angle formula)",
        statement="With a base frequency of 1/10000, position n turns pair i by "
        "n (1/10000)^(-2i/d).",
        inputs=AngleFormula(),
        check=angle_formula,
    ),
)
