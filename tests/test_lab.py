"""Runs are stored where their config says, reused while they fit, and never half-written."""

import errno
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from ropelab.errors import InputError
from ropelab.lab import Lab
from ropelab.runs import store
from ropelab.runs.config import Config, Label, take_label
from ropelab.runs.manifest import read_manifest, write_manifest
from tests.toy import Toy, ToyConfig, toy


class NamedConfig(Config):
    """A field that holds any text."""

    name: str = ""


@pytest.fixture
def lab(tmp_path):
    Toy.runs = 0
    return Lab(tmp_path / "results")


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_run_leaves_everything_that_describes_it(lab):
    run = lab.carry_out(toy(), ToyConfig(base=5e5))
    assert files(run.folder) == [
        "config.toml",
        "figures/toy.png",
        "manifest.json",
        "metrics.json",
        "tables/toy.csv",
    ]
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert manifest["schema"] == store.SCHEMA
    assert manifest["config"] == {"base": 500000.0, "seed": 0}
    assert manifest["tables"]["toy"]["columns"] == {"base": None, "length_tokens": "tokens"}
    assert manifest["tables"]["toy"]["rows"] == 1
    assert manifest["command"] == "ropelab toy --base 500000.0"
    assert manifest["packages"]["torch"]
    torch = sys.modules.get("torch")
    assert manifest["threads"] == (torch and torch.get_num_threads())
    assert manifest["answer"] == run.answer == "The base is 500000."


def test_the_name_follows_from_the_config_alone(lab, tmp_path):
    one = lab.carry_out(toy(), ToyConfig(base=5e5)).folder
    two = Lab(tmp_path / "elsewhere").carry_out(toy(), ToyConfig(base=5e5)).folder
    other = lab.carry_out(toy(), ToyConfig(base=5e5, seed=1)).folder
    assert one.name == two.name != other.name
    assert one.name.startswith("base-500000-")
    assert lab.carry_out(toy(), ToyConfig()).folder.name.startswith("default-")


def test_a_finished_run_is_reused_and_force_makes_it_again(lab):
    assert not lab.carry_out(toy(), ToyConfig()).reused
    assert lab.carry_out(toy(), ToyConfig()).reused
    assert Toy.runs == 1
    assert not replace(lab, force=True).carry_out(toy(), ToyConfig()).reused
    assert Toy.runs == 2


def test_the_stored_config_reads_back_as_the_same_config(lab):
    from ropelab.runs.config import build, read_toml

    run = lab.carry_out(toy(), ToyConfig(base=123.5, seed=3))
    name, values = read_toml(run.folder / "config.toml")
    assert name == "toy"
    assert build(ToyConfig, values) == run.config


@pytest.mark.parametrize("damage", ["version", "table", "missing table", "manifest"])
def test_what_does_not_fit_any_more_is_not_reused(lab, damage):
    run = lab.carry_out(toy(), ToyConfig())
    experiment = toy()
    if damage == "version":
        experiment = replace(experiment, version=2)
    elif damage == "table":
        (run.folder / "tables/toy.csv").write_text("base,length_tokens\n1,1\n")
    elif damage == "missing table":
        (run.folder / "tables/toy.csv").unlink()
    else:
        (run.folder / "manifest.json").write_text("{")
    again = lab.carry_out(experiment, ToyConfig())
    assert not again.reused
    assert again.folder == run.folder
    assert lab.carry_out(experiment, ToyConfig()).reused


def test_changed_inputs_make_the_run_again(lab, monkeypatch):
    lab.carry_out(toy(), ToyConfig())
    monkeypatch.setattr(ToyConfig, "inputs", lambda self: {"corpus": "another"})
    assert not lab.carry_out(toy(), ToyConfig()).reused


def test_a_failing_run_leaves_the_results_as_they_were(lab):
    run = lab.carry_out(toy(), ToyConfig())
    before = files(lab.results)
    with pytest.raises(RuntimeError, match="unlucky"):
        lab.carry_out(toy(), ToyConfig(seed=13))
    assert [f for f in files(lab.results) if not f.endswith(".lock")] == [
        f for f in before if not f.endswith(".lock")
    ]
    assert run.folder.exists()


