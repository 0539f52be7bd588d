"""What one pass of a model costs, counted instead of timed: the same on every machine."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode


def flops_of(work: Callable[[], object]) -> int:
    """Floating-point operations of all matrix products in `work`, two per multiply-add.

    Fused attention on a CPU is not among what torch counts; call attention unfused.
    """
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation made: `bytes`."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Carry out the operation and look at what it returns."""
        out = func(*args, **(kwargs or {}))
        sizes = [leaf.untyped_storage().nbytes() for leaf in tree_leaves(out) if _real(leaf)]
        self.bytes = max([self.bytes, *sizes])
        return out


def _real(leaf: object) -> bool:
    return isinstance(leaf, Tensor)


def kept_bytes(owner: object) -> int:
    """Bytes of all tensors and arrays that an object holds, in modules, tables and attributes."""
    sizes: dict[int, int] = {}
    seen: set[int] = set()
    waiting = [owner]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            sizes[thing.data_ptr()] = thing.untyped_storage().nbytes()
        elif isinstance(thing, np.ndarray):
            sizes[thing.ctypes.data] = thing.nbytes
        elif isinstance(thing, dict):
            waiting.extend(thing.values())
        elif isinstance(thing, tuple | list):
            waiting.extend(thing)
        elif isinstance(thing, nn.Module) or type(thing).__module__.startswith("ropelab."):
            waiting.extend(vars(thing).values())
    return sum(sizes.values())
