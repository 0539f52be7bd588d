"""The runs of a command: one of an experiment, or all that config files ask for."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from threading import Timer, main_thread
from typing import TYPE_CHECKING, Any

from ropelab.cli.flags import Options
from ropelab.cli.outcome import print_document, print_line
from ropelab.experiments import Experiment
from ropelab.lab import Lab, Run
from ropelab.runs import builtin
from ropelab.runs.cell import silent
from ropelab.runs.config import Label, read_toml, respelled, take_label
from ropelab.runs.engine import Engine, Here
from ropelab.runs.errors import InputError, known, say
from ropelab.runs.folders import check_own
from ropelab.runs.interrupts import interrupt
from ropelab.runs.sentences import count_of
from ropelab.runs.spelling import PARTIAL, flag_of
from ropelab.runs.store import check_writable, read_manifest, to_records
from ropelab.show import drawn, terminal

if TYPE_CHECKING:
    from ropelab.sweeps.cases import Sweep

# Seeds that a sentence about a likely mistake writes out.
MOST_SEEDS = 20


def run_one(experiment: Experiment, fields: dict[str, Any], options: Options) -> None:
    """Make a run from a config file and from flags, which override it, and show it."""
    draw_more = _more_figures(options)
    label, values = Label(), dict[str, Any]()
    if path := options.config:
        name, found = read_toml(path)
        if name != experiment.name:
            raise InputError(
                f"{path} is a config for '{name}', not for '{experiment.name}'"
            )
        if "grid" in found or "case" in found:
            raise InputError(f"{path} asks for many runs: ropelab run {path}")
        label, values = take_label(path, found)
    kind = experiment.config
    values, fields = respelled(kind, values), respelled(kind, fields, flag_of)
    # The rotated share of the head: whichever a flag says wins over both in a file.
    share = {"rotary_dim", PARTIAL} if {"rotary_dim", PARTIAL} & {*fields} else set()
    given = {
        name: value for name, value in values.items() if name not in share
    } | fields
    lab = _lab(options)
    given, less = experiment.quickly(given) if options.quick else (given, "")
    plan = lab.prepare(experiment.name, given, flag_of)
    if not options.quiet:
        _say_single_seed(fields)
    if less:
        say(f"--quick: {less}; a first look, and no verdict on longer work")
    with _engine(options) as engine, at_most(options.max_minutes):
        run = replace(lab, engine=engine).run(replace(plan, label=label))
    draw_more(run)
    if options.json:
        tables = dict(run.tables)
        verdicts = run.verdicts()
        if len(verdicts):
            tables["literature"] = verdicts
        document = {
            "experiment": experiment.name,
            "config": run.config.model_dump(mode="json"),
            "answer": run.answer,
            "summary": to_records(run.summary()),
            "tables": {name: to_records(table) for name, table in tables.items()},
            "run": str(run.folder),
        }
        print_document(document)
    elif not options.quiet:
        terminal.show_answer(run.answer, run.summary(), *run.further().values())
        if "explain" in run.tables:
            asked = "Position by position, as asked with --explain:"
            terminal.show_more(asked, run.tables["explain"])
        terminal.show_places(_places(run))


def _say_single_seed(fields: Mapping[str, Any]) -> None:
    """Say that `--seeds 3` is one seed, where three may have been meant."""
    text = str(fields.get("seeds", ""))
    if text.isdecimal() and 1 < int(text) <= MOST_SEEDS:
        several = ",".join(map(str, range(int(text))))
        say(f"--seeds {text} is one seed, number {text}; for {text}: --seeds {several}")


def list_files(paths: Sequence[Path], index: str, shard: str, options: Options) -> None:
    """List what the runs of files need, or what one share of that is."""
    from ropelab.sweeps import shares

    share = shares.read_shard(shard) if shard else None
    lab, sweeps = _asked(paths, index, options)
    ahead = shares.look_ahead(sweeps, lab)
    part = share and shares.lines_of_share(shares.share_of(ahead, share), lab)
    for line in part or shares.lines(ahead, lab):
        print_line(line)


def compute_share(
    paths: Sequence[Path], index: str, shard: str, options: Options
) -> None:
    """Compute one share of what the runs of files need; the tables are made without
    --shard.
    """
    from ropelab.sweeps import shares

    share = shares.read_shard(shard)
    lab, sweeps = _asked(paths, index, options)
    if lab.force:
        raise InputError(
            "--force makes everything anew, which shards cannot share; give one"
        )
    with _engine(options) as engine, at_most(options.max_minutes):
        mine = shares.share_of(shares.look_ahead(sweeps, lab), share)
        shares.compute(mine, replace(lab, engine=engine))
    done = [f"{count_of(n, 'cell')} {what}" for what, n in mine.counts.items() if n]
    print_line(
        f"shard {share[0]}/{share[1]}: {', '.join(done) or 'nothing to do'}; when all"
        " shards are done, the same command without --shard makes the tables"
    )


def run_files(paths: Sequence[Path], index: str, options: Options) -> None:
    """Make all runs of files, one table of each sweep, and the index and page of the
    results.
    """
    draw_more = _more_figures(options)
    lab, sweeps = _asked(paths, index, options)
    # Imported here: a single run, and what is refused, does without the page.
    from ropelab.claims.ledger import judge_run
    from ropelab.show.gallery import write_index
    from ropelab.show.page.report import write_report
    from ropelab.show.page.shown import find_runs
    from ropelab.sweeps.combined import combine

    plans = [plan for sweep in sweeps for plan in sweep.plans]
    runs: dict[str, Run] = {}
    with _engine(options) as engine, at_most(options.max_minutes):
        for number, run in replace(lab, engine=engine).run_all(plans):
            origin = plans[number].label.origin
            runs[origin] = run
            draw_more(run)
            if not options.quiet:
                print_line(f"[{len(runs)}/{len(plans)}] {origin}")
                print_line(
                    f"    {run.answer}\n   "
                    f" {run.folder}{' (reused)' if run.reused else ''}"
                )
    for sweep in sweeps:
        if sweep.keys:
            folder = combine(
                sweep, [runs[plan.label.origin] for plan in sweep.plans], lab
            )
            print_line(f"{sweep.path}: all runs in one table: {folder}")
    results = options.results
    if all(run.reused for run in runs.values()):
        try:
            check_writable(results)
        except InputError as error:
            say(f"index and page are not written: {error}")
            return
    print_line(f"index: {write_index(results, index)}")
    drawing = silent if options.quiet else terminal.Delayed(terminal.progress_here())
    page = write_report(
        find_runs([results], judge_run), results / "index.html", progress=drawing
    )
    print_line(f"page: {page}")


def _asked(
    paths: Sequence[Path], index: str, options: Options
) -> "tuple[Lab, list[Sweep]]":
    from ropelab.show import gallery
    from ropelab.show.gallery import check_index
    from ropelab.show.page import document
    from ropelab.sweeps.cases import read_sweeps

    check_index(index)
    check_own(options.results / index, gallery.MARK)
    check_own(options.results / "index.html", document.MARK)
    lab = _lab(options)
    return lab, read_sweeps([builtin.resolved(path) for path in paths], lab)


def _more_figures(options: Options) -> Callable[[Run], object]:
    """Check the options of figures; return a function that draws those beyond the usual
    ones.
    """
    names = drawn.read_formats(options.format)
    kind = known("figure style", options.style, drawn.STYLES)

    def draw(run: Run) -> None:
        if run.folder and (names, kind) != (("png",), "screen"):  # those every run has
            drawn.write_own(
                drawn.as_files(run.figures(kind), names, kind), run.folder / "figures"
            )

    return draw


def _lab(options: Options) -> Lab:
    # figures go to files: no window is opened
    os.environ.setdefault("MPLBACKEND", "agg")
    quiet = options.quiet or (options.json and not sys.stderr.isatty())
    return Lab(
        options.results,
        options.force,
        options.redraw,
        not options.json if options.figures is None else options.figures,
        progress=silent if quiet else terminal.progress_here(),
        waiting=terminal.say_waiting,
        notice=None if quiet else say,
        workers=options.workers,
        limits=not options.no_limits,
        most_seconds=60 * options.max_minutes if options.max_minutes else inf,
    )


@contextmanager
def at_most(minutes: float | None) -> Iterator[None]:
    """Interrupt the block as Ctrl-C does when so many minutes have passed."""
    if not minutes:
        yield
        return

    def end() -> None:
        say(f"--max-minutes {minutes:g} are over")
        # To the main thread, which may wait for a worker: sent to this one it would go
        # on waiting.
        send = getattr(
            signal, "pthread_kill", lambda _, number: signal.raise_signal(number)
        )
        send(main_thread().ident, signal.SIGINT)

    timer = Timer(60 * minutes, end)
    # a late signal interrupts one step of it, not the others
    with ExitStack() as ending:
        # behind `&` in a script it was ignored
        before = signal.signal(signal.SIGINT, interrupt)
        ending.callback(signal.signal, signal.SIGINT, before)
        timer.start()
        ending.callback(timer.join)  # after it none can come
        ending.callback(timer.cancel)
        yield


@contextmanager
def _engine(options: Options) -> Iterator[Engine]:
    """Hold the engine that is asked for while the block runs; one local worker is this
    process.
    """
    if (
        known("engine", options.engine, ("local", "ray")) == "local"
        and options.address is not None
    ):
        raise InputError("--address names a Ray cluster; give --engine ray with it")
    # Imported here: loky and Ray are slow to load.
    engine: Engine = Here()
    if options.engine == "ray":
        from ropelab.runs.engine.on_ray import OnRay

        engine = OnRay(options.address, options.workers)
    elif options.workers != 1:
        from ropelab.runs.engine.local import Workers

        engine = Workers(options.workers)
    try:
        yield engine
    finally:
        engine.stop()


def _places(run: Run) -> dict[str, str]:
    """Return the folder, the figure to open first, and the command to type next."""
    manifest = run.folder and read_manifest(run.folder)
    figures = (manifest or {}).get("figures")
    device, dtype = getattr(run.config, "device", ""), getattr(run.config, "dtype", "")
    computed = f"on {device}{f' in {dtype}' if dtype else ''}" if device else ""
    return {
        ("reused" if run.reused else "run"): str(run.folder),
        **({"made": computed} if computed else {}),
        **({"open": f"{figures[0]} first, of {len(figures)}"} if figures else {}),
        "next": run.following,
    }
