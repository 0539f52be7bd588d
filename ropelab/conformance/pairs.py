"""Which two features of a head rotate as a pair: which should, and which do in a code.

Pairs are two arrays of the same length: the first features of all pairs, and the second
features. `expect_pairs` returns the right pairs. `find_pairs` finds the pairs of a code
from vectors and their rotations, and `fit_blocks` finds the block by which the code
multiplies each pair.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from ropelab.conformance.observation import (
    EIGHT_BIT_ERROR,
    Features,
    Positions,
    Rotated,
    Vectors,
)
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError

# A feature, or an angle in radians, that changes by less than this counts as unchanged.
ZERO = 1e-9
# The largest condition number (numpy.linalg.cond) of a matrix that is inverted.
LARGEST_CONDITION = 1e6


def expect_pairs(spec: RopeSpec) -> tuple[Features, Features]:
    """Return the first and second features of the pairs that should rotate."""
    first, second = pair_features(spec.pairing, spec.rotary_dim, spec.place)
    return order_pairs(first, second, spec)


def pair_features(
    pairing: str,
    width: int,
    start: int = 0,
) -> tuple[Features, Features]:
    """Return the pairs of a block of `width` features from `start` on.

    Args:
        pairing: "half" pairs feature i with i + width / 2; any other word pairs
            neighbours.
        width: the number of features in the block.
        start: the first feature of the block.
    """
    features = np.arange(start, start + width)
    if pairing == "half":
        middle = width // 2
        return features[:middle], features[middle:]
    return features[::2], features[1::2]


def order_pairs(
    first: Features,
    second: Features,
    spec: RopeSpec,
) -> tuple[Features, Features]:
    """Return the pairs in the order in which they rotate forwards."""
    # If its two features are exchanged, a pair rotates in the opposite direction.
    if spec.backwards:
        return second, first
    return first, second


def expect_rest(spec: RopeSpec) -> Features:
    """Return the features of a head that should stay as they are."""
    return np.setdiff1d(np.arange(spec.head_dim), np.asarray(spec.rotated))


def restore_pairs(after: np.ndarray, spec: RopeSpec) -> np.ndarray:
    """Put features that came back as two halves where adjacent pairs have them.

    Args:
        after: [..., head_dim], as a code returned it.
        spec: the rotation, whose block is put in order.
    """
    as_pairs = pair_features("interleaved", spec.rotary_dim, spec.place)
    as_halves = pair_features("half", spec.rotary_dim, spec.place)
    result = after.copy()
    for pair, half in zip(as_pairs, as_halves, strict=True):
        result[..., pair] = after[..., half]
    return result


def find_pairs(
    before: Vectors,
    after: Rotated,
    positions: Positions,
    spec: RopeSpec,
    faintest: float = ZERO,
) -> tuple[Features, Features] | None:
    """Return the pairs that mix in rotated vectors; None if features mix otherwise.

    Features that mix with no other do not rotate, and are in no pair. A pair that turns
    by no more than the angle ``faintest`` may be among them, since it may not show.
    """
    if not np.array_equal(before, np.eye(spec.head_dim)):
        return find_best_layout(before, after, spec)

    # The rotation of unit vector i shows in row i with which features it mixes.
    mixed = np.abs(after[positions > 0]).max(axis=0)  # [head_dim, head_dim]
    off_diagonal = mixed - np.diag(np.diag(mixed))
    # A faulty code may mix the first feature of a pair into the second without mixing
    # the second into the first.
    off_diagonal = np.maximum(off_diagonal, off_diagonal.T)
    partners = off_diagonal.argmax(axis=1)
    rotated = np.flatnonzero(off_diagonal.max(axis=1) > ZERO)
    first = rotated[partners[rotated] > rotated]
    second = partners[first]
    if not len(first) or not np.array_equal(partners[second], first):
        return None

    # Some right pairs do not show: they are too slow, or make whole rotations. All
    # right pairs are returned if every pair that shows is right, and the slowest pair
    # that should show does. Otherwise fewer pairs rotate than should.
    expected_first, expected_second = np.sort(expect_pairs(spec), axis=0)
    pairs = set(zip(first, second, strict=True))
    expected = set(zip(expected_first, expected_second, strict=True))
    angles = spec.inv_freq(spec.length) * positions.max()
    visible = np.flatnonzero(angles > faintest)
    if pairs <= expected and len(visible):
        slowest = visible[-1]
        if first[-1] >= expected_first[slowest]:
            return order_pairs(expected_first, expected_second, spec)
    return order_pairs(first, second, spec)


def find_best_layout(
    before: Vectors,
    after: Rotated,
    spec: RopeSpec,
) -> tuple[Features, Features] | None:
    """Return the usual layout that explains a few vectors best; None if no usual layout
    explains them.

    Few vectors cannot tell by themselves which features mix.
    """
    smallest_error = np.inf
    chosen = None
    for pairs in list_layouts(spec):
        _, error = fit_blocks(before, after, *pairs)
        if chosen is None or error < smallest_error:
            smallest_error = error
            chosen = pairs
    if chosen is None or smallest_error > EIGHT_BIT_ERROR * np.abs(before).max():
        return None
    return drop_still_pairs(before, after, chosen, spec)


def drop_still_pairs(
    before: Vectors,
    after: Rotated,
    pairs: tuple[Features, Features],
    spec: RopeSpec,
) -> tuple[Features, Features]:
    """Return the pairs that rotate, where more pairs were looked at than should rotate.

    A block of any place explains vectors in which a smaller block inside it rotates.
    """
    first, second = pairs
    if len(first) <= spec.rotary_dim // 2:
        return pairs

    blocks, _ = fit_blocks(before, after, first, second)
    changes = np.abs(blocks - np.eye(2)).max(axis=(0, 2, 3))
    is_moving = changes > ZERO
    if is_moving.sum() != spec.rotary_dim // 2:
        return pairs
    return first[is_moving], second[is_moving]


def list_layouts(spec: RopeSpec) -> Iterator[tuple[Features, Features]]:
    """Yield the right layout of the pairs first, then all other layouts that codes
    have.
    """
    width = spec.rotary_dim
    head = spec.head_dim
    pairings = ["half", "adjacent"]
    if spec.pairing != "half":
        pairings.reverse()

    # The width of each block, and its first feature.
    blocks = [(width, spec.place), (width, 0), (width, head - width), (head, 0)]
    different_blocks = dict.fromkeys(blocks)
    for (size, start), pairing in product(different_blocks, pairings):
        first, second = pair_features(pairing, size, start)
        yield order_pairs(first, second, spec)


def fit_blocks(
    before: Vectors,
    after: Rotated,
    first: Features,
    second: Features,
) -> tuple[Float[np.ndarray, "n pairs 2 2"], float]:
    """Return the 2 x 2 blocks that multiply the pairs, and the largest error.

    The error is the largest of all features, inside and outside of pairs. The blocks
    are found by least squares over the vectors.
    """
    blocks, explained = _explain_by_blocks(before, after, first, second)
    return blocks, float(np.abs(after - explained).max())


def measure_stray(
    before: Vectors, after: Rotated, first: Features, second: Features
) -> Rotated:
    """Return how far each feature after the rotation is from what the 2 x 2 blocks of
    the pairs make of the vectors.
    """
    _, explained = _explain_by_blocks(before, after, first, second)
    return np.abs(after - explained)


def _explain_by_blocks(
    before: Vectors, after: Rotated, first: Features, second: Features
) -> tuple[Float[np.ndarray, "n pairs 2 2"], Rotated]:
    """Return the blocks by least squares, and the vectors that they make."""
    # Letters of einsum: n positions, v vectors, p pairs, i and j the two features of a
    # pair before the rotation, o the features after it.
    pairs = np.stack([first, second], axis=-1)
    x = np.broadcast_to(before, after.shape)[..., pairs]  # [n, v, p, 2]
    y = after[..., pairs]
    gram = np.einsum("nvpi,nvpj->npij", x, x)
    if np.linalg.cond(gram).max() > LARGEST_CONDITION:
        raise InputError("too few vectors to tell what each pair is multiplied by")
    products = np.einsum("nvpo,nvpi->npoi", y, x)
    blocks = products @ np.linalg.inv(gram)

    # Features outside of pairs stay as they are.
    explained = np.broadcast_to(before, after.shape).copy()
    explained[..., pairs] = np.einsum("npoi,nvpi->nvpo", blocks, x)
    return blocks, explained


def list_other_pairs(spec: RopeSpec) -> dict[str, tuple[Features, Features]]:
    """Return wrong pairs that codes of several axes have.

    The key of each is the sentence that names the mistake.
    """
    width = spec.rotary_dim
    other = "interleaved" if spec.pairing == "half" else "half"
    names = {"half": "half", "interleaved": "adjacent"}
    sentence = f"{names[other]} pairing instead of {names[spec.pairing]}"
    wrong_pairs = {sentence: pair_features(other, width, spec.place)}
    axes = spec.axes
    if axes is None or spec.pairing != "half":
        return wrong_pairs

    first: list[int] = []
    second: list[int] = []
    start = spec.place
    for axis in range(axes.count):
        size = 2 * len(axes.pairs_of(axis))
        first_of_axis, second_of_axis = pair_features("half", size, start)
        first += first_of_axis.tolist()
        second += second_of_axis.tolist()
        start += size
    sentence = (
        "each axis has features of its own in halves, instead of half of each half"
    )
    wrong_pairs[sentence] = (np.array(first), np.array(second))
    return wrong_pairs
