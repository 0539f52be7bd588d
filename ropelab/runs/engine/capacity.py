"""The room for cells on this machine: cores, memory, GPUs."""

from collections.abc import Callable, Sequence
from functools import cached_property
from math import inf
from pathlib import Path

import psutil
from loky import cpu_count

from ropelab.runs.cell import Needs


def cores() -> int:
    """Return the cores that affinity and the limits of a container leave this process."""
    return int(cpu_count())


def available_memory() -> int:
    """Return the bytes that the kernel and the limits of a container leave free."""
    free = psutil.virtual_memory().available
    return min(free, _free_in_container(Path("/sys/fs/cgroup"), free))


def visible_gpus() -> int:
    """Return the number of GPUs that this process may use: CUDA_VISIBLE_DEVICES counts."""
    import torch

    return torch.cuda.device_count()


class Machine:
    """This machine as room for cells.

    Args:
        workers: processes that compute side by side.
        memory_bytes: what their cells may need together; one alone may need more.
        cells_per_gpu: how many cells share a GPU.
        gpus: tells how many there are, when the first cell needs one.
    """

    def __init__(
        self,
        workers: int,
        memory_bytes: float = inf,
        cells_per_gpu: int = 1,
        gpus: Callable[[], int] = visible_gpus,
    ) -> None:
        self.workers = workers
        self._free_bytes = memory_bytes
        self._per_gpu, self._gpus = cells_per_gpu, gpus
        self._running = 0

    @cached_property
    def _on_gpu(self) -> list[int]:
        # Cells on each GPU.
        return [0] * max(1, self._gpus())

    def take(self, needs: Needs) -> int | None:
        """Reserve a place, on the GPU with the fewest cells; None if there is no room."""
        full = self._running == self.workers
        if full or (self._running and needs.memory_bytes > self._free_bytes):
            return None
        gpu = self._on_gpu.index(min(self._on_gpu)) if needs.gpu else 0
        if needs.gpu and self._on_gpu[gpu] == self._per_gpu:
            return None
        self._count(needs, gpu, 1)
        return gpu

    def give_back(self, needs: Needs, gpu: int) -> None:
        """Free a place again."""
        self._count(needs, gpu, -1)

    def _count(self, needs: Needs, gpu: int, change: int) -> None:
        self._running += change
        self._free_bytes -= change * needs.memory_bytes
        if needs.gpu:
            self._on_gpu[gpu] += change


def machine_for(asked: int | None, needs: Sequence[Needs]) -> Machine:
    """Make room for as many cells as asked, else as there are cores and memory for.

    A GPU computes one cell at a time, unless more workers are asked for than there are GPUs.

    Args:
        asked: what the user wants; taken as it is.
        needs: those of the cells that come first; the smallest tells how many may fit.
    """
    if asked is not None:
        return Machine(asked, cells_per_gpu=asked)
    memory = available_memory()
    room = memory // min((each.memory_bytes for each in needs), default=1)
    return Machine(max(1, min(cores(), room)), memory)


def _free_in_container(group: Path, otherwise: int) -> int:
    """Return the bytes left in a control group (version 2), its file cache not counted as used."""
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
