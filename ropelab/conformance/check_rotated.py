"""Check rotated vectors against what honest codes lose."""

import math
from dataclasses import replace

import numpy as np

from ropelab.conformance.diagnosis import Check, diagnose
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Positions, Rotated, Vectors
from ropelab.conformance.pairs import restore_pairs
from ropelab.conformance.rotations import (
    LEFT_IN_HALVES,
    NOT_PAIRED,
    STILL,
    observe_vectors,
)
from ropelab.conformance.vectors import bound_rotated
from ropelab.math.numerics.budget import KINDS
from ropelab.runs.arrays import Bool
from ropelab.runs.errors import InputError


def check_rotated(
    before: Vectors,
    after: Rotated,
    places: Positions,
    expected: Expected,
    tolerance: float,
) -> Check:
    """Judge rotated vectors by what honest codes lose, then by known mistakes.

    Args:
        before: [vectors, features], or such at each position.
        after: [positions, vectors, features].
        places: the positions.
        expected: what a right code computes.
        tolerance: radians that a phase may be off beyond what float32 loses.
    """
    spec = expected.spec
    bounds = {kind: bound_rotated(expected, kind, before, places) for kind in KINDS}
    right = expected.rotation.apply(before, places)
    orders = {"": after}
    if spec.pairing == "interleaved":
        halves = restore_pairs(after, spec)
        orders = {f"; {LEFT_IN_HALVES}": halves, "": after}

    # What follows the loops is said of the last order and the widest bound.
    for note, given in orders.items():
        errors_of_vectors = np.abs(given - right).max(axis=2)
        errors = errors_of_vectors.max(axis=1)
        errors = np.nan_to_num(errors, nan=math.inf)
        for kind, bound in bounds.items():
            worst = int((errors - bound).argmax())
            if (errors <= bound).all():
                most = (
                    f"{errors[worst]:.2g}, allowed {bound[worst]:.2g}, at position"
                    f" {places[worst]}"
                )
                answer = f"right, as an honest {kind} code loses as much ({most}){note}"
                return Check(answer, False)
    off = (
        f"off by {errors[worst]:.3g} at position {places[worst]}, where an honest"
        f" {kind} code loses {bound[worst]:.3g}; "
    )

    try:
        observed = observe_vectors(before, after, places, spec)
    # The vectors may be too few.
    except InputError as error:
        return Check(f"{off}{error}", True, "compare position by position")
    if observed.fault == NOT_PAIRED:
        wrong = (errors_of_vectors > bound[:, None]).any(axis=0)
        some_are_wrong = explain_some_vectors(before, after, wrong, expected)
        if some_are_wrong:
            return some_are_wrong
    if observed.fault is None and 1 not in places:
        answer = f"{off}without position 1 the mistake has no name"
        return Check(answer, True, "add position 1")

    done = diagnose(observed, expected, tolerance)
    if done.wrong:
        return done
    return replace(done, answer=off + done.answer, wrong=True)


def explain_some_vectors(
    before: Vectors,
    after: Rotated,
    wrong: Bool[np.ndarray, " vectors"],
    expected: Expected,
) -> Check | None:
    """Name the vectors (heads) that are wrong beside others that are right."""
    # A mistake in pairs shows in every vector, unless it has zeros there.
    rotated = before[..., expected.spec.rotated]
    is_dense = (rotated != 0).mean(axis=-1).min() > 0.5
    if wrong.all() or not is_dense:
        return None

    how = "rotated otherwise than the others, which are right"
    changes = np.abs((after - before)[:, wrong])
    if changes.max() <= STILL:
        how = "not rotated"
    numbers = [str(number) for number in np.flatnonzero(wrong)]
    vectors = "vector" if len(numbers) == 1 else "vectors"
    which = f"{vectors} {', '.join(numbers)} of {len(wrong)}"
    return Check(f"{which}: {how}", True, "rotate all heads alike")
