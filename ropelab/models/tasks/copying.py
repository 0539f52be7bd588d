"""Copying, asked of a model given: symbols are ordinary tokens of its own, drawn once."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ropelab.models.lm.batch import Batch
from ropelab.models.lm.evaluation import Readable
from ropelab.models.lm.sequences import copy_trials
from ropelab.models.lm.source import ALPHABET
from ropelab.models.released.tokens import load_tokenizer
from ropelab.models.tasks.answers import answered
from ropelab.models.tasks.grid import Place
from ropelab.models.tasks.readers import Reader
from ropelab.models.tasks.retrieval import per_sequence
from ropelab.models.tasks.tokens import TokenText
from ropelab.runs.cell import Advance


@dataclass(frozen=True, kw_only=True)
class Copying:
    """A stretch of symbols, repeated at the end of a context of symbols.

    Attributes:
        places: how far back it lies, in contexts of how many tokens.
        sequences: how many for each place.
        text: says which tokens there are, and what stands in front of a row.
    """

    places: tuple[Place, ...]
    sequences: int
    text: TokenText
    name: ClassVar[str] = "copy"
    version: ClassVar[int] = 1

    @property
    def key(self) -> dict[str, Any]:
        """What the values depend on besides the model, which has its tokenizer, and the reader."""
        return {"places": self.places, "sequences": self.sequences, "bos": self.text.bos}

    @property
    def steps(self) -> int:
        """How many times a measurement advances."""
        return len(self.places) * self.sequences

    def measure(self, model: Readable, reader: Reader, advance: Advance) -> dict[str, pd.DataFrame]:
        """`trials`: tokens copied rightly in each sequence, by distance and context."""
        found = []
        for place in self.places:
            batch = self.sequences_at(place)
            scored = int(batch.scored[0].sum())
            hits = []
            for row in batch.tokens.split(1):
                passes = reader.passes(model, [place.context])
                hits += [answered(model, reader.seen(row), scored)[1] for _ in passes]
                advance(1)
            if hits:
                found.append(per_sequence(torch.cat(hits), place))
        return {"trials": pd.concat(found, ignore_index=True)}

    def sequences_at(self, place: Place) -> Batch:
        """The sequences of one place."""
        front = torch.tensor(self.text.front, dtype=torch.int64).expand(self.sequences, -1)
        length = place.context - front.shape[1]
        batch = copy_trials(0, place.distance, length, self.sequences)
        symbols = symbols_of(self.text.model)
        tokens = symbols[torch.searchsorted(torch.from_numpy(ALPHABET), batch.tokens)]
        unscored = torch.zeros_like(front, dtype=torch.bool)
        return Batch(torch.cat([front, tokens], 1), torch.cat([unscored, batch.scored], 1))


@lru_cache(maxsize=2)
def symbols_of(model: str) -> Tensor:
    """As many of its ordinary tokens as there are symbols, drawn once."""
    tokenizer = load_tokenizer(Path(model))
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    ordinary = [token for token in range(len(tokenizer)) if token not in special]
    drawn = np.random.default_rng(0).permutation(np.asarray(ordinary))
    return torch.from_numpy(np.resize(drawn, len(ALPHABET)))
