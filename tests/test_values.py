"""A run is a value: its cells follow from its config, and their keys hold all they
depend on.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ropelab.lab import Lab
from ropelab.runs.cell import Values, hash_cell
from ropelab.runs.config import read_toml
from ropelab.runs.tables import convert_to_stored
from tests.small import mostly_slow

SMOKE = sorted((Path(__file__).parents[1] / "configs/smoke").glob("*.toml"))


@dataclass(frozen=True)
class Recorded(Values):
    """Notes the cells that are asked for."""

    asked: set[str] = field(default_factory=set)

    def __getitem__(self, cell):
        self.asked.add(hash_cell(cell))
        return super().__getitem__(cell)


# Experiments that train are asked by `make test-all`.
FEW = [
    path
    for path in SMOKE
    if path.stem in ("base", "freqs", "precision", "base-empirical")
]


@pytest.mark.parametrize("path", mostly_slow(SMOKE, FEW), ids=lambda path: path.stem)
def test_a_run_asks_for_exactly_the_cells_that_its_config_lists(path, monkeypatch):
    monkeypatch.setattr("ropelab.experiments.encodings.cost.ROUNDS", 2)
    lab = Lab()
    plan = lab.prepare(*read_toml(path))
    context = lab.make_context()
    work = lab.find_work(plan, context)
    errors = [
        error for _, error in lab.engine.compute(list(work.cells.values()), context)
    ]
    assert errors == [None] * len(work.cells)
    values = Recorded(context)
    plan.experiment.tables(plan.config, values)
    plan.experiment.times(plan.config, values)
    assert values.asked <= set(work.cells)
    prerequisites = {
        hash_cell(start) for cell in work.cells.values() for start in cell.prerequisites
    }
    assert set(work.cells) <= values.asked | prerequisites


# A small config of each, and another value for each of its fields.
SMALL: dict[str, dict[str, Any]] = {
    "freqs": {"head_dim": 8, "train_len": 64, "test_len": 128, "factor": 2},
    "base": {"context": 32, "head_dim": 8, "base": 100.0, "formats": "bfloat16"},
    "precision": {
        "length": 64,
        "head_dim": 8,
        "model_dim": 8,
        "samples": 16,
        "draws": 2,
        "long_lengths": 128,
        "formats": "bfloat16",
        "schemes": "rope,single",
    },
    "base-empirical": {
        "bases": (30.0, 300.0),
        "tasks": "text,copy",
        "train_len": 256,
        "steps": 2,
        "documents": 2,
        "sequences": 1,
        "layers": 1,
        "width": 16,
        "head_dim": 16,
        "tokens_per_step": 512,
        "dtype": "float32",
        "device": "cpu",
    },
}
OTHERS: dict[str, dict[str, Any]] = {
    "freqs": {
        "base": 500.0,
        "head_dim": 16,
        "rotary_dim": 4,
        "train_len": 32,
        "test_len": 256,
        "method": "pi",
        "factor": 4,
        "sections": "1,1,2",
    },
    "base": {
        "context": 64,
        "head_dim": 16,
        "rotary_dim": 4,
        "kept": 0.5,
        "dropped": "0,1",
        "base": 700.0,
        "method": "pi(factor=2)",
        "train_base": 500.0,
        "train_len": 16,
        "test_len": 128,
        "windows_up_to": 16,
        "formats": "float16",
    },
    "precision": {
        "base": 500.0,
        "head_dim": 16,
        "rotary_dim": 4,
        "method": "pi(factor=2)",
        "train_len": 32,
        "model_dim": 16,
        "period": 50.0,
        "length": 32,
        "offset": 7,
        "schemes": "rope,sinusoidal",
        "components": "cos",
        "formats": "float16",
        "tolerance": 0.5,
        "long_lengths": 256,
        "explain": 5,
        "samples": 8,
        "draws": 3,
        "seed": 3,
    },
    "base-empirical": {
        "bases": (30.0, 500.0),
        "train_len": 512,
        "steps": 3,
        "documents": 3,
        "sequences": 2,
        "layers": 2,
        "width": 32,
        "head_dim": 8,
        "tokens_per_step": 1024,
        "seeds": "1",
    },
}


@pytest.fixture(scope="module")
def lab_of(tmp_path_factory, corpora):
    """A lab in which the cells of an experiment's small config are finished, and that
    config.
    """

    @cache
    def found(name):
        lab = Lab(tmp_path_factory.mktemp(name), figures=False)
        own = {"corpus": corpora[0]} if name == "base-empirical" else {}
        lab.run(lab.prepare(name, SMALL[name] | own))
        return lab, SMALL[name] | own

    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changed"),
    [(name, each) for name, others in OTHERS.items() for each in others],
)
def test_finished_cells_of_another_config_are_used_only_where_they_are_the_same(
    lab_of, name, changed
):
    """A key that lacked a field would find the values of another config."""
    lab, small = lab_of(name)
    plan = lab.prepare(name, {**small, changed: OTHERS[name][changed]})
    assert plan.config != lab.prepare(name, small).config
    beside = lab.run(plan)
    fresh = convert_to_stored(plan.tables(Values()))
    assert {each: table.to_csv() for each, table in beside.tables.items()} == {
        each: table.to_csv() for each, table in fresh.items()
    }
