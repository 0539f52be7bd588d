"""Precision errors that issue trackers report: the printed numbers, measured again.

incidents.toml has a record for each report: the cast plan (the number format of each
stage of the rotation), the positions, and every number that the report prints.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.angle_errors import find_worst, wrap_angle
from ropelab.math.numerics.casts import CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain, Spectrum, list_positions
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import spacing
from ropelab.math.numerics.resolution import Census, take_census
from ropelab.runs.files import read_table_beside


def is_rounded_to(printed: str, ours: float) -> bool:
    """Return True if our number rounds to the printed number.

    The two then differ by at most half a unit of the last printed digit.

    >>> is_rounded_to("1045", 1044.6), is_rounded_to("1045.0", 1044.6)
    (True, False)
    """
    digits = Decimal(printed)
    exponent = int(digits.as_tuple().exponent)
    unit = Decimal(1).scaleb(exponent)
    difference = abs(Decimal(ours) - digits)
    # A thousandth more than one half is allowed: the error of a float64 on the half.
    return difference <= unit / 2 * Decimal("1.001")


_FILE = read_table_beside(__file__)
INCIDENTS: list[dict[str, Any]] = _FILE["incident"]


@dataclass(frozen=True)
class ReportedRange:
    """The rotations of the positions that a report is about."""

    # The chain with the roundings of the reported code.
    chain: Chain
    # The chain without roundings.
    exact: Chain
    # The first position, and the number of positions.
    offset: int
    length: int

    @property
    def positions(self) -> NDArray[np.float64]:
        return list_positions(self.offset, self.offset + self.length)

    def take_census(self) -> Census:
        """Count the positions that all pairs together keep distinct."""
        pairs = range(self.chain.spectrum.pairs)
        encoding = PositionEncoding(self.chain, "vector", pairs)
        (census,) = take_census(
            encoding, [self.chain.plan.table], self.offset, self.length
        )
        return census


# Measures of one position.


def stored_position(reported: ReportedRange, position: int) -> float:
    stored = reported.chain.positions(list_positions(position, position + 1))
    return float(stored[0])


def position_step(reported: ReportedRange, position: int) -> float:
    steps = spacing(
        list_positions(position, position + 1), reported.chain.plan.position
    )
    return float(steps[0])


# Measures of one position and pair.


def stored_angle(reported: ReportedRange, position: int, pair: int) -> float:
    angles = reported.chain.angles(list_positions(position, position + 1))
    return float(angles[pair, 0])


def exact_angle(reported: ReportedRange, position: int, pair: int) -> float:
    angles = reported.exact.angles(list_positions(position, position + 1))
    return float(angles[pair, 0])


def exact_cos(reported: ReportedRange, position: int, pair: int) -> float:
    return float(np.cos(exact_angle(reported, position, pair)))


# Measures of the whole range.


def count_distinct_positions(reported: ReportedRange) -> float:
    return reported.take_census().distinct


def count_adjacent_collisions(reported: ReportedRange) -> float:
    return reported.take_census().adjacent_collisions


def max_angle_error(reported: ReportedRange) -> float:
    return find_worst(reported.chain, reported.offset, reported.length).error_rad


def max_phase_error(reported: ReportedRange) -> float:
    cos, sin = reported.chain.table(reported.positions)
    phases = np.arctan2(sin, cos)
    errors = wrap_angle(phases - reported.exact.angles(reported.positions))
    return float(errors.max())


def max_cos_error(reported: ReportedRange) -> float:
    stored_cos, _ = reported.chain.table(reported.positions)
    exact_cos, _ = reported.exact.table(reported.positions)
    return float(np.abs(stored_cos - exact_cos).max())


# The measures by their names in incidents.toml, which says what each means.
MEASURES: dict[str, Callable[..., float]] = {
    "stored_position": stored_position,
    "position_step": position_step,
    "stored_angle": stored_angle,
    "exact_angle": exact_angle,
    "exact_cos": exact_cos,
    "distinct_positions": count_distinct_positions,
    "adjacent_collisions": count_adjacent_collisions,
    "max_angle_error": max_angle_error,
    "max_phase_error": max_phase_error,
    "max_cos_error": max_cos_error,
}


def measure_incidents() -> pd.DataFrame:
    """Return a row for each printed number, with our number beside it (0.04 s)."""
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
    """Yield a row for each number that a report prints."""
    spectrum = Spectrum(inverse_frequencies(rotary_dim, base), base, rotary_dim)
    chain = Chain(parse_cast(cast), spectrum)
    reported = ReportedRange(chain, Chain(CastPlan(), spectrum), offset, length)
    for row in printed:
        name = row["measure"]
        arguments = row["at"]
        digits = row["digits"]
        our_number = MEASURES[name](reported, *arguments)

        label = name
        if arguments:
            label = f"{name}({','.join(map(str, arguments))})"
        yield {
            "source": source,
            "plan": chain.plan.label,
            "base": base,
            "rotary_dim": rotary_dim,
            "measure": label,
            "meaning": _explain(name, arguments, offset, length),
            "reported": float(digits),
            "as_reported": row.get("said", digits.removesuffix(".")),
            "as_measured": _write_like(digits, our_number),
            "ours": our_number,
            "verdict": "agrees" if is_rounded_to(digits, our_number) else "differs",
        }


def _explain(name: str, arguments: list[int], offset: int, length: int) -> str:
    """Say in words what a measure measured, and at which positions."""
    places = dict(zip(("at", "pair"), arguments, strict=False))
    last = offset + length - 1
    meaning: str = _FILE["meaning"][name]
    return meaning.format(first=offset, last=last, **places)


def _write_like(printed: str, ours: float) -> str:
    """Write our number with two significant digits more than the printed number.

    >>> _write_like("0.62", 0.624838)
    '0.6248'
    """
    digits = len(Decimal(printed).as_tuple().digits)
    return f"{ours:.{digits + 2}g}"
