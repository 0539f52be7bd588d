"""Tokens through the layers of a model: at once, or in parts whose keys and values are kept."""

import math
from contextlib import nullcontext
from typing import Any

from torch import Tensor

from ropelab.models.released.attention import Attention, attending
from ropelab.models.released.facts import ModelShape, shape_of
from ropelab.models.released.head import layers_name
from ropelab.runs.machine import return_freed_memory

USUAL_PASS, LONGEST_PASS = 8192, 16384
"""Tokens that are read at once, by any model and by a narrow one; longer contexts in parts."""
ACTIVATIONS_AT_ONCE = 2**29
"""Bytes: more than the usual number of tokens may not take more than this (512 MiB) in a layer."""
SCORES_PER_PART = 2**25
"""A part holds so many tokens that its mask of earlier ones stays below this (32 MiB)."""
SCORES_AT_ONCE = 2**28
"""Where attention makes all its scores (no fused kernel), no more of them at once (1 GiB)."""


def usual_pass(shape: ModelShape, element: int) -> int:
    """How many tokens a model reads at once, with a fused kernel."""
    narrow = ACTIVATIONS_AT_ONCE // (shape.activations * element)
    return min(LONGEST_PASS, max(USUAL_PASS, narrow))


class Passes:
    """Reads tokens; whatever is to be exchanged in the model has been exchanged.

    Attributes:
        in_parts: whether long contexts are read in parts; until it is known to work, they are not.
    """

    def __init__(self, model: Any, text: Any) -> None:
        self.model, self.text, self.shape = model, text, shape_of(text)
        self.layers = getattr(model, layers_name(model))
        self.in_parts = False

    def longest(self, rows: int) -> int:
        """How many tokens of each of so many rows are read at once."""
        most = usual_pass(self.shape, self.element)
        if not self.eager:
            return most
        scores = SCORES_AT_ONCE // (rows * self.shape.heads)
        return min(most, max(1, math.isqrt(scores)))

    @property
    def eager(self) -> bool:
        """Whether attention makes all its scores, without a fused kernel."""
        return bool(self.model.config._attn_implementation == "eager")

    @property
    def element(self) -> int:
        """Bytes of a weight."""
        return int(next(self.model.parameters()).element_size())

    def bytes_of_reading(self, length: int) -> int:
        """Bytes that a pass over a context adds to those of the weights."""
        at_once = min(length, self.longest(1)) if self.in_parts else length
        return self.shape.bytes_of_reading(length, at_once, self.element, self.eager)

    def read(
        self, tokens: Tensor, attention: Attention | None = None, longest: int | None = None
    ) -> Tensor:
        """Last hidden states [batch, tokens, width].

        Args:
            attention: what layers attend by; None: as they do themselves.
            longest: how many tokens are read at once, if not as many as is good.
        """
        most = self.longest(len(tokens)) if longest is None else longest
        with attending(self.model, attention) if attention else nullcontext():
            if tokens.shape[1] <= most or not self.in_parts:
                return self._hidden(tokens, use_cache=False)
            return self._in_parts(tokens, attention, most)

    def _in_parts(self, tokens: Tensor, attention: Attention | None, longest: int) -> Tensor:
        from transformers import DynamicCache

        length = tokens.shape[1]
        size = max(1, min(longest // 2, SCORES_PER_PART // length, longest**2 // length))
        cache = DynamicCache(config=self.text)
        found = None
        for first in range(0, length, size):
            if attention is not None:
                attention.first = first
            part = tokens[:, first : first + size]
            hidden = self._hidden(part, past_key_values=cache, use_cache=True)
            if found is None:
                found = hidden.new_empty(len(tokens), length, hidden.shape[-1])
            found[:, first : first + size] = hidden
            return_freed_memory()  # keys and values were copied into a longer table
        assert found is not None, "there is at least one token"
        return found

    def _hidden(self, tokens: Tensor, **more: object) -> Tensor:
        hidden: Tensor = self.layers(tokens, **more).last_hidden_state
        return hidden
