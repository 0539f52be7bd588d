"""Every file operation of every situation fails, alone or as the first of all that
follow.
"""

import errno
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from tests.stress.operations import CHANGING, GROWING, Operations, counted, fail
from tests.stress.promise import Trial
from tests.stress.scenes import Scene, scenes

ONCE = (errno.EIO, errno.ENOSPC, errno.EFBIG, errno.EMFILE, errno.EACCES)
FROM_NOW_ON = {
    errno.EIO: None,
    errno.ENOSPC: GROWING,
    errno.EROFS: CHANGING,
    errno.EACCES: None,
}
"""Errors that last, with the operations that have them; None: all."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Two trials per situation and operation, with the errors in turn."""
    for scene in scenes(folder):
        once, lasting = cycle(ONCE), cycle(FROM_NOW_ON)
        for number in scene.numbers(few):
            yield one(scene, number, next(once), lasts=False)
            yield one(scene, number, next(lasting), lasts=True)


def one(scene: Scene, number: int, error: int, lasts: bool) -> Trial:
    """The operation of that number fails, or all from that one on."""
    happened: list[str] = []
    which = FROM_NOW_ON[error] if lasts else None

    def act(count: int, name: str, path: str) -> None:
        if (count >= number if lasts else count == number) and (
            which is None or name in which
        ):
            happened.append(f"{name} {path.removeprefix(str(scene.results))}")
            fail(error, path)

    problem = scene.endured(counted(Operations(scene.results, act)))
    how = f"{errno.errorcode[error]} {'from' if lasts else 'at'} operation {number}"
    return Trial(f"{scene.name}: {how}, {happened[:1]}", problem, bool(happened))
