"""Estimates of cost before work begins: a notice from a minute on, a refusal beyond the
limits.

Times come from rates measured once, on one core of the machine that docs/sweeps.md
names, times `slowness`, a short calibration; they are right within a factor of about
two. Memory comes from formulas fitted to measured peaks. Every cell states both
(`Cell.resources`).
"""

import math
import timeit
from dataclasses import dataclass
from functools import cache

from ropelab.runs.errors import InputError

# Allows what is refused.
FLAG = "--no-limits"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
YEAR = 365.25 * DAY
# Shorter work, in seconds, is not estimated any closer.
WORTH_A_CALIBRATION = 10.0
COSINES = 1 << 18
# What COSINES cosines in float64 take on the machine whose rates are known.
SECONDS_OF_COSINES = 1.75e-3


@dataclass(frozen=True)
class Estimate:
    """The cost of some work."""

    seconds: float = 0.0  # on one core of the machine whose rates are known
    bytes: float = 0.0  # the most that one process needs at once
    # seconds of the longest part, which no number of workers makes shorter
    longest: float = 0.0
    parts: int = 0  # that could be computed side by side
    cores: int = 0  # that the parts could use, where one uses several
    alone: float = 0.0  # seconds of what uses all cores, whatever the number of workers

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(
            self.seconds + other.seconds,
            max(self.bytes, other.bytes),
            max(self.longest, other.longest),
            self.parts + other.parts,
            self.cores + other.cores,
            self.alone + other.alone,
        )

    def on(self, workers: int) -> float:
        """Seconds on this machine with so many workers, which share the parts."""
        used = max(1, min(workers, max(self.parts, self.cores)))
        seconds = max(self.seconds / used, self.longest) + self.alone
        return seconds * slowness() if seconds > WORTH_A_CALIBRATION else seconds

    @property
    def is_unknown(self) -> bool:
        """True for work that cannot be estimated: on a GPU, or by a released model."""
        return bool(self.parts) and not (self.seconds or self.bytes)

    def text(self, workers: int = 1) -> str:
        """Describe the work.

        >>> Estimate().text(), Estimate(seconds=8, bytes=3e9).text()
        ('a few seconds', 'about 8 seconds, 3.0 GB')
        """
        if self == Estimate():
            return "a few seconds"
        if self.is_unknown:
            return "time not known before"
        side_by_side = min(workers, self.parts)
        memory = f", {size(self.bytes)}"
        if side_by_side > 1:
            memory = f" on {side_by_side} workers{memory} each"
        return f"about {duration(max(1.0, self.on(workers)))}{memory}"


@cache
def slowness() -> float:
    """Measure once by what factor this machine is slower than the one whose rates are
    known.
    """
    import numpy as np

    # The best of some passes of cosines: the work of most arithmetic here, and on one
    # core.
    angles = np.linspace(0.0, 1e3, COSINES)
    return (
        min(timeit.repeat(lambda: np.cos(angles), number=1, repeat=8))
        / SECONDS_OF_COSINES
    )


def refuse_beyond(estimate: Estimate, workers: int, free_bytes: float) -> None:
    """Raise InputError where the work takes more than a day, or more memory than is
    free.
    """
    if estimate.bytes > free_bytes:
        raise InputError(
            f"this needs about {size(estimate.bytes)} of memory, and"
            f" {size(free_bytes)} are free; {FLAG} allows it"
        )
    seconds = estimate.on(workers)
    if seconds > DAY:
        raise InputError(
            f"this takes about {duration(seconds)}, more than a day; {FLAG} allows it"
        )


def refuse_longer(seconds: float, most: float) -> None:
    """Raise InputError where work takes longer than somebody wants to wait."""
    if seconds > most:
        raise InputError(
            f"this takes about {duration(seconds)}, more than the {duration(most)} of "
            "--max-minutes; --quick takes less"
        )


def duration(seconds: float) -> str:
    """Write a time in its largest unit.

    >>> [duration(s) for s in (40, 80, 720, 5400)]
    ['40 seconds', '1 minute', '12 minutes', '1.5 hours']
    >>> [duration(s) for s in (90000, 300000, 4e9, 1e30)]
    ['25 hours', '3.5 days', '127 years', 'a million years or more']
    """
    if seconds > 1e6 * YEAR:
        return "a million years or more"
    # Each unit, its length, and the time from which the next one is used.
    units = (
        ("second", 1.0, MINUTE),
        ("minute", MINUTE, 90 * MINUTE),
        ("hour", HOUR, 36 * HOUR),
        ("day", DAY, 2 * YEAR),
        ("year", YEAR, math.inf),
    )
    unit, length, _ = next(row for row in units if seconds < row[2])
    count = seconds / length
    number = f"{round(count, 1 if unit in ('hour', 'day') and count < 10 else 0):g}"
    return f"{number} {unit}{'' if number == '1' else 's'}"


def size(amount: float) -> str:
    """Write an amount of memory in its largest unit.

    >>> size(2.93e9), size(6.4e8), size(1.2e13)
    ('2.9 GB', '640 MB', '12 TB')
    """
    units = {"TB": 1e12, "GB": 1e9, "MB": 1e6}
    unit = next((unit for unit, length in units.items() if amount >= length), "MB")
    count = amount / units[unit]
    return f"{count:,.{1 if count < 10 else 0}f} {unit}"
