"""Cells side by side: one loop for worker processes on this machine and for Ray."""

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ropelab.runs.cell import Cell, Context, name_of
from ropelab.runs.engine import Finished, computed_here
from ropelab.runs.engine.board import Board, unless_quick
from ropelab.runs.engine.schedule import Room, Schedule

# How long a pool is waited for before the loop looks whether it shall stop.
SECONDS_BETWEEN_LOOKS = 0.1
# The number of a cell, and the error that it ended with.
Ended = tuple[int, Exception | None]


class Pool(Protocol):
    """Workers that compute cells, and send messages for a board meanwhile."""

    def begin(self, number: int, cell: Cell, gpu: int) -> None:
        """Hand a cell to a worker."""
        ...

    def ended(self, seconds: float) -> Iterable[Ended]:
        """Wait at most so long; return the numbers of cells that ended, LostError for lost ones."""
        ...

    def close(self, interrupted: bool) -> None:
        """End all workers; if interrupted, a training step may end and be kept first."""
        ...


class SideBySide:
    """An engine whose cells are computed by a pool, as many at once as there is room for."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._loop: threading.Thread | None = None

    def open(self, cells: Sequence[Cell], context: Context, board: Board) -> tuple[Pool, Room]:
        """Make a pool for these cells."""
        raise NotImplementedError

    def compute(self, cells: Sequence[Cell], context: Context) -> Finished:
        """See `Engine.compute`."""
        if not cells:
            return
        context = replace(context, progress=unless_quick(context.progress, cells))
        # What starts from a cell that is computed alone can only follow it.
        alone: dict[int, str] = {}
        for number, cell in enumerate(cells):
            starts = {name_of(start) for start in cell.starts}
            if cell.needs.alone or starts & set(alone.values()):
                alone[number] = name_of(cell)
        shared = {number: cell for number, cell in enumerate(cells) if number not in alone}
        failed: dict[str, Exception] = {}
        with Board(context.progress, cells, workers=1) as board:
            if shared:
                for number, error in self._shared(shared, context, board):
                    if error is not None:
                        failed[name_of(cells[number])] = error
                    yield cells[number], error
            yield from computed_here(alone, cells, context, board, failed)

    def stop(self) -> None:
        """End what is being computed, so that nothing is left running."""
        self._stopping.set()
        if self._loop:
            self._loop.join()

    def _shared(self, cells: Mapping[int, Cell], context: Context, board: Board) -> Iterator[Ended]:
        """Compute cells by a pool; only a thread speaks to it, so workers stay busy meanwhile."""
        pool, room = self.open(list(cells.values()), context, board)
        ended: queue.SimpleQueue[Ended | BaseException | None] = queue.SimpleQueue()
        self._stopping.clear()
        work = (pool, room, cells, board, ended)
        self._loop = loop = threading.Thread(target=self._compute, args=work, daemon=True)
        loop.start()
        try:
            while (one := ended.get()) is not None:
                if isinstance(one, BaseException):
                    raise one
                yield one
        finally:
            self._stopping.set()
            loop.join()

    def _compute(
        self,
        pool: Pool,
        room: Room,
        cells: Mapping[int, Cell],
        board: Board,
        ended: "queue.SimpleQueue[Ended | BaseException | None]",
    ) -> None:
        schedule = Schedule(cells, room)
        try:
            while not (schedule.is_done or self._stopping.is_set()):
                while taken := schedule.begin():
                    number, gpu = taken
                    pool.begin(number, cells[number], gpu)
                for number, error in pool.ended(SECONDS_BETWEEN_LOOKS):
                    for one in schedule.end(number, error).items():
                        board.finish(one[0])
                        ended.put(one)
            pool.close(interrupted=not schedule.is_done)
            ended.put(None)
        except BaseException as error:
            pool.close(interrupted=False)
            ended.put(error)
