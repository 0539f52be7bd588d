"""The least bases that Men et al. 2024 (arXiv:2405.14591) and Su 2024 (kexue.fm)
published, compared with the exact least bases.
"""

import math

import pandas as pd

from ropelab.math.bounds.similarity import Similarity
from ropelab.math.bounds.survey import find_first_negative

# The features of the heads that both publications are about.
HEAD_DIM = 128
# The contexts, from 1k to 1M tokens, for which both publications print a base.
CONTEXTS = tuple(1024 * 2**i for i in range(11))
# The bases of arXiv:2405.14591, table 2.
MEN = (4.3e3, 1.6e4, 2.7e4, 8.4e4, 3.1e5, 6.4e5, 2.1e6, 7.8e6, 3.6e7, 6.4e7, 5.1e8)
# The bases of kexue.fm/archives/10122, which were found by brute force on a GPU.
SU = (4.3e3, 1.2e4, 2.7e4, 8.4e4, 2.3e5, 6.3e5, 2.1e6, 4.9e6, 2.4e7, 5.8e7, 6.5e7)
# The number of significant digits in which these bases were published.
SIGNIFICANT_DIGITS = 2
# The power law of arXiv:2405.14591, figure 1: base = factor * context^exponent.
POWER_LAW_FACTOR = 0.0424
POWER_LAW_EXPONENT = 1.628
# The columns of the table that `judge` makes.
COLUMNS = [
    "context_tokens",
    "exact_base",
    "paper_base",
    "times_exact",
    "verdict",
    "paper_fails_at_tokens",
    "su_base",
    "su_verdict",
]


def men_fit(context: int) -> float:
    """Return the base for a context by the power law that Men et al. fitted."""
    return POWER_LAW_FACTOR * context**POWER_LAW_EXPONENT


def judge(bound: pd.DataFrame) -> pd.DataFrame:
    """Compare the published bases with the exact bases, at each context that has both.

    `bound` is the table of the base experiment: the smallest admissible base for each
    context and head.
    """
    bases = list_exact_bases(bound)
    similarity = Similarity.of_head(HEAD_DIM)
    rows = []

    for context, men, su in zip(CONTEXTS, MEN, SU, strict=True):
        if context not in bases:
            continue

        exact = bases[context]
        # A base above the smallest admissible base can still fail, in a gap between the
        # intervals of admissible bases.
        fails_at = find_first_negative(similarity, men, context)
        row = {
            "context_tokens": context,
            "exact_base": exact,
            "paper_base": men,
            "times_exact": men / exact,
            "verdict": _compare(exact, men),
            "paper_fails_at_tokens": math.nan if fails_at is None else float(fails_at),
            "su_base": su,
            "su_verdict": _compare(exact, su),
        }
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def list_exact_bases(bound: pd.DataFrame) -> dict[int, float]:
    """Return the exact base of each context, in order of the contexts.

    The bases are for heads with HEAD_DIM features, all of which rotate.
    """
    has_head_dim = bound["head_dim"] == HEAD_DIM
    rotates_all = 2 * bound["rotating_pairs"] == HEAD_DIM
    table = bound[has_head_dim & rotates_all]
    table = table.drop_duplicates("context_tokens").sort_values("context_tokens")

    contexts = table["context_tokens"].astype(int)
    bases = table["smallest_admissible_base"].astype(float)
    return dict(zip(contexts.tolist(), bases.tolist(), strict=True))


def _compare(exact: float, printed: float) -> str:
    """Return "agrees" if the exact base rounds to the printed base, else "loose"."""
    # The rounded text and the literals above become the same float64, so that they can
    # be compared for equality.
    rounded = float(f"{exact:.{SIGNIFICANT_DIGITS - 1}e}")
    if rounded == printed:
        return "agrees"
    return "loose"
