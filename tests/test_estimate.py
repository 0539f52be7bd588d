"""What work costs is told before it begins, and what is beyond the limits is
refused.
"""

import math
import signal
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ropelab
from ropelab.cli import runs
from ropelab.cli.runs import interrupt_after
from ropelab.experiments import load
from ropelab.lab import Lab
from ropelab.models.lm.training import Recipe
from ropelab.runs import cell, estimate, machine
from ropelab.runs.cell import Context, Resources
from ropelab.runs.errors import InputError, say
from ropelab.runs.estimate import DAY, Estimate, measure_slowness, refuse_beyond
from tests.test_cli import call, visible
from tests.test_interrupts import heard
from tests.texts import mentions

__all__ = ["call", "heard"]  # fixtures

GB = 10**9
SMALL = {
    "base-empirical": ["--documents", "2"],
    "encodings": ["--documents", "2", "--train-len", "128", "--test-len", "256"],
    "spectrum": ["--documents", "2"],
    "extrapolate": ["--documents", "2", "--train-len", "128", "--test-len", "256"],
}


@pytest.fixture(autouse=True)
def _the_machine_whose_rates_are_known(monkeypatch):
    """The same sentences on every machine, however busy."""
    monkeypatch.setattr(estimate, "measure_slowness", lambda: 1.0)
    for user in ("ropelab.lab", "ropelab.runs.engine.schedule"):
        monkeypatch.setattr(f"{user}.find_free_memory", lambda: 8 * GB)
    monkeypatch.setattr(machine, "has_instructions", lambda name: True)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("base --context 1e12", "of memory, and 8.0 GB are free"),
        ("base --context 15e8 --head-dim 1280", "hours, more than a day"),
        ("precision --length 1e12", "of memory"),
        ("precision --length 8e10", "days, more than a day"),
        ("precision --samples 1e12", "of memory"),
        ("precision --draws 9e15", "of memory"),
        ("precision --long-lengths 9e15", "of memory"),
        ("base-empirical --steps 1e12", "years, more than a day"),
        ("base-empirical --layers 1e12", "of memory"),
        ("base-empirical --sequences 1e12", "of memory"),
        ("encodings --tokens-per-step 1e12", "of memory"),
        ("encodings --width 1e6", "of memory"),
        ("encodings --heads 1e15", "of memory"),
        ("extrapolate --head-dim 1048576", "of memory"),
        ("spectrum --head-dim 1048576", "of memory"),
        ("extrapolate --search 1e11", "years, more than a day"),
        (
            "extrapolate --methods longrope_search(budget=100000000000)",
            "years, more than a day",
        ),
        ("extrapolate --steps 1e12", "years, more than a day"),
        (
            "extrapolate --finetune-steps 1e14 --arms finetuned",
            "a million years or more",
        ),
    ],
)
def test_work_beyond_the_limits_is_refused_in_one_line(
    call, corpora, command, sentence
):
    name, *flags = command.split()
    small = [*SMALL[name], "--corpus", corpora[0]] if name in SMALL else []
    status, out, err = call(name, *flags, *small)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    assert err.endswith("; --no-limits allows it\n")
    assert visible(Path.cwd()) == []


def test_work_of_minutes_is_told_at_the_start_and_quick_work_is_not(call, monkeypatch):
    monkeypatch.setattr(Resources, "estimate", lambda _: Estimate(720, 2 * GB))
    assert mentions(call("freqs")[2], "12 minutes", "2.0 GB")
    monkeypatch.undo()
    assert call("freqs", "--base", "5e5")[2] == ""


def test_what_is_finished_is_used_whatever_it_cost(call, monkeypatch):
    assert call("freqs", "--quiet")[0] == 0
    monkeypatch.setattr(Resources, "estimate", lambda _: Estimate(2 * DAY))
    assert call("freqs", "--quiet")[0] == 0
    assert call("freqs", "--force", "--quiet")[0] == 2
    assert call("freqs", "--force", "--quiet", "--no-limits")[0] == 0


def test_python_refuses_too_and_has_a_word_that_allows_it(monkeypatch):
    import ropelab

    monkeypatch.setattr(Resources, "estimate", lambda _: Estimate(2 * DAY))
    with pytest.raises(InputError, match="about 2 days"):
        ropelab.freqs()
    assert len(ropelab.freqs(limits=False).tables["pairs"]) == 64


