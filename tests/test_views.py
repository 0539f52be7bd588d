"""Commands that read stored runs, over a folder that holds one of every experiment."""

import json
from pathlib import Path
from typing import Any

import pytest

import ropelab
from ropelab import experiments
from ropelab.cli import app as cli
from tests.models.released.tiny import reader_of_bytes

pytestmark = pytest.mark.slow

TINY: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "head_dim": 8,
    "steps": 2,
    "tokens_per_step": 256,
    "documents": 3,
    "sequences": 2,
    "device": "cpu",
}
VALUES: dict[str, dict[str, Any]] = {
    "freqs": {"head_dim": 8},
    "precision": {"length": 256, "long_lengths": (512,), "samples": 16, "draws": 2},
    "base": {"context": (64, 256), "head_dim": 64},
    "base-empirical": {**TINY, "bases": (10, 1000), "train_len": 256},
    "encodings": {
        **TINY,
        "encodings": ("rope", "alibi"),
        "train_len": 64,
        "test_len": 256,
    },
    "spectrum": {
        **TINY,
        "schemes": ("unscaled", "one(period=1e6)"),
        "train_len": 64,
        "test_len": 128,
        "draws": 4,
    },
    "extrapolate": {
        "methods": ("unscaled", "yarn", "ntk"),
        "train_len": 64,
        "test_len": 256,
        "head_dim": 8,
        "steps": 2,
        "documents": 3,
        "sequences": 2,
        "device": "cpu",
    },
    # Its methods are the defaults, in which ntk stands with two factors.
    "evaluate": {
        "context": 256,
        "tasks": ("text",),
        "documents": 3,
        "device": "cpu",
    },
}
WITH_CORPUS = ("base-empirical", "encodings", "spectrum", "extrapolate", "evaluate")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, corpus: str) -> Path:
    """Return a folder with a run of each experiment that makes runs of its own."""
    model = reader_of_bytes(tmp_path_factory.mktemp("llama"), bos=True)
    folder = tmp_path_factory.mktemp("views") / "results"
    for name, given in VALUES.items():
        values = dict(given)
        if name in WITH_CORPUS:
            values["corpus"] = corpus
        if name == "evaluate":
            values["model"] = model
        ropelab.command_of(name)(results=folder, **values)
    return folder


@pytest.fixture
def call(results: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """Type a command beside the results; returns its status and output."""
    monkeypatch.chdir(results.parent)

    def typed(*arguments: object) -> tuple[Any, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main([str(argument) for argument in arguments])
        return stop.value.code, capsys.readouterr().out

    return typed


def folder_of(experiment: str) -> Path:
    (manifest,) = Path("results", experiment).glob("*/manifest.json")
    return manifest.parent


def test_a_run_of_every_other_experiment_is_there() -> None:
    assert {*VALUES} == {*experiments.NAMES} - {"claims"}


@pytest.mark.parametrize("source", ["", "001", "kvquant"])
def test_claims_are_judged_beside_all_of_them(call: Any, source: str) -> None:
    asked = ("--source", source) if source else ()
    status, out = call("claims", *asked, "--json", "--no-figures")
    assert status == 0
    claims = json.loads(out)["tables"]["claims"]
    assert claims


def test_the_page_shows_all_of_them(call: Any, unrendered: None) -> None:
    assert call("report", "-o", "page.html")[0] == 0
    page = Path("page.html").read_text()
    assert page.count('class="view run"') >= len(VALUES)


@pytest.mark.parametrize("experiment", VALUES)
@pytest.mark.parametrize("kind", ["csv", "markdown", "latex"])
def test_each_is_exported(call: Any, experiment: str, kind: str) -> None:
    status, out = call("export", folder_of(experiment), "--format", kind)
    assert (status, bool(out)) == (0, True)


@pytest.mark.parametrize("experiment", VALUES)
def test_each_is_compared_with_itself(call: Any, experiment: str) -> None:
    folder = folder_of(experiment)
    status, out = call("compare", folder, folder, "--json")
    assert status == 0
    assert json.loads(out)["experiment"] == "compare"


@pytest.mark.parametrize("experiment", VALUES)
def test_each_is_listed_as_finished(call: Any, experiment: str) -> None:
    config = folder_of(experiment) / "config.toml"
    status, out = call("run", config, "--dry-run")
    assert status == 0
    assert "1 finished" in out
