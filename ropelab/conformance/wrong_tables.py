"""Tables of cos and sin that are swapped, negated, or read in another order."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True)
class WrongTables:
    """The tables of code with one mistake."""

    # The sentence that names the mistake, and what to do.
    answer: str
    fix: str
    # What the code returns in place of cos and sin.
    cos: Table
    sin: Table


def explain_tables(observed: Observed, expected: Expected) -> Fault | None:
    """Name tables that are swapped or negated, read in another order, or multiplied by
    different factors.
    """
    # At small positions an implementation is precise even if it rounds angles.
    is_small = observed.positions <= LAST_PRECISE_POSITION
    positions = observed.positions[is_small]
    cos, sin = expected.rotation.tables(positions)
    right = np.stack([cos, sin])  # [2, n, pairs]
    seen = np.stack([observed.cos[is_small], observed.sin[is_small]])
    if seen.shape != right.shape:
        return None

    factor = expected.spec.attention_factor
    allowed = EIGHT_BIT_ERROR * factor
    mistakes = [
        *list_exchanged_tables(cos, sin),
        *list_mixed_tables(cos, sin),
        *list_shifted_tables(expected, positions),
    ]
    for mistake in mistakes:
        wrong = np.stack([mistake.cos, mistake.sin])
        # A mistake that changes nothing at these positions explains nothing.
        changes_nothing = np.abs(right - wrong).max() <= allowed
        if changes_nothing:
            continue

        is_what_was_seen = np.abs(seen - wrong).max() <= allowed
        if is_what_was_seen:
            return mistake.answer, mistake.fix

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
    # The fix goes on from the answer: both should be multiplied by the right factor.
    fix = f"both by {factor:.6g}"
    return answer, fix


def list_exchanged_tables(cos: Table, sin: Table) -> list[WrongTables]:
    """Return tables that are in each other's place, or have wrong signs."""
    order = "return cos, then sin"
    signs = "check the signs"
    abs_cos = np.abs(cos)
    abs_sin = np.abs(sin)
    return [
        WrongTables("cos and sin are swapped", order, sin, cos),
        WrongTables("cos and sin are negated", signs, -cos, -sin),
        WrongTables("cos is negated", signs, -cos, sin),
        WrongTables("sin holds cos", order, cos, cos),
        WrongTables("cos holds sin", order, sin, sin),
        WrongTables("sin has lost its sign", signs, cos, abs_sin),
        WrongTables("cos has lost its sign", signs, abs_cos, sin),
        WrongTables("cos and sin have lost their signs", signs, abs_cos, abs_sin),
    ]


def list_shifted_tables(
    expected: Expected, positions: Positions
) -> Iterator[WrongTables]:
    """Yield tables whose cos and sin belong to positions next to each other."""
    fix = "take cos and sin of one angle"
    cos, sin = expected.rotation.tables(positions)
    for word, shift in (("next", 1), ("previous", -1)):
        other_cos, other_sin = expected.rotation.tables(positions + shift)
        answer_of_sin = f"sin is that of the {word} position"
        yield WrongTables(answer_of_sin, fix, cos, other_sin)
        answer_of_cos = f"cos is that of the {word} position"
        yield WrongTables(answer_of_cos, fix, other_cos, sin)


def list_mixed_tables(cos: Table, sin: Table) -> Iterator[WrongTables]:
    """Yield what code reads from one table of cos and sin if it assumes a wrong order.

    The columns of cos and sin alternate and the code cuts the table into halves, or
    they are in halves and the code reads them alternately. Each is yielded with sin
    first, and with cos first.
    """
    fix = "write and read the table in one order"
    for answer, sin_as_read, cos_as_read in misread_table("sin and cos", sin, cos):
        yield WrongTables(answer, fix, cos_as_read, sin_as_read)
    for answer, cos_as_read, sin_as_read in misread_table("cos and sin", cos, sin):
        yield WrongTables(answer, fix, cos_as_read, sin_as_read)


def misread_table(
    names: str, first: Table, second: Table
) -> Iterator[tuple[str, Table, Table]]:
    """Yield what code takes for two tables after both were joined into one.

    Yields a sentence that names the mistake, what is taken for the first table, and
    what is taken for the second.

    ``names`` names both tables in the sentence, as "cos and sin".
    """
    alternating = np.stack([first, second], axis=-1).reshape(len(first), -1)
    first_half, second_half = np.split(alternating, 2, axis=1)
    yield (
        f"a table in which {names} alternate is cut into halves",
        first_half,
        second_half,
    )

    in_halves = np.concatenate([first, second], axis=1)
    even_columns = in_halves[:, ::2]
    odd_columns = in_halves[:, 1::2]
    yield (
        f"a table of {names} in halves is read alternately",
        even_columns,
        odd_columns,
    )
