"""Two runs of one experiment side by side: settings, and the values that both have."""

import pandas as pd
from pandas.api.types import is_float_dtype

from ropelab.runs.errors import InputError
from ropelab.runs.tables import Tables
from ropelab.show.page.shown import Shown


def compared(first: Shown, second: Shown) -> tuple[str, dict[str, pd.DataFrame]]:
    """Return a sentence; the settings that differ, and per value the count and largest change."""
    names = [run.manifest["experiment"] for run in (first, second)]
    if names[0] != names[1]:
        raise InputError(f"{names[0]} and {names[1]} measure different things")
    configs = [run.manifest["config"] for run in (first, second)]
    settings = pd.DataFrame(
        [
            {"setting": name, "first": str(configs[0].get(name)), "second": str(two)}
            for name, two in configs[1].items()
            if configs[0].get(name) != two
        ],
        columns=["setting", "first", "second"],
    )
    values = _values(first.tables, second.tables)
    moved = int((values["differ"] > 0).sum())
    alone = set(first.tables) ^ set(second.tables)
    answer = (
        f"{moved} of {len(values)} columns of values differ in rows that both runs have "
        f"({names[0]}, {len(settings)} settings differ"
        f"{f', only one run has {chr(44).join(sorted(alone))}' if alone else ''})."
    )
    return answer, {"settings": settings, "values": values}


def _values(first: Tables, second: Tables) -> pd.DataFrame:
    rows = []
    for name in [name for name in first if name in second]:
        one, two = first[name], second[name]
        shared = [column for column in one.columns if column in two.columns]
        floats = [c for c in shared if is_float_dtype(one[c]) and is_float_dtype(two[c])]
        keys = _identifying(one, two, [str(c) for c in shared if c not in floats])
        if not keys:
            continue  # rows of two runs cannot be matched
        both = one.merge(two, on=keys, suffixes=(" first", " second"))
        for column in floats:
            a, b = both[f"{column} first"], both[f"{column} second"]
            change = (b - a).abs()
            row = {"table": name, "value": column, "rows": len(both)}
            row |= {"differ": int((a.ne(b) & ~(a.isna() & b.isna())).sum())}
            if change.notna().any():
                at = both.loc[[change.idxmax()]].iloc[0]
                largest = f"{at[f'{column} first']:.4g} -> {at[f'{column} second']:.4g}"
                where = ", ".join(str(at[key]) for key in keys)
                row |= {"largest": largest, "where": where}
            rows.append(row)
    columns = ["table", "value", "rows", "differ", "largest", "where"]
    return pd.DataFrame(rows, columns=columns).sort_values("differ", ascending=False)


def _identifying(one: pd.DataFrame, two: pd.DataFrame, columns: list[str]) -> list[str]:
    """Return the first columns that tell all rows of each table apart; none where they do not."""
    for count in range(1, len(columns) + 1):
        keys = columns[:count]
        if not (one.duplicated(keys).any() or two.duplicated(keys).any()):
            return keys
    return []
