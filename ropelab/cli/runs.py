"""The runs of a command: a single one of an experiment, or all that config files ask for.

A run is an experiment with its config. A lab makes runs: it plans a run, computes the
cells (measurements) that it needs, and stores its tables. A sweep is a config file that
asks for many runs. A share is the part of all cells that one machine computes.
"""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ropelab.runs.cell import silent
from ropelab.runs.config import Label, read_toml, respell, take_label
from ropelab.runs.engine import Engine, Here
from ropelab.runs.errors import InputError, check_known, say
from ropelab.runs.folders import check_own
from ropelab.runs.interrupts import interrupt
from ropelab.runs.sentences import write_count
from ropelab.runs.spelling import ROTARY_SHARE, make_flag
from ropelab.runs.store import check_writable, make_records, read_manifest
from ropelab.show import drawn, terminal

if TYPE_CHECKING:
    from ropelab.sweeps.cases import Sweep

# The most seeds that `_say_single_seed` writes out.
MOST_SEEDS = 20


def run_one(experiment: Experiment, fields: dict[str, Any], options: Options) -> None:
    """Make a run from a config file and from flags, which override it, and show it."""
    draw_more = _choose_more_figures(options)
    label = Label()
    values: dict[str, Any] = {}
    if options.config:
        label, values = _read_config(options.config, experiment.name)
    given = _override(experiment, values, fields)
    lab = _make_lab(options)
    reductions = ""
    if options.quick:
        given, reductions = experiment.choose_quick_values(given)
    plan = lab.prepare(experiment.name, given, make_flag)

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
    """Read a config file of one run; InputError if it is of another experiment, or asks
    for many runs.
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
    """Return the values of a file, replaced by the values of flags where a flag was
    given.

    All values have the names of the config's fields, whatever spelling was used.
    """
    config_class = experiment.config
    values = respell(config_class, values)
    fields = respell(config_class, fields, make_flag)
    # Two fields say how much of a head rotates. If a flag sets either field, both are
    # dropped from the values of the file.
    share = {"rotary_dim", ROTARY_SHARE}
    if share & fields.keys():
        values = {name: value for name, value in values.items() if name not in share}
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
    """Print the answer and short tables of a run, and where its files are."""
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
        several = ",".join(map(str, range(int(text))))
        say(f"--seeds {text} is one seed, number {text}; for {text}: --seeds {several}")


def list_files(paths: Sequence[Path], index: str, shard: str, options: Options) -> None:
    """List the cells of all runs that the files ask for, or of one share, with their
    estimated cost.
    """
    from ropelab.sweeps import shares

    number_and_count = shares.read_shard(shard) if shard else None
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
    lab, sweeps = _read_files(paths, index, options)
    if lab.force:
        raise InputError(
            "--force makes everything anew, which shards cannot share; give one"
        )

    with _open_engine(options) as engine, interrupt_after(options.max_minutes):
        planned_work = shares.look_ahead(sweeps, lab)
        share = shares.choose_share(planned_work, (number, count))
        shares.compute(share, replace(lab, engine=engine))

    counts = [
        f"{write_count(n, 'cell')} {what}" for what, n in share.counts.items() if n
    ]
    print_line(
        f"shard {number}/{count}: {', '.join(counts) or 'nothing to do'}; when all"
        " shards are done, the same command without --shard makes the tables"
    )


def run_files(paths: Sequence[Path], index: str, options: Options) -> None:
    """Make all runs of files, one table of each sweep, and the index and page of the
    results.
    """
    draw_more = _choose_more_figures(options)
    lab, sweeps = _read_files(paths, index, options)
    # These are slow to import, and neither a single run nor an error needs them.
    from ropelab.claims.ledger import judge_run
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
    # If nothing was made, the results folder may be one that cannot be written.
    if all(run.reused for run in runs.values()):
        try:
            check_writable(results)
        except InputError as error:
            say(f"index and page are not written: {error}")
            return

    print_line(f"index: {write_index(results, index)}")
    drawing = (
        silent
        if options.quiet
        else terminal.DelayedProgress(terminal.choose_progress())
    )
    page = write_report(
        find_runs([results], judge_run), results / "index.html", progress=drawing
    )
    print_line(f"page: {page}")


def _read_files(
    paths: Sequence[Path], index: str, options: Options
) -> "tuple[Lab, list[Sweep]]":
    """Return the lab of some options, and a sweep for each file.

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
    return lab, read_sweeps(files, lab)


def _choose_more_figures(options: Options) -> Callable[[Run], object]:
    """Check the options of figures, and return a function that draws what they ask for.

    A run always has PNG files for the screen. The function draws other formats and
    styles.
    """
    names = drawn.read_formats(options.format)
    kind = check_known("figure style", options.style, drawn.STYLES)

    def draw(run: Run) -> None:
        # Every run has the usual figures already.
        usual = names == ("png",) and kind == "screen"
        if run.folder and not usual:
            files = drawn.encode_figures(run.figures(kind), names, kind)
            drawn.write_files(files, run.folder / "figures")

    return draw


def _make_lab(options: Options) -> Lab:
    """Return a lab as the options ask for it, with its progress on stderr."""
    quiet = options.quiet or (options.json and not sys.stderr.isatty())
    figures = options.figures
    if figures is None:
        figures = not options.json

    progress = silent if quiet else terminal.choose_progress()
    # A terminal shows the table of a run while it fills. A pipe gets the finished table.
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
    """Interrupt the block as Ctrl-C does after this many minutes."""
    if not minutes:
        yield
        return

    def end() -> None:
        say(f"--max-minutes {minutes:g} are over")
        # The signal goes to the main thread, which may wait for a worker. It would go on
        # waiting if the signal came to this thread.
        main = main_thread().ident
        if hasattr(signal, "pthread_kill") and main is not None:
            signal.pthread_kill(main, signal.SIGINT)
        else:
            signal.raise_signal(signal.SIGINT)

    # The system cannot wait for more than TIMEOUT_MAX seconds, which are centuries.
    timer = Timer(min(60 * minutes, TIMEOUT_MAX), end)
    # The callbacks run in reverse order when the block ends. A late signal interrupts
    # one callback, and all other callbacks still run.
    with ExitStack() as ending:
        # A script that starts this command with `&` makes it ignore SIGINT.
        before = signal.signal(signal.SIGINT, interrupt)
        ending.callback(signal.signal, signal.SIGINT, before)
        timer.start()
        # When the thread of the timer has ended, no signal can come any more.
        ending.callback(timer.join)
        ending.callback(timer.cancel)
        yield


@contextmanager
def _open_engine(options: Options) -> Iterator[Engine]:
    """Keep an engine, which computes cells, while the block runs.

    It is a Ray cluster, worker processes, or with `--workers 1` this process.
    """
    name = check_known("engine", options.engine, ("local", "ray"))
    if name == "local" and options.address is not None:
        raise InputError("--address names a Ray cluster; give --engine ray with it")
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


def _find_places(run: Run) -> dict[str, str]:
    """Return the folder, the figure to open first, and the command to type next."""
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
