"""Power laws through the lower bounds, the exact ones and the published ones."""

import math

import numpy as np
import pandas as pd

from ropelab.experiments.base.search import Bound
from ropelab.math.bounds.published import FIT_EXPONENT, FIT_FACTOR, MEN


def fits(found: list[Bound], table: pd.DataFrame) -> pd.DataFrame:
    """base = coefficient * context^exponent by least squares in logarithms, for each set of values.

    ``standard_error`` is that of the exponent. Needs three contexts. Beside the fit to all exact
    values stands, where there are more of them, the one to the contexts that the paper has.
    """
    exact = [(bound.context, bound.first) for bound in found if bound.first > 1]
    paper = list(zip(table["context_tokens"], table["paper_base"], strict=True))
    rows = [_fit("exact values", exact), _fit("paper values", paper)]
    if len(table) < len(exact):
        shared = list(zip(table["context_tokens"], table["exact_base"], strict=True))
        rows.insert(1, _fit("exact values of its contexts", shared))
    printed = {"values": "printed fit", "coefficient": FIT_FACTOR, "exponent": FIT_EXPONENT}
    known = [row for row in rows if row is not None]
    if len(paper) >= 3:
        known.append({**printed, "standard_error": math.nan, "contexts": len(MEN)})
    columns = ["values", "coefficient", "exponent", "standard_error", "contexts"]
    return pd.DataFrame(known, columns=columns)


def _fit(values: str, points: list[tuple[int, float]]) -> dict[str, object] | None:
    if len(points) < 3:
        return None
    x, y = np.log(np.array(points, dtype=np.float64)).T
    (slope, intercept), *_ = np.linalg.lstsq(np.stack((x, np.ones_like(x)), 1), y, rcond=None)
    residual = y - slope * x - intercept
    spread = math.sqrt(float(residual @ residual) / (len(x) - 2)) if len(x) > 2 else math.nan
    error = spread / math.sqrt(float(((x - x.mean()) ** 2).sum()))
    return {
        "values": values,
        "coefficient": float(np.exp(intercept)),
        "exponent": float(slope),
        "standard_error": error,
        "contexts": len(points),
    }
