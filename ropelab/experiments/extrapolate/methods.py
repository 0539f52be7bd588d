"""A method as the experiment uses it: which encoding a context of some length is read with.

A method that depends on the length of the context (dynamic NTK, dynamic YaRN) is always measured
as a prompt of that length would be read: all of its tokens under the plan of its full length. So
every bucket of positions and every copying distance is measured with the plan of the context that
ends there, in a pass of its own where the plans differ.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import ClassVar

from ropelab.config import split_list
from ropelab.encoding.base import Encoding
from ropelab.encoding.extended import Dropped, LogN, ReRope, SelfExtend
from ropelab.encoding.rope import Rope
from ropelab.errors import InputError, unknown_name
from ropelab.experiments.extrapolate.search import search
from ropelab.rope.frequencies import Geometry
from ropelab.rope.rotary import Pairing
from ropelab.rope.scaling import METHODS, Scaling, Unscaled, parse_method

NEEDS_TWICE = {"ntk"}
"""Good to about half its factor only, so without a factor given twice the factor is tried too."""
RECALIBRATION = 160
"""Steps after which DroPE reads without positions, unless told: a tenth of the default training."""
PAIRING: Pairing = "interleaved"
"""Which features of a head form a pair; trained weights belong to one of the two layouts."""


@dataclass(frozen=True, kw_only=True)
class Choice(ABC):
    """What a user can name: a method, or one that has yet to be found for a trained model."""

    geometry: Geometry
    is_plain_rope: ClassVar[bool] = False
    """Whether frequencies and attention factor are all that changes, known beforehand."""
    is_tunable: ClassVar[bool] = True
    """Whether it can be trained on under; not what is searched on the model as trained."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As it would be typed, without the factor, which tables hold in a column of its own."""

    @property
    def factor(self) -> float:
        """How far it is meant to reach, 1 where it has no such knob."""
        return 1.0

    @abstractmethod
    def found(self, loss_under: Callable[["Method"], float]) -> "Method":
        """The method for a model that has the loss `loss_under` when it reads by a method."""


@dataclass(frozen=True, kw_only=True)
class Method(Choice):
    """A way to read a long context with a model of one trained geometry."""

    @property
    def recalibration(self) -> int:
        """Steps at the trained length that belong to the method; 0: the model stays as trained."""
        return 0

    def found(self, loss_under: Callable[["Method"], float]) -> "Method":
        return self

    @abstractmethod
    def encoding(self, length: int) -> Encoding:
        """The encoding with which a context of `length` tokens is read."""

    def signature(self, length: int) -> Hashable:
        """Equal for two lengths exactly when their contexts are read with the same encoding."""
        return None

    def passes(self, lengths: Sequence[int]) -> Iterator[tuple[Encoding, list[int]]]:
        """Rising lengths in groups that share an encoding: one pass over the longest serves all."""
        for _, group in groupby(lengths, self.signature):
            ends = list(group)
            yield self.encoding(ends[-1]), ends


@dataclass(frozen=True, kw_only=True)
class Scaled(Method):
    """Rotary frequencies changed by a scaling method."""

    scaling: Scaling
    is_plain_rope: ClassVar[bool] = True

    @property
    def name(self) -> str:
        if any(knob.name == "factor" for knob in fields(self.scaling)):
            return replace(self.scaling, factor=1.0).label  # type: ignore[call-arg]
        return self.scaling.label

    @property
    def factor(self) -> float:
        return float(getattr(self.scaling, "factor", 1.0))

    def encoding(self, length: int) -> Rope:
        return Rope(self.scaling.plan(self.geometry, length), PAIRING)

    def signature(self, length: int) -> Hashable:
        plan = self.scaling.plan(self.geometry, length)
        return (*plan.inv_freq.tolist(), plan.attention_factor)


@dataclass(frozen=True, kw_only=True)
class Sharpened(Method):
    """Any other method, its logits growing with the logarithm of the context (log-n)."""

    inner: Method

    @property
    def name(self) -> str:
        return "log_n" if self.inner.name == "unscaled" else f"log_n(inner={self.inner.name})"

    @property
    def factor(self) -> float:
        return self.inner.factor

    def encoding(self, length: int) -> Encoding:
        return LogN(self.inner.encoding(length), self.geometry.trained_len)

    def signature(self, length: int) -> Hashable:
        return self.inner.signature(length)


@dataclass(frozen=True, kw_only=True)
class Bounded(Method):
    """Distances beyond a window made coarser (Self-Extend) or all equal (ReRoPE, group None)."""

    window: int
    group: int | None = None

    @property
    def name(self) -> str:
        if self.group is None:
            return f"rerope(window={self.window})"
        return f"self_extend(window={self.window}, group={self.group})"

    def encoding(self, length: int) -> Encoding:
        rope = Rope(Unscaled().plan(self.geometry, length), PAIRING)
        if self.group is None:
            return ReRope(rope, self.window)
        return SelfExtend(rope, self.window, self.group)


@dataclass(frozen=True, kw_only=True)
class Unrotated(Method):
    """DroPE: rotations dropped, `steps` of training without them, then logits * (1 + c ln s).

    s is the context over the trained length, at least 1, so recalibrating at the trained length
    does not depend on c = `sharpen`, which its authors choose for each model.
    """

    steps: int
    sharpen: float

    @property
    def name(self) -> str:
        return f"drope(steps={self.steps}, sharpen={self.sharpen:g})"

    @property
    def recalibration(self) -> int:
        return self.steps

    def encoding(self, length: int) -> Encoding:
        reach = max(1.0, length / self.geometry.trained_len)
        return Dropped(1 + self.sharpen * math.log(reach))

    def signature(self, length: int) -> Hashable:
        return max(length, self.geometry.trained_len) if self.sharpen else None


