"""The cells: one trained model under one method, measured on text or on copying.

Each returns what was measured per document or sequence; intervals are made later, when everything
that is to be compared is at hand.
"""

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from ropelab.context import Advance
from ropelab.experiments.extrapolate import grid
from ropelab.experiments.extrapolate.methods import Method
from ropelab.lm.evaluation import Readable, correct, sliding_losses, token_losses
from ropelab.lm.tasks import Batch

ROWS_AT_ONCE = 5
"""Documents between two reports of progress."""


SEARCH_SEED = 1_000_003
"""Sequences for searching; no training seed, and not the seed 0 of what is measured."""

Trials = Callable[[int, int, int, int], Batch]
"""Makes sequences from a seed, a distance, a length and their number."""


class Texts(NamedTuple):
    """Documents to measure on.

    Attributes:
        tokens: [documents, test length + 1].
        bytes_per_token: [documents], float64; ones where tokens are bytes.
    """

    tokens: Tensor
    bytes_per_token: Tensor


class Lengths(NamedTuple):
    """The trained and the tested length, in tokens."""

    train: int
    test: int


def text_under(
    model: Readable, method: Method, texts: Texts, lengths: Lengths, advance: Advance
) -> dict[str, pd.DataFrame]:
    """Losses under one method: `buckets` of positions in one pass, `last_window` by context."""
    pieces = []
    for rows in texts.tokens.split(ROWS_AT_ONCE):
        losses = _every_position(model, method, rows, lengths)
        last = {
            context: _final_losses(model, method, rows, context, grid.last_window(lengths.train))
            for context in grid.contexts(lengths.train, lengths.test)[:-1]
        }
        last[lengths.test] = losses[:, -grid.last_window(lengths.train) :].mean(dim=1)
        pieces.append((losses, last))
        advance(len(rows))
    return _text_tables(
        torch.cat([losses for losses, _ in pieces]),
        {c: torch.cat([last[c] for _, last in pieces]) for c in pieces[0][1]},
        texts.bytes_per_token,
        lengths,
    )


def text_truncated(
    model: Readable, method: Method, texts: Texts, lengths: Lengths, advance: Advance
) -> dict[str, pd.DataFrame]:
    """Losses when the model never sees more than the trained length: a sliding window.

    Its stride is half of the trained length, so between half and all of it is read.
    """
    model.encoding = method.encoding(lengths.train)
    pieces = []
    for rows in texts.tokens.split(ROWS_AT_ONCE):
        pieces.append(sliding_losses(model, rows, lengths.train, lengths.train // 2))
        advance(len(rows))
    losses = torch.cat(pieces)
    final = losses[:, -grid.last_window(lengths.train) :].mean(dim=1)
    return _text_tables(losses, {lengths.test: final}, texts.bytes_per_token, lengths)


def _every_position(model: Readable, method: Method, rows: Tensor, lengths: Lengths) -> Tensor:
    """The loss at every position, each bucket under the plan of the context that ends it."""
    losses = torch.empty(len(rows), lengths.test)
    starts = {end: start for start, end in grid.buckets(lengths.train, lengths.test)}
    for encoding, ends in method.passes(list(starts)):
        model.encoding = encoding
        through = token_losses(model, rows[:, : ends[-1] + 1])
        losses[:, starts[ends[0]] : ends[-1]] = through[:, starts[ends[0]] :]
    return losses


def _final_losses(model: Readable, method: Method, rows: Tensor, context: int, last: int) -> Tensor:
    """The mean loss of the `last` tokens when only `context` tokens are read, per row."""
    model.encoding = method.encoding(context)
    return token_losses(model, rows[:, -context - 1 :], last).mean(dim=1)


def _text_tables(
    losses: Tensor, last: dict[int, Tensor], bytes_per_token: Tensor, lengths: Lengths
) -> dict[str, pd.DataFrame]:
    """Mean losses per byte of each document, by bucket and by context."""

    def per_byte(per_token: Tensor) -> list[float]:
        return (per_token / bytes_per_token).tolist()

    by_bucket = [
        {
            "document": document,
            "bucket_start_tokens": start,
            "bucket_end_tokens": end,
            "nll_nats_per_byte": value,
        }
        for start, end in grid.buckets(lengths.train, lengths.test)
        for document, value in enumerate(per_byte(losses[:, start:end].double().mean(dim=1)))
    ]
    by_context = [
        {"document": document, "context_tokens": context, "nll_nats_per_byte": value}
        for context, values in last.items()
        for document, value in enumerate(per_byte(values.double()))
    ]
    return {"buckets": pd.DataFrame(by_bucket), "last_window": pd.DataFrame(by_context)}


def retrieved_under(
    model: Readable,
    method: Method,
    trials: Trials,
    sequences: int,
    lengths: Lengths,
    advance: Advance,
) -> dict[str, pd.DataFrame]:
    """Tokens found again in each sequence, by distance, under one method.

    Args:
        trials: makes the sequences of one distance.
        sequences: how many of them.
    """
    records = []
    for distance in grid.distances(lengths.train, lengths.test):
        length = grid.copy_length(distance, lengths.test)
        model.encoding = method.encoding(length)
        hits = correct(model, trials(0, distance, length, sequences))
        records += [
            {
                "sequence": sequence,
                "distance_tokens": distance,
                "trials": hits.shape[1],
                "correct": int(row.sum()),
            }
            for sequence, row in enumerate(hits)
        ]
        advance(1)
    return {"trials": pd.DataFrame(records)}


def text_loss_beyond(
    model: Readable, method: Method, batches: Callable[..., Batch], lengths: Lengths
) -> float:
    """The mean loss beyond the trained length on two windows of the text that is learned from."""
    texts = batches(seed=SEARCH_SEED, step=0, window=lengths.test + 1, rows=2).tokens
    model.encoding = method.encoding(lengths.test)
    return float(token_losses(model, texts)[:, lengths.train :].mean())


def retrieval_loss_beyond(
    model: Readable, method: Method, trials: Trials, lengths: Lengths
) -> float:
    """The mean loss of scored tokens on two sequences each at T/4, T/2 and 3 T/4."""
    losses = []
    for distance in (lengths.test // 4, lengths.test // 2, lengths.test * 3 // 4):
        length = grid.copy_length(distance, lengths.test)
        batch = trials(SEARCH_SEED, distance, length, 2)
        model.encoding = method.encoding(length)
        losses.append(token_losses(model, batch.tokens)[batch.scored[:, 1:]].mean())
    return float(torch.stack(losses).mean())
