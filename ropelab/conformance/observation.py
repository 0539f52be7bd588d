"""What a rotary code was seen to compute, and the shapes of its arrays.

A head of `head_dim` features is rotated pair by pair, ``rotary_dim`` of them at
most. At one position each pair turns by one angle, so that the cos and sin of every
pair at some positions say all that a code does, once its pairs are known. Which
features those are is read by `pairs`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Float, Int

Positions = Int[np.ndarray, " n"]
Features = Int[np.ndarray, " pairs"]
Pairs = Float[np.ndarray, " pairs"]
Table = Float[np.ndarray, "n pairs"]
Vectors = Float[np.ndarray, "vectors head_dim"]
Rotated = Float[np.ndarray, "n vectors head_dim"]
# A sentence, and what to do instead.
Fault = tuple[str, str]
Partner = Literal["half", "adjacent", "irregular", "unknown"]
# The largest factor on cos and sin; sums of such numbers do not overflow.
LARGEST_FACTOR = 1e100
# Formats of 8 bits bring equal numbers less far apart than this share of the gain.
SHEARED = 0.1


@dataclass(frozen=True)
class Observed:
    """cos and sin of every pair at some positions, gain included, float64."""

    positions: Positions
    cos: Table
    sin: Table
    # Tables do not show it: the rotation that uses them decides.
    partner: Partner = "unknown"
    # A fault in pairs or place.
    fault: Fault | None = None
    # The matrices that multiply the pairs of vectors.
    blocks: Float[np.ndarray, "n pairs 2 2"] | None = None
    # The function, with what it was given.
    called: str = ""
    # True if it was given the number of tokens.
    told_length: bool = False
    # A remark on an order of features that scores or tables do not show.
    note: str = ""
    # The same code at further positions.
    between: "Observed | None" = None

    @property
    def gain(self) -> float:
        return float(np.median(np.hypot(self.cos, self.sin)))


Ask = Callable[[RopeSpec, Positions], dict[str, Observed]]


def are_bounded(array: np.ndarray) -> bool:
    """Return True if all are numbers, none so large that sums would overflow."""
    return bool((np.abs(array) < LARGEST_FACTOR).all())
