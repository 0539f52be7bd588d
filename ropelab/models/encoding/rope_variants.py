"""Encodings derived from RoPE (`Rope` in rope.py), each as its authors define it.

They rotate a part of a head (Decoupled), rotate values, too (RopeValues), let scores
decay (XPos), or mix frequencies (Fope).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Encoding, Heads, Positions, Scores, encoding
from ropelab.models.encoding.rope import BASE, Rope


@encoding("mla")
class Decoupled(Encoding):
    """scores = (q^C k^C + q^R k^R) / sqrt(head_dim), where only q^R and k^R rotate.

    The rotary part R is the last `share` of the features of a head, and the content
    part C is all other features. It is DeepSeek's rotary key (arXiv:2405.04434, eq. 14
    to 19) without compressed keys and values.
    """

    def __init__(self, head_dim: int, share: float) -> None:
        super().__init__()
        self.rope = Rope.build(head_dim, share, pairing="interleaved")

    def query(self, q: Heads, positions: Positions) -> Heads:
        content, rotary = self._split(q)
        rotated = self.rope.query(rotary, positions)
        return torch.cat((content, rotated), dim=-1)

    def key(self, k: Heads, positions: Positions) -> Heads:
        content, rotary = self._split(k)
        # The rotary key of the first head serves all heads. The rotary keys of all
        # other heads are not used.
        shared = self.rope.key(rotary[:, :1], positions)
        return torch.cat((content, shared.expand_as(rotary)), dim=-1)

    def _split(self, x: Heads) -> tuple[Tensor, Tensor]:
        """Split heads into the features of content and the features that rotate."""
        width = self.rope.rotary_dim
        content = x[..., :-width]
        rotary = x[..., -width:]
        return content, rotary


@encoding("rope_values", "rope_values_back")
class RopeValues(Rope):
    """Rope that rotates values, too: output_i = sum_j weight_ij R(j) v_j.

    R(j) is the rotation at position j. With `back`, the output rotates back by the
    position i of the query, so that values depend on distances:
    output_i = sum_j weight_ij R(j - i) v_j.
    """

    fused: bool = False

    def __init__(
        self,
        plan: RopePlan,
        pairing: Pairing = "half",
        back: bool = False,
    ) -> None:
        super().__init__(plan, pairing)
        self.back = back

    def mix(
        self,
        weights: Scores,
        v: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Heads:
        rotated = self.rotate_heads(v, k_positions)
        output = weights @ rotated
        if self.back:
            return self.rotate_heads(output, q_positions, sign=-1)
        return output


@encoding("xpos")
class XPos(Rope):
    """q_n = R(n) q zeta^(n/512), k_m = R(m) k zeta^(-m/512) (arXiv:2212.10554).

    R(n) is the rotation at position n. The score of a pair of features then decays with
    the distance, by zeta^((n-m)/512). Each pair i has its own zeta_i = (i / (d/2) + 0.4)
    / 1.4 in a head of d features; the fastest pair, i = 0, decays fastest.
    """

    # The 0.4 in the formula of zeta.
    GAMMA = 0.4
    # The distance in tokens at which the score of pair i is multiplied by zeta_i.
    SCALE_BASE = 512

    def __init__(self, plan: RopePlan) -> None:
        # The authors' code pairs neighbours.
        super().__init__(plan, "interleaved")
        # With the position a query shrinks and a key grows exponentially. Soon after
        # this position zeta_0^(position / 512) is too small for float32.
        self.max_position = 32767

        pairs = self.rotary_dim // 2
        shares = torch.arange(pairs, dtype=torch.float64) / pairs
        zeta = (shares + self.GAMMA) / (1 + self.GAMMA)
        # Both features of a pair have its zeta.
        self.log_zeta = zeta.log().repeat_interleave(2)

    def query(self, q: Heads, positions: Positions) -> Heads:
        rotated = super().query(q, positions)
        return self._decay(rotated, positions / self.SCALE_BASE)

    def key(self, k: Heads, positions: Positions) -> Heads:
        rotated = super().key(k, positions)
        return self._decay(rotated, -positions / self.SCALE_BASE)

    def _decay(self, x: Heads, power: Tensor) -> Heads:
        """Multiply the features of each token by zeta^power; `power` is [tokens]."""
        log_zeta = self.log_zeta.to(power.device)
        # factor is [tokens, rotary_dim].
        factor = torch.exp(power.double()[:, None] * log_zeta)
        decayed = x.float() * factor.float()
        return decayed.to(x.dtype)


@encoding("fope")
class Fope(Rope):
    """FoPE (arXiv:2412.17739, equations 11 to 13): each pair mixes all frequencies.

    To the cos and sin of a pair, the cos and sin of every pair are added, with weights
    that are drawn once for each head. Pairs that make less than one rotation in
    `trained_len` tokens neither rotate nor mix. Scores depend on both positions, and
    not only on their distance.
    """

    def __init__(
        self,
        head_dim: int,
        heads: int,
        trained_len: int,
        sigma: float = 0.3,
        base: float = BASE,
    ) -> None:
        inv_freq = inverse_frequencies(head_dim, base)
        one_rotation = 2 * math.pi / trained_len
        # The authors' code gives these pairs cos = sin = 1 instead, which doubles their
        # products.
        inv_freq[inv_freq < one_rotation] = 0.0
        super().__init__(RopePlan(inv_freq))

        # The weights are drawn, not learned, and are different for cos and for sin.
        # Their deviation follows appendix B: Xavier's rule on [heads, pairs, pairs],
        # with the gain `sigma`. (The text of the paper has N(0, sigma) instead.)
        pairs = len(inv_freq)
        mixed = int((inv_freq > 0).sum())
        # The identity keeps the pair's own cos and sin: [cos or sin, heads, pairs, pairs].
        weights = torch.eye(pairs).repeat(2, heads, 1, 1)
        fan = max(1, mixed * (mixed + heads))
        deviation = sigma * math.sqrt(2 / fan)
        drawn = torch.randn(2, heads, mixed, mixed)
        # Frequencies fall from pair to pair, so that only the first pairs mix.
        weights[..., :mixed, :mixed] += deviation * drawn
        self.weights: Tensor
        self.register_buffer("weights", weights)

    @classmethod
    def constructor(cls) -> Callable[..., Encoding]:
        return cls

    def _look_up(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return mixed cos and sin for each head, [heads, tokens, pairs]."""
        cos, sin = super()._look_up(positions)
        # The products are in float32, as the tables of Rope are, under any autocast.
        with torch.autocast(cos.device.type, enabled=False):
            weights_of_cos, weights_of_sin = self.weights.float()
            return cos @ weights_of_cos, sin @ weights_of_sin
