"""Claims about attention without positions: what it can and cannot see of the order of tokens."""

import math
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import NDArray

from ropelab.claims.numbers import Array, gaussian, largest, tiny
from ropelab.claims.record import Claim, Evidence, Passage, limit, part

EXACT = 1e-12
"""Float64 sums of a few hundred terms of size one agree to better than this in any order."""
FIRST = ((1.25, 1.00, 0.95), (1.00, 1.25, 0.70), (0.95, 0.70, 0.73))
SECOND = ((0.73, 0.70, 0.95), (0.70, 1.25, 1.00), (0.95, 1.00, 1.25))


def attention(
    q: Float[Array, "tokens width"],
    k: Float[Array, "tokens width"],
    v: Float[Array, "tokens width"],
    causal: bool = False,
) -> Float[Array, "tokens width"]:
    """softmax(q k^T / sqrt(width)) v, without positions."""
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.triu(np.ones_like(scores), 1) > 0, -math.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def attended(
    order: NDArray[np.intp], causal: bool, tokens: int, width: int, seed: int
) -> tuple[Float[Array, "t t"], Float[Array, "t w"]]:
    """Scores and attention outputs of random tokens put into `order`, under random weights."""
    x = gaussian(seed, tokens, width)[order]
    wq, wk, wv = gaussian(seed + 1, 3, width, width) / math.sqrt(width)
    return (x @ wq) @ (x @ wk).T, attention(x @ wq, x @ wk, x @ wv, causal)


def shuffled(tokens: int, seed: int) -> NDArray[np.intp]:
    """An order in which no token stays where it was."""
    start = np.random.default_rng(seed).permutation(tokens)
    order = np.empty_like(start)
    order[start] = np.roll(start, 1)
    return order


def order_blind(
    *, tokens: int = 12, width: int = 32, causal: bool = False, seed: int = 0
) -> Evidence:
    """Compare scores and outputs of shuffled tokens with the shuffled scores and outputs."""
    straight, order = np.arange(tokens), shuffled(tokens, seed)
    scores, outputs = attended(straight, causal, tokens, width, seed)
    new_scores, new_outputs = attended(order, causal, tokens, width, seed)
    scores_off = largest(new_scores - scores[order][:, order])
    outputs_off = largest(new_outputs - outputs[order])
    masked = [attended(at, True, tokens, width, seed)[1] for at in (order, straight)]
    masked_off = largest(masked[0] - masked[1][order])
    return Evidence(
        expected=f"rearranged scores and outputs agree to {EXACT:g}",
        findings=(
            part("scores against rearranged scores", tiny(scores_off), scores_off <= EXACT),
            part(
                "outputs against rearranged outputs",
                tiny(outputs_off),
                outputs_off <= EXACT,
                outputs_off,
            ),
            limit(
                "the same outputs under a causal mask",
                f"{masked_off:.2f} apart",
                masked_off <= EXACT,
                masked_off,
            ),
        ),
    )


def same_output(
    *, tokens: int = 3, width: int = 32, causal: bool = False, seed: int = 0
) -> Evidence:
    """Compare the outputs of a sentence and of the same sentence backwards, row by row."""
    straight = np.arange(tokens)
    forwards = attended(straight, causal, tokens, width, seed)[1]
    backwards = attended(straight[::-1], causal, tokens, width, seed)[1]
    apart = largest(backwards - forwards)
    return Evidence(
        expected="the two outputs agree row by row",
        findings=(
            part("row by row", f"{apart:.2f} apart", apart <= EXACT, apart),
            limit("row against mirrored row", *_same(largest(backwards[::-1] - forwards))),
            limit("summed over the rows", *_same(largest(backwards.sum(0) - forwards.sum(0)))),
        ),
    )


def _same(apart: float) -> tuple[str, bool, float]:
    return f"{tiny(apart)} apart", apart <= EXACT, apart


def order_in_scores(*, tokens: int = 3, width: int = 32, seed: int = 0) -> Evidence:
    """Compare Q K^T before and after the rows of Q and K are put into another order."""
    q, k = gaussian(seed, 2, tokens, width)
    scores, other = q @ k.T, q[::-1] @ k[::-1].T
    apart = largest(other - scores)
    return Evidence(
        expected="the same matrix in any order of the rows",
        findings=(
            part("the two matrices", f"{tiny(apart)} apart", apart <= EXACT, apart),
            limit(
                "the numbers in them, whatever their places",
                *_same(largest(np.sort(other, None) - np.sort(scores, None))),
            ),
        ),
    )


