"""Check code that takes positions of several axes, and encoders of images."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ropelab.conformance.axes import explain_axis_frequencies, explain_movement
from ropelab.conformance.axes_positions import choose_axes_positions
from ropelab.conformance.axes_slow_pairs import describe_untold, find_untold_pairs
from ropelab.conformance.diagnosis import Check
from ropelab.conformance.expected import AXES_NOT_JUDGED, Expected
from ropelab.conformance.observation import Ask, Fault, Observed, are_bounded
from ropelab.conformance.parts import combine
from ropelab.conformance.rotations import NOT_FINITE


def check_axes(done: Check, ask: Ask, expected: Expected) -> Check:
    """Judge which axis of positions each pair reads, if the code takes several.

    Code that refuses them is not accused: it may merge axes elsewhere. Of a code that is
    wrong for text, too, the ladder of an axis may be the reason.
    """
    positions = choose_axes_positions(expected, is_grid=False)
    try:
        parts = ask(expected.spec, positions)
    # The user's code may raise anything.
    except Exception:
        return done

    explain = explain_axis_frequencies if done.wrong else explain_movement
    for part, observed in parts.items():
        fault = observed.fault
        if not fault:
            fault = explain(observed, expected, positions)
        if fault and not (observed.fault and done.wrong):
            return accuse(done, part, fault)
    if done.wrong or not parts:
        return done
    judged_too = done.answer.replace(f"; {AXES_NOT_JUDGED}", "")
    untold: set[int] = set()
    for observed in parts.values():
        untold.update(find_untold_pairs(observed, expected, positions))
    exception = describe_untold(sorted(untold), positions)
    answer = f"{judged_too}; axes of positions are right{exception}"
    return replace(done, answer=answer)


def accuse(done: Check, part: str, fault: Fault) -> Check:
    """Return an answer with what is wrong in a part, as queries or keys."""
    answer, fix = fault
    if part:
        answer = f"{part}: {answer}"
    return replace(done, answer=answer, wrong=True, fix=fix)


def check_images(ask: Ask, expected: Expected) -> Check:
    """Judge a code of an encoder of images, by rows and columns of patches.

    All patches of an image come first; code that takes positions has others, too.
    """
    spec = expected.spec
    grid = choose_axes_positions(expected, is_grid=True)
    done = judge_images(ask(spec, grid), expected, grid)
    if done.wrong or (spec.axes and spec.axes.centred):
        return done

    scattered = choose_axes_positions(expected, is_grid=False)
    try:
        parts = ask(spec, scattered)
    # A table may end before, or the code takes whole images alone.
    except Exception:
        return done
    if not parts:
        return done
    return judge_images(parts, expected, scattered)


def judge_images(
    parts: Mapping[str, Observed],
    expected: Expected,
    positions: np.ndarray,
) -> Check:
    spec = expected.spec
    assert spec.axes is not None
    names = " and ".join(spec.axes.names)
    right = f"{names} move their pairs at {positions.shape[1]} patches"
    checks = {}
    for part, observed in parts.items():
        is_finite = are_bounded(observed.cos)
        fault = observed.fault
        if not (is_finite and are_bounded(observed.sin)):
            fault = NOT_FINITE
        if not fault:
            fault = explain_movement(observed, expected, positions)
        if fault:
            answer, fix = fault
            checks[part] = Check(answer, True, fix, called=observed.called)
        else:
            untold = find_untold_pairs(observed, expected, positions)
            answer = right + describe_untold(untold, positions)
            checks[part] = Check(answer, False, called=observed.called)
    return combine(checks)
