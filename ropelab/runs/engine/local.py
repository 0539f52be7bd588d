"""Cells in worker processes on this machine, side by side, one torch thread each.

A worker that is killed costs its cell only; all end with their parent, however it
ended.
"""

# loky's executor, a schedule of ours: with joblib (1.6) a killed worker ends the whole
# call, and neither cells that wait for others nor memory and GPUs are known.

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
from ropelab.runs.engine.schedule import LostError, Running, machine_for
from ropelab.runs.errors import RopelabError
from ropelab.runs.files import table_beside
from ropelab.runs.machine import one_gpu
from ropelab.runs.temporary import folder_of

# After an interrupt a training step may end and be kept for so long; then workers are
# killed.
GRACE_SECONDS = 1.5
# On Windows another process can only be ended: what it has kept so far counts.
CAN_INTERRUPT = os.name == "posix"
# How often a worker looks whether the process that started it is still there.
SECONDS_BETWEEN_LOOKS = 1.0
ENVIRONMENT = table_beside(__file__, "environment")["local"]

# In a worker: puts messages into the queue to its parent; the sources of own code as
# known there.
_send: Send | None = None
_sources: dict[str, str] = {}


class Workers(Engine):
    """An engine of local processes; without a count, as many as there are cores and
    memory.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = count

    def open(self, cells: Sequence[Cell], context: Context, board: Board) -> int:
        self._machine = machine_for(self._count, [cell.resources for cell in cells])
        self._kept = context.cells
        self._board = board
        self._running: dict[Future[None], tuple[int, Cell, int]] = {}
        # Process ids of workers by the numbers of the cells that they are inside of.
        self._inside: dict[int, int] = {}
        self._folder = folder_of(self)
        self._start()
        return self._machine.workers

    def _start(self) -> None:
        context = get_context("loky")
        with _safe_path():
            # A new queue too: a worker that was killed may have held the lock of the
            # old one.
            self._queue = context.SimpleQueue()
            self._executor = ProcessPoolExecutor(
                self._machine.workers,
                context=context,
                initializer=begin_work,
                initargs=(self._queue, os.getpid(), own.known_sources()),
                env=ENVIRONMENT,
            )

    def place(self, resources: Resources, running: Running) -> int | None:
        return self._machine.place(resources, running)

    def begin(self, number: int, cell: Cell, gpu: int) -> None:
        kept = self._kept
        try:
            # A training has a thread for every worker: where others compute, the system
            # shares out the cores, and a model that trains alone has all of them.
            cores = self._machine.workers
            with _safe_path():
                future = self._executor.submit(
                    work, number, cell, kept.root, kept.again, gpu, cores
                )
        except (OSError, BrokenProcessPool) as error:
            future = Future()
            future.set_exception(error)
        self._running[future] = number, cell, gpu
        self._folder.note_semaphores()

    def ended(self, seconds: float) -> Iterator[Ended]:
        done, _ = wait(self._running, seconds, FIRST_COMPLETED)
        self._read()

        broken = any(
            isinstance(future.exception(), BrokenProcessPool) for future in done
        )
        if broken:
            # When a worker is lost, all are: every cell that is not finished ends with
            # this error.
            done, _ = wait(self._running)

        lost = []
        for future in done:
            begun = self._running.pop(future)
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                lost.append(begun)
            elif error is None or isinstance(error, Exception):
                yield begun[0], error
            else:
                raise error

        if broken:
            # Where no cell had begun, workers cannot even start: a loss for all of
            # them.
            every = {number for number, _, _ in lost}
            inside = every & set(self._inside) or every
            self.close(interrupted=False)
            self._start()
            for number, cell, gpu in lost:
                if number in inside:
                    yield number, LostError()
                else:
                    self.begin(number, cell, gpu)

    def _read(self) -> None:
        while not self._queue.empty():
            message = self._queue.get()
            if message.kind == "started":
                self._inside[message.number] = message.content[0]
            elif message.kind == "ended":
                self._inside.pop(message.number, None)
            self._board.take(message)

    def close(self, interrupted: bool) -> None:
        self._read()
        if interrupted and CAN_INTERRUPT:
            for process in self._inside.values():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGINT)
            end = time.monotonic() + GRACE_SECONDS
            while self._inside and time.monotonic() < end:
                time.sleep(0.05)
                self._read()

        self._executor.shutdown(wait=False, kill_workers=True)
        for process in self._inside.values():
            with suppress(psutil.Error):
                psutil.Process(process).kill()
        self._inside.clear()


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let Python import nothing from the working folder in processes that are started.

    Also for those that the libraries start, such as trackers of resources.
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
    """Prepare a worker: Ctrl-C is its parent's to handle, and without a parent it
    ends.
    """
    # A document of the parent's is all that goes to stdout; code of the user's prints.
    sys.stdout = sys.stderr
    global _send, _sources
    _send = queue.put
    _sources = sources
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in sources:
        # Before a cell is unpickled, which would import it in Python's own way. What
        # fails is said by the first cell.
        with suppress(RopelabError):
            own.find("methods", name)

    threading.Thread(target=_end_without, args=(parent,), daemon=True).start()


def work(number: int, cell: Cell, root: Path, again: str, gpu: int, cores: int) -> None:
    """In a worker: compute one cell, on a GPU of that number if it needs one, and keep
    it.
    """
    assert _send is not None
    own.check_sources(_sources)
    context = Context(cells=Cells(root, again), cores=cores)
    with one_gpu(gpu) if cell.resources.gpu else nullcontext():
        compute_cell(number, cell, _send, context)


def _end_without(parent: int) -> None:
    """End this process when its parent has; on Windows it keeps the number of a dead
    one.
    """
    while os.getppid() == parent and psutil.pid_exists(parent):
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)
