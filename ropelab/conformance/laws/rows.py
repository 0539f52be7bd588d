"""Trials of two different texts at once, as two rows of a batch.

Code that treats only the first row of a cache rightly is right for one text.
"""

from collections.abc import Sequence

import torch

from ropelab.conformance.laws.law import (
    LARGEST_UNREPORTED,
    Case,
    Comparison,
)
from ropelab.conformance.laws.subject import Stages


def double(case: Case) -> Case:
    """Return the same case with a second text, which is the first one backwards."""
    return case.with_tokens(torch.cat([case.tokens, case.tokens.flip(1)]))


def split(case: Case) -> list[Case]:
    """Return a case for each row, with the same rotations."""
    # The answers of the only row need not be computed again.
    if len(case.tokens) == 1:
        return [case]
    return [case.with_tokens(tokens[None]) for tokens in case.tokens]


def select(stages: Stages, row: int) -> Stages:
    """Return the stages of one row."""
    return [stage[row : row + 1] for stage in stages]


def find_worst(comparisons: Sequence[Comparison]) -> Comparison:
    """Return the comparison of the row with the largest difference.

    The row is named unless all rows have the same mistake.
    """
    if len(comparisons) == 1:
        return comparisons[0]
    sizes = [comparison.size for comparison in comparisons]
    worst = sizes.index(max(sizes))

    def explain_row() -> str:
        sentences = []
        for comparison, size in zip(comparisons, sizes, strict=True):
            sentence = ""
            if size > LARGEST_UNREPORTED and comparison.explain is not None:
                sentence = comparison.explain()
            sentences.append(sentence)
        says = sentences[worst]
        is_the_same = len(set(sentences)) == 1
        if is_the_same or not says:
            return says
        return f"row {worst} of {len(comparisons)}: {says}"

    return comparisons[worst]._replace(explain=explain_row)
