"""A run before, during and after it is made: Plan (what to make), Work (the cells that must
be computed for it) and Run (the finished tables with their answer).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from ropelab.experiments import Experiment
from ropelab.runs.cell import Cell, Values
from ropelab.runs.config import Config, Label
from ropelab.runs.engine.schedule import choose_machine
from ropelab.runs.estimate import Estimate
from ropelab.runs.sentences import add_scope, explain_brackets
from ropelab.runs.tables import Tables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


# Tables have no truth value by which two runs could be compared, and no hash.
@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """A finished run."""

    experiment: Experiment
    config: Config
    tables: Tables
    # The verdict with its conditions, and at most three more sentences.
    answer: str
    # The folder with its files; None for a run that is kept in memory.
    folder: Path | None = None
    # True if the run was read from disk because it had been made before.
    reused: bool = False

    def __repr__(self) -> str:
        where = f" in {self.folder}" if self.folder else ""
        return f"<Run of {self.experiment.name}{where}: {shorten(self.answer, 100)}>"

    def _repr_html_(self) -> str:
        """Show the run in a notebook: question, answer, summary, and names of tables."""
        from ropelab.show.intervals import join_intervals
        from ropelab.show.terminal import format_value

        question = escape(self.config.adapt_question(self.experiment.question))
        answer = escape(self.answer)
        cells = join_intervals(self.summary()).map(format_value)
        summary = cells.to_html(index=False, border=0)
        sizes = (f"{name} ({len(table)} rows)" for name, table in self.tables.items())
        tables = escape(", ".join(sizes))
        return (
            f"<p><b>{question}</b></p><p>{answer}</p>{summary}<p>tables: {tables}</p>"
        )

    @property
    def following(self) -> str:
        """The command to type next."""
        return self.experiment.suggest_command(self.config, self.tables)

    def summary(self) -> "pd.DataFrame":
        """Return the short table that the terminal shows."""
        return self.experiment.summary(self.tables)

    def further(self) -> "Mapping[str, pd.DataFrame]":
        """Return short tables beside the summary, by name."""
        return self.experiment.make_further_tables(self.tables)

    def verdicts(self) -> "pd.DataFrame":
        """Return the verdicts on published statements that follow from this run alone.

        The ledger of claims judges. Verdicts are not stored, because a stored run would
        keep old verdicts when the ledger changes.
        """
        # The ledger is slow to import, and most runs are not asked for verdicts.
        from ropelab.claims.ledger import judge_run

        config = self.config.model_dump(mode="json")
        return judge_run(self.experiment.name, config, self.tables)

    def figures(self, style: str = "screen") -> "dict[str, Figure]":
        """Draw the figures from the tables, for a `screen` or for `paper`."""
        from ropelab.show.drawn import draw_figures

        return draw_figures(self.experiment.draw, self.tables, style)

    def pictures(self) -> dict[str, bytes]:
        """Return the figures as PNG files by name."""
        from ropelab.show.drawn import encode_figures

        return encode_figures(self.figures())


@dataclass(frozen=True)
class Plan:
    """A run to be made: an experiment, its validated config, and its name for
    people.
    """

    experiment: Experiment
    config: Config
    label: Label = field(default_factory=Label)

    def tables(self, values: Values) -> Tables:
        """Make the tables of the run."""
        return dict(self.experiment.tables(self.config, values))

    def finish(
        self, tables: Tables, folder: Path | None = None, reused: bool = False
    ) -> Run:
        """Return the run, with the answer that its tables give."""
        answer = write_answer(self.experiment, self.config, tables)
        return Run(self.experiment, self.config, tables, answer, folder, reused)


def write_answer(experiment: Experiment, config: Config, tables: Tables) -> str:
    """Write the answer that the tables of a run give, with its conditions."""
    text = experiment.answer(tables)
    brackets = explain_brackets(text, config.interval_over)
    scope = "; ".join(filter(None, [config.scope, brackets]))
    return add_scope(text, scope)


@dataclass(frozen=True)
class Work:
    """The cells of one run, or of several."""

    # All cells by their hash (`hash_cell`). Each cell comes after its prerequisites.
    cells: Mapping[str, Cell]
    # The cells that are not computed yet, by their hash.
    cells_left: Mapping[str, Cell]

    @property
    def estimate(self) -> Estimate:
        total = Estimate()
        for cell in self.cells_left.values():
            total += cell.resources.estimate()
        return total

    def count_workers(self, wanted_workers: int | None) -> int:
        """Return how many processes will compute the cells side by side.

        `wanted_workers` is the number that a user wants; None for as many as fit.
        """
        resources = [cell.resources for cell in self.cells_left.values()]
        return choose_machine(wanted_workers, resources).workers

    @property
    def counts(self) -> dict[str, int]:
        """The number of cells that are left to compute, and the number of finished
        cells.
        """
        left = len(self.cells_left)
        return {"computed": left, "reused": len(self.cells) - left}


def unite(works: Iterable[Work]) -> Work:
    """Return the work of several runs together, which has each cell once."""
    cells: dict[str, Cell] = {}
    cells_left: dict[str, Cell] = {}
    for work in works:
        cells |= work.cells
        cells_left |= work.cells_left
    return Work(cells, cells_left)
