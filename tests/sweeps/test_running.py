"""Many runs from one file: told before, dealt out to shards, and put into one table."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ropelab.lab import Lab
from ropelab.models.tasks.divergence import shorten_divergence
from ropelab.runs import estimate, store
from ropelab.runs.cell import Resources, hash_cell
from ropelab.runs.engine import Here
from ropelab.runs.errors import MachineError
from ropelab.runs.estimate import Estimate
from ropelab.runs.store import read_manifest
from ropelab.runs.thresholds import DIVERGED
from ropelab.show.figures.sweep import SweepColumns, choose_columns, choose_looks, draw
from ropelab.show.looks import find_look
from ropelab.show.page.shown import find_runs
from ropelab.sweeps.cases import read_sweeps
from ropelab.sweeps.combined import make_tables
from ropelab.sweeps.shares import choose_share, look_ahead
from tests.test_cli import call, visible
from tests.texts import mentions

__all__ = ["call"]  # a fixture
TRAINED = """experiment = "base-empirical"
corpus = "{corpus}"
documents = 2
sequences = 1
tasks = ["text", "copy"]
bases = [30, 300]
layers = 1
width = 16
head_dim = 16
tokens_per_step = 512
[grid]
steps = [2, 3]
"""
# Two bases for each number of steps: a model and two questions each.
CELLS = 12
# With one of each run of arithmetic.
ALL_CELLS = 15
ARITHMETIC = 'experiment = "freqs"\nhead_dim = 16\n[grid]\nbase = [1e4, 1e5, 1e6]\n'


@pytest.fixture(autouse=True)
def _a_machine_of_known_speed(monkeypatch):
    monkeypatch.setattr(estimate, "measure_slowness", lambda: 1.0)


@pytest.fixture
def files(corpora, tmp_path):
    folder = tmp_path / "asked"
    folder.mkdir()
    (folder / "freqs.toml").write_text(ARITHMETIC)
    (folder / "trained.toml").write_text(TRAINED.format(corpus=corpora[0]))
    return folder


class CountedCells(Here):
    """Notes what it computes."""

    def __init__(self):
        self.names = []

    def compute(self, cells, context):
        self.names += map(hash_cell, cells)
        yield from super().compute(cells, context)


def tables_in(folder):
    manifest = read_manifest(folder)
    assert manifest is not None
    return store.RUN.tables(folder, manifest)


def all_tables(results):
    return {
        path.relative_to(results).as_posix(): path.read_bytes()
        for path in sorted(results.glob("[!.]*/*/tables/*.csv"))
    }


def test_a_dry_run_lists_runs_and_cells_with_costs_and_leaves_nothing(call, files):
    status, out, _ = call("run", files, "--dry-run", "--workers", 2)
    assert status == 0
    assert not Path("results").exists()
    lines = out.splitlines()
    assert mentions(lines[0], files / "freqs.toml", "case 1 (base=10000):")
    assert mentions(lines[0], "freqs, to do", "1 of 1 cells", "about 1")
    measured = [line for line in lines if "base-empirical, to do" in line]
    assert len(measured) == 2
    assert all(mentions(line, "6 of 6 cells", "about") for line in measured)
    assert sum(line.startswith("    training: base 30,") for line in lines) == 2
    assert mentions(lines[-1], "5 runs (0 finished)", f"{ALL_CELLS} cells (0 finished)")
    assert mentions(lines[-1], "2 workers", "3.0 GB each")
    assert "not known" not in out


def test_a_dry_run_tells_what_is_finished(call, files):
    assert call("run", files / "freqs.toml", "--quiet")[0] == 0
    assert call("run", files, "--dry-run")[1].count(": freqs, finished\n") == 3
    trained = ("run", files / "trained.toml", "--workers", 1)
    assert call(*trained, "--shard", "1/2", "--quiet")[0] == 0
    out = call(*trained, "--dry-run")[1]
    finished = out.count(": finished\n")
    assert 0 < finished < CELLS
    assert f"{CELLS} cells ({finished} finished)" in out
    for shard, line in (
        ("1/2", f"{finished} cells ({finished} finished)"),
        ("2/2", f"{CELLS - finished} cells (0 finished)"),
    ):
        assert line in call(*trained, "--shard", shard, "--dry-run")[1]


def test_shards_divide_all_work_without_overlap_and_as_evenly_as_models_allow(
    files, tmp_path
):
    lab = Lab(tmp_path / "r")
    runs = look_ahead(read_sweeps([files / "trained.toml"], lab), lab)
    for of in (1, 2, 3, 7):
        shares = [choose_share(runs, (number, of)).cells for number in range(1, of + 1)]
        names = [name for share in shares for name in share]
        assert len(names) == len(set(names)) == CELLS
        for share in shares:  # the shard that evaluates a model has trained it
            assert all(
                hash_cell(start) in share
                for cell in share.values()
                for start in cell.prerequisites
            )
    assert sum(map(bool, shares)) == 4, "one for each model"


def test_shards_do_not_depend_on_what_is_finished(files, tmp_path):
    lab = Lab(tmp_path / "r", figures=False)
    sweeps = read_sweeps([files], lab)

    def named():
        return list(choose_share(look_ahead(sweeps, lab), (1, 3)).cells)

    before = named()
    lab.run(sweeps[1].plans[0])
    assert named() == before


@pytest.mark.slow
def test_shards_in_one_folder_or_in_several_give_the_tables_of_a_run_without_them(
    call, files
):
    assert call("run", files, "--results", "whole", "--quiet", "--workers", 1)[0] == 0
    for number in (1, 2):
        shard = ("--shard", f"{number}/2", "--quiet", "--workers", 1)
        assert call("run", files, "--results", "shared", *shard)[0] == 0
        assert call("run", files, "--results", f"own{number}", *shard)[0] == 0
        shutil.copytree(f"own{number}", "copied", dirs_exist_ok=True)
    whole = all_tables(Path("whole"))
    assert len(whole) > 15
    for results in ("shared", "copied"):
        out = call("run", files, "--results", results, "--dry-run", "--workers", 1)[1]
        assert f"{ALL_CELLS} cells ({ALL_CELLS} finished)" in out
        assert (
            call("run", files, "--results", results, "--quiet", "--workers", 1)[0] == 0
        )
        assert all_tables(Path(results)) == whole


NO_SHARDS = [
    "0/2",
    "3/2",
    "2",
    "a/b",
    "-1/2",
    "1/0",
    "1/99999999",
    "1/2/3",
    "\uff11/2",
    "9" * 5000,
]


@pytest.mark.parametrize("shard", NO_SHARDS, ids=lambda shard: shard[:10])
def test_a_shard_that_is_none_is_refused(call, files, shard):
    status, _, err = call("run", files, "--shard", shard)
    assert (status, err.count("\n")) == (2, 1)
    assert mentions(err, "--shard", "1 <= I", "10000", "not '")
    # A long value is cut in the middle.
    assert err.endswith(f"{shard[-900:]}'\n")


def test_force_does_not_go_with_shards(call, files):
    status, _, err = call("run", files, "--shard", "1/2", "--force")
    assert (status, err.count("\n")) == (2, 1)
    assert "--force" in err


def test_what_is_not_known_before_is_said(call, files, monkeypatch):
    monkeypatch.setattr(Resources, "estimate", lambda resources: Estimate(parts=1))
    lines = call("run", files / "freqs.toml", "--dry-run")[1].splitlines()
    assert mentions(lines[0], "1 of 1 cells", "not known")
    assert mentions(lines[-1], "3 cells (0 finished)", "not known")


def test_what_is_finished_is_not_computed_again(files, tmp_path):
    engine = CountedCells()
    lab = Lab(tmp_path / "r", figures=False, engine=engine)
    (sweep,) = read_sweeps([files / "trained.toml"], lab)
    for plan in sweep.plans:
        lab.run(plan)
    assert len(engine.names) == len(set(engine.names)) == CELLS


@pytest.mark.slow
@pytest.mark.pictures
def test_a_sweep_ends_in_one_table_one_figure_and_a_file_that_asks_for_it_again(
    call, files
):
    path = files / "freqs.toml"
    assert call("run", path)[0] == 0
    (folder,) = Path("results/sweep").iterdir()
    tables = tables_in(folder)
    table, runs = tables["sweep"], tables["runs"]
    assert list(table.columns[:2]) == ["base", "pair"]
    for number, row in runs.iterrows():
        run = tables_in(Path("results") / row["folder"])["pairs"]
        mine = table[table["base"] == row["base"]]
        expected = run.set_index("pair")["wavelength_tokens"][mine["pair"]]
        assert mine["wavelength_tokens"].tolist() == expected.tolist()
        assert row["case"] == number + 1
    assert (folder / "figures/sweep.png").stat().st_size > 5000
    out = call("run", folder / "config.toml", "--dry-run")[1]
    assert out.count("freqs, finished") == 3


def test_index_page_and_export_know_the_sweep(call, files):
    assert call("run", files / "freqs.toml", "--quiet")[0] == 0
    (folder,) = Path("results/sweep").iterdir()
    assert (
        f"(sweep/{folder.name}/figures/sweep.png)"
        in Path("results/index.md").read_text()
    )
    assert "freqs over base" in Path("results/index.html").read_text()
    status, out, _ = call("export", folder, "--table", "sweep", "--format", "csv")
    assert status == 0
    assert out == (folder / "tables/sweep.csv").read_text()
    assert [run.label for run in find_runs([folder])] == ["freqs over base"]


@pytest.mark.slow
def test_a_finished_sweep_is_left_as_it_is_and_a_damaged_one_is_made_again(call, files):
    command = ("run", files / "freqs.toml", "--quiet")
    assert call(*command)[0] == 0
    (folder,) = Path("results/sweep").iterdir()
    before = (folder / "manifest.json").stat().st_mtime_ns
    assert call(*command)[0] == 0
    assert (folder / "manifest.json").stat().st_mtime_ns == before
    whole = (folder / "tables/sweep.csv").read_text()
    (folder / "tables/sweep.csv").write_text(whole.replace("1", "2", 1))
    assert call(*command)[0] == 0
    assert (folder / "tables/sweep.csv").read_text() == whole


@pytest.mark.slow
def test_a_result_named_as_a_field_that_differs_keeps_both(call, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(
        'experiment = "base"\nhead_dim = 16\ncontext = 64\n[grid]\nbase = [50, 5e3]\n'
    )
    assert call("run", path, "--quiet")[0] == 0
    (folder,) = Path("results/sweep").iterdir()
    table = tables_in(folder)["sweep"]
    assert {"base", "base_found"} <= set(table.columns)
    assert sorted(table["base"].unique()) == [50.0, 5000.0]


@pytest.mark.slow
def test_numbers_written_for_reading_are_numbers_in_the_table(call, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(
        'experiment = "precision"\nlength = 512\nlong_lengths = []\nschemes ='
        ' ["rope"]\n[grid]\nbase = [1e4, 1e8]\n'
    )
    assert call("run", path, "--quiet")[0] == 0
    (folder,) = Path("results/sweep").iterdir()
    assert tables_in(folder)["sweep"]["float16 %"].between(0, 100).all()
    table = tables_in(folder)["casts"]
    wrong = table.set_index(["base", "only_this_is_rounded"])["bfloat16 wrong_from"]
    assert wrong[1e4, "position"] == 257
    assert pd.isna(wrong[1e4, "cos and sin"])
    errors = table["bfloat16 score_spread"]
    assert pd.api.types.is_float_dtype(errors)
    assert errors.between(0, 1).all()


def test_a_sweep_over_the_tested_length_has_a_figure_of_every_run():
    def run(test_len: int) -> SimpleNamespace:
        names = ["nll @1024", f"nll @{test_len}", f"copy @{3 * test_len // 4}"]
        methods = ["unscaled", f"yarn ×{test_len // 2048}"]
        table = pd.DataFrame({"method": methods} | {name: [0.5, 0.9] for name in names})
        config = SimpleNamespace(train_len=2048, test_len=test_len)
        return SimpleNamespace(
            config=config, summary=lambda: table, further=dict, answer=""
        )

    runs: Any = [run(length) for length in (4096, 8192, 16384)]
    sweep: Any = SimpleNamespace(keys=("test_len",))
    tables = make_tables(sweep, runs, ["a", "b", "c"])
    assert list(tables["sweep"].columns[2:]) == ["nll @0.5L", "nll @1T", "copy @0.75T"]
    (figure,) = draw(tables).values()
    for ax in figure.axes:
        assert [line.get_label() for line in ax.lines] == ["unscaled", "yarn ×T/L"]
        assert all(
            np.array_equal(line.get_xdata(), [4096, 8192, 16384]) for line in ax.lines
        )


def test_a_factor_that_was_given_stays_in_the_names_of_methods():
    def run(test_len: int) -> SimpleNamespace:
        table = pd.DataFrame({"method": ["unscaled", "yarn ×4"], "nll @1024": [2, 1]})
        config = SimpleNamespace(train_len=1024, test_len=test_len, factor=4)
        return SimpleNamespace(
            config=config, summary=lambda: table, further=dict, answer=""
        )

    runs: Any = [run(length) for length in (2048, 4096)]
    sweep: Any = SimpleNamespace(keys=("test_len",))
    names = make_tables(sweep, runs, ["a", "b"])["sweep"]["method"]
    assert set(names) == {"unscaled", "yarn ×4"}


@pytest.mark.parametrize(("losses", "drawn"), [([5.4, 5.4], "kl"), ([5.4, 5.5], "nll")])
def test_results_that_do_not_depend_on_the_field_leave_their_place_to_others(
    losses: list[float], drawn: str
) -> None:
    names = ["float32", "float16"]
    tables = {
        "sweep": pd.DataFrame({"against": names, "method": "pi", "nll": losses}),
        "divergence": pd.DataFrame(
            {"against": names, "cast": "a", "tokens": 64, "kl": [0.25, 0.5]}
        ),
        "runs": pd.DataFrame({"case": [1, 2], "against": names, "answer": ""}),
    }
    (figure,) = draw(tables).values()
    (ax,) = figure.axes
    assert ax.get_ylabel().startswith(drawn)
    expected = [0.25, 0.5] if drawn == "kl" else losses
    assert np.array_equal(ax.lines[0].get_ydata(), expected)


def test_results_of_two_casts_are_drawn_with_their_units() -> None:
    numbers = [0.25, 0.5]
    columns = ["kl_nats_per_token", "largest_difference_nats_per_token"]
    columns += ["share_beyond", "kl_ci_low", "kl_ci_high"]
    columns += ["share_ci_low", "share_ci_high"]
    whole = pd.DataFrame(dict.fromkeys(columns, numbers))
    whole = whole.assign(method="none", cast="a", against=["b", "c"], tokens=64)
    short = shorten_divergence({"divergence": whole})["divergence"]
    runs = pd.DataFrame({"case": [1, 2], "against": ["b", "c"], "answer": ""})
    (figure,) = draw({"sweep": short, "runs": runs}).values()
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert labels == [
        "mean KL, nats per token",
        f"share of tokens beyond {DIVERGED:g} nats",
        "largest difference of a log-probability, nats",
    ]


@pytest.mark.parametrize("repeats", [True, False])
def test_a_result_that_repeats_a_field_is_written_once(repeats: bool) -> None:
    def run(against: str) -> SimpleNamespace:
        found = against if repeats else "float32"
        table = pd.DataFrame({"against": [found], "mean_kl": [0.5]})
        config = SimpleNamespace(against=against)
        return SimpleNamespace(
            config=config, summary=lambda: table, further=dict, answer=""
        )

    runs: Any = [run("float16"), run("float32")]
    sweep: Any = SimpleNamespace(keys=("against",))
    table = make_tables(sweep, runs, ["a", "b"])["sweep"]
    assert table["against"].tolist() == ["float16", "float32"]
    assert ("against_found" in table) != repeats


def test_results_at_neighbouring_distances_have_columns_of_their_own():
    def run(test_len: int) -> SimpleNamespace:
        far = 3 * test_len // 4
        values = {f"copy @{far - 1}": [0.2], f"copy @{far}": [0.7], "nll @1024": [0.5]}
        config = SimpleNamespace(train_len=2048, test_len=test_len)
        table = pd.DataFrame({"method": ["unscaled"]} | values)
        return SimpleNamespace(
            config=config, summary=lambda: table, further=dict, answer=""
        )

    runs: Any = [run(8192), run(8192)]
    sweep: Any = SimpleNamespace(keys=("test_len",))
    table = make_tables(sweep, runs, ["a", "b"])["sweep"]
    assert list(table.columns[2:]) == ["copy @0.7499T", "copy @0.75T", "nll @0.5L"]
    assert table["copy @0.7499T"].tolist() == [0.2, 0.2]
    assert table["copy @0.75T"].tolist() == [0.7, 0.7]


def test_a_typed_factor_keeps_its_name_in_a_sweep_over_lengths():
    def run(test_len: int) -> SimpleNamespace:
        table = pd.DataFrame(
            {"method": [f"pi ×{test_len // 64}", "pi ×2"], "nll": [0.5, 0.9]}
        )
        methods = ("pi", "pi(factor=2)")
        config = SimpleNamespace(train_len=64, test_len=test_len, methods=methods)
        return SimpleNamespace(
            config=config, summary=lambda: table, further=dict, answer=""
        )

    runs: Any = [run(length) for length in (128, 256)]
    sweep: Any = SimpleNamespace(keys=("test_len",))
    table = make_tables(sweep, runs, ["a", "b"])["sweep"]
    assert table["method"].tolist() == ["pi ×2", "pi ×2", "pi ×4", "pi ×2"]


def test_a_run_that_fails_is_named_and_the_others_are_kept(call, files, monkeypatch):
    from ropelab.experiments.freqs import pairs

    original = pairs.tables

    def fails(config, values):
        if config.base == 1e5:
            raise MachineError("no space left")
        return original(config, values)

    monkeypatch.setattr(pairs, "tables", fails)
    status, _, err = call("run", files / "freqs.toml", "--quiet")
    assert status == 1
    assert err.count("\n") == 1
    assert mentions(err, files / "freqs.toml", "case 2 (base=100000):", "no space left")
    assert len(list(store.find_finished(Path("results")))) == 2
    assert not any(
        json.loads(Path(path).read_text())["experiment"] == "sweep"
        for path in visible(Path("results"))
        if path.endswith("manifest.json")
    )


def test_rows_of_a_run_are_told_apart_by_as_many_columns_as_it_takes():
    rows = [
        (b, t, base, value)
        for b in (2, 4)
        for t in ("copy", "text")
        for base, value in PAIRS
    ]
    table = pd.DataFrame(rows, columns=["steps", "task", "base", "accuracy"])
    runs = pd.DataFrame({"case": [1, 2], "steps": [2, 4], "answer": "", "folder": ""})
    columns = choose_columns({"sweep": table, "runs": runs})
    assert columns == SweepColumns("steps", ("task", "base"), ("accuracy",))
    (figure,) = draw({"sweep": table, "runs": runs}).values()
    (panel,) = figure.axes
    assert [np.asarray(line.get_xdata()).tolist() for line in panel.lines] == [
        [2, 4]
    ] * 4


PAIRS = ((30.0, 0.5), (300.0, 0.75))


def test_settings_that_change_together_make_no_lines():
    sizes = [("tiny", 4), ("small", 6), ("medium", 8)]
    rows = [(*size, name, 0.1) for size in sizes for name in ("pi", "ntk")]
    table = pd.DataFrame(rows, columns=["preset", "heads", "method", "nll"])
    runs = pd.DataFrame(sizes, columns=["preset", "heads"]).assign(
        case=range(3), answer=""
    )
    columns = choose_columns({"sweep": table, "runs": runs})
    assert columns == SweepColumns("heads", ("method",), ("nll",))


def test_a_dry_run_lists_each_cell_once_and_its_parts_add_up(call, files):
    out = call("run", files / "trained.toml", files / "trained.toml", "--dry-run")[1]
    cells = [line for line in out.splitlines() if line.startswith("    ")]
    own = [line for line in cells if not line.endswith("of runs above")]
    assert len(own) == CELLS
    assert any(line.endswith("of runs above") for line in cells)


FACTORS = """experiment = "extrapolate"
train_len = 64
test_len = 256
preset = "tiny"
heads = 1
head_dim = 8
steps = 2
tokens_per_step = 128
documents = 2
sequences = 2
tasks = ["copy"]
corpus = "{corpus}"
methods = ["unscaled", "pi", "ntk", "yarn(factor=3)"]
[grid]
factor = [2, 4, 8]
"""


@pytest.mark.slow
def test_a_grid_over_factors_has_a_numeric_axis_and_a_line_per_method(
    call, corpora, tmp_path
):
    file = tmp_path / "factors.toml"
    file.write_text(FACTORS.format(corpus=corpora[0]))
    assert call("run", file, "--quiet")[0] == 0
    (folder,) = Path("results/sweep").glob("factors-*")
    tables = tables_in(folder)

    table = tables["sweep"]
    assert set(table["factor"]) == {2, 4, 8}
    assert set(table["method"]) == {
        "unscaled", "pi", "ntk", "yarn ×3", "sliding_window",
    }  # fmt: skip
    columns = choose_columns(tables)
    assert columns.axis == "factor"
    assert columns.lines == ("method",)


def test_intervals_are_bands_around_the_lines_and_no_results_of_their_own():
    table = pd.DataFrame(
        {
            "factor": [2, 4, 8],
            "copy @0.5T": [0.9, 0.7, 0.4],
            "copy @0.5T ci_low": [0.8, 0.6, 0.3],
            "copy @0.5T ci_high": [1.0, 0.8, 0.5],
        }
    )
    runs = table[["factor"]].assign(case=[1, 2, 3], answer="", folder="")
    tables = {"sweep": table, "runs": runs}
    assert choose_columns(tables).results == ("copy @0.5T",)
    (panel,) = draw(tables)["sweep"].axes
    (band,) = panel.collections
    assert "95 %" in panel.get_xlabel()
    assert panel.get_ylabel() == "copy @0.5T, share"
    corners = np.asarray(band.get_paths()[0].vertices)
    assert corners[:, 1].min() == 0.3
    assert corners[:, 1].max() == 1.0


def test_methods_look_as_in_other_figures_and_no_two_lines_alike():
    names = [
        "ntk ×4",
        "ntk ×8",
        "yarn(beta_fast=8) ×4",
        "sliding_window",
        "mine",
        "theirs",
    ]
    looks = choose_looks(names)
    for name in ("ntk ×4", "yarn(beta_fast=8) ×4", "sliding_window"):
        assert looks[name] == find_look(name)
    assert len({look.color for look in looks.values()}) == len(names)
    many = choose_looks([f"line {number}" for number in range(10)])
    assert len(set(many.values())) == 10


def test_shares_from_none_to_all_are_drawn_on_a_linear_axis():
    rows = []
    for factor, share, loss in ((2, 0.01, 1.0), (4, 0.6, 90.0), (8, 0.98, 3.0)):
        rows.append({"factor": factor, "copy": share, "loss": loss})
    table = pd.DataFrame(rows)
    runs = table[["factor"]].assign(case=[1, 2, 3], answer="", folder="")
    shares, losses = draw({"sweep": table, "runs": runs})["sweep"].axes
    assert shares.get_yscale() == "linear"
    assert shares.get_ylim()[1] > 1
    assert losses.get_yscale() == "log"
