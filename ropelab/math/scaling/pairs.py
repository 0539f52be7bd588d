"""Methods on single pairs: drop, taper, round or divide them, or choose frequencies.

Each method is a class whose fields are the method's parameters. Its `plan` takes the
geometry of a model (rotary width d, base and trained length L) and the length of a
text, and returns the frequency theta'_i of each pair i instead of the trained theta_i =
base^(-2i/d). One, Spaced and Without are no methods for longer contexts: they test the
use of many frequencies. A method with the parameter ``inner`` is applied to the result
of the method ``inner``.
"""

import math
from typing import ClassVar

import numpy as np

from ropelab.math.frequencies import Geometry, rotations, wavelengths
from ropelab.math.scaling.plan import (
    ATTENTION_FACTOR,
    FACTOR,
    Range,
    RopePlan,
    Scaling,
    method,
)
from ropelab.math.scaling.stretching import Unscaled
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError, check_known

# The names of the thirds of the pairs, the fastest first. Their ends are rounded: 16
# pairs are divided into 5, 6 and 5.
BANDS = ("fast", "middle", "slow")
NO_PAPER = "an experiment of this package"
_UNSCALED = Unscaled()
# A pair that rotates by half a turn or more per token seems to rotate backwards.
PERIOD = Range("a number of tokens above 2", lambda x: math.isfinite(x) and x > 2)


