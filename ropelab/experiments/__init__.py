"""The experiments, by name.

An experiment is a light face (QUESTION, CANNOT_SHOW, VERSION, CONFIG, all that the command line
needs) and a body, imported when it is first used:

    check(config)             InputError where the values do not go together (optional)
    cells(config)             its cells, which follow from the config alone
    tables(config, values)    its tables, from the values of those cells
    times(config, values)     measured times for the manifest (optional)
    answer(tables), summary(tables)    a sentence or two, and the short table
    ropelab/show/figures/<name>.py     draw(tables) -> figures

The face is the package `ropelab.experiments.<name>` and names its body in BODY.
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

    from ropelab.runs.cell import Cell, Values
    from ropelab.runs.config import Config
    from ropelab.runs.estimate import Estimate
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
    bodies: tuple[str, ...]

    def check(self, config: "Config") -> None:
        """Raise InputError where a config's values do not go together."""
        if found := self._optional("check") or self._optional("plan"):
            found(config)

    def estimate(self, config: "Config") -> "Estimate | None":
        """What a run costs, from its config alone; None where it is that of its cells."""
        estimated = self._optional("estimate")
        return estimated(config) if estimated else None

    def cells(self, config: "Config") -> "list[Cell]":
        """The cells of a run, without those that they start from."""
        found = self._optional("cells")
        return found(config) if found else []

    def tables(self, config: "Config", values: "Values") -> "Mapping[str, pd.DataFrame]":
        """Make the tables from the values of the cells."""
        made = self._optional("tables") or self._optional("run")
        assert made is not None
        return made(config, values)

    def times(self, config: "Config", values: "Values") -> "Mapping[str, pd.DataFrame]":
        """Return what was timed."""
        found = self._optional("times")
        return found(config, values) if found else {}

    def answer(self, tables: "Tables") -> str:
        """The answer in one or two sentences, computed from the tables."""
        return self._part("answer")(tables)

    def summary(self, tables: "Tables") -> "pd.DataFrame":
        """The short table that the terminal shows."""
        return self._part("summary")(tables)

    def draw(self, tables: "Tables") -> "dict[str, Figure]":
        """The figures, the most telling one first."""
        return import_module(f"ropelab.show.figures.{self.name.replace('-', '_')}").draw(tables)

    def _optional(self, function: str) -> Callable[..., Any] | None:
        modules = (import_module(name) for name in self.bodies if find_spec(name))
        found = (getattr(module, function, None) for module in modules)
        return next((each for each in found if callable(each)), None)

    def _part(self, function: str) -> Callable[..., Any]:
        found = self._optional(function)
        assert found is not None, f"{self.name} has no {function}"
        return found


def load(name: str) -> Experiment:
    """The experiment of that name, without its heavy parts.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    if name not in NAMES:
        raise unknown_name("experiment", name, NAMES)
    package = f"ropelab.experiments.{name.replace('-', '_')}"
    if name == "claims":  # the ledger stands above all experiments, whose runs it reads
        package = "ropelab.claims.experiment"
    face = import_module(package)
    if not hasattr(face, "QUESTION"):
        face = import_module(f"{package}.config")
    old = tuple(f"{package}.{part}" for part in ("run", "report", "plan", "estimate"))
    bodies = (face.BODY,) if hasattr(face, "BODY") else old
    return Experiment(name, face.QUESTION, face.CANNOT_SHOW, face.VERSION, face.CONFIG, bodies)
