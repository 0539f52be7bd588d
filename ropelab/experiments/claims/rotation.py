"""Claims about the rotation itself: what a rotated score depends on."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ropelab.encoding.rotary import cos_sin, join_pairs, rotate
from ropelab.experiments.claims.attention_order import attention
from ropelab.experiments.claims.randoms import gaussian, largest
from ropelab.experiments.claims.record import Claim, Evidence, limit, part, tiny
from ropelab.rope.frequencies import inverse_frequencies
from ropelab.rope.rotary import Pairing
from ropelab.rope.scaling import RopePlan

EXACT = 1e-10
"""Angles up to 1e4 rad are known to 2e-12 in float64; a score sums a few hundred such products."""


@dataclass(frozen=True, kw_only=True)
class Rotated:
    """Random queries and keys under RoPE."""

    head_dim: int = 64
    base: float = 10000.0
    pairing: Pairing = "half"
    draws: int = 256
    seed: int = 0
    distance: int = 3
    shifts: tuple[int, ...] = (1, 100, 4096)

    def draw(self) -> tuple[Float[Tensor, "draws d"], Float[Tensor, "draws d"]]:
        """Queries and keys of independent standard normal features."""
        q, k = gaussian(self.seed, 2, self.draws, self.head_dim)
        return q, k

    def at(self, x: Float[Tensor, "draws d"], position: int, sign: int = 1) -> Tensor:
        """Every row of `x` rotated to one position."""
        plan = RopePlan(inverse_frequencies(self.head_dim, self.base))
        cos, sin = cos_sin(torch.full((len(x),), position), plan)
        return rotate(x, cos, sin, pairing=self.pairing, sign=sign)

    def scores(self, m: int, n: int) -> Float[Tensor, "draws"]:
        """(R(m) q) . (R(n) k) for every draw."""
        q, k = self.draw()
        return (self.at(q, m) * self.at(k, n)).sum(-1)


def relative_only(given: Rotated) -> Evidence:
    """Shift both positions and look for a change; change the distance and look for one."""
    near = given.scores(0, given.distance)
    moved = max(largest(given.scores(s, s + given.distance) - near) for s in given.shifts)
    farther = largest(given.scores(0, given.distance + 1) - near)
    return Evidence(
        expected=f"equal distances give equal scores, to {EXACT:g}",
        findings=(
            part(
                f"change when both positions move by up to {max(given.shifts)}",
                tiny(moved),
                moved <= EXACT,
                moved,
            ),
            part("change with one more token between", f"{farther:.1f}", farther > EXACT, farther),
        ),
    )


def scalar_factor(given: Rotated) -> Evidence:
    """Divide rotated scores by unrotated ones: a factor of the distance is one number."""
    ratio = given.scores(0, given.distance) / given.scores(0, 0)
    low, high = (float(ratio.quantile(p)) for p in (0.05, 0.95))
    return Evidence(
        expected="one number for all queries and keys",
        findings=(
            part(
                f"score at distance {given.distance} over score at 0, 5 to 95 % of random q, k",
                f"{low:.2f} to {high:.2f}",
                high - low <= EXACT,
                high - low,
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Attended(Rotated):
    """Causal attention over random tokens, with positions by rotation or added as sinusoids."""

    positions: Literal["rotated", "added"] = "rotated"
    tokens: int = 16

    def outputs(self, shift: int) -> Float[Tensor, "tokens d"]:
        """What attention puts out with the tokens at positions shift, shift + 1, ..."""
        q, k, v = gaussian(self.seed, 3, self.tokens, self.head_dim)
        plan = RopePlan(inverse_frequencies(self.head_dim, self.base))
        cos, sin = cos_sin(torch.arange(shift, shift + self.tokens), plan)
        if self.positions == "added":
            code = join_pairs(sin, cos, self.pairing)
            return attention(q + code, k + code, v, causal=True)
        q, k = (rotate(x, cos, sin, pairing=self.pairing) for x in (q, k))
        return attention(q, k, v, causal=True)


def knows_absolute(given: Attended) -> Evidence:
    """Compare rotated vectors at two positions, and what attention makes of shifted tokens."""
    q, _ = given.draw()
    codes = largest(given.at(q, 10) - given.at(q, 5))
    shifted = max(largest(given.outputs(s) - given.outputs(0)) for s in given.shifts)
    return Evidence(
        expected="something that attention puts out changes when all positions move",
        findings=(
            part("the rotated vectors at positions 5 and 10", f"{codes:.1f} apart", codes > EXACT),
            part(
                f"attention's output after all positions move by up to {max(given.shifts)}",
                f"{tiny(shifted)} apart",
                shifted > EXACT,
                shifted,
            ),
        ),
    )


def either_direction(given: Rotated) -> Evidence:
    """Turn the other way, with the same and with mirrored queries and keys."""
    q, k = given.draw()
    there = (given.at(q, 0) * given.at(k, given.distance)).sum(-1)
    back = (given.at(q, 0, -1) * given.at(k, given.distance, -1)).sum(-1)
    ones = torch.ones(given.head_dim // 2, dtype=torch.float64)
    mirror = join_pairs(ones, -ones, given.pairing)
    q, k = q * mirror, k * mirror
    mirrored = (given.at(q, 0, -1) * given.at(k, given.distance, -1)).sum(-1)
    same, apart = largest(mirrored - there), largest(back - there)
    return Evidence(
        expected="equal scores",
        findings=(
            part(
                "with the second feature of each pair mirrored",
                f"{tiny(same)} apart",
                same <= EXACT,
            ),
            limit("with the same features", f"{apart:.1f} apart", apart <= EXACT, apart),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Neighbours(Rotated):
    """Queries and keys at positions 0 and 1: drawn anew for each, or the same at both."""

    tokens: Literal["different", "same"] = "different"


def same_distance_same_score(given: Neighbours) -> Evidence:
    """Scores at equal distance, as the script prints them."""
    q, k = gaussian(given.seed, 2, 2, given.draws, given.head_dim)
    if given.tokens == "same":
        q, k = (x[:1].expand_as(x) for x in (q, k))
    apart = [(given.at(q[i], i) * given.at(k[i], i)).sum(-1) for i in (0, 1)]
    typical = float((apart[0] - apart[1]).square().mean().sqrt())
    return Evidence(
        expected="q0.k0 is about q1.k1",
        findings=(
            part(
                f"typical difference of q0.k0 and q1.k1, {given.tokens} tokens at 0 and 1",
                f"{typical:.1f}",
                typical <= 1e-3,
                typical,
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="relative-only",
        source="note 000 (proof); note 001 §4.2; note 002 §3; note 003 (RoPE)",
        statement="The score of a rotated query and a rotated key depends on n - m only.",
        inputs=Rotated(),
        check=relative_only,
    ),
    Claim(
        id="scalar-factor",
        source="note 003 §8, §9; MiniMind knowledge base §2.3",
        statement="RoPE multiplies the score q.k by a factor that depends on the distance only.",
        inputs=Rotated(),
        check=scalar_factor,
    ),
    Claim(
        id="absolute-too",
        source="note 001 §4.3",
        statement="RoPE holds absolute positions too: the model can tell that a word stands at "
        "position 5.",
        inputs=Attended(),
        check=knows_absolute,
    ),
    Claim(
        id="either-direction",
        source="rope_multi_frequency.py",
        statement="Turning clockwise or counterclockwise has the same effect.",
        inputs=Rotated(),
        check=either_direction,
    ),
    Claim(
        id="script-equal-scores",
        source="rope_explained.py",
        statement="With random q and k at every position, q0.k0 is about q1.k1 because the "
        "distance is the same.",
        inputs=Neighbours(),
        check=same_distance_same_score,
    ),
)
