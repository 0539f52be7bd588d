"""Claims about scores of embeddings to which a position code was added, or a bias."""

import math
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ropelab.claims.arithmetic.waves import code
from ropelab.claims.numbers import Array, frequencies, gaussian, largest, tiny
from ropelab.claims.record import Claim, Evidence, Passage, limit, part
from ropelab.runs.thresholds import EXACT

WIDTH, QUERY, KEY = 64, 11, 3


def _weights(seed: int) -> Float[Array, "w w"]:
    """A random W_q^T W_k."""
    wq, wk = gaussian(seed + 1, 2, WIDTH, WIDTH) / math.sqrt(WIDTH)
    return wq.T @ wk


def _terms(shift: int, weights: Float[Array, "w w"], seed: int) -> dict[str, float]:
    """The four products of content x and position p under W_q^T W_k."""
    contents = gaussian(seed, 2, WIDTH)
    positions = code([QUERY + shift, KEY + shift], frequencies(WIDTH, 10000.0))
    sides = (("content", contents), ("position", positions))
    return {f"{a}-{b}": float(x[0] @ weights @ y[1]) for a, x in sides for b, y in sides}


def four_terms(*, seed: int = 0) -> Evidence:
    """Add up the four terms and compare with the score."""
    weights = _weights(seed)
    terms = _terms(0, weights, seed)
    summed = gaussian(seed, 2, WIDTH) + code([QUERY, KEY], frequencies(WIDTH, 10000.0))
    score = float(summed[0] @ weights @ summed[1])
    off = abs(sum(terms.values()) - score)
    listed = ", ".join(f"{name} {term:.3f}" for name, term in terms.items())
    return Evidence(
        expected=f"the score, {score:.3f}",
        findings=(part("sum against score", f"{tiny(off)} apart ({listed})", off <= EXACT, off),),
    )


def position_terms_absolute(*, shift: int = 100, seed: int = 0) -> Evidence:
    """Move query and key together and see which position terms change."""
    changes = {}
    for name, weights in (("random", _weights(seed)), ("identity", np.eye(WIDTH))):
        here, there = (_terms(s, weights, seed) for s in (0, shift))
        changes[name] = {term: abs(there[term] - here[term]) for term in here}
    random, identity_change = changes["random"], changes["identity"]["position-position"]
    moved = {term: change for term, change in random.items() if "position" in term}
    listed = ", ".join(f"{term} by {change:.2f}" for term, change in moved.items())
    return Evidence(
        expected="all three change when query and key move together",
        findings=(
            part(
                f"terms that change when both move by {shift}, random weights",
                listed,
                all(change > EXACT for change in moved.values()),
                min(moved.values()),
            ),
            limit(
                "position-position with W_q^T W_k = 1",
                f"changes by {tiny(identity_change)}",
                identity_change > EXACT,
                identity_change,
            ),
        ),
    )


def query_bias_matters(*, tokens: int = 16, seed: int = 0) -> Evidence:
    """Add a bias per query, and a bias per distance, to the scores and compare the weights."""
    q, k = gaussian(seed, 2, tokens, WIDTH)
    scores = q @ k.T
    per_query = gaussian(seed + 1, tokens, 1)
    per_distance = 0.1 * (np.arange(tokens)[:, None] - np.arange(tokens))
    by_query, by_distance = (
        largest(_softmax(scores + bias) - _softmax(scores)) for bias in (per_query, per_distance)
    )
    return Evidence(
        expected="both change the attention weights",
        findings=(
            part("change by c_(q-k)", f"{by_distance:.2f}", by_distance > EXACT, by_distance),
            part("change by b_q", tiny(by_query), by_query > EXACT, by_query),
        ),
    )


def _softmax(scores: Float[Array, "t t"]) -> Float[Array, "t t"]:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def rows_of_relative_table(*, length: int = 512, rows: int = 1024) -> Evidence:
    """Count the differences q - k between positions of the text."""
    positions = np.arange(length)
    differences = np.unique(positions[:, None] - positions)
    farthest = int(differences.max())
    return Evidence(
        expected=f"{rows} rows",
        findings=(
            part(
                f"different distances in {length} tokens",
                f"{len(differences)}, from -{farthest} to {farthest}",
                len(differences) == rows,
                len(differences),
            ),
        ),
    )


