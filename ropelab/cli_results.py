"""The commands for what has been run, and for what a browser computes: report, explore, export."""

from pathlib import Path
from typing import Annotated

import typer

Results = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="Folder in which runs are kept.")
]


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Folders of runs or results; without any, DIR."),
    ] = None,
    results: Results = Path("results"),
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The page  [default: DIR/index.html]"),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Heading of the page.")] = "Results",
) -> None:
    """Write one HTML page of finished runs: answers, plots, tables, comparisons; no network."""
    from ropelab.page.report import write_report
    from ropelab.page.shown import find_runs

    path = output or (Path("report.html") if runs else results / "index.html")
    typer.echo(f"page: {write_report(find_runs(runs or [results]), path, title)}")


def explore(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page.")
    ] = Path("explore.html"),
) -> None:
    """Write one HTML page of sliders: wavelengths, phases, sums of cosines, angle errors."""
    from ropelab.page.explore import write_explore

    typer.echo(f"page: {write_explore(output)}")


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("report")(report)
    app.command("explore")(explore)
