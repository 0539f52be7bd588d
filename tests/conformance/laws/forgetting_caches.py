"""Caches that drop keys by themselves when a token is read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from ropelab.conformance.laws.subject import Subject
from tests.conformance.laws.evictions import Eviction


@dataclass
class Forgetting:
    """A cache that drops keys by itself, and what it does with positions."""

    held: int = 20
    # True where a token sees what is dropped when it is read.
    is_late: bool = True
    moves: bool = True
    count: Callable[[int, int], int] = lambda held, seen: held
    moves_newest: bool = True
    # The layers in which keys are moved.
    layers: Sequence[int] = (0, 1)
    # The slots of the values that stay, from those of the keys.
    choose_values: Callable[[list[int]], list[int]] = list
    eviction: Eviction = field(default_factory=Eviction)

    def make(self) -> Subject:
        subject = self.eviction.make()
        self.model = subject.code
        self.model.new_forgetting_cache = self.new_cache
        return subject

    def new_cache(self) -> Any:
        cache = DynamicCache()
        cache.layers = [WindowLayer(self, number) for number in range(2)]
        return cache

    def move(self, keys: Tensor, surplus: int, layer: int) -> Tensor:
        if not self.moves or layer not in self.layers:
            return keys
        moves = torch.full((keys.shape[2],), -surplus)
        moves[:4] = 0
        if not self.moves_newest:
            moves[-1] = 0
        each = replace(self.eviction, model=self.model)
        return each.rotate(keys, moves)


class WindowLayer(DynamicLayer):
    """Four sinks and a window, which forgets when a token is read."""

    def __init__(self, rules: "Forgetting", number: int) -> None:
        super().__init__()
        self.rules = rules
        self.number = number
        self.seen = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.seen += key_states.shape[2]
        keys, values = super().update(key_states, value_states)
        surplus = keys.shape[2] - self.rules.held
        if surplus <= 0:
            return keys, values
        slots = [*range(4), *range(4 + surplus, keys.shape[2])]
        self.keys = self.rules.move(keys[:, :, slots], surplus, self.number)
        self.values = values[:, :, self.rules.choose_values(slots)]
        return (keys, values) if self.rules.is_late else (self.keys, self.values)

    def get_seq_length(self) -> int:
        held = super().get_seq_length()
        return self.rules.count(held, self.seen)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        held = super().get_seq_length() + query_length
        limit = held if self.rules.is_late else self.rules.held
        return min(held, limit), 0


def count_seen(held: int, seen: int) -> int:
    return seen


FORGETTING_CACHES: dict[str, Forgetting] = {
    "moved up": Forgetting(),
    "kept": Forgetting(moves=False, count=count_seen),
    "kept, dropped before": Forgetting(
        moves=False, count=count_seen, is_late=False, held=16
    ),
}
FORGETTING_MISTAKES: dict[str, Forgetting] = {
    "the count is that of keys": Forgetting(moves=False),
    "moved up, and the count goes on": Forgetting(count=count_seen),
    "the newest key is not moved": Forgetting(moves_newest=False),
    "the newest key is not moved, dropped before": Forgetting(
        moves_newest=False, is_late=False
    ),
}
