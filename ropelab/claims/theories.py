"""Checks of two theories of 2026: Liu's bounds on the base and Du et al.'s four modes
of failure.

Of both papers only abstracts and other people's summaries were at hand. Du et al. take
the score of a key at distance r, S(r) = sum_n C_n cos(r theta_n + phi_n), for a normal
number. Their modes stand here beside a null model without RoPE: independent normal
numbers of the same mean and spread.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd

from ropelab.claims.arrays import (
    Array,
    frequencies,
    gaussian,
    largest,
    rotate,
    softmax,
)
from ropelab.claims.periods import census, rope_frequencies
from ropelab.claims.record import Findings, claim
from ropelab.math.bounds import Similarity, first_negative, rules, scan
from ropelab.math.bounds.walls import chain_of, first_wrong_step, proved_below, walls
from ropelab.math.numerics.casts import PRESETS, preset_named
from ropelab.math.numerics.chain import span
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.runs.thresholds import ANGLE_RAD, FLOAT32_SCORES

# Both papers have Llama 3.1 8B as their example: the features of its heads, its base,
# and its context.
HEAD = 128
LLAMA_3_1 = 5e5
CONTEXT = 131072
# The length at which Du et al. count.
TOKENS = 8192
# Qwen3.5: the rotated features of a head, the base, and the context as released.
ROTATED = 64
QWEN_3_5 = 1e7
NATIVE = 262144
FLOAT32 = PRESETS["float32"].plan
EPSILON = FORMATS["float32"].epsilon
BASES = (1e4, LLAMA_3_1, 1e7)
# The number of random queries with their keys.
DRAWS = 12


def is_about(value: float, printed: float) -> bool:
    """Return True where neither number is more than twice the other."""
    return printed / 2 <= value <= printed * 2


def write_list(values: Sequence[float], form: str = ",.0f") -> str:
    """Write numbers with commas between them, all in one format."""
    return ", ".join(format(value, form) for value in values)


# Liu: bounds on the base


@claim("liu-aliasing", "liu-stability")
def phase_at_bound(findings: Findings, bound: str, head_dim: int = HEAD) -> None:
    """Test a lower bound on the base: as necessary, and as enough.

    The summaries print the bound for a slowest frequency of 1/base. That of a head is
    base^(-(d-2)/d), which is faster: narrower heads need a larger base.
    """
    base = rules.aliasing_base(CONTEXT)
    allowed = 2 * math.pi
    if bound == "stability":
        base = rules.stability_base(CONTEXT, 0.9, 1)
        allowed = math.acos(0.9)

    slowest = float(frequencies(head_dim, base)[-1])
    share = CONTEXT * slowest / allowed
    sufficient = (CONTEXT / allowed) ** (head_dim / (head_dim - 2))

    angle = f"angle of the slowest pair after {CONTEXT:,} tokens at the bound"
    what = f"{angle}, base {base:,.0f}, which a smaller base exceeds"
    shown = f"{share:.3f} times {allowed:.3f} rad (heads of {head_dim})"
    findings.part(what, shown, share >= 1, share)
    what = "the same, if the bound is to be enough"
    shown = f"{share:.3f} times; heads of {head_dim} need a base of {sufficient:,.0f}"
    findings.limit(what, shown, share <= 1.01, share)


@claim("liu-ambiguous")
def codes_alias(
    findings: Findings, base: float = 1e4, head_dim: int = HEAD, fmt: str = "float32"
) -> None:
    spectrum = rope_frequencies(head_dim, base)
    codes = census(spectrum, "vector", CONTEXT, (fmt,))[fmt]
    lost = CONTEXT - codes.distinct

    where = f"at base {base:g} in {fmt}"
    what = f"of {CONTEXT:,} positions without a code of their own {where}"
    bound = rules.aliasing_base(CONTEXT)
    shown = f"{lost:,} (the bound is {bound:,.0f})"
    findings.part(what, shown, lost > 0, lost)


@claim("liu-depth")
def drift_compounds(
    findings: Findings,
    layers: int = 32,
    carried: bool = False,
    shift: int = 4096,
    seed: int = 0,
) -> None:
    def last_scores(depth: int, start: int) -> Array:
        """Return the scores of the last of `depth` layers, positions from `start` on."""
        angles = (start + np.arange(16))[:, None] * frequencies(32, LLAMA_3_1)
        hidden = gaussian(seed, 16, 32)
        for layer in range(depth):
            # A layer draws the same weights at every depth and start.
            wq, wk, wv = gaussian(seed + layer + 1, 3, 32, 32) / 32**0.5
            q = rotate(hidden @ wq, angles)
            k = rotate(hidden @ wk, angles)
            v = hidden @ wv
            if carried:
                v = rotate(v, angles)
            scores = q @ k.T / 32**0.5
            hidden = hidden + softmax(scores) @ v
            hidden /= np.sqrt((hidden**2).mean(-1, keepdims=True))
        return scores

    def change_by_moving(depth: int) -> float:
        return largest(last_scores(depth, shift) - last_scores(depth, 0))

    first = change_by_moving(1)
    last = change_by_moving(layers)

    what = f"change of the scores of layer {layers} when all positions move by {shift}"
    reason = "q and k alone are rotated, no phase is passed on"
    text = f"{last:.0e} (layer 1: {first:.0e}): {reason}"
    findings.part(what, text, last > FLOAT32_SCORES, last)


@claim("liu-ceiling")
def neighbours_erased(
    findings: Findings, base: float = QWEN_3_5, component: str = "cosine and sine"
) -> None:
    def share_alike(head_dim: int, base: float, start: int, stop: int) -> Array:
        """Return the shares of neighbours with one cosine, and with one sine, too."""
        slowest = slice(-1, None)
        table = chain_of(FLOAT32, base, head_dim).table(span(start, stop), slowest)
        # A row of cosines and a row of sines.
        equal = np.diff(np.concatenate(table)) == 0
        return np.array([equal[0].mean(), equal.all(0).mean()])

    cos, both = share_alike(HEAD, base, 1_000_000, 1_002_001)
    share = float(both)
    if component == "cosine":
        share = float(cos)

    where = f"with one {component} in the slowest pair, base {base:g}"
    proved = f"below {proved_below(FLOAT32):,} none at any base"
    text = f"{share:.0%} (cosine alone {cos:.0%}); {proved}"
    findings.part(f"neighbours from 1,000,000 on {where}", text, share > 0.5, share)

    rows = []
    for head_dim in (64, 128, 256):
        for tried in (1e6, 1e7, 1e8):
            equal_cosines, _ = share_alike(head_dim, tried, 0, 1 << 20)
            rows.append((head_dim, tried, equal_cosines))
    columns = ["head_dim", "base", "equal_cosines_share"]
    findings.series["cosines"] = pd.DataFrame(rows, columns=columns)


@claim("wall-in-code")
def wall_in_code(findings: Findings, code: str = "float32") -> None:
    # The position does not change in one direction as the base grows: of these bases it
    # is least at 1e8.
    bases = (1e4, 1e7, 1e8, 1e11)
    table = walls({name: preset.plan for name, preset in PRESETS.items()}, bases, HEAD)
    positions = table[table["code"] == code]["first_equal_pair_position"]
    # Where no two positions are equal, the first is beyond every whole number of
    # float64.
    first = positions.fillna(2**53).tolist()

    stored = f"that the slowest pair of {code} first stores as the next"
    what = f"positions {stored}, bases 1e4, 1e7, 1e8, 1e11"
    # All bases but the first are above 1/eps of float32, so above 1/eps of narrower
    # formats, too.
    lost = min(first[1:]) < min(first[0], 1 << 20)
    findings.part(what, write_list(first, ","), lost, min(first))

    wrong = []
    for base in bases:
        wrong.append((base, first_wrong_step(base, HEAD, ANGLE_RAD, TOKENS)))
    findings.series["walls"] = table
    columns = ["base", "first_wrong_position"]
    findings.series["accumulated"] = pd.DataFrame(wrong, columns=columns)


@claim("liu-million")
def zone_closes(findings: Findings, layers: int = 32, printed: float = 1e6) -> None:
    def count_tokens(layers: int) -> float:
        """Return the tokens from which no base is left."""
        return 1 / (EPSILON * rules.stability_base(1, 0.9, layers))

    tokens = count_tokens(layers)
    tokens_of_others = [count_tokens(1), count_tokens(126)]

    what = f"tokens from which no base is between the bounds, {layers} layers"
    findings.part(what, f"{tokens:,.0f}", is_about(tokens, printed), tokens)
    same = all(is_about(other, printed) for other in tokens_of_others)
    what = "the same with 1 and 126 layers"
    findings.limit(what, write_list(tokens_of_others), same)


@claim("float64-angles", bound=ANGLE_RAD)
def float64_needed(
    findings: Findings,
    preset: str = "float32",
    base: float = QWEN_3_5,
    usual: float = 1e4,
) -> None:
    """Ask whether float32 angles are wrong at a base, and whether the base is why.

    An angle is wrong by its position times the rounding of a frequency, and this share
    is as large at every base. The tolerance alone would turn with the length.
    """

    def largest_error(base: float, end: int) -> float:
        chain = chain_of(preset_named(preset).plan, base, ROTATED)
        return largest(chain.angle_errors(span(end - TOKENS, end)))

    error = largest_error(base, NATIVE)
    usual_error = largest_error(usual, NATIVE)
    what = f"largest angle error of {preset} in the last {TOKENS} of {NATIVE:,} tokens"
    text = f"{error:.4f} rad at base {base:g}, {usual_error:.4f} at base {usual:g}"
    findings.part(what, text, error > usual_error, error)
    findings.part(
        f"the same, above {ANGLE_RAD:g} rad", f"{error:.4f}", error > ANGLE_RAD, error
    )

    longer = 4 * NATIVE
    errors = [largest_error(each, longer) for each in (base, usual)]
    findings.limit(
        f"the same in the last {TOKENS} of {longer:,} tokens",
        f"{errors[0]:.4f} rad at base {base:g}, {errors[1]:.4f} at {usual:g}",
        min(errors) > ANGLE_RAD,
    )


@claim("host-table-drift")
def host_drifts(
    findings: Findings, printed: Sequence[tuple[int, float]], base: float = QWEN_3_5
) -> None:
    chain = chain_of(FLOAT32, base, ROTATED)
    right = 0
    for position, said in printed:
        positions = np.array([float(position)])
        angles = chain.spectrum.inv_freq[:, None] * positions
        exact = [np.cos(angles), np.sin(angles)]
        off = np.abs(np.array(chain.table(positions)) - exact).max()
        if f"{off:.2e}" == f"{said:.2e}":
            right += 1

    what = "printed errors of cos and sin reproduced, to three digits"
    findings.count(what, right, len(printed))


# Du et al.: four modes, each beside independent normal numbers


@cache
def scores(base: float, shared: float, draw: int) -> tuple[Array, Array]:
    """Return the scores [2, TOKENS] of a query with two keys by distance, and those of
    the null.

    ``shared`` is the cosine of each key with the query.
    """
    vectors = gaussian(draw, 3, HEAD)
    # The two features of a pair are a complex number.
    query, *keys = vectors[:, : HEAD // 2] + 1j * vectors[:, HEAD // 2 :]
    waves = np.exp(1j * np.outer(np.arange(TOKENS), frequencies(HEAD, base)))
    mixed = (shared * query + math.sqrt(1 - shared**2) * key for key in keys)
    rope = np.stack([(waves @ (query * key.conj())).real for key in mixed])
    normal = gaussian(DRAWS + draw, *rope.shape)
    mean = rope.mean(1, keepdims=True)
    deviation = rope.std(1, keepdims=True)
    return rope, mean + deviation * normal


def equal_pairs(values: Array) -> int:
    """Count the pairs of equal columns."""
    counts = np.unique(values, axis=-1, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def far_wins(values: Array) -> float:
    """Return the share of pairs in which a key of the far half beats one of the near
    half.
    """
    half = len(values) // 2
    near = np.sort(values[:half])
    far = values[half:]
    beaten = np.searchsorted(near, far)
    return float(beaten.mean() / half)


def aligned_inversion(base: float, tokens: int) -> float:
    """Return `far_wins` for a key that equals the query, in the mean over queries."""
    return far_wins(scan(Similarity.of_head(HEAD), math.log(base), 0, tokens))


# The count for each mode of failure. It is made of the scores [2, TOKENS] of two keys by
# distance, at full precision and as stored.
MODES = {
    "position inversion": lambda full, stored: far_wins(full[0]),
    "position aliasing": lambda full, stored: equal_pairs(stored[:1]),
    "invariant attention": lambda full, stored: equal_pairs(stored),
    "token aliasing": lambda full, stored: (stored[0] == stored[1]).mean(),
}


@cache
def count_draws(
    mode: str, base: float, fmt: str = "bfloat16", shared: float = 0.0
) -> Array:
    """Return a mode with RoPE and in the null model, draw by draw: [2, DRAWS]."""
    drawn = [scores(base, shared, draw) for draw in range(DRAWS)]
    count = MODES[mode]
    rounded = FORMATS[fmt]
    counts = [[count(x, round_to(x, rounded)) for x in both] for both in drawn]
    return np.array(counts, dtype=float).T


def average_draws(values: Array) -> tuple[float, float]:
    """Return the mean over draws, and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def compare_with_null(findings: Findings, what: str, sample: Array) -> None:
    """Add a limit that disagrees where the null model has as many."""
    change, error = average_draws(sample[0] - sample[1])
    null = float(sample[1].mean())
    form = ",.0f" if null >= 1 else ".5f"
    text = f"{null:{form}}, RoPE {change:+{form}} ± {error:{form}}"
    what = f"{what} of independent normal numbers"
    findings.limit(what, text, change > 2 * error, change)


