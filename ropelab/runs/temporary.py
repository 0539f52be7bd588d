"""Temporary folders. If a process was killed, its folders and semaphores are removed when
another process makes a temporary folder.
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
# The file of the lock in a folder. The process that made the folder holds the lock.
LOCK = ".lock"
# The file in a folder that names the semaphores of the process. It is written when the
# lock is held, and only folders with this file are removed by other processes.
SEMAPHORES = ".semaphores"
# The folder in which Linux has the files of named semaphores.
SHARED = Path("/dev/shm")


class TemporaryFolder(TemporaryDirectory[str]):
    """A temporary folder that is locked by its process while it lives, and removed by
    `cleanup`.
    """

    def __init__(self, where: str | None = None) -> None:
        super().__init__(prefix=PREFIX, dir=where, ignore_cleanup_errors=True)
        self._lock = make_lock(Path(self.name, LOCK))
        self._lock.acquire()
        self._semaphores = Path(self.name, SEMAPHORES)
        self._semaphores.touch()
        user = Path(self.name).lstat().st_uid
        _remove_leftovers(Path(where or gettempdir()), user)

    def note_semaphores(self) -> None:
        """Note the semaphores that loky has made for this process."""
        names = [path.name for path in SHARED.glob(f"sem.loky-{os.getpid()}-*")]
        self._semaphores.write_text("\n".join(names))

    def cleanup(self) -> None:
        self._lock.release()
        super().cleanup()


def make_folder_for(owner: object) -> TemporaryFolder:
    """Make a temporary folder that is removed when `owner` is no longer used."""
    folder = TemporaryFolder()
    weakref.finalize(owner, folder.cleanup)
    return folder


def _remove_leftovers(where: Path, user: int) -> None:
    """Remove the folders of a user whose processes have ended, and the semaphores that
    they name.
    """
    for semaphores in where.glob(f"{PREFIX}*/{SEMAPHORES}"):
        folder = semaphores.parent
        # Timeout: the lock is held, so the process of the folder still runs.
        with suppress(OSError, Timeout):
            if folder.is_symlink() or folder.stat().st_uid != user:
                continue
            with make_lock(folder / LOCK).acquire(timeout=0):
                text = semaphores.read_text()
                for name in re.findall(r"^sem\.loky-\d+-\w+$", text, re.MULTILINE):
                    (SHARED / name).unlink(missing_ok=True)
                shutil.rmtree(folder, ignore_errors=True)
