"""Mistakes of caches as servers write them: of evictions, of joins, and of both."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.conformance.laws.served_caches import (
    HEAD_DIM,
    TABLE,
    Kept,
    Page,
    Scaled,
    Served,
    Store,
    open_store,
)


class CountsKeys(Served):
    """The position of the next token is the number of keys."""

    def next_position(self, cache: Any) -> int:
        return len(open_store(cache).at)


class CountsEarly(Served):
    """The position of the next token was computed when keys were dropped or joined."""

    counted = 0

    def next_position(self, cache: Any) -> int:
        return self.counted


def measure_first_gap(numbers: Sequence[int]) -> int:
    """Return how many of the numbers from 0 on are missing in the first gap."""
    for place, number in enumerate(numbers):
        if number != place:
            return number - place
    return 0


def coarse(x: Tensor) -> Tensor:
    """Round to the 8 bits of bfloat16."""
    scale = 2.0 ** (x.abs().clamp(min=1e-9).log2().floor() - 7)
    return (x / scale).round() * scale


# Mistakes of both evictions and joins: of the rotation.


class FirstLayer(Served):
    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        return super().replace(layer, keys, old, new) if layer == 0 else keys


class LastLayerNot(Served):
    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        return super().replace(layer, keys, old, new) if layer < 2 else keys


class FirstRow(Served):
    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        moved = super().replace(layer, keys, old, new)
        return torch.cat([moved[:1], keys[1:]])


class SecondHeadNot(Served):
    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        moved = super().replace(layer, keys, old, new)
        return torch.cat([moved[:, :1], keys[:, 1:]], dim=1)


class HeadsMixed(Served):
    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        return super().replace(layer, keys, old, new).flip(1)


class CoarseTable(Served):
    def make_table(self, x: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = super().make_table(x)
        # The table was stored long ago: no cast is seen when it is used.
        return coarse(cos), coarse(sin)


class HalfTable(Served):
    def make_table(self, x: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = super().make_table(x)
        return (cos * 2**10).round() / 2**10, (sin * 2**10).round() / 2**10


class ShortTable(Served):
    """Positions beyond the table are those of its end."""

    def make_table(self, x: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = super().make_table(x)
        index = torch.arange(TABLE).clamp(max=15)
        return cos[index], sin[index]


class WholeHead(Served):
    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        pairs = HEAD_DIM // 2
        exponents = torch.arange(pairs, dtype=keys.dtype) / pairs
        moves = torch.tensor(new, dtype=keys.dtype) - torch.tensor(old)
        angles = moves[:, None] * self.base**-exponents
        return self.turn(keys, angles.cos(), angles.sin())


class InHalves(Served):
    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        moves = torch.tensor(new, dtype=keys.dtype) - torch.tensor(old)
        angles = moves[:, None] * self.frequencies(keys)
        first, second = keys[..., :4], keys[..., 4:8]
        cos, sin = angles.cos(), angles.sin()
        parts = [first * cos - second * sin, second * cos + first * sin]
        return torch.cat([*parts, keys[..., 8:]], dim=-1)


class SlowPairsNot(Served):
    def make_table(self, x: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = super().make_table(x)
        cos[:, 2:] = 1
        sin[:, 2:] = 0
        return cos, sin


class OtherBase(Served):
    def make_table(self, x: Tensor) -> tuple[Tensor, Tensor]:
        pairs = torch.arange(4, dtype=x.dtype)
        angles = torch.arange(TABLE, dtype=x.dtype)[:, None] * 10000.0 ** (-pairs / 4)
        return angles.cos(), angles.sin()


class Interpolated(Served):
    def make_table(self, x: Tensor) -> tuple[Tensor, Tensor]:
        angles = torch.arange(TABLE, dtype=x.dtype)[:, None] * self.frequencies(x) / 4
        return angles.cos(), angles.sin()


class Backwards(Served):
    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        return super().replace(layer, keys, new, old)


class Twice(Served):
    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        keys = super().replace(layer, keys, old, new)
        return super().replace(layer, keys, old, new)


class NotForwards(Served):
    """Keys are rotated back, and no further."""

    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        return super().replace(layer, keys, old, [0] * len(new))


class NotBack(Served):
    """Keys are rotated forwards without being rotated back."""

    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        return super().replace(layer, keys, [0] * len(old), new)


class NotRotated(Served):
    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        return keys


class FactorAgain(Scaled):
    def make_table(self, x: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = super().make_table(x)
        return cos * self.gain**0.5, sin * self.gain**0.5


# Mistakes of evictions.


class ByAllDropped(Served):
    """All keys behind the first gap are moved by all that is dropped."""

    def place(self, old: list[int], keep: list[int], store: Store) -> list[int]:
        dropped = old[-1] + 1 - len(keep)
        return [
            position if position == slot else position - dropped
            for slot, position in enumerate(old)
        ]

    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        # The table has no negative positions.
        return super().replace(
            layer, keys, [each + 30 for each in old], [each + 30 for each in new]
        )


class ByFirstGap(CountsKeys):
    """All keys behind the first gap are moved by that gap; counts follow."""

    def place(self, old: list[int], keep: list[int], store: Store) -> list[int]:
        gap = measure_first_gap(old)
        return [
            position if position == slot else position - gap
            for slot, position in enumerate(old)
        ]


class CountsFirstGap(CountsEarly):
    """Keys are right; new tokens are counted with the first gap alone."""

    def evict_keys(self, cache: Any, keep: list[int]) -> Any:
        self.counted = len(open_store(cache).at) - measure_first_gap(keep)
        super().evict_keys(cache, keep)


class CountsFirstGapKept(CountsEarly, Kept):
    """Keys are kept, and the count is one of keys plus the first gap."""

    def evict_keys(self, cache: Any, keep: list[int]) -> Any:
        self.counted = len(keep) + measure_first_gap(keep)
        super().evict_keys(cache, keep)


class OneRun(Served):
    """Only one run of tokens is dropped: what lies between the gaps goes, too."""

    def evict_keys(self, cache: Any, keep: list[int]) -> Any:
        store = open_store(cache)
        length = len(store.at)
        sinks = 0
        while sinks < len(keep) and keep[sinks] == sinks:
            sinks += 1
        window = len(keep) - sinks
        super().evict_keys(cache, [*range(sinks), *range(length - window, length)])


class OldPositions(CountsKeys):
    """The cache remembers the old positions."""

    def record(self, old: list[int], new: list[int]) -> list[int]:
        return old


class FirstValues(Served):
    """The last layer keeps the first values in place of those that stay."""

    def carry(self, layer: int, values: Tensor, keep: list[int]) -> Tensor:
        slots = keep if layer < 2 else list(range(len(keep)))
        return super().carry(layer, values, slots)


class ValuesOfHeads(Served):
    def carry(self, layer: int, values: Tensor, keep: list[int]) -> Tensor:
        return super().carry(layer, values.flip(1), keep)


class ValuesRotated(Served):
    def carry(self, layer: int, values: Tensor, keep: list[int]) -> Tensor:
        return self.replace(
            layer, super().carry(layer, values, keep), keep, list(range(len(keep)))
        )


class LaterValues(Served):
    """From the second eviction on values are those of other heads."""

    def evict_keys(self, cache: Any, keep: list[int]) -> Any:
        super().evict_keys(cache, keep)
        store = open_store(cache)
        if store.evictions > 1:
            for page in store.layers:
                page.values = page.values.flip(1)


class CoarseValues(Served):
    def carry(self, layer: int, values: Tensor, keep: list[int]) -> Tensor:
        return coarse(super().carry(layer, values, keep))


class Restarted(CountsKeys, Kept):
    """Keys keep their positions, and the next token's is the number of keys."""


