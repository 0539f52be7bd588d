"""What turns a model's last hidden states into logits, by the architecture's own code.

Some architectures do more there than multiply by a matrix: they scale logits (Cohere, Granite) or
cap them (Gemma). The model's own `forward` is run with hidden states handed in where its layers
would have made them, so that a long text needs only as many logits at once as are asked for.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn


class Output(dict[str, Any]):
    """What layers return: the hidden states by any of the ways to ask, and None for all else."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:
        return next(iter(self.values())) if key == 0 else super().__getitem__(key)


class Given(nn.Module):
    """Stands where the layers stand, and returns what it was given; in all else it is they."""

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
        self.given = Given(getattr(model, name))
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
