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

# The errors of file systems without locks, such as NFS without a lock daemon.
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
# The time for which another process may hold the lock of a folder that lost its name. A
# replaced folder has no name for milliseconds only, unless the process was killed then.
SECONDS_BETWEEN_NAMES = 1.0

# The file that records, in a folder of the user, the names and hashes of the files that
# ropelab wrote there.
RECORD = ".ropelab.json"
LARGEST_RECORD = 2**24

# For each file and folder that ropelab wrote, the names that ropelab wrote in it. A
# file has none.
Names = Mapping[str, Collection[str]]
# A function that is called with a folder while another process holds it.
Waiting = Callable[[Path], None]


def say_nothing(folder: Path) -> None:
    """Say nothing while another process holds a folder."""


def try_to_write(folder: Path) -> None:
    """Make a folder unless it exists, and a file in it; OSError if either fails.

    If the system allows it, the file has no name. It then replaces no file of the user,
    and a killed process leaves no file behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder, prefix=".writable-"):
        pass


def digest(value: Mapping[str, Any]) -> str:
    """Hash a json-able value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(value: Mapping[str, Any]) -> str:
    """Name a cell by 16 hex digits of its hash; a run has the first 8."""
    return digest(value)[:16]


@contextmanager
def lock_folder(folder: Path, waiting: Waiting = say_nothing) -> Iterator[None]:
    """Hold the lock of a folder while the block runs, and first remove what a killed
    process left there.

    `waiting` is called if another process holds the lock.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.with_name(f".{folder.name}.lock")
    with _hold_lock(lock, lambda: waiting(folder)):
        _recover(folder)
        yield


def make_lock(file: Path) -> BaseFileLock:
    """Make a lock that ends with its process, if the file system can lock files."""
    # A soft lock is held while its file exists, which a killed process leaves behind.
    kind = FileLock if _has_locks(file.parent) else SoftFileLock
    return kind(file, thread_local=False)


def _has_locks(folder: Path) -> bool:
    try:
        import fcntl
    except ImportError:
        # Windows has no fcntl, but another kind of locks.
        return True

    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Any other error will arise again when the lock is made, and is reported then.
        return error.errno not in NO_LOCKS
    return True


@contextmanager
def _hold_lock(
    file: Path, waiting: Callable[[], None] = lambda: None, seconds: float | None = None
) -> Iterator[None]:
    """Hold the lock of a file while the block runs.

    Timeout, which is an OSError: the lock was not free within `seconds` (None: wait for
    any time).
    """
    lock = make_lock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        # If the file cannot be made, `touch` raises OSError. `acquire` would not: it would
        # wait for ever for a lock that nobody holds.
        file.touch()
        waiting()
        lock.acquire(timeout=-1 if seconds is None else seconds)

    try:
        yield
    finally:
        # The file is removed while the lock is held. A process that then gets the lock
        # of the removed file notices that it has no name, and tries again.
        with suppress(OSError):
            file.unlink()
        lock.release()


@contextmanager
def replace_folder(folder: Path, ours: Names | None = None) -> Iterator[Path]:
    """Yield an empty sibling folder that takes the place of `folder` when the block
    succeeds.

    The caller holds `lock_folder(folder)`. Readers see the old folder or the new one,
    never a mixture.

    Args:
        folder: the folder to replace, which need not exist.
        ours: the names of what ropelab writes into the folder, and into its folders.
            Anything with another name in the old folder belongs to the user and is
            kept. None keeps nothing.
    """
    # If the process is killed between the two renames, `_recover` puts the old folder
    # back.
    fresh, old = _name_siblings(folder)
    fresh.mkdir(parents=True)

    try:
        yield fresh
        for path in list_files_below(fresh):
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


def _link_others(folder: Path, fresh: Path, ours: Names) -> None:
    """Put a link to each file of the user into the folder that replaces the old one.

    Both folders then have the file, so that it is not lost if the process ends.
    """
    if not folder.is_dir():
        return
    for other in folder.iterdir():
        if other.name not in ours:
            _keep(other, fresh / other.name)
        elif _is_folder(other):
            for inner in other.iterdir():
                is_unfinished = inner.match(".*.new") or inner.match(".*.lock")
                if inner.name not in ours[other.name] and not is_unfinished:
                    _keep(inner, fresh / other.name / inner.name)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _keep(other: Path, copy: Path) -> None:
    """Put what belongs to the user into a place where nothing is yet."""
    if os.path.lexists(copy):
        return
    copy.parent.mkdir(exist_ok=True)
    try:
        if _is_folder(other):
            shutil.copytree(other, copy, symlinks=True, copy_function=_link)
        else:
            _link(other, copy)
    # The errors of copying a folder, and of copying a pipe, have no error number of the
    # system.
    except (shutil.Error, shutil.SpecialFileError) as error:
        text = "Cannot be kept beside what is made again; move it away"
        raise OSError(errno.EACCES, text, str(other)) from error


def _link(source: str | Path, target: str | Path) -> None:
    # A hard link takes no room. A file system without hard links gets a copy.
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        kind = os.lstat(source).st_mode
        # A copy of a device would be its content, which may have no end.
        if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
            raise shutil.SpecialFileError(f"{source} is not a plain file") from None
        shutil.copy2(source, target, follow_symlinks=False)


def list_files_below(folder: Path) -> list[Path]:
    """Return all files below a folder, also links and pipes; OSError if a folder cannot
    be listed.
    """

    # `rglob` would silently leave out a folder that it may not list.
    def fail(error: OSError) -> NoReturn:
        raise error

    paths = []
    for top, _, names in os.walk(folder, onerror=fail):
        paths += [Path(top, name) for name in names]
    return sorted(paths)


def check_own(path: Path, mark: str = "") -> None:
    """Raise InputError if writing a file would replace one that ropelab did not write.

    A file that ropelab wrote has `mark` in it, or its hash is in the record of its
    folder. While files are being written, the record has two hashes of each file: the
    hash of the old content and the hash of the new content.
    """
    try:
        check_regular(path, follow_links=False)
    except OSError:
        # There is no file to replace. Whoever writes reports what is wrong.
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
def record_files(folder: Path, files: Mapping[str, bytes]) -> Iterator[None]:
    """Record the files that the block writes into a folder of the user.

    The files are recorded before the first one is written, so that the files of an
    interrupted block are also known as ours.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from None

    record = _read_record(folder)
    new_hashes = {}
    old_and_new_hashes = {}
    for name, content in files.items():
        new_hashes[name] = [hashlib.sha256(content).hexdigest()]
        old_and_new_hashes[name] = [*record.get(name, []), *new_hashes[name]]
    _write_record(folder, {**record, **old_and_new_hashes})
    yield
    _write_record(folder, {**record, **new_hashes})


