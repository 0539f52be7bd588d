"""RoPE with rounded stages or rounded keys: the arithmetic of other code in any model."""

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

# The formats to which torch rounds float32 numbers exactly, on any device.
NATIVE = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
# Bits of float64, in which nothing is rounded further.
EXACT_PRECISION = 53


class RoundedRope(Rope):
    """A rotation whose angles, tables, products, scores and keys are rounded.

    Everything that `rounding` does not round is as in `Rope`; a model's other products
    stay as they are. `base` is of the unscaled frequencies. InputError, when it
    rotates: an angle overflows.
    """

    def __init__(self, rope: Rope, rounding: Rounding, base: float) -> None:
        super().__init__(rope.plan, rope.pairing, rope.softmax_factor)
        self.rounding = rounding
        self.base = base
        # Stored keys carry the attention factor already, so that the rotation that moves
        # them has none.
        self.mover = Rope(RopePlan(rope.plan.inv_freq), rope.pairing)
        spectrum = Spectrum(rope.plan.inv_freq, base, self.rotary_dim)
        self.chain = Chain(rounding.cast, spectrum)
        self.fused = _is_exact(rounding.cast.score)

    def key(self, k: Heads, positions: Positions) -> Heads:
        keys = self.rounding.keys
        if keys is None:
            return super().key(k, positions)
        if keys.before:
            stored = _apply(k, keys.store)
            return super().key(stored, positions)

        # Keys that will be moved down were first stored at higher positions.
        first_positions = positions + keys.moves * keys.step
        rotated = super().key(k, first_positions)
        stored = _apply(rotated, keys.store)

        steps = torch.full_like(positions, keys.step)
        for _ in range(keys.moves):
            moved = self.mover.rotate_heads(stored, steps, sign=-1)
            stored = _apply(moved, keys.store)
        return stored

    def scores(
        self,
        q: Heads,
        k: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Scores:
        scores = super().scores(q, k, at_q, at_k)
        return round_tensor(scores, self.chain.plan.score)

    def rotate_heads(self, x: Heads, positions: Positions, sign: int = 1) -> Heads:
        plan = self.chain.plan
        if _is_exact(plan.rotation) and _is_exact(plan.score):
            return super().rotate_heads(x, positions, sign)

        cos, sin = self._look_up(positions)
        sin = sign * sin

        # The two features of a pair are `pair_dim` of the unflattened head.
        front = x[..., : self.rotary_dim].float()
        if self.pairing == "half":
            pair_dim = -2
            pairs = front.unflatten(-1, (2, -1))
        else:
            pair_dim = -1
            pairs = front.unflatten(-1, (-1, 2))
        first, second = pairs.unbind(pair_dim)

        def product(a: Tensor, b: Tensor) -> Tensor:
            return round_tensor(a * b, plan.rotation)

        rotated_first = product(first, cos) - product(second, sin)
        rotated_second = product(first, sin) + product(second, cos)
        rotated_first = round_tensor(rotated_first, plan.rotation)
        rotated_second = round_tensor(rotated_second, plan.rotation)

        rotated = torch.stack([rotated_first, rotated_second], pair_dim)
        rotated = rotated.flatten(-2).to(x.dtype)
        rest = x[..., self.rotary_dim :]
        whole = torch.cat([rotated, rest], dim=-1)
        return round_tensor(whole, plan.score)

    def _compute(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        first = float(self.rounding.first)
        places = positions.cpu().numpy() + first
        angles = self.chain.angles(places).T
        factor = self.plan.attention_factor

        # An angle beyond the format is infinite; it is refused where it is used.
        with np.errstate(invalid="ignore"):
            cos = np.cos(angles) * factor
            sin = np.sin(angles) * factor

        device = positions.device
        return self._round_table(cos, device), self._round_table(sin, device)

    def _round_table(self, table: np.ndarray, device: torch.device) -> Tensor:
        rounded = round_to(table, self.chain.plan.table)
        return torch.from_numpy(rounded).float().to(device)

    def _look_up(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = super()._look_up(positions)
        if not cos.isfinite().all():
            last = int(positions.max()) + self.rounding.first
            raise InputError(
                f"{self.rounding.label}: an angle overflows before position {last}"
            )
        return cos, sin


def round_tensor(x: Tensor, fmt: FloatFormat) -> Tensor:
    """Round a tensor to a format and back.

    Products of float32 numbers are rounded once and exactly.
    """
    if _is_exact(fmt):
        return x

    if fmt.name in NATIVE:
        rounded = x.to(NATIVE[fmt.name])
        return rounded.to(x.dtype)
    return _apply(x, lambda values: round_to(values, fmt))


def _is_exact(fmt: FloatFormat) -> bool:
    return fmt.precision == EXACT_PRECISION


def _apply(x: Tensor, function: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """Apply a function of float64 arrays to a tensor."""
    values = x.double().cpu().numpy()
    return torch.from_numpy(function(values)).to(x)
