"""Cells in worker processes on this machine, side by side, one torch thread each.

The workers are loky's. They stay alive between cells, since importing torch takes seconds. Their
results are on disk, whole or not at all, like those of a run in one process, so a worker that is
killed costs its cell and nothing else: the cell is computed again, at most twice. Workers end when
the process that started them ends, however it ended.
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import nullcontext, suppress
from pathlib import Path

import psutil
from loky import ProcessPoolExecutor
from loky.backend import get_context
from loky.process_executor import BrokenProcessPool, ShutdownExecutorError

from ropelab.errors import MachineError
from ropelab.runs.cell import Cell, Context, name_of
from ropelab.runs.cells import Cells
from ropelab.runs.engine import Done, computed_here
from ropelab.runs.engine.board import Board, Outbox, Reporter
from ropelab.runs.engine.capacity import Machine, machine_for
from ropelab.runs.engine.schedule import Job, Outcome, Schedule, jobs_for
from ropelab.runs.machine import one_gpu, one_thread

# A cell is begun so often, when its worker dies under it.
TRIES = 3
# After an interrupt a training step may end and be kept for so long; then workers are killed.
GRACE_SECONDS = 1.5
# How often a worker looks whether the process that started it is still there.
SECONDS_BETWEEN_LOOKS = 1.0
# The errors of a future whose worker is gone.
LOST = (BrokenProcessPool, ShutdownExecutorError)
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # loky replaces a worker that has grown by 300 MB, which it takes for a leak; torch is larger.
    "LOKY_MAX_MEMORY_LEAK_SIZE": "1e15",
}

# In a worker: the queue to the process that started it.
_outbox: Outbox | None = None


class Workers:
    """An engine of local processes, started when the first cells come.

    Args:
        count: of processes; None for as many as there are cores and memory.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = count
        self._crew: Crew | None = None

    def compute(self, cells: Sequence[Cell], context: Context) -> Iterator[Done]:
        """See `Engine.compute`; the workers begin at once, before the first is asked for."""
        alone = [number for number, cell in enumerate(cells) if cell.needs.alone]
        shared = [number for number, cell in enumerate(cells) if not cell.needs.alone]
        if shared:
            room = machine_for(self._count, [cells[number].needs for number in shared])
            self._crew = Crew(room, cells, shared, context.cells)
        return self._finish(cells, alone, shared, context)

    def stop(self) -> None:
        """End all workers; a training step may end and be kept first."""
        crew, self._crew = self._crew, None
        if crew:
            crew.dismiss(GRACE_SECONDS)

    def _finish(
        self, cells: Sequence[Cell], alone: list[int], shared: list[int], context: Context
    ) -> Iterator[Done]:
        if not cells:
            return
        failed: dict[str, Exception] = {}
        workers = self._crew.room.workers if self._crew else 1
        try:
            with Board(context.progress, cells, workers) as board:
                for cell, error in self._by_workers(cells, shared, context, board):
                    if error:
                        failed[name_of(cell)] = error
                    yield cell, error
                yield from computed_here(alone, cells, context, board, failed)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            self.stop()
            raise

    def _by_workers(
        self, cells: Sequence[Cell], left: list[int], context: Context, board: Board
    ) -> Iterator[Done]:
        """Compute in rounds of all cells that are left; a second one only after a loss."""
        begun: Counter[int] = Counter()
        failed: dict[str, Exception] = {}
        while left:
            crew = self._crew
            assert crew is not None
            crew.show(board)
            for future in as_completed(crew.jobs):
                number, error = crew.jobs[future].number, future.exception()
                if isinstance(error, LOST):
                    continue
                if error is not None and not isinstance(error, Exception):
                    raise error
                board.finish(number)
                left.remove(number)
                if error:
                    failed[name_of(cells[number])] = error
                yield cells[number], error
            if left:
                # Where no cell had begun, workers cannot even start: a loss for all of them.
                begun.update([n for n in left if board.busy(n)] or left)
                crew.dismiss()
                for number in list(left):
                    names = map(name_of, cells[number].starts)
                    error = next((failed[name] for name in names if name in failed), None)
                    if begun[number] >= TRIES:
                        error = given_up(cells[number])
                    if error:
                        failed[name_of(cells[number])] = error
                        left.remove(number)
                        board.finish(number)
                        yield cells[number], error
            self._crew = Crew(crew.room, cells, left, context.cells) if left else crew
        if self._crew:
            self._crew.dismiss()
            self._crew = None


