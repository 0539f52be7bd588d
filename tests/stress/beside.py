"""Two commands of different kinds work on one results folder at the same time."""

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.stress.bench import NAME, PAUSE, command, told
from tests.stress.kills import child
from tests.stress.promise import State, Trial, find_unplain, leftovers, state
from tests.stress.scenes import config_of, of_file
from tests.stress.together import without_figures

ROUNDS = 12
LONGEST = "made again"
"""The command that takes longest, by its name in `list_lines`."""
LONGEST_WAIT = 0.8
"""Seconds after which the second command begins, at most; the first takes about one."""

Line = Callable[[Path, str], tuple[str, ...]]
"""The words of a command, for a results folder and the name of the run in it."""


def list_lines(config: Path, other: Path) -> dict[str, Line]:
    """The commands that are given beside each other, by what they do."""
    return {
        LONGEST: lambda results, run: command(results, "--force"),
        "drawn again": lambda results, run: command(results, "--redraw"),
        "as a PDF": lambda results, run: command(results, "--format", "pdf"),
        "from a file": lambda results, run: of_file(config, results),
        "another run": lambda results, run: of_file(other, results),
        "another index": lambda results, run: of_file(
            config, results, 1, "--index", "other.md"
        ),
        "a page": lambda results, run: ("report", "--results", str(results)),
        "an export": lambda results, run: (
            *("export", str(results / NAME / run)),
            *("--output", str(results.with_name("exported"))),
        ),
        "compared": lambda results, run: (
            *("compare", str(results / NAME / run), str(results / NAME / run)),
        ),
    }


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per command that ran beside another; each pair begins with a finished
    run.
    """
    chance = random.Random(0)
    config = config_of(folder)
    other = folder / "other.toml"
    other.write_text(f'experiment = "{NAME}"\nbase = 2e4\n')
    lines = list_lines(config, other)
    done = folder / "done"
    told(*command(done))
    (run,) = (path.name for path in (done / NAME).iterdir())
    right = state(done)

    os.environ[PAUSE] = str(folder)
    for number in range(1 if few else ROUNDS):
        for name in lines:
            results = folder / "results"
            shutil.rmtree(results, ignore_errors=True)
            shutil.copytree(done, results)
            shutil.rmtree(folder / "exported", ignore_errors=True)
            # Making the run again takes longest, so it runs beside each of the others.
            first_end = folder / "end-0"
            second_end = folder / "end-1"
            first = start(lines[LONGEST](results, run), first_end)
            time.sleep(chance.random() * LONGEST_WAIT)
            second = start(lines[name](results, run), second_end)
            os.waitpid(first, 0)
            os.waitpid(second, 0)

            after = list(find_damage(results, run, right))
            for what, end in (
                (f"{LONGEST} beside {name}", first_end),
                (f"{name} beside {LONGEST}", second_end),
            ):
                problems = [end.read_text(), *after]
                yield Trial(
                    f"round {number}, {what}", "; ".join(filter(None, problems))
                )
    del os.environ[PAUSE]


def start(line: tuple[str, ...], end: Path) -> int:
    """Start a command in a process, which writes what was wrong with it into a file."""
    end.write_text("it did not end")

    def work() -> None:
        answer = told(*line)
        problems = list(find_unplain(answer))
        if answer.status:
            problems.append(f"status {answer.status}: {answer.err!r}")
        end.write_text("; ".join(problems))

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
