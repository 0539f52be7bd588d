"""Rooms import from lower rooms only, and importing the package is light."""

import ast
from pathlib import Path

import pytest

import ropelab
from tests.imports import imported_by

PACKAGE = Path(ropelab.__file__).parent

# Which rooms each room may import, from the ground up. CONTRIBUTING.md says the same.
MAY_IMPORT = {
    "runs": set(),
    "math": {"runs"},
    "models": {"math", "runs"},
    "show": {"math", "runs"},
    "readers": {"math", "runs"},
    "audit": {"readers", "math", "runs"},
    "conformance": {"readers", "models", "math", "runs"},
    "testing": {"conformance", "runs"},
    "claims": {"models", "math", "runs"},
    # One file, which hands tables to the figures of its experiment.
    "experiments": {"models", "show", "math", "runs"},
    "plan": {"claims", "experiments", "show", "runs"},
    "restate": {"plan", "experiments", "runs"},
    "lab": {"plan", "experiments", "readers", "math", "runs"},
    "sweeps": {"lab", "plan", "show", "runs"},
    "cli": {
        "sweeps",
        "lab",
        "restate",
        "plan",
        "experiments",
        "claims",
        "conformance",
        "audit",
        "readers",
        "show",
        "models",
        "math",
        "runs",
    },
}


def modules():
    return sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__main__.py")


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path):
    """What a file imports, wherever in the file it does so, by its whole name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def imported_rooms(path):
    """The rooms of ropelab that a file imports."""
    for name in imported_modules(path):
        parts = name.split(".")
        if parts[0] == "ropelab" and len(parts) > 1 and parts[1] in MAY_IMPORT:
            yield parts[1]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    here = room(path)
    if here == "__init__":
        return
    for other in set(imported_rooms(path)) - {here}:
        assert other in MAY_IMPORT[here], f"{here} must not import {other}"


def experiment(path):
    """The experiment a file belongs to, None for one that belongs to all or to none."""
    parts = path.relative_to(PACKAGE).parts
    return parts[1] if parts[0] == "experiments" and len(parts) > 2 else None


def imported_experiments(path):
    """The experiments that a file imports, wherever in the file it does so."""
    for name in imported_modules(path):
        parts = name.split(".")
        if parts[:2] == ["ropelab", "experiments"] and len(parts) > 2:
            yield parts[2]


@pytest.mark.parametrize(
    "path",
    [p for p in modules() if experiment(p) is not None],
    ids=lambda p: str(p.relative_to(PACKAGE)),
)
def test_no_experiment_imports_another(path):
    assert set(imported_experiments(path)) <= {experiment(path)}


def test_every_room_has_its_row():
    assert {room(path) for path in modules()} - {"__init__"} == set(MAY_IMPORT)


def test_imports_go_in_no_circle():
    below: set[str] = set()
    for name, allowed in MAY_IMPORT.items():
        assert allowed <= below, f"{name} stands above what it may import"
        below.add(name)


def test_contributing_states_the_same_imports():
    rows = {}
    for line in (PACKAGE.parent / "CONTRIBUTING.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith("`ropelab/"):
            name = Path(cells[0].strip("`")).stem
            rows[name] = set(cells[2].split(", ")) - {"-"}
    assert rows == MAY_IMPORT


@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["precision", "--help"], ["encodings", "--help"], ["--version"]],
)
def test_help_imports_nothing_heavy(arguments):
    assert imported_by(*arguments) == (0, set())


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_commands_are_listed_without_what_makes_their_flags(arguments):
    of_flags = ("pydantic", "ropelab.runs.config", "ropelab.experiments.freqs")
    assert imported_by(*arguments, among=of_flags)[1] == set()


@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments",
    [
        ["freqs", "--method", "yarn(factor=4)"],
        ["base", "--context", "64"],
        ["precision", "--length", "256", "--long-lengths", "512"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_the_mathematics_answers_without_torch_and_without_drawing(arguments, tmp_path):
    for _ in ("a fresh run", "the same run, reused"):
        status, imported = imported_by(*arguments, "--json", "--results", tmp_path)
        assert status == 0
        assert "numpy" in imported
        assert not imported & {"torch", "matplotlib"}
