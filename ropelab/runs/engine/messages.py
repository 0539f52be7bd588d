"""What a worker tells the process that asked: how far a cell is, and sentences for the user.

A worker has no terminal. Its progress lines are opened, moved and closed by messages, and shown by
the progress of the run that the cell belongs to.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ropelab.runs.context import Advance, Cell, Progress, called, shares
from ropelab.runs.engine.schedule import Job
from ropelab.runs.forecast import Forecast, Part

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
    """The lines of all cells of a phase and one line for the whole, in the process that asked."""

    def __init__(self, progress: Progress, cells: Sequence[Cell]) -> None:
        self._progress = progress
        self._lines: dict[int, _Line] = {}
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._cells = cells
        self._finished = 0
        self._left = {id(c): share for c, share in zip(cells, shares(cells), strict=True)}
        self._expected: dict[int, tuple[int, Part]] = {}
        self.processes: dict[int, int] = {}
        """Process ids of the cells that are being computed, by ticket."""

    def __enter__(self) -> "Board":
        self._whole = self._stack.enter_context(
            self._progress(called(self._cells), len(self._cells))
        )
        return self

    def __exit__(self, *reason: object) -> None:
        with self._lock:
            for line in self._lines.values():
                line.close()
            self._lines.clear()
        self._stack.close()

    def expect(self, job: Job, forecast: Forecast) -> None:
        """Messages with the ticket of this job are about its cell; the forecast tells its time."""
        part = forecast.expect(job.needs.cost().on(1), job.urgency)
        with self._lock:
            self._forecast = forecast
            self._expected[job.ticket] = id(job.cell), part

    def take(self, message: Message) -> None:
        """Show what a message tells."""
        with self._lock:
            if message.kind == "started":
                self.processes[message.ticket] = message.content[0]
                self._forecast.begin(self._expected[message.ticket][1])
            elif message.kind == "ended":
                self.processes.pop(message.ticket, None)
            elif message.kind == "open":
                self._close(message.ticket)
                self._lines[message.ticket] = _Line(self._progress, *message.content)
            elif message.kind == "close":
                self._close(message.ticket)
            elif line := self._lines.get(message.ticket):
                self._advance(message.ticket, line.advance(*message.content))

    def finished(self, ticket: int) -> None:
        """One cell is done with, computed or failed."""
        with self._lock:
            self._close(ticket)
            self._finished += 1
            self._forecast.end(self._expected[ticket][1])
            self._advance(ticket, 1.0)

    def _advance(self, ticket: int, part: float) -> None:
        """Move the whole on by a part of what is left of a cell."""
        cell, expected = self._expected[ticket]
        self._forecast.move(expected, part)
        moved = self._left[cell] * part
        self._left[cell] -= moved
        left = self._forecast.left(expected for _, expected in self._expected.values())
        self._whole(moved, note=f"{self._finished} finished", left=left)

    def busy(self, ticket: int) -> bool:
        """Whether a worker is inside this cell."""
        return ticket in self.processes

    def _close(self, ticket: int) -> None:
        if line := self._lines.pop(ticket, None):
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
