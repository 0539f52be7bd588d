"""The observed results of a rotary code (an implementation under test), and the shapes
of its arrays.

RoPE rotates the features of a head in pairs, each pair by an angle that grows with the
position. The results of a code are therefore known from the cos and sin of every pair
at some positions, once it is known which two features form a pair.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Float, Int

Positions = Int[np.ndarray, " n"]
# The index in a head of one feature of each pair.
Features = Int[np.ndarray, " pairs"]
# A row for each position, a column for each pair.
Table = Float[np.ndarray, "n pairs"]
Vectors = Float[np.ndarray, "vectors head_dim"]
# Such vectors, rotated to each position.
Rotated = Float[np.ndarray, "n vectors head_dim"]
# A sentence about the mistake, and what to do instead.
Fault = tuple[str, str]
# Which features form a pair.
# half: features i and i + half of the width.
# adjacent: neighbours.
# irregular: any other features.
# unknown: tables of cos and sin do not show which features form a pair.
Partner = Literal["half", "adjacent", "irregular", "unknown"]

# Tables with a larger factor on cos and sin count as not finite. Sums of numbers below
# it do not overflow.
LARGEST_FACTOR = 1e100
# The fault of tables with larger or missing numbers, with the advice to the user.
UNBOUNDED_TABLES: Fault = (
    "tables hold numbers that are not finite",
    "see how they are made",
)
# The largest position that is read. Larger whole numbers are not exact in float64.
LARGEST_POSITION = 2**53
# Rounding to 8 bits moves cos and sin by less than this share of their factor.
EIGHT_BIT_ERROR = 0.1


@dataclass(frozen=True)
class Observed:
    """cos and sin of every pair at some positions, in float64.

    They include the factor by which a code multiplies both.
    """

    positions: Positions
    cos: Table
    sin: Table
    partner: Partner = "unknown"
    # A fault in the pairs, or in the features that rotate. None: none was seen.
    fault: Fault | None = None
    # The matrices that multiply the pairs; None if only tables were seen.
    blocks: Float[np.ndarray, "n pairs 2 2"] | None = None
    # The user's function with its arguments, in words.
    called: str = ""
    # True if the function was given the number of tokens in the context.
    told_length: bool = False
    # A remark on an order of features that scores or tables do not show.
    note: str = ""
    # What the same code computes at many more positions. Only the size of its errors is
    # looked at there.
    further: "Observed | None" = None

    @property
    def gain(self) -> float:
        """The factor on cos and sin."""
        lengths = np.hypot(self.cos, self.sin)
        return float(np.median(lengths))


# Returns what a code computes for a rotation at some positions. A code that returns
# several parts, such as queries and keys, has an entry for each; a single part is "".
Answer = dict[str, Observed]
Ask = Callable[[RopeSpec, Positions], Answer]
# Asks the same object at several positions, one after the other, and returns what it
# computes at each of them, or the error that it raised there.
AskInTurn = Callable[[RopeSpec, Sequence[Positions]], "list[Answer | Exception]"]


def make_in_turn(ask: Ask) -> AskInTurn:
    """Return a function that asks an object of this process at several positions."""

    def ask_in_turn(
        spec: RopeSpec, positions_of_calls: Sequence[Positions]
    ) -> list[Answer | Exception]:
        answers: list[Answer | Exception] = []
        for positions in positions_of_calls:
            try:
                answers.append(ask(spec, positions))
            except Exception as error:
                answers.append(error)
        return answers

    return ask_in_turn


def are_bounded(array: np.ndarray) -> bool:
    """Return True if all entries are below LARGEST_FACTOR, and none is NaN."""
    return bool((np.abs(array) < LARGEST_FACTOR).all())
