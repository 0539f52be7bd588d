"""Numbers from bug reports: what counts as the same number, and one claim per report.

`ropelab precision --reported` measures such numbers again under a cast plan and keeps them in its
table `incidents`; a claim reads the stored runs that name its report.
"""

from decimal import Decimal
from enum import StrEnum


def agrees(printed: str, ours: float) -> bool:
    """Whether ours rounds to what was printed, to within half of its last digit.

    >>> agrees("1045", 1044.6), agrees("1045.0", 1044.6)
    (True, False)
    """
    digits = Decimal(printed)
    unit = Decimal(1).scaleb(int(digits.as_tuple().exponent))
    return abs(Decimal(ours) - digits) <= unit / 2 * Decimal("1.001")


class Match(StrEnum):
    """Whether a number of a report was met."""

    AGREES = "agrees"
    DIFFERS = "differs"


def judge(printed: str, ours: float) -> Match:
    """Ours beside a printed number."""
    return Match.AGREES if agrees(printed, ours) else Match.DIFFERS
