"""Claims of papers and of common practice about number formats."""

from dataclasses import dataclass

import numpy as np

from ropelab.experiments.claims.record import Claim, Evidence, limit, part
from ropelab.experiments.claims.scaling import LLAMA_2
from ropelab.numerics.chain import Chain, Spectrum
from ropelab.numerics.phase import first_beyond, worst, worst_by_octave
from ropelab.numerics.presets import preset_named
from ropelab.numerics.scores import draw, scores, shift_errors
from ropelab.rope.frequencies import Geometry, inverse_frequencies, turns


@dataclass(frozen=True, kw_only=True)
class Angles:
    """An implementation, by the name of its preset, and the lengths it is asked to serve."""

    preset: str = "float32"
    head_dim: int = 128
    base: float = 10000.0
    tolerance_rad: float = 1e-2
    length: int = 1 << 17
    longer: tuple[int, ...] = (1 << 20, 10_000_000)

    def chain(self, preset: str = "") -> Chain:
        """The implementation applied to the frequencies of the head."""
        inv_freq = inverse_frequencies(self.head_dim, self.base)
        spectrum = Spectrum(inv_freq, self.base, self.head_dim)
        return Chain(preset_named(preset or self.preset).plan, spectrum)


def angles_good_enough(given: Angles) -> Evidence:
    """The worst angle error of any pair up to each length, against a tolerance."""
    chain = given.chain()
    findings = []
    for length in (given.length, *given.longer):
        # Errors grow with the position, so the far half holds the worst.
        found = worst(chain, length // 2, length - length // 2)
        make = part if length == given.length else limit
        good = found.error_rad <= given.tolerance_rad
        text = f"{found.error_rad:.2g} rad at {found.position} (pair {found.pair})"
        findings.append(make(f"worst angle error up to {length:,}", text, good, found.error_rad))
    everything = worst_by_octave(chain, 0, max(given.length, *given.longer, 0))
    first = first_beyond(chain, everything, given.tolerance_rad)
    where = "nowhere" if first is None else f"position {first:,}"
    findings.append(limit("first error beyond the tolerance", where, first is None, first))
    return Evidence(expected=f"at most {given.tolerance_rad:g} rad", findings=tuple(findings))


@dataclass(frozen=True, kw_only=True)
class Shifted(Angles):
    """Two implementations in bfloat16, and how far both positions of a score are moved."""

    preset: str = "half_cache_bfloat16"
    careful: str = "transformers_llama"
    distance: int = 61
    shifts: tuple[int, ...] = (4099, 65537)
    draws: int = 512
    seed: int = 0
    broken: float = 0.1

    def changes(self, preset: str) -> list[float]:
        """Typical change of a score at each shift, over the typical score."""
        draws = draw(self.draws, self.head_dim // 2, "random", self.seed)
        distance = np.array([self.distance], dtype=np.float64)
        shifts = np.array(self.shifts, dtype=np.float64)
        chain = self.chain(preset)
        moved = np.sqrt((shift_errors(chain, draws, 0, distance, shifts) ** 2).mean((1, 2)))
        typical = np.sqrt((scores(chain, draws, distance, np.zeros(1)) ** 2).mean())
        return (moved / typical).tolist()


def shift_breaks_scores(given: Shifted) -> Evidence:
    """Move both positions: how much does a score change, by where bfloat16 is used?"""
    moved = " and ".join(f"{shift:,}" for shift in given.shifts)
    what = f"change of a typical score when both positions move by {moved}"
    return Evidence(
        expected=f"changes of more than {given.broken:.0%} of the score",
        findings=(
            part(f"{what}, {given.preset}", *_changes(given.changes(given.preset), given.broken)),
            limit(f"{given.careful}", *_changes(given.changes(given.careful), given.broken)),
        ),
    )


def _changes(changes: list[float], broken: float) -> tuple[str, bool, float]:
    shown = " and ".join(f"{change:.1%}" for change in changes)
    return shown, min(changes) > broken, max(changes)


@dataclass(frozen=True, kw_only=True)
class CriticalDimension:
    """A printed critical dimension and the geometry of the model; LLaMA 2's by default."""

    geometry: Geometry = LLAMA_2
    printed: int = 92


def critical_dimension(given: CriticalDimension) -> Evidence:
    """Count the features whose pairs turn at least once within the trained length."""
    geometry = given.geometry
    counted = 2 * int((turns(geometry.inv_freq, geometry.trained_len) >= 1).sum())
    what = f"features whose pairs turn fully in {geometry.trained_len} tokens"
    text = f"{counted} of {geometry.rotary_dim}"
    finding = part(what, text, counted == given.printed, counted)
    return Evidence(expected=f"{given.printed}", findings=(finding,))


CLAIMS = (
    Claim(
        id="float32-enough",
        source="common practice, such as transformers' rotary modules",
        statement="Angles in float32 are enough for RoPE.",
        inputs=Angles(),
        check=angles_good_enough,
        command="ropelab precision --preset float32 --base 1e4 --head-dim 128 --length 1m",
    ),
    Claim(
        id="bfloat16-breaks",
        source="Wang et al. 2024, arXiv:2411.13476",
        statement="bfloat16 breaks RoPE's dependence on relative positions alone.",
        inputs=Shifted(),
        check=shift_breaks_scores,
        command="ropelab precision",
    ),
    Claim(
        id="critical-dimension",
        source="Liu et al. 2023, arXiv:2310.05209",
        statement="Within the trained length 92 of LLaMA 2's 128 features see their full period.",
        inputs=CriticalDimension(),
        check=critical_dimension,
        command="ropelab base --context 4k --base 1e4 --head-dim 128",
    ),
)
