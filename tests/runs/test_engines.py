"""Cells in this process and in workers: the same tables, whatever happens to a
worker.
"""

import errno
import os
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import psutil
import pytest

from ropelab.runs.cell import Cells, Context
from ropelab.runs.engine import Here, local
from ropelab.runs.engine.local import Workers
from ropelab.runs.engine.schedule import TRIES
from ropelab.runs.errors import MachineError
from tests.processes import is_alive, started, wait_until
from tests.runs.cells_of_tests import (
    Alone,
    Chatters,
    Disk,
    Fails,
    Killed,
    Product,
    Sequel,
    Sleeps,
    Slow,
    Sum,
    Waits,
    Within,
)
from tests.texts import mentions


@pytest.fixture
def workers():
    engine = Workers(2)
    yield engine
    engine.stop()


@pytest.fixture(params=["here", pytest.param("workers", marks=pytest.mark.processes)])
def engine(request):
    engine = Here() if request.param == "here" else Workers(2)
    yield engine
    engine.stop()


@pytest.fixture
def context(tmp_path):
    return Context(cells=Cells(tmp_path / "cells"))


@pytest.fixture
def begun(tmp_path):
    """A folder in which cells note that they were begun."""
    folder = tmp_path / "begun"
    folder.mkdir()
    return folder


def computed(engine, cells, context):
    """The errors of cells, by cell."""
    return dict(engine.compute(cells, context))


