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
from ropelab.show.figures.sweep import choose_columns, draw
from ropelab.show.terminal import format_value
from ropelab.sweeps.cases import Sweep

EXPERIMENT = "sweep"
VERSION = 2
# The most rows of the table that the index shows.
INDEX_ROWS = 24


class SweepConfig(Config):
    """The content of a sweep's config.toml: the experiment, and the config of each
    run.
    """

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
    # The hash of the manifest of each run, by the path of the run's folder.
    inputs = store.hash_manifests(results, folders)
    label = Label(sweep.path.stem)
    folder = store.RunFolder(results, EXPERIMENT, VERSION, config, inputs, label)

    def make_contents() -> store.Made:
        tables = make_tables(sweep, runs, list(inputs))
        figures = encode_figures(draw_figures(draw, tables))
        manifest = _describe_sweep(sweep, runs, tables)
        return store.Made(tables, figures, manifest)

    # A finished sweep is looked for without a lock, since a read-only folder cannot be
    # locked.
    if lab.redraw or folder.find() is None:
        folder.keep(make_contents, lab.waiting, lab.redraw)
    return folder.path


def _describe_sweep(
    sweep: Sweep, runs: Sequence[Run], tables: Tables
) -> dict[str, Any]:
    """Return the entries of the sweep's manifest that sum up its runs."""
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

    - sweep: all rows of the runs' short tables, each with the keys of its run in the first
      columns. A column with the name of a key is called `<name>_found`; it is left out if
      it repeats the key. The column of a result at some length is named by the share that
      this length is of the trained (L) or tested length (T): `copy @0.75T`.
    - further tables: if the runs have further short tables, each of them is joined in
      the same way.
    - runs: a row per run with its number, the keys, the answer, and its folder.
    """
    lengths_differ = "train_len" in sweep.keys or "test_len" in sweep.keys
    # A factor that nobody typed is the quotient of the tested and the trained length, and
    # changes with them.
    follows_lengths = lengths_differ and not any(map(_has_typed_factor, runs))

    tables_of_runs: dict[str, list[pd.DataFrame]] = {}
    run_rows: list[dict[str, Any]] = []
    for number, (run, folder) in enumerate(zip(runs, folders, strict=True), 1):
        fields: dict[str, Any] = {
            key: _find_config_value(run, key) for key in sweep.keys
        }
        short_tables = {EXPERIMENT: run.summary(), **run.further()}
        for name, short_table in short_tables.items():
            table = _use_common_names(run, short_table, sweep.keys, follows_lengths)
            if "factor" in sweep.keys:
                table = _drop_factor(table, fields["factor"])
            # The keys are repeated in every row of the run.
            key_columns = pd.DataFrame([fields] * len(table), index=table.index)
            table_of_run = key_columns.join(table.apply(_read_numbers))
            tables_of_runs.setdefault(name, []).append(table_of_run)
        row = {"case": number, **fields, "answer": run.answer, "folder": folder}
        run_rows.append(row)

    tables = {}
    for name, tables_to_join in tables_of_runs.items():
        joined = pd.concat(tables_to_join, ignore_index=True)
        for key in sweep.keys:
            column_of_run = f"{key}_found"
            if column_of_run not in joined:
                continue
            repeats_key = (
                joined[column_of_run].astype(str).equals(joined[key].astype(str))
            )
            if repeats_key:
                joined = joined.drop(columns=column_of_run)
        tables[name] = joined
    tables["runs"] = pd.DataFrame(run_rows)
    return tables


def _use_common_names(
    run: Run, table: pd.DataFrame, keys: Sequence[str], follows_lengths: bool
) -> pd.DataFrame:
    """Return a short table of one run in which columns and methods have names that all
    runs share.

    Lengths in the names become shares of the run's lengths. If `follows_lengths` is True,
    the factor of a method is replaced by `T/L`.
    """
    # The config of an experiment without trained models has neither length.
    train_len = getattr(run.config, "train_len", None)
    test_len = getattr(run.config, "test_len", None)
    table = table.rename(columns={key: f"{key}_found" for key in keys})
    table.columns = _name_columns(table, train_len, test_len)
    if not (follows_lengths and train_len and test_len):
        return table

    # A method that stretches to the tested length is the same method in every run. The
    # factor is at the end of its name, or before a blank.
    factor = re.escape(f"×{test_len / train_len:g}")
    return table.replace(rf"{factor}(?= |$)", "×T/L", regex=True)


def _drop_factor(table: pd.DataFrame, factor: float) -> pd.DataFrame:
    """Return a short table whose methods are named without the factor of the run.

    The factor is a key of the sweep, and the axis of its figure. If names had the factor,
    a method would not be one line there.
    """
    factor_in_name = re.escape(f" ×{factor:g}")
    return table.replace(rf"{factor_in_name}(?= |$)", "", regex=True)


def _has_typed_factor(run: Run) -> bool:
    """Return True if the factor of a method, or that of all methods, was given."""
    if getattr(run.config, "factor", None) is not None:
        return True
    methods = getattr(run.config, "methods", ())
    return any("factor=" in method for method in methods)


def _name_columns(
    table: pd.DataFrame, train_len: int | None, test_len: int | None
) -> list[str]:
    """Name the columns of a table by shares of a length, with as many digits as are
    needed to make all names differ.
    """
    columns: list[str] = []
    # Three digits are enough, unless two distances are nearly equal.
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
    """Name a column of a result at some length by the share that this length is of the
    trained (L) or tested length (T). Any other name is returned unchanged.

    >>> name_by_share("copy @6144", 2048, 8192), name_by_share("nll @512", 2048, 8192)
    ('copy @0.75T', 'nll @0.25L')
    >>> name_by_share("copy @6144 ci_low", 2048, 8192)
    'copy @0.75T ci_low'
    """
    result, _, length_and_words = name.partition(" @")
    # The columns with the ends of intervals have further words after the length.
    number, blank, words = length_and_words.partition(" ")
    if not number.isdecimal() or not train_len or not test_len:
        return name
    length = int(number)
    share = f"{length / test_len:.{digits}g}T"
    if length <= train_len:
        share = f"{length / train_len:.{digits}g}L"
    return f"{result} @{share}{blank}{words}"


def _find_config_value(run: Run, key: str) -> object:
    """Return a field of the run's config as one value for a cell of a table."""
    value = getattr(run.config, key)
    if not isinstance(value, tuple):
        return value
    if len(value) == 1:
        (only,) = value
        return only
    return write_plainly(value)


