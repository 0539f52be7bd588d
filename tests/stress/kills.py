"""The process is killed: at every file operation of every situation, and at any moment."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.stress.bench import Told, told
from tests.stress.operations import Operations, counted
from tests.stress.promise import Trial, all_right, leftovers, nothing_half
from tests.stress.scenes import Scene, scenes

SPARSELY = 61
MOMENTS = 10
"""Random moments in each situation."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per situation and operation, then some per situation at random moments."""
    chance = random.Random(0)
    results = folder / "results"
    for scene in scenes(folder):
        with counted(Operations(scene.begin(results))) as operations:
            start = time.monotonic()
            told(*scene.arguments(results))
            seconds = time.monotonic() - start
        for number in range(1, operations.count + 1, SPARSELY if few or scene.like else 1):
            yield killed_at(scene, results, number)
        for _ in range(1 if few else MOMENTS):
            yield killed_after(scene, results, chance.random() * seconds)


def killed_at(scene: Scene, results: Path, number: int) -> Trial:
    """The process dies instead of the operation of that number."""
    arguments = scene.arguments(scene.begin(results))

    def die(name: str, path: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        with counted(Operations(results, number, die)):
            told(*arguments)

    os.waitpid(child(work), 0)
    return judged(scene, results, f"killed at operation {number}")


def killed_after(scene: Scene, results: Path, seconds: float) -> Trial:
    """The process dies some time after its beginning."""
    arguments = scene.arguments(scene.begin(results))
    process = child(lambda: told(*arguments))
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return judged(scene, results, f"killed after {seconds:.3f} s")


def child(work: Callable[[], object]) -> int:
    """The id of a copy of this process that does some work and ends."""
    process = os.fork()
    if process == 0:
        try:
            work()
        finally:
            os._exit(0)
    return process


def judged(scene: Scene, results: Path, what: str) -> Trial:
    """Whether what was left is whole, and the same command puts everything right."""
    problems = list(nothing_half(results, scene.right))
    again: Told = told(*scene.arguments(results))
    problems += all_right(results, again, scene.right)
    hidden = set(leftovers(results))
    if hidden:  # of a figure: whoever draws it again finds it
        told(*scene.arguments(results), "--force")
        problems += [f"left for ever: {name}" for name in hidden & set(leftovers(results))]
    return Trial(f"{scene.name}: {what}", "; ".join(problems))