def token_inversion(base: float, distance: float) -> float:
    """Return the probability that the order of two keys at distance 0 is reversed
    there.
    """
    # Over normal queries and keys the differences of two scores at 0 and r are jointly
    # normal and correlate by the mean of cos(r theta): Men et al.'s sum, for queries of
    # equal weight.
    return math.acos(np.cos(distance * frequencies(HEAD, base)).mean()) / math.pi


@claim("du-position-inversion")
def positions_invert(
    findings: Findings, base: float = 1e4, large: float = LLAMA_3_1
) -> None:
    share = aligned_inversion(base, CONTEXT)
    other = aligned_inversion(large, CONTEXT)

    which = "where the farther wins, key equal to the query, base"
    what = f"pairs of {CONTEXT:,} distances {which}"
    findings.part(f"{what} {base:g}", f"{share:.2f}", share > 0.4, share)
    findings.limit(f"{what} {large:g}", f"{other:.2f}", other > 0.4, other)

    # If the key is replaced by its opposite, every comparison comes out the other way.
    shares: list[float] = []
    for draw in range(DRAWS):
        rope, _ = scores(large, 0.0, draw)
        short = rope[0, :256]
        shares.extend((far_wins(short), far_wins(-short)))
    mean_share = float(np.mean(shares))
    what = "the same in 256, random keys and their opposites"
    findings.limit(what, f"{mean_share:.2f}", mean_share < 0.4, mean_share)


