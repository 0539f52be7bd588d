"""Commands that make runs: a single run of an experiment, or all runs that config files
ask for.

A run is an experiment with its config. A lab makes runs: it plans a run, computes the
cells (measurements) that it needs, and stores its tables. A sweep is a config file that
asks for many runs. A share is the part of all cells that one machine computes.
"""

import signal
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from threading import TIMEOUT_MAX, Timer, main_thread
from typing import TYPE_CHECKING, Any

from ropelab.cli.flags import Options
from ropelab.cli.observed import describe_bases
from ropelab.cli.outcome import print_document, print_line
from ropelab.experiments import Experiment
from ropelab.lab import Lab
from ropelab.plan import Plan, Run
from ropelab.runs import builtin
from ropelab.runs.cell import Progress, silent
from ropelab.runs.config import Config, Label, read_toml, respell, take_label
from ropelab.runs.engine import Engine, Here
from ropelab.runs.errors import InputError, check_known, say
from ropelab.runs.folders import check_own, lock_folder
from ropelab.runs.interrupts import interrupt
from ropelab.runs.sentences import write_count
from ropelab.runs.spelling import ROTARY_SHARE, make_flag
from ropelab.runs.store import check_writable, make_records, read_manifest
from ropelab.show import drawn, terminal

if TYPE_CHECKING:
    from ropelab.sweeps.cases import Sweep

# The largest number of seeds for which `_say_single_seed` writes a list of seeds.
MOST_SEEDS = 20


def run_one(experiment: Experiment, fields: dict[str, Any], options: Options) -> None:
    """Make a run from a config file and from flags, which override the file, and show
    the run.
    """
    draw_more = _choose_more_figures(options)
    label = Label()
    values: dict[str, Any] = {}
    if options.config:
        label, values = _read_config(options.config, experiment.name)
    typed_values = _override(experiment, values, fields)
    lab = _make_lab(options)
    all_values = typed_values
    reductions = ""
    if options.quick:
        all_values, reductions = experiment.choose_quick_values(typed_values)
    plan = lab.prepare(experiment.name, all_values, make_flag)
    # --quick sets values that nobody typed, so it is not asked of all.
    _say_idle([plan.config], set(typed_values))

    if not options.quiet:
        _say_single_seed(fields)
    if reductions:
        say(f"--quick: {reductions}")
    with _open_engine(options) as engine, interrupt_after(options.max_minutes):
        run = replace(lab, engine=engine).run(replace(plan, label=label))
    draw_more(run)

    if options.json:
        _print_run(experiment, run)
    elif not options.quiet:
        _show_run(run)


def _read_config(path: Path, experiment: str) -> tuple[Label, dict[str, Any]]:
    """Read a config file of one run. InputError: the file names another experiment, or
    asks for many runs.
    """
    name, values = read_toml(path)
    if name != experiment:
        raise InputError(f"{path} is a config for '{name}', not for '{experiment}'")
    if "grid" in values or "case" in values:
        raise InputError(f"{path} asks for many runs: ropelab run {path}")
    return take_label(path, values)


def _override(
    experiment: Experiment, values: dict[str, Any], fields: dict[str, Any]
) -> dict[str, Any]:
    """Return the values of a file and of flags. The value of a flag replaces the value
    that the file has for the same field.

    The result has the names of the config's fields, even if Hugging Face's names were
    used.
    """
    config_class = experiment.config
    values = respell(config_class, values)
    fields = respell(config_class, fields, make_flag)
    # Two fields say how much of a head rotates. If a flag sets one of them, the values
    # of the file for both are dropped.
    either = {"rotary_dim", ROTARY_SHARE}
    if either & fields.keys():
        values = {name: value for name, value in values.items() if name not in either}
    return values | fields


def _print_run(experiment: Experiment, run: Run) -> None:
    """Print the document of --json."""
    tables = dict(run.tables)
    verdicts = run.verdicts()
    if len(verdicts):
        tables["literature"] = verdicts
    document = {
        "experiment": experiment.name,
        "config": run.config.model_dump(mode="json"),
        "answer": run.answer,
        "summary": make_records(run.summary()),
        "tables": {name: make_records(table) for name, table in tables.items()},
        "run": str(run.folder),
    }
    print_document(document)


def _show_run(run: Run) -> None:
    """Print the answer and the short tables of a run, and the paths of its files."""
    tables = (run.summary(), *run.further().values())
    terminal.show_answer(run.answer, *tables, decisive=run.experiment.decisive)
    if "explain" in run.tables:
        title = "Position by position, as asked with --explain:"
        terminal.show_more(title, run.tables["explain"])
    if run.experiment.name == "base":
        print_line("")
        terminal.show_paragraph(f"Observed {describe_bases()}.")
    terminal.show_places(_find_places(run))


def _say_single_seed(fields: Mapping[str, Any]) -> None:
    """Say that `--seeds 3` is one seed, since three seeds may have been meant."""
    text = str(fields.get("seeds", ""))
    if text.isdecimal() and 1 < int(text) <= MOST_SEEDS:
        seeds = ",".join(map(str, range(int(text))))
        say(f"--seeds {text} is one seed, number {text}; for {text}: --seeds {seeds}")


