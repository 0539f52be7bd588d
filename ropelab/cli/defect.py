"""The last net of a command: an error that nobody expected, in one line."""

import os
import sys
import tempfile
import traceback
from contextlib import suppress


def defect(error: Exception) -> int:
    """Say an error in one line on stderr, put its traceback into a file; the exit status."""
    # A library that finds no room for itself is an ImportError.
    if isinstance(error, MemoryError) or "annot allocate memory" in str(error):
        text = "memory ran out; nothing half-written was left behind"
    else:
        where = "which could not be written"
        with suppress(OSError):
            handle, where = tempfile.mkstemp(prefix="ropelab-defect-", suffix=".txt")
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.writelines(traceback.format_exception(error))
        text = f"a defect, please report it with its traceback, {where}: {type(error).__name__}"
    with suppress(OSError, ValueError):
        sys.stderr.write(f"ropelab: {text}\n")
    return 1