Distance = Literal["from key to query", "from query to key"]


def middle_terms_index(
    *,
    printed: Distance = "from key to query",
    rows: int = 4,
    tokens: int = 5,
    seed: int = 0,
) -> Evidence:
    """The row that the position-to-content term takes: by a printed formula and as it is coded.

    DeBERTa's paper: delta(j, i); RoFormer's account of it: p_(m-n). Code: the rows gathered at
    k - (j - i) over keys j, then transposed, which is delta(i, j), the same row as in the
    content-to-position term.
    """
    i, j = np.arange(tokens)[:, None], np.arange(tokens)

    def delta(distance: NDArray[np.intp]) -> NDArray[np.intp]:
        return np.clip(distance + rows, 0, 2 * rows - 1)

    keys_by_row = gaussian(seed, tokens, 2 * rows)
    gathered = np.take_along_axis(keys_by_row, np.clip(rows - (i - j), 0, 2 * rows - 1), 1).T
    apart = {
        name: largest(gathered - keys_by_row[j, delta(distance)])
        for name, distance in (("from key to query", j - i), ("from query to key", i - j))
    }
    shown = "; ".join(f"{tiny(off)} {name}" for name, off in apart.items())
    return Evidence(
        expected=f"the term as coded takes the distance {printed}",
        findings=(
            part(
                "position-to-content term as coded, apart from K_j . Q at the distance",
                shown,
                apart[printed] <= EXACT,
                apart[printed],
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="four-terms",
        passages=(
            Passage(
                "002",
                "§2",
                35,
                "这个公式有4项,第一项为不加位置emb情况下的原始展开项",
                "this formula has four terms, the first being what there is without positions",
            ),
            Passage(
                "003",
                "relative encodings §4",
                269,
                "展开后得到四项",
                "multiplied out there are four terms",
            ),
        ),
        statement="With sinusoids added to the embeddings a score splits into content-content, "
        "content-position, position-content and position-position terms.",
        check=four_terms,
    ),
    Claim(
        id="position-terms-absolute",
        passages=(
            Passage(
                "003",
                "relative encodings §4",
                279,
                "它们并不是纯粹的“相对位置”",
                "they are not purely relative positions",
            ),
            Passage(
                "002",
                "§1",
                21,
                "且不能很好的处理位置间的相对关系",
                "and cannot handle relative positions well",
            ),
        ),
        statement="With added codes the terms with positions depend on the query's and the key's "
        "positions separately, not on their difference.",
        check=position_terms_absolute,
    ),
    Claim(
        id="deberta-distance",
        passages=(Passage("deberta", "eq. 4"),),
        statement="DeBERTa as it was released and as Hugging Face has it computes the paper's "
        "position-to-content term, K_j . Q at the distance from key to query.",
        check=middle_terms_index,
    ),
    Claim(
        id="deberta-as-noted",
        passages=(
            Passage(
                "002",
                "§2",
                45,
                "只需要将$p_m$和$p_n$替换成相对位置编码$p_{m-n}$",
                "p_m and p_n need only be replaced by the relative code p_(m-n)",
            ),
            Passage("roformer", "eq. 10"),
        ),
        statement="Both middle terms of DeBERTa take the code of the distance from query to key, "
        "p_(m-n).",
        check=partial(middle_terms_index, printed="from query to key"),
    ),
    Claim(
        id="query-bias",
        passages=(
            Passage(
                "003",
                "relative encodings §7",
                352,
                "与当前 query 有关的偏置",
                "a bias that belongs to the current query",
            ),
        ),
        statement="Position enters the scores through two biases, b_q of the query and c_(q-k) of "
        "the distance.",
        check=query_bias_matters,
    ),
    Claim(
        id="relative-table",
        passages=(
            Passage(
                "003",
                "relative encodings §6",
                330,
                r"我们就准备一个大小为 $ 1024 \times d $ 的可学习矩阵",
                "we prepare a learnable matrix of 1024 x d",
            ),
        ),
        statement="For texts of up to 512 tokens relative positions reach from -512 to 512, and "
        "their table needs 1024 rows.",
        check=rows_of_relative_table,
    ),
)
