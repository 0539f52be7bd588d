"""Precision errors reported in issue trackers, with the printed numbers measured again."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.angle_errors import worst, wrapped
from ropelab.math.numerics.casts import CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain, Spectrum, span
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import spacing
from ropelab.math.numerics.resolution import take_census


def agrees(printed: str, ours: float) -> bool:
    """Return True if ours rounds to a printed number, to within half of its last digit.

    >>> agrees("1045", 1044.6), agrees("1045.0", 1044.6)
    (True, False)
    """
    digits = Decimal(printed)
    unit = Decimal(1).scaleb(int(digits.as_tuple().exponent))
    return abs(Decimal(ours) - digits) <= unit / 2 * Decimal("1.001")


@dataclass(frozen=True, kw_only=True)
class Incident:
    """A report: the casts and positions that it is about, and the numbers that it prints.

    printed: `measure`, what it is taken `at` (position, then pair), and the `digits` as printed.
    """

    source: str
    cast: str
    base: float
    rotary_dim: int
    offset: int
    length: int
    printed: Sequence[Mapping[str, Any]]

    @property
    def chain(self) -> Chain:
        """The frequencies under the casts of the report."""
        return Chain(parse_cast(self.cast), self.exact.spectrum)

    @property
    def exact(self) -> Chain:
        """The frequencies without any cast."""
        frequencies = inverse_frequencies(self.rotary_dim, self.base)
        return Chain(CastPlan(), Spectrum(frequencies, self.base, self.rotary_dim))

    @property
    def positions(self) -> np.ndarray:
        """The positions offset .. offset + length - 1."""
        return span(self.offset, self.offset + self.length)


_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["incident"]
INCIDENTS = tuple(Incident(**row) for row in _ROWS)


def _at(position: int) -> np.ndarray:
    return np.array([position], dtype=np.float64)


def _angle(chain: Chain, position: int, pair: int) -> float:
    return float(chain.angles(_at(position))[pair, 0])


def _census(of: Incident, count: str) -> int:
    encoding = PositionEncoding(of.chain, "vector", range(of.chain.spectrum.pairs))
    census = take_census(encoding, [of.chain.plan.table], of.offset, of.length)[0]
    return int(getattr(census, count))


def _max_cos_error(of: Incident) -> float:
    (ours, _), (exact, _) = of.chain.table(of.positions), of.exact.table(of.positions)
    return float(np.abs(ours - exact).max())


def _max_phase_error(of: Incident) -> float:
    cos, sin = of.chain.table(of.positions)
    return float(wrapped(np.arctan2(sin, cos) - of.exact.angles(of.positions)).max())


# measure -> meaning, and its value for an incident, a position and a pair
MEASURES: dict[str, tuple[str, Callable[..., float]]] = {
    "stored_position": (
        "the position as stored",
        lambda of, position: float(of.chain.positions(_at(position))[0]),
    ),
    "position_step": (
        "step of the position's format there",
        lambda of, position: float(spacing(_at(position), of.chain.plan.position)[0]),
    ),
    "stored_angle": ("the angle as stored, in radians", lambda of, *at: _angle(of.chain, *at)),
    "exact_angle": ("the angle in float64, in radians", lambda of, *at: _angle(of.exact, *at)),
    "exact_cos": ("the cosine in float64", lambda of, *at: float(np.cos(_angle(of.exact, *at)))),
    "distinct_positions": ("different codes in the range", lambda of: _census(of, "distinct")),
    "adjacent_collisions": (
        "neighbours with the same code",
        lambda of: _census(of, "adjacent_collisions"),
    ),
    "max_angle_error": (
        "largest angle error, in radians",
        lambda of: worst(of.chain, of.offset, of.length).error_rad,
    ),
    "max_phase_error": (
        "largest angle between a stored (cos, sin) and the exact one",
        _max_phase_error,
    ),
    "max_cos_error": ("largest error of a stored cos", _max_cos_error),
}


def incidents() -> pd.DataFrame:
    """Return a row per printed number, ours beside it; takes about 0.04 s."""
    rows = []
    for incident in INCIDENTS:
        for row in incident.printed:
            name, at, digits = row["measure"], row["at"], row["digits"]
            meaning, measure = MEASURES[name]
            ours = measure(incident, *at)
            rows.append(
                {
                    "source": incident.source,
                    "plan": incident.chain.plan.label,
                    "measure": f"{name}({','.join(map(str, at))})" if at else name,
                    "meaning": meaning,
                    "reported": float(digits),
                    "ours": ours,
                    "verdict": "agrees" if agrees(digits, ours) else "differs",
                }
            )
    return pd.DataFrame(rows)
