"""Checks of claims of two theories of 2026: Liu's bounds on the base, and Du et al.'s
four modes of failure.

Only abstracts and other people's summaries of both papers were at hand. Du et al. take
the score of a key at distance r, S(r) = sum_n C_n cos(r theta_n + phi_n), for a normal
number. Their modes are compared here with a null model without RoPE: independent normal
numbers of the same mean and spread.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ropelab.claims.arrays import (
    Array,
    frequencies,
    gaussian,
    max_abs,
    softmax,
)
from ropelab.claims.periods import census, make_rope_frequencies
from ropelab.claims.record import Agrees, Findings, Role, claim
from ropelab.math.bounds import Similarity, find_first_negative, rules, scan
from ropelab.math.bounds.walls import (
    find_first_wrong_step,
    find_proved_limit,
    make_chain,
    make_walls_table,
)
from ropelab.math.numerics.casts import PRESETS, find_preset
from ropelab.math.numerics.chain import list_positions
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.runs.arrays import Float
from ropelab.runs.stats import Interval, average_samples
from ropelab.runs.thresholds import ANGLE_RAD, EXACT

# Both papers have Llama 3.1 8B as their example: the features of its heads, its base,
# and its context.
HEAD = 128
LLAMA_3_1 = 5e5
CONTEXT = 131072
# The length at which Du et al. count, in tokens.
TOKENS = 8192
# Qwen3.5: the rotated features of a head, the base, and the context as released.
ROTATED = 64
QWEN_3_5 = 1e7
NATIVE = 262144
# The plan of an implementation that rounds every stage to float32.
FLOAT32 = PRESETS["float32"].plan
EPSILON = FORMATS["float32"].epsilon
BASES = (1e4, LLAMA_3_1, 1e7)
# The number of random queries with their keys. The counts of a draw are skewed: a few
# draws have several times the usual one.
DRAWS = 100
# A mode of failure is RoPE's if it has more than the null model by this share of it at
# least: a few percent are not what the paper is about.
MORE = 0.1
# A probability counts as 1/2 if it is nearer to it than this.
NEAR_HALF = 0.05
# The farthest distance whose octaves are looked through.
FARTHEST = 2 * CONTEXT


def is_about(value: float, printed: float) -> bool:
    """Return True if neither number is more than twice as large as the other."""
    return printed / 2 <= value <= printed * 2


def write_list(values: Sequence[float], form: str = ",.0f") -> str:
    """Write numbers with commas between them, all in one format."""
    return ", ".join(format(value, form) for value in values)


# Liu: bounds on the base


@claim("liu-aliasing", "liu-stability")
def phase_at_bound(findings: Findings, bound: str, head_dim: int = HEAD) -> None:
    """Test a lower bound on the base, aliasing or stability: whether it is necessary, and
    whether it is sufficient.

    The bound allows the slowest pair an angle at the end of the context. The summaries
    print it for a slowest frequency of 1/base. That of a head is base^(-(d-2)/d), which is
    faster: narrower heads need a larger base.
    """
    base = rules.aliasing_base(CONTEXT)
    allowed_angle = 2 * math.pi
    if bound == "stability":
        base = rules.stability_base(CONTEXT, 0.9, 1)
        allowed_angle = math.acos(0.9)

    slowest = float(frequencies(head_dim, base)[-1])
    share = CONTEXT * slowest / allowed_angle
    what = (
        f"angle of the slowest pair after {CONTEXT:,} tokens at the bound, base"
        f" {base:,.0f}, which a smaller base exceeds"
    )
    text = f"{share:.3f} times {allowed_angle:.3f} rad (heads of {head_dim})"
    findings.add_part(what, text, share >= 1, share)

    sufficient_base = (CONTEXT / allowed_angle) ** (head_dim / (head_dim - 2))
    what = "the same, if the bound is to be enough"
    text = (
        f"{share:.3f} times; heads of {head_dim} need a base of {sufficient_base:,.0f}"
    )
    findings.add_limit(what, text, share <= 1.01, share)


@claim("liu-ambiguous")
def codes_alias(
    findings: Findings, base: float = 1e4, head_dim: int = HEAD, fmt: str = "float32"
) -> None:
    """Count the positions that share a code, at a base below Liu's bound."""
    spectrum = make_rope_frequencies(head_dim, base)
    counts = census(spectrum, "vector", CONTEXT, (fmt,))[fmt]
    shared = CONTEXT - counts.distinct

    bound = rules.aliasing_base(CONTEXT)
    what = f"of {CONTEXT:,} positions without a code of their own at base {base:g} in {fmt}"
    text = f"{shared:,} (the bound is {bound:,.0f})"
    findings.add_part(what, text, shared > 0, shared)


