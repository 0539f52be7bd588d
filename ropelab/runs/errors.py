"""Sentences for the user: errors of one line, notices, and text that is safe in a
terminal.
"""

import logging
import os
import sys
import tempfile
import traceback
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec

from ropelab.runs.spelling import FORMAT_NAMES

# Unicode's categories of characters that steer a terminal or cannot be seen: controls,
# format characters such as marks of direction, surrogates, and separators of lines and
# paragraphs.
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# Names that other programs and people use, each with the name that it has here.
ALSO_CALLED = {
    **FORMAT_NAMES,
    "gpu": "cuda",
    "cos": "table",
    "sin": "table",
}
# The least similarity at which a name is suggested for a wrong name, from 0 to 1, as
# difflib measures it. Equal names have 1.
SIMILAR = 0.65
# The most characters of a wrong name or value that an error repeats.
LONGEST_REPEATED = 200
# Characters of a line that are printed from its beginning and from its end. Code of the
# user may raise errors of any length, and the reason often stands last.
LONGEST_BEGINNING = 3000
LONGEST_END = 1000
# Packages that not every installation has, each with the extra of pyproject.toml that
# installs it.
EXTRAS = {"torch": "train", "transformers": "hf", "ray": "ray"}


class RopelabError(Exception):
    """Base of all errors that are reported without a traceback, in one line."""

    exit_status = 1

    def __str__(self) -> str:
        # A value that is quoted, such as a table, may have several lines. Blanks within
        # a line stay, as they may belong to a name.
        lines = [line.strip() for line in super().__str__().splitlines()]
        return " ".join(filter(None, lines))


class InputError(RopelabError):
    """Invalid input: nothing was computed and nothing was written."""

    exit_status = 2


class MachineError(RopelabError):
    """The input was valid, but the machine failed: no space, a lost device, a diverging
    run.
    """


def make_name_error(kind: str, name: str, allowed: Iterable[str]) -> InputError:
    """Make an error for a name that does not exist, with the nearest name that exists.

    >>> print(make_name_error("method", "yarm", ["yarn", "ntk"]))
    unknown method 'yarm'; did you mean 'yarn'? allowed: ntk, yarn
    """
    names = sorted(set(allowed))
    problem = f"unknown {kind} '{cut_text(name)}';"
    near = _find_nearest(name, names)
    if near:
        problem += f" did you mean '{near}'?"

    if kind == "model":
        # There are too many models to list them in one line.
        advice = "type: ropelab models"
    else:
        advice = f"allowed: {', '.join(names)}"
    return InputError(f"{problem} {advice}")


def cut_text(text: str) -> str:
    """Return the beginning of a text that is too long for an error message."""
    if len(text) <= LONGEST_REPEATED:
        return text
    return f"{text[:LONGEST_REPEATED]} ..."


def describe_error(error: BaseException) -> str:
    """Return what an error of a user's code says, cut if it is too long.

    Its text is made by code of the user, too, which may fail.
    """
    try:
        return cut_text(str(error))
    except Exception:
        return "(its text cannot be made)"


def cut_middle(line: str) -> str:
    """Return the beginning and the end of a line that is too long to be read."""
    if len(line) <= LONGEST_BEGINNING + LONGEST_END:
        return line
    return f"{line[:LONGEST_BEGINNING]} ... {line[-LONGEST_END:]}"


def _find_nearest(name: str, names: Sequence[str]) -> str:
    """Return the name in `names` that the user may have meant; empty if no name is
    near.
    """
    our_name = ALSO_CALLED.get(name.lower(), "")
    if our_name in names:
        return our_name
    if not name:
        return ""

    # People leave out hyphens and ends: llama3.1 means llama-3.1-8b.
    typed_letters = _keep_letters(name)
    longer = [each for each in names if _keep_letters(each).startswith(typed_letters)]
    if longer:
        return longer[0]
    similar = get_close_matches(name.lower(), names, n=1, cutoff=SIMILAR)
    if similar:
        return similar[0]

    # Names may be similar once hyphens are left out. If several names have the same
    # letters, the first one is suggested. A dict keeps the last value of a key, so the
    # names are put into it in reverse order.
    name_of_letters = {_keep_letters(each): each for each in reversed(names)}
    close = get_close_matches(typed_letters, name_of_letters, n=1, cutoff=SIMILAR)
    if close:
        return name_of_letters[close[0]]
    return ""


