"""The one map: cells are computed in this process, in worker processes beside it, or on
Ray.

Each uses one torch thread, so tables are the same, byte for byte, for any number of
workers.
"""

import os
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from ropelab.runs.cell import Cell, Context, Resources, name_of
from ropelab.runs.engine.board import Board, Message, Send, report
from ropelab.runs.engine.schedule import Running, Schedule
from ropelab.runs.errors import RopelabError
from ropelab.runs.machine import one_thread

# Cells as they are finished, each with the error that it ended with.
Finished = Generator[tuple[Cell, Exception | None], None, None]
# The number of a cell, and the error that it ended with.
Ended = tuple[int, Exception | None]
# How long workers are waited for before the loop looks whether it shall stop.
SECONDS_BETWEEN_LOOKS = 0.1


class Engine:
    """Computes cells and keeps them, in this process; subclasses have workers beside
    it.
    """

    _loop: tuple[threading.Thread, threading.Event] | None = None

    def open(self, cells: Sequence[Cell], context: Context, board: Board) -> int:
        """Start workers for cells; return how many compute side by side, 0 without
        workers.
        """
        return 0

    def place(self, resources: Resources, running: Running) -> int | None:
        """Find room for one more cell: the number of its GPU (0 without one), None
        without room.
        """
        raise NotImplementedError

    def begin(self, number: int, cell: Cell, gpu: int) -> None:
        raise NotImplementedError

    def ended(self, seconds: float) -> Iterable[Ended]:
        """Wait at most so long for cells to end; one lost with its worker ends in
        LostError.
        """
        raise NotImplementedError

    def close(self, interrupted: bool) -> None:
        """End all workers; if interrupted, a training step may end and be kept
        first.
        """
        raise NotImplementedError

    def compute(self, cells: Sequence[Cell], context: Context) -> Finished:
        """Compute cells and yield each when it is finished; one that fails stops no
        other.

        Cells come after those that they start from; if a start fails, they end with its
        error.
        """
        if not cells:
            return

        names = list(map(name_of, cells))
        # Computed in this process: what starts from such a cell can only follow it.
        alone = set[str]()
        for name, cell in zip(names, cells, strict=True):
            if cell.resources.alone or not alone.isdisjoint(map(name_of, cell.starts)):
                alone.add(name)
        shared = {n: cell for n, cell in enumerate(cells) if names[n] not in alone}
        here: Sequence[int] = range(len(cells))
        failed: dict[str, Exception] = {}

        with Board(context.progress, cells) as board:
            if shared and (count := self.open(list(shared.values()), context, board)):
                board.workers = count
                here = [number for number in here if number not in shared]
                for number, error in self._by_workers(shared, board):
                    if error is not None:
                        failed[names[number]] = error
                    yield cells[number], error

            for number in here:
                cell = cells[number]
                error = None
                for start in map(name_of, cell.starts):
                    error = error or failed.get(start)
                if error is None:
                    try:
                        compute_cell(number, cell, board.take, context)
                    except RopelabError as raised:
                        error = raised
                if error is not None:
                    failed[names[number]] = error
                board.finish(number)
                yield cell, error

    def stop(self) -> None:
        """End what is being computed, so that nothing is left running."""
        if self._loop:
            thread, stopping = self._loop
            stopping.set()
            thread.join()

    def _by_workers(self, cells: Mapping[int, Cell], board: Board) -> Iterator[Ended]:
        """Yield what ends; only a thread speaks to the workers, so they stay busy
        meanwhile.
        """
        ended: SimpleQueue[Ended | BaseException | None] = SimpleQueue()
        stopping = threading.Event()

        def keep_busy() -> None:
            schedule = Schedule(cells, self.place)
            try:
                while schedule.undone and not stopping.is_set():
                    while taken := schedule.begin():
                        number, gpu = taken
                        self.begin(number, cells[number], gpu)

                    for number, error in self.ended(SECONDS_BETWEEN_LOOKS):
                        for one in schedule.end(number, error).items():
                            board.finish(one[0])
                            ended.put(one)

                self.close(interrupted=bool(schedule.undone))
                ended.put(None)
            except BaseException as error:
                self.close(interrupted=False)
                ended.put(error)

        thread = threading.Thread(target=keep_busy, daemon=True)
        self._loop = thread, stopping
        thread.start()
        try:
            while (one := ended.get()) is not None:
                if isinstance(one, BaseException):
                    raise one
                yield one
        finally:
            stopping.set()
            thread.join()


class Here(Engine):
    """Computes cells one after another, without any other process."""


def compute_cell(number: int, cell: Cell, send: Send, context: Context) -> None:
    """Compute one cell wherever this is, its progress sent as messages."""
    send(Message(number, "started", (os.getpid(),)))
    by_torch = bool(cell.resources.dtype)
    context = replace(context, progress=partial(report, send, number))
    try:
        with one_thread() if by_torch and not cell.resources.alone else nullcontext():
            context.compute(cell)
    finally:
        send(Message(number, "ended"))
