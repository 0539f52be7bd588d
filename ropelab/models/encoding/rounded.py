"""RoPE with rounded stages, or with rounded keys: the arithmetic of other code in any
model.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FloatFormat, round_to
from ropelab.math.numerics.keys import Rounding
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Heads, Positions, Scores
from ropelab.models.encoding.rope import Rope
from ropelab.runs.errors import InputError

# Formats that torch rounds float32 numbers to, exactly and on any device.
NATIVE = {name: getattr(torch, name) for name in ("float32", "float16", "bfloat16")}


class RoundedRope(Rope):
    """A rotation whose angles, tables, products, scores and keys are rounded as a plan
    says.

    Everything that is not rounded is as in `Rope`; a model's other products stay as
    they are. `base` is of the unscaled frequencies. InputError, when it rotates: an
    angle overflows.
    """

    def __init__(self, rope: Rope, rounding: Rounding, base: float) -> None:
        super().__init__(rope.plan, rope.pairing, rope.softmax_factor)
        self.rounding = rounding
        # Keys carry the attention factor already when they are moved.
        self.mover = Rope(RopePlan(rope.plan.inv_freq), rope.pairing)
        self.chain = Chain(
            rounding.cast, Spectrum(rope.plan.inv_freq, base, self.rotary_dim)
        )
        self.fused = rounding.cast.score.precision == 53

    def key(self, k: Heads, positions: Positions) -> Heads:
        stored = self.rounding.keys
        if stored is None:
            return super().key(k, positions)
        if stored.before:
            return super().key(_through(k, stored.stored), positions)
        k = _through(
            super().key(k, positions + stored.moves * stored.step), stored.stored
        )
        by = torch.full_like(positions, stored.step)
        for _ in range(stored.moves):
            k = _through(self.mover.rotated(k, by, sign=-1), stored.stored)
        return k

    def scores(self, q: Heads, k: Heads, at_q: Positions, at_k: Positions) -> Scores:
        return rounded(super().scores(q, k, at_q, at_k), self.chain.plan.score)

    def rotated(self, x: Heads, positions: Positions, sign: int = 1) -> Heads:
        plan = self.chain.plan
        if plan.rotation.precision == plan.score.precision == 53:
            return super().rotated(x, positions, sign)
        cos, sin = self._tables(positions)
        half = self.pairing == "half"
        front, rest = x[..., : self.rotary_dim].float(), x[..., self.rotary_dim :]
        pairs = front.unflatten(-1, (2, -1) if half else (-1, 2))
        one, two = pairs.unbind(-2 if half else -1)

        def product(a: Tensor, b: Tensor) -> Tensor:
            return rounded(a * b, plan.rotation)

        turned = (
            product(one, cos) - product(two, sign * sin),
            product(one, sign * sin) + product(two, cos),
        )
        parts = torch.stack(
            [rounded(part, plan.rotation) for part in turned], -2 if half else -1
        )
        return rounded(
            torch.cat([parts.flatten(-2).to(x.dtype), rest], dim=-1), plan.score
        )

    def _computed(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        angles = self.chain.angles(rows.cpu().numpy() + float(self.rounding.first)).T
        # An angle beyond the format is infinite; it is refused where it is used.
        with np.errstate(invalid="ignore"):
            both = [
                trig(angles) * self.plan.attention_factor for trig in (np.cos, np.sin)
            ]
        cos, sin = (
            torch.from_numpy(round_to(part, self.chain.plan.table)) for part in both
        )
        return cos.float().to(rows.device), sin.float().to(rows.device)

    def _tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = super()._tables(positions)
        if not cos.isfinite().all():
            last = int(positions.max()) + self.rounding.first
            raise InputError(
                f"{self.rounding.label}: an angle overflows before position {last}"
            )
        return cos, sin


def rounded(x: Tensor, fmt: FloatFormat) -> Tensor:
    """Round a tensor to a format and back; the numbers of float32 products, once and
    exactly.
    """
    if fmt.precision == 53:
        return x
    if fmt.name in NATIVE:
        return x.to(NATIVE[fmt.name]).to(x.dtype)
    return _through(x, lambda values: round_to(values, fmt))


def _through(x: Tensor, function: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """Apply a function of float64 arrays."""
    return torch.from_numpy(function(x.double().cpu().numpy())).to(x)
