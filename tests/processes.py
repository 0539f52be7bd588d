"""Processes that tests start, and those below another; any may end between two
looks.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil


@contextmanager
# a Popen whose pipes are there
def started(*arguments: str, **options: Any) -> Iterator[Any]:
    """Start Python with these arguments; after the block it is killed with all below
    it.
    """
    # A shell that starts the tests in the background has Ctrl-C ignored, which is
    # inherited.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [sys.executable, *arguments], text=True, **options
    ) as process:
        signal.signal(signal.SIGINT, before)
        try:
            yield process
        finally:
            # Once it has ended its number may be that of another process.
            below = descendants(process.pid) if process.poll() is None else []
            for each in (process, *below):
                with suppress(psutil.NoSuchProcess):
                    each.kill()


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for what comes soon; minutes, on a busy machine."""
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def descendants(process: int, *names: str) -> list[psutil.Process]:
    """Those with one of those words in their names or commands; without words all."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(process).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                command = " ".join([each.name(), *each.cmdline()])
                if not names or any(name in command for name in names):
                    found.append(each)
    return found


def is_alive(process: psutil.Process | int) -> bool:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(process) if isinstance(process, int) else process
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
