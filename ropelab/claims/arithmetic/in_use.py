"""Claims about YaRN in use: released lengths, and code that is called YaRN."""

from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float

from ropelab.claims.arithmetic.scaling import LLAMA_2, MINIMIND, largest_ratio, turns
from ropelab.claims.numbers import Array, frequencies
from ropelab.claims.record import Claim, Evidence, Passage, limit, part
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import Yarn
from ropelab.runs.thresholds import SAME

MANY_TURNS = Geometry(64, 1e4, 131072)
"""Even the slowest pair turns more than once within the trained length."""
Formula = Literal["beta per pair", "linear ramp"]


def released_lengths(
    *,
    trained: int = 4096,
    claimed: int = 32768,
    released: tuple[int, ...] = (8192, 32768, 65536, 131072),
    finetuned: bool = True,
) -> Evidence:
    """Compare the claimed length with the released ones (jquesnelle/yarn, README)."""
    shown = ", ".join(str(length) for length in released)
    return Evidence(
        expected=f"{claimed} among the released lengths, without fine-tuning",
        findings=(
            part(
                f"YaRN models released for the {trained}-token model",
                shown,
                claimed in released,
                max(released),
            ),
            limit(
                "reached without fine-tuning",
                "no, all were fine-tuned" if finetuned else "yes",
                not finetuned,
            ),
        ),
    )


def made_by_yarn(*, original: Geometry = LLAMA_2, base: float = 1e6) -> Evidence:
    """Look for a factor from 1 to 256 with which YaRN would give the published frequencies."""
    published = frequencies(original.rotary_dim, base)
    factors = tuple(2 ** (k / 4) for k in range(33))
    off = {
        factor: largest_ratio(published, Yarn(factor=factor).plan(original, 0).inv_freq)
        for factor in factors
    }
    best = min(off, key=off.__getitem__)
    return Evidence(
        expected="some factor of YaRN gives the published frequencies",
        findings=(
            part(
                f"base {base:g} against the nearest YaRN of base {original.base:g} "
                f"(factor {best:.3g})",
                f"frequencies up to {off[best]:.1f} times apart",
                off[best] <= 1.01,
                off[best],
            ),
        ),
    )


def minimind_frequencies(
    formula: Formula, geometry: Geometry, factor: float, beta_fast: float
) -> Float[Array, " pairs"]:
    """The frequencies that MiniMind's code gives, by one of its two formulas."""
    make = _beta_per_pair if formula == "beta per pair" else _clamped_ramp
    return make(geometry, factor, beta_fast)


def _beta_per_pair(geometry: Geometry, factor: float, beta_fast: float) -> Float[Array, " pairs"]:
    """(b s - b + 1)/(b s) with b from 1 to beta_fast, for pairs that turn fully; else 1/s."""
    inv_freq = np.asarray(geometry.inv_freq)
    beta = np.linspace(1, beta_fast, geometry.pairs)
    within = turns(inv_freq, geometry.trained_len) >= 1
    return inv_freq * np.where(within, (beta * factor - beta + 1) / (beta * factor), 1 / factor)


def _clamped_ramp(geometry: Geometry, factor: float, beta_fast: float) -> Float[Array, " pairs"]:
    """The coded ramp with its end held at the last pair instead of the last feature."""
    low, high = Yarn(factor=factor, beta_fast=beta_fast).ramp_range(geometry)
    high = min(high, geometry.pairs - 1)
    ramp = ((np.arange(geometry.pairs) - low) / max(high - low, 0.001)).clip(0, 1)
    return np.asarray(geometry.inv_freq) * (1 - ramp + ramp / factor)


def minimind_is_yarn(
    *,
    formula: Formula,
    geometry: Geometry,
    factor: float,
    beta_fast: float,
    other: Geometry = MANY_TURNS,
) -> Evidence:
    """Compare frequencies with the coded YaRN, as shipped and elsewhere, and the logits."""

    def apart(of: Geometry) -> float:
        yarn = Yarn(factor=factor, beta_fast=beta_fast).plan(of, 0)
        return largest_ratio(minimind_frequencies(formula, of, factor, beta_fast), yarn.inv_freq)

    here, elsewhere = apart(geometry), apart(other)
    shipped, yarn = 1.0, Yarn(factor=factor).plan(geometry, 0).attention_factor
    return Evidence(
        expected="YaRN's frequencies and attention factor",
        findings=(
            part(
                f"frequencies as shipped (factor {factor:g})", _times(here), here <= 1 + SAME, here
            ),
            limit(
                f"frequencies with base {other.base:g}, trained length {other.trained_len}",
                _times(elsewhere),
                elsewhere <= 1 + SAME,
                elsewhere,
            ),
            limit(
                "attention factor",
                f"{shipped:g}, YaRN's is {yarn:.4f}",
                abs(shipped - yarn) <= SAME,
                yarn,
            ),
        ),
    )


def _times(ratio: float) -> str:
    return "equal" if ratio <= 1 + SAME else f"up to {ratio:.2f} times apart"


CLAIMS = (
    Claim(
        id="yarn-llama-2",
        passages=(
            Passage(
                "001",
                "§7.2",
                455,
                "Llama 2: 训练 4k → 外推到 32k",
                "Llama 2: trained at 4k, extrapolated to 32k",
            ),
        ),
        statement="YaRN extrapolates Llama 2 from 4k of training to 32k.",
        check=released_lengths,
    ),
    Claim(
        id="yarn-code-llama",
        passages=(
            Passage(
                "001",
                "§7.2",
                456,
                "Code Llama: 训练 16k → 外推到 100k",
                "Code Llama: trained at 16k, extrapolated to 100k",
            ),
            Passage("code-llama", "§2.4"),
        ),
        statement="YaRN took Code Llama from 16k of training to 100k.",
        check=made_by_yarn,
    ),
    Claim(
        id="minimind-yarn-beta",
        passages=(Passage("rope_explained"), Passage("minimind", "October 2025")),
        statement="MiniMind's formula with a beta for each pair is YaRN's standard formula.",
        check=partial(
            minimind_is_yarn, formula="beta per pair", geometry=MINIMIND, factor=4.0, beta_fast=4.0
        ),
    ),
    Claim(
        id="minimind-yarn-ramp",
        passages=(Passage("minimind", "since December 2025"),),
        statement="MiniMind's formula with a linear ramp is YaRN.",
        check=partial(
            minimind_is_yarn,
            formula="linear ramp",
            geometry=Geometry(96, 1e6, 2048),
            factor=16.0,
            beta_fast=32.0,
        ),
    ),
)
