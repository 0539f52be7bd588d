"""Check code that can be asked at any position.

The code is asked at the length of the configuration. If it scales, it is also asked at
other lengths, at which the scaling may have to change or has to stay.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ropelab.conformance.check_axes import check_axes, check_images
from ropelab.conformance.diagnosis import Check, diagnose, judge
from ropelab.conformance.expected import Expected, choose_positions
from ropelab.conformance.observation import (
    Answer,
    Ask,
    AskInTurn,
    Observed,
    Positions,
    make_in_turn,
)
from ropelab.conformance.parts import combine
from ropelab.math.scaling import DynamicNtk, LongRope, Unscaled

# The name of a part of a code's answer (q, k, or "" if it has one part), what was seen of
# the part, and what it should be.
Part = tuple[str, Observed, Expected]


def judge_code(
    ask: Ask,
    expected: Expected,
    tolerance: float,
    ask_in_turn: AskInTurn | None = None,
) -> Check:
    """Judge a code at the length that is expected, and then at other lengths.

    Args:
        ask: returns what the code computes at some positions.
        expected: what it should compute.
        tolerance: radians by which an angle may be off beyond what float32 loses.
        ask_in_turn: asks one object at several lengths, since what it has seen at one may
            change what it computes at the next. None: `ask` always asks the same object.
    """
    if expected.is_of_images:
        return check_images(ask, expected)
    positions = choose_positions(expected)
    parts = []
    for part, observed in ask(expected.spec, positions).items():
        parts.append((part, observed, limit_length(observed, expected)))
    result = judge_parts(parts, tolerance)

    if expected.spec.axes:
        result = check_axes(result, ask, expected)
    if result.wrong or isinstance(expected.spec.scaling, Unscaled):
        return result
    ask_in_turn = ask_in_turn or make_in_turn(ask)
    return judge_other_lengths(result, ask_in_turn, expected, tolerance)


def judge_parts(parts: Iterable[Part], tolerance: float) -> Check:
    """Judge each part of an answer, and make one answer of the results."""
    checks = {}
    for part, observed, expected in parts:
        checks[part] = diagnose(observed, expected, tolerance)
    return combine(checks)


def judge_other_lengths(
    result: Check,
    ask_in_turn: AskInTurn,
    expected: Expected,
    tolerance: float,
) -> Check:
    """Judge a code at other lengths, after it was right at the expected length.

    Code that keeps its frequencies at all lengths, and is not told the length, may be
    built anew for another length: it is not accused.
    """
    scales_by_length = isinstance(expected.spec.scaling, LongRope | DynamicNtk)
    has_changed = False
    remark = ""
    lengths = list_lengths(expected)
    if isinstance(expected.spec.scaling, DynamicNtk) and len(lengths) > 1:
        # A code may keep the base of the longest context so far.
        lengths.append(lengths[0])
    positions_of_lengths = [choose_positions_at(length, expected) for length in lengths]
    answers = ask_in_turn(expected.spec, positions_of_lengths)
    for number, (length, answer) in enumerate(zip(lengths, answers, strict=True)):
        parts = list_parts(answer, expected)
        is_told = False
        for _, observed, _ in parts:
            if judge(observed, expected, tolerance).wrong:
                has_changed = True
            if scales_by_length and observed.told_length:
                is_told = True

        result_here = result
        if parts:
            result_here = judge_parts(parts, tolerance)
        if result_here.wrong and (has_changed or is_told):
            said = f"{result_here.answer} ({length} tokens)"
            if length in lengths[:number]:
                said = (
                    f"{length} tokens after {lengths[number - 1]} have other frequencies"
                    f" than before: {result_here.answer}"
                )
            return replace(result_here, answer=said)
        if scales_by_length and (result_here.wrong or not parts):
            remark = f"; no other frequencies were seen at {length} tokens"
    return replace(result, answer=result.answer + remark)


def list_lengths(expected: Expected) -> list[int]:
    """Return the other lengths at which a code is asked about its scaling."""
    spec = expected.spec
    trained = spec.trained_len
    short = trained // 4 + 1
    if isinstance(spec.scaling, LongRope):
        lengths = {trained - 1, trained, trained + 1}
    elif isinstance(spec.scaling, DynamicNtk):
        # The longer length is 1.3 times the trained length, and no power of two, since
        # some implementations round a length up to a power of two.
        lengths = {short, 13 * trained // 10 + 1}
    else:
        lengths = {short, max(expected.length, min(2 * trained, spec.length))}
    too_short = {1, 2, 3}
    return sorted(lengths - {expected.length} - too_short)


def choose_positions_at(length: int, expected: Expected) -> Positions:
    """Return the positions at which a code is asked in a context of this length."""
    positions = choose_positions(expected)
    last = length - 1
    inside = positions[positions < last - 1]
    # Code that chooses frequencies by each token's own position shows this mistake at a
    # position between these two.
    between = (int(inside.max()) + last) // 2
    return np.append(inside, [between, last])


def list_parts(answer: Answer | Exception, expected: Expected) -> list[Part]:
    """Return what a code computes in a context, and what it should.

    The list is empty if the code raised an error or does not rotate.
    """
    # The table of the code may end before the last position.
    if isinstance(answer, Exception):
        return []

    parts: list[Part] = []
    for part, observed in answer.items():
        if observed.fault:
            return []
        # The last position told the code how many tokens there are. It is left out.
        without_last = Observed(
            observed.positions[:-1],
            observed.cos[:-1],
            observed.sin[:-1],
            called=observed.called,
            told_length=observed.told_length,
        )
        parts.append((part, without_last, limit_length(observed, expected)))
    return parts


def limit_length(observed: Observed, expected: Expected) -> Expected:
    """Return what is expected of a context that ends with the last position asked for.

    A code that makes whole tables is asked for fewer positions than a context has.
    """
    return replace(expected, length=int(observed.positions[-1]) + 1)
