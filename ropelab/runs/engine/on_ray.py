"""Cells on a Ray cluster, which are sent with all that they read and return all that
they make.

The machines need no shared file system: everything travels through Ray's object store
into a temporary folder of a worker. Ray is imported, and a cluster joined or started,
when the first cells come. Ray prints nothing, sends no statistics and leaves no files
behind. A cluster that is started on this machine has its files in a temporary folder.
Its access token is in the environment, since Ray would otherwise write one into the
home folder.
"""

import atexit
import hashlib
import logging
import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

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
    with_starts,
)
from ropelab.runs.engine import Ended, Engine, compute_cell
from ropelab.runs.engine.board import Board
from ropelab.runs.engine.schedule import TRIES, Running, machine_for
from ropelab.runs.errors import InputError, MachineError, is_installed, say
from ropelab.runs.files import table_beside
from ropelab.runs.temporary import PREFIX, TemporaryFolder

if TYPE_CHECKING:
    from ray import ObjectRef

VERSION = ropelab.__version__
LOST = "the connection to Ray was lost"
# The version of ropelab, the sources of code from outside, and the path by which that
# code was imported.
Code = tuple[str, dict[str, str], list[str]]
# The number of texts and weights that are kept in the object store for later cells.
MOST_OBJECTS = 64
ENVIRONMENT = table_beside(__file__, "environment")["ray"]
# The most characters of the path of Ray's folder. Names of sockets have at most 107, and
# Ray uses most of them below this folder.
LONGEST_FOLDER = 32
# The time in which the head of a cluster must accept a connection.
SECONDS_TO_REACH = 5.0
# The control store is looked at this often.
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_JOIN = 30.0
# The time that a call has to return if it began before the control store was lost.
SECONDS_TO_LEAVE = 20.0
# The time that exit functions have when the control store is lost.
SECONDS_TO_END = 5.0
# The program of a process that tries if the cluster can be joined.
JOIN = (
    "import ray, sys; ray.init(sys.argv[1], log_to_driver=False,"
    " logging_level='CRITICAL')"
)


class OnRay(Engine):
    """An engine of Ray tasks, at most `count` at once (None: as many as the cluster has
    cores).

    The address is that of a cluster. If it is None, the environment variable
    RAY_ADDRESS is used. Without either, a cluster of this machine is started, which
    ends with the engine.
    """

    def __init__(self, address: str | None = None, count: int | None = None) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS")
        check_ray(self._address)
        self._count = count
        self._connection = ExitStack()
        self._folder: str | None = None
        self._store = _Store()

    def open(self, cells: Sequence[Cell], context: Context, board: Board) -> int:
        if _Store.is_lost:
            raise MachineError(f"{LOST} before; start Python again")
        if self._folder is None:
            cpus = machine_for(self._count, [cell.resources for cell in cells]).workers
            self._folder = self._connection.enter_context(
                _join_cluster(self._address, cpus, self._store)
            )

        import ray
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._store.join(ray.get_runtime_context().gcs_address)
        # The queue is on this node, so that it is not lost with another machine.
        here = ray.get_runtime_context().get_node_id()
        on_this_node = NodeAffinitySchedulingStrategy(here, soft=False)
        self._queue = Queue(
            actor_options={"num_cpus": 0, "scheduling_strategy": on_this_node}
        )

        self._compute = ray.remote(num_cpus=1, max_retries=TRIES - 1)(compute_on_worker)
        self._kept = context.cells
        self._board = board
        self._objects: dict[str, ObjectRef] = {}
        self._running: dict[ObjectRef, tuple[int, Cell]] = {}

        cores = max(1, _count_in_cluster("CPU"))
        return min(cores, self._count or cores)

    def stop(self) -> None:
        """End what is being computed, and leave Ray."""
        super().stop()
        self._leave()

    def _leave(self) -> None:
        self._store.stop_watching.set()
        self._connection.close()
        self._folder = None

    def place(self, resources: Resources, running: Running) -> int | None:
        """See `Engine.place`; the cluster may grow and shrink, and Ray chooses the
        GPU.
        """
        self._store.check()
        # Cells are begun until one of them finds no room. A cluster that grows on demand
        # does so when it sees a cell wait.
        most = _count_in_cluster("CPU") + 1
        if self._count:
            most = min(most, self._count)
        if len(running) >= most:
            return None

        on_gpu = sum(each.gpu for each, _ in running)
        if resources.gpu and on_gpu > _count_in_cluster("GPU"):
            return None
        return 0

    def begin(self, number: int, cell: Cell, gpu: int) -> None:
        """See `Engine.begin`; a cell whose worker or machine is lost is begun again by
        Ray.
        """
        from ray import cloudpickle

        resources = cell.resources
        names: list[Named] = [*with_starts(cell.starts).values(), *resources.folders]
        archives = []
        for name in names:
            archive = self._kept.pack(name)
            if archive is not None:
                archives.append(archive)

        contents: list[Input | Archive] = [*resources.inputs, *archives]
        objects = [self._put_content(content) for content in contents]

        sources = own.known_sources()
        about = (
            (VERSION, sources, sys.path if sources else []),
            number,
            # Ray would unpickle the cell before the worker has imported code from
            # outside, so the worker unpickles these bytes itself.
            cloudpickle.dumps(cell),
            self._kept.again,
            self._folder,
        )
        task = self._compute.options(num_gpus=int(resources.gpu), name=cell.title)
        self._running[task.remote(*about, self._queue, *objects)] = number, cell

    def _put_content(self, content: Input | Archive) -> "ObjectRef":
        """Put an input or an archive into Ray's object store, unless it is there."""
        import ray

        if isinstance(content, Archive):
            name = hashlib.sha256(pickle.dumps(content)).hexdigest()
        else:
            name = repr(content)

        if name not in self._objects:
            whole = content if isinstance(content, Archive) else content.content()
            self._objects[name] = ray.put(whole)
        for oldest in list(self._objects)[:-MOST_OBJECTS]:
            del self._objects[oldest]
        return self._objects[name]

    def collect_ended(self, seconds: float) -> Iterator[Ended]:
        import ray
        from ray.exceptions import RayError, RayTaskError

        self._store.check()
        try:
            done, _ = ray.wait(list(self._running), timeout=seconds)
            for message in self._queue.get_nowait_batch(self._queue.qsize()):
                self._board.take(message)
        except Exception as error:
            raise MachineError(f"{LOST}: {_first_line(error)}") from None

        for reference in done:
            number, cell = self._running.pop(reference)
            try:
                for archive in ray.get(reference):
                    self._kept.unpack(archive)
            except RayTaskError as error:
                yield number, error.cause or error
            except RayError as error:
                text = (
                    f"'{cell.title}' was lost {TRIES} times with its worker or"
                    " machine: "
                )
                yield number, MachineError(text + _first_line(error))
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
        self._store.stop_watching.set()
        if _Store.is_lost:
            self._leave()


