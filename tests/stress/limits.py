"""The system itself refuses: files may not grow beyond a size, or no more of them be
open.
"""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.stress.operations import Operations, counted
from tests.stress.promise import Trial
from tests.stress.scenes import Scene, scenes

SIZES = (*range(0, 400, 40), *range(400, 4000, 300), *range(4000, 40_000, 4000))
"""Bytes that a file may have, up to the largest that is written."""
OPEN = range(12)
"""Files that may be opened beside those that are."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per situation and limit; those that meet it are counted."""
    for scene in scenes(folder):
        sparse = 37 if few or "training" in scene.name else 1
        for size in SIZES[::sparse]:
            yield one(scene, f"files of {size} bytes", resource.RLIMIT_FSIZE, size)
        for more in OPEN[2 :: max(1, sparse // 3)]:
            limit = len(os.listdir("/proc/self/fd")) + more  # noqa: PTH208
            yield one(scene, f"{more} more open files", resource.RLIMIT_NOFILE, limit)


def one(scene: Scene, what: str, which: int, soft: int) -> Trial:
    """A command under a limit."""
    operations = Operations(scene.results)

    @contextmanager
    def limited() -> Iterator[None]:
        before, hard = resource.getrlimit(which)
        resource.setrlimit(which, (soft, hard))
        try:
            with counted(operations):
                yield
        finally:
            resource.setrlimit(which, (before, hard))

    problem = scene.endured(limited())
    return Trial(
        f"{scene.name}: {what}", problem, not operations.errors.isdisjoint(MET)
    )


MET = {errno.EFBIG, errno.EMFILE}
