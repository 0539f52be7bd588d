"""Two runs of one experiment side by side: settings, and the values that both have.

Rows of the two runs are matched by the columns that identify them (keys), such as method
and length. All other columns of numbers, and of words that judge a row, are values.
"""

from collections.abc import Iterator, Sequence, Set
from typing import Any

import pandas as pd
from pandas.api.types import is_float_dtype

from ropelab.runs.errors import InputError
from ropelab.runs.sentences import join_names
from ropelab.runs.tables import Tables
from ropelab.show.page.shown import ShownRun
from ropelab.show.page.views import OUTCOMES, is_number

COLUMNS = ["table", "value", "rows", "alone", "differ", "largest", "where"]


def compare_runs(
    first: ShownRun, second: ShownRun
) -> tuple[str, dict[str, pd.DataFrame]]:
    """Compare two runs; InputError if they are of different experiments.

    Returns a sentence and two tables. The first has the settings that differ. The second
    says for each column of values in how many rows it differs, and in which row most.
    """
    experiment = first.manifest["experiment"]
    second_experiment = second.manifest["experiment"]
    if experiment != second_experiment:
        raise InputError(
            f"{experiment} and {second_experiment} measure different things"
        )

    settings = _compare_settings(first, second)
    values, unmatched_tables = _compare_values(first.tables, second.tables)
    remarks = [experiment, f"{len(settings)} settings differ"]
    unshared_names = _list_unshared(first.tables, second.tables)
    if unshared_names:
        remarks.append(f"only one run has {join_names(unshared_names)}")
    with_unmatched_rows = sorted(set(values.loc[values["alone"] > 0, "table"]))
    if with_unmatched_rows:
        remarks.append(f"rows of one run alone in {join_names(with_unmatched_rows)}")
    if unmatched_tables:
        remarks.append(f"not compared: {join_names(unmatched_tables)}")

    differing_count = int((values["differ"] > 0).sum())
    answer = (
        f"{differing_count} of {len(values)} columns of values differ in rows that both runs"
        f" have ({', '.join(remarks)})."
    )
    return answer, {"settings": settings, "values": values}


def _compare_settings(first: ShownRun, second: ShownRun) -> pd.DataFrame:
    """Return a row for each setting, input or version that differs."""
    # An input has the name of the setting that it was read by. The setting `documents` is
    # their number, and the input the hash of their names.
    setting_names = {*first.manifest["config"], *second.manifest["config"]}
    first_settings = _list_settings(first, setting_names)
    second_settings = _list_settings(second, setting_names)
    rows = []
    for name in first_settings | second_settings:
        first_value = first_settings.get(name)
        second_value = second_settings.get(name)
        if first_value != second_value:
            rows.append((name, str(first_value), str(second_value)))
    return pd.DataFrame(rows, columns=["setting", "first", "second"])


def _list_settings(run: ShownRun, setting_names: Set[str]) -> dict[str, Any]:
    """Return settings, inputs and version; inputs with the name of a setting get another
    name.
    """
    manifest = run.manifest
    settings = dict(manifest["config"])
    for name, value in manifest["inputs"].items():
        if name in setting_names:
            name = f"{name} (content)"
        settings[name] = value
    return {**settings, "version": manifest["version"]}


def _list_unshared(first: Tables, second: Tables) -> list[str]:
    """Return the tables that only one run has, and the columns that a table has in only
    one run.
    """
    # `^` is the symmetric difference of two sets.
    unshared_names = set(first) ^ set(second)
    for name in set(first) & set(second):
        columns = set(first[name]) ^ set(second[name])
        unshared_names |= {f"{name}.{column}" for column in columns}
    return sorted(unshared_names)


