"""Empty stand-ins for the parts of a serving package that its rotary modules import and
do not use.

The rotary modules, the length rules and the config patches are the package's own,
unpacked from its wheel; everything else under the package's name becomes a mock, so
that no GPU is needed.
"""

import __future__

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock


class Mocked(ModuleType):
    """A module of which any name can be imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds real files below `root` for names in `real`, and mocks the rest of the
    package.
    """

    def __init__(
        self, root: Path, package: str, real: tuple[str, ...], own: Mapping[str, Any]
    ):
        self.root, self.package, self.real, self.own = root, package, real, own

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != self.package:
            return None
        if name.startswith(self.real):
            return self._real(name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def _real(self, name):
        base = self.root.joinpath(*name.split("."))
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        places = [str(base)] if base.is_dir() else None
        return importlib.util.spec_from_file_location(
            name, file, submodule_search_locations=places
        )

    def create_module(self, spec):
        module = Mocked(spec.name)
        vars(module).update(self.own.get(spec.name, {}))
        return module

    def exec_module(self, module):
        pass


def install(
    root: str, package: str, real: tuple[str, ...], own: Mapping[str, Any]
) -> None:
    """Put the finder before all others."""
    sys.meta_path.insert(0, Finder(Path(root), package, real, own))


def functions(
    file: Path, names: tuple[str, ...], namespace: dict[str, Any]
) -> dict[str, Any]:
    """Only the named functions and constants of a file, run in a namespace of
    stand-ins.
    """
    tree = ast.parse(file.read_text())
    chosen = [node for node in tree.body if _name(node) in names]
    lazy = __future__.annotations.compiler_flag
    exec(compile(ast.Module(chosen, []), str(file), "exec", flags=lazy), namespace)
    return namespace


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""
