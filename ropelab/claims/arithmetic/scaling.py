"""Claims about running past the trained length: unseen angles, and what YaRN does about them."""

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ropelab.claims.numbers import Array
from ropelab.claims.record import Claim, Evidence, Passage, limit, part
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import NtkAware, Yarn, YarnPaper
from ropelab.runs.thresholds import SAME

MINIMIND = Geometry(64, 1e6, 2048)
LLAMA_2 = Geometry(128, 1e4, 4096)


def turns(inv_freq: ArrayLike, length: float) -> Float[Array, " pairs"]:
    """Full turns of every pair within `length` tokens."""
    return np.asarray(inv_freq) * (length / (2 * math.pi))


def unseen(geometry: Geometry, inv_freq: ArrayLike, length: float) -> Float[Array, " pairs"]:
    """Share of the circle that a pair reaches within `length` but not within the trained length."""
    seen = turns(geometry.inv_freq, geometry.trained_len).clip(max=1)
    return (turns(inv_freq, length).clip(max=1) - seen).clip(min=0)


def slow_pairs_meet_new_angles(*, geometry: Geometry = MINIMIND, length: int = 8192) -> Evidence:
    """Count pairs that meet angles which training never showed them."""
    new = unseen(geometry, geometry.inv_freq, length)
    fast = turns(geometry.inv_freq, geometry.trained_len) >= 1
    fine, hit = int((new[fast] <= SAME).sum()), int((new[~fast] > SAME).sum())
    return Evidence(
        expected="none of the pairs that turn fully in training, all of the others",
        findings=(
            part(
                f"pairs with a full turn in {geometry.trained_len} tokens that meet no new angle "
                f"at {length}",
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


def yarn_brings_angles_back(
    *, geometry: Geometry = MINIMIND, length: int = 8192, beta_fast: float = 32.0
) -> Evidence:
    """Count the same after YaRN, the fast pairs that it changed, and what it does to logits."""
    plan = Yarn(factor=length / geometry.trained_len, beta_fast=beta_fast).plan(geometry, length)
    inv_freq, scaled = np.asarray(geometry.inv_freq), np.asarray(plan.inv_freq)
    before, after = (int((unseen(geometry, x, length) > SAME).sum()) for x in (inv_freq, scaled))
    fast = turns(inv_freq, geometry.trained_len) >= beta_fast
    changed = int(((scaled / inv_freq)[fast] < 1 - SAME).sum())
    return Evidence(
        expected="no pair meets new angles, fast pairs as they were",
        findings=(
            part(
                f"pairs that meet new angles at {length}",
                f"{before} before, {after} after",
                after == 0 < before,
                after,
            ),
            part(
                f"pairs with {beta_fast:g} turns or more in training that YaRN changes",
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


def largest_ratio(a: ArrayLike, b: ArrayLike) -> float:
    """How many times two sets of frequencies differ, in the worst pair."""
    return math.exp(float(np.abs(np.log(np.asarray(a) / np.asarray(b))).max()))


def ramps_agree(*, geometry: Geometry = LLAMA_2, factor: float = 16.0) -> Evidence:
    """YaRN by its paper's equations against YaRN as it is coded."""
    paper = np.asarray(YarnPaper(factor=factor).plan(geometry, 0).inv_freq)
    coded = np.asarray(Yarn(factor=factor).plan(geometry, 0).inv_freq)
    ratio = coded / paper
    pair = int(np.abs(np.log(ratio)).argmax())
    apart = largest_ratio(coded, paper)
    differing = int((np.abs(ratio - 1) > SAME).sum())
    return Evidence(
        expected="equal frequencies",
        findings=(
            part(
                f"factor {factor:g}, pairs whose frequencies differ",
                f"{differing} of {len(ratio)}, pair {pair} by {apart:.2f} times",
                differing == 0,
                apart,
            ),
        ),
    )


def ntk_keeps_the_ends(*, geometry: Geometry = LLAMA_2, factor: float = 16.0) -> Evidence:
    """The first and the last pair under NTK-aware scaling."""
    plan = NtkAware(factor=factor).plan(geometry, 0)
    ratio = np.asarray(geometry.inv_freq) / np.asarray(plan.inv_freq)
    first, last = float(ratio[0]), float(ratio[-1])
    return Evidence(
        expected=f"1 and {factor:g}",
        findings=(
            part("first pair divided by", f"{first:.12g}", abs(first - 1) <= SAME, first),
            part("last pair divided by", f"{last:.12g}", abs(last / factor - 1) <= SAME, last),
        ),
    )


CLAIMS = (
    Claim(
        id="unseen-angles",
        passages=(
            Passage(
                "001",
                "§7.1",
                446,
                "高频率:周期短,见过很多圈,外推效果好",
                "high frequencies: short period, many turns were seen, they extrapolate well",
            ),
            Passage(
                "001",
                "§7.1",
                447,
                "低频率:周期长,只见过小部分角度",
                "low frequencies: long period, only a small part of the angles was seen",
            ),
        ),
        statement="Run at 8192 after training at 2048, fast pairs are fine and slow pairs meet "
        "angles that they never saw.",
        check=slow_pairs_meet_new_angles,
        command="ropelab freqs --base 1e6 --head-dim 64 --train-len 2048",
    ),
    Claim(
        id="yarn-seen-angles",
        passages=(
            Passage(
                "001",
                "§7.2",
                451,
                "让”未见过的角度”变成”见过的角度”,高频率保持不变",
                "turn unseen angles into seen ones, and keep the high frequencies",
            ),
        ),
        statement="YaRN slows the slow pairs until unseen angles become seen ones and leaves the "
        "fast pairs as they are.",
        check=yarn_brings_angles_back,
        command="ropelab freqs --base 1e6 --head-dim 64 --train-len 2048 --method yarn --factor 4",
    ),
    Claim(
        id="yarn-one-ramp",
        passages=(Passage("yarn", "eq. 17-20"), Passage("yarn-code")),
        statement="YaRN as runtimes code it has the frequencies of YaRN's paper.",
        check=ramps_agree,
        command="ropelab freqs --base 1e4 --head-dim 128 --train-len 4096 --method yarn "
        "--factor 16",
    ),
    Claim(
        id="ntk-ends",
        passages=(Passage("yarn", "eq. 16"),),
        statement="NTK-aware scaling keeps the first pair and divides the last by exactly the "
        "factor.",
        check=ntk_keeps_the_ends,
    ),
)
