"""The terminal: progress on stderr, then the answer, a short table and the place of the
files.
"""

import math
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, Literal

from rich import progress
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from ropelab.runs.errors import printable, say
from ropelab.runs.estimate import duration
from ropelab.runs.sentences import verdict_and_rest

# An answer without tables needs no pandas.
if TYPE_CHECKING:
    import pandas as pd

    from ropelab.runs.cell import Advance, Progress

# Columns of a pipe or a file, which has no width of its own: no row is broken.
UNBOUNDED = 10_000
GAP = 2  # spaces between two columns
READABLE = 14  # characters of a column of words before its cells are broken into lines
SPARSELY = 30.0  # seconds between two plain progress lines
SOON = 3.0  # seconds before the first of them
ENOUGH = 0.01  # share of the work after which its pace estimates the time left


def say_waiting(folder: Path) -> None:
    say(f"waiting: another ropelab is making {folder}; its result will be used")


class TimeLeftColumn(progress.TimeRemainingColumn):
    """The time left as estimated, counted down; without an estimate, as rich works it
    out.
    """

    def render(self, task: progress.Task) -> Text:
        end = task.fields["end"]
        if end is None:
            return super().render(task)
        left = timedelta(seconds=math.ceil(max(0.0, end - time.monotonic())))
        return Text(str(left), style="progress.remaining")


class ShortenedColumn(progress.TextColumn):
    """Words that give way where the line is too narrow, so that the times stay
    whole.
    """

    def get_table_column(self) -> Column:
        return Column(no_wrap=False)

    def render(self, task: progress.Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class Bars:
    """Progress bars for a terminal: the work, its share done, the time left."""

    def __init__(self) -> None:
        self._bars = progress.Progress(
            progress.SpinnerColumn(),
            ShortenedColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=12),
            ShortenedColumn("{task.fields[note]}", markup=False),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            TimeLeftColumn(),
            # A terminal echoes Ctrl-C as ^C; on a full line it would push what is to be
            # erased up.
            console=Console(stderr=True, width=Console(stderr=True).width - len("^C")),
            transient=True,
        )
        self._lock = Lock()

    @contextmanager
    def __call__(
        self, description: str, total: float | None = None
    ) -> Iterator["Advance"]:
        """Show one bar while the block runs; blocks may nest, also in several
        threads.
        """
        with self._lock:
            self._bars.start()
            task = self._bars.add_task(
                printable(description), total=total, note="", end=None
            )

        def advance(
            steps: float = 1, *, note: str = "", left: float | None = None
        ) -> None:
            self._bars.advance(task, steps)
            if note:
                self._bars.update(task, note=printable(note))
            if left is not None:
                self._bars.update(task, end=time.monotonic() + left)

        try:
            yield advance
        finally:
            with self._lock:
                self._bars.remove_task(task)
                if not self._bars.tasks:
                    self._bars.stop()


class Delayed:
    """Progress that is shown once the work has taken a second."""

    def __init__(self, shown: "Progress", seconds: float = 1.0) -> None:
        self._shown = shown
        self._seconds = seconds

    @contextmanager
    def __call__(
        self, description: str, total: float | None = None
    ) -> Iterator["Advance"]:
        lock = Lock()
        showing = ExitStack()
        shown: Advance | None = None
        done = 0.0
        over = False

        def show() -> None:
            nonlocal shown
            with lock:
                if over:
                    return
                shown = showing.enter_context(self._shown(description, total))
                shown(done)

        def advance(
            steps: float = 1, *, note: str = "", left: float | None = None
        ) -> None:
            nonlocal done
            with lock:
                done += steps
                if shown is not None:
                    shown(steps, note=note, left=left)

        timer = Timer(self._seconds, show)
        timer.daemon = True
        timer.start()
        try:
            yield advance
        finally:
            timer.cancel()
            with lock:
                over = True
            showing.close()


def progress_here() -> "Progress":
    """Return bars where stderr is a terminal, else plain lines."""
    return Bars() if sys.stderr.isatty() else PlainLines()


class PlainLines:
    """Progress for a log file: a line at once, one after seconds, then one every half
    minute.

    Work inside of other work has no first line, and fewer the deeper it is.
    """

    def __init__(self) -> None:
        self._open = 0

    @contextmanager
    def __call__(
        self, description: str, total: float | None = None
    ) -> Iterator["Advance"]:
        start = time.monotonic()
        due, done = start + SOON, 0.0
        if not self._open:
            say(f"{description} ...")

        def advance(
            steps: float = 1, *, note: str = "", left: float | None = None
        ) -> None:
            nonlocal done, due
            done += steps
            now = time.monotonic()
            if now < due:
                return
            due = now + SPARSELY * max(1, self._open - 1)
            if left is None and total and done >= ENOUGH * total:
                left = (now - start) * (total / done - 1)
            share = f"{done / total:.0%}" if total else f"{done:g}"
            time_left = "" if left is None else f"{duration(max(0.0, left))} left"
            say(f"{description}: {', '.join(filter(None, (share, time_left, note)))}")

        self._open += 1
        try:
            yield advance
        finally:
            self._open -= 1


