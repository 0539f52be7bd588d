"""Cells that were handed in: each has a number, a board that shows it, and a place in the queue."""

import itertools

from ropelab.runs.cells import Cells
from ropelab.runs.context import Cell
from ropelab.runs.engine.messages import Board, Message
from ropelab.runs.engine.schedule import Job, Schedule
from ropelab.runs.forecast import Forecast


class Tickets:
    """The cells of all runs that some workers share.

    Args:
        schedule: begins them.
        workers: how many there are.
    """

    def __init__(self, schedule: Schedule, workers: int) -> None:
        self._schedule, self._forecast = schedule, Forecast(workers)
        self._numbers = itertools.count()
        self.boards: dict[int, Board] = {}

    def submit(self, cell: Cell, cells: Cells, board: Board) -> Job:
        """Hand a cell in."""
        job = Job(next(self._numbers), cell, cell.needs, cells)
        board.expect(job, self._forecast)
        self.boards[job.ticket] = board
        self._schedule.add(job)
        return job

    def forget(self, job: Job) -> None:
        """A cell is done with."""
        self.boards.pop(job.ticket, None)

    def tell(self, message: Message) -> None:
        """Have a board show what a worker says."""
        if board := self.boards.get(message.ticket):
            board.take(message)
