"""Runs side by side: one has the turn, and gives it away while its cells are computed."""

import threading

import pandas as pd
import pytest

from ropelab.context import InThisProcess
from ropelab.errors import MachineError
from ropelab.lab import Lab
from ropelab.together import carry_out_all
from tests.engine.cells_of_tests import Sum
from tests.toy import Toy, ToyConfig


class Meets(InThisProcess):
    """An engine whose phases begin only when as many runs as expected are inside one."""

    def __init__(self, parties):
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
