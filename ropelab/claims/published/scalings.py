"""Checks of claims about published methods and numbers: scaling, dates, precision, and
bounds on the base.

A check adds findings to `findings`. `part` adds one without which the claim does not
hold, `limit` one that puts a condition on it: in words what was measured and the result,
whether the result agrees with the claim, and the number. `within` compares a number with
a bound.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ropelab.claims.arrays import Array, frequencies, write_hits
from ropelab.claims.record import Findings, Role, claim
from ropelab.math.bounds import Similarity, first_negative, published
from ropelab.math.bounds.walls import chain_of
from ropelab.math.frequencies import Geometry, rotations
from ropelab.math.methods import parse_scaling
from ropelab.math.models import MODELS
from ropelab.math.numerics.angle_errors import (
    Worst,
    first_beyond,
    worst,
    worst_by_octave,
)
from ropelab.math.numerics.casts import preset_named
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.incidents import incidents
from ropelab.math.numerics.scores import draw, scores, shift_errors
from ropelab.math.scaling import NtkAware, Yarn, YarnPaper
from ropelab.runs.arrays import Float
from ropelab.runs.cell import Stored
from ropelab.runs.thresholds import ANGLE_RAD, BROKEN, FIT, SAME

# The rotary dimension, base and trained length of a model.
Shape = tuple[int, float, int]
MINIMIND: Shape = (64, 1e6, 2048)
LLAMA_2 = Geometry(128, 1e4, 4096)
# A model in which even the slowest pair rotates more than once within the trained length.
MANY_ROTATIONS = Geometry(64, 1e4, 131072)
# The tested length of claims about MiniMind.
LONGER = 8192
# The tested length of claims about float32.
FLOAT32_LENGTH = 1 << 17
# The numbers of tokens by which positions are moved: primes just above 2^12 and 2^16, for
# which bfloat16 has 8 bits.
SHIFTS = (4099, 65537)
# The step between the bases of a grid, in logarithms.
STEP = 4e-3
# A name and an arXiv number.
Paper = tuple[str, str]
# The arXiv number of the RoFormer paper.
ROPE = "2104.09864"
# The features of a head and the base for claims about numbers that name no model.
HEAD = 128
BASE = 10000.0
# Context lengths, with the base printed for each.
Table = Sequence[tuple[int, float]]


def _select_printed(bases: Sequence[float]) -> Table:
    """Return the contexts from 1k to 32k tokens, with the bases printed for them."""
    table = list(zip(published.CONTEXTS, bases, strict=True))
    return tuple(table[:6])


# The printed bases, by publication.
PRINTED: dict[str, Table] = {
    "men": _select_printed(published.MEN),
    "su": _select_printed(published.SU),
}


def find_unseen_shares(
    geometry: Geometry, inv_freq: Array, length: float
) -> Float[Array, " pairs"]:
    """Return the share of the circle that each pair meets only beyond the trained
    length.
    """
    # A pair that has completed a rotation has met the whole circle.
    seen = rotations(geometry.inv_freq, geometry.trained_len).clip(max=1)
    met = rotations(inv_freq, length).clip(max=1)
    return (met - seen).clip(min=0)


def largest_ratio(a: Array, b: Array) -> float:
    """Return the ratio of two sets of frequencies in the pair where they differ most; it
    is at least 1.
    """
    # By the logarithm, twice as fast and half as fast differ as much.
    log_ratios = np.abs(np.log(a / b))
    return math.exp(float(log_ratios.max()))


@claim("unseen-angles")
def slow_pairs_meet_new_angles(findings: Findings, geometry: Shape = MINIMIND) -> None:
    """Count the fast pairs that meet no new angles in longer texts, and the slow pairs
    that do.
    """
    model = Geometry(*geometry)
    meets_new = find_unseen_shares(model, model.inv_freq, LONGER) > SAME
    is_fast = rotations(model.inv_freq, model.trained_len) >= 1

    def add_count(what: str, agrees: NDArray[np.bool_]) -> None:
        hits = int(agrees.sum())
        total = len(agrees)
        is_complete = hits == total and total > 0
        findings.part(what, f"{hits} of {total}", is_complete, hits)

    add_count(
        f"pairs with a full turn in {model.trained_len} tokens that meet no new angle at"
        f" {LONGER}",
        ~meets_new[is_fast],
    )
    add_count("slower pairs that meet new angles", meets_new[~is_fast])


@claim("yarn-seen-angles")
def yarn_brings_angles_back(findings: Findings, length: int = LONGER) -> None:
    """Count the pairs that meet new angles without YaRN and with it, and the fast pairs
    that YaRN changes.
    """
    model = Geometry(*MINIMIND)
    yarn = Yarn(factor=length / model.trained_len)
    plan = yarn.plan(model, length)

    def count_unseen(inv_freq: Array) -> int:
        return int((find_unseen_shares(model, inv_freq, length) > SAME).sum())

    before = count_unseen(model.inv_freq)
    after = count_unseen(plan.inv_freq)
    what = f"pairs that meet new angles at {length}"
    text = f"{before} before, {after} after"
    findings.part(what, text, before > 0 and after == 0, after)

    is_fast = rotations(model.inv_freq, model.trained_len) >= yarn.beta_fast
    ratios = plan.inv_freq / model.inv_freq
    changed = int((ratios[is_fast] < 1 - SAME).sum())
    what = f"pairs with {yarn.beta_fast:g} turns or more in training that YaRN changes"
    findings.part(what, f"{changed} of {int(is_fast.sum())}", changed == 0, changed)

    multiplier = plan.logit_multiplier
    what = "every logit, also of the pairs that are kept, is multiplied by"
    findings.limit(what, f"{multiplier:.4f}", abs(multiplier - 1) <= SAME, multiplier)


@claim("yarn-dynamic")
def adjusts(findings: Findings, method: str = "yarn(factor=4)") -> None:
    """Compare the frequencies of a method at two lengths."""
    model = Geometry(*MINIMIND)
    scaling = parse_scaling(method)
    ratio = largest_ratio(
        scaling.plan(model, 4096).inv_freq, scaling.plan(model, LONGER).inv_freq
    )
    what = f"frequencies of {method} for 4096 and {LONGER} tokens"
    differ = ratio > 1 + SAME
    text = f"{ratio:.2f} times apart" if differ else "equal"
    findings.part(what, text, differ, ratio)


@claim("dynamic-free-short")
def same_inside(findings: Findings, method: str = "dynamic_ntk") -> None:
    """Compare a method inside the trained length with no method."""
    lengths = (2, 1024, LLAMA_2.trained_len)
    ratios = []
    logit_changes = []
    for length in lengths:
        plan = parse_scaling(method).plan(LLAMA_2, length)
        ratios.append(largest_ratio(plan.inv_freq, LLAMA_2.inv_freq))
        logit_changes.append(abs(plan.logit_multiplier - 1))

    ratio = max(ratios)
    are_equal = ratio <= 1 + SAME
    what = f"frequencies of {method} against none, in up to {lengths[-1]} tokens"
    text = "equal" if are_equal else f"{ratio:.2f} times apart"
    findings.part(what, text, are_equal, ratio)
    change = max(logit_changes)
    findings.part("and logits", f"{change:.2g} apart", change <= SAME, change)


@claim("yarn-one-ramp")
def ramps_agree(findings: Findings, factor: float = 16.0) -> None:
    """Compare YaRN as its paper states it with YaRN as its code computes it."""
    paper = YarnPaper(factor=factor).plan(LLAMA_2, 0).inv_freq
    code = Yarn(factor=factor).plan(LLAMA_2, 0).inv_freq
    ratios = code / paper
    differing = int((np.abs(ratios - 1) > SAME).sum())
    worst_pair = int(np.abs(np.log(ratios)).argmax())
    ratio = largest_ratio(code, paper)

    what = f"factor {factor:g}, pairs whose frequencies differ"
    text = f"{differing} of {len(ratios)}, pair {worst_pair} by {ratio:.2f} times"
    findings.part(what, text, differing == 0, ratio)


@claim("ntk-ends")
def ntk_keeps_the_ends(findings: Findings, factor: float = 16.0) -> None:
    """Compute by what NTK-aware scaling divides the first and the last frequency."""
    scaled = NtkAware(factor=factor).plan(LLAMA_2, 0).inv_freq
    divisors = (LLAMA_2.inv_freq / scaled).tolist()
    ends = (("first", divisors[0], 1.0), ("last", divisors[-1], factor))
    for name, divisor, wanted in ends:
        is_right = abs(divisor / wanted - 1) <= SAME
        findings.part(f"{name} pair divided by", f"{divisor:.12g}", is_right, divisor)


# Who was first, and who uses what, decided by dated publications. An arXiv number is a
# date: its first four digits are the year and month, and later papers have larger
# numbers.


def month(arxiv: str) -> str:
    """Return the year and month of an arXiv number such as 2104.09864."""
    return f"20{arxiv[:2]}-{arxiv[2:4]}"


@claim("three-generations", "third-generation")
def generations(
    findings: Findings, said: Sequence[tuple[str, int, Paper, Paper]]
) -> None:
    """Compare the year given for each kind of encoding with its example and with its
    first paper.

    `said` has for each kind its name, the year, the example and the first paper.
    """
    findings.expected = ", ".join(f"{kind} {year}" for kind, year, _, _ in said)
    for kind, year, (example, example_number), (first, first_number) in said:
        example_year = int(month(example_number)[:4])
        first_year = int(month(first_number)[:4])
        # The year may be that of the example or that of the kind.
        fits = year in (example_year, first_year)
        text = f"{example}, {month(example_number)}"
        findings.part(f"{kind}, {year}: the example", text, fits, example_year)
        is_both = example_year == first_year == year
        text = f"{first}, {month(first_number)}"
        what = f"{kind}, {year}: the first of them"
        findings.limit(what, text, is_both, first_year)


@claim("shaw-earliest")
def is_earliest(
    findings: Findings, paper: Paper, others: Sequence[Paper], outside: Paper
) -> None:
    """Compare the date of a paper with those of the others that a source names, and with
    that of a paper outside the source.
    """
    name, number = paper
    date = float(number)
    is_earliest_of_named = all(date < float(other) for _, other in others)
    text = ", ".join(f"{other_name} {month(other)}" for other_name, other in others)
    what = f"{name} {month(number)}, the others"
    findings.part(what, text, is_earliest_of_named)
    outside_name, outside_number = outside
    is_earlier = date < float(outside_number)
    findings.limit(outside_name, month(outside_number), is_earlier)


@claim("deberta-year", "alibi-year")
def year_of(findings: Findings, name: str, arxiv: str, printed: int, said: int) -> None:
    """Compare a year with that of the preprint, and with that of the proceedings, which
    is right with a condition.
    """
    preprint_year = int(month(arxiv)[:4])
    is_one_of_both = said in (preprint_year, printed)
    what = f"{name}, arXiv:{arxiv} and in print"
    text = f"{month(arxiv)} and {printed}"
    findings.part(what, text, is_one_of_both, preprint_year)
    is_first = preprint_year == said
    findings.limit("first published", month(arxiv), is_first, preprint_year)


@claim("llama-rope")
def is_configured(findings: Findings, models: Sequence[str]) -> None:
    """Read the configurations of models that should have RoPE."""
    texts = []
    for name in models:
        model = MODELS.get(name)
        if model is not None:
            width = f"{model.rotary_width} of {model.head_dim} features"
            texts.append(f"{name}: base {model.base:g}, {width}")
    text = "; ".join(texts) or "nothing"
    # A model whose configuration is not at hand leaves the claim open.
    agrees = True if len(texts) == len(models) else None
    findings.part("what the configurations say", text, agrees)


@claim("large-models-use")
def large_models_use(
    findings: Findings, published: Sequence[tuple[str, str, str]]
) -> None:
    """Count position encodings: of the configurations at hand, and of papers.

    `published` has for each model of a paper its name, its source, and its encoding.
    """
    claimed_kinds = ("RoPE", "ALiBi")

    # `ropelab models` lists models by their rotary numbers, so all of these have RoPE.
    what = "models that ropelab knows by configuration, RoPE or ALiBi"
    known = len(MODELS)
    findings.limit(what, f"{known} of {known}, chosen for RoPE", True, known)

    counts: dict[str, int] = {}
    others = []
    for name, _, kind in published:
        counts[kind] = counts.get(kind, 0) + 1
        if kind not in claimed_kinds:
            others.append(name)
    total = len(published)
    with_claimed = total - len(others)
    listed = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    what = "large language models of papers, 2020 to 2023, RoPE or ALiBi"
    text = f"{with_claimed} of {total} ({listed})"
    findings.part(what, text, 2 * with_claimed > total, with_claimed)
    what = "those with something else"
    findings.limit(what, ", ".join(others) or "none", not others, len(others))


@claim("gpt-3-rope", "gpt-4-rope")
def could_use(findings: Findings, name: str, user: str) -> None:
    """Compare the date of a model's paper with that of RoPE: an earlier model cannot use
    it.

    `user` is the arXiv number of the model's paper, empty if it was not published.
    """
    if user:
        text = f"{month(user)} (arXiv:{user}), RoPE in {month(ROPE)}"
        is_later = float(user) >= float(ROPE)
        findings.part(f"{name}'s paper appeared in", text, is_later)
    else:
        findings.part(f"{name}'s architecture", "not published", None)


@claim("yarn-llama-2")
def released_lengths(
    findings: Findings, claimed: int = 32768, finetuned: bool = True
) -> None:
    """Look up the lengths of the released YaRN models."""
    # These are the lengths in the README of jquesnelle/yarn.
    released = (8192, 32768, 65536, 131072)
    what = "YaRN models released for the 4096-token model"
    text = ", ".join(map(str, released))
    findings.part(what, text, claimed in released, max(released))
    text = "no, all were fine-tuned" if finetuned else "yes"
    findings.limit("reached without fine-tuning", text, not finetuned)


@claim("yarn-code-llama")
def made_by_yarn(
    findings: Findings, base: float = 1e6, said: tuple[int, int] = (16, 100)
) -> None:
    """Compare the frequencies of Code Llama with those of YaRN at many factors."""
    # The abstract of arXiv:2308.12950: trained at 16k, improves up to 100k.
    findings.part("lengths in Code Llama's paper", "16k and 100k", said == (16, 100))
    released = frequencies(LLAMA_2.rotary_dim, base)
    # Factors from 1 to 256 in quarter octaves are fine enough: with any factor some pair
    # differs several times.
    factors = [2 ** (k / 4) for k in range(33)]
    ratio_by_factor = {}
    for factor in factors:
        scaled = Yarn(factor=factor).plan(LLAMA_2, 0).inv_freq
        ratio_by_factor[factor] = largest_ratio(released, scaled)
    nearest = min(factors, key=lambda factor: ratio_by_factor[factor])
    what = (
        f"base {base:g} against the nearest YaRN of base {LLAMA_2.base:g} (factor"
        f" {nearest:.3g})"
    )
    text = "frequencies up to {:.1f} times apart"
    findings.within(what, ratio_by_factor[nearest], 1.01, text)


Formula = Literal["beta per pair", "linear ramp"]


def minimind_frequencies(
    formula: Formula, geometry: Geometry, factor: float, beta_fast: float
) -> Float[Array, " pairs"]:
    """Return the frequencies of MiniMind's code, by the formula of one of its versions."""
    inv_freq = geometry.inv_freq
    if formula == "beta per pair":
        # (b s - b + 1)/(b s) with b from 1 to beta_fast, for pairs that rotate fully;
        # else 1/s.
        beta = np.linspace(1, beta_fast, geometry.pairs)
        rotates_fully = rotations(inv_freq, geometry.trained_len) >= 1
        multiplier_of_fast = (beta * factor - beta + 1) / (beta * factor)
        return inv_freq * np.where(rotates_fully, multiplier_of_fast, 1 / factor)

    # YaRN's ramp with its end held at the last pair instead of the last feature.
    low, high = Yarn(factor=factor, beta_fast=beta_fast).ramp_range(geometry)
    high = min(high, geometry.pairs - 1)
    pair_numbers = np.arange(geometry.pairs)
    ramp = ((pair_numbers - low) / max(high - low, 0.001)).clip(0, 1)
    return inv_freq * (1 - ramp + ramp / factor)


