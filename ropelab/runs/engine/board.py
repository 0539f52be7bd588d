"""Progress of cells: messages from workers, and the board that shows them.

A worker has no terminal. Its progress lines are opened, moved and closed by messages.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

from ropelab.runs.cell import Advance, Cell, Progress, silent

# A worker speaks at most so often about one line.
SECONDS_BETWEEN = 0.2
# Expected costs are right within a factor of about two, and the first steps of a cell take longer
# than the rest; so at first the expectation counts for more than the clock.
TRUSTED_SECONDS = 120.0
# Arithmetic that is expected to take less shows no progress.
QUICK_SECONDS = 3.0


def unless_quick(progress: Progress, cells: Sequence[Cell]) -> Progress:
    """Return a progress for cells: silence where they are quick arithmetic."""
    seconds = sum(cell.needs.estimate().on(1) for cell in cells)
    models = any(cell.needs.dtype or cell.needs.alone for cell in cells)
    return progress if models or seconds >= QUICK_SECONDS else silent


class Message(NamedTuple):
    """News of a cell.

    Attributes:
        number: of the cell.
        kind: `started` (process id), `open` (description, total), `advance` (steps, note, left),
            `close`, `ended`.
    """

    number: int
    kind: str
    content: tuple[Any, ...] = ()


class Outbox(Protocol):
    """The end of a queue that a worker writes to."""

    def put(self, message: Message) -> None: ...


class Reporter:
    """Progress in a worker, sent as messages."""

    def __init__(self, outbox: Outbox, number: int) -> None:
        self._outbox, self._number = outbox, number
        self.say("started", os.getpid())

    def say(self, kind: str, *content: Any) -> None:
        """Send one message about this cell."""
        self._outbox.put(Message(self._number, kind, content))

    @contextmanager
    def __call__(self, description: str, total: float | None = None) -> Iterator[Advance]:
        """Open a progress line; steps between two messages are sent with the second."""
        self.say("open", description, total)
        waiting, spoken = 0.0, time.monotonic()

        def advance(steps: float = 1, *, note: str = "", left: float | None = None) -> None:
            nonlocal waiting, spoken
            waiting += steps
            if time.monotonic() - spoken >= SECONDS_BETWEEN:
                self.say("advance", waiting, note, left)
                waiting, spoken = 0.0, time.monotonic()

        try:
            yield advance
        finally:
            self.say("advance", waiting)
            self.say("close")


class Board:
    """The lines of all cells and one line for the whole, in the process that asked.

    Args:
        workers: how many cells are computed side by side.
    """

    def __init__(self, progress: Progress, cells: Sequence[Cell], workers: int) -> None:
        self._progress, self.workers = progress, workers
        # A tenth of a second goes into reading weights and writing tables.
        self._seconds = [cell.needs.estimate().on(1) + 0.1 for cell in cells]
        self._left = list(self._seconds)
        self._finished = 0
        self._begun = 0.0
        self._lines: dict[int, _Line] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Board":
        count = len(self._seconds)
        title = f"{count} pieces of work" if count > 1 else "1 piece of work"
        self._whole = self._stack.enter_context(self._progress(title, sum(self._seconds)))
        return self

    def __exit__(self, *reason: object) -> None:
        for number in list(self._lines):
            self._close(number)
        self._stack.close()

    def begin(self) -> None:
        """Start the clock: the first cell is being computed."""
        self._begun = self._begun or time.monotonic()

    def take(self, message: Message) -> None:
        """Show a message."""
        number, kind, content = message
        if kind == "started":
            self.begin()
        elif kind == "open":
            self._close(number)
            self._lines[number] = _Line(self._progress, *content)
        elif kind == "close":
            self._close(number)
        elif kind == "advance" and number in self._lines:
            self._advance(number, self._lines[number].advance(*content))

    def finish(self, number: int) -> None:
        """Note that a cell is computed or has failed."""
        self._close(number)
        self._finished += 1
        self._advance(number, 1.0)

    def _advance(self, number: int, part: float) -> None:
        """Move the whole on by a part of the rest of a cell."""
        moved = self._left[number] * part
        self._left[number] -= moved
        self._whole(moved, note=f"{self._finished} finished", left=self._time_left())

    def _time_left(self) -> float:
        """Estimate the seconds to the end: the expected rest, corrected by what was measured."""
        rest = sum(self._left)
        expected = max(rest / self.workers, *self._left)
        done = (sum(self._seconds) - rest) / self.workers
        taken = time.monotonic() - self._begun if self._begun else 0.0
        trusted = min(TRUSTED_SECONDS, 0.1 * sum(self._seconds))
        return expected * (trusted + taken) / (trusted + done)

    def _close(self, number: int) -> None:
        if line := self._lines.pop(number, None):
            line.close()


class _Line:
    """An open progress line, moved by messages instead of inside of a block."""

    def __init__(self, progress: Progress, description: str, total: float | None) -> None:
        self._stack = ExitStack()
        self._advance = self._stack.enter_context(progress(description, total))
        self._left = total

    def advance(self, steps: float, note: str = "", left: float | None = None) -> float:
        """Move on; return the share of the rest that this was."""
        self._advance(steps, note=note, left=left)
        if not self._left:
            return 0.0
        share = min(1.0, steps / self._left)
        self._left = max(0.0, self._left - steps)
        return share

    def close(self) -> None:
        self._stack.close()
