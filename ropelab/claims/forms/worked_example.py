"""Checks of claims about the worked example of a note: a vector, rotated at five
positions, in a printed table.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

import math
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from ropelab.claims import arrays
from ropelab.claims.forms.rotation import BASE
from ropelab.claims.record import Findings, claim
from ropelab.runs.files import read_table_beside

# The vectors of the example, and the rotated vectors that are printed: [positions,
# features]. They are in forms.toml, beside the folder of this module.
_EXAMPLE = read_table_beside(str(Path(__file__).parent))["example"]
VECTORS = np.array(_EXAMPLE["vectors"])
PRINTED = np.array(_EXAMPLE["printed"])


def rotate_example(sign: int = 1) -> Float[arrays.Array, "positions features"]:
    """Rotate the vector of every position m by m base^(-2i/d) in every pair i, in full
    precision. `sign` is the sign of the angles.
    """
    tokens, width = VECTORS.shape
    inv_freq = BASE ** (-np.arange(0, width, 2) / width)
    angles = np.outer(np.arange(tokens), inv_freq)
    return arrays.rotate(VECTORS, sign * angles, "interleaved")


@claim("worked-example")
def check_printed_table(findings: Findings, digits: int = 4) -> None:
    """Compare the printed table, cell by cell, with the rotated vectors."""
    true = rotate_example()
    errors = np.abs(PRINTED - true)
    unit_of_last_digit = 10.0**-digits
    is_rounded_right = errors <= unit_of_last_digit / 2

    # The table for the figure has a row per cell.
    rows = []
    wrong_texts = []
    for position, feature in np.ndindex(true.shape):
        cell = (position, feature)
        is_right = bool(is_rounded_right[cell])
        rows.append((*cell, VECTORS[cell], PRINTED[cell], true[cell], is_right))
        if not is_right:
            wrong_texts.append(
                f"position {position} feature {feature + 1} printed"
                f" {PRINTED[cell]:.{digits}f}, is {true[cell]:.{digits + 4}f}"
            )
    columns = ["position", "feature", "vector", "printed", "rotated", "rounded_right"]
    findings.series["worked_example"] = pd.DataFrame(rows, columns=columns)

    cells = errors.size
    cells_within_unit = int((errors <= unit_of_last_digit).sum())
    what = "cells right to one unit of the last digit"
    findings.add_part(
        what, f"{cells_within_unit} of {cells}", cells_within_unit == cells
    )
    cells_rounded_right = cells - len(wrong_texts)
    measured = f"{cells_rounded_right} of {cells}"
    if wrong_texts:
        measured += f" ({', '.join(wrong_texts)})"
    findings.add_limit(
        "cells that are rounded right",
        measured,
        not wrong_texts,
        float(cells_rounded_right),
    )


@claim("worked-example-matrix")
def check_printed_matrix(
    findings: Findings,
    product: Literal["matrix times column", "row times matrix"] = "matrix times column",
    unit: float = 1e-4,
) -> None:
    """Compare the printed table with the printed matrix multiplied from either side."""
    # The matrix is printed for rows: multiplied from the left, it rotates in the
    # opposite direction.
    errors = {
        "matrix times column": arrays.max_abs(rotate_example(sign=-1) - PRINTED),
        "row times matrix": arrays.max_abs(rotate_example(sign=1) - PRINTED),
    }
    error = errors.pop(product)
    what = f"printed table less the product, {product}"
    findings.add_at_most(what, error, unit, "{:.2g}")
    ((other_product, other_error),) = errors.items()
    what = f"printed table less the product, {other_product}"
    findings.add_at_most(what, other_error, unit, "{:.2g}", role="limit")


@claim("base-frequency-formula")
def check_angle_formula(
    findings: Findings, f: float = 1 / 10000, angle: float = 1 / 100
) -> None:
    """Compute the angle of pair 1 at position 1 by a printed formula."""
    # With the printed f = 1/10000 the signs of both exponents cancel, and the angle
    # grows with the pair instead of falling.
    _, width = VECTORS.shape
    value = f ** (-2 / width)
    is_right = math.isclose(value, angle, rel_tol=1e-9)
    findings.add_part(
        "the formula at position 1, pair 1", f"{value:g}", is_right, value
    )
