"""Searching LongRoPE's factors on a trained model (arXiv:2402.13753, section 3.2).

Every pair gets a divisor between 1 and REACHES times the reach, rising with the pair. A small
population that starts from known methods is mutated and crossed; the loss of the model under a
candidate is its fitness. With `beyond_critical` only pairs that do not complete a turn within the
trained length are divided (LongRoPE2, arXiv:2502.20082).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ropelab.math.frequencies import Geometry, rotations
from ropelab.math.scaling import LongRope, NtkAware, NtkByParts, PositionInterpolation, Scaling
from ropelab.math.scaling.plan import as_typed, check_factor
from ropelab.models.methods.attention import check_whole
from ropelab.models.methods.method import ActsOn, Method, Reading, Scaled

REACHES = 2.0
"""The largest divisor tried, as a multiple of the reach."""
PARENTS = 4
"""How many of the best so far are mutated and crossed."""
STEP = 0.25
"""Standard deviation of a mutation, as a share of the logarithm of the reach."""

Fitness = Callable[[LongRope], float]


@dataclass(frozen=True, kw_only=True)
class LongRopeSearch(Method):
    """LongRoPE's factors searched on the model itself, in `budget` evaluations of its loss."""

    budget: int = 48
    beyond_critical: bool = False
    factor: float = 1.0
    name: ClassVar[str] = "longrope_search"
    source: ClassVar[str] = "Ding et al. 2024, arXiv:2402.13753; beyond_critical: arXiv:2502.20082"
    acts_on: ClassVar[ActsOn] = "frequencies"
    factor_means: ClassVar[str] = "context length over trained length"
    default_factors: ClassVar[tuple[float, ...]] = (1.0,)
    is_tunable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole(self.name, "budget", self.budget)
        check_factor(self.name, self.factor)

    @property
    def label(self) -> str:
        return as_typed(replace(self, factor=1.0))

    @property
    def reach(self) -> float:
        return self.factor

    def found(self, geometry: Geometry, loss_under: Callable[[Reading], float]) -> Reading:
        def fitness(scaling: Scaling) -> float:
            return loss_under(Scaled(scaling=scaling))

        best, _ = search(geometry, self.factor, fitness, self.budget, self.beyond_critical)
        return Scaled(scaling=best)


@dataclass(frozen=True)
class Candidate:
    """Logarithms of the divisors, rising, and the loss under them."""

    logs: np.ndarray
    loss: float


def search(
    geometry: Geometry, reach: float, fitness: Fitness, budget: int, beyond_critical: bool = False
) -> tuple[LongRope, list[float]]:
    """The best factors found, and the lowest loss after each evaluation.

    Args:
        reach: how many times the trained length is to be read.
        fitness: the loss of the model under a candidate; it is called `budget` times.
        beyond_critical: keep the pairs that turn at least once within the trained length.
    """
    random = np.random.default_rng(0)
    free = _free(geometry, beyond_critical)
    found: list[Candidate] = []
    best: list[float] = []
    for number in range(budget):
        starts = _starts(geometry, reach)
        logs = starts[number] if number < len(starts) else _child(found, reach, random)
        logs = _allowed(logs, free, reach)
        found.append(Candidate(logs, fitness(_scaling(logs, reach))))
        found.sort(key=lambda candidate: candidate.loss)
        best.append(found[0].loss)
    return _scaling(found[0].logs, reach), best


def _free(geometry: Geometry, beyond_critical: bool) -> np.ndarray:
    """Which pairs may be divided."""
    if not beyond_critical:
        return np.ones(geometry.pairs, dtype=bool)
    return rotations(geometry.inv_freq, geometry.trained_len) < 1


def _starts(geometry: Geometry, reach: float) -> list[np.ndarray]:
    """The known methods that the search begins from."""
    known: Sequence[Scaling] = (
        NtkByParts(factor=reach),
        NtkAware(factor=reach),
        NtkAware(factor=REACHES * reach),
        PositionInterpolation(factor=reach),
    )
    plans = [scaling.plan(geometry, geometry.trained_len).inv_freq for scaling in known]
    return [np.log(geometry.inv_freq / inv_freq) for inv_freq in plans]


def _child(found: list[Candidate], reach: float, random: np.random.Generator) -> np.ndarray:
    """Two of the best parents mixed at random, then a stretch of pairs moved."""
    parents = found[:PARENTS]
    one, other = (parents[random.integers(len(parents))].logs for _ in range(2))
    share = random.random()
    logs = share * one + (1 - share) * other
    first, last = np.sort(random.integers(len(logs) + 1, size=2))
    logs[first:last] += random.normal(scale=STEP * math.log(max(reach, math.e)))
    return logs


def _allowed(logs: np.ndarray, free: np.ndarray, reach: float) -> np.ndarray:
    """The nearest rising divisors within bounds, 1 where a pair is to be kept."""
    bounded = np.where(free, logs, 0.0).clip(0.0, math.log(REACHES * reach))
    return np.maximum.accumulate(bounded)


def _scaling(logs: np.ndarray, reach: float) -> LongRope:
    return LongRope(long_factor=tuple(np.exp(logs).tolist()), factor=reach)