def bytes_of(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*.csv")}


@pytest.mark.processes
def test_tables_are_the_same_here_and_with_any_number_of_workers(tmp_path):
    cells = [Product(seed) for seed in range(5)]
    for name, engine in (("here", Here()), ("one", Workers(1)), ("two", Workers(2))):
        found = computed(engine, cells, Context(cells=Cells(tmp_path / name)))
        assert found == dict.fromkeys(cells)
        assert bytes_of(tmp_path / name) == bytes_of(tmp_path / "here")


@pytest.mark.processes
def test_nothing_is_started_for_no_cells(workers, context):
    before = {*psutil.Process().children(recursive=True)}
    assert computed(workers, [], context) == {}
    # One that another test left may have ended meanwhile.
    assert {*psutil.Process().children(recursive=True)} <= before


def test_an_engine_computes_again_and_again(engine, context):
    for cell in (Sum(0), Sum(1)):
        assert computed(engine, [cell], context) == {cell: None}


def test_a_cell_comes_after_those_that_it_starts_from(engine, context):
    first = Sum(0)
    second = Sequel(1, prerequisites=(first,))
    third = Sequel(2, prerequisites=(second, first))
    assert list(engine.compute([first, second, third], context)) == [
        (first, None),
        (second, None),
        (third, None),
    ]
    one, two, three = (
        context.compute(c)["sums"]["sum"][0] for c in (first, second, third)
    )
    assert (two, three) == (one + 1, two + one + 1)


def test_a_failing_cell_ends_those_that_start_from_it_and_no_others(engine, context):
    fails, other = Fails(7), Sum(1)
    after = Sequel(2, prerequisites=(fails,))
    last = Sequel(3, prerequisites=(after, other))
    found = computed(engine, [fails, other, after, last], context)
    assert found[other] is None
    assert "diverged under seed 7" in str(found[fails])
    assert found[after] is found[last] is found[fails]


def test_cells_computed_alone_and_all_that_starts_from_them_stay_in_this_process(
    engine, context
):
    alone, far = Alone(0), Sum(1)
    near = Sequel(2, prerequisites=(alone, far))
    assert computed(engine, [alone, far, near], context) == dict.fromkeys(
        [alone, far, near]
    )
    for cell in (alone, near):
        assert context.compute(cell)["sums"]["process"][0] == os.getpid()


@pytest.mark.processes
def test_a_full_disk_in_a_worker_is_told_as_one_here(workers, context):
    found = computed(workers, [Disk(0), Sum(0)], context)
    assert isinstance(found[Disk(0)], OSError)
    assert found[Disk(0)].errno == errno.ENOSPC
    assert found[Sum(0)] is None


@pytest.mark.processes
def test_cells_that_lock_another_inside_of_their_own_do_not_block_each_other(
    workers, context, begun
):
    cells = [Within(seed, folder=str(begun)) for seed in range(4)]
    computed(workers, cells, context)
    assert len({context.compute(cell)["sums"]["sum"][0] for cell in cells}) == 1
    assert len(list(begun.iterdir())) == 1


@pytest.mark.processes
def test_a_killed_worker_costs_nothing_but_time(workers, context, begun):
    killed = Killed(0, folder=str(begun))
    cells = [
        killed,
        *(Sum(seed) for seed in range(4)),
        Sequel(5, prerequisites=(killed,)),
    ]
    assert computed(workers, cells, context) == dict.fromkeys(cells)
    assert len(list(begun.iterdir())) == 2


@pytest.mark.processes
def test_a_cell_that_always_kills_its_worker_is_given_up_and_takes_no_other_with_it(
    workers, context, begun
):
    killed = Killed(0, folder=str(begun), times=99)
    beside, after = Slow(1, folder=str(begun)), Sequel(2, prerequisites=(killed,))
    found = computed(workers, [killed, beside, after], context)
    assert mentions(str(found[killed]), "'sum 0'", "3 times")
    assert "fewer --workers" in str(found[killed])
    assert found[after] is found[killed]
    assert found[beside] is None
    assert len(list(begun.glob("begun-*"))) == TRIES


@pytest.mark.processes
def test_workers_that_cannot_start_are_an_error(workers, context, monkeypatch):
    monkeypatch.setattr(local, "begin_work", _refuse)
    error = computed(workers, [Sum(0)], context)[Sum(0)]
    assert isinstance(error, MachineError)
    assert mentions(str(error), "3 times", "without a result")


def _refuse(*arguments: object) -> None:
    raise RuntimeError("no worker today")


@pytest.mark.processes
def test_workers_go_on_while_finished_cells_are_looked_at(workers, context):
    """More is told and computed than any pipe or queue between them holds."""
    cells = [Sum(0), Chatters(1), Chatters(2), Sum(3)]
    finished = workers.compute(cells, context)
    next(finished)
    wait_until(lambda: all(map(context.cells.is_finished, cells)))
    assert len(list(finished)) == 3


@pytest.mark.processes
def test_nothing_runs_any_more_when_nobody_wants_the_rest(workers, context, begun):
    cells = [Sum(0), Sleeps(1, folder=str(begun))]
    with closing(workers.compute(cells, context)) as finished:
        assert next(finished) == (Sum(0), None)
        wait_until(lambda: pids_in(begun))
    wait_until_gone(pids_in(begun))


AS_ON_WINDOWS = """
from ropelab.runs.engine import local
local.CAN_INTERRUPT = False
"""
PATIENT = """
from ropelab.runs.engine import local
local.GRACE_SECONDS = 60.0
"""
WORKING = """
import sys
from pathlib import Path
from ropelab.runs.cell import Context
from ropelab.runs.cell import Cells
from ropelab.runs.engine.local import Workers
from tests.runs import cells_of_tests
folder, kind = sys.argv[1:]
cell = getattr(cells_of_tests, kind)
cells = [cell(0, folder=folder), cell(1, folder=folder)]
list(Workers(2).compute(cells, Context(cells=Cells(Path(folder) / "cells"))))
"""


@pytest.fixture
def working(tmp_path, request):
    """A process whose two workers are inside of a cell, and their process ids."""
    before, kind = request.param
    with started("-c", before + WORKING, str(tmp_path), kind) as process:
        wait_until(lambda: len(pids_in(tmp_path)) == 2)
        yield process, pids_in(tmp_path)


def pids_in(folder: Path) -> list[int]:
    """The processes inside of a cell that has left its process id."""
    begun = [*folder.glob("pid-*"), *folder.glob("begun-*")]
    return [int(path.name.rpartition("-")[2]) for path in begun]


def wait_until_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)))


SLEEPING = pytest.mark.parametrize("working", [("", "Sleeps")], ids=[""], indirect=True)


@pytest.mark.processes
@SLEEPING
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_no_worker_outlives_its_parent(working, which):
    process, pids = working
    os.kill(process.pid, which)
    wait_until_gone(pids)
    assert process.wait(timeout=60) != 0


SECONDS_TO_END = 10.0
ALONE = """
import sys
from pathlib import Path
from ropelab.runs.cell import Cells, Context
from ropelab.runs.engine.local import Workers
from tests.runs.cells_of_tests import Sleeps, Sum
folder = Path(sys.argv[1])
cells = [Sum(0), Sleeps(1, folder=str(folder)), Sleeps(2, folder=str(folder))]
for cell, _ in Workers(2).compute(cells, Context(cells=Cells(folder / "cells"))):
    (folder / cell.kind).touch()
"""


@pytest.mark.processes
@pytest.mark.parametrize("which", [signal.SIGHUP, signal.SIGKILL])
def test_finished_cells_stay_when_the_parent_alone_is_killed(tmp_path, which):
    with started("-c", ALONE, str(tmp_path)) as process:
        wait_until(lambda: (tmp_path / "sum").exists() and pids_in(tmp_path))
        os.kill(process.pid, which)
        assert process.wait(timeout=60) == -which
        begun = time.monotonic()
        wait_until_gone(pids_in(tmp_path))
        assert time.monotonic() - begun < SECONDS_TO_END
    assert Cells(tmp_path / "cells").is_finished(Sum(0))


