"""Synthetic tasks with exact answers: copying a repeated segment, and looking up a key.

Every sequence is a pure function of (seed, step) or of (seed, distance), so that training can be
continued without saving the state of a random generator, and evaluation meets the same sequences
for every method.

Looking up is measured on models that have learned to copy, which they do with the same means: find
what followed when these tokens stood here before. Trained on look-ups alone, with one scored token
in eight, a model of this size has not found them after twice the time in which it learns to copy.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

SYMBOLS = 64
SHORTEST_SEGMENT = 4
LONGEST_SEGMENT = 3 / 4
"""The longest segment in training, as a share of the window: a quarter of it is then repeated."""
CUE = 8
"""The first tokens of a repeat, which are not scored: they tell which segment is repeated."""

TRAINING, EVALUATION = 0, 1
"""First word of every random seed: what is learned from is never what is measured."""


@dataclass(frozen=True)
class Batch:
    """Sequences and which of their tokens are to be predicted from those before."""

    tokens: Int[Tensor, "batch tokens"]
    scored: Bool[Tensor, "batch tokens"]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return Batch(self.tokens.to(device), self.scored.to(device))


def periodic(segment: np.ndarray, length: int) -> np.ndarray:
    """`segment` repeated until `length` tokens are full; the last repeat may be cut."""
    return np.resize(segment, length)


def copy_batch(seed: int, step: int, window: int, rows: int) -> Batch:
    """The training batch of one step: each row repeats its own segment to the end of the window.

    Lengths of segments are log-uniform between SHORTEST_SEGMENT and LONGEST_SEGMENT of the window,
    so that every distance is practised; only repeats are scored.
    """
    random = np.random.default_rng((TRAINING, seed, step))
    longest = max(LONGEST_SEGMENT * window, SHORTEST_SEGMENT)
    lengths = np.exp(random.uniform(math.log(SHORTEST_SEGMENT), math.log(longest), size=rows))
    tokens, scored = np.empty((rows, window), np.int64), np.empty((rows, window), np.bool_)
    for row, length in enumerate(lengths.astype(int)):
        tokens[row] = periodic(random.integers(SYMBOLS, size=length), window)
        scored[row] = np.arange(window) >= length
    return Batch(torch.from_numpy(tokens), torch.from_numpy(scored))


def copy_trials(seed: int, distance: int, length: int, rows: int) -> Batch:
    """Sequences of `length` tokens whose only earlier occurrence lies exactly `distance` back.

    A random segment of `distance` tokens and (the beginning of) its one repeat. The cue of CUE
    tokens, or half the repeat if that is less, is not scored.

    Raises:
        ValueError: `length` leaves no repeat or more than one.
    """
    repeat = length - distance
    if not 2 <= repeat <= distance:
        raise ValueError(f"length {length} does not hold one repeat at distance {distance}")
    random = np.random.default_rng((EVALUATION, seed, distance))
    segments = random.integers(SYMBOLS, size=(rows, distance))
    tokens = np.concatenate([segments, segments[:, :repeat]], axis=1)
    scored = np.arange(length) >= distance + min(CUE, repeat // 2)
    return Batch(torch.from_numpy(tokens), torch.from_numpy(scored).expand(rows, length))


KEY = 3
"""Symbols in a key: 64^3 keys, so that long sequences need not use one twice by chance."""
RECORD = KEY + 1
"""A key and its value, one symbol."""


def recall_trials(seed: int, distance: int, length: int, rows: int) -> Batch:
    """Sequences of new records, later ones asking for the value of a record `distance` back.

    `length` and `distance` are cut to whole records. After the first `distance` tokens every
    second record repeats the one `distance` back, and its value is scored; the records between
    are new, or the repeats together would be a copied segment.

    Raises:
        ValueError: no record is that far back.
    """
    back, count = distance // RECORD, length // RECORD
    if not 1 <= count - back <= back:
        raise ValueError(f"length {length} does not hold one look-up at distance {distance}")
    random = np.random.default_rng((EVALUATION, seed, distance))
    records = random.integers(SYMBOLS, size=(rows, count, RECORD))
    asked = np.arange(back, count, 2)
    records[:, asked] = records[:, asked - back]
    tokens = records.reshape(rows, -1)
    scored = np.zeros((count, RECORD), np.bool_)
    scored[asked, KEY] = True
    return Batch(torch.from_numpy(tokens), torch.from_numpy(scored.ravel()).expand(rows, -1))
