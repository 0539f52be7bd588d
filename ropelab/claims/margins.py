"""Margins: how far a measurement is from the threshold at which its answer changes.

A margin is 0 at the threshold and nears 1 far from it, whatever the unit. Margins of
different measurements can therefore be compared: the least one is closest to failing.
"""

import math

# A number of a finding; None if the finding has no such number.
Number = float | None


def margin_below(value: float, bound: float) -> Number:
    """Return the margin of a number that must not exceed a bound.

    The margin is None for a bound of 0. Such a bound allows 0 alone, and there is no scale
    on which another number would be close to it.
    """
    if bound == 0:
        return None
    return 1 - value / bound


def margin_above(value: float, bound: float) -> Number:
    """Return the margin of a number that must exceed a bound; None for the number 0."""
    if value == 0:
        return None
    return 1 - bound / value


def margin_of_interval(low: float, high: float, threshold: float) -> Number:
    """Return the margin of an interval that must not contain a threshold.

    It is the share of the way from the threshold to the middle of the interval that is
    outside the interval; negative if the interval contains the threshold. None if the
    interval is not known (nan), or if its middle is the threshold.
    """
    middle = (low + high) / 2
    to_middle = abs(middle - threshold)
    half_width = (high - low) / 2
    if math.isnan(half_width) or to_middle == 0:
        return None
    return 1 - half_width / to_middle
