"""Ctrl-C and terminations: the first ends the work in good order, the second at once.

An orderly end only saves time, as a training step is kept: what is stored is whole or
not there.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

# SIGHUP comes when a terminal is closed, which ends its commands; Windows has none.
TERMINATIONS = [
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
]
HANDLED = (signal.SIGINT, *TERMINATIONS)
# Two signals within so long are one: a launcher may pass on what the terminal sends to
# all.
SECONDS_APART = 0.3
SHOW_CURSOR = b"\x1b[?25h"
STOPPED = (
    b"ropelab: stopped at once; finished parts are kept and the same command"
    b" continues\n"
)

# Signals that have come since `handled` began.
received: list[int] = []


def leave(number: int, frame: FrameType | None = None) -> NoReturn:
    """End the process, whatever it is doing: status 130 after Ctrl-C, 143 after a
    termination, 129 after its terminal was closed.
    """
    with suppress(OSError):
        os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + STOPPED)
    os._exit(128 + number)


def leave_at_once() -> None:
    """Until a command has begun: end at a signal without a traceback from some
    import.
    """
    for number in HANDLED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave)


@contextmanager
def handled() -> Iterator[None]:
    """While the block runs, a first signal is a KeyboardInterrupt, a second ends the
    process.
    """
    # An ignored signal (Ctrl-C under nohup) stays ignored.
    received.clear()

    # The second signal is seen by a thread of its own: the main thread may be inside
    # one long product of matrices, where Python calls no handler. Windows takes no pipe
    # for this.
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    heard = [
        number for number in HANDLED if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, interrupt) for number in heard}
    woken_before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(ours,), daemon=True).start()

    try:
        yield
    finally:
        signal.set_wakeup_fd(woken_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        theirs.close()


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal as Python handles Ctrl-C, and remember which it was."""
    received.append(number)
    raise KeyboardInterrupt


def _watch(end: socket.socket) -> None:
    """Read the numbers of signals as they come, until the other end is closed."""
    first = 0.0
    while number := end.recv(1):
        if number[0] not in HANDLED:
            continue
        now = time.monotonic()
        if first and now - first > SECONDS_APART:
            leave(number[0])
        first = first or now
    end.close()


@contextmanager
def held() -> Iterator[Callable[[], bool]]:
    """Hold a first signal back in the block; the yielded function returns True if it
    came.
    """
    # A second Ctrl-C is let through, as is a termination that nobody handles. Only the
    # main thread receives signals. Interrupted inside a step, weights would be half
    # updated.
    arrived = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield arrived.is_set
        return

    def hold(number: int, frame: FrameType | None) -> None:
        # In a worker Ctrl-C is otherwise ignored, and may come from the terminal and
        # the parent.
        if arrived.is_set() and callable(before[number]):
            raise KeyboardInterrupt
        received.append(number)
        arrived.set()

    heard = [signal.SIGINT]
    heard += [each for each in TERMINATIONS if callable(signal.getsignal(each))]
    before = {int(number): signal.signal(number, hold) for number in heard}
    try:
        yield arrived.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
