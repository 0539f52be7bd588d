"""The experiments, by name. Each is a folder: config (light), run, report; its figures lie apart.

config.py   QUESTION, CANNOT_SHOW, VERSION, CONFIG: what the command line needs, nothing heavy
plan.py     plan(config) -> what follows from it, derived once; InputError (where there is more to
            check than the fields alone can tell)
estimate.py estimate(config) -> what a run costs (where no cells say it)
run.py      run(config, context) -> tables
report.py   answer(tables) -> sentence, summary(tables) -> short table
ropelab/show/figures/<name>.py   draw(tables) -> figures
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ropelab.errors import unknown_name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ropelab.runs.config import Config
    from ropelab.runs.context import Context
    from ropelab.runs.estimate import Estimate
    from ropelab.runs.tables import Tables

# In the order in which a newcomer would ask.
NAMES = (
    "precision",
    "freqs",
    "base",
    "base-empirical",
    "extrapolate",
    "encodings",
    "frequencies",
    "claims",
)


@dataclass(frozen=True)
class Experiment:
    """One experiment; its heavy parts are imported when they are first used."""

    name: str
    question: str
    cannot_show: str
    version: int
    config: "type[Config]"

    def check(self, config: "Config") -> None:
        """Raise InputError where a config's values do not go together."""
        planned = self._optional("plan", "plan")
        if planned is not None:
            planned(config)

    def estimate(self, config: "Config") -> "Estimate | None":
        """What a run costs, from its config alone; None where it is that of its cells."""
        estimated = self._optional("estimate", "estimate")
        return estimated(config) if estimated else None

    def run(self, config: "Config", context: "Context") -> "Mapping[str, pd.DataFrame]":
        """Compute the tables."""
        return self._part("run", "run")(config, context)

    def answer(self, tables: "Tables") -> str:
        """The answer in one or two sentences, computed from the tables."""
        return self._part("report", "answer")(tables)

    def summary(self, tables: "Tables") -> "pd.DataFrame":
        """The short table that the terminal shows."""
        return self._part("report", "summary")(tables)

    def draw(self, tables: "Tables") -> "dict[str, Figure]":
        """The figures, the most telling one first."""
        return import_module(f"ropelab.show.figures.{self.name.replace('-', '_')}").draw(tables)

    def _optional(self, module: str, function: str) -> Callable[..., Any] | None:
        name = f"{_package(self.name)}.{module}"
        return getattr(import_module(name), function, None) if find_spec(name) else None

    def _part(self, module: str, function: str) -> Callable[..., Any]:
        return getattr(import_module(f"{_package(self.name)}.{module}"), function)


def load(name: str) -> Experiment:
    """The experiment of that name, without its heavy parts.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    if name not in NAMES:
        raise unknown_name("experiment", name, NAMES)
    face = import_module(f"{_package(name)}.config")
    return Experiment(name, face.QUESTION, face.CANNOT_SHOW, face.VERSION, face.CONFIG)


def _package(name: str) -> str:
    if name == "claims":
        return "ropelab.claims.experiment"
    return f"ropelab.experiments.{name.replace('-', '_')}"
