"""Searching the knobs of a scaling method on a trained model, with a budget that is one for all.

A published formula is one setting of its knobs, chosen for other models. Beside a method that was
searched on the model itself it says little about the formula's family; so every method with knobs
can be given the same number of evaluations. The first candidate is the published setting, a third
of them are spread at random around it, the rest are children of the best.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import Scaling
from ropelab.models.methods.attention import check_whole
from ropelab.models.methods.method import ActsOn, Method, Reading, Scaled
from ropelab.models.methods.search import PARENTS

SPREAD = {
    "factor": 4.0,
    "alpha": 8.0,
    "beta": 8.0,
    "low_freq_factor": 8.0,
    "high_freq_factor": 8.0,
    "beta_slow": 8.0,
    "beta_fast": 8.0,
    "attention_factor": 1.5,
    "base": 64.0,
}
"""The knobs that are searched: from 1/x to x times the published value."""
ORDERED = (("alpha", "beta"), ("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast"))
"""Ends of a ramp, the smaller one first."""
STEP = 0.25
"""Standard deviation of a mutation, as a share of the logarithm of the spread."""


@dataclass(frozen=True, kw_only=True)
class Searched(Method):
    """A method whose knobs are chosen on the model itself, in `budget` evaluations of its loss."""

    inner: Scaling
    budget: int
    name: ClassVar[str] = "searched"
    source: ClassVar[str] = "a search of this laboratory"
    acts_on: ClassVar[ActsOn] = "frequencies"
    is_tunable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole(self.name, "budget", self.budget)

    @property
    def reach(self) -> float:
        return Scaled(scaling=self.inner).reach

    def found(self, geometry: Geometry, loss_under: Callable[[Reading], float]) -> Reading:
        def fitness(scaling: Scaling) -> float:
            return loss_under(Scaled(scaling=scaling))

        return Scaled(scaling=best_knobs(self.inner, geometry, fitness, self.budget))


def has_knobs(scaling: Scaling) -> bool:
    """Whether a method has a knob that can be searched."""
    return any(knob.name in SPREAD for knob in fields(scaling))


def best_knobs(
    published: Scaling, geometry: Geometry, fitness: Callable[[Scaling], float], budget: int
) -> Scaling:
    """The setting with the lowest loss among `budget`, the published one first.

    Args:
        fitness: the loss of the model under a setting; it is called `budget` times.
    """
    random = np.random.default_rng(0)
    start = _start(published, geometry)
    tried: list[tuple[float, int, np.ndarray, Scaling]] = []
    for number in range(budget):
        if number == 0:
            point = np.zeros(len(start))
        elif number <= budget // 3:
            point = random.uniform(-1, 1, len(start))
        else:
            point = _child([each[2] for each in tried[:PARENTS]], random)
        setting = _setting(published, start, point) if number else published
        tried.append((fitness(setting), number, point, setting))
        tried.sort(key=lambda each: each[:2])
    return tried[0][3]


def _start(published: Scaling, geometry: Geometry) -> dict[str, float]:
    """The published values of the knobs; what a formula computes, as it computes it."""
    start = {k.name: getattr(published, k.name) for k in fields(published) if k.name in SPREAD}
    if start.get("attention_factor", 0) is None:
        start["attention_factor"] = published.plan(geometry, geometry.trained_len).attention_factor
    return {name: float(value) for name, value in start.items()}


def _child(parents: list[np.ndarray], random: np.random.Generator) -> np.ndarray:
    """Two of the best mixed at random, then some knobs moved."""
    one, other = (parents[random.integers(len(parents))] for _ in range(2))
    share = random.random()
    moved = random.normal(scale=STEP, size=len(one)) * (random.random(len(one)) < 0.5)
    return (share * one + (1 - share) * other + moved).clip(-1, 1)


def _setting(published: Scaling, start: dict[str, float], point: np.ndarray) -> Scaling:
    """The method at a point of [-1, 1] per knob, 0 being the published value."""
    spans = zip(start.items(), point.tolist(), strict=True)
    values = {name: value * SPREAD[name] ** at for (name, value), at in spans}
    if "factor" in values:  # below 1 there is none: reflected there, so that no try is wasted
        values["factor"] = max(values["factor"], 1 / values["factor"])
    for low, high in ORDERED:
        if low in values:
            ends = sorted((values[low], values[high]))
            values |= {low: ends[0], high: max(ends[1], ends[0] * (1 + 1e-9))}
    return replace(published, **values)
