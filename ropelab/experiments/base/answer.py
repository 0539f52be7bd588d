"""The answer of the base experiment in sentences, its short table, and the command to
type next.

A base is admissible for a context if the sum of cosines of its frequencies is not
negative at any position of the context. Admissible bases are intervals, called windows.
The stable base is the base from which on all larger bases are admissible.
"""

import math
from typing import Any

import pandas as pd

from ropelab.experiments.base import BaseConfig
from ropelab.experiments.base.bound import round_up
from ropelab.math.scaling.plan import write_parameter
from ropelab.runs.sentences import write_number
from ropelab.runs.spelling import write_command
from ropelab.runs.tables import Tables

# Below this number of published values in a run, nothing is said about them.
FEWEST_PUBLISHED = 3


def answer(tables: Tables) -> str:
    """Name the base to use, judge the base that the user gives, and compare the bases
    that a paper (Men et al. 2024) prints.
    """
    # Contexts ascend, so that the last rows belong to the longest context. The answer
    # is about that context.
    bound = tables["bound"].iloc[-1]
    given_base = tables["given_base"]
    published = tables["published"]

    text = _describe_bound(bound, tables["windows"])
    text += " How far trained models reach is another question (docs/findings.md)."
    # This table is empty if the user gives no base.
    for row in given_base.tail(1).itertuples():
        text += _describe_given(row)
    if len(published) >= FEWEST_PUBLISHED:
        text += _describe_published(published, tables["fits"])
    return text


def _describe_bound(bound: Any, windows: pd.DataFrame) -> str:
    """Say from which base on all bases are admissible, for a row of the table `bound`."""
    context = int(bound.context_tokens)
    head = describe_head(bound)
    if not bound.certified:
        return f"No base is admissible for {context} tokens ({head})."
    if bound.smallest_admissible_base <= 1:
        return f"Every base is admissible for {context} tokens ({head})."
    if math.isnan(bound.recommended_base):
        smallest = _round_up_below(bound.smallest_admissible_base)
        return (
            f"The sum of cosines stays at or above 0 with bases from {smallest} on; no"
            f" stable base was found ({context} tokens, {head})."
        )

    text = (
        f"Base {write_number(bound.recommended_base)} and every larger one keep the sum of"
        f" cosines at or above 0, by proof ({context} tokens, {head})."
    )
    # The end of the first window is missing if the window has no end.
    first_end = windows[windows["context_tokens"] == context]["high"].iloc[0]
    if not math.isnan(first_end):
        smallest = _round_up_below(bound.smallest_admissible_base, first_end)
        text += (
            f" The smallest admissible base is {smallest}, but from"
            f" {_round_up_below(first_end)} on the sum is negative again."
        )
    return text


def _describe_given(row: Any) -> str:
    """Judge the given base, from a row of the table `given_base`."""
    method = ""
    if row.method != "unscaled":
        method = f" with {row.method}"
    if isinstance(row.factor_from, str):
        method += f", its factor {row.factor_from},"

    if row.admissible:
        verdict = "is admissible there"
    else:
        first_failing = row.first_failing_position_tokens
        verdict = f"fails first at position {first_failing:.0f}"
    base = write_parameter(row.base).removesuffix(".0")
    return f" Base {base}{method} {verdict}."


def _describe_published(published: pd.DataFrame, fits: pd.DataFrame) -> str:
    """Count the published bases that are larger than necessary, and the bases that fail,
    and compare how published, exact and recommended bases grow with the context.
    """
    fit_by_set = fits.set_index("values")
    # An exponent depends on the contexts that it is fitted to. If there are fits to the
    # contexts of the paper, these are compared with the paper's fit.
    suffix = ""
    if "exact values of its contexts" in fit_by_set.index:
        suffix = " of its contexts"

    def describe_growth(name: str) -> str:
        fit = fit_by_set.loc[name]
        return f"context^({fit['exponent']:.2f} ± {fit['standard_error']:.2f})"

    exact_growth = describe_growth(f"exact values{suffix}")
    recommended_growth = describe_growth(f"recommended bases{suffix}")
    paper_growth = describe_growth("paper values")

    is_loose = published["verdict"] == "loose"
    fails = published["paper_fails_at_tokens"].notna()
    worst_ratio = (
        published.loc[is_loose, "times_exact"].max() if is_loose.any() else 1.0
    )
    return (
        f" Of the paper's {len(published)} values here {is_loose.sum()} are larger than the"
        f" smallest admissible base, by up to {worst_ratio:.2g} times, and {fails.sum()}"
        f" fail inside their context, {_count_both(is_loose & fails)}; the exact ones grow"
        f" as {exact_growth}, the paper's as {paper_growth}, the recommended bases as"
        f" {recommended_growth} (standard errors)."
    )


def _count_both(is_both: pd.Series) -> str:
    """Say how many of the larger bases fail: a larger base is not always admissible.

    >>> _count_both(pd.Series([True, False])), _count_both(pd.Series([False]))
    ('1 of them larger', 'none of them larger')
    """
    count = int(is_both.sum())
    return f"{count or 'none'} of them larger"


def suggest_command(config: BaseConfig, tables: Tables) -> str:
    """Return the command about the precision of the recommended base.

    If no base is recommended, or if pairs are left out, which `precision` cannot do,
    return the command that tests the bound on trained models.
    """
    bound = tables["bound"].iloc[-1]
    # A recommended base is nan if there is none, and 1 if every base is admissible.
    recommends = bound.recommended_base > 1
    leaves_out_pairs = config.kept < 1 or config.dropped
    if not recommends or leaves_out_pairs:
        return "ropelab base-empirical"

    options = {
        "base": write_number(bound.recommended_base),
        "head_dim": config.head_dim,
    }
    if config.rotary_dim:
        options["rotary_dim"] = config.rotary_dim
    options["length"] = bound.context_tokens
    return write_command("precision", options)


def _round_up_below(base: float, end: float = math.inf) -> str:
    """Write a base from which on something holds, rounded up to six digits, or to more
    digits if the rounded base would not be below `end`.
    """
    can_be_rounded = 1 < base < math.inf
    if not can_be_rounded:
        return f"{base:.6g}"

    for digits in range(6, 17):
        rounded = round_up(base, digits)
        if rounded < end:
            return f"{rounded:.{digits}g}"
    # 17 digits distinguish all numbers of float64.
    return f"{round_up(base, 17):.17g}"


def describe_head(bound: Any) -> str:
    """Name the heads that a row of the table `bound` is about."""
    rotated = 2 * int(bound.rotating_pairs)
    if rotated == bound.head_dim:
        return f"heads of {bound.head_dim} features"
    return f"heads of {bound.head_dim} features, {rotated} of them rotated"


def summary(tables: Tables) -> pd.DataFrame:
    """Return the short table: the bound of each context, or the theories if there is one
    context.
    """
    bound = tables["bound"]
    if len(bound) > 1:
        bases = ["recommended_base", "stable_base", "smallest_admissible_base"]
        return bound[["context_tokens", *bases, "status"]]
    return tables["theories"][["theory", "base", "times_exact", "verdict"]].head(12)
