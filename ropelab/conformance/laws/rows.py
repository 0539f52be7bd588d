"""Trials of two different texts at once, as two rows of a batch.

Code that treats only the first row of a cache rightly is right for one text.
"""

from collections.abc import Sequence
from copy import copy

import torch

from ropelab.conformance.laws.law import Case, Comparison, measure_differences
from ropelab.conformance.laws.subject import Stages


def double(case: Case) -> Case:
    """Return the same case with a second text, which is the first one backwards."""
    both = copy(case)
    both.tokens = torch.cat([case.tokens, case.tokens.flip(1)])
    both.__dict__.pop("whole", None)
    return both


def split(case: Case) -> list[Case]:
    """Return a case for each row, with the same rotations."""
    if len(case.tokens) == 1:
        return [case]
    cases = []
    for row in range(len(case.tokens)):
        single = copy(case)
        single.tokens = case.tokens[row : row + 1]
        single.__dict__.pop("whole", None)
        cases.append(single)
    return cases


def select(stages: Stages, row: int) -> Stages:
    """Return the stages of one row."""
    return [stage[row : row + 1] for stage in stages]


def find_worst(comparisons: Sequence[Comparison]) -> Comparison:
    """Return the comparison of the row with the largest difference.

    If the other row is wrong, too, its mistake may be the same, which the trial of one
    text names.
    """
    sizes = []
    for comparison in comparisons:
        logits, expected = comparison.got[-1], comparison.expected[-1]
        sizes.append(float(measure_differences(logits, expected).max()))
    worst = sizes.index(max(sizes))
    comparison = comparisons[worst]
    explain = comparison.explain
    if len(comparisons) == 1 or explain is None:
        return comparison

    def explain_row() -> str:
        says = explain()
        return f"row {worst} of {len(comparisons)}: {says}" if says else ""

    return comparison._replace(explain=explain_row)
