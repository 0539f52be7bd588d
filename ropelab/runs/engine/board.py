"""Progress of cells, wherever they are computed: messages, and the board that shows
them.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from ropelab.runs.cell import Advance, Cell, Progress, silent

# A cell speaks at most so often about one line.
SECONDS_BETWEEN = 0.2
# Expected costs are right within a factor of about two, and the first steps of a cell
# take longer than the rest; so at first the expectation counts for more than the clock.
TRUSTED_SECONDS = 120.0
# Arithmetic that is expected to take less shows no progress.
QUICK_SECONDS = 3.0
# Reading weights and writing tables, of every cell.
SECONDS_OF_FILES = 0.1


class Message(NamedTuple):
    """News of a cell."""

    number: int
    # `started` (process id), `open` (description, total), `advance` (steps, note,
    # left), `close`, `ended`.
    kind: str
    content: tuple[Any, ...] = ()


Send = Callable[[Message], object]


@contextmanager
def report(
    send: Send, number: int, description: str, total: float | None = None
) -> Iterator[Advance]:
    """Open a progress line of a cell by messages: a worker has no terminal."""

    def say(kind: str, *content: Any) -> None:
        send(Message(number, kind, content))

    say("open", description, total)
    waiting = 0.0
    spoken = time.monotonic()

    def advance(steps: float = 1, *, note: str = "", left: float | None = None) -> None:
        # Steps between two messages are sent with the second.
        nonlocal waiting, spoken
        waiting += steps
        if time.monotonic() - spoken >= SECONDS_BETWEEN:
            say("advance", waiting, note, left)
            waiting = 0.0
            spoken = time.monotonic()

    try:
        yield advance
    finally:
        say("advance", waiting)
        say("close")


@dataclass
class _Line:
    """An open progress line, and the steps that are left of it."""

    stack: ExitStack
    advance: Advance
    left: float | None


class Board:
    """The lines of all cells and one line for the whole, in the process that asked."""

    def __init__(self, progress: Progress, cells: Sequence[Cell]) -> None:
        self.workers = 1  # how many cells are computed side by side
        seconds = [cell.resources.estimate().on(1) for cell in cells]
        models = any(cell.resources.dtype or cell.resources.alone for cell in cells)
        self._progress = progress if models or sum(seconds) >= QUICK_SECONDS else silent
        self._left = [each + SECONDS_OF_FILES for each in seconds]
        self._total = sum(self._left)
        self._finished = 0
        self._begun = 0.0
        self._lines: dict[int, _Line] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Board":
        count = len(self._left)
        title = f"{count} pieces of work" if count > 1 else "1 piece of work"
        self._whole = self._stack.enter_context(self._progress(title, self._total))
        return self

    def __exit__(self, *reason: object) -> None:
        for number in list(self._lines):
            self._close(number)
        self._stack.close()

    def take(self, message: Message) -> None:
        number, kind, content = message
        if kind == "started":
            self._begun = self._begun or time.monotonic()
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
        self._finished += 1
        self._advance(number, 1.0)

    def _move(
        self, number: int, steps: float, note: str = "", left: float | None = None
    ) -> None:
        line = self._lines[number]
        line.advance(steps, note=note, left=left)
        if line.left:
            self._advance(number, min(1.0, steps / line.left))
            line.left = max(0.0, line.left - steps)

    def _advance(self, number: int, part: float) -> None:
        moved = self._left[number] * part
        self._left[number] -= moved
        self._whole(moved, note=f"{self._finished} finished", left=self._time_left())

    def _time_left(self) -> float:
        """Estimate the seconds to the end: the expected rest, corrected by what was
        measured.
        """
        rest = sum(self._left)
        expected = max(rest / self.workers, *self._left)
        done = (self._total - rest) / self.workers
        taken = time.monotonic() - self._begun if self._begun else 0.0
        trusted = min(TRUSTED_SECONDS, 0.1 * self._total)
        return expected * (trusted + taken) / (trusted + done)

    def _close(self, number: int) -> None:
        if line := self._lines.pop(number, None):
            line.stack.close()
