"""Files and folders that are there whole or not at all, whatever interrupts the
writing.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from ropelab.runs.errors import InputError
from ropelab.runs.files import check_regular, read_regular

# The errors of file systems without locks, such as NFS without a lock daemon.
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
# The most seconds to wait for the lock of a folder that `replace_folder` has renamed to
# its sibling `.old`. Another process needs only milliseconds to put the new folder into
# its place, unless it was killed then.
SECONDS_BETWEEN_NAMES = 1.0

# The file that records, in a folder of the user, the names and hashes of the files that
# ropelab wrote there.
RECORD = ".ropelab.json"
# The most bytes of this file.
LARGEST_RECORD = 2**24
# The file that is locked, in a folder of the user, while files that belong together are
# written there.
USERS_LOCK = ".ropelab.lock"

# The names of the files and folders that ropelab wrote into a folder, each with the names
# that ropelab wrote inside it. A file has no names inside.
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
    """Hash a value that JSON can hold; the order of its keys makes no difference."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(value: Mapping[str, Any]) -> str:
    """Return the first 16 hex digits of a value's hash. They name the folder of a cell;
    the folder of a run has the first 8.
    """
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


@contextmanager
def lock_users_folder(folder: Path) -> Iterator[None]:
    """Make a folder of the user unless it exists, and hold its lock while the block runs.

    Two processes that write several files into one folder then write one after the other,
    and the folder never has some files of each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The lock is inside, since the folder that holds this one may be read-only.
    with _hold_lock(folder / USERS_LOCK):
        yield


def make_lock(file: Path) -> BaseFileLock:
    """Make a lock that ends with its process, if the file system can lock files."""
    # Otherwise it is a soft lock. It is held as long as its file exists, and a killed
    # process leaves the file behind.
    lock_class = FileLock if _has_locks(file.parent) else SoftFileLock
    return lock_class(file, thread_local=False)


def _has_locks(folder: Path) -> bool:
    try:
        import fcntl
    except ImportError:
        # Windows has no fcntl, but locks of its own.
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
        # If the file cannot be made, `touch` raises OSError. `acquire` would instead wait
        # for ever for a lock that nobody holds.
        file.touch()
        waiting()
        lock.acquire(timeout=-1 if seconds is None else seconds)

    try:
        yield
    finally:
        # The file is removed while the lock is held. A process that then gets the lock
        # of the removed file notices that the file has no name, and tries again.
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
            kept. If it is None, nothing of the old folder is kept.
    """
    # If the process is killed between the two renames, `_recover` puts the old folder
    # back.
    new_folder, old_folder = _name_siblings(folder)
    new_folder.mkdir(parents=True)

    try:
        yield new_folder
        for path in list_files_below(new_folder):
            _flush(path)
        if ours is not None:
            _link_others(folder, new_folder, ours)
        if os.path.lexists(folder):
            folder.rename(old_folder)
        new_folder.rename(folder)
    except BaseException:
        _recover(folder)
        raise
    remove(old_folder)


def _link_others(folder: Path, new_folder: Path, ours: Names) -> None:
    """Put a link to each of the user's files in `folder` into `new_folder`.

    Both folders then have the file, so that it is not lost if the process ends.
    """
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.name not in ours:
            _keep(path, new_folder / path.name)
        elif _is_folder(path):
            for inner_path in path.iterdir():
                # Such a file was left by a process that was killed while it wrote.
                is_unfinished = any(map(inner_path.match, (".*.new", ".*.lock")))
                if inner_path.name not in ours[path.name] and not is_unfinished:
                    _keep(inner_path, new_folder / path.name / inner_path.name)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _keep(users_path: Path, copy: Path) -> None:
    """Link or copy a file or folder of the user to `copy`, unless `copy` exists."""
    if os.path.lexists(copy):
        return
    copy.parent.mkdir(exist_ok=True)
    try:
        if _is_folder(users_path):
            shutil.copytree(users_path, copy, symlinks=True, copy_function=_link)
        else:
            _link(users_path, copy)
    # These errors of `shutil`, for a folder and for a pipe, have no error number. An
    # OSError with a number is raised in their place.
    except (shutil.Error, shutil.SpecialFileError) as error:
        text = "Cannot be kept beside what is made again; move it away"
        raise OSError(errno.EACCES, text, str(users_path)) from error


def _link(source: str | Path, target: str | Path) -> None:
    # A hard link takes no room. A file system without hard links gets a copy.
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        mode = os.lstat(source).st_mode
        # Copying a device would copy its content, which may have no end.
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
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
        # There is no regular file to replace. If the path cannot be written, the code
        # that writes to it will report why.
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

    The caller holds `lock_users_folder(folder)`, since the record is read and written
    again.

    The files are recorded before the first one is written. So if the block is
    interrupted, the files that it wrote are known as ropelab's.
    """
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
    with replace_file(folder / RECORD) as new_file:
        new_file.write_text(json.dumps(record, indent=1), encoding="utf-8")


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
    new_folder = folder.with_name(f".{folder.name}.new")
    old_folder = folder.with_name(f".{folder.name}.old")
    return new_folder, old_folder


def _recover(folder: Path) -> None:
    """Undo an interrupted `replace_folder`: put the old folder back into its place if
    need be, and remove the new one.
    """
    new_folder, old_folder = _name_siblings(folder)
    if os.path.lexists(old_folder) and not os.path.lexists(folder):
        old_folder.rename(folder)
    remove(new_folder)
    remove(old_folder)


def is_interrupted(folder: Path) -> bool:
    """Return True if a process has ended between the two renames of a folder."""
    # The relative path of the working folder, `.`, has no name, but its absolute path
    # has one, unless it is the root.
    absolute_path = folder.absolute()
    if not absolute_path.name:
        return False
    _, old_folder = _name_siblings(absolute_path)
    return os.path.lexists(old_folder) and not os.path.lexists(folder)


def find_replaced(paths: Iterable[Path]) -> set[Path]:
    """Return the folders that a process is replacing, or was when it ended, by their
    siblings among the paths of a folder.

    Such a folder has no name for a moment, between two renames.
    """
    replaced = set()
    for path in paths:
        # The names that `_name_siblings` gives.
        name = re.fullmatch(r"\.([^.].*)\.(new|old)", path.name)
        if name:
            replaced.add(path.with_name(name[1]))
    return replaced


def put_back(folder: Path) -> None:
    """Give a folder for which `is_interrupted` holds its name again; OSError if that
    fails.
    """
    lock = folder.with_name(f".{folder.name}.lock")
    with _hold_lock(lock, seconds=SECONDS_BETWEEN_NAMES):
        _recover(folder)


def remove(path: Path) -> None:
    """Remove a file or a whole folder if it exists, as far as the system allows it."""
    # Only a folder is given to rmtree. It would open a pipe, and wait for a writer.
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
    # A hash has the same length for every name, so that the name of the sibling file is
    # never too long.
    name_hash = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
    # Processes that write the same file wait for each other. On a file system without
    # locks two of them may write at once, so each uses a random name.
    new_file = path.parent / f".{name_hash}-{secrets.token_hex(8)}.new"

    with _hold_lock(path.parent / f".{name_hash}.lock"):
        for leftover in path.parent.glob(f".{name_hash}-*.new"):
            remove(leftover)

        try:
            yield new_file
            _flush(new_file)
            new_file.replace(path)
        finally:
            new_file.unlink(missing_ok=True)
