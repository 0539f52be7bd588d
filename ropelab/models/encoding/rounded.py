"""RoPE with rounding: of stages of its computation, or of the keys in a cache.

A `Rounding` (ropelab.math.numerics.keys) says what is rounded. Its cast plan has a
number format for each stage of RoPE: positions, angles, tables of cos and sin, the
rotation, and scores. Its key format, if there is one, is that in which a cache stores
keys.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FLOAT64_BITS, FloatFormat, round_to
from ropelab.math.numerics.keys import Rounding
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Heads, Positions, Scores
from ropelab.models.encoding.rope import Rope
from ropelab.runs.errors import InputError

# The formats to which torch itself rounds float32 numbers, correctly on any device. All
# other formats are rounded by NumPy.
NATIVE = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


class RoundedRope(Rope):
    """RoPE under a rounding.

    Whatever `rounding` does not round is as in `Rope`, and the model's other products
    stay as they are. `base` is the base of the frequencies before any scaling.
    InputError is raised when a tensor is rotated, if an angle is too large for its
    format.
    """

    def __init__(self, rope: Rope, rounding: Rounding, base: float) -> None:
        super().__init__(rope.plan, rope.pairing, rope.softmax_factor)
        self.rounding = rounding
        self.base = base
        # Rotates stored keys to lower positions. The keys have been multiplied by the
        # plan's factor already, so that this rotation has no factor.
        self.mover = Rope(RopePlan(rope.plan.inv_freq), rope.pairing)
        spectrum = Spectrum(rope.plan.inv_freq, base, self.rotary_dim)
        # Computes angles with the roundings of the cast plan.
        self.chain = Chain(rounding.cast, spectrum)
        # The fused kernel does not let scores be rounded.
        self.fused = _is_exact(rounding.cast.score)

    def key(self, k: Heads, positions: Positions) -> Heads:
        key_format = self.rounding.keys
        if key_format is None:
            return super().key(k, positions)
        if key_format.before:
            # The cache stores keys before they are rotated.
            stored = _apply(k, key_format.store)
            return super().key(stored, positions)

        # A runtime that shifts its context moves stored keys down, `moves` times by
        # `step` positions. `positions` are those after the last move, so that the keys
        # were first stored at higher positions.
        first_positions = positions + key_format.moves * key_format.step
        rotated = super().key(k, first_positions)
        stored = _apply(rotated, key_format.store)

        steps = torch.full_like(positions, key_format.step)
        for _ in range(key_format.moves):
            moved = self.mover.rotate_heads(stored, steps, sign=-1)
            stored = _apply(moved, key_format.store)
        return stored

    def scores(
        self,
        q: Heads,
        k: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Scores:
        scores = super().scores(q, k, q_positions, k_positions)
        return round_tensor(scores, self.chain.plan.score)

    def rotate_heads(self, x: Heads, positions: Positions, sign: int = 1) -> Heads:
        """See `Rope.rotate_heads`; every product and every sum is rounded."""
        formats = self.chain.plan
        if _is_exact(formats.rotation) and _is_exact(formats.score):
            return super().rotate_heads(x, positions, sign)

        cos, sin = self._look_up(positions)
        sin = sign * sin

        # A head is seen as a matrix of pairs, in which `pair_dim` is the dimension of the
        # two features of a pair: [2, pairs] or [pairs, 2].
        front = x[..., : self.rotary_dim].float()
        if self.pairing == "half":
            pair_dim = -2
            pairs = front.unflatten(-1, (2, -1))
        else:
            pair_dim = -1
            pairs = front.unflatten(-1, (-1, 2))
        first, second = pairs.unbind(pair_dim)

        def multiply(a: Tensor, b: Tensor) -> Tensor:
            return round_tensor(a * b, formats.rotation)

        rotated_first = multiply(first, cos) - multiply(second, sin)
        rotated_second = multiply(first, sin) + multiply(second, cos)
        rotated_first = round_tensor(rotated_first, formats.rotation)
        rotated_second = round_tensor(rotated_second, formats.rotation)

        rotated = torch.stack([rotated_first, rotated_second], pair_dim)
        rotated = rotated.flatten(-2).to(x.dtype)
        unrotated = x[..., self.rotary_dim :]
        all_features = torch.cat([rotated, unrotated], dim=-1)
        # Queries and keys enter the scores in the format of scores.
        return round_tensor(all_features, formats.score)

    def _compute_tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        # The text may begin at another position than 0.
        shifted = positions.cpu().numpy() + float(self.rounding.first)
        # [tokens, pairs]
        angles = self.chain.angles(shifted).T
        factor = self.plan.attention_factor

        # An angle beyond the largest number of its format is infinite, and its cos and
        # sin are nan. `_look_up` refuses nan, but only at positions that are used.
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
        overflows = not cos.isfinite().all()
        if overflows:
            last = int(positions.max()) + self.rounding.first
            raise InputError(
                f"{self.rounding.label}: an angle overflows before position {last}"
            )
        return cos, sin


def round_tensor(x: Tensor, fmt: FloatFormat) -> Tensor:
    """Round numbers to a format; the result has the dtype of `x`."""
    if _is_exact(fmt):
        return x

    if fmt.name in NATIVE:
        rounded = x.to(NATIVE[fmt.name])
        return rounded.to(x.dtype)
    return _apply(x, lambda values: round_to(values, fmt))


def _is_exact(fmt: FloatFormat) -> bool:
    """Return True for the format of a stage that is not rounded."""
    # Everything is computed in float64 or less.
    return fmt.precision == FLOAT64_BITS


def _apply(x: Tensor, function: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """Apply a function of float64 arrays to a tensor."""
    values = x.double().cpu().numpy()
    return torch.from_numpy(function(values)).to(x)
