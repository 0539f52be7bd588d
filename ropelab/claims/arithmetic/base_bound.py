"""Printed least bases for a context length, against exact bounds (arXiv:2405.14591)."""

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import partial

import numpy as np
import pandas as pd

from ropelab.claims.numbers import count_of
from ropelab.claims.record import Claim, Evidence, Passage, limit, missing, part
from ropelab.math.bounds import Similarity, first_negative
from ropelab.runs.cell import Stored
from ropelab.runs.thresholds import FIT

CONTEXTS = tuple(1024 * 2**i for i in range(11))
MEN = (4.3e3, 1.6e4, 2.7e4, 8.4e4, 3.1e5, 6.4e5, 2.1e6, 7.8e6, 3.6e7, 6.4e7, 5.1e8)
"""arXiv:2405.14591, table 2, head_dim 128."""
SU = (4.3e3, 1.2e4, 2.7e4, 8.4e4, 2.3e5, 6.3e5, 2.1e6, 4.9e6, 2.4e7, 5.8e7, 6.5e7)
"""kexue.fm/archives/10122, by brute force on a GPU, head_dim 128."""
FIT_FACTOR, FIT_EXPONENT = 0.0424, 1.628
"""The power law of arXiv:2405.14591, base = factor * context^exponent."""
HEAD, DIGITS = 128, 2

UP_TO_32K = slice(0, 6)
PRINTED = tuple(zip(CONTEXTS, MEN, strict=True))[UP_TO_32K]
PRINTED_BY_SU = tuple(zip(CONTEXTS, SU, strict=True))[UP_TO_32K]
Table = tuple[tuple[int, float], ...]


class Printed(StrEnum):
    """A printed bound beside the exact one."""

    AGREES = "agrees"
    LOOSE = "loose"


def judge(bound: pd.DataFrame) -> pd.DataFrame:
    """The published bases beside the exact ones, a row per context of both.

    Args:
        bound: head_dim, turning_pairs, context_tokens, first_admissible_base.
    Returns:
        context_tokens, exact_base, paper_base, times_exact (the paper's over the exact one),
        verdict and su_verdict (`agrees` where the exact value rounds to the printed one, else
        `loose`), paper_fails_at_tokens, su_base. Empty for other heads than the publications'.
    """
    exact = _of_head(bound, HEAD)
    similarity = Similarity.of_head(HEAD)
    rows = []
    for context, paper, su in zip(CONTEXTS, MEN, SU, strict=True):
        if context in exact:
            fails = first_negative(similarity, paper, context)
            failing = math.nan if fails is None else float(fails)
            ratio, verdict = paper / exact[context], _rounds_to(exact[context], paper)
            su_verdict = _rounds_to(exact[context], su)
            rows.append((context, exact[context], paper, ratio, verdict, failing, su, su_verdict))
    columns = ["context_tokens", "exact_base", "paper_base", "times_exact", "verdict"]
    return pd.DataFrame(rows, columns=[*columns, "paper_fails_at_tokens", "su_base", "su_verdict"])


def _rounds_to(exact: float, printed: float) -> str:
    return str(Printed.AGREES if float(f"{exact:.{DIGITS - 1}e}") == printed else Printed.LOOSE)


def _of_head(bound: pd.DataFrame, head_dim: int) -> dict[int, float]:
    """First admissible base by context of heads that turn as a whole, ascending."""
    whole = (bound["head_dim"] == head_dim) & (2 * bound["turning_pairs"] == head_dim)
    table = bound[whole].drop_duplicates("context_tokens").sort_values("context_tokens")
    pairs = zip(table["context_tokens"], table["first_admissible_base"], strict=True)
    return {int(context): float(base) for context, base in pairs}


def bounds(runs: Sequence[Stored], head_dim: int) -> dict[int, float]:
    """First admissible base by context, from all stored runs, ascending."""
    return _of_head(pd.concat([run.tables["bound"] for run in runs]), head_dim) if runs else {}


def bases_are_least(
    *, printed: Table = PRINTED, runs: tuple[Stored, ...] = (), step: float = 4e-3
) -> Evidence:
    """Look for bases below the printed ones that keep every cosine sum from turning negative.

    A stored exact bound decides. Without one a grid is tried, which can only refute: admissible
    windows narrower than its step may lie between its points.
    """
    exact = bounds(runs, HEAD)
    loose = {}
    for context, base in printed:
        found = exact.get(context) or next(_smaller(context, base, step), math.inf)
        if found < _least(base):
            loose[context] = f"{context}: {found:,.0f} works below {base:g}"
    known = sum(context in exact for context, _ in printed)
    shown = f" ({', '.join(loose.values())})" if loose else ""
    return Evidence(
        expected="none",
        findings=(
            part(
                f"printed bases, d = {HEAD}, below which another works "
                f"({known} contexts exactly, the others on a grid of {step:.1%})",
                count_of(len(loose), len(printed)) + shown,
                False if loose else known == len(printed) or None,
                len(loose),
            ),
        ),
    )


