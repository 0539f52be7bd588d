"""The system itself refuses: files may not grow beyond a size, or no more of them be open."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.stress.endured import endured
from tests.stress.promise import Trial
from tests.stress.scenes import scenes

SIZES = (*range(0, 400, 10), *range(400, 4000, 50), *range(4000, 40_000, 1000))
"""Bytes that a file may have, up to the largest that is written."""
OPEN = range(12)
"""Files that may be opened beside those that are."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per situation and limit."""
    results = folder / "results"
    for scene in scenes(folder):
        for size in SIZES[:: 41 if few else 1]:
            small = limited(resource.RLIMIT_FSIZE, size)
            problem = endured(scene, results, small)
            yield Trial(f"{scene.name}: files of {size} bytes", problem)
        for more in OPEN[:: 7 if few else 1]:
            limit = len(os.listdir("/proc/self/fd")) + more  # noqa: PTH208
            few_open = limited(resource.RLIMIT_NOFILE, limit)
            problem = endured(scene, results, few_open)
            yield Trial(f"{scene.name}: {more} more open files", problem)


@contextmanager
def limited(which: int, soft: int) -> Iterator[None]:
    """A limit of this process while the block runs."""
    before, hard = resource.getrlimit(which)
    resource.setrlimit(which, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (before, hard))