@claim("liu-depth")
def drift_compounds(
    findings: Findings,
    layers: int = 32,
    values: Literal["plain", "turned", "turned back"] = "plain",
    kept: float = 0.9,
    models: int = 64,
) -> None:
    """Follow a score of the slowest pair through the layers of random models.

    Two equal tokens are as far from each other as leaves `kept` of the score of a key that
    equals its query in the first layer. If phases are passed on, the two are no longer
    equal in the layers behind.

    Args:
        findings: the findings.
        layers: the number of layers.
        values: how a layer passes on what it reads: as it is; rotated by the position of
            the key; or rotated by that and back by the position of the query.
        kept: the cosine of the angle between the two positions, in the slowest pair.
        models: the number of random models, over which the score is averaged.
    """
    # The two features of the slowest pair are a complex number, and a rotation is a factor
    # of absolute value 1: that of each of both positions.
    turns = np.exp(1j * np.array([0.0, math.acos(kept)]))
    drawn = gaussian(0, layers + 1, 2, models, 2, 2)
    start = drawn[0, 0, :, 0]
    # All models have both tokens equal: [models, tokens, features].
    hidden = np.stack((start, start), axis=1)
    shares = []
    for weights in drawn[1:]:
        q_weights, v_weights = weights
        # Queries and keys have the same weights, so that a key can equal its query.
        query = _join_pair(hidden @ q_weights)
        rotated = query * turns  # [models, tokens]
        products = (rotated[:, :, None] * rotated[:, None].conj()).real
        lengths = np.abs(query)
        shares.append(products[:, 1, 0] / (lengths[:, 1] * lengths[:, 0]))

        value = _join_pair(hidden @ v_weights)
        if values != "plain":
            value = value * turns
        output = (softmax(products) @ value[:, :, None])[:, :, 0]
        if values == "turned back":
            output = output * turns.conj()
        hidden = hidden + np.stack((output.real, output.imag), axis=-1)
        # Each token gets a mean square of 1, as normalized layers have it.
        hidden /= np.sqrt((hidden**2).mean(axis=-1, keepdims=True))

    first = float(shares[0].mean())
    last = float(shares[-1].mean())
    what = (
        f"share of a score of the slowest pair that the rotation leaves in layer {layers},"
        f" where it leaves {first:.3g} in layer 1"
    )
    compounds = last < first - EXACT
    text = f"{last:.3g}"
    if not compounds:
        text += ": q and k alone are rotated, no phase is passed on"
    findings.add_part(what, text, compounds, last)

    power = kept**layers
    what = f"the share that the bound has for layer {layers}, {kept:g}^{layers}"
    is_power = abs(last - power) <= 0.05
    findings.add_limit(what, f"{power:.3f}", is_power, power)


def _join_pair(
    features: Float[Array, "models tokens 2"],
) -> Float[Array, "models tokens"]:
    """Return the two features of a pair as a complex number."""
    return features[..., 0] + 1j * features[..., 1]


