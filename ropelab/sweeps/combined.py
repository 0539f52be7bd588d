"""One table and one figure of all runs that a file asked for.

They are in `results/sweep/<file>-<hash>/`, a folder like that of a run, so that the
index, the page and `ropelab export` find them. Its config.toml asks for the same runs
again.
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
from ropelab.show.drawn import as_files, finished
from ropelab.show.figures.sweep import draw, parts_of
from ropelab.show.terminal import format_value
from ropelab.sweeps.cases import Sweep

EXPERIMENT, VERSION = "sweep", 2
# Rows that the index shows.
SHOWN = 24


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
    inputs, label = store.as_inputs(results, folders), Label(sweep.path.stem)
    place = store.RunFolder(results, EXPERIMENT, VERSION, config, inputs, label)

    def make() -> store.Made:
        tables = combined(sweep, runs, list(inputs))
        manifests = [store.read_manifest(folder) for folder in folders]
        experiment = runs[0].experiment
        over = f"{experiment.name} over {' and '.join(sweep.keys)}"
        about = {
            "title": sweep.title or over,
            "question": experiment.question,
            "cannot_show": experiment.cannot_show,
            "answer": f"{len(runs)} runs of {over}{_extremes(tables)}.",
            "summary": store.to_records(tables[EXPERIMENT].head(SHOWN)),
            "command": command_of("run", {"file": sweep.path.as_posix()}, "file"),
            "start": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": sum(manifest["seconds"] for manifest in manifests if manifest),
        }
        return store.Made(tables, as_files(finished(draw, tables)), about)

    # Looked at before it is locked, which a folder that is only read does not allow.
    if lab.redraw or place.find() is None:
        place.kept(make, lab.waiting, lab.redraw)
    return place.path


def combined(
    sweep: Sweep, runs: Sequence[Run], folders: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Make the tables of a sweep.

    sweep: the rows of every run's short table (and of further ones, each in a table of
        its own), behind the fields in which the runs
    differ; a
        result of the same name as such a field is called `<name>_found`, and one at a length
        after the share of the trained (L) or tested length (T): `copy @0.75T`.
    runs: case, those fields, the answer, and the run's folder below the results.
    """
    parts: dict[str, list[pd.DataFrame]] = {}
    about = []
    typed = any(
        "factor=" in name for run in runs for name in getattr(run.config, "methods", ())
    )
    for number, (run, folder) in enumerate(zip(runs, folders, strict=True), 1):
        trained, tested = (
            getattr(run.config, one, None) for one in ("train_len", "test_len")
        )
        own = {key: _value(run, key) for key in sweep.keys}
        for name, short in {EXPERIMENT: run.summary(), **run.further()}.items():
            table = short.rename(columns={key: f"{key}_found" for key in sweep.keys})
            table.columns = _relative_columns(table, trained, tested)
            if (
                trained
                and tested
                and not typed
                and {"train_len", "test_len"} & {*sweep.keys}
            ):
                # The same method in every run, stretched to the tested length.
                factor = re.escape(f"×{tested / trained:g}")
                table = table.replace(rf"{factor}(?= |$)", "×T/L", regex=True)
            repeated = pd.DataFrame([own] * len(table), index=table.index)
            parts.setdefault(name, []).append(repeated.join(table.apply(_numbers)))
        about.append({"case": number, **own, "answer": run.answer, "folder": folder})
    tables = {name: pd.concat(each, ignore_index=True) for name, each in parts.items()}
    return tables | {"runs": pd.DataFrame(about)}


def _relative_columns(
    table: pd.DataFrame, trained: int | None, tested: int | None
) -> list[str]:
    """Name columns by shares of lengths, with as many digits as keep them apart."""
    columns = [str(name) for name in table]
    for digits in range(3, 18):
        shares = [relative(name, trained, tested, digits) for name in columns]
        if len({*shares}) == len(shares):
            return shares
    return columns


def relative(
    name: str, trained: int | None, tested: int | None, digits: int = 3
) -> str:
    """Name a column by its share of the trained (L) or tested length (T), as all runs
    can.

    >>> relative("copy @6144", 2048, 8192), relative("nll @512", 2048, 8192)
    ('copy @0.75T', 'nll @0.25L')
    """
    result, _, at = name.partition(" @")
    if not at.isdecimal() or not trained or not tested:
        return name
    length, unit = (trained, "L") if int(at) <= trained else (tested, "T")
    return f"{result} @{int(at) / length:.{digits}g}{unit}"


def _value(run: Run, key: str) -> object:
    value = getattr(run.config, key)
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else plain(value)
    return value


def _numbers(column: pd.Series) -> pd.Series:
    """Read a column written for people (`27.7%`, `4e-04`, `257`, `never`) as
    numbers.
    """
    if pd.api.types.is_numeric_dtype(column):
        return column
    texts = column.astype(str)
    percent = texts.str.endswith("%")
    numbers = pd.to_numeric(texts.str.removesuffix("%"), errors="coerce")
    if numbers.isna().all() or (numbers.isna() & ~texts.isin(["none", "never"])).any():
        return column
    # None of some is a share of 0; what never happens has no place.
    return numbers.where(~percent, numbers / 100).round(12).mask(texts == "none", 0.0)


def _extremes(tables: Tables) -> str:
    """Name the settings with the lowest and highest first result; empty where none was
    found.
    """
    parts, table = parts_of(tables), tables[EXPERIMENT]
    result = next((name for name in parts.results if table[name].notna().any()), None)
    if result is None:
        return ""
    found = table[result].to_numpy(dtype=float)
    ends = []
    for word, row in (
        ("lowest", np.nanargmin(found)),
        ("highest", np.nanargmax(found)),
    ):
        at = table.iloc[int(row)]
        names = (parts.along, *parts.lines)
        where = ", ".join(f"{name} {format_value(at[name])}" for name in names)
        ends.append(f"{word} {found[row]:.4g} ({where})")
    return f"; {result.replace('_', ' ')}: {', '.join(ends)}"
