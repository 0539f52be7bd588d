"""Every file operation of every situation fails, in most of them in two of five ways in turn.

With ROPELAB_STRESS=all each of them fails in all five.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from tests.stress.bench import told
from tests.stress.endured import endured
from tests.stress.operations import Operations, counted, failing
from tests.stress.promise import Trial
from tests.stress.scenes import Scene, scenes

ERRORS = (errno.EIO, errno.ENOSPC, errno.EFBIG, errno.EMFILE, errno.EACCES)
TURNS = 2
"""Of these errors, how many an operation fails with."""
SPARSELY = 37
"""In a small share of the trials, every so many operations one fails."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per situation, operation and error."""
    for scene in scenes(folder):
        with counted(Operations(scene.begin(folder / "results"))) as operations:
            told(*scene.arguments(folder / "results"))
        for at, number in enumerate(range(1, operations.count + 1, SPARSELY if few else 1)):
            for error in errors_at(at, 1 if few or scene.like else TURNS):
                yield one(scene, folder / "results", number, error)


def errors_at(place: int, count: int) -> tuple[int, ...]:
    """So many of the errors, going round from place to place."""
    if os.environ.get("ROPELAB_STRESS") == "all":
        return ERRORS
    return tuple(ERRORS[(place * count + turn) % len(ERRORS)] for turn in range(count))


def one(scene: Scene, results: Path, number: int, error: int) -> Trial:
    """The operation of that number fails."""
    happened: list[str] = []

    def act(name: str, path: str) -> None:
        happened.append(f"{name} {path.removeprefix(str(results))}")
        failing(error)(name, path)

    problem = endured(scene, results, counted(Operations(results, number, act)))
    name = errno.errorcode[error]
    return Trial(f"{scene.name}: {name} at operation {number}, {happened}", problem)
