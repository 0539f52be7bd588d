"""The published tables of lower bounds against the exact ones, and the fits through them."""

import math

import numpy as np
import pandas as pd

from ropelab.experiments.base.plan import Plan
from ropelab.experiments.base.search import Bound
from ropelab.rope.bounds import first_negative

K = 1024
CONTEXTS = tuple(K * 2**i for i in range(11))
MEN = (4.3e3, 1.6e4, 2.7e4, 8.4e4, 3.1e5, 6.4e5, 2.1e6, 7.8e6, 3.6e7, 6.4e7, 5.1e8)
"""arXiv:2405.14591, table 2, head_dim 128."""
SU = (4.3e3, 1.2e4, 2.7e4, 8.4e4, 2.3e5, 6.3e5, 2.1e6, 4.9e6, 2.4e7, 5.8e7, 6.5e7)
"""kexue.fm/archives/10122, by brute force on a GPU, head_dim 128."""


def published(config: Plan, found: list[Bound]) -> pd.DataFrame:
    """A row per published context that was computed, for the head the publications speak of.

    ``times_exact``: the paper's value over the exact one. ``verdict``: "agrees" where the exact
    value rounds to the printed one, else "loose". Empty for other heads.
    """
    exact = {bound.context: bound.first for bound in found}
    rows = [
        _row(config, context, men, su, exact[context])
        for context, men, su in zip(CONTEXTS, MEN, SU, strict=True)
        if context in exact and _is_theirs(config)
    ]
    columns = ["context_tokens", "exact_base", "paper_base", "times_exact", "verdict"]
    return pd.DataFrame(rows, columns=[*columns, "paper_fails_at_tokens", "su_base", "su_verdict"])


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
    printed = {"values": "printed fit", "coefficient": 0.0424, "exponent": 1.628}
    known = [row for row in rows if row is not None]
    if len(paper) >= 3:
        known.append({**printed, "standard_error": math.nan, "contexts": len(MEN)})
    columns = ["values", "coefficient", "exponent", "standard_error", "contexts"]
    return pd.DataFrame(known, columns=columns)


def _row(config: Plan, context: int, paper: float, su: float, exact: float) -> dict[str, object]:
    fails = first_negative(config.similarity, paper, context)
    return {
        "context_tokens": context,
        "exact_base": exact,
        "paper_base": paper,
        "times_exact": paper / exact,
        "verdict": _agreement(paper, exact),
        "paper_fails_at_tokens": math.nan if fails is None else float(fails),
        "su_base": su,
        "su_verdict": _agreement(su, exact),
    }


def _agreement(printed: float, exact: float) -> str:
    return "agrees" if float(f"{exact:.1e}") == printed else "loose"


def _is_theirs(config: Plan) -> bool:
    return len(config.similarity.exponents) == 64 and config.head_dim == 128


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