@claim("liu-ceiling")
def neighbours_erased(
    findings: Findings, base: float = QWEN_3_5, component: str = "cosine and sine"
) -> None:
    """Count the neighbours that the slowest pair does not distinguish in float32:
    neighbours with equal cosines, or with equal cosines and sines (`component`).
    """

    def measure_shares(
        head_dim: int, base: float, start: int, stop: int
    ) -> tuple[float, float]:
        """Return the shares of neighbours with equal cosines, and of those whose sines
        are equal, too.
        """
        slowest = slice(-1, None)
        chain = make_chain(FLOAT32, base, head_dim)
        # Both have one row, for the slowest pair.
        (cos,), (sin,) = chain.table(list_positions(start, stop), slowest)
        has_equal_cos = np.diff(cos) == 0
        has_equal_sin = np.diff(sin) == 0
        both = has_equal_cos & has_equal_sin
        return float(has_equal_cos.mean()), float(both.mean())

    cosine_share, share = measure_shares(HEAD, base, 1_000_000, 1_002_001)
    if component == "cosine":
        share = cosine_share

    what = (
        f"neighbours from 1,000,000 on with one {component} in the slowest pair, base"
        f" {base:g}"
    )
    text = (
        f"{share:.0%} (cosine alone {cosine_share:.0%}); below"
        f" {find_proved_limit(FLOAT32):,} none at any base"
    )
    findings.add_part(what, text, share > 0.5, share)

    rows = []
    for head_dim in (64, 128, 256):
        for base_of_row in (1e6, 1e7, 1e8):
            cosine_share, _ = measure_shares(head_dim, base_of_row, 0, 1 << 20)
            rows.append((head_dim, base_of_row, cosine_share))
    columns = ["head_dim", "base", "equal_cosines_share"]
    findings.series["cosines"] = pd.DataFrame(rows, columns=columns)


@claim("wall-in-code")
def wall_in_code(findings: Findings, code: str = "float32") -> None:
    """Find the first position that the slowest pair of an implementation (`code`) stores
    as the next one (a wall), at several bases.
    """
    # The position does not change in one direction as the base grows: among these bases
    # the position is smallest at 1e8.
    bases = (1e4, 1e7, 1e8, 1e11)
    plans = {name: preset.plan for name, preset in PRESETS.items()}
    table = make_walls_table(plans, bases, HEAD)
    positions = table[table["code"] == code]["first_equal_pair_position"]
    # A position is missing if no two positions are equal. It then counts as beyond every
    # whole number of float64.
    first_positions = positions.fillna(2**53).tolist()

    # All bases but the first are above 1/eps of float32, so above 1/eps of narrower
    # formats, too: the claim says that these have walls.
    at_small_base, *at_large_bases = first_positions
    has_wall = min(at_large_bases) < min(at_small_base, 1 << 20)
    what = (
        f"positions that the slowest pair of {code} first stores as the next, bases 1e4,"
        " 1e7, 1e8, 1e11"
    )
    text = write_list(first_positions, ",")
    findings.add_part(what, text, has_wall, min(first_positions))

    rows = []
    for base in bases:
        rows.append((base, find_first_wrong_step(base, HEAD, ANGLE_RAD, TOKENS)))
    findings.series["walls"] = table
    columns = ["base", "first_wrong_position"]
    findings.series["accumulated"] = pd.DataFrame(rows, columns=columns)


@claim("liu-million")
def zone_closes(
    findings: Findings,
    depths: Sequence[int] = (32, 1, 126),
    printed: float = 1e6,
    kept: float = 0.9,
    stricter: float = 0.95,
) -> None:
    """Find the context from which Liu's lower bound on the base is above his upper one,
    1/eps, for models of several depths.

    The bound keeps a cosine, for which the summaries name no value: `kept`, and as a limit
    `stricter`.
    """

    def find_limit(layers: int, cosine: float) -> float:
        # The lower bound grows in proportion to the context.
        bound_per_token = rules.stability_base(1, cosine, layers)
        return 1 / (EPSILON * bound_per_token)

    for layers in depths:
        limit = find_limit(layers, kept)
        what = f"tokens from which no base is between the bounds, layers: {layers}"
        findings.add_part(what, f"{limit:,.0f}", is_about(limit, printed), limit)

    layers = depths[0]
    limit = find_limit(layers, stricter)
    what = f"with {layers} layers and a cosine of {stricter:g} in the place of {kept:g}"
    findings.add_limit(what, f"{limit:,.0f}", is_about(limit, printed), limit)


