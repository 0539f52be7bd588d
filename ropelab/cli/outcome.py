"""The surroundings of a command: standard streams, signals, errors in one line, and the
exit status.

The user's code is code that the user has written and named on the command line. It may
print, raise any error, and try to end the process.
"""

import errno
import io
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO

import typer

from ropelab.runs import exits, interrupts
from ropelab.runs.errors import (
    InputError,
    RopelabError,
    cut_middle,
    describe_error,
    escape_controls,
    find_unseen,
    report_defect,
)

# The environment variable that a shell sets when it asks how a word may be completed.
COMPLETION = "_ROPELAB_COMPLETE"
# The status that typer returns for a command that a KeyboardInterrupt ended, whichever
# signal it was.
STATUS_OF_INTERRUPT = 130
# The exit status of a command that did its work and found something wrong.
STATUS_OF_FINDINGS = 3


def run_for_status(command: Callable[[], Any]) -> int:
    """Run a command and return its exit status.

    Errors are one line on stderr, never a traceback.
    """
    exits.begin_command()
    complete_streams()
    try:
        with interrupts.handle_signals():
            status = command()
            sys.stdout.flush()
    except RopelabError as error:
        return _report_failure(str(error), error.exit_status)
    except typer.TyperException as error:
        return _report_failure(error.format_message(), error.exit_code)
    except KeyboardInterrupt:
        return _end_interrupted()
    except OSError as error:
        place = _find_place_in_user_code(error)
        if place:
            return _report_user_code(place, error)
        return _report_machine_failure(error)
    except BaseException as error:
        if interrupts.received:
            # An interrupted import may end in another error. For example, Python 3.11
            # wraps an error that arises in __set_name__ into a RuntimeError.
            return _end_interrupted()
        place = _find_place_in_user_code(error)
        if place:
            return _report_user_code(place, error)
        if COMPLETION in os.environ and isinstance(error, LookupError | ValueError):
            text = "the shell gave no words to complete (COMP_WORDS, COMP_CWORD)"
            return _report_failure(text, InputError.exit_status)
        if isinstance(error, SystemExit):
            if COMPLETION in os.environ:
                # click raises SystemExit after it has printed the completions.
                raise
            if isinstance(error.__context__, BrokenPipeError):
                # click raises SystemExit if nobody reads stdout any more.
                return _report_machine_failure(error.__context__)
            # No command of ropelab raises SystemExit, but a library may.
            text = "other code ended the command without an answer (SystemExit)"
            return _report_failure(text, RopelabError.exit_status)
        return report_defect(error)
    finally:
        exits.end_command()

    if status == STATUS_OF_INTERRUPT:
        return _end_interrupted()
    return status if isinstance(status, int) else 0


def _find_place_in_user_code(error: BaseException) -> str:
    """Return the file and line of the user's code in which an error arose; empty if it
    arose elsewhere.
    """
    # This module imports the user's code. If it was not imported, there was none.
    if "ropelab.runs.from_source" not in sys.modules:
        return ""
    from ropelab.runs.own import find_place_of_error

    return find_place_of_error(error)


def _report_user_code(place: str, error: BaseException) -> int:
    text = f"{place}: {type(error).__name__}: {describe_error(error)}"
    return _report_failure(text, InputError.exit_status)


def _end_interrupted() -> int:
    # Dataclasses call exec() on a text. If such a call was interrupted, CPython ends the
    # process by SIGINT and ignores the exit status. Another call of exec() undoes that.
    exec("")
    message = "interrupted; finished parts are kept and the same command continues"
    number = interrupts.received[0] if interrupts.received else signal.SIGINT
    return _report_failure(message, 128 + number)


