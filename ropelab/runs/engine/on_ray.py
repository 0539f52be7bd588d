"""Cells on a Ray cluster, or on this machine under Ray; only the process that asked writes results.

Ray and torch are loaded, and a cluster is joined, when the first cells come: a finished run takes
no longer than without.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from typing import TYPE_CHECKING

from ropelab.runs.cell import Cell, Context, name_of
from ropelab.runs.engine import Done, computed_here
from ropelab.runs.engine.board import Board
from ropelab.runs.engine.capacity import machine_for
from ropelab.runs.engine.connection import Connection, check_ray

if TYPE_CHECKING:
    from ropelab.runs.engine.fleet import Fleet


class OnRay:
    """An engine of Ray tasks.

    Args:
        address: of a cluster, `auto` or HOST:PORT; None: RAY_ADDRESS, and if that is not set, one
            of this machine alone, which ends with this engine.
        count: how many cells are computed at once, None: as many as there are cores.
    Raises:
        InputError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, address: str | None = None, count: int | None = None) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS")
        check_ray(self._address)
        self._count = count
        self._connection: Connection | None = None
        self._fleet: Fleet | None = None

    def compute(self, cells: Sequence[Cell], context: Context) -> Iterator[Done]:
        """See `Engine.compute`."""
        if not cells:
            return
        alone = [number for number, cell in enumerate(cells) if cell.needs.alone]
        shared = [cell for cell in cells if not cell.needs.alone]
        numbers = [number for number, cell in enumerate(cells) if not cell.needs.alone]
        failed: dict[str, Exception] = {}
        try:
            with Board(context.progress, [*shared, *(cells[n] for n in alone)], 1) as board:
                if shared:
                    yield from self._by_ray(shared, context, board, failed)
                ordered = [*shared, *(cells[number] for number in alone)]
                last = range(len(numbers), len(ordered))
                yield from computed_here(last, ordered, context, board, failed)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            self.stop()
            raise

    def _by_ray(
        self, cells: Sequence[Cell], context: Context, board: Board, failed: dict[str, Exception]
    ) -> Iterator[Done]:
        cpus = machine_for(self._count, [cell.needs for cell in cells]).workers
        if self._connection is None:
            self._connection = Connection(self._address, cpus)
        from ropelab.runs.engine.fleet import Cluster, Fleet

        cluster = Cluster(self._count)
        board.workers = cluster.workers
        self._fleet = Fleet(cluster, cells, context.cells, board, self._connection.folder)
        for future in as_completed(self._fleet.jobs):
            number, error = self._fleet.jobs[future].number, future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            board.finish(number)
            if error:
                failed[name_of(cells[number])] = error
            yield cells[number], error
        self._fleet.dismiss()
        self._fleet = None

    def stop(self) -> None:
        """Leave Ray."""
        fleet, self._fleet = self._fleet, None
        connection, self._connection = self._connection, None
        if fleet:
            fleet.dismiss()
        if connection:
            connection.close()