def _compare_values(first: Tables, second: Tables) -> tuple[pd.DataFrame, list[str]]:
    """Return a row per column of values, and the names of tables whose rows cannot be
    matched.
    """
    rows: list[dict[str, Any]] = []
    unmatched_tables: list[str] = []
    for name in first:
        if name not in second:
            continue

        keys = _find_keys(first[name], second[name])
        changes = None
        if keys is not None:
            changes = _compare_tables(first[name], second[name], keys)
        if changes is None:
            unmatched_tables.append(name)
        else:
            rows += [{"table": name, **change} for change in changes]

    values = pd.DataFrame(rows, columns=COLUMNS)
    return values.sort_values("differ", ascending=False), unmatched_tables


def _find_keys(first: pd.DataFrame, second: pd.DataFrame) -> list[str] | None:
    """Return the columns that identify the rows of both tables; None if none do.

    They are the first columns of the table, as few as possible. Columns without floats
    are tried first, then columns of both kinds. A column of floats can identify rows
    only if its numbers are whole, or are factors or bases.
    """
    columns_without_floats = []
    columns_of_both_kinds = []
    for column in _list_shared(first, second):
        has_floats = _is_float(column, first, second)
        identifies = not has_floats and column not in OUTCOMES
        if identifies:
            columns_without_floats.append(column)
        has_whole_floats = has_floats and not (first[column] % 1).any()
        if identifies or has_whole_floats or column in ("factor", "base"):
            columns_of_both_kinds.append(column)

    for columns in (columns_without_floats, columns_of_both_kinds):
        for count in range(1, len(columns) + 1):
            keys = columns[:count]
            is_ambiguous = first.duplicated(keys).any() or second.duplicated(keys).any()
            if not is_ambiguous:
                return keys
    return None


def _list_shared(first: pd.DataFrame, second: pd.DataFrame) -> Iterator[str]:
    """Yield the columns that have numbers in both tables, or words in both tables."""
    for column in first:
        if column in second and is_number(first[column]) == is_number(second[column]):
            yield str(column)


def _is_float(column: str, first: pd.DataFrame, second: pd.DataFrame) -> bool:
    """Return True if a column has floats in both tables."""
    return is_float_dtype(first[column]) and is_float_dtype(second[column])


def _compare_tables(
    first: pd.DataFrame, second: pd.DataFrame, keys: Sequence[str]
) -> list[dict[str, Any]] | None:
    """Return a row for each column of values; None if the tables share no row."""
    both = first.merge(second, on=list(keys), suffixes=(" first", " second"))
    if both.empty:
        return None
    unmatched_rows = len(first) + len(second) - 2 * len(both)
    changes = []
    for column in first:
        if column not in second or column in keys:
            continue
        before = both[f"{column} first"]
        after = both[f"{column} second"]
        differs = before.ne(after) & ~(before.isna() & after.isna())
        # Words usually say what a row is about. A column of words is compared only if it
        # judges the rows, or differs between the runs.
        is_value = is_number(first[column]) or column in OUTCOMES or differs.any()
        if not is_value:
            continue

        change: dict[str, Any] = {
            "value": column,
            "rows": len(both),
            "alone": unmatched_rows,
            "differ": int(differs.sum()),
        }
        row = _find_largest(before, after, differs)
        if row is not None:
            pair = "{} -> {}"
            if _is_float(str(column), first, second):
                pair = "{:.4g} -> {:.4g}"
            change["largest"] = pair.format(before[row], after[row])
            change["where"] = ", ".join(str(key) for key in both.loc[row, list(keys)])
        changes.append(change)
    return changes


def _find_largest(before: pd.Series, after: pd.Series, differs: pd.Series) -> Any:
    """Return the index of the row with the largest change of a number, or of the first
    row in which a word changed.

    None: no row has a number in both runs, or no word changed. If all numbers are equal,
    the largest change is 0, and a row is returned.
    """
    if is_number(before) and is_number(after):
        change = (after - before).abs()
        # The change is missing if one of the two numbers is missing.
        if not change.notna().any():
            return None
        return change.idxmax()

    if not differs.any():
        return None
    # `idxmax` of truth values is the first True.
    return differs.idxmax()
