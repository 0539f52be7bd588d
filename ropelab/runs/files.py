"""Reading files that may be anything: what is not a regular file is refused, never waited for."""

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, most: int | None = None) -> bytes:
    """The content of a regular file.

    A pipe would be waited for and a device such as /dev/zero read without end.

    Args:
        most: bytes that it may have; None for any number.
    Raises:
        OSError: it is not there, not a regular file, too large, or cannot be read.
    """
    check_regular(path)
    if most is not None and path.stat().st_size > most:
        raise OSError(errno.EFBIG, f"Larger than {most} bytes", str(path))
    return path.read_bytes()


def check_replaceable(path: Path) -> None:
    """Raise OSError where something is that a file must not take the place of: a device, a link."""
    if os.path.lexists(path):
        check_regular(path, follow_links=False)


def check_regular(path: Path, follow_links: bool = True) -> None:
    """Raise OSError unless there is a regular file, or a link to one."""
    try:
        kind = path.stat(follow_symlinks=follow_links).st_mode
    except ValueError as error:  # no name of a file has a zero byte
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
