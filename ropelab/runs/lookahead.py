"""The cells of a run before any of them is computed, phase by phase.

Experiments name their cells inside `run`, where they hand them to their context. Here they get one
that notes the cells and has no results: `run` goes on as far as it can without looking at any, so
cells must not depend on the results of others, and their phases come before what needs values.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ropelab.runs.cells import Cells
from ropelab.runs.context import Cell, Context

Tables = dict[str, pd.DataFrame]


class NeedsResultsError(Exception):
    """The run cannot go on without results."""


class NoResults(list[Tables]):
    """What a phase gives that computed nothing: whoever looks at it ends the listing."""

    def __iter__(self) -> Iterator[Tables]:
        raise NeedsResultsError

    def __getitem__(self, place: Any) -> Any:
        raise NeedsResultsError


@dataclass(frozen=True)
class Listing(Context):
    """A context that notes the cells of every phase and computes none."""

    phases: list[list[Cell]] = field(default_factory=list)

    def phase(self, cells: Sequence[Cell]) -> list[Tables]:
        """See `Context.phase`; nothing is computed."""
        self.phases.append(list(cells))
        return NoResults()


def cells_ahead(
    run: Callable[[Any, Context], object], config: Any, cells: Cells
) -> list[list[Cell]]:
    """The cells that a run of this config consists of, phase by phase.

    Args:
        run: an experiment's; it must do all its work in cells, and only then in itself.
        cells: where they are kept; nothing is written there.
    """
    listing = Listing(cells=cells)
    with suppress(NeedsResultsError):
        run(config, listing)
    return listing.phases
