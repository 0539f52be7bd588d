"""Checks of Du et al.'s four modes of failure of RoPE in long contexts (2026).

Du et al. treat the score of a key at distance r, S(r) = sum_n C_n cos(r theta_n + phi_n),
as a normal random number. Here the modes are counted with RoPE, and in a null model
without RoPE: independent normal numbers of the same mean and spread.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ropelab.claims.arrays import Array, frequencies, gaussian
from ropelab.claims.record import Agrees, Findings, Role, claim
from ropelab.claims.theories.common import (
    CONTEXT,
    HEAD,
    LLAMA_3_1,
    TOKENS,
    is_about,
    write_list,
)
from ropelab.math.bounds import Similarity, find_first_negative, scan
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.runs.sentences import write_interval
from ropelab.runs.stats import Interval, average_samples

BASES = (1e4, LLAMA_3_1, 1e7)
# The number of random queries with their keys. The distribution of counts is skewed: a few
# draws have several times the usual count.
DRAWS = 100
# The least share by which a failure has to be more frequent with RoPE than in the null
# model, if RoPE is to be its cause: the paper is not about differences of a few percent.
LEAST_EXCESS = 0.1
# A probability counts as 1/2 if it differs from 1/2 by less than this.
NEAR_HALF = 0.05
# The distance in tokens up to which octaves of distances are searched.
FARTHEST = 2 * CONTEXT


@cache
def compute_scores(base: float, shared: float, seed: int = 0) -> tuple[Array, Array]:
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
    near_scores = np.sort(values[:half])
    far_scores = values[half:]
    # The place of a far score among the sorted near scores is the number of near scores
    # below it.
    lower_counts = np.searchsorted(near_scores, far_scores)
    return float(lower_counts.mean() / half)


def measure_aligned_inversion(base: float, tokens: int) -> float:
    """Return `measure_far_wins` for a key that equals the query, with the mean scores
    over queries.
    """
    # The mean score at each distance is Men et al.'s sum of cosines.
    mean_scores = scan(Similarity.of_head(HEAD), math.log(base), 0, tokens)
    return measure_far_wins(mean_scores)


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
    for model in compute_scores(base, shared, seed):
        stored = round_to(model, number_format)
        counts.append([count(*draw) for draw in zip(model, stored, strict=True)])
    return np.array(counts, dtype=float)


def is_beyond(interval: Interval, threshold: float) -> Agrees:
    """Return True if a whole interval is above a threshold, False if none of it is, and
    None for an interval that contains it.
    """
    if interval.low > threshold:
        return True
    if interval.high <= threshold:
        return False
    return None


def is_all_about(interval: Interval, printed: float) -> Agrees:
    """Return True if all numbers of an interval are about a printed number (see
    `is_about`), False if none is, and None if some are.
    """
    low_is_about = is_about(interval.low, printed)
    high_is_about = is_about(interval.high, printed)
    if low_is_about and high_is_about:
        return True
    # A wide interval can contain the printed number although neither end is about it.
    contains_printed = interval.low < printed < interval.high
    if low_is_about or high_is_about or contains_printed:
        return None
    return False


def compare_with_printed(
    findings: Findings,
    what: str,
    mean: Interval,
    printed: float,
    form: str,
    open_because: str,
) -> None:
    """Add a part that agrees if a mean over draws is about a printed number.

    Args:
        findings: the findings.
        what: what was counted, in words.
        mean: the mean with its interval.
        printed: the printed number.
        form: the format of both.
        open_because: the reason why another number than the printed one does not refute
            the claim; empty if it refutes the claim.
    """
    is_printed = is_all_about(mean, printed)
    # A share is printed in whole percent.
    as_printed = format(printed, ".0%" if form.endswith("%") else form)
    measured = f"{write_interval(mean, form)}, printed {as_printed}"
    findings.add_part(what, measured, is_printed, mean.value)
    findings.mark_drawn(DRAWS)
    if is_printed is None:
        findings.leave_open(f"the interval reaches a half or twice of {as_printed}")
    elif open_because and not is_printed:
        findings.leave_open(open_because)


def compare_with_null(findings: Findings, what: str, sample: Array) -> None:
    """Add a limit that disagrees if the failure is about as frequent in the null model; it
    is open if the interval of the difference leaves that open.

    `sample` is a result of `count_draws`.
    """
    rope, null = sample
    change = average_samples(rope - null)
    null_mean = float(null.mean())
    # Counts are written as whole numbers, shares in percent.
    form = ",.0f" if null_mean >= 1 else ".3%"
    measured = (
        f"{write_interval(average_samples(null), form)}, with RoPE"
        f" {write_interval(change, '+' + form)}"
    )
    what = f"{what} of independent normal numbers in the place of RoPE's scores"
    least = LEAST_EXCESS * null_mean
    is_more = is_beyond(change, least)
    findings.add_limit(what, measured, is_more, change.value)
    findings.mark_drawn(DRAWS)
    if is_more is None:
        findings.leave_open(
            f"the interval contains {LEAST_EXCESS:.0%} of {null_mean:{form}}"
        )


def compute_token_inversion(base: float, distance: ArrayLike) -> Array:
    """Return the probability that two keys change their order: the key with the higher
    score at distance 0 has the lower score at `distance`.
    """
    # The difference of the scores of two keys is one number at distance 0 and another one
    # at distance r. For a given query and normal keys these two numbers are jointly
    # normal. Their correlation is the mean of cos(r theta) over pairs, weighted by the
    # squares of the query's pairs. Two jointly normal numbers have opposite signs with a
    # probability of acos(correlation) / pi. The weights are left out here, which makes
    # the correlation Men et al.'s sum, and changes the mean of the probability over
    # queries by 0.001 or less.
    angles = np.multiply.outer(np.asarray(distance), frequencies(HEAD, base))
    correlation = np.cos(angles).mean(axis=-1)
    return np.arccos(correlation) / math.pi


def average_octave(base: float, start: int) -> float:
    """Return the mean of `compute_token_inversion` over the distances from `start` to
    twice that distance.

    The probability itself goes up and down from one distance to the next, by 0.1 and more.
    """
    blocks = []
    for first in range(start, 2 * start, TOKENS):
        block = np.arange(first, min(first + TOKENS, 2 * start))
        blocks.append(compute_token_inversion(base, block))
    return float(np.concatenate(blocks).mean())


def find_half(base: float) -> float:
    """Return the first distance from which on, over an octave, the mean of
    `compute_token_inversion` is near 1/2; inf if there is none below FARTHEST / 2.
    """
    blocks = []
    for first in range(0, FARTHEST, TOKENS):
        blocks.append(compute_token_inversion(base, np.arange(first, first + TOKENS)))
    # For each distance, the sum of the probabilities of all smaller distances.
    sums = np.concatenate(([0.0], np.concatenate(blocks).cumsum()))
    starts = np.arange(1, FARTHEST // 2)
    means = (sums[2 * starts] - sums[starts]) / starts
    is_near = np.abs(means - 0.5) <= NEAR_HALF
    return float(starts[is_near.argmax()]) if is_near.any() else math.inf


@claim("du-position-inversion")
def check_position_inversion(
    findings: Findings, base: float = 1e4, large: float = LLAMA_3_1
) -> None:
    """Count the pairs of distances at which the farther key has the higher score, at two
    bases, and for random keys.
    """
    lead = (
        f"pairs of {CONTEXT:,} distances where the farther wins, key equal to the query,"
        f" heads of {HEAD}, base"
    )
    share = measure_aligned_inversion(base, CONTEXT)
    findings.add_part(f"{lead} {base:g}", f"{share:.2f}", share > 0.4, share)
    share = measure_aligned_inversion(large, CONTEXT)
    findings.add_limit(f"{lead} {large:g}", f"{share:.2f}", share > 0.4, share)

    # If the key is replaced by its opposite, every comparison comes out the other way.
    scores_of_key = gaussian(0, 256)
    shares = [measure_far_wins(scores_of_key), measure_far_wins(-scores_of_key)]
    mean_share = float(np.mean(shares))
    what = (
        "pairs of 256 distances where the farther wins, random keys and their opposites"
    )
    measured = f"{mean_share:.2f}, exactly: of a key and its opposite one has it"
    findings.add_limit(what, measured, mean_share < 0.4, mean_share)


@claim("du-position-aliasing", "du-invariant-attention")
def count_equal_scores(
    findings: Findings,
    mode: str,
    printed: float,
    fmt: str = "bfloat16",
    open_because: str = "",
    seed: int = 0,
) -> None:
    """Count the pairs of distances with equal stored scores.

    `open_because` is the reason why another number than the printed one does not refute
    the claim; empty if it refutes the claim.
    """
    sample = count_draws(mode, LLAMA_3_1, fmt, seed=seed)
    rope, _ = sample
    what = (
        f"{mode}: pairs of {TOKENS} distances in {fmt}, random queries and keys of {HEAD}"
        f" features, base {LLAMA_3_1:g}"
    )
    compare_with_printed(
        findings, what, average_samples(rope), printed, ",.0f", open_because
    )
    compare_with_null(findings, "equal pairs", sample)


@claim("du-token-inversion", "du-token-inversion-20k")
def check_token_inversion(
    findings: Findings,
    base: float = LLAMA_3_1,
    said: float | None = None,
    onset: bool = False,
) -> None:
    """Compute how often the order of two keys is reversed, over an octave of distances.

    Args:
        findings: the findings.
        base: the base.
        said: the distance in tokens that a passage names; None if it is the base itself.
        onset: True if the passage says that the order is a coin toss from this distance
            on, False if it says that the order is a coin toss at this distance.
    """
    distance = int(base if said is None else said)
    at_distance: Role = "limit" if onset else "part"
    of_onset: Role = "part" if onset else "limit"

    mean = average_octave(base, distance)
    is_half = abs(mean - 0.5) <= NEAR_HALF
    what = (
        f"probability of the reverse order of random keys, mean over distances {distance:,}"
        f" to {2 * distance:,}, heads of {HEAD}, base {base:g}"
    )
    findings.add(at_distance, what, f"{mean:.3f}", is_half, mean)

    first_distance = find_half(base)
    what = f"first octave of distances whose mean probability is within {NEAR_HALF:g} of 1/2, from"
    measured = f"none below {FARTHEST // 2:,}"
    if math.isfinite(first_distance):
        # `compute_token_inversion` gives all pairs of a query the same weight. This changes
        # the means by up to 0.001, which moves the distance by a hundred tokens. Two digits
        # are certain.
        digits = 1 - math.floor(math.log10(first_distance))
        rounded_distance = round(first_distance, digits)
        ratio = first_distance / base
        measured = f"about {rounded_distance:,.0f}, {ratio:.2g} of the base"
    findings.add(
        of_onset, what, measured, is_about(first_distance, distance), first_distance
    )


@claim("du-token-aliasing")
def check_token_aliasing(
    findings: Findings,
    shared: float = 0.0,
    printed: float = 0.05,
    alike: float = 0.99,
    open_because: str = "",
    seed: int = 0,
) -> None:
    """Find the share of positions at which two keys have equal stored scores.

    `shared` is the cosine of both keys with the query. `alike` is another cosine, for
    which the share is compared, too. `open_because` is the reason why another share than
    the printed one does not refute the claim; empty if it refutes the claim.
    """
    sample = count_draws("token aliasing", LLAMA_3_1, shared=shared, seed=seed)
    rope, _ = sample
    mean = average_samples(rope)
    keys = f"keys of cosine {shared:g} with the query" if shared else "random keys"
    what = (
        f"share of {TOKENS} positions where two keys have one score, {keys}, {HEAD}"
        f" features, base {LLAMA_3_1:g}"
    )
    compare_with_printed(findings, what, mean, printed, ".3%", open_because)

    # The bound that the paper states.
    bound = math.sqrt(HEAD / 2) / 2**7
    what = "the bound 2^-7 sqrt(64), which the share must not exceed"
    findings.add_limit(what, f"{bound:.2%}", mean.high <= bound, bound)

    of_alike, _ = count_draws("token aliasing", LLAMA_3_1, shared=alike, seed=seed)
    mean_of_alike = average_samples(of_alike)
    what = f"share of equal scores of keys that nearly are the query (cosine {alike:g})"
    is_as_printed = is_all_about(mean_of_alike, printed)
    measured = write_interval(mean_of_alike, ".1%")
    findings.add_limit(what, measured, is_as_printed, mean_of_alike.value)
    findings.mark_drawn(DRAWS)
    compare_with_null(findings, "share of equal scores", sample)


@claim("du-trade-off")
def follow_modes_over_bases(
    findings: Findings, bases: Sequence[float] = BASES, seed: int = 0
) -> None:
    """Follow the four modes of failure over growing bases. Every list in the findings has
    a number per base.
    """
    head = Similarity.of_head(HEAD)
    about = f"heads of {HEAD}, bases {write_list(bases, 'g')}"
    distances = []
    for base in bases:
        distances.append(find_first_negative(head, base, CONTEXT * 8) or math.inf)
    what = f"token inversion: first distance above 1/2, {about}"
    findings.add_part(what, write_list(distances), distances == sorted(distances))

    wins = [measure_aligned_inversion(base, TOKENS) for base in bases]
    what = f"position inversion in {TOKENS} tokens, key equal to the query, {about}"
    findings.add_part(what, write_list(wins, ".2f"), wins == sorted(wins))

    # Both lists have the means of pairs by base.
    rope_pairs = []
    null_pairs = []
    rope_texts = []
    null_texts = []
    for base in bases:
        rope, null = count_draws("position aliasing", base, seed=seed)
        rope_pairs.append(float(rope.mean()))
        null_pairs.append(float(null.mean()))
        rope_texts.append(write_interval(average_samples(rope), ",.0f"))
        null_texts.append(write_interval(average_samples(null), ",.0f"))
    is_due_to_rope = not all(map(is_about, rope_pairs, null_pairs))
    measured = f"{', '.join(rope_texts)}; without RoPE {', '.join(null_texts)}"
    what = f"position aliasing: pairs of {TOKENS} distances, {about}"
    findings.add_limit(what, measured, is_due_to_rope)
    findings.mark_drawn(DRAWS)

    # The shares of every draw with RoPE: [DRAWS] for each base.
    shares = []
    for base in bases:
        rope, _ = count_draws("token aliasing", base, seed=seed)
        shares.append(rope)
    change = average_samples(shares[-1] - shares[0])
    means = [write_interval(average_samples(rope), ".3%") for rope in shares]
    what = f"token aliasing, which should fall, {about}"
    measured = (
        f"{', '.join(means)}, from the first base to the last"
        f" {write_interval(change, '+.3%')}"
    )
    # The fall is the same change with the opposite sign.
    fall = average_samples(shares[0] - shares[-1])
    falls = is_beyond(fall, 0)
    findings.add_limit(what, measured, falls, change.value)
    findings.mark_drawn(DRAWS)
    if falls is None:
        findings.leave_open("the interval contains 0")

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
