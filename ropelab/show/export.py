"""Tables of a run for other programs: CSV, Parquet, LaTeX, Markdown."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from ropelab.runs.errors import InputError, known
from ropelab.runs.leading import leads_by_column
from ropelab.runs.sentences import verdict_and_rest
from ropelab.runs.tables import Tables, as_markdown
from ropelab.show.page.shown import Shown
from ropelab.show.terminal import format_value

SUMMARY = "summary"
ENDINGS = {
    "csv": "csv",
    "latex": "tex",
    "markdown": "md",
    "parquet": "parquet",
}


def as_latex(table: pd.DataFrame, caption: str = "") -> str:
    """Return a `tabular` with booktabs rules, rounded for reading and escaped.

    A value with its interval is one cell, `0.56 [0.41, 0.71]`. Rows that lead a column
    (`attrs["leaders"]`) are bold there. With a caption it is a `table`.
    """
    names = table.iloc[:, 0].astype(str)
    leaders: Mapping[str, Sequence[str]] = table.attrs.get("leaders", {})
    best = {
        column: [*table.index[names.isin(leading)]]
        for column, leading in leaders.items()
    }
    table = _with_intervals(table)
    shown = table.map(format_value).rename(
        columns=lambda name: str(name).replace("_", " ")
    )
    sides = [
        "r" if pd.api.types.is_numeric_dtype(table[name]) else "l"
        for name in table.columns
    ]
    styler = shown.style.hide(axis="index").format(escape="latex")
    styler = styler.format_index(escape="latex", axis="columns")
    for name, rows in best.items():
        where = pd.IndexSlice[rows, name.replace("_", " ")]
        styler = styler.set_properties(subset=where, textbf="--rwrap")
    about: dict[str, Any] = (
        {"caption": escape_latex(caption), "position": "t"} if caption else {}
    )
    return str(styler.to_latex(column_format="".join(sides), hrules=True, **about))


def escape_latex(text: str) -> str:
    """Escape a text for LaTeX.

    >>> escape_latex("50 % of a_b")
    '50 \\\\% of a\\\\_b'
    """
    return re.sub(r"([&%$#_{}])", r"\\\1", text)


def _with_intervals(table: pd.DataFrame) -> pd.DataFrame:
    """Put an interval into the cells of its value, the column before it."""
    if not {"ci_low", "ci_high"} <= {*table.columns}:
        return table
    value = str(table.columns[[*table.columns].index("ci_low") - 1])
    parts = [table[name].map(format_value) for name in (value, "ci_low", "ci_high")]
    joined = parts[0] + " [" + parts[1] + ", " + parts[2] + "]"
    joined = joined.where(table["ci_low"].notna(), parts[0])
    return table.assign(**{value: joined}).drop(columns=["ci_low", "ci_high"])


ENCODERS: Mapping[str, Callable[[pd.DataFrame], bytes]] = {
    "csv": lambda table: table.to_csv(index=False, lineterminator="\n").encode(),
    "latex": lambda table: as_latex(table, table.attrs.get("caption", "")).encode(),
    "markdown": lambda table: (
        "\n".join(as_markdown(table, format_value)) + "\n"
    ).encode(),
    "parquet": lambda table: table.to_parquet(index=False),
}


def choose_tables(run: Shown, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the tables of those names, all if none is given, the summary first; raise
    InputError for a wrong one.
    """
    tables: dict[str, pd.DataFrame] = {}
    if summary := run.manifest.get("summary"):
        tables[SUMMARY] = pd.DataFrame(summary)
        tables[SUMMARY].attrs["caption"] = verdict_and_rest(run.manifest["answer"])[0]
        compared = run.tables.get("comparisons", pd.DataFrame())
        leads = leads_by_column(tables[SUMMARY], compared)
        tables[SUMMARY].attrs["leaders"] = {
            column: lead.names for column, lead in leads.items()
        }
    tables |= run.tables
    return {name: tables[known("table", name, tables)] for name in names or tables}


def encode_text(tables: Tables, kind: str) -> str:
    """Return the tables as text to print; InputError if that is not text."""
    if kind == "parquet":
        raise InputError(f"{kind} is not text: give --output FOLDER")
    return "\n".join(
        content.decode() for content in encode_tables(tables, kind).values()
    )


def encode_tables(tables: Tables, kind: str) -> dict[str, bytes]:
    """Encode a file per table."""
    try:
        return {
            f"{name}.{ENDINGS[kind]}": ENCODERS[kind](table)
            for name, table in tables.items()
        }
    except ImportError:
        raise InputError("parquet needs pyarrow: pip install '.[parquet]'") from None
