"""The exact bound for a list of contexts, each search starting where the last one ended."""

import math
from dataclasses import dataclass, replace

from ropelab.experiments.base.estimate import seconds_of
from ropelab.math.bounds import Similarity, Walk, first_negative
from ropelab.runs.cell import Context

Interval = tuple[float, float]

FEWEST_PAIRS = 8
"""With fewer turning pairs there are so many narrow windows that not all are searched for."""


@dataclass(frozen=True)
class Bound:
    """What is known about one context: admissible windows as bases, ascending.

    ``complete``: all windows are there; otherwise only the first and the last were searched for.
    The last one is [stable base, infinity), unless no bases can be proved from above.
    ``usable``: a base to use: the stable base rounded up to two significant digits, with every
    position looked at once more. nan where there is no stable base.
    """

    context: int
    windows: tuple[Interval, ...]
    complete: bool
    usable: float = math.nan

    @property
    def first(self) -> float:
        """The smallest admissible base; nan where no base is."""
        return self.windows[0][0] if self.windows else math.nan

    @property
    def stable(self) -> float:
        """The base from which on every base is admissible; nan where none is proved."""
        if not self.windows or self.windows[-1][1] < math.inf:
            return math.nan
        return self.windows[-1][0]

    @property
    def status(self) -> str:
        """What the numbers cover, in words."""
        if not self.windows:
            return "no base is admissible"
        if self.complete:
            return "all windows"
        return "first window only" if math.isnan(self.stable) else "first and last window"


def bounds(
    similarity: Similarity, contexts: tuple[int, ...], windows_up_to: int, context: Context
) -> list[Bound]:
    """The bound for every context, cheapest first; up to ``windows_up_to`` with all windows.

    A base that fails at a shorter context fails at a longer one, so the search for one context
    starts at the first admissible base of the one before; halves of the shortest context serve as
    steps on the way.
    """
    found: list[Bound] = []
    start, settled = 0.0, (math.inf, 1)
    few = not similarity.unrotated and len(similarity.exponents) < FEWEST_PAIRS
    complete = {n: n in contexts and n <= windows_up_to and not few for n in steps(contexts)}
    work = {n: seconds_of(n, complete[n]) for n in complete}
    with context.progress("searching admissible bases", total=sum(work.values())) as advance:
        for length in complete:
            walk = Walk(similarity, length, settled)
            windows = _searched(walk, start, length in contexts, complete[length])
            if windows:
                start = windows[0][0]
                if windows[-1][1] == math.inf:
                    settled = (windows[-1][0], length)
            if length in contexts:
                bases = tuple((_base(low), _base(high)) for low, high in windows)
                bound = Bound(length, bases, complete[length])
                found.append(replace(bound, usable=_usable(similarity, bound)))
            advance(work[length], note=f"{length} tokens done")
    return found


def steps(contexts: tuple[int, ...]) -> list[int]:
    """The contexts, and halves on the way up to the shortest and between them, ascending."""
    lengths = set(contexts)
    for longest in contexts:
        while longest > 64:
            longest //= 2
            lengths.add(longest)
    return sorted(lengths)


def _searched(walk: Walk, start: float, asked: bool, complete: bool) -> list[Interval]:
    """All windows, or the first and, where it is asked for, the last."""
    if complete:
        return list(walk.windows(start))
    first = walk.first(start)
    found = [] if first is None else [first]
    stable = walk.stable() if asked and found and found[0][1] < math.inf else math.inf
    return found if stable == math.inf else [*found, (stable, math.inf)]


def _usable(similarity: Similarity, bound: Bound) -> float:
    """See Bound.usable."""
    if not bound.windows or bound.first <= 1:
        return bound.first
    if math.isnan(bound.stable):
        return math.nan
    rounded = rounded_up(bound.stable)
    return rounded if _works(similarity, rounded, bound.context) else math.nan


def _works(similarity: Similarity, base: float, context: int) -> bool:
    return first_negative(similarity, base, context) is None


def rounded_up(base: float) -> float:
    """The smallest number of two significant digits that is not below ``base``.

    >>> rounded_up(3325751.03), rounded_up(99.5), rounded_up(1.5e7)
    (3400000.0, 100.0, 15000000.0)
    """
    power = math.floor(math.log10(base)) - 1
    digits = next(n for n in range(10, 101) if _decimal(n, power) >= base)
    return _decimal(digits, power)


def _decimal(digits: int, power: int) -> float:
    return float(f"{digits}e{power}")


def _base(u: float) -> float:
    return math.exp(u) if u < 700 else math.inf
