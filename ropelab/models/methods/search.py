"""Parameters of methods searched on a trained model, by mutating and crossing the best.

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
from ropelab.models.methods.method import ActsOn, FixedMethod, Method, Scaled

# The largest divisor that is tried, as a multiple of the factor.
LARGEST = 2.0
# The best points so far, which are mutated and crossed.
PARENTS = 4
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
    """LongRoPE's factors searched on the model, in `budget` evaluations of its loss."""

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

    def search(
        self,
        geometry: Geometry,
        loss_under: Callable[[FixedMethod], float],
    ) -> Scaled:
        random = np.random.default_rng(0)
        starts = self._starts(geometry)
        is_free = np.ones(geometry.pairs, dtype=bool)
        if self.beyond_critical:
            is_free = rotations(geometry.inv_freq, geometry.trained_len) < 1
        # At factors below e a share of the logarithm would hardly move anything.
        step = STEP * math.log(max(self.factor, math.e))

        largest = math.log(LARGEST * self.factor)

        def logs_of_divisors(number: int, parents: list[np.ndarray]) -> np.ndarray:
            if number < len(starts):
                logs = starts[number]
            else:
                logs = _cross(parents, random)
                ends = random.integers(len(logs) + 1, size=2)
                first, last = np.sort(ends)
                logs[first:last] += random.normal(scale=step)

            free_logs = np.where(is_free, logs, 0.0)
            bounded = free_logs.clip(0.0, largest)
            return np.maximum.accumulate(bounded)

        def scaling(number: int, logs: np.ndarray) -> LongRope:
            divisors = tuple(np.exp(logs).tolist())
            return LongRope(long_factor=divisors, factor=self.factor)

        return _evolve(logs_of_divisors, scaling, loss_under, self.budget)

    def _starts(self, geometry: Geometry) -> list[np.ndarray]:
        """Return the logarithms of the divisors of known methods."""
        known: tuple[Scaling, ...] = (
            NtkByParts(factor=self.factor),
            NtkAware(factor=self.factor),
            NtkAware(factor=LARGEST * self.factor),
            PositionInterpolation(factor=self.factor),
        )
        starts = []
        for scaling in known:
            plan = scaling.plan(geometry, geometry.trained_len)
            starts.append(np.log(geometry.inv_freq / plan.inv_freq))
        return starts


def has_parameters(scaling: Scaling) -> bool:
    """Return True if a scaling has parameters that can be searched."""
    return any(field.name in SPREAD for field in fields(scaling))


@method("searched", "a search of this laboratory")
class Searched(Method):
    """A method with parameters chosen on the model, in `budget` evaluations.

    The published setting is tried first, then a third at random around it, then
    children of the best.
    """

    inner: Scaling
    budget: int
    acts_on: ClassVar[ActsOn] = "frequencies"

    @property
    def factor(self) -> float:
        return Scaled(scaling=self.inner).factor

    def search(
        self,
        geometry: Geometry,
        loss_under: Callable[[FixedMethod], float],
    ) -> Scaled:
        random = np.random.default_rng(0)
        published = self._published_values(geometry)

        def point(number: int, parents: list[np.ndarray]) -> np.ndarray:
            """Return a point of [-1, 1] per parameter, 0 being the published value."""
            count = len(published)
            if number == 0:
                return np.zeros(count)
            if number <= self.budget // 3:
                return random.uniform(-1, 1, count)

            crossed = _cross(parents, random)
            changes = random.normal(scale=STEP, size=count)
            is_mutated = random.random(count) < 0.5
            mutated = np.where(is_mutated, crossed + changes, crossed)
            return mutated.clip(-1, 1)

        def setting(number: int, point: np.ndarray) -> Scaling:
            if number == 0:
                return self.inner
            return replace(self.inner, **_values_at(point, published))

        return _evolve(point, setting, loss_under, self.budget)

    def _published_values(self, geometry: Geometry) -> dict[str, float]:
        """Return the published values of the parameters that are searched."""
        values = {}
        for field in fields(self.inner):
            if field.name in SPREAD:
                values[field.name] = getattr(self.inner, field.name)
        if values.get("attention_factor", 0) is None:
            # The formula computes it.
            plan = self.inner.plan(geometry, geometry.trained_len)
            values["attention_factor"] = plan.attention_factor
        return {name: float(value) for name, value in values.items()}


def _values_at(point: np.ndarray, published: dict[str, float]) -> dict[str, float]:
    """Return the parameters at a point of [-1, 1] for each."""
    exponents = point.tolist()
    values = {}
    for name, exponent in zip(published, exponents, strict=True):
        values[name] = published[name] * SPREAD[name] ** exponent

    # No factor is below 1. A smaller one is replaced by its inverse, so that no try is
    # wasted.
    if "factor" in values:
        factor = values["factor"]
        values["factor"] = max(factor, 1 / factor)

    for low, high in ORDERED:
        if low in values:
            smaller, larger = sorted((values[low], values[high]))
            values[low] = smaller
            values[high] = max(larger, smaller * (1 + 1e-9))
    return values


def _evolve(
    propose: Callable[[int, list[np.ndarray]], np.ndarray],
    candidate: Callable[[int, np.ndarray], Scaling],
    loss: Callable[[FixedMethod], float],
    budget: int,
) -> Scaled:
    """Return the candidate with the lowest loss.

    Each is proposed from the best points so far.
    """
    tried: list[tuple[float, np.ndarray, Scaled]] = []
    for number in range(budget):
        parents = [point for _, point, _ in tried[:PARENTS]]
        point = propose(number, parents)
        scaled = Scaled(scaling=candidate(number, point))
        tried.append((loss(scaled), point, scaled))
        # The sort is stable: of equal losses the first one stays ahead.
        tried.sort(key=lambda entry: entry[0])
    return tried[0][2]


def _cross(parents: list[np.ndarray], random: np.random.Generator) -> np.ndarray:
    """Return a random point between two random parents."""
    first = parents[random.integers(len(parents))]
    second = parents[random.integers(len(parents))]
    share = random.random()
    return share * first + (1 - share) * second
