"""The 2 x 2 block that multiplies a pair: a rotation, or a known mistake."""

from collections.abc import Callable, Iterator

import numpy as np

from ropelab.conformance.observation import SHEARED, Fault, Table
from ropelab.runs.arrays import Float

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
NO_SIN = "lacks its sin term"
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
add_shape("first bare", "first", NO_SIN, lambda c, s: (c, 0 * s, s, c))
add_shape("second bare", "second", NO_SIN, lambda c, s: (c, -s, 0 * s, c))
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


def describe_crossed(order: str) -> Fault:
    return f"the columns of cos and sin are laid out for {order} pairs", CROSSED[order]
