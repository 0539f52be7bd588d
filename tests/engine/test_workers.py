"""Cells in worker processes: the same tables, whatever happens to a worker."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from ropelab.runs.engine.workers import TRIES, Workers

from ropelab.errors import MachineError
from ropelab.runs.cell import Context
from ropelab.runs.cells import Cells
from ropelab.runs.engine import crew
from tests.engine.cells_of_tests import Disk, Fails, Killed, Sum, Within


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """Workers import the cells of the tests from the root of the repository."""
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))


@pytest.fixture
def workers():
    engine = Workers(2)
    yield engine
    engine.stop()


def bytes_of(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*.csv")}


def test_tables_are_the_same_here_and_with_any_number_of_workers(tmp_path, workers):
    cells = [Sum(seed) for seed in range(5)]
    here = Context(cells=Cells(tmp_path / "here"))
    here.phase(cells)
    for name, engine in (("one", Workers(1)), ("two", workers), ("four", Workers(4))):
        context = Context(cells=Cells(tmp_path / name), engine=engine)
        tables = context.phase(cells)
        assert [table["sums"].seed[0] for table in tables] == list(range(5))
        assert context.cells.counts() == {"computed": 5, "reused": 0}
        engine.stop()
        assert bytes_of(tmp_path / name) == bytes_of(tmp_path / "here")


def test_workers_stay_alive_between_phases(tmp_path, workers):
    context = Context(cells=Cells(tmp_path), engine=workers)
    context.phase([Sum(0), Sum(1)])
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    context.phase([Sum(2), Sum(3)])
    assert before <= {child.pid for child in psutil.Process().children(recursive=True)}


def test_what_is_finished_is_not_computed_again_and_twins_are_computed_once(tmp_path, workers):
    Context(cells=Cells(tmp_path)).phase([Sum(0)])
    context = Context(cells=Cells(tmp_path), engine=workers)
    context.phase([Sum(0), Sum(1), Sum(1)])
    assert context.cells.counts() == {"computed": 1, "reused": 1}


@pytest.mark.parametrize("side_by_side", [False, True])
def test_a_failing_cell_is_one_error_and_the_others_are_kept(tmp_path, workers, side_by_side):
    cells = Cells(tmp_path)
    engine = {"engine": workers} if side_by_side else {}
    with pytest.raises(MachineError, match=r"diverged under seed \d+ \(and 1 more failed\)"):
        Context(cells=cells, **engine).phase([Fails(7), Sum(0), Fails(8), Sum(1)])
    assert Context(cells=cells).unfinished([Sum(0), Sum(1)]) == []


def test_a_full_disk_in_a_worker_is_told_as_one_here(tmp_path, workers):
    context = Context(cells=Cells(tmp_path), engine=workers)
    with pytest.raises(OSError, match="No space left") as caught:
        context.phase([Disk(0), Sum(0), Sum(1)])
    assert caught.value.errno == errno.ENOSPC
    assert context.unfinished([Sum(0), Sum(1)]) == []


def test_cells_that_lock_another_inside_of_their_own_do_not_block_each_other(tmp_path, workers):
    begun = tmp_path / "begun"
    begun.mkdir()
    cells = [Within(seed, folder=str(begun)) for seed in range(4)]
    context = Context(cells=Cells(tmp_path / "cells"), engine=workers)
    tables = context.phase(cells)
    assert len({table["sums"]["sum"][0] for table in tables}) == 1
    assert len(list(begun.iterdir())) == 1


def test_a_killed_worker_costs_nothing_but_time(tmp_path, workers):
    begun = tmp_path / "begun"
    begun.mkdir()
    cells = [Killed(0, folder=str(begun)), *(Sum(seed) for seed in range(4))]
    context = Context(cells=Cells(tmp_path / "cells"), engine=workers)
    assert len(context.phase(cells)) == 5
    assert len(list(begun.iterdir())) == 2


def test_a_cell_that_always_kills_its_worker_is_given_up_in_one_sentence(tmp_path, workers):
    begun = tmp_path / "begun"
    begun.mkdir()
    context = Context(cells=Cells(tmp_path / "cells"), engine=workers)
    with pytest.raises(MachineError, match=r"'sum 0' ended 3 times.*fewer --workers"):
        context.phase([Killed(0, folder=str(begun), times=99)])
    assert len(list(begun.iterdir())) == TRIES


def test_workers_that_cannot_start_are_an_error(tmp_path, workers, monkeypatch):
    monkeypatch.setattr("ropelab.runs.engine.crew.begin_work", _refuse)
    context = Context(cells=Cells(tmp_path), engine=workers)
    with pytest.raises(MachineError, match="ended 3 times without a result"):
        context.phase([Sum(0)])


def _refuse(*arguments: object) -> None:
    raise RuntimeError("no worker today")


AS_ON_WINDOWS = """
from ropelab.engine import crew
crew.CAN_INTERRUPT = False
"""
SLEEPING = """
import signal
import sys
from pathlib import Path
# A shell that starts the tests in the background has Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from ropelab.cells import Cells
from ropelab.context import Context
from ropelab.engine.workers import Workers
from tests.engine.cells_of_tests import Sleeps
folder = sys.argv[1]
cells = [Sleeps(0, folder=folder), Sleeps(1, folder=folder)]
Context(cells=Cells(Path(folder) / "cells"), engine=Workers(2)).phase(cells)
"""


@pytest.fixture
def sleeping(tmp_path, request):
    """A process whose two workers sleep, and their process ids."""
    code = getattr(request, "param", "") + SLEEPING
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    deadline = time.monotonic() + 120
    while len(pids := list(tmp_path.glob("pid-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(pids) == 2
    yield process, [int(path.name.removeprefix("pid-")) for path in pids]
    process.kill()
    process.wait()


def all_gone_within(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(_alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_parent(sleeping, which):
    process, pids = sleeping
    os.kill(process.pid, which)
    assert all_gone_within(pids, 20)
    assert process.wait(timeout=20) != 0


@pytest.mark.parametrize("sleeping", [AS_ON_WINDOWS], ids=["as on Windows"], indirect=True)
def test_workers_end_where_processes_cannot_be_interrupted(sleeping):
    process, pids = sleeping
    os.kill(process.pid, signal.SIGINT)
    assert all_gone_within(pids, 20)
    assert process.wait(timeout=20) != 0


def test_a_worker_ends_where_the_number_of_a_dead_parent_stays(monkeypatch):
    looks = iter([True, True, False])
    monkeypatch.setattr(crew, "SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(crew.psutil, "pid_exists", lambda _: next(looks))
    monkeypatch.setattr(crew.os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as end:
        crew._end_without(os.getppid())
    assert end.value.code == 1
    assert next(looks, None) is None
