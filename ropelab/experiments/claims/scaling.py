"""Claims about running past the trained length: unseen angles, and what YaRN does about them."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ropelab.experiments.claims.record import Claim, Evidence, limit, part
from ropelab.rope.frequencies import Geometry, inverse_frequencies, turns
from ropelab.rope.scaling import NtkAware, RopePlan, Yarn, YarnPaper

MINIMIND = Geometry(64, 1e6, 2048)
LLAMA_2 = Geometry(128, 1e4, 4096)
MANY_TURNS = Geometry(64, 1e4, 131072)
"""Even the slowest pair turns more than once within the trained length."""
SAME = 1e-9


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A model and the length at which it is run."""

    geometry: Geometry = MINIMIND
    length: int = 8192
    beta_fast: float = 32.0

    @property
    def factor(self) -> float:
        """How many trained lengths the new one is."""
        return self.length / self.geometry.trained_len


def unseen(
    geometry: Geometry, inv_freq: Float[Tensor, "pairs"], length: float
) -> Float[Tensor, "pairs"]:
    """Share of the circle that a pair reaches within `length` but not within the trained length."""
    seen = turns(geometry.inv_freq, geometry.trained_len).clamp_max(1)
    return (turns(inv_freq, length).clamp_max(1) - seen).clamp_min(0)


def slow_pairs_meet_new_angles(given: Extension) -> Evidence:
    """Count pairs that meet angles which training never showed them."""
    geometry = given.geometry
    new = unseen(geometry, geometry.inv_freq, given.length)
    fast = turns(geometry.inv_freq, geometry.trained_len) >= 1
    fine, hit = int((new[fast] <= SAME).sum()), int((new[~fast] > SAME).sum())
    return Evidence(
        expected="none of the pairs that turn fully in training, all of the others",
        findings=(
            part(
                f"pairs with a full turn in {geometry.trained_len} tokens that meet no new angle "
                f"at {given.length}",
                f"{fine} of {int(fast.sum())}",
                bool(fine == fast.sum() > 0),
                fine,
            ),
            part(
                "slower pairs that meet new angles",
                f"{hit} of {int((~fast).sum())}",
                bool(hit == (~fast).sum() > 0),
                hit,
            ),
        ),
    )


def yarn_brings_angles_back(given: Extension) -> Evidence:
    """Count the same after YaRN, the fast pairs that it changed, and what it does to logits."""
    geometry = given.geometry
    plan = Yarn(factor=given.factor, beta_fast=given.beta_fast).plan(geometry, given.length)
    before, after = (
        int((unseen(geometry, inv_freq, given.length) > SAME).sum())
        for inv_freq in (geometry.inv_freq, plan.inv_freq)
    )
    fast = turns(geometry.inv_freq, geometry.trained_len) >= given.beta_fast
    changed = int(((plan.inv_freq / geometry.inv_freq)[fast] < 1 - SAME).sum())
    return Evidence(
        expected="no pair meets new angles, fast pairs as they were",
        findings=(
            part(
                f"pairs that meet new angles at {given.length}",
                f"{before} before, {after} after",
                after == 0 < before,
                after,
            ),
            part(
                f"pairs with {given.beta_fast:g} turns or more in training that YaRN changes",
                f"{changed} of {int(fast.sum())}",
                changed == 0,
                changed,
            ),
            limit(
                "every logit, also of the pairs that are kept, is multiplied by",
                f"{plan.logit_multiplier:.4f}",
                abs(plan.logit_multiplier - 1) <= SAME,
                plan.logit_multiplier,
            ),
        ),
    )


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
        factor: _largest_ratio(published, Yarn(factor=factor).plan(given.original, 0))
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


def _largest_ratio(inv_freq: Float[Tensor, "pairs"], plan: RopePlan) -> float:
    return math.exp(float((inv_freq / plan.inv_freq).log().abs().max()))


@dataclass(frozen=True, kw_only=True)
class MiniMindYarn:
    """One of MiniMind's YaRN formulas and the settings that it shipped with."""

    formula: Literal["beta per pair", "linear ramp"]
    geometry: Geometry
    factor: float
    beta_fast: float
    attention_factor: float = 1.0
    other: Geometry = MANY_TURNS

    def scaled(self, geometry: Geometry) -> Float[Tensor, "pairs"]:
        """The frequencies that MiniMind would use."""
        make = _beta_per_pair if self.formula == "beta per pair" else _clamped_ramp
        return make(geometry, self.factor, self.beta_fast)

    def apart(self, geometry: Geometry) -> float:
        """The largest ratio between its frequencies and YaRN's as runtimes compute them."""
        yarn = Yarn(factor=self.factor, beta_fast=self.beta_fast).plan(geometry, 0)
        return _largest_ratio(self.scaled(geometry), yarn)


