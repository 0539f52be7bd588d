"""Checks of claims about the frequencies of scaling methods, and of models that use them.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ropelab.claims.arrays import Array, frequencies
from ropelab.claims.record import Findings, Role, claim
from ropelab.math.frequencies import Geometry, rotations
from ropelab.math.methods import parse_scaling
from ropelab.math.scaling import DynamicNtk, NtkAware, Yarn, YarnPaper
from ropelab.runs.arrays import Float
from ropelab.runs.thresholds import SAME

# The rotary dimension, base and trained length of a model.
Shape = tuple[int, float, int]
MINIMIND: Shape = (64, 1e6, 2048)
LLAMA_2 = Geometry(128, 1e4, 4096)
# A model in which even the slowest pair rotates more than once within the trained length.
MANY_ROTATIONS = Geometry(64, 1e4, 131072)
# The tested length of claims about MiniMind, and a length between it and the trained one.
LONGER = 8192
SHORTER = 4096
# The longest text that a server allows, in trained lengths, which is also its factor.
LONGEST_TIMES = 4


def find_unseen_shares(
    geometry: Geometry, inv_freq: Array, length: float
) -> Float[Array, " pairs"]:
    """Return the share of the circle that each pair meets in a text of `length` tokens
    and did not meet within the trained length. `inv_freq` are the frequencies of the pairs
    in that text.
    """
    # A pair that has completed a rotation has met the whole circle.
    seen = rotations(geometry.inv_freq, geometry.trained_len).clip(max=1)
    met = rotations(inv_freq, length).clip(max=1)
    return (met - seen).clip(min=0)


def find_largest_ratio(a: Array, b: Array) -> float:
    """Return the ratio of two sets of frequencies in the pair where they differ most; it
    is at least 1.
    """
    # With logarithms, a frequency that is twice as fast differs by the same amount as one
    # that is half as fast.
    log_ratios = np.abs(np.log(a / b))
    return math.exp(float(log_ratios.max()))


def write_ratio(ratio: float) -> str:
    """Write the largest ratio of two sets of frequencies; `equal` if they are."""
    if ratio <= 1 + SAME:
        return "equal"
    # Other pairs may be closer: dynamic YaRN does not change the fastest at all.
    return f"up to {ratio:.2f} times apart"


@claim("unseen-angles")
def count_new_angles(findings: Findings, geometry: Shape = MINIMIND) -> None:
    """Count the fast pairs that meet no new angles in longer texts, and the slow pairs
    that do.
    """
    model = Geometry(*geometry)
    # For each pair, whether it meets an angle that it did not meet in training, and
    # whether it completed a rotation there.
    meets_new = find_unseen_shares(model, model.inv_freq, LONGER) > SAME
    is_fast = rotations(model.inv_freq, model.trained_len) >= 1

    def add_count(what: str, agrees: NDArray[np.bool_]) -> None:
        """Add a finding that holds if all of some pairs agree."""
        hits = int(agrees.sum())
        total = len(agrees)
        all_agree = hits == total and total > 0
        findings.add_part(what, f"{hits} of {total}", all_agree, hits)

    add_count(
        f"pairs with a full turn in {model.trained_len} tokens that meet no new angle at"
        f" {LONGER}",
        ~meets_new[is_fast],
    )
    add_count("slower pairs that meet new angles", meets_new[~is_fast])


@claim("yarn-seen-angles")
def count_new_angles_of_yarn(findings: Findings, length: int = LONGER) -> None:
    """Count the pairs that meet new angles without YaRN and with YaRN, and the fast
    pairs that YaRN changes.
    """
    model = Geometry(*MINIMIND)
    yarn = Yarn(factor=length / model.trained_len)
    plan = yarn.plan(model, length)

    def count_unseen(inv_freq: Array) -> int:
        return int((find_unseen_shares(model, inv_freq, length) > SAME).sum())

    without_yarn = count_unseen(model.inv_freq)
    with_yarn = count_unseen(plan.inv_freq)
    what = f"pairs that meet new angles at {length}"
    measured = f"{without_yarn} before, {with_yarn} after"
    agrees = without_yarn > 0 and with_yarn == 0
    findings.add_part(what, measured, agrees, with_yarn)

    is_fast = rotations(model.inv_freq, model.trained_len) >= yarn.beta_fast
    ratios = plan.inv_freq / model.inv_freq
    changed_pairs = int((ratios[is_fast] < 1 - SAME).sum())
    what = f"pairs with {yarn.beta_fast:g} turns or more in training that YaRN changes"
    findings.add_part(
        what,
        f"{changed_pairs} of {int(is_fast.sum())}",
        changed_pairs == 0,
        changed_pairs,
    )

    # "Fast" may also mean a full rotation in training, after which no angle is new.
    rotates_fully = rotations(model.inv_freq, model.trained_len) >= 1
    slowed_pairs = int((ratios[rotates_fully] < 1 - SAME).sum())
    what = "pairs with a full turn in training that YaRN slows, too"
    findings.add_limit(
        what,
        f"{slowed_pairs} of {int(rotates_fully.sum())}",
        slowed_pairs == 0,
        slowed_pairs,
    )

    multiplier = plan.logit_multiplier
    what = "every logit, also of the pairs that are kept, is multiplied by"
    findings.add_limit(
        what, f"{multiplier:.4f}", abs(multiplier - 1) <= SAME, multiplier
    )


@claim("yarn-dynamic")
def compare_lengths(findings: Findings, method: str = "yarn(factor=4)") -> None:
    """Compare the frequencies of a method at two lengths, and those of a variant whose
    factor follows the length.
    """
    model = Geometry(*MINIMIND)
    methods: tuple[tuple[Role, str], ...] = (
        ("part", method),
        ("limit", "dynamic_yarn"),
    )
    for role, name in methods:
        scaling = parse_scaling(name)
        at_shorter = scaling.plan(model, SHORTER).inv_freq
        at_longer = scaling.plan(model, LONGER).inv_freq
        ratio = find_largest_ratio(at_shorter, at_longer)

        what = f"frequencies of {name} for {SHORTER} and {LONGER} tokens"
        differ = ratio > 1 + SAME
        findings.add(role, what, write_ratio(ratio), differ, ratio)


@claim("dynamic-free-short")
def compare_inside(findings: Findings, method: str = "dynamic_ntk") -> None:
    """Compare a method inside the trained length with no method: with frequencies that
    are computed for the length of the text, and with frequencies that are computed once,
    for the longest text, as servers do.
    """
    lengths = (2, 1024, LLAMA_2.trained_len)
    ratios = []
    logit_changes = []
    for length in lengths:
        plan = parse_scaling(method).plan(LLAMA_2, length)
        ratios.append(find_largest_ratio(plan.inv_freq, LLAMA_2.inv_freq))
        logit_changes.append(abs(plan.logit_multiplier - 1))

    ratio = max(ratios)
    are_equal = ratio <= 1 + SAME
    what = f"frequencies of {method} against none, in up to {lengths[-1]} tokens"
    findings.add_part(what, write_ratio(ratio), are_equal, ratio)

    change = max(logit_changes)
    what = f"logits of {method} and of none apart, in up to {lengths[-1]} tokens"
    findings.add_zero(what, change, SAME, otherwise=f"{change:.2g}")

    # vLLM and SGLang compute their tables when a model is loaded, for the length that they
    # may serve.
    longest = LONGEST_TIMES * LLAMA_2.trained_len
    plan_for_longest = DynamicNtk(factor=LONGEST_TIMES).plan(LLAMA_2, longest)
    ratio = find_largest_ratio(plan_for_longest.inv_freq, LLAMA_2.inv_freq)
    what = (
        f"frequencies computed once for {longest:,} tokens, as vLLM and SGLang do for factor"
        f" {LONGEST_TIMES}, against none"
    )
    findings.add_limit(what, write_ratio(ratio), ratio <= 1 + SAME, ratio)


@claim("yarn-one-ramp")
def compare_ramps(findings: Findings, factor: float = 16.0) -> None:
    """Compare YaRN as its paper states it with YaRN as its code computes it."""
    # YaRN has the same frequencies at every length, so that any length will do.
    inv_freq_of_paper = YarnPaper(factor=factor).plan(LLAMA_2, 0).inv_freq
    inv_freq_of_code = Yarn(factor=factor).plan(LLAMA_2, 0).inv_freq
    ratios = inv_freq_of_code / inv_freq_of_paper
    differing_pairs = int((np.abs(ratios - 1) > SAME).sum())
    worst_pair = int(np.abs(np.log(ratios)).argmax())
    ratio = find_largest_ratio(inv_freq_of_code, inv_freq_of_paper)

    what = f"factor {factor:g}, pairs whose frequencies differ"
    measured = (
        f"{differing_pairs} of {len(ratios)}, pair {worst_pair} by {ratio:.2f} times"
    )
    findings.add_part(what, measured, differing_pairs == 0, ratio)


@claim("ntk-ends")
def compare_end_divisors(findings: Findings, factor: float = 16.0) -> None:
    """Compute by what NTK-aware scaling divides the first and the last frequency."""
    scaled_inv_freq = NtkAware(factor=factor).plan(LLAMA_2, 0).inv_freq
    divisors = (LLAMA_2.inv_freq / scaled_inv_freq).tolist()
    ends = (("first", divisors[0], 1.0), ("last", divisors[-1], factor))
    for name, divisor, right_divisor in ends:
        is_right = abs(divisor / right_divisor - 1) <= SAME
        findings.add_part(
            f"{name} pair divided by", f"{divisor:.12g}", is_right, divisor
        )


@claim("critical-dimension")
def count_full_rotations(findings: Findings, printed: int = 92) -> None:
    """Count the features whose pairs complete a rotation in the trained length."""
    rotates_fully = rotations(LLAMA_2.inv_freq, LLAMA_2.trained_len) >= 1
    # A pair has two features.
    features = 2 * int(rotates_fully.sum())
    what = f"features whose pairs turn fully in {LLAMA_2.trained_len} tokens"
    measured = f"{features} of {LLAMA_2.rotary_dim}"
    findings.add_part(what, measured, features == printed, features)


@claim("yarn-llama-2")
def look_up_lengths(
    findings: Findings, claimed: int = 32768, finetuned: bool = True
) -> None:
    """Look up the lengths of the released YaRN models."""
    # These are the lengths in the README of jquesnelle/yarn.
    released_lengths = (8192, 32768, 65536, 131072)
    what = "YaRN models released for the 4096-token model"
    measured = ", ".join(map(str, released_lengths))
    findings.add_part(
        what, measured, claimed in released_lengths, max(released_lengths)
    )
    measured = "no, all were fine-tuned" if finetuned else "yes"
    what = f"{claimed} tokens reached without fine-tuning"
    findings.add_limit(what, measured, not finetuned)


@claim("yarn-code-llama")
def compare_with_yarn(
    findings: Findings, base: float = 1e6, said: tuple[int, int] = (16, 100)
) -> None:
    """Compare the frequencies of Code Llama with the frequencies of YaRN at many
    factors.
    """
    # The abstract of arXiv:2308.12950: trained at 16k, improves up to 100k.
    findings.add_part(
        "lengths in Code Llama's paper", "16k and 100k", said == (16, 100)
    )

    released_inv_freq = frequencies(LLAMA_2.rotary_dim, base)
    # Factors from 1 to 256 in quarter octaves are fine enough: with any factor some pair
    # differs several times.
    factors = [2 ** (k / 4) for k in range(33)]
    ratio_by_factor = {}
    for factor in factors:
        scaled_inv_freq = Yarn(factor=factor).plan(LLAMA_2, 0).inv_freq
        ratio_by_factor[factor] = find_largest_ratio(released_inv_freq, scaled_inv_freq)

    nearest = min(factors, key=lambda factor: ratio_by_factor[factor])
    what = (
        f"base {base:g}, to which Code Llama's paper changes it (§2.4), against the"
        f" nearest YaRN of base {LLAMA_2.base:g} (factor {nearest:.3g})"
    )
    template = "frequencies up to {:.1f} times apart"
    findings.add_at_most(what, ratio_by_factor[nearest], 1.01, template)


Formula = Literal["beta per pair", "linear ramp"]


def compute_minimind(
    formula: Formula, geometry: Geometry, factor: float, beta_fast: float
) -> Float[Array, " pairs"]:
    """Return the scaled frequencies that one version of MiniMind's code computes. The
    frequencies of the geometry are divided by the factor, or by less.
    """
    inv_freq = geometry.inv_freq
    if formula == "beta per pair":
        # The factor s multiplies frequencies by (b s - b + 1)/(b s), with b from 1 to
        # beta_fast, for pairs that rotate fully, and by 1/s for all other pairs.
        beta = np.linspace(1, beta_fast, geometry.pairs)
        rotates_fully = rotations(inv_freq, geometry.trained_len) >= 1
        multiplier_of_fast = (beta * factor - beta + 1) / (beta * factor)
        return inv_freq * np.where(rotates_fully, multiplier_of_fast, 1 / factor)

    # YaRN's ramp, whose end is at most the last pair. YaRN limits it to the last feature.
    low, high = Yarn(factor=factor, beta_fast=beta_fast).ramp_range(geometry)
    high = min(high, geometry.pairs - 1)
    pair_numbers = np.arange(geometry.pairs)
    ramp = ((pair_numbers - low) / max(high - low, 0.001)).clip(0, 1)
    return inv_freq * (1 - ramp + ramp / factor)


@claim("minimind-yarn-beta", "minimind-yarn-ramp")
def compare_minimind(
    findings: Findings,
    formula: Formula,
    geometry: Shape,
    factor: float,
    beta_fast: float,
) -> None:
    """Compare the frequencies of MiniMind's code with the frequencies of YaRN, in
    MiniMind and in another model, and compare the attention factors.
    """

    def compare_frequencies(role: Role, what: str, model: Geometry) -> None:
        yarn = Yarn(factor=factor, beta_fast=beta_fast).plan(model, 0)
        minimind = compute_minimind(formula, model, factor, beta_fast)
        ratio = find_largest_ratio(minimind, yarn.inv_freq)
        are_equal = ratio <= 1 + SAME
        measured = write_ratio(ratio)
        findings.add(role, what, measured, are_equal, ratio)

    model = Geometry(*geometry)
    what = (
        f"frequencies as shipped, against YaRN with the same factor {factor:g} and"
        f" beta_fast {beta_fast:g}"
    )
    compare_frequencies("part", what, model)
    what = (
        f"frequencies with base {MANY_ROTATIONS.base:g}, trained length"
        f" {MANY_ROTATIONS.trained_len}"
    )
    compare_frequencies("limit", what, MANY_ROTATIONS)

    # MiniMind multiplies by a setting, which is 1 as shipped.
    yarn_factor = Yarn(factor=factor).plan(model, 0).attention_factor
    is_one = abs(1 - yarn_factor) <= SAME
    measured = f"1, YaRN's is {yarn_factor:.4f}"
    findings.add_limit("attention factor as shipped", measured, is_one, yarn_factor)
