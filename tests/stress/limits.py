"""The system itself refuses: files may not grow beyond a size, or no more of them be open."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.stress.bench import told
from tests.stress.promise import Trial, all_right, leftovers, nothing_half, one_line
from tests.stress.scenes import Scene, scenes

SIZES = (*range(0, 400, 10), *range(400, 4000, 50), *range(4000, 40_000, 1000))
"""Bytes that a file may have, up to the largest that is written."""
OPEN = range(12)
"""Files that may be opened beside those that are."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per situation and limit."""
    results = folder / "results"
    for scene in scenes(folder):
        for size in SIZES[:: 41 if few else 1]:
            yield one(scene, results, resource.RLIMIT_FSIZE, size, f"files of {size} bytes")
        for more in OPEN[:: 7 if few else 1]:
            limit = len(os.listdir("/proc/self/fd")) + more  # noqa: PTH208
            yield one(scene, results, resource.RLIMIT_NOFILE, limit, f"{more} more open files")


@contextmanager
def limited(which: int, soft: int) -> Iterator[None]:
    """A limit of this process while the block runs."""
    before, hard = resource.getrlimit(which)
    resource.setrlimit(which, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (before, hard))


def one(scene: Scene, results: Path, which: int, limit: int, what: str) -> Trial:
    """A command under the limit, and again without."""
    arguments = scene.arguments(scene.begin(results))
    problems: list[str] = []
    try:
        with limited(which, limit):
            first = told(*arguments)
        if first.status:
            problems += one_line(first)
            problems += nothing_half(results, scene.right)
        problems += all_right(results, told(*arguments), scene.right)
        if first.status and leftovers(results):  # else it was the cleaning up that failed
            problems.append(f"left behind: {leftovers(results)}")
    except Exception as failure:
        problems.append(f"{type(failure).__name__}: {failure}")
    return Trial(f"{scene.name}: {what}", "; ".join(problems))
