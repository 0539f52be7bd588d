"""Tables of cos and sin that are swapped, negated, or read in another order."""

import math
from collections.abc import Iterator

import numpy as np

from ropelab.conformance.angles import TABLE_ERROR
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import EIGHT_BIT_ERROR, Fault, Observed, Table

# The largest position at which all codes are precise.
LARGEST_PRECISE = 4


def explain_tables(observed: Observed, expected: Expected) -> Fault | None:
    """Name tables that are swapped or negated, or whose two factors differ."""
    # At small positions all codes are precise, also those that round angles.
    is_small = observed.positions <= LARGEST_PRECISE
    cos, sin = expected.rotation.tables(observed.positions[is_small])
    right = np.stack([cos, sin])  # [2, n, pairs]
    seen = np.stack([observed.cos[is_small], observed.sin[is_small]])
    if seen.shape != right.shape:
        return None

    factor = expected.spec.attention_factor
    allowed = EIGHT_BIT_ERROR * factor
    for answer, tables in list_wrong_tables(cos, sin).items():
        is_different = np.abs(right - tables).max() > allowed
        if is_different and np.abs(seen - tables).max() <= allowed:
            fix = "return cos, then sin"
            if "negated" in answer or "sign" in answer:
                fix = "check the signs"
            elif "table" in answer:
                fix = "write and read the table in one order"
            return answer, fix

    # The factors of cos and of sin beyond the right one, by least squares.
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
    """Return what codes have in place of cos and sin, by the sentence that says so."""
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


def list_mixed_tables(
    cos: Table,
    sin: Table,
) -> Iterator[tuple[str, tuple[Table, Table]]]:
    """Yield what is taken for cos and sin where one table holds both.

    The columns of the table alternate or are two halves, and are read in the other way.
    """
    for names in ("sin and cos", "cos and sin"):
        sin_is_first = names == "sin and cos"
        one, other = (sin, cos) if sin_is_first else (cos, sin)

        alternating = np.stack([one, other], axis=-1).reshape(len(cos), -1)
        first, second = np.split(alternating, 2, axis=1)
        answer = f"a table in which {names} alternate is cut into halves"
        yield answer, (second, first) if sin_is_first else (first, second)

        in_halves = np.concatenate([one, other], axis=1)
        first = in_halves[:, ::2]
        second = in_halves[:, 1::2]
        answer = f"a table of {names} in halves is read alternately"
        yield answer, (second, first) if sin_is_first else (first, second)