def format_value(value: Any) -> str:
    """Write a value for reading: four significant digits, whole numbers whole, a dash
    for none.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return (
            f"{value:.0f}"
            if value.is_integer() and abs(value) < 1e15
            else f"{value:.4g}"
        )
    return printable(str(value))


def console() -> Console:
    """Return standard output: as wide as its terminal, without end if it is a pipe or a
    file.
    """
    width = None if sys.stdout.isatty() else UNBOUNDED
    return Console(highlight=False, markup=False, emoji=False, width=width)


def show_table(table: "pd.DataFrame", console: Console) -> None:
    """Print a short table; numbers to the right and whole, names as words.

    If it is too wide, lines are broken between words, or behind `_`, `.`, `/` and `,`
    in a long one; then columns are left out, the last ones first.
    """
    names = [str(column).replace("_", " ") for column in table.columns]
    numeric = [table[column].dtype.kind in "biufc" for column in table.columns]
    texts = table.map(format_value).to_numpy(dtype=str).tolist()
    # Characters that a column has unbroken, and those that it needs: all of a number,
    # of words as many as one can still read.
    widths, needed = [], []
    for name, is_number, *cells in zip(names, numeric, *texts, strict=True):
        widest = max(map(len, cells), default=0)
        longest = max((len(part) for cell in cells for part in _parts(cell)), default=0)
        words = min(widest, max(READABLE, longest))
        widths.append(max(len(name), widest))
        needed.append(max(*map(len, _parts(name)), widest if is_number else words))
    totals = accumulate(each + GAP for each in needed)
    shown = max(1, sum(total <= console.width + GAP for total in totals))
    del widths[shown:]
    while sum(widths) + GAP * (shown - 1) > console.width:
        widest, which = max((w, i) for i, w in enumerate(widths) if w > needed[i])
        widths[which] = widest - 1
        if all(w <= least for w, least in zip(widths, needed, strict=False)):
            break
    grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for name, is_number, width in zip(names, numeric, widths, strict=False):
        side: Literal["right", "left"] = "right" if is_number else "left"
        title = broken(name, width)
        grid.add_column(
            title, justify=side, no_wrap=is_number, overflow="fold", min_width=width
        )
    for row in texts:
        grid.add_row(*map(broken, row[:shown], widths))
    console.print(grid)
    if names[shown:]:
        console.print(f"(too narrow for: {', '.join(names[shown:])})")


def _parts(text: str) -> list[str]:
    """Split a text into the pieces that are never broken."""
    # A point inside a number is no place for a break.
    return re.findall(r"(?:[^\s_./,]|\.(?=\d))+[_./,]*|[_./,]+", text) or [""]


def broken(text: str, width: int) -> str:
    """Break a text into lines, between words if possible.

    >>> broken("max_position_embeddings of it", 16)
    'max_position_\\nembeddings of it'
    """
    lines = [""]
    for word in text.split(" "):
        pieces = [word] if len(word) <= width else _parts(word)
        for number, piece in enumerate(pieces):
            gap = " " if lines[-1] and not number else ""
            if lines[-1] and len(lines[-1] + gap + piece) > width:
                lines.append(piece)
            else:
                lines[-1] += gap + piece
    return "\n".join(lines)


def show_records(table: "pd.DataFrame", title: str) -> None:
    """Print long rows as paragraphs under the column `title`; empty values are left
    out.
    """
    out = console()
    for row in table.to_dict(orient="records"):
        out.print(row.pop(title), style="bold")
        for column, value in row.items():
            if value:
                line = Text(f"{str(column).replace('_', ' ')}: {format_value(value)}")
                out.print(Padding(line, (0, 0, 0, 4), expand=False))


def show_answer(answer: str, *tables: "pd.DataFrame") -> None:
    """Print the verdict, the tables, and what else the answer says."""
    out, (verdict, rest) = console(), verdict_and_rest(printable(answer))
    out.print(verdict)
    for table in tables:
        if len(table):
            out.print()
            show_table(table, out)
    if rest:
        out.print()
        out.print(rest)


def show_more(title: str, table: "pd.DataFrame") -> None:
    console().print()
    show_answer(title, table)


def show_places(places: Mapping[str, str]) -> None:
    """Print names of files and commands under one another; a long one is never
    broken.
    """
    out, width = console(), max(map(len, places)) + GAP
    out.print()
    for word, text in places.items():
        out.print(f"{word:<{width}}{printable(text)}", soft_wrap=True)


def show_paragraph(text: str, indent: int = 0, hanging: int = 0) -> None:
    """Print a text broken between words; lines after the first are indented further."""
    out = console()
    width = max(out.width - indent - hanging, READABLE)
    first, *rest = broken(printable(text), width + hanging).split("\n")
    out.print(" " * indent + first, soft_wrap=True)
    for line in broken(" ".join(rest), width).split("\n") if rest else ():
        out.print(" " * (indent + hanging) + line, soft_wrap=True)
