"""Checks of codes joined to embeddings, of the terms of their scores, and of decay by
distance.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from ropelab.claims import arrays
from ropelab.claims.record import Findings, Role, claim
from ropelab.claims.sinusoids import code
from ropelab.runs.arrays import Float
from ropelab.runs.thresholds import EXACT, ROUNDING

# The features of an embedding, the tokens that have one, and the base of the codes.
WIDTH = 64
TOKENS = 512
BASE = 10000.0
# The position of a query and that of a key. Any two would do.
QUERY = 11
KEY = 3
# The largest distance of a curve, and the random pairs of a query and a key.
FARTHEST = 4096
DRAWS = 8192


def _codes(width: int, tokens: int) -> Float[arrays.Array, "tokens width"]:
    return code(np.arange(tokens), arrays.frequencies(width, BASE))


@claim("concatenation-wider")
def concatenation_is_wider(findings: Findings, seed: int = 0) -> None:
    x = arrays.gaussian(seed, TOKENS, WIDTH)
    p = _codes(WIDTH, TOKENS)
    weights = arrays.gaussian(seed + 1, 2 * WIDTH, WIDTH)
    concatenated = np.concatenate((x, p), -1)
    summed = x @ weights[:WIDTH] + p @ weights[WIDTH:]
    off = arrays.largest(concatenated @ weights - summed)
    width = concatenated.shape[-1]
    text = f"{WIDTH} for a sum, {width} side by side"
    findings.part("inputs of the next layer", text, width > WIDTH, width)
    what = "what that layer puts out, against the sum of x and a projected code"
    findings.beyond(what, off, EXACT, role="limit")


@claim("multiplication-stronger")
def multiplying_changes_more(
    findings: Findings, sizes: Sequence[float] = (1.0, 0.02), seed: int = 0
) -> None:
    def length(x: arrays.Array) -> float:
        # `fsum` rounds once. np.linalg.norm calls BLAS, whose order of additions depends
        # on threads and alignment, so that the last digit of its result does, too.
        return math.sqrt(math.fsum(np.square(x).ravel()))

    p = _codes(WIDTH, TOKENS)
    # Embeddings have unit size, or 0.02, with which they are usually initialized.
    for size in sizes:
        x = size * arrays.gaussian(seed, TOKENS, WIDTH)
        multiplied = length(x * p - x) / length(x)
        added = length(p) / length(x)
        what = f"change of embeddings of size {size:g}, of their length"
        text = f"{multiplied:.2f} multiplied, {added:.2f} added"
        role: Role = "limit" if findings.findings else "part"
        findings.add(role, what, text, multiplied > added, multiplied / added)


@claim("rope-multiplies")
def rope_multiplies(findings: Findings, position: int = 17, seed: int = 0) -> None:
    x = arrays.gaussian(seed, TOKENS, WIDTH)
    angles = position * arrays.frequencies(WIDTH, BASE)
    after = arrays.rotate(x, angles, "interleaved")

    def as_complex(y: arrays.Array) -> arrays.Array:
        first, second = arrays.split(y, "interleaved")
        return first + 1j * second

    pairs = as_complex(x)
    rotated_pairs = as_complex(after)
    off = arrays.largest(rotated_pairs - pairs * np.exp(1j * angles))
    # A feature that is nearly 0 gives any factor, so that quantiles are compared.
    low, high = np.quantile(after / x, (0.05, 0.95), axis=0)

    findings.within(
        "turned vectors against one complex factor for each pair", off, EXACT
    )
    what = (
        f"one real factor for each feature at position {position}, 5 to 95 % of vectors"
    )
    findings.within(
        what, arrays.largest(high - low), EXACT, "differ by up to {:.1f}", "limit"
    )


@claim("code-coefficients")
def coefficients_are_fixed(
    findings: Findings, encoding: str = "sinusoidal", tokens: int = 16
) -> None:
    from ropelab.claims.encodings import trains

    p = _codes(TOKENS, tokens)
    wanted = np.eye(tokens)
    off = arrays.largest(p @ np.linalg.lstsq(p, wanted, rcond=None)[0] - wanted)
    count = trains(encoding)

    findings.part("numbers that the code trains", f"{count:,}", count == 0, count)
    what = (
        f"a learned projection of the code picks out each of {tokens} positions, d ="
        f" {TOKENS}"
    )
    findings.beyond(
        what, off, ROUNDING, "to {}: it learns the coefficients instead", "limit"
    )


@claim("only-at-the-product")
def only_at_the_product(findings: Findings, name: str = "rope", seed: int = 0) -> None:
    from ropelab.claims.encodings import encode, encoding_for, queries_and_keys

    layer = encoding_for(name).for_layer(0)
    shift = 100
    q, k = queries_and_keys(16, seed)
    placed = encode(layer, q, k, 0)
    moved = encode(layer, q, k, shift)
    scores = layer.scores(*placed).detach().tril()
    shifted = layer.scores(*moved).detach().tril()
    product = (placed[0] @ placed[1].mT / q.shape[-1] ** 0.5).tril()
    change = arrays.largest((shifted - scores).numpy())
    added = arrays.largest((scores - product).numpy())

    what = (
        f"{name}: what is done to the product, while moving both tokens by"
        f" {shift} changes the "
    )
    what += f"score by {arrays.write_magnitude(change)}"
    text = "nothing" if added <= ROUNDING else f"scores change by {added:.1f}"
    findings.part(what, text, added > ROUNDING, added)


@claim("polynomial-distance")
def polynomial_fits(findings: Findings, degree: int = 3) -> None:
    reach = 128
    far = 512
    distance = np.arange(reach)
    # The fit would be badly conditioned in powers of the distance itself, so that the
    # distance is divided by its range.
    x = distance / reach

    def explain_share(y: Float[arrays.Array, " n"]) -> float:
        """Return the share of the variance of y that a polynomial explains."""
        fit = np.polyval(np.polyfit(x, y, degree), x)
        return float(1 - np.var(y - fit) / np.var(y))

    log = -np.log1p(distance)
    share = explain_share(log)

    what = f"share of -ln(1 + r) that degree {degree} explains over {reach} tokens"
    findings.part(what, f"{share:.0%}", share >= 0.9, share)
    spike = explain_share(np.where(distance == 1, 1.0, 0.0))
    findings.limit(
        "share of a bias for the token before", f"{spike:.0%}", spike >= 0.9, spike
    )
    there = float(np.polyval(np.polyfit(x, log, degree), far / reach))
    true = -float(np.log1p(far))
    what = f"the fit of the former at {far} tokens"
    findings.limit(
        what, f"{there:.0f}, should be {true:.1f}", abs(there - true) <= 1, there
    )


# The terms of a score of embeddings to which a code was added


def _weights(seed: int) -> Float[arrays.Array, "w w"]:
    wq, wk = arrays.gaussian(seed + 1, 2, WIDTH, WIDTH) / math.sqrt(WIDTH)
    return wq.T @ wk


def _terms(
    shift: int, weights: Float[arrays.Array, "w w"], seed: int
) -> dict[str, float]:
    """Return the four products of content x and position p under W_q^T W_k."""
    positions = code([QUERY + shift, KEY + shift], arrays.frequencies(WIDTH, BASE))
    sides = (("content", arrays.gaussian(seed, 2, WIDTH)), ("position", positions))
    terms = {}
    for query_side, x in sides:
        for key_side, y in sides:
            terms[f"{query_side}-{key_side}"] = float(x[0] @ weights @ y[1])
    return terms


@claim("four-terms")
def four_terms(findings: Findings, seed: int = 0) -> None:
    weights = _weights(seed)
    terms = _terms(0, weights, seed)
    summed = arrays.gaussian(seed, 2, WIDTH) + code(
        [QUERY, KEY], arrays.frequencies(WIDTH, BASE)
    )
    score = float(summed[0] @ weights @ summed[1])
    listed = ", ".join(f"{name} {term:.3f}" for name, term in terms.items())
    findings.expected = f"the score, {score:.3f}"
    off = abs(sum(terms.values()) - score)
    findings.within("sum against score", off, EXACT, f"{{}} apart ({listed})")


@claim("position-terms-absolute")
def position_terms_absolute(
    findings: Findings, shift: int = 100, seed: int = 0
) -> None:
    def changes(weights: Float[arrays.Array, "w w"]) -> dict[str, float]:
        here = _terms(0, weights, seed)
        there = _terms(shift, weights, seed)
        terms = [term for term in here if "position" in term]
        return {term: abs(there[term] - here[term]) for term in terms}

    random = changes(_weights(seed))

    listed = ", ".join(f"{term} by {change:.2f}" for term, change in random.items())
    what = f"terms that change when both move by {shift}, random weights"
    findings.part(what, listed, min(random.values()) > EXACT, min(random.values()))
    off = changes(np.eye(WIDTH))
    what = "position-position with W_q^T W_k = 1"
    findings.beyond(what, off["position-position"], EXACT, "changes by {}", "limit")


@claim("query-bias")
def query_bias_matters(findings: Findings, seed: int = 0) -> None:
    tokens = 16
    q, k = arrays.gaussian(seed, 2, tokens, WIDTH)
    scores = q @ k.T
    per_query = arrays.gaussian(seed + 1, tokens, 1)
    per_distance = 0.1 * (np.arange(tokens)[:, None] - np.arange(tokens))
    # The softmax of a row does not change if one number is added to all its scores.
    plain = arrays.softmax(scores)
    by_query = arrays.largest(arrays.softmax(scores + per_query) - plain)
    by_distance = arrays.largest(arrays.softmax(scores + per_distance) - plain)

    findings.beyond("change of the weights by c_(q-k)", by_distance, EXACT, "{:.2f}")
    what = "change of the weights by b_q, which the softmax of a row cancels"
    findings.beyond(what, by_query, EXACT, "{}", "limit")


@claim("relative-table")
def rows_of_relative_table(findings: Findings, rows: int = 1024) -> None:
    positions = np.arange(512)
    differences = np.unique(positions[:, None] - positions)
    farthest = differences.max()
    count = len(differences)
    text = f"{count}, from -{farthest} to {farthest}"
    findings.part("different distances in 512 tokens", text, count <= rows, count)
    spare = rows - count
    findings.limit("rows that no distance uses", f"{spare}", spare == 0, spare)


@claim("deberta-distance", "deberta-as-noted")
def middle_terms_index(
    findings: Findings,
    printed: Literal["from key to query", "from query to key"] = "from key to query",
    seed: int = 0,
) -> None:
    """Compare the row of the term by a printed formula with delta(i, j) of the code."""
    rows = 4
    tokens = 5
    i = np.arange(tokens)[:, None]
    j = np.arange(tokens)
    keys_by_row = arrays.gaussian(seed, tokens, 2 * rows)
    # DeBERTa's code gathers the row delta(i, j), as in the content-to-position term, for
    # each key, and transposes the result.
    coded_rows = np.clip(rows - (i - j), 0, 2 * rows - 1)
    coded = np.take_along_axis(keys_by_row, coded_rows, 1).T

    apart = {}
    distances = {"from key to query": j - i, "from query to key": i - j}
    for name, distance in distances.items():
        printed_rows = np.clip(distance + rows, 0, 2 * rows - 1)
        apart[name] = arrays.largest(coded - keys_by_row[j, printed_rows])

    shown = "; ".join(
        f"{arrays.write_magnitude(off)} {name}" for name, off in apart.items()
    )
    what = "position-to-content term as coded, apart from K_j . Q at the distance"
    findings.part(what, shown, apart[printed] <= EXACT, apart[printed])


# Decay by distance: the bound of the RoFormer paper, and the scores themselves


def _waves(head_dim: int, farthest: int) -> np.ndarray:
    """Return e^(i distance theta) for all distances and the frequencies theta of all
    pairs: [distances, pairs].
    """
    distances = np.arange(farthest + 1)[:, None]
    return np.exp(1j * distances * arrays.frequencies(head_dim, BASE))


def bound_curve(head_dim: int, farthest: int = FARTHEST) -> Float[arrays.Array, " n"]:
    """Compute (2/d) sum_j |S_j|, S_j the sum of the first j waves (arXiv:2104.09864,
    eq. 37).
    """
    return np.abs(_waves(head_dim, farthest).cumsum(-1)).mean(-1)


def aligned_curve(head_dim: int) -> Float[arrays.Array, " n"]:
    """Return the mean score of a random vector with itself: the mean of cos(distance
    theta_i).
    """
    return _waves(head_dim, FARTHEST).real.mean(-1)


def random_curves(
    distances: Float[arrays.Array, " n"],
    head_dim: int,
    draws: int = DRAWS,
    seed: int = 0,
) -> Float[arrays.Array, "draws n"]:
    """Score independent random queries and keys at some distances, in the complex
    form.
    """
    features = arrays.gaussian(seed, 2, 2, draws, head_dim // 2)
    (q_real, q_imaginary), (k_real, k_imaginary) = features
    q = q_real + 1j * q_imaginary
    k = k_real + 1j * k_imaginary
    products = q * k.conj()
    angle = arrays.frequencies(head_dim, BASE)[:, None] * distances
    return products.real @ np.cos(angle) + products.imag @ np.sin(angle)


def octaves(curve: Float[arrays.Array, " n"]) -> list[float]:
    """Return the means of a curve over the distances [1, 2), [2, 4), [4, 8), ...

    The curve itself goes up and down from one distance to the next, with the pairs that
    rotate fast.
    """
    means = []
    low = 1
    while 2 * low <= len(curve):
        means.append(float(curve[low : 2 * low].mean()))
        low *= 2
    return means


def _falling(means: list[float]) -> bool:
    return bool((np.diff(means) < 0).all())


@claim("decay-bound")
def bound_decays(findings: Findings, head_dim: int = 128, seed: int = 0) -> None:
    curve = bound_curve(head_dim)
    means = octaves(curve)
    rises = int((np.diff(curve) > 0).sum())
    text = " ".join(f"{mean:.1f}" for mean in means)
    ratio = means[-1] / means[0]
    findings.part(
        f"mean over octaves from 1 to {FARTHEST}", text, _falling(means), ratio
    )
    findings.limit(
        "steps at which it rises", f"{rises} of {FARTHEST}", rises == 0, rises
    )
    findings.series["decay"] = decay_series(head_dim, seed)


@claim("decay-scores")
def scores_decay(findings: Findings, head_dim: int = 128, seed: int = 0) -> None:
    aligned = aligned_curve(head_dim)
    means = octaves(aligned)
    negative = np.flatnonzero(aligned < 0)
    # The curve is compared with scores of tokens that have nothing to do with each
    # other. DRAWS pairs give their typical score to about 1 %, so that 0.9 below is a
    # fall and not chance.
    scores = random_curves(np.array([0.0, FARTHEST]), head_dim, seed=seed)
    near_rms, far_rms = np.sqrt(np.square(scores).mean(0)).tolist()

    what = f"q = k, mean score over octaves from 1 to {FARTHEST}, score at 0 is 1"
    findings.part(
        what, " ".join(f"{mean:.2f}" for mean in means), _falling(means), means[-1]
    )
    first = f"from distance {int(negative[0])} on" if len(negative) else "nowhere"
    findings.limit("q = k, below zero", first, not len(negative))
    what = f"independent q and k, typical |score| at {FARTHEST} over that at 0"
    findings.limit(
        what, f"{far_rms / near_rms:.2f}", far_rms < 0.9 * near_rms, far_rms / near_rms
    )

    findings.series["decay"] = decay_series(head_dim, seed)


def decay_series(head_dim: int, seed: int, points: int = 512) -> pd.DataFrame:
    """Return the curves over distance, each divided by its value at distance 0."""
    # The distances are evenly spaced on the logarithmic axis of the figure.
    distances = np.unique(np.geomspace(1, FARTHEST, points).astype(int))
    scores = random_curves(
        np.concatenate(([0], distances)).astype(float), head_dim, seed=seed
    )
    rms = np.sqrt(np.square(scores).mean(0))
    bound = bound_curve(head_dim)
    curves = {
        "bound": (bound / bound[0])[distances],
        "equal q and k": aligned_curve(head_dim)[distances],
        "independent q and k": rms[1:] / rms[0],
    }
    table = pd.DataFrame({"distance_tokens": distances, **curves})
    table = table.melt("distance_tokens", var_name="curve", value_name="relative")
    return table[["curve", "distance_tokens", "relative"]]