def _beta_per_pair(geometry: Geometry, factor: float, beta_fast: float) -> Float[Tensor, "pairs"]:
    """(b s - b + 1)/(b s) with b from 1 to beta_fast, for pairs that turn fully; else 1/s."""
    beta = torch.linspace(1, beta_fast, geometry.pairs, dtype=torch.float64)
    within = turns(geometry.inv_freq, geometry.trained_len) >= 1
    scale = torch.where(within, (beta * factor - beta + 1) / (beta * factor), 1 / factor)
    return geometry.inv_freq * scale


def _clamped_ramp(geometry: Geometry, factor: float, beta_fast: float) -> Float[Tensor, "pairs"]:
    """The coded ramp with its end held at the last pair instead of the last feature."""
    low, high = Yarn(factor=factor, beta_fast=beta_fast).ramp_range(geometry)
    high = min(high, geometry.pairs - 1)
    index = torch.arange(geometry.pairs, dtype=torch.float64)
    ramp = ((index - low) / max(high - low, 0.001)).clamp(0, 1)
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


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A model and a factor."""

    geometry: Geometry = LLAMA_2
    factor: float = 16.0


def ramps_agree(given: Stretch) -> Evidence:
    """YaRN by its paper's equations against YaRN as it is coded."""
    paper = YarnPaper(factor=given.factor).plan(given.geometry, 0)
    coded = Yarn(factor=given.factor).plan(given.geometry, 0)
    ratio = coded.inv_freq / paper.inv_freq
    pair = int(ratio.log().abs().argmax())
    apart = _largest_ratio(coded.inv_freq, paper)
    differing = int(((ratio - 1).abs() > SAME).sum())
    return Evidence(
        expected="equal frequencies",
        findings=(
            part(
                f"factor {given.factor:g}, pairs whose frequencies differ",
                f"{differing} of {len(ratio)}, pair {pair} by {apart:.2f} times",
                differing == 0,
                apart,
            ),
        ),
    )


def ntk_keeps_the_ends(given: Stretch) -> Evidence:
    """The first and the last pair under NTK-aware scaling."""
    ratio = given.geometry.inv_freq / NtkAware(factor=given.factor).plan(given.geometry, 0).inv_freq
    first, last = float(ratio[0]), float(ratio[-1])
    return Evidence(
        expected=f"1 and {given.factor:g}",
        findings=(
            part("first pair divided by", f"{first:.12g}", abs(first - 1) <= SAME, first),
            part(
                "last pair divided by", f"{last:.12g}", abs(last / given.factor - 1) <= SAME, last
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="unseen-angles",
        source="note 001 §7.1",
        statement="Run at 8192 after training at 2048, fast pairs are fine and slow pairs meet "
        "angles that they never saw.",
        inputs=Extension(),
        check=slow_pairs_meet_new_angles,
        command="ropelab freqs --base 1e6 --head-dim 64 --original-len 2048",
    ),
    Claim(
        id="yarn-seen-angles",
        source="note 001 §7.2",
        statement="YaRN slows the slow pairs until unseen angles become seen ones and leaves the "
        "fast pairs as they are.",
        inputs=Extension(),
        check=yarn_brings_angles_back,
        command="ropelab freqs --base 1e6 --head-dim 64 --original-len 2048 --method yarn "
        "--factor 4",
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
    Claim(
        id="yarn-one-ramp",
        source="YaRN, arXiv:2309.00071 eq. 17-20; jquesnelle/yarn",
        statement="YaRN as runtimes code it has the frequencies of YaRN's paper.",
        inputs=Stretch(),
        check=ramps_agree,
        command="ropelab freqs --base 1e4 --head-dim 128 --original-len 4096 --method yarn "
        "--factor 16",
    ),
    Claim(
        id="ntk-ends",
        source="YaRN, arXiv:2309.00071 eq. 16",
        statement="NTK-aware scaling keeps the first pair and divides the last by exactly the "
        "factor.",
        inputs=Stretch(),
        check=ntk_keeps_the_ends,
    ),
)
