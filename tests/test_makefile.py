"""The targets of the Makefile that remove something, and the list of all."""

import os
import re
import shutil
from pathlib import Path
from subprocess import run

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not shutil.which("make"), reason="needs make"),
]


def make(target: str, typed: str = "") -> tuple[int, str]:
    # A make that runs these tests passes its flags and its level on.
    apart = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    done = run(
        ["make", "-f", MAKEFILE, target],
        input=typed,
        env=apart,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("results/reference/a", "results/freqs/b", "results/.cells", "build"):
        Path(name).mkdir(parents=True)
    return tmp_path


def test_clean_leaves_results_alone(checkout):
    assert make("clean")[0] == 0
    assert not Path("build").exists()
    assert Path("results/freqs/b").exists()
    assert Path("results/.cells").exists()


@pytest.mark.parametrize("typed", ["", "no\n", "y\n"])
def test_results_are_removed_only_after_a_yes(checkout, typed):
    assert make("clean-results", typed)[0] != 0
    assert Path("results/freqs/b").exists()


def test_clean_results_keeps_the_reference(checkout):
    assert make("clean-results", "yes\n")[0] == 0
    assert [path.name for path in Path("results").iterdir()] == ["reference"]


def test_help_lists_every_target():
    targets = re.findall(r"^([a-z0-9-]+):", MAKEFILE.read_text(), re.MULTILINE)
    lines = make("help")[1].splitlines()
    assert [line.partition(":")[0] for line in lines] == targets