def given_up(cell: Cell) -> MachineError:
    """The error of a cell whose worker died under it too often."""
    return MachineError(
        f"the process computing '{cell.title}' ended {TRIES} times without a result, "
        "as it does when memory runs out; try fewer --workers"
    )


class Crew:
    """Worker processes with the cells of one round, and the queue that they speak to.

    Attributes:
        jobs: by the future that is done when the job is.
    """

    def __init__(
        self, room: Machine, cells: Sequence[Cell], numbers: Sequence[int], kept: Cells
    ) -> None:
        self.room = room
        self.jobs = {job.outcome: job for job in jobs_for(cells, numbers)}
        self._kept = kept
        self._board: Board | None = None
        self._shown = threading.Event()
        context = get_context("loky")
        self._queue = context.SimpleQueue()
        self._executor = ProcessPoolExecutor(
            room.workers,
            context=context,
            initializer=begin_work,
            initargs=(self._queue, os.getpid()),
            env=ENVIRONMENT,
        )
        self._schedule = Schedule(list(self.jobs.values()), room, self._start)
        threading.Thread(target=self._listen, daemon=True).start()
        self._executor.submit(prepare).add_done_callback(self._end_with)
        self._schedule.open()

    def show(self, board: Board) -> None:
        """Pass messages on to a board from now on."""
        self._board = board
        self._shown.set()

    def _start(self, job: Job, gpu: int) -> "Future[Outcome]":
        future = self._executor.submit(
            work, job.number, job.cell, self._kept.root, self._kept.again, gpu
        )
        future.add_done_callback(self._end_with)
        return future

    def _end_with(self, future: "Future[Outcome]") -> None:
        """When a worker is lost, all are: waiting cells end with the same error."""
        if isinstance(error := future.exception(), LOST):
            self._schedule.close(error)

    def dismiss(self, grace_seconds: float = 0.0) -> None:
        """Stop all workers, those inside a cell after a grace in which a step may end."""
        self._schedule.close(ShutdownExecutorError())
        processes = set(self._board.processes.values()) if self._board else set()
        # On Windows another process can only be ended: what it has kept so far counts.
        if grace_seconds and os.name == "posix":
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGINT)
            end = time.monotonic() + grace_seconds
            while time.monotonic() < end and self._board and self._board.processes:
                time.sleep(0.05)
        self._executor.shutdown(wait=False, kill_workers=True)
        _kill(processes)
        self._queue.put(None)

    def _listen(self) -> None:
        """Pass messages on until the crew is dismissed or its queue breaks."""
        while True:
            try:
                message = self._queue.get()
            except (EOFError, OSError, TypeError, ValueError):
                return  # a worker was killed while it spoke; the crew is replaced
            if message is None:
                return
            self._shown.wait()
            assert self._board is not None
            self._board.take(message)


def begin_work(outbox: Outbox, parent: int) -> None:
    """Prepare a worker: Ctrl-C is its parent's to handle, and without a parent it ends."""
    global _outbox
    _outbox = outbox
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_without, args=(parent,), daemon=True).start()


def prepare() -> Outcome:
    """In a worker: load torch, which takes seconds."""
    import torch  # noqa: F401

    return ()


def work(number: int, cell: Cell, root: Path, again: str, gpu: int) -> Outcome:
    """In a worker: compute one cell, on a GPU of that number if it needs one, and keep it."""
    assert _outbox is not None
    reporter = Reporter(_outbox, number)
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


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            psutil.Process(process).kill()