def test_more_workers_need_less_time_but_no_less_than_the_longest_part():
    work = Estimate(1200, 2.9 * GB, longest=400, parts=4)
    assert mentions(work.text(1), "20 minutes", "2.9 GB")
    assert "workers" not in work.text(1)
    assert mentions(work.text(2), "10 minutes", "2 workers", "2.9 GB each")
    assert mentions(work.text(16), "7 minutes", "4 workers", "2.9 GB each")


def test_a_training_is_shared_between_cores_and_each_evaluation_is_not():
    training = Resources(operations=1e13, dtype="float32", cores=2).estimate()
    alone = training.seconds_on(1)
    assert training.seconds_on(2) == training.seconds_on(8) == alone / 2
    evaluations = sum(
        (Resources(seconds=10.0).estimate() for _ in range(3)), Estimate()
    )
    assert (training + evaluations).seconds_on(2) == (alone + 30) / 2
    assert evaluations.seconds_on(8) == 10
    assert training.text(2).endswith(" GB")  # one process


def test_a_released_model_has_all_cores_however_many_workers_there_are(monkeypatch):
    released = Resources(operations=1e13, dtype="float32", exclusive=True)
    monkeypatch.setattr(cell, "count_cores", lambda: 4)
    work = released.estimate() + released.estimate() + Resources(seconds=8.0).estimate()
    one = Resources(operations=1e13, dtype="float32").estimate().seconds_on(1) / 4
    assert work.seconds_on(1) == work.seconds_on(4) == 2 * one + 8
    assert work.text(4).endswith(" GB")  # one process at a time


def test_a_slower_machine_is_told_longer_times(monkeypatch):
    monkeypatch.setattr(estimate, "measure_slowness", lambda: 3.0)
    assert mentions(Estimate(240, GB).text(), "12 minutes", "1.0 GB")
    with pytest.raises(InputError, match="more than a day"):
        refuse_beyond(Estimate(0.4 * DAY), 1, GB)


def test_the_calibration_measures_a_time():
    measure_slowness.cache_clear()
    assert 0.01 < measure_slowness() < 1000


@pytest.mark.slow
def test_only_what_is_left_is_counted(corpora, tmp_path):
    values = {"bases": (30.0, 300.0), "steps": 2, "documents": 2, "corpus": corpora[0]}
    lab = Lab(tmp_path, figures=False)
    plan = lab.prepare("base-empirical", {**values, "tasks": "copy", "sequences": 1})
    before = lab.find_work(plan, lab.make_context())
    assert len(before.cells) == len(before.cells_left) == before.estimate.parts == 4
    assert not list(tmp_path.iterdir())
    first = next(iter(before.cells_left.values()))
    list(lab.engine.compute([first], lab.make_context()))
    assert len(lab.find_work(plan, lab.make_context()).cells_left) == 3
    lab.run(plan)
    after = lab.find_work(plan, lab.make_context())
    assert (len(after.cells_left), after.estimate) == (0, Estimate())


def test_a_cell_on_a_gpu_has_no_time_because_no_rate_was_measured():
    assert Resources(1e20, gpu=True).estimate().seconds == 0
    assert Resources(1e20).estimate().seconds > 0


def test_emulated_bfloat16_takes_longest(monkeypatch):
    quick, plain = machine.find_rate("bfloat16"), machine.find_rate("float32")
    monkeypatch.setattr(machine, "has_instructions", lambda name: name == "avx512_bf16")
    assert machine.find_rate("bfloat16") == quick > plain
    assert not machine.is_bfloat16_quick("cpu")  # nothing is trained in it
    monkeypatch.setattr(machine, "has_instructions", lambda name: False)
    assert machine.find_rate("bfloat16") < plain


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 100, 801])
@pytest.mark.parametrize(
    ("window", "first"), [(64, 64), (100, 16), (65, 64), (2048, 16)]
)
def test_stages_count_the_steps_of_each_window(steps, window, first):
    recipe = Recipe(steps=steps, window=window, first_window=first)
    counted = Counter(recipe.window_at(step) for step in range(steps))
    told_ahead = Counter[int]()
    for length, count in recipe.stages():
        told_ahead[length] += count
    assert +told_ahead == counted


