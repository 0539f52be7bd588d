"""Faults of the block of features that rotates: its pairs, width and place in a head.

A configuration lets a block of ``rotary_dim`` features rotate, from feature
``spec.place`` of a head on. The features of its pairs are either half of the block apart
or neighbours. Here the pairs that a code was seen to rotate are compared with these.
"""

import numpy as np

from ropelab.conformance.observation import Fault, Features, Partner
from ropelab.conformance.pairs import expect_pairs
from ropelab.readers.spec import RopeSpec


def explain_place(
    first: Features,
    second: Features,
    spec: RopeSpec,
) -> tuple[Partner, Fault | None]:
    """Return how pairs are formed, and a fault if the wrong features form them.

    ``first`` and ``second`` are the features of the pairs that a code rotates.
    """
    # The direction of the rotation, which the order of the two shows, is not judged.
    first, second = np.sort([first, second], axis=0)
    if spec.pairing == "half":
        right_pairing = "half"
        step = spec.rotary_dim // 2
        fix = "pair i and i + d/2"
    else:
        right_pairing = "adjacent"
        step = 1
        fix = "pair 2i and 2i + 1"

    fault = explain_stride(first, second, spec)
    if fault:
        return "irregular", fault

    gaps = np.unique(second - first)
    width = 2 * len(first)
    partner = name_partner(gaps, width)
    other_gap = f"features i and i + {gaps[0]} form a pair instead of i and i + {step}"
    has_right_gaps = np.array_equal(gaps, [step])

    # In Gemma 4 some pairs have frequency 0, so that fewer pairs move.
    moving = np.count_nonzero(spec.inv_freq(spec.length))
    some_stand_still = moving < spec.rotary_dim // 2
    if some_stand_still and len(first) == moving and not has_right_gaps:
        fix = f"{fix}; the exponent divides by {spec.rotary_dim}"
        return partner, (other_gap, fix)

    if partner == "irregular" and has_right_gaps:
        return partner, explain_missing_pairs(first, spec)
    if partner == "irregular" and len(gaps) == 1:
        return partner, (other_gap, fix)
    if partner not in ("unknown", right_pairing):
        answer = f"{partner} pairing instead of {right_pairing}"
        sums = np.unique(first + second)
        if partner == "irregular" and len(sums) == 1:
            answer += f": features i and {sums[0]} - i form a pair"
        return partner, (answer, fix)

    start = int(first.min())
    end = int(second.max())
    return partner, explain_start(start, end, width, spec)


def explain_stride(first: Features, second: Features, spec: RopeSpec) -> Fault | None:
    """Name features that rotate at equal distances, with features between them that do
    not rotate.
    """
    if len(first) < 2 or spec.head_dim == spec.rotary_dim:
        return None
    instead = f"instead of a block of {spec.rotary_dim}"
    fix = f"rotate features {spec.place} to {spec.rotated[-1]}"

    rotated = np.sort(np.concatenate([first, second]))
    steps = np.diff(rotated)
    step = steps[0]
    if (steps == step).all() and step > 1:
        which = "every second feature"
        if step > 2:
            which = f"one feature in {step}"
        return f"{which} rotates, from {rotated[0]} on, {instead}", fix

    gaps = np.diff(first)
    gap = gaps[0]
    are_neighbours = (second - first == 1).all()
    if are_neighbours and (gaps == gap).all() and gap > 2:
        return f"two features in {gap} rotate, from {first[0]} on, {instead}", fix
    return None


def name_partner(gaps: Features, width: int) -> Partner:
    """Return how pairs are formed.

    Args:
        gaps: the different distances between the two features of a pair.
        width: the number of features that rotate.
    """
    if np.array_equal(gaps, [1]) and width > 2:
        return "adjacent"
    if not np.array_equal(gaps, [width // 2]):
        return "irregular"
    if width > 2:
        return "half"
    # A single pair is formed in the same way by both pairings.
    return "unknown"


def explain_missing_pairs(first: Features, spec: RopeSpec) -> Fault:
    """Name the pairs that do not rotate, or another number of features that do."""
    width = 2 * len(first)
    moving = list_moving_pairs(spec)
    still = np.setdiff1d(moving, first)
    if not len(still):
        answer = f"{width} features rotate instead of {2 * len(moving)}"
        return answer, f"rotate {2 * len(moving)} features"

    answer = (
        f"{len(still)} of {len(moving)} pairs do not rotate, the first at feature"
        f" {still[0]}"
    )
    fix = "rotate all pairs"
    if len(moving) < spec.rotary_dim // 2:
        fix = f"rotate the first {len(moving)} pairs of {spec.rotary_dim // 2}"
    return answer, fix


def list_moving_pairs(spec: RopeSpec) -> Features:
    """Return the lower features of the pairs whose frequency is not 0."""
    one_feature, other_feature = expect_pairs(spec)
    lower = np.minimum(one_feature, other_feature)
    return lower[spec.inv_freq(spec.length) != 0]


def explain_start(
    start: int,
    end: int,
    width: int,
    spec: RopeSpec,
) -> Fault | None:
    """Name the features that rotate in place of the right features."""
    if start == spec.place:
        return None
    if width > spec.rotary_dim:
        answer = f"{width} features rotate instead of {spec.rotary_dim}"
        return answer, f"rotate {spec.rotary_dim} features"
    last = spec.rotated[-1]
    answer = f"features {start} to {end} rotate instead of {spec.place} to {last}"
    return answer, f"rotate features {spec.place} to {last} of a head"
