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

import numpy as np
import pandas as pd

from ropelab.claims.arrays import (
    Array,
    frequencies,
    gaussian,
    max_abs,
    rotate,
    softmax,
)
from ropelab.claims.periods import census, make_rope_frequencies
from ropelab.claims.record import Findings, claim
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
from ropelab.runs.thresholds import ANGLE_RAD, FLOAT32_SCORES

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
# The number of random queries with their keys.
DRAWS = 12


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
    carried: bool = False,
    shift: int = 4096,
    seed: int = 0,
) -> None:
    """Move all positions, and compare the scores of the first and of the last layer of a
    random model. If `carried`, values are rotated, too, so that phases are passed on.
    """
    tokens = 16
    width = 32

    def compute_last_scores(depth: int, start: int) -> Float[Array, "tokens tokens"]:
        """Return the scores of the last of `depth` layers, positions from `start` on."""
        positions = start + np.arange(tokens)
        angles = positions[:, None] * frequencies(width, LLAMA_3_1)
        hidden = gaussian(seed, tokens, width)
        for layer in range(depth):
            # A layer draws the same weights at every depth and start.
            weights = gaussian(seed + layer + 1, 3, width, width) / width**0.5
            q_weights, k_weights, v_weights = weights

            q = rotate(hidden @ q_weights, angles)
            k = rotate(hidden @ k_weights, angles)
            v = hidden @ v_weights
            if carried:
                v = rotate(v, angles)

            scores = q @ k.T / width**0.5
            hidden = hidden + softmax(scores) @ v
            # Each token gets a mean square of 1, as normalized layers have it.
            hidden /= np.sqrt((hidden**2).mean(axis=-1, keepdims=True))
        return scores

    def measure_change(depth: int) -> float:
        at_start = compute_last_scores(depth, 0)
        moved = compute_last_scores(depth, shift)
        return max_abs(moved - at_start)

    first_layer = measure_change(1)
    last_layer = measure_change(layers)
    what = f"change of the scores of layer {layers} when all positions move by {shift}"
    text = (
        f"{last_layer:.0e} (layer 1: {first_layer:.0e}): q and k alone are rotated, no"
        " phase is passed on"
    )
    findings.add_part(what, text, last_layer > FLOAT32_SCORES, last_layer)


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
def zone_closes(findings: Findings, layers: int = 32, printed: float = 1e6) -> None:
    """Find the context from which Liu's lower bound on the base is above his upper one,
    1/eps.
    """

    def find_limit(layers: int) -> float:
        # The lower bound grows in proportion to the context.
        bound_per_token = rules.stability_base(1, 0.9, layers)
        return 1 / (EPSILON * bound_per_token)

    limit = find_limit(layers)
    what = f"tokens from which no base is between the bounds, {layers} layers"
    findings.add_part(what, f"{limit:,.0f}", is_about(limit, printed), limit)
    other_limits = [find_limit(1), find_limit(126)]
    are_about_printed = all(is_about(other, printed) for other in other_limits)
    what = "the same with 1 and 126 layers"
    findings.add_limit(what, write_list(other_limits), are_about_printed)


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
def scores(base: float, shared: float, draw: int) -> tuple[Array, Array]:
    """Return the scores of a query with two keys by distance, [2, TOKENS], with RoPE and
    in the null model.

    ``shared`` is the cosine of each key with the query.
    """
    vectors = gaussian(draw, 3, HEAD)
    # The two features of a pair are a complex number.
    query, *keys = vectors[:, : HEAD // 2] + 1j * vectors[:, HEAD // 2 :]
    waves = np.exp(1j * np.outer(np.arange(TOKENS), frequencies(HEAD, base)))
    scores_of_keys = []
    for key in keys:
        mixed_key = shared * query + math.sqrt(1 - shared**2) * key
        scores_of_keys.append((waves @ (query * mixed_key.conj())).real)
    rope = np.stack(scores_of_keys)
    # The null model has the same mean and deviation for each key.
    normal = gaussian(DRAWS + draw, *rope.shape)
    mean = rope.mean(axis=1, keepdims=True)
    deviation = rope.std(axis=1, keepdims=True)
    return rope, mean + deviation * normal


def count_equal_pairs(values: Array) -> int:
    """Count the pairs of equal columns."""
    _, counts = np.unique(values, axis=-1, return_counts=True)
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
    mode: str, base: float, fmt: str = "bfloat16", shared: float = 0.0
) -> Array:
    """Count a mode of failure in every draw: [2, DRAWS], with RoPE and in the null
    model.
    """
    count = MODES[mode]
    number_format = FORMATS[fmt]
    with_rope = []
    in_null = []
    for draw in range(DRAWS):
        rope, null = scores(base, shared, draw)
        with_rope.append(count(rope, round_to(rope, number_format)))
        in_null.append(count(null, round_to(null, number_format)))
    return np.array([with_rope, in_null], dtype=float)


