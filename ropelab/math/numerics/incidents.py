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
from ropelab.math.numerics.resolution import Census, take_census


def agrees(printed: str, ours: float) -> bool:
    """Return True if ours rounds to a printed number, within half of its last digit.

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
        return Chain(parse_cast(self.cast), self.exact.spectrum)

    @property
    def exact(self) -> Chain:
        frequencies = inverse_frequencies(self.rotary_dim, self.base)
        return Chain(CastPlan(), Spectrum(frequencies, self.base, self.rotary_dim))

    @property
    def positions(self) -> np.ndarray:
        return span(self.offset, self.offset + self.length)


_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
INCIDENTS = tuple(Incident(**row) for row in _FILE["incident"])


def _angle(chain: Chain, position: int, pair: int) -> float:
    return float(chain.angles(span(position, position + 1))[pair, 0])


def _census(of: Incident) -> Census:
    encoding = PositionEncoding(of.chain, "vector", range(of.chain.spectrum.pairs))
    return take_census(encoding, [of.chain.plan.table], of.offset, of.length)[0]


def _max_cos_error(of: Incident) -> float:
    (ours, _), (exact, _) = of.chain.table(of.positions), of.exact.table(of.positions)
    return float(np.abs(ours - exact).max())


def _max_phase_error(of: Incident) -> float:
    cos, sin = of.chain.table(of.positions)
    return float(wrapped(np.arctan2(sin, cos) - of.exact.angles(of.positions)).max())


# Measure -> its value for an incident, at a position and a pair; in the file, its meaning.
MEASURES: dict[str, Callable[..., float]] = {
    "stored_position": lambda of, at: float(of.chain.positions(span(at, at + 1))[0]),
    "position_step": lambda of, at: float(spacing(span(at, at + 1), of.chain.plan.position)[0]),
    "stored_angle": lambda of, *at: _angle(of.chain, *at),
    "exact_angle": lambda of, *at: _angle(of.exact, *at),
    "exact_cos": lambda of, *at: float(np.cos(_angle(of.exact, *at))),
    "distinct_positions": lambda of: _census(of).distinct,
    "adjacent_collisions": lambda of: _census(of).adjacent_collisions,
    "max_angle_error": lambda of: worst(of.chain, of.offset, of.length).error_rad,
    "max_phase_error": _max_phase_error,
    "max_cos_error": _max_cos_error,
}


def incidents() -> pd.DataFrame:
    """Return a row per printed number, ours beside it (0.04 s)."""
    rows = []
    for incident in INCIDENTS:
        for row in incident.printed:
            name, at, digits = row["measure"], row["at"], row["digits"]
            ours = MEASURES[name](incident, *at)
            rows.append(
                {
                    "source": incident.source,
                    "plan": incident.chain.plan.label,
                    "measure": f"{name}({','.join(map(str, at))})" if at else name,
                    "meaning": _FILE["meaning"][name],
                    "reported": float(digits),
                    "ours": ours,
                    "verdict": "agrees" if agrees(digits, ours) else "differs",
                }
            )
    return pd.DataFrame(rows)
