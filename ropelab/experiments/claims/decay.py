"""Claims about long-term decay: the bound of the RoFormer paper, and what scores really do."""

from dataclasses import dataclass
from itertools import pairwise

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ropelab.experiments.claims.randoms import gaussian
from ropelab.experiments.claims.record import Claim, Evidence, limit, part
from ropelab.rope.frequencies import inverse_frequencies


@dataclass(frozen=True, kw_only=True)
class Distances:
    """A head and the distances at which its scores are followed."""

    head_dim: int = 128
    base: float = 10000.0
    farthest: int = 4096
    draws: int = 8192
    seed: int = 0

    @property
    def inv_freq(self) -> Float[Tensor, "pairs"]:
        """Radians per token of every pair."""
        return torch.from_numpy(inverse_frequencies(self.head_dim, self.base))

    @property
    def distances(self) -> Float[Tensor, "n"]:
        """0, 1, ..., farthest."""
        return torch.arange(self.farthest + 1, dtype=torch.float64)

    def waves(self) -> Float[Tensor, "n pairs"]:
        """e^(i distance theta_i), complex."""
        angle = self.distances[:, None] * self.inv_freq
        return torch.polar(torch.ones_like(angle), angle)


def bound_curve(given: Distances) -> Float[Tensor, "n"]:
    """(2/d) sum_j |S_j|, S_j the sum of the first j waves (arXiv:2104.09864, eq. 37)."""
    return given.waves().cumsum(-1).abs().mean(-1)


def aligned_curve(given: Distances) -> Float[Tensor, "n"]:
    """The mean score of a random vector with itself: the mean of cos(distance theta_i)."""
    return given.waves().real.mean(-1)


def random_curves(given: Distances, distances: Float[Tensor, "n"]) -> Float[Tensor, "draws n"]:
    """Scores of independent random queries and keys at some distances, in the complex form."""
    features = gaussian(given.seed, 2, 2, given.draws, given.head_dim // 2)
    q, k = (torch.complex(*pair) for pair in features)
    products = q * k.conj()
    angle = given.inv_freq[:, None] * distances
    return products.real @ angle.cos() + products.imag @ angle.sin()


def octaves(curve: Float[Tensor, "n"]) -> list[float]:
    """Means over distances [1, 2), [2, 4), [4, 8), ..., as far as the curve covers them."""
    edges = [2**k for k in range(len(curve).bit_length()) if 2 ** (k + 1) <= len(curve)]
    return [float(curve[low : 2 * low].mean()) for low in edges]


def _falling(means: list[float]) -> bool:
    return all(later < earlier for earlier, later in pairwise(means))


def _rises(curve: Float[Tensor, "n"]) -> int:
    return int((curve.diff() > 0).sum())


def bound_decays(given: Distances) -> Evidence:
    """Follow the bound over distance, averaged by octaves and step by step."""
    curve = bound_curve(given)
    means = octaves(curve)
    rises = _rises(curve)
    return Evidence(
        expected="the bound falls as the distance grows",
        findings=(
            part(
                f"mean over octaves from 1 to {given.farthest}",
                " ".join(f"{mean:.1f}" for mean in means),
                _falling(means),
                means[-1] / means[0],
            ),
            limit("steps at which it rises", f"{rises} of {given.farthest}", rises == 0, rises),
        ),
        series={"decay": decay_series(given)},
    )


def scores_decay(given: Distances) -> Evidence:
    """Follow scores of equal and of independent vectors."""
    aligned = aligned_curve(given)
    means = octaves(aligned)
    negative = (aligned < 0).nonzero()
    first = f"from distance {int(negative[0])} on" if len(negative) else "nowhere"
    far = torch.tensor([0.0, given.farthest], dtype=torch.float64)
    near_rms, far_rms = random_curves(given, far).square().mean(0).sqrt().tolist()
    return Evidence(
        expected="scores fall as the distance grows",
        findings=(
            part(
                f"q = k, mean score over octaves from 1 to {given.farthest}, score at 0 is 1",
                " ".join(f"{mean:.2f}" for mean in means),
                _falling(means),
                means[-1],
            ),
            limit("q = k, below zero", first, not len(negative)),
            limit(
                f"independent q and k, typical |score| at {given.farthest} over that at 0",
                f"{far_rms / near_rms:.2f}",
                far_rms < 0.9 * near_rms,
                far_rms / near_rms,
            ),
        ),
        series={"decay": decay_series(given)},
    )


def decay_series(given: Distances, points: int = 512) -> pd.DataFrame:
    """The curves over distance, each divided by its value at distance 0."""
    kept = torch.unique(torch.logspace(0, 1, points, base=given.farthest).long())
    random = random_curves(given, kept.double()).square().mean(0).sqrt()
    at_zero = random_curves(given, torch.zeros(1, dtype=torch.float64)).square().mean().sqrt()
    bound = bound_curve(given)
    curves = {
        "bound": (bound / bound[0])[kept],
        "equal q and k": aligned_curve(given)[kept],
        "independent q and k": random / at_zero,
    }
    frames = [
        pd.DataFrame({"curve": name, "distance_tokens": kept.tolist(), "relative": values.tolist()})
        for name, values in curves.items()
    ]
    return pd.concat(frames, ignore_index=True)


CLAIMS = (
    Claim(
        id="decay-bound",
        source="RoFormer, arXiv:2104.09864 §3.4.3",
        statement="An upper bound of the rotated score decays as the distance grows.",
        inputs=Distances(),
        check=bound_decays,
    ),
    Claim(
        id="decay-scores",
        source="RoFormer, arXiv:2104.09864 §3.3; note 000 (decay)",
        statement="With RoPE the score of two tokens decays as the distance between them grows.",
        inputs=Distances(),
        check=scores_decay,
    ),
)
