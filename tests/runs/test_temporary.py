"""Temporary folders and semaphores: gone with their process, or with the next start."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from ropelab.runs import temporary
from ropelab.runs.cell import Cells
from ropelab.runs.temporary import TemporaryFolder
from tests.processes import started, wait_until

WORKING = """
import sys
from pathlib import Path
from ropelab.runs.cell import Cells, Context
from ropelab.runs.engine.local import Workers
from tests.runs.cells_of_tests import Sleeps
context = Context(cells=Cells())
(Path(sys.argv[1]) / "root").write_text(str(context.cells.root))
list(Workers(2).compute([Sleeps(n, folder=sys.argv[1]) for n in range(2)], context))
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The folder of temporary folders."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return place


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="semaphores are files in /dev/shm")
def test_what_a_killed_family_leaves_goes_with_the_next_start(tmp_path, place):
    with started("-c", WORKING, str(tmp_path), start_new_session=True) as process:
        wait_until(lambda: len(list(tmp_path.glob("pid-*"))) == 2)
        theirs = f"sem.loky-{process.pid}-*"
        with TemporaryFolder():  # nobody takes what belongs to a living process
            assert len(list(place.iterdir())) == 3
            assert list(temporary.SHARED.glob(theirs))
        os.killpg(process.pid, signal.SIGKILL)
    assert Path((tmp_path / "root").read_text()).is_dir()
    other = temporary.SHARED / f"sem.loky-{process.pid}-another"
    other.touch()
    try:
        with TemporaryFolder() as mine:
            assert [path.name for path in place.iterdir()] == [Path(mine).name]
            assert list(temporary.SHARED.glob(theirs)) == [other]  # in no list of ours
    finally:
        other.unlink()


def test_a_folder_goes_with_its_object_and_others_stay(place):
    (place / "ropelab-of-somebody").mkdir()
    cells = Cells()
    assert (cells.root / temporary.LOCK).exists()
    del cells
    assert [path.name for path in place.iterdir()] == ["ropelab-of-somebody"]


def test_a_folder_of_another_user_and_a_link_are_left_alone(
    place, tmp_path, monkeypatch
):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / temporary.SEMAPHORES).touch()
    (place / "ropelab-link").symlink_to(mine)
    with TemporaryFolder():
        assert list(mine.iterdir()) == [mine / temporary.SEMAPHORES]
    dead = place / "ropelab-dead"
    dead.mkdir()
    (dead / temporary.SEMAPHORES).write_text("../../etc/passwd\nsem.loky-1-x/../y\n")
    temporary._remove_leftovers(place, os.getuid() + 1)
    assert dead.is_dir()
    temporary._remove_leftovers(place, os.getuid())
    assert not dead.exists()
