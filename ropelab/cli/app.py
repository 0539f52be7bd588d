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
from ropelab.cli.outcome import print_document, print_line, status_of
from ropelab.errors import InputError, unknown_name
from ropelab.experiments import Experiment
from ropelab.runs import builtin
from ropelab.runs.config import Label, read_toml, take_label
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
    epilog="Exit status: 0 fine, 1 the machine failed, 2 bad input, 130 interrupted, "
    "143 terminated; of audit, emit and check: 3 something found.",
)


def _add_command(experiment: Experiment) -> None:
    """Register an experiment: its flags are the fields of its config, then the common ones."""

    common = flags.common(experiment.config)

    def command(**given: Any) -> None:
        others = {name: given.pop(name) for name in common}
        _run_one(experiment, {k: _joined(v) for k, v in given.items() if v is not None}, **others)

    parameters = flags.parameters(experiment.config)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    app.command(
        experiment.name,
        help=f"{experiment.question}\n\nCannot show: {experiment.cannot_show}",
        short_help=experiment.question,
    )(command)


def _joined(value: Any) -> Any:
    """A flag given several times names all that it was given."""
    return ",".join(value) if isinstance(value, list) else value


def _run_one(
    experiment: Experiment,
    fields: dict[str, Any],
    *,
    config: Path | None,
    results: Path,
    force: bool,
    no_limits: bool,
    redraw: bool,
    format: str,
    style: str,
    figures: bool | None,
    quiet: bool,
    json: bool,
    workers: int | None = 1,
    engine: str = "local",
    address: str | None = None,
) -> None:
    draw_more = _more_figures(format, style)
    label, values = _from_file(experiment.name, config) if config else (Label(), {})
    drawn = not json if figures is None else figures
    lab = _lab(results, force, redraw, drawn, quiet or (json and not sys.stderr.isatty()))
    lab = replace(lab, workers=workers, limits=not no_limits)
    plan = lab.prepare(experiment.name, {**values, **fields}, flags.flag_of)
    with _engine(engine, workers, address) as started:
        run = replace(lab, engine=started).run(replace(plan, label=label))
    draw_more(run)
    if json:
        print_json(run)
    elif not quiet:
        _show(run)


def _more_figures(formats: str, style: str) -> "Callable[[Run], object]":
    """What draws the figures that were asked for beside the usual ones, its options checked."""
    from ropelab.show import drawn

    names, kind = drawn.read_formats(formats), drawn.check_style(style)
    if drawn.is_default(names, kind):
        return lambda run: None

    def draw(run: "Run") -> None:
        assert run.folder is not None
        drawn.write(drawn.as_files(run.figures(kind), names, kind), run.folder / "figures")

    return draw


def _from_file(name: str, path: Path) -> tuple[Label, dict[str, Any]]:
    wanted, values = read_toml(path)
    if wanted != name:
        raise InputError(f"{path} is a config for '{wanted}', not for '{name}'")
    if "grid" in values or "case" in values:
        raise InputError(f"{path} asks for many runs: ropelab run {path}")
    return take_label(path, values)


def _lab(results: Path, force: bool, redraw: bool, figures: bool, quiet: bool) -> "Lab":
    from ropelab.lab import Lab
    from ropelab.runs.cell import silent
    from ropelab.show import terminal

    os.environ.setdefault("MPLBACKEND", "agg")  # figures go to files: no window is opened
    loud = terminal.Bars() if sys.stderr.isatty() else terminal.PlainLines()
    progress = silent if quiet else loud
    notice = None if quiet else say
    return Lab(results, force, redraw, figures, progress, terminal.say_waiting, notice)


@contextmanager
def _engine(name: str, workers: int | None, address: str | None) -> "Iterator[Engine]":
    """An engine while the block runs."""
    engine = _made(name, workers, address)
    try:
        yield engine
    finally:
        engine.stop()


def _made(name: str, workers: int | None, address: str | None) -> "Engine":
    """The engine of that name; one local worker is this process."""
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    if name == "ray":
        from ropelab.runs.engine.on_ray import OnRay

        return OnRay(address, workers)
    if address is not None:
        raise InputError("--address names a Ray cluster; give --engine ray with it")
    if workers == 1:
        from ropelab.runs.engine import Here

        return Here()
    from ropelab.runs.engine.local import Workers

    return Workers(workers)


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
    """Every method that --method and --methods take: knobs, meaning of the factor, source."""
    from ropelab.models.methods.registry import catalogue
    from ropelab.runs.store import to_records
    from ropelab.show import terminal

    table = catalogue()
    if json_:
        print_document({"tables": {"methods": to_records(table)}})
    else:
        terminal.show_records(table, title="method")


@app.command("run")
def run_files(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH...]",
            help="TOML files, folders of them, or names of those that come with ropelab; without "
            "any these are listed.",
        ),
    ] = None,
    results: flags.Results = Path("results"),
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
    force: flags.Force = False,
    no_limits: flags.NoLimits = False,
    redraw: flags.Redraw = False,
    format: flags.Formats = "png",
    style: flags.Style = "screen",
    quiet: flags.Quiet = False,
    workers: flags.WorkerCount = None,
    engine: flags.EngineName = "local",
    address: flags.Address = None,
) -> None:
    """Carry out every run that files ask for, and write an index and a page of all runs.

    A file asks for one run, or for many: [grid] has a list for each of some keys, and every
    combination is a run; each table [[case]] is a run. Such a file ends in one table and one
    figure of all its runs. What is finished is reused.
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
    draw_more = _more_figures(format, style)
    lab = replace(_lab(results, force, redraw, True, quiet), workers=workers, limits=not no_limits)
    found = [builtin.resolved(path) for path in paths]
    if dry_run:
        files.list_files(found, lab, share)
    elif share:
        files.run_share(found, lab, share, _engine(engine, workers, address))
    else:
        files.run_files(found, lab, _engine(engine, workers, address), draw_more, index, quiet)


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


for _name in experiments.NAMES:
    _add_command(experiments.load(_name))
desk.register(app)
cli_results.add_to(app)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: errors are one line on stderr, never a traceback."""
    sys.exit(status_of(lambda: app(arguments, prog_name="ropelab", standalone_mode=False)))
