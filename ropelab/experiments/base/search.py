"""The exact bound for a list of contexts, each search starting where the last one ended."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from ropelab.context import Context
from ropelab.experiments.base.estimate import seconds_of
from ropelab.rope.bounds import Similarity, Walk, certified_from, first_negative

Interval = tuple[float, float]

FEWEST_PAIRS = 8
"""With fewer turning pairs there are so many narrow windows that only the first is searched for."""


@dataclass(frozen=True)
class Bound:
    """What is known about one context: admissible windows as bases, ascending.

    ``complete``: all windows are there; otherwise only the first was searched for, and perhaps the
    last, [stable base, infinity).
    ``usable``: a base of two significant digits to use, every position looked at: the stable base
    rounded up, all bases above it proved; or, where that was not searched, the smallest one from
    which on all bases of two digits are admissible. nan where there is none.
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
        """The base above which every base is admissible; nan where that was not searched."""
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


@dataclass(frozen=True)
class Reach:
    """Up to which context all windows are searched for, and up to which the stable base."""

    windows: int
    stable: int


def bounds(
    similarity: Similarity, contexts: tuple[int, ...], reach: Reach, context: Context
) -> list[Bound]:
    """The bound for every context, cheapest first.

    A base that fails at a shorter context fails at a longer one, so the search for one context
    starts at the first admissible base of the one before; halves of the shortest context serve as
    steps on the way.
    """
    found: list[Bound] = []
    start, settled = 0.0, (math.inf, 1)
    few = not similarity.unrotated and len(similarity.exponents) < FEWEST_PAIRS
    asked_of = {n: n in contexts and not few for n in steps(contexts)}
    work = {n: seconds_of(n, asked and n <= reach.windows) for n, asked in asked_of.items()}
    with context.progress("searching admissible bases", total=sum(work.values())) as advance:
        for length, asked in asked_of.items():
            complete = asked and length <= reach.windows
            walk = Walk(similarity, length, settled)
            windows = _searched(walk, start, complete)
            if asked and not complete and length <= reach.stable:
                windows = _with_last(windows, walk.stable())
            if windows:
                start = windows[0][0]
                if windows[-1][1] == math.inf:
                    settled = (windows[-1][0], length)
            if length in contexts:
                bases = tuple((_base(low), _base(high)) for low, high in windows)
                bound = Bound(length, bases, complete)
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


def _searched(walk: Walk, start: float, complete: bool) -> list[Interval]:
    if complete:
        return list(walk.windows(start))
    return list(islice(walk.windows(start, held=0), 1))


def _with_last(windows: list[Interval], stable: float) -> list[Interval]:
    """The first window, and the last if it is another one."""
    if stable == math.inf or (windows and windows[-1][1] == math.inf):
        return windows
    return [*windows, (stable, math.inf)]


def _usable(similarity: Similarity, bound: Bound) -> float:
    """See Bound.usable."""
    if not bound.windows or bound.first <= 1:
        return bound.first
    if not math.isnan(bound.stable):
        rounded = rounded_up(bound.stable)
        return rounded if _works(similarity, rounded, bound.context) else math.nan
    if bound.complete or certified_from(similarity, bound.context) == math.inf:
        return math.nan
    last = rounded_up(_base(certified_from(similarity, bound.context)))
    for base in two_digits_down(last):
        if base < bound.first or not _works(similarity, base, bound.context):
            return last
        last = base
    return last


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


def two_digits_down(base: float) -> Iterator[float]:
    """The numbers of two significant digits below one of them, largest first, down to 1."""
    digits, power = (int(part) for part in f"{base:.1e}".replace(".", "").split("e"))
    power -= 1
    while power >= -1:
        digits -= 1
        if digits < 10:
            digits, power = 99, power - 1
        if power >= -1:
            yield _decimal(digits, power)


def _decimal(digits: int, power: int) -> float:
    return float(f"{digits}e{power}")


def _base(u: float) -> float:
    return math.exp(u) if u < 700 else math.inf
