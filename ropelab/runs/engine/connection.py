"""The connection to Ray: to a cluster that is there, or to one of this machine alone.

Ray is told to be quiet, to send no statistics, and to leave nothing behind: a cluster of this
machine has its files in a temporary folder and its access token in the environment, where Ray would
write one into the home folder.
"""

import importlib.util
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from ropelab.runs.errors import InputError, MachineError

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "(?s).*",  # what raylets would say on this terminal
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise a warning on machines with GPUs
    "RAY_ENABLE_AUTO_CONNECT": "0",  # otherwise a call that comes late starts another cluster
    "RAY_task_oom_retries": "2",
}
# Characters: names of sockets have at most 107, most of them below this folder.
LONGEST_FOLDER = 32
SECONDS_TO_REACH = 5.0
SECONDS_TO_JOIN = 30.0
JOIN = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False, logging_level='CRITICAL')"


def check_ray(address: str | None) -> None:
    """Raise InputError unless Ray is installed and something listens at the address."""
    if importlib.util.find_spec("ray") is None:
        raise InputError("--engine ray needs Ray: pip install 'ropelab[ray]'")
    if address is None or address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "//" in address or not host or not port.isdecimal():
        raise InputError(
            f"cannot read the address '{address}'; allowed: auto (the cluster that this machine "
            "belongs to), or HOST:PORT of its head, as `ray start` prints it"
        )
    try:
        socket.create_connection((host, int(port)), SECONDS_TO_REACH).close()
    except OSError as error:
        raise InputError(f"no Ray cluster at {address}: {error.strerror}") from None


class Connection:
    """A process's part in a Ray cluster; made once, closed in the end.

    A process that has joined one already, as a notebook may, stays where it is.

    Args:
        address: of a cluster; None starts one on this machine.
        cpus: how many cores a cluster of this machine has.
    Raises:
        InputError: there is no such cluster, or this process cannot join it.
        MachineError: none can be started here.
    """

    def __init__(self, address: str | None, cpus: int) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import ray

        self._folder: Path | None = None
        self._ours = not ray.is_initialized()
        if not self._ours:
            return
        if address:
            check_joinable(address)
        try:
            if address:
                _init(address=address)
            else:
                # The sockets below the folder have long names.
                longer = os.name == "posix" and len(tempfile.gettempdir()) > LONGEST_FOLDER
                made = tempfile.mkdtemp(prefix="ropelab-", dir="/tmp" if longer else None)
                self._folder = Path(made)
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
                _init(address="local", num_cpus=cpus, include_dashboard=False, _temp_dir=made)
        except (OSError, RuntimeError, ValueError) as error:
            self.close()
            if address:
                raise
            reason = str(error).partition("\n")[0]
            raise MachineError(f"Ray does not start on this machine: {reason}") from None
        except BaseException:
            self.close()
            raise

    @property
    def folder(self) -> str:
        """The folder of a cluster of this machine, empty for others."""
        return str(self._folder or "")

    def close(self) -> None:
        """Leave the cluster; one of this machine ends at once, and its files go."""
        import ray

        if self._folder:
            # End the processes that compute, below those that Ray started for this one.
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if process.name().startswith("ray::") and "Agent" not in process.name():
                        process.kill()
        if self._ours:
            ray.shutdown()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _init(**arguments: Any) -> None:
    """Join or start a cluster in silence; what SIGTERM does stays as it was."""
    import ray

    logging.getLogger("ray").setLevel(logging.CRITICAL)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(log_to_driver=False, configure_logging=False, **arguments)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def check_joinable(address: str) -> None:
    """Raise InputError unless another process can join the cluster: Ray ends one that cannot."""
    command = [sys.executable, "-c", JOIN, address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_TO_JOIN)
    except subprocess.TimeoutExpired:
        raise InputError(f"no Ray cluster answers at {address}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise InputError(f"cannot join a Ray cluster at {address}: {lines[-1]}")