def test_the_same_config_gives_the_same_bytes(lab, tmp_path):
    one = lab.carry_out(toy(), ToyConfig()).folder
    two = Lab(tmp_path / "elsewhere").carry_out(toy(), ToyConfig()).folder
    for name in ("tables/toy.csv", "config.toml", "figures/toy.png"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_figures_nobody_asked_for_are_drawn_when_somebody_does(lab):
    plain = replace(lab, figures=False).carry_out(toy(), ToyConfig())
    assert not (plain.folder / "figures").exists()
    assert read_manifest(plain.folder)["figures"] is None
    tables = (plain.folder / "tables/toy.csv").read_bytes()
    assert lab.carry_out(toy(), ToyConfig()).reused
    assert read_manifest(plain.folder)["figures"] == ["figures/toy.png"]
    assert (plain.folder / "figures/toy.png").exists()
    assert (plain.folder / "tables/toy.csv").read_bytes() == tables


def test_redraw_makes_only_the_figures_again(lab):
    run = lab.carry_out(toy(), ToyConfig())
    (run.folder / "figures/toy.png").unlink()
    assert replace(lab, redraw=True).carry_out(toy(), ToyConfig()).reused
    assert (run.folder / "figures/toy.png").exists()
    assert Toy.runs == 1


@pytest.mark.parametrize("damage", ["cut short", "a bit", "gone", "a folder"])
def test_a_damaged_figure_is_drawn_again(lab, damage):
    run = lab.carry_out(toy(), ToyConfig())
    figure = run.folder / "figures/toy.png"
    whole = figure.read_bytes()
    figure.unlink()
    if damage == "a folder":
        figure.mkdir()
    elif damage != "gone":
        half = len(whole) // 2
        spoilt = {"cut short": whole[:-20], "a bit": whole[:half] + b"?" + whole[half + 1 :]}
        figure.write_bytes(spoilt[damage])
    assert lab.carry_out(toy(), ToyConfig()).reused
    assert figure.read_bytes() == whole
    assert Toy.runs == 1


def test_a_damaged_table_is_said_and_the_run_made_again(lab, capsys):
    run = lab.carry_out(toy(), ToyConfig())
    (run.folder / "tables/toy.csv").write_text("base,length_tokens\n1,1\n")
    assert store.stored_runs(lab.results, "toy", 1) == []
    assert "left out" in capsys.readouterr().err
    assert lab.carry_out(toy(), ToyConfig()).tables["toy"].base[0] == 1e4
    assert capsys.readouterr().err.endswith("is not what was written: the run is made again\n")


def test_reading_a_finished_run_writes_nothing(lab, monkeypatch):
    run = lab.carry_out(toy(), ToyConfig())

    def refuse(*_, **__):
        raise AssertionError("something was written")

    for name in ("mkdir", "touch", "rename", "unlink", "write_text"):
        monkeypatch.setattr(f"pathlib.Path.{name}", refuse)
    again = lab.carry_out(toy(), ToyConfig())
    assert again.reused
    assert again.tables["toy"].equals(run.tables["toy"])


def test_a_run_without_figures_is_reused_where_none_can_be_drawn(lab, monkeypatch, capsys):
    replace(lab, figures=False).carry_out(toy(), ToyConfig())

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("pathlib.Path.touch", read_only)
    assert lab.carry_out(toy(), ToyConfig()).reused
    assert "figures are not drawn: cannot write to the results folder" in capsys.readouterr().err
    for asked in (replace(lab, redraw=True), replace(lab, force=True)):
        with pytest.raises(InputError, match="Read-only file system"):
            asked.carry_out(toy(), ToyConfig())


FOREIGN = ["[]", "{}", '{"experiment": "toy"}', "not JSON", "[" * 100_000, '{"tables": 3}', "\0"]


@pytest.mark.parametrize("text", FOREIGN, ids=lambda text: text[:10])
def test_a_foreign_manifest_is_left_alone_and_said_once(lab, capsys, text):
    whole = lab.carry_out(toy(), ToyConfig())
    foreign = lab.results / "toy" / "foreign" / "manifest.json"
    foreign.parent.mkdir()
    foreign.write_text(text)
    for _ in range(2):
        assert [run.path for run in store.stored_runs(lab.results, "toy", 1)] == [str(whole.folder)]
    assert capsys.readouterr().err.count("left out") == 1
    assert foreign.read_text() == text


def test_names_in_a_manifest_stay_inside_its_folder(lab):
    folder = lab.carry_out(toy(), ToyConfig()).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    for changes in ({"figures": ["../x.png"]}, {"tables": {"../x": manifest["tables"]["toy"]}}):
        write_manifest(folder, {**manifest, **changes})
        assert read_manifest(folder) is None
    write_manifest(folder, manifest)
    assert read_manifest(folder) == manifest


CHANGES = {
    "answer": "The base is 7.",
    "question": "What?",
    "summary": [{"base": 7.0}],
    "seconds": 0.0,
    "commit": "0" * 40,
    "title": "Seven",
}


@pytest.mark.parametrize("entry", CHANGES)
def test_a_sentence_changed_in_a_manifest_is_noticed_and_the_run_made_again(lab, capsys, entry):
    run = lab.carry_out(toy(), ToyConfig())
    path = run.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, entry: CHANGES[entry]}))
    assert read_manifest(run.folder) is None
    assert store.stored_runs(lab.results, "toy", 1) == []
    assert capsys.readouterr().err == f"left out: {path} is not what was written\n"
    assert not lab.carry_out(toy(), ToyConfig()).reused
    assert read_manifest(run.folder)["answer"] == run.answer


