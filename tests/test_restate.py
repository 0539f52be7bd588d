"""A stored run is told in today's words, from its tables."""

from pathlib import Path

import pytest

from ropelab import experiments
from ropelab.restate import restate
from ropelab.runs import store
from ropelab.show.page.shown import find_runs

REFERENCE = Path(__file__).parents[1] / "results" / "reference"
FOLDERS = [path.parent for path in sorted(REFERENCE.glob("*/*/manifest.json"))]


def restate_run(name):
    (folder,) = REFERENCE.glob(f"{name}-????????")
    manifest = store.RUN.description(folder)
    assert manifest is not None
    tables = store.RUN.tables(folder, manifest)
    return manifest, restate(manifest, tables), tables


def test_a_run_of_an_earlier_version_is_told_anew():
    manifest, told, _ = restate_run("extrapolate/extrapolate-casts")
    assert told["question"].endswith("what do roundings cost it at 2048?")
    assert "11 of 20 roundings cost" in told["answer"]
    assert told["summary"][0]["method"] == "unscaled"
    assert "tokens 1024 to 2048" in told["columns"]["nll @2048"]
    # What was measured stays as it is.
    for name in ("config", "tables", "commit", "seconds", "version"):
        assert told[name] == manifest[name]


def test_a_released_model_need_not_be_there():
    _, told, tables = restate_run("evaluate/smollm2-casts")
    trained = tables["model"]["train_len_tokens"].iloc[0]
    assert told["question"].startswith(f"My model was trained at {trained} tokens:")


def test_a_verdict_stands_beside_its_statement():
    _, told, _ = restate_run("claims/claims")
    row = told["summary"][0]
    assert list(row) == ["id", "statement", "verdict", "decided by", "measured"]
    assert row["statement"].startswith("Attention without positions cannot see order")


@pytest.mark.slow
@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.name)
def test_no_committed_run_keeps_its_words_unnoticed(path: Path) -> None:
    """`restate` swallows errors of tables of earlier versions, and no other errors."""
    manifest = store.RUN.description(path)
    assert manifest is not None
    if manifest["version"] == experiments.load(manifest["experiment"]).version:
        assert restate(manifest, store.RUN.tables(path, manifest)) is not manifest


@pytest.mark.parametrize("changes", [{"experiment": "toy"}, {"version": 10**6}])
def test_what_is_not_known_keeps_its_own_words(changes):
    manifest, _, tables = restate_run("extrapolate/extrapolate")
    other = {**manifest, **changes}
    assert restate(other, tables) is other
    assert restate(manifest, {}) is manifest


def test_a_page_tells_a_run_as_the_index_does():
    folders = [*REFERENCE.glob("evaluate/smollm2-keys-????????")]
    (run,) = find_runs(folders, restate=restate)
    assert "all 4 roundings cost" in run.manifest["answer"]
    assert run.manifest["question"].endswith("what do roundings cost it at 2048?")
    assert "casts" in run.tables
