"""Carry out one experiment: validate, find a finished run or make one, store it, hand it over."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ropelab import experiments
from ropelab.errors import InputError
from ropelab.experiments import Experiment
from ropelab.runs import store
from ropelab.runs.cells import Cells
from ropelab.runs.config import Config, Label, build
from ropelab.runs.context import Cell, Context, Engine, InThisProcess, Progress, silent
from ropelab.runs.estimate import Estimate, refuse_beyond, told
from ropelab.runs.folders import Waiting, locked, say_nothing
from ropelab.runs.machine import about_dtype
from ropelab.runs.manifest import read_manifest
from ropelab.runs.notices import say
from ropelab.runs.outlook import outlook, room_for, workers_for
from ropelab.runs.tables import DamagedError, Tables, sha256_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Run:
    """One finished run.

    Attributes:
        tables: table name to DataFrame, full precision.
        answer: the finding in one or two sentences, computed from the tables.
        folder: where it lies on disk; None if it was kept in memory.
        reused: True if it had been made before.
    """

    experiment: Experiment
    config: Config
    tables: Tables
    answer: str
    folder: Path | None = None
    reused: bool = False

    def __repr__(self) -> str:
        where = f" in {self.folder}" if self.folder else ""
        return f"<Run of {self.experiment.name}{where}: {shorten(self.answer, 100)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: question, answer, the short table, the names of the tables."""
        from ropelab.show.terminal import format_value

        shown = self.summary().map(format_value).to_html(index=False, border=0)
        names = ", ".join(f"{name} ({len(table)} rows)" for name, table in self.tables.items())
        return (
            f"<p><b>{escape(self.config.asks(self.experiment.question))}</b></p><p>{escape(self.answer)}</p>"
            f"{shown}<p>tables: {escape(names)}</p>"
        )

    def summary(self) -> "pd.DataFrame":
        """The short table that the terminal shows."""
        return self.experiment.summary(self.tables)

    def figures(self, style: str = "screen") -> "dict[str, Figure]":
        """Draw the figures from the tables; `paper` for a printed column, 3.3 in of 8 pt."""
        from ropelab.show.drawn import finished

        return finished(self.experiment.draw, self.tables, style)

    def pictures(self) -> dict[str, bytes]:
        """Return the figures as PNG files by name."""
        from ropelab.show.drawn import as_files

        return as_files(self.figures())


