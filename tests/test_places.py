"""The tests themselves: nothing of the checkout's results or of the user reaches them."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ropelab.runs.cell import Cells, Context
from ropelab.runs.engine.local import Workers
from tests.runs.cells_of_tests import Sum

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
POISON = "not a run\n"


def one_file_of_each_folder() -> list[Path]:
    """Return the smallest file of tests in each folder that has some."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        folders.setdefault(path.parent, []).append(path)
    return [
        min(paths, key=lambda path: path.stat().st_size) for paths in folders.values()
    ]


def list_files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.processes
def test_results_beside_the_tests_are_neither_read_nor_written(tmp_path):
    # The committed reference is read on purpose; all else in results is poisoned.
    for entry in ROOT.iterdir():
        if entry.name not in ("results", ".pytest_cache"):
            (tmp_path / entry.name).symlink_to(entry)
    results = tmp_path / "results"
    results.mkdir()
    (results / "reference").symlink_to(ROOT / "results" / "reference")
    for name in ("extrapolate", "precision", "freqs"):
        (results / name).write_text(POISON)
    for name in ("index.html", "index.md"):
        (results / name).write_text(POISON)
    home = tmp_path / "home"
    home.mkdir()

    asked = [str(path.relative_to(ROOT)) for path in one_file_of_each_folder()]
    assert len(asked) > 15
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *asked],
        cwd=tmp_path,
        env={
            name: value
            for name, value in {**os.environ, "HOME": str(home)}.items()
            if not name.startswith(("PYTEST_", "ROPELAB_TESTS"))
        },
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout
    assert list_files_below(home) == {}
    left = {
        name: content
        for name, content in list_files_below(results).items()
        if not name.startswith("reference/")
    }
    assert set(left.values()) == {POISON.encode()}
    assert len(left) == 5


def test_a_test_starts_in_an_empty_folder_with_a_home_of_its_own():
    here = Path.cwd()
    assert list(here.iterdir()) == []
    assert Path.home().parent == here.parent
    assert not here.is_relative_to(ROOT)


def test_no_process_is_started_where_a_test_does_not_say_so(tmp_path):
    before = set(psutil.Process().children(recursive=True))
    engine = Workers(2)
    context = Context(cells=Cells(tmp_path / "cells"))
    try:
        assert dict(engine.compute([Sum(0), Sum(1)], context)) == {
            Sum(0): None,
            Sum(1): None,
        }
    finally:
        engine.stop()
    assert set(psutil.Process().children(recursive=True)) <= before
