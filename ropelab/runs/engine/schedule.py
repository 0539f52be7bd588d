"""The order of cells: the most urgent whose starts are finished, as soon as there is
room.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ropelab.runs.cell import Cell, Resources, name_of
from ropelab.runs.errors import MachineError
from ropelab.runs.machine import available_memory, cores

# The resources of the cells that are being computed, each with the number of its GPU (0
# without one).
Running = Sequence[tuple[Resources, int]]
Place = Callable[[Resources, Running], int | None]

# A cell is begun so often when its worker is lost under it.
TRIES = 3
MOMENT = 5.0  # seconds of a cell that goes before the long ones


@dataclass(frozen=True)
class Machine:
    """This machine as room for cells."""

    workers: int
    memory_bytes: float = inf  # of all cells together; one alone may need more
    gpus: int = 1
    cells_per_gpu: int = 1

    def place(self, resources: Resources, running: Running) -> int | None:
        """See `Engine.place`; it is the GPU with the fewest cells."""
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
    """Make room for as many cells as asked, else as there are cores and memory for."""
    # The smallest cell decides how many may fit. A GPU computes one cell at a time,
    # unless more workers are asked for than there are GPUs: nothing is known of its
    # memory.
    gpus = 1
    most = cores()
    if any(each.gpu for each in resources):
        import torch

        gpus = max(1, torch.cuda.device_count())
        without_gpu = [each for each in resources if not each.gpu]
        most = min(most, gpus + len(without_gpu))

    if asked is not None:
        return Machine(asked, gpus=gpus, cells_per_gpu=asked)
    memory = available_memory()
    fitting = memory // min((each.memory_bytes for each in resources), default=1)
    return Machine(max(1, min(most, fitting)), memory, gpus)


class LostError(Exception):
    """The process in which a cell was computed is gone."""


class Schedule:
    """The cells that wait and those that run; a start that is not among them is
    finished.
    """

    def __init__(self, cells: Mapping[int, Cell], place: Place) -> None:
        self._cells = cells
        self._place = place
        self._needs = resources = {
            number: cell.resources for number, cell in cells.items()
        }

        numbers = {name_of(cell): number for number, cell in cells.items()}
        self._starts: dict[int, set[int]] = {}
        for number, cell in cells.items():
            names = map(name_of, cell.starts)
            self._starts[number] = {numbers[name] for name in names if name in numbers}
        awaited = set().union(*self._starts.values())

        # First what takes a moment, so that no quick answer waits for hours of
        # training; then those that others wait for, then the longest, so that none of
        # these ends last.
        self._waiting = sorted(
            cells,
            key=lambda n: (
                resources[n].size > MOMENT,
                n not in awaited,
                -resources[n].size,
                n,
            ),
        )
        self._running: dict[int, int] = {}
        self.undone = set(cells)
        self._lost: Counter[int] = Counter()

    def begin(self) -> tuple[int, int] | None:
        """Return the next cell that there is room for, and the number of its GPU."""
        # Of cells that were lost together only one may be too large: the last try is
        # made alone.
        last = {number for number, times in self._lost.items() if times == TRIES - 1}
        if last & self._running.keys():
            return None

        running = [(self._needs[other], gpu) for other, gpu in self._running.items()]
        for number in sorted(self._waiting, key=last.__contains__):
            if self._starts[number] & self.undone:
                continue
            if number in last and running:
                continue

            gpu = self._place(self._needs[number], running)
            if gpu is not None:
                self._waiting.remove(number)
                self._running[number] = gpu
                return number, gpu

            # One that waits for a GPU does not stand in the way of others, one for
            # memory does.
            if not self._needs[number].gpu:
                return None
        return None

    def end(self, number: int, error: Exception | None) -> dict[int, Exception | None]:
        """Note the end of a cell; return all cells that end with it, by number."""
        # Those that start from one that failed end with the same error. A lost cell
        # waits again, and nothing ends, unless it was lost too often.
        del self._running[number]
        if isinstance(error, LostError):
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
            # Starts come before what starts from them.
            for other in sorted(self._waiting):
                if self._starts[other] & ended.keys():
                    ended[other] = error
                    self._waiting.remove(other)
        self.undone -= ended.keys()
        return ended
