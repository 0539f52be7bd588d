"""Checks of published methods and numbers: scaling, dates, precision, bounds on the
base.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

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

# Rotary dimension, base, trained length.
Shape = tuple[int, float, int]
MINIMIND: Shape = (64, 1e6, 2048)
LLAMA_2 = Geometry(128, 1e4, 4096)
# A model whose slowest pair, too, rotates more than once within the trained length.
MANY_TURNS = Geometry(64, 1e4, 131072)
# The tested length of claims about MiniMind.
LONGER = 8192
# The tested length of claims about float32.
FLOAT32_LENGTH = 1 << 17
# Primes just above 2^12 and 2^16: bfloat16 has 8 bits for them.
SHIFTS = (4099, 65537)
# The step between tried bases, in logarithms.
STEP = 4e-3
# A name and an arXiv number.
Paper = tuple[str, str]
# The arXiv number of the RoFormer paper.
ROPE = "2104.09864"
# The head and the base of the claims about numbers, which no model is named for.
HEAD = 128
BASE = 10000.0
# Context lengths and the base printed for each.
Table = Sequence[tuple[int, float]]
# Printed bases for 1k to 32k tokens, by publication.
PRINTED: dict[str, Table] = {
    name: tuple(zip(published.CONTEXTS, bases, strict=True))[:6]
    for name, bases in (("men", published.MEN), ("su", published.SU))
}


def find_unseen_shares(
    geometry: Geometry, inv_freq: Array, length: float
) -> Float[Array, " pairs"]:
    """Return the share of the circle that a pair meets only beyond the trained
    length.
    """
    seen = rotations(geometry.inv_freq, geometry.trained_len).clip(max=1)
    return (rotations(inv_freq, length).clip(max=1) - seen).clip(min=0)


def largest_ratio(a: Array, b: Array) -> float:
    """Return the ratio of two sets of frequencies in their worst pair, at least 1."""
    # The logarithm treats twice as fast and half as fast alike.
    return math.exp(float(np.abs(np.log(a / b)).max()))


@claim("unseen-angles")
def slow_pairs_meet_new_angles(findings: Findings, geometry: Shape = MINIMIND) -> None:
    model = Geometry(*geometry)
    new = find_unseen_shares(model, model.inv_freq, LONGER) > SAME
    fast = rotations(model.inv_freq, model.trained_len) >= 1
    turned = f"pairs with a full turn in {model.trained_len} tokens"
    for what, pairs in (
        (f"{turned} that meet no new angle at {LONGER}", ~new[fast]),
        ("slower pairs that meet new angles", new[~fast]),
    ):
        hits = int(pairs.sum())
        total = len(pairs)
        findings.part(what, f"{hits} of {total}", hits == total > 0, hits)


@claim("yarn-seen-angles")
def yarn_brings_angles_back(findings: Findings, length: int = LONGER) -> None:
    model = Geometry(*MINIMIND)
    yarn = Yarn(factor=length / model.trained_len)
    plan = yarn.plan(model, length)
    beta_fast = yarn.beta_fast
    inv_freq = model.inv_freq
    scaled = plan.inv_freq
    before, after = (
        int((find_unseen_shares(model, x, length) > SAME).sum())
        for x in (inv_freq, scaled)
    )
    fast = rotations(inv_freq, model.trained_len) >= beta_fast
    changed = int(((scaled / inv_freq)[fast] < 1 - SAME).sum())

    text = f"{before} before, {after} after"
    findings.part(
        f"pairs that meet new angles at {length}", text, after == 0 < before, after
    )
    what = f"pairs with {beta_fast:g} turns or more in training that YaRN changes"
    findings.part(what, f"{changed} of {int(fast.sum())}", changed == 0, changed)
    logits = plan.logit_multiplier
    what = "every logit, also of the pairs that are kept, is multiplied by"
    findings.limit(what, f"{logits:.4f}", abs(logits - 1) <= SAME, logits)


@claim("yarn-dynamic")
def adjusts(findings: Findings, method: str = "yarn(factor=4)") -> None:
    model = Geometry(*MINIMIND)
    scaling = parse_scaling(method)
    off = largest_ratio(
        *(scaling.plan(model, length).inv_freq for length in (4096, LONGER))
    )
    what = f"frequencies of {method} for 4096 and {LONGER} tokens"
    differ = off > 1 + SAME
    shown = f"{off:.2f} times apart" if differ else "equal"
    findings.part(what, shown, differ, off)


@claim("dynamic-free-short")
def same_inside(findings: Findings, method: str = "dynamic_ntk") -> None:
    lengths = (2, 1024, LLAMA_2.trained_len)
    plans = [parse_scaling(method).plan(LLAMA_2, length) for length in lengths]
    off = max(largest_ratio(plan.inv_freq, LLAMA_2.inv_freq) for plan in plans)
    logits = max(abs(plan.logit_multiplier - 1) for plan in plans)
    what = f"frequencies of {method} against none, in up to {lengths[-1]} tokens"
    are_equal = off <= 1 + SAME
    shown = "equal" if are_equal else f"{off:.2f} times apart"
    findings.part(what, shown, are_equal, off)
    findings.part("and logits", f"{logits:.2g} apart", logits <= SAME, logits)


@claim("yarn-one-ramp")
def ramps_agree(findings: Findings, factor: float = 16.0) -> None:
    paper, coded = (
        each(factor=factor).plan(LLAMA_2, 0).inv_freq for each in (YarnPaper, Yarn)
    )
    ratio = coded / paper
    apart = largest_ratio(coded, paper)
    pair = int(np.abs(np.log(ratio)).argmax())
    differing = int((np.abs(ratio - 1) > SAME).sum())

    text = f"{differing} of {len(ratio)}, pair {pair} by {apart:.2f} times"
    findings.part(
        f"factor {factor:g}, pairs whose frequencies differ",
        text,
        differing == 0,
        apart,
    )


@claim("ntk-ends")
def ntk_keeps_the_ends(findings: Findings, factor: float = 16.0) -> None:
    ratio = LLAMA_2.inv_freq / NtkAware(factor=factor).plan(LLAMA_2, 0).inv_freq
    for name, divided, wanted in (
        ("first", ratio[0], 1.0),
        ("last", ratio[-1], factor),
    ):
        by = float(divided)
        right = abs(float(divided) / wanted - 1) <= SAME
        findings.part(f"{name} pair divided by", f"{by:.12g}", right, by)


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
    """Compare the year given for each kind with its example and with its first paper."""
    findings.expected = ", ".join(f"{what} {year}" for what, year, _, _ in said)
    for what, said_year, (example, example_number), (first, first_number) in said:
        example_year = int(month(example_number)[:4])
        first_year = int(month(first_number)[:4])
        # A year beside an example may be that of the example or that of the kind.
        fits = said_year in (example_year, first_year)
        shown = f"{example}, {month(example_number)}"
        findings.part(f"{what}, {said_year}: the example", shown, fits, example_year)
        both = example_year == first_year == said_year
        shown = f"{first}, {month(first_number)}"
        findings.limit(
            f"{what}, {said_year}: the first of them", shown, both, first_year
        )


@claim("shaw-earliest")
def is_earliest(
    findings: Findings, paper: Paper, others: Sequence[Paper], outside: Paper
) -> None:
    earliest = all(float(paper[1]) < float(number) for _, number in others)
    shown = ", ".join(f"{name} {month(number)}" for name, number in others)
    findings.part(f"{paper[0]} {month(paper[1])}, the others", shown, earliest)
    findings.limit(outside[0], month(outside[1]), float(paper[1]) < float(outside[1]))


@claim("deberta-year", "alibi-year")
def year_of(findings: Findings, name: str, arxiv: str, printed: int, said: int) -> None:
    """Accept the year of the preprint; that of the proceedings is one condition
    later.
    """
    year = int(month(arxiv)[:4])
    text = f"{month(arxiv)} and {printed}"
    findings.part(
        f"{name}, arXiv:{arxiv} and in print", text, said in (year, printed), year
    )
    findings.limit("first published", month(arxiv), year == said, year)


@claim("llama-rope")
def is_configured(findings: Findings, models: Sequence[str]) -> None:
    configured = []
    for name in models:
        model = MODELS.get(name)
        if model is not None:
            width = f"{model.rotary_width} of {model.head_dim} features"
            configured.append(f"{name}: base {model.base:g}, {width}")
    shown = "; ".join(configured)
    if not configured:
        shown = "nothing"
    # A model whose configuration is not at hand leaves the claim open.
    agrees = True if len(configured) == len(models) else None
    findings.part("what the configurations say", shown, agrees)


@claim("large-models-use")
def large_models_use(
    findings: Findings, published: Sequence[tuple[str, str, str]]
) -> None:
    """Count position encodings: of the configurations at hand, and of papers."""
    usual = ("RoPE", "ALiBi")

    # `ropelab models` lists models by their rotary numbers, so all of these have RoPE.
    what = "models that ropelab knows by configuration, RoPE or ALiBi"
    known = len(MODELS)
    findings.limit(what, f"{known} of {known}, chosen for RoPE", True, known)
    kinds = [kind for _, _, kind in published]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    chosen = sum(counts.get(kind, 0) for kind in usual)
    listed = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    what = "large language models of papers, 2020 to 2023, RoPE or ALiBi"
    text = f"{chosen} of {len(kinds)} ({listed})"
    findings.part(what, text, 2 * chosen > len(kinds), chosen)
    others = [name for name, _, kind in published if kind not in usual]
    what = "those with something else"
    findings.limit(what, ", ".join(others) or "none", not others, len(others))


@claim("gpt-3-rope", "gpt-4-rope")
def could_use(findings: Findings, name: str, user: str) -> None:
    """Refute that a model published before RoPE uses it; `user` is empty if
    unpublished.
    """
    if user:
        text = f"{month(user)} (arXiv:{user}), RoPE in {month(ROPE)}"
        findings.part(f"{name}'s paper appeared in", text, float(user) >= float(ROPE))
    else:
        findings.part(f"{name}'s architecture", "not published", None)


@claim("yarn-llama-2")
def released_lengths(
    findings: Findings, claimed: int = 32768, finetuned: bool = True
) -> None:
    # The released lengths are those in the README of jquesnelle/yarn.
    released = (8192, 32768, 65536, 131072)
    shown = ", ".join(map(str, released))
    right = claimed in released
    findings.part(
        "YaRN models released for the 4096-token model", shown, right, max(released)
    )
    text = "no, all were fine-tuned" if finetuned else "yes"
    findings.limit("reached without fine-tuning", text, not finetuned)


@claim("yarn-code-llama")
def made_by_yarn(
    findings: Findings, base: float = 1e6, said: tuple[int, int] = (16, 100)
) -> None:
    # The abstract of arXiv:2308.12950: trained at 16k, improves up to 100k.
    findings.part("lengths in Code Llama's paper", "16k and 100k", said == (16, 100))
    published = frequencies(LLAMA_2.rotary_dim, base)
    # Quarter octaves are fine enough: with any factor some pair is off several times.
    off, best = min(
        (
            largest_ratio(published, Yarn(factor=factor).plan(LLAMA_2, 0).inv_freq),
            factor,
        )
        for factor in (2 ** (k / 4) for k in range(33))
    )
    what = (
        f"base {base:g} against the nearest YaRN of base {LLAMA_2.base:g} (factor"
        f" {best:.3g})"
    )
    findings.within(what, off, 1.01, "frequencies up to {:.1f} times apart")


Formula = Literal["beta per pair", "linear ramp"]


def minimind_frequencies(
    formula: Formula, geometry: Geometry, factor: float, beta_fast: float
) -> Float[Array, " pairs"]:
    inv_freq = geometry.inv_freq
    if formula == "beta per pair":
        # (b s - b + 1)/(b s) with b from 1 to beta_fast, for pairs that rotate fully;
        # else 1/s.
        beta = np.linspace(1, beta_fast, geometry.pairs)
        within = rotations(inv_freq, geometry.trained_len) >= 1
        return inv_freq * np.where(
            within, (beta * factor - beta + 1) / (beta * factor), 1 / factor
        )
    # YaRN's ramp with its end held at the last pair instead of the last feature.
    low, high = Yarn(factor=factor, beta_fast=beta_fast).ramp_range(geometry)
    high = min(high, geometry.pairs - 1)
    ramp = ((np.arange(geometry.pairs) - low) / max(high - low, 0.001)).clip(0, 1)
    return inv_freq * (1 - ramp + ramp / factor)


@claim("minimind-yarn-beta", "minimind-yarn-ramp")
def minimind_is_yarn(
    findings: Findings,
    formula: Formula,
    geometry: Shape,
    factor: float,
    beta_fast: float,
) -> None:
    def add(role: Role, what: str, model: Geometry) -> None:
        yarn = Yarn(factor=factor, beta_fast=beta_fast).plan(model, 0)
        ours = minimind_frequencies(formula, model, factor, beta_fast)
        ratio = largest_ratio(ours, yarn.inv_freq)
        is_same = ratio <= 1 + SAME
        shown = "equal" if is_same else f"up to {ratio:.2f} times apart"
        findings.add(role, what, shown, is_same, ratio)

    model = Geometry(*geometry)
    add("part", f"frequencies as shipped (factor {factor:g})", model)
    trained = f"trained length {MANY_TURNS.trained_len}"
    add("limit", f"frequencies with base {MANY_TURNS.base:g}, {trained}", MANY_TURNS)
    # MiniMind applies no attention factor.
    yarn = Yarn(factor=factor).plan(model, 0).attention_factor
    findings.limit(
        "attention factor", f"1, YaRN's is {yarn:.4f}", abs(1 - yarn) <= SAME, yarn
    )


def chain(preset: str) -> Chain:
    return chain_of(preset_named(preset).plan, BASE, HEAD)


def angle_errors(preset: str, length: int) -> Worst:
    """Return the worst angle error of any pair in the far half of a length."""
    # The error of an angle grows with the position, so the near half need not be
    # searched.
    return worst(chain(preset), length // 2, length - length // 2)


@claim("float32-enough", bound=ANGLE_RAD)
def angles_good_enough(
    findings: Findings,
    preset: str = "float32",
    longer: Sequence[int] = (1 << 20, 10_000_000),
) -> None:
    lengths = (FLOAT32_LENGTH, *longer)
    for end in lengths:
        error = angle_errors(preset, end)
        text = f"{{:.2g}} rad at {error.position} (pair {error.pair})"
        role: Role = "part" if end == FLOAT32_LENGTH else "limit"
        findings.within(
            f"worst angle error up to {end:,}", error.error_rad, ANGLE_RAD, text, role
        )
    everything = worst_by_octave(chain(preset), 0, max(lengths))
    first = first_beyond(chain(preset), everything, ANGLE_RAD)
    where = "nowhere" if first is None else f"position {first:,}"

    findings.limit("first error beyond the tolerance", where, first is None, first)


@claim("bfloat16-breaks", bound=BROKEN)
def shift_breaks_scores(
    findings: Findings,
    preset: str = "half_cache_bfloat16",
    careful: str = "transformers_llama",
    seed: int = 0,
) -> None:
    draws = draw(512, HEAD // 2, "random", seed)
    distance = np.array([61.0])
    nothing = np.array([0.0])

    def changes(name: str) -> tuple[str, bool, float]:
        # Root mean squares, as single scores may be close to 0.
        implementation = chain(name)
        moved = shift_errors(
            implementation, draws, 0, distance, np.array(SHIFTS, dtype=float)
        )
        typical = np.sqrt(
            np.square(scores(implementation, draws, distance, nothing)).mean()
        )
        shares = (np.sqrt(np.square(moved).mean((1, 2))) / typical).tolist()
        return (
            " and ".join(f"{x:.1%}" for x in shares),
            min(shares) > BROKEN,
            max(shares),
        )

    far = " and ".join(f"{shift:,}" for shift in SHIFTS)

    what = f"change of a typical score when both positions move by {far}, {preset}"
    findings.part(what, *changes(preset))
    findings.limit(careful, *changes(careful))


@claim("critical-dimension")
def critical_dimension(findings: Findings, printed: int = 92) -> None:
    # Two features for each pair that turns fully.
    counted = 2 * int((rotations(LLAMA_2.inv_freq, LLAMA_2.trained_len) >= 1).sum())
    what = f"features whose pairs turn fully in {LLAMA_2.trained_len} tokens"
    findings.part(
        what, f"{counted} of {LLAMA_2.rotary_dim}", counted == printed, counted
    )


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
    """Look for bases below the printed ones with no negative sum of cosines."""
    # A stored exact bound decides; a grid can only refute, as windows may be between
    # its points.
    printed = printed or PRINTED[by]
    exact = _exact(runs)
    similarity = Similarity.of_head(HEAD)
    loose = {}
    for context, base in printed:
        # The least number that is rounded to the printed base.
        least = base - 10.0 ** (math.floor(math.log10(base)) + 1 - published.DIGITS) / 2
        grid = map(math.exp, np.arange(math.log(0.5 * base), math.log(least), STEP))
        works = (u for u in grid if first_negative(similarity, u, context) is None)
        smaller = exact.get(context) or next(works, math.inf)
        if smaller < least:
            # Rounded up, since the next smaller number need not work.
            shown = math.ceil(10 * smaller) / 10
            loose[context] = f"{context}: {shown:,.1f} works below {base:g}"
    text = write_hits(len(loose), len(printed))
    if loose:
        text += f" ({', '.join(loose.values())})"

    known = [context for context, _ in printed if context in exact]
    all_are_exact = len(known) == len(printed)
    how = f"{len(known)} contexts exactly, the others on a grid of {STEP:.1%}"
    if all_are_exact:
        how = "all contexts exactly"
    what = f"printed bases, d = {HEAD}, below which another works ({how})"

    agrees: bool | None = None
    if loose:
        agrees = False
    elif all_are_exact:
        agrees = True
    findings.part(what, text, agrees, len(loose))


@claim("base-bound-fit", bound=FIT)
def fit_is_right(findings: Findings, runs: Sequence[Stored] = ()) -> None:
    known = _exact(runs)
    if len(known) < 5:
        findings.missing("exact bounds", f"{len(known)} stored contexts, needs 5")
        return
    contexts = np.array(list(known), dtype=float)
    exact = np.array(list(known.values()))
    # A power law is a straight line between logarithms.
    slope = float(np.polyfit(np.log(contexts), np.log(exact), 1)[0])
    ratio = published.FIT_FACTOR * contexts**published.FIT_EXPONENT / exact
    off = float(np.abs(ratio - 1).max())

    what = (
        f"printed law over exact bound, {contexts[0]:.0f} to {contexts[-1]:.0f} tokens"
    )
    findings.part(what, f"{ratio.min():.2f} to {ratio.max():.2f}", off <= FIT, off)
    what = "exponent that fits the exact bounds"
    text = f"{slope:.3f}, printed {published.FIT_EXPONENT}"
    findings.limit(what, text, abs(slope - published.FIT_EXPONENT) <= 0.005, slope)


@claim("base-10000")
def balances(findings: Findings, base: float = 1e4) -> None:
    # Searched far beyond both lengths, so that the first failure is reported where
    # there is one.
    readers: tuple[tuple[Role, str, int, int], ...] = (
        ("part", "English RoFormer", 64, 512),
        ("limit", "Llama 2", 128, 4096),
    )
    for role, model, head, length in readers:
        fails = first_negative(Similarity.of_head(head), base, 1 << 18)
        shown = "none" if fails is None else f"{fails:,} tokens"
        what = (
            f"base {base:g}, heads of {head}: first distance at which the sum of cosines"
            f" is negative, for texts of {length:,} ({model})"
        )
        findings.add(role, what, shown, fails is None or fails >= length, fails)
