"""The parts of a model that laws change while they run, and put back: its tables,
weights, number format, configurations, and dropout.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# Formats that code may ask for in place of float64.
SMALLER_FORMATS = (torch.float32, torch.bfloat16, torch.float16)
CASTS_TO_SMALLER = frozenset({Tensor.float, Tensor.half, Tensor.bfloat16})


class Float64(TorchFunctionMode):
    """A block in which code that asks torch for a smaller format is given float64.

    Rotary modules and norms ask for float32 whatever the format of the model. Otherwise a
    model in float64 would still have angles in float32, and their rounding would pass for
    a defect.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Any = None,
    ) -> Any:
        if func in CASTS_TO_SMALLER:
            func = Tensor.double
        # A model calls this a million times, and hardly ever with a format.
        if torch.dtype in map(type, args):
            args = tuple(widen_format(value) for value in args)
        if not kwargs:
            return func(*args)
        wide_kwargs = {name: widen_format(value) for name, value in kwargs.items()}
        return func(*args, **wide_kwargs)


def widen_format(value: Any) -> Any:
    if isinstance(value, torch.dtype) and value in SMALLER_FORMATS:
        return torch.float64
    return value


@contextmanager
def keep_tables(module: nn.Module) -> Iterator[None]:
    """Restore buffers, such as tables of angles, at the end of the block."""
    saved = [(each, dict(each._buffers)) for each in module.modules()]
    try:
        yield
    finally:
        for each, buffers in saved:
            each._buffers.update(buffers)


@contextmanager
def keep_weights(module: nn.Module) -> Iterator[None]:
    """Restore weights and their gradients at the end of the block, each with its memory
    and its number format.
    """
    weights = []
    gradients = []
    for parameter in module.parameters():
        weights.append((parameter, parameter.data))
        if parameter.grad is not None:
            gradients.append((parameter, parameter.grad, parameter.grad.data))
    try:
        yield
    finally:
        for parameter, data in weights:
            parameter.data = data
        for parameter, gradient, data in gradients:
            gradient.data = data
            parameter.grad = gradient


@contextmanager
def disable_dropout(code: Any) -> Iterator[None]:
    """Leave out dropout in the block, as in evaluation."""
    modules = code.modules() if isinstance(code, nn.Module) else ()
    modes = {module: module.training for module in modules}
    try:
        for module in modes:
            module.training = False
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def keep_configs(model: Any) -> Iterator[None]:
    """Restore what a model's configurations hold at the end of the block.

    Saving writes the name of the class and the number format into them.
    """
    saved = []
    for name in ("config", "generation_config"):
        config = getattr(model, name, None)
        if hasattr(config, "__dict__"):
            saved.append((config, dict(vars(config))))
    try:
        yield
    finally:
        for config, values in saved:
            vars(config).clear()
            vars(config).update(values)
