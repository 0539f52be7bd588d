"""Rotary position embedding (RoPE, arXiv:2104.09864) under any `RopePlan`.

A plan has the frequencies at which pairs of features rotate, in radians per token, and
a factor on queries and keys. A method that scales RoPE to longer contexts makes another
plan. Encodings derived from `Rope` are in rope_variants.py and rounded.py.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.autograd import Function

from ropelab.math import rotary
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Encoding, Heads, Positions, encoding
from ropelab.runs.errors import InputError, make_name_error

BASE = 10000.0


def cos_sin(
    positions: Shaped[Tensor, " tokens"],
    plan: RopePlan,
) -> tuple[Float[Tensor, "tokens pairs"], Float[Tensor, "tokens pairs"]]:
    """Return cos and sin of every position and pair, in float64.

    NumPy computes them, so that they equal the cos and sin of `ropelab.math.rotary`.
    The result is on the device of the positions.
    """
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
    """Rotate every feature pair of `x` by its angle.

    Called with -sin for `sin`, it rotates back. Pairing `half` pairs features i and
    i + d/2 of d features, `interleaved` features 2i and 2i + 1. Nothing is cast:
    float64 tables make a float64 result of a float32 `x`.
    """
    if pairing == "half":
        first, second = x.chunk(2, dim=-1)
        rotated_first = first * cos - second * sin
        rotated_second = first * sin + second * cos
        return torch.cat((rotated_first, rotated_second), dim=-1)

    if pairing != "interleaved":
        raise make_name_error("pairing", pairing, ("half", "interleaved"))
    # Two neighbours in memory are a complex number, and a product with cos + i sin
    # rotates it. That is one product instead of four.
    neighbours = x.contiguous().unflatten(-1, (-1, 2))
    pairs = torch.view_as_complex(neighbours)
    rotated = pairs * torch.complex(cos, sin)
    return torch.view_as_real(rotated).flatten(-2)


class RotationInFloat32(Function):
    """A rotation in float32 whose gradient is the inverse rotation.

    Results have the dtype of the input.
    """

    # Without the gradient written here, autograd would keep and multiply twice as many
    # tensors. Rotating would take a quarter of a training step of a small model on a CPU.
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
        grad_of_x = rotate(grad.float(), cos, -sin, pairing=ctx.pairing)
        # Only `x` has a gradient; the tables and the pairing have none.
        return grad_of_x.to(grad.dtype), None, None, None


@encoding("rope", "rope_interleaved", "rope_partial")
class Rope(Encoding):
    """Rotates queries and keys by their positions.

    If a head has more features than the pairs of `plan`, the remaining features do not
    rotate (partial rotary). `softmax_factor` multiplies scores in released models with
    DeepSeek's code; this class and models trained here ignore it.
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

        # Cos and sin of the positions 0, 1, ..., computed when they are first needed.
        # Both are in one attribute, so that threads which learn from parts of a batch
        # never see the new cos with the old sin.
        empty = torch.empty(0, self.rotary_dim // 2)
        self._tables = (empty, empty)

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
        """Rotate the first `share` of the features of every head.

        Of the pairs of these features, only the `fast` share with the highest
        frequencies rotates.
        """
        if not (0 < share <= 1 and 0 <= fast <= 1 and base > 1):
            raise InputError(
                "RoPE needs a share above 0 and up to 1, a fast share from 0 to 1 and"
                f" a base above 1, not {share:g}, {fast:g} and {base:g}"
            )

        pairs = int(share * head_dim / 2)
        inv_freq = inverse_frequencies(2 * pairs, base)
        # The number of rotating pairs is rounded down, as in `PRope` of
        # ropelab.math.scaling. The last pairs are the slowest.
        rotating = int(fast * pairs)
        inv_freq[rotating:] = 0.0
        return cls(RopePlan(inv_freq), **more)

    def query(self, q: Heads, positions: Positions) -> Heads:
        return self.rotate_heads(q, positions)

    def key(self, k: Heads, positions: Positions) -> Heads:
        return self.rotate_heads(k, positions)

    def rotate_heads(self, x: Heads, positions: Positions, sign: int = 1) -> Heads:
        """Rotate the first `rotary_dim` features, and multiply them by the plan's factor.

        The other features stay as they are. A `sign` of -1 rotates back.
        """
        cos, sin = self._look_up(positions)
        front = x[..., : self.rotary_dim]
        unrotated = x[..., self.rotary_dim :]

        # The rotation is in float32 whatever the dtype of `x`: bfloat16 has no bits left
        # for a far angle.
        rotated = RotationInFloat32.apply(front, cos, sign * sin, self.pairing)
        if self.rotary_dim == x.shape[-1]:
            return rotated
        return torch.cat([rotated, unrotated], dim=-1)

    def _look_up(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin of positions, [tokens, pairs]; compute them if need be."""
        needed = int(positions.max()) + 1
        cos, sin = self._tables
        if len(cos) < needed or cos.device != positions.device:
            # The tables grow to the next power of two, so that a context that grows
            # token by token needs new tables only rarely.
            length = 1 << (needed - 1).bit_length()
            all_positions = torch.arange(length, device=positions.device)
            cos, sin = self._compute_tables(all_positions)
            self._tables = (cos, sin)
        return cos[positions], sin[positions]

    def _compute_tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin of positions, times the plan's factor, in float32."""
        # Angles are computed in float64: in float32 an angle of 1e5 rad would have an
        # error of 4e-3, and its cosine as well.
        cos, sin = cos_sin(positions, self.plan)
        # The factor is on the query and on the key, so that scores carry its square.
        factor = self.plan.attention_factor
        cos = cos * factor
        sin = sin * factor
        return cos.float(), sin.float()