def _read_numbers(column: pd.Series) -> pd.Series:
    """Read a column that is written for people (`27.7%`, `4e-04`, `257`, `never`) as
    numbers.

    A column with other words, or without a number, is returned unchanged.
    """
    if pd.api.types.is_numeric_dtype(column):
        return column
    texts = column.astype(str)
    is_percentage = texts.str.endswith("%")
    numbers = pd.to_numeric(texts.str.removesuffix("%"), errors="coerce")
    is_other_word = numbers.isna() & ~texts.isin(["none", "never"])
    if numbers.isna().all() or is_other_word.any():
        return column

    # "none" means none of several things, which is a share of 0. "never" has no number,
    # and becomes NaN.
    numbers = numbers.mask(is_percentage, numbers / 100).round(12)
    return numbers.mask(texts == "none", 0.0)


def _describe_extremes(tables: Tables) -> str:
    """Say with which settings the first result is lowest and highest; return an empty
    text if no column of results has a number.
    """
    columns = choose_columns(tables)
    table = tables[EXPERIMENT]
    results = [name for name in columns.results if table[name].notna().any()]
    if not results:
        return ""

    first_result = results[0]
    values = table[first_result].to_numpy(dtype=float)
    setting_columns = (columns.axis, *columns.lines)

    def describe_row(word: str, number: int) -> str:
        row = table.iloc[number]
        settings = [f"{name} {format_value(row[name])}" for name in setting_columns]
        return f"{word} {values[number]:.4g} ({', '.join(settings)})"

    lowest = describe_row("lowest", int(np.nanargmin(values)))
    highest = describe_row("highest", int(np.nanargmax(values)))
    return f"; {first_result.replace('_', ' ')}: {lowest}, {highest}"