@claim("du-position-aliasing", "du-invariant-attention")
def pairs_alias(
    findings: Findings,
    mode: str,
    printed: float,
    fmt: str = "bfloat16",
    open_because: str = "",
) -> None:
    sample = count_draws(mode, LLAMA_3_1, fmt)
    mean, error = average_draws(sample[0])
    right = is_about(mean, printed)

    what = f"{mode}: pairs of {TOKENS} distances in {fmt}, base {LLAMA_3_1:g}"
    findings.part(what, f"{mean:,.0f} ± {error:,.0f}, printed {printed:,}", right, mean)
    if open_because and not right:
        findings.leave_open(open_because)
    compare_with_null(findings, "pairs", sample)


@claim("du-token-inversion", "du-token-inversion-20k")
def tokens_invert(
    findings: Findings, base: float = LLAMA_3_1, said: float | None = None
) -> None:
    """Compute how often the order of two keys is reversed at a distance.

    `said` is the distance that a passage names; None for one as large as the base.
    """
    distance = base if said is None else said
    chance = token_inversion(base, distance)
    what = (
        f"probability of the reverse order at distance {distance:,.0f}, base {base:g}"
    )
    findings.part(what, f"{chance:.3f}", abs(chance - 0.5) <= 0.05, chance)
    first = first_negative(Similarity.of_head(HEAD), base, CONTEXT * 8) or math.inf
    text = f"{first:,}, {first / base:.2g} of the base"
    findings.limit(
        "first distance where it is above 1/2", text, is_about(first, distance), first
    )


