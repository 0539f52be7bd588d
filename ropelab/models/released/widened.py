"""A model of a narrower number format, computing in float32 as long as something is tried.

In float32 the same result by another way differs by almost nothing, and a wrong one by much. The
weights of one layer at a time are widened, so that no second model has to be held.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def widened(layers: nn.Module) -> Iterator[None]:
    """Let everything compute in float32, with the weights as they are.

    Args:
        layers: what comes before the head.
    """
    parts = [_Widened(unit) for unit in _units(layers)]
    handles = [handle for part in parts for handle in part.hooked()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _units(module: nn.Module) -> Iterator[nn.Module]:
    """The layers, and what stands beside them."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        elif any(isinstance(part, nn.ModuleList) for part in child.modules()):
            yield from _units(child)
        else:
            yield child


class _Widened:
    """A part of a model whose weights are wider while it computes."""

    def __init__(self, unit: nn.Module) -> None:
        self.unit = unit
        self.own: list[tuple[nn.Module, str, nn.Parameter]] = []

    def hooked(self) -> list[Any]:
        """What to remove in the end."""
        if isinstance(self.unit, nn.Embedding):  # a table may be larger than all layers
            return [self.unit.register_forward_hook(lambda _, __, out: out.float())]
        return [
            self.unit.register_forward_pre_hook(self._widen),
            self.unit.register_forward_hook(self._restore, always_call=True),
        ]

    def _widen(self, *_: object) -> None:
        self.own = [
            (module, name, parameter)
            for module in self.unit.modules()
            for name, parameter in module._parameters.items()
            if parameter is not None and parameter.is_floating_point()
        ]
        for module, name, parameter in self.own:
            module._parameters[name] = nn.Parameter(parameter.float(), requires_grad=False)

    def _restore(self, *_: object) -> None:
        for module, name, parameter in self.own:
            module._parameters[name] = parameter
        self.own = []


def distance(ours: Tensor, theirs: Tensor) -> float:
    """The mean over tokens of how far two results are apart, root mean square over features.

    Args:
        ours, theirs: [rows, tokens, width].
    """
    return float((ours.float() - theirs.float()).square().mean(dim=-1).sqrt().mean())
