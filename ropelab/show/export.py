"""Tables of a run for other programs: CSV, Parquet, LaTeX, Markdown, evaluation results."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from ropelab.runs.errors import InputError, known
from ropelab.runs.folders import replaced_file
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


TEXTS: Mapping[str, Callable[[pd.DataFrame], str]] = {
    "csv": lambda table: table.to_csv(index=False, lineterminator="\n"),
    "latex": as_latex,
    "markdown": lambda table: "\n".join(as_markdown(table, format_value)) + "\n",
}


def chosen(run: Shown, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the tables of those names, all if none is given; raise InputError for a wrong one."""
    return {name: run.tables[known("table", name, run.tables)] for name in names or run.tables}


def text_of(run: Shown, tables: Tables, kind: str) -> str:
    """Return the tables as text to print; InputError if that is not text, or is several files."""
    if kind == "parquet":
        raise InputError(f"{kind} is not text: give --output FOLDER")
    texts = _texts(run, tables, kind)
    if kind == "lm-eval" and len(texts) != 1:
        raise InputError(f"lm-eval would be {len(texts)} files here: give --output FOLDER")
    return "\n".join(texts.values())


def write_tables(run: Shown, tables: Tables, kind: str, folder: Path) -> list[Path]:
    """Write a file per table, or for evaluation results those that the harness would write."""
    if kind == "parquet":
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            try:
                with replaced_file(folder / f"{name}.parquet") as fresh:
                    table.to_parquet(fresh, index=False)
            except ImportError:
                raise InputError("parquet needs pyarrow: pip install 'ropelab[parquet]'") from None
        return [folder / f"{name}.parquet" for name in tables]
    texts = _texts(run, tables, kind)
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(folder / path) as fresh:
            fresh.write_text(text, encoding="utf-8")
    return [folder / path for path in texts]


def _texts(run: Shown, tables: Tables, kind: str) -> dict[str, str]:
    if kind != "lm-eval":
        return {f"{name}.{ENDINGS[kind]}": TEXTS[kind](table) for name, table in tables.items()}
    return {
        path: json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        for path, document in files_of(run, tables).items()
    }
