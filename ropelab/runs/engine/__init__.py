"""The one map: cells are computed in this process, in worker processes beside it, or on Ray.

One torch thread computes a cell wherever it is, so tables are the same, byte for byte, for any
number of workers. Cells that are computed `alone` stay in the process that asked.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol

from ropelab.runs.cell import Cell, Context, name_of
from ropelab.runs.engine.board import Board, unless_quick
from ropelab.runs.errors import RopelabError
from ropelab.runs.machine import one_thread

# Cells as they are finished, each with the error that it ended with.
Finished = Generator[tuple[Cell, Exception | None], None, None]


class Engine(Protocol):
    """Computes cells, wherever it likes, and keeps them in the context's cells."""

    def compute(self, cells: Sequence[Cell], context: Context) -> Finished:
        """Compute cells and yield each when it is finished; one that fails stops no other.

        Args:
            cells: each once, and behind the cells that it starts from. A cell whose start failed
                ends with the same error.
        """
        ...

    def stop(self) -> None:
        """End what is being computed, so that nothing is left running."""
        ...


class Here:
    """Computes cells one after another, without any other process."""

    def compute(self, cells: Sequence[Cell], context: Context) -> Finished:
        """See `Engine.compute`."""
        if cells:
            context = replace(context, progress=unless_quick(context.progress, cells))
            with Board(context.progress, cells, workers=1) as board:
                yield from computed_here(range(len(cells)), cells, context, board, {})

    def stop(self) -> None:
        """Do nothing: nothing runs elsewhere."""


def computed_here(
    numbers: Iterable[int],
    cells: Sequence[Cell],
    context: Context,
    board: Board,
    failed: dict[str, Exception],
) -> Finished:
    """Compute some of the cells in this process, in their order.

    Args:
        failed: errors of cells by their names; those of cells that fail now are added.
    """
    for number in numbers:
        cell = cells[number]
        error = next((failed[s] for s in map(name_of, cell.starts) if s in failed), None)
        if error is None:
            board.begin()
            try:
                with threads_of(cell):
                    context.compute(cell)
            except RopelabError as raised:
                error = raised
        if error is not None:
            failed[name_of(cell)] = error
        board.finish(number)
        yield cell, error


def threads_of(cell: Cell) -> AbstractContextManager[object]:
    """Keep torch to one thread while a cell is computed, where it uses torch and is not alone."""
    return one_thread() if cell.needs.dtype and not cell.needs.alone else nullcontext()
