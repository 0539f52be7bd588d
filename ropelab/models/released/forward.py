"""The parts of a pass through a transformers model: its memory, its head, its layers.

`ModelShape` estimates the memory of a pass. `Head` makes logits of hidden states.
`upcast` lets the layers compute in float32.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ropelab.models.lm.evaluation import LOGITS_PER_CHUNK
from ropelab.models.released.facts import find_full_layers, head_dim

# The number of tokens that one pass of any model may have. Longer contexts are passed
# in parts.
USUAL_PASS = 8192
# The number of tokens that one pass of a narrow model, with small activations, may
# have.
LONGEST_PASS = 16384
# The bytes that the activations of a layer may take in a pass of more than USUAL_PASS
# tokens (768 MiB).
ACTIVATION_BYTES_AT_ONCE = 3 * 2**28
# The most scores of one pass, if attention has no fused kernel and holds them all (1 GiB).
SCORES_AT_ONCE = 2**28


@dataclass(frozen=True)
class ModelShape:
    """The sizes that the memory and the time of a pass follow from."""

    layers: int
    width: int
    # The width of a layer's feed-forward part.
    feed_forward_width: int
    heads: int
    head_dim: int
    # The number of features in the keys and values of one token in a layer.
    cached_features: int
    # The bytes of a number.
    element_bytes: int
    # True if attention never holds all its scores at once.
    fused: bool = True
    # The bytes of a GPU that the activations of a pass may take, however long it is; 0:
    # no pass is longer than the constants above allow.
    gpu_bytes: int = 0

    @classmethod
    def read_config(
        cls, text: Any, element_bytes: int, fused: bool = True
    ) -> "ModelShape":
        """Read the sizes from a model's text configuration."""
        full_layers = find_full_layers(text)
        heads = full_layers.num_attention_heads
        kv_heads = getattr(full_layers, "num_key_value_heads", None) or heads

        return cls(
            layers=text.num_hidden_layers,
            width=full_layers.hidden_size,
            feed_forward_width=getattr(full_layers, "intermediate_size", 0) or 0,
            heads=heads,
            head_dim=head_dim(full_layers),
            cached_features=2 * kv_heads * head_dim(full_layers),
            element_bytes=element_bytes,
            fused=fused,
        )

    @property
    def activation_bytes(self) -> int:
        """The bytes of a token's activations in a layer."""
        return (8 * self.width + 3 * self.feed_forward_width) * self.element_bytes

    def find_longest_pass(self, rows: int = 1) -> int:
        """Return the most tokens of a row in one pass over `rows` rows."""
        most_tokens = max(USUAL_PASS, ACTIVATION_BYTES_AT_ONCE // self.activation_bytes)
        if not self.fused:
            # A row of n tokens has n^2 scores in each head.
            tokens = math.isqrt(SCORES_AT_ONCE // (rows * self.heads))
            most_tokens = min(most_tokens, max(1, tokens))
        most_tokens = min(LONGEST_PASS, most_tokens)
        most_on_gpu = self.gpu_bytes // (rows * self.activation_bytes)
        return max(most_tokens, most_on_gpu)

    def estimate_pass_bytes(self, length: int, in_parts: bool = True) -> int:
        """Return the bytes that a pass over a context takes in addition to the weights."""
        tokens_at_once = length
        if in_parts:
            tokens_at_once = min(length, self.find_longest_pass())

        # Keys and values of all layers, and the hidden states.
        cached_features = self.layers * self.cached_features
        if self.gpu_bytes and tokens_at_once == length:
            # A single pass on a GPU keeps no keys and values for later passes.
            cached_features = 0
        features = cached_features + 2 * self.width
        context_bytes = length * features * self.element_bytes

        # The scores of all heads, if attention makes them at once, in float32.
        score_bytes = 0
        if not self.fused:
            score_bytes = 4 * self.heads * tokens_at_once * length
        # The widest activations of one layer, and four copies of the logits of a chunk
        # in float32.
        activation_bytes = tokens_at_once * self.activation_bytes
        logit_bytes = 4 * 4 * LOGITS_PER_CHUNK
        return context_bytes + activation_bytes + score_bytes + logit_bytes


class Output(dict[str, Any]):
    """A stand-in for the output of a model's layers, with hidden states alone.

    transformers reads outputs by attribute or by item. The hidden states are also item
    0, and every other attribute is None.
    """

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:
        if key == 0:
            return next(iter(self.values()))
        return super().__getitem__(key)


class Head:
    """Makes logits of hidden states, on the device of `weight`."""

    # Some architectures scale logits after their layers (Cohere, Granite) or cap them
    # (Gemma). Therefore the model's own `forward` is run, in which the layers are replaced
    # by a function that returns the given hidden states.
    def __init__(self, model: Any) -> None:
        weight = model.get_output_embeddings().weight
        # Weights that are kept on disk are on no device until they are used. The empty
        # tensor on the CPU stands for them: hidden states on the CPU are moved to the
        # weights when these are used.
        self.weight = torch.empty(0) if weight.is_meta else weight
        self.layers = _find_layers(model)
        self.model = model

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return logits [..., vocabulary] of hidden states [..., width]."""
        # All hidden states become one row of a batch. The model also needs tokens as an
        # argument, which nothing reads.
        row = hidden.reshape(1, -1, hidden.shape[-1])
        tokens = torch.zeros(row.shape[:2], dtype=torch.long, device=hidden.device)

        # An attribute of the object hides the method `forward` of its class. If a model
        # is spread over devices, its modules already have an attribute `forward`, which
        # is put back below.
        forward_before = vars(self.layers).get("forward")
        self.layers.forward = lambda *_, **__: Output(last_hidden_state=row)
        try:
            output = self.model(input_ids=tokens, use_cache=False, return_dict=True)
        finally:
            del self.layers.forward
            if forward_before is not None:
                self.layers.forward = forward_before

        logits: Tensor = output.logits
        return logits.reshape(*hidden.shape[:-1], -1)


def _find_layers(model: Any) -> Any:
    """Return the part of a causal language model before its head."""
    for name in (model.base_model_prefix, "model", "transformer"):
        if name in model._modules:
            return model._modules[name]
    raise ValueError("its part before the head has no known name")


@contextmanager
def upcast(layers: nn.Module) -> Iterator[None]:
    """Let everything before the head compute in float32 in the block."""
    # The weights of a unit, such as a layer, are converted when the unit begins to
    # compute and restored when it ends, so that memory holds no second model.
    with ExitStack() as hooks:
        for unit in _list_units(layers):
            for handle in _add_hooks(unit):
                hooks.enter_context(handle)
        yield


def _list_units(parent: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers, and the modules beside them, such as norms and embeddings."""
    for child in parent.children():
        has_layers = any(
            isinstance(module, nn.ModuleList) for module in child.modules()
        )
        if isinstance(child, nn.ModuleList):
            yield from child
        elif has_layers:
            yield from _list_units(child)
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
