"""Read cos and sin of every pair off a code's tables or rotated vectors.

From vectors pairs, place and sign are read off as well: at each position the two
features of a pair become a 2 x 2 block times them, and a block that is no rotation is a
fault.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ropelab.conformance.blocks import describe_crossed
from ropelab.conformance.observation import (
    SHEARED,
    Features,
    Observed,
    Positions,
    Rotated,
    Table,
    Vectors,
    are_bounded,
)
from ropelab.conformance.pairs import (
    ZERO,
    expect_pairs,
    expect_rest,
    find_pairs,
    fit_blocks,
    list_other_pairs,
    pair_features,
    restore_pairs,
)
from ropelab.conformance.rotated_block import explain_place
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Float, Int
from ropelab.runs.errors import InputError

Rotate = Callable[
    [Float[np.ndarray, "tokens head_dim"], Int[np.ndarray, " tokens"]], np.ndarray
]
LEFT_IN_HALVES = (
    "adjacent pairs come back as halves, which scores of q and k alike do not see"
)
NOT_SHOWN = "pairs were not judged, as tables do not show them"
# Features that only pass lose less than this share of the largest, in bfloat16 or 8
# bits.
STILL = 2.0**-7
NOT_FINITE = ("rotated vectors are not finite", "see how they are made")
NOT_PAIRED = (
    "features do not rotate in pairs",
    "look at features 0 and 1 at position 1",
)
NOT_LINEAR = ("the code does more than rotate", "norms and limits belong outside")
NOT_ALONE = (
    "a token is rotated otherwise among other tokens",
    "rotate each by its own position",
)


def observe_tables(
    positions: Positions,
    cos: Table,
    sin: Table,
    spec: RopeSpec,
) -> Observed:
    """Return tables with a column per pair.

    Given a column per feature, each angle is there twice.
    """
    if cos.shape != sin.shape or cos.ndim != 2 or len(cos) != len(positions):
        raise InputError(
            f"cos {cos.shape} and sin {sin.shape} for {len(positions)} positions"
        )
    width = cos.shape[1]
    if not width:
        raise InputError("cos and sin have no columns")

    may_be_doubled = width % 2 == 0 and width != spec.rotary_dim // 2
    for order in ("half", "interleaved"):
        columns, others = pair_features(order, width)
        if not (may_be_doubled and are_equal(cos, sin, columns, others)):
            continue
        single = Observed(positions, cos[:, columns], sin[:, columns])
        # Codes of adjacent pairs read tables of either layout (GLM, DeepSeek).
        if order == "interleaved" and spec.pairing == "half":
            return replace(single, fault=describe_crossed("adjacent"), note=NOT_SHOWN)
        if order != spec.pairing:
            return replace(single, note=NOT_SHOWN)
        return single
    return Observed(positions, cos, sin, note=NOT_SHOWN)


def are_equal(
    cos: Table,
    sin: Table,
    columns: Features,
    others: Features,
) -> bool:
    """Return True if two halves of the columns have equal cos and sin."""
    same_cos = np.array_equal(cos[:, columns], cos[:, others])
    same_sin = np.array_equal(sin[:, columns], sin[:, others])
    return same_cos and same_sin


def observe_rotation(rotate: Rotate, spec: RopeSpec, positions: Positions) -> Observed:
    """Rotate unit vectors at all positions in one call, and observe them."""
    width = spec.head_dim
    count = len(positions)
    units = np.eye(width)

    # All are asked in one call, as some choose their table by the largest position; in
    # mixed order, but for the end, where some look for it.
    last_row = width * count - 1
    mixed_rows = np.random.default_rng(0).permutation(last_row)
    order = np.append(mixed_rows, last_row)
    mixed = rotate(units[order % width], positions[order // width])
    mixed = np.asarray(mixed, np.float64)
    if mixed.shape != (width * count, width):
        raise InputError(
            f"rotating vectors of {width} features gave shape {mixed.shape}"
        )
    after = mixed[np.argsort(order)].reshape(count, width, width)
    observed = observe_vectors(units, after, positions, spec)

    last = np.repeat(positions[-1:], width)
    alone = np.asarray(rotate(units, last), np.float64)
    difference = np.abs(after[-1] - alone).max()
    if difference > SHEARED * np.abs(alone).max():
        return replace(observed, fault=NOT_ALONE)

    # A rotation of sums is the sum of rotations; of a norm inside, unit vectors show
    # nothing. Rounding to a few bits stays far below a fifth, and nan is no rotation.
    dense = 3 * np.cos(np.arange(width**2)).reshape(width, width)
    rotated_sums = np.asarray(rotate(dense, last), np.float64)
    sums = dense @ alone
    difference = np.abs(rotated_sums - sums).max()
    if difference <= 0.2 * np.abs(sums).max():
        return observed
    return replace(observed, fault=observed.fault or NOT_LINEAR)


def observe_vectors(
    before: Vectors,
    after: Rotated,
    positions: Positions,
    spec: RopeSpec,
    ordered: bool = False,
) -> Observed:
    """Read pairs, place and blocks from vectors and their rotations at each position.

    Unless ``ordered``, adjacent pairs may come back as two halves, as DeepSeek's do.
    """
    is_moving = positions > 0
    if not is_moving.any():
        raise InputError("no position above 0 to look at")
    empty = np.empty((len(positions), 0))
    nothing = Observed(positions, empty, empty)

    if not are_bounded(after):
        is_finite = np.array([are_bounded(rows) for rows in after])
        seen = nothing
        # What they do at positions before may tell why.
        if (is_finite & is_moving).any():
            finite = after[is_finite]
            seen = observe_vectors(before, finite, positions[is_finite], spec)
        return replace(seen, fault=NOT_FINITE)

    most = np.abs(before).max()
    changes = np.abs(after - before)
    if changes[is_moving].max() <= ZERO * most:
        answer = "no rotation: the output equals the input"
        return replace(nothing, fault=(answer, "rotate queries and keys"))

    pairs = find_pairs(before, after, positions, spec)
    if pairs is None and not ordered:
        restored = restore_pairs(after, spec)
        observed = observe_vectors(before, restored, positions, spec, ordered=True)
        if observed.partner == "adjacent":
            return replace(observed, note=LEFT_IN_HALVES)
    if pairs is None:
        return replace(nothing, fault=NOT_PAIRED)

    blocks, _ = fit_blocks(before, after, *pairs)
    partner, fault = explain_place(*pairs, spec)
    rest = np.delete(np.arange(spec.head_dim), np.concatenate(pairs))
    rest_changes = changes[..., rest] > STILL * most
    if fault is None and rest_changes.any():
        answer = f"features {rest[0]} to {rest[-1]} do not rotate, but change"
        fault = (answer, "leave them alone")
    cos = blocks[..., 0, 0]
    sin = blocks[..., 1, 0]
    return Observed(positions, cos, sin, partner, fault, blocks)


def observe_signs(
    before: Vectors,
    after: Vectors,
    positions: Positions,
    spec: RopeSpec,
    note: str,
) -> Observed:
    """Read cos and sin off one vector of 1 and -1 per position.

    Its pairs are those of the other vectors.
    """
    first, second = expect_pairs(spec)
    if note == LEFT_IN_HALVES:
        after = restore_pairs(after, spec)
    x = before[:, first] + 1j * before[:, second]
    y = after[:, first] + 1j * after[:, second]
    rotations = y * x.conj() / 2

    fault = None
    rest = expect_rest(spec)
    changes = np.abs(after[:, rest] - before[:, rest])
    is_changed = (changes > STILL).any(axis=1)
    if is_changed.any():
        where = positions[is_changed].min()
        answer = f"features that do not rotate change at position {where}"
        fault = (answer, "leave them alone")
    return Observed(positions, rotations.real, rotations.imag, fault=fault, note=note)


def observe_pairs_of_axes(
    before: Vectors,
    after: Vectors,
    positions: Positions,
    spec: RopeSpec,
) -> Observed:
    """Read cos and sin off one vector per position, whose pairs may be others.

    The right pairs are those whose lengths stay; others are a fault.
    """
    orders = {"": expect_pairs(spec), **list_other_pairs(spec)}
    stretches = {}
    for answer, (first, second) in orders.items():
        x = before[:, first] + 1j * before[:, second]
        y = after[:, first] + 1j * after[:, second]
        lengths = np.abs(y) / np.abs(x)
        middle = np.median(lengths)
        stretches[answer] = np.abs(lengths - middle).max() / max(middle, 1e-30)

    note = ""
    if spec.pairing == "interleaved":
        first, second = expect_pairs(spec)
        restored = restore_pairs(after, spec)
        lengths = np.hypot(restored[:, first], restored[:, second])
        is_rotation = np.ptp(lengths) < SHEARED * lengths.max()
        if is_rotation and stretches[""] >= SHEARED:
            note = LEFT_IN_HALVES
    answer = min(stretches, key=stretches.__getitem__)
    if answer and not note and stretches[answer] < SHEARED <= stretches[""]:
        nothing = np.empty((len(positions), 0))
        features, partners = expect_pairs(spec)
        fix = f"features {features[0]} and {partners[0]} are the first pair"
        return Observed(positions, nothing, nothing, fault=(answer, fix))
    return observe_signs(before, after, positions, spec, note)
