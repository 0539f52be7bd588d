"""Methods, encodings, tasks and cast plans of the user, from outside of this package.

The user names an object in one of three ways:

- a reference `module:Name`, where the module is in the working folder or installed;
- the name of an entry point of an installed package, in the group `ropelab.methods`,
  `ropelab.encodings`, `ropelab.tasks` or `ropelab.casts`;
- from Python, the object itself.

`find_own` returns the object of a name. A fingerprint of the object's source code is
part of the key of every cell that depends on the object, so that changed code gets new
results.
"""

import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from os import chdir
from pathlib import Path
from pkgutil import resolve_name
from types import FunctionType
from typing import Any, Literal

from ropelab.runs.errors import InputError, MachineError, RopelabError, describe_error
from ropelab.runs.exits import files_of_user
from ropelab.runs.from_source import importing, read_source, refuse_other_folder

Kind = Literal["methods", "encodings", "tasks", "casts"]
REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
PACKAGE = __name__.partition(".")[0]
# The objects that were named so far, by kind and name. The kind is empty for a reference.
# The second value of an entry identifies the import of the object's module (`_import_of`).
# If the module is reloaded, which may put new code into the same object, `_import_of`
# returns another value, and the entry is not used any more.
_objects: dict[tuple[str, str], tuple[Any, object]] = {}
# The fingerprint of the source of each object, and the value of `_import_of` for it.
_fingerprints: dict[Any, tuple[str, object]] = {}
# The references of objects that were given themselves, from Python.
_given: set[str] = set()


def find_own(kind: Kind, name: str) -> Any | None:
    """Return the object of a name, or None if the name has no meaning outside of this
    package.

    InputError: the name is a reference, and cannot be imported.
    """
    is_reference = REFERENCE.fullmatch(name)
    # A reference names one object, whatever kind of object is wanted.
    key = ("" if is_reference else kind, name)
    value, import_before = _objects.get(key, (None, None))
    if value is not None and import_before is _import_of(value):
        if is_reference and name not in _given:
            refuse_other_folder(name.partition(":")[0])
        return value

    entry_point = list_entry_points(kind).get(name)
    if entry_point:
        value = _import(entry_point.value)
    elif is_reference:
        refuse_other_folder(name.partition(":")[0])
        value = _import(name)
    else:
        return None

    # A cast plan is identified by its text, so it may be defined anywhere.
    if kind != "casts":
        _check_top_level(name, value)
    _objects[key] = value, _import_of(value)
    return value


def _import_of(value: Any) -> object:
    """Return the spec of a value's module, which identifies an import of the module: each
    import makes a new spec.
    """
    return getattr(sys.modules.get(_find_module(value)), "__spec__", None)


def _find_module(value: Any) -> str:
    # A reference may name a number or a list, which have no module.
    return getattr(value, "__module__", None) or ""


@cache
def list_entry_points(kind: Kind) -> dict[str, EntryPoint]:
    """Return the entry points of installed packages, by name."""
    return {point.name: point for point in entry_points(group=f"ropelab.{kind}")}


def _import(reference: str) -> Any:
    try:
        with keep_surroundings(), importing(reference.partition(":")[0]):
            return resolve_name(reference)
    except RopelabError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # The code of a module may raise any error.
        error_name = type(error).__name__
        text = describe_error(error)
        raise InputError(
            f"cannot load {reference}: {error_name}: {text} (docs/own.md)"
        ) from None


