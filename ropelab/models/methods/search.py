"""Methods whose parameters are searched on a trained model.

`LongRopeSearch` searches LongRoPE's factors (arXiv:2402.13753, section 3.2): a divisor of
the frequency of each pair, rising from pair to pair. `Searched` searches the parameters
of any published formula, which were chosen for other models.

Both searches are evolutions (`_evolve`). A candidate is described by a point, an array
of numbers. Each new point is a random point between two of the best points so far (a
cross), to which random numbers are added (a mutation). A search evaluates the model's
loss `budget` times.
"""

import math
from collections.abc import Callable
from dataclasses import fields, replace
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
from ropelab.math.scaling.plan import FACTOR, Ranges, method, write_as_typed
from ropelab.models.methods.method import ActsOn, FixedMethod, Method, Scaled

# The largest divisor that is tried, as a multiple of the factor.
LARGEST_DIVISOR = 2.0
# The number of the best points so far that are crossed.
PARENTS = 4
# The standard deviation of a mutation of the logarithm of a divisor, as a share of the
# logarithm of the factor.
DIVISOR_STEP = 0.25
# The standard deviation of a mutation of any other parameter, whose numbers in a point
# go from -1 to 1.
PARAMETER_STEP = 0.25
# Pairs of parameters of which the first must be the smaller one: the ends of a ramp.
ORDERED = (
    ("alpha", "beta"),
    ("low_freq_factor", "high_freq_factor"),
    ("beta_slow", "beta_fast"),
)
# The parameters that are searched, each with a number x: values from 1/x to x times the
# published value are tried.
SPREAD = {"factor": 4.0, "attention_factor": 1.5, "base": 64.0}
for low_end, high_end in ORDERED:
    SPREAD[low_end] = 8.0
    SPREAD[high_end] = 8.0


