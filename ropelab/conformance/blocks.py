"""The 2 x 2 block that multiplies a pair: a rotation, or a known mistake.

A code (an implementation under test) that rotates a pair wrongly still multiplies the
pair by some block at each position. `explain_blocks` compares these blocks with the
blocks of each known mistake.
"""

from collections.abc import Callable, Iterator

import numpy as np

from ropelab.conformance.observation import EIGHT_BIT_ERROR, Fault, Table
from ropelab.runs.arrays import Float

# Returns a, b, c and d from cos and sin, a table each: they are the block of a pair, which
# makes (a x1 + b x2, c x1 + d x2) of its features (x1, x2). A rotation has cos, -sin, sin
# and cos.
Shape = Callable[[Table, Table], tuple[Table, Table, Table, Table]]
FIRST_ROTATED = "x1 cos - x2 sin"
SECOND_ROTATED = "x2 cos + x1 sin"
# Blocks of codes with one mistake, by a short name: the sentence that names the mistake,
# the right formula, and the block.
SHAPES: dict[str, tuple[str, str, Shape]] = {}


def add_shape(name: str, which: str, problem: str, shape: Shape) -> None:
    """Add a mistake in the first or second feature of a pair to SHAPES."""
    answer = f"the {which} feature of a pair {problem}"
    formulas = {"first": FIRST_ROTATED, "second": SECOND_ROTATED}
    SHAPES[name] = (answer, formulas[which], shape)


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
# The code stores the new x1 before it computes the second feature from x1.
add_shape(
    "overwritten",
    "second",
    "uses the rotated first",
    lambda c, s: (c, -s, c * s, c - s * s),
)
# The advice how to lay out the columns of cos and sin, by the wrong pairs for which a
# code has laid them out.
LAYOUT_FIXES = {
    "adjacent": "cos = cat(cos, cos), likewise sin",
    "half": "cos = repeat(cos, 2)",
}


def explain_blocks(
    blocks: Float[np.ndarray, "n pairs 2 2"],
    right: tuple[Table, Table],
) -> Fault | None:
    """Name the mistake of blocks that are not rotations; ``right``: the right cos and
    sin.
    """
    # The entries of all blocks, each [n, pairs].
    a = blocks[..., 0, 0]
    b = blocks[..., 0, 1]
    c = blocks[..., 1, 0]
    d = blocks[..., 1, 1]
    lengths = np.maximum(np.hypot(a, b), np.hypot(c, d))
    allowed = EIGHT_BIT_ERROR * float(np.median(lengths))

    # A rotation has a = d and b = -c. NaN compares False, so that it counts as wrong.
    errors = np.maximum(np.abs(a - d), np.abs(b + c))
    is_right = errors <= allowed
    if is_right.all():
        return None

    right_cos, _ = right
    if a.shape == right_cos.shape:
        for fault, known in list_known_blocks(right):
            differences = []
            for entry, known_entry in zip((a, b, c, d), known, strict=True):
                differences.append(np.abs(entry - known_entry).max())
            if all(difference <= allowed for difference in differences):
                return fault

    if a.shape == right_cos.shape:
        answer = explain_factors((a, b, c, d), right, allowed)
        if answer:
            return answer, f"{FIRST_ROTATED} and {SECOND_ROTATED}"

    row, pair = np.argwhere(~is_right)[0]
    (e, f), (g, h) = blocks[row, pair]
    block = f"{e:.3g} x1 {f:+.3g} x2 and {g:.3g} x1 {h:+.3g} x2"
    return (
        f"pair {pair} does not rotate but becomes {block}",
        f"{FIRST_ROTATED} and {SECOND_ROTATED}",
    )


def explain_factors(
    entries: tuple[Table, Table, Table, Table],
    right: tuple[Table, Table],
    allowed: float,
) -> str:
    """Name entries of all blocks that have a factor of their own; empty: there is none.

    Args:
        entries: a, b, c and d, each [n, pairs].
        right: the right cos and sin.
        allowed: the largest difference that rounding explains.
    """
    cos, sin = right
    names = (
        "cos of the first",
        "sin of the first",
        "sin of the second",
        "cos of the second",
    )
    factors = []
    right_entries = (cos, -sin, sin, cos)
    for entry, right_entry in zip(entries, right_entries, strict=True):
        # By least squares. The square may be 0, as that of sin at position 0 is.
        square = max(float((right_entry**2).sum()), 1e-30)
        factor = float((entry * right_entry).sum() / square)
        # NaN compares False, so that it explains nothing.
        if not np.abs(entry - factor * right_entry).max() <= allowed:
            return ""
        factors.append(factor)

    usual = float(np.median(factors))
    others = []
    for name, factor in zip(names, factors, strict=True):
        if abs(factor - usual) > allowed:
            others.append(f"{name} feature is multiplied by {factor / usual:.4g}")
    if usual <= 0 or len(others) != 1:
        return ""
    return f"in every pair, {others[0]}"


def list_known_blocks(
    right: tuple[Table, Table],
) -> Iterator[tuple[Fault, tuple[Table, ...]]]:
    """Yield mistakes, each with its blocks (a, b, c, d); ``right``: cos and sin."""
    cos, sin = right
    for answer, fix, shape in SHAPES.values():
        yield (answer, fix), shape(cos, sin)

    # Where columns are laid out for the other pairing, the two features of pair i take
    # their cos and sin from the columns of two other pairs.
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
    """Name columns of cos and sin that are laid out for ``order`` pairs by mistake."""
    answer = f"the columns of cos and sin are laid out for {order} pairs"
    return answer, LAYOUT_FIXES[order]
