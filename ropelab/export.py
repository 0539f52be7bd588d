"""Tables of a run for other programs: CSV, Parquet, LaTeX, Markdown, evaluation results."""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ropelab.errors import InputError, unknown_name
from ropelab.folders import replaced_file
from ropelab.page.columns import labelled
from ropelab.page.shown import Shown
from ropelab.page.views import intervals, kinds_of, views_of
from ropelab.stats import mean_interval
from ropelab.tables import as_markdown
from ropelab.terminal import format_value

Z95 = 1.959963984540054
"""Half-width of a 95 % interval in standard errors, for intervals of many samples."""


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
        InputError: the format is not text.
    """
    if kind == "lm-eval":
        return json.dumps(evaluation(run, tables), indent=2, ensure_ascii=False) + "\n"
    if kind not in TEXTS:
        raise InputError(f"{kind} is not text: give --output FOLDER")
    return "\n".join(TEXTS[kind](table) for table in tables.values())


def write_tables(
    run: Shown, tables: Mapping[str, pd.DataFrame], kind: str, folder: Path
) -> list[Path]:
    """One file per table in `folder`; for evaluation results one for all."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = {"results": tables} if kind == "lm-eval" else {n: {n: t} for n, t in tables.items()}
    paths = {name: folder / f"{name}.{ENDINGS[kind]}" for name in groups}
    for name, group in groups.items():
        with replaced_file(paths[name]) as fresh:
            if kind == "parquet":
                _write_parquet(group[name], fresh)
            else:
                fresh.write_text(text_of(run, group, kind), encoding="utf-8")
    return list(paths.values())


def _write_parquet(table: pd.DataFrame, path: Path) -> None:
    try:
        table.to_parquet(path, index=False)
    except ImportError:
        raise InputError("parquet needs pyarrow: pip install 'ropelab[parquet]'") from None


def evaluation(run: Shown, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Measured tables in the shape of lm-evaluation-harness' results file.

    Every line of a table at every place is a task, named `<experiment>/<table>/<line>@<place>`,
    with the metric `<name>,none` and its standard error: over seeds where there are several, else
    from the 95 % interval, else "N/A". Tables without intervals or seeds measure nothing.
    """
    results: dict[str, dict[str, Any]] = {}
    samples: dict[str, dict[str, int]] = {}
    for name, table in tables.items():
        for task, metric, rows, bounds in _tasks(name, labelled(table)):
            full = f"{run.manifest['experiment']}/{task}"
            value, error = _estimate(rows, metric, bounds)
            results[full] = {
                "alias": full,
                f"{metric},none": value,
                f"{metric}_stderr,none": error,
            }
            samples[full] = {"original": len(rows), "effective": len(rows)}
    return {
        "results": results,
        "n-samples": samples,
        "n-shot": dict.fromkeys(results, 0),
        "versions": dict.fromkeys(results, run.manifest.get("version")),
        "config": run.manifest.get("config", {}),
        "model_name": f"ropelab {run.manifest['experiment']}",
        "git_hash": run.manifest.get("commit"),
        "date": run.manifest.get("start"),
    }


def _tasks(
    name: str, table: pd.DataFrame
) -> Iterator[tuple[str, str, pd.DataFrame, tuple[str, str] | None]]:
    view = views_of(name, table)
    if view is None or len(view.y) != 1:
        return
    bounds = intervals([str(column) for column in table.columns]).get(view.y[0])
    if bounds is None and "repeat" not in kinds_of(table).values():
        return
    keys = [*view.where, *view.series, view.x]
    for values, rows in table.groupby(keys, sort=False):
        *line, at = (_spoken(value) for value in values)
        yield f"{name}/{','.join(line)}@{at}", view.y[0], rows.dropna(subset=view.y[0]), bounds


def _spoken(value: Hashable) -> str:
    return format_value(value)


def _estimate(
    rows: pd.DataFrame, metric: str, bounds: tuple[str, str] | None
) -> tuple[float | None, float | str]:
    """Mean and standard error; an empty group has neither."""
    if rows.empty:
        return None, "N/A"
    mean = mean_interval(rows[metric])
    if mean.n > 1:
        return mean.value, float(rows[metric].to_numpy(dtype=float).std(ddof=1)) / mean.n**0.5
    if bounds is None or rows[list(bounds)].isna().any(axis=None):
        return mean.value, "N/A"
    low, high = rows[list(bounds)].to_numpy(dtype=float)[0]
    return mean.value, float(high - low) / (2 * Z95)
