"""Temporary folders, and semaphores beside them, which the next start removes after a
kill.
"""

import os
import re
import shutil
import weakref
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from filelock import Timeout

from ropelab.runs.folders import make_lock

PREFIX = "ropelab-"
# Held by the process that made the folder; written when it is held, so that nobody
# takes it before.
LOCK, SEMAPHORES = ".lock", ".semaphores"
# The files of named semaphores, on Linux.
SHARED = Path("/dev/shm")


class TemporaryFolder(TemporaryDirectory[str]):
    """A temporary folder that is locked by its process while it lives, and removed by
    `cleanup`.
    """

    def __init__(self, where: str | None = None) -> None:
        super().__init__(prefix=PREFIX, dir=where, ignore_cleanup_errors=True)
        self._lock = make_lock(Path(self.name, LOCK))
        self._lock.acquire()
        self._noted = Path(self.name, SEMAPHORES)
        self._noted.touch()
        _remove_leftovers(Path(where or gettempdir()), Path(self.name).lstat().st_uid)

    def note_semaphores(self) -> None:
        """Note the semaphores that loky has made for this process."""
        names = [path.name for path in SHARED.glob(f"sem.loky-{os.getpid()}-*")]
        self._noted.write_text("\n".join(names))

    def cleanup(self) -> None:
        self._lock.release()
        super().cleanup()


def folder_of(owner: object) -> TemporaryFolder:
    """Make a temporary folder that goes when an object does."""
    folder = TemporaryFolder()
    weakref.finalize(owner, folder.cleanup)
    return folder


def _remove_leftovers(where: Path, owner: int) -> None:
    """Remove folders of this owner whose processes have ended, and the semaphores noted
    in them.
    """
    for noted in where.glob(f"{PREFIX}*/{SEMAPHORES}"):
        folder = noted.parent
        with suppress(OSError, Timeout):
            if folder.is_symlink() or folder.stat().st_uid != owner:
                continue
            with make_lock(folder / LOCK).acquire(timeout=0):
                for name in re.findall(
                    r"^sem\.loky-\d+-\w+$", noted.read_text(), re.MULTILINE
                ):
                    (SHARED / name).unlink(missing_ok=True)
                shutil.rmtree(folder, ignore_errors=True)
