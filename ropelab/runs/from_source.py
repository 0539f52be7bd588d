"""Modules of the user, compiled from their source whenever they are imported.

Python runs a compiled copy of a module if time and size of its source still fit. Two
versions of equal size, written within a second or copied with their times, are then
taken for one another: the old one runs, and the file names the new one. Here the bytes
that are compiled are kept, so that what is hashed is what runs.
"""

import marshal
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from inspect import isfunction, unwrap
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ropelab.runs.errors import InputError

PACKAGE = __name__.partition(".")[0]
# Folders of installed packages. Whoever writes there compiles, too, and a package such
# as torch is too large to be compiled again: only the module that was named is.
INSTALLED = {"site-packages", "dist-packages"}
STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))


class SourceOnly(SourceFileLoader):
    """Compiles what it reads, whatever compiled copies there are, and keeps it."""

    content: bytes

    def get_code(self, fullname: str) -> CodeType:
        self.content = self.get_data(self.path)
        return self.source_to_code(self.content, self.path)


class _Finder(MetaPathFinder):
    """Finds what the other finders find; what belongs to the user is not cached."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()
        self.names: set[str] = set()

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is self:
                continue

            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if self._is_of_the_user(spec):
                    spec.loader = SourceOnly(spec.name, str(spec.origin))
                return spec

        return None

    def _is_of_the_user(self, spec: ModuleSpec) -> bool:
        if type(spec.loader) is not SourceFileLoader or spec.origin is None:
            return False
        if spec.name.partition(".")[0] == PACKAGE:
            return False

        folder = _folder_of_imports(spec)
        if spec.name in self.names and not _is_installed(folder):
            self.folders.add(folder)
        return spec.name in self.names or folder in self.folders


_finder = _Finder()


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Import a module in the block: from the working folder, else from where it is.

    It is compiled from its source, as is all that it imports from its own folder, now
    and later.
    """
    parts = module.split(".")
    here = Path.cwd()
    _finder.names.update(".".join(parts[: n + 1]) for n in range(len(parts)))
    _finder.folders.add(here)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)

    # The folder comes first for this import alone: a file of the name of some library
    # must not be taken for it when ropelab imports that library later.
    sys.path.insert(0, str(here))
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(str(here))
        if str(here) not in sys.path:
            sys.path.append(str(here))


def _folder_of_imports(spec: ModuleSpec) -> Path:
    """Return the entry of the path that a module was found by: `x` for `x/a/b.py`."""
    depth = spec.name.count(".")
    if spec.submodule_search_locations is not None:
        depth += 1
    parents = Path(str(spec.origin)).absolute().parents
    return parents[min(depth, len(parents) - 1)]


def _is_installed(folder: Path) -> bool:
    return folder.name in INSTALLED or folder == STANDARD_LIBRARY


def read_source(module: ModuleType, value: Any) -> bytes | None:
    """Return the bytes that a value of a module was compiled from; None without a file.

    OSError if they cannot be read, InputError if the file has changed since.
    """
    file = getattr(module, "__file__", None)
    if not file:
        return None

    loader = getattr(module.__spec__, "loader", None) or module.__loader__
    if isinstance(loader, SourceOnly):
        return loader.content

    path = Path(file)
    content = path.read_bytes()
    if type(loader) is SourceFileLoader:
        code = loader.source_to_code(content, file)
        if not (_is_compiled(module, path, code) and _runs(value, file, code)):
            raise InputError(
                f"{path.name} has changed since it was imported; reload it, or start"
                " anew"
            )
    return content


def _is_compiled(module: ModuleType, path: Path, code: CodeType) -> bool:
    """Return False if the compiled copy of a file is of another text than this one."""
    cached = getattr(module.__spec__, "cached", None)
    if cached is None or not Path(cached).is_file():
        return True

    copy = Path(cached).read_bytes()
    state = path.stat()
    # Flags (0: what follows is time and size of the source), see PEP 552.
    flags, *written = struct.unpack("<4x3I", copy[:16])
    if flags:
        return True
    if written != [int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF]:
        # A copy that is not written any more may be older than the import.
        return sys.dont_write_bytecode
    return bool(marshal.loads(copy[16:]) == code)


def _runs(value: Any, file: str, code: CodeType) -> bool:
    """Return True if all functions of a value that are from a file are in its code."""
    compiled = set(_codes_in(code))
    members = vars(value).values() if isinstance(value, type) else [value]
    # Without what wraps them: class and static methods, decorators.
    functions = [unwrap(getattr(member, "__func__", member)) for member in members]
    return all(
        function.__code__ in compiled
        for function in functions
        if isfunction(function) and function.__code__.co_filename == file
    )


def _codes_in(code: CodeType) -> Iterable[CodeType]:
    """Yield the code of a file and of every function and class in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_in(constant)