class GoesOn(Served):
    def next_position(self, cache: Any) -> int:
        store = open_store(cache)
        return len(store.at) + store.dropped


class OneTooFew(CountsKeys):
    def place(self, old: list[int], keep: list[int], store: Store) -> list[int]:
        return [slot + (position != slot) for slot, position in enumerate(old)]


# Mistakes of joins.


class BySecondLength(CountsKeys):
    def place_second(self, first: Store, second: Store) -> list[int]:
        return [position + len(second.at) for position in second.at]


class FirstMoved(CountsKeys):
    def place_first(self, first: Store, second: Store) -> list[int]:
        return [position + len(second.at) for position in first.at]

    def place_second(self, first: Store, second: Store) -> list[int]:
        return list(second.at)


class BothMoved(CountsKeys):
    def place_first(self, first: Store, second: Store) -> list[int]:
        return [position + len(first.at) for position in first.at]


class Overlapping(CountsKeys):
    """The second text keeps its positions, and new tokens follow both."""

    def place_second(self, first: Store, second: Store) -> list[int]:
        return list(second.at)


class OverlappingOn(Overlapping):
    """The second text keeps its positions, and new tokens follow its last one."""

    def next_position(self, cache: Any) -> int:
        return open_store(cache).at[-1] + 1


class ValuesExchanged(Served):
    """Keys are in order, and the values of the second text come first."""

    def link(self, layer: int, one: Page, two: Page) -> tuple[Tensor, Tensor]:
        keys, _ = super().link(layer, one, two)
        return keys, torch.cat([two.values, one.values], dim=2)


