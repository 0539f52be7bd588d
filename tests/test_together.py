"""Runs side by side: one has the turn, and gives it away while its cells are computed."""

import threading

import pandas as pd
import pytest

from ropelab.errors import MachineError
from ropelab.lab import Lab
from ropelab.runs.cell import InThisProcess
from ropelab.runs.together import carry_out_all
from tests.engine.cells_of_tests import Sum
from tests.toy import Toy, ToyConfig


class Meets(InThisProcess):
    """An engine whose phases begin only when as many runs as expected are inside one."""

    def __init__(self, parties):
        super().__init__()
        self.barrier = threading.Barrier(parties)

    def compute(self, cells, context):
        self.barrier.wait(timeout=30)
        super().compute(cells, context)


class Phased(Toy):
    """A run with one phase of one cell; it notes who has the turn."""

    inside = 0

    def run(self, config, context):
        Phased.inside += 1
        assert Phased.inside == 1
        Phased.inside -= 1
        (tables,) = context.phase([Sum(config.seed)])
        Phased.inside += 1
        assert Phased.inside == 1
        Phased.inside -= 1
        if config.seed == 13:
            raise MachineError("no space left")
        return {"toy": pd.DataFrame({"base": [config.base], "sum": tables["sums"]["sum"]})}


def phased():
    return Phased("toy", "What is the base?", "anything else", 1, ToyConfig)


def test_phases_of_two_runs_overlap_and_the_rest_does_not(tmp_path):
    plans = [(phased(), ToyConfig(seed=seed)) for seed in (1, 2)]
    runs = dict(carry_out_all(Lab(tmp_path, engine=Meets(2)), plans))
    assert {number: run.config.seed for number, run in runs.items()} == {0: 1, 1: 2}


def test_a_failing_run_does_not_keep_the_others_from_finishing(tmp_path):
    plans = [(phased(), ToyConfig(seed=seed)) for seed in (13, 1)]
    finished = []
    with pytest.raises(MachineError, match="no space left"):
        finished.extend(carry_out_all(Lab(tmp_path), plans))
    assert list((tmp_path / "toy").iterdir())


def test_a_repeated_run_is_made_once(tmp_path):
    plans = [(phased(), ToyConfig(seed=1))] * 2
    runs = dict(carry_out_all(Lab(tmp_path), plans))
    assert [runs[number].reused for number in (0, 1)] == [False, True]


class Trains(ToyConfig):
    """A config of a run that trains."""

    dtype: str = "float32"


def test_first_cells_of_all_runs_that_train_are_handed_in_together(tmp_path):
    order = []

    class Notes(InThisProcess):
        def compute(self, cells, context):
            order.append("computes")
            super().compute(cells, context)

    class Resolves(Phased):
        def run(self, config, context):
            order.append("resolves" if isinstance(config, Trains) else "other")
            return super().run(config, context)

    one = Resolves("toy", "What is the base?", "anything else", 1, ToyConfig)
    plans = [(one, ToyConfig(seed=0)), (one, Trains(seed=1)), (one, Trains(seed=2))]
    assert len(dict(carry_out_all(Lab(tmp_path, engine=Notes()), plans))) == 3
    assert order[:2] == ["resolves", "resolves"]
    assert sorted(order[2:]) == ["computes", "computes", "computes", "other"]


def test_a_run_that_fails_before_its_first_cells_does_not_hold_up_the_others(tmp_path):
    class Breaks(Phased):
        def run(self, config, context):
            if config.seed == 1:
                raise MachineError("no corpus")
            return super().run(config, context)

    one = Breaks("toy", "What is the base?", "anything else", 1, ToyConfig)
    finished = []
    with pytest.raises(MachineError, match="no corpus"):
        finished.extend(carry_out_all(Lab(tmp_path), [(one, Trains(seed=s)) for s in (1, 2)]))
    assert [run.config.seed for _, run in finished] == [2]
