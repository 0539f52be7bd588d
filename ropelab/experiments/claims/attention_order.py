"""Claims about attention without positions: what it can and cannot see of the order of tokens."""

import math
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ropelab.experiments.claims.randoms import gaussian, largest
from ropelab.experiments.claims.record import Claim, Evidence, limit, part, tiny

EXACT = 1e-12
"""Float64 sums of a few hundred terms of size one agree to better than this in any order."""


def attention(
    q: Float[Tensor, "tokens width"],
    k: Float[Tensor, "tokens width"],
    v: Float[Tensor, "tokens width"],
    causal: bool = False,
) -> Float[Tensor, "tokens width"]:
    """softmax(q k^T / sqrt(width)) v, without positions."""
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -math.inf)
    return scores.softmax(-1) @ v


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """Random tokens, random projections, and the order in which the tokens stand."""

    tokens: int = 12
    width: int = 32
    causal: bool = False
    seed: int = 0

    def outputs(
        self, order: Tensor, causal: bool
    ) -> tuple[Float[Tensor, "t t"], Float[Tensor, "t w"]]:
        """Scores and attention outputs of the tokens put into `order`."""
        x = gaussian(self.seed, self.tokens, self.width)[order]
        wq, wk, wv = gaussian(self.seed + 1, 3, self.width, self.width) / math.sqrt(self.width)
        return (x @ wq) @ (x @ wk).T, attention(x @ wq, x @ wk, x @ wv, causal)

    def shuffled(self) -> Tensor:
        """An order in which no token stays where it was."""
        start = torch.randperm(self.tokens, generator=torch.Generator().manual_seed(self.seed))
        order = torch.empty_like(start)
        order[start] = start.roll(1)
        return order


def order_blind(given: Sentence) -> Evidence:
    """Compare scores and outputs of shuffled tokens with the shuffled scores and outputs."""
    straight, order = torch.arange(given.tokens), given.shuffled()
    scores, outputs = given.outputs(straight, given.causal)
    new_scores, new_outputs = given.outputs(order, given.causal)
    scores_off = largest(new_scores - scores[order][:, order])
    outputs_off = largest(new_outputs - outputs[order])
    masked_off = largest(given.outputs(order, True)[1] - given.outputs(straight, True)[1][order])
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


def same_output(given: Sentence) -> Evidence:
    """Compare the outputs of a sentence and of the same sentence backwards, row by row."""
    straight = torch.arange(given.tokens)
    forwards = given.outputs(straight, given.causal)[1]
    backwards = given.outputs(straight.flip(0), given.causal)[1]
    apart = largest(backwards - forwards)
    pooled = largest(backwards.sum(0) - forwards.sum(0))
    return Evidence(
        expected="the two outputs agree row by row",
        findings=(
            part("row by row", f"{apart:.2f} apart", apart <= EXACT, apart),
            limit("row against mirrored row", *_same(largest(backwards.flip(0) - forwards))),
            limit("summed over the rows", *_same(pooled)),
        ),
    )


def _same(apart: float) -> tuple[str, bool, float]:
    return f"{tiny(apart)} apart", apart <= EXACT, apart


@dataclass(frozen=True, kw_only=True)
class PrintedScores:
    """Two printed score matrices of the same three tokens in two orders."""

    first: tuple[tuple[float, ...], ...] = (
        (1.25, 1.00, 0.95),
        (1.00, 1.25, 0.70),
        (0.95, 0.70, 0.73),
    )
    second: tuple[tuple[float, ...], ...] = (
        (0.73, 0.70, 0.95),
        (0.70, 1.25, 1.00),
        (0.95, 1.00, 1.25),
    )
    order: tuple[int, ...] = (2, 1, 0)
    words: tuple[str, ...] = ("I", "like", "you")


def score_example(given: PrintedScores) -> Evidence:
    """Rearrange the first matrix and compare; ask whether real vectors can have such scores."""
    first, second = torch.tensor((given.first, given.second), dtype=torch.float64)
    order = torch.tensor(given.order)
    off = largest(second - first[order][:, order])
    lowest = float(torch.linalg.eigvalsh(first)[0])
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
        series={"permutation": _matrices(given)},
    )


def _matrices(given: PrintedScores) -> pd.DataFrame:
    """Both matrices, a row per cell, with the words that meet there."""
    words = {"first": given.words, "second": tuple(given.words[i] for i in given.order)}
    rows = [
        (name, row, column, words[name][row], words[name][column], score)
        for name, matrix in (("first", given.first), ("second", given.second))
        for row, line in enumerate(matrix)
        for column, score in enumerate(line)
    ]
    return pd.DataFrame(rows, columns=["sentence", "row", "column", "query", "key", "score"])


@dataclass(frozen=True, kw_only=True)
class OneHotWords:
    """One-hot words; `offsets[i]` is added to every feature of the word at position i."""

    words: int = 3
    offsets: tuple[float, ...] = (0.0, 0.0, 0.0)
    width: int = 3

    def scores(self, order: tuple[int, ...]) -> Float[Tensor, "t t"]:
        """The scores x x^T of the words in that order."""
        x = torch.eye(self.words, self.width, dtype=torch.float64)[list(order)]
        x = x + torch.tensor(self.offsets, dtype=torch.float64)[:, None]
        return x @ x.T


def one_hot_orders_differ(given: OneHotWords) -> Evidence:
    """Compare the score matrices of one-hot words forwards and backwards."""
    order = tuple(range(given.words))
    apart = largest(given.scores(order) - given.scores(order[::-1]))
    return Evidence(
        expected="the two score matrices differ",
        findings=(
            part("largest difference between the matrices", tiny(apart), apart > EXACT, apart),
        ),
    )


CLAIMS = (
    Claim(
        id="order-blind",
        source="note 000 (attention's limits); note 001 §2.2",
        statement="Attention without positions cannot see order: permuting the tokens permutes "
        "the rows and columns of the scores and the rows of the output, and changes nothing else.",
        inputs=Sentence(),
        check=order_blind,
    ),
    Claim(
        id="same-output",
        source="note 001 §1.1",
        statement="Without positions, attention gives the same output for a sentence and for the "
        "sentence with its words in another order (allclose is true).",
        inputs=Sentence(tokens=3),
        check=same_output,
    ),
    Claim(
        id="score-example",
        source="note 001 §2.2",
        statement="The two printed 3x3 score matrices hold the same numbers, with rows and "
        "columns rearranged.",
        inputs=PrintedScores(),
        check=score_example,
    ),
    Claim(
        id="script-scores-scrambled",
        source="rope_basics.py, experiment 1",
        statement="Turning the three one-hot words around scrambles the numbers of the score "
        "matrix.",
        inputs=OneHotWords(),
        check=one_hot_orders_differ,
    ),
    Claim(
        id="script-positions-help",
        source="rope_basics.py, experiment 2",
        statement="With 0.1, 0.2, 0.3 added at the three positions, the score matrices of the two "
        "word orders differ.",
        inputs=OneHotWords(offsets=(0.1, 0.2, 0.3)),
        check=one_hot_orders_differ,
    ),
)
