"""One table and one figure of all runs that a file asked for: a sweep.

The table and the figure are in `results/sweep/<file>-<hash>/`. This folder is like the
folder of a run, so that the index, the page and `ropelab export` find it, and its
config.toml asks for the same runs again. The keys of a sweep are the fields of the
config in which its runs differ.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ropelab.lab import Lab
from ropelab.plan import Run
from ropelab.runs import store
from ropelab.runs.config import Config, Label
from ropelab.runs.spelling import write_command, write_plainly
from ropelab.runs.tables import Tables
from ropelab.show.drawn import draw_figures, encode_figures
from ropelab.show.figures.sweep import choose_parts, draw
from ropelab.show.terminal import format_value
from ropelab.sweeps.cases import Sweep

EXPERIMENT = "sweep"
VERSION = 2
# The number of rows of the table that the index shows.
INDEX_ROWS = 24


class SweepConfig(Config):
    """The content of a sweep's config.toml: its runs."""

    experiment: str = ""
    case: tuple[dict[str, Any], ...] = ()


def combine(sweep: Sweep, runs: Sequence[Run], lab: Lab) -> Path:
    """Write the table and the figure of a sweep, unless both exist; return the sweep's
    folder.
    """
    results = lab.results
    assert results is not None, "the runs of a sweep are stored"
    folders = [run.folder for run in runs if run.folder]
    configs = [run.config.model_dump(mode="json", exclude_none=True) for run in runs]
    config = SweepConfig(experiment=runs[0].experiment.name, case=tuple(configs))
    # The names of the run folders, with what identifies their contents.
    inputs = store.hash_manifests(results, folders)
    label = Label(sweep.path.stem)
    folder = store.RunFolder(results, EXPERIMENT, VERSION, config, inputs, label)

    def make_contents() -> store.Made:
        tables = make_tables(sweep, runs, list(inputs))
        figures = encode_figures(draw_figures(draw, tables))
        manifest = _describe_sweep(sweep, runs, tables)
        return store.Made(tables, figures, manifest)

    # A finished sweep is found without a lock: a read-only folder cannot be locked.
    if lab.redraw or folder.find() is None:
        folder.keep(make_contents, lab.waiting, lab.redraw)
    return folder.path


def _describe_sweep(
    sweep: Sweep, runs: Sequence[Run], tables: Tables
) -> dict[str, Any]:
    """Return what the manifest says about the runs together."""
    experiment = runs[0].experiment
    name = f"{experiment.name} over {' and '.join(sweep.keys)}"
    seconds = 0.0
    for run in runs:
        manifest = store.read_manifest(run.folder) if run.folder else None
        if manifest:
            seconds += manifest["seconds"]

    return {
        "title": sweep.title or name,
        "question": experiment.question,
        "cannot_show": experiment.cannot_show,
        "answer": f"{len(runs)} runs of {name}{_describe_extremes(tables)}.",
        "summary": store.make_records(tables[EXPERIMENT].head(INDEX_ROWS)),
        "command": write_command("run", {"file": sweep.path.as_posix()}, "file"),
        "start": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
    }


