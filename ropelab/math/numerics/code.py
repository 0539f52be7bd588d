"""A position code: which numbers of a chain are looked at, before they are stored."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.formats import FloatFormat, spacing

Channel = Literal["cos", "sin", "pair", "vector", "score", "angle"]
CHANNELS: tuple[Channel, ...] = get_args(Channel)

_TRIG: dict[Channel, tuple[Callable[[np.ndarray], np.ndarray], ...]] = {
    "cos": (np.cos,),
    "sin": (np.sin,),
    "pair": (np.cos, np.sin),
    "vector": (np.cos, np.sin),
}


@dataclass(frozen=True)
class Code:
    """The numbers that stand for a position.

    channel: cos or sin alone; both of them ('pair' and 'vector', the same thing with one pair and
        with many); 'score', the mean of cos over the pairs, which is the attention score of aligned
        unit vectors at that distance; 'angle', the stored angles themselves: different angles are
        different points of the circle, so an unrounded table need not be computed to be judged.
    pairs: which pairs of the chain belong to the code.
    """

    chain: Chain
    channel: Channel
    pairs: range

    @np.errstate(invalid="ignore", over="ignore")
    def values(
        self, positions: Float[np.ndarray, " n"], pairs: range
    ) -> Float[np.ndarray, "features n"]:
        """The numbers of some pairs at some positions, pair by pair, in float64, not yet rounded.

        A score is one number for all pairs; it cannot be had for some of them.
        """
        if self.channel == "score":
            return self._score(positions, pairs)[None]
        angles = self.chain.angles(positions, slice(pairs.start, pairs.stop))
        if self.channel == "angle":
            return angles
        return np.stack([trig(angles) for trig in _TRIG[self.channel]], 1).reshape(
            -1, len(positions)
        )

    def _score(self, positions: Float[np.ndarray, " n"], pairs: range) -> Float[np.ndarray, " n"]:
        """Pair after pair, so that no more than one row is held."""
        rows = (np.cos(self.chain.angles(positions, slice(i, i + 1))[0]) for i in pairs)
        return sum(rows, np.zeros_like(positions)) / len(pairs)

    @property
    def per_pair(self) -> int:
        """How many numbers a pair contributes; 0: they are one number together."""
        return 0 if self.channel == "score" else len(_TRIG.get(self.channel, (None,)))

    @property
    def single(self) -> bool:
        """Whether the code is one number only."""
        return self.per_pair == 0 or len(self.pairs) * self.per_pair == 1

    def packs(self, fmt: FloatFormat) -> bool:
        """Whether the whole code has at most 64 bits: one number, or two of up to 32 bits."""
        two = len(self.pairs) * self.per_pair == 2
        return self.single or (two and fmt.precision <= 24)

    def leading(self, fmt: FloatFormat) -> range:
        """The pairs to look at first: enough bits to part most positions, and no more."""
        if self.channel == "score":
            return self.pairs
        return self.pairs[: -(-48 // (fmt.precision + 2))]


def neighbour_steps(
    code: Code, fmt: FloatFormat, positions: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """How far the code moves from m to m+1, in units of the last place of `fmt`.

    For each number |x(m+1) - x(m)| before rounding, over the spacing of the format at the larger of
    the two; of all numbers the largest. Below one half, neighbours mostly collide.
    """
    here, there = code.values(positions, code.pairs), code.values(positions + 1, code.pairs)
    unit = spacing(np.maximum(np.abs(here), np.abs(there)), fmt)
    return np.max(np.abs(there - here) / unit, axis=0)
