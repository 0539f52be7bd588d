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
Fault = tuple[str, str]  # a sentence, and what to do instead

LARGEST_FACTOR = 1e100  # on cos and sin; sums of such numbers do not overflow
ZERO = 1e-9  # a component below this share of the largest one counts as none
LEFT_IN_HALVES = (
    "adjacent pairs come back as halves, which scores of q and k alike do not see"
)
NOT_SHOWN = "pairs were not judged, as tables do not show them"
SHEARED = 0.1  # of the gain: so far apart 8-bit formats do not bring equal numbers
# of the largest: features that only pass lose less, in bfloat16 or 8 bits
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
    cos: Float[np.ndarray, "n pairs"]
    sin: Float[np.ndarray, "n pairs"]
    partner: Partner = "unknown"  # of tables: the rotation that uses them decides
    fault: Fault | None = None  # in pairs or place
    # that multiply the pairs of vectors
    blocks: Float[np.ndarray, "n pairs 2 2"] | None = None
    called: str = ""  # the function, with what it was given
    told_length: bool = False  # it was given the number of tokens
    note: str = ""  # on an order of features that scores or tables do not show
    between: "Observed | None" = None  # at further positions

    @property
    def gain(self) -> float:
        return float(np.median(np.hypot(self.cos, self.sin)))


def are_bounded(array: np.ndarray) -> bool:
    """Return True if every number is one, and none is so large that sums would
    overflow.
    """
    return bool((np.abs(array) < LARGEST_FACTOR).all())


def observe_tables(
    positions: Positions, cos: Table, sin: Table, spec: RopeSpec
) -> Observed:
    """Return tables with a column per pair; given one per feature, each angle is there
    twice.
    """
    if cos.shape != sin.shape or cos.ndim != 2 or len(cos) != len(positions):
        raise InputError(
            f"cos {cos.shape} and sin {sin.shape} for {len(positions)} positions"
        )
    width = cos.shape[1]
    if not width:
        raise InputError("cos and sin have no columns")
    doubled = width % 2 == 0 and width != spec.rotary_dim // 2
    for order in ("half", "interleaved") if doubled else ():
        columns, others = pair_features(order, width)
        if all(np.array_equal(t[:, columns], t[:, others]) for t in (cos, sin)):
            # Codes of adjacent pairs read tables of either layout (GLM, DeepSeek).
            wrong = (order, spec.pairing) == ("interleaved", "half")
            fault = describe_crossed("adjacent") if wrong else None
            note = "" if order == spec.pairing else NOT_SHOWN
            return Observed(
                positions, cos[:, columns], sin[:, columns], fault=fault, note=note
            )
    return Observed(positions, cos, sin, note=NOT_SHOWN)


