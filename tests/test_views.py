"""Commands that read stored runs, over a folder that holds one of every experiment."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ropelab import experiments
from ropelab.cli import app as cli
from tests.planted import VALUES, make_runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, corpus: str) -> Path:
    """Return a folder with a run of each experiment that makes runs of its own."""
    folder = tmp_path_factory.mktemp("views") / "results"
    make_runs(folder, corpus, figures=False)
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


def test_a_stored_run_is_judged_by_the_ledger_of_the_day(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of("encodings")
    assert not (folder / "tables" / "literature.csv").exists()

    def judge(*_: object) -> pd.DataFrame:
        return pd.DataFrame({"id": ["new-claim"], "verdict": ["reproduced here"]})

    monkeypatch.setattr("ropelab.claims.ledger.judge_run", judge)
    status, out = call("export", folder, "--table", "literature")
    assert status == 0
    assert "new-claim" in out


def test_the_page_shows_all_of_them(call: Any) -> None:
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
