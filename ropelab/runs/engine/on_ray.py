"""Cells on a Ray cluster, or on this machine under Ray; only the process that asked writes results.

Ray and torch are loaded, and a cluster is joined, when the first cells come: a finished run takes
no longer than without.
"""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import as_completed
from typing import TYPE_CHECKING

from ropelab.runs.context import Cell, Context, Failures
from ropelab.runs.engine.capacity import machine_for
from ropelab.runs.engine.connection import Connection, check_ray
from ropelab.runs.engine.messages import Board
from ropelab.runs.engine.schedule import settle

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
        self._lock = threading.Lock()
        self._stopped = False

    def compute(self, cells: Sequence[Cell], context: Context) -> None:
        """See `Engine.compute`."""
        if not cells:
            return
        try:
            fleet, failures = self._ready(cells), Failures()
            with Board(context.progress, cells) as board:
                jobs = [fleet.submit(cell, context.cells, board) for cell in cells]
                by_outcome = {job.outcome: job for job in jobs}
                for outcome in as_completed(by_outcome):
                    settle(by_outcome[outcome], context, failures)
                    board.finished(by_outcome[outcome].ticket)
                    fleet.forget(by_outcome[outcome])
        except (KeyboardInterrupt, SystemExit):
            self.stop()
            raise
        failures.report()

    def stop(self) -> None:
        """Leave Ray; other threads that compute there end as interrupted."""
        with self._lock:
            self._stopped = True
            fleet, self._fleet = self._fleet, None
            connection, self._connection = self._connection, None
        if fleet:
            fleet.dismiss()
        if connection:
            connection.close()

    def _ready(self, cells: Sequence[Cell]) -> "Fleet":
        """The fleet, started now if there is none."""
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            if self._fleet is None:
                cpus = machine_for(self._count, [cell.needs for cell in cells]).workers
                self._connection = Connection(self._address, cpus)
                from ropelab.runs.engine.fleet import Fleet

                self._fleet = Fleet(self._count, self._connection.folder)
            return self._fleet