def make_tables(
    sweep: Sweep, runs: Sequence[Run], folders: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Return the tables of a sweep.

    - sweep: the keys, and then the columns of the runs' short tables: a row for each row
      of these. A column with the name of a key is called `<name>_found`, unless it
      repeats the key. A result at a length is named by its share of the trained (L) or
      tested length (T): `copy @0.75T`.
    - further tables: the same for each further short table that the runs have.
    - runs: a row per run with its number, the keys, the answer, and its folder.
    """
    lengths_differ = "train_len" in sweep.keys or "test_len" in sweep.keys
    # Factors that nobody typed are the quotient of the lengths, and change with them.
    follows_lengths = lengths_differ and not any(map(_has_typed_factor, runs))

    parts: dict[str, list[pd.DataFrame]] = {}
    run_rows: list[dict[str, Any]] = []
    for number, (run, folder) in enumerate(zip(runs, folders, strict=True), 1):
        fields: dict[str, Any] = {
            key: _find_config_value(run, key) for key in sweep.keys
        }
        short_tables = {EXPERIMENT: run.summary(), **run.further()}
        for name, short_table in short_tables.items():
            table = _name_like_others(run, short_table, sweep.keys, follows_lengths)
            if "factor" in sweep.keys:
                table = _drop_factor(table, fields["factor"])
            # The keys are repeated in every row of the run.
            key_columns = pd.DataFrame([fields] * len(table), index=table.index)
            part = key_columns.join(table.apply(_read_numbers))
            parts.setdefault(name, []).append(part)
        row = {"case": number, **fields, "answer": run.answer, "folder": folder}
        run_rows.append(row)

    tables = {}
    for name, parts_of_table in parts.items():
        whole = pd.concat(parts_of_table, ignore_index=True)
        for key in sweep.keys:
            found = f"{key}_found"
            if found in whole and whole[found].astype(str).equals(
                whole[key].astype(str)
            ):
                whole = whole.drop(columns=found)
        tables[name] = whole
    tables["runs"] = pd.DataFrame(run_rows)
    return tables


def _name_like_others(
    run: Run, table: pd.DataFrame, keys: Sequence[str], follows_lengths: bool
) -> pd.DataFrame:
    """Return a short table of one run, whose columns and methods have the same names as
    in the other runs: lengths and factors in them are given relative to the run's lengths.
    """
    # An experiment without trained models has neither length.
    train_len = getattr(run.config, "train_len", None)
    test_len = getattr(run.config, "test_len", None)
    table = table.rename(columns={key: f"{key}_found" for key in keys})
    table.columns = _name_columns(table, train_len, test_len)
    if not (follows_lengths and train_len and test_len):
        return table

    # A method stretched to the tested length is the same method in every run. Its name
    # ends with the factor, or has a blank after it.
    factor = re.escape(f"×{test_len / train_len:g}")
    return table.replace(rf"{factor}(?= |$)", "×T/L", regex=True)


def _drop_factor(table: pd.DataFrame, factor: float) -> pd.DataFrame:
    """Return a short table whose methods are named without the factor of the run.

    The factor is a key of the sweep. Without it in the names, a method is one line of the
    figure, whose axis is the factor.
    """
    factor_in_name = re.escape(f" ×{factor:g}")
    return table.replace(rf"{factor_in_name}(?= |$)", "", regex=True)


def _has_typed_factor(run: Run) -> bool:
    methods = getattr(run.config, "methods", ())
    return any("factor=" in method for method in methods)


def _name_columns(
    table: pd.DataFrame, train_len: int | None, test_len: int | None
) -> list[str]:
    """Return the names of columns by shares of a length, in as many digits as make them
    differ.
    """
    columns: list[str] = []
    # Three digits are enough, except for distances that are nearly equal.
    for digits in range(3, 18):
        columns = []
        for name in table:
            columns.append(name_by_share(str(name), train_len, test_len, digits))
        if len(set(columns)) == len(columns):
            break
    return columns


def name_by_share(
    name: str, train_len: int | None, test_len: int | None, digits: int = 3
) -> str:
    """Name a column by its share of the trained (L) or tested length (T).

    >>> name_by_share("copy @6144", 2048, 8192), name_by_share("nll @512", 2048, 8192)
    ('copy @0.75T', 'nll @0.25L')
    >>> name_by_share("copy @6144 ci_low", 2048, 8192)
    'copy @0.75T ci_low'
    """
    result, _, place = name.partition(" @")
    # The ends of an interval have further words after the length.
    number, blank, words = place.partition(" ")
    if not number.isdecimal() or not train_len or not test_len:
        return name
    length = int(number)
    share = f"{length / test_len:.{digits}g}T"
    if length <= train_len:
        share = f"{length / train_len:.{digits}g}L"
    return f"{result} @{share}{blank}{words}"


def _find_config_value(run: Run, key: str) -> object:
    """Return a field of the run's config, as one value of a table."""
    value = getattr(run.config, key)
    if not isinstance(value, tuple):
        return value
    if len(value) == 1:
        (only,) = value
        return only
    return write_plainly(value)


def _read_numbers(column: pd.Series) -> pd.Series:
    """Return a column written for people (`27.7%`, `4e-04`, `257`, `never`) as numbers.

    A column with other words, or without a number, is returned as it is.
    """
    if pd.api.types.is_numeric_dtype(column):
        return column
    texts = column.astype(str)
    is_percentage = texts.str.endswith("%")
    numbers = pd.to_numeric(texts.str.removesuffix("%"), errors="coerce")
    is_other_word = numbers.isna() & ~texts.isin(["none", "never"])
    if numbers.isna().all() or is_other_word.any():
        return column

    # "none" (of several) is a share of 0. "never" has no number, so it stays NaN.
    numbers = numbers.mask(is_percentage, numbers / 100).round(12)
    return numbers.mask(texts == "none", 0.0)


def _describe_extremes(tables: Tables) -> str:
    """Say where the lowest and the highest value of the first result are; an empty text
    if no column of results has a number.
    """
    # The columns by what they are in the figure: the axis, the lines and the results.
    parts = choose_parts(tables)
    table = tables[EXPERIMENT]
    results = [name for name in parts.results if table[name].notna().any()]
    if not results:
        return ""

    first_result = results[0]
    values = table[first_result].to_numpy(dtype=float)
    setting_columns = (parts.along, *parts.lines)

    def describe_row(word: str, number: int) -> str:
        row = table.iloc[number]
        settings = [f"{name} {format_value(row[name])}" for name in setting_columns]
        return f"{word} {values[number]:.4g} ({', '.join(settings)})"

    lowest = describe_row("lowest", int(np.nanargmin(values)))
    highest = describe_row("highest", int(np.nanargmax(values)))
    return f"; {first_result.replace('_', ' ')}: {lowest}, {highest}"
