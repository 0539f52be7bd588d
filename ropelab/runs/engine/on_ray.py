"""Cells on a Ray cluster: they go there with all that they read, and return with all they made.

Nothing is read from a file system that machines share. Weights, tables and texts travel through
Ray's object store; a worker keeps them in a temporary folder while it computes. Ray is loaded, and
a cluster joined, when the first cells come: a finished run takes no longer than without.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import ropelab
from ropelab.runs.cell import Cell, Context, Needs, with_starts
from ropelab.runs.cells import CellName, Cells, Named, Parcel
from ropelab.runs.engine import threads_of
from ropelab.runs.engine.board import Board, Outbox, Reporter
from ropelab.runs.engine.capacity import machine_for
from ropelab.runs.engine.connection import Connection, check_ray
from ropelab.runs.engine.pool import Ended, SideBySide
from ropelab.runs.engine.schedule import TRIES
from ropelab.runs.errors import MachineError

if TYPE_CHECKING:
    from ray import ObjectRef

VERSION = ropelab.__version__
# How many texts and weights are kept in the object store for cells to come.
KEPT = 64


class OnRay(SideBySide):
    """An engine of Ray tasks.

    Args:
        address: of a cluster, `auto` or HOST:PORT; None: RAY_ADDRESS, and if that is not set, one
            of this machine alone, which ends with this engine.
        count: how many cells are computed at once, None: as many as there are cores.
    Raises:
        InputError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, address: str | None = None, count: int | None = None) -> None:
        super().__init__()
        self._address = address or os.environ.get("RAY_ADDRESS")
        check_ray(self._address)
        self._count = count
        self._connection: Connection | None = None

    def open(
        self, cells: Sequence[Cell], context: Context, board: Board
    ) -> "tuple[Tasks, Cluster]":
        """Join the cluster, or start one."""
        if self._connection is None:
            cpus = machine_for(self._count, [cell.needs for cell in cells]).workers
            self._connection = Connection(self._address, cpus)
        cluster = Cluster(self._count)
        board.workers = cluster.workers
        return Tasks(context.cells, board, self._connection.folder), cluster

    def stop(self) -> None:
        """Leave Ray."""
        super().stop()
        connection, self._connection = self._connection, None
        if connection:
            connection.close()


class Cluster:
    """A Ray cluster as room for cells; it may grow and shrink meanwhile.

    Args:
        most: how many cells are computed at once at most, None: as many as there are cores.
    """

    def __init__(self, most: int | None) -> None:
        self._most, self._running, self._on_gpu = most, 0, 0

    @property
    def workers(self) -> int:
        """The number of cells computed at once on the cluster of now."""
        cores = max(1, int(_resources().get("CPU", 0)))
        return min(cores, self._most or cores)

    def take(self, needs: Needs) -> int | None:
        """Reserve a place; which GPU it is, Ray decides."""
        found = _resources()
        # One more than there is room for: a cluster that grows on demand sees it waiting.
        places = min(int(found.get("CPU", 0)) + 1, self._most or self._running + 1)
        gpu_taken = needs.gpu and self._on_gpu > int(found.get("GPU", 0))
        if self._running >= places or gpu_taken:
            return None
        self._running += 1
        self._on_gpu += needs.gpu
        return 0

    def give_back(self, needs: Needs, gpu: int) -> None:
        """Free a place again."""
        self._running -= 1
        self._on_gpu -= needs.gpu


def _resources() -> dict[str, float]:
    import ray

    return dict(ray.cluster_resources())


class Tasks:
    """The cells that are with Ray; when a worker or its machine is lost, Ray begins them again.

    Args:
        folder: where a worker makes its temporary folder; empty: where its machine has them.
    """

    def __init__(self, kept: Cells, board: Board, folder: str) -> None:
        import ray
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = ray.get_runtime_context().get_node_id()
        beside = NodeAffinitySchedulingStrategy(here, soft=False)
        self._outbox = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": beside})
        self._compute = ray.remote(num_cpus=1, max_retries=TRIES - 1)(computed)
        self._kept, self._board, self._folder = kept, board, folder
        self._objects: dict[str, ObjectRef] = {}
        self._running: dict[ObjectRef, tuple[int, Cell]] = {}

    def begin(self, number: int, cell: Cell, gpu: int) -> None:
        """See `Pool.begin`."""
        needs = cell.needs
        names: list[Named] = [*with_starts(cell.starts).values(), *needs.folders]
        parcels = [parcel for name in names if (parcel := self._kept.packed(name))]
        objects = [self._stored(repr(supply), supply.content) for supply in needs.supplies]
        objects += [self._stored(_digest(parcel), partial(_same, parcel)) for parcel in parcels]
        order = Order(number, cell, self._kept.again, self._folder, VERSION)
        task = self._compute.options(num_gpus=int(needs.gpu), name=cell.title)
        self._running[task.remote(order, self._outbox, *objects)] = number, cell

    def _stored(self, name: str, content: Callable[[], Any]) -> "ObjectRef":
        """Put something into the object store, unless it is there."""
        import ray

        if name not in self._objects:
            self._objects[name] = ray.put(content())
        for oldest in list(self._objects)[:-KEPT]:
            del self._objects[oldest]
        return self._objects[name]

    def ended(self, seconds: float) -> Iterator[Ended]:
        """See `Pool.ended`."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            done, _ = ray.wait(list(self._running), timeout=seconds)
            for message in self._outbox.get_nowait_batch(self._outbox.qsize()):
                self._board.take(message)
        except Exception as error:
            reason = _first_line(error)
            raise MachineError(f"the connection to Ray was lost: {reason}") from None
        for reference in done:
            number, cell = self._running.pop(reference)
            try:
                for parcel in ray.get(reference):
                    self._kept.unpack(parcel)
            except RayTaskError as error:
                yield number, error.cause or error
            except RayError as error:
                reason = _first_line(error)
                text = f"'{cell.title}' was lost {TRIES} times with its worker or machine: {reason}"
                yield number, MachineError(text)
            except OSError as error:
                yield number, error
            else:
                yield number, None

    def close(self, interrupted: bool) -> None:
        """See `Pool.close`."""
        import ray

        with suppress(Exception):
            for reference in self._running:
                ray.cancel(reference, force=True)
            self._outbox.shutdown(force=True)


@dataclass(frozen=True)
class Order:
    """A cell for a worker, and what it must know beside it.

    Attributes:
        again: as in `Cells`.
        version: of ropelab, which must be the same everywhere.
    """

    number: int
    cell: Cell
    again: str
    folder: str
    version: str


def computed(order: Order, outbox: Outbox, *objects: Any) -> tuple[Parcel, ...]:
    """On a worker: compute one cell from what came with it; return what it left in its folders.

    Args:
        objects: the contents of its supplies, then parcels of other cells.
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
    with TemporaryDirectory(prefix="ropelab-", dir=order.folder or None) as folder:
        cells = Cells(Path(folder), order.again)
        for parcel in parcels:
            cells.unpack(parcel)
        reporter = Reporter(outbox, order.number)
        try:
            with threads_of(cell):
                Context(progress=reporter, cells=cells).compute(cell)
        finally:
            reporter.say("ended")
        left = [cells.packed(name) for name in (own, *needs.folders)]
    return tuple(parcel for parcel in left if parcel and parcel not in parcels)


def _digest(parcel: Parcel) -> str:
    """Identify the content of a parcel."""
    digest = hashlib.sha256()
    for name, content in parcel.files.items():
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _same(parcel: Parcel) -> Parcel:
    return parcel


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
