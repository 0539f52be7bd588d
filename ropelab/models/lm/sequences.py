"""Sequences with exact answers at exact distances, in contexts that are full of something else.

Each is a pure function of its arguments. Before the questions at its end are random symbols, or
given tokens (real text) with the symbols among them. The answer occurs once more, `distance` tokens
before; in `recall_trials` its key may occur a third time, further back, with another value.
"""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ropelab.models.lm.corpus import ALPHABET, EVALUATION
from ropelab.models.lm.source import CUE, KEY, RECORD, Batch, random_symbols

# Tokens at the end of a row that hold the questions; fewer where the distance is shorter.
QUESTIONS = 256
# As many in a background of other tokens, which should stay most of the row.
HIDDEN = 64

Background = Int[Tensor, "rows length"]


def copy_trials(
    seed: int, distance: int, length: int, rows: int, background: Background | None = None
) -> Batch:
    """Ask for a stretch of symbols whose only other occurrence is exactly `distance` back.

    Its first CUE tokens, its mark, are not scored. ValueError: a row or distance is too short.
    """
    size = min(distance, length - distance, QUESTIONS if background is None else HIDDEN)
    if size <= CUE:
        raise ValueError(f"of a copy of {size} tokens nothing is left after a cue of {CUE}")
    random = np.random.default_rng((EVALUATION, seed, distance, length, 0))
    tokens = _context(random, rows, length, background)
    stretch = random_symbols(random, rows, size)
    tokens[:, _places(length, size, 0)] = stretch
    tokens[:, _places(length, size, distance)] = stretch
    scored = torch.arange(length) >= length - size + CUE
    return Batch(torch.from_numpy(tokens), scored.expand(rows, length))


def recall_trials(
    seed: int,
    distance: int,
    length: int,
    rows: int,
    background: Background | None = None,
    *,
    further: int | None = None,
) -> Batch:
    """Ask for records, a key and a value, exactly `distance` back; the value is scored.

    The key may occur at a `further` distance too, always with another value: the nearer one's is
    right. ValueError: a row is too short, or too little is between the records.
    """
    furthest = distance if further is None else further
    between = distance if further is None else min(distance, further - distance)
    questions = QUESTIONS if background is None else HIDDEN
    size = min(between, length - furthest, questions) // RECORD * RECORD
    # The last word keeps the draws apart: 0 for copies, 1 for recall, else the further distance.
    random = np.random.default_rng((EVALUATION, seed, distance, length, further or 1))
    tokens = _context(random, rows, length, background)
    records = random_symbols(random, rows, size)
    # Every second record at the end of a row repeats the one `distance` back; those between are
    # new, or the repeats together would be a copied stretch.
    asked = np.arange(size) % (2 * RECORD) < RECORD
    value = np.arange(size) % RECORD == KEY
    if further is not None:
        # The value of the older record is another symbol, all others being equally probable.
        steps = random.integers(1, len(ALPHABET), size=records.shape)
        others = ALPHABET[(np.searchsorted(ALPHABET, records) + steps) % len(ALPHABET)]
        tokens[:, _places(length, size, further)] = np.where(value, others, records)
    tokens[:, _places(length, size, distance)] = records
    tokens[:, _places(length, size, 0)] = np.where(
        asked, records, random_symbols(random, rows, size)
    )
    scored = np.zeros(length, np.bool_)
    scored[_places(length, size, 0)] = asked & value
    return Batch(torch.from_numpy(tokens), torch.from_numpy(scored).expand(rows, length))


def _places(length: int, size: int, distance: int) -> slice:
    """Return the last `size` places of a row, `distance` earlier."""
    start = length - size - distance
    if start < 0 or size < RECORD:
        raise ValueError(f"{length} tokens do not hold a question and its answer {distance} back")
    return slice(start, start + size)


def _context(
    random: np.random.Generator, rows: int, length: int, background: Background | None
) -> np.ndarray:
    if background is None:
        return random_symbols(random, rows, length)
    if background.shape != (rows, length):
        raise ValueError(f"the background is {tuple(background.shape)}, not {(rows, length)}")
    return background.numpy().copy()
