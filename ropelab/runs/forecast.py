"""How long cells will still take: what they were expected to cost, corrected by what others took.

Expected costs are right within a factor of about two (`ropelab.runs.estimate`), and cells that were
computed tell which. The first steps of a cell tell nothing of it, since loading takes longer than
they do; so at first the expectation counts for more than the clock.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heapify, heapreplace
from threading import Lock

TRUSTED_SECONDS = 120.0
TRUSTED_SHARE = 0.1
"""What was expected counts like so many measured seconds, or like such a share of all of them."""
BESIDE_SECONDS = 0.1
"""What a cell takes beside its products: weights are read, tables written."""


@dataclass(eq=False)
class Part:
    """A cell, as far as its time is concerned.

    Attributes:
        seconds: it was expected to take, on one worker.
        urgency: what is smaller is begun first.
        left: the share of it that is still to be computed.
        begun: the clock when a worker began it, 0 before.
    """

    seconds: float
    urgency: tuple[float, ...]
    left: float = 1.0
    begun: float = 0.0

    @property
    def done(self) -> float:
        """Expected seconds of what has been computed."""
        return self.seconds * (1.0 - self.left)


class Forecast:
    """When the cells that some workers share will be finished; safe for threads.

    Args:
        workers: how many compute side by side; more where more have begun something.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._parts: list[Part] = []
        self._expected = self._done = self._taken = 0.0
        self._lock = Lock()

    def expect(self, seconds: float, urgency: tuple[float, ...]) -> Part:
        """A cell has been handed in that will take about so long; 0 where that is not known."""
        part = Part(seconds + BESIDE_SECONDS if seconds else 0.0, urgency)
        with self._lock:
            self._parts.append(part)
            self._expected += part.seconds
        return part

    @contextmanager
    def of(self, seconds: Sequence[float]) -> Iterator[list[Part]]:
        """Expect cells one after another while the block runs; what is left then is forgotten."""
        parts = [self.expect(each, (number,)) for number, each in enumerate(seconds)]
        try:
            yield parts
        finally:
            with self._lock:
                self._parts = [part for part in self._parts if part not in parts]

    def begin(self, part: Part) -> None:
        """A worker computes it from now on."""
        if not part.begun:
            part.begun = time.monotonic()

    def move(self, part: Part, share: float) -> None:
        """A share of what was left of it is computed."""
        part.left *= 1.0 - share

    def end(self, part: Part) -> None:
        """It is done with."""
        with self._lock:
            if part in self._parts:
                self._parts.remove(part)
                if part.begun:
                    self._done += part.seconds
                    self._taken += time.monotonic() - part.begun

    def left(self, parts: Iterable[Part]) -> float | None:
        """Seconds until the last of these is finished; None where nothing was expected to cost."""
        with self._lock:
            if not self._expected:
                return None
            ends = self._ends()
            return max((ends.get(id(part), 0.0) for part in parts), default=0.0) * self._slower()

    def _ends(self) -> dict[int, float]:
        """When each cell will be finished, in expected seconds from now: workers take turns."""
        waiting = [part for part in self._parts if not part.begun]
        ends = {id(part): part.seconds * part.left for part in self._parts if part.begun}
        free = [0.0] * (self._workers - len(ends))
        workers = [*ends.values(), *free]
        heapify(workers)
        for part in sorted(waiting, key=lambda part: part.urgency):
            ends[id(part)] = workers[0] + part.seconds
            heapreplace(workers, ends[id(part)])
        return ends

    def _slower(self) -> float:
        """How many times longer cells take than was expected."""
        now = time.monotonic()
        taken = self._taken + sum(now - part.begun for part in self._parts if part.begun)
        done = self._done + sum(part.done for part in self._parts)
        trusted = min(TRUSTED_SECONDS, TRUSTED_SHARE * self._expected)
        return (trusted + taken) / (trusted + done)
