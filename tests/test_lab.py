"""Runs are stored where their config says, reused while they fit, and never
half-written.
"""

import errno
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pandas as pd
import pytest

from ropelab import experiments
from ropelab.lab import Lab
from ropelab.plan import Plan, Run
from ropelab.runs import store, surroundings
from ropelab.runs.config import Config, Label, take_label
from ropelab.runs.engine import Here
from ropelab.runs.errors import InputError, MachineError
from ropelab.runs.folders import say_nothing
from ropelab.runs.pictures import read_png
from ropelab.runs.store import read_manifest
from ropelab.runs.tables import DamagedError
from ropelab.show.page.report import write_report
from ropelab.show.page.shown import find_runs
from tests.processes import started
from tests.small import as_person
from tests.texts import mentions
from tests.toy import Toy, ToyConfig, plan, toy


class NamedConfig(Config):
    """A field that holds any text."""

    name: str = ""


@pytest.fixture
def lab(tmp_path):
    Toy.runs = Toy.cells_computed = 0
    return Lab(tmp_path / "results")


def folder_of(run: Run) -> Path:
    assert run.folder is not None
    return run.folder


def manifest_of(folder: Path) -> dict[str, Any]:
    manifest = read_manifest(folder)
    assert manifest is not None
    return manifest


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_run_leaves_everything_that_describes_it(lab):
    run = lab.run(plan(base=5e5))
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
    assert manifest["tables"]["toy"]["columns"] == {
        "base": None,
        "length_tokens": "tokens",
    }
    assert manifest["tables"]["toy"]["rows"] == 1
    assert manifest["command"] == "ropelab toy --base 500000.0"
    assert manifest["packages"]["torch"]
    torch = sys.modules.get("torch")
    assert manifest["threads"] == (torch and torch.get_num_threads())
    assert manifest["answer"] == run.answer == "The base is 500000."


def test_the_name_follows_from_the_config_alone(lab, tmp_path):
    one = folder_of(lab.run(plan(base=5e5)))
    two = folder_of(Lab(tmp_path / "elsewhere").run(plan(base=5e5)))
    other = folder_of(lab.run(plan(base=5e5, seed=1)))
    assert one.name == two.name != other.name
    assert one.name.startswith("base-500000-")
    assert folder_of(lab.run(plan())).name.startswith("default-")


def test_a_finished_run_is_reused_and_force_makes_it_again(lab):
    assert not lab.run(plan()).reused
    assert lab.run(plan()).reused
    assert Toy.runs == 1
    assert not replace(lab, force=True).run(plan()).reused
    assert Toy.runs == 2


def test_the_stored_config_reads_back_as_the_same_config(lab):
    from ropelab.runs.config import build, read_toml

    run = lab.run(plan(base=123.5, seed=3))
    name, values = read_toml(run.folder / "config.toml")
    assert name == "toy"
    assert build(ToyConfig, values) == run.config


@pytest.mark.parametrize("damage", ["version", "table", "missing table", "manifest"])
def test_what_does_not_fit_any_more_is_not_reused(lab, damage):
    run = lab.run(plan())
    experiment = toy()
    if damage == "version":
        experiment = replace(experiment, version=2)
    elif damage == "table":
        (run.folder / "tables/toy.csv").write_text("base,length_tokens\n1,1\n")
    elif damage == "missing table":
        (run.folder / "tables/toy.csv").unlink()
    else:
        (run.folder / "manifest.json").write_text("{")
    again = lab.run(plan(experiment=experiment))
    assert not again.reused
    assert again.folder == run.folder
    assert lab.run(plan(experiment=experiment)).reused


def test_runs_with_the_same_short_hash_are_two(tmp_path):
    lab = Lab(tmp_path / "results", figures=False)
    # Their hashes begin with the same 32 bits: 938b2871.
    plans = [lab.prepare("freqs", {"base": base}) for base in ("11912", "51881.25")]
    first, second = map(lab.run, plans)
    assert not second.reused
    assert folder_of(first).name.endswith("-938b2871")
    assert folder_of(second).name.endswith("-938b287185b12c62")
    for made, asked in zip((first, second), plans, strict=True):
        again = lab.run(asked)
        assert (again.reused, again.folder) == (True, made.folder)
        assert again.tables["pairs"].equals(made.tables["pairs"])

    # The long name is found without the short one, too.
    shutil.rmtree(folder_of(first))
    assert lab.run(plans[1]).reused
    assert folder_of(lab.run(plans[0])) == folder_of(first)


