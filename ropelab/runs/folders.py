"""Files and folders that are there whole or not at all, whatever interrupts the
writing.
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from ropelab.runs.errors import InputError
from ropelab.runs.files import check_regular, read_regular

# The answers of file systems without locks, such as NFS without a lock daemon.
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
# A folder is between two names for milliseconds, unless a process ended there.
SECONDS_BETWEEN_NAMES = 1.0

# The names and hashes of what was written into a folder of the user's.
RECORD = ".ropelab.json"
LARGEST_RECORD = 2**24

Waiting = Callable[[Path], None]


def quietly(folder: Path) -> None:
    """Wait in silence."""


def digest(value: Mapping[str, Any]) -> str:
    """Hash a json-able value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(value: Mapping[str, Any]) -> str:
    """Name a cell by 16 hex digits of its hash; a run has the first 8."""
    return digest(value)[:16]


@contextmanager
def locked(folder: Path, waiting: Waiting = quietly) -> Iterator[None]:
    """Hold `folder` for this process (`waiting` if another does); remove what a dead
    one left.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_name(f".{folder.name}.lock"), lambda: waiting(folder)):
        _recover(folder)
        yield


def make_lock(file: Path) -> BaseFileLock:
    """Make a lock that ends with its process; without locks the file itself is one."""
    kind = FileLock if _has_locks(file.parent) else SoftFileLock
    return kind(file, thread_local=False)


def _has_locks(folder: Path) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has locks of its own
        return True

    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Whatever else is wrong here, the lock itself will say so.
        return error.errno not in NO_LOCKS
    return True


@contextmanager
def _alone(
    file: Path, waiting: Callable[[], None] = lambda: None, seconds: float = -1
) -> Iterator[None]:
    """Hold the lock of a file; Timeout, an OSError, after so many seconds (-1: none)."""
    lock = make_lock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        # an OSError where no lock can be made, which would be waited for for ever
        file.touch()
        waiting()
        lock.acquire(timeout=seconds)

    try:
        yield
    finally:
        # Unlinked while it is held: a process that gets a lock on a file without a name
        # (the library looks) tries again with the file of that name.
        with suppress(OSError):
            file.unlink()
        lock.release()


@contextmanager
def replaced(folder: Path, ours: Collection[str] | None = None) -> Iterator[Path]:
    """Yield an empty sibling folder that takes the place of `folder` when the block
    succeeds.

    The caller holds `locked(folder)`. Readers see the old folder or the new one, never
    a mixture. What has another name than `ours` in the old folder is somebody else's:
    it is in the new one too.
    """
    # After a crash between the two renames `_recover` puts the old one back.
    fresh, old = _siblings(folder)
    fresh.mkdir(parents=True)

    try:
        yield fresh
        for path in files_below(fresh):
            _flush(path)
        if ours is not None:
            _link_others(folder, fresh, ours)
        if os.path.lexists(folder):
            folder.rename(old)
        fresh.rename(folder)
    except BaseException:
        _recover(folder)
        raise
    remove(old)


def _link_others(folder: Path, fresh: Path, ours: Collection[str]) -> None:
    """Give what is not ours in a folder a second place in its successor: it is lost in
    neither if the process ends.
    """
    if not folder.is_dir():
        return
    for other in folder.iterdir():
        copy = fresh / other.name
        if other.name in ours or os.path.lexists(copy):
            continue
        if other.is_dir() and not other.is_symlink():
            try:
                shutil.copytree(other, copy, symlinks=True, copy_function=_link)
            except shutil.Error as error:
                text = "Cannot be kept beside what is made again; move it away"
                raise OSError(errno.EACCES, text, str(other)) from error
        else:
            _link(other, copy)


def _link(source: str | Path, target: str | Path) -> None:
    # A second name takes no room; a file system without them gets a copy.
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder, links and pipes among them; OSError if that
    fails.
    """

    # `rglob` leaves out what it may not list, in silence.
    def fail(error: OSError) -> NoReturn:
        raise error

    paths = []
    for top, _, names in os.walk(folder, onerror=fail):
        paths += [Path(top, name) for name in names]
    return sorted(paths)