@pytest.mark.processes
@pytest.mark.parametrize("who", ["the parent", "a worker"])
@pytest.mark.parametrize("working", [("", "Waits")], ids=[""], indirect=True)
def test_a_process_that_is_stopped_and_continued_loses_nothing(working, who, tmp_path):
    process, pids = working
    stopped = psutil.Process(process.pid if who == "the parent" else pids[0])
    stopped.send_signal(signal.SIGSTOP)
    wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED)
    (tmp_path / "go").touch()
    # The other worker goes on meanwhile.
    cells = Cells(tmp_path / "cells")
    wait_until(lambda: any(cells.is_finished(Waits(n)) for n in range(2)))
    stopped.send_signal(signal.SIGCONT)
    assert process.wait(timeout=300) == 0
    assert all(cells.is_finished(Waits(n)) for n in range(2))


@pytest.mark.processes
@pytest.mark.parametrize("working", [(PATIENT, "Steps")], ids=[""], indirect=True)
def test_a_training_step_may_end_after_an_interrupt(working, tmp_path):
    process, pids = working
    os.kill(process.pid, signal.SIGINT)
    wait_until_gone(pids)
    assert len(list(tmp_path.glob("whole-*"))) == 2


@pytest.mark.processes
@pytest.mark.parametrize(
    "working", [(AS_ON_WINDOWS, "Sleeps")], ids=["as on Windows"], indirect=True
)
def test_workers_end_where_processes_cannot_be_interrupted(working):
    process, pids = working
    os.kill(process.pid, signal.SIGINT)
    wait_until_gone(pids)
    assert process.wait(timeout=60) != 0


def test_a_worker_ends_where_the_number_of_a_dead_parent_stays(monkeypatch):
    looks = iter([True, True, False])
    monkeypatch.setattr(local, "SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(psutil, "pid_exists", lambda _: next(looks))
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as end:
        local._end_with_parent(os.getppid())
    assert end.value.code == 1
    assert next(looks, None) is None


# Modules of the standard library and of packages that workers import.
SHADOWED = (
    *("loky", "multiprocessing", "psutil", "numpy", "pandas", "torch", "filelock"),
    *(
        "ray",
        "pickle",
        "logging",
        "signal",
        "threading",
        "cloudpickle",
        "queue",
        "ropelab",
    ),
)
SHADOW = """
import os
from pathlib import Path
Path(__file__).with_suffix(f".{os.getpid()}").touch()
"""
COMPUTING = """
import os
from pathlib import Path
from ropelab.runs import own
from ropelab.runs.cell import Cells, Context
from ropelab.runs.engine.ENGINE
from tests.runs.cells_of_tests import Sum
own.find_own("tasks", "mine:task")
context = Context(cells=Cells(Path("cells")))
cells = [Sum(seed) for seed in range(3)]
try:
    print([error for _, error in engine.compute(cells, context)])
finally:
    engine.stop()
"""


def shadow_modules(folder: Path) -> None:
    """Write files of the names of libraries, and a module of the user."""
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(SHADOW)
    text = "def task():\n    import beside\n"
    (folder / "mine.py").write_text(text)
    (folder / "beside.py").write_text("")


def executed_in(folder: Path) -> list[str]:
    """The files there that some process has executed."""
    return sorted(p.name for p in folder.iterdir() if p.suffix[1:].isdecimal())


@pytest.mark.processes
def test_workers_execute_nothing_that_lies_in_the_working_folder(tmp_path):
    shadow_modules(tmp_path)
    script = COMPUTING.replace("ENGINE", "local import Workers\nengine = Workers(2)")
    with started("-P", "-c", script, cwd=tmp_path, stdout=PIPE) as process:
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, "[None, None, None]\n")
    assert executed_in(tmp_path) == []


def test_the_watch_of_a_worker_for_its_parent_keeps_no_finished_worker_alive(
    monkeypatch,
):
    """A thread that is no daemon would be waited for until the parent ends."""
    started = []

    class Recorded:
        def __init__(self, target, args, daemon=False):
            started.append((target, args, daemon))

        def start(self):
            pass

    monkeypatch.setattr(threading, "Thread", Recorded)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(local, "_send", None)
    monkeypatch.setattr(local, "_sources", {})
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    local.begin_work(SimpleNamespace(put=print), 7, {})
    ((_, arguments, is_daemon),) = started
    assert arguments == (7,)
    assert is_daemon
