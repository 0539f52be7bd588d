"""The order of cells: the most urgent whose starts are finished, as soon as there is room."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ropelab.runs.cell import Cell, Needs, name_of
from ropelab.runs.cells import Parcel

Outcome = tuple[Parcel, ...]
"""The folders that a computed cell gives back; none, where they were written to disk at once."""


@dataclass(frozen=True, eq=False)
class Job:
    """A cell on its way.

    Attributes:
        number: its place in the sequence of cells.
        waits_for: numbers of the jobs that have to be done before.
        awaited: whether other jobs wait for it.
        outcome: done when the cell is.
    """

    number: int
    cell: Cell
    needs: Needs
    waits_for: frozenset[int]
    awaited: bool
    outcome: "Future[Outcome]" = field(default_factory=Future)

    @property
    def urgency(self) -> tuple[bool, float, int]:
        """The order: awaited ones first, then the longest, so that none of these ends last."""
        return not self.awaited, -self.needs.size, self.number


def jobs_for(cells: Sequence[Cell], numbers: Sequence[int]) -> list[Job]:
    """Make a job of each cell of these numbers; a start that is not among them is finished."""
    by_name = {name_of(cells[number]): number for number in numbers}
    starts = {
        number: frozenset(by_name[n] for n in map(name_of, cells[number].starts) if n in by_name)
        for number in numbers
    }
    awaited = frozenset().union(*starts.values())
    return [Job(n, cells[n], cells[n].needs, starts[n], n in awaited) for n in numbers]


class Room(Protocol):
    """Workers, memory and GPUs."""

    def take(self, needs: Needs) -> int | None:
        """Reserve a place; the number of its GPU (0 without one), None if there is no room."""
        ...

    def give_back(self, needs: Needs, gpu: int) -> None:
        """Free a place again."""
        ...


class Schedule:
    """Jobs that wait, and the rule by which they are begun; nothing is, until it is opened.

    Args:
        start: begins a job on a GPU of that number; its future ends when the job does.
    """

    def __init__(
        self, jobs: Sequence[Job], room: Room, start: Callable[[Job, int], "Future[Outcome]"]
    ) -> None:
        self._room, self._start = room, start
        self._waiting = sorted(jobs, key=lambda job: job.urgency)
        self._undone = {job.number for job in jobs}
        self._failed: dict[int, BaseException] = {}
        self._lock = threading.Lock()
        self._open = False

    def open(self) -> None:
        """From now on, begin what there is room for."""
        self._open = True
        self._begin()

    def close(self, reason: BaseException) -> None:
        """Begin nothing more: all that wait end with this error."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for job in waiting:
            job.outcome.set_exception(reason)

    def _begin(self) -> None:
        while self._open and (taken := self._next()) is not None:
            job, gpu = taken
            try:
                future = self._start(job, gpu)
            except Exception as error:
                future = Future()
                future.set_exception(error)
            future.add_done_callback(partial(self._ended, job, gpu))

    def _next(self) -> tuple[Job, int] | None:
        """The most urgent job and its place; one for a GPU does not stand in the way of others."""
        with self._lock:
            for passed, job in enumerate(self._waiting):
                if job.waits_for & self._undone:
                    continue
                gpu = self._room.take(job.needs)
                if gpu is not None:
                    del self._waiting[passed]
                    return job, gpu
                if not job.needs.gpu:
                    return None
        return None

    def _ended(self, job: Job, gpu: int, future: "Future[Outcome]") -> None:
        with self._lock:
            self._room.give_back(job.needs, gpu)
        self._settle(job, future.exception(), future)
        self._begin()

    def _settle(
        self, job: Job, error: BaseException | None, future: "Future[Outcome] | None" = None
    ) -> None:
        """End a job, and with the same error all that would start from it."""
        with self._lock:
            dropped = []
            if error is None:
                self._undone.discard(job.number)
            else:
                self._failed[job.number] = error
                dropped = [other for other in self._waiting if job.number in other.waits_for]
                self._waiting = [other for other in self._waiting if other not in dropped]
        if error is None:
            assert future is not None
            job.outcome.set_result(future.result())
        else:
            job.outcome.set_exception(error)
        for other in dropped:
            self._settle(other, error)
