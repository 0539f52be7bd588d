"""Combine the answers about the parts of a code (queries, keys, tables) into one.

Each part has a name: q, k, or "cos and sin". If a code has a single part, its name is "".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ropelab.conformance import axes_sheet
from ropelab.conformance.diagnosis import Check
from ropelab.conformance.rotations import RETURNED_AS_HALVES
from ropelab.runs.rows import group_pairs
from ropelab.runs.sentences import join_names


def combine(checks: Mapping[str, Check]) -> Check:
    """Return one answer about all parts, or about the wrong parts if some are wrong.

    Parts with the same answer are named together.
    """
    reported = {part: check for part, check in checks.items() if check.wrong}
    if not reported:
        mixed = explain_mixed_orders(checks)
        if mixed:
            return mixed
        reported = dict(checks)

    first = next(iter(reported.values()))
    answers_of_parts = []
    for part, check in reported.items():
        if part:
            answers_of_parts.append((check.answer, part))
    sentences = []
    for answer, parts in group_pairs(answers_of_parts).items():
        sentences.append(f"{join_parts(parts)}: {answer}")
    if not sentences:
        return first
    return replace(first, answer="; ".join(sentences))


def join_parts(parts: Sequence[str]) -> str:
    """Join names of parts; `at several axes`, if all names end so, is said once."""
    ending = axes_sheet.AT_AXES
    if all(part.endswith(ending) for part in parts):
        return join_names([part.removesuffix(ending) for part in parts]) + ending
    return join_names(parts)


def explain_mixed_orders(checks: Mapping[str, Check]) -> Check | None:
    """Name queries and keys that come back in different orders of features.

    Queries and keys are right by themselves, but their scores are wrong. None: both
    come back in the same order.
    """
    halves: list[str] = []
    pairs: list[str] = []
    for part, check in checks.items():
        if part == "cos and sin":
            continue
        if RETURNED_AS_HALVES in check.answer:
            halves.append(part)
        else:
            pairs.append(part)

    if not halves or not pairs:
        return None
    answer = (
        f"{halves[0]} comes back as halves and {pairs[-1]} as adjacent pairs: no score"
        " is right"
    )
    fix = "leave both in one order"
    return replace(checks[halves[0]], answer=answer, wrong=True, fix=fix)
