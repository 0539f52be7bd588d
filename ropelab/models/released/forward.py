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

# The most tokens of one pass of any model; longer contexts are passed in parts.
USUAL_PASS = 8192
# The same for a narrow model, whose activations are small.
LONGEST_PASS = 16384
# Bytes that the activations of a layer may take in a pass of more than the usual length
# (768 MiB).
ACTIVATIONS_AT_ONCE = 3 * 2**28
# Scores of one pass where attention makes them all, without a fused kernel (1 GiB).
SCORES_AT_ONCE = 2**28


@dataclass(frozen=True)
class ModelShape:
    """The sizes that the memory and the time of a pass follow from."""

    layers: int
    width: int
    # The width of a layer's feed-forward part.
    inner: int
    heads: int
    head_dim: int
    # How many numbers the keys and values of one token have in a layer.
    kept: int
    # Bytes of a number.
    element: int
    # True if attention never holds all its scores at once.
    fused: bool = True
    # Bytes of a GPU that the activations of a pass of any length may take.
    room: int = 0

    @classmethod
    def read_config(cls, text: Any, element: int, fused: bool = True) -> "ModelShape":
        """Read the sizes from a model's text configuration."""
        full = full_layers(text)
        heads = full.num_attention_heads
        kv_heads = getattr(full, "num_key_value_heads", None) or heads

        return cls(
            layers=text.num_hidden_layers,
            width=full.hidden_size,
            inner=getattr(full, "intermediate_size", 0) or 0,
            heads=heads,
            head_dim=head_dim(full),
            kept=2 * kv_heads * head_dim(full),
            element=element,
            fused=fused,
        )

    @property
    def activations(self) -> int:
        """Bytes of a token's activations in a layer."""
        return (8 * self.width + 3 * self.inner) * self.element

    def longest(self, rows: int = 1) -> int:
        """Return the number of tokens of each row in one pass."""
        most = max(USUAL_PASS, ACTIVATIONS_AT_ONCE // self.activations)
        if not self.fused:
            tokens = math.isqrt(SCORES_AT_ONCE // (rows * self.heads))
            most = min(most, max(1, tokens))
        most = min(LONGEST_PASS, most)
        return max(most, self.room // (rows * self.activations))

    def bytes_of_reading(self, length: int, in_parts: bool = True) -> int:
        """Bytes that a pass over a context adds to those of the weights."""
        # Keys and values of all layers, the hidden states, the widest activations of
        # one layer, the scores of all heads where attention makes them at once, the
        # logits of a chunk.
        at_once = length
        if in_parts:
            at_once = min(length, self.longest())

        kept = self.layers * self.kept
        if self.room and at_once == length:
            # One pass on a GPU needs no keys and values of earlier ones.
            kept = 0
        tokens = length * (kept + 2 * self.width) * self.element

        scores = 0
        if not self.fused:
            scores = 4 * self.heads * at_once * length
        activations = at_once * self.activations
        logits = 4 * 4 * LOGITS_PER_CHUNK
        return tokens + activations + scores + logits


class Output(dict[str, Any]):
    """Output of layers: hidden states by name or as item 0, None for all else."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:
        if key == 0:
            return next(iter(self.values()))
        return super().__getitem__(key)


class Head:
    """Hidden states to logits; the device of `weight` is where it computes."""

    # Some architectures scale logits behind their layers (Cohere, Granite) or cap them
    # (Gemma). Therefore the model's own `forward` is run with hidden states in the
    # place of those of its layers.
    def __init__(self, model: Any) -> None:
        weight = model.get_output_embeddings().weight
        # Weights that are kept on disk are on no device until they are used; their
        # input is moved then.
        self.weight = torch.empty(0) if weight.is_meta else weight
        self.layers = _layers_of(model)
        self.model = model

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocabulary] of hidden states [..., width]."""
        rows = hidden.reshape(1, -1, hidden.shape[-1])
        tokens = torch.zeros(rows.shape[:2], dtype=torch.long, device=hidden.device)

        # If a model is spread over devices, its modules have a `forward` in their own
        # dictionary. It is put back below.
        own = vars(self.layers).get("forward")
        self.layers.forward = lambda *_, **__: Output(last_hidden_state=rows)
        try:
            output = self.model(input_ids=tokens, use_cache=False, return_dict=True)
        finally:
            del self.layers.forward
            if own is not None:
                self.layers.forward = own

        logits: Tensor = output.logits
        return logits.reshape(*hidden.shape[:-1], -1)


def _layers_of(model: Any) -> Any:
    """Return the part of a causal language model before its head."""
    for name in (model.base_model_prefix, "model", "transformer"):
        if name in model._modules:
            return model._modules[name]
    raise ValueError("its part before the head has no known name")


@contextmanager
def upcast(layers: nn.Module) -> Iterator[None]:
    """Let everything before the head compute in float32, with the same weights."""
    # Weights are converted one unit at a time, so that no second model has to be held.
    with ExitStack() as hooks:
        for unit in _units(layers):
            for handle in _add_hooks(unit):
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


def _add_hooks(unit: nn.Module) -> list[Any]:
    """Register hooks that give a unit float32 weights while it computes."""
    if isinstance(unit, nn.Embedding):
        # A table may be larger than all layers, so only its output is converted.
        return [unit.register_forward_hook(lambda _, __, out: out.float())]

    weights = []
    for module in unit.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.is_floating_point():
                weights.append((module, name, parameter))

    def apply(*_: object) -> None:
        for module, name, parameter in weights:
            converted = nn.Parameter(parameter.float(), requires_grad=False)
            module._parameters[name] = converted

    def restore(*_: object) -> None:
        for module, name, parameter in weights:
            module._parameters[name] = parameter

    return [
        unit.register_forward_pre_hook(apply),
        unit.register_forward_hook(restore, always_call=True),
    ]