def pair_features(
    pairing: str, width: int, start: int = 0
) -> tuple[Features, Features]:
    """Return the first and second features of pairs in a block of `width` features."""
    if pairing == "half":
        return np.arange(width // 2) + start, np.arange(width // 2, width) + start
    return np.arange(0, width, 2) + start, np.arange(1, width, 2) + start


def expect_pairs(spec: RopeSpec) -> tuple[Features, Features]:
    """Return the first and second features of the pairs that should rotate."""
    first, second = pair_features(spec.pairing, spec.rotary_dim, spec.place)
    # A pair the other way round rotates the other way.
    return (second, first) if spec.backwards else (first, second)


def expect_rest(spec: RopeSpec) -> Features:
    """Return the features of a head that should pass as they are."""
    return np.setdiff1d(np.arange(spec.head_dim), np.asarray(spec.rotated))


def observe_rotation(rotate: Rotate, spec: RopeSpec, positions: Positions) -> Observed:
    """Rotate unit vectors at all positions in one call, and read off pairs, place and
    blocks.
    """
    width, count = spec.head_dim, len(positions)
    # In one call, as some choose their table by the largest position; in mixed order,
    # but for the end, where some look for it.
    order = np.append(
        np.random.default_rng(0).permutation(width * count - 1), width * count - 1
    )
    last = np.repeat(positions[-1:], width)
    dense = 3 * np.cos(np.arange(width**2)).reshape(width, width)
    mixed = np.asarray(
        rotate(np.eye(width)[order % width], positions[order // width]), np.float64
    )
    if mixed.shape != (width * count, width):
        raise InputError(
            f"rotating vectors of {width} features gave shape {mixed.shape}"
        )
    alone, turned = (
        np.asarray(rotate(x, last), np.float64) for x in (np.eye(width), dense)
    )
    after = mixed[np.argsort(order)].reshape(count, width, width)
    found = observe_vectors(np.eye(width), after, positions, spec)
    if np.abs(after[-1] - alone).max() > SHEARED * np.abs(alone).max():
        return replace(found, fault=NOT_ALONE)
    # A rotation of sums is the sum of rotations; of a norm inside, unit vectors show
    # nothing. Rounding to a few bits stays far below a fifth, and nan is no rotation.
    wanted = dense @ alone
    linear = np.abs(turned - wanted).max() <= 0.2 * np.abs(wanted).max()
    return found if linear else replace(found, fault=found.fault or NOT_LINEAR)


def observe_vectors(
    before: Vectors,
    after: Rotated,
    positions: Positions,
    spec: RopeSpec,
    ordered: bool = False,
) -> Observed:
    """Read off pairs, place and blocks from vectors and their rotations at each
    position.

    Unless ``ordered``, adjacent pairs may come back as two halves, as DeepSeek's do.
    """
    if not (moving := positions > 0).any():
        raise InputError("no position above 0 to look at")
    empty = np.empty((len(positions), 0))
    nothing = Observed(positions, empty, empty)
    if not are_bounded(after):
        finite = np.array([are_bounded(rows) for rows in after])
        seen = nothing
        if (finite & moving).any():  # what they do before may tell why
            seen = observe_vectors(before, after[finite], positions[finite], spec)
        return replace(seen, fault=NOT_FINITE)
    most = np.abs(before).max()
    if np.abs((after - before)[moving]).max() <= ZERO * most:
        answer = "no rotation: the output equals the input"
        return replace(nothing, fault=(answer, "rotate queries and keys"))
    pairs = find_pairs(before, after, positions, spec)
    if pairs is None and not ordered:
        found = observe_vectors(
            before, restore_pairs(after, spec), positions, spec, ordered=True
        )
        if found.partner == "adjacent":
            return replace(found, note=LEFT_IN_HALVES)
    if pairs is None:
        return replace(nothing, fault=NOT_PAIRED)
    blocks, _ = fit_blocks(before, after, *pairs)
    partner, fault = explain_place(*pairs, spec)
    rest = np.delete(np.arange(spec.head_dim), np.concatenate(pairs))
    if fault is None and (np.abs((after - before)[..., rest]) > STILL * most).any():
        fault = (
            f"features {rest[0]} to {rest[-1]} do not rotate, but change",
            "leave them alone",
        )
    return Observed(
        positions, blocks[..., 0, 0], blocks[..., 1, 0], partner, fault, blocks
    )


def restore_pairs(after: np.ndarray, spec: RopeSpec) -> np.ndarray:
    """Return features that came back as halves as adjacent pairs."""
    as_pairs = pair_features("interleaved", spec.rotary_dim, spec.place)
    as_halves = pair_features("half", spec.rotary_dim, spec.place)
    result = after.copy()
    for pair, half in zip(as_pairs, as_halves, strict=True):
        result[..., pair] = after[..., half]
    return result


def observe_signs(
    before: Vectors, after: Vectors, positions: Positions, spec: RopeSpec, note: str
) -> Observed:
    """Read cos and sin off one vector of 1 and -1 per position, in the pairs of the
    others.
    """
    first, second = expect_pairs(spec)
    after = restore_pairs(after, spec) if note == LEFT_IN_HALVES else after
    x, y = (v[:, first] + 1j * v[:, second] for v in (before, after))
    turned, fault = y * x.conj() / 2, None
    changed = np.abs((after - before)[:, expect_rest(spec)]) > STILL
    if changed.any():
        where = f"change at position {positions[changed.any(axis=1)].min()}"
        fault = (f"features that do not rotate {where}", "leave them alone")
    return Observed(positions, turned.real, turned.imag, fault=fault, note=note)


def find_pairs(
    before: Vectors, after: Rotated, positions: Positions, spec: RopeSpec
) -> tuple[Features, Features] | None:
    """Return first and second features of the pairs; features that mix with none do not
    rotate.
    """
    if not np.array_equal(before, np.eye(spec.head_dim)):
        # Few vectors cannot tell which features mix; the layout that explains them best
        # can.
        found = [
            (fit_blocks(before, after, *pairs)[1], pairs)
            for pairs in list_layouts(spec)
        ]
        best, pairs = min(found, key=lambda each: each[0])
        return pairs if best <= SHEARED * np.abs(before).max() else None
    mixed = np.abs(after[positions > 0]).max(axis=0)
    off = mixed - np.diag(np.diag(mixed))
    off = np.maximum(off, off.T)  # one of the two may have been forgotten
    rotated, partners = off.max(axis=1) > ZERO, off.argmax(axis=1)
    first = np.array([j for j in np.flatnonzero(rotated) if partners[j] > j], dtype=int)
    second = partners[first]
    if not len(first) or not np.array_equal(partners[second], first):
        return None
    # Pairs that are too slow or make whole rotations count as paired as they should be;
    # where the slow ones should be seen and are not, the block is narrower.
    expected = np.sort(expect_pairs(spec), axis=0)
    seen = np.flatnonzero(spec.inv_freq(spec.length) * positions.max() > ZERO)
    inside = set(zip(first, second, strict=True)) <= set(zip(*expected, strict=True))
    if inside and len(seen) and first[-1] == expected[0, seen[-1]]:
        first, second = expected
    return (second, first) if spec.backwards else (first, second)


def list_layouts(spec: RopeSpec) -> Iterator[tuple[Features, Features]]:
    """Yield the right layout of the pairs first, then the others that codes have."""
    width, head = spec.rotary_dim, spec.head_dim
    order = ("half", "adjacent") if spec.pairing == "half" else ("adjacent", "half")
    blocks = dict.fromkeys(
        [(width, spec.place), (width, 0), (width, head - width), (head, 0)]
    )
    for (size, start), pairing in product(blocks, order):
        first, second = pair_features(pairing, size, start)
        yield (second, first) if spec.backwards else (first, second)


def fit_blocks(
    before: Vectors, after: Rotated, first: Features, second: Features
) -> tuple[Float[np.ndarray, "n pairs 2 2"], float]:
    """Return what pairs are multiplied by, by least squares, and the most that it
    leaves over.
    """
    pairs = np.stack([first, second], axis=-1)
    x, y = np.broadcast_to(before, after.shape)[..., pairs], after[..., pairs]
    gram = np.einsum("nvpi,nvpj->npij", x, x)
    if np.linalg.cond(gram).max() > 1e6:
        raise InputError("too few vectors to tell what each pair is multiplied by")
    blocks = np.einsum("nvpo,nvpi->npoi", y, x) @ np.linalg.inv(gram)
    inside = np.abs(y - np.einsum("npoi,nvpi->nvpo", blocks, x)).max()
    rest = np.delete(np.arange(before.shape[-1]), np.concatenate([first, second]))
    return blocks, float(
        max(inside, np.abs((after - before)[..., rest]).max(initial=0.0))
    )


def explain_place(
    first: Features, second: Features, spec: RopeSpec
) -> tuple[Partner, Fault | None]:
    """Return the pairing, and a fault if it or the place of the block is another."""
    first, second = np.sort([first, second], axis=0)
    wanted, step = (
        ("half", spec.rotary_dim // 2) if spec.pairing == "half" else ("adjacent", 1)
    )
    fix = f"pair {'i and i + d/2' if wanted == 'half' else '2i and 2i + 1'}"
    gaps, width = np.unique(second - first), 2 * len(first)
    if fault := explain_stride(first, second, spec):
        return "irregular", fault
    partner: Partner = "irregular"
    if np.array_equal(gaps, [1]) and width > 2:
        partner = "adjacent"
    elif np.array_equal(gaps, [width // 2]):
        partner = "half" if width > 2 else "unknown"
    # Where some pairs stand still, as in Gemma 4, those that move are fewer.
    moving = np.count_nonzero(spec.inv_freq(spec.length))
    if len(first) == moving < spec.rotary_dim // 2 and not np.array_equal(gaps, [step]):
        answer = f"features i and i + {gaps[0]} form a pair instead of i and i + {step}"
        return partner, (answer, f"{fix}; the exponent divides by {spec.rotary_dim}")
    if partner == "irregular" and len(gaps) == 1:
        if gaps[0] == step:
            still = np.setdiff1d(np.minimum(*expect_pairs(spec)), first)
            if not len(still):
                answer = f"{width} features rotate instead of {spec.rotary_dim}"
                return partner, (answer, f"rotate {spec.rotary_dim} features")
            total = len(still) + len(first)
            answer = (
                f"{len(still)} of {total} pairs do not rotate, the first at feature"
                f" {still[0]}"
            )
            return partner, (answer, "rotate all pairs")
        answer = f"features i and i + {gaps[0]} form a pair instead of i and i + {step}"
        return partner, (answer, fix)
    if partner not in ("unknown", wanted):
        return partner, (f"{partner} pairing instead of {wanted}", fix)
    start = int(first.min())
    if start != spec.place and width > spec.rotary_dim:
        answer = f"{width} features rotate instead of {spec.rotary_dim}"
        return partner, (answer, f"rotate {spec.rotary_dim} features")
    if start != spec.place:
        end = spec.rotated[-1]
        answer = (
            f"features {start} to {second.max()} rotate instead of {spec.place} to"
            f" {end}"
        )
        return partner, (answer, f"rotate features {spec.place} to {end} of a head")
    return partner, None


def explain_stride(first: Features, second: Features, spec: RopeSpec) -> Fault | None:
    """Name features that rotate with gaps between them."""
    rotated = np.sort(np.concatenate([first, second]))
    fix = f"rotate features {spec.place} to {spec.rotated[-1]}"
    if len(first) < 2 or spec.head_dim == spec.rotary_dim:
        return None
    steps = np.diff(rotated)
    if (steps == steps[0]).all() and steps[0] > 1:
        which = "every second feature"
        if steps[0] > 2:
            which = f"one feature in {steps[0]}"
        answer = f"{which} rotates, from {rotated[0]} on"
        return f"{answer}, instead of a block of {spec.rotary_dim}", fix
    gaps = np.diff(first)
    neighbours = (second - first == 1).all() and (gaps == gaps[0]).all()
    if neighbours and gaps[0] > 2:
        answer = f"two features in {gaps[0]} rotate, from {first[0]} on"
        return f"{answer}, instead of a block of {spec.rotary_dim}", fix
    return None


Shape = Callable[[Table, Table], tuple[Table, Table, Table, Table]]
FIRST, SECOND = "x1 cos - x2 sin", "x2 cos + x1 sin"
# Codes with one mistake: which feature of a pair, its problem, and the block (a, b; c,
# d) by cos and sin, so that y1 = a x1 + b x2 and y2 = c x1 + d x2.
SHAPES: dict[str, tuple[str, str, Shape]] = {
    name: (
        f"the {which} feature of a pair {problem}",
        FIRST if which == "first" else SECOND,
        shape,
    )
    for name, which, problem, shape in (
        ("plus", "first", "has sin with the wrong sign", lambda c, s: (c, s, s, c)),
        ("minus", "second", "has sin with the wrong sign", lambda c, s: (c, -s, -s, c)),
        (
            "first cos",
            "first",
            "has cos with the wrong sign",
            lambda c, s: (-c, -s, s, c),
        ),
        ("exchanged", "first", "comes back as the second", lambda c, s: (s, c, c, -s)),
        (
            "second cos",
            "second",
            "has cos with the wrong sign",
            lambda c, s: (c, -s, s, -c),
        ),
        (
            "first still",
            "first",
            "is not rotated",
            lambda c, s: (0 * c + 1, 0 * s, s, c),
        ),
        (
            "second still",
            "second",
            "is not rotated",
            lambda c, s: (c, -s, 0 * s, 0 * c + 1),
        ),
        ("first bare", "first", "lacks its sin term", lambda c, s: (c, 0 * s, s, c)),
        ("second bare", "second", "lacks its sin term", lambda c, s: (c, -s, 0 * s, c)),
        # x1 was replaced before the second line read it.
        (
            "overwritten",
            "second",
            "uses the rotated first",
            lambda c, s: (c, -s, c * s, c - s * s),
        ),
    )
}
CROSSED = {
    "adjacent": "cos = cat(cos, cos), likewise sin",
    "half": "cos = repeat(cos, 2)",
}


def describe_crossed(order: str) -> Fault:
    return f"the columns of cos and sin are laid out for {order} pairs", CROSSED[order]


def list_known_blocks(
    right: tuple[Table, Table],
) -> Iterator[tuple[Fault, tuple[Table, ...]]]:
    """Yield mistakes, each with the blocks (a, b, c, d) that it makes of the right cos
    and sin.
    """
    for answer, fix, shape in SHAPES.values():
        yield (answer, fix), shape(*right)
    # Columns laid out for the other pairing: the pairs that each feature then takes
    # them of.
    pairs = right[0].shape[1]
    i = np.arange(pairs)
    for order, first, second in (
        ("adjacent", i // 2, (i + pairs) // 2),
        ("half", 2 * i % pairs, (2 * i + 1) % pairs),
    ):
        cos, sin = ((table[:, first], table[:, second]) for table in right)
        yield describe_crossed(order), (cos[0], -sin[0], sin[1], cos[1])


def explain_blocks(
    blocks: Float[np.ndarray, "n pairs 2 2"], right: tuple[Table, Table]
) -> Fault | None:
    """Name blocks (a, b; c, d) that are no rotation, by what they should be: a = d and
    b = -c.
    """
    a, b, c, d = (
        blocks[..., 0, 0],
        blocks[..., 0, 1],
        blocks[..., 1, 0],
        blocks[..., 1, 1],
    )
    near = SHEARED * float(np.median(np.maximum(np.hypot(a, b), np.hypot(c, d))))
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