def check_own(path: Path, mark: str = "") -> None:
    """Raise InputError where a file is in the place of a new one, and is not ours.

    A file of ours has the mark in it, or its hash is in the record of its folder.
    While files are being written the record has two hashes of each: of what is there,
    and of what will be.
    """
    try:
        check_regular(path, follow_links=False)
    except OSError:
        # What is not there, or is no file, is the business of whoever writes.
        return
    content = path.read_bytes()
    if mark and mark.encode() in content:
        return
    recorded_hashes = _read_record(path.parent).get(path.name, [])
    if hashlib.sha256(content).hexdigest() in recorded_hashes:
        return
    raise InputError(
        f"{path} is there and was not written by ropelab; move it away, or choose"
        " another place"
    )


@contextmanager
def recorded(folder: Path, files: Mapping[str, bytes]) -> Iterator[None]:
    """Record the files that the block writes into a folder of the user's.

    They are recorded before the first is written: an interrupted block leaves files
    that are known as ours all the same.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from None

    record = _read_record(folder)
    written = {}
    for name, content in files.items():
        written[name] = [hashlib.sha256(content).hexdigest()]
    both = {name: [*record.get(name, []), *hashes] for name, hashes in written.items()}
    _write_record(folder, {**record, **both})
    yield
    _write_record(folder, {**record, **written})


def _write_record(folder: Path, record: Mapping[str, list[str]]) -> None:
    with replaced_file(folder / RECORD) as fresh:
        fresh.write_text(json.dumps(record, indent=1), encoding="utf-8")


def _read_record(folder: Path) -> dict[str, list[str]]:
    """Return the hashes of what ropelab wrote into a folder, by the name of the file."""
    try:
        record = json.loads(read_regular(folder / RECORD, LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(record, dict):
        return {}
    return {name: value for name, value in record.items() if isinstance(value, list)}


def _siblings(folder: Path) -> tuple[Path, Path]:
    fresh = folder.with_name(f".{folder.name}.new")
    old = folder.with_name(f".{folder.name}.old")
    return fresh, old


def _recover(folder: Path) -> None:
    """Undo what an interrupted `replaced` left: the old folder back in place, the new
    one gone.
    """
    fresh, old = _siblings(folder)
    if os.path.lexists(old) and not os.path.lexists(folder):
        old.rename(folder)
    remove(fresh)
    remove(old)


def is_interrupted(folder: Path) -> bool:
    """Return True if a process has ended between the two renames of a folder."""
    # The working folder has a name only in full, and the root has none.
    whole = folder.absolute()
    if not whole.name:
        return False
    _, old = _siblings(whole)
    return os.path.lexists(old) and not os.path.lexists(folder)


def interrupted_in(folder: Path) -> list[Path]:
    """Return the folders in a folder that are missing under their names, by name."""
    _, pattern = _siblings(folder / "*")
    names = [old.name.removeprefix(".") for old in folder.glob(pattern.name)]
    folders = [folder / name.removesuffix(".old") for name in sorted(names)]
    return [each for each in folders if is_interrupted(each)]


def put_back(folder: Path) -> None:
    """Give a folder that `is_interrupted` its name again; OSError if that fails."""
    lock = folder.with_name(f".{folder.name}.lock")
    with _alone(lock, seconds=SECONDS_BETWEEN_NAMES):
        _recover(folder)


def remove(path: Path) -> None:
    """Remove a file or a whole folder if it is there, as far as that is possible."""
    # rmtree would open a pipe, and wait for somebody to write into it.
    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _flush(path: Path) -> None:
    # Windows does that only for a file that is open for writing.
    with path.open("r+b") as file:
        os.fsync(file.fileno())


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield the name of a sibling file that takes the place of `path` when the block
    succeeds.
    """
    if os.path.lexists(path):
        check_regular(path, follow_links=False)
    code = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
    # Writers of one file wait for each other. The name is random all the same: on a
    # file system without locks two of them may be here at once, and must not share it.
    fresh = path.parent / f".{code}-{secrets.token_hex(8)}.new"

    with _alone(path.parent / f".{code}.lock"):
        for leftover in path.parent.glob(f".{code}-*.new"):
            remove(leftover)

        try:
            yield fresh
            _flush(fresh)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
