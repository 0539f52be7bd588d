"""The process is killed: at every file operation of every situation, and at any
moment.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.stress.bench import told
from tests.stress.operations import Operations, counted
from tests.stress.promise import Trial, require_whole
from tests.stress.scenes import Scene, scenes

MOMENTS = 10
"""Random moments in each situation that is quick, two in others."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per situation and operation, then some per situation at random
    moments.
    """
    chance = random.Random(0)
    for scene in scenes(folder):
        for number in scene.numbers(few):
            yield killed_at(scene, number)
        seconds = []
        for _ in range(1 if few else 3):
            scene.begin()
            start = time.monotonic()
            os.waitpid(child(lambda: told(*scene.arguments)), 0)  # noqa: B023
            seconds.append(time.monotonic() - start)
        for _ in range(1 if few else 2 if scene.sparse > 1 else MOMENTS):
            yield killed_after(scene, chance.random() * min(seconds))


def killed_at(scene: Scene, number: int) -> Trial:
    """The process dies instead of the operation of that number."""

    def die(count: int, name: str, path: str) -> None:
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        with counted(Operations(scene.results, die)):
            told(*scene.arguments)

    scene.begin()
    return judged(scene, child(work), f"killed at operation {number}")


def killed_after(scene: Scene, seconds: float) -> Trial:
    """The process dies some time after its beginning."""
    scene.begin()
    process = child(lambda: told(*scene.arguments))
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    return judged(scene, process, f"killed after {seconds:.3f} s")


def child(work: Callable[[], object]) -> int:
    """The id of a copy of this process that does some work and ends."""
    process = os.fork()
    if process == 0:
        try:
            work()
        finally:
            os._exit(0)
    return process


def judged(scene: Scene, process: int, what: str) -> Trial:
    """Whether what was left is whole, and the same command puts everything right."""
    met = os.WIFSIGNALED(os.waitpid(process, 0)[1])
    problems = list(require_whole(scene.results, scene.before, scene.right))
    problems += scene.repeated(None)
    return Trial(f"{scene.name}: {what}", "; ".join(problems), met)
