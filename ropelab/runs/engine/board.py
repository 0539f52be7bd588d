"""Progress of cells: messages from workers, and the board that shows them.

A worker has no terminal. Its progress lines are opened, moved and closed by messages.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ropelab.runs.cell import Advance, Cell, Progress

SECONDS_BETWEEN = 0.2
"""A worker speaks at most so often about one line."""


@dataclass(frozen=True)
class Message:
    """One thing that happened to a ticket (a cell on its way through a worker).

    Attributes:
        kind: `started` (process id), `open` (description, total), `advance` (steps, note, left),
            `close`, `ended`.
    """

    ticket: int
    kind: str
    content: tuple[Any, ...] = ()


class Outbox(Protocol):
    """The end of a queue that a worker writes to."""

    def put(self, message: Message | None) -> None: ...


class Reporter:
    """Progress in a worker: says by messages what a progress line would show."""

    def __init__(self, outbox: Outbox, ticket: int) -> None:
        self._outbox, self._ticket = outbox, ticket
        self.say("started", os.getpid())

    def say(self, kind: str, *content: Any) -> None:
        """Send one message about this cell."""
        self._outbox.put(Message(self._ticket, kind, content))

    @contextmanager
    def __call__(self, description: str, total: float | None = None) -> Iterator[Advance]:
        """A progress line; what happens between two messages is told by the second."""
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

    # Expected costs are right within a factor of about two, and the first steps of a cell take
    # longer than the rest; so at first the expectation counts for more than the clock.
    TRUSTED_SECONDS = 120.0

    def __init__(self, progress: Progress, cells: Sequence[Cell], workers: int) -> None:
        self._progress = progress
        self.workers = workers
        self._lines: dict[int, _Line] = {}
        self._lock = threading.Lock()
        self._stack = ExitStack()
        # A tenth of a second goes into reading weights and writing tables.
        self._seconds = [cell.needs.cost().on(1) + 0.1 for cell in cells]
        self._left = list(self._seconds)
        self._begun = 0.0
        self._finished = 0
        self.processes: dict[int, int] = {}
        """Process ids of the cells that are being computed, by number."""

    def __enter__(self) -> "Board":
        count = len(self._seconds)
        title = f"{count} pieces of work" if count > 1 else "1 piece of work"
        self._whole = self._stack.enter_context(self._progress(title, sum(self._seconds)))
        return self

    def __exit__(self, *reason: object) -> None:
        with self._lock:
            for line in self._lines.values():
                line.close()
            self._lines.clear()
        self._stack.close()

    def take(self, message: Message) -> None:
        """Show a message."""
        number = message.ticket
        with self._lock:
            if message.kind == "started":
                self.processes[number] = message.content[0]
                self._start_clock()
            elif message.kind == "ended":
                self.processes.pop(number, None)
            elif message.kind == "open":
                self._close(number)
                self._lines[number] = _Line(self._progress, *message.content)
            elif message.kind == "close":
                self._close(number)
            elif line := self._lines.get(number):
                self._advance(number, line.advance(*message.content))

    def begin(self, number: int) -> None:
        """Note that this process computes a cell from now on."""
        with self._lock:
            self._start_clock()

    def finish(self, number: int) -> None:
        """Note that a cell is computed or has failed."""
        with self._lock:
            self._close(number)
            self._finished += 1
            self._advance(number, 1.0)

    def busy(self, number: int) -> bool:
        """Whether a worker is inside this cell."""
        return number in self.processes

    def _start_clock(self) -> None:
        self._begun = self._begun or time.monotonic()

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
        trusted = min(self.TRUSTED_SECONDS, 0.1 * sum(self._seconds))
        return expected * (trusted + taken) / (trusted + done)

    def _close(self, number: int) -> None:
        if line := self._lines.pop(number, None):
            line.close()


class _Line:
    """One open progress line, moved by messages instead of by a block."""

    def __init__(self, progress: Progress, description: str, total: float | None) -> None:
        self._stack = ExitStack()
        self._advance = self._stack.enter_context(progress(description, total))
        self._left = total

    def advance(self, steps: float, note: str = "", left: float | None = None) -> float:
        """Move on; which part of what was left that is."""
        self._advance(steps, note=note, left=left)
        if not self._left:
            return 0.0
        part = min(1.0, steps / self._left)
        self._left = max(0.0, self._left - steps)
        return part

    def close(self) -> None:
        self._stack.close()
