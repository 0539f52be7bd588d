"""The lab, which makes runs: it checks a config, computes the cells that the run needs,
and stores its tables.

A cell is one measurement, such as the training of a model or its evaluation. Cells are
stored, and runs that need the same cell share it. `Lab.run_all` is the way from plans,
which are runs to be made, to runs (plan.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ropelab import experiments
from ropelab.experiments import Experiment
from ropelab.math.models import is_known
from ropelab.plan import Plan, Run, Work, unite
from ropelab.runs import store
from ropelab.runs.arguments import check_texts, read_path
from ropelab.runs.cell import (
    Cell,
    Cells,
    Context,
    Progress,
    Resources,
    Stored,
    Values,
    hash_cell,
    list_with_prerequisites,
    silent,
)
from ropelab.runs.config import build, respell
from ropelab.runs.engine import Engine, Here
from ropelab.runs.errors import InputError, RopelabError, naming, needing_packages
from ropelab.runs.estimate import MINUTE, refuse_beyond, refuse_longer
from ropelab.runs.files import check_name
from ropelab.runs.folders import Waiting, say_nothing
from ropelab.runs.machine import explain_dtype, find_free_memory, use_library_defaults
from ropelab.runs.own import find_sources
from ropelab.runs.tables import convert_to_stored

if TYPE_CHECKING:
    from ropelab.runs.tables import EarlyTable


@dataclass(frozen=True)
class Stopwatch:
    """The time of day at which it was made, and the seconds since then."""

    start: datetime = field(default_factory=lambda: datetime.now(UTC))
    # The time of day may be set while a run is made. A monotonic clock only counts.
    _monotonic_start: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        return monotonic() - self._monotonic_start


@dataclass(frozen=True)
class Lab:
    """A place for runs, and the means to make them."""

    # The folder of all runs; None keeps everything in memory.
    results: Path | None = None
    # True makes finished runs again.
    force: bool = False
    # True draws the figures of finished runs again.
    redraw: bool = False
    # True draws the figures of runs that have none.
    figures: bool = True
    # Shows how much of the work is done.
    progress: Progress = silent
    # It is called with a folder that another process holds, while the lab waits for it.
    waiting: Waiting = say_nothing
    # It is called with what a user should read before long work; None for no notices.
    notice: Callable[[str], None] | None = None
    # It is called with the short table of a run while it fills; None if nobody watches.
    watch: "Callable[[EarlyTable], None] | None" = None
    # Computes cells, here or in other processes.
    engine: Engine = field(default_factory=Here)
    # The number of processes of the engine, for estimates; None for as many as fit.
    workers: int | None = 1
    # True refuses work of more than a day, or of more memory than is free.
    limits: bool = True
    # Work that is estimated to take more seconds is refused.
    most_seconds: float = inf

    def __post_init__(self) -> None:
        check_name(self.results)

    def prepare(
        self,
        name: str,
        values: Mapping[str, Any],
        write_field: Callable[[str], str] = str,
    ) -> Plan:
        """Return the plan of a run.

        Args:
            name: the name of the experiment.
            values: the fields of its config.
            write_field: returns the name of a field as the user typed it, for errors.

        InputError: the experiment does not exist, or a value is not allowed.
        """
        experiment = experiments.load(name)
        values = _read_model_file(experiment, values)
        config = build(experiment.config, values, write_field)
        experiment.check(config)
        return Plan(experiment, config)

    def run(self, plan: Plan) -> Run:
        """Return the finished run of a plan, made now if it does not exist yet."""
        return next(run for _, run in self.run_all([plan]))

    def run_all(self, plans: Sequence[Plan]) -> Iterator[tuple[int, Run]]:
        """Make runs side by side, and yield each one as soon as it is finished, with the
        number of its plan.

        InputError: a run cannot be made, or only beyond the limits. In this case
        nothing was computed. RopelabError: a run failed. All other runs were still
        made.
        """
        numbers_of_plan = self._number_plans(plans)
        # Runs that read the results of other runs are made after them, one by one.
        dependent = [
            plan for plan in numbers_of_plan if plan.config.list_read_experiments()
        ]
        independent = [plan for plan in numbers_of_plan if plan not in dependent]
        groups = [independent, *([plan] for plan in dependent)]

        failures: list[Exception] = []
        for group in groups:
            for plan, run in self._run_side_by_side(group, failures):
                for number in numbers_of_plan[plan]:
                    yield number, run
                    # A run that several plans ask for is made once, for the first plan,
                    # and reused for all others.
                    run = replace(run, reused=True)
        if failures:
            raise failures[0]

    def _number_plans(self, plans: Sequence[Plan]) -> dict[Plan, list[int]]:
        """Return each plan once, with its numbers in `plans`.

        Plans whose results other plans require are added, without a number.
        """
        numbers_of_plan: dict[Plan, list[int]] = {}
        for number, plan in enumerate(plans):
            numbers_of_plan.setdefault(plan, []).append(number)
        if self.results is None:
            # Runs in memory cannot read each other, so none is required.
            return numbers_of_plan

        for plan in list(numbers_of_plan):
            for name, values in plan.config.list_required_runs():
                required_plan = self.prepare(name, values)
                numbers_of_plan.setdefault(required_plan, [])
        return numbers_of_plan

    def find_work(self, plan: Plan, context: Context) -> Work:
        """Return the cells of a run, and the cells that are left to compute."""
        with naming(plan.label.origin):
            cells = list_with_prerequisites(plan.experiment.cells(plan.config))
        cells_left = {
            cell_hash: cell
            for cell_hash, cell in cells.items()
            if not context.cells.is_finished(cell)
        }
        return Work(cells, cells_left)

    def is_finished(self, plan: Plan) -> bool:
        """Return True if the run of a plan was made before and will be reused."""
        run_folder = self._find_folder(plan)
        if run_folder is None or self.force:
            return False
        return run_folder.find() is not None

    def announce(self, work: Work) -> None:
        """Give notice of the cost of work if it takes a minute or more; InputError if
        it is beyond the limits.
        """
        if not work.cells_left:
            return

        self._check_limits(work)
        workers = work.count_workers(self.workers)
        if self.notice and work.estimate.seconds_on(workers) >= MINUTE:
            self.notice(work.estimate.text(workers))

    def _check_limits(self, work: Work) -> None:
        """Raise InputError for work beyond the limits."""
        estimate = work.estimate
        workers = work.count_workers(self.workers)
        if self.most_seconds < inf:
            refuse_longer(estimate.seconds_on(workers), self.most_seconds)

        if self.limits:
            free_bytes = inf
            # Cells of the usual size are tried even if little memory is free.
            if estimate.bytes > Resources().memory_bytes:
                free_bytes = find_free_memory()
            refuse_beyond(estimate, workers, free_bytes)

    def make_context(self) -> Context:
        """Return what cells need while they are computed: a store, and progress."""
        if self.results is None:
            return Context(self.progress, limits=self.limits)

        fresh_run = ""
        if self.force:
            # Stored cells are used only if this very command made them. The random name
            # marks the cells of this command.
            fresh_run = uuid4().hex
        cells = Cells(self.results / ".cells", fresh_run, self.waiting)
        return Context(self.progress, cells, self.limits)

    def _run_side_by_side(
        self, plans: Sequence[Plan], failures: list[Exception]
    ) -> Iterator[tuple[Plan, Run]]:
        """Make runs that do not read each other's results, and yield each run when it
        is finished.

        The errors of runs that fail are appended to `failures`.
        """
        stopwatch = Stopwatch()
        context = self.make_context()
        run_folders = {plan: self._find_folder(plan) for plan in plans}
        reused_runs = self._find_runs(run_folders)
        missing = [plan for plan in plans if plan not in reused_runs]
        works = {plan: self.find_work(plan, context) for plan in missing}
        all_work = unite(works.values())
        self._check_work(works, all_work)

        yield from reused_runs.items()

        values = Values(context, self._find_stored_runs)
        cells = list(all_work.cells_left.values())
        with closing(self.engine.compute(cells, context)) as computed:
            shown = self._show_finished_cells(computed, works, context)
            for plan, errors in _group_by_plan(works, shown):
                make = partial(self._make, plan, values, works[plan], stopwatch)
                try:
                    with naming(plan.label.origin):
                        if errors:
                            raise _join_errors(errors)
                        run = self._keep_run(plan, run_folders[plan], values, make)
                except RopelabError as error:
                    failures.append(error)
                else:
                    yield plan, run

    def _show_finished_cells(
        self,
        computed: Iterable[tuple[Cell, Exception | None]],
        works: Mapping[Plan, Work],
        context: Context,
    ) -> Iterator[tuple[Cell, Exception | None]]:
        """Pass computed cells on, and show after each cell the short table of the run as
        far as it is known.

        Nothing is shown if there are several runs, or if nobody watches.
        """
        if self.watch is None or len(works) != 1:
            yield from computed
            return

        ((plan, work),) = works.items()
        values = Values(context)
        # The tables of finished cells, by the hash of the cell.
        known_tables = {}
        for cell_hash, cell in work.cells.items():
            if cell_hash not in work.cells_left:
                known_tables[cell_hash] = values[cell]

        # Two cells of the config may be the same computation under different labels. Both
        # have the same hash, so that the tables of one are also the tables of the other.
        hashed_cells = []
        for cell in plan.experiment.cells(plan.config):
            hashed_cells.append((hash_cell(cell), cell))

        for cell, error in computed:
            if error is None:
                known_tables[hash_cell(cell)] = values[cell]
                finished_cells = [
                    (each, known_tables[cell_hash])
                    for cell_hash, each in hashed_cells
                    if cell_hash in known_tables
                ]
                early_table = plan.experiment.summarize_finished(finished_cells)
                if early_table is not None:
                    self.watch(early_table)
            yield cell, error

    def _find_runs(
        self, run_folders: Mapping[Plan, store.RunFolder | None]
    ) -> dict[Plan, Run]:
        """Return the runs that were made before and will be reused.

        Figures that are asked for and missing are drawn.
        """
        runs: dict[Plan, Run] = {}
        if self.force:
            return runs
        for plan, run_folder in run_folders.items():
            if run_folder is None:
                continue
            tables = run_folder.find()
            if tables is None:
                continue

            runs[plan] = plan.finish(tables, run_folder.path, reused=True)
            if self.redraw or self.figures:
                run_folder.draw(runs[plan].pictures, self.redraw, self.waiting)
        return runs

    def _check_work(self, works: Mapping[Plan, Work], all_work: Work) -> None:
        """Give notice of the work.

        InputError: the work is beyond the limits, or results cannot be written.
        """
        for plan, work in works.items():
            with naming(plan.label.origin):
                self._check_limits(work)
        self.announce(all_work)

        if self.notice:
            # A notice says which number format is used, and whether it is slow here.
            for dtype, device in sorted(_list_number_formats(works)):
                self.notice(explain_dtype(dtype, device))
        if works and self.results is not None:
            store.check_writable(self.results)

    def _keep_run(
        self,
        plan: Plan,
        run_folder: store.RunFolder | None,
        values: Values,
        make: Callable[[], store.Made],
    ) -> Run:
        """Store a run whose cells are computed; keep it in memory if `run_folder` is
        None.
        """
        if run_folder is None:
            # Tables in memory get the values that they would have after being stored and
            # read back, so that both give the same answer.
            return plan.finish(convert_to_stored(plan.tables(values)))

        tables, reused = run_folder.keep(make, self.waiting, self.force)
        run = plan.finish(tables, run_folder.path, reused)
        if reused and self.figures:
            # Meanwhile another process has made the run, perhaps without figures.
            run_folder.draw(run.pictures, is_forced=False, waiting=self.waiting)
        return run

    def _find_folder(self, plan: Plan) -> store.RunFolder | None:
        """Return the folder of a run; None if runs are kept in memory.

        The name of the folder depends on the config, on the stored runs that the run
        reads, and on the user's code that the run calls.
        """
        if self.results is None:
            return None

        config = plan.config
        folders_read: list[Path] = []
        for name in config.list_read_experiments():
            folders_read += [Path(run.path) for run in self._find_stored_runs(name)]

        hashes_of_inputs = {
            **config.inputs(),
            **store.hash_manifests(self.results, folders_read),
            **find_sources(config.model_dump(mode="json")),
        }
        return store.RunFolder(
            results=self.results,
            experiment=plan.experiment.name,
            version=plan.experiment.version,
            config=config,
            inputs=hashes_of_inputs,
            label=plan.label,
        )

    def _find_stored_runs(self, name: str) -> list[Stored]:
        """Return the stored runs of an experiment, for the runs that read them."""
        if self.results is None:
            return []
        return store.load_stored_runs(
            self.results, name, experiments.load(name).version
        )

    def _make(
        self, plan: Plan, values: Values, work: Work, stopwatch: Stopwatch
    ) -> store.Made:
        """Return what is stored of a run: tables, pictures, and facts about them."""
        experiment = plan.experiment
        config = plan.config
        tables = plan.tables(values)
        run = plan.finish(tables)
        times = experiment.times(config, values)
        seconds = stopwatch.seconds

        about = {
            "title": plan.label.title,
            "question": config.adapt_question(experiment.question),
            "cannot_show": experiment.cannot_show,
            "answer": run.answer,
            "summary": store.make_records(run.summary()),
            "command": config.command(experiment.name),
            "start": stopwatch.start.isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "measurements": work.counts,
            "times": {name: store.make_records(table) for name, table in times.items()},
        }

        pictures = None
        if self.figures:
            pictures = run.pictures()
        return store.Made(tables, pictures, about)


def _read_model_file(
    experiment: Experiment, values: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the values of a config; if `model` names a model file, the model that was
    read from the file takes the place of the name.

    The name of a known model stays, and so does any name if the experiment itself loads
    the model.
    """
    name = values.get("model")
    takes_names = "model" in experiment.config.model_fields
    # An experiment that takes the model without a flag, such as evaluate, loads it.
    loads_model = bool(experiment.config.argument)
    if not takes_names or loads_model or not isinstance(name, str):
        return values
    if not name or is_known(name):
        return values

    # The readers are slow to import, and a known model needs none.
    from ropelab.readers.model_file import is_model_file, read_model

    if not is_model_file(name):
        return values
    return {**values, "model": read_model(name)}


