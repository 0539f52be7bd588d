"""Check code that can be asked at any position, at its length and at others."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ropelab.conformance.check_axes import check_axes, check_images
from ropelab.conformance.diagnosis import Check, diagnose, judge
from ropelab.conformance.expected import Expected, choose_positions
from ropelab.conformance.observation import Ask, Observed
from ropelab.conformance.parts import combine
from ropelab.math.scaling import DynamicNtk, LongRope, Unscaled

# The name of a part of an answer, what was seen of it, and what should be.
Part = tuple[str, Observed, Expected]


def judge_code(ask: Ask, expected: Expected, tolerance: float) -> Check:
    """Judge a code at its length, and at others.

    There its scaling is another, or must not be.
    """
    if expected.is_of_images:
        return check_images(ask, expected)
    positions = choose_positions(expected)
    parts = []
    for part, observed in ask(expected.spec, positions).items():
        parts.append((part, observed, limit_length(observed, expected)))
    done = judge_parts(parts, tolerance)

    if expected.spec.axes:
        done = check_axes(done, ask, expected)
    if done.wrong or isinstance(expected.spec.scaling, Unscaled):
        return done
    return judge_other_lengths(done, ask, expected, tolerance)


def judge_parts(parts: Iterable[Part], tolerance: float) -> Check:
    """Judge each part of an answer, as queries and keys, and combine what is said."""
    checks = {}
    for part, observed, expected in parts:
        checks[part] = diagnose(observed, expected, tolerance)
    return combine(checks)


def judge_other_lengths(
    done: Check,
    ask: Ask,
    expected: Expected,
    tolerance: float,
) -> Check:
    """Judge a code that is right at its length at the others that its scaling has."""
    by_length = isinstance(expected.spec.scaling, LongRope | DynamicNtk)
    # Whether it has had other frequencies at another length.
    follows = False
    unseen = ""
    for length in list_lengths(expected):
        parts = ask_at_length(length, ask, expected)
        is_told = False
        for _, observed, _ in parts:
            if judge(observed, expected, tolerance).wrong:
                follows = True
            if by_length and observed.told_length:
                is_told = True

        here = done
        if parts:
            here = judge_parts(parts, tolerance)
        if here.wrong and (follows or is_told):
            return replace(here, answer=f"{here.answer} ({length} tokens)")
        if by_length and (here.wrong or not parts):
            unseen = f"; no other frequencies were seen at {length} tokens"
    return replace(done, answer=done.answer + unseen)


def list_lengths(expected: Expected) -> list[int]:
    """Return further lengths at which a scaling shows, or must not."""
    spec = expected.spec
    start = spec.trained_len
    inside = start // 4 + 1
    if isinstance(spec.scaling, LongRope):
        lengths = {start - 1, start, start + 1}
    elif isinstance(spec.scaling, DynamicNtk):
        # No power of two, to which some codes round; common slips differ there.
        lengths = {inside, 13 * start // 10 + 1}
    else:
        lengths = {inside, max(expected.length, min(2 * start, spec.length))}
    return sorted(lengths - {expected.length, 1, 2, 3})


def ask_at_length(length: int, ask: Ask, expected: Expected) -> list[Part]:
    """Return what a code does among so many tokens, and what it should.

    It is empty if the code stops.
    """
    positions = choose_positions(expected)
    last = length - 1
    inside = positions[positions < last]
    try:
        answers = ask(expected.spec, np.append(inside, last))
    # A table may end before.
    except Exception:
        return []

    parts: list[Part] = []
    for part, observed in answers.items():
        if observed.fault:
            return []
        # The last row only tells the code how many tokens there are.
        rows = Observed(
            observed.positions[:-1],
            observed.cos[:-1],
            observed.sin[:-1],
            called=observed.called,
            told_length=observed.told_length,
        )
        parts.append((part, rows, limit_length(observed, expected)))
    return parts


def limit_length(observed: Observed, expected: Expected) -> Expected:
    """Return what is expected of the tokens asked for, which a whole table limits."""
    return replace(expected, length=int(observed.positions[-1]) + 1)
