"""Check implementations that take positions of several axes, and encoders of images."""

from collections.abc import Mapping
from dataclasses import replace

from ropelab.conformance.axes import explain_axis_frequencies, explain_movement
from ropelab.conformance.axes_positions import choose_axes_positions
from ropelab.conformance.axes_slow_pairs import describe_undecided, find_undecided_pairs
from ropelab.conformance.diagnosis import Check
from ropelab.conformance.expected import AXES_NOT_JUDGED, Expected
from ropelab.conformance.observation import Ask, Fault, Observed, are_bounded
from ropelab.conformance.parts import combine
from ropelab.conformance.rotations import NOT_FINITE
from ropelab.math.axes import Positions


def check_axes(result: Check, ask: Ask, expected: Expected) -> Check:
    """Judge which axis of positions moves each pair, if the code takes several axes.

    Code that refuses several axes is not accused, since it may merge them elsewhere.

    Args:
        result: how the code was judged for text, whose positions are equal on all axes.
        ask: returns what the code computes at some positions.
        expected: what it should compute.
    """
    positions = choose_axes_positions(expected, is_grid=False)
    try:
        parts = ask(expected.spec, positions)
    # The user's code may raise anything.
    except Exception:
        return result

    if result.wrong:
        return explain_wrong_text(result, parts, expected, positions)
    for part, observed in parts.items():
        fault = observed.fault or explain_movement(observed, expected, positions)
        if fault:
            return accuse(result, part, fault)
    if not parts:
        return result

    answer = result.answer.replace(f"; {AXES_NOT_JUDGED}", "")
    undecided: set[int] = set()
    for observed in parts.values():
        undecided.update(find_undecided_pairs(observed, expected, positions))
    exception = describe_undecided(sorted(undecided), positions)
    answer = f"{answer}; axes of positions are right{exception}"
    return replace(result, answer=answer)


def explain_wrong_text(
    result: Check,
    parts: Mapping[str, Observed],
    expected: Expected,
    positions: Positions,
) -> Check:
    """Name frequencies or positions of an axis that make a code wrong for text, too."""
    for part, observed in parts.items():
        if observed.fault:
            continue
        fault = explain_axis_frequencies(observed, expected, positions)
        if fault:
            return accuse(result, part, fault)
    return result


def accuse(result: Check, part: str, fault: Fault) -> Check:
    """Return a result with the fault of a part, such as q or k, as its answer."""
    answer, fix = fault
    if part:
        answer = f"{part}: {answer}"
    return replace(result, answer=answer, wrong=True, fix=fix)


def check_images(ask: Ask, expected: Expected) -> Check:
    """Judge a code of an encoder of images, by rows and columns of patches.

    The code is asked for all patches of an image first, and then at rows and columns in
    no order. Code that takes nothing but the size of an image refuses the rows and
    columns.
    """
    spec = expected.spec
    grid = choose_axes_positions(expected, is_grid=True)
    result = judge_images(ask(spec, grid), expected, grid)
    # Centred positions are shares of a whole image.
    if result.wrong or (spec.axes and spec.axes.centred):
        return result

    scattered = choose_axes_positions(expected, is_grid=False)
    try:
        parts = ask(spec, scattered)
    # The table of the code may be too short, or the code may take only whole images.
    except Exception:
        return result
    if not parts:
        return result
    return judge_images(parts, expected, scattered)


def judge_images(
    parts: Mapping[str, Observed],
    expected: Expected,
    positions: Positions,
) -> Check:
    """Judge each part of a code's answer at the patches with these positions."""
    axes = expected.spec.axes
    assert axes is not None
    names = " and ".join(axes.names)
    right = f"{names} move their pairs at {positions.shape[1]} patches"

    checks = {}
    for part, observed in parts.items():
        fault = observed.fault
        if not (are_bounded(observed.cos) and are_bounded(observed.sin)):
            fault = NOT_FINITE
        if not fault:
            fault = explain_movement(observed, expected, positions)
        if fault:
            answer, fix = fault
            checks[part] = Check(answer, wrong=True, fix=fix, called=observed.called)
        else:
            undecided = find_undecided_pairs(observed, expected, positions)
            answer = right + describe_undecided(undecided, positions)
            checks[part] = Check(answer, wrong=False, called=observed.called)
    return combine(checks)
