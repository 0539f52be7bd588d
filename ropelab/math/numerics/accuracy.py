"""How far stored tables and scores are from the exact ones, at sampled positions."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.ranges import span
from ropelab.math.numerics.scores import Draws, scores


def sample_positions(offset: int, length: int, samples: int) -> Float[np.ndarray, " n"]:
    """Evenly spaced whole positions, the first and the last among them; all, if that is few."""
    if length <= samples:
        return span(offset, offset + length)
    return np.unique(np.round(np.linspace(0, length - 1, samples))) + offset


def earlier_keys(
    queries: Float[np.ndarray, " n"], offset: int, seed: int
) -> Float[np.ndarray, " n"]:
    """For every query a key before it, the distance log-uniform from 1 to all there is."""
    share = np.random.default_rng(seed).random(queries.shape)
    reach = np.maximum(queries - offset, 1)
    return np.maximum(queries - np.round(reach**share), offset)


@dataclass(frozen=True)
class TableSample:
    """The exact tables at some positions, to compare stored ones with."""

    spectrum: Spectrum
    positions: Float[np.ndarray, " n"]

    @cached_property
    def exact(self) -> tuple[Float[np.ndarray, "pairs n"], Float[np.ndarray, "pairs n"]]:
        """cos and sin in float64."""
        return Chain(CastPlan(), self.spectrum).table(self.positions)

    @np.errstate(invalid="ignore", over="ignore")
    def largest_error(self, plan: CastPlan) -> float:
        """The largest |stored - exact| of any cos or sin; nan if something overflowed."""
        stored = Chain(plan, self.spectrum).table(self.positions)
        pairs = zip(stored, self.exact, strict=True)
        return max(float(np.abs(ours - true).max()) for ours, true in pairs)


@dataclass(frozen=True)
class ScoreSample:
    """The exact scores of some draws at some positions, to compare rounded ones with."""

    spectrum: Spectrum
    draws: Draws
    queries: Float[np.ndarray, " n"]
    keys: Float[np.ndarray, " n"]

    @cached_property
    def exact(self) -> Float[np.ndarray, "draws n"]:
        """The scores in float64."""
        return self._scores(CastPlan())

    @np.errstate(invalid="ignore", over="ignore")
    def rms_error(self, plan: CastPlan) -> float:
        """Root mean square error, in units of the scores' own standard deviation.

        nan if something overflowed.
        """
        return float(np.sqrt(np.mean((self._scores(plan) - self.exact) ** 2)))

    def _scores(self, plan: CastPlan) -> Float[np.ndarray, "draws n"]:
        return scores(Chain(plan, self.spectrum), self.draws, self.queries, self.keys)
