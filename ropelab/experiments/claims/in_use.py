"""Claims about who uses what: which models have RoPE, and which code is YaRN."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from ropelab.experiments.claims.record import Claim, Evidence, limit, part
from ropelab.experiments.claims.scaling import LLAMA_2, MINIMIND, SAME, largest_ratio
from ropelab.rope.frequencies import Geometry, inverse_frequencies, turns
from ropelab.rope.scaling import Yarn

MANY_TURNS = Geometry(64, 1e4, 131072)
"""Even the slowest pair turns more than once within the trained length."""


@dataclass(frozen=True, kw_only=True)
class Dates:
    """Two papers by arXiv number, which begins with year and month; empty: never published."""

    name: str
    user: str
    used: str = "2104.09864"


def could_use(given: Dates) -> Evidence:
    """A model described before a method was published does not use it."""
    if not given.user:
        finding = part(f"{given.name}'s architecture", "not published", None)
    else:
        months = f"20{given.user[:2]}-{given.user[2:4]}"
        later = float(given.user) >= float(given.used)
        text = f"{months} (arXiv:{given.user}), RoPE in 20{given.used[:2]}-{given.used[2:4]}"
        finding = part(f"{given.name}'s paper appeared in", text, later)
    return Evidence(expected="a published architecture, not older than RoPE", findings=(finding,))


@dataclass(frozen=True, kw_only=True)
class Released:
    """Lengths that a family was released at, all after fine-tuning, and the length of a claim."""

    trained: int = 4096
    claimed: int = 32768
    released: tuple[int, ...] = (8192, 32768, 65536, 131072)
    finetuned: bool = True


def released_lengths(given: Released) -> Evidence:
    """Compare the claimed length with the released ones (jquesnelle/yarn, README)."""
    shown = ", ".join(str(length) for length in given.released)
    return Evidence(
        expected=f"{given.claimed} among the released lengths, without training on",
        findings=(
            part(
                f"YaRN models released for the {given.trained}-token model",
                shown,
                given.claimed in given.released,
                max(given.released),
            ),
            limit(
                "reached without training on",
                "no, all were fine-tuned" if given.finetuned else "yes",
                not given.finetuned,
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The frequencies of a published model, and the model that it was made from."""

    original: Geometry = LLAMA_2
    base: float = 1e6
    factors: tuple[float, ...] = tuple(2 ** (k / 4) for k in range(33))


