"""A configuration's rotation as one runtime reads it, and the checks on its values."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ropelab.math.axes import Axes
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import LongRope, RopePlan, Scaling, Unscaled
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError
from ropelab.runs.sentences import printable

# Columns that are attributes of a spec.
SHAPE = ("base", "rotary_dim", "head_dim", "place", "pairing", "method")
GAINS = ("attention_factor", "softmax_factor", "logit_multiplier")
# No head is wider, and a table with an entry per pair should stay small.
MOST_FEATURES = 2**14
# The longest list of numbers in a file; pairs of a head are far fewer.
MOST_NUMBERS = 2**16


class RefusedError(Exception):
    """The runtime itself stops at this configuration."""


class NotModelledError(Exception):
    """The runtime accepts the configuration and does something that no class here
    computes.
    """


class FrequencyFactors(LongRope):
    """The tensor of a GGUF file, a divisor per pair, as llama3 is stored there."""


@dataclass(frozen=True, kw_only=True)
class RopeSpec:
    """The rotation of one layer type; lengths in tokens."""

    base: float
    head_dim: int
    rotary_dim: int
    scaling: Scaling
    trained_len: int  # the length that the scaling starts from
    # the length that the runtime allows, None without a limit
    claimed_len: int | None = None
    attention_factor: float = 1.0  # on cos and sin, so that logits get its square
    softmax_factor: float = 1.0  # on whole scores
    pairing: Literal["half", "interleaved"] = "half"
    # The first rotated feature of a head; the features before and after the rotated
    # ones pass as they are.
    place: int = 0
    # The sine has the other sign, in queries and keys alike: no score sees it.
    backwards: bool = False
    # Which axis of a position moves each pair. None: positions have one axis, or which
    # pairs an axis has is not known.
    axes: Axes | None = field(default=None, compare=False)
    # key path, flag, or default in words
    base_source: str = field(default="", compare=False)
    # trained_len is no guess of the runtime
    stated: bool = field(default=True, compare=False)
    # claimed_len is this length times factor
    multiplied: int = field(default=0, compare=False)

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.rotary_dim, self.base, self.trained_len)

    @property
    def rotated(self) -> range:
        """The features of a head that rotate."""
        return range(self.place, self.place + self.rotary_dim)

    @property
    def length(self) -> int:
        return self.claimed_len or self.trained_len

    @property
    def has_patches(self) -> bool:
        """True for an encoder of images: a position is a row and a column of patches."""
        return self.axes is not None and self.axes.count == 2

    @property
    def logit_multiplier(self) -> float:
        return self.attention_factor**2 * self.softmax_factor

    @property
    def method(self) -> str:
        if isinstance(self.scaling, FrequencyFactors):
            return "frequency factors in one table"
        if isinstance(self.scaling, LongRope):
            same = self.scaling.long_factor == self.scaling.short_factor
            return f"longrope({'one table' if same else 'two tables'})"
        # By a factor of 1.
        return "unscaled" if self.scaling.label in ("pi", "ntk") else self.scaling.label

    def plan(self, length: int) -> RopePlan:
        return self.scaling.plan(self.geometry, length)

    def inv_freq(self, length: int) -> Float[np.ndarray, " pairs"]:
        """Return radians per token while ``length`` tokens are in the context.

        With several axes they are radians per step along the axis of the pair.
        """
        inv_freq = np.asarray(self.plan(length).inv_freq, dtype=np.float64)
        if self.axes is None:
            return inv_freq
        return self.axes.lay_out(inv_freq, self.base)

    def unscaled(self, base: float) -> "RopeSpec":
        """Return the spec of layers beside these that are never scaled and have their
        own base.
        """
        plain = replace(
            self, base=base, base_source="", multiplied=0, scaling=Unscaled()
        )
        return replace(plain, attention_factor=1.0, softmax_factor=1.0)

    def check(self) -> "RopeSpec":
        """Return the spec itself if its plans exist; RefusedError for lists of another
        length.
        """
        if self.head_dim > MOST_FEATURES:
            raise RefusedError(
                f"a head of {self.head_dim} features is more than any head has"
            )

        if isinstance(self.scaling, LongRope):
            pairs = self.rotary_dim // 2
            for name in ("short_factor", "long_factor"):
                count = len(getattr(self.scaling, name))
                if count != pairs:
                    raise RefusedError(f"{name} has {count} numbers for {pairs} pairs")

        if self.place + self.rotary_dim > self.head_dim:
            raise NotModelledError(
                f"{self.rotary_dim} features from {self.place} on rotate, and a head"
                f" has {self.head_dim}"
            )
        if self.length < 1:
            raise InputError(f"the factor gives a length of {self.length} tokens")

        # An overflow is an ArithmeticError here, as in Python's own numbers.
        with np.errstate(over="raise"):
            self.plan(self.trained_len)
            self.plan(2 * self.trained_len)
        return self


def number(value: Any, name: str) -> float:
    """Return a finite number, or raise RefusedError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        given = f"'{short(value)}'" if isinstance(value, str) else short(value)
        raise RefusedError(f"{name} must be a number, not {given}")
    if not -1e300 < value < 1e300:  # beyond, products of two numbers overflow
        raise RefusedError(f"{name} must be a finite number, not {short(value)}")
    return float(value)


def whole(value: Any, name: str) -> int:
    """Return a whole number from 1 to 2^40, or raise RefusedError."""
    given = number(value, name)
    if given != int(given) or not 1 <= given <= 2**40:
        raise RefusedError(
            f"{name} must be a whole number from 1 to 2^40, not {short(value)}"
        )
    return int(given)


def numbers(value: Any, name: str) -> tuple[float, ...]:
    """Return at most MOST_NUMBERS finite numbers, or raise RefusedError."""
    if not isinstance(value, list | tuple):
        raise RefusedError(f"{name} must be a list of numbers, not {short(value)}")
    if len(value) > MOST_NUMBERS:
        raise RefusedError(
            f"{name} must have at most {MOST_NUMBERS} numbers, not {len(value)}"
        )
    return tuple(number(item, name) for item in value)


def short(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"a {type(value).__name__}"
    text = printable(value) if isinstance(value, str) else repr(value)
    if len(text) > 40:
        return f"{text[:37]}..."
    return text
