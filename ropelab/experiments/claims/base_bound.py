"""Claims about the least base for a context length (Men et al. 2024, arXiv:2405.14591)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ropelab.context import Stored
from ropelab.experiments.base.published import CONTEXTS, MEN, SU
from ropelab.experiments.claims.record import Claim, Evidence, count_of, limit, part
from ropelab.rope.bounds import Similarity, first_negative

UP_TO_32K = slice(0, 6)
PRINTED = tuple(zip(CONTEXTS, MEN, strict=True))[UP_TO_32K]
PRINTED_BY_SU = tuple(zip(CONTEXTS, SU, strict=True))[UP_TO_32K]


@dataclass(frozen=True, kw_only=True)
class PrintedBases:
    """Printed least bases by context, and where smaller ones are looked for.

    A stored exact bound decides. Without one a grid is tried, which can only refute: admissible
    windows narrower than its step may lie between its points.
    """

    runs: tuple[Stored, ...] = ()
    printed: tuple[tuple[int, float], ...] = PRINTED
    head_dim: int = 128
    step: float = 4e-3
    lowest: float = 0.5
    digits: int = 2

    def least(self, base: float) -> float:
        """The least number that is rounded to a printed base."""
        last_digit = 10.0 ** (math.floor(math.log10(base)) + 1 - self.digits)
        return base - last_digit / 2

    def smaller(self, context: int, base: float) -> Iterator[float]:
        """Bases on the grid, too low to be rounded to a printed one, that work for the context."""
        similarity = Similarity.of_head(self.head_dim)
        low, high = math.log(self.lowest * base), math.log(self.least(base))
        for u in np.arange(low, high, self.step):
            candidate = math.exp(u)
            if first_negative(similarity, candidate, context) is None:
                yield candidate


def bases_are_least(given: PrintedBases) -> Evidence:
    """Look for bases below the printed ones that keep every cosine sum from turning negative."""
    exact = bounds(given.runs, given.head_dim)
    loose = {}
    for context, base in given.printed:
        found = exact.get(context) or next(given.smaller(context, base), math.inf)
        if found < given.least(base):
            loose[context] = f"{context}: {found:,.0f} works below {base:g}"
    known = sum(context in exact for context, _ in given.printed)
    shown = f" ({', '.join(loose.values())})" if loose else ""
    agrees = False if loose else known == len(given.printed) or None
    return Evidence(
        expected="none",
        findings=(
            part(
                f"printed bases, d = {given.head_dim}, below which another works "
                f"({known} contexts exactly, the others on a grid of {given.step:.1%})",
                count_of(len(loose), len(given.printed)) + shown,
                agrees,
                len(loose),
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A printed power law and the stored exact bounds; see the table `bound` of the base lab."""

    runs: tuple[Stored, ...] = ()
    factor: float = 0.0424
    exponent: float = 1.628
    head_dim: int = 128
    least_contexts: int = 5
    tolerance: float = 0.25


def fit_is_right(given: Fit) -> Evidence:
    """Compare the printed power law with the exact bounds, and with a fit to them."""
    expected = f"the printed law within {given.tolerance:.0%} of every exact bound"
    found = bounds(given.runs, given.head_dim)
    if len(found) < given.least_contexts:
        text = f"{len(found)} stored contexts, needs {given.least_contexts}"
        return Evidence(expected=expected, findings=(part("exact bounds", text, None),))
    contexts = np.array(list(found), dtype=float)
    exact = np.array(list(found.values()))
    slope, _ = np.polyfit(np.log(contexts), np.log(exact), 1)
    ratio = given.factor * contexts**given.exponent / exact
    worst = float(np.abs(ratio - 1).max())
    return Evidence(
        expected=expected,
        findings=(
            part(
                f"printed law over exact bound, {contexts[0]:.0f} to {contexts[-1]:.0f} tokens",
                f"{ratio.min():.2f} to {ratio.max():.2f}",
                worst <= given.tolerance,
                worst,
            ),
            limit(
                "exponent that fits the exact bounds",
                f"{slope:.3f}, printed {given.exponent}",
                abs(slope - given.exponent) <= 0.005,
                float(slope),
            ),
        ),
    )