def complete_streams() -> None:
    """Replace closed standard streams by /dev/null, and let open streams write escapes
    for characters that they cannot write.
    """
    # The system gives the lowest free number to a new file. If a standard stream is
    # closed, its number (0, 1 or 2) would go to the first file that the command opens.
    # So /dev/null is opened until these numbers are taken. In a sandbox without that
    # device they stay free.
    with suppress(OSError):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(descriptor)

    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        stream = getattr(sys, name)
        # Without a terminal (pythonw) Python has no streams, and a program that calls
        # this one may have closed them.
        if stream is None or stream.closed:
            try:
                stream = Path(os.devnull).open(mode)  # noqa: SIM115
            except OSError:
                stream = io.StringIO()
            setattr(sys, name, stream)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _report_machine_failure(error: OSError) -> int:
    """Report an error of the operating system in one line, and return the status.

    An OSError without an error number is a defect of the program, and is reported as a
    defect.
    """
    if error.errno == errno.EPIPE:
        # Nobody reads stdout any more. Python would fail once more when it flushes the
        # stream at the exit, so the stream is directed to /dev/null.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if error.errno is None and isinstance(error.__cause__, OSError):
        # matplotlib wraps the error that says why a file cannot be read.
        error = error.__cause__

    if error.errno is None:
        return report_defect(error)
    where = f" ({error.filename})" if error.filename else ""
    return _report_failure(
        f"{error.strerror}{where}; nothing half-written was left behind", 1
    )


def _report_failure(message: str, status: int) -> int:
    line = cut_middle(escape_controls(" ".join(message.split())))
    with suppress(OSError):
        print(f"ropelab: {line}", file=sys.stderr)
    return status


def print_line(text: object) -> None:
    """Print a line, with escapes for characters that would steer a terminal."""
    print(escape_controls(str(text)))


# The streams to stdout on which documents are printed: one for each open
# `nothing_but_documents` block, in which `sys.stdout` is stderr. The last one is used.
_streams_of_documents: list[TextIO] = []
# The file descriptors of the two streams in every process.
STDOUT = 1
STDERR = 2


@contextmanager
def nothing_but_documents() -> Iterator[None]:
    """Reserve stdout for documents while the block runs.

    Everything that the user's code prints goes to stderr.
    """
    with _separate_stdout() as stream:
        _streams_of_documents.append(stream)
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            _streams_of_documents.pop()


@contextmanager
def _separate_stdout() -> Iterator[TextIO]:
    """Yield a stream to stdout, while the file descriptor 1 leads to stderr.

    Programs that the user's code starts write to this descriptor, even if `sys.stdout`
    was replaced.
    """
    stdout = sys.stdout
    try:
        descriptor = stdout.fileno()
    except (AttributeError, OSError, ValueError):
        descriptor = -1
    if descriptor != STDOUT:
        # A program that calls this one has replaced stdout, perhaps by a buffer in
        # memory.
        yield stdout
        return

    stdout.flush()
    copy = os.dup(STDOUT)
    stream = os.fdopen(copy, "w", encoding=stdout.encoding, errors=stdout.errors)
    os.dup2(STDERR, STDOUT)
    try:
        yield stream
        stream.flush()
    finally:
        # Text that the user's code left in the buffer of `stdout` goes to stderr, too.
        with suppress(OSError, ValueError):
            stdout.flush()
        os.dup2(copy, STDOUT)
        # If `stream.flush` failed above, its error is raised. A second error, of closing
        # the stream, is dropped.
        with suppress(OSError):
            stream.close()


def _leave_out_nan(value: Any) -> Any:
    """Return a value of a document in which nan and infinity, which JSON does not have,
    are replaced by None.
    """
    if isinstance(value, Mapping):
        return {key: _leave_out_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_leave_out_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_document(document: Mapping[str, Any]) -> None:
    """Print a JSON document on stdout.

    Letters that the stream cannot write, and letters that steer a terminal, are
    escaped.
    """
    stream = sys.stdout
    if _streams_of_documents:
        stream = _streams_of_documents[-1]

    ascii_only = not (stream.encoding or "").lower().startswith("utf")
    try:
        text = json.dumps(document, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        finite = _leave_out_nan(document)
        text = json.dumps(finite, ensure_ascii=ascii_only, allow_nan=False)

    # json.dumps escapes only control characters below the blank. An escape in JSON is \u
    # with four digits for each 16-bit unit of the letter in UTF-16, which has one or two.
    for letter in find_unseen(text):
        encoded = letter.encode("utf-16-be", "surrogatepass")
        high_bytes = encoded[::2]
        low_bytes = encoded[1::2]
        units = zip(high_bytes, low_bytes, strict=True)
        escape = "".join(f"\\u{high:02x}{low:02x}" for high, low in units)
        text = text.replace(letter, escape)
    print(text, file=stream)
