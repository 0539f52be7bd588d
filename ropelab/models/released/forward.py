"""A pass through a model: its memory, its head, and its layers in float32."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ropelab.models.lm.evaluation import LOGITS_PER_CHUNK
from ropelab.models.released.facts import full_layers, head_dim

# Tokens that are read at once, by any model and by a narrow one; longer contexts in
# parts.
USUAL_PASS, LONGEST_PASS = 8192, 16384
# Bytes: more than the usual number of tokens may not take more than this (768 MiB) in a
# layer.
ACTIVATIONS_AT_ONCE = 3 * 2**28
# Where attention makes all its scores (no fused kernel), no more of them at once (1
# GiB).
SCORES_AT_ONCE = 2**28


@dataclass(frozen=True)
class ModelShape:
    """The sizes that the memory and the time of a pass follow from."""

    layers: int
    width: int
    inner: int  # of a layer's feed-forward part
    heads: int
    head_dim: int
    kept: int  # numbers of a token's keys and values in a layer
    element: int  # bytes of a number
    fused: bool = True  # attention never holds all its scores at once
    # bytes of a GPU that the activations of a pass of any length may take
    room: int = 0

    @classmethod
    def of(cls, text: Any, element: int, fused: bool = True) -> "ModelShape":
        full = full_layers(text)
        heads, width = full.num_attention_heads, head_dim(full)
        return cls(
            layers=text.num_hidden_layers,
            width=full.hidden_size,
            inner=getattr(full, "intermediate_size", 0) or 0,
            heads=heads,
            head_dim=width,
            kept=2 * (getattr(full, "num_key_value_heads", None) or heads) * width,
            element=element,
            fused=fused,
        )

    @property
    def activations(self) -> int:
        """Bytes of a token's activations in a layer."""
        return (8 * self.width + 3 * self.inner) * self.element

    def longest(self, rows: int = 1) -> int:
        """Return the number of tokens of each row that are read at once."""
        most = max(USUAL_PASS, ACTIVATIONS_AT_ONCE // self.activations)
        if not self.fused:
            most = min(most, max(1, math.isqrt(SCORES_AT_ONCE // (rows * self.heads))))
        return max(min(LONGEST_PASS, most), self.room // (rows * self.activations))

    def bytes_of_reading(self, length: int, in_parts: bool = True) -> int:
        """Bytes that a pass over a context adds to those of the weights."""
        # Keys and values of all layers, the hidden states, the widest activations of
        # one layer, the scores of all heads where attention makes them at once, the
        # logits of a chunk.
        at_once = min(length, self.longest()) if in_parts else length
        kept = 0 if self.room and at_once == length else self.layers * self.kept
        held = length * (kept + 2 * self.width) * self.element
        scores = 0 if self.fused else 4 * self.heads * at_once * length
        return held + at_once * self.activations + scores + 4 * 4 * LOGITS_PER_CHUNK


class Output(dict[str, Any]):
    """Output of layers: the hidden states by any of the ways to ask, and None for all
    else.
    """

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:
        return next(iter(self.values())) if key == 0 else super().__getitem__(key)


class Head:
    """Hidden states to logits; the device of `weight` is where it computes."""

    # Some architectures scale logits behind their layers (Cohere, Granite) or cap them
    # (Gemma). So the model's own `forward` is run with hidden states in the place of
    # those of its layers.
    def __init__(self, model: Any) -> None:
        weight = model.get_output_embeddings().weight
        # Weights kept on disk are nowhere until they are used; what they are given is
        # moved then.
        self.weight = torch.empty(0) if weight.is_meta else weight
        names = (model.base_model_prefix, "model", "transformer")
        # The part of a causal language model before its head.
        self.layers: Any = next(
            model._modules[name] for name in names if name in model._modules
        )
        self.model = model

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocabulary] of hidden states [..., width]."""
        rows = hidden.reshape(1, -1, hidden.shape[-1])
        tokens = torch.zeros(rows.shape[:2], dtype=torch.long, device=hidden.device)
        # Spread over devices, modules have a `forward` of their own.
        own = vars(self.layers).get("forward")
        self.layers.forward = lambda *_, **__: Output(last_hidden_state=rows)
        try:
            logits: Tensor = self.model(
                input_ids=tokens, use_cache=False, return_dict=True
            ).logits
        finally:
            del self.layers.forward
            if own is not None:
                self.layers.forward = own
        return logits.reshape(*hidden.shape[:-1], -1)


@contextmanager
def upcast(layers: nn.Module) -> Iterator[None]:
    """Let everything before the head compute in float32, with the weights as they
    are.
    """
    # One unit at a time, so that no second model has to be held.
    with ExitStack() as hooks:
        for unit in _units(layers):
            for handle in _upcasting(unit):
                hooks.enter_context(handle)
        yield


def _units(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers, and the modules beside them."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        elif any(isinstance(part, nn.ModuleList) for part in child.modules()):
            yield from _units(child)
        else:
            yield child


def _upcasting(unit: nn.Module) -> list[Any]:
    """Register hooks that give a unit float32 weights while it computes."""
    if isinstance(unit, nn.Embedding):  # a table may be larger than all layers
        return [unit.register_forward_hook(lambda _, __, out: out.float())]
    own = [
        (module, name, parameter)
        for module in unit.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None and parameter.is_floating_point()
    ]

    def apply(*_: object) -> None:
        for module, name, parameter in own:
            module._parameters[name] = nn.Parameter(
                parameter.float(), requires_grad=False
            )

    def restore(*_: object) -> None:
        for module, name, parameter in own:
            module._parameters[name] = parameter

    return [
        unit.register_forward_pre_hook(apply),
        unit.register_forward_hook(restore, always_call=True),
    ]