@claim("minimind-yarn-beta", "minimind-yarn-ramp")
def minimind_is_yarn(
    findings: Findings,
    formula: Formula,
    geometry: Shape,
    factor: float,
    beta_fast: float,
) -> None:
    """Compare the frequencies of MiniMind's code with those of YaRN, in MiniMind and in
    another model, and the attention factors.
    """

    def compare_frequencies(role: Role, what: str, model: Geometry) -> None:
        yarn = Yarn(factor=factor, beta_fast=beta_fast).plan(model, 0)
        minimind = minimind_frequencies(formula, model, factor, beta_fast)
        ratio = largest_ratio(minimind, yarn.inv_freq)
        are_equal = ratio <= 1 + SAME
        text = "equal" if are_equal else f"up to {ratio:.2f} times apart"
        findings.add(role, what, text, are_equal, ratio)

    model = Geometry(*geometry)
    what = f"frequencies as shipped (factor {factor:g})"
    compare_frequencies("part", what, model)
    what = (
        f"frequencies with base {MANY_ROTATIONS.base:g}, trained length"
        f" {MANY_ROTATIONS.trained_len}"
    )
    compare_frequencies("limit", what, MANY_ROTATIONS)
    # MiniMind applies no attention factor.
    yarn_factor = Yarn(factor=factor).plan(model, 0).attention_factor
    is_one = abs(1 - yarn_factor) <= SAME
    text = f"1, YaRN's is {yarn_factor:.4f}"
    findings.limit("attention factor", text, is_one, yarn_factor)


