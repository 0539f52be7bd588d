"""Which two features of a head rotate as a pair: as they should, and as they do."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from ropelab.conformance.observation import (
    SHEARED,
    Features,
    Positions,
    Rotated,
    Vectors,
)
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError

# A component below this share of the largest one counts as none.
ZERO = 1e-9


def expect_pairs(spec: RopeSpec) -> tuple[Features, Features]:
    """Return the first and second features of the pairs that should rotate."""
    first, second = pair_features(spec.pairing, spec.rotary_dim, spec.place)
    return order_pairs(first, second, spec)


def pair_features(
    pairing: str,
    width: int,
    start: int = 0,
) -> tuple[Features, Features]:
    """Return the first and second features of pairs in a block of `width` features."""
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
    """Return pairs in the order in which they rotate forwards."""
    # A pair the other way round rotates the other way.
    if spec.backwards:
        return second, first
    return first, second


def expect_rest(spec: RopeSpec) -> Features:
    """Return the features of a head that should pass as they are."""
    return np.setdiff1d(np.arange(spec.head_dim), np.asarray(spec.rotated))


def restore_pairs(after: np.ndarray, spec: RopeSpec) -> np.ndarray:
    """Return features that came back as halves as adjacent pairs."""
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
) -> tuple[Features, Features] | None:
    """Return first and second features of the pairs.

    Features that mix with none do not rotate.
    """
    if not np.array_equal(before, np.eye(spec.head_dim)):
        return find_best_layout(before, after, spec)

    mixed = np.abs(after[positions > 0]).max(axis=0)
    off_diagonal = mixed - np.diag(np.diag(mixed))
    # One of the two features may have been forgotten.
    off_diagonal = np.maximum(off_diagonal, off_diagonal.T)
    partners = off_diagonal.argmax(axis=1)
    rotated = np.flatnonzero(off_diagonal.max(axis=1) > ZERO)
    first = rotated[partners[rotated] > rotated]
    second = partners[first]
    if not len(first) or not np.array_equal(partners[second], first):
        return None

    # Pairs that are too slow or make whole rotations count as paired as they should be;
    # where the slow ones should be seen and are not, the block is narrower.
    expected_first, expected_second = np.sort(expect_pairs(spec), axis=0)
    pairs = set(zip(first, second, strict=True))
    expected = set(zip(expected_first, expected_second, strict=True))
    angles = spec.inv_freq(spec.length) * positions.max()
    visible = np.flatnonzero(angles > ZERO)
    if pairs <= expected and len(visible):
        last_visible = expected_first[visible[-1]]
        if first[-1] == last_visible:
            return order_pairs(expected_first, expected_second, spec)
    return order_pairs(first, second, spec)


def find_best_layout(
    before: Vectors,
    after: Rotated,
    spec: RopeSpec,
) -> tuple[Features, Features] | None:
    """Return the layout that explains a few vectors best.

    Few vectors cannot tell by themselves which features mix.
    """
    best = np.inf
    chosen = None
    for pairs in list_layouts(spec):
        _, left_over = fit_blocks(before, after, *pairs)
        if chosen is None or left_over < best:
            best = left_over
            chosen = pairs
    if best <= SHEARED * np.abs(before).max():
        return chosen
    return None


def list_layouts(spec: RopeSpec) -> Iterator[tuple[Features, Features]]:
    """Yield the right layout of the pairs first, then the others that codes have."""
    width = spec.rotary_dim
    head = spec.head_dim
    pairings = ["half", "adjacent"]
    if spec.pairing != "half":
        pairings.reverse()

    # The width of a block and its first feature.
    blocks = [(width, spec.place), (width, 0), (width, head - width), (head, 0)]
    for (size, start), pairing in product(dict.fromkeys(blocks), pairings):
        first, second = pair_features(pairing, size, start)
        yield order_pairs(first, second, spec)


def fit_blocks(
    before: Vectors,
    after: Rotated,
    first: Features,
    second: Features,
) -> tuple[Float[np.ndarray, "n pairs 2 2"], float]:
    """Return the blocks that multiply pairs, and the most that they leave over.

    They are found by least squares.
    """
    pairs = np.stack([first, second], axis=-1)
    x = np.broadcast_to(before, after.shape)[..., pairs]
    y = after[..., pairs]
    gram = np.einsum("nvpi,nvpj->npij", x, x)
    if np.linalg.cond(gram).max() > 1e6:
        raise InputError("too few vectors to tell what each pair is multiplied by")
    products = np.einsum("nvpo,nvpi->npoi", y, x)
    blocks = products @ np.linalg.inv(gram)

    explained = np.einsum("npoi,nvpi->nvpo", blocks, x)
    inside = np.abs(y - explained).max()
    features = np.arange(before.shape[-1])
    rest = np.delete(features, np.concatenate([first, second]))
    outside = np.abs((after - before)[..., rest]).max(initial=0.0)
    return blocks, float(max(inside, outside))


def list_other_pairs(spec: RopeSpec) -> dict[str, tuple[Features, Features]]:
    """Return the pairs that codes of several axes have by mistake, by the answer."""
    width = spec.rotary_dim
    start = spec.place
    other = "interleaved" if spec.pairing == "half" else "half"
    names = {"half": "half", "interleaved": "adjacent"}
    answer = f"{names[other]} pairing instead of {names[spec.pairing]}"
    orders = {answer: pair_features(other, width, start)}
    axes = spec.axes
    if axes is None or spec.pairing != "half":
        return orders

    first: list[int] = []
    second: list[int] = []
    for axis in range(axes.count):
        features = 2 * len(axes.pairs_of(axis))
        one, two = pair_features("half", features, start)
        first += one.tolist()
        second += two.tolist()
        start += features
    answer = "each axis has features of its own in halves, instead of half of each half"
    return {**orders, answer: (np.array(first), np.array(second))}