def test_another_run_that_takes_the_name_meanwhile_is_left_alone(lab, monkeypatch):
    monkeypatch.setattr(store, "fingerprint", lambda value: "0123456789abcdef")
    first, second = plan(base=2.0), plan(base=3.0)
    place = lab._find_folder(second)
    assert place is not None
    before = place.path
    shutil.copytree(folder_of(lab.run(first)), before, dirs_exist_ok=True)
    made = store.Made({"toy": pd.DataFrame({"base": [3.0]})}, None, {
        "title": "", "question": "", "cannot_show": "", "answer": "", "summary": [],
        "command": "", "start": "2026-01-01T00:00:00+00:00", "seconds": 0.0,
        "measurements": {}, "times": {},
    })  # fmt: skip
    place.keep(lambda: made, say_nothing, is_forced=True)
    assert place.path.name.endswith("-0123456789abcdef")
    assert manifest_of(before)["config"]["base"] == 2.0
    assert manifest_of(place.path)["config"]["base"] == 3.0


def test_a_run_of_a_newer_version_is_left_alone_and_said(lab, capsys):
    newer = replace(toy(), version=2)
    theirs = lab.run(plan(experiment=newer))
    ours = lab.run(plan())
    assert folder_of(ours) != folder_of(theirs)
    assert lab.run(plan()).reused
    assert lab.run(plan(experiment=newer)).reused
    stored = store.load_stored_runs(lab.results, "toy", toy().version)
    assert [run.path for run in stored] == [str(ours.folder)]
    (line,) = capsys.readouterr().err.splitlines()
    assert str(theirs.folder) in line


def test_runs_of_an_earlier_version_are_quoted_where_there_is_none_of_this_one(
    lab, capsys
):
    earlier = lab.run(plan())
    newer = replace(toy(), version=2)
    (stored,) = store.load_stored_runs(lab.results, "toy", 2)
    assert stored.path == str(earlier.folder)
    assert mentions(capsys.readouterr().err, str(earlier.folder), "version 1")
    assert stored.earlier_version == 1

    # A run of another name replaces nothing.
    other = lab.run(plan(experiment=newer, base=2.0))
    found = {run.path: run for run in store.load_stored_runs(lab.results, "toy", 2)}
    assert set(found) == {str(earlier.folder), str(other.folder)}
    assert found[str(other.folder)].earlier_version is None


def test_a_run_of_an_earlier_version_gives_way_to_one_of_its_name(lab, capsys):
    label = Label(name="mine")
    earlier = lab.run(plan(label=label))
    newer = replace(toy(), version=2)
    other = lab.run(plan(label=label, experiment=newer, base=2.0))
    (stored,) = store.load_stored_runs(lab.results, "toy", 2)
    assert stored.path == str(other.folder)
    assert stored.earlier_version is None
    (line,) = capsys.readouterr().err.splitlines()
    assert f"left out: {earlier.folder}" in line


def test_a_clock_that_is_set_back_takes_no_negative_time(lab, monkeypatch):
    times = iter([datetime(2026, 1, 1, 3, tzinfo=UTC)])
    earlier = datetime(2026, 1, 1, 2, tzinfo=UTC)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return next(times, earlier)

    monkeypatch.setattr("ropelab.lab.datetime", Clock)
    run = lab.run(plan())
    assert manifest_of(folder_of(run))["seconds"] >= 0
    assert lab.run(plan()).reused


def kill_between_the_renames(folder: Path) -> None:
    folder.rename(folder.with_name(f".{folder.name}.old"))
    half = folder.with_name(f".{folder.name}.new")
    half.mkdir()
    (half / "manifest.json").write_text("{")


