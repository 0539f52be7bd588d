"""The output of a command on a terminal: progress on stderr, then on stdout the answer,
short tables, and the paths of files.
"""

import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any

from rich import progress
from rich import table as tables
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from ropelab.runs.errors import escape_controls, say
from ropelab.runs.estimate import write_duration
from ropelab.runs.sentences import split_sentences, split_verdict
from ropelab.show.columns import (
    GAP,
    READABLE_WIDTH,
    Column,
    break_lines,
    end_at_edge,
    print_columns,
)

# An answer without tables needs no pandas.
if TYPE_CHECKING:
    import pandas as pd

    from ropelab.runs.cell import Advance, Progress
    from ropelab.runs.tables import EarlyTable

# The width of output to a pipe or a file in characters, so large that no row is broken.
UNBOUNDED_WIDTH = 10_000
# Work that ends within this many seconds shows no progress.
SECONDS_HIDDEN = 1.0
# The seconds between two plain progress lines, and the seconds before the first one with
# numbers.
SECONDS_BETWEEN_LINES = 30.0
SECONDS_TO_FIRST_LINE = 3.0
# The lines of a terminal that a table above the bars leaves free.
LINES_BELOW = 10
# The share of the work that must be done before the time left is estimated from the pace
# so far.
SHARE_FOR_ESTIMATE = 0.01


def say_waiting(folder: Path) -> None:
    say(f"waiting: another ropelab is making {folder}; its result will be used")


class TimeLeftColumn(progress.TimeRemainingColumn):
    """The time left, counted down from an estimate.

    Without an estimate rich derives the time from the pace so far.
    """

    def render(self, task: progress.Task) -> Text:
        end = task.fields["end"]
        if end is None:
            return super().render(task)
        seconds_left = max(0.0, end - time.monotonic())
        time_left = timedelta(seconds=math.ceil(seconds_left))
        return Text(str(time_left), style="progress.remaining")


class ShortenedColumn(progress.TextColumn):
    """Words that are shortened on a narrow line, so that the times after them stay
    whole.
    """

    def get_table_column(self) -> tables.Column:
        return tables.Column(no_wrap=False)

    def render(self, task: progress.Task) -> Text:
        text = super().render(task)
        text.no_wrap = True
        text.overflow = "ellipsis"
        return text


class BarsBelowTable(progress.Progress):
    """Bars with a table above them, as soon as there is one."""

    table: Text | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.table is not None:
            yield self.table
        yield from super().get_renderables()


class Bars:
    """Progress bars for a terminal: the work, its share done, the time left."""

    def __init__(self) -> None:
        self._bars = BarsBelowTable(
            progress.SpinnerColumn(),
            ShortenedColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=12),
            ShortenedColumn("{task.fields[note]}", markup=False),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            TimeLeftColumn(),
            # A terminal shows Ctrl-C as ^C. If the line were full, ^C would begin a new
            # line, and the bars would not be erased. So two characters are left free.
            console=Console(stderr=True, width=Console(stderr=True).width - len("^C")),
            transient=True,
        )
        self._lock = Lock()

    def watch(self, early_table: "EarlyTable") -> None:
        """Show the table of a run above the bars, as far as it is known, with as many
        rows as fit.
        """
        terminal = self._bars.console
        # At least three rows are shown, even if fewer lines are free.
        row_count = max(3, terminal.height - LINES_BELOW)
        console = Console(width=terminal.width, highlight=False, markup=False)
        with console.capture() as captured:
            show_table(early_table.table.head(row_count), console)
        heading = f"known so far ({early_table.note})"
        self._bars.table = Text(f"{heading}\n\n{captured.get()}")

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
                escape_controls(description), total=total, note="", end=None
            )

        def advance(
            steps: float = 1, *, note: str = "", left: float | None = None
        ) -> None:
            self._bars.advance(task, steps)
            if note:
                self._bars.update(task, note=escape_controls(note))
            if left is not None:
                self._bars.update(task, end=time.monotonic() + left)

        try:
            yield advance
        finally:
            with self._lock:
                self._bars.remove_task(task)
                if not self._bars.tasks:
                    self._bars.stop()


