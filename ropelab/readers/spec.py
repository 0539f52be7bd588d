"""A configuration's rotation as one runtime reads it, and the checks on its values."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeGuard

import numpy as np

from ropelab.math.axes import Axes
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import LongRope, RopePlan, Scaling, Unscaled
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError, cut_text
from ropelab.runs.sentences import escape_unprintable

# Columns of tables that are attributes of a spec: its rotation, and its factors.
SHAPE = ("base", "rotary_dim", "head_dim", "place", "pairing", "method")
GAINS = ("attention_factor", "softmax_factor", "logit_multiplier")
# The most features of a head. Real heads have far fewer, and tables have an entry per
# pair.
MOST_FEATURES = 2**14
# The largest context in tokens that a file or a user may ask for.
LONGEST_CONTEXT = 2**40
# The most numbers in a list of a file. A head has far fewer pairs.
MOST_NUMBERS = 2**16
# The largest number in float32. Runtimes compute in float32, where a larger base is
# infinite, so that only the first pair rotates.
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
# The smallest whole number that torch does not take as a scalar. If a base is written as
# a whole number, classes stop at this number and at larger numbers.
FIRST_UNREADABLE_INTEGER = 2**64


class RefusedError(Exception):
    """The runtime itself stops at this configuration."""


class NotModelledError(Exception):
    """The runtime accepts the configuration, and what it does is not computed here."""


class FrequencyFactors(LongRope):
    """A divisor for each pair, from a tensor of a GGUF file, as it stores llama3."""


@dataclass(frozen=True, kw_only=True)
class RopeSpec:
    """The rotation of one layer type. Lengths are in tokens."""

    base: float
    head_dim: int
    # The number of features that rotate. All other features of a head stay as they are.
    rotary_dim: int
    scaling: Scaling
    # The length that the scaling starts from.
    trained_len: int
    # The length that the runtime allows. None: it has no limit.
    claimed_len: int | None = None
    # A factor on cos and sin. Logits are multiplied by its square.
    attention_factor: float = 1.0
    # A factor on whole scores.
    softmax_factor: float = 1.0
    # half: features i and i + rotary_dim / 2 form a pair. interleaved: neighbours do.
    pairing: Literal["half", "interleaved"] = "half"
    # The first feature of a head that rotates.
    place: int = 0
    # True if queries and keys rotate by the negative angle, which no score shows.
    backwards: bool = False
    # The axis of a position that moves each pair. None: positions have one axis, or it is
    # not known which axis moves which pair.
    axes: Axes | None = field(default=None, compare=False)
    # Where the base comes from: the path of a key, a flag, or a default in words.
    base_source: str = field(default="", compare=False)
    # True if the file states trained_len, or the class does.
    states_trained_len: bool = field(default=True, compare=False)
    # The length that was multiplied by the factor to give claimed_len; 0: none was.
    multiplied_len: int = field(default=0, compare=False)

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.rotary_dim, self.base, self.trained_len)

    @property
    def rotated(self) -> range:
        """The features of a head that rotate."""
        return range(self.place, self.place + self.rotary_dim)

    @property
    def length(self) -> int:
        """The claimed length, or the trained length if the file claims none."""
        return self.claimed_len or self.trained_len

    @property
    def has_default_base(self) -> bool:
        """True if a runtime found no base where it looks, and takes one of its own.

        A base that is fixed in the code of a class is no default.
        """
        return self.base_source.startswith(("default of", "class default"))

    @property
    def has_patches(self) -> bool:
        """True for an encoder of images: a position is a row and a column of patches."""
        return self.axes is not None and self.axes.count == 2

    @property
    def logit_multiplier(self) -> float:
        """The number by which both factors together multiply the logits."""
        return self.attention_factor**2 * self.softmax_factor

    @property
    def method(self) -> str:
        """The name of the scaling with its parameters, as `yarn(factor=4)`."""
        if isinstance(self.scaling, FrequencyFactors):
            return "frequency factors in one table"
        if isinstance(self.scaling, LongRope):
            has_one_table = self.scaling.long_factor == self.scaling.short_factor
            return f"longrope({'one table' if has_one_table else 'two tables'})"
        # If the label has no factor, the factor is 1, which changes nothing.
        if self.scaling.label in ("pi", "ntk"):
            return "unscaled"
        return self.scaling.label

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
        """Return the rotation of other layers, which have this base and no scaling."""
        plain = replace(
            self, base=base, base_source="", multiplied_len=0, scaling=Unscaled()
        )
        return replace(plain, attention_factor=1.0, softmax_factor=1.0)

    def check(self) -> "RopeSpec":
        """Return the spec itself if its frequencies can be computed.

        RefusedError: a list of the scaling does not have one number for each pair.
        NotModelledError: the rotated features do not fit into a head, or float32 does not
        hold the base.
        """
        if self.head_dim > MOST_FEATURES:
            raise RefusedError(
                f"a head of {self.head_dim} features is more than any head has"
            )

        if self.base > LARGEST_FLOAT32:
            raise NotModelledError(
                f"a base of {self.base:g}, which is infinite in float32"
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

        # Frequencies are computed here for a length within the trained length and one
        # beyond it, so that an overflow is found before the spec is used. With this
        # setting NumPy raises an ArithmeticError for it, as Python does for its numbers.
        with np.errstate(over="raise"):
            self.plan(self.trained_len)
            self.plan(2 * self.trained_len)
        return self


def require_number(value: Any, name: str) -> float:
    """Return a finite number, or raise RefusedError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = (
            f"'{shorten_value(value)}'"
            if isinstance(value, str)
            else shorten_value(value)
        )
        raise RefusedError(f"{name} must be a number, not {text}")
    # Larger numbers leave no room for a product. NaN is not between the bounds either.
    is_finite = -1e300 < value < 1e300
    if not is_finite:
        raise RefusedError(
            f"{name} must be a finite number, not {shorten_value(value)}"
        )
    return float(value)


def require_whole(value: Any, name: str) -> int:
    """Return a whole number from 1 to 2^40, or raise RefusedError."""
    number = require_number(value, name)
    if number != int(number) or not 1 <= number <= 2**40:
        raise RefusedError(
            f"{name} must be a whole number from 1 to 2^40, not {shorten_value(value)}"
        )
    return int(number)


def is_context(value: Any) -> TypeGuard[int]:
    """Tell whether a value is a number of tokens that a context may have."""
    if not isinstance(value, int | np.integer):
        return False
    return 2 <= int(value) <= LONGEST_CONTEXT


def check_length(length: Any, name: str = "length") -> None:
    """Raise InputError for a length that no context has."""
    if not is_context(length):
        text = cut_text(" ".join(repr(length).split()))
        raise InputError(
            f"{name} must be a whole number of tokens from 2 to 2^40, not {text}"
        )


def require_numbers(value: Any, name: str) -> tuple[float, ...]:
    """Return at most MOST_NUMBERS finite numbers, or raise RefusedError."""
    if not isinstance(value, list | tuple):
        raise RefusedError(
            f"{name} must be a list of numbers, not {shorten_value(value)}"
        )
    if len(value) > MOST_NUMBERS:
        raise RefusedError(
            f"{name} must have at most {MOST_NUMBERS} numbers, not {len(value)}"
        )
    return tuple(require_number(item, name) for item in value)


def shorten_value(value: Any) -> str:
    """Return a value of a file in at most 40 characters."""
    if isinstance(value, list | dict):
        return f"a {type(value).__name__}"
    text = escape_unprintable(value) if isinstance(value, str) else repr(value)
    if len(text) > 40:
        return f"{text[:37]}..."
    return text