def _say_idle(
    configs: Sequence[Config], names: Container[str] | None = None, file: str = ""
) -> None:
    """Say which fields that were given have no effect on any of these configs.

    `names` has the fields that may be named; None stands for all.
    """
    choices: dict[str, str] = {}
    for config in configs:
        choices |= config.list_idle_choices()
    for name, purpose in choices.items():
        is_idle = all(name in config.list_idle_fields() for config in configs)
        if is_idle and (names is None or name in names):
            words = f"{file}: {name}" if file else make_flag(name)
            say(f"{words} has no effect: it is for {purpose}")


def list_files(paths: Sequence[Path], index: str, shard: str, options: Options) -> None:
    """List the cells of all runs that the files ask for, with their estimated cost. If a
    shard is given, list only the cells of this share.
    """
    from ropelab.sweeps import shares

    number_and_count = shares.read_shard(shard) if shard else None
    _check_unused(options)
    lab, sweeps = _read_files(paths, index, options)
    planned_work = shares.look_ahead(sweeps, lab)
    if number_and_count:
        share = shares.choose_share(planned_work, number_and_count)
        lines = shares.describe_share(share, lab)
    else:
        lines = shares.describe_runs(planned_work, lab)
    for line in lines:
        print_line(line)


def compute_share(
    paths: Sequence[Path], index: str, shard: str, options: Options
) -> None:
    """Compute one share of the cells of all runs that the files ask for.

    When all shares are computed, the command without --shard makes the tables.
    """
    from ropelab.sweeps import shares

    number, count = shares.read_shard(shard)
    _check_unused(options)
    lab, sweeps = _read_files(paths, index, options)
    if lab.force:
        raise InputError(
            "--force makes everything anew, which shards cannot share; give one"
        )

    with _open_engine(options) as engine, interrupt_after(options.max_minutes):
        planned_work = shares.look_ahead(sweeps, lab)
        share = shares.choose_share(planned_work, (number, count))
        shares.compute(share, replace(lab, engine=engine))

    counts = []
    for state, count_of_cells in share.counts.items():
        if count_of_cells:
            counts.append(f"{write_count(count_of_cells, 'cell')} {state}")
    print_line(
        f"shard {number}/{count}: {', '.join(counts) or 'nothing to do'}; when all"
        " shards are done, the same command without --shard makes the tables"
    )


def run_files(paths: Sequence[Path], index: str, options: Options) -> None:
    """Make all runs that the files ask for, one table for each sweep, and the index and
    the page of the results folder.
    """
    draw_more = _choose_more_figures(options)
    lab, sweeps = _read_files(paths, index, options)
    # These modules are slow to import. Neither a single run nor an error above needs
    # them.
    from ropelab.claims.ledger import judge_run
    from ropelab.restate import restate
    from ropelab.show.gallery import write_index
    from ropelab.show.page.report import write_report
    from ropelab.show.page.shown import find_runs
    from ropelab.sweeps.combined import combine

    plans: list[Plan] = []
    for sweep in sweeps:
        plans += sweep.plans
    runs: dict[str, Run] = {}
    with _open_engine(options) as engine, interrupt_after(options.max_minutes):
        for number, run in replace(lab, engine=engine).run_all(plans):
            origin = plans[number].label.origin
            runs[origin] = run
            draw_more(run)
            if options.quiet:
                continue
            print_line(f"[{len(runs)}/{len(plans)}] {origin}")
            reused = " (reused)" if run.reused else ""
            print_line(f"    {run.answer}\n    {run.folder}{reused}")

    for sweep in sweeps:
        if sweep.keys:
            runs_of_sweep = [runs[plan.label.origin] for plan in sweep.plans]
            folder = combine(sweep, runs_of_sweep, lab)
            print_line(f"{sweep.path}: all runs in one table: {folder}")

    results = options.results
    # If all runs are reused, the results folder may be one that cannot be written.
    if all(run.reused for run in runs.values()):
        try:
            check_writable(results)
        except InputError as error:
            say(f"index and page are not written: {error}")
            return

    print_line(f"index: {write_index(results, index, restate=restate)}")
    progress: Progress = silent
    if not options.quiet:
        progress = terminal.DelayedProgress(terminal.choose_progress())
    shown_runs = find_runs([results], judge_run, restate)
    page = write_report(shown_runs, results / "index.html", progress=progress)
    print_line(f"page: {page}")


def _check_unused(options: Options) -> None:
    """Check the options that a list of runs, or a share, does not use.

    They are those of the command that makes the runs, which a user types by leaving out
    --dry-run or --shard.
    """
    _choose_more_figures(options)
    _check_engine(options)


