"""A finished run as a page shows it, read from its folder.

The folder has the tables of the run and a manifest: its experiment, question, config,
command and answer. A function, `judge`, says what the tables mean for published
statements.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from ropelab.runs import store
from ropelab.runs.errors import InputError, say
from ropelab.runs.files import check_name
from ropelab.runs.spelling import split_list
from ropelab.runs.tables import DamagedError, Tables

# Fields of the config that the page shows even if they have their defaults, since numbers
# may depend on them.
FIXED = ("seeds", "seed", "device")
# The name of the table of verdicts on published statements, and the type of the
# function that makes this table from the experiment, the config and the tables of a
# run.
VERDICTS = "literature"
Judge = Callable[[str, Mapping[str, Any], Tables], pd.DataFrame]
# The type of a function that writes the sentences of a manifest anew from the run's
# tables (`ropelab.restate`).
Restate = Callable[[Mapping[str, Any], Tables], Mapping[str, Any]]


@dataclass(frozen=True)
class ShownRun:
    """One finished run: its folder, its manifest and its tables."""

    folder: Path
    manifest: Mapping[str, Any]
    # The tables as they are stored, including tables without rows.
    stored_tables: Tables = field(default_factory=dict, compare=False, repr=False)
    # The function that makes the table of verdicts on published statements; None if the
    # run has no table of verdicts.
    judge: Judge | None = field(default=None, compare=False, repr=False)
    # The same run with the sentences that are stored, if `manifest` has other sentences.
    # Its verdicts are taken, so that the tables are not judged again.
    original: "ShownRun | None" = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> str:
        """The name of the run in links: `precision-8fe969aa`."""
        safe_name = re.sub(r"[^A-Za-z0-9]+", "-", self.folder.name)
        run_hash = safe_name.rsplit("-", 1)[-1]
        return f"{self.manifest['experiment']}-{run_hash}"

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """The verdicts on published statements that follow from this run alone."""
        if self.original is not None:
            return self.original.verdicts
        if self.judge is None:
            return pd.DataFrame()
        experiment = self.manifest["experiment"]
        return self.judge(experiment, self.manifest["config"], self.stored_tables)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables that have rows, in the order of the manifest, and the verdicts
        last.
        """
        tables = {name: self.stored_tables[name] for name in self.manifest["tables"]}
        # Runs of an earlier version have stored verdicts, which are made again here.
        tables.pop(VERDICTS, None)
        tables[VERDICTS] = self.verdicts
        return {name: table for name, table in tables.items() if len(table)}

    @property
    def settings(self) -> list[tuple[str, str]]:
        """The settings that are not defaults: each flag of the command, as words, with
        its value.

        >>> ShownRun(Path("x"), {"command": "ropelab base --context 32768 --no-slow"}).settings
        [('context', '32768'), ('slow', 'no')]
        >>> ShownRun(Path("x"), {"command": "ropelab evaluate gpt2 --length 4096"}).settings
        [('model', 'gpt2'), ('length', '4096')]
        """
        words = shlex.split(self.manifest["command"])[2:]
        settings = []
        # A command has at most one argument, a model, before its flags.
        if words and not words[0].startswith("--"):
            settings.append(("model", words[0]))

        # A flag is followed by its value, by the next flag, or by the end, `--`.
        for word, following in pairwise([*words, "--"]):
            if not word.startswith("--"):
                continue
            name = word.removeprefix("--").replace("-", " ")
            if not following.startswith("--"):
                settings.append((name, ", ".join(split_list(following))))
            elif word.startswith("--no-"):
                settings.append((name.removeprefix("no "), "no"))
            else:
                settings.append((name, "yes"))
        return settings

    @property
    def label(self) -> str:
        """The title of the run's config file, or else its settings in one line."""
        settings = ", ".join(f"{name} {value}".strip() for name, value in self.settings)
        return self.manifest.get("title") or settings or "defaults"


def write_day(start: str) -> str:
    """Write the day of a time as people do; empty if the text is not a time.

    >>> write_day("2026-11-02T03:04:05+00:00"), write_day("?")
    ('2 November 2026', '')
    """
    try:
        start_time = datetime.fromisoformat(start)
    except ValueError:
        return ""
    return f"{start_time.day} {start_time:%B %Y}"


def find_runs(
    paths: Sequence[Path], judge: Judge | None = None, restate: Restate | None = None
) -> list[ShownRun]:
    """Return the finished runs in `paths`: folders of runs, or of results.

    `judge` makes the table of verdicts of each run, and `restate` writes its sentences
    anew. A run that cannot be shown is left out, with a notice. InputError: a path has
    no run.
    """
    runs: dict[Path, ShownRun] = {}
    for path in paths:
        check_name(path)
        runs_at_path = _find_runs_at(path, judge, restate)
        if not runs_at_path:
            raise InputError(
                f"no finished run in {path}; give a run's folder or a results folder"
            )
        runs |= runs_at_path

    # Links of the page use the key, which follows from the config. Of two runs with the
    # same key the first is shown.
    by_key: dict[str, ShownRun] = {}
    for run in runs.values():
        first = by_key.setdefault(run.key, run)
        if first is not run:
            say(f"left out: {run.folder}: the same run as {first.folder}")
    return list(by_key.values())


def _find_runs_at(
    path: Path, judge: Judge | None, restate: Restate | None
) -> dict[Path, ShownRun]:
    """Return the runs of one path that can be shown, by their folders."""
    manifest_here = store.read_manifest(path)
    if manifest_here is not None:
        finished = [(path, manifest_here)]
    else:
        finished = list(store.find_finished(path))

    runs = {}
    for folder, manifest in finished:
        try:
            run = _read_run(folder, manifest, judge)
        except (DamagedError, ValueError) as error:
            reason = " ".join(str(error).split())
            say(f"left out: {folder}: {reason}")
            continue
        if restate is not None:
            restated = restate(run.manifest, run.stored_tables)
            run = replace(run, manifest=restated, original=run)
        runs[folder.resolve()] = run
    return runs


def _read_run(
    folder: Path, manifest: Mapping[str, Any], judge: Judge | None
) -> ShownRun:
    """Return a run with its tables. DamagedError or ValueError: it cannot be shown."""
    # Another process may have replaced the run since its manifest was read.
    latest, tables = store.read_tables(folder, manifest)
    run = ShownRun(folder, latest, tables, judge)
    # Both properties raise an error if the manifest was changed.
    if not (run.tables and run.label):
        raise ValueError("it has no table with rows")
    return run
