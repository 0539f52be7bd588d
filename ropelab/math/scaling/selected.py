"""Methods that act on single pairs: drop the slow ones, taper them, or round wavelengths."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from ropelab.errors import InputError
from ropelab.math.frequencies import Geometry, turns, wavelengths
from ropelab.math.scaling.plan import RopePlan, Scaling, check_factor
from ropelab.math.scaling.uniform import Unscaled

_PLAIN = Unscaled()


@dataclass(frozen=True, kw_only=True)
class PRope(Scaling):
    """The int(p d/2) fastest pairs turn as before, the others not at all (theta' = 0).

    Frequencies keep the spacing of the whole width d. Partial rotary (a smaller rotary_dim) is
    another thing: there the exponents are spread over the smaller width.
    """

    p: float = 0.75

    name: ClassVar[str] = "p_rope"
    source: ClassVar[str] = "Barbero et al. 2024, arXiv:2410.06205"

    def __post_init__(self) -> None:
        _check_share(self.name, self.p)

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        return RopePlan(_fastest(geometry, self.p))


@dataclass(frozen=True, kw_only=True)
class Proportional(PRope):
    """p-RoPE with the turning pairs divided by ``factor``; Gemma 4 has p = 0.25, factor 1."""

    p: float = 0.25
    factor: float = 1.0

    name: ClassVar[str] = "proportional"
    source: ClassVar[str] = "Gemma 4; transformers rope type 'proportional'"
    factor_means: ClassVar[str] = "what the frequencies of turning pairs are divided by"
    default_factors: ClassVar[tuple[float, ...]] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_factor(self.name, self.factor)

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        return RopePlan(_fastest(geometry, self.p) / self.factor, stretch=self.factor)


@dataclass(frozen=True, kw_only=True)
class Clipped(Scaling):
    """The last ``n`` pairs times (1 + cos(pi k/(n-1)))/2, k = 0..n-1: a Hann taper ("CoPE").

    ``n`` = 0 means every pair that makes less than one turn in the trained length. The first of the
    n keeps its frequency, so n = 1 changes nothing, as in the authors' code.
    """

    n: int = 0

    name: ClassVar[str] = "clipped"
    source: ClassVar[str] = "Li et al. 2026, arXiv:2602.05258; hrlics/CoPE"

    def __post_init__(self) -> None:
        if self.n < 0:
            raise InputError(f"clipped: n must be at least 0 pairs, not {self.n}")

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        n = min(self.n or self._unfinished(geometry), geometry.pairs)
        angle = np.linspace(0, math.pi, n)
        taper = np.ones(geometry.pairs)
        taper[geometry.pairs - n :] = (1 + np.cos(angle)) / 2
        return RopePlan(geometry.inv_freq * taper)

    def _unfinished(self, geometry: Geometry) -> int:
        return int((turns(geometry.inv_freq, geometry.trained_len) < 1).sum())


@dataclass(frozen=True, kw_only=True)
class Resonance(Scaling):
    """Wavelengths rounded to whole tokens, theta' = 2 pi / round(2 pi / theta), after ``inner``.

    A pair that turns once per n tokens then repeats its angles exactly, so that positions beyond
    the trained length bring no new ones. ``inner`` is the method whose frequencies are rounded.
    """

    inner: Scaling = _PLAIN

    name: ClassVar[str] = "resonance"
    source: ClassVar[str] = "Wang et al. 2024, arXiv:2403.00071"

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        plan = self.inner.plan(geometry, length)
        rounded = np.round(wavelengths(plan.inv_freq))
        return RopePlan(2 * math.pi / rounded, plan.attention_factor, plan.stretch)


def _fastest(geometry: Geometry, p: float) -> Float[np.ndarray, " pairs"]:
    turning = int(p * geometry.rotary_dim // 2)
    return np.where(np.arange(geometry.pairs) < turning, geometry.inv_freq, 0.0)


def _check_share(method: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise InputError(f"{method}: p must be between 0 and 1, not {p:g}")
