"""Every package that ropelab imports is one that an installation brings."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Those that come with a declared package, and are imported for their types or names.
BROUGHT = {
    "typing_extensions": "pydantic",
    "pydantic_core": "pydantic",
    "markupsafe": "jinja2",
    "huggingface_hub": "transformers",
}


def normalise(package: str) -> str:
    return package.lower().replace("-", "_")


def list_declared() -> set[str]:
    """Return the packages of an installation with all extras but that for tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = list(project["dependencies"])
    for extra, needed in extras.items():
        if extra != "dev":
            lines += needed
    return {normalise(re.split(r"[<>=\[ ]", line)[0]) for line in lines}


def list_imported() -> dict[str, str]:
    """Return a file for each package from outside that ropelab imports anywhere."""
    imported: dict[str, str] = {}
    for path in (ROOT / "ropelab").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                package = name.partition(".")[0]
                if package not in sys.stdlib_module_names and package != "ropelab":
                    imported.setdefault(package, str(path.relative_to(ROOT)))
    return imported


def test_what_is_imported_is_declared():
    declared = list_declared()
    distributions = packages_distributions()
    missing = {}
    for package, file in list_imported().items():
        owners = {normalise(name) for name in distributions.get(package, [package])}
        if BROUGHT.get(package) in declared or owners & declared:
            continue
        missing[package] = file
    assert not missing


def test_packages_of_the_tests_alone_are_not_declared():
    assert {"numpy", "torch", "ray"} <= list_declared()
    assert not {"scipy", "pytest", "mpmath"} & list_declared()
