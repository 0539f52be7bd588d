"""The command line: one command per experiment, its flags made from the fields of its config.

Nothing heavy is imported here; pandas, torch and matplotlib are loaded when a command needs them.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

import ropelab
from ropelab import experiments
from ropelab.cli import audit as desk
from ropelab.cli import flags
from ropelab.cli import results as cli_results
from ropelab.cli.flags import Options
from ropelab.cli.outcome import print_document, print_line, status_of
from ropelab.experiments import Experiment
from ropelab.runs import builtin
from ropelab.runs.config import Label, read_toml, take_label
from ropelab.runs.errors import InputError, unknown_name
from ropelab.runs.notices import say

if TYPE_CHECKING:
    from ropelab.lab import Lab, Run
    from ropelab.runs.engine import Engine

ENGINES = ("local", "ray")

app = typer.Typer(
    name="ropelab",
    help="A laboratory for rotary position embeddings: precision, base, scaling, extrapolation.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 fine, 1 runtime error, 2 invalid input, 130 interrupted, "
    "143 terminated; 3 findings (audit, emit, check).",
)


def _add_command(experiment: Experiment) -> None:
    """Register an experiment: its flags are the fields of its config, then the common ones."""
    of_models = "dtype" in experiment.config.model_fields

    def command(*, options: Options, **given: Any) -> None:
        # A flag given several times names all values that it was given.
        values = {k: ",".join(v) if isinstance(v, list) else v for k, v in given.items()}
        fields = {name: value for name, value in values.items() if value is not None}
        # Arithmetic is computed by this process.
        _run_one(experiment, fields, options if of_models else replace(options, workers=1))

    app.command(
        experiment.name,
        help=f"{experiment.question}\n\nCannot show: {experiment.cannot_show}",
        short_help=experiment.question,
    )(
        flags.taking_options(
            command, flags.of_fields(experiment.config), set() if of_models else flags.OF_MODELS
        )
    )


def _run_one(experiment: Experiment, fields: dict[str, Any], options: Options) -> None:
    draw_more = _more_figures(options)
    label, values = Label(), dict[str, Any]()
    if path := options.config:
        name, found = read_toml(path)
        if name != experiment.name:
            raise InputError(f"{path} is a config for '{name}', not for '{experiment.name}'")
        if "grid" in found or "case" in found:
            raise InputError(f"{path} asks for many runs: ropelab run {path}")
        label, values = take_label(path, found)
    lab = _lab(options, not options.json if options.figures is None else options.figures)
    plan = lab.prepare(experiment.name, {**values, **fields}, flags.flag_of)
    with _engine(options) as engine:
        run = replace(lab, engine=engine).run(replace(plan, label=label))
    draw_more(run)
    if options.json:
        print_json(run)
    elif not options.quiet:
        _show(run)


def _more_figures(options: Options) -> "Callable[[Run], object]":
    """Check the options of figures; return a function that draws those beyond the usual ones."""
    from ropelab.show import drawn

    names, kind = drawn.read_formats(options.format), drawn.check_style(options.style)
    if drawn.is_default(names, kind):
        return lambda run: None

    def draw(run: "Run") -> None:
        assert run.folder is not None
        drawn.write(drawn.as_files(run.figures(kind), names, kind), run.folder / "figures")

    return draw


def _lab(options: Options, figures: bool = True) -> "Lab":
    from ropelab.lab import Lab
    from ropelab.runs.cell import silent
    from ropelab.show import terminal

    os.environ.setdefault("MPLBACKEND", "agg")  # figures go to files: no window is opened
    terminal_there = sys.stderr.isatty()
    quiet = options.quiet or (options.json and not terminal_there)
    loud = terminal.Bars() if terminal_there else terminal.PlainLines()
    return Lab(
        options.results,
        options.force,
        options.redraw,
        figures,
        progress=silent if quiet else loud,
        waiting=terminal.say_waiting,
        notice=None if quiet else say,
        workers=options.workers,
        limits=not options.no_limits,
    )


@contextmanager
def _engine(options: Options) -> "Iterator[Engine]":
    """Hold the engine of that name while the block runs; one local worker is this process."""
    if options.engine not in ENGINES:
        raise unknown_name("engine", options.engine, ENGINES)
    # Imported here: loky and Ray are slow to load.
    engine: Engine
    if options.engine == "ray":
        from ropelab.runs.engine.on_ray import OnRay

        engine = OnRay(options.address, options.workers)
    elif options.address is not None:
        raise InputError("--address names a Ray cluster; give --engine ray with it")
    elif options.workers == 1:
        from ropelab.runs.engine import Here

        engine = Here()
    else:
        from ropelab.runs.engine.local import Workers

        engine = Workers(options.workers)
    try:
        yield engine
    finally:
        engine.stop()


def _show(run: "Run") -> None:
    from ropelab.show import terminal

    state = "reused" if run.reused else "written to"
    dtype = getattr(run.config, "dtype", "")
    device = getattr(run.config, "device", "")
    computed = f" (computed on {device}{f' in {dtype}' if dtype else ''})" if device else ""
    terminal.show_answer(run.answer, run.summary())
    if "explain" in run.tables:
        terminal.show_more("Position by position, as asked with --explain:", run.tables["explain"])
    terminal.show_place(f"{state} {run.folder}{computed}")


def print_json(run: "Run") -> None:
    """Print a run as one JSON document with all its tables."""
    from ropelab.runs.store import to_records

    document = {
        "experiment": run.experiment.name,
        "config": run.config.model_dump(mode="json"),
        "answer": run.answer,
        "tables": {name: to_records(table) for name, table in run.tables.items()},
        "run": str(run.folder),
    }
    print_document(document)


@app.command("methods")
def list_methods(json_: flags.Json = False) -> None:
    """Every method that --method and --methods take: parameters, meaning of the factor, source."""
    from ropelab.models.methods.registry import catalogue
    from ropelab.runs.store import to_records
    from ropelab.show import terminal

    table = catalogue()
    if json_:
        print_document({"tables": {"methods": to_records(table)}})
    else:
        terminal.show_records(table, title="method")


def run_files(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH...]",
            help="TOML files, folders of them, or names of those that come with ropelab; without "
            "any these are listed.",
        ),
    ] = None,
    index: Annotated[
        str, typer.Option("--index", metavar="NAME", help="Name of the index file in DIR.")
    ] = "index.md",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what is finished, to do, and what it costs.")
    ] = False,
    shard: Annotated[
        str,
        typer.Option(
            "--shard",
            metavar="I/N",
            help="Compute the I-th of N shares; a run without it then makes the tables.",
        ),
    ] = "",
    *,
    options: Options,
) -> None:
    """Run config files and parameter grids, and write an index and a page of all runs.

    A file asks for one run, or for many: [grid] has a list for each of some keys, and every
    combination is a run; each table [[case]] is a run. Such a file ends in one table and one
    figure of all its runs. Finished runs are reused.
    """
    if not paths:
        for line in builtin.lines():
            print_line(line)
        return
    from ropelab.cli import files
    from ropelab.show.gallery import check_name
    from ropelab.sweeps.shares import read_shard

    check_name(index)
    share = read_shard(shard) if shard else None
    draw_more = _more_figures(options)
    lab = _lab(options)
    found = [builtin.resolved(path) for path in paths]
    if dry_run:
        files.list_files(found, lab, share)
    elif share:
        files.run_share(found, lab, share, _engine(options))
    else:
        files.run_files(found, lab, _engine(options), draw_more, index, options.quiet)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ropelab {ropelab.__version__}")
        raise typer.Exit


@app.callback()
def _top(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_own = [each for each in inspect.signature(run_files).parameters.values() if each.name != "options"]
app.command("run")(
    flags.taking_options(
        run_files, [each.replace(kind=each.KEYWORD_ONLY) for each in _own], flags.OF_ONE_RUN
    )
)
for _experiment in experiments.every():
    _add_command(_experiment)
desk.register(app)
cli_results.add_to(app)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: errors are one line on stderr, never a traceback."""
    sys.exit(status_of(lambda: app(arguments, prog_name="ropelab", standalone_mode=False)))
