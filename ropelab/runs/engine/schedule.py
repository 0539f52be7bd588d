"""The order in which cells are computed, and the room that a machine has for them.

A cell is an independent piece of a run. Its prerequisites are the cells that must be
finished before it begins. Among the cells whose prerequisites are finished, the most
urgent cell is begun as soon as there is room for it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ropelab.runs.cell import Cell, Resources, hash_cell
from ropelab.runs.errors import MachineError
from ropelab.runs.machine import count_cores, find_free_memory

# The resources of the cells that are being computed, each with the number of its GPU (0
# without one).
Running = Sequence[tuple[Resources, int]]
# A function such as `Engine.place`.
Place = Callable[[Resources, Running], int | None]

# The number of times that a cell is begun if its worker is lost each time.
TRIES = 3
# A cell that is expected to take at most this many seconds is begun before all longer
# cells.
MOMENT_SECONDS = 5.0


@dataclass(frozen=True)
class Machine:
    """The room that this machine has for cells."""

    workers: int
    # The memory for all cells together. A cell that needs more than this is computed
    # alone.
    memory_bytes: float = inf
    gpus: int = 1
    cells_per_gpu: int = 1

    def place(self, resources: Resources, running: Running) -> int | None:
        """See `Engine.place`; a cell gets the GPU that computes the fewest cells."""
        if len(running) == self.workers:
            return None
        memory = sum(each.memory_bytes for each, _ in running) + resources.memory_bytes
        if running and memory > self.memory_bytes:
            return None
        if not resources.gpu:
            return 0

        cells_on_gpu = Counter(gpu for each, gpu in running if each.gpu)
        freest_gpu = min(range(self.gpus), key=lambda gpu: cells_on_gpu[gpu])
        if cells_on_gpu[freest_gpu] >= self.cells_per_gpu:
            return None
        return freest_gpu


def choose_machine(
    wanted_workers: int | None, resources: Sequence[Resources]
) -> Machine:
    """Return the room for cells: for `wanted_workers` cells side by side. If that is
    None, there is room for as many cells as the machine has cores and memory for.
    """
    # How much memory a cell needs on a GPU is not known. A GPU therefore computes one
    # cell at a time, unless more workers are asked for than there are GPUs.
    gpus = 1
    most_workers = count_cores()
    if any(each.gpu for each in resources):
        import torch

        gpus = max(1, torch.cuda.device_count())
        without_gpu = [each for each in resources if not each.gpu]
        most_workers = min(most_workers, gpus + len(without_gpu))

    if wanted_workers is not None:
        return Machine(wanted_workers, gpus=gpus, cells_per_gpu=wanted_workers)
    memory = find_free_memory()
    # The smallest cell decides how many cells may fit. `place` then checks the memory of
    # each cell.
    smallest = min((each.memory_bytes for each in resources), default=1)
    most_workers = min(most_workers, memory // smallest)
    return Machine(max(1, most_workers), memory, gpus)


class LostError(Exception):
    """The process in which a cell was computed is gone."""


class Schedule:
    """The cells that wait and the cells that run.

    If a prerequisite of a cell is not among these cells, it was finished before.
    """

    def __init__(self, cells: Mapping[int, Cell], place: Place) -> None:
        self._cells = cells
        self._place = place
        self._resources = {number: cell.resources for number, cell in cells.items()}

        numbers = {hash_cell(cell): number for number, cell in cells.items()}
        self._prerequisites: dict[int, set[int]] = {}
        for number, cell in cells.items():
            hashes = map(hash_cell, cell.prerequisites)
            self._prerequisites[number] = {
                numbers[cell_hash] for cell_hash in hashes if cell_hash in numbers
            }
        # The numbers of all cells that are a prerequisite of another cell.
        awaited = set().union(*self._prerequisites.values())

        # Cells that take a moment come first, so that no quick answer waits for hours
        # of training. Cells that are prerequisites follow. All remaining cells come last,
        # the longest first, so that no long cell is left to the end.
        def urgency(number: int) -> tuple[bool, bool, float, int]:
            size = self._resources[number].size
            is_long = size > MOMENT_SECONDS
            return is_long, number not in awaited, -size, number

        self._waiting = sorted(cells, key=urgency)
        # The number of the GPU of each running cell.
        self._running: dict[int, int] = {}
        # The cells that have not ended.
        self.undone = set(cells)
        # How many times each cell was lost with its worker.
        self._lost: Counter[int] = Counter()

    def begin(self) -> tuple[int, int] | None:
        """Begin the next cell that there is room for: return its number and the number
        of its GPU, or None if no cell can begin now.
        """
        # When cells are lost together, perhaps only one of them needed too much memory.
        # Each lost cell makes its last try alone, after all other cells, so that no other
        # cell is lost with it.
        last_tries = {n for n, times in self._lost.items() if times == TRIES - 1}
        if last_tries & self._running.keys():
            return None

        running = []
        for other, gpu_of_other in self._running.items():
            running.append((self._resources[other], gpu_of_other))

        for number in sorted(self._waiting, key=lambda number: number in last_tries):
            if self._prerequisites[number] & self.undone:
                continue
            if number in last_tries and running:
                continue

            gpu = self._place(self._resources[number], running)
            if gpu is not None:
                self._waiting.remove(number)
                self._running[number] = gpu
                return number, gpu

            # While a cell waits for a GPU, later cells may begin. While a cell waits
            # for memory, no later cell begins, or smaller cells would take the memory
            # again and again.
            if not self._resources[number].gpu:
                return None
        return None

    def end(self, number: int, error: Exception | None) -> dict[int, Exception | None]:
        """Note the end of a cell; return the errors of all cells that end with it.

        If the cell failed, all cells that need it end with the same error.
        """
        del self._running[number]
        if isinstance(error, LostError):
            # A lost cell waits again, and no cell ends, unless it was lost TRIES times.
            self._lost[number] += 1
            if self._lost[number] < TRIES:
                self._waiting.insert(0, number)
                return {}
            error = MachineError(
                f"the process computing '{self._cells[number].title}' ended"
                f" {TRIES} times without a result, as it does when memory runs out; try"
                " fewer --workers"
            )

        ended: dict[int, Exception | None] = {number: error}
        if error is not None:
            # A cell has a higher number than its prerequisites, so one pass over the
            # waiting cells finds all that must end.
            for other in sorted(self._waiting):
                if self._prerequisites[other] & ended.keys():
                    ended[other] = error
                    self._waiting.remove(other)
        self.undone -= ended.keys()
        return ended