def make_chain(preset: str) -> Chain:
    """Return an implementation that rounds its stages as a preset says."""
    return chain_of(preset_named(preset).plan, BASE, HEAD)


def angle_errors(preset: str, length: int) -> Worst:
    """Return the worst angle error of any pair in the far half of a length."""
    # The error of an angle grows with the position, so the near half need not be
    # searched.
    half = length // 2
    return worst(make_chain(preset), half, length - half)


@claim("float32-enough", bound=ANGLE_RAD)
def angles_good_enough(
    findings: Findings,
    preset: str = "float32",
    longer: Sequence[int] = (1 << 20, 10_000_000),
) -> None:
    """Measure the worst angle error at several lengths, and find the first one beyond the
    tolerance.
    """
    lengths = (FLOAT32_LENGTH, *longer)
    for length in lengths:
        worst_angle = angle_errors(preset, length)
        role: Role = "part" if length == FLOAT32_LENGTH else "limit"
        what = f"worst angle error up to {length:,}"
        text = f"{{:.2g}} rad at {worst_angle.position} (pair {worst_angle.pair})"
        findings.within(what, worst_angle.error_rad, ANGLE_RAD, text, role)

    implementation = make_chain(preset)
    octaves = worst_by_octave(implementation, 0, max(lengths))
    first = first_beyond(implementation, octaves, ANGLE_RAD)
    text = "nowhere" if first is None else f"position {first:,}"
    findings.limit("first error beyond the tolerance", text, first is None, first)


