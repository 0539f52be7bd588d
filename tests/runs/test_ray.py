"""Cells on Ray: a cluster of two nodes on this machine gives the tables that one
process gives.
"""

import errno
import signal
import socket
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE

import pytest

from ropelab.cli.app import main
from ropelab.lab import Lab
from ropelab.runs.cell import CellName, Cells, Context, list_with_prerequisites
from ropelab.runs.engine import Here
from ropelab.runs.engine.on_ray import OnRay
from ropelab.runs.engine.ray_cluster import check_joinable, check_ray
from ropelab.runs.errors import InputError, MachineError
from tests.processes import descendants, is_alive, started, wait_until
from tests.runs.cells_of_tests import Disk, Fails, Killed, Sequel, Sum, Waits
from tests.runs.test_engines import COMPUTING, executed_in, shadow_modules
from tests.small import SMALL
from tests.texts import mentions

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
    # Ray leaves files and sockets to its own processes, and to the end of this one.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SECONDS = 300
SHORT = "/tmp" if len(tempfile.gettempdir()) > 32 else None
"""Where the names of sockets stay short enough, whatever TMPDIR is."""


@pytest.fixture(scope="module", autouse=True)
def _environment():
    """Workers import the cells of the tests; access is by a token that nobody writes
    down.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path.cwd())
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", "5e" * 32)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield


@pytest.fixture(scope="module")
def cluster(_environment):
    """A head and a second node, of one core each."""
    from ray.cluster_utils import Cluster

    # Not below the folder of the tests: names of sockets are at most 107 characters
    # long.
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


def computed(engine, cells, root: Path):
    """The errors of cells, by cell."""
    return dict(engine.compute(cells, Context(cells=Cells(root))))


def test_models_are_trained_and_evaluated_as_in_one_process(tmp_path, corpora, engine):
    values = {
        **SMALL,
        "dtype": "float32",
        "encodings": "nope,rope",
        "corpus": corpora[0],
    }
    plan = Lab().prepare("encodings", values)
    every = list_with_prerequisites(plan.experiment.cells(plan.config)).values()
    cells = [cell for cell in every if not cell.resources.exclusive]
    here, there = tmp_path / "here", tmp_path / "there"
    for one, root in ((Here(), here), (engine, there)):
        errors = [error for _, error in one.compute(cells, Context(cells=Cells(root)))]
        assert errors == [None] * len(cells)
    assert bytes_of(here) == bytes_of(there)
    assert len(bytes_of(here)) > 4
    assert len(list((there / "model").glob("*/checkpoint.safetensors"))) == 2


def test_a_cell_is_sent_all_that_it_starts_from_and_fails_with_it(tmp_path, engine):
    first, fails = Sum(0), Fails(7)
    second = Sequel(1, prerequisites=(first,))
    third, after = (
        Sequel(2, prerequisites=(second,)),
        Sequel(3, prerequisites=(fails, first)),
    )
    found = computed(engine, [first, fails, second, third, after], tmp_path)
    assert (found[first], found[second], found[third]) == (None, None, None)
    assert "diverged under seed 7" in str(found[fails])
    assert found[after] is found[fails]
    one, three = (
        Cells(tmp_path).tables(cell, dict)["sums"]["sum"][0] for cell in (first, third)
    )
    assert three == one + 2


def test_a_full_disk_on_a_worker_is_told_as_one_here(tmp_path, engine):
    found = computed(engine, [Disk(0), Sum(0)], tmp_path)
    assert isinstance(found[Disk(0)], OSError)
    assert found[Disk(0)].errno == errno.ENOSPC
    assert found[Sum(0)] is None


def test_a_killed_worker_costs_nothing_but_time(tmp_path, engine):
    begun = tmp_path / "begun"
    begun.mkdir()
    cells = [Killed(0, folder=str(begun)), Sum(1)]
    assert computed(engine, cells, tmp_path / "cells") == dict.fromkeys(cells)
    assert len(list(begun.iterdir())) == 2


def test_a_cell_that_always_kills_its_worker_is_given_up_in_one_sentence(
    tmp_path, engine
):
    begun = tmp_path / "begun"
    begun.mkdir()
    killed = Killed(0, folder=str(begun), times=99)
    found = computed(engine, [killed, Sum(1)], tmp_path / "cells")
    assert isinstance(found[killed], MachineError)
    assert mentions(str(found[killed]), "3 times", "its worker")
    assert len(list(begun.iterdir())) == 3
    assert found[Sum(1)] is None


def test_a_node_that_is_lost_in_the_middle_costs_nothing_but_time(
    tmp_path, cluster, engine
):
    """A cell waits on each of three nodes; one node goes, and its cell ends on another
    one.
    """
    node = cluster.add_node(num_cpus=1)
    cells = [Waits(seed, folder=str(tmp_path)) for seed in range(3)]

    def lose_it() -> None:
        wait_until(lambda: len(begun(tmp_path)) == 3)
        workers = [int(path.name.split("-")[-1]) for path in begun(tmp_path)]
        cluster.remove_node(node, allow_graceful=False)
        # The node's own worker ends a little later, and would go on until then.
        wait_until(lambda: not all(map(is_alive, workers)))
        (tmp_path / "go").touch()

    loss = threading.Thread(target=lose_it)
    loss.start()
    assert computed(engine, cells, tmp_path / "there") == dict.fromkeys(cells)
    loss.join()
    assert len(begun(tmp_path)) == 4
    computed(Here(), cells, tmp_path / "here")
    assert bytes_of(tmp_path / "there") == bytes_of(tmp_path / "here")


@pytest.mark.parametrize("address", [None, "cluster"])
def test_ray_executes_nothing_that_lies_in_the_working_folder(
    tmp_path, request, address
):
    shadow_modules(tmp_path)
    if address:
        address = request.getfixturevalue("cluster").address
    script = COMPUTING.replace(
        "ENGINE", f"on_ray import OnRay\nengine = OnRay({address!r}, 2)"
    )
    with started("-P", "-c", script, cwd=tmp_path, stdout=PIPE) as process:
        out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (0, "[None, None, None]\n")
    assert executed_in(tmp_path) == []


def begun(folder: Path) -> list[Path]:
    """What `Waits` and `Sleeps` leave when they begin."""
    return [*folder.glob("begun-*"), *folder.glob("pid-*")]


SLEEPING = """
import sys
from pathlib import Path
from ropelab.runs.cell import Context
from ropelab.runs.cell import Cells
from ropelab.runs.engine.on_ray import OnRay
from tests.runs.cells_of_tests import Sleeps, Sum
folder = sys.argv[1]
context, engine = Context(cells=Cells(Path(folder) / "cells")), OnRay(count=2)
try:
    for cells in ([Sum(0)], [Sleeps(0, folder=folder), Sleeps(1, folder=folder)]):
        list(engine.compute(cells, context))
