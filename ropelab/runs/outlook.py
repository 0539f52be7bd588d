"""What a run is going to do and to cost, as far as it is not done yet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ropelab.experiments import Experiment
from ropelab.runs.config import Config
from ropelab.runs.context import Cell, Context, Needs
from ropelab.runs.estimate import Estimate
from ropelab.runs.lookahead import cells_ahead

ORDINARY = Needs().memory_bytes
"""What an ordinary cell is taken to need; with less memory free than that, one is tried anyway."""


@dataclass(frozen=True)
class Outlook:
    """A run before it is made.

    Attributes:
        phases: its cells; none where the run is computed as a whole.
        left: those that are still to be computed.
        estimate: of what is left.
    """

    phases: Sequence[Sequence[Cell]]
    left: Sequence[Cell]
    estimate: Estimate


def outlook(experiment: Experiment, config: Config, context: Context) -> Outlook:
    """What a run of this config still has to do; nothing is computed and nothing written."""
    known = experiment.estimate(config)
    if known is not None:
        return Outlook((), (), known)
    phases = cells_ahead(experiment.run, config, context.cells)
    left = context.unfinished([cell for phase in phases for cell in phase])
    return Outlook(phases, left, cost_of(left))


def cost_of(cells: Iterable[Cell]) -> Estimate:
    """What cells cost together."""
    return sum((cell.needs.cost() for cell in cells), Estimate())


def workers_for(asked: int | None, cells: Sequence[Cell]) -> int:
    """How many processes compute cells side by side, as the engine will decide."""
    if asked == 1 or not cells:
        return 1
    from ropelab.runs.engine.capacity import machine_for

    return machine_for(asked, [cell.needs for cell in cells]).workers


def room_for(estimate: Estimate) -> float:
    """Bytes that work may need; this machine is asked only where it could be too much."""
    if estimate.bytes <= ORDINARY:
        return ORDINARY
    from ropelab.runs.engine.capacity import available_memory

    return available_memory()
