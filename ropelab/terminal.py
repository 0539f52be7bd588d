"""What a person sees: progress on stderr, then the answer, a short table and where it all is."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from ropelab.context import Advance

SPARSELY = 30.0  # seconds between two plain progress lines
SOON = 3.0  # seconds after which the first of them tells the time left


def say(text: str) -> None:
    """One line on stderr."""
    print(text, file=sys.stderr, flush=True)


def say_waiting(folder: Path) -> None:
    """Another process makes the same run."""
    say(f"waiting: another ropelab is making {folder}; its result will be used")


class Bars:
    """Progress bars for a terminal: what is done now, how far, how long still."""

    def __init__(self) -> None:
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._open = 0

    @contextmanager
    def __call__(self, description: str, total: float | None = None) -> Iterator[Advance]:
        """Show one bar while the block runs; blocks may nest."""
        if self._open == 0:
            self._bars.start()
        self._open += 1
        task = self._bars.add_task(description, total=total, note="")

        def advance(steps: float = 1, *, note: str = "") -> None:
            self._bars.advance(task, steps)
            if note:
                self._bars.update(task, note=note)

        try:
            yield advance
        finally:
            self._bars.remove_task(task)
            self._open -= 1
            if self._open == 0:
                self._bars.stop()


@contextmanager
def plain_lines(description: str, total: float | None = None) -> Iterator[Advance]:
    """Progress for a log file: a line at once, one after seconds, then one every half minute."""
    start = time.monotonic()
    due, done = start + SOON, 0.0
    say(f"{description} ...")

    def advance(steps: float = 1, *, note: str = "") -> None:
        nonlocal done, due
        done += steps
        now = time.monotonic()
        if now < due:
            return
        due = now + SPARSELY
        left = f", {(now - start) * (total / done - 1):.0f} s left" if total and done else ""
        share = f"{done / total:.0%}" if total else f"{done:g}"
        say(f"{description}: {share}{left}{f', {note}' if note else ''}")

    yield advance


def format_value(value: Any) -> str:
    """A value for reading: four significant digits, whole numbers whole, missing as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.4g}"
    if isinstance(value, float) and abs(value) < 1e15:
        return f"{value:.0f}"
    return str(value)


def show_table(table: pd.DataFrame, console: Console) -> None:
    """Print a short table; numbers to the right, names as words."""
    grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in table.columns:
        numeric = pd.api.types.is_numeric_dtype(table[column])
        grid.add_column(str(column).replace("_", " "), justify="right" if numeric else "left")
    for row in table.itertuples(index=False):
        grid.add_row(*(format_value(value) for value in row))
    console.print(grid)


def show_records(table: pd.DataFrame, title: str) -> None:
    """Print long rows as paragraphs under the column `title`; what is empty is left out."""
    console = Console(highlight=False, markup=False)
    for row in table.to_dict(orient="records"):
        console.print(row.pop(title), style="bold")
        for column, value in row.items():
            if value:
                line = Text(f"{str(column).replace('_', ' ')}: {format_value(value)}")
                console.print(Padding(line, (0, 0, 0, 4)))


def show_answer(answer: str, summary: pd.DataFrame, where: str | None) -> None:
    """The answer, the short table, and where everything lies, on stdout."""
    console = Console(highlight=False, markup=False)
    console.print(answer)
    if len(summary):
        console.print()
        show_table(summary, console)
    if where:
        console.print()
        console.print(where, soft_wrap=True)
