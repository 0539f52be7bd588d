"""Tables of cos and sin that are swapped, negated, or read in another order."""

import math
from collections.abc import Iterator

import numpy as np

from ropelab.conformance.angles import TABLE_ERROR
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import (
    EIGHT_BIT_ERROR,
    Fault,
    Observed,
    Positions,
    Table,
)

# The last position at which every implementation is precise.
LAST_PRECISE_POSITION = 4


def explain_tables(observed: Observed, expected: Expected) -> Fault | None:
    """Name tables that are swapped or negated, or whose two factors differ."""
    # At small positions an implementation is precise even if it rounds angles.
    is_small = observed.positions <= LAST_PRECISE_POSITION
    cos, sin = expected.rotation.tables(observed.positions[is_small])
    right = np.stack([cos, sin])  # [2, n, pairs]
    seen = np.stack([observed.cos[is_small], observed.sin[is_small]])
    if seen.shape != right.shape:
        return None

    factor = expected.spec.attention_factor
    allowed = EIGHT_BIT_ERROR * factor
    wrong_tables = list_wrong_tables(cos, sin)
    wrong_tables |= dict(list_shifted_tables(expected, observed.positions[is_small]))
    for answer, tables in wrong_tables.items():
        # A slip that changes nothing at these positions explains nothing.
        changes_nothing = np.abs(right - tables).max() <= allowed
        if changes_nothing:
            continue

        is_what_was_seen = np.abs(seen - tables).max() <= allowed
        if is_what_was_seen:
            fix = "return cos, then sin"
            if "negated" in answer or "sign" in answer:
                fix = "check the signs"
            elif "table" in answer:
                fix = "write and read the table in one order"
            elif "position" in answer:
                fix = "take cos and sin of one angle"
            return answer, fix

    # The factors by which cos and sin are too large, by least squares.
    products = (seen * right).sum(axis=(1, 2))
    extra_factors = products / (right**2).sum(axis=(1, 2))
    largest_error = np.abs(seen - extra_factors[:, None, None] * right).max()
    is_explained = largest_error <= TABLE_ERROR * factor
    are_equal = math.isclose(*extra_factors, rel_tol=TABLE_ERROR)
    if not is_explained or extra_factors.min() <= 0 or are_equal:
        return None
    factor_of_cos, factor_of_sin = extra_factors * factor
    answer = f"cos is multiplied by {factor_of_cos:.4g}, sin by {factor_of_sin:.4g}"
    return answer, f"both by {factor:.6g}"


def list_wrong_tables(cos: Table, sin: Table) -> dict[str, tuple[Table, Table]]:
    """Return the wrong tables that codes have in place of (cos, sin).

    The key is the sentence that names the slip.
    """
    exchanged = {
        "cos and sin are swapped": (sin, cos),
        "cos and sin are negated": (-cos, -sin),
        "cos is negated": (-cos, sin),
        "sin holds cos": (cos, cos),
        "cos holds sin": (sin, sin),
        "sin has lost its sign": (cos, np.abs(sin)),
        "cos has lost its sign": (np.abs(cos), sin),
        "cos and sin have lost their signs": (np.abs(cos), np.abs(sin)),
    }
    return exchanged | dict(list_mixed_tables(cos, sin))


def list_shifted_tables(
    expected: Expected, positions: Positions
) -> Iterator[tuple[str, tuple[Table, Table]]]:
    """Yield tables whose cos and sin belong to positions next to each other."""
    cos, sin = expected.rotation.tables(positions)
    for words, shift in (("next", 1), ("previous", -1)):
        other_cos, other_sin = expected.rotation.tables(positions + shift)
        yield f"sin is that of the {words} position", (cos, other_sin)
        yield f"cos is that of the {words} position", (other_cos, sin)


def list_mixed_tables(
    cos: Table,
    sin: Table,
) -> Iterator[tuple[str, tuple[Table, Table]]]:
    """Yield the cos and sin that code gets if it reads one table of both in a wrong order.

    The columns of cos and sin alternate and the code cuts the table into halves, or they
    are in halves and the code reads them alternately. Each is yielded with sin first, and
    with cos first.
    """
    for answer, (sin_as_read, cos_as_read) in misread_table("sin and cos", sin, cos):
        yield answer, (cos_as_read, sin_as_read)
    yield from misread_table("cos and sin", cos, sin)


def misread_table(
    names: str, left: Table, right: Table
) -> Iterator[tuple[str, tuple[Table, Table]]]:
    """Yield what code takes for the left and the right table after both were joined.

    ``names`` names the left and the right table in the answer, as "cos and sin".
    """
    alternating = np.stack([left, right], axis=-1).reshape(len(left), -1)
    left_half, right_half = np.split(alternating, 2, axis=1)
    yield (
        f"a table in which {names} alternate is cut into halves",
        (left_half, right_half),
    )

    in_halves = np.concatenate([left, right], axis=1)
    even_columns = in_halves[:, ::2]
    odd_columns = in_halves[:, 1::2]
    yield (
        f"a table of {names} in halves is read alternately",
        (even_columns, odd_columns),
    )
