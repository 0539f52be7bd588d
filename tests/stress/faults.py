"""Every file operation of every situation fails once, and in most of them in each of five ways."""

import errno
from collections.abc import Iterator
from pathlib import Path

from tests.stress.bench import told
from tests.stress.operations import Operations, counted, failing
from tests.stress.promise import Trial, all_right, leftovers, nothing_half, one_line
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
    """The operation of that number fails; then the command is given again."""
    arguments = scene.arguments(scene.begin(results))
    happened: list[str] = []

    def act(name: str, path: str) -> None:
        happened.append(f"{name} {path.removeprefix(str(results))}")
        failing(error)(name, path)

    problems: list[str] = []
    try:
        with counted(Operations(results, number, act)):
            first = told(*arguments)
        if first.status:
            problems += one_line(first)
            problems += nothing_half(results, scene.right)
        problems += all_right(results, told(*arguments), scene.right)
        if first.status and leftovers(results):  # else it was the cleaning up that failed
            problems.append(f"left behind: {leftovers(results)}")
    except Exception as failure:
        problems.append(f"{type(failure).__name__}: {failure}")
    what = f"{scene.name}: {errno.errorcode[error]} at operation {number}, {happened}"
    return Trial(what, "; ".join(problems))