@claim("float64-angles", bound=ANGLE_RAD)
def float64_needed(
    findings: Findings,
    preset: str = "float32",
    base: float = QWEN_3_5,
    usual: float = 1e4,
) -> None:
    """Measure the largest angle error at a base and at the usual base.

    The error of an angle is its position times the rounding of a frequency, which is as
    large at every base. Errors must therefore be compared with the errors at another
    base: if the length is large enough, a fixed tolerance is exceeded at any base.
    """

    def find_largest_error(base: float, end: int) -> float:
        chain = make_chain(find_preset(preset).plan, base, ROTATED)
        return max_abs(chain.angle_errors(list_positions(end - TOKENS, end)))

    error = find_largest_error(base, NATIVE)
    usual_error = find_largest_error(usual, NATIVE)
    what = f"largest angle error of {preset} in the last {TOKENS} of {NATIVE:,} tokens"
    text = f"{error:.4f} rad at base {base:g}, {usual_error:.4f} at base {usual:g}"
    findings.add_part(what, text, error > usual_error, error)
    what = f"the same, above {ANGLE_RAD:g} rad"
    findings.add_part(what, f"{error:.4f}", error > ANGLE_RAD, error)

    longer = 4 * NATIVE
    error = find_largest_error(base, longer)
    usual_error = find_largest_error(usual, longer)
    what = f"the same in the last {TOKENS} of {longer:,} tokens"
    text = f"{error:.4f} rad at base {base:g}, {usual_error:.4f} at {usual:g}"
    findings.add_limit(what, text, min(error, usual_error) > ANGLE_RAD)


@claim("host-table-drift")
def host_drifts(
    findings: Findings, printed: Sequence[tuple[int, float]], base: float = QWEN_3_5
) -> None:
    """Compare printed errors of cos and sin in float32, by position, with the true
    errors.
    """
    chain = make_chain(FLOAT32, base, ROTATED)
    right = 0
    for position, printed_error in printed:
        positions = np.array([float(position)])
        exact_angles = chain.spectrum.inv_freq[:, None] * positions
        cos, sin = chain.table(positions)
        cos_error = np.abs(cos - np.cos(exact_angles)).max()
        sin_error = np.abs(sin - np.sin(exact_angles)).max()
        error = max(cos_error, sin_error)
        if f"{error:.2e}" == f"{printed_error:.2e}":
            right += 1

    what = "printed errors of cos and sin reproduced, to three digits"
    findings.add_count(what, right, len(printed))


# Du et al.: four modes of failure, each compared with independent normal numbers