def _list_number_formats(plans: Iterable[Plan]) -> set[tuple[str, str]]:
    """Return the number formats in which plans compute, each with its device."""
    formats: set[tuple[str, str]] = set()
    for plan in plans:
        config = plan.config.model_dump()
        if config.get("dtype"):
            formats.add((config["dtype"], config.get("device", "")))
    return formats


def _group_by_plan(
    works: Mapping[Plan, Work], computed: Iterable[tuple[Cell, Exception | None]]
) -> Iterator[tuple[Plan, list[Exception]]]:
    """Yield each plan when the last of its cells is computed, with the errors of its
    cells.

    Plans without cells to compute come first.
    """
    # The hashes of the cells that each plan waits for.
    awaited_hashes = {plan: set(work.cells_left) for plan, work in works.items()}
    errors: dict[Plan, list[Exception]] = {plan: [] for plan in works}
    for plan in works:
        if not awaited_hashes[plan]:
            yield plan, []

    for cell, error in computed:
        cell_hash = hash_cell(cell)
        waiting_plans = [plan for plan in works if cell_hash in awaited_hashes[plan]]
        for plan in waiting_plans:
            awaited_hashes[plan].remove(cell_hash)
            # A cell whose prerequisite failed has the same error as the prerequisite.
            # The error counts once.
            if error and error not in errors[plan]:
                errors[plan].append(error)
            if not awaited_hashes[plan]:
                yield plan, errors[plan]


