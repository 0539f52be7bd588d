"""Claims about long-term decay: the bound of the RoFormer paper, and what scores really do."""

from itertools import pairwise

import numpy as np
import pandas as pd
from jaxtyping import Float

from ropelab.claims.numbers import Array, frequencies, gaussian
from ropelab.claims.record import Claim, Evidence, Passage, limit, part

BASE, FARTHEST, DRAWS = 10000.0, 4096, 8192


def _waves(head_dim: int, farthest: int) -> np.ndarray:
    """e^(i distance theta_i) for distances 0, 1, ..., farthest [distances, pairs]."""
    return np.exp(1j * np.arange(farthest + 1)[:, None] * frequencies(head_dim, BASE))


def bound_curve(head_dim: int, farthest: int = FARTHEST) -> Float[Array, " n"]:
    """(2/d) sum_j |S_j|, S_j the sum of the first j waves (arXiv:2104.09864, eq. 37)."""
    return np.abs(_waves(head_dim, farthest).cumsum(-1)).mean(-1)


def aligned_curve(head_dim: int) -> Float[Array, " n"]:
    """The mean score of a random vector with itself: the mean of cos(distance theta_i)."""
    return _waves(head_dim, FARTHEST).real.mean(-1)


def random_curves(
    distances: Float[Array, " n"], head_dim: int, draws: int = DRAWS, seed: int = 0
) -> Float[Array, "draws n"]:
    """Scores of independent random queries and keys at some distances, in the complex form."""
    features = gaussian(seed, 2, 2, draws, head_dim // 2)
    q, k = (real + 1j * imaginary for real, imaginary in features)
    products = q * k.conj()
    angle = frequencies(head_dim, BASE)[:, None] * distances
    return products.real @ np.cos(angle) + products.imag @ np.sin(angle)


def octaves(curve: Float[Array, " n"]) -> list[float]:
    """Means over distances [1, 2), [2, 4), [4, 8), ..., as far as the curve covers them."""
    edges = [2**k for k in range(len(curve).bit_length()) if 2 ** (k + 1) <= len(curve)]
    return [float(curve[low : 2 * low].mean()) for low in edges]


def _falling(means: list[float]) -> bool:
    return all(later < earlier for earlier, later in pairwise(means))


def bound_decays(*, head_dim: int = 128, seed: int = 0) -> Evidence:
    """Follow the bound over distance, averaged by octaves and step by step."""
    curve = bound_curve(head_dim)
    means = octaves(curve)
    rises = int((np.diff(curve) > 0).sum())
    return Evidence(
        expected="the bound falls as the distance grows",
        findings=(
            part(
                f"mean over octaves from 1 to {FARTHEST}",
                " ".join(f"{mean:.1f}" for mean in means),
                _falling(means),
                means[-1] / means[0],
            ),
            limit("steps at which it rises", f"{rises} of {FARTHEST}", rises == 0, rises),
        ),
        series={"decay": decay_series(head_dim, seed)},
    )


def scores_decay(*, head_dim: int = 128, seed: int = 0) -> Evidence:
    """Follow scores of equal and of independent vectors."""
    aligned = aligned_curve(head_dim)
    means = octaves(aligned)
    negative = np.flatnonzero(aligned < 0)
    first = f"from distance {int(negative[0])} on" if len(negative) else "nowhere"
    scores = random_curves(np.array([0.0, FARTHEST]), head_dim, seed=seed)
    near_rms, far_rms = np.sqrt(np.square(scores).mean(0)).tolist()
    return Evidence(
        expected="scores fall as the distance grows",
        findings=(
            part(
                f"q = k, mean score over octaves from 1 to {FARTHEST}, score at 0 is 1",
                " ".join(f"{mean:.2f}" for mean in means),
                _falling(means),
                means[-1],
            ),
            limit("q = k, below zero", first, not len(negative)),
            limit(
                f"independent q and k, typical |score| at {FARTHEST} over that at 0",
                f"{far_rms / near_rms:.2f}",
                far_rms < 0.9 * near_rms,
                far_rms / near_rms,
            ),
        ),
        series={"decay": decay_series(head_dim, seed)},
    )


def decay_series(head_dim: int, seed: int, points: int = 512) -> pd.DataFrame:
    """The curves over distance, each divided by its value at distance 0."""
    kept = np.unique(np.geomspace(1, FARTHEST, points).astype(int))
    scores = random_curves(np.concatenate(([0], kept)).astype(float), head_dim, seed=seed)
    rms = np.sqrt(np.square(scores).mean(0))
    bound = bound_curve(head_dim)
    curves = {
        "bound": (bound / bound[0])[kept],
        "equal q and k": aligned_curve(head_dim)[kept],
        "independent q and k": rms[1:] / rms[0],
    }
    frames = [
        pd.DataFrame({"curve": name, "distance_tokens": kept, "relative": values})
        for name, values in curves.items()
    ]
    return pd.concat(frames, ignore_index=True)


CLAIMS = (
    Claim(
        id="decay-bound",
        passages=(Passage("roformer", "§3.4.3"),),
        statement="An upper bound of the rotated score decays as the distance grows.",
        check=bound_decays,
    ),
    Claim(
        id="decay-scores",
        passages=(
            Passage(
                "roformer",
                "abstract",
                None,
                "decaying inter-token dependency with increasing relative distances",
            ),
        ),
        statement="With RoPE the score of two tokens decays as the distance between them grows.",
        check=scores_decay,
    ),
)
