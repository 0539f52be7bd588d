"""Modules of the user, compiled from their source whenever they are imported.

Python runs a compiled copy of a module if the time and size of the source file equal the
time and size that are recorded in the copy. If a file is changed within a second, or its
old time is restored, and its size stays the same, then the old version runs. Here the
source is always compiled, and its bytes are kept, so that the code which is hashed is
the code that runs.
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

from ropelab.runs.errors import InputError, cut_text
from ropelab.runs.exits import files_of_user, guard_exits

PACKAGE = __name__.partition(".")[0]
# The names of folders of installed packages. An installer compiles what it writes, and a
# package such as torch is too large to be compiled again. In these folders only the
# module that the user named is compiled.
INSTALLED = {"site-packages", "dist-packages"}
STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
# The most parts of a module's dotted name. Python imports the packages that contain a
# module by nested calls, whose number is limited.
DEEPEST_MODULE = 50


class SourceOnly(SourceFileLoader):
    """Compiles the source of a module, even if there is a compiled copy, and keeps the
    source.
    """

    # The source, once the module is imported.
    content: bytes

    def get_code(self, fullname: str) -> CodeType:
        files_of_user.add(self.path)
        self.content = self.get_data(self.path)
        return self.source_to_code(self.content, self.path)


class _Finder(MetaPathFinder):
    """Finds modules as the finders of `sys.meta_path` do, and gives the user's modules
    to `SourceOnly`.
    """

    def __init__(self) -> None:
        # Folders whose modules belong to the user.
        self.folders: set[Path] = set()
        # Modules that the user named, and the packages that they are in.
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
        """Return True for a module that the user named, and for a module in the same
        folder as a named one.
        """
        if type(spec.loader) is not SourceFileLoader or spec.origin is None:
            return False
        if spec.name.partition(".")[0] == PACKAGE:
            return False

        folder = _find_folder_of_imports(spec)
        is_named = spec.name in self.names
        if is_named and not _is_installed(folder):
            self.folders.add(folder)
        return is_named or folder in self.folders


_finder = _Finder()


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Let `module` be imported inside the block.

    The module may be in the working folder. It is compiled from its source, and so are
    the modules that it imports from its own folder, now and later.

    InputError: the name has more parts than the name of any module, or is the name of a
    file.
    """
    guard_exits()
    parts = module.split(".")
    if len(parts) > 1 and parts[-1] == "py":
        file = Path(module)
        names = file.with_suffix("").parts
        if file.is_absolute():
            # A module is found from the working folder, or where packages are installed.
            names = names[-1:]
        raise InputError(
            f"{cut_text(module)} is a file; write its module, as in"
            f" {cut_text('.'.join(names))}:Name"
        )
    if len(parts) > DEEPEST_MODULE:
        raise InputError(
            f"a module is inside at most {DEEPEST_MODULE - 1} packages, not"
            f" {len(parts) - 1:,}"
        )
    working_folder = Path.cwd()
    # If a module is imported, the packages that contain it are imported, too.
    _finder.names.update(".".join(parts[: n + 1]) for n in range(len(parts)))
    _finder.folders.add(working_folder)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)

    # The working folder comes first for this import, and last afterwards. A file in it
    # that has the name of a library must not be imported instead of the library later.
    sys.path.insert(0, str(working_folder))
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(str(working_folder))
        if str(working_folder) not in sys.path:
            sys.path.append(str(working_folder))


def refuse_other_folder(module: str) -> None:
    """Raise InputError for a module that is loaded from another file than that of its
    name in the working folder.

    Python imports a module once. If the working folder is changed afterwards, its file is
    the one that the user means, and not the one that is loaded.
    """
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded is None:
        return
    path = Path(*module.split("."))
    # Python takes a package rather than a module of the same name.
    candidates = [path / "__init__.py", path.with_suffix(".py")]
    here = next((file for file in candidates if file.is_file()), None)
    if here is None:
        return

    # The file that was loaded may be gone.
    with suppress(OSError):
        if here.samefile(loaded):
            return
    raise InputError(
        f"{module} was imported from {loaded}, and the working folder has another {here};"
        " start a new process for it"
    )


def _find_folder_of_imports(spec: ModuleSpec) -> Path:
    """Return the entry of sys.path in which a module was found: `x` for the module
    `a.b` in `x/a/b.py`.
    """
    depth = spec.name.count(".")
    if spec.submodule_search_locations is not None:
        depth += 1
    parents = Path(str(spec.origin)).absolute().parents
    return parents[min(depth, len(parents) - 1)]


def _is_installed(folder: Path) -> bool:
    return folder.name in INSTALLED or folder == STANDARD_LIBRARY


def read_source(module: ModuleType, value: Any) -> bytes | None:
    """Return the source from which a value of a module was compiled; None for a module
    without a file.

    OSError: the source cannot be read. InputError: the file has changed since the
    import.
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
        if not (
            _is_compiled(module, path, code) and _has_all_functions(value, file, code)
        ):
            raise InputError(
                f"{path.name} has changed since it was imported; reload it, or start"
                " anew"
            )
    return content


def _is_compiled(module: ModuleType, path: Path, code: CodeType) -> bool:
    """Return False if Python imported a module from a compiled copy that differs from
    `code`.
    """
    cached = getattr(module.__spec__, "cached", None)
    if cached is None or not Path(cached).is_file():
        return True

    copy = Path(cached).read_bytes()
    source_stat = path.stat()
    source_facts = (
        int(source_stat.st_mtime) & 0xFFFFFFFF,
        source_stat.st_size & 0xFFFFFFFF,
    )
    # The head of a copy, by PEP 552. With the flags 0, the next two numbers are the
    # time and the size of the source. With other flags, the hash of the source is in
    # their place.
    flags, time, size = struct.unpack("<4x3I", copy[:16])
    if flags:
        return True
    if (time, size) != source_facts:
        # The copy was made from another version of the source. Python would have replaced
        # it, unless it was told to write no copies.
        return sys.dont_write_bytecode
    return bool(marshal.loads(copy[16:]) == code)


def _has_all_functions(value: Any, file: str, code: CodeType) -> bool:
    """Return True if `code`, which was compiled from a file now, has all functions of
    the value that were defined in that file.
    """
    compiled_codes = set(_list_codes(code))
    members = vars(value).values() if isinstance(value, type) else [value]
    for member in members:
        # Class methods, static methods and decorators wrap a function.
        function = unwrap(getattr(member, "__func__", member))
        is_from_file = isfunction(function) and function.__code__.co_filename == file
        if is_from_file and function.__code__ not in compiled_codes:
            return False
    return True


def _list_codes(code: CodeType) -> Iterable[CodeType]:
    """Yield the code of a file and of every function and class in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_codes(constant)
