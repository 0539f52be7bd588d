"""Two commands at once in one folder: nobody gets some files of each."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ropelab
from ropelab.cli import app
from ropelab.conformance import vectors as kits
from ropelab.runs import folders, store
from ropelab.runs.folders import lock_folder, lock_users_folder, replace_folder
from ropelab.runs.store import RUN
from ropelab.runs.tables import DamagedError, Tables
from ropelab.show import drawn
from ropelab.show.gallery import write_index
from ropelab.show.page.shown import find_runs

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 512,
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a finished run."""
    stored = ropelab.freqs(head_dim=8, results=tmp_path / "results")
    assert stored.folder is not None
    return stored.folder


def replace_run(run: Path) -> None:
    """Replace a run by another one of the same name, with other numbers."""
    manifest = RUN.description(run)
    assert manifest is not None
    tables = RUN.tables(run, manifest)
    tables["pairs"]["inv_freq"] += 1.0
    about = {key: manifest[key] for key in manifest if key not in ("tables", "files")}
    about["seconds"] += 1.0
    with lock_folder(run), replace_folder(run) as fresh:
        RUN.write(fresh, tables, {**about, "figures": None})


def test_a_run_that_is_replaced_while_it_is_read_is_read_as_the_new_one(run):
    manifest = store.read_manifest(run)
    assert manifest is not None
    replace_run(run)
    latest, tables = store.read_tables(run, manifest)
    assert latest["seconds"] == manifest["seconds"] + 1.0
    assert tables["pairs"]["inv_freq"][0] == 2.0


def test_a_run_between_two_renames_is_read(run):
    """Figures are drawn again: the folder is replaced, and the manifest is the same."""
    manifest = store.read_manifest(run)
    assert manifest is not None
    run.rename(run.with_name(f".{run.name}.old"))
    latest, tables = store.read_tables(run, manifest)
    assert latest == manifest
    assert tables["pairs"]["inv_freq"][0] == 1.0


def test_a_damaged_run_is_still_damaged(run):
    manifest = store.read_manifest(run)
    assert manifest is not None
    (run / "tables" / "pairs.csv").write_text("pair\n0\n")
    with pytest.raises(DamagedError, match=r"pairs\.csv is not what was written"):
        store.read_tables(run, manifest)


def read_for_page(results: Path, version: int) -> Tables:
    (shown,) = find_runs([results])
    rows = len(shown.stored_tables["pairs"])
    assert shown.manifest["tables"]["pairs"]["rows"] == rows
    return shown.stored_tables


def read_for_claims(results: Path, version: int) -> Tables:
    (stored,) = store.load_stored_runs(results, "freqs", version)
    return stored.tables


def read_for_index(results: Path, version: int) -> Tables:
    read: list[Tables] = []

    def restate(manifest: Any, tables: Tables) -> Any:
        read.append(tables)
        return manifest

    write_index(results, restate=restate)
    (tables,) = read
    return tables


@pytest.mark.parametrize("reader", [read_for_page, read_for_claims, read_for_index])
def test_readers_of_all_runs_leave_none_out(run, reader, monkeypatch, capsys):
    describe = RUN.description
    first_manifest = describe(run)
    assert first_manifest is not None
    is_replaced = False

    # The run is replaced just after its manifest was read for the first time.
    def describe_and_replace(self: Any, folder: Path) -> Any:
        nonlocal is_replaced
        manifest = describe(folder)
        if manifest is not None and not is_replaced:
            is_replaced = True
            replace_run(run)
        return manifest

    monkeypatch.setattr(type(RUN), "description", describe_and_replace)
    tables = reader(run.parent.parent, first_manifest["version"])
    assert tables["pairs"]["inv_freq"][0] == 2.0
    assert capsys.readouterr().err == ""


def test_a_run_between_two_renames_is_not_left_out(run, monkeypatch):
    # The run loses its name after the readers have looked for such runs.
    find_replaced = folders.find_replaced

    def rename_after(paths: list[Path]) -> set[Path]:
        found = find_replaced(paths)
        run.rename(run.with_name(f".{run.name}.old"))
        return found

    monkeypatch.setattr(store, "find_replaced", rename_after)
    ((folder, _),) = store.find_finished(run.parent.parent)
    assert folder == run


def test_a_sweep_finds_a_run_between_two_renames(run):
    results = run.parent.parent
    before = store.hash_manifests(results, [run])
    run.rename(run.with_name(f".{run.name}.old"))
    assert store.hash_manifests(results, [run]) == before


def start(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread


def test_two_kits_in_one_folder_are_one_or_the_other(tmp_path, monkeypatch):
    out = tmp_path / "kit"
    for base in (1e4, 1e6):
        config = CONFIG | {"rope_theta": base}
        (tmp_path / f"{base:g}.json").write_text(json.dumps(config))
    threads: list[threading.Thread] = []

    def write(base: str) -> None:
        kits.vectors(tmp_path / f"{base}.json", out)

    # The second command begins while the first one writes.
    def begin_another(path: Path) -> Any:
        if not threads:
            threads.append(start(lambda: write("1e+06")))
            threads[0].join(timeout=0.2)
            assert threads[0].is_alive()
        return folders.replace_file(path)

    monkeypatch.setattr(kits, "replace_file", begin_another)
    write("10000")
    threads[0].join()
    about = json.loads((out / "about.json").read_text())
    assert about["base"] == 1e6
    assert json.loads((out / "vectors.json").read_text())["base"] == 1e6
    assert not list(out.glob(".*"))


def test_two_exports_into_one_folder_are_one_or_the_other(tmp_path, monkeypatch):
    first = {"a.csv": b"1", "b.csv": b"1"}
    second = {"a.csv": b"2", "b.csv": b"2", "c.csv": b"2"}
    out = tmp_path / "tables"
    threads: list[threading.Thread] = []
    write_files = drawn.write_files

    def begin_another(files: Any, folder: Path) -> list[Path]:
        if not threads:
            threads.append(start(lambda: drawn.write_for_user(second, out)))
            threads[0].join(timeout=0.2)
            assert threads[0].is_alive()
        return write_files(files, folder)

    monkeypatch.setattr(drawn, "write_files", begin_another)
    drawn.write_for_user(first, out)
    threads[0].join()
    assert {path.name: path.read_bytes() for path in out.glob("*.csv")} == second
    # All of them are known as files of ropelab, and may be written again.
    drawn.write_for_user({**first, **second}, out)


def test_more_figures_are_written_under_the_lock_of_the_run(run, monkeypatch):
    """A file that appears between the two renames would stop the replacement."""
    write_files = drawn.write_files
    locked = []

    def write(files: Any, folder: Path) -> list[Path]:
        lock = folder.parent.with_name(f".{folder.parent.name}.lock")
        locked.append(lock.exists())
        return write_files(files, folder)

    monkeypatch.setattr(drawn, "write_files", write)
    results = run.parent.parent
    command = ["freqs", "--head-dim", "8", "--results", str(results), "-q"]
    with pytest.raises(SystemExit) as ended:
        app.main([*command, "--format", "svg"])
    assert not ended.value.code
    assert locked == [True]
    assert list(results.glob("freqs/*/figures/*.svg"))


def test_a_folder_of_the_user_is_locked_inside(tmp_path):
    with lock_users_folder(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / ".ropelab.lock").exists()
    assert not list((tmp_path / "a" / "b").iterdir())