@cache
def scores(base: float, shared: float, seed: int = 0) -> tuple[Array, Array]:
    """Return the scores of queries with two keys each by distance, [DRAWS, 2, TOKENS],
    with RoPE and in the null model.

    ``shared`` is the cosine of each key with its query.
    """
    vectors = gaussian(seed, DRAWS, 3, HEAD)
    # The two features of a pair are a complex number.
    pairs = vectors[..., : HEAD // 2] + 1j * vectors[..., HEAD // 2 :]
    query = pairs[:, :1]
    keys = shared * query + math.sqrt(1 - shared**2) * pairs[:, 1:]
    waves = np.exp(1j * np.outer(frequencies(HEAD, base), np.arange(TOKENS)))
    rope = (query * keys.conj() @ waves).real
    # The null model has the same mean and deviation for each key.
    normal = gaussian(seed + 1, *rope.shape)
    mean = rope.mean(axis=-1, keepdims=True)
    deviation = rope.std(axis=-1, keepdims=True)
    return rope, mean + deviation * normal


def count_equal_pairs(values: Array) -> int:
    """Count the pairs of equal columns of one row or two."""
    # Stored numbers fit float32, and a column of one or two of them is one whole number of
    # 32 or 64 bits, which sorts fast. Zero is added so that -0 becomes 0.
    columns = np.ascontiguousarray((values + 0.0).T, dtype=np.float32)
    codes = columns.view(np.uint32 if len(values) == 1 else np.uint64)
    _, counts = np.unique(codes, return_counts=True)
    pairs = counts * (counts - 1) // 2
    return int(pairs.sum())


def measure_far_wins(values: Array) -> float:
    """Return the share of pairs in which a key of the far half has a higher score than
    one of the near half. `values` are the scores by distance.
    """
    half = len(values) // 2
    near = np.sort(values[:half])
    far = values[half:]
    # The place of a far score among the sorted near scores is the number of near scores
    # below it.
    lower = np.searchsorted(near, far)
    return float(lower.mean() / half)


def aligned_inversion(base: float, tokens: int) -> float:
    """Return `measure_far_wins` for a key that equals the query, in the mean over queries."""
    return measure_far_wins(scan(Similarity.of_head(HEAD), math.log(base), 0, tokens))


# How each mode of failure is counted, from the scores of two keys by distance: [2, TOKENS],
# at full precision and as stored in a number format.
MODES = {
    "position inversion": lambda full, stored: measure_far_wins(full[0]),
    "position aliasing": lambda full, stored: count_equal_pairs(stored[:1]),
    "invariant attention": lambda full, stored: count_equal_pairs(stored),
    "token aliasing": lambda full, stored: (stored[0] == stored[1]).mean(),
}


@cache
def count_draws(
    mode: str,
    base: float,
    fmt: str = "bfloat16",
    shared: float = 0.0,
    seed: int = 0,
) -> Array:
    """Count a mode of failure in every draw: [2, DRAWS], with RoPE and in the null
    model.
    """
    count = MODES[mode]
    number_format = FORMATS[fmt]
    counts = []
    for model in scores(base, shared, seed):
        stored = round_to(model, number_format)
        counts.append([count(*draw) for draw in zip(model, stored, strict=True)])
    return np.array(counts, dtype=float)


def write_mean(interval: Interval, form: str) -> str:
    """Write a mean over draws with its interval."""
    ends = f"[{interval.low:{form}}, {interval.high:{form}}]"
    return f"{interval.value:{form}} {ends}"


def is_all_about(interval: Interval, printed: float) -> Agrees:
    """Return True if a whole interval is about a printed number, False if none of it is,
    and None for an interval that leaves this open.
    """
    ends = (is_about(interval.low, printed), is_about(interval.high, printed))
    if all(ends):
        return True
    # Both ends can be outside on two sides, with the printed number between them.
    is_around = interval.low < printed < interval.high
    return None if any(ends) or is_around else False


def compare_with_null(findings: Findings, what: str, sample: Array) -> None:
    """Add a limit that disagrees if the null model has about as many. `sample` is a result
    of `count_draws`.
    """
    rope, null = sample
    change = average_samples(rope - null)
    null_mean = float(null.mean())
    # Counts are written as whole numbers, shares in percent.
    form = ",.0f" if null_mean >= 1 else ".3%"
    text = f"{null_mean:{form}}, RoPE {write_mean(change, '+' + form)}"
    what = f"{what} of independent normal numbers"
    is_more = change.low > MORE * null_mean
    findings.add_limit(what, text, is_more, change.value)
    findings.mark_drawn(DRAWS)


def token_inversion(base: float, distance: ArrayLike) -> Array:
    """Return the probability that two keys have the opposite order at a distance of that
    at distance 0.
    """
    # The difference of the scores of two keys is taken at distance 0 and at distance r.
    # Given the query the two are jointly normal over normal keys, and correlate by the
    # mean of cos(r theta), weighted by the squares of the query's pairs: without the
    # weights Men et al.'s sum. Two such numbers have opposite signs with a probability of
    # acos(correlation) / pi. The weights vary from query to query, which changes the mean
    # of that probability by 0.001 or less.
    angles = np.multiply.outer(np.asarray(distance), frequencies(HEAD, base))
    correlation = np.cos(angles).mean(axis=-1)
    return np.arccos(correlation) / math.pi


def average_octave(base: float, start: int) -> float:
    """Return the mean of `token_inversion` over the distances from `start` to twice that.

    The probability itself goes up and down from one distance to the next, by 0.1 and more.
    """
    blocks = []
    for first in range(start, 2 * start, TOKENS):
        block = np.arange(first, min(first + TOKENS, 2 * start))
        blocks.append(token_inversion(base, block))
    return float(np.concatenate(blocks).mean())


def find_half(base: float) -> float:
    """Return the first distance from which on, over an octave, the mean of
    `token_inversion` is near 1/2; inf if there is none below FARTHEST / 2.
    """
    blocks = []
    for first in range(0, FARTHEST, TOKENS):
        blocks.append(token_inversion(base, np.arange(first, first + TOKENS)))
    # The sum of the probabilities of all distances below each.
    sums = np.concatenate(([0.0], np.concatenate(blocks).cumsum()))
    starts = np.arange(1, FARTHEST // 2)
    means = (sums[2 * starts] - sums[starts]) / starts
    is_near = np.abs(means - 0.5) <= NEAR_HALF
    return float(starts[is_near.argmax()]) if is_near.any() else math.inf


@claim("du-position-inversion")
def positions_invert(
    findings: Findings, base: float = 1e4, large: float = LLAMA_3_1
) -> None:
    """Count the pairs of distances at which the farther key has the higher score, at two
    bases, and for random keys.
    """
    lead = (
        f"pairs of {CONTEXT:,} distances where the farther wins, key equal to the query,"
        " base"
    )
    share = aligned_inversion(base, CONTEXT)
    findings.add_part(f"{lead} {base:g}", f"{share:.2f}", share > 0.4, share)
    share = aligned_inversion(large, CONTEXT)
    findings.add_limit(f"{lead} {large:g}", f"{share:.2f}", share > 0.4, share)

    # If the key is replaced by its opposite, every comparison comes out the other way.
    scores_of_key = gaussian(0, 256)
    shares = [measure_far_wins(scores_of_key), measure_far_wins(-scores_of_key)]
    mean_share = float(np.mean(shares))
    what = "the same in 256, random keys and their opposites"
    text = f"{mean_share:.2f}, exactly: of a key and its opposite one has it"
    findings.add_limit(what, text, mean_share < 0.4, mean_share)


@claim("du-position-aliasing", "du-invariant-attention")
def pairs_alias(
    findings: Findings,
    mode: str,
    printed: float,
    fmt: str = "bfloat16",
    open_because: str = "",
    seed: int = 0,
) -> None:
    """Count the pairs of distances with equal stored scores.

    `open_because` is the reason why another number than the printed one refutes nothing;
    empty if it does.
    """
    sample = count_draws(mode, LLAMA_3_1, fmt, seed=seed)
    rope, _ = sample
    mean = average_samples(rope)
    is_printed = is_all_about(mean, printed)

    what = f"{mode}: pairs of {TOKENS} distances in {fmt}, base {LLAMA_3_1:g}"
    text = f"{write_mean(mean, ',.0f')}, printed {printed:,}"
    findings.add_part(what, text, is_printed, mean.value)
    findings.mark_drawn(DRAWS)
    if is_printed is None:
        findings.leave_open(f"the interval reaches a half or twice of {printed:,}")
    elif open_because and not is_printed:
        findings.leave_open(open_because)
    compare_with_null(findings, "pairs", sample)


@claim("du-token-inversion", "du-token-inversion-20k")
def tokens_invert(
    findings: Findings,
    base: float = LLAMA_3_1,
    said: float | None = None,
    onset: bool = False,
) -> None:
    """Compute how often the order of two keys is reversed, over an octave of distances.

    Args:
        findings: the findings.
        base: the base.
        said: the distance that a passage names; None for one as large as the base.
        onset: True if the passage names the distance as the one from which on the order is
            a coin toss, False if it says that it is one there.
    """
    distance = int(base if said is None else said)
    at_distance: Role = "limit" if onset else "part"
    of_onset: Role = "part" if onset else "limit"

    mean = average_octave(base, distance)
    is_half = abs(mean - 0.5) <= NEAR_HALF
    what = (
        f"probability of the reverse order, mean over distances {distance:,} to"
        f" {2 * distance:,}, base {base:g}"
    )
    findings.add(at_distance, what, f"{mean:.3f}", is_half, mean)

    first = find_half(base)
    what = f"first octave whose mean is within {NEAR_HALF:g} of 1/2, from"
    text = f"none below {FARTHEST // 2:,}"
    if math.isfinite(first):
        text = f"{first:,.0f}, {first / base:.2g} of the base"
    findings.add(of_onset, what, text, is_about(first, distance), first)


@claim("du-token-aliasing")
def tokens_alias(
    findings: Findings,
    shared: float = 0.0,
    printed: float = 0.05,
    alike: float = 0.99,
    open_because: str = "",
    seed: int = 0,
) -> None:
    """Find the share of positions at which two keys have equal stored scores.

    `shared` is the cosine of both keys with the query, and `alike` another one, which is
    compared. `open_because` is the reason why another share than the printed one refutes
    nothing; empty if it does.
    """
    sample = count_draws("token aliasing", LLAMA_3_1, shared=shared, seed=seed)
    rope, _ = sample
    mean = average_samples(rope)
    is_printed = is_all_about(mean, printed)
    what = f"share of {TOKENS} positions where two keys have one score"
    text = f"{write_mean(mean, '.3%')}, printed {printed:.0%}"
    findings.add_part(what, text, is_printed, mean.value)
    findings.mark_drawn(DRAWS)
    if open_because and not is_printed:
        findings.leave_open(open_because)

    # The bound that the paper states.
    bound = math.sqrt(HEAD / 2) / 2**7
    what = "the bound 2^-7 sqrt(64), which the share must not exceed"
    findings.add_limit(what, f"{bound:.2%}", mean.high <= bound, bound)

    of_alike, _ = count_draws("token aliasing", LLAMA_3_1, shared=alike, seed=seed)
    mean_of_alike = average_samples(of_alike)
    what = f"the share of keys that nearly are the query (cosine {alike:g})"
    is_as_printed = is_all_about(mean_of_alike, printed)
    text = write_mean(mean_of_alike, ".1%")
    findings.add_limit(what, text, is_as_printed, mean_of_alike.value)
    findings.mark_drawn(DRAWS)
    compare_with_null(findings, "share", sample)


@claim("du-trade-off")
def base_trades(
    findings: Findings, bases: Sequence[float] = BASES, seed: int = 0
) -> None:
    """Follow the four modes of failure over growing bases. Each list has a number per
    base.
    """
    head = Similarity.of_head(HEAD)
    distances = []
    for base in bases:
        distances.append(find_first_negative(head, base, CONTEXT * 8) or math.inf)
    what = "token inversion: first distance above 1/2"
    findings.add_part(what, write_list(distances), distances == sorted(distances))

    wins = [aligned_inversion(base, TOKENS) for base in bases]
    what = f"position inversion in {TOKENS} tokens, key equal to the query"
    findings.add_part(what, write_list(wins, ".2f"), wins == sorted(wins))

    # Both lists have the means of pairs by base.
    rope_pairs = []
    null_pairs = []
    texts = []
    for base in bases:
        rope, null = count_draws("position aliasing", base, seed=seed)
        rope_pairs.append(float(rope.mean()))
        null_pairs.append(float(null.mean()))
        texts.append(write_mean(average_samples(rope), ",.0f"))
    is_due_to_rope = not all(map(is_about, rope_pairs, null_pairs))
    text = f"{', '.join(texts)}; without RoPE {write_list(null_pairs)}"
    findings.add_limit("position aliasing: pairs", text, is_due_to_rope)
    findings.mark_drawn(DRAWS)

    # The shares of every draw with RoPE: [DRAWS] for each base.
    shares = []
    for base in bases:
        rope, _ = count_draws("token aliasing", base, seed=seed)
        shares.append(rope)
    change = average_samples(shares[-1] - shares[0])
    means = [float(rope.mean()) for rope in shares]
    what = "token aliasing, which should fall"
    text = (
        f"{write_list(means, '.2%')}, from the first base to the last"
        f" {write_mean(change, '+.3%')}"
    )
    findings.add_limit(what, text, change.high < 0, change.value)
    findings.mark_drawn(DRAWS)

    rows = []
    for mode in MODES:
        for base in bases:
            rope, null = count_draws(mode, base, seed=seed)
            row = {
                "mode": mode,
                "base": base,
                "rope": rope.mean(),
                "rope_standard_error": _find_standard_error(rope),
                "null": null.mean(),
                "null_standard_error": _find_standard_error(null),
            }
            rows.append(row)
    findings.series["modes"] = pd.DataFrame(rows)


def _find_standard_error(sample: Array) -> float:
    """Return the standard error of the mean of a sample."""
    return float(sample.std(ddof=1) / math.sqrt(len(sample)))
