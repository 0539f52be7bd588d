"""Caches that drop keys by themselves, in other shapes than `forgetting_caches`.

A ring holds its slots in another order than that of tokens. A closed cache holds its
layers where nobody else finds them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tests.conformance.laws.forgetting_caches import Forgetting, count_seen


class ClosedCache:
    """Passes all calls on to a cache that others cannot read."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in ("_inner", "layers"):
            raise AttributeError(name)
        return getattr(self._inner, name)


@dataclass
class Closed(Forgetting):
    """A cache that drops keys by itself, and cannot be read."""

    def new_cache(self) -> Any:
        return ClosedCache(super().new_cache())


@dataclass
class Moving(Forgetting):
    """Keys of slots are moved by numbers that a mistake changes."""

    list_moves: Callable[[int, int], list[int]] = field(
        default=lambda count, surplus: [0] * 4 + [-surplus] * (count - 4)
    )
    change_values: Callable[[Tensor], Tensor] = lambda values: values
    change_keys: Callable[[Tensor], Tensor] = lambda keys: keys
    is_closed: bool = False

    def new_cache(self) -> Any:
        cache = super().new_cache()
        for layer in cache.layers:
            change_layer(self, layer)
        return ClosedCache(cache) if self.is_closed else cache

    def move(self, keys: Tensor, surplus: int, layer: int) -> Tensor:
        if layer not in self.layers or not self.moves:
            return self.change_keys(keys)
        moves = torch.tensor(self.list_moves(keys.shape[2], surplus))
        each = replace(self.eviction, model=self.model)
        return self.change_keys(each.rotate(keys, moves))


def change_layer(rules: Moving, layer: Any) -> None:
    """Change the values of a layer whenever it drops a key."""
    update = layer.update

    def update_and_change(*arguments: Any, **more: Any) -> Any:
        held = 0 if layer.keys is None else layer.keys.shape[-2]
        answer = update(*arguments, **more)
        if held >= rules.held:
            layer.values = rules.change_values(layer.values)
        return answer

    layer.update = update_and_change


@dataclass
class Ring(Forgetting):
    """Slots are not in the order of their tokens; positions are kept."""

    moves: bool = False
    count: Callable[[int, int], int] = count_seen

    def new_cache(self) -> Any:
        cache = super().new_cache()
        for layer in cache.layers:
            turn_ring(self, layer)
        return cache


def turn_ring(rules: Ring, layer: Any) -> None:
    """Hold the window of a layer in reverse, so that its newest key comes first."""
    update = layer.update

    def flip() -> None:
        order = [0, 1, 2, 3, *reversed(range(4, rules.held))]
        layer.keys = layer.keys[:, :, order]
        layer.values = layer.values[:, :, order]

    def update_ring(*arguments: Any, **more: Any) -> Any:
        if layer.seen >= rules.held:
            flip()
        answer = update(*arguments, **more)
        if layer.seen >= rules.held:
            flip()
        return answer

    layer.update = update_ring


CLOSED_RIGHT: dict[str, Forgetting] = {
    "closed, moved up": Closed(),
    "closed, kept": Closed(moves=False, count=count_seen),
    "closed, kept, dropped before": Closed(
        moves=False, count=count_seen, is_late=False, held=16
    ),
    "open, moved up": Moving(),
    "a ring, kept": Ring(),
}
FORGETTING_PLANTS: dict[str, Moving] = {
    "values of the last tokens": Moving(
        choose_values=lambda slots: [*range(slots[-1] + 1 - len(slots), slots[-1] + 1)]
    ),
    "values of the first tokens": Moving(
        choose_values=lambda slots: [*range(len(slots))]
    ),
    "keys one slot late": Moving(change_keys=lambda keys: keys.roll(1, dims=2)),
    "backwards": Moving(list_moves=lambda n, by: [0] * 4 + [by] * (n - 4)),
    "one too many": Moving(list_moves=lambda n, by: [0] * 4 + [-by - 1] * (n - 4)),
    "counts tokens": Moving(count=count_seen),
    "counts one more": Moving(count=lambda held, seen: held + (seen >= 20)),
    "keys stay": Moving(moves=False),
    "newest key stays": Moving(
        list_moves=lambda n, by: [0] * 4 + [-by] * (n - 5) + [0]
    ),
    "values of other heads": Moving(change_values=lambda values: values.flip(1)),
    "keys of other heads": Moving(change_keys=lambda keys: keys.flip(1)),
    "second layer alone": Moving(layers=(1,)),
    "keys halved": Moving(change_keys=lambda keys: keys / 2),
}
