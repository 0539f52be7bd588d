"""One table and one figure of all runs that a file asked for.

The table and the figure are in `results/sweep/<file>-<hash>/`. This folder is like that
of a run, so that the index, the page and `ropelab export` find it, and its config.toml
asks for the same runs again.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ropelab.lab import Lab, Run
from ropelab.runs import store
from ropelab.runs.config import Config, Label
from ropelab.runs.spelling import command_of, plain
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
    """Write the table and the figure of a sweep, unless they are there; return its
    folder.
    """
    results = lab.results
    assert results is not None
    folders = [run.folder for run in runs if run.folder]
    configs = [run.config.model_dump(mode="json", exclude_none=True) for run in runs]
    config = SweepConfig(experiment=runs[0].experiment.name, case=tuple(configs))
    inputs = store.as_inputs(results, folders)
    label = Label(sweep.path.stem)
    place = store.RunFolder(results, EXPERIMENT, VERSION, config, inputs, label)

    def make() -> store.Made:
        tables = make_tables(sweep, runs, list(inputs))
        about = _describe(sweep, runs, tables)
        return store.Made(tables, encode_figures(draw_figures(draw, tables)), about)

    # A finished sweep is found without a lock: a read-only folder cannot be locked.
    if lab.redraw or place.find() is None:
        place.keep(make, lab.waiting, lab.redraw)
    return place.path


def _describe(sweep: Sweep, runs: Sequence[Run], tables: Tables) -> dict[str, Any]:
    """Return what the manifest says about the runs together."""
    experiment = runs[0].experiment
    over = f"{experiment.name} over {' and '.join(sweep.keys)}"
    seconds = 0.0
    for run in runs:
        manifest = store.read_manifest(run.folder) if run.folder else None
        if manifest:
            seconds += manifest["seconds"]

    return {
        "title": sweep.title or over,
        "question": experiment.question,
        "cannot_show": experiment.cannot_show,
        "answer": f"{len(runs)} runs of {over}{_describe_extremes(tables)}.",
        "summary": store.to_records(tables[EXPERIMENT].head(INDEX_ROWS)),
        "command": command_of("run", {"file": sweep.path.as_posix()}, "file"),
        "start": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
    }


def make_tables(
    sweep: Sweep, runs: Sequence[Run], folders: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Make the tables of a sweep.

    sweep: the rows of every run's short table, behind the fields in which the runs
        differ. A result with the same name as such a field is called `<name>_found`. A
        result at a length is named by its share of the trained (L) or tested length
        (T): `copy @0.75T`.
    further tables: the same for each further short table that the runs have.
    runs: case, those fields, the answer, and the run's folder below the results.
    """
    lengths_differ = "train_len" in sweep.keys or "test_len" in sweep.keys
    # Factors that nobody typed are the quotient of the lengths, and change with them.
    follows_lengths = lengths_differ and not any(map(_has_typed_factor, runs))

    parts: dict[str, list[pd.DataFrame]] = {}
    rows: list[dict[str, Any]] = []
    for number, (run, folder) in enumerate(zip(runs, folders, strict=True), 1):
        fields: dict[str, Any] = {key: _value_of(run, key) for key in sweep.keys}
        short_tables = {EXPERIMENT: run.summary(), **run.further()}
        for name, short in short_tables.items():
            table = _name_like_others(run, short, sweep.keys, follows_lengths)
            if "factor" in sweep.keys:
                table = _drop_factor(table, fields["factor"])
            repeated = pd.DataFrame([fields] * len(table), index=table.index)
            part = repeated.join(table.apply(_read_numbers))
            parts.setdefault(name, []).append(part)
        rows.append({"case": number, **fields, "answer": run.answer, "folder": folder})

    tables = {name: pd.concat(each, ignore_index=True) for name, each in parts.items()}
    return {**tables, "runs": pd.DataFrame(rows)}


