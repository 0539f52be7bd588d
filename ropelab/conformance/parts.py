"""One answer for the parts of a code: queries, keys, and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ropelab.conformance import axes_sheet
from ropelab.conformance.diagnosis import Check
from ropelab.conformance.rotations import LEFT_IN_HALVES
from ropelab.runs.rows import group_pairs
from ropelab.runs.sentences import join_names


def combine(checks: Mapping[str, Check]) -> Check:
    """Return one answer for queries and keys.

    It has only what is wrong, and equal answers once.
    """
    reported = {part: check for part, check in checks.items() if check.wrong}
    if not reported:
        mixed = explain_mixed_orders(checks)
        if mixed:
            return mixed
        reported = dict(checks)

    first = next(iter(reported.values()))
    named = [(check.answer, part) for part, check in reported.items() if part]
    answers = []
    for answer, parts in group_pairs(named).items():
        answers.append(f"{join_parts(parts)}: {answer}")
    if not answers:
        return first
    return replace(first, answer="; ".join(answers))


def join_parts(parts: Sequence[str]) -> str:
    """Return the names of parts, and once that they are at several axes."""
    ending = axes_sheet.AT_AXES
    if all(part.endswith(ending) for part in parts):
        return join_names([part.removesuffix(ending) for part in parts]) + ending
    return join_names(parts)


def explain_mixed_orders(checks: Mapping[str, Check]) -> Check | None:
    """Name queries and keys in different orders of features.

    No score of them is right.
    """
    halves: list[str] = []
    pairs: list[str] = []
    for part, check in checks.items():
        if part == "cos and sin":
            continue
        if LEFT_IN_HALVES in check.answer:
            halves.append(part)
        else:
            pairs.append(part)
    if not (halves and pairs):
        return None
    answer = (
        f"{halves[0]} comes back as halves and {pairs[-1]} as adjacent pairs: no score"
        " is right"
    )
    fix = "leave both in one order"
    return replace(checks[halves[0]], answer=answer, wrong=True, fix=fix)
