"""Ray's workers: cells go there with all that they read, and come back with all that they made.

Nothing is read from a file system that machines share. Weights, tables and texts travel through
Ray's object store; a worker keeps them in a temporary folder while it computes. When a worker or
its machine is lost, Ray begins the cell again elsewhere.
"""

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.queue import Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import ropelab
from ropelab.errors import MachineError
from ropelab.runs.cell import Cell, Context, Needs, identity_of, with_starts
from ropelab.runs.cells import CellName, Cells, Parcel
from ropelab.runs.engine.board import Board, Outbox, Reporter
from ropelab.runs.engine.schedule import Job, Outcome, Schedule, jobs_for
from ropelab.runs.machine import one_thread

VERSION = ropelab.__version__
TRIES = 3
"""How often a cell is begun whose worker or machine is lost under it."""
SECONDS_BETWEEN_LOOKS = 0.2
KEPT = 64
"""How many texts and weights are kept in the object store for cells to come."""


class Cluster:
    """A Ray cluster as room for cells; it may grow and shrink meanwhile.

    One cell more is handed over than there is room for: a cluster that grows on demand sees it.

    Args:
        most: how many cells are computed at once at most, None: as many as there are cores.
    """

    def __init__(self, most: int | None) -> None:
        self._most, self._running, self._on_gpu = most, 0, 0

    @property
    def workers(self) -> int:
        """How many cells are computed at once on the cluster as it is now."""
        there = max(1, int(ray.cluster_resources().get("CPU", 0)))
        return min(there, self._most or there)

    def take(self, needs: Needs) -> int | None:
        """Reserve a place; which GPU it is, Ray decides."""
        there = ray.cluster_resources()
        places = min(int(there.get("CPU", 0)) + 1, self._most or self._running + 1)
        gpu_taken = needs.gpu and self._on_gpu > int(there.get("GPU", 0))
        if self._running >= places or gpu_taken:
            return None
        self._running += 1
        self._on_gpu += needs.gpu
        return 0

    def give_back(self, needs: Needs, gpu: int) -> None:
        """Free a place again."""
        self._running -= 1
        self._on_gpu -= needs.gpu


@dataclass(frozen=True)
class Order:
    """A cell for a worker, and what it must know beside it.

    Attributes:
        again: as in `Cells`.
        folder: where the worker makes its temporary folder, empty: where its machine has them.
        version: of ropelab, which must be the same everywhere.
    """

    ticket: int
    cell: Cell
    again: str
    folder: str
    version: str


