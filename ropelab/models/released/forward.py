"""Tokens through the layers of a model, at once or in parts, and hidden states to logits.

Some architectures do more behind their layers than multiply by a matrix: they scale logits (Cohere,
Granite) or cap them (Gemma). So the model's own `forward` is run with hidden states handed in where
its layers would have made them; a long text needs only as many logits at once as are asked for.
"""

import copy
import math
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ropelab.models.released.attention import Attention, attending
from ropelab.models.released.facts import ModelShape, shape_of
from ropelab.runs.machine import return_freed_memory


class Output(dict[str, Any]):
    """Output of layers: the hidden states by any of the ways to ask, and None for all else."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:
        return next(iter(self.values())) if key == 0 else super().__getitem__(key)


class HandedIn(nn.Module):
    """Stands in for the layers and returns the hidden states that it was handed."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.hidden = torch.empty(0)
        self.layers = (layers,)  # in a tuple, so that they do not count as a part of this

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layers[0], name)

    def forward(self, *_: object, **__: object) -> Any:
        return Output(last_hidden_state=self.hidden)


class Head:
    """Hidden states to logits; `weight` says where it computes.

    Args:
        model: the whole causal language model, which is not changed.
    """

    def __init__(self, model: Any) -> None:
        weight = model.get_output_embeddings().weight
        # Weights kept on disk are nowhere until they are used; what they are given is moved then.
        self.weight = torch.empty(0) if weight.is_meta else weight
        name = layers_name(model)
        self.given = HandedIn(getattr(model, name))
        self.model = copy.copy(model)
        self.model._modules = {**model._modules, name: self.given}
        # Spread over devices, a model's `forward` is bound to itself; its parts keep theirs.
        vars(self.model).pop("forward", None)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocabulary] of hidden states [..., width]."""
        self.given.hidden = hidden.reshape(1, -1, hidden.shape[-1])
        tokens = torch.zeros(self.given.hidden.shape[:2], dtype=torch.long, device=hidden.device)
        try:
            logits: Tensor = self.model(input_ids=tokens, use_cache=False, return_dict=True).logits
        finally:
            self.given.hidden = torch.empty(0)
        return logits.reshape(*hidden.shape[:-1], -1)


def layers_name(model: Any) -> str:
    """Under which name a causal language model holds what comes before its head."""
    names = (model.base_model_prefix, "model", "transformer")
    return next(name for name in names if name in model._modules)


# Tokens that are read at once, by any model and by a narrow one; longer contexts in parts.
USUAL_PASS, LONGEST_PASS = 8192, 16384
# Bytes: more than the usual number of tokens may not take more than this (512 MiB) in a layer.
ACTIVATIONS_AT_ONCE = 2**29
# A part holds so many tokens that its mask of earlier ones stays below this (32 MiB).
SCORES_PER_PART = 2**25
# Where attention makes all its scores (no fused kernel), no more of them at once (1 GiB).
SCORES_AT_ONCE = 2**28


def usual_pass(shape: ModelShape, element: int) -> int:
    """Return the number of tokens that a model reads at once, with a fused kernel."""
    narrow = ACTIVATIONS_AT_ONCE // (shape.activations * element)
    return min(LONGEST_PASS, max(USUAL_PASS, narrow))


class Passes:
    """Reads tokens; the model has been patched before.

    Attributes:
        in_parts: whether long contexts are read in parts; until it is known to work, they are not.
    """

    def __init__(self, model: Any, text: Any) -> None:
        self.model, self.text, self.shape = model, text, shape_of(text)
        self.layers = getattr(model, layers_name(model))
        self.in_parts = False

    def longest(self, rows: int) -> int:
        """Return the number of tokens of each of so many rows that are read at once."""
        most = usual_pass(self.shape, self.element)
        if not self.eager:
            return most
        scores = SCORES_AT_ONCE // (rows * self.shape.heads)
        return min(most, max(1, math.isqrt(scores)))

    @property
    def eager(self) -> bool:
        """True if attention makes all its scores, without a fused kernel."""
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
