"""The surroundings of a computation: versions, machine, threads, commit of the code.

The numbers of a run may depend on these surroundings, besides its config and its inputs.
"""

import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("ropelab", "torch", "numpy", "pandas", "scipy", "matplotlib")
# The name of a commit as git writes it: 40 digits (SHA-1) or 64 digits (SHA-256).
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# git is stopped after this many seconds. The program of that name may be another one,
# which never ends.
GIT_SECONDS = 60.0


def describe_surroundings() -> dict[str, Any]:
    """Return the surroundings as entries of a manifest."""
    # The entry is null if torch was not used.
    threads = None
    torch = sys.modules.get("torch")
    if torch is not None:
        threads = torch.get_num_threads()
    return {
        "packages": {name: _find_version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": threads,
        **_find_commit(),
    }


@cache
def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _find_commit() -> dict[str, Any]:
    """Find the commit of the checkout that tracks this file, and whether the package was
    changed since that commit. Both entries are null if no checkout tracks this file.
    """
    # An installed package may be inside of a checkout of another project, so git is asked
    # if it tracks this file. Variables such as GIT_DIR may name another repository, so
    # git does not get them.
    this_file = Path(__file__)
    package = this_file.parents[1]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    }
    ask = partial(
        subprocess.run,
        cwd=this_file.parent,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=GIT_SECONDS,
    )

    # OSError: git is not installed. SubprocessError: git gave no answer in time.
    with suppress(OSError, subprocess.SubprocessError):
        tracked = ask(["git", "ls-files", "--error-unmatch", "--", this_file.name])
        commit = ask(["git", "rev-parse", "HEAD"])
        changes = ask(["git", "status", "--porcelain", "--", str(package)])
        is_tracked = tracked.returncode == 0 and commit.returncode == 0
        if is_tracked and COMMIT.fullmatch(commit.stdout.strip()):
            return {
                "commit": commit.stdout.strip(),
                "dirty": bool(changes.stdout.strip()),
            }
    return {"commit": None, "dirty": None}
