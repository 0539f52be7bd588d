"""The experiments, by name.

An experiment is a light face (QUESTION, CANNOT_SHOW, VERSION, CONFIG, all that the command line
needs) and a body, imported when it is first used:

    check(config)             InputError where the values do not go together (optional)
    cells(config)             its cells, which follow from the config alone
    tables(config, values)    its tables, from the values of those cells
    times(config, values)     measured times for the manifest (optional)
    answer(tables), summary(tables)    a sentence or two, and the short table
    ropelab/show/figures/<name>.py     draw(tables) -> figures

The face is the package `ropelab.experiments.<name>`, or a module of it, and names its body in BODY.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropelab.errors import unknown_name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ropelab.runs.cell import Cell, Values
    from ropelab.runs.config import Config
    from ropelab.runs.tables import Tables

# In the order in which a newcomer would ask.
NAMES = (
    "precision",
    "freqs",
    "base",
    "base-empirical",
    "extrapolate",
    "evaluate",
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
    body: str

    def check(self, config: "Config") -> None:
        """Raise InputError where a config's values do not go together."""
        if found := self._function("check"):
            found(config)

    def cells(self, config: "Config") -> "list[Cell]":
        """Return the cells of a run, without those that they start from."""
        return import_module(self.body).cells(config)

    def tables(self, config: "Config", values: "Values") -> "Mapping[str, pd.DataFrame]":
        """Make the tables from the values of the cells."""
        return import_module(self.body).tables(config, values)

    def times(self, config: "Config", values: "Values") -> "Mapping[str, pd.DataFrame]":
        """Return measured times."""
        found = self._function("times")
        return found(config, values) if found else {}

    def answer(self, tables: "Tables") -> str:
        """Return the answer in one or two sentences, computed from the tables."""
        return import_module(self.body).answer(tables)

    def summary(self, tables: "Tables") -> "pd.DataFrame":
        """Return the short table that the terminal shows."""
        return import_module(self.body).summary(tables)

    def draw(self, tables: "Tables") -> "dict[str, Figure]":
        """Draw the figures, the most telling one first."""
        from ropelab.show.drawn import draw_of

        return draw_of(self.name)(tables)

    def _function(self, name: str) -> Callable[..., Any] | None:
        return getattr(import_module(self.body), name, None)


def load(name: str) -> Experiment:
    """Return the experiment of that name, without its heavy parts.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    if name not in NAMES:
        raise unknown_name("experiment", name, NAMES)
    # The ledger is above all experiments, whose runs it reads.
    found = "claims.experiment" if name == "claims" else f"experiments.{name.replace('-', '_')}"
    face = import_module(f"ropelab.{found}")
    return Experiment(
        name, face.QUESTION, face.CANNOT_SHOW, face.VERSION, face.CONFIG, body=face.BODY
    )