def _write_record(folder: Path, record: Mapping[str, list[str]]) -> None:
    with replace_file(folder / RECORD) as fresh:
        fresh.write_text(json.dumps(record, indent=1), encoding="utf-8")


def _read_record(folder: Path) -> dict[str, list[str]]:
    """Return the hashes of the files that ropelab wrote into a folder, by the names of
    the files.
    """
    try:
        record = json.loads(read_regular(folder / RECORD, LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(record, dict):
        return {}
    return {name: value for name, value in record.items() if isinstance(value, list)}


def _name_siblings(folder: Path) -> tuple[Path, Path]:
    """Return where the next content of a folder is written, and where its former
    content is kept.
    """
    fresh = folder.with_name(f".{folder.name}.new")
    old = folder.with_name(f".{folder.name}.old")
    return fresh, old


def _recover(folder: Path) -> None:
    """Undo an interrupted `replace_folder`: put the old folder back into its place if
    need be, and remove the new one.
    """
    fresh, old = _name_siblings(folder)
    if os.path.lexists(old) and not os.path.lexists(folder):
        old.rename(folder)
    remove(fresh)
    remove(old)


def is_interrupted(folder: Path) -> bool:
    """Return True if a process has ended between the two renames of a folder."""
    # Only the absolute path of the working folder ends in a name. The root has no name.
    whole = folder.absolute()
    if not whole.name:
        return False
    _, old = _name_siblings(whole)
    return os.path.lexists(old) and not os.path.lexists(folder)


def list_interrupted(folder: Path) -> list[Path]:
    """Return the folders in a folder for which `is_interrupted` holds, in order of
    their names.
    """
    _, pattern = _name_siblings(folder / "*")
    names = [old.name.removeprefix(".") for old in folder.glob(pattern.name)]
    folders = [folder / name.removesuffix(".old") for name in sorted(names)]
    return [each for each in folders if is_interrupted(each)]


def put_back(folder: Path) -> None:
    """Give a folder for which `is_interrupted` holds its name again; OSError if that
    fails.
    """
    lock = folder.with_name(f".{folder.name}.lock")
    with _hold_lock(lock, seconds=SECONDS_BETWEEN_NAMES):
        _recover(folder)


def remove(path: Path) -> None:
    """Remove a file or a whole folder if it exists, as far as the system allows it."""
    # The kind is asked first: rmtree would open a pipe, and wait for a writer.
    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _flush(path: Path) -> None:
    """Make the system write a file to the disk now."""
    # Windows flushes only a file that is open for writing.
    with path.open("r+b") as file:
        os.fsync(file.fileno())


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield the name of a sibling file that takes the place of `path` when the block
    succeeds.
    """
    if os.path.lexists(path):
        check_regular(path, follow_links=False)
    code = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
    # Processes that write one file wait for each other. On a file system without locks
    # two may write at once, so that each uses a random name.
    fresh = path.parent / f".{code}-{secrets.token_hex(8)}.new"

    with _hold_lock(path.parent / f".{code}.lock"):
        for leftover in path.parent.glob(f".{code}-*.new"):
            remove(leftover)

        try:
            yield fresh
            _flush(fresh)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
