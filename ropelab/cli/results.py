"""The commands that show finished runs, write pages for a browser, and list names.

A run is an experiment with its config. Its folder has tables, figures and a manifest.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from ropelab.cli.flags import Json, Options, Results
from ropelab.cli.outcome import print_document, print_line
from ropelab.runs.errors import InputError, check_known, escape_controls, say

# The columns of the list of models, each with its title in the list.
LISTED_COLUMNS = {
    "name": "name",
    "base": "base",
    "head_dim": "head dim",
    "train_len_tokens": "trained",
    "context_len_tokens": "context",
    "method": "method",
}
# The number of spaces before the settings of a config.
INDENT = 4
# The most rows of each table of a comparison that the terminal shows.
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
    from ropelab.restate import restate
    from ropelab.show.drawn import check_output_path
    from ropelab.show.page.document import MARK
    from ropelab.show.page.report import write_report
    from ropelab.show.page.shown import find_runs
    from ropelab.show.terminal import DelayedProgress, choose_progress

    if runs and results != Options.results:
        raise InputError("give the folders of runs or --results, not both")
    path = output
    if path is None and runs:
        path = Path("report.html")
    elif path is None:
        path = results / "index.html"
    shown = find_runs(runs or [results], judge_run, restate)
    check_output_path(path, MARK)
    page = write_report(shown, path, title, progress=DelayedProgress(choose_progress()))
    print_line(f"page: {page}")


def explore(
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE", help="The page.")
    ] = Path("explore.html"),
) -> None:
    """Write one HTML page of sliders: wavelengths, phases, sums of cosines, angle
    errors.
    """
    from ropelab.show.drawn import check_output_path
    from ropelab.show.page.document import MARK
    from ropelab.show.page.explore import write_explore

    check_output_path(output, MARK)
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
            help="A table; may be given again  [default: all, the summary first; of LaTeX"
            " on stdout the summary alone]",
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
    from ropelab.restate import restate
    from ropelab.show import export
    from ropelab.show.drawn import write_for_user
    from ropelab.show.page.shown import find_runs

    check_known("export format", kind, export.ENDINGS)
    shown, *other_runs = find_runs([run], judge_run, restate)
    if other_runs:
        raise InputError(
            f"{run} holds {len(other_runs) + 1} runs; give the folder of one"
        )
    tables = export.choose_tables(shown, table or ())
    empty_tables = export.list_empty(shown)
    if empty_tables and not table:
        say(f"left out, since they have no rows: {', '.join(empty_tables)}")
    prints_latex = kind == "latex" and output is None
    if prints_latex and not table and export.SUMMARY in tables:
        # A paper shows the summary. All tables together have hundreds of lines.
        other_names = [name for name in tables if name != export.SUMMARY]
        tables = {export.SUMMARY: tables[export.SUMMARY]}
        say(f"the summary alone; others by --table: {', '.join(other_names)}")
    if output is None:
        text = export.encode_text(tables, kind)
        typer.echo(escape_controls(text) if sys.stdout.isatty() else text, nl=False)
        return
    for path in write_for_user(export.encode_tables(tables, kind), output):
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
    from ropelab.runs.store import make_records
    from ropelab.show import compare, terminal
    from ropelab.show.page.shown import find_runs

    runs = []
    for path in (first, second):
        shown, *other_runs = find_runs([path], judge_run)
        if other_runs:
            raise InputError(
                "compare takes the folders of two runs, each with a manifest.json"
            )
        runs.append(shown)
    answer, tables = compare.compare_runs(*runs)

    if json:
        rows = {name: make_records(table) for name, table in tables.items()}
        print_document({"experiment": "compare", "answer": answer, "tables": rows})
        return
    terminal.show_paragraph(answer)
    for name, table in tables.items():
        if len(table):
            terminal.show_more(name, table.head(MOST_ROWS))
    next_command = shlex.join(["ropelab", "report", str(first), str(second)])
    terminal.show_places({"next": next_command})


def schema(
    command: Annotated[str, Argument(metavar="COMMAND", help="One with --json.")],
) -> None:
    """Print the JSON schema of what a command prints with --json."""
    from ropelab.cli.schema import find_schema

    print_document(find_schema(command))


def list_configs() -> None:
    """Print the configs that come with ropelab, each with its question.

    Configs of one folder are printed in one block.
    """
    from ropelab.runs import builtin
    from ropelab.show.terminal import show_list, show_paragraph, show_places

    configs = builtin.list_configs()
    show_paragraph("Configs that come with ropelab, by the name that `run` takes:")
    folder = ""
    block: dict[str, str] = {}
    for name, about in configs.items():
        parent = name.rpartition("/")[0]
        if parent != folder:
            show_list(block)
            print_line("")
            block = {}
            folder = parent
        block[name] = about
    show_list(block)
    places = {
        "in full": "ropelab run precision --explain",
        "all": "ropelab run configs --dry-run",
        "yours": "ropelab run PATH",
    }
    show_places(places)


def explain_configs(paths: Sequence[Path]) -> None:
    """Print the questions that config files ask and the values that they set, without
    making a run.
    """
    from ropelab.experiments import read_records
    from ropelab.runs import builtin
    from ropelab.runs.config import read_toml
    from ropelab.show.terminal import show_paragraph, show_places

    for number, path in enumerate(paths):
        file = builtin.find_config(path)
        if file.is_dir():
            raise InputError(f"{path} is a folder; --explain takes the files in it")
        experiment, values = read_toml(file)
        check_known("experiment", experiment, read_records())

        if number > 0:
            print_line("")
        comment = builtin.read_comment(file)
        if comment:
            show_paragraph(comment)
            print_line("")
        show_paragraph(f"{experiment}: {read_records()[experiment]['question']}")
        for key, value in values.items():
            show_paragraph(
                f"{key}: {_write_setting(value)}", indent=INDENT, hanging=INDENT
            )
        cost_command = shlex.join(["ropelab", "run", str(path), "--dry-run"])
        show_places({"file": str(file), "cost": cost_command})


def _write_setting(value: Any) -> str:
    """Write a value of a config file in one line, with its keys if it is a table."""
    if isinstance(value, dict):
        settings = [f"{key} {_write_setting(inner)}" for key, inner in value.items()]
        return "; ".join(settings)
    if value == []:
        return "none"
    if isinstance(value, list) and isinstance(value[0], dict):
        # These are the cases of a file that asks for many runs.
        return " | ".join(map(_write_setting, value))
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def methods(
    name: Annotated[
        str, Argument(metavar="NAME", help="One of them, in full.", show_default=False)
    ] = "",
    json: Json = False,
) -> None:
    """List the methods that --method and --methods take; one of them in full, with
    parameters, meaning of the factor, and source.
    """
    from ropelab.math.methods import resolve_alias
    from ropelab.models.methods.registry import make_catalogue, suggest_use
    from ropelab.runs.store import make_records
    from ropelab.show import terminal

    table = make_catalogue()
    if name:
        chosen = check_known("method", resolve_alias(name), table["method"].tolist())
        table = table[table["method"] == chosen]
    if json:
        print_document({"tables": {"methods": make_records(table)}})
        return
    if name:
        terminal.show_records(table, title="method")
        command = suggest_use(chosen)
        if command:
            terminal.show_places({"next": command})
        return
    terminal.show_list(dict(zip(table["method"], table["does"], strict=True)))
    places = {
        "in full": "ropelab methods yarn",
        "next": "ropelab extrapolate --methods yarn,pi --quick",
    }
    terminal.show_places(places)


def models(
    name: Annotated[
        str, Argument(metavar="NAME", help="One of them, in full.", show_default=False)
    ] = "",
    json: Json = False,
) -> None:
    """List the models that --model takes; one of them in full, with widths, notes and
    source.
    """
    from ropelab.math.models import MODELS, OTHER_NAMES
    from ropelab.math.models import table as known_models
    from ropelab.runs.store import make_records
    from ropelab.show import terminal

    table = known_models()
    if name:
        typed_name = name.lower()
        chosen = check_known("model", OTHER_NAMES.get(typed_name, typed_name), MODELS)
        table = table[table["name"] == chosen]
    if json:
        print_document({"tables": {"models": make_records(table)}})
        return
    if name:
        terminal.show_records(table, title="name")
        terminal.show_places({"next": f"ropelab freqs --model {chosen}"})
        return
    listed = table[list(LISTED_COLUMNS)].rename(columns=LISTED_COLUMNS)
    terminal.show_table(listed, terminal.make_console(), decisive=["base"])
    places = {
        "in full": "ropelab models llama-3.1-8b",
        "next": "ropelab freqs --model llama-3.1-8b",
    }
    terminal.show_places(places)
