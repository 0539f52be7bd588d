"""Methods, encodings, tasks and cast plans from outside: found, typed and identified.

`module:Name` (in the working folder, or installed), a name that an installed package
gives as an entry point of the group `ropelab.methods`, `.encodings`, `.tasks` or
`.casts`, or, from Python, the object itself. Its source is a part of the keys of all
that depends on it.
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

from ropelab.runs.errors import InputError, MachineError, RopelabError
from ropelab.runs.from_source import importing, read_source

Kind = Literal["methods", "encodings", "tasks", "casts"]
REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
HERE = __name__.partition(".")[0]
# Those that were asked for, by kind and text (a reference is of any kind), and sources;
# each with the import that it is from: a reload makes another one, perhaps into the
# same objects.
_found: dict[tuple[str, str], tuple[Any, object]] = {}
_sources: dict[Any, tuple[str, object]] = {}


def find(kind: Kind, name: str) -> Any | None:
    """Return what a name means outside of this package, None if it means nothing there.

    InputError: it is a reference, and cannot be imported.
    """
    is_reference = REFERENCE.fullmatch(name)
    key = ("" if is_reference else kind, name)
    value, before = _found.get(key, (None, None))
    if value is not None and before is _import_of(value):
        return value

    point = list_entry_points(kind).get(name)
    if not is_reference and not point:
        return None

    value = _import(point.value if point else name)
    # A cast plan is a value, which says all in its text.
    if kind != "casts":
        _check_place(name, value)
    _found[key] = value, _import_of(value)
    return value


def _import_of(value: Any) -> object:
    return getattr(sys.modules.get(_module_of(value)), "__spec__", None)


def _module_of(value: Any) -> str:
    # A reference may name a number or a list.
    return getattr(value, "__module__", None) or ""


@cache
def list_entry_points(kind: Kind) -> dict[str, EntryPoint]:
    """Return what installed packages offer, by name."""
    return {point.name: point for point in entry_points(group=f"ropelab.{kind}")}


def _import(reference: str) -> Any:
    try:
        with importing(reference.partition(":")[0]):
            return resolve_name(reference)
    except RopelabError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # No closed set: the module may do anything.
        kind = type(error).__name__
        raise InputError(
            f"cannot load {reference}: {kind}: {error} (docs/own.md)"
        ) from None


def reference_of(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"


def typed(value: Any) -> Any:
    """Return values of Python as they would be typed: objects by their references."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, tuple):
        return tuple(map(typed, value))

    if isinstance(value, type | FunctionType):
        return _keep(value)
    if is_dataclass(value) and hasattr(value, "label"):
        if is_own(type(value)):
            _keep(type(value))
        return value.label
    return value


def _keep(value: Any) -> str:
    reference = reference_of(value)
    _check_place(reference, value)
    _found["", reference] = value, _import_of(value)
    return reference


def _check_place(name: str, value: Any) -> None:
    """Refuse what is not where its own name says: that file would not tell all that it
    does.
    """
    named: Any = sys.modules.get(_module_of(value))
    for part in getattr(value, "__qualname__", "<no name>").split("."):
        named = getattr(named, part, None)
    if named is not value:
        raise InputError(f"{name}: define it at the top level of a module or notebook")


def is_own(value: Any) -> bool:
    """Return True for a class or function that is defined outside of this package."""
    return value.__module__.partition(".")[0] != HERE


def sources(*values: Any) -> dict[str, Any]:
    """Return a part of a key: the sources of all classes of one's own in some
    values.
    """
    own = [each for each in _parts(values) if is_own(each)]
    by_reference = {reference_of(each): source(each) for each in own}
    # What comes with ropelab is identified by versions: its keys stay as they are.
    if not by_reference:
        return {}
    return {"own": dict(sorted(by_reference.items()))}


def mentioned(values: Any) -> dict[str, str]:
    """Return the sources of all that json-able values name."""
    text = repr(values)
    by_name: dict[str, str] = {}
    for (_, name), (value, _) in sorted(_found.items(), key=lambda item: item[0]):
        if name in text:
            # A name may mean one of each kind.
            by_name[name] = by_name.get(name, "") + source(value)
    return by_name


def source(value: Any) -> str:
    """Return a fingerprint of the file that defines something; in a notebook of its
    source.
    """
    if value in _sources and _sources[value][1] is _import_of(value):
        return _sources[value][0]

    # A value, such as a cast plan, says all in its text.
    is_code = hasattr(value, "__qualname__")
    content = _read_source(value) if is_code else repr(value).encode()
    # The same file has other line ends on other systems.
    lines = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    _sources[value] = hashlib.sha256(lines).hexdigest()[:16], _import_of(value)
    return _sources[value][0]


def _read_source(value: Any) -> bytes:
    module = sys.modules.get(value.__module__)
    try:
        content = read_source(module, value) if module is not None else None
        if content is None:
            content = inspect.getsource(value).encode()
    except (OSError, TypeError):
        raise InputError(
            f"the source of {reference_of(value)} cannot be read"
        ) from None
    return content


def known_sources() -> dict[str, str]:
    """Return the sources of all that another process will import, by reference."""
    values = [value for value, _ in _found.values() if hasattr(value, "__qualname__")]
    return {reference_of(v): source(v) for v in values if v.__module__ != "__main__"}


def check_sources(known: Mapping[str, str]) -> None:
    """Import what another process has imported; MachineError if its file changed
    since.
    """
    for name, before in known.items():
        if source(find("methods", name)) != before:  # a reference is of any kind
            raise MachineError(f"{name} has changed since this run began; start again")


def place_of(error: BaseException) -> str:
    """Return the file and line of one's own module in which an error arose; empty: in
    none.
    """
    names = {_module_of(value) for value, _ in _found.values()}
    own_names = [name for name in names if name.partition(".")[0] != HERE]
    modules = [sys.modules.get(name) for name in own_names]
    files = {getattr(module, "__file__", None) for module in modules}

    # The text has the frames of a worker, too.
    text = "".join(traceback.format_exception(error))
    place = ""
    for file, line in re.findall(r'File "(.+?)", line (\d+)', text):
        if file in files:
            place = f"{Path(file).name}, line {line}"
    return place


def _parts(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, type | FunctionType):
            yield value
        elif is_dataclass(value):
            yield type(value)
            yield from _parts(getattr(value, field.name) for field in fields(value))
