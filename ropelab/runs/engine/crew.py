"""A crew of worker processes and the queue they speak to; replaced as a whole when one dies."""

import os
import signal
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from pathlib import Path

import psutil
from loky import ProcessPoolExecutor
from loky.backend import get_context
from loky.process_executor import BrokenProcessPool, ShutdownExecutorError

from ropelab.runs.cells import Cells
from ropelab.runs.context import Cell, Context
from ropelab.runs.engine.capacity import Machine
from ropelab.runs.engine.messages import Board, Outbox, Reporter
from ropelab.runs.engine.schedule import Job, Outcome, Schedule
from ropelab.runs.engine.tickets import Tickets
from ropelab.runs.machine import one_gpu, one_thread

LOST = (BrokenProcessPool, ShutdownExecutorError)
"""How a future ends whose worker is gone."""
CAN_INTERRUPT = os.name == "posix"
"""On Windows another process can only be ended: what it has kept so far counts."""
SECONDS_BETWEEN_LOOKS = 1.0
"""How often a worker looks whether the process that started it is still there."""

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # loky replaces a worker that has grown by 300 MB, which it takes for a leak; torch is larger.
    "LOKY_MAX_MEMORY_LEAK_SIZE": "1e15",
}

_outbox: Outbox | None = None
"""In a worker: the queue to speak to."""


class Crew:
    """Worker processes with one torch thread each.

    Args:
        room: how many, and what they have to compute with.
    """

    def __init__(self, room: Machine) -> None:
        context = get_context("loky")
        self._queue = context.SimpleQueue()
        self._executor = ProcessPoolExecutor(
            room.workers,
            context=context,
            initializer=begin_work,
            initargs=(self._queue, os.getpid()),
            env=ENVIRONMENT,
        )
        self._schedule = Schedule(room, self._start)
        self._tickets = Tickets(self._schedule, room.workers)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._executor.submit(prepare).add_done_callback(self._open)

    def submit(self, cell: Cell, cells: Cells, board: Board) -> Job:
        """Hand a cell in."""
        return self._tickets.submit(cell, cells, board)

    def _open(self, prepared: "Future[Outcome]") -> None:
        """Workers are there; meanwhile the cells of all runs have been handed in."""
        self._end_with(prepared)
        self._schedule.open()

    def _start(self, job: Job, gpu: int) -> "Future[Outcome]":
        root, again = job.cells.root, job.cells.again
        future = self._executor.submit(work, job.ticket, job.cell, root, again, gpu)
        future.add_done_callback(self._end_with)
        return future

    def _end_with(self, future: "Future[Outcome]") -> None:
        """When a worker is lost, all are: what waits ends with the same error."""
        if isinstance(error := future.exception(), LOST):
            self._schedule.close(error)

    def dismiss(self, grace_seconds: float = 0.0) -> None:
        """Stop all workers: a training step may end and be kept within the grace, then they go."""
        self._schedule.close(ShutdownExecutorError())
        processes = self.processes()
        if grace_seconds and CAN_INTERRUPT:
            _interrupt(processes)
            _wait_for_silence(self._tickets.boards, grace_seconds)
        self._executor.shutdown(wait=False, kill_workers=True)
        _kill(processes)
        self._queue.put(None)

    def forget(self, job: Job) -> None:
        """A cell is done with."""
        self._tickets.forget(job)

    def processes(self) -> set[int]:
        """Process ids of workers that have begun a cell which is not done with."""
        boards = self._tickets.boards
        return {board.processes[t] for t, board in boards.items() if t in board.processes}

    def _listen(self) -> None:
        """Pass messages on to the boards until the crew is dismissed or its queue breaks."""
        while True:
            try:
                message = self._queue.get()
            except (EOFError, OSError, TypeError, ValueError):
                return  # a worker was killed while it spoke; the crew is replaced
            if message is None:
                return
            self._tickets.tell(message)


def begin_work(outbox: Outbox, parent: int) -> None:
    """Prepare a worker: Ctrl-C is its parent's to handle, and without a parent it ends."""
    global _outbox
    _outbox = outbox
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_without, args=(parent,), daemon=True).start()


def prepare() -> Outcome:
    """In a worker: load what takes seconds."""
    import torch  # noqa: F401

    return ()


def work(ticket: int, cell: Cell, root: Path, again: str, gpu: int) -> Outcome:
    """In a worker: compute one cell, on a GPU of that number if it needs one, and keep it."""
    assert _outbox is not None
    reporter = Reporter(_outbox, ticket)
    try:
        with one_thread(), one_gpu(gpu) if cell.needs.gpu else nullcontext():
            Context(progress=reporter, cells=Cells(root, again)).compute(cell)
    finally:
        reporter.say("ended")
    return ()


def _end_without(parent: int) -> None:
    """End this process when its parent has; on Windows it keeps the number of a dead one."""
    while os.getppid() == parent and psutil.pid_exists(parent):
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)


def _interrupt(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGINT)


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            psutil.Process(process).kill()


def _wait_for_silence(boards: dict[int, Board], seconds: float) -> None:
    """Wait until no worker is inside a cell any more, at most so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(board.busy(t) for t, board in list(boards.items())):
        time.sleep(0.05)
