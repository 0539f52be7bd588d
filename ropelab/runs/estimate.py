"""Estimates of cost before work begins: a notice from a minute on, a refusal beyond the
limits.

A time is computed from rates that were measured once, on one core of the machine that
docs/sweeps.md names, and is multiplied by `measure_slowness`, a short calibration. Times are
right within a factor of about two. Memory is computed by formulas that were fitted to
measured peaks. Every cell states both (`Cell.resources`).
"""

import math
import timeit
from dataclasses import dataclass
from functools import cache

from ropelab.runs.errors import InputError

# The flag that allows the work that is otherwise refused.
FLAG = "--no-limits"
MINUTE = 60.0
HOUR = 3600.0
DAY = 86400.0
YEAR = 365.25 * DAY
# Seconds of work from which on an estimate is worth a calibration.
WORTH_A_CALIBRATION = 10.0
# The number of cosines that a calibration computes.
COSINES = 1 << 18
# The seconds that COSINES cosines take in float64 on the machine whose rates are known.
SECONDS_OF_COSINES = 1.75e-3


@dataclass(frozen=True)
class Estimate:
    """The cost of some work."""

    # The time of all parts together, in seconds on one core of the machine whose rates
    # are known.
    seconds: float = 0.0
    # The most memory that one process needs at once, in bytes.
    bytes: float = 0.0
    # The seconds of the longest part. More workers do not make this part shorter.
    longest: float = 0.0
    # The number of parts, which could be computed side by side.
    parts: int = 0
    # The number of cores that the parts could use; one part may use several.
    cores: int = 0
    # The seconds of work that uses all cores, whatever the number of workers.
    exclusive_seconds: float = 0.0

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(
            seconds=self.seconds + other.seconds,
            bytes=max(self.bytes, other.bytes),
            longest=max(self.longest, other.longest),
            parts=self.parts + other.parts,
            cores=self.cores + other.cores,
            exclusive_seconds=self.exclusive_seconds + other.exclusive_seconds,
        )

    def seconds_on(self, workers: int) -> float:
        """Return the seconds on this machine if this many workers share the parts."""
        # Workers beyond the number of parts, and of cores that the parts can use, have
        # nothing to do.
        busy_workers = max(1, min(workers, max(self.parts, self.cores)))
        shared_seconds = max(self.seconds / busy_workers, self.longest)
        seconds = shared_seconds + self.exclusive_seconds
        if seconds <= WORTH_A_CALIBRATION:
            return seconds
        return seconds * measure_slowness()

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
        memory = f", {write_size(self.bytes)}"
        if side_by_side > 1:
            memory = f" on {side_by_side} workers{memory} each"
        seconds = max(1.0, self.seconds_on(workers))
        return f"about {write_duration(seconds)}{memory}"


@cache
def measure_slowness() -> float:
    """Measure once by what factor this machine is slower than the machine whose rates
    are known.
    """
    import numpy as np

    # Most arithmetic here computes cosines, and NumPy computes them on one core. The
    # quickest of several passes counts, because other processes disturbed it least.
    angles = np.linspace(0.0, 1e3, COSINES)
    passes = timeit.repeat(lambda: np.cos(angles), number=1, repeat=8)
    return min(passes) / SECONDS_OF_COSINES


def refuse_beyond(estimate: Estimate, workers: int, free_bytes: float) -> None:
    """Raise InputError where the work takes more than a day, or more memory than is
    free.
    """
    if estimate.bytes > free_bytes:
        raise InputError(
            f"this needs about {write_size(estimate.bytes)} of memory, and"
            f" {write_size(free_bytes)} are free; {FLAG} allows it"
        )
    seconds = estimate.seconds_on(workers)
    if seconds > DAY:
        raise InputError(
            f"this takes about {write_duration(seconds)}, more than a day; {FLAG} allows it"
        )


def refuse_longer(seconds: float, most: float) -> None:
    """Raise InputError where work takes longer than `--max-minutes` allows."""
    if seconds > most:
        raise InputError(
            f"this takes about {write_duration(seconds)}, more than the {write_duration(most)} of "
            "--max-minutes; --quick takes less"
        )


def write_duration(seconds: float) -> str:
    """Write a time in its largest unit.

    >>> [write_duration(s) for s in (40, 80, 720, 5400)]
    ['40 seconds', '1 minute', '12 minutes', '1.5 hours']
    >>> [write_duration(s) for s in (90000, 300000, 4e9, 1e30)]
    ['25 hours', '3.5 days', '127 years', 'a million years or more']
    """
    if seconds > 1e6 * YEAR:
        return "a million years or more"

    # Each unit with its length in seconds, and the seconds from which on the next unit is
    # used.
    units = (
        ("second", 1.0, MINUTE),
        ("minute", MINUTE, 90 * MINUTE),
        ("hour", HOUR, 36 * HOUR),
        ("day", DAY, 2 * YEAR),
        ("year", YEAR, math.inf),
    )
    unit, length = next(
        (unit, length) for unit, length, border in units if seconds < border
    )

    count = seconds / length
    digits = 0
    if unit in ("hour", "day") and count < 10:
        digits = 1
    number = f"{round(count, digits):g}"
    plural = "" if number == "1" else "s"
    return f"{number} {unit}{plural}"


def write_size(amount: float) -> str:
    """Write an amount of memory in its largest unit.

    >>> write_size(2.93e9), write_size(6.4e8), write_size(1.2e13)
    ('2.9 GB', '640 MB', '12 TB')
    """
    unit = "MB"
    unit_bytes = 1e6
    for name, least in (("GB", 1e9), ("TB", 1e12)):
        if amount >= least:
            unit = name
            unit_bytes = least

    count = amount / unit_bytes
    digits = 1 if count < 10 else 0
    return f"{count:,.{digits}f} {unit}"
