"""One line for each cell that is computed, and one for the whole that moves with all of
them.
"""

import time
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from ropelab.runs import estimate
from ropelab.runs.cell import Context, Resources
from ropelab.runs.engine import Here
from ropelab.runs.engine.board import Board, Message, report
from tests.runs.cells_of_tests import Sum


@dataclass(frozen=True)
class Takes(Sum):
    seconds: float = 0.0

    @property
    def resources(self):
        return Resources(seconds=self.seconds)


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


WHOLE = "2 pieces of work"


@pytest.fixture(autouse=True)
def _a_machine_of_known_speed(monkeypatch):
    monkeypatch.setattr(estimate, "measure_slowness", lambda: 1.0)


@pytest.fixture
def shown():
    return Shown()


@pytest.fixture
def board(shown):
    """A tenth of a second is added to each."""
    cells = [Takes(0, seconds=29.9), Takes(1, seconds=9.9)]
    with Board(shown, cells) as board:
        board.workers = 2
        yield board
    assert shown.open == []


def test_the_whole_moves_with_every_cell_by_its_share_of_the_work(board, shown):
    board.take(Message(0, "open", ("long", 100)))
    board.take(Message(1, "open", ("short", 4)))
    assert shown.open == [WHOLE, "long", "short"]
    board.take(Message(0, "advance", (50, "loss 2")))
    assert shown.far == pytest.approx({WHOLE: 15, "long": 50, "short": 0})
    board.take(Message(1, "advance", (1, "")))
    assert shown.far[WHOLE] == pytest.approx(15 + 2.5)
    board.take(Message(1, "close"))
    board.finish(1)
    assert shown.open == [WHOLE, "long"]
    assert shown.far[WHOLE] == pytest.approx(15 + 10)
    assert shown.notes[WHOLE] == "1 finished"
    board.finish(0)
    assert shown.far[WHOLE] == pytest.approx(40)


def test_a_cell_that_is_begun_again_does_not_move_the_whole_twice(board, shown):
    for _ in range(2):
        board.take(Message(0, "open", ("long", 100)))
        board.take(Message(0, "advance", (100, "")))
    assert shown.far[WHOLE] == pytest.approx(30)
    board.finish(0)
    board.finish(1)
    assert shown.far[WHOLE] == pytest.approx(40)


def test_a_line_without_a_total_moves_nothing_but_itself(board, shown):
    board.take(Message(0, "open", ("searching", None)))
    board.take(Message(0, "advance", (3, "")))
    assert shown.far == {WHOLE: 0.0, "searching": 3}


def test_a_message_that_comes_after_the_end_of_its_cell_is_let_go(board, shown):
    board.finish(0)
    board.take(Message(0, "advance", (3, "")))
    assert shown.far[WHOLE] == pytest.approx(30)


def test_the_time_left_of_the_whole_comes_from_what_cells_were_expected_to_cost(
    shown, monkeypatch
):
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    cells = [Takes(0, seconds=3600), Takes(1, seconds=3600)]
    with Board(shown, cells) as board:
        board.workers = 2
        for number in range(2):
            board.take(Message(number, "started", (1,)))
            board.take(Message(number, "open", ("training", 10_000)))
        board.take(Message(0, "advance", (0.01, "")))
    assert shown.left[WHOLE] == pytest.approx(3600, rel=0.05)
    assert shown.left["training"] is None


def test_in_one_process_cells_that_took_no_time_correct_what_is_expected_of_others(
    shown,
):
    told = []

    class Noted(Takes):
        def tables(self, context):
            told.append(shown.left.get(WHOLE))
            return super().tables(context)

    cells = [Noted(seed, seconds=3600) for seed in range(2)]
    assert [error for _, error in Here().compute(cells, Context(progress=shown))] == [
        None,
        None,
    ]
    assert told[0] is None
    assert told[1] < 600
    assert shown.left[WHOLE] == 0.0


def test_a_cell_speaks_seldom_and_no_step_is_lost(monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    messages: list[Message] = []
    with report(messages.append, 0, "long") as advance:
        for _ in range(10):
            seconds[0] += 1 / 16
            advance()
    steps = [each.content[0] for each in messages if each.kind == "advance"]
    assert steps == [4, 4, 2]