class DelayedProgress:
    """Progress that is shown once the work has taken a second (SECONDS_HIDDEN).

    A timer opens the progress from a thread of its own, so a lock guards the variables
    that both threads use.
    """

    def __init__(self, progress: "Progress", seconds: float | None = None) -> None:
        self._progress = progress
        self._seconds = SECONDS_HIDDEN if seconds is None else seconds

    @contextmanager
    def __call__(
        self, description: str, total: float | None = None
    ) -> Iterator["Advance"]:
        lock = Lock()
        stack = ExitStack()
        # Moves the progress; None before it is shown.
        advance_shown: Advance | None = None
        steps_done = 0.0
        is_over = False

        def show() -> None:
            nonlocal advance_shown
            with lock:
                if is_over:
                    return
                line = self._progress(description, total)
                advance_shown = stack.enter_context(line)
                advance_shown(steps_done)

        def advance(
            steps: float = 1, *, note: str = "", left: float | None = None
        ) -> None:
            nonlocal steps_done
            with lock:
                steps_done += steps
                if advance_shown is not None:
                    advance_shown(steps, note=note, left=left)

        timer = Timer(self._seconds, show)
        timer.daemon = True
        timer.start()
        try:
            yield advance
        finally:
            timer.cancel()
            with lock:
                is_over = True
            stack.close()


def choose_progress() -> "Progress":
    """Return bars where stderr is a terminal, else plain lines."""
    return Bars() if sys.stderr.isatty() else PlainLines()


class PlainLines:
    """Progress for a log file: a line when work begins, one after three seconds, then one
    every half minute.

    Blocks may be nested. An inner block has no line when it begins, and the deeper it is
    nested, the fewer lines it has.
    """

    def __init__(self) -> None:
        # The number of blocks that are open.
        self._depth = 0

    @contextmanager
    def __call__(
        self, description: str, total: float | None = None
    ) -> Iterator["Advance"]:
        start = time.monotonic()
        time_of_next_line = start + SECONDS_TO_FIRST_LINE
        steps_done = 0.0
        if self._depth == 0:
            say(f"{description} ...")

        def advance(
            steps: float = 1, *, note: str = "", left: float | None = None
        ) -> None:
            nonlocal steps_done, time_of_next_line
            steps_done += steps
            now = time.monotonic()
            if now < time_of_next_line:
                return
            pause = SECONDS_BETWEEN_LINES * max(1, self._depth - 1)
            time_of_next_line = now + pause
            if left is None and total and steps_done >= SHARE_FOR_ESTIMATE * total:
                left = (now - start) * (total / steps_done - 1)
            parts = [f"{steps_done / total:.0%}" if total else f"{steps_done:g}"]
            if left is not None:
                parts.append(f"{write_duration(max(0.0, left))} left")
            if note:
                parts.append(note)
            say(f"{description}: {', '.join(parts)}")

        self._depth += 1
        try:
            yield advance
        finally:
            self._depth -= 1


