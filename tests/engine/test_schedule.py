"""Which cell comes first, and how many there is room for."""

from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from ropelab.runs.cell import Needs
from ropelab.runs.cells import Cells
from ropelab.runs.engine.capacity import Machine, machine_for
from ropelab.runs.engine.schedule import Job, Schedule
from tests.engine.cells_of_tests import Sum


@dataclass(frozen=True)
class Begun:
    """A schedule over a machine, and what it has begun: the seeds of cells, with their GPUs."""

    room: Machine
    seeds: list
    gpus: list
    futures: list

    @classmethod
    def on(cls, room):
        return cls(room, [], [], [])

    def schedule(self):
        return Schedule(self.room, self.start)

    def start(self, job, gpu):
        self.seeds.append(job.cell.seed)
        self.gpus.append(gpu)
        self.futures.append(Future())
        return self.futures[-1]


def job(seed, **needs):
    return Job(seed, Sum(seed), Needs(**needs), Cells())


def run(room, jobs):
    """All jobs one after another: the order in which they are begun."""
    begun = Begun.on(room)
    schedule = begun.schedule()
    for each in jobs:
        schedule.add(each)
    schedule.open()
    for done in range(len(jobs)):
        begun.futures[done].set_result(None)
    assert all(each.outcome.done() for each in jobs)
    return begun


def test_what_others_wait_for_comes_first_then_the_longest_then_the_order():
    jobs = [
        job(0, operations=5.0),
        job(1, operations=9.0),
        job(2, operations=1.0, awaited=True),
        job(3, operations=2.0, awaited=True),
        job(4, operations=9.0),
    ]
    assert run(Machine(1), jobs).seeds == [3, 2, 1, 4, 0]


def test_a_later_run_goes_before_what_waits():
    begun = Begun.on(Machine(1))
    schedule = begun.schedule()
    schedule.open()
    for each in (job(0, operations=1.0), job(1, operations=1.0), job(2, operations=7.0)):
        schedule.add(each)
    begun.futures[0].set_result(None)
    assert begun.seeds == [0, 2]


def test_no_more_cells_at_once_than_workers_and_memory():
    for room, expected in ((Machine(2), 2), (Machine(9, memory_bytes=7), 3)):
        begun = Begun.on(room)
        schedule = begun.schedule()
        schedule.open()
        for seed in range(5):
            schedule.add(job(seed, memory_bytes=2))
        assert len(begun.seeds) == expected
        begun.futures[0].set_result(None)
        assert len(begun.seeds) == expected + 1


def test_a_cell_that_needs_more_memory_than_there_is_runs_alone():
    jobs = [job(0, memory_bytes=99), job(1, memory_bytes=2)]
    begun = Begun.on(Machine(2, memory_bytes=7))
    schedule = begun.schedule()
    schedule.open()
    for each in jobs:
        schedule.add(each)
    assert begun.seeds == [0]
    begun.futures[0].set_result(None)
    assert begun.seeds == [0, 1]


def test_cells_spread_over_gpus_one_on_each_and_others_pass_them():
    begun = Begun.on(Machine(8, gpus=lambda: 2))
    schedule = begun.schedule()
    schedule.open()
    for seed in range(4):
        schedule.add(job(seed, gpu=True))
    schedule.add(job(4))
    assert (begun.seeds, begun.gpus) == ([0, 1, 4], [0, 1, 0])
    begun.futures[1].set_result(None)
    assert (begun.seeds[3], begun.gpus[3]) == (2, 1)


def test_more_workers_than_gpus_share_them_evenly():
    begun = Begun.on(Machine(4, cells_per_gpu=4, gpus=lambda: 2))
    schedule = begun.schedule()
    schedule.open()
    for seed in range(4):
        schedule.add(job(seed, gpu=True))
    assert begun.gpus == [0, 1, 0, 1]


def test_gpus_are_those_that_torch_may_see(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    begun = Begun.on(machine_for(3, []))
    schedule = begun.schedule()
    schedule.open()
    for seed in range(3):
        schedule.add(job(seed, gpu=True))
    assert begun.gpus == [0, 1, 2]


def test_an_error_at_the_start_is_the_outcome_and_others_go_on():
    def start(job, gpu):
        if job.cell.seed == 0:
            raise OSError("no more processes")
        done = Future()
        done.set_result(None)
        return done

    jobs = [job(0), job(1)]
    schedule = Schedule(Machine(1), start)
    for each in jobs:
        schedule.add(each)
    schedule.open()
    assert isinstance(jobs[0].outcome.exception(), OSError)
    assert jobs[1].outcome.exception() is None


def test_a_closed_schedule_ends_what_waits_and_what_comes():
    begun = Begun.on(Machine(1))
    schedule = begun.schedule()
    jobs = [job(0), job(1)]
    schedule.add(jobs[0])
    schedule.close(RuntimeError("over"))
    schedule.add(jobs[1])
    schedule.open()
    assert begun.seeds == []
    for each in jobs:
        with pytest.raises(RuntimeError, match="over"):
            each.outcome.result(timeout=5)


def test_workers_are_as_many_as_fit_into_memory(monkeypatch):
    monkeypatch.setattr("ropelab.runs.engine.capacity.available_memory", lambda: 10)
    monkeypatch.setattr("ropelab.runs.engine.capacity.cores", lambda: 16)
    assert machine_for(None, [Needs(memory_bytes=3), Needs(memory_bytes=9)]).workers == 3
    assert machine_for(None, [Needs(memory_bytes=99)]).workers == 1
    assert machine_for(7, [Needs(memory_bytes=99)]).workers == 7
