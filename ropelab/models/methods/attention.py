"""Methods that change attention, or drop its rotations, instead of changing frequencies."""

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import Unscaled
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.extended import Dropped, LogN, ReRope, SelfExtend
from ropelab.models.methods.method import ActsOn, Method, Reading, Scaled, check_whole
from ropelab.runs.errors import InputError

UNSCALED = Scaled(scaling=Unscaled())


@dataclass(frozen=True, kw_only=True)
class SharpenedByLogN(Reading):
    """Logits times max(1, ln n / ln L) for n tokens read, on top of any other method, `inner`."""

    inner: Reading = UNSCALED
    name: ClassVar[str] = "log_n"
    source: ClassVar[str] = "Su 2021, kexue.fm/archives/8823"

    def __post_init__(self) -> None:
        inner: Method = self.inner  # any method may have been typed
        if not isinstance(inner, Reading):
            raise InputError(f"log_n: inner must need no search, which {inner.name} does")

    @property
    def factor(self) -> float:
        return self.inner.factor

    def resolved(self, geometry: Geometry, test_len: int) -> Self:
        return replace(self, inner=self.inner.resolved(geometry, test_len))

    @property
    def recalibration(self) -> int:
        return self.inner.recalibration

    def encoding(self, geometry: Geometry, length: int) -> Encoding:
        return LogN(self.inner.encoding(geometry, length), geometry.trained_len)

    def signature(self, geometry: Geometry, length: int) -> Hashable:
        return self.inner.signature(geometry, length)


@dataclass(frozen=True, kw_only=True)
class Rectified(Reading):
    """Distances from `window` on (half the trained length) are all read as `window`."""

    window: int | None = None
    name: ClassVar[str] = "rerope"
    source: ClassVar[str] = "Su 2023, kexue.fm/archives/9708"

    def __post_init__(self) -> None:
        check_whole(self.name, "window", self.window)

    def resolved(self, geometry: Geometry, test_len: int) -> Self:
        return replace(self, window=self.window or geometry.trained_len // 2)

    def encoding(self, geometry: Geometry, length: int) -> Encoding:
        assert self.window is not None, "set by `resolved`"
        return ReRope(UNSCALED.encoding(geometry, length), self.window)


@dataclass(frozen=True, kw_only=True)
class Grouped(Reading):
    """Distances from `window` on in steps of `group`, by default the least that stays within L."""

    window: int | None = None
    group: int | None = None
    name: ClassVar[str] = "self_extend"
    source: ClassVar[str] = "Jin et al. 2024, arXiv:2401.01325"

    def __post_init__(self) -> None:
        check_whole(self.name, "window", self.window)
        check_whole(self.name, "group", self.group)

    def resolved(self, geometry: Geometry, test_len: int) -> Self:
        window = self.window or geometry.trained_len // 2
        needed = math.ceil((test_len - window) / max(1, geometry.trained_len - window))
        return replace(self, window=window, group=self.group or max(1, needed))

    def encoding(self, geometry: Geometry, length: int) -> Encoding:
        assert self.window is not None and self.group is not None, "set by `resolved`"
        return SelfExtend(UNSCALED.encoding(geometry, length), self.window, self.group)


@dataclass(frozen=True, kw_only=True)
class Unrotated(Reading):
    """Rotations dropped, `steps` of training without them, then logits times 1 + `sharpen` ln s."""

    # s is the context over the trained length, at least 1.

    steps: int = 160  # a tenth of the default training
    sharpen: float = 0.1
    name: ClassVar[str] = "drope"
    source: ClassVar[str] = "DroPE, arXiv:2512.12167"
    acts_on: ClassVar[ActsOn] = "weights"

    def __post_init__(self) -> None:
        check_whole(self.name, "steps", self.steps)
        if not 0 <= self.sharpen < math.inf:
            raise InputError(f"drope: sharpen must be a number of at least 0, not {self.sharpen:g}")

    @property
    def recalibration(self) -> int:
        return self.steps

    def encoding(self, geometry: Geometry, length: int) -> Encoding:
        times = max(1.0, length / geometry.trained_len)
        return Dropped(1 + self.sharpen * math.log(times))

    def signature(self, geometry: Geometry, length: int) -> Hashable:
        return max(length, geometry.trained_len) if self.sharpen else None
