"""Published least bases and the exact ones: Men et al. 2024 (arXiv:2405.14591), Su
2024.
"""

import math

import pandas as pd

from ropelab.math.bounds.similarity import Similarity
from ropelab.math.bounds.survey import first_negative

HEAD_DIM = 128
# 1k to 1M tokens, for which both publications print a value.
CONTEXTS = tuple(1024 * 2**i for i in range(11))
# arXiv:2405.14591, table 2.
MEN = (4.3e3, 1.6e4, 2.7e4, 8.4e4, 3.1e5, 6.4e5, 2.1e6, 7.8e6, 3.6e7, 6.4e7, 5.1e8)
# kexue.fm/archives/10122, by brute force on a GPU.
SU = (4.3e3, 1.2e4, 2.7e4, 8.4e4, 2.3e5, 6.3e5, 2.1e6, 4.9e6, 2.4e7, 5.8e7, 6.5e7)
# Significant digits to which both are printed.
DIGITS = 2
# The power law of arXiv:2405.14591, figure 1: base = factor * context^exponent.
FIT_FACTOR = 0.0424
FIT_EXPONENT = 1.628


def men_fit(context: int) -> float:
    """Return the base of the paper's own fit."""
    return FIT_FACTOR * context**FIT_EXPONENT


def judge(bound: pd.DataFrame) -> pd.DataFrame:
    """Compare the published bases with the exact ones, a row per context that both
    have.
    """
    exact = exact_bases(bound)
    similarity = Similarity.of_head(HEAD_DIM)
    rows = []

    for context, men, su in zip(CONTEXTS, MEN, SU, strict=True):
        if context not in exact:
            continue

        # A base above the exact one can still fail, in a gap between windows.
        fails = first_negative(similarity, men, context)
        failing = math.nan if fails is None else float(fails)
        ratio = men / exact[context]
        verdict = _compare(exact[context], men)
        su_verdict = _compare(exact[context], su)
        rows.append(
            (context, exact[context], men, ratio, verdict, failing, su, su_verdict)
        )

    columns = ["context_tokens", "exact_base", "paper_base", "times_exact", "verdict"]
    columns += ["paper_fails_at_tokens", "su_base", "su_verdict"]
    return pd.DataFrame(rows, columns=columns)


def exact_bases(bound: pd.DataFrame) -> dict[int, float]:
    """Map contexts, ascending, to the exact base of fully rotated heads of HEAD_DIM
    features.
    """
    whole = (bound["head_dim"] == HEAD_DIM) & (2 * bound["rotating_pairs"] == HEAD_DIM)
    table = bound[whole].drop_duplicates("context_tokens").sort_values("context_tokens")
    pairs = zip(table["context_tokens"], table["smallest_admissible_base"], strict=True)
    return {int(context): float(base) for context, base in pairs}


def _compare(exact: float, printed: float) -> str:
    # By way of text, which gives the same float64 as the literals above.
    return "agrees" if float(f"{exact:.{DIGITS - 1}e}") == printed else "loose"
