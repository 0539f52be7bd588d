"""How far stored tables and scores are from the exact ones, at sampled positions."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ropelab.numerics.casts import CastPlan
from ropelab.numerics.chain import Chain, Spectrum
from ropelab.numerics.scores import Draws, scores


def sample_positions(offset: int, length: int, samples: int) -> Float[Tensor, "n"]:
    """Evenly spaced whole positions, the first and the last among them; all, if that is few."""
    if length <= samples:
        return torch.arange(offset, offset + length, dtype=torch.float64)
    spread = torch.linspace(0, length - 1, samples, dtype=torch.float64)
    return spread.round().unique() + offset


def earlier_keys(queries: Float[Tensor, "n"], offset: int, seed: int) -> Float[Tensor, "n"]:
    """For every query a key before it, the distance log-uniform from 1 to all there is."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(queries.shape, generator=generator, dtype=torch.float64)
    reach = (queries - offset).clamp_min(1)
    return (queries - reach.pow(share).round()).clamp_min(offset)


@dataclass(frozen=True)
class TableSample:
    """The exact tables at some positions, to compare stored ones with."""

    spectrum: Spectrum
    positions: Float[Tensor, "n"]

    @cached_property
    def exact(self) -> tuple[Float[Tensor, "pairs n"], Float[Tensor, "pairs n"]]:
        """cos and sin in float64."""
        return Chain(CastPlan(), self.spectrum).table(self.positions)

    def largest_error(self, plan: CastPlan) -> float:
        """The largest |stored - exact| of any cos or sin; nan if something overflowed."""
        stored = Chain(plan, self.spectrum).table(self.positions)
        pairs = zip(stored, self.exact, strict=True)
        return max(float((ours - true).abs().max()) for ours, true in pairs)


@dataclass(frozen=True)
class ScoreSample:
    """The exact scores of some draws at some positions, to compare rounded ones with."""

    spectrum: Spectrum
    draws: Draws
    queries: Float[Tensor, "n"]
    keys: Float[Tensor, "n"]

    @cached_property
    def exact(self) -> Float[Tensor, "draws n"]:
        """The scores in float64."""
        return self._scores(CastPlan())

    def rms_error(self, plan: CastPlan) -> float:
        """Root mean square error, in units of the scores' own standard deviation.

        nan if something overflowed.
        """
        return float((self._scores(plan) - self.exact).square().mean().sqrt())

    def _scores(self, plan: CastPlan) -> Float[Tensor, "draws n"]:
        return scores(Chain(plan, self.spectrum), self.draws, self.queries, self.keys)
