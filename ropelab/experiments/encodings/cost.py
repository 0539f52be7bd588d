"""What each encoding costs, before anything is trained: parameters, work and memory.

Work is counted in operations of matrix products, as ratios to the model without positions, because
a table must be the same on every machine; `times.py` measures times, for the manifest.
"""

from dataclasses import replace

import pandas as pd
import torch

from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.experiments.encodings.meters import LargestTensor, flops_of, kept_bytes
from ropelab.experiments.encodings.plan import shape_of
from ropelab.models.encoding.base import unfused
from ropelab.models.encoding.registry import ENCODINGS, make_encoding
from ropelab.models.lm.batch import Batch
from ropelab.models.lm.corpus import VOCABULARY
from ropelab.models.lm.model import Cache, LanguageModel
from ropelab.models.lm.training import batch_loss
from ropelab.models.tasks.plans import model_size
from ropelab.models.tasks.readers import defined_length

PLAIN = "nope"
MEMORY_LENGTHS = (1024, 2048)
"""Tokens in the two passes from which the growth of memory is read."""


def costs(config: EncodingsConfig) -> pd.DataFrame:
    """One row per encoding, with what is known of it before it is measured."""
    return pd.DataFrame([_row(config, name) for name in config.encodings])


def _row(config: EncodingsConfig, name: str) -> dict[str, object]:
    record = ENCODINGS[name]
    encoding = make_encoding(name, shape_of(config))
    last, limit = encoding.max_position, defined_length(encoding, config.test_len)
    return {
        "encoding": name,
        "label": record.label,
        "family": record.family,
        "source": record.source,
        "claim": record.claim,
        "defined": "everywhere" if last is None else f"to position {last}",
        "fused_kernel": encoding.fused,
        "parameters": parameters(config, name, config.train_len),
        "parameters_at_twice_the_length": parameters(config, name, 2 * config.train_len),
        "train_flops_ratio": train_flops(config, name) / train_flops(config, PLAIN),
        "decode_flops_ratio": decode_flops(config, name, limit)
        / decode_flops(config, PLAIN, limit),
    }


def model_with(config: EncodingsConfig, name: str, trained_len: int) -> LanguageModel:
    """An untrained model with that encoding, as it would be trained at that length."""
    shape = replace(shape_of(config), trained_len=trained_len)
    return LanguageModel(model_size(config, VOCABULARY), make_encoding(name, shape))


def parameters(config: EncodingsConfig, name: str, trained_len: int) -> int:
    """How many numbers the encoding adds to what is trained."""
    shape = replace(shape_of(config), trained_len=trained_len)
    return sum(p.numel() for p in make_encoding(name, shape).parameters())


def train_flops(config: EncodingsConfig, name: str) -> int:
    """Operations to learn from one window of the trained length, forward and backward."""
    model = model_with(config, name, config.train_len)
    unfused(model.encoding)  # only separate products can be counted
    tokens = torch.zeros(1, config.train_len + 1, dtype=torch.long)
    batch = Batch(tokens, torch.ones_like(tokens, dtype=torch.bool))
    return flops_of(lambda: batch_loss(model, batch).backward())


@torch.no_grad()
def decode_flops(config: EncodingsConfig, name: str, context: int) -> int:
    """Operations for one more token when all others of `context` are cached."""
    model = model_with(config, name, config.train_len)
    unfused(model.encoding)  # only separate products can be counted
    cache, one = Cache(), torch.zeros(1, 1, dtype=torch.long)
    model(torch.zeros(1, context - 2, dtype=torch.long), cache)
    model(one, cache)
    return flops_of(lambda: model(one, cache))


def memory(config: EncodingsConfig) -> pd.DataFrame:
    """Bytes that a pass keeps for positions, and of its largest tensor, at two lengths."""
    return pd.DataFrame(
        [
            {"encoding": name, "length_tokens": length, **_held(config, name, length)}
            for name in config.encodings
            for length in MEMORY_LENGTHS
        ]
    )


def _held(config: EncodingsConfig, name: str, length: int) -> dict[str, int]:
    model = model_with(config, name, length)
    with torch.no_grad(), LargestTensor() as largest:
        model.hidden(torch.zeros(1, length, dtype=torch.long))
    return {"kept_bytes": kept_bytes(model.encoding), "largest_tensor_bytes": largest.bytes}
