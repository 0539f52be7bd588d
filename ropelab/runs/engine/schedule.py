"""Which cell is begun next: the most urgent one of all runs, as soon as there is room for it."""

import threading
from bisect import insort
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Protocol

from ropelab.runs.cells import Cells, Parcel
from ropelab.runs.context import Cell, Context, Failures, Needs

Outcome = tuple[Parcel, ...]
"""What a computed cell gives back; nothing, where it was kept on disk at once."""


@dataclass(frozen=True)
class Job:
    """A cell on its way.

    Attributes:
        ticket: its number, in the order in which cells were handed in.
        needs: those of the cell.
        cells: where its tables are kept.
        outcome: done when the cell is.
    """

    ticket: int
    cell: Cell
    needs: Needs
    cells: Cells
    outcome: "Future[Outcome]" = field(default_factory=Future)

    @property
    def urgency(self) -> tuple[bool, float, int]:
        """What others wait for comes first, then what takes long, so that it does not end last."""
        return not self.needs.awaited, -self.needs.operations, self.ticket


class Room(Protocol):
    """What there is to compute with."""

    def take(self, needs: Needs) -> int | None:
        """Reserve a place; the number of its GPU (0 without one), None if there is no room."""
        ...

    def give_back(self, needs: Needs, gpu: int) -> None:
        """Free a place again."""
        ...


class Schedule:
    """Cells that wait, and the rule by which they are begun; nothing is, until it is opened.

    Args:
        room: what there is to compute with.
        start: begins a job on a GPU of that number; its future ends when the job does.
    """

    def __init__(self, room: Room, start: Callable[[Job, int], "Future[Outcome]"]) -> None:
        self._room, self._start = room, start
        self._waiting: list[Job] = []
        self._lock = threading.Lock()
        self._open = False
        self._closed: BaseException | None = None

    def add(self, job: Job) -> None:
        """Hand a job in."""
        with self._lock:
            insort(self._waiting, job, key=attrgetter("urgency"))
        self._begin()

    def open(self) -> None:
        """From now on, begin what there is room for."""
        self._open = True
        self._begin()

    def _begin(self) -> None:
        if self._closed:
            self.close(self._closed)
        while self._open and (taken := self._next()) is not None:
            job, gpu = taken
            try:
                future = self._start(job, gpu)
            except Exception as error:
                future = Future()
                future.set_exception(error)
            future.add_done_callback(partial(self._ended, job, gpu))

    def close(self, reason: BaseException) -> None:
        """Begin nothing more: all that wait, and all that come, end with this error."""
        with self._lock:
            self._closed = reason
            waiting, self._waiting = self._waiting, []
        for job in waiting:
            job.outcome.set_exception(reason)

    def _next(self) -> tuple[Job, int] | None:
        """The most urgent job and its place; one for a GPU does not stand in the way of others."""
        with self._lock:
            for passed, job in enumerate(self._waiting):
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
        error = future.exception()
        if error:
            job.outcome.set_exception(error)
        else:
            job.outcome.set_result(future.result())
        self._begin()


def settle(job: Job, context: Context, failures: Failures) -> None:
    """Keep what a cell that is done with gave back, or note why there is nothing."""
    cell = job.cell
    try:
        for parcel in job.outcome.result():
            context.cells.unpack(parcel)
    except Exception as error:
        failures.add(error)
    else:
        context.cells.note_computed(kind=cell.kind, version=cell.version, key=cell.key)