def test_the_hash_of_a_manifest_is_of_what_it_says_not_of_how_it_is_spaced(lab):
    folder = lab.carry_out(toy(), ToyConfig()).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    assert list(manifest)[-1] == "sha256"
    (folder / "manifest.json").write_text(json.dumps(manifest, sort_keys=True))
    assert read_manifest(folder) == manifest


def test_the_command_can_be_pasted_into_a_shell(lab, tmp_path):
    text = f"x'; touch {tmp_path}/pasted; echo 'y $(touch {tmp_path}/pasted)"
    identity = store.Identity("toy", 1, NamedConfig(name=text), {}, Label())
    command = store.command_of(identity).replace("ropelab", "printf '%s\n'", 1)
    told = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert told.stdout.splitlines() == ["toy", "--name", text]
    assert not (tmp_path / "pasted").exists()


def git(folder, *arguments):
    subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    """A repository with one commit, and a copy of the package in it that it does not track."""
    git(tmp_path, "init")
    (tmp_path / "tracked").touch()
    git(tmp_path, "add", "tracked")
    git(tmp_path, "-c", "user.name=x", "-c", "user.email=x", "commit", "-m", "x")
    shutil.copytree(Path(store.__file__).parent, tmp_path / "venv" / "ropelab")
    return tmp_path


ASK = "from ropelab import store; print(store._commit())"


def test_a_package_inside_another_repository_claims_no_commit(checkout):
    told = subprocess.run(
        [sys.executable, "-c", ASK], cwd=checkout / "venv", capture_output=True, text=True
    )
    assert told.stdout == "{'commit': None, 'dirty': None}\n", told.stderr


def test_the_commit_is_not_that_of_git_dir(checkout):
    head = ["git", "rev-parse", "HEAD"]
    here = Path(store.__file__).parents[1]
    ours = subprocess.run(head, cwd=here, capture_output=True, text=True).stdout.strip()
    environment = {**os.environ, "GIT_DIR": str(checkout / ".git"), "PYTHONPATH": str(here)}
    told = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, cwd=here, capture_output=True, text=True
    )
    assert f"'commit': {ours or None!r}" in told.stdout


def test_a_results_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(InputError, match="cannot write to the results folder"):
        Lab(tmp_path / "results").carry_out(toy(), ToyConfig())


def test_without_results_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Lab().carry_out(toy(), ToyConfig())
    assert run.folder is None
    assert list(tmp_path.iterdir()) == []


def test_stored_runs_are_found_with_their_tables(lab):
    lab.carry_out(toy(), ToyConfig(base=5e5))
    lab.carry_out(toy(), ToyConfig(base=7e5))
    stored = store.stored_runs(lab.results, "toy", 1)
    assert [s.tables["toy"].base[0] for s in stored] == [5e5, 7e5]
    assert store.stored_runs(lab.results, "toy", 2) == []
    assert store.stored_runs(lab.results, "other", 1) == []


def test_records_for_json_have_no_numbers_that_json_lacks():
    table = pd.DataFrame({"x": [1.5, math.nan, math.inf], "y": [1, 2, 3], "z": ["a", None, "nan"]})
    assert store.to_records(table) == [
        {"x": 1.5, "y": 1, "z": "a"},
        {"x": None, "y": 2, "z": None},
        {"x": "inf", "y": 3, "z": "nan"},
    ]


def test_a_run_is_called_after_its_config_file_and_found_under_any_name(lab):
    first = lab.carry_out(toy(), ToyConfig(base=7.0), Label("three-seeds", "Seven"))
    assert first.folder.name.startswith("three-seeds-")
    assert read_manifest(first.folder)["title"] == "Seven"
    for label in (None, Label("another name")):
        again = lab.carry_out(toy(), ToyConfig(base=7.0), label)
        assert again.reused
        assert again.folder == first.folder


def test_a_config_file_may_have_a_title(tmp_path):
    path = tmp_path / "three seeds.toml"
    label, values = take_label(path, {"title": "Three seeds", "base": 1})
    assert (label.name, label.title, values) == ("three seeds", "Three seeds", {"base": 1})
    with pytest.raises(InputError, match="title must be text"):
        take_label(path, {"title": 3})
