"""The progress of cells, which are independent pieces of a run.

The processes that compute cells send messages. The board, in the process that asked for
the cells, shows them as progress lines: a line for each running cell, and a line for the
whole.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from ropelab.runs.cell import Advance, Cell, Progress, silent

# The least number of seconds between two messages of a cell about one progress line.
SECONDS_BETWEEN_MESSAGES = 0.2
# The weight of the expected time when it is averaged with the measured time, in seconds.
# The expected time is right within a factor of about two. It is better than the measured
# time at first, because the first steps of a cell take longer than the later steps.
TRUSTED_SECONDS = 120.0
# Arithmetic that is expected to take fewer seconds than this shows no progress.
QUICK_SECONDS = 3.0
# The seconds in which a cell reads weights and writes tables.
SECONDS_OF_FILES = 0.1


class Message(NamedTuple):
    """A message about a cell."""

    # The number of the cell.
    number: int
    # The kind is `started`, `open`, `advance`, `close` or `ended`.
    kind: str
    # The process id for `started`; (description, total) of a progress line for `open`;
    # (steps, note, left) for `advance`.
    content: tuple[Any, ...] = ()


Send = Callable[[Message], object]


@contextmanager
def report(
    send: Send, number: int, description: str, total: float | None = None
) -> Iterator[Advance]:
    """Open a progress line of a cell by messages, since a worker has no terminal."""

    def say(kind: str, *content: Any) -> None:
        send(Message(number, kind, content))

    say("open", description, total)
    # Steps between two messages are added up and sent with the second one.
    unsent_steps = 0.0
    last_message = time.monotonic()

    def advance(steps: float = 1, *, note: str = "", left: float | None = None) -> None:
        nonlocal unsent_steps, last_message
        unsent_steps += steps
        if time.monotonic() - last_message >= SECONDS_BETWEEN_MESSAGES:
            say("advance", unsent_steps, note, left)
            unsent_steps = 0.0
            last_message = time.monotonic()

    try:
        yield advance
    finally:
        say("advance", unsent_steps)
        say("close")


@dataclass
class _Line:
    """An open progress line."""

    # Closes the line.
    stack: ExitStack
    advance: Advance
    # The steps that are left; None if the line has no total.
    steps_left: float | None


class Board:
    """The progress lines of all running cells and one line for the whole, in the process
    that asked for the cells.
    """

    def __init__(self, progress: Progress, cells: Sequence[Cell]) -> None:
        # The number of cells that are computed side by side.
        self.workers = 1
        seconds = [cell.resources.estimate().seconds_on(1) for cell in cells]
        has_models = any(
            cell.resources.dtype or cell.resources.exclusive for cell in cells
        )
        is_quick = sum(seconds) < QUICK_SECONDS and not has_models
        self._progress = silent if is_quick else progress
        # The expected seconds that are left of each cell, and the sum of these seconds at
        # the start.
        self._seconds_left = [each + SECONDS_OF_FILES for each in seconds]
        self._total_seconds = sum(self._seconds_left)
        self._finished_count = 0
        # The time at which the first cell began; None before that time.
        self._start_time: float | None = None
        self._lines: dict[int, _Line] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Board":
        count = len(self._seconds_left)
        title = f"{count} pieces of work" if count > 1 else "1 piece of work"
        line = self._progress(title, self._total_seconds)
        self._advance_whole = self._stack.enter_context(line)
        return self

    def __exit__(self, *reason: object) -> None:
        for number in list(self._lines):
            self._close(number)
        self._stack.close()

    def take(self, message: Message) -> None:
        """Show what a message says."""
        number, kind, content = message
        if kind == "started":
            if self._start_time is None:
                self._start_time = time.monotonic()
        elif kind == "open":
            self._close(number)
            description, total = content
            stack = ExitStack()
            advance = stack.enter_context(self._progress(description, total))
            self._lines[number] = _Line(stack, advance, total)
        elif kind == "close":
            self._close(number)
        elif kind == "advance" and number in self._lines:
            self._move(number, *content)

    def finish(self, number: int) -> None:
        """Note that a cell is computed or has failed."""
        self._close(number)
        self._finished_count += 1
        self._count_share(number, 1.0)

    def _move(
        self, number: int, steps: float, note: str = "", left: float | None = None
    ) -> None:
        """Move the line of a cell by some steps. Move the line of the whole by the share
        that these steps are of the cell's remaining steps.
        """
        line = self._lines[number]
        line.advance(steps, note=note, left=left)
        if line.steps_left:
            self._count_share(number, min(1.0, steps / line.steps_left))
            line.steps_left = max(0.0, line.steps_left - steps)

    def _count_share(self, number: int, share: float) -> None:
        """Move the line of the whole by a share of the seconds that are left of one
        cell.
        """
        seconds = self._seconds_left[number] * share
        self._seconds_left[number] -= seconds
        note = f"{self._finished_count} finished"
        self._advance_whole(seconds, note=note, left=self._estimate_seconds_left())

    def _estimate_seconds_left(self) -> float:
        """Estimate the seconds to the end: the seconds that were expected for the
        remaining work, times the ratio of measured to expected time so far.
        """
        remaining = sum(self._seconds_left)
        # The remaining work takes at least as long as its longest cell.
        expected = max(remaining / self.workers, *self._seconds_left)
        expected_so_far = (self._total_seconds - remaining) / self.workers
        measured_so_far = 0.0
        if self._start_time is not None:
            measured_so_far = time.monotonic() - self._start_time
        # As long as little is measured, this addition keeps the ratio near 1.
        trusted = min(TRUSTED_SECONDS, 0.1 * self._total_seconds)
        return expected * (trusted + measured_so_far) / (trusted + expected_so_far)

    def _close(self, number: int) -> None:
        line = self._lines.pop(number, None)
        if line is not None:
            line.stack.close()
