"""Tables of a run for other programs: CSV, Parquet, LaTeX, Markdown."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from ropelab.runs.errors import InputError, check_known
from ropelab.runs.leading import find_leads
from ropelab.runs.sentences import split_verdict
from ropelab.runs.tables import Tables
from ropelab.show.gallery import write_plain_table
from ropelab.show.intervals import join_intervals
from ropelab.show.page.shown import ShownRun
from ropelab.show.terminal import format_value

# The name of the short table of a run.
SUMMARY = "summary"
# The endings of files, by format.
ENDINGS = {
    "csv": "csv",
    "latex": "tex",
    "markdown": "md",
    "parquet": "parquet",
}
# The characters to which LaTeX gives a meaning, each with the command that prints it.
LATEX_COMMANDS = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def write_latex(table: pd.DataFrame, caption: str = "") -> str:
    """Return a table as LaTeX: a `tabular` with booktabs rules, inside a `table` if it
    has a caption.

    Numbers are rounded for reading. A value with its interval is one cell, `0.56 [0.41,
    0.71]`. `table.attrs["leaders"]` may have, for each column, the names of the rows whose
    cells in this column are bold.
    """
    names = table.iloc[:, 0].astype(str)
    leaders: Mapping[str, Sequence[str]] = table.attrs.get("leaders", {})
    bold_rows = {}
    for column, names_of_leaders in leaders.items():
        bold_rows[column] = list(table.index[names.isin(names_of_leaders)])

    table = join_intervals(table)
    texts = table.map(_write_cell).rename(columns=_write_title)
    styler = texts.style.hide(axis="index").format(escape="latex")
    styler = styler.format_index(escape="latex", axis="columns")
    for column, rows in bold_rows.items():
        bold_cells = pd.IndexSlice[rows, _write_title(column)]
        # pandas writes \textbf{...} around a cell for the property textbf: --rwrap.
        styler = styler.set_properties(subset=bold_cells, textbf="--rwrap")

    # Columns of numbers are aligned to the right, all others to the left.
    alignment = ""
    for column in table.columns:
        is_number = pd.api.types.is_numeric_dtype(table[column])
        alignment += "r" if is_number else "l"
    options: dict[str, Any] = {"column_format": alignment, "hrules": True}
    if caption:
        options |= {"caption": escape_latex(caption), "position": "t"}
    return str(styler.to_latex(**options))


def _write_cell(value: object) -> str:
    """Write a value in one line: a blank line would end the paragraph of a cell."""
    return " ".join(format_value(value).split())


def _write_title(column: object) -> str:
    return _write_cell(str(column).replace("_", " "))


def escape_latex(text: str) -> str:
    """Write a text as plain words in LaTeX.

    Anybody may have written a manifest, so its texts must not become commands, such as
    one that reads a file into a paper.

    >>> escape_latex("50 % of a_b")
    '50 \\\\% of a\\\\_b'
    """
    letters = [LATEX_COMMANDS.get(letter, letter) for letter in _write_cell(text)]
    return "".join(letters)


def _encode_csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False, lineterminator="\n").encode()


def _encode_latex(table: pd.DataFrame) -> bytes:
    return write_latex(table, table.attrs.get("caption", "")).encode()


def _encode_markdown(table: pd.DataFrame) -> bytes:
    lines = write_plain_table(table)
    return ("\n".join(lines) + "\n").encode()


def _encode_parquet(table: pd.DataFrame) -> bytes:
    return table.to_parquet(index=False)


ENCODERS: Mapping[str, Callable[[pd.DataFrame], bytes]] = {
    "csv": _encode_csv,
    "latex": _encode_latex,
    "markdown": _encode_markdown,
    "parquet": _encode_parquet,
}


def choose_tables(run: ShownRun, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the tables that `names` lists. If it is empty, return all tables, with the
    summary first.

    InputError: the run has no table with one of the names, or the table has no rows.
    """
    tables: dict[str, pd.DataFrame] = {}
    records = run.manifest.get("summary") or ()
    # If no row has an entry, there is no summary to export.
    if any(records):
        tables[SUMMARY] = _make_summary(run, records)
    tables |= run.tables
    if not names:
        return tables

    empty_tables = list_empty(run)
    for name in names:
        if name in empty_tables:
            raise InputError(f"the table {name} of this run has no rows")
    return {name: tables[check_known("table", name, tables)] for name in names}


def list_empty(run: ShownRun) -> list[str]:
    """Return the names of the stored tables that have no rows. They are not exported."""
    return [name for name, table in run.stored_tables.items() if table.empty]


def _make_summary(run: ShownRun, records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the short table of a run, with its caption and its leading rows."""
    summary = pd.DataFrame(records)
    verdict, _ = split_verdict(run.manifest["answer"])
    comparisons = run.tables.get("comparisons", pd.DataFrame())
    leads = find_leads(summary, comparisons)
    summary.attrs["caption"] = verdict
    summary.attrs["leaders"] = {column: lead.names for column, lead in leads.items()}
    return summary


def encode_text(tables: Tables, file_format: str) -> str:
    """Return the tables as text to print; InputError if `file_format` is not a text
    format.
    """
    if file_format == "parquet":
        raise InputError(f"{file_format} is not text: give --output FOLDER")
    files = encode_tables(tables, file_format)
    return "\n".join(content.decode() for content in files.values())


def encode_tables(tables: Tables, file_format: str) -> dict[str, bytes]:
    """Return the content of a file for each table, by the name of the file."""
    files = {}
    for name, table in tables.items():
        try:
            content = ENCODERS[file_format](table)
        except ImportError:
            raise InputError(
                "parquet needs pyarrow: pip install '.[parquet]'"
            ) from None
        files[f"{name}.{ENDINGS[file_format]}"] = content
    return files
