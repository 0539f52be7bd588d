"""Cells computed by the workers of a Ray cluster.

The machines need no shared file system: what a cell reads, and the folders that it
writes, travel through Ray's object store into a temporary folder of a worker and back.
Ray is imported, and a cluster joined or started, when the first cells come. Ray prints
nothing, sends no statistics and leaves no files behind.
"""

import hashlib
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ropelab
from ropelab.runs import own
from ropelab.runs.cell import (
    Archive,
    Cell,
    CellName,
    Cells,
    Context,
    Input,
    Named,
    Resources,
    list_with_prerequisites,
)
from ropelab.runs.engine import Ended, Engine, compute_cell
from ropelab.runs.engine.board import Board
from ropelab.runs.engine.ray_cluster import check_ray, join_cluster, take_first_line
from ropelab.runs.engine.ray_store import LOST, ControlStore
from ropelab.runs.engine.schedule import TRIES, Running, choose_machine
from ropelab.runs.errors import MachineError
from ropelab.runs.temporary import TemporaryFolder

if TYPE_CHECKING:
    from ray import ObjectRef

VERSION = ropelab.__version__
# The code that a worker must have: the version of ropelab; the fingerprints of the user's
# own objects, by MODULE:NAME; and the value of sys.path with which these objects were
# imported (empty if there are none).
Code = tuple[str, dict[str, str], list[str]]
# The number of texts and weights that are kept in the object store for later cells.
MOST_OBJECTS = 64


class OnRay(Engine):
    """An engine that computes each cell as a task of Ray.

    Args:
        address: HOST:PORT of a cluster, or `auto`. None: the address in the environment
            variable RAY_ADDRESS. Without an address, a cluster of this machine is
            started, which ends with the engine.
        count: the most cells that are computed at once. None: as many as the cluster has
            cores.
    """

    def __init__(self, address: str | None = None, count: int | None = None) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS")
        check_ray(self._address)
        self._count = count
        self._store = ControlStore()
        # Holds the connection to the cluster, and leaves the cluster when it is closed.
        self._connection = ExitStack()
        # The folder for temporary files of the workers. Empty: the usual folder of each
        # machine. None: no cluster is joined.
        self._folder: str | None = None

    def open(self, cells: Sequence[Cell], context: Context, board: Board) -> int:
        if ControlStore.is_lost:
            raise MachineError(f"{LOST} before; start Python again")
        if self._folder is None:
            machine = choose_machine(self._count, [cell.resources for cell in cells])
            connection = join_cluster(self._address, machine.workers, self._store)
            self._folder = self._connection.enter_context(connection)

        import ray
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray_context = ray.get_runtime_context()
        self._store.watch(ray_context.gcs_address)
        # The queue of messages about progress is on this node, so that it is not lost
        # with another machine.
        this_node = ray_context.get_node_id()
        on_this_node = NodeAffinitySchedulingStrategy(this_node, soft=False)
        self._queue = Queue(
            actor_options={"num_cpus": 0, "scheduling_strategy": on_this_node}
        )
        self._board = board

        self._compute = ray.remote(num_cpus=1, max_retries=TRIES - 1)(compute_on_worker)
        # The cells on this machine. Archives of them are sent to workers, and archives
        # that workers return are unpacked into them.
        self._cells = context.cells
        # The objects in Ray's object store, by name, the oldest first.
        self._objects: dict[str, ObjectRef] = {}
        # The number and the cell of each task of Ray that has not ended.
        self._running: dict[ObjectRef, tuple[int, Cell]] = {}

        cores = max(1, _count_in_cluster("CPU"))
        if self._count is None:
            return cores
        return min(cores, self._count)

    def stop(self) -> None:
        """End the cells that are being computed, and leave Ray."""
        super().stop()
        self._disconnect()

    def _disconnect(self) -> None:
        """Leave the cluster; a cluster that was started here is ended."""
        self._store.stop_watching()
        self._connection.close()
        self._folder = None

    def place(self, resources: Resources, running: Running) -> int | None:
        """See `Engine.place`. Ray chooses the GPU, so this returns 0 for every cell."""
        self._store.check()
        # One more cell is begun than there are cores. Ray lets this cell wait, and a
        # cluster that grows on demand adds a machine when a cell waits.
        most_cells = _count_in_cluster("CPU") + 1
        if self._count is not None:
            most_cells = min(most_cells, self._count)
        if len(running) >= most_cells:
            return None

        # For the same reason one more cell on a GPU is begun than there are GPUs.
        on_gpu = [each for each, _ in running if each.gpu]
        if resources.gpu and len(on_gpu) > _count_in_cluster("GPU"):
            return None
        return 0

    def begin(self, number: int, cell: Cell, gpu: int) -> None:
        """See `Engine.begin`. If a worker or a machine is lost, Ray begins its cell
        again.
        """
        from ray import cloudpickle

        resources = cell.resources
        names: list[Named] = [
            *list_with_prerequisites(cell.prerequisites).values(),
            *resources.folders,
        ]
        archives = []
        for name in names:
            archive = self._cells.pack(name)
            if archive is not None:
                archives.append(archive)

        contents: list[Input | Archive] = [*resources.inputs, *archives]
        objects = [self._put_content(content) for content in contents]

        # The workers need the path of this process only to import the user's code.
        fingerprints = own.list_known_sources()
        path_of_user: list[str] = []
        if fingerprints:
            path_of_user = sys.path
        code: Code = (VERSION, fingerprints, path_of_user)
        # If the cell itself were an argument of the task, Ray would unpickle it before
        # the worker has imported the user's code. So the worker unpickles these bytes.
        pickled = cloudpickle.dumps(cell)

        task = self._compute.options(num_gpus=int(resources.gpu), name=cell.title)
        reference = task.remote(
            code,
            number,
            pickled,
            self._cells.fresh_run,
            self._folder,
            self._queue,
            *objects,
        )
        self._running[reference] = number, cell

    def _put_content(self, content: Input | Archive) -> "ObjectRef":
        """Put an input or an archive into Ray's object store, unless it is there already;
        return the reference.

        The store drops an object when neither `_objects` nor a running task refers to it.
        """
        import ray

        if isinstance(content, Archive):
            name = hashlib.sha256(pickle.dumps(content)).hexdigest()
        else:
            name = repr(content)

        if name not in self._objects:
            if isinstance(content, Archive):
                self._objects[name] = ray.put(content)
            else:
                self._objects[name] = ray.put(content.content())
        reference = self._objects[name]

        oldest = list(self._objects)[:-MOST_OBJECTS]
        for old_name in oldest:
            del self._objects[old_name]
        return reference

    def collect_ended(self, seconds: float) -> Iterator[Ended]:
        import ray
        from ray.exceptions import RayError, RayTaskError

        self._store.check()
        try:
            ended, _ = ray.wait(list(self._running), timeout=seconds)
            for message in self._queue.get_nowait_batch(self._queue.qsize()):
                self._board.take(message)
        except Exception as error:
            raise MachineError(f"{LOST}: {take_first_line(error)}") from None

        for reference in ended:
            number, cell = self._running.pop(reference)
            try:
                for archive in ray.get(reference):
                    self._cells.unpack(archive)
            except RayTaskError as error:
                yield number, error.cause or error
            except RayError as error:
                yield (
                    number,
                    MachineError(
                        f"'{cell.title}' was lost {TRIES} times with its worker or"
                        f" machine: {take_first_line(error)}"
                    ),
                )
            except OSError as error:
                yield number, error
            else:
                yield number, None

    def close(self, interrupted: bool) -> None:
        import ray

        with suppress(Exception):
            self._store.check()
            for reference in self._running:
                ray.cancel(reference, force=True)
            self._queue.shutdown(force=True)
        self._store.stop_watching()
        if ControlStore.is_lost:
            self._disconnect()


