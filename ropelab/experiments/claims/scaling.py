"""Claims about running past the trained length: unseen angles, and what YaRN does about them."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ropelab.experiments.claims.record import Claim, Evidence, limit, part
from ropelab.rope.frequencies import Geometry, turns
from ropelab.rope.scaling import NtkAware, RopePlan, Yarn, YarnPaper

MINIMIND = Geometry(64, 1e6, 2048)
LLAMA_2 = Geometry(128, 1e4, 4096)
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
    geometry: Geometry, inv_freq: Float[np.ndarray, "pairs"], length: float
) -> Float[np.ndarray, "pairs"]:
    """Share of the circle that a pair reaches within `length` but not within the trained length."""
    seen = np.minimum(turns(geometry.inv_freq, geometry.trained_len), 1)
    return np.maximum(np.minimum(turns(inv_freq, length), 1) - seen, 0)


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


def largest_ratio(inv_freq: Float[np.ndarray, "pairs"], plan: RopePlan) -> float:
    """How many times the frequencies of a plan differ from others, in the worst pair."""
    return math.exp(float(np.abs(np.log(inv_freq / plan.inv_freq)).max()))


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
    pair = int(np.abs(np.log(ratio)).argmax())
    apart = largest_ratio(coded.inv_freq, paper)
    differing = int((np.abs(ratio - 1) > SAME).sum())
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
