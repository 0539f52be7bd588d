"""Precision errors from issue trackers: their printed numbers, measured again."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.angle_errors import worst, wrap_angle
from ropelab.math.numerics.casts import CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain, Spectrum, span
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import spacing
from ropelab.math.numerics.resolution import Census, take_census
from ropelab.runs.files import table_beside


def agrees(printed: str, ours: float) -> bool:
    """Return True if ours rounds to a printed number, within half of its last digit.

    >>> agrees("1045", 1044.6), agrees("1045.0", 1044.6)
    (True, False)
    """
    digits = Decimal(printed)
    exponent = int(digits.as_tuple().exponent)
    unit = Decimal(1).scaleb(exponent)
    difference = abs(Decimal(ours) - digits)
    return difference <= unit / 2 * Decimal("1.001")


_FILE = table_beside(__file__)
INCIDENTS: list[dict[str, Any]] = _FILE["incident"]


def incidents() -> pd.DataFrame:
    """Return a row per printed number, ours beside it (0.04 s)."""
    rows: list[dict[str, Any]] = []
    for incident in INCIDENTS:
        rows.extend(_measure_incident(**incident))
    return pd.DataFrame(rows)


def _measure_incident(
    *,
    source: str,
    cast: str,
    base: float,
    rotary_dim: int,
    offset: int,
    length: int,
    printed: list[dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    spectrum = Spectrum(inverse_frequencies(rotary_dim, base), base, rotary_dim)
    exact = Chain(CastPlan(), spectrum)
    chain = Chain(parse_cast(cast), spectrum)
    positions = span(offset, offset + length)

    # Measures of a position.

    def stored_position(m: int) -> float:
        stored = chain.positions(span(m, m + 1))
        return float(stored[0])

    def position_step(m: int) -> float:
        steps = spacing(span(m, m + 1), chain.plan.position)
        return float(steps[0])

    # Measures of a position and a pair.

    def stored_angle(m: int, pair: int) -> float:
        angles = chain.angles(span(m, m + 1))
        return float(angles[pair, 0])

    def exact_angle(m: int, pair: int) -> float:
        angles = exact.angles(span(m, m + 1))
        return float(angles[pair, 0])

    def exact_cos(m: int, pair: int) -> float:
        return float(np.cos(exact_angle(m, pair)))

    # Measures of the whole range.

    def take_census_of_range() -> Census:
        encoding = PositionEncoding(chain, "vector", range(spectrum.pairs))
        (census,) = take_census(encoding, [chain.plan.table], offset, length)
        return census

    def distinct_positions() -> float:
        return take_census_of_range().distinct

    def adjacent_collisions() -> float:
        return take_census_of_range().adjacent_collisions

    def max_angle_error() -> float:
        return worst(chain, offset, length).error_rad

    def max_phase_error() -> float:
        cos, sin = chain.table(positions)
        phases = np.arctan2(sin, cos)
        errors = wrap_angle(phases - exact.angles(positions))
        return float(errors.max())

    def max_cos_error() -> float:
        stored_cos, _ = chain.table(positions)
        exact_cos, _ = exact.table(positions)
        return float(np.abs(stored_cos - exact_cos).max())

    measures: dict[str, Callable[..., float]] = {
        "stored_position": stored_position,
        "position_step": position_step,
        "stored_angle": stored_angle,
        "exact_angle": exact_angle,
        "exact_cos": exact_cos,
        "distinct_positions": distinct_positions,
        "adjacent_collisions": adjacent_collisions,
        "max_angle_error": max_angle_error,
        "max_phase_error": max_phase_error,
        "max_cos_error": max_cos_error,
    }
    for row in printed:
        name = row["measure"]
        arguments = row["at"]
        digits = row["digits"]
        ours = measures[name](*arguments)
        label = name
        if arguments:
            label = f"{name}({','.join(map(str, arguments))})"
        yield {
            "source": source,
            "plan": chain.plan.label,
            "measure": label,
            "meaning": _FILE["meaning"][name],
            "reported": float(digits),
            "ours": ours,
            "verdict": "agrees" if agrees(digits, ours) else "differs",
        }
