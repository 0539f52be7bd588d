"""A rotary code's answers as cos and sin per pair, from tables or from rotated vectors.

From vectors pairs, place and sign are read off as well: at each position the two
features of a pair become a 2 x 2 block times them, and a block that is no rotation is a
fault.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Float, Int
from ropelab.runs.errors import InputError

Positions = Int[np.ndarray, " n"]
Partner = Literal["half", "adjacent", "irregular", "unknown"]
Features = Int[np.ndarray, " pairs"]
Pairs = Float[np.ndarray, " pairs"]
Table = Float[np.ndarray, "n pairs"]
Vectors = Float[np.ndarray, "vectors head_dim"]
Rotated = Float[np.ndarray, "n vectors head_dim"]
Rotate = Callable[
    [Float[np.ndarray, "tokens head_dim"], Int[np.ndarray, " tokens"]], np.ndarray
]
# A sentence, and what to do instead.
Fault = tuple[str, str]

# The largest factor on cos and sin; sums of such numbers do not overflow.
LARGEST_FACTOR = 1e100
# A component below this share of the largest one counts as none.
ZERO = 1e-9
LEFT_IN_HALVES = (
    "adjacent pairs come back as halves, which scores of q and k alike do not see"
)
NOT_SHOWN = "pairs were not judged, as tables do not show them"
# Formats of 8 bits bring equal numbers less far apart than this share of the gain.
SHEARED = 0.1
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


@dataclass(frozen=True)
class Observed:
    """cos and sin of every pair at some positions, gain included, float64."""

    positions: Positions
    cos: Table
    sin: Table
    # Tables do not show it: the rotation that uses them decides.
    partner: Partner = "unknown"
    # A fault in pairs or place.
    fault: Fault | None = None
    # The matrices that multiply the pairs of vectors.
    blocks: Float[np.ndarray, "n pairs 2 2"] | None = None
    # The function, with what it was given.
    called: str = ""
    # True if it was given the number of tokens.
    told_length: bool = False
    # A remark on an order of features that scores or tables do not show.
    note: str = ""
    # The same code at further positions.
    between: "Observed | None" = None

    @property
    def gain(self) -> float:
        return float(np.median(np.hypot(self.cos, self.sin)))


def are_bounded(array: np.ndarray) -> bool:
    """Return True if all are numbers, none so large that sums would overflow."""
    return bool((np.abs(array) < LARGEST_FACTOR).all())


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


def expect_pairs(spec: RopeSpec) -> tuple[Features, Features]:
    """Return the first and second features of the pairs that should rotate."""
    first, second = pair_features(spec.pairing, spec.rotary_dim, spec.place)
    return order_pairs(first, second, spec)


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


def restore_pairs(after: np.ndarray, spec: RopeSpec) -> np.ndarray:
    """Return features that came back as halves as adjacent pairs."""
    as_pairs = pair_features("interleaved", spec.rotary_dim, spec.place)
    as_halves = pair_features("half", spec.rotary_dim, spec.place)
    result = after.copy()
    for pair, half in zip(as_pairs, as_halves, strict=True):
        result[..., pair] = after[..., half]
    return result


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


def explain_place(
    first: Features,
    second: Features,
    spec: RopeSpec,
) -> tuple[Partner, Fault | None]:
    """Return the pairing, and a fault if it or the place of the block is another."""
    first, second = np.sort([first, second], axis=0)
    if spec.pairing == "half":
        wanted = "half"
        step = spec.rotary_dim // 2
        fix = "pair i and i + d/2"
    else:
        wanted = "adjacent"
        step = 1
        fix = "pair 2i and 2i + 1"

    fault = explain_stride(first, second, spec)
    if fault:
        return "irregular", fault

    gaps = np.unique(second - first)
    width = 2 * len(first)
    partner = name_partner(gaps, width)
    other_partner = (
        f"features i and i + {gaps[0]} form a pair instead of i and i + {step}"
    )
    has_right_gaps = np.array_equal(gaps, [step])

    # Where some pairs stand still, as in Gemma 4, those that move are fewer.
    moving = np.count_nonzero(spec.inv_freq(spec.length))
    some_stand_still = moving < spec.rotary_dim // 2
    if some_stand_still and len(first) == moving and not has_right_gaps:
        fix = f"{fix}; the exponent divides by {spec.rotary_dim}"
        return partner, (other_partner, fix)

    if partner == "irregular" and has_right_gaps:
        return partner, explain_missing_pairs(first, spec)
    if partner == "irregular" and len(gaps) == 1:
        return partner, (other_partner, fix)
    if partner not in ("unknown", wanted):
        return partner, (f"{partner} pairing instead of {wanted}", fix)

    start = int(first.min())
    end = int(second.max())
    return partner, explain_start(start, end, width, spec)


def name_partner(gaps: Features, width: int) -> Partner:
    """Return how far apart the features of a pair are, in a word."""
    if np.array_equal(gaps, [1]) and width > 2:
        return "adjacent"
    if not np.array_equal(gaps, [width // 2]):
        return "irregular"
    if width > 2:
        return "half"
    # Two features have one pairing only.
    return "unknown"


def explain_missing_pairs(first: Features, spec: RopeSpec) -> Fault:
    """Name the pairs that do not rotate, or the width of a block that is another."""
    width = 2 * len(first)
    expected_first = np.minimum(*expect_pairs(spec))
    still = np.setdiff1d(expected_first, first)
    if not len(still):
        answer = f"{width} features rotate instead of {spec.rotary_dim}"
        return answer, f"rotate {spec.rotary_dim} features"

    total = len(still) + len(first)
    answer = (
        f"{len(still)} of {total} pairs do not rotate, the first at feature {still[0]}"
    )
    return answer, "rotate all pairs"


def explain_start(
    start: int,
    end: int,
    width: int,
    spec: RopeSpec,
) -> Fault | None:
    """Name a block of the head that is not the one that should rotate."""
    if start == spec.place:
        return None
    if width > spec.rotary_dim:
        answer = f"{width} features rotate instead of {spec.rotary_dim}"
        return answer, f"rotate {spec.rotary_dim} features"
    last = spec.rotated[-1]
    answer = f"features {start} to {end} rotate instead of {spec.place} to {last}"
    return answer, f"rotate features {spec.place} to {last} of a head"


def explain_stride(first: Features, second: Features, spec: RopeSpec) -> Fault | None:
    """Name features that rotate with gaps between them."""
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


Shape = Callable[[Table, Table], tuple[Table, Table, Table, Table]]
FIRST = "x1 cos - x2 sin"
SECOND = "x2 cos + x1 sin"
# Codes with one mistake: which feature of a pair, its problem, and the block (a, b; c,
# d) by cos and sin, so that y1 = a x1 + b x2 and y2 = c x1 + d x2.
SHAPES: dict[str, tuple[str, str, Shape]] = {}


def add_shape(name: str, which: str, problem: str, shape: Shape) -> None:
    answer = f"the {which} feature of a pair {problem}"
    right = {"first": FIRST, "second": SECOND}[which]
    SHAPES[name] = (answer, right, shape)


WRONG_SIN = "has sin with the wrong sign"
WRONG_COS = "has cos with the wrong sign"
BARE = "lacks its sin term"
add_shape("plus", "first", WRONG_SIN, lambda c, s: (c, s, s, c))
add_shape("minus", "second", WRONG_SIN, lambda c, s: (c, -s, -s, c))
add_shape("first cos", "first", WRONG_COS, lambda c, s: (-c, -s, s, c))
add_shape("exchanged", "first", "comes back as the second", lambda c, s: (s, c, c, -s))
add_shape("second cos", "second", WRONG_COS, lambda c, s: (c, -s, s, -c))
add_shape(
    "first still", "first", "is not rotated", lambda c, s: (0 * c + 1, 0 * s, s, c)
)
add_shape(
    "second still", "second", "is not rotated", lambda c, s: (c, -s, 0 * s, 0 * c + 1)
)
add_shape("first bare", "first", BARE, lambda c, s: (c, 0 * s, s, c))
add_shape("second bare", "second", BARE, lambda c, s: (c, -s, 0 * s, c))
# x1 was replaced before the second line read it.
add_shape(
    "overwritten",
    "second",
    "uses the rotated first",
    lambda c, s: (c, -s, c * s, c - s * s),
)
CROSSED = {
    "adjacent": "cos = cat(cos, cos), likewise sin",
    "half": "cos = repeat(cos, 2)",
}


def describe_crossed(order: str) -> Fault:
    return f"the columns of cos and sin are laid out for {order} pairs", CROSSED[order]


def list_known_blocks(
    right: tuple[Table, Table],
) -> Iterator[tuple[Fault, tuple[Table, ...]]]:
    """Yield mistakes, each with the blocks (a, b, c, d) that it makes.

    ``right``: the right cos and sin.
    """
    for answer, fix, shape in SHAPES.values():
        yield (answer, fix), shape(*right)

    # Columns laid out for the other pairing: the pairs that each feature then takes
    # them of.
    cos, sin = right
    pairs = cos.shape[1]
    i = np.arange(pairs)
    columns = {
        "adjacent": (i // 2, (i + pairs) // 2),
        "half": (2 * i % pairs, (2 * i + 1) % pairs),
    }
    for order, (first, second) in columns.items():
        block = (cos[:, first], -sin[:, first], sin[:, second], cos[:, second])
        yield describe_crossed(order), block


def explain_blocks(
    blocks: Float[np.ndarray, "n pairs 2 2"],
    right: tuple[Table, Table],
) -> Fault | None:
    """Name blocks (a, b; c, d) that are no rotation: a = d and b = -c in one."""
    (a, b), (c, d) = np.moveaxis(blocks, (-2, -1), (0, 1))
    lengths = np.maximum(np.hypot(a, b), np.hypot(c, d))
    near = SHEARED * float(np.median(lengths))
    wrong = ~(np.maximum(np.abs(a - d), np.abs(b + c)) <= near)
    if not wrong.any():
        return None

    if a.shape == right[0].shape:
        for fault, made in list_known_blocks(right):
            parts = zip((a, b, c, d), made, strict=True)
            if all(np.abs(one - other).max() <= near for one, other in parts):
                return fault

    place, pair = np.argwhere(wrong)[0]
    (e, f), (g, h) = blocks[place, pair]
    block = f"{e:.3g} x1 {f:+.3g} x2 and {g:.3g} x1 {h:+.3g} x2"
    return f"pair {pair} does not rotate but becomes {block}", f"{FIRST} and {SECOND}"
