"""The first question: which neighbours look equal, with one frequency and with many."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ropelab.runs.sentences import join_names, write_number
from ropelab.runs.tables import Tables

# The encodings that compare best; where none of a scheme's was asked for, all of its
# are shown.
SHOWN = {
    "single": ("cos", "pair"),
    "rope": ("vector", "score"),
    "sinusoidal": ("vector", "score"),
}
OF_ONE = {"cos": "cos", "sin": "sin", "pair": "cos and sin"}
# A format that has numbers for every position is the background of the comparison.
REFERENCE = "float64"


def choose_encodings(resolution: pd.DataFrame) -> pd.DataFrame:
    """Return `neighbours`: a row per format of the encodings that compare best.

    ``equal_neighbours``: the share of positions that are stored as the next one is.
    """
    parts = []
    for scheme, own in resolution.groupby("scheme", sort=False):
        usual = own[own["component"].isin(SHOWN[str(scheme)])]
        parts.append(own if usual.empty else usual)
    rows = pd.concat(parts, ignore_index=True)

    about = zip(rows["scheme"], rows["component"], rows["pairs"], strict=True)
    names = [name_encoding(*row) for row in about]
    shares = rows["adjacent_collisions"] / (rows["positions"] - 1)
    table = rows[["scheme", "component", "format"]].assign(equal_neighbours=shares)
    table.insert(0, "encoding", names)
    return table


def list_neighbours(tables: Tables) -> pd.DataFrame:
    """Return a row per encoding: the percentage of neighbours that are stored alike."""
    if "neighbours" not in tables:
        return pd.DataFrame()
    table = tables["neighbours"]
    table = table[table["format"] != REFERENCE]
    rows = []
    for name, own in table.groupby("encoding", sort=False):
        row: dict[str, Any] = {"neighbours_that_look_equal": name}
        for fmt, share in zip(own["format"], own["equal_neighbours"], strict=True):
            row[f"{fmt} %"] = 100 * share
        rows.append(row)
    return pd.DataFrame(rows)


def name_encoding(scheme: str, component: str, pairs: int) -> str:
    """Name an encoding as a reader knows it.

    >>> name_encoding("single", "pair", 1), name_encoding("rope", "vector", 32)
    ('one frequency, cos and sin', 'RoPE, all 32 pairs')
    """
    if scheme == "single":
        return f"one frequency, {OF_ONE[component]}"
    lead = {"rope": "RoPE", "sinusoidal": "sinusoidal"}[scheme]
    if component == "vector":
        return f"{lead}, all {pairs} pairs"
    if component == "score":
        return f"{lead}, one score"
    return f"{lead}, slowest pair, {OF_ONE[component]}"


def compare_frequencies(tables: Tables) -> Iterator[str]:
    """Say which encodings keep all positions apart, and how much the next token
    changes.
    """
    many = _formats_that_keep(tables, "rope", "vector")
    one = _formats_that_keep(tables, "single", "pair")
    sines = _formats_that_keep(tables, "sinusoidal", "vector")
    if many is not None and one is not None:
        steps = tables["limits"].drop_duplicates("scheme").set_index("scheme")
        slow = steps.loc["single"].to_dict()
        fast = steps.loc["rope"].to_dict()
        yield _compare(one, many, _period(tables)) + _compare_steps(one, slow, fast)
        yield (
            "with many frequencies one of two neighbouring keys gets"
            f" {100 * fast['weight_change']:.2g} % more weight than the other, with one"
            f" slow frequency {100 * slow['weight_change']:.1g} %"
        )
    elif many is not None:
        yield f"many frequencies tell all positions apart in {_list_formats(many)}"
    elif one is not None:
        alone = " alone" if 0 < sum(one.values()) < len(one) else ""
        yield (
            f"one frequency of period {_period(tables)} tells all positions apart in"
            f" {_list_formats(one)}{alone}"
        )
    if sines is not None:
        yield (
            "the sinusoidal encoding tells all positions apart in"
            f" {_list_formats(sines)}"
        )


def _compare(one: Mapping[str, bool], many: Mapping[str, bool], period: str) -> str:
    lead = f"many frequencies tell all positions apart in {_list_formats(many)}"
    slow = f"one slow frequency (period {period})"
    if one == many:
        return f"{lead}, and {slow} does the same"
    if not any(one.values()):
        if len(one) == 1:
            return f"{lead}; {slow} does not"
        return f"{lead}; {slow} does so in none of them"
    alone = " alone" if sum(one.values()) < sum(many.values()) else ""
    return f"{lead}; {slow} does so in {_list_formats(one)}{alone}"


def _compare_steps(
    one: Mapping[str, bool], slow: Mapping[Any, Any], fast: Mapping[Any, Any]
) -> str:
    """Return a clause about the change of a score over one token; empty without a
    contrast.
    """
    if slow["score_step"] >= fast["score_step"]:
        return ""
    where = "and there" if any(one.values()) else "and"
    return (
        f", {where} the next token moves a score by only {slow['score_step']:.1g} of"
        f" its standard deviation, with many by {fast['score_step']:.2g}"
    )


def state_limits(tables: Tables) -> Iterator[str]:
    """Say how slow one frequency may be, what its cosine resolves, and which pairs lose
    neighbours.
    """
    if "limits" not in tables:
        return
    limits = tables["limits"]
    limits = limits[limits["format"] != REFERENCE]
    one = limits[limits["scheme"] == "single"]
    if len(one):
        yield _state_periods(one)
    yield from _state_cosine(tables)
    many = limits[limits["scheme"] == "rope"].dropna(subset="first_losing_pair")
    if len(many):
        first = [
            f"from pair {row['first_losing_pair']:.0f} on in {row['format']}"
            for row in many.to_dict("records")
        ]
        yield f"by themselves RoPE's slow pairs lose neighbours: {join_names(first)}"


def _state_periods(one: pd.DataFrame) -> str:
    limited = [
        # Rounded down: a longer period is not proved.
        f"{math.floor(row['longest_kept_period_tokens'])} tokens in {row['format']}"
        for row in one.dropna(subset="longest_kept_period_tokens").to_dict("records")
    ]
    free = one.loc[one["longest_kept_period_tokens"].isna(), "format"].tolist()
    said = []
    if limited:
        said.append(f"up to a period of {join_names(limited)}")
    if free:
        said.append(f"at any period in {join_names(free)}")
    return (
        "with cos and sin, one frequency tells all neighbours apart"
        f" {', and '.join(said)}"
    )


def _state_cosine(tables: Tables) -> Iterator[str]:
    if "resolution" not in tables:
        return
    rows = tables["resolution"].query(
        "scheme == 'single' and component == 'cos' and format == 'float32'"
    )
    for row in rows.dropna(subset="resolved_from_tokens").to_dict("records"):
        if row["resolved_from_tokens"] > 1:
            yield (
                "its cosine alone, in float32, tells all places apart from a distance"
                f" of {row['resolved_from_tokens']:.0f} tokens on"
            )


def _formats_that_keep(
    tables: Tables, scheme: str, component: str
) -> dict[str, bool] | None:
    """Return whether all positions differ, by format; None: not asked for."""
    if "resolution" not in tables:
        return None
    rows = tables["resolution"]
    rows = rows[(rows["scheme"] == scheme) & (rows["component"] == component)]
    rows = rows[rows["format"] != REFERENCE]
    if rows.empty:
        return None
    distinct = rows["distinct_codes"] == rows["positions"]
    return dict(zip(rows["format"], distinct, strict=True))


def _list_formats(kept: Mapping[str, bool]) -> str:
    names = [name for name, whole in kept.items() if whole]
    if names:
        return join_names(names)
    if len(kept) == 1:
        return f"no format but {REFERENCE}"
    return f"none of {join_names([*kept])}"


def _period(tables: Tables) -> str:
    single = tables["pairs"].query("scheme == 'single'")
    if single.empty:
        return ""
    # The frequency was computed from the period, and back.
    return write_number(float(f"{single['wavelength_tokens'].iloc[0]:.12g}"))