def compute_on_worker(
    code: Code,
    number: int,
    pickled: bytes,
    fresh_run: str,
    folder: str,
    queue: Any,
    *objects: Any,
) -> tuple[Archive, ...]:
    """Compute one cell on a worker; return archives of the folders that it has written.

    MachineError: the worker has other code.

    Args:
        code: the code that the worker must have.
        number: the number of the cell, for messages about progress.
        pickled: the cell.
        fresh_run: see `Cells`.
        folder: the folder for temporary files; empty for the usual folder of the machine.
        queue: takes the messages about progress.
        objects: the contents of the cell's inputs, in their order, then archives of
            its prerequisites and of the folders that it reads.
    """
    version, fingerprints, path = code
    if version != VERSION:
        raise MachineError(
            f"a worker has ropelab {VERSION}, this is {version}; "
            "install the same version on all machines of the cluster"
        )
    # The user's path comes after the worker's path, since a file in the user's folder
    # may have the name of a library.
    sys.path += [entry for entry in path if entry not in sys.path]
    own.check_sources(fingerprints)
    cell: Cell = pickle.loads(pickled)

    inputs = cell.resources.inputs
    contents = objects[: len(inputs)]
    archives = objects[len(inputs) :]
    for given_input, content in zip(inputs, contents, strict=True):
        given_input.provide(content)

    name = CellName(cell.kind, cell.version, cell.key)
    with TemporaryFolder(folder or None) as root:
        cells = Cells(Path(root), fresh_run)
        for archive in archives:
            cells.unpack(archive)
        compute_cell(number, cell, queue.put, Context(cells=cells))

        written = []
        for folder_name in (name, *cell.resources.folders):
            archive = cells.pack(folder_name)
            if archive is not None and archive not in archives:
                written.append(archive)
    return tuple(written)


def _count_in_cluster(resource: str) -> int:
    """Return the cluster's number of a resource: `CPU` or `GPU`."""
    import ray

    return int(ray.cluster_resources().get(resource, 0))
