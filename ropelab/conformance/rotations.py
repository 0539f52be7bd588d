"""Read cos and sin of every pair off the answer of a code (an implementation under
test).

The answer has tables, or rotated vectors.

Rotated vectors also show which features form a pair, and the 2 x 2 block that
multiplies each pair. If they show a mistake, it becomes the fault of the returned
`Observed`.

`observe_tables` takes cos and sin. `observe_rotation` asks a function that rotates
vectors, and `observe_vectors` takes vectors that were rotated. `observe_signs` and
`observe_pairs_of_axes` need only one vector per position. The first is for many
positions, and the second for positions of several axes.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ropelab.conformance.blocks import describe_crossed
from ropelab.conformance.observation import (
    EIGHT_BIT_ERROR,
    Fault,
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

# Takes vectors and the position of each, and returns the rotated vectors.
Rotate = Callable[
    [Float[np.ndarray, "tokens head_dim"], Int[np.ndarray, " tokens"]], np.ndarray
]
# Notes of an `Observed`: what was not judged, or is a matter of taste.
RETURNED_AS_HALVES = (
    "adjacent pairs come back as halves, which scores of q and k alike do not see"
)
SIGNED = (
    "sin has two signs in a pair, for code that exchanges the features of a pair without a"
    " sign; pairs were not judged"
)
NOT_SHOWN = "pairs were not judged, as tables do not show them"

# Faults of codes, each with the advice to the user.
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
# The largest change of features that do not rotate, as a share of the largest number.
# Rounding them to bfloat16 or to 8 bits changes them by less.
STILL = 2.0**-7
# The share of the largest number by which the rotation of a sum may differ from the sum
# of rotations. Rounding to a few bits stays far below.
LARGEST_NONLINEARITY = 0.2


def observe_tables(
    positions: Positions,
    cos: np.ndarray,
    sin: np.ndarray,
    spec: RopeSpec,
) -> Observed:
    """Return tables with a column per pair.

    Args:
        positions: the position of each row.
        cos: [positions, pairs], or [positions, features] with each angle twice.
        sin: in the same shape as cos.
        spec: what they should be.
    """
    if cos.shape != sin.shape or cos.ndim != 2 or len(cos) != len(positions):
        raise InputError(
            f"cos {cos.shape} and sin {sin.shape} for {len(positions)} positions"
        )
    width = cos.shape[1]
    if not width:
        raise InputError("cos and sin have no columns")

    undoubled = Observed(positions, cos, sin, note=NOT_SHOWN)
    may_be_doubled = width % 2 == 0 and width != spec.rotary_dim // 2
    if not may_be_doubled:
        return undoubled

    for order in ("half", "interleaved"):
        # If each angle is in two columns, one for each feature of its pair, one column of
        # each pair is kept.
        first_columns, second_columns = pair_features(order, width)
        if are_doubled(cos, sin, first_columns, second_columns):
            single = Observed(positions, cos[:, first_columns], sin[:, first_columns])
            # Codes that rotate adjacent pairs exist for tables of either order (GLM,
            # DeepSeek), so that only tables of adjacent pairs for pairs of halves are a
            # fault.
            if order == "interleaved" and spec.pairing == "half":
                fault = describe_crossed("adjacent")
                return replace(single, fault=fault, note=NOT_SHOWN)
            if order != spec.pairing:
                return replace(single, note=NOT_SHOWN)
            return single
        if are_doubled(cos, sin, first_columns, second_columns, sign=-1):
            # The sine of the second feature has the sign of the angle.
            columns = second_columns
            return Observed(positions, cos[:, columns], sin[:, columns], note=SIGNED)
    return undoubled


def are_doubled(
    cos: Table,
    sin: Table,
    first_columns: Features,
    second_columns: Features,
    sign: int = 1,
) -> bool:
    """Return True if the first columns have the cos of the second columns, and ``sign``
    times their sin.
    """
    same_cos = np.array_equal(cos[:, first_columns], cos[:, second_columns])
    same_sin = np.array_equal(sin[:, first_columns], sign * sin[:, second_columns])
    return same_cos and same_sin


def observe_rotation(rotate: Rotate, spec: RopeSpec, positions: Positions) -> Observed:
    """Rotate unit vectors at all positions in one call, and observe them."""
    width = spec.head_dim
    count = len(positions)
    units = np.eye(width)

    # One call has all vectors, since some codes choose their table by the largest
    # position. The order is mixed, but the largest position stays last, where some
    # codes look for it.
    last_row = width * count - 1
    mixed_rows = np.random.default_rng(0).permutation(last_row)
    order = np.append(mixed_rows, last_row)
    mixed = rotate(units[order % width], positions[order // width])
    mixed = np.asarray(mixed, np.float64)
    if mixed.shape != (width * count, width):
        raise InputError(
            f"rotating vectors of {width} features gave shape {mixed.shape}"
        )
    in_order = mixed[np.argsort(order)]
    after = in_order.reshape(count, width, width)
    observed = observe_vectors(units, after, positions, spec)

    # The last position again, without tokens at other positions.
    last = np.repeat(positions[-1:], width)
    single_rotation = np.asarray(rotate(units, last), np.float64)
    difference = np.abs(after[-1] - single_rotation).max()
    if difference > EIGHT_BIT_ERROR * np.abs(single_rotation).max():
        return replace(observed, fault=NOT_ALONE)

    # The rotation of a sum of vectors is the sum of their rotations. If the code also
    # normalises or limits its vectors, this fails, but only for vectors whose length is
    # not 1. These vectors have no zeros, and lengths of about 2 sqrt(width).
    dense_vectors = 3 * np.cos(np.arange(width**2)).reshape(width, width)
    rotated_sums = np.asarray(rotate(dense_vectors, last), np.float64)
    sums_of_rotated = dense_vectors @ single_rotation
    difference = np.abs(rotated_sums - sums_of_rotated).max()
    # NaN compares False, so that it does not count as a rotation.
    if difference <= LARGEST_NONLINEARITY * np.abs(sums_of_rotated).max():
        return observed
    return replace(observed, fault=observed.fault or NOT_LINEAR)


def observe_vectors(
    before: Vectors,
    after: Rotated,
    positions: Positions,
    spec: RopeSpec,
    may_be_halves: bool = True,
    faintest: float = ZERO,
) -> Observed:
    """Read pairs and their blocks off vectors and their rotations at each position.

    With ``may_be_halves`` adjacent pairs may come back as two halves, as DeepSeek's do.
    A pair that turns by no more than the angle ``faintest`` need not show.
    """
    is_moving = positions > 0
    if not is_moving.any():
        raise InputError("no position above 0 to look at")
    no_columns = np.empty((len(positions), 0))
    nothing = Observed(positions, no_columns, no_columns)

    if not are_bounded(after):
        is_finite = np.array([are_bounded(vectors) for vectors in after])
        observed = nothing
        # Positions at which all numbers are finite may show why numbers at other
        # positions are not finite.
        if (is_finite & is_moving).any():
            finite = after[is_finite]
            observed = observe_vectors(
                before, finite, positions[is_finite], spec, faintest=faintest
            )
        return replace(observed, fault=NOT_FINITE)

    largest = np.abs(before).max()
    changes = np.abs(after - before)
    if changes[is_moving].max() <= ZERO * largest:
        answer = "no rotation: the output equals the input"
        return replace(nothing, fault=(answer, "rotate queries and keys"))

    moved = name_moved_block(before, after, positions, spec)
    if moved:
        return replace(nothing, fault=moved)
    reordered = name_other_order(before, after, positions, spec)
    if reordered:
        return replace(nothing, fault=reordered)
    pairs = find_pairs(before, after, positions, spec, faintest)
    if pairs is None and may_be_halves:
        restored = restore_pairs(after, spec)
        observed = observe_vectors(
            before, restored, positions, spec, may_be_halves=False, faintest=faintest
        )
        if observed.partner == "adjacent":
            return replace(observed, note=RETURNED_AS_HALVES)
    if pairs is None:
        return replace(nothing, fault=NOT_PAIRED)

    first, second = pairs
    blocks, _ = fit_blocks(before, after, first, second)
    partner, fault = explain_place(first, second, spec)
    features = np.arange(spec.head_dim)
    other_features = np.delete(features, np.concatenate(pairs))
    are_others_changed = changes[..., other_features] > STILL * largest
    if fault is None and are_others_changed.any():
        answer = (
            f"features {other_features[0]} to {other_features[-1]} do not rotate, but"
            " change"
        )
        fault = (answer, "leave them alone")
    # The first column of a block that rotates is cos and sin.
    cos = blocks[..., 0, 0]
    sin = blocks[..., 1, 0]
    return Observed(positions, cos, sin, partner, fault, blocks)


def name_moved_block(
    before: Vectors,
    after: Rotated,
    positions: Positions,
    spec: RopeSpec,
) -> Fault | None:
    """Name a rotated part of a head that comes back at another place; or None.

    At position 0 nothing rotates, so that a unit vector shows where its feature went.
    """
    is_part = spec.rotary_dim < spec.head_dim
    is_shown = (positions == 0).any() and np.array_equal(before, np.eye(spec.head_dim))
    if not (is_part and is_shown):
        return None

    at_start = np.abs(after[positions == 0][0])  # [unit vector, feature]
    places = at_start.argmax(axis=1)
    # The sum of all other features of each vector, 0 if it is only moved.
    remainders = at_start.sum(axis=1) - at_start.max(axis=1)
    is_permutation = len(np.unique(places)) == spec.head_dim
    if not is_permutation or (remainders > STILL).any():
        return None

    rotated = np.sort(np.asarray(spec.rotated))
    moves = places[rotated] - rotated
    has_moved_whole = moves[0] != 0 and np.ptp(moves) == 0
    if not has_moved_whole:
        return None

    first = rotated[0]
    last = rotated[-1]
    move = moves[0]
    answer = f"features {first} to {last} come back as {first + move} to {last + move}"
    return answer, "put the part that rotates back where it was"


def name_other_order(
    before: Vectors,
    after: Rotated,
    positions: Positions,
    spec: RopeSpec,
) -> Fault | None:
    """Name features that come back in another order, or as copies of others; or None.

    At position 0 nothing rotates, so that each feature should come back where it was.
    """
    if not ((positions == 0).any() and np.array_equal(before, np.eye(spec.head_dim))):
        return None

    at_start = np.abs(after[positions == 0][0])  # [unit vector, feature]
    features = np.arange(spec.head_dim)
    # The feature that comes back at each place, and what else is there.
    sources = at_start.argmax(axis=0)
    sizes = at_start[sources, features]
    remainders = at_start.sum(axis=0) - sizes
    is_clear = (sizes > STILL).all() and (remainders <= STILL).all()
    if not is_clear or (sources == features).all():
        return None

    first, second = pair_features(spec.pairing, spec.rotary_dim, spec.place)
    # Adjacent pairs may come back as halves, and the two features of a pair as each
    # other. Both are looked at elsewhere.
    restored = restore_pairs(sources, spec)
    exchanged = features.copy()
    exchanged[first], exchanged[second] = second, first
    if (restored == features).all():
        return None
    if (sources == exchanged).all():
        return None

    if (sources == features[::-1]).all():
        return "features come back in reverse order", "return them as they came"
    neighbours = features.copy()
    neighbours[spec.place : spec.place + spec.rotary_dim : 2] = first
    neighbours[spec.place + 1 : spec.place + spec.rotary_dim : 2] = second
    if spec.pairing == "half" and (sources == neighbours).all():
        return (
            "the two halves come back as neighbours",
            "cat, and not stack, the halves",
        )

    moved = np.flatnonzero(sources != features)
    start = moved[0]
    last = moved[-1]
    if len(np.unique(sources)) < spec.head_dim:
        answer = (
            f"features {start} to {last} come back as copies of {sources[start]} to"
            f" {sources[last]}"
        )
        return answer, "return each feature at its place"
    answer = (
        f"features come back in another order: {sources[start]} in place of {start}"
    )
    return answer, "return them as they came"


def observe_signs(
    before: Float[np.ndarray, "n head_dim"],
    after: Float[np.ndarray, "n head_dim"],
    positions: Positions,
    spec: RopeSpec,
    note: str,
) -> Observed:
    """Read cos and sin off one vector of 1 and -1 per position.

    One vector does not show the pairs, which are assumed to be right. ``note`` is the
    remark on the order of features that other vectors of the code led to.
    """
    if note == RETURNED_AS_HALVES:
        after = restore_pairs(after, spec)
    pairs_before = join_as_complex(before, *expect_pairs(spec))
    pairs_after = join_as_complex(after, *expect_pairs(spec))
    # A pair of 1 and -1 has the squared length 2.
    rotations = pairs_after * pairs_before.conj() / 2

    fault = None
    unrotated = expect_rest(spec)
    changes = np.abs(after[:, unrotated] - before[:, unrotated])
    is_changed = (changes > STILL).any(axis=1)
    if is_changed.any():
        where = positions[is_changed].min()
        answer = f"features that do not rotate change at position {where}"
        fault = (answer, "leave them alone")
    return Observed(positions, rotations.real, rotations.imag, fault=fault, note=note)


def join_as_complex(
    vectors: Float[np.ndarray, "n head_dim"],
    first: Features,
    second: Features,
) -> np.ndarray:
    """Return pairs [n, pairs] as complex numbers, which a rotation multiplies."""
    return vectors[:, first] + 1j * vectors[:, second]


def observe_pairs_of_axes(
    before: Float[np.ndarray, "n head_dim"],
    after: Float[np.ndarray, "n head_dim"],
    positions: Positions,
    spec: RopeSpec,
) -> Observed:
    """Read cos and sin off one vector of 1 and -1 per position, and check its pairs.

    A rotation keeps the length of its pairs: if the lengths of wrong pairs stay and the
    lengths of right pairs change, the code rotates the wrong pairs.
    """
    # The sentence that names each mistake; the right pairs have none.
    pairs_by_answer = {"": expect_pairs(spec), **list_other_pairs(spec)}
    spreads = {}
    for answer, (first, second) in pairs_by_answer.items():
        lengths_before = np.abs(join_as_complex(before, first, second))
        lengths_after = np.abs(join_as_complex(after, first, second))
        factors = lengths_after / lengths_before
        middle = np.median(factors)
        spreads[answer] = np.abs(factors - middle).max() / max(middle, 1e-30)

    note = ""
    right_spread = spreads[""]
    if spec.pairing == "interleaved":
        first, second = expect_pairs(spec)
        restored = restore_pairs(after, spec)
        lengths = np.hypot(restored[:, first], restored[:, second])
        is_rotation = np.ptp(lengths) < EIGHT_BIT_ERROR * lengths.max()
        if is_rotation and right_spread >= EIGHT_BIT_ERROR:
            note = RETURNED_AS_HALVES

    answer = min(spreads, key=spreads.__getitem__)
    is_other = spreads[answer] < EIGHT_BIT_ERROR <= right_spread
    if answer and not note and is_other:
        no_columns = np.empty((len(positions), 0))
        features, partners = expect_pairs(spec)
        fix = f"features {features[0]} and {partners[0]} are the first pair"
        return Observed(positions, no_columns, no_columns, fault=(answer, fix))
    return observe_signs(before, after, positions, spec, note)
