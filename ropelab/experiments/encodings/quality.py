"""What a trained model achieves: losses on text per document, copied tokens per sequence.

Where an encoding is not defined nothing is measured; `tables.py` fills in those rows by name.
"""

import pandas as pd
import torch
from torch import Tensor

from ropelab.context import Advance
from ropelab.encoding.base import Encoding
from ropelab.experiments.extrapolate import grid
from ropelab.experiments.extrapolate.measure import Lengths
from ropelab.lm.evaluation import correct, token_losses
from ropelab.lm.model import LanguageModel
from ropelab.lm.tasks import copy_trials

ROWS_AT_ONCE = 5
"""Documents between two reports of progress."""


def defined_length(encoding: Encoding, longest: int) -> int:
    """The longest context the encoding is defined for, `longest` if there is no end before."""
    last = encoding.max_position
    return longest if last is None else min(longest, last + 1)


def text_losses(
    model: LanguageModel, texts: Tensor, lengths: Lengths, advance: Advance
) -> dict[str, pd.DataFrame]:
    """Nats per byte and document: `buckets` of positions in one pass, `last_window` by context.

    Args:
        texts: [documents, tested length + 1] tokens.
    """
    limit = defined_length(model.encoding, lengths.test)
    buckets = [(start, end) for start, end in grid.buckets(*lengths) if end <= limit]
    contexts = [context for context in grid.contexts(*lengths) if context <= limit]
    in_bucket, at_end = [], []
    for rows in texts.split(ROWS_AT_ONCE):
        losses = token_losses(model, rows[:, : limit + 1]).double()
        in_bucket.append(torch.stack([losses[:, a:b].mean(dim=1) for a, b in buckets], dim=1))
        at_end.append(torch.stack([_final(model, rows, c, lengths) for c in contexts], dim=1))
        advance(len(rows))
    starts, ends = zip(*buckets, strict=True)
    return {
        "buckets": _tidy(
            torch.cat(in_bucket), {"bucket_start_tokens": starts, "bucket_end_tokens": ends}
        ),
        "last_window": _tidy(torch.cat(at_end), {"context_tokens": contexts}),
    }


def _final(model: LanguageModel, rows: Tensor, context: int, lengths: Lengths) -> Tensor:
    """The mean loss of the same final tokens when `context` tokens are read, per row."""
    last = grid.last_window(lengths.train)
    return token_losses(model, rows[:, -context - 1 :], last).double().mean(dim=1)


def _tidy(values: Tensor, columns: dict[str, list[int] | tuple[int, ...]]) -> pd.DataFrame:
    """From [documents, places] to a row per document and place."""
    return pd.DataFrame(
        [
            {"document": document, **dict(zip(columns, place, strict=True)), "nll_nats_per_byte": v}
            for document, row in enumerate(values.tolist())
            for place, v in zip(zip(*columns.values(), strict=True), row, strict=True)
        ]
    )


def copies(
    model: LanguageModel, sequences: int, lengths: Lengths, advance: Advance
) -> dict[str, pd.DataFrame]:
    """Correctly copied tokens of each sequence, by the distance they are copied over."""
    limit = defined_length(model.encoding, lengths.test)
    records = []
    for distance in grid.distances(*lengths):
        length = grid.copy_length(distance, lengths.test)
        advance(1)
        if length > limit:
            continue
        hits = correct(model, copy_trials(0, distance, length, sequences))
        records += [
            {
                "sequence": sequence,
                "distance_tokens": distance,
                "trials": hits.shape[1],
                "correct": int(row.sum()),
            }
            for sequence, row in enumerate(hits)
        ]
    return {"copies": pd.DataFrame(records)}