class _Store:
    """Ray's control store.

    When it is lost, calls of Ray wait for it, and in the end Ray aborts this process.
    """

    # True once the store was found lost. It is one for all objects, since a process has
    # one connection to Ray.
    is_lost = False

    def __init__(self) -> None:
        self._address = ""
        self.stop_watching = threading.Event()

    def join(self, address: str) -> None:
        """Begin to watch the store at an address, until `stop_watching` is set and once
        more at the end of the process.
        """
        self._address = address
        self.stop_watching = threading.Event()
        atexit.unregister(_leave)
        # Exit functions run in reverse order, so this one runs before Ray's own.
        atexit.register(_leave, self)
        threading.Thread(
            target=self._watch, args=(self.stop_watching,), daemon=True
        ).start()

    def check(self) -> None:
        """Raise MachineError, and note that the store is lost, if nothing listens at
        its address any more.
        """
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), SECONDS_TO_JOIN).close()
        except OSError as error:
            _Store.is_lost = True
            # Ray's own hook tells its store of an error first, and the store is gone.
            sys.excepthook = sys.__excepthook__
            raise MachineError(f"{LOST}: {error.strerror or error}") from None

    def _watch(self, stop_watching: threading.Event) -> None:
        """End this process if a call waits for a lost store: the thread of that call
        cannot end it.
        """
        loss: MachineError | None = None
        while loss is None:
            if stop_watching.wait(SECONDS_BETWEEN_LOOKS):
                return
            try:
                self.check()
            except MachineError as error:
                loss = error

        if stop_watching.wait(SECONDS_TO_LEAVE):
            # The call has returned in time, and its caller ended the work.
            return

        say(f"ropelab: {loss}")
        # An exit function of other code may itself wait for the thread that waits. The
        # timer ends this process then.
        threading.Timer(SECONDS_TO_END, _end_now).start()
        # A main thread that has ended runs its exit functions already, and `_leave` is
        # one of them.
        if threading.main_thread().is_alive():
            _leave(self)
        _end_now()


