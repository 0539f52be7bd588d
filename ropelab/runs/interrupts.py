"""Ctrl-C and terminations: the first ends the work in good order, the second at once.

In either case a stored result is complete, or there is none. Work that ends in good order
also keeps the current training step, which saves time.
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
# Two signals within this time count as one. A terminal sends Ctrl-C to all processes,
# and a program that started this one may send it once more.
SECONDS_APART = 0.3
SHOW_CURSOR = b"\x1b[?25h"
STOPPED = (
    b"ropelab: stopped at once; finished parts are kept and the same command"
    b" continues\n"
)

# The numbers of the signals that have come since `handle_signals` began.
received: list[int] = []


def leave(number: int, frame: FrameType | None = None) -> NoReturn:
    """End the process, whatever it is doing: status 130 after Ctrl-C, 143 after a
    termination, 129 after its terminal was closed.
    """
    with suppress(OSError):
        os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + STOPPED)
    os._exit(128 + number)


def leave_at_once() -> None:
    """Make signals end the process at once, without a traceback.

    It is called before the imports of a command, which may take a second.
    """
    for number in HANDLED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave)


@contextmanager
def handle_signals() -> Iterator[None]:
    """While the block runs, a first signal is a KeyboardInterrupt, a second ends the
    process.
    """
    received.clear()

    # A thread waits for the second signal, since the main thread may be inside one long
    # product of matrices, where Python calls no handler. Python writes the number of
    # each signal into one end of a pair of sockets (Windows takes no pipe for this), and
    # the thread reads the other end.
    read_end, write_end = socket.socketpair()
    write_end.setblocking(False)
    watcher = threading.Thread(target=_watch, args=(read_end,), daemon=True)

    handlers_before = {}
    wakeup_before = signal.set_wakeup_fd(write_end.fileno(), warn_on_full_buffer=False)
    # As soon as the first handler is set, a signal may raise KeyboardInterrupt, even
    # before the block begins. So the handlers are set inside `try`.
    try:
        for number in HANDLED:
            # An ignored signal stays ignored, as Ctrl-C under nohup.
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN:
                handlers_before[number] = handler
                signal.signal(number, interrupt)
        watcher.start()
        yield
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, handler in handlers_before.items():
            signal.signal(number, handler)
        write_end.close()
        if watcher.ident is None:
            # The thread was never started, so it does not close the socket it reads.
            read_end.close()


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal as Python handles Ctrl-C, and remember which signal it was."""
    received.append(number)
    raise KeyboardInterrupt


def _watch(read_end: socket.socket) -> None:
    """End the process at a second signal; return when the other end is closed."""
    first_time: float | None = None
    # `recv` returns no bytes when the other end is closed.
    while received_bytes := read_end.recv(1):
        (number,) = received_bytes
        if number not in HANDLED:
            continue
        now = time.monotonic()
        if first_time is None:
            first_time = now
        elif now - first_time > SECONDS_APART:
            leave(number)
    read_end.close()


@contextmanager
def hold_first_signal() -> Iterator[Callable[[], bool]]:
    """Hold back a first signal while the block runs; yield a function that returns True
    if a signal came.

    For example, the block is a training step. If the step were interrupted in the middle,
    only some weights would be updated. A second signal raises KeyboardInterrupt.
    """
    arrived = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread receives signals.
        yield arrived.is_set
        return

    def hold(number: int, frame: FrameType | None) -> None:
        # A worker ignores Ctrl-C outside of the block: its handler is then SIG_IGN, which
        # is not callable. It may get the same Ctrl-C twice, from the terminal and from
        # its parent, so a second Ctrl-C must not interrupt it.
        if arrived.is_set() and callable(handlers_before[number]):
            raise KeyboardInterrupt
        received.append(number)
        arrived.set()

    # A termination signal without a handler ends the process, also during the block.
    signals = [signal.SIGINT]
    signals += [each for each in TERMINATIONS if callable(signal.getsignal(each))]
    handlers_before = {int(number): signal.signal(number, hold) for number in signals}
    try:
        yield arrived.is_set
    finally:
        for number, handler in handlers_before.items():
            signal.signal(number, handler)
