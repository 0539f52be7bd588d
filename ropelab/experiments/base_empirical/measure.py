"""What one trained model achieves inside its trained length, per document or per sequence."""

import pandas as pd
import torch
from torch import Tensor

from ropelab.lm.evaluation import correct, token_losses
from ropelab.lm.model import LanguageModel
from ropelab.lm.tasks import Batch, copy_trials, recall_trials

TRIALS = {"copy": copy_trials, "recall": recall_trials}


def edges(train_len: int) -> list[int]:
    """Ends of the buckets of positions: L/16, L/8, L/4, L/2, L."""
    return [train_len >> shift for shift in (4, 3, 2, 1, 0)]


def distances(train_len: int) -> list[int]:
    """How far back lies what is retrieved: L/32, L/16, L/8, L/4, L/2, 3 L/4."""
    return [*(train_len >> shift for shift in (5, 4, 3, 2, 1)), train_len * 3 // 4]


def text_losses(model: LanguageModel, texts: Tensor) -> pd.DataFrame:
    """document, bucket_start_tokens, bucket_end_tokens, nll_nats_per_byte; one pass over each.

    Args:
        texts: [documents, trained length + 1] tokens.
    """
    losses = token_losses(model, texts).double()
    start, parts = 0, []
    for end in edges(losses.shape[1]):
        mean = losses[:, start:end].mean(dim=1)
        parts.append(
            pd.DataFrame(
                {
                    "document": range(len(texts)),
                    "bucket_start_tokens": start,
                    "bucket_end_tokens": end,
                    "nll_nats_per_byte": mean.tolist(),
                }
            )
        )
        start = end
    return pd.concat(parts, ignore_index=True)


def retrieved(model: LanguageModel, task: str, train_len: int, sequences: int) -> pd.DataFrame:
    """sequence, distance_tokens, trials, correct: tokens found again, by how far back they lie."""
    parts = []
    for distance in distances(train_len):
        hits = _hits(model, TRIALS[task](0, distance, min(2 * distance, train_len), sequences))
        parts.append(
            pd.DataFrame(
                {
                    "sequence": range(sequences),
                    "distance_tokens": distance,
                    "trials": hits.shape[1],
                    "correct": hits.sum(dim=1).tolist(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _hits(model: LanguageModel, batch: Batch) -> Tensor:
    with torch.inference_mode():
        return correct(model, batch)
