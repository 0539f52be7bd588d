"""Cells are made once, found again by their config alone, and never half-written."""

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ropelab
from ropelab.runs.cell import Archive, CellName, Cells, Computation, Context

SAME = CellName("eval", 1, {"seed": 0})


class Maker:
    """Counts how often a cell is made."""

    def __init__(self, value=1.0):
        self.calls = 0
        self.value = value

    def __call__(self):
        self.calls += 1
        return {"t": pd.DataFrame({"x": [self.value]})}


def test_a_finished_cell_is_read_back(tmp_path):
    make = Maker(0.1 + 0.2)
    first = Cells(tmp_path).tables(CellName("eval", 1, {"seed": 0}), make)
    second = Cells(tmp_path).tables(CellName("eval", 1, {"seed": 0}), make)
    assert make.calls == 1
    assert first["t"].x[0] == second["t"].x[0] == 0.1 + 0.2


@pytest.mark.parametrize(
    "changes", [{"version": 2}, {"key": {"seed": 1}}, {"kind": "other"}]
)
def test_whatever_a_cell_depends_on_makes_another_cell(tmp_path, changes):
    make = Maker()
    Cells(tmp_path).tables(SAME, make)
    Cells(tmp_path).tables(replace(SAME, **changes), make)
    assert make.calls == 2


def test_a_failing_cell_leaves_nothing(tmp_path):
    def fail():
        raise RuntimeError("diverged")

    with pytest.raises(RuntimeError):
        Cells(tmp_path).tables(CellName("eval", 1, {}), fail)
    make = Maker()
    Cells(tmp_path).tables(CellName("eval", 1, {}), make)
    assert make.calls == 1


def test_again_makes_each_cell_anew_once(tmp_path):
    make = Maker()
    Cells(tmp_path).tables(SAME, make)
    forced = Cells(tmp_path, fresh_run="a run")
    forced.tables(SAME, make)
    forced.tables(SAME, make)
    assert make.calls == 2


def test_a_directory_keeps_its_files_between_visits(tmp_path):
    for cells in (Cells(tmp_path), Cells(tmp_path)):
        with cells.directory(CellName("model", 1, {"seed": 0})) as folder:
            seen = (folder / "step").exists()
            (folder / "step").write_text("7")
    assert seen
    with Cells(tmp_path, fresh_run="a run").directory(
        CellName("model", 1, {"seed": 0})
    ) as folder:
        assert not (folder / "step").exists()


def test_without_a_folder_cells_live_as_long_as_the_object():
    cells, make = Cells(), Maker()
    cells.tables(CellName("eval", 1, {}), make)
    cells.tables(CellName("eval", 1, {}), make)
    assert make.calls == 1


