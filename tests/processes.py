"""The processes below another; any of them may end between two looks."""

from contextlib import suppress

import psutil


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
