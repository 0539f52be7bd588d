"""Cells in worker processes on this machine, side by side, one torch thread each.

If a worker is killed, only its cell is computed again. All workers end with the process
that started them, in whatever way that process ends.
"""

# The executor is loky's, and the schedule is ropelab's. joblib (1.6) would not do: a
# killed worker ends its whole call, and it has neither prerequisites nor limits of memory
# and GPUs.

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil
from loky import ProcessPoolExecutor
from loky.backend import get_context
from loky.process_executor import BrokenProcessPool

from ropelab.runs import own
from ropelab.runs.cell import Cell, Cells, Context, Resources
from ropelab.runs.engine import Ended, Engine, compute_cell
from ropelab.runs.engine.board import Board, Send
from ropelab.runs.engine.schedule import LostError, Running, choose_machine
from ropelab.runs.errors import RopelabError, ignore_warnings
from ropelab.runs.files import read_table_beside
from ropelab.runs.machine import one_gpu
from ropelab.runs.temporary import make_folder_for

# The seconds that workers have after an interrupt to end a training step and store it.
# Then they are killed.
GRACE_SECONDS = 1.5
# Windows can end another process, but not interrupt it.
CAN_INTERRUPT = os.name == "posix"
# The seconds after which a worker looks again whether the process that started it is
# still there.
SECONDS_BETWEEN_LOOKS = 1.0
ENVIRONMENT = read_table_beside(__file__, "environment")["local"]

# These two variables are set in workers, by `begin_work`. The first puts a message into
# the queue to the parent. The second has the fingerprints of the user's code, by
# reference, as the parent has imported it.
_send: Send | None = None
_sources: dict[str, str] = {}


class Workers(Engine):
    """An engine of `count` local processes. If `count` is None, there are as many as the
    machine has cores and memory for.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = count

    def open(self, cells: Sequence[Cell], context: Context, board: Board) -> int:
        self._machine = choose_machine(self._count, [cell.resources for cell in cells])
        self._cells = context.cells
        self._board = board
        # The cells that were given to the executor: number, cell and number of the GPU.
        self._running: dict[Future[None], tuple[int, Cell, int]] = {}
        # The process id of the worker that computes a cell, by the cell's number.
        self._process_of: dict[int, int] = {}
        self._folder = make_folder_for(self)
        self._start()
        return self._machine.workers

    def _start(self) -> None:
        context = get_context("loky")
        with _safe_path():
            # The queue is made anew, too: a worker that was killed may have held the
            # lock of the old queue.
            self._queue = context.SimpleQueue()
            self._executor = ProcessPoolExecutor(
                self._machine.workers,
                context=context,
                initializer=begin_work,
                initargs=(self._queue, os.getpid(), own.list_known_sources()),
                env=ENVIRONMENT,
            )

    def place(self, resources: Resources, running: Running) -> int | None:
        return self._machine.place(resources, running)

    def begin(self, number: int, cell: Cell, gpu: int) -> None:
        # A training has as many threads as there are workers. While several workers
        # compute, the operating system divides the cores among them. A model that trains
        # alone can use all cores.
        cores = self._machine.workers
        try:
            with _safe_path():
                future = self._executor.submit(
                    compute_in_worker,
                    number,
                    cell,
                    self._cells.root,
                    self._cells.fresh_run,
                    gpu,
                    cores,
                )
        except (OSError, BrokenProcessPool) as error:
            # The cell ends with this error, like a cell whose worker was lost.
            future = Future()
            future.set_exception(error)

        self._running[future] = number, cell, gpu
        self._folder.note_semaphores()

    def collect_ended(self, seconds: float) -> Iterator[Ended]:
        done, _ = wait(self._running, seconds, FIRST_COMPLETED)
        self._read_messages()

        is_broken = any(
            isinstance(future.exception(), BrokenProcessPool) for future in done
        )
        if is_broken:
            # When loky loses one worker it ends all workers, and every cell that is not
            # finished ends with the same error.
            done, _ = wait(self._running)

        lost = []
        for future in done:
            number, cell, gpu = self._running.pop(future)
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                lost.append((number, cell, gpu))
            elif error is None or isinstance(error, Exception):
                yield number, error
            else:
                raise error

        if is_broken:
            yield from self._begin_again(lost)

    def _begin_again(self, lost: Sequence[tuple[int, Cell, int]]) -> Iterator[Ended]:
        """Start new workers and begin the lost cells that no worker had begun; yield
        the lost cells that a worker had begun.
        """
        numbers = {number for number, _, _ in lost}
        numbers_begun = numbers & set(self._process_of)
        if not numbers_begun:
            # The workers ended before any cell began, so they cannot even start. Every
            # cell counts as lost, or workers would be started again for ever.
            numbers_begun = numbers

        self.close(interrupted=False)
        self._start()
        for number, cell, gpu in lost:
            if number in numbers_begun:
                yield number, LostError()
            else:
                self.begin(number, cell, gpu)

    def _read_messages(self) -> None:
        """Show the messages of the workers, and note which worker computes which
        cell.
        """
        while not self._queue.empty():
            message = self._queue.get()
            if message.kind == "started":
                self._process_of[message.number] = message.content[0]
            elif message.kind == "ended":
                self._process_of.pop(message.number, None)
            self._board.take(message)

    def close(self, interrupted: bool) -> None:
        self._read_messages()
        if interrupted and CAN_INTERRUPT:
            for process in self._process_of.values():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGINT)
            end = time.monotonic() + GRACE_SECONDS
            while self._process_of and time.monotonic() < end:
                time.sleep(0.05)
                self._read_messages()

        self._executor.shutdown(wait=False, kill_workers=True)
        for process in self._process_of.values():
            with suppress(psutil.Error):
                psutil.Process(process).kill()
        self._process_of.clear()


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let processes that are started in the block import nothing from the working
    folder.

    This also holds for processes that libraries start, such as trackers of resources.
    """
    value_before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if value_before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = value_before


def begin_work(queue: Any, parent: int, sources: dict[str, str]) -> None:
    """Prepare a worker process: it ignores Ctrl-C, which its parent handles, and it ends
    when its parent ends.
    """
    # The user's code may print, but only the parent may write to stdout.
    sys.stdout = sys.stderr
    with suppress(OSError):
        os.dup2(2, 1)
    ignore_warnings()
    global _send, _sources
    _send = queue.put
    _sources = sources
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    for name in sources:
        # The user's code is imported before the first cell is unpickled. Otherwise
        # unpickling would import it from a compiled copy. An error is suppressed here,
        # because the first cell imports the code again and reports the error.
        with suppress(RopelabError):
            own.find_own("methods", name)

    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def compute_in_worker(
    number: int, cell: Cell, root: Path, fresh_run: str, gpu: int, cores: int
) -> None:
    """Compute one cell in a worker and keep its tables.

    Args:
        number: the number of the cell.
        cell: the cell.
        root: the folder of the cache of cells.
        fresh_run: see `Cells`.
        gpu: the number of the GPU, for a cell that needs one.
        cores: the number of threads that a training may have.
    """
    assert _send is not None
    own.check_sources(_sources)
    context = Context(cells=Cells(root, fresh_run), cores=cores)
    with one_gpu(gpu) if cell.resources.gpu else nullcontext():
        compute_cell(number, cell, _send, context)


def _end_with_parent(parent: int) -> None:
    """Wait until the parent has ended, and end this process."""
    # A process whose parent has ended gets another parent. On Windows `getppid` still
    # returns the id of the first parent, so the loop also asks whether that exists.
    while os.getppid() == parent and psutil.pid_exists(parent):
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)
