"""One line for each cell that is computed, and one for the whole that moves with all of them."""

from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from ropelab.runs.engine.messages import Board, Message
from ropelab.runs.forecast import Forecast

from ropelab.runs import estimate
from ropelab.runs.cell import Context, Needs
from ropelab.runs.cells import Cells
from ropelab.runs.engine.schedule import Job
from ropelab.runs.machine import rate
from tests.engine.cells_of_tests import Sum


@dataclass(frozen=True)
class Weighs(Sum):
    operations: float = 0.0

    @property
    def needs(self):
        return Needs(self.operations)


class Shown:
    """A progress that remembers its lines: what is open, and how far each came."""

    def __init__(self):
        self.open, self.far, self.notes, self.left = [], {}, {}, {}

    @contextmanager
    def __call__(self, description, total=None):
        self.open.append(description)
        self.far[description] = 0.0

        def advance(steps=1, *, note="", left=None):
            self.far[description] += steps
            self.notes[description] = note or self.notes.get(description)
            self.left[description] = left

        yield advance
        self.open.remove(description)


WHOLE = "2 models and measurements"


@pytest.fixture
def shown():
    return Shown()


@pytest.fixture
def board(shown):
    forecast = Forecast(workers=2)
    cells = [Weighs(0, operations=30.0), Weighs(1, operations=10.0)]
    with Board(shown, cells) as board:
        for ticket, cell in enumerate(cells):
            board.expect(Job(ticket, cell, cell.needs, Cells()), forecast)
        yield board
    assert shown.open == []


def test_the_whole_moves_with_every_cell_by_its_share_of_the_work(board, shown):
    board.take(Message(0, "open", ("long", 100)))
    board.take(Message(1, "open", ("short", 4)))
    assert shown.open == [WHOLE, "long", "short"]
    board.take(Message(0, "advance", (50, "loss 2")))
    assert shown.far == {WHOLE: 0.75, "long": 50, "short": 0}
    board.take(Message(1, "advance", (1, "")))
    assert shown.far[WHOLE] == 0.75 + 0.125
    board.take(Message(1, "close"))
    board.finished(1)
    assert shown.open == [WHOLE, "long"]
    assert shown.far[WHOLE] == 0.75 + 0.5
    assert shown.notes[WHOLE] == "1 finished"
    board.finished(0)
    assert shown.far[WHOLE] == 2.0


def test_a_cell_that_is_begun_again_does_not_move_the_whole_twice(board, shown):
    board.take(Message(0, "open", ("long", 100)))
    board.take(Message(0, "advance", (100, "")))
    board.take(Message(0, "open", ("long", 100)))
    board.take(Message(0, "advance", (100, "")))
    assert shown.far[WHOLE] == 1.5
    for ticket in (0, 1):
        board.finished(ticket)
    assert shown.far[WHOLE] == 2.0


def test_a_line_without_a_total_moves_nothing_but_itself(board, shown):
    board.take(Message(0, "open", ("searching", None)))
    board.take(Message(0, "advance", (3, "")))
    assert shown.far == {WHOLE: 0.0, "searching": 3}


def test_the_time_left_of_the_whole_comes_from_what_cells_were_expected_to_cost(shown, monkeypatch):
    monkeypatch.setattr(estimate, "slowness", lambda: 1.0)
    hour = 3600 * rate("float32")
    cells = [Weighs(0, operations=hour), Weighs(1, operations=hour)]
    forecast = Forecast(workers=2)
    with Board(shown, cells) as board:
        for ticket, cell in enumerate(cells):
            board.expect(Job(ticket, cell, cell.needs, Cells()), forecast)
            board.take(Message(ticket, "started", (1,)))
            board.take(Message(ticket, "open", ("training", 10_000)))
        board.take(Message(0, "advance", (0.01, "")))
    assert shown.left[WHOLE] == pytest.approx(3600, rel=0.05)
    assert shown.left["training"] is None


def test_in_one_process_cells_that_took_no_time_correct_what_is_expected_of_others(
    shown, monkeypatch
):
    monkeypatch.setattr(estimate, "slowness", lambda: 1.0)
    hour = 3600 * rate("float32")
    told = []

    class Noted(Weighs):
        def tables(self, context):
            told.append(shown.left.get(WHOLE))
            return super().tables(context)

    Context(progress=shown).phase([Noted(seed, operations=hour) for seed in range(2)])
    assert told[0] is None
    assert told[1] < 600
    assert shown.left[WHOLE] == 0.0
