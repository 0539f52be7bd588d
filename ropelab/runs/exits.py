"""Code of the user may not end the process without a word.

`os._exit(0)` in the user's code ends the process with status 0, and no answer is
printed. This module turns the call into an error like any other in that code.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

from ropelab.runs.errors import InputError, say

# Functions that end this program at once, without an exception. All further functions
# of `os` that do this call one of these.
ENDING_FUNCTIONS = ("_exit", "execv", "execve")
# `os` takes its functions from one of these modules, which the user's code may import
# directly.
SYSTEM_MODULES = ("posix", "nt")

# The files of modules that were compiled for the user.
files_of_user: set[str] = set()
_real_exit = os._exit
# The process whose functions were replaced. A child that code of the user forks may end
# as it likes.
_guarded_process = 0
# True once a command has its exit status, which no code may change any more.
_has_status = False


def guard_exits() -> None:
    """Replace the functions that end this process, for callers in `files_of_user`."""
    global _guarded_process
    is_guarded = hasattr(os._exit, "__wrapped__")
    _guarded_process = os.getpid()
    if is_guarded:
        return

    modules = [os]
    for name in SYSTEM_MODULES:
        if name in sys.modules:
            modules.append(sys.modules[name])
    for name in ENDING_FUNCTIONS:
        guarded = _refuse_user(getattr(os, name))
        for module in modules:
            setattr(module, name, guarded)


@contextmanager
def refuse_exits(files: Iterable[str]) -> Iterator[None]:
    """Raise InputError if code in these files ends the process while the block runs."""
    global _has_status
    guard_exits()
    had_status = _has_status
    added = set(files) - files_of_user
    files_of_user.update(added)
    _has_status = False
    try:
        yield
    finally:
        _has_status = had_status
        files_of_user.difference_update(added)


def begin_command() -> None:
    """Note that the status is open: code of the user may not end the process."""
    global _has_status
    _has_status = False


def end_command() -> None:
    """Note that the status is known: functions that run at the exit cannot change it."""
    global _has_status
    _has_status = True


def _refuse_user(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises InputError if code of the user calls it in the
    guarded process, and else calls the function.
    """

    @wraps(function)
    def refuse_user(*arguments: Any, **named: Any) -> Any:
        # If a function such as `os._exit` was itself registered with `atexit`, Python
        # calls it, and there is no calling frame.
        caller = sys._getframe().f_back
        user_line = _find_user(caller)
        is_registered = caller is None
        if os.getpid() != _guarded_process or not (user_line or is_registered):
            return function(*arguments, **named)
        if is_registered or _has_status:
            # The command has its status, and the call is ignored.
            return None

        text = f"{user_line}: os.{function.__name__} ends the process without an answer"
        if threading.current_thread() is threading.main_thread():
            raise InputError(text)
        # An exception would end only this thread.
        say(f"ropelab: {text}")
        return _real_exit(InputError.exit_status)

    return refuse_user


def _find_user(frame: FrameType | None) -> str:
    """Return the file and line of the innermost frame in code of the user; empty if
    there is none.
    """
    while frame is not None:
        file = frame.f_code.co_filename
        if file in files_of_user:
            return f"{Path(file).name}, line {frame.f_lineno}"
        frame = frame.f_back
    return ""
