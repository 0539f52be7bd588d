"""The control store of a Ray cluster, which is watched while cells are computed.

When the store is lost, calls of Ray wait for it, and in the end Ray aborts this process.
The thread that watches the store ends the process before Ray does. It prints a message
and runs the exit functions of the process.
"""

import atexit
import os
import socket
import sys
import threading
from contextlib import suppress

import psutil

from ropelab.runs.errors import MachineError, say

LOST = "the connection to Ray was lost"
# The seconds after which the store is looked at again.
SECONDS_BETWEEN_LOOKS = 1.0
# The seconds in which the store must accept a connection.
SECONDS_TO_ANSWER = 30.0
# The seconds in which a call must return if it began before the store was lost.
SECONDS_TO_LEAVE = 20.0
# The seconds that exit functions have when the store is lost.
SECONDS_TO_END = 5.0


class ControlStore:
    """The control store of the cluster that this process has joined."""

    # True once the store was found lost. All objects share this, since a process has one
    # connection to Ray.
    is_lost = False

    def __init__(self) -> None:
        # HOST:PORT of the store; empty until `watch` is called.
        self._address = ""
        self._stop = threading.Event()

    def watch(self, address: str) -> None:
        """Watch the store at an address until `stop_watching` is called, and look at it
        once more when the process ends.
        """
        self._address = address
        self._stop = threading.Event()
        atexit.unregister(_leave_if_lost)
        # Exit functions run in reverse order, so this function runs before Ray's own.
        atexit.register(_leave_if_lost, self)
        threading.Thread(target=self._watch, args=(self._stop,), daemon=True).start()

    def stop_watching(self) -> None:
        """End the watching thread. The store is still looked at when the process ends."""
        self._stop.set()

    def check(self) -> None:
        """Raise MachineError if the store is lost."""
        loss = self.note_loss()
        if loss is not None:
            raise loss

    def note_loss(self) -> MachineError | None:
        """Return an error if nothing listens at the store's address, and set `is_lost`.

        None: the store answers, or was never watched.
        """
        if not self._address:
            return None
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), SECONDS_TO_ANSWER).close()
        except OSError as error:
            ControlStore.is_lost = True
            # Ray has replaced `sys.excepthook`. Its function would first report an error
            # to the store, which is gone.
            sys.excepthook = sys.__excepthook__
            return MachineError(f"{LOST}: {error.strerror or error}")
        return None

    def _watch(self, stop: threading.Event) -> None:
        """End this process if a call waits for a lost store.

        This runs in a separate thread, since a thread that waits for a lost store
        cannot end itself.
        """
        loss: MachineError | None = None
        while loss is None:
            if stop.wait(SECONDS_BETWEEN_LOOKS):
                return
            loss = self.note_loss()

        if stop.wait(SECONDS_TO_LEAVE):
            # The call has returned in time, and its caller has stopped the watching.
            return

        say(f"ropelab: {loss}")
        # An exit function of other code may itself wait for the thread that waits for the
        # store. In that case the timer ends this process.
        threading.Timer(SECONDS_TO_END, _end_now).start()
        # If the main thread has ended, the exit functions of the process are running
        # already, and `_leave_if_lost` is one of them.
        if threading.main_thread().is_alive():
            _leave_if_lost(self)
        _end_now()


def _leave_if_lost(store: ControlStore) -> None:
    """End this process if the store is lost.

    Ray's own exit function would wait for the store and then abort.
    """
    import ray

    # Without a connection to Ray, Ray's exit function has nothing to do.
    if not ray.is_initialized():
        return
    if store.note_loss() is None:
        return

    atexit.unregister(_leave_if_lost)
    atexit.unregister(ray.shutdown)
    # `os._exit` runs no exit functions, so the exit functions of other code run now.
    atexit._run_exitfuncs()
    _end_now()


def _end_now() -> None:
    """End this process at once, and the processes that Ray started here for computing."""
    end_processes()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(MachineError.exit_status)


def end_processes() -> None:
    """Kill the processes that Ray started here for computing.

    If the control store is lost, all of Ray's processes are killed: they would wait for
    the store.
    """
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            name = process.name()
            computes = name.startswith("ray::") and "Agent" not in name
            if computes or ("ray" in name and ControlStore.is_lost):
                process.kill()
