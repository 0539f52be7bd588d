"""The commands for what has been run, for what a browser computes, and for lists of
names.
"""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ropelab.cli.flags import Json, Options, Results
from ropelab.cli.outcome import print_document, print_line
from ropelab.runs.errors import InputError, known, printable

# Rows of each table of a comparison that the terminal shows.
MOST_ROWS = 12


def report(
    runs: Annotated[
        list[Path] | None,
        Argument(metavar="RUN", help="Folders of runs or results; without any, DIR."),
    ] = None,
    results: Results = Options.results,
    output: Annotated[
        Path | None,
        Option(
            "--output", "-o", metavar="FILE", help="The page  [default: DIR/index.html]"
        ),
    ] = None,
    title: Annotated[str, Option("--title", help="Heading of the page.")] = "Results",
) -> None:
    """Write one HTML page of finished runs: answers, plots, tables, comparisons; no
    network.
    """
    from ropelab.claims.ledger import judge_run
    from ropelab.show.drawn import check_place
    from ropelab.show.page.document import MARK
    from ropelab.show.page.report import write_report
    from ropelab.show.page.shown import find_runs
    from ropelab.show.terminal import Delayed, progress_here

    path = output or (Path("report.html") if runs else results / "index.html")
    shown = find_runs(runs or [results], judge_run)
    check_place(path, MARK)
    page = write_report(shown, path, title, progress=Delayed(progress_here()))
    print_line(f"page: {page}")


def explore(
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE", help="The page.")
    ] = Path("explore.html"),
) -> None:
    """Write one HTML page of sliders: wavelengths, phases, sums of cosines, angle
    errors.
    """
    from ropelab.show.drawn import check_place
    from ropelab.show.page.document import MARK
    from ropelab.show.page.explore import write_explore

    check_place(output, MARK)
    print_line(f"page: {write_explore(output)}")


def export(
    run: Annotated[Path, Argument(metavar="RUN", help="Folder of a finished run.")],
    kind: Annotated[
        str,
        Option(
            "--format",
            metavar="FORMAT",
            help="csv, parquet, latex or markdown.",
        ),
    ] = "csv",
    table: Annotated[
        list[str] | None,
        Option(
            "--table",
            metavar="NAME",
            help="A table; may be given again  [default: all]",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        Option(
            "--output", "-o", metavar="FOLDER", help="Write files here, else to stdout."
        ),
    ] = None,
) -> None:
    """Print or write the tables of a run for another program, or for a paper."""
    from ropelab.claims.ledger import judge_run
    from ropelab.show import export
    from ropelab.show.drawn import write
    from ropelab.show.page.shown import find_runs

    known("export format", kind, export.ENDINGS)
    shown, *others = find_runs([run], judge_run)
    if others:
        raise InputError(f"{run} holds {len(others) + 1} runs; give the folder of one")
    tables = export.chosen(shown, table or ())
    if output is None:
        text = export.text_of(tables, kind)
        typer.echo(printable(text) if sys.stdout.isatty() else text, nl=False)
        return
    for path in write(export.as_files(tables, kind), output):
        print_line(path)


def compare(
    first: Annotated[Path, Argument(metavar="RUN", help="Folder of a finished run.")],
    second: Annotated[
        Path, Argument(metavar="RUN", help="Another one of that experiment.")
    ],
    json: Json = False,
) -> None:
    """Compare two runs: their settings, and the values that both have, table by
    table.
    """
    from ropelab.claims.ledger import judge_run
    from ropelab.runs.store import to_records
    from ropelab.show import compare, terminal
    from ropelab.show.page.shown import find_runs

    runs = []
    for path in (first, second):
        shown, *others = find_runs([path], judge_run)
        if others:
            raise InputError(
                "compare takes the folders of two runs, each with a manifest.json"
            )
        runs.append(shown)
    answer, tables = compare.compared(*runs)

    if json:
        rows = {name: to_records(table) for name, table in tables.items()}
        print_document({"experiment": "compare", "answer": answer, "tables": rows})
        return
    terminal.show_paragraph(answer)
    for name, table in tables.items():
        if len(table):
            terminal.show_more(name, table.head(MOST_ROWS))
    following = shlex.join(["ropelab", "report", str(first), str(second)])
    terminal.show_places({"next": following})


def schema(
    command: Annotated[str, Argument(metavar="COMMAND", help="One with --json.")],
) -> None:
    """Print the JSON schema of what a command prints with --json."""
    from ropelab.cli.schema import schema_of

    print_document(schema_of(command))


def list_configs() -> None:
    """Print the configs that come with ropelab, each with what it asks."""
    from ropelab.runs import builtin
    from ropelab.show.columns import GAP
    from ropelab.show.terminal import show_paragraph

    configs = builtin.listed()
    width = max(map(len, configs), default=0) + GAP
    show_paragraph("Configs that come with ropelab; each is run by `ropelab run NAME`:")
    for name, about in configs.items():
        show_paragraph(f"{name:<{width}}{about}", indent=GAP, hanging=width)
    show_paragraph(
        "Your own: `ropelab run PATH`. All but those in folders: `ropelab run configs`."
    )


def methods(json: Json = False) -> None:
    """Every method that --method and --methods take: parameters, meaning of the factor,
    source.
    """
    from ropelab.models.methods.registry import catalogue
    from ropelab.runs.store import to_records
    from ropelab.show import terminal

    table = catalogue()
    if json:
        print_document({"tables": {"methods": to_records(table)}})
    else:
        terminal.show_records(table, title="method")
        terminal.show_places({"next": "ropelab extrapolate --methods yarn,pi --quick"})


def models(json: Json = False) -> None:
    """Every model that --model takes: base, widths, lengths, scaling method, source."""
    from ropelab.math.models import table as known_models
    from ropelab.runs.store import to_records
    from ropelab.show import terminal

    table = known_models()
    if json:
        print_document({"tables": {"models": to_records(table)}})
    else:
        terminal.show_table(table, terminal.console())
        terminal.show_places({"next": "ropelab freqs --model llama-3.1-8b"})
