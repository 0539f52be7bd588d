"""Rotary position embedding as an encoding, under any plan of frequencies (arXiv:2104.09864)."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import Function

from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Encoding, Heads, Positions
from ropelab.models.encoding.rotary import cos_sin, rotate


class Turn(Function):
    """A rotation in float32 whose gradient is the rotation back.

    Left to autograd, the same arithmetic keeps and multiplies twice as many tensors; rotating is
    then a quarter of a training step of a small model on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, pairing: Pairing) -> Tensor:
        """`x` turned, in its own dtype."""
        ctx.save_for_backward(cos, sin)
        ctx.pairing = pairing
        return turned(x, cos, sin, pairing)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient turned back."""
        cos, sin = ctx.saved_tensors
        return turned(grads[0], cos, -sin, ctx.pairing), None, None, None


def turned(x: Tensor, cos: Tensor, sin: Tensor, pairing: Pairing) -> Tensor:
    """`rotate` in float32, back in the dtype of `x`; interleaved pairs as complex numbers."""
    if pairing == "half":
        return rotate(x.float(), cos, sin).to(x.dtype)
    pairs = torch.view_as_complex(x.float().contiguous().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2).to(x.dtype)


class Rope(Encoding):
    """Turns queries and keys by their positions; no parameters, defined everywhere.

    The cosines are computed in float64 and kept in float32, times the plan's attention factor
    (once on the query and once on the key, so that scores carry its square). The rotation is done
    in float32 whatever the dtype of the queries, which is then restored.

    Args:
        plan: frequencies and attention factor. Its pairs decide how much of a head is turned: a
            head wider than twice their number keeps its remaining features (partial rotary).
        pairing: which features make a pair, `half` (i and i + d/2) or `interleaved`.
        softmax_factor: what DeepSeek's code multiplies scores with beside the plan; the models
            trained here have no such factor and read without it.
    """

    name: ClassVar[str] = "rope"

    def __init__(
        self, plan: RopePlan, pairing: Pairing = "half", softmax_factor: float = 1.0
    ) -> None:
        super().__init__()
        self.plan, self.pairing = plan, pairing
        self.softmax_factor = softmax_factor
        self.rotary_dim = 2 * len(plan.inv_freq)
        self.cos = self.sin = torch.empty(0, self.rotary_dim // 2)

    def query(self, q: Heads, positions: Positions) -> Heads:
        return self.turned(q, positions)

    def key(self, k: Heads, positions: Positions) -> Heads:
        return self.turned(k, positions)

    def turned(self, x: Heads, positions: Positions, sign: int = 1) -> Heads:
        """`x` with its first `rotary_dim` features turned and scaled by the attention factor.

        `sign` = -1 turns them the other way.
        """
        cos, sin = self._tables(positions)
        turned: Tensor = Turn.apply(x[..., : self.rotary_dim], cos, sign * sin, self.pairing)
        if self.rotary_dim == x.shape[-1]:
            return turned
        return torch.cat([turned, x[..., self.rotary_dim :]], dim=-1)

    def _tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the kept tables for `positions`; the tables grow to powers of two."""
        needed = int(positions.max()) + 1
        if len(self.cos) < needed or self.cos.device != positions.device:
            rows = torch.arange(1 << (needed - 1).bit_length(), device=positions.device)
            cos, sin = cos_sin(rows, self.plan)
            factor = self.plan.attention_factor
            self.cos, self.sin = (cos * factor).float(), (sin * factor).float()
        return self.cos[positions], self.sin[positions]