def _name_like_others(
    run: Run, table: pd.DataFrame, keys: Sequence[str], follows_lengths: bool
) -> pd.DataFrame:
    """Return a short table of one run, its columns and methods named relative to the
    lengths of the run, so that the names are the same in all runs.
    """
    # An experiment without trained models has neither length.
    trained = getattr(run.config, "train_len", None)
    tested = getattr(run.config, "test_len", None)
    table = table.rename(columns={key: f"{key}_found" for key in keys})
    table.columns = _relative_columns(table, trained, tested)
    if not (follows_lengths and trained and tested):
        return table

    # A method stretched to the tested length is the same method in every run.
    factor = re.escape(f"×{tested / trained:g}")
    return table.replace(rf"{factor}(?= |$)", "×T/L", regex=True)


def _drop_factor(table: pd.DataFrame, factor: float) -> pd.DataFrame:
    """Return a short table whose methods are named without the factor of the run.

    The factor is a column of the sweep: a method is then one line along it.
    """
    in_names = re.escape(f" ×{factor:g}")
    return table.replace(rf"{in_names}(?= |$)", "", regex=True)


def _has_typed_factor(run: Run) -> bool:
    methods = getattr(run.config, "methods", ())
    return any("factor=" in method for method in methods)


def _relative_columns(
    table: pd.DataFrame, trained: int | None, tested: int | None
) -> list[str]:
    """Return the columns by their shares of a length, in as many digits as tell them
    apart.
    """
    columns: list[str] = []
    # Three digits do, except for distances that are nearly equal.
    for digits in range(3, 18):
        columns = [relative(str(name), trained, tested, digits) for name in table]
        if len(set(columns)) == len(columns):
            break
    return columns


def relative(
    name: str, trained: int | None, tested: int | None, digits: int = 3
) -> str:
    """Name a column by its share of the trained (L) or tested length (T).

    >>> relative("copy @6144", 2048, 8192), relative("nll @512", 2048, 8192)
    ('copy @0.75T', 'nll @0.25L')
    """
    result, _, at = name.partition(" @")
    if not at.isdecimal() or not trained or not tested:
        return name
    place = int(at)
    if place <= trained:
        return f"{result} @{place / trained:.{digits}g}L"
    return f"{result} @{place / tested:.{digits}g}T"


def _value_of(run: Run, key: str) -> object:
    value = getattr(run.config, key)
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else plain(value)
    return value


def _read_numbers(column: pd.Series) -> pd.Series:
    """Read a column written for people (`27.7%`, `4e-04`, `257`, `never`) as
    numbers.
    """
    if pd.api.types.is_numeric_dtype(column):
        return column
    texts = column.astype(str)
    percent = texts.str.endswith("%")
    numbers = pd.to_numeric(texts.str.removesuffix("%"), errors="coerce")
    words = numbers.isna() & ~texts.isin(["none", "never"])
    if numbers.isna().all() or words.any():
        return column

    # "none" (of several) is a share of 0. "never" has no number, so it stays NaN.
    shares = numbers.where(~percent, numbers / 100).round(12)
    return shares.mask(texts == "none", 0.0)


def _describe_extremes(tables: Tables) -> str:
    """Name the settings with the lowest and highest first result; an empty text if no
    column of results has a number.
    """
    parts = choose_parts(tables)
    table = tables[EXPERIMENT]
    results = [name for name in parts.results if table[name].notna().any()]
    if not results:
        return ""

    result = results[0]
    values = table[result].to_numpy(dtype=float)
    names = (parts.along, *parts.lines)

    def describe(word: str, number: int) -> str:
        row = table.iloc[number]
        where = ", ".join(f"{name} {format_value(row[name])}" for name in names)
        return f"{word} {values[number]:.4g} ({where})"

    lowest = describe("lowest", int(np.nanargmin(values)))
    highest = describe("highest", int(np.nanargmax(values)))
    return f"; {result.replace('_', ' ')}: {lowest}, {highest}"
