"""The surroundings of a command: streams, signals, errors as one line, and the exit
status.
"""

import errno
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO

import typer

from ropelab.runs import interrupts
from ropelab.runs.errors import InputError, RopelabError, defect, printable, unseen_in

# What a command returns that ended by KeyboardInterrupt, whichever signal it was.
INTERRUPTED = 130


def status_of(command: Callable[[], Any]) -> int:
    """Run a command; its exit status. Errors are one line on stderr, never a
    traceback.
    """
    complete_streams()
    try:
        with interrupts.handle_signals():
            status = command()
            sys.stdout.flush()
    except RopelabError as error:
        return _fail(str(error), error.exit_status)
    except typer.TyperException as error:
        return _fail(error.format_message(), error.exit_code)
    except KeyboardInterrupt:
        return _end_interrupted()
    except OSError as error:
        place = _place_in_own_code(error)
        if place:
            return _fail_in_own_code(place, error)
        return _machine_failure(error)
    except BaseException as error:
        if interrupts.received:
            # An interrupted import may end in an error of its own, as where
            # __set_name__ is called.
            return _end_interrupted()
        place = _place_in_own_code(error)
        if place:
            return _fail_in_own_code(place, error)
        if isinstance(error, SystemExit):
            raise
        return defect(error)

    if status == INTERRUPTED:
        return _end_interrupted()
    return status if isinstance(status, int) else 0


def _place_in_own_code(error: BaseException) -> str:
    """Return the file and line of the user's own code in which an error arose, empty
    for none.
    """
    # Without the module nothing of one's own was asked for.
    own = sys.modules.get("ropelab.runs.own")
    return own.place_of(error) if own else ""


def _fail_in_own_code(place: str, error: BaseException) -> int:
    text = f"{place}: {type(error).__name__}: {error}"
    return _fail(text, InputError.exit_status)


def _end_interrupted() -> int:
    # CPython remembers that a KeyboardInterrupt left some exec() of a text, as
    # dataclasses use, and would end by SIGINT whatever the status; the next exec()
    # makes it forget.
    exec("")
    message = "interrupted; finished parts are kept and the same command continues"
    number = interrupts.received[0] if interrupts.received else signal.SIGINT
    return _fail(message, 128 + number)


def complete_streams() -> None:
    """Give closed streams a place to go, and let no character be too foreign for an
    open one.

    Otherwise the first file that is opened would take the number of a closed stream.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)

    sys.stdin = sys.stdin or Path(os.devnull).open()  # noqa: SIM115
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _machine_failure(error: OSError) -> int:
    """Status and message of a failing machine; an error without a number is a bug and
    is raised.
    """
    if error.errno == errno.EPIPE:
        # Nothing is to be written there at the exit.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if error.errno is None and isinstance(error.__cause__, OSError):
        error = error.__cause__  # matplotlib wraps the reason why a file cannot be read

    if error.errno is None:
        return defect(error)
    where = f" ({error.filename})" if error.filename else ""
    return _fail(f"{error.strerror}{where}; nothing half-written was left behind", 1)


def _fail(message: str, status: int) -> int:
    with suppress(OSError):
        print(f"ropelab: {printable(' '.join(message.split()))}", file=sys.stderr)
    return status


def print_line(text: object) -> None:
    """Print a line, with nothing in it that steers a terminal."""
    print(printable(str(text)))


# Where documents go while all else that is printed goes to stderr.
_streams_of_documents: list[TextIO] = []


@contextmanager
def nothing_but_documents() -> Iterator[None]:
    """Keep stdout for documents while the block runs: code of the user's may print."""
    _streams_of_documents.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _streams_of_documents.pop()


def print_document(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout, in letters that the stream has and a terminal
    shows.
    """
    stream = sys.stdout
    if _streams_of_documents:
        stream = _streams_of_documents[-1]
    ascii_only = not (stream.encoding or "").lower().startswith("utf")
    text = json.dumps(document, ensure_ascii=ascii_only, allow_nan=False)
    # JSON escapes what is below a blank; a terminal is steered by more than that.
    for letter in unseen_in(text):
        units = letter.encode("utf-16-be", "surrogatepass")
        pairs = zip(units[::2], units[1::2], strict=True)
        escaped = "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs)
        text = text.replace(letter, escaped)
    print(text, file=stream)