@claim("du-token-aliasing")
def tokens_alias(
    findings: Findings, shared: float = 0.0, printed: float = 0.05
) -> None:
    sample = count_draws("token aliasing", LLAMA_3_1, shared=shared)
    bound = math.sqrt(HEAD / 2) / 2**7
    mean, error = average_draws(sample[0])
    what = f"share of {TOKENS} positions where two keys have one score"
    text = f"{mean:.2%} ± {error:.2%}, 2^-7 sqrt(64) = {bound:.2%}"
    findings.part(f"{what}, under the bound", text, mean <= bound, mean)
    findings.limit(
        what, f"{mean:.2%}, printed {printed:.0%}", is_about(mean, printed), mean
    )
    compare_with_null(findings, "share", sample)


@claim("du-trade-off")
def base_trades(findings: Findings, bases: Sequence[float] = BASES) -> None:
    head = Similarity.of_head(HEAD)
    firsts = [first_negative(head, base, CONTEXT * 8) or math.inf for base in bases]

    what = "token inversion: first distance above 1/2"
    findings.part(what, write_list(firsts), firsts == sorted(firsts))
    wins = [aligned_inversion(base, TOKENS) for base in bases]
    what = f"position inversion in {TOKENS} tokens, key equal to the query"
    findings.part(what, write_list(wins, ".2f"), wins == sorted(wins))
    rope, null = np.array(
        [count_draws("position aliasing", base).mean(1) for base in bases]
    ).T
    text = f"{write_list(rope)}; without RoPE {write_list(null)}"
    findings.limit("position aliasing: pairs", text, not all(map(is_about, rope, null)))
    shares = [count_draws("token aliasing", base)[0] for base in bases]
    change, error = average_draws(shares[-1] - shares[0])
    text = f"{write_list([x.mean() for x in shares], '.2%')} (± {error:.2%})"
    findings.limit(
        "token aliasing, which should fall", text, change < -2 * error, change
    )

    rows = [
        (
            mode,
            base,
            *(x for model in count_draws(mode, base) for x in average_draws(model)),
        )
        for mode in MODES
        for base in bases
    ]
    columns = [
        "mode",
        "base",
        "rope",
        "rope_standard_error",
        "null",
        "null_standard_error",
    ]
    findings.series["modes"] = pd.DataFrame(rows, columns=columns)
