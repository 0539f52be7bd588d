"""Carry out one experiment: validate, find a finished run or make one, store it, hand it over."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html import escape
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ropelab import experiments
from ropelab.errors import InputError, RopelabError, naming
from ropelab.experiments import Experiment
from ropelab.runs import store
from ropelab.runs.cell import (
    Cell,
    Context,
    Needs,
    Progress,
    Stored,
    Values,
    name_of,
    silent,
    with_starts,
)
from ropelab.runs.cells import Cells
from ropelab.runs.config import Config, Label, build
from ropelab.runs.engine import Engine, Here
from ropelab.runs.estimate import Estimate, refuse_beyond, told
from ropelab.runs.folders import Waiting, locked, say_nothing
from ropelab.runs.machine import about_dtype
from ropelab.runs.manifest import read_manifest
from ropelab.runs.notices import say
from ropelab.runs.tables import DamagedError, Tables, sha256_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# Experiments of whose runs the ledger says what they mean for published statements.
JUDGED = ("extrapolate", "encodings", "frequencies")


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
class Plan:
    """A run to be made: an experiment, its validated config, and its name for people."""

    experiment: Experiment
    config: Config
    label: Label = field(default_factory=Label)

    @property
    def waits(self) -> bool:
        """Whether the run reads the results of others."""
        return bool(self.config.reads() or self.config.requires())


@dataclass(frozen=True)
class Work:
    """The cells of a run by name, starts before what starts from them; and those to be computed."""

    cells: Mapping[str, Cell]
    left: Mapping[str, Cell]
    estimate: Estimate


@dataclass(frozen=True)
class Lab:
    """Where runs are kept and how their progress is shown.

    Args:
        results: the folder of results; None keeps everything in memory.
        force: make finished runs again.
        redraw: draw the figures of finished runs again.
        figures: draw figures where there are none yet.
        waiting: called with a folder when another process holds it.
        notice: called with a sentence that the user should see before a long computation.
        engine: computes the cells.
        workers: how many processes compute them, for estimates; None: as many as fit.
        limits: refuse work that takes more than a day, or more memory than is free.
    """

    results: Path | None = None
    force: bool = False
    redraw: bool = False
    figures: bool = True
    progress: Progress = silent
    waiting: Waiting = say_nothing
    notice: Callable[[str], None] | None = None
    engine: Engine = field(default_factory=Here)
    workers: int | None = 1
    limits: bool = True

    def prepare(
        self, name: str, values: Mapping[str, Any], called: Callable[[str], str] = str
    ) -> Plan:
        """Return a validated plan.

        Raises:
            InputError: the experiment or a value does not exist.
        """
        experiment = experiments.load(name)
        config = build(experiment.config, values, called)
        experiment.check(config)
        return Plan(experiment, config)

    def run(self, plan: Plan) -> Run:
        """Return the finished run of a plan, made now if it does not exist yet."""
        return next(run for _, run in self.run_all([plan]))

    def run_all(self, plans: Sequence[Plan]) -> Iterator[tuple[int, Run]]:
        """Make runs side by side, and yield the number of a plan and its run when it is finished.

        Runs that read the results of others, and repeated ones, follow when those are there.

        Raises:
            RopelabError: a run failed; the others are finished.
        """
        failures: list[RopelabError] = []
        first = [n for n, plan in enumerate(plans) if not plan.waits and plan not in plans[:n]]
        yield from self._side_by_side({n: plans[n] for n in first}, failures)
        for number in [n for n in range(len(plans)) if n not in first]:
            required = [self.prepare(*wanted) for wanted in plans[number].config.requires()]
            for _ in self._side_by_side(dict(enumerate(required)), failures):
                pass
            yield from self._side_by_side({number: plans[number]}, failures)
        if failures:
            raise failures[0]

    def work(self, plan: Plan, context: Context) -> Work:
        """Return the cells of a run, and what is left of them; nothing is computed."""
        cells = with_starts(plan.experiment.cells(plan.config))
        left = {name: cell for name, cell in cells.items() if not context.is_finished(cell)}
        known = plan.experiment.estimate(plan.config)
        return Work(cells, left, cost_of(left.values()) if known is None else known)

    def is_finished(self, plan: Plan) -> bool:
        """Whether a run is there and will be used; nothing is written."""
        if self.results is None or self.force:
            return False
        identity = self._identity(plan)
        try:
            return store.find(identity.folder(self.results), identity) is not None
        except DamagedError:
            return False

    def announce(self, estimate: Estimate, cells: Sequence[Cell]) -> None:
        """Say the cost of work that takes more than a minute.

        Args:
            cells: those that are still to be computed.
        Raises:
            InputError: it takes more than a day, or more memory than is free.
        """
        workers = workers_for(self.workers, cells)
        if self.limits:
            refuse_beyond(estimate, workers, room_for(estimate))
        if self.notice and (line := told(estimate, workers)):
            self.notice(line)

    def context(self) -> Context:
        """Return the surroundings of cells."""
        if self.results is None:
            return Context(self.progress, limits=self.limits)
        again = uuid4().hex if self.force else ""
        cells = Cells(self.results / ".cells", again, self.waiting)
        return Context(self.progress, cells, self.limits)

    def _side_by_side(
        self, plans: Mapping[int, Plan], failures: list[RopelabError]
    ) -> Iterator[tuple[int, Run]]:
        """Make runs that read no other one; errors are added to `failures`."""
        context, start = self.context(), _Start()
        works: dict[int, Work] = {}
        for number, plan in plans.items():
            try:
                with naming(plan.label.origin):
                    found = self._found(plan)
            except RopelabError as error:
                failures.append(error)
                continue
            if found:
                yield number, found
                continue
            if self.results is not None:
                store.check_writable(self.results)
            works[number] = self.work(plan, context)
        self._announce_all({plans[number]: work for number, work in works.items()})

        missing = {name: cell for work in works.values() for name, cell in work.left.items()}
        # Workers begin at once; runs that lack no cell are finished here meanwhile.
        done = self.engine.compute(list(missing.values()), context)
        waiting = {number: set(work.left) for number, work in works.items()}
        errors: dict[int, list[Exception]] = {number: [] for number in works}
        ready = [number for number, left in waiting.items() if not left]
        for cell, failed in chain([(None, None)], done):
            if cell is not None:
                name = name_of(cell)
                ready = [number for number, left in waiting.items() if name in left]
            for number in ready:
                if cell is not None:
                    waiting[number].discard(name)
                if failed and failed not in errors[number]:
                    errors[number].append(failed)
                if waiting[number] or errors[number]:
                    continue
                try:
                    with naming(plans[number].label.origin):
                        yield number, self._make(plans[number], works[number], context, start)
                except RopelabError as raised:
                    failures.append(raised)
        for number, raised_by in errors.items():
            if raised_by:
                failures.append(_one_error(raised_by, plans[number].label.origin))

    def _announce_all(self, works: Mapping[Plan, Work]) -> None:
        """Say the cost of all runs together; refuse where a run, or all of them, cost too much."""
        for plan, work in works.items():
            with naming(plan.label.origin):
                replace(self, notice=None).announce(work.estimate, list(work.left.values()))
        left = {name: cell for work in works.values() for name, cell in work.left.items()}
        whole = [work.estimate for work in works.values() if not work.cells]
        self.announce(sum(whole, cost_of(left.values())), list(left.values()))
        # How training computes, so that a slow machine is no surprise.
        configs = [plan.config.model_dump() for plan in works]
        chosen = {(c["dtype"], c.get("device", "")) for c in configs if c.get("dtype")}
        for dtype, device in sorted(chosen):
            if self.notice:
                self.notice(about_dtype(dtype, device))

    def _found(self, plan: Plan) -> Run | None:
        """The finished run of a plan, its figures drawn; None where it is to be made."""
        if self.results is None or self.force:
            return None
        identity = self._identity(plan)
        folder = identity.folder(self.results)
        try:
            run = self._stored(plan, identity, folder)
        except DamagedError as error:
            say(f"{error}: the run is made again")
            return None
        if run is None or not self._to_draw(folder):
            return run
        try:
            store.check_writable(self.results)
        except InputError as error:
            if self.redraw:
                raise
            say(f"figures are not drawn: {error}")
            return run
        with locked(folder, self.waiting):
            store.add_figures(folder, run.pictures())
        return run

    def _stored(self, plan: Plan, identity: store.Identity, folder: Path) -> Run | None:
        """The finished run of a folder, None without one, DamagedError where it was changed."""
        found = store.find(folder, identity)
        if found is None:
            return None
        answer = plan.experiment.answer(found[1])
        return Run(plan.experiment, identity.config, found[1], answer, folder, reused=True)

    def _to_draw(self, folder: Path) -> bool:
        """Whether a stored run lacks figures that are wanted, or has some that are damaged."""
        manifest = read_manifest(folder)
        if manifest is None or self.redraw:
            return self.redraw
        drawn = manifest["figures"] is not None and store.has_whole_figures(folder, manifest)
        return self.figures and not drawn

    def _identity(self, plan: Plan) -> store.Identity:
        assert self.results is not None
        config, experiment = plan.config, plan.experiment
        stored = {
            folder.relative_to(self.results).as_posix(): sha256_of(folder / "manifest.json")
            for folder, _, _ in store.undamaged(self.results, config.reads())
        }
        inputs = {**config.inputs(), **stored}
        return store.Identity(experiment.name, experiment.version, config, inputs, plan.label)

    def _make(self, plan: Plan, work: Work, context: Context, start: "_Start") -> Run:
        """Make the tables of a run whose cells are finished, and store them."""
        experiment, config = plan.experiment, plan.config
        if self.results is None:
            tables = _tables(plan, Values(context))
            return Run(experiment, config, tables, experiment.answer(tables))
        results = self.results
        identity = self._identity(plan)
        folder = identity.folder(results)
        with locked(folder, self.waiting):
            # Another process may have made it meanwhile.
            found = None
            with suppress(DamagedError):
                found = None if self.force else self._stored(plan, identity, folder)
            if found is None:
                values = Values(context, lambda name: _stored_runs(results, name))
                self._save(plan, identity, folder, work, values, start)
                found = self._stored(plan, identity, folder)
                if found is None:
                    raise DamagedError(f"what was just written to {folder} cannot be read back")
                found = replace(found, reused=False)
        return found

    def _save(
        self,
        plan: Plan,
        identity: store.Identity,
        folder: Path,
        work: Work,
        values: Values,
        start: "_Start",
    ) -> None:
        experiment, config = plan.experiment, plan.config
        tables = _tables(plan, values)
        run = Run(experiment, config, tables, experiment.answer(tables))
        times = experiment.times(config, values)
        counts = {"computed": len(work.left), "reused": len(work.cells) - len(work.left)}
        about = {
            **_optional(title=plan.label.title),
            "question": config.asks(experiment.question),
            "cannot_show": experiment.cannot_show,
            "answer": run.answer,
            "summary": store.to_records(run.summary()),
            "command": store.command_of(identity),
            "start": start.date.isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - start.clock, 3),
            **_optional(
                measurements=counts if work.cells else {},
                times={name: store.to_records(table) for name, table in times.items()},
            ),
        }
        store.save(folder, identity, tables, run.pictures() if self.figures else None, about)


@dataclass(frozen=True)
class _Start:
    """When work began."""

    date: datetime = field(default_factory=lambda: datetime.now(UTC))
    clock: float = field(default_factory=time.perf_counter)


def _tables(plan: Plan, values: Values) -> Tables:
    """The tables of a run; those of experiments that the ledger judges end in `literature`."""
    tables = dict(plan.experiment.tables(plan.config, values))
    if plan.experiment.name in JUDGED:
        # Imported here: the mathematics answers without torch, and the ledger is above them.
        from ropelab.claims.ledger import judged

        config = plan.config.model_dump(mode="json")
        tables["literature"] = judged(plan.experiment.name, config, tables)
    return tables


def _stored_runs(results: Path, name: str) -> list[Stored]:
    return store.stored_runs(results, name, experiments.load(name).version)


def _one_error(errors: Sequence[Exception], origin: str) -> RopelabError:
    """One error for all cells that failed; one that is no user's business is raised as it is."""
    first = next((error for error in errors if not isinstance(error, RopelabError)), errors[0])
    if not isinstance(first, RopelabError):
        raise first
    more = f" (and {len(errors) - 1} more failed)" if len(errors) > 1 else ""
    return type(first)(f"{f'{origin}: ' if origin else ''}{first}{more}")


def cost_of(cells: Iterable[Cell]) -> Estimate:
    """Add up what cells cost."""
    return sum((cell.needs.cost() for cell in cells), Estimate())


def workers_for(asked: int | None, cells: Sequence[Cell]) -> int:
    """How many processes compute cells side by side, as the engine will decide."""
    if asked == 1 or not cells:
        return 1
    from ropelab.runs.engine.capacity import machine_for

    return machine_for(asked, [cell.needs for cell in cells]).workers


def room_for(estimate: Estimate) -> float:
    """Bytes that work may need; this machine is asked only where it could be too much."""
    # With less memory free than an ordinary cell needs, one is tried anyway.
    ordinary = Needs().memory_bytes
    if estimate.bytes <= ordinary:
        return ordinary
    from ropelab.runs.engine.capacity import available_memory

    return available_memory()


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
    return lab.run(lab.prepare(name, values))
