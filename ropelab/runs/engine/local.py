"""Cells in worker processes on this machine, side by side, one torch thread each.

If a worker is killed, only its cell is computed again. All workers end with the process
that started them, however that ended.
"""

# The executor is loky's, and the schedule is ours. With joblib (1.6) a killed worker
# ends the whole call, and joblib knows neither cells that wait for prerequisites nor
# memory and GPUs.

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

# The time that workers have after an interrupt to end a training step and keep it.
# After it they are killed.
GRACE_SECONDS = 1.5
# Windows can end another process, but not interrupt it.
CAN_INTERRUPT = os.name == "posix"
# A worker looks this often whether the process that started it is still there.
SECONDS_BETWEEN_LOOKS = 1.0
ENVIRONMENT = read_table_beside(__file__, "environment")["local"]

# The two variables are set in workers, by `begin_work`. The first puts a message into
# the queue to the parent. The second has the sources of code from outside, as the
# parent knows them.
_send: Send | None = None
_sources: dict[str, str] = {}


class Workers(Engine):
    """An engine of `count` local processes, or, if it is None, of as many as there are
    cores and memory for.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = count

    def open(self, cells: Sequence[Cell], context: Context, board: Board) -> int:
        self._machine = choose_machine(self._count, [cell.resources for cell in cells])
        self._kept = context.cells
        self._board = board
        self._running: dict[Future[None], tuple[int, Cell, int]] = {}
        # The process id of the worker that computes a cell, by the cell's number.
        self._process_of: dict[int, int] = {}
        self._folder = make_folder_for(self)
        self._start()
        return self._machine.workers

    def _start(self) -> None:
        context = get_context("loky")
        with _safe_path():
            # The queue is a new one, too: a worker that was killed may have held the
            # lock of the old one.
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
        kept = self._kept
        # A training has as many threads as there are workers. While several workers
        # compute, the system shares the cores among them. A model that trains alone can
        # use all cores.
        cores = self._machine.workers
        try:
            with _safe_path():
                future = self._executor.submit(
                    compute_in_worker,
                    number,
                    cell,
                    kept.root,
                    kept.fresh_run,
                    gpu,
                    cores,
                )
        except (OSError, BrokenProcessPool) as error:
            # The cell ends with this error, like one whose worker was lost.
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
            # The workers ended before any cell began, so they cannot even start. That
            # counts as a loss of every cell, or they would be started for ever.
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

    It holds for processes that libraries start, too, such as trackers of resources.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def begin_work(queue: Any, parent: int, sources: dict[str, str]) -> None:
    """Prepare a worker, which leaves Ctrl-C to its parent and ends when its parent
    does.
    """
    # Methods of users may print, and stdout is reserved for documents of the parent.
    sys.stdout = sys.stderr
    with suppress(OSError):
        os.dup2(2, 1)
    ignore_warnings()
    global _send, _sources
    _send = queue.put
    _sources = sources
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    for name in sources:
        # Code from outside is imported before the first cell is unpickled, which would
        # otherwise import it from a compiled copy. An error is left to the first cell,
        # which imports the code again and is reported.
        with suppress(RopelabError):
            own.find("methods", name)

    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def compute_in_worker(
    number: int, cell: Cell, root: Path, fresh_run: str, gpu: int, cores: int
) -> None:
    """Compute one cell in a worker and keep its tables.

    Args:
        number: of the cell.
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
    # A process whose parent ended gets another parent. On Windows it keeps the number
    # of the ended one, so its existence is asked for, too.
    while os.getppid() == parent and psutil.pid_exists(parent):
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)