def made_by_yarn(given: Recipe) -> Evidence:
    """Look for a factor with which YaRN would give the published frequencies."""
    published = inverse_frequencies(given.original.rotary_dim, given.base)
    off = {
        factor: largest_ratio(published, Yarn(factor=factor).plan(given.original, 0))
        for factor in given.factors
    }
    best = min(off, key=off.__getitem__)
    return Evidence(
        expected="some factor of YaRN gives the published frequencies",
        findings=(
            part(
                f"base {given.base:g} against the nearest YaRN of base {given.original.base:g} "
                f"(factor {best:.3g})",
                f"frequencies up to {off[best]:.1f} times apart",
                off[best] <= 1.01,
                off[best],
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class MiniMindYarn:
    """One of MiniMind's YaRN formulas and the settings that it shipped with."""

    formula: Literal["beta per pair", "linear ramp"]
    geometry: Geometry
    factor: float
    beta_fast: float
    attention_factor: float = 1.0
    other: Geometry = MANY_TURNS

    def scaled(self, geometry: Geometry) -> Float[np.ndarray, "pairs"]:
        """The frequencies that MiniMind would use."""
        make = _beta_per_pair if self.formula == "beta per pair" else _clamped_ramp
        return make(geometry, self.factor, self.beta_fast)

    def apart(self, geometry: Geometry) -> float:
        """The largest ratio between its frequencies and YaRN's as runtimes compute them."""
        yarn = Yarn(factor=self.factor, beta_fast=self.beta_fast).plan(geometry, 0)
        return largest_ratio(self.scaled(geometry), yarn)


def _beta_per_pair(
    geometry: Geometry, factor: float, beta_fast: float
) -> Float[np.ndarray, "pairs"]:
    """(b s - b + 1)/(b s) with b from 1 to beta_fast, for pairs that turn fully; else 1/s."""
    beta = np.linspace(1, beta_fast, geometry.pairs)
    within = turns(geometry.inv_freq, geometry.trained_len) >= 1
    scale = np.where(within, (beta * factor - beta + 1) / (beta * factor), 1 / factor)
    return geometry.inv_freq * scale


def _clamped_ramp(
    geometry: Geometry, factor: float, beta_fast: float
) -> Float[np.ndarray, "pairs"]:
    """The coded ramp with its end held at the last pair instead of the last feature."""
    low, high = Yarn(factor=factor, beta_fast=beta_fast).ramp_range(geometry)
    high = min(high, geometry.pairs - 1)
    index = np.arange(geometry.pairs)
    ramp = np.clip((index - low) / max(high - low, 0.001), 0, 1)
    return geometry.inv_freq * (1 - ramp + ramp / factor)


def minimind_is_yarn(given: MiniMindYarn) -> Evidence:
    """Compare frequencies with the coded YaRN, as shipped and elsewhere, and the logits."""
    here, elsewhere = given.apart(given.geometry), given.apart(given.other)
    yarn = Yarn(factor=given.factor).plan(given.geometry, 0).attention_factor
    other = given.other
    return Evidence(
        expected="YaRN's frequencies and attention factor",
        findings=(
            part(
                f"frequencies as shipped (factor {given.factor:g})",
                _times(here),
                here <= 1 + SAME,
                here,
            ),
            limit(
                f"frequencies with base {other.base:g}, trained length {other.trained_len}",
                _times(elsewhere),
                elsewhere <= 1 + SAME,
                elsewhere,
            ),
            limit(
                "attention factor",
                f"{given.attention_factor:g}, YaRN's is {yarn:.4f}",
                abs(given.attention_factor - yarn) <= SAME,
                yarn,
            ),
        ),
    )


def _times(ratio: float) -> str:
    return "equal" if ratio <= 1 + SAME else f"up to {ratio:.2f} times apart"


CLAIMS = (
    Claim(
        id="gpt-3-rope",
        source="note 001 §3.3",
        statement="GPT-3 uses RoPE.",
        inputs=Dates(name="GPT-3", user="2005.14165"),
        check=could_use,
    ),
    Claim(
        id="gpt-4-rope",
        source="note 000 §1",
        statement="GPT-3.5 and GPT-4 use RoPE.",
        inputs=Dates(name="GPT-4", user=""),
        check=could_use,
    ),
    Claim(
        id="yarn-llama-2",
        source="note 001 §7.2",
        statement="YaRN extrapolates Llama 2 from 4k of training to 32k.",
        inputs=Released(),
        check=released_lengths,
    ),
    Claim(
        id="yarn-code-llama",
        source="note 001 §7.2; Code Llama, arXiv:2308.12950 §2.4",
        statement="YaRN took Code Llama from 16k of training to 100k.",
        inputs=Recipe(),
        check=made_by_yarn,
    ),
    Claim(
        id="minimind-yarn-beta",
        source="rope_explained.py; MiniMind, model_minimind.py, October 2025",
        statement="MiniMind's formula with a beta for each pair is YaRN's standard formula.",
        inputs=MiniMindYarn(formula="beta per pair", geometry=MINIMIND, factor=4.0, beta_fast=4.0),
        check=minimind_is_yarn,
    ),
    Claim(
        id="minimind-yarn-ramp",
        source="MiniMind, model_minimind.py since December 2025",
        statement="MiniMind's formula with a linear ramp is YaRN.",
        inputs=MiniMindYarn(
            formula="linear ramp", geometry=Geometry(96, 1e6, 2048), factor=16.0, beta_fast=32.0
        ),
        check=minimind_is_yarn,
    ),
)
