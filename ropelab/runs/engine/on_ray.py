"""Cells on a Ray cluster: they go there with all that they read, and return with all
they made.

No shared file system: all travels through Ray's object store into a worker's temporary
folder. Ray is loaded, and a cluster joined, when the first cells come. It is quiet,
sends no statistics and leaves nothing behind: a cluster of this machine has its files
in a temporary folder and its access token in the environment, where Ray would write one
into the home folder.
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
from math import inf
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

VERSION, LOST = ropelab.__version__, "the connection to Ray was lost"
# A version, the sources of code from outside, and the path that it was imported by.
Code = tuple[str, dict[str, str], list[str]]
# How many texts and weights are kept in the object store for cells to come.
KEPT = 64
ENVIRONMENT = table_beside(__file__, "environment")["ray"]
# Characters: names of sockets have at most 107, most of them below this folder.
LONGEST_FOLDER = 32
SECONDS_TO_REACH = 5.0
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_JOIN = 30.0
SECONDS_TO_LEAVE = 20.0  # for a call that began before the store was lost
SECONDS_TO_END = 5.0
JOIN = (
    "import ray, sys; ray.init(sys.argv[1], log_to_driver=False,"
    " logging_level='CRITICAL')"
)


class OnRay(Engine):
    """An engine of Ray tasks, at most `count` at once.

    Without an address it is RAY_ADDRESS, else a cluster of this machine, which ends
    with it.
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
                _connected(self._address, cpus, self._store)
            )
        import ray
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._store.join(ray.get_runtime_context().gcs_address)
        here = ray.get_runtime_context().get_node_id()
        beside = NodeAffinitySchedulingStrategy(here, soft=False)
        self._queue = Queue(
            actor_options={"num_cpus": 0, "scheduling_strategy": beside}
        )
        self._compute = ray.remote(num_cpus=1, max_retries=TRIES - 1)(computed)
        self._kept = context.cells
        self._board = board
        self._objects: dict[str, ObjectRef] = {}
        self._running: dict[ObjectRef, tuple[int, Cell]] = {}
        cores = max(1, _total("CPU"))
        return min(cores, self._count or cores)

    def stop(self) -> None:
        """End what is being computed, and leave Ray."""
        super().stop()
        self._leave()

    def _leave(self) -> None:
        self._store.resting.set()
        self._connection.close()
        self._folder = None

    def place(self, resources: Resources, running: Running) -> int | None:
        """See `Engine.place`; the cluster may grow and shrink, and Ray chooses the
        GPU.
        """
        # One more than there is room for: a cluster that grows on demand sees it
        # waiting.
        self._store.look()
        full = len(running) >= min(_total("CPU") + 1, self._count or inf)
        on_gpu = sum(each.gpu for each, _ in running)
        return None if full or (resources.gpu and on_gpu > _total("GPU")) else 0

    def begin(self, number: int, cell: Cell, gpu: int) -> None:
        """See `Engine.begin`; a cell whose worker or machine is lost is begun again by
        Ray.
        """
        from ray import cloudpickle

        resources = cell.resources
        starts, kept = with_starts(cell.starts).values(), self._kept
        packed = *map(kept.packed, starts), *map(kept.packed, resources.folders)
        archives = [archive for archive in packed if archive]
        contents: list[Input | Archive] = [*resources.inputs, *archives]
        objects = [self._stored(content) for content in contents]
        sources = own.known_sources()
        about = (
            (VERSION, sources, sys.path if sources else []),
            number,
            # Unpickled by the worker itself, after it has imported code from outside.
            cloudpickle.dumps(cell),
            self._kept.again,
            self._folder,
        )
        task = self._compute.options(num_gpus=int(resources.gpu), name=cell.title)
        self._running[task.remote(*about, self._queue, *objects)] = number, cell

    def _stored(self, content: Input | Archive) -> "ObjectRef":
        import ray

        if isinstance(content, Archive):
            name = hashlib.sha256(pickle.dumps(content)).hexdigest()
        else:
            name = repr(content)
        if name not in self._objects:
            whole = content if isinstance(content, Archive) else content.content()
            self._objects[name] = ray.put(whole)
        for oldest in list(self._objects)[:-KEPT]:
            del self._objects[oldest]
        return self._objects[name]

    def ended(self, seconds: float) -> Iterator[Ended]:
        import ray
        from ray.exceptions import RayError, RayTaskError

        self._store.look()
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
            self._store.look()
            for reference in self._running:
                ray.cancel(reference, force=True)
            self._queue.shutdown(force=True)
        self._store.resting.set()
        if _Store.is_lost:
            self._leave()