SPOIL = {
    "a digit": lambda path: path.write_bytes(path.read_bytes().replace(b"1", b"2", 1)),
    "a cut": lambda path: path.write_bytes(path.read_bytes()[:-2]),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("file", ["t.csv", "cell.json"])
@pytest.mark.parametrize("spoil", SPOIL)
def test_a_damaged_cell_is_computed_again_and_said(tmp_path, capsys, file, spoil):
    whole = Cells(tmp_path).tables(SAME, Maker(1.5))["t"]
    (folder,) = (tmp_path / "eval").iterdir()
    spoilt = SPOIL[spoil]
    if (file, spoil) == ("cell.json", "a digit"):  # one that counts, not just any
        spoilt = lambda path: path.write_text(path.read_text().replace(": 0", ": 1"))  # noqa: E731
    spoilt(folder / file)
    assert not Cells(tmp_path).is_finished(SAME)
    make = Maker(1.5)
    pd.testing.assert_frame_equal(Cells(tmp_path).tables(SAME, make)["t"], whole)
    assert make.calls == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert file in line
    assert line.endswith("computed again")
    assert Cells(tmp_path).is_finished(SAME)


def test_a_cell_that_lies_under_another_name_is_not_taken_for_it(tmp_path, capsys):
    Cells(tmp_path).tables(SAME, Maker(1.0))
    (folder,) = (tmp_path / "eval").iterdir()
    other = replace(SAME, key={"seed": 1})
    Cells(tmp_path).tables(other, Maker(2.0))
    (copy,) = (path for path in (tmp_path / "eval").iterdir() if path != folder)
    shutil.rmtree(copy)
    shutil.copytree(folder, copy)
    assert Cells(tmp_path).tables(other, Maker(2.0))["t"].x[0] == 2.0
    assert "computed again" in capsys.readouterr().err


def test_cells_leave_no_lock_files(tmp_path):
    Cells(tmp_path).tables(SAME, Maker())
    with Cells(tmp_path).directory(CellName("model", 1, {})) as folder:
        (folder / ".left by a dead process.new").touch()
    with Cells(tmp_path).directory(CellName("model", 1, {})):
        pass
    files = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["cell.json", "cell.json", "t.csv"]


def test_a_cell_tells_what_it_is(tmp_path):
    Cells(tmp_path).tables(SAME, Maker())
    (file,) = (tmp_path / "eval").glob("*/cell.json")
    about = json.loads(file.read_text())
    assert (about["kind"], about["version"], about["key"]) == ("eval", 1, {"seed": 0})
    assert list(about["tables"]) == ["t"]


def test_a_cell_travels_in_a_parcel_to_the_cells_of_another_machine(tmp_path):
    here, there = Cells(tmp_path / "here"), Cells(tmp_path / "there")
    name = CellName("copy", 1, {"seed": 0})
    assert here.pack(name) is None
    table = pd.DataFrame({"seed": [0], "value": [0.1 + 0.2]})
    here.tables(name, lambda: {"values": table})
    archive = pickle.loads(pickle.dumps(here.pack(name)))
    there.unpack(archive)
    assert there.pack(name) == archive
    assert there.is_finished(name)


def test_a_parcel_takes_the_place_of_what_was_there(tmp_path):
    cells = Cells(tmp_path)
    name = CellName("model", 1, {"seed": 0})
    with cells.directory(CellName("model", 1, {"seed": 0})) as folder:
        (folder / "checkpoint").write_text("half done")
        (folder / "leftover").write_text("old")
    before = cells.pack(name)
    assert before is not None
    files = {"checkpoint": b"done", "cell.json": before.files["cell.json"]}
    cells.unpack(Archive(name, files))
    assert cells.pack(name) == Archive(name, files)


def test_nothing_is_packed_that_has_to_be_made_anew(tmp_path):
    name = CellName("copy", 1, {"seed": 0})
    Cells(tmp_path).tables(name, dict)
    assert Cells(tmp_path).pack(name) is not None
    assert Cells(tmp_path, fresh_run="a new run").pack(name) is None


def read_settings() -> dict[str, pd.DataFrame]:
    import torch

    words = (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.zeros(1).device,
        sorted({str(mode) for mode in np.geterr().values()}),
        str(np.float64(1 / 3)),
    )
    modes = (
        torch.is_autocast_enabled("cpu"),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
    )
    return {"t": pd.DataFrame([[*map(str, words), *modes]])}


def test_cells_are_computed_with_default_settings_and_those_of_others_come_back():
    # One's own method, or a notebook, may set these; a cell's name does not say so.
    import torch

    cell = Computation(kind="x", version=1, title="", function=read_settings, inputs={})
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    try:
        with (
            torch.autocast("cpu"),
            torch.device("meta"),
            torch.inference_mode(),
            np.errstate(all="raise"),
            np.printoptions(legacy="1.13"),
        ):
            found = Context().compute(cell)["t"]
            assert torch.is_autocast_enabled("cpu")
            assert torch.zeros(1).is_meta
            assert torch.is_inference_mode_enabled()
            assert {*np.geterr().values()} == {"raise"}
            assert str(np.float64(1 / 3)) == "0.333333333333"
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
    words = ["torch.float32", "highest", "cpu", "['ignore', 'warn']", str(1 / 3)]
    assert found.to_numpy().tolist() == [[*words, False, True, False]]


def test_settings_of_numpy_change_no_number():
    def ask() -> dict[str, pd.DataFrame]:
        return dict(ropelab.base(context=[256], head_dim=16).tables)

    expected = ask()
    with np.errstate(all="raise"), np.printoptions(legacy="1.13"):
        found = ask()
    for name, table in expected.items():
        pd.testing.assert_frame_equal(found[name], table, rtol=0, atol=0)