finally:
    engine.stop()
"""


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGKILL])
def test_a_cluster_of_this_machine_leaves_nothing_behind(tmp_path, which, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("HOME", str(home))
    told = tmp_path / "told"
    with (
        told.open("w") as out,
        started("-c", SLEEPING, str(tmp_path), stdout=out, stderr=out) as process,
    ):
        wait_until(lambda: len(begun(tmp_path)) == 2)
        assert descendants(process.pid, "raylet")
        # After a SIGKILL Ray's two agents, which compute nothing, take a minute to
        # notice.
        killed = which == signal.SIGKILL
        agents = descendants(process.pid, "gent") if killed else []
        workers = {*descendants(process.pid)} - {*agents}
        process.send_signal(which)
        assert process.wait(timeout=SECONDS) != 0
    wait_until(lambda: not any(map(is_alive, workers)))
    assert list(home.iterdir()) == []
    lines = told.read_text().splitlines()
    if not killed:
        assert "KeyboardInterrupt" in lines
    assert not [line for line in lines if "ray::" in line or "raylet" in line]
    archive = Cells(tmp_path / "cells").pack(CellName("sum", 1, {"seed": 0}))
    assert archive and len(archive.files) == 2


IN_A_CALL = """
    import ray
    known = ray.cluster_resources
    ray.cluster_resources = lambda: (members[0].kill(), known())[1]