@claim("bfloat16-breaks", bound=BROKEN)
def shift_breaks_scores(
    findings: Findings,
    preset: str = "half_cache_bfloat16",
    careful: str = "transformers_llama",
    seed: int = 0,
) -> None:
    """Measure how much scores change when both positions move, in an implementation that
    rounds to bfloat16, and in one that is more careful.
    """
    draws = draw(512, HEAD // 2, "random", seed)
    query_positions = np.array([61.0])
    key_positions = np.array([0.0])
    shifts = np.array(SHIFTS, dtype=float)

    def measure_changes(name: str) -> tuple[str, bool, float]:
        """Return the changes by shift in words, whether all break scores, and the
        largest. They are shares of a typical score.
        """
        implementation = make_chain(name)
        # [shifts, draws, 1]
        errors = shift_errors(implementation, draws, 0, query_positions, shifts)
        unmoved = scores(implementation, draws, query_positions, key_positions)
        # Root mean squares are compared, because single scores may be close to 0.
        typical_score = np.sqrt(np.square(unmoved).mean())
        typical_errors = np.sqrt(np.square(errors).mean(axis=(1, 2)))
        shares = (typical_errors / typical_score).tolist()
        text = " and ".join(f"{share:.1%}" for share in shares)
        return text, min(shares) > BROKEN, max(shares)

    listed = " and ".join(f"{shift:,}" for shift in SHIFTS)
    what = f"change of a typical score when both positions move by {listed}, {preset}"
    text, breaks, largest = measure_changes(preset)
    findings.part(what, text, breaks, largest)
    text, breaks, largest = measure_changes(careful)
    findings.limit(careful, text, breaks, largest)


@claim("critical-dimension")
def critical_dimension(findings: Findings, printed: int = 92) -> None:
    """Count the features whose pairs complete a rotation in the trained length."""
    rotates_fully = rotations(LLAMA_2.inv_freq, LLAMA_2.trained_len) >= 1
    # A pair has two features.
    features = 2 * int(rotates_fully.sum())
    what = f"features whose pairs turn fully in {LLAMA_2.trained_len} tokens"
    text = f"{features} of {LLAMA_2.rotary_dim}"
    findings.part(what, text, features == printed, features)


@claim(
    "reported-gpt-neox-1003",
    "reported-candle-3520",
    "reported-diffusers-13920",
    "reported-modalities-462",
    "reported-tensorrt-llm-18774",
    "reported-transformers-48428",
    "reported-mlx-lm-1076",
)
def same_numbers(findings: Findings, link: str) -> None:
    """Compare the numbers of a reported fault with ours; `link` is the report."""
    rows = incidents()
    for _, row in rows[rows["source"] == link].iterrows():
        what = f"{row['measure']} ({row['meaning']}; {row['plan']})"
        text = f"{row['ours']:.6g}, reported {row['reported']:g}"
        findings.part(what, text, row["verdict"] == "agrees", float(row["ours"]))


# Printed least bases for a context length, against exact bounds (arXiv:2405.14591)


def _exact(runs: Sequence[Stored]) -> dict[int, float]:
    """Return the exact bound of each context that a stored run has."""
    if not runs:
        return {}
    tables = [run.tables["bound"] for run in runs]
    return published.exact_bases(pd.concat(tables))


@claim("base-bound-table", "base-bound-table-su")
def bases_are_least(
    findings: Findings,
    by: str = "men",
    printed: Table = (),
    runs: Sequence[Stored] = (),
) -> None:
    """Look for bases below the printed ones with no negative sum of cosines.

    `printed` are the printed bases, by default those of the publication `by`.
    """
    # A stored exact bound decides. A grid of bases can only refute, because bases that
    # work may lie between its points.
    printed = printed or PRINTED[by]
    exact_bases = _exact(runs)
    loose_texts = []
    exactly_known = 0
    for context, base in printed:
        # The least number that is rounded to the printed base.
        last_digit = 10.0 ** (math.floor(math.log10(base)) + 1 - published.DIGITS)
        least = base - last_digit / 2
        if context in exact_bases:
            exactly_known += 1
            smaller = exact_bases[context]
        else:
            smaller = _search_grid(context, 0.5 * base, least)
        if smaller < least:
            # The base is rounded up, since the next smaller number need not work.
            rounded_up = math.ceil(10 * smaller) / 10
            loose_texts.append(f"{context}: {rounded_up:,.1f} works below {base:g}")

    all_are_exact = exactly_known == len(printed)
    how = f"{exactly_known} contexts exactly, the others on a grid of {STEP:.1%}"
    if all_are_exact:
        how = "all contexts exactly"
    what = f"printed bases, d = {HEAD}, below which another works ({how})"
    text = write_hits(len(loose_texts), len(printed))
    if loose_texts:
        text += f" ({', '.join(loose_texts)})"

    agrees: bool | None = None
    if loose_texts:
        agrees = False
    elif all_are_exact:
        agrees = True
    findings.part(what, text, agrees, len(loose_texts))


def _search_grid(context: int, low: float, high: float) -> float:
    """Return the first base of a grid from `low` to `high` with no negative sum of
    cosines in a context; inf if there is none.
    """
    similarity = Similarity.of_head(HEAD)
    for log_base in np.arange(math.log(low), math.log(high), STEP):
        base = math.exp(log_base)
        if first_negative(similarity, base, context) is None:
            return base
    return math.inf


@claim("base-bound-fit", bound=FIT)
def fit_is_right(findings: Findings, runs: Sequence[Stored] = ()) -> None:
    """Compare the printed power law, and its exponent, with exact bounds."""
    base_of_context = _exact(runs)
    count = len(base_of_context)
    if count < 5:
        findings.missing("exact bounds", f"{count} stored contexts, needs 5")
        return
    contexts = np.array(list(base_of_context), dtype=float)
    exact_bases = np.array(list(base_of_context.values()))

    printed_bases = published.FIT_FACTOR * contexts**published.FIT_EXPONENT
    ratios = printed_bases / exact_bases
    error = float(np.abs(ratios - 1).max())
    what = (
        f"printed law over exact bound, {contexts[0]:.0f} to {contexts[-1]:.0f} tokens"
    )
    text = f"{ratios.min():.2f} to {ratios.max():.2f}"
    findings.part(what, text, error <= FIT, error)

    # A power law is a straight line between logarithms, and its slope is the exponent.
    slope, _ = np.polyfit(np.log(contexts), np.log(exact_bases), 1).tolist()
    what = "exponent that fits the exact bounds"
    text = f"{slope:.3f}, printed {published.FIT_EXPONENT}"
    is_printed = abs(slope - published.FIT_EXPONENT) <= 0.005
    findings.limit(what, text, is_printed, slope)


@claim("base-10000")
def balances(findings: Findings, base: float = 1e4) -> None:
    """Find the first distance with a negative sum of cosines, for the heads of two
    models.
    """
    # The name of each model, the features of its heads, and the length of its texts.
    models: tuple[tuple[Role, str, int, int], ...] = (
        ("part", "English RoFormer", 64, 512),
        ("limit", "Llama 2", 128, 4096),
    )
    for role, model, head_dim, length in models:
        # The search goes far beyond both lengths, so that a failure there is reported,
        # too.
        first = first_negative(Similarity.of_head(head_dim), base, 1 << 18)
        is_inside_safe = first is None or first >= length
        what = (
            f"base {base:g}, heads of {head_dim}: first distance at which the sum of"
            f" cosines is negative, for texts of {length:,} ({model})"
        )
        text = "none" if first is None else f"{first:,} tokens"
        findings.add(role, what, text, is_inside_safe, first)
