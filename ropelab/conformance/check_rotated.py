"""Check rotated vectors against what right implementations lose by rounding.

A right implementation may compute in float32 or in a smaller format, and how much it
may lose then is known for each position (`bound_rotated`). Vectors within one of these
bounds are right. For all other vectors the mistake is sought.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ropelab.conformance.diagnosis import Check, diagnose
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Positions, Rotated, Vectors
from ropelab.conformance.pairs import restore_pairs
from ropelab.conformance.rotations import (
    NOT_PAIRED,
    RETURNED_AS_HALVES,
    STILL,
    observe_vectors,
)
from ropelab.conformance.vectors import bound_rotated
from ropelab.math.numerics.budget import KINDS, Kind
from ropelab.runs.arrays import Bool, Float
from ropelab.runs.errors import InputError


def check_rotated(
    before: Vectors,
    after: Rotated,
    positions: Positions,
    expected: Expected,
    tolerance: float,
) -> Check:
    """Judge vectors before and after their rotation.

    Args:
        before: [vectors, head_dim], or [positions, vectors, head_dim].
        after: [positions, vectors, head_dim].
        positions: the position of each row of ``after``.
        expected: what a right code computes.
        tolerance: radians by which an angle may be off beyond what float32 loses.
    """
    spec = expected.spec
    right_vectors = expected.rotation.apply(before, positions)
    bounds = {}
    for kind in KINDS:
        bounds[kind] = bound_rotated(expected, kind, before, positions)

    # Some codes take adjacent pairs and return them as two halves of the head, which is
    # right, too.
    if spec.pairing == "interleaved":
        restored = restore_pairs(after, spec)
        answer = describe_within(restored - right_vectors, bounds, positions)
        if answer:
            return Check(f"{answer}; {RETURNED_AS_HALVES}", wrong=False)
    answer = describe_within(after - right_vectors, bounds, positions)
    if answer:
        return Check(answer, wrong=False)

    # The last kind has the widest bound.
    widest = KINDS[-1]
    bound = bounds[widest]
    errors = measure_errors(after - right_vectors)
    worst = int((errors - bound).argmax())
    problem = (
        f"off by {errors[worst]:.3g} at position {positions[worst]}, where an honest"
        f" {widest} code loses {bound[worst]:.3g}; "
    )
    try:
        observed = observe_vectors(before, after, positions, spec)
    # The vectors may be too few to show what each pair is multiplied by.
    except InputError as error:
        return Check(
            f"{problem}{error}", wrong=True, fix="compare position by position"
        )
    if observed.fault == NOT_PAIRED:
        errors_of_features = np.abs(after - right_vectors)
        errors_of_vectors = errors_of_features.max(axis=2)  # [positions, vectors]
        is_wrong = (errors_of_vectors > bound[:, None]).any(axis=0)
        fault_of_some = explain_some_vectors(before, after, is_wrong, expected)
        if fault_of_some:
            return fault_of_some
    # The diagnosis recovers frequencies from position 1 on.
    if observed.fault is None and 1 not in positions:
        answer = f"{problem}without position 1 the mistake has no name"
        return Check(answer, wrong=True, fix="add position 1")

    result = diagnose(observed, expected, tolerance)
    if result.wrong:
        return result
    # The diagnosis found no mistake. The vectors are wrong all the same, since they exceed
    # every bound.
    return replace(result, answer=problem + result.answer, wrong=True)


def describe_within(
    differences: Rotated,
    bounds: Mapping[Kind, Float[np.ndarray, " n"]],
    positions: Positions,
) -> str:
    """Return the answer for vectors that are within a bound; empty if they exceed every
    bound.

    Args:
        differences: the observed vectors less the right vectors.
        bounds: the largest error at each position, for each kind of right code.
        positions: the positions.
    """
    errors = measure_errors(differences)
    for kind, bound in bounds.items():
        if (errors <= bound).all():
            # The bound grows with the position, so errors are compared as shares of it. A
            # bound of 0, of a vector of zeros, has an error of 0.
            shares = errors / np.maximum(bound, np.finfo(np.float64).tiny)
            worst = int(shares.argmax())
            largest = (
                f"{errors[worst]:.2g}, allowed {bound[worst]:.2g}, at position"
                f" {positions[worst]}"
            )
            return f"right, as an honest {kind} code loses as much ({largest})"
    return ""


def measure_errors(differences: Rotated) -> Float[np.ndarray, " n"]:
    """Return the largest error at each position; infinity for NaN."""
    errors = np.abs(differences).max(axis=(1, 2))
    return np.nan_to_num(errors, nan=math.inf)


def explain_some_vectors(
    before: Vectors,
    after: Rotated,
    is_wrong: Bool[np.ndarray, " vectors"],
    expected: Expected,
) -> Check | None:
    """Name the wrong vectors (heads) if at least one vector is right.

    None: all vectors are wrong, or one vector has so many zeros that it would not show a
    mistake in all pairs.
    """
    rotated = before[..., expected.spec.rotated]
    nonzero_shares = (rotated != 0).mean(axis=-1)
    is_dense = nonzero_shares.min() > 0.5
    if is_wrong.all() or not is_dense:
        return None

    how = "rotated otherwise than the others, which are right"
    changes = np.abs((after - before)[:, is_wrong])
    if changes.max() <= STILL:
        how = "not rotated"
    numbers = [str(number) for number in np.flatnonzero(is_wrong)]
    vectors = "vector" if len(numbers) == 1 else "vectors"
    which = f"{vectors} {', '.join(numbers)} of {len(is_wrong)}"
    return Check(f"{which}: {how}", wrong=True, fix="rotate all heads alike")
