"""How many workers this machine has room for."""

from collections.abc import Sequence
from pathlib import Path

import psutil
from loky import cpu_count

BYTES_OF_A_WORKER = 3_000_000_000
"""What a worker may need: training the small model at 2048 tokens took 2.9 GB at most (torch and
its libraries 0.4, the corpus and what it is sampled from 0.2, the rest activations and what the
allocator keeps). A cell that needs more says so by `memory_bytes`."""


def cores() -> int:
    """The cores that this process may use: affinity and the limits of its container count."""
    return int(cpu_count())


def available_memory() -> int:
    """Bytes that can still be had, by the kernel and by the limits of a container."""
    free = psutil.virtual_memory().available
    return min(free, _free_in_container(Path("/sys/fs/cgroup"), free))


def workers_for(asked: int | None, memory_bytes: Sequence[int]) -> int:
    """As many workers as asked, or as there are cores, but no more than memory allows.

    Args:
        asked: what the user wants; taken as it is.
        memory_bytes: what each cell needs.
    """
    if asked is not None:
        return asked
    room = available_memory() // max(memory_bytes, default=BYTES_OF_A_WORKER)
    return max(1, min(cores(), room, len(memory_bytes) or 1))


def _free_in_container(group: Path, otherwise: int) -> int:
    """What a control group (version 2) leaves, its file cache not counted as used."""
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return otherwise
    if limit == "max":
        return otherwise
    cache = dict(line.split() for line in lines).get("inactive_file", "0")
    return max(0, int(limit) - used + int(cache))