def format_value(value: Any) -> str:
    """Write a value for reading: numbers with four significant digits, whole numbers with
    all digits, and a dash for None and nan.
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return escape_controls(str(value))

    if math.isnan(value):
        return "-"
    # From 1e15 on, float64 holds no tenths, so that almost all numbers are whole.
    if value.is_integer() and abs(value) < 1e15:
        return f"{value:.0f}"
    return f"{value:.4g}"


def make_console() -> Console:
    """Make a console for standard output. It is as wide as the terminal; if the output
    goes to a pipe or a file, it is so wide that no row breaks.
    """
    width = None if sys.stdout.isatty() else UNBOUNDED_WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)


def show_table(
    table: "pd.DataFrame",
    console: Console,
    decisive: Sequence[str] = (),
    says_missing: bool = False,
) -> None:
    """Print a table, folded where the terminal is too narrow.

    `says_missing` puts words beside numbers without an interval (`join_intervals`).
    `decisive` has prefixes of names of columns, in order of preference. The first prefix
    that any column has is used, and the last column with this prefix is bold.
    """
    from ropelab.show.intervals import join_intervals

    # The letters stand for bool, integer, unsigned integer, float and complex.
    numbers = {name for name in table.columns if table[name].dtype.kind in "biufc"}
    table = join_intervals(table, says_missing)
    bold = _find_decisive([str(name) for name in table.columns], decisive)
    # The texts of each column; `.T` turns rows into columns.
    texts = table.map(format_value).to_numpy(dtype=str).T.tolist()
    columns = []
    for name, cells in zip(table.columns, texts, strict=True):
        column = Column(
            title=str(name).replace("_", " "),
            cells=cells,
            is_number=name in numbers,
            is_decisive=name == bold,
        )
        columns.append(column)
    print_columns(columns, console)


def _find_decisive(names: Sequence[str], beginnings: Sequence[str]) -> str:
    """Return the name of the column that is printed in bold; empty if no column is.

    >>> _find_decisive(["method", "nll @8192", "copy @2048", "copy @4096"], ["copy"])
    'copy @4096'
    """
    for beginning in beginnings:
        matching = [name for name in names if name.startswith(beginning)]
        if matching:
            return matching[-1]
    return ""


def show_records(table: "pd.DataFrame", title: str) -> None:
    """Print long rows as paragraphs under the column `title`; empty values are left
    out.
    """
    out = make_console()
    for row in table.to_dict(orient="records"):
        out.print(row.pop(title), style="bold")
        for column, value in row.items():
            if value:
                line = Text(f"{str(column).replace('_', ' ')}: {format_value(value)}")
                out.print(Padding(line, (0, 0, 0, 4), expand=False))


def show_list(rows: Mapping[str, str]) -> None:
    """Print a line for each name with its text. The text is cut at the edge of the
    terminal.
    """
    out = make_console()
    width = max(map(len, rows), default=0) + GAP
    for name, text in rows.items():
        line = Text(" " * GAP).append(f"{name:<{width}}", "bold")
        line.append(end_at_edge(escape_controls(text), out.width - GAP - width))
        out.print(line, soft_wrap=True)


def show_answer(
    answer: str, *tables: "pd.DataFrame", decisive: Sequence[str] = ()
) -> None:
    """Print the verdict, which is the first sentence of the answer, then the tables, and
    then the rest of the answer.
    """
    out = make_console()
    verdict, further_sentences = split_verdict(escape_controls(answer))
    out.print(verdict)
    for table in tables:
        _show_below(table, out, decisive, says_missing=True)
    sentences = split_sentences(further_sentences)
    if sentences:
        out.print()
    # One or two sentences are printed as a paragraph, more as a list.
    if 0 < len(sentences) < 3:
        out.print(further_sentences)
        return
    for sentence in sentences:
        show_paragraph(f"- {sentence}", hanging=2)


def show_more(title: str, table: "pd.DataFrame") -> None:
    """Print a further table under its title."""
    out = make_console()
    out.print()
    out.print(escape_controls(title))
    _show_below(table, out)


def _show_below(
    table: "pd.DataFrame",
    out: Console,
    decisive: Sequence[str] = (),
    says_missing: bool = False,
) -> None:
    """Print a blank line, a table that has rows, and what the brackets in it mean."""
    from ropelab.show.intervals import NOTE, find_intervals

    if len(table) == 0:
        return
    out.print()
    show_table(table, out, decisive, says_missing)
    if find_intervals(list(map(str, table.columns))):
        out.print(NOTE, style="dim")


def show_places(places: Mapping[str, str]) -> None:
    """Print paths of files and commands under one another, each after its word.

    A path is never broken. A long command is broken into lines that can be pasted into a
    shell as they are.
    """
    out = make_console()
    width = max(map(len, places)) + GAP
    out.print()
    for word, text in places.items():
        safe_text = escape_controls(text)
        if text.startswith("ropelab "):
            safe_text = _continue_lines(safe_text, out.width - width)
        indented = safe_text.replace("\n", "\n" + " " * (width + GAP))
        out.print(f"{word:<{width}}{indented}", soft_wrap=True)


def _continue_lines(command: str, room: int) -> str:
    r"""Break a command between its words, with a backslash at the end of each line but
    the last, so that a shell reads the lines as one command.

    >>> _continue_lines("ropelab freqs --base 1e6 --method 'yarn(factor=4)'", 30)
    "ropelab freqs --base 1e6 \\\n--method 'yarn(factor=4)'"
    """
    if len(command) <= room:
        return command
    lines = [""]
    for part in _split_command(command):
        line = f"{lines[-1]} {part}".lstrip()
        # The room for a line is less: it ends in a backslash, and `show_places` indents
        # all lines but the first.
        if lines[-1] and len(line) + len(" \\") + GAP > room:
            lines.append(part)
        else:
            lines[-1] = line
    return " \\\n".join(lines)


def _split_command(command: str) -> list[str]:
    """Split a command into its words with their quotes. An option and its value are one
    part.

    >>> _split_command("ropelab freqs --base 1e6 --method 'yarn( factor=4)'")
    ['ropelab', 'freqs', '--base 1e6', "--method 'yarn( factor=4)'"]
    """
    parts: list[str] = []
    # A word has quoted parts, in which there may be blanks, and unquoted parts.
    for word in re.findall(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""", command):
        is_value = parts and parts[-1].startswith("-") and " " not in parts[-1]
        if is_value and not word.startswith("-"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return parts


def show_paragraph(text: str, indent: int = 0, hanging: int = 0) -> None:
    """Print a text broken between words; lines after the first are indented further."""
    out = make_console()
    width = max(out.width - indent - hanging, READABLE_WIDTH)
    # Lines after the first are indented by `hanging`, so the first one may be longer.
    lines = break_lines(escape_controls(text), width + hanging)
    first, *further_lines = lines.split("\n")
    out.print(" " * indent + first, soft_wrap=True)
    if not further_lines:
        return
    for line in break_lines(" ".join(further_lines), width).split("\n"):
        out.print(" " * (indent + hanging) + line, soft_wrap=True)