def test_readers_put_back_what_a_killed_process_left_under_another_name(lab):
    run = lab.run(plan())
    folder = folder_of(run)
    for read in (
        lambda: [folder for folder, _ in store.find_finished(lab.results)],
        lambda: [
            Path(each.path)
            for each in store.load_stored_runs(lab.results, "toy", toy().version)
        ],
        lambda: [shown.folder for shown in find_runs([folder])],
        lambda: [folder_of(lab.run(plan()))],
    ):
        kill_between_the_renames(folder)
        assert read() == [folder]
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert lab.run(plan()).reused


def test_a_run_that_cannot_be_put_back_is_said(lab, monkeypatch, capsys):
    folder = folder_of(lab.run(plan()))
    kill_between_the_renames(folder)

    def refuse(*arguments: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(store, "put_back", refuse)
    assert list(store.find_finished(lab.results)) == []
    (line,) = capsys.readouterr().err.splitlines()
    assert str(folder) in line
    assert "Permission denied" in line


def test_changed_inputs_make_the_run_again(lab, monkeypatch):
    lab.run(plan())
    monkeypatch.setattr(ToyConfig, "inputs", lambda self: {"corpus": "another"})
    assert not lab.run(plan()).reused


def test_a_failing_run_leaves_the_results_as_they_were(lab):
    run = lab.run(plan())
    before = files(lab.results)
    with pytest.raises(RuntimeError, match="unlucky"):
        lab.run(plan(seed=13))
    assert [f for f in files(lab.results) if not f.endswith(".lock")] == [
        f for f in before if not f.endswith(".lock")
    ]
    assert run.folder.exists()


def test_the_same_config_gives_the_same_bytes(lab, tmp_path):
    one = folder_of(lab.run(plan()))
    two = folder_of(Lab(tmp_path / "elsewhere").run(plan()))
    for name in ("tables/toy.csv", "config.toml", "figures/toy.png"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_figures_nobody_asked_for_are_drawn_when_somebody_does(lab):
    plain = replace(lab, figures=False).run(plan())
    assert not (plain.folder / "figures").exists()
    assert manifest_of(plain.folder)["figures"] is None
    tables = (plain.folder / "tables/toy.csv").read_bytes()
    assert lab.run(plan()).reused
    assert manifest_of(plain.folder)["figures"] == ["figures/toy.png"]
    assert (plain.folder / "figures/toy.png").exists()
    assert (plain.folder / "tables/toy.csv").read_bytes() == tables


def test_redraw_makes_only_the_figures_again(lab):
    run = lab.run(plan())
    (run.folder / "figures/toy.png").unlink()
    assert replace(lab, redraw=True).run(plan()).reused
    assert (run.folder / "figures/toy.png").exists()
    assert Toy.runs == 1


def _header(side: int) -> bytes:
    """Make a PNG that claims to have so many pixels across and down, and has none."""
    about = b"IHDR" + side.to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00"
    content = about + zlib.crc32(about).to_bytes(4, "big")
    return (
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\r" + content + b"\x00\x00\x00\x00IEND\xaeB`\x82"
    )


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda whole: whole[:-20],
    "a bit": lambda whole: (
        whole[: len(whole) // 2] + b"?" + whole[len(whole) // 2 + 1 :]
    ),
    "7000 x 7000": lambda whole: _header(7000),
    "10000 x 10000": lambda whole: _header(10000),
    "50000 x 50000": lambda whole: _header(50000),
    "followed": lambda whole: whole + b"1,2\n",
    "EPS": lambda whole: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
}


@pytest.mark.parametrize("damage", [*SPOILT, "gone", "a folder", "a pipe", "a device"])
def test_a_damaged_figure_is_drawn_again(
    lab: Lab, damage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from PIL import EpsImagePlugin

    folder = folder_of(lab.run(plan()))
    figure = folder / "figures/toy.png"
    whole = figure.read_bytes()
    figure.unlink()
    monkeypatch.setattr(EpsImagePlugin, "EpsImageFile", None)  # calls a program
    if damage == "a folder":
        figure.mkdir()
    elif damage == "a pipe":
        os.mkfifo(figure)
    elif damage == "a device":
        figure.symlink_to("/dev/zero")
    elif damage != "gone":
        figure.write_bytes(SPOILT[damage](whole))
    page = write_report(find_runs([folder]), tmp_path / "page.html", draw=False)
    assert "<img" not in page.read_text().split("<script")[0]
    assert lab.run(plan()).reused
    assert figure.read_bytes() == whole
    assert Toy.runs == 1


@pytest.mark.processes
def test_a_run_whose_tables_cannot_be_listed_keeps_them(tmp_path: Path) -> None:
    assert as_person("freqs", "-q", cwd=tmp_path).returncode == 0
    (tables,) = tmp_path.glob("results/freqs/*/tables")
    before = files(tables)
    tables.chmod(0o311)
    done = as_person("freqs", "--redraw", "-q", cwd=tmp_path)
    tables.chmod(0o755)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ropelab: Permission denied")
    assert (files(tables), bool(before)) == (before, True)


@pytest.mark.processes
def test_runs_that_cannot_be_listed_are_said(tmp_path: Path) -> None:
    assert as_person("freqs", "-q", cwd=tmp_path).returncode == 0
    assert as_person("base", "--context", "64", "-q", cwd=tmp_path).returncode == 0
    (tmp_path / "results/freqs").chmod(0o311)
    shown, again = (
        as_person("report", cwd=tmp_path),
        as_person("freqs", "-q", cwd=tmp_path),
    )
    (tmp_path / "results/freqs").chmod(0o755)
    assert (shown.returncode, again.returncode) == (0, 1)
    assert mentions(shown.stderr, "left out: results/freqs", "Permission denied")
    assert again.stderr.startswith("ropelab: Permission denied (results/freqs)")


@pytest.mark.parametrize("name", ["tables/toy.csv", "figures/toy.png", "config.toml"])
@pytest.mark.parametrize("redraw", [False, True])
def test_a_folder_that_does_not_read_back_takes_no_place(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str, redraw: bool
) -> None:
    folder = folder_of(lab.run(plan()))
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    write_bytes = Path.write_bytes

    def lose(path: Path, content: bytes) -> int:
        return write_bytes(
            path, content[:-1] if path.as_posix().endswith(name) else content
        )

    def copy(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr(Path, "write_bytes", lose)
    monkeypatch.setattr(shutil, "copyfile", copy)
    with pytest.raises(DamagedError, match="is not what was written"):
        replace(lab, redraw=redraw, force=not redraw).run(plan())
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before


@pytest.mark.parametrize("name", ["config.toml", "metrics.json"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{}")])
def test_a_damaged_config_or_metric_is_said_and_the_run_made_again(
    lab: Lab,
    capsys: pytest.CaptureFixture[str],
    name: str,
    damage: Callable[[Path], object],
) -> None:
    folder = folder_of(lab.run(plan()))
    before = (folder / name).read_bytes()
    damage(folder / name)
    assert not lab.run(plan()).reused
    assert f"{folder / name} " in capsys.readouterr().err
    assert (folder / name).read_bytes() == before


def test_a_damaged_table_is_said_and_the_run_made_again(lab, capsys):
    run = lab.run(plan())
    (run.folder / "tables/toy.csv").write_text("base,length_tokens\n1,1\n")
    assert store.load_stored_runs(lab.results, "toy", 1) == []
    assert "left out" in capsys.readouterr().err
    assert lab.run(plan()).tables["toy"].base[0] == 1e4
    said = capsys.readouterr().err
    assert mentions(said, "not what was written", "made again")


def test_reading_a_finished_run_writes_nothing(lab, monkeypatch):
    run = lab.run(plan())

    def refuse(*_, **__):
        raise AssertionError("something was written")

    for name in ("mkdir", "touch", "rename", "unlink", "write_text"):
        monkeypatch.setattr(f"pathlib.Path.{name}", refuse)
    again = lab.run(plan())
    assert again.reused
    assert again.tables["toy"].equals(run.tables["toy"])


def test_a_run_without_figures_is_reused_where_none_can_be_drawn(
    lab, monkeypatch, capsys
):
    replace(lab, figures=False).run(plan())

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    assert lab.run(plan()).reused
    said = capsys.readouterr().err
    assert mentions(said, "figures are not drawn", "cannot write")
    for asked in (replace(lab, redraw=True), replace(lab, force=True)):
        with pytest.raises(InputError, match="Read-only file system"):
            asked.run(plan())


FOREIGN = [
    "[]",
    "{}",
    '{"experiment": "toy"}',
    "not JSON",
    "[" * 100_000,
    '{"tables": 3}',
    "\0",
]


@pytest.mark.parametrize("text", FOREIGN, ids=lambda text: text[:10])
def test_a_foreign_manifest_is_left_alone_and_said_once(lab, capsys, text):
    whole = lab.run(plan())
    foreign = lab.results / "toy" / "foreign" / "manifest.json"
    foreign.parent.mkdir()
    foreign.write_text(text)
    for _ in range(2):
        assert [run.path for run in store.load_stored_runs(lab.results, "toy", 1)] == [
            str(whole.folder)
        ]
    assert capsys.readouterr().err.count("left out") == 1
    assert foreign.read_text() == text


def test_names_in_a_manifest_stay_inside_its_folder(lab):
    folder = lab.run(plan()).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    for changes in (
        {"figures": ["../x.png"]},
        {"tables": {"../x": manifest["tables"]["toy"]}},
    ):
        store.RUN.describe(folder / "manifest.json", {**manifest, **changes})
        assert read_manifest(folder) is None
    store.RUN.describe(folder / "manifest.json", manifest)
    assert read_manifest(folder) == manifest


@pytest.mark.parametrize(
    ("entry", "value"),
    [("command", "ropelab toy --x 'open"), ("start", "yesterday"), ("seconds", "nan")],
)
def test_an_odd_manifest_is_left_out(
    lab: Lab, capsys: pytest.CaptureFixture[str], entry: str, value: str
) -> None:
    folder = folder_of(lab.run(plan()))
    store.RUN.describe(folder / "manifest.json", {**manifest_of(folder), entry: value})
    assert list(store.find_finished(lab.results or Path())) == []
    assert "does not describe" in capsys.readouterr().err


CHANGES = {
    "answer": "The base is 7.",
    "question": "What?",
    "summary": [{"base": 7.0}],
    "seconds": 0.0,
    "commit": "0" * 40,
    "title": "Seven",
}


@pytest.mark.parametrize("entry", CHANGES)
def test_a_sentence_changed_in_a_manifest_is_noticed_and_the_run_made_again(
    lab, capsys, entry
):
    run = lab.run(plan())
    path = run.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, entry: CHANGES[entry]}))
    assert read_manifest(run.folder) is None
    assert store.load_stored_runs(lab.results, "toy", 1) == []
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert mentions(said, "left out:", path, "not what was written")
    assert not lab.run(plan()).reused
    assert manifest_of(run.folder)["answer"] == run.answer


def test_the_hash_of_a_manifest_is_of_what_it_says_not_of_how_it_is_spaced(lab):
    folder = lab.run(plan()).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    assert list(manifest)[-1] == "sha256"
    (folder / "manifest.json").write_text(json.dumps(manifest, sort_keys=True))
    assert read_manifest(folder) == manifest


@pytest.mark.processes
def test_the_command_can_be_pasted_into_a_shell(lab, tmp_path):
    text = f"x'; touch {tmp_path}/pasted; echo 'y $(touch {tmp_path}/pasted)"
    command = (
        NamedConfig(name=text).command("toy").replace("ropelab", "printf '%s\n'", 1)
    )
    told = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert told.stdout.splitlines() == ["toy", "--name", text]
    assert not (tmp_path / "pasted").exists()


def git(folder, *arguments):
    subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    """A repository with one commit, and a copy of the package in it that it does not
    track.
    """
    git(tmp_path, "init")
    (tmp_path / "tracked").touch()
    git(tmp_path, "add", "tracked")
    git(tmp_path, "-c", "user.name=x", "-c", "user.email=x", "commit", "-m", "x")
    shutil.copytree(Path(store.__file__).parents[1], tmp_path / "venv" / "ropelab")
    return tmp_path


ASK = "from ropelab.runs import surroundings; print(surroundings._find_commit())"


@pytest.mark.processes
def test_a_package_inside_another_repository_claims_no_commit(checkout):
    told = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=checkout / "venv",
        capture_output=True,
        text=True,
    )
    assert told.stdout == "{'commit': None, 'dirty': None}\n", told.stderr


@pytest.mark.processes
def test_the_commit_is_not_that_of_git_dir(checkout):
    head = ["git", "rev-parse", "HEAD"]
    here = Path(store.__file__).parents[2]
    ours = subprocess.run(head, cwd=here, capture_output=True, text=True).stdout.strip()
    environment = {
        **os.environ,
        "GIT_DIR": str(checkout / ".git"),
        "PYTHONPATH": str(here),
    }
    told = subprocess.run(
        [sys.executable, "-c", ASK],
        env=environment,
        cwd=here,
        capture_output=True,
        text=True,
    )
    assert f"'commit': {ours or None!r}" in told.stdout


@pytest.mark.processes
def test_a_change_in_any_room_of_the_package_is_a_change(tmp_path):
    """The file that asks is in one room; what was changed is in another."""
    package = tmp_path / "ropelab"
    shutil.copytree(
        Path(store.__file__).parents[1],
        package,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    git(tmp_path, "init")
    git(tmp_path, "add", "ropelab")
    git(tmp_path, "-c", "user.name=x", "-c", "user.email=x", "commit", "-m", "x")

    def ask() -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        told = subprocess.run(
            [sys.executable, "-c", ASK],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        return told.stdout

    assert "'dirty': False" in ask()
    (package / "math" / "axes.py").write_text("# changed")
    assert "'dirty': True" in ask()


def test_a_results_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(InputError, match="cannot write to the results folder"):
        Lab(tmp_path / "results").run(plan())


def test_without_results_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Lab().run(plan())
    assert run.folder is None
    assert list(tmp_path.iterdir()) == []


def test_stored_runs_are_found_with_their_tables(lab):
    lab.run(plan(base=5e5))
    lab.run(plan(base=7e5))
    stored = store.load_stored_runs(lab.results, "toy", 1)
    assert [s.tables["toy"].base[0] for s in stored] == [5e5, 7e5]
    assert store.load_stored_runs(lab.results, "toy", 0) == []
    assert store.load_stored_runs(lab.results, "other", 1) == []


def test_records_for_json_have_no_numbers_that_json_lacks():
    table = pd.DataFrame(
        {"x": [1.5, math.nan, math.inf], "y": [1, 2, 3], "z": ["a", None, "nan"]}
    )
    assert store.make_records(table) == [
        {"x": 1.5, "y": 1, "z": "a"},
        {"x": None, "y": 2, "z": None},
        {"x": "inf", "y": 3, "z": "nan"},
    ]


def test_a_run_is_called_after_its_config_file_and_found_under_any_name(lab):
    first = lab.run(plan(Label("three-seeds", "Seven"), base=7.0))
    assert first.folder.name.startswith("three-seeds-")
    assert manifest_of(first.folder)["title"] == "Seven"
    for label in (None, Label("another name")):
        again = lab.run(plan(label, base=7.0))
        assert again.reused
        assert again.folder == first.folder


def test_a_config_file_may_have_a_title(tmp_path):
    path = tmp_path / "three seeds.toml"
    label, values = take_label(path, {"title": "Three seeds", "base": 1})
    assert (label.name, label.title, values) == (
        "three seeds",
        "Three seeds",
        {"base": 1},
    )
    with pytest.raises(InputError, match="title must be text"):
        take_label(path, {"title": 3})


class Engine(Here):
    """Notes the cells that it computes, and whether it was left in good order."""

    def __init__(self):
        self.computed, self.is_open = [], False

    def compute(self, cells, context):
        self.computed += cells
        self.is_open = True
        try:
            yield from super().compute(cells, context)
        finally:
            self.is_open = False


def test_a_cell_of_several_runs_is_computed_once_and_counted_in_each_manifest(lab):
    engine = Engine()
    lab = replace(lab, engine=engine)
    runs = dict(lab.run_all([plan(base=2.0), plan(base=3.0), plan(base=4.0, seed=1)]))
    assert len(engine.computed) == Toy.cells_computed == 2
    assert [runs[number].tables["toy"].base[0] for number in range(3)] == [
        2.0,
        3.0,
        4.0,
    ]
    later = lab.run(plan(base=5.0, seed=1))
    assert len(engine.computed) == 2
    measured = [manifest_of(run.folder)["measurements"] for run in (runs[0], later)]
    assert measured == [{"computed": 1, "reused": 0}, {"computed": 0, "reused": 1}]


def test_the_same_run_asked_for_twice_is_made_once(lab):
    runs = dict(lab.run_all([plan(), plan(label=Label("again")), plan(seed=1)]))
    assert [runs[number].reused for number in range(3)] == [False, True, False]
    assert Toy.runs == 2


def test_a_run_that_fails_is_one_error_with_its_origin_and_the_others_are_kept(lab):
    plans = [plan(), plan(Label(origin="x.toml, case 2"), seed=14), plan(seed=3)]
    made = lab.run_all(plans)
    assert {next(made)[0], next(made)[0]} == {0, 2}
    with pytest.raises(MachineError) as error:
        next(made)
    assert str(error.value) == "x.toml, case 2: diverged"


def test_cells_of_a_failed_run_are_not_computed_again(lab, monkeypatch):
    monkeypatch.setattr(Toy, "answer", lambda self, tables: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lab.run(plan())
    monkeypatch.undo()
    lab.run(plan())
    assert Toy.cells_computed == 1


@pytest.mark.parametrize("asked", [{"force": True}, {"redraw": True}])
def test_files_of_the_user_stay_in_a_run_that_is_made_again(lab, asked):
    folder = lab.run(plan()).folder
    (folder / "notes.md").write_text("mine")
    inner = replace(lab, results=folder).run(plan()).folder
    replace(lab, **asked).run(plan())
    assert (folder / "notes.md").read_text() == "mine"
    assert replace(lab, results=folder).run(plan()).reused
    assert inner.is_dir()


def test_force_computes_cells_again_once_for_all_runs(lab):
    lab.run(plan())
    forced = replace(lab, force=True)
    assert not any(run.reused for _, run in forced.run_all([plan(), plan(base=5.0)]))
    assert Toy.cells_computed == 2


def test_the_engine_is_left_when_nobody_wants_more_runs(lab):
    engine = Engine()
    made = replace(lab, engine=engine).run_all([plan(), plan(seed=1)])
    next(made)
    assert engine.is_open
    made.close()
    assert not engine.is_open


class Reads(ToyConfig):
    """A run that reads others and has one made first."""

    def list_read_experiments(self):
        return ("toy",)

    def list_required_runs(self):
        return (("toy", {"base": 3.0}),)


def test_a_run_that_reads_others_follows_them_and_what_it_requires_is_made_first(
    lab, monkeypatch
):
    monkeypatch.setattr(experiments, "load", lambda name: toy())
    seen: list[float] = []

    class Reader(Toy):
        def tables(self, config, values):
            seen.extend(
                stored.tables["toy"].base[0]
                for stored in values.find_stored_runs("toy")
            )
            return super().tables(config, values)

    reader = replace(toy(), name="reader")
    reader = Reader(*(getattr(reader, each.name) for each in fields(reader)))
    reading = Plan(reader, Reads(seed=1))
    numbers = [number for number, _ in lab.run_all([reading, plan(base=7.0)])]
    assert numbers == [1, 0]
    assert sorted(seen) == [3.0, 7.0]
    assert not Lab().run(reading).reused
    assert Toy.runs == 4, "in memory nothing is required"


TWICE = """
import sys
from pathlib import Path
from typing import Any
from ropelab.lab import Lab
from tests.toy import plan
run = Lab(Path(sys.argv[1])).run(plan(seed=5))
print(run.reused, run.folder.name)
"""


@pytest.mark.processes
def test_two_processes_that_make_the_same_run_agree(tmp_path):
    command = ["-c", TWICE, str(tmp_path / "results")]
    with started(*command, stdout=PIPE) as one, started(*command, stdout=PIPE) as other:
        told = [process.communicate(timeout=120)[0].split() for process in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0)
    assert told[0][1] == told[1][1]
    assert len(list(store.find_finished(tmp_path / "results"))) == 1


@pytest.mark.slow
def test_a_run_in_memory_equals_the_stored_one(tmp_path):
    lab, small = (
        Lab(figures=False),
        {"length": 64, "head_dim": 8, "samples": 16, "draws": 2},
    )
    wanted = lab.prepare("precision", {**small, "model_dim": 8, "long_lengths": 128})
    fleeting, stored = lab.run(wanted), replace(lab, results=tmp_path).run(wanted)
    assert fleeting.answer == stored.answer
    assert list(fleeting.tables) == list(stored.tables)
    for name, table in stored.tables.items():
        pd.testing.assert_frame_equal(fleeting.tables[name], table, check_exact=True)


@pytest.mark.processes
def test_config_files_are_answered_from_a_folder_that_is_only_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "many.toml").write_text(
        'experiment = "freqs"\n[grid]\nbase = [1e4, 1e6]\n'
    )
    (tmp_path / "more.toml").write_text('experiment = "freqs"\nbase = 5e5\n')
    assert as_person("run", "many.toml", "-q", cwd=tmp_path).returncode == 0
    results = tmp_path / "results"
    before = {path: path.stat() for path in (results, *results.rglob("*"))}
    folders = [path for path in before if path.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    done = as_person("run", "many.toml", cwd=tmp_path)
    unfinished = as_person("run", "more.toml", cwd=tmp_path)
    for folder in folders:
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(reused)") == 2
    problem = (
        "cannot write to the results folder results: Permission denied; choose another"
    )
    assert mentions(done.stderr, "index and page", "not written", problem)
    assert unfinished.returncode == 2
    assert unfinished.stderr == f"ropelab: {problem} --results\n"
    after = {path: path.stat() for path in (results, *results.rglob("*"))}
    assert {path: stat.st_mtime_ns for path, stat in after.items()} == {
        path: stat.st_mtime_ns for path, stat in before.items()
    }


def test_many_runs_at_once_take_no_thread_each() -> None:
    before, most = threading.active_count(), 0
    plans = [plan(base=1000.0 + number, seed=number + 20) for number in range(60)]
    found = set()
    for number, run in Lab().run_all(plans):
        most = max(most, threading.active_count())
        found.add(
            (number, run.tables["toy"].base[0], run.tables["toy"].length_tokens[0])
        )
    assert found == {(number, 1000.0 + number, number + 20) for number in range(60)}
    assert most <= before + 2


def test_a_run_that_is_found_only_after_the_work_has_figures(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(replace(lab, figures=False).run(plan()))
    find, looks = store.RunFolder.find, iter([None])
    monkeypatch.setattr(store.RunFolder, "find", lambda self: next(looks, find(self)))
    run = lab.run(plan())
    assert run.reused
    assert read_png(folder / "figures/toy.png")


@pytest.mark.parametrize("asked", [{"force": True}, {"redraw": True}])
def test_files_of_the_user_stay_beside_tables_and_figures(lab, asked):
    folder = lab.run(plan()).folder
    written = {path.relative_to(folder) for path in folder.rglob("*")}
    for name in ("tables", "figures"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "mine.csv").write_text("mine")
    replace(lab, **asked).run(plan())
    for name in ("tables", "figures"):
        assert (folder / name / "mine.csv").read_text() == "mine"
    left = {path.relative_to(folder) for path in folder.rglob("*")} - written
    assert {path.name for path in left} <= {"mine.csv", "figures"}


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\n",
        b"\x1b[2J\n",
        b"a" * 2**20,
        b"",
        subprocess.TimeoutExpired("git", 1),
        PermissionError(13, "Permission denied"),
    ],
)
def test_any_program_may_be_called_git(monkeypatch, answer):
    """Bytes are what it prints; an error is what running it raises."""

    def run(command, **options):
        if isinstance(answer, Exception):
            raise answer
        text = answer.decode(options["encoding"], options["errors"])
        return subprocess.CompletedProcess(command, 0, text, "")

    monkeypatch.setattr(subprocess, "run", run)
    surroundings._find_commit.cache_clear()
    found = surroundings._find_commit()
    surroundings._find_commit.cache_clear()
    assert found == {"commit": None, "dirty": None}
