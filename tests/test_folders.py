"""Folders are there whole or not at all, whoever dies while writing."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE

import pytest
from filelock import FileLock, Timeout

from ropelab.runs.folders import (
    fingerprint,
    lock_folder,
    make_lock,
    replace_file,
    replace_folder,
    try_to_write,
)
from tests.processes import started


def contents(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_when_the_block_ends(tmp_path):
    target = tmp_path / "run"
    with lock_folder(target), replace_folder(target) as fresh:
        (fresh / "a").write_text("1")
        assert not target.exists()
    assert contents(target) == ["a"]
    assert contents(tmp_path) == ["run"]


def test_an_error_leaves_the_old_folder(tmp_path):
    target = tmp_path / "run"
    target.mkdir()
    (target / "old").write_text("1")
    with (
        pytest.raises(RuntimeError),
        lock_folder(target),
        replace_folder(target) as fresh,
    ):
        (fresh / "new").write_text("2")
        raise RuntimeError
    assert contents(target) == ["old"]
    assert contents(tmp_path) == ["run"]


def test_replacing_keeps_nothing_of_the_old(tmp_path):
    target = tmp_path / "run"
    for name in ("first", "second"):
        with lock_folder(target), replace_folder(target) as fresh:
            (fresh / name).write_text("x")
    assert contents(target) == ["second"]


def test_what_is_not_ours_stays_in_the_folder(tmp_path: Path) -> None:
    target = tmp_path / "run"
    (target / "notes/inside").mkdir(parents=True)
    (target / "notes/inside/a.txt").write_text("mine")
    (target / "mine.md").write_text("mine")
    (target / "link").symlink_to("nowhere")
    os.mkfifo(target / "pipe")
    (target / "ours").write_text("old")
    (target / "gone").write_text("old")
    for text in ("first", "second"):
        with (
            lock_folder(target),
            replace_folder(target, {"ours": (), "gone": ()}) as fresh,
        ):
            (fresh / "ours").write_text(text)
    assert contents(target) == ["link", "mine.md", "notes", "ours", "pipe"]
    assert (target / "ours").read_text() == "second"
    assert (target / "mine.md").read_text() == "mine"
    assert (target / "notes/inside/a.txt").read_text() == "mine"
    assert (target / "link").readlink() == Path("nowhere")
    assert contents(tmp_path) == ["run"]


def test_what_is_not_ours_is_copied_where_files_have_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "run"
    (target / "notes").mkdir(parents=True)
    (target / "notes/a.txt").write_text("mine")
    with lock_folder(target), replace_folder(target, {"ours": ()}) as fresh:
        (fresh / "ours").write_text("new")
    assert (target / "notes/a.txt").read_text() == "mine"


def test_what_is_not_ours_stays_in_folders_of_ours(tmp_path: Path) -> None:
    target = tmp_path / "run"
    (target / "tables").mkdir(parents=True)
    (target / "tables/mine.csv").write_text("mine")
    (target / "tables/ours.csv").write_text("old")
    (target / "tables/.0a-1b.new").write_text("half")
    ours = {"tables": {"ours.csv"}}
    with lock_folder(target), replace_folder(target, ours) as fresh:
        (fresh / "new").touch()
    assert contents(target / "tables") == ["mine.csv"]
    assert (target / "tables/mine.csv").read_text() == "mine"


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK])
def test_what_cannot_be_kept_stops_the_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """A copy of a device would be all that it has, which may have no end."""
    target = tmp_path / "run"
    target.mkdir()
    (target / "ours").write_text("old")
    os.mknod(target / "mine", 0o600 | kind)

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with (
        pytest.raises(OSError, match="Cannot be kept") as caught,
        lock_folder(target),
        replace_folder(target, {"ours": ()}) as fresh,
    ):
        (fresh / "ours").write_text("new")
    assert caught.value.errno == errno.EACCES
    assert (target / "ours").read_text() == "old"
    assert contents(tmp_path) == ["run"]


def test_trying_to_write_replaces_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / ".writable").write_text("mine")
    try_to_write(tmp_path)
    assert contents(tmp_path) == [".writable"]
    assert (tmp_path / ".writable").read_text() == "mine"
    with pytest.raises(OSError, match="Not a directory"):
        try_to_write(tmp_path / ".writable" / "inside")


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
    with lock_folder(target):
        assert contents(target) == ["old"]
    assert contents(tmp_path) == ["run"]


HOLD = """
import sys, time
from pathlib import Path
from ropelab.runs.folders import lock_folder, replace_folder
target = Path(sys.argv[1])
with lock_folder(target), replace_folder(target) as fresh:
    (fresh / "half").write_text("1")
    print("holding", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder `run` and is half through writing it."""
    with started("-c", HOLD, str(tmp_path / "run"), stdout=PIPE) as process:
        assert process.stdout.readline() == "holding\n"
        yield process


@pytest.mark.processes
def test_kill_minus_nine_while_writing(tmp_path, holder):
    holder.kill()
    holder.wait()
    with lock_folder(tmp_path / "run"):
        assert not (tmp_path / "run").exists()
    assert contents(tmp_path) == []


@pytest.mark.processes
def test_a_second_process_waits_and_is_told(tmp_path, holder):
    told = []

    def waiting(folder):
        told.append(folder)
        holder.kill()

    with lock_folder(tmp_path / "run", waiting):
        assert told == [tmp_path / "run"]


def write(path, text):
    with replace_file(path) as fresh:
        fresh.write_text(text)


def test_a_file_appears_when_the_block_ends(tmp_path):
    target = tmp_path / "index.md"
    write(target, "old")
    with pytest.raises(RuntimeError), replace_file(target) as fresh:
        fresh.write_text("half")
        assert target.read_text() == "old"
        raise RuntimeError
    assert contents(tmp_path) == ["index.md"]
    write(target, "new")
    assert (contents(tmp_path), target.read_text()) == (["index.md"], "new")


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a link", "a link to a device"])
def test_what_is_no_file_is_not_replaced_by_one(tmp_path, kind):
    target = tmp_path / "page.html"
    make: dict[str, Callable[[Path], object]] = {
        "a folder": Path.mkdir,
        "a pipe": os.mkfifo,
        "a link": lambda path: path.symlink_to("x"),
    }
    make.get(kind, lambda path: path.symlink_to("/dev/null"))(target)
    before = target.lstat()
    with pytest.raises(OSError, match=r"Is a directory|Not a regular file"):
        write(target, "text")
    assert target.lstat() == before
    assert contents(tmp_path) == ["page.html"]


DIE = """
import os, sys
from pathlib import Path
from ropelab.runs.folders import replace_file
with replace_file(Path(sys.argv[1])) as fresh:
    fresh.write_text("half")
    os._exit(9)
"""


@pytest.mark.processes
def test_what_a_dead_writer_of_a_file_left_goes_with_the_next_one_of_that_file(
    tmp_path,
):
    for name in ("index.md", "index.html"):
        subprocess.run([sys.executable, "-c", DIE, str(tmp_path / name)])
    write(tmp_path / "index.md", "whole")
    (other,) = tmp_path.glob(".*.new")
    assert other.read_text() == "half"
    write(tmp_path / "index.html", "whole")
    assert contents(tmp_path) == ["index.html", "index.md"]


WITHOUT_LOCKS = """
import errno, fcntl, os, sys
from pathlib import Path

def refuse(descriptor, operation):
    raise OSError(errno.NUMBER, os.strerror(errno.NUMBER))

fcntl.flock = refuse
from ropelab.runs.folders import lock_folder, replace_folder, replace_file
from ropelab.runs.temporary import TemporaryFolder

TemporaryFolder(sys.argv[3]).cleanup()
target = Path(sys.argv[1])
with lock_folder(target), replace_folder(target) as fresh:
    (fresh / "a").write_text("1")
with replace_file(target.with_name("index.md")) as fresh:
    fresh.write_text("whole")
with lock_folder(target):
    os._exit(int(sys.argv[2]))
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="locks are others there")
@pytest.mark.parametrize("answer", ["ENOSYS", "ENOLCK", "EOPNOTSUPP"])
def test_a_file_system_without_locks_serves_as_well(tmp_path, answer):
    places = [tmp_path / "results" / "run", tmp_path / "temporary"]
    places[1].mkdir()
    for code in (0, 9, 0):  # the second dies with the folder in its hands
        command = [
            sys.executable,
            "-W",
            "error",
            "-c",
            WITHOUT_LOCKS.replace("NUMBER", answer),
        ]
        done = subprocess.run(
            [*command, str(places[0]), str(code), str(places[1])],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (code, "")
    assert contents(places[0]) == ["a"]
    assert (places[0].parent / "index.md").read_text() == "whole"
    assert contents(places[1]) == []


@pytest.mark.parametrize("answer", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_lock_without_locks_keeps_others_out(tmp_path, monkeypatch, answer):
    fcntl = pytest.importorskip("fcntl")

    def refuse(descriptor: object, operation: int) -> None:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = tmp_path / ".run.lock"
    with make_lock(lock).acquire(timeout=0):
        assert lock.exists()
        with pytest.raises(Timeout):
            make_lock(lock).acquire(timeout=0)
    assert not lock.exists()


LAST = """
import sys
from pathlib import Path
from ropelab.runs.folders import replace_file
with replace_file(Path(sys.argv[1])) as fresh:
    fresh.write_text("first")
    print("holding", flush=True)
    sys.stdin.read()
"""


@pytest.mark.processes
def test_what_a_living_writer_of_a_file_has_written_stays(tmp_path, monkeypatch):
    target, tried = tmp_path / "index.md", []

    acquire = FileLock.acquire

    def watched(lock, *arguments, **named):
        tried.append(lock)
        return acquire(lock, *arguments, **named)

    monkeypatch.setattr(FileLock, "acquire", watched)
    # The first is killed before the pool is left, which waits for the second.
    with (
        ThreadPoolExecutor() as pool,
        started("-c", LAST, str(target), stdin=PIPE, stdout=PIPE) as first,
    ):
        assert first.stdout.readline() == "holding\n"
        second = pool.submit(write, target, "second")
        while len(tried) < 2:  # the second try is the one that waits
            assert not second.done(), second.exception()
        first.stdin.close()
        second.result()
        assert first.wait() == 0
    assert (contents(tmp_path), target.read_text()) == (["index.md"], "second")


def test_fingerprints_ignore_order_and_see_values():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 1.5})
    with pytest.raises(ValueError, match="JSON"):
        fingerprint({"a": float("nan")})


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["a pipe", "a link", "a folder", "a file", "nothing"])
def test_whatever_it_is_it_is_removed_at_once(tmp_path: Path, kind: str) -> None:
    path, kept = tmp_path / "x", tmp_path / "kept"
    kept.mkdir()
    makers: dict[str, Callable[[Path], object]]
    makers = {"a pipe": os.mkfifo, "a folder": Path.mkdir, "a file": Path.touch}
    makers |= {
        "a link": lambda path: path.symlink_to(kept),
        "nothing": lambda path: None,
    }
    makers[kind](path)
    code = (
        "import sys; from pathlib import Path; from ropelab.runs.folders import"
        " remove; "
    )
    command = [sys.executable, "-c", code + "remove(Path(sys.argv[1]))", str(path)]
    assert subprocess.run(command, timeout=60).returncode == 0
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="nothing can be made in /proc")
def test_where_no_lock_can_be_made_nobody_waits_for_one():
    command = [sys.executable, "-c", IN_PROC]
    assert subprocess.run(command, timeout=60).returncode == 0


IN_PROC = """
from pathlib import Path
from ropelab.runs.folders import replace_file
try:
    with replace_file(Path("/proc/file")):
        pass
except FileNotFoundError:
    raise SystemExit(0)
"""
