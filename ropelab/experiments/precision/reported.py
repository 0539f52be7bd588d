"""Numbers from bug reports, measured again under the plan of the run.

`stored_angle(1857,1) = 1045` names a measurement, what it is taken of, and what the report printed.
Whether ours agrees is decided by the digits that were printed, so `1045` is met by 1044.6 and
`1045.0` is not.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np
import pandas as pd
from jaxtyping import Float

from ropelab.claims.arithmetic.incidents import judge
from ropelab.errors import InputError, unknown_name
from ropelab.math.numerics.accuracy import TableSample
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.code import Code
from ropelab.math.numerics.formats import spacing
from ropelab.math.numerics.phase import worst, wrapped
from ropelab.math.numerics.ranges import blocks, span
from ropelab.math.numerics.resolution import take_census

Positions = Float[np.ndarray, "n"]
_REPORTED = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*=\s*(\S+)\s*")


@dataclass(frozen=True)
class Reported:
    """One number of a report: which measurement, of which position and pair, and as printed."""

    measure: str
    arguments: tuple[int, ...]
    printed: str

    @property
    def label(self) -> str:
        """The measurement as it is typed."""
        inside = f"({','.join(map(str, self.arguments))})" if self.arguments else ""
        return f"{self.measure}{inside}"


@dataclass(frozen=True)
class Range:
    """What a measurement is taken of: an implementation and the positions of the run."""

    chain: Chain
    offset: int
    length: int

    @property
    def exact(self) -> Chain:
        """The same frequencies without any cast."""
        return Chain(CastPlan(), self.chain.spectrum)


def parse_reported(text: str) -> Reported:
    """Read `measure(position,pair) = number`.

    Raises:
        InputError: it does not read so, there is no such measurement, or it takes other arguments.
    """
    match = _REPORTED.fullmatch(text)
    if match is None:
        raise InputError(f"cannot read '{text}': write measure(position,pair)=number")
    name, inside, printed = match[1], match[2] or "", match[3]
    if name not in MEASURES:
        raise unknown_name("measurement", name, MEASURES)
    arguments = _whole_numbers(text, inside)
    wanted = MEASURES[name].arguments
    if len(arguments) != wanted:
        raise InputError(f"{name} takes {wanted} numbers in brackets, got {len(arguments)}")
    try:
        finite = Decimal(printed).is_finite()
    except InvalidOperation:
        finite = False
    if not finite:
        raise InputError(f"cannot read '{text}': '{printed}' is not a number")
    return Reported(name, arguments, printed)


def _whole_numbers(text: str, inside: str) -> tuple[int, ...]:
    parts = [part.strip() for part in inside.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        raise InputError(f"cannot read '{text}': positions and pairs are whole numbers")
    return tuple(map(int, parts))


def reported_table(reported: Sequence[Reported], range_: Range, source: str) -> pd.DataFrame:
    """One row per reported number, ours beside it."""
    rows = []
    for item in reported:
        ours = MEASURES[item.measure].measure(range_, *item.arguments)
        rows.append(
            {
                "source": source,
                "plan": range_.chain.plan.label,
                "measure": item.label,
                "meaning": MEASURES[item.measure].meaning,
                "reported": float(item.printed),
                "ours": ours,
                "verdict": str(judge(item.printed, ours)),
            }
        )
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Measure:
    """A measurement: how many numbers it takes (position, then pair), and what it is."""

    arguments: int
    meaning: str
    measure: Callable[..., float]


def _at(position: int) -> Positions:
    return np.array([position], dtype=np.float64)


def _stored_position(of: Range, position: int) -> float:
    return float(of.chain.positions(_at(position))[0])


def _position_step(of: Range, position: int) -> float:
    return float(spacing(_at(position), of.chain.plan.position)[0])


def _stored_angle(of: Range, position: int, pair: int) -> float:
    return float(of.chain.angles(_at(position))[pair, 0])


def _exact_angle(of: Range, position: int, pair: int) -> float:
    return float(of.exact.angles(_at(position))[pair, 0])


def _wrong_positions(of: Range) -> float:
    total = 0
    for start, stop in blocks(of.offset, of.offset + of.length):
        positions = span(start, stop)
        total += int((of.chain.positions(positions) != positions).sum())
    return total


def _distinct_positions(of: Range) -> float:
    code = Code(of.chain, "vector", range(of.chain.spectrum.pairs))
    return take_census(code, [of.chain.plan.table], of.offset, of.length)[0].distinct


def _adjacent_collisions(of: Range) -> float:
    code = Code(of.chain, "vector", range(of.chain.spectrum.pairs))
    return take_census(code, [of.chain.plan.table], of.offset, of.length)[0].adjacent_collisions


def _max_table_error(of: Range) -> float:
    plan, spectrum = of.chain.plan, of.chain.spectrum
    return max(_over_blocks(of, lambda m: TableSample(spectrum, m).largest_error(plan)))


def _max_cos_error(of: Range) -> float:
    return max(
        _over_blocks(of, lambda m: float(np.abs(of.chain.table(m)[0] - of.exact.table(m)[0]).max()))
    )


def _max_phase_error(of: Range) -> float:
    def largest(positions: Positions) -> float:
        cos, sin = of.chain.table(positions)
        return float(wrapped(np.arctan2(sin, cos) - of.exact.angles(positions)).max())

    return max(_over_blocks(of, largest))


def _over_blocks(of: Range, measure: Callable[[Positions], float]) -> list[float]:
    return [measure(span(start, stop)) for start, stop in blocks(of.offset, of.offset + of.length)]


def _max_angle_error(of: Range) -> float:
    return worst(of.chain, of.offset, of.length).error_rad


MEASURES: dict[str, Measure] = {
    "stored_position": Measure(1, "the position as stored", _stored_position),
    "position_step": Measure(1, "step of the position's format there", _position_step),
    "stored_angle": Measure(2, "the angle as stored, in radians", _stored_angle),
    "exact_angle": Measure(2, "the angle in float64, in radians", _exact_angle),
    "exact_cos": Measure(
        2, "the cosine in float64", lambda of, m, i: math.cos(_exact_angle(of, m, i))
    ),
    "stored_cos": Measure(
        2, "the cosine as stored", lambda of, m, i: float(of.chain.table(_at(m))[0][i, 0])
    ),
    "wrong_positions": Measure(0, "positions not stored as they are", _wrong_positions),
    "distinct_positions": Measure(0, "different codes in the range", _distinct_positions),
    "adjacent_collisions": Measure(0, "neighbours with the same code", _adjacent_collisions),
    "max_angle_error": Measure(0, "largest angle error, in radians", _max_angle_error),
    "max_phase_error": Measure(
        0, "largest angle between a stored (cos, sin) and the exact one", _max_phase_error
    ),
    "max_table_error": Measure(0, "largest error of a stored cos or sin", _max_table_error),
    "max_cos_error": Measure(0, "largest error of a stored cos", _max_cos_error),
}
"""Everything that can be compared with a report. A new one is one function and one line here."""
