"""Cells on Ray: a cluster of two nodes on this machine gives the tables that one process gives."""

import errno
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from tests.engine.cells_of_tests import Disk, Fails, Killed, Sum, Waits

from ropelab.cli.app import main
from ropelab.errors import InputError, MachineError
from ropelab.experiments.encodings import EncodingsConfig, quality
from ropelab.models.tasks.cells import ask_all, train_all
from ropelab.runs.cell import Context
from ropelab.runs.cells import CellName, Cells
from ropelab.runs.config import build
from ropelab.runs.engine.connection import check_joinable, check_ray
from ropelab.runs.engine.on_ray import OnRay
from tests.small import SMALL

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.xdist_group("ray"),
    # Ray leaves files and sockets to its own processes, and to the end of this one.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SECONDS = 120
SHORT = "/tmp" if len(tempfile.gettempdir()) > 32 else None
"""Where the names of sockets stay short enough, whatever TMPDIR is."""


@pytest.fixture(scope="module", autouse=True)
def _environment():
    """Workers import the cells of the tests; access is by a token that nobody writes down."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path.cwd())
        patch.setenv("PYTHONPATH", str(Path.cwd()))
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", "5e" * 32)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield


@pytest.fixture(scope="module")
def cluster(_environment):
    """A head and a second node, of one core each."""
    from ray.cluster_utils import Cluster

    # Not below the folder of the tests: names of sockets are at most 107 characters long.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir=SHORT) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        # Ray notes the cluster's address in a folder that only `ray start` makes.
        patch.setenv("RAY_TMPDIR", folder)
        (Path(folder) / "ray").mkdir()
        head = {"num_cpus": 1, "temp_dir": folder}
        made = Cluster(initialize_head=True, head_node_args=head)
        made.add_node(num_cpus=1)
        yield made
        made.shutdown()


@pytest.fixture(scope="module")
def engine(cluster):
    engine = OnRay(cluster.address)
    yield engine
    engine.stop()


def bytes_of(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*.csv")}


def trained_and_asked(folder: Path, corpus: str, **engine) -> dict[str, bytes]:
    """A tiny run of two models, each trained and asked: the tables of all cells."""
    values = {**SMALL, "dtype": "float32", "encodings": "nope,rope", "corpus": corpus}
    config = build(EncodingsConfig, values)
    asked, context = quality.questions(config), Context(cells=Cells(folder), **engine)
    train_all(asked, context)
    ask_all(asked, context)
    return bytes_of(folder)


def test_models_are_trained_and_asked_as_in_one_process(tmp_path, corpora, engine):
    here = trained_and_asked(tmp_path / "here", corpora[0])
    assert here == trained_and_asked(tmp_path / "there", corpora[0], engine=engine)
    assert len(here) > 4
    assert len(list((tmp_path / "there" / "model").glob("*/checkpoint.safetensors"))) == 2


def test_failing_cells_are_one_error_and_the_others_are_kept(tmp_path, engine):
    context = Context(cells=Cells(tmp_path), engine=engine)
    with pytest.raises(MachineError, match=r"diverged under seed \d+ \(and 1 more failed\)"):
        context.phase([Fails(7), Sum(0), Fails(8), Sum(1)])
    assert context.unfinished([Sum(0), Sum(1)]) == []


def test_a_full_disk_on_a_worker_is_told_as_one_here(tmp_path, engine):
    context = Context(cells=Cells(tmp_path), engine=engine)
    with pytest.raises(OSError, match="No space left") as caught:
        context.phase([Disk(0), Sum(0)])
    assert caught.value.errno == errno.ENOSPC
    assert context.unfinished([Sum(0)]) == []


def test_a_killed_worker_costs_nothing_but_time(tmp_path, engine):
    begun = tmp_path / "begun"
    begun.mkdir()
    context = Context(cells=Cells(tmp_path / "cells"), engine=engine)
    assert len(context.phase([Killed(0, folder=str(begun)), Sum(1)])) == 2
    assert len(list(begun.iterdir())) == 2


def test_a_cell_that_always_kills_its_worker_is_given_up_in_one_sentence(tmp_path, engine):
    begun = tmp_path / "begun"
    begun.mkdir()
    context = Context(cells=Cells(tmp_path / "cells"), engine=engine)
    with pytest.raises(MachineError, match="lost 3 times with its worker"):
        context.phase([Killed(0, folder=str(begun), times=99), Sum(1)])
    assert len(list(begun.iterdir())) == 3
    assert context.unfinished([Sum(1)]) == []


def test_a_node_that_is_lost_in_the_middle_costs_nothing_but_time(tmp_path, cluster, engine):
    """A cell waits on each of three nodes; one node goes, and its cell ends on another one."""
    node = cluster.add_node(num_cpus=1)
    cells = [Waits(seed, folder=str(tmp_path)) for seed in range(3)]

    def lose_it() -> None:
        wait_until(lambda: len(begun(tmp_path)) == 3)
        cluster.remove_node(node, allow_graceful=False)
        (tmp_path / "go").touch()

    loss = threading.Thread(target=lose_it)
    loss.start()
    Context(cells=Cells(tmp_path / "there"), engine=engine).phase(cells)
    loss.join()
    assert len(begun(tmp_path)) == 4
    Context(cells=Cells(tmp_path / "here")).phase(cells)
    assert bytes_of(tmp_path / "there") == bytes_of(tmp_path / "here")


def begun(folder: Path) -> list[Path]:
    """What `Waits` and `Sleeps` leave when they begin."""
    return [*folder.glob("begun-*"), *folder.glob("pid-*")]


def wait_until(condition) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


SLEEPING = """
import signal
import sys
from pathlib import Path
# A shell that starts the tests in the background has Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from ropelab.cells import Cells
from ropelab.context import Context
from ropelab.engine.connection import check_joinable, check_ray
from ropelab.engine.on_ray import OnRay
from tests.engine.cells_of_tests import Sleeps, Sum
folder = sys.argv[1]
context = Context(cells=Cells(Path(folder) / "cells"), engine=OnRay(count=2))
context.phase([Sum(0)])
context.phase([Sleeps(0, folder=folder), Sleeps(1, folder=folder)])
"""


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGKILL])
def test_a_cluster_of_this_machine_leaves_nothing_behind(tmp_path, which, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("HOME", str(home))
    command = [sys.executable, "-c", SLEEPING, str(tmp_path)]
    told = tmp_path / "told"
    with told.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
        wait_until(lambda: len(begun(tmp_path)) == 2)
        family = psutil.Process(process.pid).children(recursive=True)
        assert any("raylet" in member.name() for member in family)
        # After a SIGKILL Ray's two agents, which compute nothing, take a minute to notice.
        killed = which == signal.SIGKILL
        workers = [each for each in family if not (killed and "Agent" in each.name())]
        process.send_signal(which)
        assert process.wait(timeout=SECONDS) != 0
    wait_until(lambda: not any(map(alive, workers)))
    assert list(home.iterdir()) == []
    lines = told.read_text().splitlines()
    if not killed:
        assert lines[-1] == "KeyboardInterrupt"
    assert not [line for line in lines if "ray::" in line or "raylet" in line]
    assert len(Cells(tmp_path / "cells").packed(CellName("sum", 1, {"seed": 0})).files) == 2


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("here", "cannot read the address 'here'; allowed: auto .* or HOST:PORT"),
        ("ray://head:10001", "cannot read the address"),
        ("127.0.0.1:1", "no Ray cluster at 127.0.0.1:1: Connection refused"),
    ],
)
def test_an_address_without_a_cluster_is_bad_input(address, message):
    with pytest.raises(InputError, match=message):
        OnRay(address)


def test_what_listens_but_is_no_cluster_is_bad_input(monkeypatch):
    monkeypatch.setattr("ropelab.runs.engine.connection.SECONDS_TO_JOIN", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        check_ray(address)
        with pytest.raises(InputError, match="no Ray cluster answers at 127"):
            check_joinable(address)


def test_without_ray_its_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'ropelab\[ray\]'"):
        OnRay()


def test_a_worker_with_another_version_is_one_clear_error(tmp_path, engine, monkeypatch):
    monkeypatch.setattr("ropelab.runs.engine.fleet.VERSION", "0.0.1")
    context = Context(cells=Cells(tmp_path), engine=engine)
    with pytest.raises(MachineError, match=r"this is 0\.0\.1; install the same version"):
        context.phase([Sum(0)])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--engine", "rya"], "unknown engine 'rya'; did you mean 'ray'? allowed: local, ray"),
        (["--address", "here:1"], "--address names a Ray cluster; give --engine ray with it"),
        (["--engine", "ray", "--address", "here"], "cannot read the address 'here'; allowed:"),
    ],
)
def test_bad_flags_are_one_line_and_nothing_is_written(tmp_path, capsys, flags, message):
    with pytest.raises(SystemExit) as stop:
        main(["encodings", *flags, "--results", str(tmp_path / "results")])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ropelab: {message}")
    assert not (tmp_path / "results").exists()
