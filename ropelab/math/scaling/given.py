"""LongRoPE: one searched factor per pair, handed in, not computed."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from ropelab.errors import InputError
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling.plan import RopePlan, Scaling, check_attention_factor, check_factor


@dataclass(frozen=True, kw_only=True)
class LongRope(Scaling):
    """theta'_i = theta_i / long_factor_i beyond the trained length, / short_factor_i up to it.

    The factors are the result of a search and come from a config; an empty ``short_factor`` is all
    ones. cos and sin are multiplied, at every length, by ``attention_factor`` when given, else by
    sqrt(1 + ln(factor) / ln(L)), where ``factor`` is how far the model is meant to reach.
    """

    long_factor: tuple[float, ...] = ()
    short_factor: tuple[float, ...] = ()
    factor: float = 1.0
    attention_factor: float | None = None

    name: ClassVar[str] = "longrope"
    source: ClassVar[str] = "Ding et al. 2024, arXiv:2402.13753; transformers rope type 'longrope'"
    factor_means: ClassVar[str] = "the reach that the attention factor is computed from"
    default_factors: ClassVar[tuple[float, ...]] = (1.0,)

    def __post_init__(self) -> None:
        if not self.long_factor:
            raise InputError(
                "longrope: needs long_factor=[...], one number per pair; longrope_search finds them"
            )
        check_factor(self.name, self.factor)
        check_attention_factor(self.name, self.attention_factor)
        _check_divisors("long_factor", self.long_factor)
        _check_divisors("short_factor", self.short_factor)

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        long = length > geometry.trained_len
        divisors = self._divisors(geometry.pairs, long)
        inv_freq = geometry.inv_freq / divisors
        stretch = self.factor if long else 1.0
        return RopePlan(inv_freq, self.attention(geometry.trained_len), stretch)

    def attention(self, trained_len: int) -> float:
        """The factor on cos and sin; it does not change at the trained length."""
        if self.attention_factor is not None:
            return self.attention_factor
        return math.sqrt(1 + math.log(self.factor) / math.log(trained_len))

    def _divisors(self, pairs: int, long: bool) -> Float[np.ndarray, " pairs"]:
        given = self.long_factor if long else self.short_factor or (1.0,) * pairs
        if len(given) != pairs:
            which = "long_factor" if long else "short_factor"
            raise InputError(f"longrope: {which} has {len(given)} numbers for {pairs} pairs")
        return np.array(given, dtype=np.float64)


def _check_divisors(name: str, values: tuple[float, ...]) -> None:
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"longrope: {name} must hold positive numbers, not {value:g}")
