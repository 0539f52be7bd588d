"""Tables of a run for other programs: CSV, Parquet, LaTeX, Markdown, evaluation results."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ropelab.errors import InputError, unknown_name
from ropelab.runs.folders import replaced_file
from ropelab.runs.tables import as_markdown
from ropelab.show.harness.files import files_of
from ropelab.show.page.shown import Shown
from ropelab.show.terminal import format_value


def as_latex(table: pd.DataFrame) -> str:
    """A `tabular` with booktabs rules, rounded for reading; what LaTeX would read is escaped."""
    shown = table.map(format_value).rename(columns=lambda name: str(name).replace("_", " "))
    sides = ["r" if pd.api.types.is_numeric_dtype(table[name]) else "l" for name in table.columns]
    styler = shown.style.hide(axis="index").format(escape="latex")
    styler = styler.format_index(escape="latex", axis="columns")
    return str(styler.to_latex(column_format="".join(sides), hrules=True))


def _as_csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, lineterminator="\n")


def _as_markdown(table: pd.DataFrame) -> str:
    return "\n".join(as_markdown(table, format_value)) + "\n"


TEXTS: Mapping[str, Callable[[pd.DataFrame], str]] = {
    "csv": _as_csv,
    "latex": as_latex,
    "markdown": _as_markdown,
}
ENDINGS = {"csv": "csv", "latex": "tex", "markdown": "md", "parquet": "parquet", "lm-eval": "json"}


def check_format(name: str) -> str:
    """The format of that name; InputError with the nearest one if there is none."""
    if name not in ENDINGS:
        raise unknown_name("export format", name, tuple(ENDINGS))
    return name


def chosen(run: Shown, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The tables of those names, all if none is given; InputError for one the run has not."""
    for name in names:
        if name not in run.tables:
            raise unknown_name("table", name, tuple(run.tables))
    return {name: run.tables[name] for name in names or run.tables}


def text_of(run: Shown, tables: Mapping[str, pd.DataFrame], kind: str) -> str:
    """The tables as text to print.

    Raises:
        InputError: the format is not text, or is several files.
    """
    if kind == "lm-eval":
        return _one_file(files_of(run, tables))
    if kind not in TEXTS:
        raise InputError(f"{kind} is not text: give --output FOLDER")
    return "\n".join(TEXTS[kind](table) for table in tables.values())


def write_tables(
    run: Shown, tables: Mapping[str, pd.DataFrame], kind: str, folder: Path
) -> list[Path]:
    """One file per table in `folder`; for evaluation results those that the harness would write."""
    if kind == "lm-eval":
        return _write_files(files_of(run, tables), folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.{ENDINGS[kind]}" for name in tables}
    for name, table in tables.items():
        with replaced_file(paths[name]) as fresh:
            if kind == "parquet":
                _write_parquet(table, fresh)
            else:
                fresh.write_text(text_of(run, {name: table}, kind), encoding="utf-8")
    return list(paths.values())


def _one_file(documents: Mapping[str, dict[str, Any]]) -> str:
    if len(documents) != 1:
        raise InputError(f"lm-eval would be {len(documents)} files here: give --output FOLDER")
    return "".join(map(_as_json, documents.values()))


def _write_files(documents: Mapping[str, dict[str, Any]], folder: Path) -> list[Path]:
    for name, document in documents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(folder / name) as fresh:
            fresh.write_text(_as_json(document), encoding="utf-8")
    return [folder / name for name in documents]


def _as_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _write_parquet(table: pd.DataFrame, path: Path) -> None:
    try:
        table.to_parquet(path, index=False)
    except ImportError:
        raise InputError("parquet needs pyarrow: pip install 'ropelab[parquet]'") from None
