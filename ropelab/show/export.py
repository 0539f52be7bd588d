"""Tables of a run for other programs: CSV, Parquet, LaTeX, Markdown, evaluation results."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from ropelab.runs.errors import InputError, known
from ropelab.runs.tables import Tables, as_markdown
from ropelab.show.harness import files_of
from ropelab.show.page.shown import Shown
from ropelab.show.terminal import format_value

ENDINGS = {"csv": "csv", "latex": "tex", "markdown": "md", "parquet": "parquet", "lm-eval": "json"}


def as_latex(table: pd.DataFrame) -> str:
    """Return a `tabular` with booktabs rules, rounded for reading and escaped."""
    shown = table.map(format_value).rename(columns=lambda name: str(name).replace("_", " "))
    sides = ["r" if pd.api.types.is_numeric_dtype(table[name]) else "l" for name in table.columns]
    styler = shown.style.hide(axis="index").format(escape="latex")
    styler = styler.format_index(escape="latex", axis="columns")
    return str(styler.to_latex(column_format="".join(sides), hrules=True))


ENCODERS: Mapping[str, Callable[[pd.DataFrame], bytes]] = {
    "csv": lambda table: table.to_csv(index=False, lineterminator="\n").encode(),
    "latex": lambda table: as_latex(table).encode(),
    "markdown": lambda table: ("\n".join(as_markdown(table, format_value)) + "\n").encode(),
    "parquet": lambda table: table.to_parquet(index=False),
}


def chosen(run: Shown, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the tables of those names, all if none is given; raise InputError for a wrong one."""
    return {name: run.tables[known("table", name, run.tables)] for name in names or run.tables}


def text_of(run: Shown, tables: Tables, kind: str) -> str:
    """Return the tables as text to print; InputError if that is not text, or is several files."""
    if kind == "parquet":
        raise InputError(f"{kind} is not text: give --output FOLDER")
    files = as_files(run, tables, kind)
    if kind == "lm-eval" and len(files) != 1:
        raise InputError(f"lm-eval would be {len(files)} files here: give --output FOLDER")
    return "\n".join(content.decode() for content in files.values())


def as_files(run: Shown, tables: Tables, kind: str) -> dict[str, bytes]:
    """Encode a file per table, or for evaluation results those that the harness would write."""
    if kind == "lm-eval":
        style: dict[str, Any] = {"indent": 2, "ensure_ascii": False, "allow_nan": False}
        documents = files_of(run, tables).items()
        return {path: f"{json.dumps(one, **style)}\n".encode() for path, one in documents}
    try:
        return {f"{name}.{ENDINGS[kind]}": ENCODERS[kind](tables[name]) for name in tables}
    except ImportError:
        raise InputError("parquet needs pyarrow: pip install 'ropelab[parquet]'") from None