"""


@pytest.mark.parametrize(
    "kill",
    [
        "members[0].kill()",
        "time.sleep(0.4 + 0.3 * len(begun)); members[0].kill()",
        IN_A_CALL,
    ],
    ids=["at once", "a little later", "in a call that then waits"],
)
def test_a_script_that_loses_the_control_store_ends_and_keeps_finished_cells(
    tmp_path, kill
):
    """It has more cells than fit, and neither catches the error nor stops the
    engine.
    """
    status, out, err = ended_by_itself(
        "-c", LOSING.replace("KILL", kill), str(tmp_path)
    )
    assert (status, out) == (1, "at the end\n")
    # A thread of Ray's own may say, until the very end, what it could not tell its
    # store.
    told = "the connection to Ray was lost: Connection refused"
    assert any(line.endswith(told) for line in err.splitlines()), err
    archive = Cells(tmp_path / "cells").pack(CellName("sum", 1, {"seed": 0}))
    assert archive and len(archive.files) == 2


@pytest.mark.parametrize("last", ["pass", "held.acquire()", "process.join()"])
def test_a_call_that_waits_for_a_lost_store_is_ended_from_beside_it(last):
    """Whatever others have registered for the end."""
    line = "ropelab: the connection to Ray was lost: Connection refused\n"
    assert ended_by_itself("-c", WAITING.replace("LAST", last)) == (1, "begun\n", line)


def ended_by_itself(*arguments: str) -> tuple[int, str, str]:
    """The status and output of a script that may not wait for a lost store."""
    with started(*arguments, stdout=PIPE, stderr=PIPE) as process:
        out, err = process.communicate(timeout=SECONDS)
        return process.returncode, out, err


WAITING = """
import atexit
import multiprocessing
import socket
import threading
import time
import ray
from ropelab.runs.engine import ray_store
ray.is_initialized = lambda: True
ray_store.SECONDS_TO_LEAVE = ray_store.SECONDS_BETWEEN_LOOKS = 0.1
held = threading.Lock()
held.acquire()
process = multiprocessing.get_context("fork").Process(target=time.sleep, args=[9])
process.start()

def last():
    print("begun")
    LAST

atexit.register(last)
with socket.create_server(("127.0.0.1", 0)) as server:
    ray_store.ControlStore().watch(f"127.0.0.1:{server.getsockname()[1]}")
    time.sleep(0.3)
time.sleep(600)
"""


LOSING = """
import atexit
import os
import sys
import threading
import time
from pathlib import Path
from ropelab.runs.cell import Cells, Context
from ropelab.runs.engine.on_ray import OnRay
from tests.processes import descendants
from tests.runs.cells_of_tests import Slow, Sum
atexit.register(print, "at the end")
folder = Path(sys.argv[1])
context, engine = Context(cells=Cells(folder / "cells")), OnRay(count=2)

def lose_it():
    while not (begun := list(folder.glob("slow-*"))):
        time.sleep(0.05)
    members = descendants(os.getpid(), "gcs_server")
    KILL

threading.Thread(target=lose_it, daemon=True).start()
for cells in ([Sum(0)], [Slow(n, folder=str(folder)) for n in range(40)]):
    list(engine.compute(cells, context))
"""


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
    monkeypatch.setattr("ropelab.runs.engine.ray_cluster.SECONDS_TO_JOIN", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        check_ray(address)
        with pytest.raises(InputError, match="no Ray cluster answers at 127"):
            check_joinable(address)


def test_without_ray_its_extra_is_named(monkeypatch):
    monkeypatch.setattr("ropelab.runs.errors.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install '\.\[ray\]'"):
        OnRay()


def test_a_worker_with_another_version_is_one_clear_error(
    tmp_path, engine, monkeypatch
):
    monkeypatch.setattr("ropelab.runs.engine.on_ray.VERSION", "0.0.1")
    error = computed(engine, [Sum(0)], tmp_path)[Sum(0)]
    assert isinstance(error, MachineError)
    assert mentions(str(error), "0.0.1", "same version")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--engine", "rya"],
            "unknown engine 'rya'; did you mean 'ray'? allowed: local, ray",
        ),
        (
            ["--address", "here:1"],
            "--address names a Ray cluster; give --engine ray with it",
        ),
        (
            ["--engine", "ray", "--address", "here"],
            "cannot read the address 'here'; allowed:",
        ),
    ],
)
def test_bad_flags_are_one_line_and_nothing_is_written(
    tmp_path, capsys, flags, message
):
    with pytest.raises(SystemExit) as stop:
        main(["encodings", *flags, "--results", str(tmp_path / "results")])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ropelab: {message}")
    assert not (tmp_path / "results").exists()