class Fleet:
    """The cells that are with Ray, and the thread that waits for them.

    Attributes:
        jobs: by the future that is done when the job is.
    """

    def __init__(
        self, room: Cluster, cells: Sequence[Cell], kept: Cells, board: Board, folder: str
    ) -> None:
        here = ray.get_runtime_context().get_node_id()
        beside = NodeAffinitySchedulingStrategy(here, soft=False)
        self.jobs = {job.outcome: job for job in jobs_for(cells, range(len(cells)))}
        self._kept, self._board, self._folder = kept, board, folder
        self._outbox = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": beside})
        self._objects: dict[str, Any] = {}
        self._running: dict[Any, tuple[str, Future[Outcome]]] = {}
        self._stopped = threading.Event()
        self._schedule = Schedule(list(self.jobs.values()), room, self._start)
        self._task = ray.remote(num_cpus=1, max_retries=TRIES - 1)(computed)
        self._send("preparation", ray.remote(num_cpus=1)(prepare)).add_done_callback(
            lambda prepared: self._schedule.open()
        )
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def dismiss(self) -> None:
        """Wait for nothing any more; running cells end with the connection."""
        self._stopped.set()
        self._watcher.join(timeout=5 * SECONDS_BETWEEN_LOOKS)
        self._fail(KeyboardInterrupt())

    def _start(self, job: Job, gpu: int) -> "Future[Outcome]":
        needs = job.needs
        names = [*map(identity_of, with_starts(job.cell.starts).values()), *needs.folders]
        parcels = [parcel for name in names if (parcel := self._kept.packed(name))]
        objects = [self._stored(repr(supply), supply.content) for supply in needs.supplies]
        objects += [self._stored(_digest(parcel), partial(_same, parcel)) for parcel in parcels]
        order = Order(job.number, job.cell, self._kept.again, self._folder, VERSION)
        options = {"num_gpus": int(needs.gpu), "name": job.cell.title}
        task = self._task.options(**options)
        return self._send(job.cell.title, task, order, self._outbox, *objects)

    def _send(self, title: str, task: Any, *arguments: Any) -> "Future[Outcome]":
        """Have a worker carry out a task."""
        future: Future[Outcome] = Future()
        self._running[task.remote(*arguments)] = (title, future)
        return future

    def _stored(self, name: str, content: Callable[[], Any]) -> Any:
        """Put something into the object store, unless it is there."""
        if name not in self._objects:
            self._objects[name] = ray.put(content())
        for oldest in list(self._objects)[:-KEPT]:
            self._objects.pop(oldest, None)
        return self._objects[name]

    def _watch(self) -> None:
        """Pass on messages and results until dismissed."""
        try:
            while not self._stopped.is_set():
                for message in self._outbox.get_nowait_batch(self._outbox.qsize()):
                    self._board.take(message)
                if not self._running:
                    self._stopped.wait(SECONDS_BETWEEN_LOOKS)
                    continue
                done, _ = ray.wait(list(self._running), timeout=SECONDS_BETWEEN_LOOKS)
                for reference in done:
                    self._settle(*self._running.pop(reference), reference)
        except Exception as error:
            self._fail(MachineError(f"the connection to Ray was lost: {_first_line(error)}"))

    def _settle(self, title: str, future: "Future[Outcome]", reference: Any) -> None:
        """Keep what a task gave back, before cells that start from it can begin."""
        try:
            parcels = ray.get(reference)
            for parcel in parcels:
                self._kept.unpack(parcel)
            future.set_result(())
        except RayTaskError as error:
            future.set_exception(error.cause or error)
        except RayError as error:
            reason = _first_line(error)
            future.set_exception(
                MachineError(
                    f"'{title}' was lost {TRIES} times with its worker or machine: {reason}"
                )
            )
        except Exception as error:
            future.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        """End all that wait and all that run with an error."""
        self._schedule.close(error)
        for _, future in list(self._running.values()):
            with suppress(InvalidStateError):
                future.set_exception(error)


def prepare() -> Outcome:
    """On a worker: load what takes seconds."""
    import torch  # noqa: F401

    return ()


def computed(order: Order, outbox: Outbox, *objects: Any) -> Outcome:
    """On a worker: compute one cell from what came with it; what it left in its folders.

    Args:
        objects: the contents of what the cell reads, then parcels of other cells.
    Raises:
        MachineError: the worker has another version of ropelab.
    """
    if order.version != VERSION:
        raise MachineError(
            f"a worker has ropelab {VERSION}, this is {order.version}; "
            "install the same version on all machines of the cluster"
        )
    cell, needs = order.cell, order.cell.needs
    contents, parcels = objects[: len(needs.supplies)], objects[len(needs.supplies) :]
    for supply, content in zip(needs.supplies, contents, strict=True):
        supply.provide(content)
    own = CellName(cell.kind, cell.version, cell.key)
    with TemporaryDirectory(prefix="ropelab-", dir=order.folder or None) as folder, one_thread():
        cells = Cells(Path(folder), order.again)
        for parcel in parcels:
            cells.unpack(parcel)
        reporter = Reporter(outbox, order.ticket)
        try:
            Context(progress=reporter, cells=cells).compute(cell)
        finally:
            reporter.say("ended")
        left = [cells.packed(name) for name in (own, *needs.folders)]
    return tuple(parcel for parcel in left if parcel and parcel not in parcels)


def _same(parcel: Parcel) -> Parcel:
    return parcel


def _digest(parcel: Parcel) -> str:
    """Identifies the content of a parcel."""
    digest = hashlib.sha256()
    for name, content in parcel.files.items():
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