def compute_on_worker(
    code: Code,
    number: int,
    pickled: bytes,
    again: str,
    folder: str,
    queue: Any,
    *objects: Any,
) -> tuple[Archive, ...]:
    """Compute one cell on a worker; return the folders that it has written.

    Args:
        code: the code that the worker must have.
        number: of the cell.
        pickled: the cell.
        again: see `Cells`.
        folder: a folder for temporary files; empty: the usual one.
        queue: takes the messages about progress.
        objects: the contents of the cell's inputs, then archives of other cells.
    """
    version, sources, path = code
    if version != VERSION:
        raise MachineError(
            f"a worker has ropelab {VERSION}, this is {version}; "
            "install the same version on all machines of the cluster"
        )
    # The path of the user comes after that of the worker: a file in the user's folder
    # may have the name of a library.
    sys.path += [entry for entry in path if entry not in sys.path]
    own.check_sources(sources)
    cell: Cell = pickle.loads(pickled)

    inputs = cell.resources.inputs
    contents = objects[: len(inputs)]
    archives = objects[len(inputs) :]
    for given_input, content in zip(inputs, contents, strict=True):
        given_input.provide(content)

    name = CellName(cell.kind, cell.version, cell.key)
    with TemporaryFolder(folder or None) as root:
        cells = Cells(Path(root), again)
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
    """Return the number of `CPU` or `GPU` in the cluster."""
    import ray

    return int(ray.cluster_resources().get(resource, 0))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def check_ray(address: str | None) -> None:
    """Raise InputError unless Ray is installed and something listens at the address."""
    if not is_installed("ray"):
        raise InputError("--engine ray needs Ray: pip install '.[ray]'")
    if address is None or address == "auto":
        return

    host, _, port = address.rpartition(":")
    if "//" in address or not host or not port.isdecimal():
        raise InputError(
            f"cannot read the address '{address}'; allowed: auto (the cluster that this"
            " machine belongs to), or HOST:PORT of its head, as `ray start` prints it"
        )

    try:
        socket.create_connection((host, int(port)), SECONDS_TO_REACH).close()
    except OSError as error:
        raise InputError(f"no Ray cluster at {address}: {error.strerror}") from None


def check_joinable(address: str) -> None:
    """Raise InputError unless the cluster can be joined.

    A process of its own tries it, since Ray ends a process that cannot join.
    """
    # `-P` leaves the working folder out of the path, where a file ray.py may be.
    command = [sys.executable, "-P", "-c", JOIN, address]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS_TO_JOIN
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"no Ray cluster answers at {address}") from None

    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise InputError(f"cannot join a Ray cluster at {address}: {lines[-1]}")


@contextmanager
def _join_cluster(address: str | None, cpus: int, store: _Store) -> Iterator[str]:
    """Join a Ray cluster, or start one here with so many `cpus` if there is no address.

    Yields the folder of a cluster that was started, and an empty text otherwise.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        # This process has joined a cluster already, as a notebook may have. It stays
        # in that one.
        yield ""
        return

    place: TemporaryFolder | None = None
    try:
        if address:
            check_joinable(address)
            with tempfile.TemporaryDirectory(prefix=PREFIX) as empty:
                _init(empty, address=address)
        else:
            # Ray makes sockets with long names below the folder.
            too_long = len(tempfile.gettempdir()) > LONGEST_FOLDER
            use_tmp = os.name == "posix" and too_long
            place = TemporaryFolder("/tmp" if use_tmp else None)
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            try:
                _init(
                    place.name,
                    address="local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    _temp_dir=place.name,
                )
            except (OSError, RuntimeError, ValueError) as error:
                raise MachineError(
                    f"Ray does not start here: {_first_line(error)}"
                ) from None
        yield place.name if place else ""
    finally:
        # `check` is called because it notes a lost store. Its error is not wanted here,
        # nor is the ValueError of a store that never began and has no address.
        with suppress(MachineError, ValueError):
            store.check()
        if place:
            _end_processes()
        if not store.is_lost:
            ray.shutdown()
        if place:
            place.cleanup()


def _end_processes() -> None:
    """Kill the processes that Ray started here for computing; if the control store is
    lost, kill all of Ray's processes, which would wait for it.
    """
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            name = process.name()
            computes = name.startswith("ray::") and "Agent" not in name
            if computes or ("ray" in name and _Store.is_lost):
                process.kill()


def _leave(store: _Store) -> None:
    """End this process if Ray's own exit function would wait for a lost store and then
    abort.
    """
    import ray

    # Ray's own exit function works if the store answers, and none is needed if Ray was
    # not joined. A lost store raises before the `return`, and the process is ended below.
    with suppress(MachineError):
        if ray.is_initialized():
            store.check()
        return

    atexit.unregister(_leave)
    atexit.unregister(ray.shutdown)
    # Exit functions that other code registered run, as they would at a usual end.
    atexit._run_exitfuncs()
    _end_now()


def _end_now() -> None:
    _end_processes()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(MachineError.exit_status)


def _init(folder: str, **arguments: Any) -> None:
    """Join or start a cluster without a word, and keep the handler of SIGTERM.

    Ray's processes start in `folder`, which holds no modules.
    """
    import ray

    logging.getLogger("ray").setLevel(logging.CRITICAL)
    before = signal.getsignal(signal.SIGTERM)
    try:
        # Ray puts the working folder before the libraries in the path of its workers:
        # a file numpy.py there would be executed.
        with chdir(folder):
            ray.init(log_to_driver=False, configure_logging=False, **arguments)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
