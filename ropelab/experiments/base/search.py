"""The exact bound for a list of contexts, each search starting where the last one ended."""

import math
from dataclasses import dataclass

from ropelab.context import Context
from ropelab.rope.bounds import Similarity, Walk

Interval = tuple[float, float]

FEWEST_PAIRS = 8
"""With fewer turning pairs there are so many narrow windows that only the first is searched for."""


@dataclass(frozen=True)
class Bound:
    """What is known about one context: admissible windows as bases, ascending.

    ``complete``: all windows are there, the last one is [stable base, infinity); otherwise only the
    first was searched for.
    """

    context: int
    windows: tuple[Interval, ...]
    complete: bool

    @property
    def first(self) -> float:
        """The smallest admissible base; nan where no base is."""
        return self.windows[0][0] if self.windows else math.nan

    @property
    def stable(self) -> float:
        """The base above which every base is admissible; nan where that was not searched."""
        if not self.complete or not self.windows or self.windows[-1][1] < math.inf:
            return math.nan
        return self.windows[-1][0]

    @property
    def status(self) -> str:
        """What the numbers cover, in words."""
        if not self.windows:
            return "no base is admissible"
        return "all windows" if self.complete else "first window only"


def bounds(
    similarity: Similarity, contexts: tuple[int, ...], windows_up_to: int, context: Context
) -> list[Bound]:
    """The bound for every context, cheapest first.

    A base that fails at a shorter context fails at a longer one, so the search for one context
    starts at the first admissible base of the one before; halves of the shortest context serve as
    steps on the way.
    """
    found: list[Bound] = []
    start, settled = 0.0, (math.inf, 1)
    few = not similarity.unrotated and len(similarity.exponents) < FEWEST_PAIRS
    work = sum(length**2 for length in contexts)
    with context.progress("searching admissible bases", total=work) as advance:
        for length in steps(contexts):
            complete = length in contexts and length <= windows_up_to and not few
            walk = Walk(similarity, length, settled)
            windows = _searched(walk, start, complete)
            if windows:
                start = windows[0][0]
            if complete and windows and windows[-1][1] == math.inf:
                settled = (windows[-1][0], length)
            if length in contexts:
                bases = tuple((_base(low), _base(high)) for low, high in windows)
                found.append(Bound(length, bases, complete))
                advance(length**2, note=f"{length} tokens done")
    return found


def steps(contexts: tuple[int, ...]) -> list[int]:
    """The contexts, and halves on the way up to the shortest and between them, ascending."""
    lengths = set(contexts)
    for longest in contexts:
        while longest > 64:
            longest //= 2
            lengths.add(longest)
    return sorted(lengths)


def _searched(walk: Walk, start: float, complete: bool) -> list[Interval]:
    windows = walk.windows(start)
    return list(windows) if complete else [window for window, _ in zip(windows, "1", strict=False)]


def _base(u: float) -> float:
    return math.exp(u) if u < 700 else math.inf
