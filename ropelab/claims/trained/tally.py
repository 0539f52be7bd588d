"""Findings made of comparisons of trained models: counts of comparisons, and values with
an interval.

A run compares two models, or two ways of evaluating one model, at several places of a
text: at distances of a copied symbol, or at positions. The verdict of a comparison is the
name of the better of the two, or `~` if no difference is shown. A tally counts at how many
places one of the two is better.

A finding is a part of a claim, without which the claim does not hold, or a limit, which
puts a condition on the claim if it disagrees. It agrees (True), disagrees (False), or
leaves the answer open (None).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ropelab.claims.margins import Number, margin_of_interval
from ropelab.claims.record import Agrees, Findings, Role
from ropelab.runs.sentences import write_interval
from ropelab.runs.stats import Interval


@dataclass(frozen=True)
class Tally:
    """The numbers of places at which one model is better than another, is worse, or shows
    no difference.
    """

    better: int
    worse: int
    ties: int
    # The difference with its interval, if a single place was compared and the interval is
    # known.
    interval: Interval | None = None
    # The least margin of all places where the model is better; None if there is none.
    margin: Number = None
    # For each place its distance or position in tokens, and the difference there; empty if
    # the differences are not known.
    differences: tuple[tuple[int, Interval], ...] = ()
    # The word for the places: distances or positions.
    noun: str = "distances"

    @property
    def compared_places(self) -> int:
        """The number of places that were compared."""
        return self.better + self.worse + self.ties

    @property
    def text(self) -> str:
        """The result in words, with the differences and their intervals."""
        if self.interval is not None:
            return f"{self.words}, {write_difference(self.interval)}"
        if self.compared_places > 1 and self.differences:
            texts = [
                f"{distance}: {write_difference(difference)}"
                for distance, difference in self.differences
            ]
            return f"{self.words} ({', '.join(texts)})"
        return self.words

    @property
    def words(self) -> str:
        """The result in words, without differences."""
        if self.compared_places == 0:
            return "not compared"
        if self.compared_places > 1:
            counts = f"better at {self.better}, worse at {self.worse}"
            return f"{counts} of {self.compared_places} {self.noun}"

        if self.better:
            return "better"
        if self.worse:
            return "worse"
        return "within the noise"

    @property
    def reason(self) -> str:
        """The reason why the answer is open; it is open if no place shows a difference."""
        if self.interval is None:
            return "no difference is shown"
        return "the interval contains 0"

    def add_to(
        self,
        findings: Findings,
        what: str,
        asks: str = "better",
        inverted: bool = False,
    ) -> None:
        """Add the answer to a question about the places; open if nothing was compared.

        The questions are:

        "better"
            Is the model better at more places than it is worse? A part of the claim.
        "better there, too"
            The same question as "better", as a limit of the claim.
        "no cost"
            Is the model worse at no place? A part of the claim.
        "nowhere worse"
            The same question as "no cost", as a limit of the claim.
        "gains"
            Is the model better at one place or more? A limit of the claim.

        Args:
            findings: the findings so far.
            what: the words for what was compared.
            asks: the question.
            inverted: True if the claim is that the answer is no.
        """
        if self.compared_places == 0:
            findings.add_missing(what, self.text)
            return

        role: Role = "part"
        agrees: Agrees = None
        value: int | None = None
        if asks in ("better", "better there, too"):
            role = "part" if asks == "better" else "limit"
            value = self.better - self.worse
            # If all differences are within the noise, the answer is open.
            if self.better or self.worse:
                agrees = self.better > self.worse
        elif asks == "nowhere worse":
            role = "limit"
            value = self.worse
            agrees = self.worse == 0
        elif asks == "no cost":
            agrees = self.worse == 0
        elif asks == "gains":
            role = "limit"
            agrees = self.better > 0
        else:
            raise ValueError(f"unknown question '{asks}'")

        if inverted:
            agrees = negate(agrees)
        findings.add(role, what, self.text, agrees, value, self.margin)
        if agrees is None:
            findings.leave_open(self.reason)


def write_seed_count(learned: Sequence[bool]) -> str:
    """Write the number of seeds that learned: `2 of 5`."""
    return f"{learned.count(True)} of {len(learned)}"


def count_verdicts(rows: pd.DataFrame, name: str) -> Tally:
    """Count comparisons by their verdict: the model `name`, the other model, or `~`."""
    verdicts = rows["verdict"]
    is_better = verdicts == name
    better = int(is_better.sum())
    ties = int((verdicts == "~").sum())
    worse = len(verdicts) - better - ties
    # Some tables have verdicts, but no differences with intervals.
    if not {"difference", "ci_low", "ci_high"}.issubset(rows.columns):
        return Tally(better, worse, ties)

    margins = []
    for low, high in rows.loc[is_better, ["ci_low", "ci_high"]].to_numpy():
        margin = margin_of_interval(low, high, 0)
        if margin is not None:
            margins.append(margin)

    differences = []
    for _, row in rows.iterrows():
        tokens = int(row.get("at_tokens", row.get("distance_tokens", 0)))
        # The tables do not tell the number of samples behind an interval. A tally does
        # not use this number, so that any will do.
        difference = Interval(row["difference"], row["ci_low"], row["ci_high"], n=1)
        if not math.isnan(difference.low):
            differences.append((tokens, difference))
    interval = None
    if len(rows) == 1 and differences:
        _, interval = differences[0]
    margin = min(margins, default=None)
    return Tally(better, worse, ties, interval, margin, tuple(differences))


def write_difference(interval: Interval) -> str:
    """Write `-0.018 [-0.050, +0.014]`."""
    return write_interval(interval, "+.3f")


def is_at_least(value: float, least: float) -> Agrees:
    """Return value >= least; None for a value that was not measured (nan)."""
    return None if math.isnan(value) else value >= least


def negate(agrees: Agrees) -> Agrees:
    """Return the opposite answer; None, an open answer, stays None."""
    return None if agrees is None else not agrees


def interval_reaches(interval: Interval, least: float) -> Agrees:
    """Return True if the whole interval is at or above a threshold (`least`), False if
    all of it is below, and None if it contains the threshold or was not measured.
    """
    if math.isnan(interval.low):
        return None
    if interval.low >= least:
        return True
    if interval.high < least:
        return False
    return None


def interval_or_value_reaches(interval: Interval, least: float) -> Agrees:
    """Return the answer of `interval_reaches`. If the interval was not measured, return
    True if the value itself reaches the threshold.
    """
    if math.isnan(interval.low):
        return is_at_least(interval.value, least)
    return interval_reaches(interval, least)


def add_interval(
    findings: Findings,
    role: Role,
    what: str,
    interval: Interval,
    least: float,
    form: str = ".2f",
    unit: str = "",
    fails: bool = False,
) -> None:
    """Add a finding on a value that should be at or above a threshold, or below it, with
    its whole interval.

    Args:
        findings: the findings so far.
        role: the role of the new finding.
        what: the words for the value.
        interval: the value with its interval.
        least: the threshold.
        form: the format of the numbers.
        unit: the end of the measurement in words, with a space before it.
        fails: True if the claim is that the value stays below the threshold.
    """
    agrees = interval_reaches(interval, least)
    if fails:
        agrees = negate(agrees)
    margin = margin_of_interval(interval.low, interval.high, least)
    low = format(interval.low, form)
    high = format(interval.high, form)
    measured = f"{interval.value:{form}} [{low}, {high}]{unit}"
    findings.add(role, what, measured, agrees, interval.value, margin)
    if agrees is None:
        reason = f"the interval contains {least:g}"
        if math.isnan(interval.low):
            reason = "there is no interval"
        findings.leave_open(reason)
