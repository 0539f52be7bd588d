"""Ask the user's code in a separate process.

The code is named `package.module:factory`; the factory makes the function that is asked.
The process is given a job on its standard input and writes the answer to a file, so that
whatever the code prints, breaks or leaves running does not reach this process.
"""

import importlib.util
import inspect
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ropelab.conformance import (
    answers,
    calls,
    calls_of_axes,
    calls_of_images,
    parameters,
    ways,
)
from ropelab.conformance.calls import ask_function
from ropelab.conformance.observation import Answer, Positions
from ropelab.conformance.parameters import list_parameters, list_required
from ropelab.readers.spec import RopeSpec
from ropelab.runs.errors import (
    InputError,
    MachineError,
    RopelabError,
    describe_error,
    say,
)
from ropelab.runs.from_source import importing, refuse_other_folder
from ropelab.runs.temporary import TemporaryFolder

# The time that a factory and its function may take.
LONGEST_SECONDS = 600
# The status of a process that could not write its answer (EX_IOERR of sysexits.h).
NOT_WRITTEN = 74
# The program of the child process. It reads `sys.path` first, since the types in the
# job are imported from its folders.
CHILD = """
import pickle, sys
sys.path = pickle.load(sys.stdin.buffer)
from ropelab.conformance.user_code import answer_job
answer_job(*pickle.load(sys.stdin.buffer))
"""


def ask_in_process(target: str, spec: RopeSpec, positions: Positions) -> Answer:
    """Ask `package.module:factory` what it computes; return what is seen of each part.

    InputError: the code raises an error, or the process ends without an answer.
    """
    (answer,) = ask_in_one_process(target, spec, [positions])
    if isinstance(answer, Exception):
        raise answer
    return answer


def ask_in_one_process(
    target: str, spec: RopeSpec, positions_of_calls: Sequence[Positions]
) -> list[Answer | Exception]:
    """Ask what `package.module:factory` makes at several positions, one after the other.

    Returns what is seen of each part at each call, or the error that the call raised.
    InputError: the factory raises an error, or the process ends without an answer.
    """
    module, colon, factory = target.partition(":")
    if not colon:
        raise InputError(
            f"{target} is not a folder, an .npz or a package.module:factory"
        )
    with TemporaryFolder() as folder:
        answer_file = Path(folder, "answers")
        job = (str(answer_file), module, factory, spec, list(positions_of_calls))
        problem = run_child(Path(folder, "printed"), job)
        try:
            answers = pickle.loads(answer_file.read_bytes())
        # The file is not there, or the process ended while it was written.
        except Exception:
            raise InputError(f"{target} {problem}") from None

    if isinstance(answers, RopelabError):
        raise answers
    return list(answers)


def run_child(printed: Path, job: tuple[Any, ...]) -> str:
    """Run a process that does a job, print again what it prints, and return how the
    process ended.

    ``printed``: a file that takes what the process prints.
    """
    sent = pickle.dumps(sys.path) + pickle.dumps(job)
    command = [sys.executable, "-P", "-u", "-c", CHILD]
    # A pipe would be held open by processes that the code leaves running; a file is not.
    with printed.open("wb") as output:
        try:
            process = subprocess.run(
                command,
                input=sent,
                stdout=output,
                stderr=output,
                timeout=LONGEST_SECONDS,
            )
            if process.returncode == NOT_WRITTEN:
                raise MachineError(
                    f"no answer could be written to {printed.parent}: is the disk full?"
                )
            problem = f"ended with status {process.returncode}, no answer"
        except subprocess.TimeoutExpired:
            problem = f"gave no answer within {LONGEST_SECONDS} seconds"

    text = printed.read_bytes().decode(errors="replace").rstrip()
    if text:
        say(text)
    return problem


def answer_job(answer_file: str, *job: Any) -> None:
    """Write what a factory answers, or its error, to a file, and end the process."""
    process_id = os.getpid()
    answer: Any

    try:
        try:
            answer = ask_factory_in_turn(*job)
        except RopelabError as error:
            answer = error

        # If the factory forked, its child comes here, too, and writes nothing.
        if os.getpid() == process_id:
            Path(answer_file).write_bytes(pickle.dumps(answer))
    except OSError:
        os._exit(NOT_WRITTEN)
    finally:
        # The code may have changed Python itself, so that even writing fails. The process
        # then ends without a traceback, and its parent says that it gave no answer.
        os._exit(0)


def ask_factory_in_turn(
    module: str,
    factory: str,
    spec: RopeSpec,
    positions_of_calls: Sequence[Positions],
) -> list[Answer | Exception]:
    """Ask the function that the user's factory returns at several positions.

    A factory that needs arguments is taken for the function itself.
    """
    name = f"{module}:{factory}"
    with naming_errors(name):
        made = load_factory(module, factory)
        if not inspect.isfunction(made) or not list_required(list_parameters(made)):
            made = made()

    answers: list[Answer | Exception] = []
    for positions in positions_of_calls:
        try:
            with naming_errors(name):
                answers.append(ask_function(made, name, spec, positions))
        except RopelabError as error:
            answers.append(error)
    return answers


@contextmanager
def naming_errors(name: str) -> Iterator[None]:
    """Raise errors of the user's code as an InputError that names the code."""
    try:
        yield
    except RopelabError:
        raise
    except BaseException as error:
        error_name = type(error).__name__
        where = describe_place(error)
        text = describe_error(error)
        raise InputError(f"{name} raised {error_name}: {text}{where}") from None


def load_factory(module: str, factory: str) -> Any:
    """Import a module from the working folder, or an installed one."""
    refuse_other_folder(module)
    sys.path.insert(0, str(Path.cwd()))
    try:
        with importing(module):
            return getattr(importlib.import_module(module), factory)
    except (ImportError, AttributeError) as error:
        text = describe_error(error)
        raise InputError(f"cannot load {module}:{factory}: {text}") from None


def describe_place(error: BaseException) -> str:
    """Return the file and line in which the user's code stopped, in brackets.

    Empty: the code was not reached, since the call of its function failed.
    """
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    callers = (answers, calls, calls_of_axes, calls_of_images, parameters, ways)
    files_of_callers = {__file__, inspect.__file__}
    files_of_callers |= {str(module.__file__) for module in callers}
    if innermost.filename in files_of_callers or not innermost.lineno:
        return ""
    return f" ({Path(innermost.filename).name}, line {innermost.lineno})"
