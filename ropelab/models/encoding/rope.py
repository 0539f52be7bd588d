"""Rotary position embedding (arXiv:2104.09864) under any plan of frequencies.

The variants at the end extend contexts by changing attention instead: they let no
distance occur that was not trained, which needs two scores or more per pair of tokens,
so no fused kernel.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.autograd import Function

from ropelab.math import rotary
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import (
    Around,
    Encoding,
    Heads,
    Positions,
    Scores,
    encoding,
)
from ropelab.runs.errors import InputError, unknown_name

BASE = 10000.0

# True at the pairs [queries, keys] whose distance is replaced, and the positions of
# queries and keys that make the other distance.
Replacement = tuple[Tensor, Tensor, Tensor]


def cos_sin(
    positions: Shaped[Tensor, " tokens"],
    plan: RopePlan,
) -> tuple[Float[Tensor, "tokens pairs"], Float[Tensor, "tokens pairs"]]:
    """Return the float64 tables of `ropelab.math.rotary`, on the positions' device."""
    cos, sin = rotary.cos_sin(positions.cpu().numpy(), plan)
    device = positions.device
    cos_table = torch.from_numpy(cos).to(device)
    sin_table = torch.from_numpy(sin).to(device)
    return cos_table, sin_table


def rotate(
    x: Float[Tensor, "*batch tokens rotary_dim"],
    cos: Float[Tensor, "tokens pairs"],
    sin: Float[Tensor, "tokens pairs"],
    *,
    pairing: Pairing = "half",
) -> Float[Tensor, "*batch tokens rotary_dim"]:
    """Rotate every feature pair of `x` by its angle; with -sin, back.

    Nothing is cast: float64 tables make a float64 result of a float32 `x`.
    """
    if pairing == "half":
        first, second = x.chunk(2, dim=-1)
        rotated_first = first * cos - second * sin
        rotated_second = first * sin + second * cos
        return torch.cat((rotated_first, rotated_second), dim=-1)

    if pairing != "interleaved":
        raise unknown_name("pairing", pairing, ("half", "interleaved"))
    # Neighbours are complex numbers already: one product instead of four.
    neighbours = x.contiguous().unflatten(-1, (-1, 2))
    pairs = torch.view_as_complex(neighbours)
    rotated = pairs * torch.complex(cos, sin)
    return torch.view_as_real(rotated).flatten(-2)


class RotationInFloat32(Function):
    """A rotation in float32 whose gradient is the inverse rotation.

    Results have the dtype of the input.
    """

    # Without a gradient of its own autograd would keep and multiply twice as many
    # tensors, and rotating would take a quarter of a training step of a small model on a
    # CPU.
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        pairing: Pairing,
    ) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.pairing = pairing
        rotated = rotate(x.float(), cos, sin, pairing=pairing)
        return rotated.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        grad = grads[0]
        back = rotate(grad.float(), cos, -sin, pairing=ctx.pairing)
        return back.to(grad.dtype), None, None, None


