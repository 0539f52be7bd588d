"""A compiled copy that is older than its file, with the same size and time."""

import importlib
import json
import os
import py_compile
import sys
from pathlib import Path
from typing import Any

import pytest

from ropelab.conformance.check import check
from ropelab.runs.errors import InputError
from ropelab.runs.from_source import importing
from tests.conformance.test_check import LLAMA
from tests.texts import mentions

ROTATE = """
import numpy as np
from own_helper import SIGN

INV = 500000.0 ** (-np.arange(32) / 32)

def make():
    def tables(positions):
        angles = +SIGN * positions[:, None] * INV
        return np.cos(angles), np.sin(angles)
    return tables
"""
HELPER = "SIGN = +1\n"


def write_both(path: Path, compiled: str, now: str) -> None:
    """Compile one version, and write another of the same size and time."""
    assert len(compiled) == len(now)
    path.write_text(compiled)
    py_compile.compile(str(path), doraise=True)
    before = path.stat()
    path.write_text(now)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return tmp_path


@pytest.mark.processes
@pytest.mark.parametrize("changed", ["own_code.py", "own_helper.py"])
@pytest.mark.parametrize("wrong", [False, True])
def test_check_runs_the_file_and_not_its_compiled_copy(
    here: Path, changed: str, wrong: bool
) -> None:
    files = {"own_code.py": ROTATE, "own_helper.py": HELPER}
    for name, text in files.items():
        (here / name).write_text(text)
    flipped = files[changed].replace("+SIGN", "-SIGN").replace("+1", "-1")
    versions = (flipped, files[changed])
    compiled, now = reversed(versions) if wrong else versions
    write_both(here / changed, compiled, now)

    done = check("own_code:make", config="config.json")

    assert done.wrong == wrong
    if wrong:
        assert mentions(done.answer, "wrong sign")


def test_what_was_compiled_is_kept_beside_the_module(here: Path) -> None:
    write_both(here / "own_stale.py", "SIGN = +1\n", "SIGN = -1\n")
    sys.path.insert(0, str(here))

    with importing("own_stale"):
        module: Any = importlib.import_module("own_stale")

    assert module.SIGN == -1
    assert module.__spec__.loader.content == b"SIGN = -1\n"


def test_installed_modules_are_loaded_as_python_loads_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with importing("own_stale"):
        module: Any = importlib.import_module("colorsys")

    assert not hasattr(module.__spec__.loader, "content")


@pytest.mark.processes
def test_a_file_that_has_no_source_is_still_one_line(here: Path) -> None:
    (here / "own_code.py").write_bytes(b"\x00\xff")
    with pytest.raises(InputError, match="own_code") as caught:
        check("own_code:make", config="config.json")
    assert "\n" not in str(caught.value)
