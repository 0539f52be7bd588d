"""Folders are there whole or not at all, whoever dies while writing."""

import subprocess
import sys

import pytest

from ropelab.folders import fingerprint, locked, replaced


def contents(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_when_the_block_ends(tmp_path):
    target = tmp_path / "run"
    with locked(target), replaced(target) as fresh:
        (fresh / "a").write_text("1")
        assert not target.exists()
    assert contents(target) == ["a"]
    assert contents(tmp_path) == ["run"]


def test_an_error_leaves_the_old_folder(tmp_path):
    target = tmp_path / "run"
    target.mkdir()
    (target / "old").write_text("1")
    with pytest.raises(RuntimeError), locked(target), replaced(target) as fresh:
        (fresh / "new").write_text("2")
        raise RuntimeError
    assert contents(target) == ["old"]
    assert contents(tmp_path) == ["run"]


def test_replacing_keeps_nothing_of_the_old(tmp_path):
    target = tmp_path / "run"
    for name in ("first", "second"):
        with locked(target), replaced(target) as fresh:
            (fresh / name).write_text("x")
    assert contents(target) == ["second"]


@pytest.mark.parametrize("moment", ["writing", "between the renames"])
def test_a_dead_writer_is_cleaned_up_by_the_next(tmp_path, moment):
    target = tmp_path / "run"
    if moment == "writing":
        target.mkdir()
        (target / "old").write_text("1")
    else:
        (tmp_path / ".run.old").mkdir()
        (tmp_path / ".run.old" / "old").write_text("1")
    (tmp_path / ".run.new").mkdir()
    (tmp_path / ".run.new" / "half").write_text("")
    with locked(target):
        assert contents(target) == ["old"]
    assert contents(tmp_path) == ["run"]


HOLD = """
import sys, time
from pathlib import Path
from ropelab.folders import locked, replaced
target = Path(sys.argv[1])
with locked(target), replaced(target) as fresh:
    (fresh / "half").write_text("1")
    print("holding", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder `run` and is half through writing it."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "holding\n"
        yield process
        process.kill()


def test_kill_minus_nine_while_writing(tmp_path, holder):
    holder.kill()
    holder.wait()
    with locked(tmp_path / "run"):
        assert not (tmp_path / "run").exists()
    assert contents(tmp_path) == []


def test_a_second_process_waits_and_is_told(tmp_path, holder):
    told = []

    def waiting(folder):
        told.append(folder)
        holder.kill()

    with locked(tmp_path / "run", waiting):
        assert told == [tmp_path / "run"]


def test_fingerprints_ignore_order_and_see_values():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 1.5})
    with pytest.raises(ValueError, match="JSON"):
        fingerprint({"a": float("nan")})
