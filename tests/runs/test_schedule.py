"""Which cell comes first, and how many there is room for."""

from dataclasses import dataclass

import pytest

from ropelab.runs.cell import Cell, Resources
from ropelab.runs.engine.schedule import (
    TRIES,
    LostError,
    Machine,
    Schedule,
    choose_machine,
)
from ropelab.runs.errors import MachineError


@dataclass(frozen=True)
class Piece:
    """A cell that says what it needs."""

    seed: int
    resources: Resources
    prerequisites: tuple[Cell, ...] = ()
    kind: str = "piece"
    version: int = 1

    @property
    def key(self):
        return {"seed": self.seed}

    @property
    def title(self):
        return f"piece {self.seed}"


def piece(seed, *prerequisites, **resources):
    return Piece(seed, Resources(**resources), prerequisites)


def schedule(room, *pieces):
    return Schedule(dict(enumerate(pieces)), room.place)


def begun(made):
    """All that there is room for now: numbers and GPUs."""
    found = []
    while taken := made.begin():
        found.append(taken)
    return found


def order(room, *pieces):
    """The numbers of cells as they are begun when each ends before the next."""
    made, found = schedule(room, *pieces), []
    while made.undone:
        ((number, _),) = begun(made)
        found.append(number)
        made.end(number, None)
    return found


def test_those_that_others_wait_for_come_first_then_the_longest_then_the_order():
    longer, shorter = piece(0, operations=2.0), piece(1, operations=1.0)
    cells = [
        longer,
        shorter,
        piece(2, operations=5.0),
        piece(3, shorter, operations=9.0),
        piece(4, longer, operations=9.0),
        piece(5, operations=11.0),
    ]
    assert order(Machine(1), *cells) == [0, 1, 5, 3, 4, 2]


def test_what_takes_a_moment_does_not_wait_for_training():
    training = piece(0, seconds=600.0)
    cells = [
        training,
        piece(1, training, seconds=1.0),
        piece(2, seconds=60.0),
        piece(3),
    ]
    assert order(Machine(1), *cells) == [3, 0, 1, 2]


def test_a_start_that_is_not_among_the_cells_is_finished():
    assert order(Machine(1), piece(0, piece(9))) == [0]


def test_a_cell_waits_for_all_its_starts_while_others_are_begun():
    one, two = piece(0, operations=2.0), piece(1, operations=1.0)
    made = schedule(Machine(3), one, two, piece(2, one, two), piece(3))
    assert [number for number, _ in begun(made)] == [0, 1, 3]
    made.end(1, None)
    assert begun(made) == []
    made.end(0, None)
    assert begun(made) == [(2, 0)]


@pytest.mark.parametrize(
    ("room", "most"), [(Machine(2), 2), (Machine(9, memory_bytes=7), 3)]
)
def test_no_more_cells_at_once_than_workers_and_memory(room, most):
    made = schedule(room, *(piece(seed, memory_bytes=2) for seed in range(5)))
    assert len(begun(made)) == most
    made.end(0, None)
    assert len(begun(made)) == 1


def test_a_cell_that_needs_more_memory_than_there_is_runs_alone():
    room = Machine(2, memory_bytes=7)
    made = schedule(room, piece(0, memory_bytes=99), piece(1, memory_bytes=2))
    assert begun(made) == [(0, 0)]
    made.end(0, None)
    assert begun(made) == [(1, 0)]


def test_cells_spread_over_gpus_one_on_each_and_others_pass_them():
    cells = [*(piece(seed, gpu=True) for seed in range(4)), piece(4)]
    made = schedule(Machine(8, gpus=2), *cells)
    assert begun(made) == [(0, 0), (1, 1), (4, 0)]
    made.end(1, None)
    assert begun(made) == [(2, 1)]


def test_more_workers_than_gpus_share_them_evenly():
    room = Machine(4, cells_per_gpu=4, gpus=2)
    made = schedule(room, *(piece(seed, gpu=True) for seed in range(4)))
    assert [gpu for _, gpu in begun(made)] == [0, 1, 0, 1]


def test_gpus_are_those_that_torch_may_see(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    cells = [piece(seed, gpu=True) for seed in range(3)]
    made = schedule(choose_machine(3, [cell.resources for cell in cells]), *cells)
    assert [gpu for _, gpu in begun(made)] == [0, 1, 2]


def test_a_failure_ends_all_that_starts_from_it_and_frees_its_place():
    first = piece(0)
    second = piece(1, first)
    made = schedule(Machine(1), first, second, piece(2, second), piece(3))
    assert begun(made) == [(0, 0)]
    error = OSError("no more processes")
    assert made.end(0, error) == {0: error, 1: error, 2: error}
    assert begun(made) == [(3, 0)]
    assert made.end(3, None) == {3: None}
    assert not made.undone


def test_a_lost_cell_is_begun_again_the_last_time_with_nothing_beside_it():
    cells = [piece(seed) for seed in range(3)]
    made = schedule(Machine(3), *cells)
    for _ in range(TRIES - 1):
        assert {0, 1} <= {number for number, _ in begun(made)}
        assert made.end(0, LostError()) == made.end(1, LostError()) == {}
    assert begun(made) == []  # the third still runs
    made.end(2, None)
    ((first, _),) = begun(made)
    assert made.end(first, None) == {first: None}
    ((second, _),) = begun(made)
    (error,) = made.end(second, LostError()).values()
    assert isinstance(error, MachineError)
    assert str(error).startswith(
        f"the process computing 'piece {second}' ended {TRIES} times"
    )
    assert not made.undone


def test_workers_are_as_many_as_fit_into_memory(monkeypatch):
    monkeypatch.setattr("ropelab.runs.engine.schedule.find_free_memory", lambda: 10)
    monkeypatch.setattr("ropelab.runs.engine.schedule.count_cores", lambda: 16)
    assert (
        choose_machine(
            None, [Resources(memory_bytes=3), Resources(memory_bytes=9)]
        ).workers
        == 3
    )
    assert choose_machine(None, [Resources(memory_bytes=99)]).workers == 1
    assert choose_machine(7, [Resources(memory_bytes=99)]).workers == 7


def test_cells_that_all_need_a_gpu_get_no_process_that_would_wait_for_one(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("ropelab.runs.engine.schedule.count_cores", lambda: 16)
    on_gpu, small = Resources(memory_bytes=1, gpu=True), Resources(memory_bytes=1)
    made = choose_machine(None, [on_gpu] * 20)
    assert (made.workers, made.gpus, made.cells_per_gpu) == (2, 2, 1)
    assert choose_machine(None, [*[on_gpu] * 20, small]).workers == 3
    assert choose_machine(None, [on_gpu, *[small] * 20]).workers == 16
    assert choose_machine(6, [on_gpu] * 20).cells_per_gpu == 6
