"""Four processes make the same run at the same time, and others with it."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

from tests.stress.bench import command, told
from tests.stress.kills import child
from tests.stress.promise import Trial, all_right, leftovers, tables_in

PROCESSES = 4
ROUNDS = 60
WAYS = ((), ("--force",), ("--redraw",), ("--no-figures",), ("--format", "png,svg"))


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per process; each round begins with an empty folder."""
    chance = random.Random(0)
    told(*command(folder / "whole"))
    right = tables_in(folder / "whole")
    for number in range(2 if few else ROUNDS):
        results = folder / f"results-{number}"
        ways = [chance.choice(WAYS) if number % 2 else () for _ in range(PROCESSES)]
        processes = [started(results, way) for way in ways]
        ends = [os.waitpid(process, 0)[1] for process in processes]
        after = list(all_right(results, told(*command(results)), right))
        after += [f"left behind: {leftovers(results)}"] if leftovers(results) else []
        for way, end in zip(ways, ends, strict=True):
            status = os.waitstatus_to_exitcode(end)
            problems = [f"status {status}"] if status else []
            yield Trial(f"round {number}, {' '.join(way) or 'plain'}", "; ".join(problems + after))


def started(results: Path, way: tuple[str, ...]) -> int:
    """A process that makes the run."""

    def work() -> None:
        answer = told(*command(results, *way))
        if answer.err:
            os.write(2, answer.err.encode())
        os._exit(answer.status)

    return child(work)
