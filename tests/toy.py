"""A tiny experiment that stands for all of them in the tests of runs and commands."""

import pandas as pd
from matplotlib.figure import Figure

from ropelab.experiments import Experiment
from ropelab.plan import Plan
from ropelab.runs.cell import Computation, Resources
from ropelab.runs.config import Base, Config, Label, Natural
from ropelab.runs.errors import MachineError


class ToyConfig(Config):
    """Two fields."""

    base: Base = 1e4
    seed: Natural = 0


def measured(seed):
    """The only cell of a toy; it counts how often it is computed."""
    Toy.cells_computed += 1
    if seed == 13:
        raise RuntimeError("unlucky")
    if seed == 14:
        raise MachineError("diverged")
    return {"seed": pd.DataFrame({"length_tokens": [seed]})}


class Toy(Experiment):
    """An experiment whose parts are here instead of in a folder; it counts its runs."""

    runs = cells_computed = 0

    def check(self, config):
        """All that can be asked for can be done."""

    def cells(self, config):
        """One, which does not depend on the base."""
        resources = Resources(seconds=0.01)
        inputs = {"seed": config.seed}
        return [
            Computation(
                kind="toy",
                version=1,
                title="a toy",
                function=measured,
                inputs=inputs,
                resources=resources,
            )
        ]

    def tables(self, config, values):
        """One row; the config decides its value."""
        Toy.runs += 1
        (cell,) = self.cells(config)
        return {
            "toy": values[cell]["seed"].assign(base=config.base)[
                ["base", "length_tokens"]
            ]
        }

    def times(self, config, values):
        """Nothing is timed."""
        return {}

    def answer(self, tables):
        """Say the base."""
        return f"The base is {tables['toy'].base[0]:g}."

    def summary(self, tables):
        """All of it."""
        return tables["toy"]

    def draw(self, tables):
        """A figure of empty axes."""
        figure = Figure()
        figure.subplots()
        return {"toy": figure}


def toy():
    """The experiment, as `experiments.load` would hand it out."""
    return Toy("toy", "What is the base?", "anything else", 1, ToyConfig, "")


def plan(label=None, experiment=None, **values):
    """A run of it."""
    return Plan(experiment or toy(), ToyConfig(**values), label or Label())