@method("p_rope", "Barbero et al. 2024, arXiv:2410.06205")
class PRope(Scaling):
    """The int(p d/2) fastest pairs rotate as before, the others not at all (theta' =
    0).
    """

    p: float = 0.75
    ranges: ClassVar = {"p": Range("between 0 and 1", lambda x: 0 <= x <= 1)}

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        # A smaller rotary_dim would also rotate fewer pairs, but change the frequencies
        # of the pairs that rotate.
        count = int(self.p * geometry.rotary_dim // 2)
        inv_freq = geometry.inv_freq.copy()
        inv_freq[count:] = 0.0
        return RopePlan(inv_freq)


@method("proportional", "Gemma 4; transformers rope type 'proportional'")
class Proportional(PRope):
    """p-RoPE with the rotating pairs divided by ``factor``; Gemma 4 has p = 0.25,
    factor 1.
    """

    p: float = 0.25
    factor: float = 1.0

    factor_means: ClassVar[str] = "divisor of the frequencies of rotating pairs"
    default_factors: ClassVar[tuple[float, ...]] = (1.0,)
    # The range of `p` is checked by PRope.
    ranges: ClassVar = {"factor": FACTOR}

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        inv_freq = super().plan(geometry, length).inv_freq
        return RopePlan(inv_freq / self.factor, stretch=self.factor)


@method("clipped", "Li et al. 2026, arXiv:2602.05258; hrlics/CoPE")
class Clipped(Scaling):
    """The last ``n`` pairs times (1 + cos(pi k/(n-1)))/2, k = 0..n-1: a Hann taper
    ("CoPE").

    ``n`` = 0 stands for the pairs that make less than one rotation in the trained
    length. The first of the n pairs keeps its frequency, so that n = 1 changes nothing,
    as in the authors' code.
    """

    n: int = 0
    ranges: ClassVar = {"n": Range("at least 0 pairs", lambda x: x >= 0)}

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        n = self.n
        if n == 0:
            rotations_in_training = rotations(geometry.inv_freq, geometry.trained_len)
            n = int((rotations_in_training < 1).sum())
        n = min(n, geometry.pairs)

        angles = np.linspace(0, math.pi, n)
        first = geometry.pairs - n
        taper = np.ones(geometry.pairs)
        taper[first:] = (1 + np.cos(angles)) / 2
        return RopePlan(geometry.inv_freq * taper)


@method("resonance", "Wang et al. 2024, arXiv:2403.00071")
class Resonance(Scaling):
    """Wavelengths rounded to whole tokens, theta' = 2 pi / round(2 pi / theta), after
    ``inner``.

    A pair that rotates once per n tokens repeats its angles exactly, so that positions
    beyond the trained length have no new angles.
    """

    inner: Scaling = _UNSCALED

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        plan = self.inner.plan(geometry, length)
        # A pair that does not rotate has an infinite wavelength, and keeps frequency 0.
        rounded = np.round(wavelengths(plan.inv_freq))
        inv_freq = 2 * math.pi / rounded
        return RopePlan(inv_freq, plan.attention_factor, plan.stretch)


@method(
    "longrope", "Ding et al. 2024, arXiv:2402.13753; transformers rope type 'longrope'"
)
class LongRope(Scaling):
    """theta'_i = theta_i / long_factor_i beyond the trained length, / short_factor_i up
    to it.

    A text beyond the trained length L has the long factors at all of its positions. The
    factors are found by a search. An empty ``short_factor`` stands for ones. At every
    length cos and sin are multiplied by ``attention_factor`` if it is given, else by
    sqrt(1 + ln(factor) / ln(L)), where ``factor`` is the longest context over L.
    """

    long_factor: tuple[float, ...] = ()
    short_factor: tuple[float, ...] = ()
    factor: float = 1.0
    attention_factor: float | None = None

    factor_means: ClassVar[str] = (
        "longest context over trained length, for the attention factor"
    )
    default_factors: ClassVar[tuple[float, ...]] = (1.0,)
    ranges: ClassVar = {"factor": FACTOR, "attention_factor": ATTENTION_FACTOR}

    def __post_init__(self) -> None:
        if not self.long_factor:
            raise InputError(
                "longrope needs long_factor=[...]; longrope_search finds one"
            )
        super().__post_init__()
        for parameter in ("long_factor", "short_factor"):
            for value in getattr(self, parameter):
                if not (math.isfinite(value) and value > 0):
                    raise InputError(
                        f"longrope: {parameter} must be positive, not {value:g}"
                    )

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        if length > geometry.trained_len:
            parameter = "long_factor"
            divisors = self.long_factor
            stretch = self.factor
        else:
            parameter = "short_factor"
            divisors = self.short_factor or (1.0,) * geometry.pairs
            stretch = 1.0

        if len(divisors) != geometry.pairs:
            numbers = f"{len(divisors)} numbers for {geometry.pairs} pairs"
            raise InputError(f"longrope: {parameter} has {numbers}")
        inv_freq = geometry.inv_freq / np.array(divisors, dtype=np.float64)
        return RopePlan(inv_freq, self.attention(geometry.trained_len), stretch)

    def attention(self, trained_len: int) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        growth = math.log(self.factor) / math.log(trained_len)
        return math.sqrt(1 + growth)


@method("one", NO_PAPER)
class One(Scaling):
    """theta'_i = 2 pi / ``period`` in the first ``pairs`` pairs, and 0 in all other pairs.

    ``pairs`` = 0 stands for all pairs.
    """

    period: float
    pairs: int = 0
    ranges: ClassVar = {"period": PERIOD}

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        count = count_rotating(self.name, self.pairs, geometry)
        inv_freq = np.zeros(geometry.pairs)
        inv_freq[:count] = 2 * math.pi / self.period
        return RopePlan(inv_freq)


@method("spaced", NO_PAPER)
class Spaced(Scaling):
    """``n`` frequencies with periods from ``shortest`` to ``longest`` tokens, each in an
    equal number of pairs.

    The frequencies are in geometric steps or, if ``uniform``, in equal steps. With
    equal steps every period but the longest is at most about ``n`` - 1 times
    ``shortest``. The frequencies take the first ``pairs`` pairs, and all other pairs do
    not rotate. ``pairs`` = 0 stands for all pairs.
    """

    n: int
    shortest: float = 2 * math.pi
    longest: float = 1e6
    uniform: bool = False
    pairs: int = 0
    ranges: ClassVar = {
        "shortest": PERIOD,
        "longest": PERIOD,
        "n": Range("at least 2 frequencies", lambda x: x >= 2),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest <= self.shortest:
            raise InputError(
                f"spaced: longest {self.longest:g} is not above shortest"
                f" {self.shortest:g}"
            )

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        """Return the plan; InputError if there are fewer pairs than frequencies."""
        count = count_rotating(self.name, self.pairs, geometry)
        n = self.n
        if n > count:
            raise InputError(
                f"spaced: n must be at most {count}, the number of pairs, not {n}"
            )

        fastest = 2 * math.pi / self.shortest
        slowest = 2 * math.pi / self.longest
        frequencies: Float[np.ndarray, " n"]
        if self.uniform:
            frequencies = np.linspace(fastest, slowest, n)
        else:
            frequencies = np.geomspace(fastest, slowest, n)

        # Pairs that share a frequency are neighbours, so that the fastest pair still
        # comes first.
        frequency_indices = (np.arange(count) * n) // count
        inv_freq = np.zeros(geometry.pairs)
        inv_freq[:count] = frequencies[frequency_indices]
        return RopePlan(inv_freq)


@method("without", NO_PAPER)
class Without(Scaling):
    """theta' = 0 in one third of the pairs (``band``: fast, middle or slow), after
    ``inner``.

    Pairs that do not rotate still add to every score, the same at all distances.
    """

    band: str
    inner: Scaling = _UNSCALED

    def __post_init__(self) -> None:
        check_known("band", self.band, BANDS)

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        plan = self.inner.plan(geometry, length)
        third = BANDS.index(self.band)
        start = round(geometry.pairs * third / len(BANDS))
        stop = round(geometry.pairs * (third + 1) / len(BANDS))
        inv_freq = plan.inv_freq.copy()
        inv_freq[start:stop] = 0.0
        return RopePlan(inv_freq, plan.attention_factor, plan.stretch)


def count_rotating(method: str, pairs: int, geometry: Geometry) -> int:
    """Return how many pairs rotate: ``pairs``, or all pairs if it is 0.

    InputError: the geometry has fewer pairs.
    """
    if not 0 <= pairs <= geometry.pairs:
        raise InputError(
            f"{method}: pairs must be between 0 and {geometry.pairs}, not {pairs}"
        )
    if pairs == 0:
        return geometry.pairs
    return pairs
