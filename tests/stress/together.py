"""Four processes make the same run at the same time, and others with it."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.stress.bench import PAUSE, command, told
from tests.stress.kills import child
from tests.stress.promise import State, Trial, leftovers, state

PROCESSES = 4
ROUNDS = 40
WAYS = ((), ("--force",), ("--redraw",), ("--no-figures",), ("--format", "png,svg"))


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per process that ran beside all others; each round begins with an empty
    folder.
    """
    chance, times = random.Random(0), folder / "times"
    told(*command(folder / "whole"))
    right = state(folder / "whole")
    os.environ[PAUSE] = str(folder)
    for number in range(2 if few else ROUNDS):
        results = folder / f"results-{number}"
        ways = [chance.choice(WAYS) if number % 2 else () for _ in range(PROCESSES)]
        times.write_text("")
        processes = [started(results, way, times) for way in ways]
        ends = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in processes]
        spans = [
            tuple(map(float, line.split())) for line in times.read_text().splitlines()
        ]
        met = len(spans) == PROCESSES and max(spans)[0] < min(end for _, end in spans)
        after = [f"left behind: {leftovers(results)}"] if leftovers(results) else []
        if without_figures(state(results)) != without_figures(right):
            after.append("not right at once")
        again = told(*command(results))
        if again.status or without_figures(state(results), ".svg") != right:
            after.append(f"not right again: {again.err!r}")
        for way, status in zip(ways, ends, strict=True):
            problems = [f"status {status}", *after] if status else after
            yield Trial(
                f"round {number}, {' '.join(way) or 'plain'}", "; ".join(problems), met
            )
    del os.environ[PAUSE]


def without_figures(found: State, ending: str = "") -> State:
    """What is stored but for figures, or for those of one kind."""

    def shared(name: str, content: Any) -> Any:
        of_manifest = name == "manifest.json" and not ending
        return {**content, "figures": None} if of_manifest else content

    return {
        unit: {
            name: shared(name, content)
            for name, content in files.items()
            if not (name.startswith("figures/") and name.endswith(ending))
        }
        for unit, files in found.items()
    }


def started(results: Path, way: tuple[str, ...], times: Path) -> int:
    """A process that makes the run, and notes when it began and ended."""

    def work() -> None:
        begun = time.monotonic()
        answer = told(*command(results, *way))
        with times.open("a") as file:
            file.write(f"{begun} {time.monotonic()}\n")
        if answer.status:
            os.write(2, answer.err.encode())
        os._exit(answer.status)

    return child(work)
