"""What holds for all tests: the same examples each time, no time limits, no pictures
left open.

`make test` must not depend on luck, so property tests draw the same examples on every
run; `make stress` (the profile `hunt`) draws new and more ones, for those who look for
failures.
"""

import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image

from ropelab.experiments.extrapolate import PRESETS

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("hunt", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("repeatable")


# What takes a minute in one file goes first: the last file has one worker to itself.
LONG = (
    "tests/stress/",
    "tests/installed/",
    "tests/runs/",
    "tests/test_values.py",
    "tests/conformance/laws/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture(autouse=True)
def _close_pictures():
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture
def unrendered(monkeypatch):
    """Figures are drawn but not rendered, where a test is about what stands around
    them.
    """
    png = BytesIO()
    Image.new("RGB", (1, 1)).save(png, format="PNG")
    blank = {"png": png.getvalue(), "svg": b"<svg/>"}

    def as_files(figures, formats=("png",), style="screen"):
        return {f"{name}.{kind}": blank[kind] for name in figures for kind in formats}

    for module in ("drawn", "page.report"):
        monkeypatch.setattr(f"ropelab.show.{module}.as_files", as_files)
    monkeypatch.setattr("ropelab.sweeps.combined.as_files", as_files)


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
    with pytest.MonkeyPatch.context() as patch:
        tiny = PRESETS["small"]._replace(
            layers=1, width=32, heads=1, steps=4, tokens_per_step=512
        )
        patch.setitem(PRESETS, "small", tiny)
        yield


def written(folder: Path, seed: int) -> str:
    """Sixty short documents of invented words, every second one called prose."""
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
