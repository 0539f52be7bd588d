"""What a rotary code does, recovered from its tables or from rotated unit vectors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from ropelab.errors import InputError

Partner = Literal["half", "adjacent", "unknown"]
LARGEST = 1e100
"""No factor on cos and sin is larger."""
ZERO = 1e-6
"""A component below this share of the largest one counts as none."""


@dataclass(frozen=True)
class Observed:
    """cos and sin of every pair at some positions, gain included, as a float64 array.

    ``partner``: which features form a pair; unknown where only tables were seen. ``rotated``: how
    many features turn. ``sign``: +1 if a pair turns from its first feature to its second.
    """

    positions: Int[np.ndarray, " n"]
    cos: Float[np.ndarray, "n pairs"]
    sin: Float[np.ndarray, "n pairs"]
    partner: Partner
    rotated: int
    sign: int = 1

    @property
    def gain(self) -> float:
        """The factor on cos and sin: the median length of a turned pair."""
        return float(np.median(np.hypot(self.cos, self.sin)))

    @property
    def finite(self) -> bool:
        """Whether every number is one, and not so large that sums of them would overflow."""
        return bool((np.abs(self.cos) < LARGEST).all() and (np.abs(self.sin) < LARGEST).all())


def from_tables(
    positions: Int[np.ndarray, " n"],
    cos: Float[np.ndarray, "n width"],
    sin: Float[np.ndarray, "n width"],
    pairs: int | None,
) -> Observed:
    """Tables with a column per pair, or per feature: then each angle stands there twice.

    Raises:
        InputError: shapes that do not fit each other or the number of pairs.
    """
    if cos.shape != sin.shape or cos.ndim != 2 or len(cos) != len(positions):
        raise InputError(f"cos {cos.shape} and sin {sin.shape} for {len(positions)} positions")
    width = cos.shape[1]
    doubled = width % 2 == 0 and width != pairs and _doubled(cos, sin)
    partner: Partner = "unknown"
    if doubled:
        halves = np.array_equal(cos[:, : width // 2], cos[:, width // 2 :], equal_nan=True)
        step = slice(0, width // 2) if halves else slice(0, width, 2)
        cos, sin, partner = cos[:, step], sin[:, step], "half" if halves else "adjacent"
    return Observed(positions, cos, sin, partner, 2 * cos.shape[1])


def _doubled(cos: Float[np.ndarray, "n width"], sin: Float[np.ndarray, "n width"]) -> bool:
    half = cos.shape[1] // 2
    first, second = (cos[:, :half], sin[:, :half]), (cos[:, half:], sin[:, half:])
    by_half = all(map(np.array_equal, first, second))
    return by_half or all(np.array_equal(t[:, 0::2], t[:, 1::2]) for t in (cos, sin))


Rotate = Callable[[Float[np.ndarray, "tokens head_dim"], Int[np.ndarray, " tokens"]], np.ndarray]


def from_rotation(rotate: Rotate, head_dim: int, positions: Int[np.ndarray, " n"]) -> Observed:
    """Unit vectors, turned at every position; partner, sign and width from the first turn.

    Raises:
        InputError: the result has another shape, or features mix in a way that does not pair them.
    """
    images = np.stack([_image(rotate, head_dim, int(position)) for position in positions])
    turning = images[positions > 0]
    if not len(turning):
        raise InputError("no position above 0 to look at")
    first, second, partner = _pairs(np.abs(turning).max(axis=0))
    cos = images[:, first, first]
    sin = images[:, first, second]
    sign = -1 if np.median(sin[positions == 1]) < 0 else 1
    return Observed(positions, cos, sign * sin, partner, 2 * len(first), sign)


def _image(rotate: Rotate, head_dim: int, position: int) -> Float[np.ndarray, "from to"]:
    """Row j: what becomes of the j-th unit vector at that position."""
    result = np.asarray(rotate(np.eye(head_dim), np.full(head_dim, position)), dtype=np.float64)
    if result.shape != (head_dim, head_dim):
        raise InputError(f"rotating {head_dim} vectors of {head_dim} gave shape {result.shape}")
    return result


def _pairs(
    mixed: Float[np.ndarray, "from to"],
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"], Partner]:
    """First and second features of the pairs; features that mix with none do not turn."""
    off = mixed - np.diag(np.diag(mixed))
    partners = off.argmax(axis=1)
    turns = off.max(axis=1) > ZERO
    first = np.array([j for j in np.flatnonzero(turns) if partners[j] > j], dtype=int)
    second = partners[first]
    if not len(first):
        raise InputError("nothing turns: the result is its input")
    if not np.array_equal(partners[second], first):
        raise InputError("features do not turn in pairs")
    gaps = np.unique(second - first)
    if len(gaps) == 1 and gaps[0] == 1 and np.array_equal(first % 2, np.zeros_like(first)):
        return first, second, "adjacent"
    if len(gaps) == 1 and gaps[0] == len(first):
        return first, second, "half"
    return first, second, "unknown"


def frequencies(observed: Observed) -> Float[np.ndarray, " pairs"]:
    """Radians per token, from the smallest positions on and refined at larger ones.

    At every further position the angle is known up to whole turns, and the frequency so far says
    how many, as long as its error times the position stays below half a turn.
    """
    order = np.argsort(observed.positions)
    angles = np.arctan2(observed.sin, observed.cos)[order]
    places = observed.positions[order].astype(np.float64)
    start = int(np.flatnonzero(places == 1)[0])
    found = angles[start].copy()
    for place, angle in zip(places[start + 1 :], angles[start + 1 :], strict=True):
        turns = np.round((found * place - angle) / (2 * np.pi))
        refined = (angle + 2 * np.pi * turns) / place
        sure = np.abs(found) * place < 2**6
        found = np.where(sure, refined, found)
    return found
