"""Two runs of one experiment side by side: settings, and the values that both have."""

from typing import Any

import pandas as pd
from pandas.api.types import is_float_dtype

from ropelab.runs.errors import InputError
from ropelab.runs.sentences import listed
from ropelab.runs.tables import Tables
from ropelab.show.page.shown import Shown
from ropelab.show.page.views import OUTCOMES, is_number


def compared(first: Shown, second: Shown) -> tuple[str, dict[str, pd.DataFrame]]:
    """Return a sentence; the settings that differ, and per value the count and largest
    change.
    """
    experiment, other = (run.manifest["experiment"] for run in (first, second))
    if experiment != other:
        raise InputError(f"{experiment} and {other} measure different things")
    manifests = (run.manifest for run in (first, second))
    here, there = (
        {**m["config"], **m["inputs"], "version": m["version"]} for m in manifests
    )
    differing = [name for name in here | there if here.get(name) != there.get(name)]
    rows = [(name, str(here.get(name)), str(there.get(name))) for name in differing]
    settings = pd.DataFrame(rows, columns=["setting", "first", "second"])
    values, unmatched = _values(first.tables, second.tables)
    moved = int((values["differ"] > 0).sum())
    alone = set(first.tables) ^ set(second.tables)
    both = (
        (name, first.tables[name], second.tables[name])
        for name in {*first.tables} - alone
    )
    alone |= {
        f"{name}.{column}" for name, one, two in both for column in {*one} ^ {*two}
    }
    unpaired = values.drop_duplicates("table").set_index("table")["alone"]
    unpaired = unpaired[unpaired > 0]
    answer = (
        f"{moved} of {len(values)} columns of values differ in rows that both runs"
        " have "
        f"({experiment}, {len(settings)} settings differ"
        f"{f', only one run has {listed(sorted(alone))}' if alone else ''}"
        f"{f', rows of one run alone in {listed(sorted(unpaired.index))}' if len(unpaired) else ''}"
        f"{f', not compared: {listed(unmatched)}' if unmatched else ''})."
    )
    return answer, {"settings": settings, "values": values}


def _values(first: Tables, second: Tables) -> tuple[pd.DataFrame, list[str]]:
    """Return a row per column of values, and the tables whose rows cannot be
    matched.
    """
    rows, unmatched = list[dict[str, Any]](), list[str]()
    for name in [name for name in first if name in second]:
        one, two = first[name], second[name]
        # Columns of whole numbers can identify rows, floats only where nothing else
        # does.
        shared = [
            str(c) for c in one if c in two and is_number(one[c]) == is_number(two[c])
        ]
        floats = [
            c for c in shared if is_float_dtype(one[c]) and is_float_dtype(two[c])
        ]
        # The first columns that tell all rows of each table apart.
        rest = [column for column in shared if column not in (*floats, *OUTCOMES)]
        known = (*rest, "factor", "base")
        more = [
            c for c in shared if c in known or (c in floats and not (one[c] % 1).any())
        ]
        parts = (
            some[:count] for some in (rest, more) for count in range(1, len(some) + 1)
        )
        keys = next(
            (k for k in parts if not any(t.duplicated(k).any() for t in (one, two))),
            None,
        )
        if (
            keys is None
            or (both := one.merge(two, on=keys, suffixes=(" first", " second"))).empty
        ):
            unmatched.append(name)
            continue
        alone = len(one) + len(two) - 2 * len(both)
        for column in (c for c in one if c in two and c not in keys):
            a, b = both[f"{column} first"], both[f"{column} second"]
            differ = a.ne(b) & ~(a.isna() & b.isna())
            # Words say what a row is about, and are values where they differ.
            if not (is_number(one[column]) or column in OUTCOMES or differ.any()):
                continue
            row = {"table": name, "value": column, "rows": len(both), "alone": alone}
            row |= {"differ": int(differ.sum())}
            change = (
                (b - a).abs()
                if is_number(a) and is_number(b)
                else differ[differ].astype(int)
            )
            if change.notna().any():
                at: Any = change.idxmax()
                where = ", ".join(str(key) for key in both.loc[at, keys])
                text = "{:.4g} -> {:.4g}" if column in floats else "{} -> {}"
                row |= {"largest": text.format(a[at], b[at]), "where": where}
            rows.append(row)
    columns = ["table", "value", "rows", "alone", "differ", "largest", "where"]
    return (
        pd.DataFrame(rows, columns=columns).sort_values("differ", ascending=False),
        unmatched,
    )