class _Store:
    """Ray's control store: without it calls wait, and Ray at last aborts this
    process.
    """

    is_lost = False  # of the class: a process has one connection

    def __init__(self) -> None:
        self._address = ""
        self.resting = threading.Event()

    def join(self, address: str) -> None:
        """Watch the store at an address until `resting`, and look at the end of the
        process.
        """
        self._address = address
        self.resting = threading.Event()
        atexit.unregister(_leave)
        atexit.register(_leave, self)  # comes before Ray's own end
        threading.Thread(target=self._watch, args=(self.resting,), daemon=True).start()

    def look(self) -> None:
        """Raise MachineError if nothing listens at its address any more."""
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), SECONDS_TO_JOIN).close()
        except OSError as error:
            _Store.is_lost = True
            # Ray's tells its store of the error first
            sys.excepthook = sys.__excepthook__
            raise MachineError(f"{LOST}: {error.strerror or error}") from None

    def _watch(self, resting: threading.Event) -> None:
        """End this process if a call waits for a lost store: nobody else can any
        more.
        """
        while not resting.wait(SECONDS_BETWEEN_LOOKS):
            try:
                self.look()
            except MachineError as error:
                if not resting.wait(SECONDS_TO_LEAVE):
                    say(f"ropelab: {error}")
                    # What others registered may itself wait for the thread that makes
                    # the call.
                    threading.Timer(SECONDS_TO_END, _end_now).start()
                    # otherwise it has begun that
                    if threading.main_thread().is_alive():
                        _leave(self)
                    _end_now()
                return


def computed(
    code: Code,
    number: int,
    pickled: bytes,
    again: str,
    folder: str,
    queue: Any,
    *objects: Any,
) -> tuple[Archive, ...]:
    """On a worker: compute one cell from `objects`; return what it left in its folders.

    Objects are the contents of its inputs, then archives of other cells.
    """
    version, sources, path = code
    if version != VERSION:
        raise MachineError(
            f"a worker has ropelab {VERSION}, this is {version}; "
            "install the same version on all machines of the cluster"
        )
    # Libraries come first: a file of the name of one may be beside the user's own.
    sys.path += [place for place in path if place not in sys.path]
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
        left = [cells.packed(each) for each in (name, *cell.resources.folders)]
    return tuple(archive for archive in left if archive and archive not in archives)


def _total(resource: str) -> int:
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
    """Raise InputError unless another process can join the cluster: Ray ends one that
    cannot.
    """
    # `-P`: a file ray.py in the working folder is not what is asked.
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
def _connected(address: str | None, cpus: int, store: _Store) -> Iterator[str]:
    """Join a Ray cluster, or start one here with so many `cpus`; yield its folder
    then.
    """
    # A process that has joined one already, as a notebook may, stays where it is.
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        yield ""
        return

    place: TemporaryFolder | None = None
    try:
        if address:
            check_joinable(address)
            with tempfile.TemporaryDirectory(prefix=PREFIX) as empty:
                _init(empty, address=address)
        else:
            # The sockets below the folder have long names.
            longer = os.name == "posix" and len(tempfile.gettempdir()) > LONGEST_FOLDER
            place = TemporaryFolder("/tmp" if longer else None)
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
        with suppress(MachineError, ValueError):  # one that never began has no address
            store.look()
        if place:
            _end_processes()
        if not store.is_lost:
            ray.shutdown()
        if place:
            place.cleanup()


def _end_processes() -> None:
    """End those that compute, of all that Ray started here; all, if they wait for a
    lost store.
    """
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            name = process.name()
            computes = name.startswith("ray::") and "Agent" not in name
            if computes or ("ray" in name and _Store.is_lost):
                process.kill()


def _leave(store: _Store) -> None:
    """End this process in place of Ray's own end, if that would wait for its store and
    abort.
    """
    import ray

    with suppress(MachineError):
        if ray.is_initialized():
            store.look()
        return
    atexit.unregister(_leave)
    atexit.unregister(ray.shutdown)
    atexit._run_exitfuncs()  # of others
    _end_now()


def _end_now() -> None:
    _end_processes()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(MachineError.exit_status)


def _init(folder: str, **arguments: Any) -> None:
    """Join or start a cluster in silence; what SIGTERM does stays as it was.

    Ray's processes begin in `folder`, which holds no modules.
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
