"""One table and one figure of all runs that a file asked for.

They are in `results/sweep/<file>-<hash>/`, a folder like that of a run, so that the index, the page
and `ropelab export` find them. Its config.toml asks for the same runs again.
"""

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ropelab.lab import Lab, Run
from ropelab.runs import store
from ropelab.runs.config import Config, Label
from ropelab.runs.folders import locked
from ropelab.runs.manifest import read_manifest
from ropelab.runs.tables import Tables, sha256_of
from ropelab.show.drawn import as_files, finished
from ropelab.show.figures.sweep import Parts, draw, parts_of
from ropelab.show.terminal import format_value
from ropelab.sweeps.cases import Sweep, plain

EXPERIMENT, VERSION = "sweep", 1
# Rows that the index shows.
SHOWN = 24


class SweepConfig(Config):
    """The runs of a sweep: what its config.toml says."""

    experiment: str = ""
    case: tuple[dict[str, Any], ...] = ()


def combine(sweep: Sweep, runs: Sequence[Run], lab: Lab) -> Path:
    """Write the table and the figure of a sweep, unless they are there; gives its folder.

    Args:
        runs: all runs of the sweep, in its order.
    """
    assert lab.results is not None
    tables = combined(sweep, runs, lab.results)
    identity = _identity(sweep, runs, lab.results)
    folder = identity.folder(lab.results)
    with locked(folder, lab.waiting):
        if lab.redraw or not store.is_there(folder, identity):
            pictures = as_files(finished(draw, tables))
            store.save(folder, identity, tables, pictures, _about(sweep, runs, tables))
    return folder


def combined(sweep: Sweep, runs: Sequence[Run], results: Path) -> dict[str, pd.DataFrame]:
    """Make the tables of a sweep.

    sweep: the rows of every run's short table, behind the fields in which the runs differ; a
        result of the same name as such a field is called `<name>_found`.
    runs: case, those fields, the answer, and the run's folder below the results.
    """
    settings = [{key: _value(run, key) for key in sweep.keys} for run in runs]
    parts = [
        _behind(own, run.summary().rename(columns={key: f"{key}_found" for key in sweep.keys}))
        for own, run in zip(settings, runs, strict=True)
    ]
    about = [
        {
            "case": number,
            **own,
            "answer": run.answer,
            "folder": run.folder.relative_to(results).as_posix() if run.folder else None,
        }
        for number, (own, run) in enumerate(zip(settings, runs, strict=True), 1)
    ]
    return {EXPERIMENT: pd.concat(parts, ignore_index=True), "runs": pd.DataFrame(about)}


def _value(run: Run, key: str) -> object:
    value = getattr(run.config, key)
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else plain(value)
    return value


def _behind(own: Mapping[str, object], table: pd.DataFrame) -> pd.DataFrame:
    """Put a short table behind columns that identify its run; shares in percent become numbers."""
    repeated = pd.DataFrame([own] * len(table), index=table.index)
    return repeated.join(table.apply(_shares))


def _shares(column: pd.Series) -> pd.Series:
    """Read a column of shares written for people (`27.7%`, `4e-04`, `none`) as numbers."""
    if pd.api.types.is_numeric_dtype(column):
        return column
    texts = column.astype(str)
    percent = texts.str.endswith("%")
    numbers = pd.to_numeric(texts.str.removesuffix("%"), errors="coerce")
    if numbers.isna().all() or (numbers.isna() & (texts != "none")).any():
        return column
    return numbers.where(~percent, numbers / 100).round(12).fillna(0.0)


def _identity(sweep: Sweep, runs: Sequence[Run], results: Path) -> store.Identity:
    configs = [run.config.model_dump(mode="json", exclude_none=True) for run in runs]
    config = SweepConfig(experiment=runs[0].experiment.name, case=tuple(configs))
    inputs = {
        run.folder.relative_to(results).as_posix(): sha256_of(run.folder / "manifest.json")
        for run in runs
        if run.folder
    }
    return store.Identity(EXPERIMENT, VERSION, config, inputs, Label(sweep.path.stem))


def _about(sweep: Sweep, runs: Sequence[Run], tables: Tables) -> dict[str, Any]:
    experiment, table = runs[0].experiment, tables[EXPERIMENT]
    over = f"{experiment.name} over {' and '.join(sweep.keys)}"
    manifests = [read_manifest(run.folder) for run in runs if run.folder]
    said = f"{len(runs)} runs of {over}"
    return {
        "title": sweep.title or over,
        "question": experiment.question,
        "cannot_show": experiment.cannot_show,
        "answer": "; ".join(filter(None, (said, _said(tables)))) + ".",
        "summary": store.to_records(table.head(SHOWN)),
        "command": shlex.join(["ropelab", "run", sweep.path.as_posix()]),
        "start": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": sum(manifest["seconds"] for manifest in manifests if manifest),
    }


def _said(tables: Tables) -> str:
    """Name the settings with the lowest and highest first result; empty where none was found."""
    parts, table = parts_of(tables), tables[EXPERIMENT]
    result = next((name for name in parts.results if table[name].notna().any()), None)
    if result is None:
        return ""
    found = table[result].to_numpy(dtype=float)
    ends = (("lowest", int(np.nanargmin(found))), ("highest", int(np.nanargmax(found))))
    told = (f"{word} {found[row]:.4g} ({_where(table.iloc[row], parts)})" for word, row in ends)
    return f"{result.replace('_', ' ')}: {', '.join(told)}"


def _where(row: pd.Series, parts: Parts) -> str:
    return ", ".join(f"{name} {format_value(row[name])}" for name in (parts.along, *parts.lines))