def average_draws(values: Array) -> tuple[float, float]:
    """Return the mean over draws, and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def compare_with_null(findings: Findings, what: str, sample: Array) -> None:
    """Add a limit that disagrees if the null model has as many. `sample` is a result of
    `count_draws`.
    """
    rope, null = sample
    change, error = average_draws(rope - null)
    null_mean = float(null.mean())
    # Counts are written as whole numbers, shares with five digits.
    form = ",.0f" if null_mean >= 1 else ".5f"
    text = f"{null_mean:{form}}, RoPE {change:+{form}} ± {error:{form}}"
    what = f"{what} of independent normal numbers"
    findings.add_limit(what, text, change > 2 * error, change)


def token_inversion(base: float, distance: float) -> float:
    """Return the probability that two keys have the opposite order at a distance of that
    at distance 0.
    """
    # The difference of the scores of two keys is taken at distance 0 and at distance r.
    # Over normal queries and keys the two differences are jointly normal, and their
    # correlation is the mean of cos(r theta): Men et al.'s sum. Two numbers with this
    # correlation have opposite signs with a probability of acos(correlation) / pi.
    correlation = np.cos(distance * frequencies(HEAD, base)).mean()
    return math.acos(correlation) / math.pi


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

    # If the key is replaced by its opposite, every comparison has the opposite result.
    shares: list[float] = []
    for draw in range(DRAWS):
        (scores_of_key, _), _ = scores(large, 0.0, draw)
        near_scores = scores_of_key[:256]
        shares += [measure_far_wins(near_scores), measure_far_wins(-near_scores)]
    mean_share = float(np.mean(shares))
    what = "the same in 256, random keys and their opposites"
    findings.add_limit(what, f"{mean_share:.2f}", mean_share < 0.4, mean_share)


@claim("du-position-aliasing", "du-invariant-attention")
def pairs_alias(
    findings: Findings,
    mode: str,
    printed: float,
    fmt: str = "bfloat16",
    open_because: str = "",
) -> None:
    """Count the pairs of distances with equal stored scores.

    `open_because` is the reason why another number than the printed one refutes nothing;
    empty if it does.
    """
    sample = count_draws(mode, LLAMA_3_1, fmt)
    rope, _ = sample
    mean, error = average_draws(rope)
    is_printed = is_about(mean, printed)

    what = f"{mode}: pairs of {TOKENS} distances in {fmt}, base {LLAMA_3_1:g}"
    text = f"{mean:,.0f} ± {error:,.0f}, printed {printed:,}"
    findings.add_part(what, text, is_printed, mean)
    if open_because and not is_printed:
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
    probability = token_inversion(base, distance)
    is_half = abs(probability - 0.5) <= 0.05
    what = (
        f"probability of the reverse order at distance {distance:,.0f}, base {base:g}"
    )
    findings.add_part(what, f"{probability:.3f}", is_half, probability)

    # The probability is above 1/2 where the sum of cosines is negative.
    head = Similarity.of_head(HEAD)
    first = find_first_negative(head, base, CONTEXT * 8) or math.inf
    what = "first distance where it is above 1/2"
    text = f"{first:,}, {first / base:.2g} of the base"
    findings.add_limit(what, text, is_about(first, distance), first)


@claim("du-token-aliasing")
def tokens_alias(
    findings: Findings, shared: float = 0.0, printed: float = 0.05
) -> None:
    """Find the share of positions at which two keys have equal stored scores."""
    sample = count_draws("token aliasing", LLAMA_3_1, shared=shared)
    rope, _ = sample
    mean, error = average_draws(rope)
    # The bound that the paper states.
    bound = math.sqrt(HEAD / 2) / 2**7
    what = f"share of {TOKENS} positions where two keys have one score"
    text = f"{mean:.2%} ± {error:.2%}, 2^-7 sqrt(64) = {bound:.2%}"
    findings.add_part(f"{what}, under the bound", text, mean <= bound, mean)
    text = f"{mean:.2%}, printed {printed:.0%}"
    findings.add_limit(what, text, is_about(mean, printed), mean)
    compare_with_null(findings, "share", sample)


@claim("du-trade-off")
def base_trades(findings: Findings, bases: Sequence[float] = BASES) -> None:
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

    rope_pairs = []
    null_pairs = []
    for base in bases:
        rope, null = count_draws("position aliasing", base)
        rope_pairs.append(float(rope.mean()))
        null_pairs.append(float(null.mean()))
    is_due_to_rope = not all(map(is_about, rope_pairs, null_pairs))
    text = f"{write_list(rope_pairs)}; without RoPE {write_list(null_pairs)}"
    findings.add_limit("position aliasing: pairs", text, is_due_to_rope)

    # The shares of every draw with RoPE: [DRAWS] for each base.
    shares = []
    for base in bases:
        rope, _ = count_draws("token aliasing", base)
        shares.append(rope)
    change, error = average_draws(shares[-1] - shares[0])
    means = [float(rope.mean()) for rope in shares]
    what = "token aliasing, which should fall"
    text = f"{write_list(means, '.2%')} (± {error:.2%})"
    findings.add_limit(what, text, change < -2 * error, change)

    rows = []
    for mode in MODES:
        for base in bases:
            rope, null = count_draws(mode, base)
            rope_mean, rope_error = average_draws(rope)
            null_mean, null_error = average_draws(null)
            row = {
                "mode": mode,
                "base": base,
                "rope": rope_mean,
                "rope_standard_error": rope_error,
                "null": null_mean,
                "null_standard_error": null_error,
            }
            rows.append(row)
    findings.series["modes"] = pd.DataFrame(rows)