@encoding("rope", "rope_interleaved", "rope_partial")
class Rope(Encoding):
    """Rotates queries and keys by their positions.

    A head wider than the pairs of `plan` keeps its remaining features (partial rotary).
    `half` pairs features i and i + d/2. `softmax_factor` is for DeepSeek's code; models
    trained here ignore it.
    """

    def __init__(
        self,
        plan: RopePlan,
        pairing: Pairing = "half",
        softmax_factor: float = 1.0,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.pairing = pairing
        self.softmax_factor = softmax_factor
        self.rotary_dim = 2 * len(plan.inv_freq)
        # One attribute for both tables: threads that learn from parts of a batch never
        # see half of a change.
        empty = torch.empty(0, self.rotary_dim // 2)
        self._kept_tables = (empty, empty)

    @classmethod
    def constructor(cls) -> Callable[..., Encoding]:
        return cls.build

    @classmethod
    def build(
        cls,
        head_dim: int,
        share: float = 1.0,
        base: float = BASE,
        fast: float = 1.0,
        **more: Any,
    ) -> Self:
        """Rotate the first `share` of every head, and of its pairs the `fast` share."""
        if not (0 < share <= 1 and 0 <= fast <= 1 and base > 1):
            raise InputError(
                "RoPE needs a share above 0 and up to 1, a fast share from 0 to 1 and"
                f" a base above 1, not {share:g}, {fast:g} and {base:g}"
            )

        pairs = int(share * head_dim / 2)
        inv_freq = inverse_frequencies(2 * pairs, base)
        # The number of rotating pairs is rounded down, as in PRope.
        rotating = int(fast * pairs)
        inv_freq[rotating:] = 0.0
        return cls(RopePlan(inv_freq), **more)

    def query(self, q: Heads, positions: Positions) -> Heads:
        return self.rotate_heads(q, positions)

    def key(self, k: Heads, positions: Positions) -> Heads:
        return self.rotate_heads(k, positions)

    def rotate_heads(self, x: Heads, positions: Positions, sign: int = 1) -> Heads:
        """Rotate the first `rotary_dim` features, and apply the attention factor.

        The other features stay; a `sign` of -1 rotates back.
        """
        cos, sin = self._look_up(positions)
        front = x[..., : self.rotary_dim]
        rest = x[..., self.rotary_dim :]

        # The rotation is in float32 whatever the dtype of `x`: bfloat16 has no bits left
        # for a far angle.
        rotated = RotationInFloat32.apply(front, cos, sign * sin, self.pairing)
        if self.rotary_dim == x.shape[-1]:
            return rotated
        return torch.cat([rotated, rest], dim=-1)

    def _look_up(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin from tables that are kept and grow to powers of two."""
        needed = int(positions.max()) + 1
        cos, sin = self._kept_tables
        if len(cos) < needed or cos.device != positions.device:
            length = 1 << (needed - 1).bit_length()
            rows = torch.arange(length, device=positions.device)
            cos, sin = self._compute(rows)
            self._kept_tables = (cos, sin)
        return cos[positions], sin[positions]

    def _compute(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the float32 tables of some positions."""
        # Angles are computed in float64: one of 1e5 rad would have an error of 4e-3 in
        # float32, and so would its cosine.
        cos, sin = cos_sin(positions, self.plan)
        # The factor is on the query and on the key, so that scores carry its square.
        factor = self.plan.attention_factor
        cos = cos * factor
        sin = sin * factor
        return cos.float(), sin.float()


@encoding("mla")
class Decoupled(Encoding):
    """scores = (q^C k^C + q^R k^R) / sqrt(head_dim): the last `share` of a head rotates.

    DeepSeek's rotary key (arXiv:2405.04434, eq. 14 to 19) without compressed keys and
    values.
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
        # The rotary key of the first head serves all heads. Those of the other heads are
        # not used.
        shared = self.rope.key(rotary[:, :1], positions)
        return torch.cat((content, shared.expand_as(rotary)), dim=-1)

    def _split(self, x: Heads) -> tuple[Tensor, Tensor]:
        """Return the features of content, and those that rotate."""
        width = self.rope.rotary_dim
        content = x[..., :-width]
        rotary = x[..., -width:]
        return content, rotary


@encoding("rope_values", "rope_values_back")
class RopeValues(Rope):
    """Rope that rotates values, too: output_i = sum_j weight_ij R(j) v_j.

    With `back`, outputs rotate back, and distances remain: sum_j weight_ij R(j-i) v_j.
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
        at_q: Positions,
        at_k: Positions,
    ) -> Heads:
        rotated = self.rotate_heads(v, at_k)
        output = weights @ rotated
        if self.back:
            return self.rotate_heads(output, at_q, sign=-1)
        return output


@encoding("xpos")
class XPos(Rope):
    """q_n = R(n) q zeta^(n/512), k_m = R(m) k zeta^(-m/512).

    A score then has zeta^((n-m)/512). zeta_i = (i / (d/2) + 0.4) / 1.4 is least for the
    fastest pair (arXiv:2212.10554).
    """

    GAMMA = 0.4
    # Tokens over which pair i decays by zeta_i.
    SCALE_BASE = 512

    def __init__(self, plan: RopePlan) -> None:
        # The authors' code pairs neighbours.
        super().__init__(plan, "interleaved")
        # Query and key alone shrink and grow exponentially with the position. From here
        # on zeta_0^(position / 512) soon leaves the range of float32, which ends the
        # encoding.
        self.max_position = 32767

        pairs = self.rotary_dim // 2
        shares = torch.arange(pairs, dtype=torch.float64) / pairs
        zeta = (shares + self.GAMMA) / (1 + self.GAMMA)
        self.log_zeta = zeta.log().repeat_interleave(2)

    def query(self, q: Heads, positions: Positions) -> Heads:
        rotated = super().query(q, positions)
        return self._decay(rotated, positions / self.SCALE_BASE)

    def key(self, k: Heads, positions: Positions) -> Heads:
        rotated = super().key(k, positions)
        return self._decay(rotated, -positions / self.SCALE_BASE)

    def _decay(self, x: Heads, power: Tensor) -> Heads:
        """Multiply the features of each token by zeta^power."""
        log_zeta = self.log_zeta.to(power.device)
        factor = torch.exp(power.double()[:, None] * log_zeta)
        decayed = x.float() * factor.float()
        return decayed.to(x.dtype)


@encoding("fope")
class Fope(Rope):
    """Cos and sin of a pair are its own plus those of every pair k times a_k.

    FoPE (arXiv:2412.17739, equations 11 to 13): pairs that make less than one rotation
    in `trained_len` tokens neither rotate nor mix. Scores depend on both positions, not
    on their distance alone.
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

        # Weights are drawn and not learned, for cos and sin apart, with `sigma` as the
        # gain of Xavier's rule on [heads, pairs, pairs]: appendix B, where the paper's
        # text has N(0, sigma).
        pairs = len(inv_freq)
        mixed = int((inv_freq > 0).sum())
        weights = torch.eye(pairs).repeat(2, heads, 1, 1)
        fan = max(1, mixed * (mixed + heads))
        deviation = sigma * math.sqrt(2 / fan)
        drawn = torch.randn(2, heads, mixed, mixed)
        weights[..., :mixed, :mixed] += deviation * drawn
        self.weights: Tensor
        self.register_buffer("weights", weights)

    @classmethod
    def constructor(cls) -> Callable[..., Encoding]:
        return cls

    def _look_up(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = super()._look_up(positions)
        # Each head has a table of its own, in float32 as the tables of Rope.
        with torch.autocast(cos.device.type, enabled=False):
            weights_of_cos, weights_of_sin = self.weights.float()
            return cos @ weights_of_cos, sin @ weights_of_sin


class LogN(Around):
    """Logits times max(1, ln n / ln L) for n tokens that a query sees.

    L = `trained_len`. Keeps attention's entropy from growing (Su 2021,
    kexue.fm/archives/8823; arXiv:2501.19399).
    """

    def __init__(self, inner: Encoding, trained_len: int) -> None:
        super().__init__(inner)
        self.trained_len = trained_len

    def query(self, q: Heads, positions: Positions) -> Heads:
        seen = positions + 1
        growth = seen.float().log() / math.log(self.trained_len)
        scale = growth.clamp(min=1.0)[:, None]
        return super().query(q, positions) * scale.to(q.dtype)


class Dropped(Encoding):
    """No positions, logits times the constant `sharper`: DroPE (arXiv:2512.12167)."""

    def __init__(self, sharper: float = 1.0) -> None:
        super().__init__()
        self.sharper = sharper

    def query(self, q: Heads, positions: Positions) -> Heads:
        return q * self.sharper


class Remapped(Encoding, ABC):
    """Exact distances, except for some pairs of tokens, which get others.

    Its parameters are whole numbers, `sizes`, in the order in which `replacements`
    unpacks them.
    """

    fused = False

    def __init__(self, rope: Rope, *sizes: int) -> None:
        super().__init__()
        self.rope = rope
        self.sizes = sizes
        self.rotary_dim = rope.rotary_dim

    @abstractmethod
    def replacements(self, at_q: Positions, at_k: Positions) -> Iterator[Replacement]:
        """Yield the pairs with other distances, and the positions that make these."""

    def scores(
        self,
        q: Heads,
        k: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Scores:
        scores = self._score(q, k, at_q, at_k)
        for pairs, other_q, other_k in self.replacements(at_q, at_k):
            other_scores = self._score(q, k, other_q, other_k)
            scores = torch.where(pairs, other_scores, scores)
        return scores

    def _score(
        self,
        q: Tensor,
        k: Tensor,
        at_q: Tensor,
        at_k: Tensor,
    ) -> Tensor:
        rotated_q = self.rope.query(q, at_q)
        rotated_k = self.rope.key(k, at_k)
        return super().scores(rotated_q, rotated_k, at_q, at_k)


class SelfExtend(Remapped):
    """Exact distances below `window`; beyond, those of positions divided by `group`.

    Far pairs (i, j) have the distance floor(i/g) + w - floor(w/g) - floor(j/g)
    (arXiv:2401.01325).
    """

    def replacements(self, at_q: Positions, at_k: Positions) -> Iterator[Replacement]:
        window, group = self.sizes
        far = at_q[:, None] - at_k >= window
        # The distances of far pairs go on where the exact ones end.
        start = window - window // group
        yield far, at_q // group + start, at_k // group


class ReRope(Remapped):
    """The distance of a pair is min(i - j, w) with w = `window`.

    Su 2023, kexue.fm/archives/9708.
    """

    def replacements(self, at_q: Positions, at_k: Positions) -> Iterator[Replacement]:
        (window,) = self.sizes
        far = at_q[:, None] - at_k >= window
        other_q = torch.full_like(at_q, window)
        other_k = torch.zeros_like(at_k)
        yield far, other_q, other_k


class DualChunk(Remapped):
    """Positions restart every `chunk` tokens, so no distance reaches `trained`.

    With c = trained and s = chunk, the distance to a key j of the same chunk is exact;
    to one of the chunk before min(s + i mod s, c - 1) - j mod s, which is exact where
    the first is taken; to one further back c - 1 - j mod s (arXiv:2402.17463, section
    3).
    """

    def replacements(self, at_q: Positions, at_k: Positions) -> Iterator[Replacement]:
        chunk, trained = self.sizes
        chunks_back = at_q[:, None] // chunk - at_k // chunk
        within = at_k % chunk
        last = torch.full_like(at_q, trained - 1)

        next_chunk = torch.minimum(at_q % chunk + chunk, last)
        yield chunks_back == 1, next_chunk, within
        yield chunks_back > 1, last, within


class Shifted(Remapped):
    """Distances d from `shift` on are d - shift + `window`.

    STRING (arXiv:2410.18745, eq. 5).
    """

    def replacements(self, at_q: Positions, at_k: Positions) -> Iterator[Replacement]:
        shift, window = self.sizes
        far = at_q[:, None] - at_k >= shift
        # A query in front of `shift` has no such keys, and no position below 0.
        shifted = (at_q - shift + window).clamp(min=0)
        yield far, shifted, at_k