def _keep_letters(name: str) -> str:
    """Return the letters and digits of a name in lower case, or the name if it has
    none.
    """
    return "".join(letter for letter in name.lower() if letter.isalnum()) or name


def check_known(kind: str, name: str, allowed: Iterable[str]) -> str:
    """Return a name if it is allowed; else raise InputError, which suggests the nearest
    allowed name.
    """
    if name not in allowed:
        raise make_name_error(kind, name, allowed)
    return name


def is_installed(package: str) -> bool:
    return find_spec(package) is not None


def require(package: str) -> None:
    """Raise InputError, which names the extra to install, if a package is not
    installed.
    """
    if not is_installed(package):
        command = write_install(EXTRAS[package])
        raise InputError(
            f"this needs {package}, which is not installed; in the checkout, type:"
            f" {command}"
        )


def write_install(extra: str) -> str:
    """Write the command that installs the packages of an extra from a checkout.

    No package index has ropelab, so `pip install ropelab` would find nothing.

    >>> write_install("train")
    "pip install '.[train]'"
    """
    return f"pip install '.[{extra}]'"


@contextmanager
def needing_packages() -> Iterator[None]:
    """Turn a missing package into an InputError that names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in EXTRAS:
            require(package)
        raise


@contextmanager
def naming(origin: str) -> Iterator[None]:
    """Put `origin` in front of the errors of a block: the config file, and the case in
    the file.
    """
    try:
        yield
    except RopelabError as error:
        if not origin:
            raise
        raise type(error)(f"{origin}: {error}") from None


def report_defect(error: BaseException) -> int:
    """Report a defect in one line on stderr, save its traceback, and return the exit
    status.
    """
    # If memory ran out, the error has one of these phrases. The first comes from the
    # system ("Cannot" or "cannot"), the second from a library that could not be loaded,
    # and the third from CUDA.
    phrases = ("annot allocate memory", "failed to map segment", "out of memory")
    tells_of_memory = any(phrase in str(error) for phrase in phrases)
    if isinstance(error, MemoryError) or tells_of_memory:
        text = "memory ran out; nothing half-written was left behind"
    else:
        error_name = type(error).__name__
        where = _save_traceback(error)
        text = f"a defect, please report it with its traceback, {where}: {error_name}"
    with suppress(OSError, ValueError):
        sys.stderr.write(f"ropelab: {text}\n")
    return 1


def _save_traceback(error: BaseException) -> str:
    """Write a traceback to a temporary file; return its path, or words that say there
    is none.
    """
    where = "which could not be written"
    with suppress(OSError):
        handle, where = tempfile.mkstemp(prefix="ropelab-defect-", suffix=".txt")
        with os.fdopen(
            handle, "w", encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.writelines(traceback.format_exception(error))
    return where


def escape_controls(text: str) -> str:
    r"""Replace characters that steer a terminal or cannot be seen by their escapes.

    >>> escape_controls("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    for letter in find_unseen(text):
        text = text.replace(letter, letter.encode("unicode_escape").decode())
    return text


def find_unseen(text: str) -> set[str]:
    """Return the characters of a text that steer a terminal or cannot be seen, except
    line ends.
    """
    letters = set(text) - {"\n"}
    return {each for each in letters if unicodedata.category(each) in UNSEEN}


def ignore_warnings() -> None:
    """Keep the warnings of libraries away from stderr, unless Python was asked for them
    (`python -W`, PYTHONWARNINGS).

    These warnings are about the calls of ropelab, not about what the user typed.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        # A message to a logger goes to stderr if no logger has a handler.
        logging.getLogger().addHandler(logging.NullHandler())


def say(text: str) -> None:
    """Print a notice on stderr."""
    print(cut_middle(escape_controls(text)), file=sys.stderr, flush=True)


# `cache` remembers the texts, so that each is printed once.
say_once = cache(say)
