"""The cost of each encoding before anything is trained: parameters, work and memory.

Work is counted in operations of matrix products, as ratios to the model without positions, because
a table must be the same on every machine; `times.py` measures times, for the manifest.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ropelab.experiments.encodings import EncodingsConfig
from ropelab.models.encoding.base import unfused
from ropelab.models.encoding.registry import ENCODINGS, Shape, make_encoding
from ropelab.models.lm.batch import Batch
from ropelab.models.lm.corpus import VOCABULARY
from ropelab.models.lm.model import Cache, LanguageModel
from ropelab.models.lm.training import batch_loss
from ropelab.models.tasks.modes import defined_length
from ropelab.models.tasks.plans import model_size

PLAIN = "nope"
# Tokens in the two passes from which the growth of memory is read.
MEMORY_LENGTHS = (1024, 2048)


def shape_of(config: EncodingsConfig, trained_len: int | None = None) -> Shape:
    """Return the shape of the model around every encoding, trained at that length."""
    return Shape(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        head_dim=config.head_dim,
        trained_len=trained_len or config.train_len,
    )


def model_with(config: EncodingsConfig, name: str, trained_len: int) -> LanguageModel:
    """Return an untrained model with that encoding, as it would be trained at that length."""
    encoding = make_encoding(name, shape_of(config, trained_len))
    return LanguageModel(model_size(config, VOCABULARY), encoding)


def countable_model(config: EncodingsConfig, name: str) -> LanguageModel:
    """Return an untrained model in which attention is separate products, as in the experiment."""
    model = model_with(config, name, config.train_len)
    unfused(model.encoding)
    return model


def costs(config: EncodingsConfig) -> pd.DataFrame:
    """Return a row per encoding: its record, parameters, and work against none at all."""
    rows = []
    for name in config.encodings:
        record = ENCODINGS[name]
        encoding = make_encoding(name, shape_of(config))
        last, limit = encoding.max_position, defined_length(encoding, config.test_len)
        decoding = decode_flops(config, name, limit) / decode_flops(config, PLAIN, limit)
        rows.append(
            {
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
                "decode_flops_ratio": decoding,
            }
        )
    return pd.DataFrame(rows)


def parameters(config: EncodingsConfig, name: str, trained_len: int) -> int:
    """Count the numbers that the encoding adds to those that are trained."""
    encoding = make_encoding(name, shape_of(config, trained_len))
    return sum(p.numel() for p in encoding.parameters())


def train_flops(config: EncodingsConfig, name: str) -> int:
    """Count the operations to learn from one window of the trained length, both ways."""
    model = countable_model(config, name)
    tokens = torch.zeros(1, config.train_len + 1, dtype=torch.long)
    batch = Batch(tokens, torch.ones_like(tokens, dtype=torch.bool))
    return flops_of(lambda: batch_loss(model, batch).backward())


@torch.no_grad()
def decode_flops(config: EncodingsConfig, name: str, context: int) -> int:
    """Count the operations for one more token when all others of `context` are cached."""
    model = countable_model(config, name)
    cache, one = Cache(), torch.zeros(1, 1, dtype=torch.long)
    model(torch.zeros(1, context - 2, dtype=torch.long), cache)
    model(one, cache)  # tables that are kept while decoding are made here, and not counted
    return flops_of(lambda: model(one, cache))


def flops_of(work: Callable[[], object]) -> int:
    """Count the floating-point operations of all matrix products, two per multiply-add."""
    # torch does not count fused attention on a CPU: call attention unfused.
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def memory(config: EncodingsConfig) -> pd.DataFrame:
    """Return the bytes that a pass keeps for positions, and of its largest tensor, by length."""
    rows = []
    for name in config.encodings:
        for length in MEMORY_LENGTHS:
            model = model_with(config, name, length)
            with torch.no_grad(), LargestTensor() as largest:
                model.hidden(torch.zeros(1, length, dtype=torch.long))
            rows.append(
                {
                    "encoding": name,
                    "length_tokens": length,
                    "kept_bytes": kept_bytes(model.encoding),
                    "largest_tensor_bytes": largest.bytes,
                }
            )
    return pd.DataFrame(rows)


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation made: `bytes`."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Carry out the operation and look at its results."""
        out = func(*args, **(kwargs or {}))
        made = (leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor))
        self.bytes = max([self.bytes, *(each.untyped_storage().nbytes() for each in made)])
        return out


def kept_bytes(owner: object) -> int:
    """Count the bytes of tensors and arrays in an object: modules, tables and attributes."""
    sizes: dict[int, int] = {}
    seen: set[int] = set()
    waiting = [owner]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            sizes[thing.data_ptr()] = thing.untyped_storage().nbytes()
        elif isinstance(thing, np.ndarray):
            sizes[thing.ctypes.data] = thing.nbytes
        elif isinstance(thing, dict):
            waiting.extend(thing.values())
        elif isinstance(thing, tuple | list):
            waiting.extend(thing)
        elif isinstance(thing, nn.Module) or type(thing).__module__.startswith("ropelab."):
            waiting.extend(vars(thing).values())
    return sum(sizes.values())