def bounds(runs: Sequence[Stored], head_dim: int) -> dict[int, float]:
    """First admissible base by context, from all stored runs, ascending."""
    if not runs:
        return {}
    table = pd.concat([run.tables["bound"] for run in runs])
    whole = (table["head_dim"] == head_dim) & (2 * table["turning_pairs"] == head_dim)
    table = table[whole].drop_duplicates("context_tokens")
    table = table.sort_values("context_tokens")
    pairs = zip(table["context_tokens"], table["first_admissible_base"], strict=True)
    return {int(context): float(base) for context, base in pairs}


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """Stored runs that trained one model under several bases; see the table `predictions`."""

    runs: tuple[Stored, ...] = ()


def bound_predicts(given: Trainings) -> Evidence:
    """Where the bound says that retrieval fails: does it, and does the text loss stay low?"""
    expected = "retrieval fails below the bound and nowhere else, text loss stays low"
    judged = _judged(given)
    below = judged[judged["first_failing_position_tokens"].notna()]
    if below.empty:
        missing = part("trained bases that the bound speaks about", "none", None)
        return Evidence(expected=expected, findings=(missing,))
    failing = below[below["accuracy_ci_high"] < 0]
    low = int(failing["verdict"].eq("superficial, as predicted").sum())
    above = judged[judged["first_failing_position_tokens"].isna()]
    holding = int((above["accuracy_ci_high"] >= 0).sum())
    return Evidence(
        expected=expected,
        findings=(
            part(
                "bases below the bound, times tasks, where retrieval is worse",
                f"{len(failing)} of {len(below)}",
                len(failing) == len(below),
                len(failing),
            ),
            limit(
                "of those with a low text loss",
                f"{low} of {len(failing)}",
                low == len(failing),
                low,
            ),
            limit(
                "admissible bases, times tasks, where retrieval is not worse",
                f"{holding} of {len(above)}",
                holding == len(above),
                holding,
            ),
        ),
    )


def _judged(given: Trainings) -> pd.DataFrame:
    """The predictions of the run with most seeds and the longest window that decide anything."""
    runs = sorted(given.runs, key=lambda run: (len(run.config["seeds"]), run.config["train_len"]))
    tables = [run.tables["predictions"] for run in runs if len(run.tables["predictions"])]
    if not tables:
        return pd.DataFrame(columns=["first_failing_position_tokens", "verdict"])
    return tables[-1][tables[-1]["agrees"].notna()]


CLAIMS = (
    Claim(
        id="base-bound-table",
        source="Men et al. 2024, arXiv:2405.14591, table 2",
        statement="The printed bases for 1k to 32k tokens are the least that keep the sum of "
        "cosines from turning negative within the context.",
        inputs=PrintedBases(),
        check=bases_are_least,
        reads="base",
        command="ropelab base --context 1k,2k,4k,8k,16k,32k --head-dim 128",
    ),
    Claim(
        id="base-bound-table-su",
        source="Su 2024, kexue.fm 10122",
        statement="The bases found by brute force for 1k to 32k tokens are the least that keep "
        "the sum of cosines from turning negative within the context.",
        inputs=PrintedBases(printed=PRINTED_BY_SU),
        check=bases_are_least,
        reads="base",
        command="ropelab base --context 1k,2k,4k,8k,16k,32k --head-dim 128",
    ),
    Claim(
        id="base-bound-fit",
        source="Men et al. 2024, arXiv:2405.14591",
        statement="The least base grows as 0.0424 L^1.628.",
        inputs=Fit(),
        check=fit_is_right,
        reads="base",
        command="ropelab base --context 1k,2k,4k,8k,16k,32k,64k --head-dim 128",
    ),
    Claim(
        id="base-bound-predicts",
        source="Men et al. 2024, arXiv:2405.14591",
        statement="A base below the bound gives a superficial long context: the text loss stays "
        "low, but retrieval fails where the sum of cosines is negative.",
        inputs=Trainings(),
        check=bound_predicts,
        reads="base-empirical",
        command="ropelab base-empirical",
    ),
)
