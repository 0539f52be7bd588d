"""Cells in worker processes on this machine, side by side, one torch thread each.

The workers are loky's. They stay alive between cells and phases, since importing torch takes
seconds. Their results lie on disk, whole or not at all, like those of a run in one process, so a
worker that is killed costs its cell and nothing else: the cell is computed again, at most twice.
Workers go when the process that started them goes, however it went.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import as_completed

from ropelab.errors import MachineError
from ropelab.runs.context import Cell, Context, Failures
from ropelab.runs.engine.capacity import machine_for
from ropelab.runs.engine.crew import LOST, Crew
from ropelab.runs.engine.messages import Board
from ropelab.runs.engine.schedule import settle

TRIES = 3
"""How often a cell is begun whose worker dies under it."""
GRACE_SECONDS = 1.5
"""After an interrupt a training step may end and be kept for so long; then workers are killed."""


class Workers:
    """An engine of local processes, started when the first cells come.

    Args:
        count: how many; None for as many as there are cores and memory.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = count
        self._crew: Crew | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def compute(self, cells: Sequence[Cell], context: Context) -> None:
        """See `Engine.compute`."""
        if not cells:
            return
        try:
            with Board(context.progress, cells) as board:
                self._compute(list(cells), context, board)
        except (KeyboardInterrupt, SystemExit):
            self.stop()
            raise

    def stop(self) -> None:
        """End all workers; other threads that compute with them end as interrupted."""
        with self._lock:
            self._stopped = True
            crew, self._crew = self._crew, None
        if crew:
            crew.dismiss(GRACE_SECONDS)

    def _compute(self, cells: list[Cell], context: Context, board: Board) -> None:
        """Rounds of all cells that are left, until none is; a second one only after a loss."""
        failures, begun = Failures(), Counter[int]()
        left = dict(enumerate(cells))
        while left:
            crew = self._ready(cells)
            jobs = {n: crew.submit(cell, context.cells, board) for n, cell in left.items()}
            numbers = {job.outcome: number for number, job in jobs.items()}
            for future in as_completed(numbers):
                number, error = numbers[future], future.exception()
                if isinstance(error, LOST):
                    continue
                if isinstance(error, KeyboardInterrupt):
                    raise error
                settle(jobs[number], context, failures)
                board.finished(jobs[number].ticket)
                crew.forget(jobs[number])
                del left[number]
            if left:
                # Where no cell had begun, workers cannot even start: that is everybody's loss.
                under_way = [n for n in left if board.busy(jobs[n].ticket)] or list(left)
                begun.update(under_way)
                self._replace(crew)
                for number in [n for n in left if begun[n] >= TRIES]:
                    failures.add(given_up(left.pop(number)))
        failures.report()

    def _ready(self, cells: Sequence[Cell]) -> Crew:
        """The crew, started now if there is none."""
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            if self._crew is None:
                self._crew = Crew(machine_for(self._count, [cell.needs for cell in cells]))
            return self._crew

    def _replace(self, crew: Crew) -> None:
        """Put a new crew in the place of one that lost a worker, when the next cells come."""
        with self._lock:
            stopped = self._stopped
            if self._crew is crew:
                self._crew = None
        crew.dismiss()
        if stopped:
            raise KeyboardInterrupt


def given_up(cell: Cell) -> MachineError:
    """The error of a cell whose worker died under it too often."""
    return MachineError(
        f"the process computing '{cell.title}' ended {TRIES} times without a result, "
        "as it does when memory runs out; try fewer --workers"
    )