@dataclass(frozen=True)
class Lab:
    """Where runs are kept and how their progress is told.

    Args:
        results: the folder of results; None keeps everything in memory.
        force: make runs again that are finished.
        redraw: draw the figures of finished runs again.
        figures: draw figures where there are none yet.
        waiting: called with a folder when another process holds it.
        notice: called with a sentence that the user should see before a long computation.
        engine: where cells are computed.
        workers: how many processes compute them, for estimates; None: as many as fit.
        limits: refuse work that takes more than a day, or more memory than there is.
        foretold: what the work costs has been said already.
    """

    results: Path | None = None
    force: bool = False
    redraw: bool = False
    figures: bool = True
    progress: Progress = silent
    waiting: Waiting = say_nothing
    notice: Callable[[str], None] | None = None
    engine: Engine = field(default_factory=InThisProcess)
    workers: int | None = 1
    limits: bool = True
    foretold: bool = False

    def prepare(
        self, name: str, values: Mapping[str, Any], called: Callable[[str], str] = str
    ) -> tuple[Experiment, Config]:
        """The experiment and its validated config.

        Raises:
            InputError: the experiment or a value is not one that exists.
        """
        experiment = experiments.load(name)
        config = build(experiment.config.chosen_by(values), values, called)
        experiment.check(config)
        return experiment, config

    def carry_out(self, experiment: Experiment, config: Config, label: Label | None = None) -> Run:
        """A finished run of that config, made now, under that label, if it does not exist yet."""
        if self.results is None:
            context = Context(progress=self.progress, engine=self.engine, limits=self.limits)
            self._weigh(experiment, config, context)
            tables = experiment.run(config, context)
            return Run(experiment, config, tables, experiment.answer(tables))
        for name, values in config.requires():  # nobody has told yet what these cost
            replace(self, foretold=False).carry_out(*self.prepare(name, values))
        identity = self._identity(experiment, config, label or Label())
        folder = identity.folder(self.results)
        run = None
        with suppress(DamagedError):  # said by whoever makes it again
            run = None if self.force else self._stored(experiment, identity, folder)
        if run and not self._to_draw(folder):
            return run
        try:
            store.check_writable(self.results)
        except InputError as error:
            if run is None or self.redraw:
                raise
            say(f"figures are not drawn: {error}")
            return run
        with locked(folder, self.waiting):
            return self._under_lock(experiment, identity, folder)

    def _under_lock(self, experiment: Experiment, identity: store.Identity, folder: Path) -> Run:
        """The run, made or drawn where another process has not done so by now."""
        try:
            run = None if self.force else self._stored(experiment, identity, folder)
        except DamagedError as error:
            say(f"{error}: the run is made again")
            run = None
        if run is None:
            self._make(experiment, identity, folder)
            made = self._stored(experiment, identity, folder)
            if made is None:
                raise DamagedError(f"what was just written to {folder} cannot be read back")
            return replace(made, reused=False)
        if self._to_draw(folder):
            store.add_figures(folder, run.pictures())
        return run

    def _stored(self, experiment: Experiment, identity: store.Identity, folder: Path) -> Run | None:
        """The finished run of that folder, None without one, DamagedError for what is none now."""
        found = store.find(folder, identity)
        if found is None:
            return None
        tables = found[1]
        answer = experiment.answer(tables)
        return Run(experiment, identity.config, tables, answer, folder, reused=True)

    def _to_draw(self, folder: Path) -> bool:
        """Whether a stored run lacks figures that are wanted, or has some that are damaged."""
        manifest = read_manifest(folder)
        if manifest is None or self.redraw:
            return self.redraw
        drawn = manifest["figures"] is not None and store.has_whole_figures(folder, manifest)
        return self.figures and not drawn

    def _identity(self, experiment: Experiment, config: Config, label: Label) -> store.Identity:
        assert self.results is not None
        stored = {
            folder.relative_to(self.results).as_posix(): sha256_of(folder / "manifest.json")
            for folder, _, _ in store.undamaged(self.results, config.reads())
        }
        inputs = {**config.inputs(), **stored}
        return store.Identity(experiment.name, experiment.version, config, inputs, label)

    def _make(self, experiment: Experiment, identity: store.Identity, folder: Path) -> None:
        start, clock = datetime.now(UTC), time.perf_counter()
        context = self.context()
        self._weigh(experiment, identity.config, context)
        self._announce(identity.config)
        tables = experiment.run(identity.config, context)
        run = Run(experiment, identity.config, tables, experiment.answer(tables))
        about = {
            **_optional(title=identity.label.title),
            "question": identity.config.asks(experiment.question),
            "cannot_show": experiment.cannot_show,
            "answer": run.answer,
            "summary": store.to_records(run.summary()),
            "command": store.command_of(identity),
            "start": start.isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - clock, 3),
            **_optional(measurements=context.cells.counts(), times=context.times),
        }
        store.save(folder, identity, tables, run.pictures() if self.figures else None, about)

    def is_finished(
        self, experiment: Experiment, config: Config, label: Label | None = None
    ) -> bool:
        """Whether a run of that config is there and will be used; nothing is written."""
        if self.results is None or self.force:
            return False
        identity = self._identity(experiment, config, label or Label())
        try:
            return store.find(identity.folder(self.results), identity) is not None
        except DamagedError:
            return False

    def foretell(self, estimate: Estimate, cells: Sequence[Cell]) -> None:
        """Say what work costs that takes more than a minute.

        Args:
            cells: those that are still to be computed.
        Raises:
            InputError: it takes more than a day, or more memory than there is.
        """
        workers = workers_for(self.workers, cells)
        if self.limits:
            refuse_beyond(estimate, workers, room_for(estimate))
        if self.notice and (line := told(estimate, workers)):
            self.notice(line)

    def _weigh(self, experiment: Experiment, config: Config, context: Context) -> None:
        if not self.foretold:
            ahead = outlook(experiment, config, context)
            self.foretell(ahead.estimate, ahead.left)

    def _announce(self, config: Config) -> None:
        """Tell how a training run computes, so that a slow machine is no surprise."""
        dtype, device = getattr(config, "dtype", None), getattr(config, "device", "")
        if self.notice and dtype:
            self.notice(about_dtype(dtype, device))

    def context(self) -> Context:
        """What a run gets that is kept in the results folder."""
        results = self.results
        assert results is not None
        return Context(
            self.progress,
            Cells(results / ".cells", uuid4().hex if self.force else "", self.waiting),
            lambda name: store.stored_runs(results, name, experiments.load(name).version),
            engine=self.engine,
            limits=self.limits,
        )


def _optional(**entries: Any) -> dict[str, Any]:
    """Manifest entries that only some experiments have."""
    return {name: entry for name, entry in entries.items() if entry}


def run(
    name: str,
    *,
    results: str | Path | None = None,
    force: bool = False,
    limits: bool = True,
    **values: Any,
) -> Run:
    """Run an experiment from Python: `run("precision", base=1e6).tables["resolution"]`.

    Args:
        results: a results folder in which the run is kept and found again; None: in memory.
        force: run again what is finished.
        limits: refuse what takes more than a day, or more memory than there is.
        values: the fields of the experiment's config, as on the command line.
    Raises:
        InputError: a value that is not allowed, or work beyond the limits.
    """
    folder = Path(results) if results is not None else None
    lab = Lab(results=folder, force=force, limits=limits)
    return lab.carry_out(*lab.prepare(name, values))
