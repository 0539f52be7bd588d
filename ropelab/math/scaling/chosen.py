"""Frequencies chosen otherwise than by a base: a single one, a few, or all but a band.

They ask what many frequencies are for. A model is trained with them, or has a band taken away;
none of them is meant to reach further.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from ropelab.errors import InputError, unknown_name
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling.plan import RopePlan, Scaling
from ropelab.math.scaling.uniform import Unscaled

BANDS = ("fast", "middle", "slow")
"""The thirds of the pairs, fastest first: of 16 pairs the first 5, the next 6, the last 5."""
NO_PAPER = "an experiment of this package"
_PLAIN = Unscaled()


@dataclass(frozen=True, kw_only=True)
class One(Scaling):
    """theta'_i = 2 pi / ``period`` in every pair: one frequency in place of many."""

    period: float

    name: ClassVar[str] = "one"
    source: ClassVar[str] = NO_PAPER

    def __post_init__(self) -> None:
        check_period(self.name, "period", self.period)

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        return RopePlan(np.full(geometry.pairs, 2 * math.pi / self.period))


@dataclass(frozen=True, kw_only=True)
class Spaced(Scaling):
    """``n`` frequencies with periods from ``shortest`` to ``longest``, each in pairs/n pairs.

    Their spacing is geometric, as RoPE's is, or ``uniform``: then equal steps of frequency, so that
    all periods but one are short.
    """

    n: int
    shortest: float = 2 * math.pi
    longest: float = 1e6
    uniform: bool = False

    name: ClassVar[str] = "spaced"
    source: ClassVar[str] = NO_PAPER

    def __post_init__(self) -> None:
        check_period(self.name, "shortest", self.shortest)
        check_period(self.name, "longest", self.longest)
        if self.n < 2:
            raise InputError(f"spaced: n must be at least 2 frequencies, not {self.n}")
        if self.longest <= self.shortest:
            raise InputError(
                f"spaced: longest must be above shortest ({self.shortest:g}), not {self.longest:g}"
            )

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        """See Scaling.plan. InputError if the geometry has fewer pairs than frequencies."""
        if self.n > geometry.pairs:
            raise InputError(
                f"spaced: n must be at most {geometry.pairs}, the number of pairs, not {self.n}"
            )
        ends = 2 * math.pi / self.shortest, 2 * math.pi / self.longest
        spread = np.linspace if self.uniform else np.geomspace
        chosen: Float[np.ndarray, " n"] = spread(*ends, self.n)
        return RopePlan(chosen[np.arange(geometry.pairs) * self.n // geometry.pairs])


@dataclass(frozen=True, kw_only=True)
class Without(Scaling):
    """theta' = 0 in one third of the pairs (``band``: fast, middle or slow), after ``inner``.

    Pairs that do not turn keep their part of every score, wherever the two tokens stand.
    """

    band: str
    inner: Scaling = _PLAIN

    name: ClassVar[str] = "without"
    source: ClassVar[str] = NO_PAPER

    def __post_init__(self) -> None:
        if self.band not in BANDS:
            raise unknown_name("band", self.band, BANDS)

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        plan = self.inner.plan(geometry, length)
        kept = plan.inv_freq.copy()
        kept[band_of(geometry.pairs, self.band)] = 0.0
        return RopePlan(kept, plan.attention_factor, plan.stretch)


def band_of(pairs: int, band: str) -> slice:
    """The pairs of a band, which are in the order of their frequencies."""
    third = BANDS.index(band)
    return slice(round(pairs * third / len(BANDS)), round(pairs * (third + 1) / len(BANDS)))


def check_period(method: str, knob: str, value: float) -> None:
    """Raise InputError unless a period is a finite number of tokens above 2.

    A pair that turns by half a turn or more a token cannot be told from one that turns back.
    """
    if not (math.isfinite(value) and value > 2):
        raise InputError(f"{method}: {knob} must be a number of tokens above 2, not {value:g}")
