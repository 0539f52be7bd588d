"""Checks of claims about printed bases: the least base for a context, against exact bounds
(arXiv:2405.14591).

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`). The
result agrees with the claim (True), contradicts it (False), or leaves it open (None).
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ropelab.claims.arrays import write_hits
from ropelab.claims.record import Agrees, Findings, Role, claim
from ropelab.math.bounds import Similarity, find_first_negative, published
from ropelab.runs.cell import Stored
from ropelab.runs.thresholds import POWER_LAW_MISS

# The features of a head for which bases were printed.
HEAD = 128
# The step between the bases of a grid, in logarithms.
STEP = 4e-3
# Context lengths, with the base printed for each.
Table = Sequence[tuple[int, float]]


def _select_printed(bases: Sequence[float]) -> Table:
    """Return the contexts from 1k to 32k tokens, with the bases printed for them."""
    table = list(zip(published.CONTEXTS, bases, strict=True))
    return tuple(table[:6])


# The printed bases, by publication.
PRINTED: dict[str, Table] = {
    "men": _select_printed(published.MEN),
    "su": _select_printed(published.SU),
}


def _read_exact_bases(runs: Sequence[Stored]) -> dict[int, float]:
    """Return the exact bound of each context that a stored run has."""
    if not runs:
        return {}
    tables = [run.tables["bound"] for run in runs]
    return published.list_exact_bases(pd.concat(tables))


@claim("base-bound-table", "base-bound-table-su")
def search_smaller_bases(
    findings: Findings,
    by: str = "men",
    printed: Table = (),
    runs: Sequence[Stored] = (),
) -> None:
    """Look for bases that are smaller than the printed bases and have no negative sum
    of cosines, and for printed bases that have one.

    `printed` are the printed bases, by default the bases of the publication `by`.
    """
    # Stored runs have the exact bound of some contexts, which decides. For all other
    # contexts a grid of bases is searched, which can only contradict a printed base: if no
    # base of the grid works, a base between two points of the grid may still work.
    printed = printed or PRINTED[by]
    exact_bases = _read_exact_bases(runs)
    similarity = Similarity.of_head(HEAD)
    # A text for each printed base that is not the least: a smaller base works, too.
    loose_texts = []
    # A text for each printed base that does not work.
    failing_texts = []
    exactly_known = 0
    for context, base in printed:
        # The printed base is rounded. `least` is the smallest number that rounds to it, so
        # that a base that works below `least` contradicts the print.
        digits_before_point = math.floor(math.log10(base)) + 1
        last_digit = 10.0 ** (digits_before_point - published.SIGNIFICANT_DIGITS)
        least = base - last_digit / 2

        if context in exact_bases:
            exactly_known += 1
            smaller = exact_bases[context]
        else:
            smaller = _search_grid(context, 0.5 * base, least)

        if smaller < least:
            # The base is rounded up, since a number that is rounded down need not work.
            rounded_up = math.ceil(10 * smaller) / 10
            loose_texts.append(f"{context}: {rounded_up:,.1f} works below {base:g}")

        # A printed base that is the exact one, rounded, may fail by its rounding alone.
        is_exact = abs(exact_bases.get(context, math.inf) - base) <= last_digit / 2
        fails_at = find_first_negative(similarity, base, context)
        if fails_at is not None and not is_exact:
            failing_texts.append(f"{context}: {base:g} fails at {fails_at:,}")

    all_are_exact = exactly_known == len(printed)
    if all_are_exact:
        how = "all contexts exactly"
    else:
        how = f"{exactly_known} contexts exactly, the others on a grid of {STEP:.1%}"
    what = f"printed bases, d = {HEAD}, below which another works ({how})"
    measured = write_hits(len(loose_texts), len(printed))
    if loose_texts:
        measured += f" ({', '.join(loose_texts)})"

    # Without a contradiction the claim is open, unless all contexts are known exactly.
    agrees: Agrees = None
    if loose_texts:
        agrees = False
    elif all_are_exact:
        agrees = True
    findings.add_part(what, measured, agrees, len(loose_texts))

    what = (
        "printed bases with a negative sum within their context (without those that are"
        " the exact base, rounded)"
    )
    measured = write_hits(len(failing_texts), len(printed))
    if failing_texts:
        measured += f" ({', '.join(failing_texts)})"
    # Without exact bases, a printed base may fail by its rounding alone.
    works: Agrees = not failing_texts
    if failing_texts and not all_are_exact:
        works = None
    findings.add_limit(what, measured, works, len(failing_texts))


def _search_grid(context: int, low: float, high: float) -> float:
    """Return the first base of a grid from `low` to `high` with no negative sum of
    cosines in a context; inf if there is none.
    """
    similarity = Similarity.of_head(HEAD)
    for log_base in np.arange(math.log(low), math.log(high), STEP):
        base = math.exp(log_base)
        if find_first_negative(similarity, base, context) is None:
            return base
    return math.inf


@claim("base-bound-fit", bound=POWER_LAW_MISS)
def compare_power_law(findings: Findings, runs: Sequence[Stored] = ()) -> None:
    """Compare the printed power law, and its exponent, with exact bounds."""
    base_of_context = _read_exact_bases(runs)
    count = len(base_of_context)
    if count < 5:
        findings.add_missing("exact bounds", f"{count} stored contexts, needs 5")
        return

    contexts = np.array(list(base_of_context), dtype=float)
    exact_bases = np.array(list(base_of_context.values()))

    exponent = published.POWER_LAW_EXPONENT
    printed_bases = published.POWER_LAW_FACTOR * contexts**exponent
    ratios = printed_bases / exact_bases
    error = float(np.abs(ratios - 1).max())
    what = (
        f"printed law over exact bound, {contexts[0]:.0f} to {contexts[-1]:.0f} tokens"
    )
    measured = f"{ratios.min():.2f} to {ratios.max():.2f}"
    findings.add_part(what, measured, error <= POWER_LAW_MISS, error)

    # A power law is a straight line between logarithms, and its slope is the exponent.
    slope, _ = np.polyfit(np.log(contexts), np.log(exact_bases), 1).tolist()
    what = "exponent that fits the exact bounds"
    measured = f"{slope:.3f}, printed {exponent}"
    is_printed = abs(slope - exponent) <= 0.005
    findings.add_limit(what, measured, is_printed, slope)


@claim("base-10000")
def find_first_negatives(findings: Findings, base: float = 1e4) -> None:
    """Find the first distance with a negative sum of cosines, for the heads of three
    models that have this base.
    """
    # The role of the finding, the name of the model, the features of its heads, and the
    # length of its texts.
    models: tuple[tuple[Role, str, int, int], ...] = (
        ("part", "English RoFormer", 64, 512),
        ("limit", "LLaMA 1", 128, 2048),
        ("limit", "Llama 2", 128, 4096),
    )
    for role, model, head_dim, length in models:
        # The search goes far beyond both lengths, so that a failure there is reported,
        # too.
        first_negative = find_first_negative(
            Similarity.of_head(head_dim), base, 1 << 18
        )
        is_beyond_texts = first_negative is None or first_negative >= length

        what = (
            f"base {base:g}, heads of {head_dim}: first distance at which the sum of"
            f" cosines is negative, for texts of {length:,} ({model})"
        )
        measured = "none" if first_negative is None else f"{first_negative:,} tokens"
        findings.add(role, what, measured, is_beyond_texts, first_negative)
