"""The order of cells: the most urgent whose starts are finished, as soon as there is room."""

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from ropelab.runs.cell import Cell, Needs, name_of
from ropelab.runs.errors import MachineError

# A cell is begun so often when its worker is lost under it.
TRIES = 3


class Room(Protocol):
    """Workers, memory and GPUs."""

    def take(self, needs: Needs) -> int | None:
        """Reserve a place; the number of its GPU (0 without one), None if there is no room."""
        ...

    def give_back(self, needs: Needs, gpu: int) -> None:
        """Free a place again."""
        ...


class LostError(Exception):
    """The process in which a cell was computed is gone."""


class Schedule:
    """The cells that wait and those that run.

    Args:
        cells: by number; a start that is not among them is finished.
    """

    def __init__(self, cells: Mapping[int, Cell], room: Room) -> None:
        self._cells, self._room = cells, room
        names = {name_of(cell): number for number, cell in cells.items()}
        self._starts = {
            number: {names[n] for n in map(name_of, cell.starts) if n in names}
            for number, cell in cells.items()
        }
        awaited = set().union(*self._starts.values())
        # First those that others wait for, then the longest, so that none of these ends last.
        self._waiting = sorted(
            cells, key=lambda number: (number not in awaited, -cells[number].needs.size, number)
        )
        self._running: dict[int, int] = {}
        self._undone = set(cells)
        self._lost: Counter[int] = Counter()

    @property
    def is_done(self) -> bool:
        return not self._undone

    def begin(self) -> tuple[int, int] | None:
        """Return the next cell that there is room for, and the number of its GPU."""
        # Of cells that were lost together only one may be too large: the last try is made alone.
        last = [number for number in self._waiting if self._lost[number] == TRIES - 1]
        if any(self._lost[number] == TRIES - 1 for number in self._running):
            return None
        first = [number for number in self._waiting if number not in last]
        for number in [*first, *([] if self._running else last)]:
            if self._starts[number] & self._undone:
                continue
            needs = self._cells[number].needs
            gpu = self._room.take(needs)
            if gpu is not None:
                self._waiting.remove(number)
                self._running[number] = gpu
                return number, gpu
            # One that waits for a GPU does not stand in the way of others, one for memory does.
            if not needs.gpu:
                return None
        return None

    def end(self, number: int, error: Exception | None) -> dict[int, Exception | None]:
        """Note the end of a cell; return all cells that end with it, by number.

        Those that start from one that failed end with the same error. A lost cell waits again, and
        nothing ends, unless it was lost too often.
        """
        self._room.give_back(self._cells[number].needs, self._running.pop(number))
        if isinstance(error, LostError):
            self._lost[number] += 1
            if self._lost[number] < TRIES:
                self._waiting.insert(0, number)
                return {}
            error = MachineError(
                f"the process computing '{self._cells[number].title}' ended {TRIES} times without "
                "a result, as it does when memory runs out; try fewer --workers"
            )
        ended: dict[int, Exception | None] = {number: error}
        if error is not None:
            # Starts come before what starts from them.
            for other in sorted(self._waiting):
                if self._starts[other] & ended.keys():
                    ended[other] = error
                    self._waiting.remove(other)
        self._undone -= ended.keys()
        return ended
