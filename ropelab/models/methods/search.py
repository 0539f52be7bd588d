"""Parameters of methods searched on a trained model, by mutating and crossing the best
so far.

LongRoPE's factors (arXiv:2402.13753, section 3.2): every pair gets a divisor, rising
with the pair, from known methods on. And the parameters of any published formula,
chosen for other models: every method gets as many evaluations.
"""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import chain
from typing import ClassVar

import numpy as np

from ropelab.math.frequencies import Geometry, rotations
from ropelab.math.scaling import (
    LongRope,
    NtkAware,
    NtkByParts,
    PositionInterpolation,
    Scaling,
)
from ropelab.math.scaling.plan import FACTOR, Ranges, as_typed, method
from ropelab.models.methods.method import ActsOn, Method, Reading, Scaled

LARGEST = 2.0  # divisor tried, as a multiple of the factor
PARENTS = 4  # the best so far, which are mutated and crossed
# Standard deviation of a mutation, as a share of the logarithm of the factor, or of the
# spread.
STEP = 0.25
# Ends of a ramp, the smaller one first.
ORDERED = (
    ("alpha", "beta"),
    ("low_freq_factor", "high_freq_factor"),
    ("beta_slow", "beta_fast"),
)
# The parameters that are searched: from 1/x to x times the published value.
SPREAD = {"factor": 4.0, "attention_factor": 1.5, "base": 64.0}
SPREAD |= dict.fromkeys(chain(*ORDERED), 8.0)


@method(
    "longrope_search",
    "Ding et al. 2024, arXiv:2402.13753; beyond_critical: arXiv:2502.20082",
)
class LongRopeSearch(Method):
    """LongRoPE's factors searched on the model itself, in `budget` evaluations of its
    loss.
    """

    budget: int = 48
    # Pairs that rotate at least once within the trained length are kept (LongRoPE2).
    beyond_critical: bool = False
    factor: float = 1.0
    acts_on: ClassVar[ActsOn] = "frequencies"
    factor_means: ClassVar[str] = "context length over trained length"
    default_factors: ClassVar[tuple[float, ...]] = (1.0,)
    ranges: ClassVar[Ranges] = {"factor": FACTOR}

    @property
    def label(self) -> str:
        return as_typed(replace(self, factor=1.0))

    def found(
        self, geometry: Geometry, loss_under: Callable[[Reading], float]
    ) -> Scaled:
        random, factor = np.random.default_rng(0), self.factor
        free = np.ones(geometry.pairs, dtype=bool)
        if self.beyond_critical:
            free = rotations(geometry.inv_freq, geometry.trained_len) < 1
        known: tuple[Scaling, ...] = (
            NtkByParts(factor=factor),
            NtkAware(factor=factor),
            NtkAware(factor=LARGEST * factor),
            PositionInterpolation(factor=factor),
        )
        plans = [
            scaling.plan(geometry, geometry.trained_len).inv_freq for scaling in known
        ]
        starts = [np.log(geometry.inv_freq / inv_freq) for inv_freq in plans]

        def logs_of_divisors(number: int, parents: list[np.ndarray]) -> np.ndarray:
            if number < len(starts):
                logs = starts[number]
            else:
                logs = _mixed(parents, random)
                first, last = np.sort(random.integers(len(logs) + 1, size=2))
                # At factors below e a share of the logarithm would hardly move
                # anything.
                logs[first:last] += random.normal(
                    scale=STEP * math.log(max(factor, math.e))
                )
            bounded = np.where(free, logs, 0.0).clip(0.0, math.log(LARGEST * factor))
            return np.maximum.accumulate(bounded)

        def scaling(number: int, logs: np.ndarray) -> LongRope:
            return LongRope(long_factor=tuple(np.exp(logs).tolist()), factor=factor)

        return _evolved(logs_of_divisors, scaling, loss_under, self.budget)


def has_parameters(scaling: Scaling) -> bool:
    return any(field.name in SPREAD for field in fields(scaling))


@method("searched", "a search of this laboratory")
class Searched(Method):
    """A method with parameters chosen on the model itself, in `budget` evaluations of
    its loss.
    """

    # The published setting is tried first, then a third at random around it, then
    # children of the best.

    inner: Scaling
    budget: int
    acts_on: ClassVar[ActsOn] = "frequencies"

    @property
    def factor(self) -> float:
        return Scaled(scaling=self.inner).factor

    def found(
        self, geometry: Geometry, loss_under: Callable[[Reading], float]
    ) -> Scaled:
        random, published = np.random.default_rng(0), self.inner
        values = {
            f.name: getattr(published, f.name)
            for f in fields(published)
            if f.name in SPREAD
        }
        if values.get("attention_factor", 0) is None:  # computed by the formula
            plan = published.plan(geometry, geometry.trained_len)
            values["attention_factor"] = plan.attention_factor
        start = {name: float(value) for name, value in values.items()}

        def point_of(number: int, parents: list[np.ndarray]) -> np.ndarray:
            """Return a point of [-1, 1] per parameter, 0 being the published value."""
            if number == 0:
                return np.zeros(len(start))
            if number <= self.budget // 3:
                return random.uniform(-1, 1, len(start))
            mixed = _mixed(parents, random)
            moved = random.normal(scale=STEP, size=len(mixed)) * (
                random.random(len(mixed)) < 0.5
            )
            return (mixed + moved).clip(-1, 1)

        def setting(number: int, point: np.ndarray) -> Scaling:
            if number == 0:
                return published
            spans = zip(start.items(), point.tolist(), strict=True)
            chosen = {name: value * SPREAD[name] ** at for (name, value), at in spans}
            # below 1 there is none: reflected there, so no try is wasted
            if "factor" in chosen:
                chosen["factor"] = max(chosen["factor"], 1 / chosen["factor"])
            for low, high in ORDERED:
                if low in chosen:
                    ends = sorted((chosen[low], chosen[high]))
                    chosen |= {low: ends[0], high: max(ends[1], ends[0] * (1 + 1e-9))}
            return replace(published, **chosen)

        return _evolved(point_of, setting, loss_under, self.budget)


def _evolved(
    propose: Callable[[int, list[np.ndarray]], np.ndarray],
    candidate: Callable[[int, np.ndarray], Scaling],
    loss: Callable[[Reading], float],
    budget: int,
) -> Scaled:
    """Return the candidate with the lowest loss; each is proposed from the best points
    so far.
    """
    tried: list[tuple[float, np.ndarray, Scaled]] = []
    for number in range(budget):
        point = propose(number, [each[1] for each in tried[:PARENTS]])
        made = Scaled(scaling=candidate(number, point))
        tried.append((loss(made), point, made))
        # stable: of equal losses the first one stays ahead
        tried.sort(key=lambda each: each[0])
    return tried[0][2]


def _mixed(parents: list[np.ndarray], random: np.random.Generator) -> np.ndarray:
    one, other = (parents[random.integers(len(parents))] for _ in range(2))
    share = random.random()
    return share * one + (1 - share) * other
