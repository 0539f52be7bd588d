"""What holds for all tests: a place of their own, and the same examples each time.

No test reads or writes the checkout's results, the user's home or cache, or the folder
that the tests were started in. `make test` must not depend on luck, so property tests
draw the same examples on every run; `make stress` (the profile `hunt`) draws new and
more ones, for those who look for failures.
"""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.cost"]

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("hunt", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("repeatable")

# Files that take longest go first: the last file has one worker to itself.
LONG = (
    "tests/stress/",
    "tests/installed/",
    "tests/runs/",
    "tests/test_values.py",
    "tests/conformance/laws/",
    "tests/show/",
    "tests/experiments/",
    "tests/sweeps/",
    "tests/test_cli.py",
    "tests/test_lab.py",
    "tests/test_outcome.py",
    "tests/test_places.py",
    "tests/test_views.py",
)

# Folders in memory, where there is room: on a disk it takes a millisecond to remove one,
# and what a run stores is written through. `--basetemp FOLDER` keeps those of `tmp_path`.
MEMORY = Path("/dev/shm")
ROOM_BYTES = 2 * 2**30

# Folders that libraries write to, unless they are told another one.
OF_THE_USER = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_HOME")

WITH_WORKERS = ("processes", "ray", "stress")
# Tests that look at pictures, besides those of tests/show.
RENDERED = ("pictures", "browser", "installed")
ROOT = Path(__file__).parents[1]


def find_memory() -> Path | None:
    """Return the folder that is kept in memory; None if it is missing or nearly full."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    if shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        return None
    return MEMORY


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the tests in the background has Ctrl-C ignored for them, and
    # nohup the end of the terminal. Processes that tests start would inherit both.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    # Workers of xdist inherit the place that the first process made.
    if "ROPELAB_TESTS" not in os.environ:
        place = Path(tempfile.mkdtemp(prefix="ropelab-tests-", dir=find_memory()))
        config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))
        os.environ["ROPELAB_TESTS"] = str(place)

        (place / "tmp").mkdir()
        os.environ["TMPDIR"] = str(place / "tmp")
        tempfile.tempdir = None

        # The list of fonts takes a second to make, so all tests share one.
        os.environ["MPLCONFIGDIR"] = str(place / "matplotlib")
        for name in OF_THE_USER:
            os.environ[name] = str(place / "home")
        (place / "home").mkdir()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for garbage only in what tests make.

    Modules and ten thousand tests are hundreds of thousands of objects, which stay.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def compute_here(*_: object) -> int:
    """Open no workers, in the place of an engine's method."""
    return 0


@pytest.fixture(scope="session")
def _places() -> Iterator[Path]:
    """The folders of one worker's tests, each named by a number."""
    base = Path(os.environ["ROPELAB_TESTS"]) / str(os.getpid())
    numbers = count()
    return (base / str(number) for number in numbers)


@pytest.fixture(autouse=True)
def _own_place(
    request: pytest.FixtureRequest,
    _places: Iterator[Path],
    monkeypatch: pytest.MonkeyPatch,
):
    """Give each test a working folder and a home of its own, both empty."""
    place = next(_places)
    here = place / "here"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)

    for name in OF_THE_USER:
        monkeypatch.setenv(name, str(place / "home"))
    (place / "home").mkdir()

    # Processes that a test starts import helpers from `tests`, which is not installed;
    # an installed wheel is tried without the checkout.
    if not request.node.get_closest_marker("installed"):
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # Workers of loky have the path of this process in place of that of the variable.
    if request.node.get_closest_marker("processes"):
        monkeypatch.syspath_prepend(ROOT)

    # On a loaded machine work takes longer than a second, and shows its progress: what a
    # command says would depend on the load.
    monkeypatch.setattr("ropelab.show.terminal.SECONDS_HIDDEN", 3600.0)

    # Code of one's own that another test named would be imported by every worker.
    monkeypatch.setattr("ropelab.runs.own._objects", {})
    monkeypatch.setattr("ropelab.runs.own._fingerprints", {})

    # Workers are processes, which only tests that say so start: elsewhere there is one
    # core, and its cells are computed in this process.
    if not any(request.node.get_closest_marker(name) for name in WITH_WORKERS):
        monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
        monkeypatch.setattr("ropelab.runs.engine.local.Workers.open", compute_here)

    yield
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(autouse=True)
def _close_pictures():
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@cache
def make_blank_pictures() -> dict[str, bytes]:
    """The smallest picture of each kind."""
    from PIL import Image

    png = BytesIO()
    Image.new("RGB", (1, 1)).save(png, format="PNG")
    return {"png": png.getvalue(), "svg": b"<svg/>"}


@pytest.fixture(autouse=True)
def _unrendered(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let figures be drawn but not rendered, where no test asks about the picture."""
    in_show = "tests/show/" in request.node.nodeid
    if in_show or any(request.node.get_closest_marker(name) for name in RENDERED):
        return
    blank = make_blank_pictures()

    def encode_figures(figures, formats=("png",), style="screen", letters=False):
        return {f"{name}.{kind}": blank[kind] for name in figures for kind in formats}

    for module in ("drawn", "page.report"):
        monkeypatch.setattr(f"ropelab.show.{module}.encode_figures", encode_figures)
    monkeypatch.setattr("ropelab.sweeps.combined.encode_figures", encode_figures)


@pytest.fixture(scope="session")
def corpora(tmp_path_factory) -> tuple[str, str]:
    """Two folders with different text, small, so that hardly a test reads the standard
    library.
    """
    first, second = (tmp_path_factory.mktemp(f"corpus{seed}") for seed in (0, 1))
    return written(first, 0), written(second, 1)


@pytest.fixture(scope="session")
def corpus(corpora) -> str:
    """The first of the two."""
    return corpora[0]


@pytest.fixture(scope="module")
def tiny_preset():
    """The preset `small` made smaller still, for tests in which nothing needs to be
    learned.
    """
    from ropelab.experiments.extrapolate import PRESETS

    with pytest.MonkeyPatch.context() as patch:
        tiny = PRESETS["small"]._replace(
            layers=1, width=32, heads=1, steps=4, tokens_per_step=512
        )
        patch.setitem(PRESETS, "small", tiny)
        yield


def written(folder: Path, seed: int) -> str:
    """Sixty short documents of invented words, every second one called prose."""
    import numpy as np

    random = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    known = [
        "".join(random.choice(letters, size)) for size in random.integers(2, 8, 300)
    ]
    for number in range(60):
        ending = ".md" if number % 2 else ".py"
        (folder / f"{number}{ending}").write_text(
            " ".join(random.choice(known, size=200))
        )
    return str(folder)