def _least(base: float) -> float:
    """The least number that is rounded to a printed base."""
    last_digit = 10.0 ** (math.floor(math.log10(base)) + 1 - DIGITS)
    return base - last_digit / 2


def _smaller(context: int, base: float, step: float, lowest: float = 0.5) -> Iterator[float]:
    """Bases on the grid, too low to be rounded to a printed one, that work for the context."""
    similarity = Similarity.of_head(HEAD)
    for u in np.arange(math.log(lowest * base), math.log(_least(base)), step):
        candidate = math.exp(u)
        if first_negative(similarity, candidate, context) is None:
            yield candidate


def fit_is_right(*, runs: tuple[Stored, ...] = (), least_contexts: int = 5) -> Evidence:
    """Compare the printed power law with the exact bounds, and with a fit to them."""
    expected = f"the printed law within {FIT:.0%} of every exact bound"
    found = bounds(runs, HEAD)
    if len(found) < least_contexts:
        text = f"{len(found)} stored contexts, needs {least_contexts}"
        return Evidence(expected=expected, findings=(missing("exact bounds", text),))
    contexts, exact = np.array(list(found), dtype=float), np.array(list(found.values()))
    slope, _ = np.polyfit(np.log(contexts), np.log(exact), 1)
    ratio = FIT_FACTOR * contexts**FIT_EXPONENT / exact
    worst = float(np.abs(ratio - 1).max())
    return Evidence(
        expected=expected,
        findings=(
            part(
                f"printed law over exact bound, {contexts[0]:.0f} to {contexts[-1]:.0f} tokens",
                f"{ratio.min():.2f} to {ratio.max():.2f}",
                worst <= FIT,
                worst,
            ),
            limit(
                "exponent that fits the exact bounds",
                f"{slope:.3f}, printed {FIT_EXPONENT}",
                abs(slope - FIT_EXPONENT) <= 0.005,
                float(slope),
            ),
        ),
    )


def balances(
    *, base: float = 1e4, short: int = 512, long: int = 4096, head_dim: int = HEAD
) -> Evidence:
    """Where the sum of cosines turns negative: beyond the texts of 2017 to 2021, and of today?"""
    similarity = Similarity.of_head(head_dim)
    fails = first_negative(similarity, base, 64 * long)
    shown = "none" if fails is None else f"{fails:,} tokens"
    return Evidence(
        expected="random and similar keys told apart (in the mean) at every distance of a text",
        findings=tuple(
            make(
                f"base {base:g}, d = {head_dim}: first distance at which the sum of cosines is "
                f"negative, for texts of {length:,} ({whose})",
                shown,
                fails is None or fails >= length,
                fails,
            )
            for make, length, whose in (
                (part, short, "as BERT and RoFormer read"),
                (limit, long, "as Llama 2 reads"),
            )
        ),
    )


UP_TO = "ropelab base --context 1k,2k,4k,8k,16k,32k"

CLAIMS = (
    Claim(
        id="base-10000",
        passages=(
            Passage(
                "000",
                "§3, theta",
                56,
                "10000作为经验值,平衡长短期依赖的捕捉能力",
                "10000, an empirical value, balances how long and short dependencies are caught",
            ),
        ),
        statement="A base of 10000 balances long and short dependencies.",
        check=balances,
        command="ropelab base --context 512,4k --base 10000",
    ),
    Claim(
        id="base-bound-table",
        passages=(Passage("men", "table 2"),),
        statement="The printed bases for 1k to 32k tokens are the least that keep the sum of "
        "cosines from turning negative within the context.",
        check=bases_are_least,
        reads="base",
        command=f"{UP_TO} --head-dim 128",
    ),
    Claim(
        id="base-bound-table-su",
        passages=(Passage("su-10122"),),
        statement="The bases found by brute force for 1k to 32k tokens are the least that keep "
        "the sum of cosines from turning negative within the context.",
        check=partial(bases_are_least, printed=PRINTED_BY_SU),
        reads="base",
        command=f"{UP_TO} --head-dim 128",
    ),
    Claim(
        id="base-bound-fit",
        passages=(Passage("men", "§4"),),
        statement="The least base grows as 0.0424 L^1.628.",
        check=fit_is_right,
        reads="base",
        command=f"{UP_TO},64k --head-dim 128",
    ),
)
