"""The small model on which encodings are compared, and what is counted of an encoding."""

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ropelab.claims.numbers import gaussian
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.registry import Shape, make_encoding

LENGTH, LAYERS, HEADS, HEAD = 512, 4, 4, 32
"""Trained length, layers, heads and the width of a head."""


def encoding_for(name: str, length: int = LENGTH, seed: int = 0) -> Encoding:
    """The encoding of that name for small models of that trained length."""
    shape = Shape(layers=LAYERS, width=HEADS * HEAD, heads=HEADS, head_dim=HEAD, trained_len=length)
    return make_encoding(name, shape, seed)


def trains(name: str, length: int = LENGTH) -> int:
    """How many numbers it trains."""
    return sum(p.numel() for p in encoding_for(name, length).parameters())


def keeps(name: str, length: int) -> int:
    """How many numbers it keeps, trained or not."""
    encoding = encoding_for(name, length)
    return sum(x.numel() for x in (*encoding.parameters(), *encoding.buffers()))


def queries_and_keys(tokens: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random queries and keys of one layer, float32 [1, heads, tokens, head_dim]."""
    q, k = torch.from_numpy(gaussian(seed, 2, 1, HEADS, tokens, HEAD)).float()
    return q, k


def encoded(encoding: Encoding, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `scores` takes for a whole sequence."""
    positions = torch.arange(q.shape[-2])
    return encoding.query(q, positions), encoding.key(k, positions), positions, positions


def multiplications(encoding: Encoding, seed: int) -> int:
    """Multiplications in matrix products for the scores of a sequence of LENGTH tokens."""
    whole = encoded(encoding, *queries_and_keys(LENGTH, seed))
    with FlopCounterMode(display=False) as counter:
        encoding.scores(*whole)
    return counter.get_total_flops()
