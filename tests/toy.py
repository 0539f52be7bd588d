"""A tiny experiment that stands for all of them in the tests of the house."""

import pandas as pd
from matplotlib.figure import Figure

from ropelab.experiments import Experiment
from ropelab.runs.config import Base, Config, Natural
from ropelab.runs.estimate import Estimate


class ToyConfig(Config):
    """Two fields."""

    base: Base = 1e4
    seed: Natural = 0


class Toy(Experiment):
    """An experiment whose parts are here instead of in a folder; it counts its runs."""

    runs = 0

    def run(self, config, context):
        """One row; the config decides its value."""
        Toy.runs += 1
        if config.seed == 13:
            raise RuntimeError("unlucky")
        return {"toy": pd.DataFrame({"base": [config.base], "length_tokens": [config.seed]})}

    def estimate(self, config):
        """It is nothing."""
        return Estimate()

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
    return Toy("toy", "What is the base?", "anything else", 1, ToyConfig)
