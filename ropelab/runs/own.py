"""Methods, encodings, tasks and cast plans from outside: found, typed and identified.

`module:Name` (in the working folder, or installed), a name that an installed package gives as an
entry point of the group `ropelab.methods`, `.encodings`, `.tasks` or `.casts`, or, from Python,
the object itself. Its source is a part of the keys of all that depends on it.
"""

import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import resolve_name
from types import FunctionType
from typing import Any, Literal

from ropelab.runs.errors import InputError, RopelabError

Kind = Literal["methods", "encodings", "tasks", "casts"]
REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
HERE = __name__.partition(".")[0]
# Those that were asked for, by the text that names them.
_found: dict[str, Any] = {}


def find(kind: Kind, name: str) -> Any | None:
    """Return what a name means outside of this package, None if it means nothing there.

    InputError: it is a reference, and cannot be imported.
    """
    if name not in _found:
        if REFERENCE.fullmatch(name):
            _found[name] = _imported(name)
        elif point := named(kind).get(name):
            _found[name] = _imported(point.value)
    return _found.get(name)


@cache
def named(kind: Kind) -> dict[str, EntryPoint]:
    """Return what installed packages offer, by name."""
    return {point.name: point for point in entry_points(group=f"ropelab.{kind}")}


def _imported(reference: str) -> Any:
    # As for a script, so that a file in the working folder is enough; workers get the same path.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return resolve_name(reference)
    except RopelabError:
        raise
    except Exception as error:
        # No closed set: the module may do anything.
        kind = type(error).__name__
        raise InputError(f"cannot load {reference}: {kind}: {error} (docs/own.md)") from None


def reference_of(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"


def typed(value: Any) -> Any:
    """Return values of Python as they would be typed: objects by their references."""
    if isinstance(value, list | tuple):
        return [*map(typed, value)] if isinstance(value, list) else tuple(map(typed, value))
    if isinstance(value, type | FunctionType):
        return _kept(value)
    if is_dataclass(value) and hasattr(value, "label"):
        if is_own(type(value)):
            _kept(type(value))
        return value.label
    return value


def _kept(value: Any) -> str:
    reference = reference_of(value)
    if not REFERENCE.fullmatch(reference):
        raise InputError(f"{reference}: define it at the top level of a module or notebook")
    _found[reference] = value
    return reference


def is_own(value: Any) -> bool:
    """Return True for a class or function that is defined outside of this package."""
    return value.__module__.partition(".")[0] != HERE


def sources(*values: Any) -> dict[str, Any]:
    """Return a part of a key: the sources of all classes of one's own in some values."""
    classes: set[Any] = {*_parts(values)}
    found = {reference_of(each): source(each) for each in classes if is_own(each)}
    # What comes with ropelab is identified by versions: its keys stay as they are.
    return {"own": dict(sorted(found.items()))} if found else {}


def mentioned(values: Any) -> dict[str, str]:
    """Return the sources of all that json-able values name."""
    texts = list(_texts(values))
    return {
        name: source(value)
        for name, value in sorted(_found.items())
        if any(name in text for text in texts)
    }


@cache
def source(value: Any) -> str:
    """Return a fingerprint of the file that defines something; in a notebook of its source."""
    named_object = hasattr(value, "__qualname__")
    file = getattr(sys.modules.get(value.__module__), "__file__", None) if named_object else None
    try:
        text = Path(file).read_text(encoding="utf-8") if file else inspect.getsource(value)
    except (OSError, TypeError):
        if not named_object:  # a value, such as a cast plan, which says all in its text
            text = repr(value)
        else:
            raise InputError(f"the source of {reference_of(value)} cannot be read") from None
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def place_of(error: Exception) -> str:
    """Return the file and line of one's own module in which an error arose; empty: in none."""
    modules = {name.partition(":")[0] for name in _found}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in modules}
    # The text has the frames of a worker, too.
    text = "".join(traceback.format_exception(error))
    frames = re.findall(r'File "(.+?)", line (\d+)', text)
    own = [(Path(file).name, line) for file, line in frames if file in files]
    return f"{own[-1][0]}, line {own[-1][1]}" if own else ""


def _parts(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, type | FunctionType):
            yield value
        elif is_dataclass(value):
            yield type(value)
            yield from _parts(getattr(value, field.name) for field in fields(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value.values()])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
