"""The surroundings of a computation: versions, machine, threads, commit of the code.

Numbers may depend on them, besides the config of a run and what it reads.
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
# A commit as git writes it, by either of its hashes.
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# git is stopped after this many seconds. It may be any program of that name, even one
# that never ends.
GIT_SECONDS = 60.0


def describe_surroundings() -> dict[str, Any]:
    """Return the surroundings as entries of a manifest."""
    # There is no number of threads if torch was not used.
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
    """Find the commit of the checkout that tracks this file, and if the package was
    changed since. Both entries are null if no checkout tracks this file.
    """
    # An installed package may be inside of a checkout of something else, so git is asked
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

    # OSError: git is not installed. SubprocessError: it gave no answer in time.
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
