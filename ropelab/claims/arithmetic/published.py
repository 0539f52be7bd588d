"""Claims of papers and of common practice about number formats."""

import numpy as np

from ropelab.claims.arithmetic.scaling import LLAMA_2, turns
from ropelab.claims.record import Claim, Evidence, Passage, limit, part
from ropelab.math.frequencies import Geometry, inverse_frequencies
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.phase import Worst, first_beyond, worst, worst_by_octave
from ropelab.math.numerics.presets import preset_named
from ropelab.math.numerics.scores import draw, scores, shift_errors
from ropelab.runs.thresholds import ANGLE_RAD, BROKEN

HEAD, BASE = 128, 10000.0


def chain(preset: str, head_dim: int = HEAD, base: float = BASE) -> Chain:
    """A known implementation applied to the frequencies of a head."""
    spectrum = Spectrum(inverse_frequencies(head_dim, base), base, head_dim)
    return Chain(preset_named(preset).plan, spectrum)


def angle_errors(preset: str, head_dim: int, base: float, length: int) -> Worst:
    """The worst angle error of any pair in the far half of a length, where errors are largest."""
    return worst(chain(preset, head_dim, base), length // 2, length - length // 2)


def angles_good_enough(
    *,
    preset: str = "float32",
    length: int = 1 << 17,
    longer: tuple[int, ...] = (1 << 20, 10_000_000),
) -> Evidence:
    """The worst angle error of any pair up to each length, against a tolerance."""
    findings = []
    for reach in (length, *longer):
        found = angle_errors(preset, HEAD, BASE, reach)
        make = part if reach == length else limit
        good = found.error_rad <= ANGLE_RAD
        text = f"{found.error_rad:.2g} rad at {found.position} (pair {found.pair})"
        findings.append(make(f"worst angle error up to {reach:,}", text, good, found.error_rad))
    implementation = chain(preset)
    everything = worst_by_octave(implementation, 0, max(length, *longer, 0))
    first = first_beyond(implementation, everything, ANGLE_RAD)
    where = "nowhere" if first is None else f"position {first:,}"
    findings.append(limit("first error beyond the tolerance", where, first is None, first))
    return Evidence(expected=f"at most {ANGLE_RAD:g} rad", findings=tuple(findings))


def shift_breaks_scores(
    *,
    preset: str = "half_cache_bfloat16",
    careful: str = "transformers_llama",
    shifts: tuple[int, ...] = (4099, 65537),
    seed: int = 0,
) -> Evidence:
    """Move both positions: how much does a score change, by where bfloat16 is used?"""
    moved = " and ".join(f"{shift:,}" for shift in shifts)
    what = f"change of a typical score when both positions move by {moved}"
    return Evidence(
        expected=f"changes of more than {BROKEN:.0%} of the score",
        findings=(
            part(f"{what}, {preset}", *_changes(_moved(preset, shifts, seed))),
            limit(f"{careful}", *_changes(_moved(careful, shifts, seed))),
        ),
    )


def _moved(preset: str, shifts: tuple[int, ...], seed: int) -> list[float]:
    """Typical change of a score at each shift, over the typical score."""
    draws = draw(512, HEAD // 2, "random", seed)
    distance, nothing = np.array([61.0]), np.array([0.0])
    implementation = chain(preset)
    changed = shift_errors(implementation, draws, 0, distance, np.array(shifts, dtype=float))
    moved = np.sqrt(np.square(changed).mean((1, 2)))
    typical = np.sqrt(np.square(scores(implementation, draws, distance, nothing)).mean())
    return (moved / typical).tolist()


def _changes(changes: list[float]) -> tuple[str, bool, float]:
    shown = " and ".join(f"{change:.1%}" for change in changes)
    return shown, min(changes) > BROKEN, max(changes)


def critical_dimension(*, geometry: Geometry = LLAMA_2, printed: int = 92) -> Evidence:
    """Count the features whose pairs turn at least once within the trained length."""
    counted = 2 * int((turns(geometry.inv_freq, geometry.trained_len) >= 1).sum())
    what = f"features whose pairs turn fully in {geometry.trained_len} tokens"
    text = f"{counted} of {geometry.rotary_dim}"
    finding = part(what, text, counted == printed, counted)
    return Evidence(expected=f"{printed}", findings=(finding,))


CLAIMS = (
    Claim(
        id="float32-enough",
        passages=(Passage("practice"),),
        statement="Angles in float32 are enough for RoPE.",
        check=angles_good_enough,
        command="ropelab precision --preset float32 --base 1e4 --head-dim 128 --length 1m",
    ),
    Claim(
        id="bfloat16-breaks",
        passages=(Passage("wang", "title", None, "BFloat16 Breaks Down RoPE"),),
        statement="bfloat16 breaks RoPE's dependence on relative positions alone.",
        check=shift_breaks_scores,
        command="ropelab precision",
    ),
    Claim(
        id="critical-dimension",
        passages=(Passage("liu"),),
        statement="Within the trained length 92 of LLaMA 2's 128 features see their full period.",
        check=critical_dimension,
        command="ropelab base --context 4k --base 1e4 --head-dim 128",
    ),
)