def score_example(*, order: tuple[int, ...] = (2, 1, 0)) -> Evidence:
    """Rearrange the first matrix and compare; ask whether real vectors can have such scores."""
    first, second = np.array(FIRST), np.array(SECOND)
    off = largest(second - first[np.ix_(order, order)])
    lowest = float(np.linalg.eigvalsh(first)[0])
    symmetric = bool((first == first.T).all())
    return Evidence(
        expected="the second matrix is the first with rows and columns rearranged",
        findings=(
            part("largest difference after rearranging", f"{off:g}", off == 0, off),
            limit(
                "such scores exist with q = k (no negative eigenvalue)",
                f"smallest eigenvalue {tiny(lowest)}",
                symmetric and lowest >= -EXACT,
                lowest,
            ),
        ),
        series={"permutation": _matrices(order)},
    )


def _matrices(order: tuple[int, ...]) -> pd.DataFrame:
    """Both matrices, a row per cell, with the words that meet there."""
    words = ("I", "like", "you")
    texts = {"first": words, "second": tuple(words[i] for i in order)}
    rows = [
        (name, row, column, texts[name][row], texts[name][column], score)
        for name, matrix in (("first", FIRST), ("second", SECOND))
        for row, line in enumerate(matrix)
        for column, score in enumerate(line)
    ]
    return pd.DataFrame(rows, columns=["sentence", "row", "column", "query", "key", "score"])


def one_hot_orders_differ(
    *, words: int = 3, width: int = 3, offsets: tuple[float, ...] = (0.0, 0.0, 0.0)
) -> Evidence:
    """Compare the score matrices x x^T of one-hot words forwards and backwards.

    `offsets[i]` is added to every feature of the word at position i.
    """
    x = np.eye(words, width)
    added = np.array(offsets)[:, None]
    forwards, backwards = ((y + added) @ (y + added).T for y in (x, x[::-1]))
    apart = largest(forwards - backwards)
    return Evidence(
        expected="the two score matrices differ",
        findings=(
            part("largest difference between the matrices", tiny(apart), apart > EXACT, apart),
        ),
    )


CLAIMS = (
    Claim(
        id="order-blind",
        passages=(
            Passage(
                "000",
                "§2",
                29,
                "在传统的注意力机制中,并没有考虑位置顺序这一点",
                "traditional attention did not consider the order of positions",
            ),
            Passage(
                "001",
                "§2.2",
                106,
                "Softmax 之后,每一行的权重分布也只是重排",
                "after the softmax the weights of each row are only rearranged, too",
            ),
            Passage(
                "003", "", 5, "自注意力机制没有顺序概念", "self-attention has no notion of order"
            ),
        ),
        statement="Attention without positions cannot see order: permuting the tokens permutes "
        "the rows and columns of the scores and the rows of the output, and changes nothing else.",
        check=order_blind,
    ),
    Claim(
        id="same-output",
        passages=(
            Passage(
                "001",
                "§1.1",
                42,
                "两个意思完全相反的句子,Attention 的输出居然一样",
                "two sentences of opposite meaning, and attention's output is the same",
            ),
        ),
        statement="Without positions, attention gives the same output for a sentence and for the "
        "sentence with its words in another order (allclose is true).",
        check=same_output,
    ),
    Claim(
        id="scores-without-order",
        passages=(
            Passage(
                "001",
                "§2.2",
                86,
                "矩阵乘法 Q @ K.T 的结果只依赖于Q和K的行向量,不依赖行的顺序",
                "the product Q @ K.T depends on the rows of Q and K only, not on their order",
            ),
        ),
        statement="The matrix Q K^T does not depend on the order of the rows of Q and K.",
        check=order_in_scores,
    ),
    Claim(
        id="score-example",
        passages=(
            Passage(
                "001",
                "§2.2",
                106,
                "两个矩阵包含完全相同的数值,只是位置不同(行列重排)",
                "both matrices hold the same numbers, only elsewhere (rows and columns rearranged)",
            ),
        ),
        statement="The two printed 3x3 score matrices hold the same numbers, with rows and "
        "columns rearranged.",
        check=score_example,
    ),
    Claim(
        id="script-scores-scrambled",
        passages=(Passage("rope_basics", "experiment 1"),),
        statement="Turning the three one-hot words around scrambles the numbers of the score "
        "matrix.",
        check=one_hot_orders_differ,
    ),
    Claim(
        id="script-positions-help",
        passages=(Passage("rope_basics", "experiment 2"),),
        statement="With 0.1, 0.2, 0.3 added at the three positions, the score matrices of the two "
        "word orders differ.",
        check=partial(one_hot_orders_differ, offsets=(0.1, 0.2, 0.3)),
    ),
)
