"""What a configuration says about rotation once it was read, and what became of its keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import LongRope, RopePlan, Scaling

if TYPE_CHECKING:
    from ropelab.audit.runtimes.trace import Trace

Status = Literal["used", "translated", "ignored", "overridden", "refused"]
"""used: as written. translated: another name or place of a key that counts. ignored: read by
nobody. overridden: another key won. refused: the runtime stops because of it."""

Pairing = Literal["half", "interleaved"]


@dataclass(frozen=True, kw_only=True)
class RopeSpec:
    """How one layer type turns, as one runtime read it. Lengths in tokens.

    ``trained_len`` is the length that the scaling starts from; ``claimed_len`` what the runtime
    allows or promises, None where it sets no limit. ``attention_factor`` multiplies cos and sin
    (every logit by its square), ``softmax_factor`` whole scores. ``sources`` says for each field
    where it came from: a key path, the default of a class, a flag.
    """

    base: float
    head_dim: int
    rotary_dim: int
    scaling: Scaling
    trained_len: int
    claimed_len: int | None = None
    attention_factor: float = 1.0
    softmax_factor: float = 1.0
    pairing: Pairing = "half"
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def geometry(self) -> Geometry:
        """The unscaled frequencies and the length they were trained with (InputError if odd)."""
        return Geometry(self.rotary_dim, self.base, self.trained_len)

    @property
    def logit_multiplier(self) -> float:
        """What every logit of rotated features is multiplied with."""
        return self.attention_factor**2 * self.softmax_factor

    @property
    def method(self) -> str:
        """The method as it would be typed, its long lists left out."""
        if isinstance(self.scaling, LongRope):
            same = self.scaling.long_factor == self.scaling.short_factor
            return f"longrope({'one table' if same else 'two tables'})"
        return self.scaling.label

    def plan(self, length: int) -> RopePlan:
        """The scaling's plan while ``length`` tokens are in the context."""
        return self.scaling.plan(self.geometry, length)

    def inv_freq(self, length: int) -> Float[np.ndarray, " pairs"]:
        """Radians per token, float64, at that length."""
        return np.asarray(self.plan(length).inv_freq, dtype=np.float64)


class RefusedError(Exception):
    """The runtime itself stops at this configuration."""


class NotModelledError(Exception):
    """The runtime accepts the configuration and does something that no class here computes."""


@dataclass(frozen=True)
class KeyUse:
    """What became of one key."""

    path: str
    status: Status
    note: str = ""


@dataclass(frozen=True)
class Runtime:
    """One runtime at one version, and how its reader was checked.

    ``read_from`` names the files; ``reads`` the kinds of documents it takes. ``proof`` is "run"
    where the reader is compared with what that version computed, "parts" where with what its
    converter wrote and its kernel turned, "read" where it was only read; ``compared`` are the model
    types for which.
    """

    name: str
    version: str
    read_from: str
    proof: Literal["run", "parts", "read"]
    read: Callable[["Trace"], dict[str, RopeSpec]]
    reads: tuple[str, ...] = ("config", "params")
    compared: frozenset[str] = frozenset()

    def stated(self, model_type: str) -> str:
        """How far the reader can be trusted for that model type, as the output says it."""
        if model_type not in self.compared:
            return "read from source, not run" + (" for this model" if self.compared else "")
        if self.proof == "parts":
            return "compared with what its converter wrote and its kernel turned"
        return "compared with what it computed"


@dataclass(frozen=True)
class Reading:
    """A configuration as one runtime reads it: a spec per layer type, or why there is none."""

    runtime: Runtime
    layers: Mapping[str, RopeSpec]
    keys: tuple[KeyUse, ...]
    outcome: Literal["read", "refused", "not modelled"] = "read"
    problem: str = ""
    model_type: str = ""

    @property
    def main(self) -> RopeSpec | None:
        """The layer type that sees the whole context: full attention, else the only one."""
        if not self.layers:
            return None
        return self.layers.get("full_attention") or next(iter(self.layers.values()))


def number(value: Any, name: str) -> float:
    """A finite number, or RefusedError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(f"{name} must be a number, not {short(value)}")
    if not -1e300 < value < 1e300:
        raise RefusedError(f"{name} must be a finite number, not {short(value)}")
    return float(value)


def whole(value: Any, name: str) -> int:
    """A whole number between 1 and 2^40, or RefusedError."""
    given = number(value, name)
    if given != int(given) or not 1 <= given <= 2**40:
        raise RefusedError(f"{name} must be a whole number from 1 to 2^40, not {short(value)}")
    return int(given)


def numbers(value: Any, name: str) -> tuple[float, ...]:
    """A list of at most 65536 finite numbers, or RefusedError."""
    if not isinstance(value, list | tuple) or len(value) > 2**16:
        raise RefusedError(f"{name} must be a list of numbers, not {short(value)}")
    return tuple(number(item, name) for item in value)


def short(value: Any) -> str:
    """A value for a message, at most 40 characters of it."""
    text = value[:40] if isinstance(value, str) else None
    if text is None:
        text = f"a {type(value).__name__}" if isinstance(value, list | dict) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
