"""Precision errors reported in issue trackers, with the printed numbers measured
again.
"""

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
    unit = Decimal(1).scaleb(int(digits.as_tuple().exponent))
    return abs(Decimal(ours) - digits) <= unit / 2 * Decimal("1.001")


_FILE = table_beside(__file__)
INCIDENTS: list[dict[str, Any]] = _FILE["incident"]


def incidents() -> pd.DataFrame:
    """Return a row per printed number, ours beside it (0.04 s)."""
    return pd.DataFrame(
        row for incident in INCIDENTS for row in _measure_incident(**incident)
    )


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

    def angle(of: Chain, position: int, pair: int) -> float:
        return float(of.angles(span(position, position + 1))[pair, 0])

    def census() -> Census:
        encoding = PositionEncoding(chain, "vector", range(spectrum.pairs))
        return take_census(encoding, [chain.plan.table], offset, length)[0]

    def max_cos_error() -> float:
        return float(
            np.abs(chain.table(positions)[0] - exact.table(positions)[0]).max()
        )

    def max_phase_error() -> float:
        cos, sin = chain.table(positions)
        return float(wrap_angle(np.arctan2(sin, cos) - exact.angles(positions)).max())

    # Of a position, of a position and a pair, or of the whole range.
    measures: dict[str, Callable[..., float]] = {
        "stored_position": lambda m: float(chain.positions(span(m, m + 1))[0]),
        "position_step": lambda m: float(
            spacing(span(m, m + 1), chain.plan.position)[0]
        ),
        "stored_angle": lambda *at: angle(chain, *at),
        "exact_angle": lambda *at: angle(exact, *at),
        "exact_cos": lambda *at: float(np.cos(angle(exact, *at))),
        "distinct_positions": lambda: census().distinct,
        "adjacent_collisions": lambda: census().adjacent_collisions,
        "max_angle_error": lambda: worst(chain, offset, length).error_rad,
        "max_phase_error": max_phase_error,
        "max_cos_error": max_cos_error,
    }
    for row in printed:
        name = row["measure"]
        at = row["at"]
        digits = row["digits"]
        ours = measures[name](*at)
        yield {
            "source": source,
            "plan": chain.plan.label,
            "measure": f"{name}({','.join(map(str, at))})" if at else name,
            "meaning": _FILE["meaning"][name],
            "reported": float(digits),
            "ours": ours,
            "verdict": "agrees" if agrees(digits, ours) else "differs",
        }