def _join_errors(errors: Sequence[Exception]) -> Exception:
    """Make one error from the errors of a run's cells.

    An error that is not a RopelabError is a bug, and is returned as it is.
    """
    bugs = [error for error in errors if not isinstance(error, RopelabError)]
    if bugs:
        return bugs[0]
    first = errors[0]
    if len(errors) == 1:
        return first
    return type(first)(f"{first} (and {len(errors) - 1} more failed)")


def run(
    name: str,
    *,
    results: str | PathLike[str] | None = None,
    force: bool = False,
    limits: bool = True,
    quick: bool = False,
    **values: Any,
) -> Run:
    """Run an experiment from Python: `run("precision", base=1e6).tables["resolution"]`.

    `values` are fields of the experiment's config, as on the command line. `quick` makes
    a smaller run, with fewer and shorter measurements. The other parameters are those
    of `Lab`. InputError: a value is not allowed, or the work is beyond the limits.
    """
    check_texts(name=name)
    if results is not None:
        results = read_path("results", results)
    if results == "":
        raise InputError("results is empty; give a folder, or None for none")
    folder = None if results is None else Path(results)
    lab = Lab(results=folder, force=force, limits=limits)

    if quick:
        experiment = experiments.load(name)
        typed_values = respell(experiment.config, values)
        values, _ = experiment.choose_quick_values(typed_values)
    with needing_packages(), use_library_defaults():
        return lab.run(lab.prepare(name, values))
