"""Two commands of different kinds work on one results folder at the same time."""

import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.stress.bench import NAME, PAUSE, command, told
from tests.stress.kills import child
from tests.stress.promise import State, Trial, find_unplain, leftovers, state
from tests.stress.scenes import config_of, of_file
from tests.stress.together import without_figures

ROUNDS = 12
LONGEST_WAIT = 0.8
"""Seconds after which the second command begins, at most; the first takes about one."""


def list_lines(
    config: Path, other: Path, results: Path, run: str
) -> dict[str, tuple[str, ...]]:
    """The commands that are given beside each other, by what they do; ``run`` is the
    name of the run in ``results``.
    """
    place = str(results / NAME / run)
    exported = str(results.with_name("exported"))
    return {
        "made again": command(results, "--force"),
        "drawn again": command(results, "--redraw"),
        "as a PDF": command(results, "--format", "pdf"),
        "from a file": of_file(config, results),
        "another run": of_file(other, results),
        "another index": of_file(config, results, 1, "--index", "other.md"),
        "a page": ("report", "--results", str(results)),
        "an export": ("export", place, "--output", exported),
        "compared": ("compare", place, place),
    }


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Each command beside one that makes the run again, which takes longest; each pair
    begins with a finished run.
    """
    chance = random.Random(0)
    config = config_of(folder)
    other = folder / "other.toml"
    other.write_text(f'experiment = "{NAME}"\nbase = 2e4\n')
    done = folder / "done"
    told(*command(done))
    (run,) = (path.name for path in (done / NAME).iterdir())
    right = state(done)

    results = folder / "results"
    lines = list_lines(config, other, results, run)
    os.environ[PAUSE] = str(folder)
    for number in range(1 if few else ROUNDS):
        for name, line in lines.items():
            shutil.rmtree(results, ignore_errors=True)
            shutil.copytree(done, results)
            shutil.rmtree(folder / "exported", ignore_errors=True)
            wait = chance.random() * LONGEST_WAIT
            ends = run_both(lines["made again"], line, wait, folder)
            damage = list(find_damage(results, run, right))

            is_beside = ends[1].began < ends[0].ended
            whats = (f"made again beside {name}", f"{name} beside made again")
            for what, end in zip(whats, ends, strict=True):
                problems = [end.problem, *damage]
                told_problem = "; ".join(filter(None, problems))
                yield Trial(f"round {number}, {what}", told_problem, is_beside)
    del os.environ[PAUSE]


class End(NamedTuple):
    """When a command began and ended, in seconds, and what was wrong with it."""

    began: float
    ended: float
    problem: str


def run_both(
    first: tuple[str, ...], second: tuple[str, ...], wait: float, folder: Path
) -> list[End]:
    """Run two commands in processes of their own, the second some seconds after the
    first.
    """
    places = [folder / "end-of-first", folder / "end-of-second"]
    processes = [start(first, places[0])]
    time.sleep(wait)
    processes.append(start(second, places[1]))
    for process in processes:
        os.waitpid(process, 0)
    return [End(*json.loads(place.read_text())) for place in places]


def start(line: tuple[str, ...], place: Path) -> int:
    """Start a command in a process, which writes its end into a file."""
    began = time.monotonic()
    place.write_text(json.dumps(End(began, began, "it did not end")))

    def work() -> None:
        answer = told(*line)
        problems = list(find_unplain(answer))
        if answer.status:
            problems.append(f"status {answer.status}: {answer.err!r}")
        end = End(began, time.monotonic(), "; ".join(problems))
        place.write_text(json.dumps(end))

    return child(work)


def find_damage(results: Path, run: str, right: State) -> Iterator[str]:
    """Problems of the folder afterwards: the run is the right one, and nothing is left
    behind.
    """
    place = f"{NAME}/{run}"
    now = without_figures({place: state(results).get(place, {})})
    if now != without_figures({place: right[place]}):
        yield f"not right: {place}"
    if left := leftovers(results):
        yield f"left behind: {left}"
    again = told(*command(results))
    if again.status:
        yield f"not right again: {again.err!r}"
