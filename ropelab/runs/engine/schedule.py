"""The order in which cells are computed, and the room that a machine has for them.

A cell is an independent piece of a run. Its starts are the cells that must be finished
before it begins. Of the cells whose starts are finished, the most urgent one is begun as
soon as there is room for it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ropelab.runs.cell import Cell, Resources, name_of
from ropelab.runs.errors import MachineError
from ropelab.runs.machine import count_cores, find_free_memory

# The resources of the cells that are being computed, each with the number of its GPU (0
# without one).
Running = Sequence[tuple[Resources, int]]
# A function such as `Engine.place`.
Place = Callable[[Resources, Running], int | None]

# The number of times that a cell is begun if its worker is lost each time.
TRIES = 3
# A cell of at most so many seconds goes before the longer ones.
MOMENT = 5.0


@dataclass(frozen=True)
class Machine:
    """The room that this machine has for cells."""

    workers: int
    # The memory of all cells together. A cell that is computed alone may need more.
    memory_bytes: float = inf
    gpus: int = 1
    cells_per_gpu: int = 1

    def place(self, resources: Resources, running: Running) -> int | None:
        """See `Engine.place`; the GPU is the one that computes the fewest cells."""
        if len(running) == self.workers:
            return None
        memory = sum(each.memory_bytes for each, _ in running) + resources.memory_bytes
        if running and memory > self.memory_bytes:
            return None
        if not resources.gpu:
            return 0

        taken = Counter(gpu for each, gpu in running if each.gpu)
        gpu = min(range(self.gpus), key=lambda number: taken[number])
        return gpu if taken[gpu] < self.cells_per_gpu else None


def machine_for(asked: int | None, resources: Sequence[Resources]) -> Machine:
    """Return the room for cells: as many as asked or, if that is None, as many as there
    are cores and memory for.
    """
    # The need for memory on a GPU is not known. A GPU therefore computes one cell at a
    # time, unless more workers are asked for than there are GPUs.
    gpus = 1
    most = count_cores()
    if any(each.gpu for each in resources):
        import torch

        gpus = max(1, torch.cuda.device_count())
        without_gpu = [each for each in resources if not each.gpu]
        most = min(most, gpus + len(without_gpu))

    if asked is not None:
        return Machine(asked, gpus=gpus, cells_per_gpu=asked)
    memory = find_free_memory()
    # The smallest cell decides how many may fit. `place` checks the memory of each.
    fitting = memory // min((each.memory_bytes for each in resources), default=1)
    return Machine(max(1, min(most, fitting)), memory, gpus)


class LostError(Exception):
    """The process in which a cell was computed is gone."""


class Schedule:
    """The cells that wait and the cells that run.

    A cell may start from one that is not among these: it was finished before.
    """

    def __init__(self, cells: Mapping[int, Cell], place: Place) -> None:
        self._cells = cells
        self._place = place
        self._resources = {number: cell.resources for number, cell in cells.items()}

        numbers = {name_of(cell): number for number, cell in cells.items()}
        self._starts: dict[int, set[int]] = {}
        for number, cell in cells.items():
            names = map(name_of, cell.starts)
            self._starts[number] = {numbers[name] for name in names if name in numbers}
        awaited = set().union(*self._starts.values())

        # Cells that take a moment come first, so that no quick answer waits for hours
        # of training. Cells that others wait for follow, and then the others, the
        # longest first, so that none of the long ones is left to the end.
        def urgency(number: int) -> tuple[bool, bool, float, int]:
            size = self._resources[number].size
            return size > MOMENT, number not in awaited, -size, number

        self._waiting = sorted(cells, key=urgency)
        # The number of the GPU of each running cell.
        self._running: dict[int, int] = {}
        # The cells that have not ended.
        self.undone = set(cells)
        # How many times each cell was lost with its worker.
        self._lost: Counter[int] = Counter()

    def begin(self) -> tuple[int, int] | None:
        """Begin the next cell that there is room for: return its number and that of its
        GPU, or None if no cell can begin now.
        """
        # When cells are lost together, perhaps only one of them was too large. Each
        # makes its last try alone, after all others, so that it cannot end another one.
        last_tries = {n for n, times in self._lost.items() if times == TRIES - 1}
        if last_tries & self._running.keys():
            return None

        running = []
        for other, gpu in self._running.items():
            running.append((self._resources[other], gpu))

        for number in sorted(self._waiting, key=lambda number: number in last_tries):
            if self._starts[number] & self.undone:
                continue
            if number in last_tries and running:
                continue

            place = self._place(self._resources[number], running)
            if place is not None:
                self._waiting.remove(number)
                self._running[number] = place
                return number, place

            # A cell that waits for a GPU lets others go first. A cell that waits for
            # memory does not, or smaller ones would take the memory again and again.
            if not self._resources[number].gpu:
                return None
        return None

    def end(self, number: int, error: Exception | None) -> dict[int, Exception | None]:
        """Note the end of a cell; return the errors of all cells that end with it.

        If the cell failed, all cells that start from it end with the same error.
        """
        del self._running[number]
        if isinstance(error, LostError):
            # A lost cell waits again, and no cell ends, unless it was lost too often.
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
            # A cell has a higher number than its starts, so one pass finds all.
            for other in sorted(self._waiting):
                if self._starts[other] & ended.keys():
                    ended[other] = error
                    self._waiting.remove(other)
        self.undone -= ended.keys()
        return ended
