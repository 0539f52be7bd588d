"""Claims of a note's worked example with d = 4, cell by cell, and of the formulas around it."""

import math
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from ropelab.claims.numbers import Array
from ropelab.claims.record import Claim, Evidence, Passage, limit, part

VECTORS = np.array([(1, 0, 1, 0), (0, 1, 0, 1), (1, 1, 1, 1), (1, -1, 1, -1), (0.5, 0.5, 0.5, 0.5)])
PRINTED = np.array(
    [
        (1, 0, 1, 0),
        (-0.8415, 0.5403, -0.0100, 0.9999),
        (-1.3254, 0.4932, 0.9798, 1.0198),
        (-0.8489, 1.1311, 1.0296, -0.9696),
        (0.0516, -0.7052, 0.4796, 0.5196),
    ]
)
BASE = 10000.0


def rotated(sign: int = 1) -> Float[Array, "5 4"]:
    """Every vector turned by m base^(-2i/d) in every pair, in full precision."""
    pairs = VECTORS.reshape(len(VECTORS), -1, 2)
    width = VECTORS.shape[1]
    angles = np.outer(np.arange(len(VECTORS)), BASE ** (-np.arange(0, width, 2) / width))
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(sign * 1j * angles)
    return np.stack([turned.real, turned.imag], -1).reshape(VECTORS.shape)


def table_digits(*, digits: int = 4) -> Evidence:
    """Round every true cell to the printed digits and compare."""
    true = rotated()
    unit = 10.0**-digits
    off = np.abs(PRINTED - true)
    wrong = [(int(m), int(i)) for m, i in np.argwhere(off > unit / 2)]
    listed = ", ".join(
        f"position {m} feature {i + 1} printed {PRINTED[m, i]:.{digits}f}, "
        f"is {true[m, i]:.{digits + 4}f}"
        for m, i in wrong
    )
    return Evidence(
        expected=f"every cell within half a unit of its digit {digits}",
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
        series={"worked_example": _cells(true, off <= unit / 2)},
    )


def _cells(true: Float[Array, "5 4"], right: Bool[NDArray[np.bool_], "5 4"]) -> pd.DataFrame:
    rows = [
        (m, i, VECTORS[m, i], PRINTED[m, i], true[m, i], bool(right[m, i]))
        for m, i in np.ndindex(true.shape)
    ]
    names = ["position", "feature", "vector", "printed", "rotated", "rounded_right"]
    return pd.DataFrame(rows, columns=names)


Product = Literal["matrix times column", "row times matrix"]


def printed_matrix(*, product: Product = "matrix times column", unit: float = 1e-4) -> Evidence:
    """Apply [[cos, sin], [-sin, cos]] from either side and compare with the printed table."""
    column, row = (float(np.abs(rotated(sign) - PRINTED).max()) for sign in (-1, 1))
    as_column = product == "matrix times column"
    stated, other = (column, row) if as_column else (row, column)
    return Evidence(
        expected=f"the printed table, to {unit:g}",
        findings=(
            part(f"off as {product}", f"{stated:.2g}", stated <= unit, stated),
            limit("off from the other side", f"{other:.2g}", other <= unit, other),
        ),
    )


def angle_formula(*, f: float = 1 / 10000, pair: int = 1, angle: float = 1 / 100) -> Evidence:
    """Put the example's numbers into n f^(-2i/d)."""
    found = f ** (-2 * pair / VECTORS.shape[1])
    return Evidence(
        expected=f"{angle:g}, the angle of the worked example",
        findings=(
            part(
                f"the formula at position 1, pair {pair}",
                f"{found:g}",
                math.isclose(found, angle, rel_tol=1e-9),
                found,
            ),
        ),
    )


def index_in_formula(*, index: Literal["k", "i"] = "k", width: int = 4) -> Evidence:
    """Write the code p_i of positions 0 to 4 with the index as printed, k held at 1."""
    positions = np.arange(5) if index == "i" else np.ones(5)
    angles = np.outer(positions, BASE ** (-np.arange(0, width, 2) / width))
    different = len(np.unique(np.sin(angles).round(12), axis=0))
    return Evidence(
        expected="a code for every position i",
        findings=(
            part(
                f"codes p_i of 5 positions with sin({index} / 10000^(2t/d))",
                f"{different} different",
                different == 5,
                different,
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="sinusoid-index",
        passages=(Passage("002", "eq. 4", 23, r"p_{i,2t} &= \sin(k / 10000^{2t/d})"),),
        statement="The sinusoidal code of position i is sin(k / 10000^(2t/d)), with k.",
        check=index_in_formula,
    ),
    Claim(
        id="worked-example",
        passages=(Passage("002", "§3, table", 121, "[-0.8415, 0.5403][-0.0100, 0.9999]"),),
        statement="The printed table of five rotated vectors, d = 4 and base 10000, is right to "
        "its four digits.",
        check=table_digits,
    ),
    Claim(
        id="worked-example-matrix",
        passages=(
            Passage(
                "002",
                "§3, rotation matrix",
                84,
                r"cos(\theta) & sin(\theta) \\ -sin(\theta) & cos(\theta)",
            ),
        ),
        statement="The table follows from the printed matrix [[cos, sin], [-sin, cos]] applied to "
        "each pair as a column.",
        check=printed_matrix,
    ),
    Claim(
        id="base-frequency-formula",
        passages=(
            Passage(
                "002",
                "§3, angle formula",
                65,
                "在位置n的第i个位置对应的旋转角度为$n*(1/10000)^{-2i/d}$",
                "the angle of the i-th place at position n is n (1/10000)^(-2i/d)",
            ),
        ),
        statement="With a base frequency of 1/10000, position n turns pair i by "
        "n (1/10000)^(-2i/d).",
        check=angle_formula,
    ),
)