@pytest.mark.parametrize(
    ("name", "grown"),
    [
        ("freqs", "head_dim"),
        ("base", "context"),
        ("precision", "length"),
        ("claims", ""),
    ],
)
def test_arithmetic_knows_its_cost_at_every_size(name, grown):
    others = {"windows_up_to": 2**20} if name == "base" else {}
    costs = []
    # From 2^18 positions on the spread of scores is drawn, which takes less time.
    largest = 18 if name == "precision" else 20
    for power in range(10, largest):
        plan = Lab().prepare(name, {grown: 2**power, **others} if grown else {})
        costs.append(Lab().find_work(plan, Lab().make_context()).estimate)
    assert all(cost.seconds > 0 and cost.bytes > 0 for cost in costs)
    assert all(a.seconds <= b.seconds for a, b in pairwise(costs))


@pytest.mark.parametrize(
    "name", ["extrapolate", "encodings", "base-empirical", "spectrum"]
)
def test_quick_is_estimated_below_a_minute_and_keeps_what_is_given(
    name, monkeypatch, corpus
):
    monkeypatch.setattr(machine, "has_instructions", lambda name: False)
    lab, experiment = Lab(), load(name)
    given = {"corpus": corpus, "documents": 3, "device": "cpu"}
    values, less = experiment.choose_quick_values(given)
    plan = lab.prepare(name, values)
    assert plan.config.model_dump()["documents"] == 3
    assert lab.find_work(plan, Context()).estimate.seconds_on(1) < 60
    assert less
    assert "documents" not in less
    assert all(f"{field} " in less for field in experiment.quick if field not in given)


def test_a_quick_run_names_what_it_gives_up_unless_it_was_given():
    experiment = load("encodings")
    _, words = experiment.choose_quick_values({})
    assert all(name in words for name in experiment.quick)
    _, nothing = experiment.choose_quick_values(experiment.quick)
    assert nothing
    assert not any(name in nothing for name in experiment.quick)


def test_arithmetic_has_no_quick_way(call):
    with pytest.raises(InputError, match="freqs takes seconds"):
        load("freqs").choose_quick_values({})
    assert call("freqs", "--quick")[0] == 2


def test_more_minutes_than_allowed_are_refused_before_anything_is_trained(call):
    status, out, err = call("encodings", "--device", "cpu", "--max-minutes", "1")
    assert (status, out) == (2, "")
    assert mentions(err, "more than the 1", "--max-minutes", "--quick")
    assert visible(Path.cwd()) == []


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN])
def test_work_ends_when_the_minutes_are_over(capsys, monkeypatch, before):
    # A script's `&` starts commands that ignore Ctrl-C; their minutes end, too.
    signal.signal(signal.SIGINT, before)
    inside, start = threading.Event(), time.monotonic()

    def say_inside(text):
        assert inside.wait(60)
        say(text)

    monkeypatch.setattr(runs, "say", say_inside)
    with pytest.raises(KeyboardInterrupt), interrupt_after(0.002):
        inside.set()
        time.sleep(600)
    assert time.monotonic() - start < 300  # it waits for nothing
    assert capsys.readouterr().err == "--max-minutes 0.002 are over\n"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("heard")
def test_nothing_is_left_of_minutes_that_are_not_over():
    with interrupt_after(1):
        pass
    assert not [
        thread
        for thread in threading.enumerate()
        if isinstance(thread, threading.Timer)
    ]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("heard")
def test_minutes_that_are_over_as_the_work_ends_interrupt_it_and_nothing_later(
    monkeypatch,
):
    over, ended = threading.Event(), threading.Event()

    def say_late(_):
        over.set()
        assert ended.wait(60)

    monkeypatch.setattr(runs, "say", say_late)
    monkeypatch.setattr(threading.Timer, "cancel", lambda _: ended.set())
    with pytest.raises(KeyboardInterrupt), interrupt_after(1e-9):
        assert over.wait(60)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_quick_keeps_a_length_in_either_spelling(monkeypatch, corpus):
    monkeypatch.setattr(Lab, "run", lambda self, plan: plan.config)
    named: Any = {"original_max_position_embeddings": 96, "corpus": corpus}
    assert ropelab.run("extrapolate", quick=True, **named).train_len == 96


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("minutes", [1e300, math.inf])
def test_minutes_beyond_every_clock_are_waited_for(minutes, capsys):
    with interrupt_after(minutes):
        (timer,) = [
            thread
            for thread in threading.enumerate()
            if isinstance(thread, threading.Timer)
        ]
        timer.join(0.05)
        assert timer.is_alive()
    assert capsys.readouterr().err == ""
