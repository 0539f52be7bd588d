"""The first question of the experiment in words: which neighbours look equal, with one
frequency and with many.

Neighbours are positions that follow each other. They look equal in a number format if
their encodings are equal after rounding to it. The scheme of an encoding is single (one
frequency), rope (many) or sinusoidal; its component is cos, sin, pair (both), vector (all
pairs) or score. The functions read the tables of `encodings`, and return clauses that the
answer joins.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ropelab.runs.labels import write_roughly
from ropelab.runs.sentences import join_names, write_number
from ropelab.runs.tables import Tables

# The components of each scheme that are compared. If the user asks for none of these
# components, all components of the scheme are compared.
COMPARED = {
    "single": ("cos", "pair"),
    "rope": ("vector", "score"),
    "sinusoidal": ("vector", "score"),
}
# The words for the components of one pair.
PAIR_WORDS = {"cos": "cos", "sin": "sin", "pair": "cos and sin"}
# The format that all other formats are compared with. It distinguishes all positions,
# and is not listed.
REFERENCE = "float64"

# True for each format in which the encodings of all positions differ.
KeepsAll = Mapping[str, bool]


def choose_encodings(resolution: pd.DataFrame) -> pd.DataFrame:
    """Return `neighbours`: a row per encoding and format, of the components to compare.

    ``equal_neighbours``: the share of positions that are stored as the next one is.
    """
    parts = []
    for scheme, rows_of_scheme in resolution.groupby("scheme", sort=False):
        is_compared = rows_of_scheme["component"].isin(COMPARED[str(scheme)])
        if is_compared.any():
            rows_of_scheme = rows_of_scheme[is_compared]
        parts.append(rows_of_scheme)
    rows = pd.concat(parts, ignore_index=True)

    names = []
    for row in rows.to_dict("records"):
        names.append(name_encoding(row["scheme"], row["component"], row["pairs"]))
    shares = rows["adjacent_collisions"] / (rows["positions"] - 1)
    table = rows[["scheme", "component", "format"]].assign(equal_neighbours=shares)
    table.insert(0, "encoding", names)
    return table


def name_encoding(scheme: str, component: str, pairs: int) -> str:
    """Name an encoding as a reader knows it.

    >>> name_encoding("single", "pair", 1), name_encoding("rope", "vector", 32)
    ('one frequency, cos and sin', 'RoPE, all 32 pairs')
    """
    if scheme == "single":
        return f"one frequency, {PAIR_WORDS[component]}"
    scheme_words = {"rope": "RoPE", "sinusoidal": "sinusoidal"}[scheme]
    if component == "vector":
        return f"{scheme_words}, all {pairs} pairs"
    if component == "score":
        return f"{scheme_words}, one score"
    return f"{scheme_words}, slowest pair, {PAIR_WORDS[component]}"


def list_neighbours(tables: Tables) -> pd.DataFrame:
    """Return a row per encoding: the percentage of neighbours that look equal, in a
    column per format. The table is empty if no encodings were compared.
    """
    if "neighbours" not in tables:
        return pd.DataFrame()
    table = tables["neighbours"]
    table = table[table["format"] != REFERENCE]
    rows = []
    for name, rows_of_encoding in table.groupby("encoding", sort=False):
        row: dict[str, Any] = {"neighbours_that_look_equal": name}
        for cell in rows_of_encoding.to_dict("records"):
            row[f"{cell['format']} %"] = 100 * cell["equal_neighbours"]
        rows.append(row)
    return pd.DataFrame(rows)


def compare_frequencies(tables: Tables) -> Iterator[str]:
    """Say in which formats encodings keep all positions apart, with one frequency and
    with many, and how much the next token changes a score.
    """
    many = _find_keeping_formats(tables, "rope", "vector")
    single = _find_keeping_formats(tables, "single", "pair")
    sinusoidal = _find_keeping_formats(tables, "sinusoidal", "vector")

    if many is not None and single is not None:
        # The rows of a scheme differ by format; these columns do not depend on it.
        steps = tables["limits"].drop_duplicates("scheme").set_index("scheme")
        step_of_single = steps.loc["single"].to_dict()
        step_of_many = steps.loc["rope"].to_dict()
        formats_clause = _compare_formats(single, many, _write_period(tables))
        steps_clause = _compare_steps(single, step_of_single, step_of_many)
        yield formats_clause + steps_clause
        percent_with_many = write_roughly(100 * step_of_many["weight_change"])
        percent_with_single = write_roughly(100 * step_of_single["weight_change"], 1)
        yield (
            "with many frequencies one of two neighbouring keys gets"
            f" {percent_with_many} % more weight than the other, with one slow frequency"
            f" {percent_with_single} %"
        )
    elif many is not None:
        yield f"many frequencies tell all positions apart in {_list_formats(many)}"
    elif single is not None:
        keeping_formats = sum(single.values())
        alone = " alone" if 0 < keeping_formats < len(single) else ""
        yield (
            f"one frequency of period {_write_period(tables)} tells all positions apart in"
            f" {_list_formats(single)}{alone}"
        )

    if sinusoidal is not None:
        yield (
            "the sinusoidal encoding tells all positions apart in"
            f" {_list_formats(sinusoidal)}"
        )


def _find_keeping_formats(
    tables: Tables, scheme: str, component: str
) -> KeepsAll | None:
    """Return True for each format in which the encodings of all positions differ.

    None: this component of the scheme was not asked for.
    """
    if "resolution" not in tables:
        return None
    rows = tables["resolution"]
    rows = rows[(rows["scheme"] == scheme) & (rows["component"] == component)]
    rows = rows[rows["format"] != REFERENCE]
    if rows.empty:
        return None
    all_differ = rows["distinct_codes"] == rows["positions"]
    return dict(zip(rows["format"], all_differ, strict=True))


def _compare_formats(single: KeepsAll, many: KeepsAll, period: str) -> str:
    """Return the clause about the formats in which all positions differ, with a single
    frequency and with many. `period` is the period of the single frequency in words.
    """
    lead = f"many frequencies tell all positions apart in {_list_formats(many)}"
    slow = f"one slow frequency (period {period})"
    if single == many:
        return f"{lead}, and {slow} does the same"
    if not any(single.values()):
        if len(single) == 1:
            return f"{lead}; {slow} does not"
        return f"{lead}; {slow} does so in none of them"
    keeps_fewer = sum(single.values()) < sum(many.values())
    alone = " alone" if keeps_fewer else ""
    return f"{lead}; {slow} does so in {_list_formats(single)}{alone}"


def _compare_steps(
    single: KeepsAll,
    step_of_single: Mapping[Any, Any],
    step_of_many: Mapping[Any, Any],
) -> str:
    """Return the clause about the change of a score over one token, from two rows of
    the table `limits`; an empty text unless one frequency changes a score less than
    many frequencies do.
    """
    change_with_single = step_of_single["score_step"]
    change_with_many = step_of_many["score_step"]
    if change_with_single >= change_with_many:
        return ""
    # The word "there" means the formats in which one frequency keeps all positions apart.
    where = "and there" if any(single.values()) else "and"
    return (
        f", {where} the next token moves a score by only {change_with_single:.1g} of"
        f" its standard deviation, with many by {change_with_many:.2g}"
    )


def _list_formats(keeps_all: KeepsAll) -> str:
    """Name the formats in which all positions differ, or say that there are none."""
    names = [fmt for fmt, all_differ in keeps_all.items() if all_differ]
    if names:
        return join_names(names)
    if len(keeps_all) == 1:
        return f"no format but {REFERENCE}"
    return f"none of {join_names(list(keeps_all))}"


def _write_period(tables: Tables) -> str:
    """Write the period of the single frequency, in tokens; empty if there is none."""
    single = tables["pairs"].query("scheme == 'single'")
    if single.empty:
        return ""
    # The wavelength was computed back from the frequency: its last digits are rounding.
    wavelength = single["wavelength_tokens"].iloc[0]
    return write_number(float(f"{wavelength:.12g}"))


def state_limits(tables: Tables) -> Iterator[str]:
    """Say how slow one frequency may be, what its cosine resolves, and which pairs of
    RoPE lose neighbours.
    """
    if "limits" not in tables:
        return
    limits = tables["limits"]
    limits = limits[limits["format"] != REFERENCE]
    single = limits[limits["scheme"] == "single"]
    if len(single):
        yield _state_periods(single)
    yield from _state_cosine(tables)

    losing_rows = limits[limits["scheme"] == "rope"].dropna(subset="first_losing_pair")
    if len(losing_rows):
        texts = [
            f"from pair {row['first_losing_pair']:.0f} on in {row['format']}"
            for row in losing_rows.to_dict("records")
        ]
        yield f"by themselves RoPE's slow pairs lose neighbours: {join_names(texts)}"


def _state_periods(limits: pd.DataFrame) -> str:
    """Say up to which period one frequency keeps all neighbours apart, by format."""
    limited = []
    for row in limits.dropna(subset="longest_kept_period_tokens").to_dict("records"):
        # The period is rounded down, because a longer one is not proved.
        period = math.floor(row["longest_kept_period_tokens"])
        limited.append(f"{period} tokens in {row['format']}")
    has_no_limit = limits["longest_kept_period_tokens"].isna()
    unlimited = limits.loc[has_no_limit, "format"].tolist()

    parts = []
    if limited:
        parts.append(f"up to a period of {join_names(limited)}")
    if unlimited:
        parts.append(f"at any period in {join_names(unlimited)}")
    return (
        "with cos and sin, one frequency tells all neighbours apart"
        f" {', and '.join(parts)}"
    )


def _state_cosine(tables: Tables) -> Iterator[str]:
    """Say from which distance on the cosine of one frequency resolves all positions."""
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