class SecondValuesRotated(Served):
    def link(self, layer: int, one: Page, two: Page) -> tuple[Tensor, Tensor]:
        length = two.values.shape[2]
        old = list(range(length))
        new = [position + 8 for position in old]
        two.values = self.replace(layer, two.values, old, new)
        return super().link(layer, one, two)


class SecondValuesOfHeads(Served):
    def link(self, layer: int, one: Page, two: Page) -> tuple[Tensor, Tensor]:
        two.values = two.values.flip(1)
        return super().link(layer, one, two)


class KeysForValues(Served):
    def link(self, layer: int, one: Page, two: Page) -> tuple[Tensor, Tensor]:
        keys, values = super().link(layer, one, two)
        return values, keys


class FirstValuesTwice(Served):
    """The values of the second text are those of the first one, and more of its own."""

    def link(self, layer: int, one: Page, two: Page) -> tuple[Tensor, Tensor]:
        keys, _ = super().link(layer, one, two)
        values = torch.cat([one.values, one.values, two.values[:, :, 8:]], dim=2)
        return keys, values


class OrderExchanged(Served):
    """The second text is put in front of the first one."""

    def join_caches(self, first: Any, second: Any) -> Any:
        return super().join_caches(second, first)


class FirstKeyDropped(Served):
    """The first key of the second text is left out."""

    def join_caches(self, first: Any, second: Any) -> Any:
        store = open_store(second)
        store.at = store.at[1:]
        for page in store.layers:
            page.keys = page.keys[:, :, 1:]
            page.values = page.values[:, :, 1:]
        return super().join_caches(first, second)

    def place_second(self, first: Store, second: Store) -> list[int]:
        return [position - 1 + len(first.at) for position in second.at]


class FirstKeyTwice(Served):
    """The last key of the first text stands in place of the second text's first."""

    def link(self, layer: int, one: Page, two: Page) -> tuple[Tensor, Tensor]:
        two.keys = torch.cat([one.keys[:, :, -1:], two.keys[:, :, 1:]], dim=2)
        two.values = torch.cat([one.values[:, :, -1:], two.values[:, :, 1:]], dim=2)
        return super().link(layer, one, two)


class OneTooFar(CountsKeys):
    def place_second(self, first: Store, second: Store) -> list[int]:
        return [position + len(first.at) + 1 for position in second.at]


class CountsSecond(CountsEarly):
    def join_caches(self, first: Any, second: Any) -> Any:
        self.counted = len(open_store(second).at)
        return super().join_caches(first, second)


class OtherLayers(Served):
    """The keys of the last two layers are exchanged."""

    def join_caches(self, first: Any, second: Any) -> Any:
        cache = super().join_caches(first, second)
        layers = open_store(cache).layers
        layers[1].keys, layers[2].keys = layers[2].keys, layers[1].keys
        return cache


class SecondKeysReversed(Served):
    def link(self, layer: int, one: Page, two: Page) -> tuple[Tensor, Tensor]:
        two.keys = two.keys.flip(2)
        return super().link(layer, one, two)
