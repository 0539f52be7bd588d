"""Every file operation of every situation fails once, and in most of them in each of five ways."""

import errno
from collections.abc import Iterator
from pathlib import Path

from tests.stress.bench import told
from tests.stress.endured import endured
from tests.stress.operations import Operations, counted, failing
from tests.stress.promise import Trial
from tests.stress.scenes import Scene, scenes

ERRORS = (errno.EIO, errno.ENOSPC, errno.EFBIG, errno.EMFILE, errno.EACCES)
SPARSELY = 37
"""In a small share of the trials, every so many operations one fails."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per situation, operation and error."""
    for scene in scenes(folder):
        with counted(Operations(scene.begin(folder / "results"))) as operations:
            told(*scene.arguments(folder / "results"))
        for at, number in enumerate(range(1, operations.count + 1, SPARSELY if few else 1)):
            for error in (ERRORS[at % len(ERRORS)],) if few or scene.like else ERRORS:
                yield one(scene, folder / "results", number, error)


def one(scene: Scene, results: Path, number: int, error: int) -> Trial:
    """The operation of that number fails."""
    happened: list[str] = []

    def act(name: str, path: str) -> None:
        happened.append(f"{name} {path.removeprefix(str(results))}")
        failing(error)(name, path)

    problem = endured(scene, results, counted(Operations(results, number, act)))
    name = errno.errorcode[error]
    return Trial(f"{scene.name}: {name} at operation {number}, {happened}", problem)
