"""The engines that compute cells: in this process, in worker processes, or on Ray.

A cell is an independent piece of a run. Its prerequisites are the cells that must be
finished before it begins. Each cell uses one torch thread, so tables are the same, byte
for byte, for any number of workers.
"""

import os
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from ropelab.runs.cell import Cell, Context, Resources, hash_cell
from ropelab.runs.engine.board import Board, Message, Send, report
from ropelab.runs.engine.schedule import Running, Schedule
from ropelab.runs.errors import RopelabError
from ropelab.runs.machine import one_thread

# Yields each cell as soon as it has ended, with its error; None if it did not fail.
Finished = Generator[tuple[Cell, Exception | None], None, None]
# The number of a cell that has ended, and its error; None if it did not fail.
Ended = tuple[int, Exception | None]
# The most seconds between two looks of the loop that waits for workers whether it shall
# stop.
SECONDS_BETWEEN_LOOKS = 0.1


class Engine:
    """Computes cells in this process and keeps their tables. Subclasses have workers:
    other processes that compute cells.
    """

    # The thread that gives cells to the workers, and the event that makes it stop.
    _loop: tuple[threading.Thread, threading.Event] | None = None

    def open(self, cells: Sequence[Cell], context: Context, board: Board) -> int:
        """Start workers for cells. Return how many cells they compute side by side; 0 if
        the engine has no workers.
        """
        return 0

    def place(self, resources: Resources, running: Running) -> int | None:
        """Return the number of the GPU for one more cell, or None if there is no room.

        The number is 0 for a cell that uses no GPU.
        """
        raise NotImplementedError

    def begin(self, number: int, cell: Cell, gpu: int) -> None:
        """Give a cell to a worker."""
        raise NotImplementedError

    def collect_ended(self, seconds: float) -> Iterable[Ended]:
        """Wait at most this many seconds for cells to end, and yield the cells that
        ended.

        A cell that was lost with its worker ends with LostError.
        """
        raise NotImplementedError

    def close(self, interrupted: bool) -> None:
        """End all workers. If interrupted, they may first finish and store a training
        step.
        """
        raise NotImplementedError

    def compute(self, cells: Sequence[Cell], context: Context) -> Finished:
        """Compute cells and yield each when it is finished.

        `cells` lists a cell after its prerequisites. If a cell fails, the cells that need
        it end with the same error, and all other cells are still computed.
        """
        if not cells:
            return

        # `shared`: the cells for workers, by their numbers. `own_numbers`: the numbers
        # of the cells that this process computes when the workers are done.
        shared = _select_shared(cells)
        own_numbers = [number for number in range(len(cells)) if number not in shared]
        # The errors of cells that failed, by the hashes of the cells.
        failed: dict[str, Exception] = {}

        with Board(context.progress, cells) as board:
            workers = 0
            if shared:
                workers = self.open(list(shared.values()), context, board)

            if workers:
                board.workers = workers
                for number, error in self._compute_by_workers(shared, board):
                    if error is not None:
                        failed[hash_cell(cells[number])] = error
                    yield cells[number], error
            else:
                # Without workers this process computes everything.
                own_numbers = list(range(len(cells)))

            for number in own_numbers:
                cell = cells[number]
                # If a prerequisite has failed, the cell fails with the same error.
                error = _find_error(cell.prerequisites, failed)
                if error is None:
                    try:
                        compute_cell(number, cell, board.take, context)
                    except RopelabError as raised:
                        error = raised

                if error is not None:
                    failed[hash_cell(cell)] = error
                board.finish(number)
                yield cell, error

    def stop(self) -> None:
        """End the cells that are being computed, so that nothing is left running."""
        if self._loop:
            thread, stopping = self._loop
            stopping.set()
            thread.join()

    def _compute_by_workers(
        self, cells: Mapping[int, Cell], board: Board
    ) -> Iterator[Ended]:
        """Yield cells as they end.

        A thread gives work to the workers, so that they stay busy while the caller
        uses a cell that was yielded.
        """
        # None in the queue means that all cells have ended. An exception that is not in
        # a tuple means that the thread itself failed.
        ended: SimpleQueue[Ended | BaseException | None] = SimpleQueue()
        stopping = threading.Event()

        def keep_busy() -> None:
            schedule = Schedule(cells, self.place)
            try:
                while schedule.undone and not stopping.is_set():
                    while taken := schedule.begin():
                        number, gpu = taken
                        self.begin(number, cells[number], gpu)

                    for number, error in self.collect_ended(SECONDS_BETWEEN_LOOKS):
                        # A cell that fails also ends the cells that need it.
                        for other, its_error in schedule.end(number, error).items():
                            board.finish(other)
                            ended.put((other, its_error))

                self.close(interrupted=bool(schedule.undone))
                ended.put(None)
            except BaseException as error:
                self.close(interrupted=False)
                ended.put(error)

        thread = threading.Thread(target=keep_busy, daemon=True)
        self._loop = thread, stopping
        thread.start()
        try:
            while (item := ended.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stopping.set()
            thread.join()


class Here(Engine):
    """Computes cells one after another, without any other process."""


def _select_shared(cells: Sequence[Cell]) -> dict[int, Cell]:
    """Return the cells that any process may compute, by their numbers.

    The remaining cells are for the process that started the work: cells whose resources
    say `exclusive`, and cells that need one of these as a prerequisite.
    """
    shared = {}
    unshared_hashes = set[str]()
    for number, cell in enumerate(cells):
        needs_unshared = any(
            hash_cell(prerequisite) in unshared_hashes
            for prerequisite in cell.prerequisites
        )
        if cell.resources.exclusive or needs_unshared:
            unshared_hashes.add(hash_cell(cell))
        else:
            shared[number] = cell
    return shared


def _find_error(
    prerequisites: Sequence[Cell], failed: Mapping[str, Exception]
) -> Exception | None:
    """Return the error of the first prerequisite that failed; None if none failed."""
    for cell in prerequisites:
        error = failed.get(hash_cell(cell))
        if error is not None:
            return error
    return None


def compute_cell(number: int, cell: Cell, send: Send, context: Context) -> None:
    """Compute one cell in this process, and send its progress as messages."""
    send(Message(number, "started", (os.getpid(),)))
    uses_torch = bool(cell.resources.dtype)
    context = replace(context, progress=partial(report, send, number))
    threads: AbstractContextManager[None] = nullcontext()
    if uses_torch and not cell.resources.exclusive:
        threads = one_thread()
    try:
        with threads:
            context.compute(cell)
    finally:
        send(Message(number, "ended"))