def write_reference(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"


def spell_value(value: Any) -> Any:
    """Return a value as it would be typed.

    A class or function is replaced by its reference, also inside lists and tuples. It is
    remembered, so that `find_own` knows it.
    """
    if isinstance(value, list):
        return [spell_value(item) for item in value]
    if isinstance(value, tuple):
        return tuple(map(spell_value, value))

    if isinstance(value, type | FunctionType):
        return _remember(value)
    if is_dataclass(value) and hasattr(value, "label"):
        if is_own(type(value)):
            _remember(type(value))
        return value.label
    return value


def _remember(value: Any) -> str:
    """Keep an object for `find_own`, and return its reference."""
    reference = write_reference(value)
    _check_top_level(reference, value)
    _objects["", reference] = value, _import_of(value)
    _given.add(reference)
    return reference


def _check_top_level(name: str, value: Any) -> None:
    """Raise InputError for an object that cannot be found in its module under its name.

    For example, a function that is defined inside another function may depend on values
    that its source does not show.
    """
    named_object: Any = sys.modules.get(_find_module(value))
    for part in getattr(value, "__qualname__", "<no name>").split("."):
        named_object = getattr(named_object, part, None)
    if named_object is not value:
        raise InputError(f"{name}: define it at the top level of a module or notebook")


def is_own(value: Any) -> bool:
    """Return True for a class or function that is defined outside of this package."""
    return value.__module__.partition(".")[0] != PACKAGE


def make_sources_key(*values: Any) -> dict[str, Any]:
    """Return the entry `own` of a cell's key: the fingerprints of the user's classes and
    functions in some values. The result is empty if there are none.

    Classes and functions of ropelab are left out, since the version of a cell identifies
    them.
    """
    by_reference = {}
    for definition in _list_definitions(values):
        if is_own(definition):
            by_reference[write_reference(definition)] = fingerprint_source(definition)
    if not by_reference:
        return {}
    return {"own": dict(sorted(by_reference.items()))}


def find_sources(values: Any) -> dict[str, str]:
    """Return the fingerprints of all objects of the user that are named in values which
    JSON can hold.
    """
    text = repr(values)
    by_name: dict[str, str] = {}
    for (_, name), (value, _) in sorted(_objects.items(), key=lambda item: item[0]):
        if name in text:
            # A method and a task, for example, may have the same name. Their fingerprints
            # are then joined.
            by_name[name] = by_name.get(name, "") + fingerprint_source(value)
    return by_name


def fingerprint_source(value: Any) -> str:
    """Return a fingerprint of the file that defines an object; in a notebook, of the
    source of the object.
    """
    if value in _fingerprints:
        fingerprint, import_before = _fingerprints[value]
        if import_before is _import_of(value):
            return fingerprint

    # A value that is not code, such as a cast plan, is identified by its text.
    is_code = hasattr(value, "__qualname__")
    content = _read_source(value) if is_code else repr(value).encode()
    # A file may have other line ends on another system.
    lines = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    fingerprint = hashlib.sha256(lines).hexdigest()[:16]
    _fingerprints[value] = fingerprint, _import_of(value)
    return fingerprint


def _read_source(value: Any) -> bytes:
    module = sys.modules.get(value.__module__)
    try:
        content = read_source(module, value) if module is not None else None
        if content is None:
            content = inspect.getsource(value).encode()
    except (OSError, TypeError):
        raise InputError(
            f"the source of {write_reference(value)} cannot be read"
        ) from None
    return content


def list_known_sources() -> dict[str, str]:
    """Return the fingerprints of all objects that another process can import, by
    reference.
    """
    by_reference = {}
    for value, _ in _objects.values():
        is_code = hasattr(value, "__qualname__")
        # Another process cannot import what was defined in the main script.
        if is_code and value.__module__ != "__main__":
            by_reference[write_reference(value)] = fingerprint_source(value)
    return by_reference


def check_sources(known: Mapping[str, str]) -> None:
    """Import the objects that another process has imported; MachineError if a file has
    changed since then.

    `known` has the fingerprints of that process, by reference.
    """
    for name, known_fingerprint in known.items():
        # Every name here is a reference, which `find_own` imports whatever the kind.
        if fingerprint_source(find_own("methods", name)) != known_fingerprint:
            raise MachineError(f"{name} has changed since this run began; start again")


@contextmanager
def keep_surroundings() -> Iterator[None]:
    """Undo two changes that code of the user may make in the block.

    The working folder, in which results are stored, becomes the current folder again.
    Folders that were removed from `sys.path` are put at its end.
    """
    working_folder = Path.cwd()
    path_before = [*sys.path]
    try:
        yield
    finally:
        if Path.cwd() != working_folder:
            chdir(working_folder)
        sys.path += [folder for folder in path_before if folder not in sys.path]


def find_place_of_error(error: BaseException) -> str:
    """Return the file and line in a module of the user at which an error arose; empty
    if it arose elsewhere.
    """
    names = {_find_module(value) for value, _ in _objects.values()}
    own_names = [name for name in names if name.partition(".")[0] != PACKAGE]
    modules = [sys.modules.get(name) for name in own_names]
    files = {getattr(module, "__file__", None) for module in modules}
    files |= files_of_user

    # The lines are read from the text of the traceback. Only the text also has the lines
    # of a worker process in which the error arose.
    text = "".join(traceback.format_exception(error))
    place = ""
    for file, line in re.findall(r'File "(.+?)", line (\d+)', text):
        if file in files:
            place = f"{Path(file).name}, line {line}"
    return place


def _list_definitions(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the classes and functions among some values and among the fields of these
    values.
    """
    for value in values:
        if isinstance(value, type | FunctionType):
            yield value
        elif is_dataclass(value):
            yield type(value)
            yield from _list_definitions(
                getattr(value, field.name) for field in fields(value)
            )