def _read_files(
    paths: Sequence[Path], index: str, options: Options
) -> "tuple[Lab, list[Sweep]]":
    """Return a lab with the given options, and a sweep for each file.

    InputError: a file cannot be read, or the index or the page cannot be written.
    """
    from ropelab.show import gallery
    from ropelab.show.gallery import check_index
    from ropelab.show.page import document
    from ropelab.sweeps.cases import read_sweeps

    check_index(index)
    check_own(options.results / index, gallery.MARK)
    check_own(options.results / "index.html", document.MARK)
    lab = _make_lab(options)
    files = [builtin.find_config(path) for path in paths]
    sweeps = read_sweeps(files, lab)
    for sweep in sweeps:
        configs = [plan.config for plan in sweep.plans]
        _say_idle(configs, file=str(sweep.path))
    return lab, sweeps


def _choose_more_figures(options: Options) -> Callable[[Run], object]:
    """Check the options of figures, and return a function that draws further figures of
    a run.

    A run always has PNG files for the screen. The function draws the other formats and
    the other style that the options ask for.
    """
    formats = drawn.read_formats(options.format)
    style = check_known("figure style", options.style, drawn.STYLES)
    has_only_defaults = formats == ("png",) and style == "screen"
    if options.figures is False and (options.redraw or not has_only_defaults):
        raise InputError(
            "--no-figures draws none; leave it out, or --format, --style and --redraw"
        )

    def draw(run: Run) -> None:
        if run.folder and not has_only_defaults:
            files = drawn.encode_figures(run.figures(style), formats, style)
            # Another process may replace the folder of the run at the same time.
            with lock_folder(run.folder):
                drawn.write_files(files, run.folder / "figures")

    return draw


def _make_lab(options: Options) -> Lab:
    """Return a lab with the given options, which shows its progress on stderr."""
    quiet = options.quiet or (options.json and not sys.stderr.isatty())
    figures = options.figures
    if figures is None:
        figures = not options.json

    progress = silent if quiet else terminal.choose_progress()
    # A terminal shows the table of a run while it fills. A pipe gets only the finished
    # table.
    watch = None
    if isinstance(progress, terminal.Bars) and not options.json and sys.stdout.isatty():
        watch = progress.watch

    return Lab(
        results=options.results,
        force=options.force,
        redraw=options.redraw,
        figures=figures,
        progress=progress,
        waiting=terminal.say_waiting,
        notice=None if quiet else say,
        watch=watch,
        workers=options.workers,
        limits=not options.no_limits,
        most_seconds=60 * options.max_minutes if options.max_minutes else inf,
    )


@contextmanager
def interrupt_after(minutes: float | None) -> Iterator[None]:
    """Interrupt the block after this many minutes, in the same way as Ctrl-C."""
    if not minutes:
        yield
        return

    def end() -> None:
        say(f"--max-minutes {minutes:g} are over")
        # The signal is sent to the main thread, which may be waiting for a worker. If the
        # signal came to this thread, the main thread would go on waiting.
        main_id = main_thread().ident
        if hasattr(signal, "pthread_kill") and main_id is not None:
            signal.pthread_kill(main_id, signal.SIGINT)
        else:
            signal.raise_signal(signal.SIGINT)

    # The system cannot wait for more than TIMEOUT_MAX seconds, which are centuries.
    timer = Timer(min(60 * minutes, TIMEOUT_MAX), end)
    # When the block ends, the callbacks of the stack run in reverse order. If a late
    # signal interrupts one callback, all other callbacks still run.
    with ExitStack() as stack:
        # A command that a script starts with `&` ignores SIGINT, so a handler is set.
        handler_before = signal.signal(signal.SIGINT, interrupt)
        stack.callback(signal.signal, signal.SIGINT, handler_before)
        timer.start()
        # When the thread of the timer has ended, no signal can come any more.
        stack.callback(timer.join)
        stack.callback(timer.cancel)
        yield


@contextmanager
def _open_engine(options: Options) -> Iterator[Engine]:
    """Yield an engine, which computes cells, and stop it after the block.

    The engine is a Ray cluster, worker processes, or with `--workers 1` this process.
    """
    name = _check_engine(options)
    # Ray and loky, which starts workers, are slow to import.
    engine: Engine = Here()
    if name == "ray":
        from ropelab.runs.engine.on_ray import OnRay

        engine = OnRay(options.address, options.workers)
    elif options.workers != 1:
        from ropelab.runs.engine.local import Workers

        engine = Workers(options.workers)
    try:
        yield engine
    finally:
        engine.stop()


def _check_engine(options: Options) -> str:
    """Return the name of the engine; InputError for options that do not go together."""
    name = check_known("engine", options.engine, ("local", "ray"))
    if name == "local" and options.address is not None:
        raise InputError("--address names a Ray cluster; give --engine ray with it")
    return name


def _find_places(run: Run) -> dict[str, str]:
    """Return what is printed below the answer of a run, by the word before it: its
    folder, the device it was made on, the figure to open first, and the next command.
    """
    places = {"reused" if run.reused else "run": str(run.folder)}
    device = getattr(run.config, "device", "")
    dtype = getattr(run.config, "dtype", "")
    if device:
        places["made"] = f"on {device} in {dtype}" if dtype else f"on {device}"

    manifest = read_manifest(run.folder) if run.folder else None
    figures = manifest.get("figures") if manifest else None
    if figures:
        places["open"] = f"{figures[0]} first, of {len(figures)}"
    places["next"] = run.following
    return places