@method(
    "longrope_search",
    "Ding et al. 2024, arXiv:2402.13753; beyond_critical: arXiv:2502.20082",
)
class LongRopeSearch(Method):
    """LongRoPE's factors searched on the model, in `budget` evaluations of its loss."""

    budget: int = 48
    # True: only pairs that rotate less than once within the trained length are changed, as
    # in LongRoPE2.
    beyond_critical: bool = False
    factor: float = 1.0
    acts_on: ClassVar[ActsOn] = "frequencies"
    factor_means: ClassVar[str] = "context length over trained length"
    default_factors: ClassVar[tuple[float, ...]] = (1.0,)
    ranges: ClassVar[Ranges] = {"factor": FACTOR}

    @property
    def label(self) -> str:
        # The label leaves out the factor, which has a column of its own in tables.
        return write_as_typed(replace(self, factor=1.0))

    def search(
        self,
        geometry: Geometry,
        loss_under: Callable[[FixedMethod], float],
    ) -> Scaled:
        # A point is the logarithms of the divisors of all pairs.
        random = np.random.default_rng(0)
        starts = self._list_known_points(geometry)
        is_changed = np.ones(geometry.pairs, dtype=bool)
        if self.beyond_critical:
            is_changed = rotations(geometry.inv_freq, geometry.trained_len) < 1
        # For factors below e a share of the logarithm would hardly move anything.
        step = DIVISOR_STEP * math.log(max(self.factor, math.e))
        largest_log = math.log(LARGEST_DIVISOR * self.factor)

        def propose(number: int, parents: list[np.ndarray]) -> np.ndarray:
            if number < len(starts):
                logs = starts[number]
            else:
                # A random range of pairs is mutated by the same number.
                logs = _cross(parents, random)
                ends = random.integers(len(logs) + 1, size=2)
                first, stop = np.sort(ends)
                logs[first:stop] += random.normal(scale=step)

            # A pair that is not changed has the divisor 1. Divisors must not fall from one
            # pair to the next.
            logs_of_changed = np.where(is_changed, logs, 0.0)
            bounded = logs_of_changed.clip(0.0, largest_log)
            return np.maximum.accumulate(bounded)

        def make_scaling(number: int, logs: np.ndarray) -> LongRope:
            divisors = tuple(np.exp(logs).tolist())
            return LongRope(long_factor=divisors, factor=self.factor)

        return _evolve(propose, make_scaling, loss_under, self.budget)

    def _list_known_points(self, geometry: Geometry) -> list[np.ndarray]:
        """Return the points of known methods, with which the search begins."""
        known: tuple[Scaling, ...] = (
            NtkByParts(factor=self.factor),
            NtkAware(factor=self.factor),
            # NTK-aware scaling works only up to about half of its factor.
            NtkAware(factor=LARGEST_DIVISOR * self.factor),
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

    The published setting is tried first. A third of the budget is then spent on random
    settings around it, and the rest on crossed and mutated settings.
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
        # A point has a number from -1 to 1 for each parameter; 0 is the published value.
        random = np.random.default_rng(0)
        published = self._read_published_values(geometry)

        def propose(number: int, parents: list[np.ndarray]) -> np.ndarray:
            count = len(published)
            if number == 0:
                return np.zeros(count)
            if number <= self.budget // 3:
                return random.uniform(-1, 1, count)

            crossed = _cross(parents, random)
            changes = random.normal(scale=PARAMETER_STEP, size=count)
            is_mutated = random.random(count) < 0.5
            mutated = np.where(is_mutated, crossed + changes, crossed)
            return mutated.clip(-1, 1)

        def make_scaling(number: int, point: np.ndarray) -> Scaling:
            if number == 0:
                return self.inner
            return replace(self.inner, **_read_values_at(point, published))

        return _evolve(propose, make_scaling, loss_under, self.budget)

    def _read_published_values(self, geometry: Geometry) -> dict[str, float]:
        """Return the published values of the parameters that are searched."""
        values = {}
        for field in fields(self.inner):
            if field.name in SPREAD:
                values[field.name] = getattr(self.inner, field.name)
        name = "attention_factor"
        if name in values and values[name] is None:
            # None stands for the factor that the published formula computes.
            plan = self.inner.plan(geometry, geometry.trained_len)
            values[name] = plan.attention_factor
        return {name: float(value) for name, value in values.items()}


def _read_values_at(point: np.ndarray, published: dict[str, float]) -> dict[str, float]:
    """Return the values of the parameters at a point, given the published values."""
    exponents = point.tolist()
    values = {}
    for name, exponent in zip(published, exponents, strict=True):
        values[name] = published[name] * SPREAD[name] ** exponent

    # A factor must not be below 1. A smaller one is replaced by its inverse, so that no
    # evaluation is wasted.
    if "factor" in values:
        factor = values["factor"]
        values["factor"] = max(factor, 1 / factor)

    for low, high in ORDERED:
        if low in values:
            smaller, larger = sorted((values[low], values[high]))
            values[low] = smaller
            # A ramp between two equal ends would divide by 0.
            values[high] = max(larger, smaller * (1 + 1e-9))
    return values


def _evolve(
    propose: Callable[[int, list[np.ndarray]], np.ndarray],
    make_scaling: Callable[[int, np.ndarray], Scaling],
    loss_under: Callable[[FixedMethod], float],
    budget: int,
) -> Scaled:
    """Return the method with the lowest loss of all that were tried.

    Args:
        propose: makes a point, given its number and the best points so far.
        make_scaling: makes the method of a point, given its number and the point.
        loss_under: evaluates the model under a method.
        budget: the number of points that are tried.
    """
    # The loss, the point and the method of each try, the lowest loss first.
    tried: list[tuple[float, np.ndarray, Scaled]] = []
    for number in range(budget):
        parents = [point for _, point, _ in tried[:PARENTS]]
        point = propose(number, parents)
        scaled = Scaled(scaling=make_scaling(number, point))
        tried.append((loss_under(scaled), point, scaled))
        # The sort is stable: of equal losses the first stays ahead.
        tried.sort(key=lambda entry: entry[0])
    _, _, best = tried[0]
    return best


def _cross(parents: list[np.ndarray], random: np.random.Generator) -> np.ndarray:
    """Return a random point between two random parents."""
    first = parents[random.integers(len(parents))]
    second = parents[random.integers(len(parents))]
    share = random.random()
    return share * first + (1 - share) * second