@dataclass(frozen=True, kw_only=True)
class Searched(Choice):
    """LongRoPE with factors searched on the model itself, `budget` evaluations of its loss."""

    reach: float
    budget: int
    beyond_critical: bool
    is_tunable: ClassVar[bool] = False

    @property
    def name(self) -> str:
        only = ", beyond_critical=true" if self.beyond_critical else ""
        return f"longrope(budget={self.budget}{only})"

    @property
    def factor(self) -> float:
        return self.reach

    def found(self, loss_under: Callable[[Method], float]) -> Method:
        def fitness(scaling: Scaling) -> float:
            return loss_under(Scaled(geometry=self.geometry, scaling=scaling))

        best, _ = search(self.geometry, self.reach, fitness, self.budget, self.beyond_critical)
        return Scaled(geometry=self.geometry, scaling=best)


def unscaled(geometry: Geometry) -> Method:
    """The model as it was trained."""
    return Scaled(geometry=geometry, scaling=Unscaled())


def parse_methods(texts: Iterable[str], geometry: Geometry, test_len: int) -> tuple[Choice, ...]:
    """Read methods as typed, each once; the factor defaults to test_len / trained length.

    Raises:
        InputError: an unknown method or knob, or a value it does not allow.
    """
    reach = test_len / geometry.trained_len
    methods: dict[tuple[str, float], Choice] = {}
    for text in texts:
        for factor in (reach, 2 * reach):
            method = parse_one(text, geometry, test_len, factor)
            if isinstance(method, Method):
                method.signature(test_len)
            if factor == reach or method.name in NEEDS_TWICE:
                methods.setdefault((method.name, method.factor), method)
    return tuple(methods.values())


def parse_one(text: str, geometry: Geometry, test_len: int, factor: float) -> Choice:
    """One method: a scaling, or one of OTHERS, which are no mere change of frequencies."""
    name, _, rest = text.strip().partition("(")
    if name in OTHERS and "long_factor" not in rest:
        knobs = dict(_knob(name, part) for part in split_list(rest.removesuffix(")")) if part)
        return OTHERS[name](knobs, geometry, test_len, factor)
    if name not in METHODS and not rest:
        _check_known(name)
    return Scaled(geometry=geometry, scaling=parse_method(text, factor))


def _check_known(name: str) -> None:
    """Let `parse_method` read its own names and aliases; refuse the rest with all names known."""
    try:
        parse_method(name, 1.0)
    except InputError as error:
        if str(error).startswith("unknown method"):
            raise unknown_name("method", name, [*METHODS, *OTHERS]) from None
        raise


def _knob(method: str, text: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition("="))
    if name not in KNOBS[method]:
        raise unknown_name(f"{method} knob", name, KNOBS[method])
    return name, value


def _whole(method: str, knobs: dict[str, str], knob: str, default: int) -> int:
    """A whole number of at least 1."""
    value = knobs.get(knob, str(default))
    if not value.isdigit() or int(value) < 1:
        raise InputError(f"{method}: {knob} must be a whole number of at least 1, not '{value}'")
    return int(value)


def _log_n(knobs: dict[str, str], geometry: Geometry, test_len: int, factor: float) -> Method:
    inner = parse_one(knobs.get("inner", "unscaled"), geometry, test_len, factor)
    if not isinstance(inner, Method):
        raise InputError(f"log_n: inner must be a method that needs no search, not {inner.name}")
    return Sharpened(geometry=geometry, inner=inner)


def _rerope(knobs: dict[str, str], geometry: Geometry, test_len: int, factor: float) -> Method:
    window = _whole("rerope", knobs, "window", geometry.trained_len // 2)
    return Bounded(geometry=geometry, window=window)


def _self_extend(knobs: dict[str, str], geometry: Geometry, test_len: int, factor: float) -> Method:
    """The group defaults to the smallest whose largest distance stays within the trained length."""
    window = _whole("self_extend", knobs, "window", geometry.trained_len // 2)
    needed = math.ceil((test_len - window) / max(1, geometry.trained_len - window))
    group = _whole("self_extend", knobs, "group", max(1, needed))
    return Bounded(geometry=geometry, window=window, group=group)


def _drope(knobs: dict[str, str], geometry: Geometry, test_len: int, factor: float) -> Method:
    text = knobs.get("sharpen", "0.1")
    try:
        sharpen = float(text)
    except ValueError:
        sharpen = math.nan
    if not 0 <= sharpen < math.inf:
        raise InputError(f"drope: sharpen must be a number of at least 0, not '{text}'")
    steps = _whole("drope", knobs, "steps", RECALIBRATION)
    return Unrotated(geometry=geometry, steps=steps, sharpen=sharpen)


def _longrope(knobs: dict[str, str], geometry: Geometry, test_len: int, factor: float) -> Choice:
    only = knobs.get("beyond_critical", "false").lower()
    if only not in ("true", "false"):
        raise InputError(f"longrope: beyond_critical must be true or false, not '{only}'")
    budget = _whole("longrope", knobs, "budget", 48)
    return Searched(geometry=geometry, reach=factor, budget=budget, beyond_critical=only == "true")


KNOBS = {
    "log_n": ("inner",),
    "rerope": ("window",),
    "self_extend": ("window", "group"),
    "drope": ("steps", "sharpen"),
    "longrope": ("budget", "beyond_critical"),
}
OTHERS: dict[str, Callable[[dict[str, str], Geometry, int, float], Choice]] = {
    "log_n": _log_n,
    "rerope": _rerope,
    "self_extend": _self_extend,
    "drope": _drope,
    "longrope": _longrope,
}
