"""Joining a Ray cluster, or starting one on this machine."""

import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from typing import Any

from ropelab.runs.engine.ray_store import ControlStore, end_processes
from ropelab.runs.errors import InputError, MachineError, is_installed
from ropelab.runs.files import read_table_beside
from ropelab.runs.temporary import PREFIX, TemporaryFolder

# Variables of the environment that Ray reads. The variables that the user has set stay.
ENVIRONMENT = read_table_beside(__file__, "environment")["ray"]
# The most characters of the path of Ray's folder. The path of a socket has at most 107
# characters, and Ray's sockets have long paths below this folder.
LONGEST_FOLDER = 32
# The seconds in which the head of a cluster must accept a connection.
SECONDS_TO_REACH = 5.0
# The seconds in which a process must have joined the cluster.
SECONDS_TO_JOIN = 30.0
# The program of a process that tries if the cluster can be joined.
JOIN = (
    "import ray, sys; ray.init(sys.argv[1], log_to_driver=False,"
    " logging_level='CRITICAL')"
)


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

    A separate process tries to join, since Ray ends a process that cannot join.
    """
    # `-P` leaves the working folder out of the path. A file ray.py there would be
    # imported instead of Ray.
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
def join_cluster(address: str | None, cpus: int, store: ControlStore) -> Iterator[str]:
    """Join a Ray cluster, and leave it at the end.

    Yields the folder for temporary files of a cluster that was started here; empty for
    a cluster that was running before.

    Args:
        address: HOST:PORT of the cluster, or `auto`. None: a cluster is started here.
        cpus: the cores of a cluster that is started here.
        store: notes at the end whether the cluster still answers.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Ray reads the environment when it is imported.
    import ray

    if ray.is_initialized():
        # This process, for example a notebook, has joined a cluster already, and stays
        # in it.
        yield ""
    elif address:
        with _join_running(address, store):
            yield ""
    else:
        with _start_cluster(cpus, store) as folder:
            yield folder


@contextmanager
def _join_running(address: str, store: ControlStore) -> Iterator[None]:
    """Join the cluster at an address, and leave it at the end."""
    try:
        check_joinable(address)
        with tempfile.TemporaryDirectory(prefix=PREFIX) as empty_folder:
            _connect(empty_folder, address=address)
        yield
    finally:
        store.note_loss()
        _shut_down(store)


@contextmanager
def _start_cluster(cpus: int, store: ControlStore) -> Iterator[str]:
    """Start a cluster on this machine, yield the folder for its temporary files, and end
    the cluster after the block.
    """
    is_too_long = len(tempfile.gettempdir()) > LONGEST_FOLDER
    uses_tmp = os.name == "posix" and is_too_long
    folder = TemporaryFolder("/tmp" if uses_tmp else None)
    try:
        # Without a token in the environment Ray would write one into the home folder.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        try:
            _connect(
                folder.name,
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                _temp_dir=folder.name,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise MachineError(
                f"Ray does not start here: {take_first_line(error)}"
            ) from None
        yield folder.name
    finally:
        # `end_processes` ends more processes if the store is lost, so the loss is noted
        # first.
        store.note_loss()
        end_processes()
        _shut_down(store)
        folder.cleanup()


def _shut_down(store: ControlStore) -> None:
    """Leave the cluster, unless its store is lost: Ray would wait for the store."""
    import ray

    if not store.is_lost:
        ray.shutdown()


def _connect(folder: str, **arguments: Any) -> None:
    """Join or start a cluster without any output, and keep the handler of SIGTERM.

    Args:
        folder: a folder without modules, in which Ray's processes start.
        arguments: further arguments of `ray.init`.
    """
    import ray

    logging.getLogger("ray").setLevel(logging.CRITICAL)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        # Ray puts the working folder in front of the libraries in the path of its
        # workers. A file numpy.py there would be imported instead of NumPy.
        with chdir(folder):
            ray.init(log_to_driver=False, configure_logging=False, **arguments)
    finally:
        # Only the main thread may set a handler.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def take_first_line(error: Exception) -> str:
    """Return the first line of an error, since Ray's errors go on for pages."""
    return str(error).strip().partition("\n")[0]
