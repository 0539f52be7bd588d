"""A model of three layers as servers write it, whose cache knows the positions of its
keys.

Four query heads share two heads of keys. Pairs are interleaved, and a part of each head
rotates. When keys get other positions, they are rotated back from the old one and
forwards to the new one, with a stored table of cosines and sines. Each mistake is a
subclass with another method.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

LAYERS = 3
HEADS = 4
KEY_HEADS = 2
HEAD_DIM = 12
ROTATED = 8
# The positions in the stored table.
TABLE = 160


class Page:
    """The keys and values of one layer [rows, heads, tokens, head_dim]."""

    def __init__(self) -> None:
        self.keys: Any = None
        self.values: Any = None

    def append(self, keys: Tensor, values: Tensor) -> None:
        if self.keys is None:
            self.keys, self.values = keys, values
            return
        self.keys = torch.cat([self.keys, keys], dim=2)
        self.values = torch.cat([self.values, values], dim=2)


class Store:
    """A cache with the position of each key; others read it by its ``layers``."""

    def __init__(self) -> None:
        self.layers = [Page() for _ in range(LAYERS)]
        self.at: list[int] = []
        # The tokens of each slot, for code that computes keys anew.
        self.tokens: list[int] = []
        # The number of evictions.
        self.evictions = 0


class Vault:
    """A cache that nobody else can read."""

    def __init__(self) -> None:
        self.hidden = Store()


def open_store(cache: Any) -> Store:
    return cache.hidden if isinstance(cache, Vault) else cache


class Served(nn.Module):
    """Right code: its eviction moves keys up, its join moves the second text."""

    vocabulary = 60
    is_closed = False
    gain = 1.0
    base = 1000.0

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        width = HEADS * HEAD_DIM
        shared = KEY_HEADS * HEAD_DIM
        self.embedding = nn.Embedding(60, width)
        self.queries = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))
        self.keys = nn.ModuleList(nn.Linear(width, shared) for _ in range(LAYERS))
        self.values = nn.ModuleList(nn.Linear(width, shared) for _ in range(LAYERS))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))
        self.head = nn.Linear(width, 60)

    def new_cache(self) -> Any:
        return Vault() if self.is_closed else Store()

    # Rotation.

    def frequencies(self, x: Tensor) -> Tensor:
        pairs = ROTATED // 2
        return self.base ** (-torch.arange(pairs, dtype=x.dtype) / pairs)

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        width = 2 * cos.shape[-1]
        first, second = x[..., :width:2], x[..., 1:width:2]
        parts = (first * cos - second * sin, second * cos + first * sin)
        rotated = torch.stack(parts, dim=-1).flatten(-2)
        return torch.cat([rotated, x[..., width:]], dim=-1)

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        """Rotate [rows, heads, tokens, head_dim] to positions [rows, tokens]."""
        angles = at[:, None, :, None].to(x.dtype) * self.frequencies(x)
        return self.turn(x, self.gain * angles.cos(), self.gain * angles.sin())

    def make_table(self, x: Tensor) -> tuple[Tensor, Tensor]:
        angles = torch.arange(TABLE, dtype=x.dtype)[:, None] * self.frequencies(x)
        return angles.cos(), angles.sin()

    def replace(
        self, layer: int, keys: Tensor, old: list[int], new: list[int]
    ) -> Tensor:
        """Rotate keys back from the old positions, and forwards to the new ones."""
        cos, sin = self.make_table(keys)
        keys = self.turn(keys, cos[old], -sin[old])
        return self.turn(keys, cos[new], sin[new])

    # The model.

    def forward(
        self, tokens: Tensor, at: Tensor, mask: Tensor, cache: Any = None
    ) -> Tensor:
        rows, new = tokens.shape
        x = self.embedding(tokens)
        store = None if cache is None else open_store(cache)
        if store is not None:
            store.at += at[0].tolist()
            store.tokens += tokens[0].tolist()
        for layer in range(LAYERS):
            q = self.queries[layer](x).view(rows, new, HEADS, HEAD_DIM).transpose(1, 2)
            k = self.keys[layer](x).view(rows, new, KEY_HEADS, HEAD_DIM).transpose(1, 2)
            v = self.values[layer](x)
            v = v.view(rows, new, KEY_HEADS, HEAD_DIM).transpose(1, 2)
            q = self.rotate(q, at)
            k = self.rotate(k, at)
            if store is not None:
                page = store.layers[layer]
                page.append(k, v)
                k, v = page.keys, page.values
            group = HEADS // KEY_HEADS
            k = k.repeat_interleave(group, dim=1)
            v = v.repeat_interleave(group, dim=1)
            scores = q @ k.mT * 1.5
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
            mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
            x = x + self.out[layer](mixed)
            x = x / x.square().mean(dim=-1, keepdim=True).sqrt()
        return self.head(x)

    # Evictions.

    def place(self, old: list[int], keep: list[int], store: Store) -> list[int]:
        """Return the positions of the keys that stay."""
        return list(range(len(keep)))

    def carry(self, layer: int, values: Tensor, keep: list[int]) -> Tensor:
        return values[:, :, keep]

    def record(self, old: list[int], new: list[int]) -> list[int]:
        """Return the positions that the cache remembers."""
        return new

    def evict_keys(self, cache: Any, keep: list[int]) -> Any:
        store = open_store(cache)
        store.evictions += 1
        old = [store.at[slot] for slot in keep]
        new = self.place(old, keep, store)
        for layer, page in enumerate(store.layers):
            values = self.carry(layer, page.values, keep)
            page.keys = self.replace(layer, page.keys[:, :, keep], old, new)
            page.values = values
        store.at = self.record(old, new)
        store.tokens = [store.tokens[slot] for slot in keep]

    def next_position(self, cache: Any) -> int:
        store = open_store(cache)
        return store.at[-1] + 1

    # Joins.

    def place_second(self, first: Store, second: Store) -> list[int]:
        return [position + len(first.at) for position in second.at]

    def place_first(self, first: Store, second: Store) -> list[int]:
        return list(first.at)

    def link(self, layer: int, one: Page, two: Page) -> tuple[Tensor, Tensor]:
        keys = torch.cat([one.keys, two.keys], dim=2)
        return keys, torch.cat([one.values, two.values], dim=2)

    def join_caches(self, first: Any, second: Any) -> Any:
        one, two = open_store(first), open_store(second)
        cache = self.new_cache()
        whole = open_store(cache)
        first_at = self.place_first(one, two)
        second_at = self.place_second(one, two)
        for layer, page in enumerate(whole.layers):
            moved_one, moved_two = Page(), Page()
            moved_one.append(one.layers[layer].keys, one.layers[layer].values)
            moved_two.append(two.layers[layer].keys, two.layers[layer].values)
            moved_one.keys = self.replace(layer, moved_one.keys, one.at, first_at)
            moved_two.keys = self.replace(layer, moved_two.keys, two.at, second_at)
            page.keys, page.values = self.link(layer, moved_one, moved_two)
        whole.at = first_at + second_at
        whole.tokens = one.tokens + two.tokens
        return cache


# Right code.


class Kept(Served):
    """Keys keep their positions."""

    def place(self, old: list[int], keep: list[int], store: Store) -> list[int]:
        return old


class SinksForwards(Served):
    """Keys are packed towards the newest one, which stays."""

    def place(self, old: list[int], keep: list[int], store: Store) -> list[int]:
        last = old[-1]
        return [last - len(keep) + 1 + slot for slot in range(len(keep))]


class FirstBackwards(Served):
    """Of joined texts the second one stays, and the first one moves in front of it.

    Positions that would be negative are avoided by moving both on.
    """

    def place_first(self, first: Store, second: Store) -> list[int]:
        return [position + 5 for position in first.at]

    def place_second(self, first: Store, second: Store) -> list[int]:
        return [position + 5 + len(first.at) for position in second.at]


class SecondInFront(Served):
    """Slots of the second text come first, at the positions behind the first text."""

    def link(self, layer: int, one: Page, two: Page) -> tuple[Tensor, Tensor]:
        return super().link(layer, two, one)


class OneGapOnly(Served):
    """Several gaps are refused."""

    def evict_keys(self, cache: Any, keep: list[int]) -> Any:
        jumps = [after - before for before, after in pairwise(keep)]
        if sum(jump > 1 for jump in [keep[0] + 1, *jumps]) > 1:
            raise NotImplementedError("only one run of tokens can be dropped")
        super().evict_keys(cache, keep)


class JoinedAnew(Served):
    """The second text is read again behind the first one."""

    def join_caches(self, first: Any, second: Any) -> Any:
        one, two = open_store(first), open_store(second)
        cache = self.new_cache()
        tokens = torch.tensor([one.tokens + two.tokens])
        length = tokens.shape[1]
        mask = torch.ones(1, length, length, dtype=torch.bool).tril()
        self(tokens, torch.arange(length)[None], mask, cache)
        return cache


class Scaled(Served):
    """Cosines and sines have a factor, of which a new rotation is free."""

    gain = 1.2


class ClosedServed(Served):
    is_closed = True


class ClosedKept(Kept):
    is_closed = True


class ClosedJoinedBackwards(FirstBackwards):
    is_closed = True


SERVED_RIGHT: dict[str, type[Served]] = {
    "moved up": Served,
    "kept": Kept,
    "sinks forwards": SinksForwards,
    "both texts moved": FirstBackwards,
    "second text in front": SecondInFront,
    "one gap only": OneGapOnly,
    "joined anew": JoinedAnew,
    "with a factor": Scaled,
    "closed, moved up": ClosedServed,
    "closed, kept": ClosedKept,
    "closed, both texts moved": ClosedJoinedBackwards,
}


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


def coarse(x: Tensor) -> Tensor:
    """Round to the 8 bits of bfloat16."""
    scale = 2.0 ** (x.abs().clamp(min=1e-9).log2().floor() - 7)
    return (x / scale).round() * scale


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


class ByFirstGap(Served):
    """All keys behind the first gap are moved by that gap; counts follow."""

    def place(self, old: list[int], keep: list[int], store: Store) -> list[int]:
        gap = 0
        for slot, position in enumerate(old):
            if position != slot:
                gap = position - slot
                break
        return [
            position if position == slot else position - gap
            for slot, position in enumerate(old)
        ]

    def next_position(self, cache: Any) -> int:
        return len(open_store(cache).at)


class CountsFirstGap(Served):
    """Keys are right; new tokens are counted with the first gap alone."""

    def evict_keys(self, cache: Any, keep: list[int]) -> Any:
        gap = 0
        for slot, kept in enumerate(keep):
            if kept != slot:
                gap = kept - slot
                break
        store = open_store(cache)
        length = len(store.at)
        super().evict_keys(cache, keep)
        self.counted = length - gap

    def next_position(self, cache: Any) -> int:
        return self.counted


class CountsFirstGapKept(Kept):
    """Keys are kept, and the count is one of keys plus the first gap."""

    def evict_keys(self, cache: Any, keep: list[int]) -> Any:
        gap = 0
        for slot, kept in enumerate(keep):
            if kept != slot:
                gap = kept - slot
                break
        super().evict_keys(cache, keep)
        self.counted = len(keep) + gap

    def next_position(self, cache: Any) -> int:
        return self.counted


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


class OldPositions(Served):
    """The cache remembers the old positions."""

    def record(self, old: list[int], new: list[int]) -> list[int]:
        return old

    def place(self, old: list[int], keep: list[int], store: Store) -> list[int]:
        return list(range(len(keep)))

    def next_position(self, cache: Any) -> int:
        return len(open_store(cache).at)


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


class Restarted(Kept):
    def next_position(self, cache: Any) -> int:
        return len(open_store(cache).at)


class GoesOn(Served):
    def evict_keys(self, cache: Any, keep: list[int]) -> Any:
        store = open_store(cache)
        dropped = len(store.at) - len(keep)
        super().evict_keys(cache, keep)
        store.gone = getattr(store, "gone", 0) + dropped  # type: ignore[attr-defined]

    def next_position(self, cache: Any) -> int:
        store = open_store(cache)
        return len(store.at) + getattr(store, "gone", 0)


class OneTooFew(Served):
    def place(self, old: list[int], keep: list[int], store: Store) -> list[int]:
        return [slot + (position != slot) for slot, position in enumerate(old)]

    def next_position(self, cache: Any) -> int:
        return len(open_store(cache).at)


# Mistakes of joins.


class BySecondLength(Served):
    def place_second(self, first: Store, second: Store) -> list[int]:
        return [position + len(second.at) for position in second.at]

    def next_position(self, cache: Any) -> int:
        return len(open_store(cache).at)


class FirstMoved(Served):
    def place_first(self, first: Store, second: Store) -> list[int]:
        return [position + len(second.at) for position in first.at]

    def place_second(self, first: Store, second: Store) -> list[int]:
        return list(second.at)

    def next_position(self, cache: Any) -> int:
        return len(open_store(cache).at)


class BothMoved(Served):
    def place_first(self, first: Store, second: Store) -> list[int]:
        return [position + len(first.at) for position in first.at]

    def next_position(self, cache: Any) -> int:
        return len(open_store(cache).at)


class Overlapping(Served):
    """The second text keeps its positions, and new tokens follow both."""

    def place_second(self, first: Store, second: Store) -> list[int]:
        return list(second.at)

    def next_position(self, cache: Any) -> int:
        return len(open_store(cache).at)


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
        store.at = store.at[:-1]
        for page in store.layers:
            page.keys = page.keys[:, :, 1:]
            page.values = page.values[:, :, 1:]
        store.at = list(range(1, len(store.at) + 1))
        return super().join_caches(first, second)

    def place_second(self, first: Store, second: Store) -> list[int]:
        return [position - 1 + len(first.at) for position in second.at]


class FirstKeyTwice(Served):
    """The last key of the first text stands in place of the second text's first."""

    def link(self, layer: int, one: Page, two: Page) -> tuple[Tensor, Tensor]:
        two.keys = torch.cat([one.keys[:, :, -1:], two.keys[:, :, 1:]], dim=2)
        two.values = torch.cat([one.values[:, :, -1:], two.values[:, :, 1:]], dim=2)
        return super().link(layer, one, two)


class OneTooFar(Served):
    def place_second(self, first: Store, second: Store) -> list[int]:
        return [position + len(first.at) + 1 for position in second.at]

    def next_position(self, cache: Any) -> int:
        return len(open_store(cache).at)


class CountsSecond(Served):
    def join_caches(self, first: Any, second: Any) -> Any:
        self.counted = len(open_store(second).at)
        return super().join_caches(first, second)

    def next_position(self, cache: Any) -> int:
        return self.counted


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


EVICTIONS = ("own, middle dropped", "own, rolling", "own, two gaps", "own, two rows")
JOINS = ("own, fragments joined", "own, two rows joined")


def close(code: type[Served]) -> type[Served]:
    """Return the same code with a cache that nobody else can read."""
    return type(f"Closed{code.__name__}", (code,), {"is_closed": True})


GAPS = "own, two gaps"
MIDDLE = "own, middle dropped"
ROLLING = "own, rolling"
FRONT = "own, front and middle dropped"
JOIN = "own, fragments joined"
TWO_ROWS = "own, two rows"
ROWS_JOINED = "own, two rows joined"
SECOND = "keys of the second fragment"
# The trials of each mistake, and words that must name it.
WORDS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "FirstLayer": (
        (MIDDLE, ("by -8 positions in layer 0, and by +0 in layer 1",)),
        (JOIN, (f"{SECOND} are rotated by +8 positions in layer 0, and by +0",)),
    ),
    "LastLayerNot": (
        (GAPS, ("behind the second gap are rotated by -8", "by +0 in layer 2")),
        (JOIN, (SECOND, "by +0 in layer 2")),
    ),
    "FirstRow": (
        (TWO_ROWS, ("row 1 of 2: keys keep their rotation",)),
        (ROWS_JOINED, (f"row 1 of 2: {SECOND} are joined without a rotation",)),
    ),
    "SecondHeadNot": (
        (GAPS, ("behind the first gap are rotated by -3, 0 positions, head by head",)),
        (JOIN, (f"{SECOND} are rotated by 8, 0 positions, head by head",)),
    ),
    "HeadsMixed": (
        (MIDDLE, ("keys are those of other heads",)),
        (JOIN, ("keys are those of other heads",)),
    ),
    "CoarseTable": (
        (MIDDLE, ("with errors of up to 0.", "rounded to fewer bits")),
        (JOIN, ("with errors of up to 0.", "rounded to fewer bits")),
    ),
    "HalfTable": (
        (MIDDLE, ("errors of up to 0.", "rounded to fewer bits")),
        (JOIN, ("errors of up to 0.", "rounded to fewer bits")),
    ),
    "ShortTable": (
        (MIDDLE, ("rotated by 4 times -8, -7 to 0 positions, slot by slot",)),
        (JOIN, (f"{SECOND} are rotated by 8 times 8, 7 to 0 positions, slot by slot",)),
    ),
    "WholeHead": (
        (MIDDLE, ("changed in features that do not rotate: 8 of 12 do",)),
        (JOIN, (f"{SECOND} are changed in features that do not rotate",)),
    ),
    "InHalves": (
        (MIDDLE, ("in the pairs of the other layout",)),
        (JOIN, (f"{SECOND} are rotated in the pairs of the other layout",)),
    ),
    "SlowPairsNot": (
        (MIDDLE, ("only pairs 0 to 1 of 4 are rotated",)),
        (JOIN, (SECOND, "only pairs 0 to 1 of 4 are rotated")),
    ),
    "OtherBase": (
        (MIDDLE, ("other frequencies", "as with the base 10,000")),
        (JOIN, (SECOND, "as with the base 10,000")),
    ),
    "Interpolated": (
        (GAPS, ("as with positions multiplied by 0.25",)),
        (JOIN, (f"{SECOND} are rotated by +2 positions where +8",)),
    ),
    "Backwards": (
        (GAPS, ("by +3 positions, those behind the second gap by +8",)),
        (JOIN, (f"{SECOND} are rotated by -8 positions where +8",)),
    ),
    "Twice": (
        (GAPS, ("by -6 positions, those behind the second gap by -16",)),
        (JOIN, (f"{SECOND} are rotated by +16 positions where +8",)),
    ),
    "NotForwards": (
        (MIDDLE, ("all keys are rotated back to position 0, and not forwards",)),
        (JOIN, ("all keys are rotated back to position 0, and not forwards",)),
    ),
    "NotBack": (
        (MIDDLE, ("all keys are rotated to new places without being rotated back",)),
        (JOIN, ("all keys are rotated to new places without being rotated back",)),
    ),
    "NotRotated": (
        (GAPS, ("keys keep their rotation", "16, the number of keys")),
        (JOIN, (f"{SECOND} are joined without a rotation",)),
    ),
    "FactorAgain": (
        (MIDDLE, ("are multiplied by 1.2 besides being rotated",)),
        (JOIN, ("all keys are multiplied by 1.2",)),
    ),
    "ByAllDropped": (
        (
            GAPS,
            ("first gap are rotated by -8 positions, those behind the second gap by",),
        ),
    ),
    "ByFirstGap": (
        (GAPS, ("by -3 positions, those behind the second gap by -3",)),
        (FRONT, ("all keys are rotated by -3 positions", "16, the number of keys")),
    ),
    "CountsFirstGap": (
        (GAPS, ("keys behind the gaps are moved up", "counted from 21")),
        (FRONT, ("keys behind the gaps are moved up", "counted from 21")),
    ),
    "CountsFirstGapKept": (
        (GAPS, ("keys keep their rotation", "counted from 19")),
        (ROLLING, ("after 2 evictions new tokens are counted from 24, where 28",)),
    ),
    "OneRun": (
        (GAPS, ("to stay are dropped: 7 to 11; others are kept: 12 to 16",)),
        (FRONT, ("to stay are dropped: 3 to 7; others are kept: 8 to 12",)),
    ),
    "OldPositions": (
        (ROLLING, ("at eviction 2: keys behind the gap", "slot by slot")),
    ),
    "FirstValues": (
        (MIDDLE, ("layer 2: values are not those of their keys' tokens",)),
    ),
    "ValuesOfHeads": ((GAPS, ("values are those of other heads",)),),
    "ValuesRotated": ((MIDDLE, ("values are rotated, too, behind the gap",)),),
    "LaterValues": ((ROLLING, ("at eviction 2: values are those of other heads",)),),
    "CoarseValues": ((MIDDLE, ("values have errors of up to 0.",)),),
    "Restarted": ((ROLLING, ("keys keep their rotation", "20, the number of keys")),),
    "GoesOn": ((ROLLING, ("are moved up", "go on counting from 24")),),
    "OneTooFew": ((ROLLING, ("rotated by -3 positions, where moving up takes -4",)),),
    "BySecondLength": ((JOIN, (f"{SECOND} are rotated by +16 positions where +8",)),),
    "FirstMoved": ((JOIN, ("the second fragment is put in front of the first",)),),
    "BothMoved": ((JOIN, ("first fragment are rotated by +8", "second by +8")),),
    "Overlapping": ((JOIN, (f"{SECOND} are joined without a rotation",)),),
    "OverlappingOn": ((JOIN, ("without a rotation", "counted from 16")),),
    "ValuesExchanged": ((JOIN, ("values are not", "those of tokens 8 to 23, 0 to 7")),),
    "SecondValuesRotated": ((JOIN, ("values are rotated, too, of the second",)),),
    "SecondValuesOfHeads": ((JOIN, ("of other heads, of the second fragment",)),),
    "KeysForValues": ((JOIN, ("keys and values are exchanged",)),),
    "FirstValuesTwice": ((JOIN, ("values are not", "tokens 0 to 7, 0 to 7, 16 to")),),
    "OrderExchanged": ((JOIN, ("the second fragment is put in front of the first",)),),
    "FirstKeyDropped": ((JOIN, ("23 keys", "without token 0 of the second fragment")),),
    "FirstKeyTwice": ((JOIN, ("is without token 0 of the second", "there twice: 7")),),
    "OneTooFar": ((JOIN, (f"{SECOND} are rotated by +9 positions where +8",)),),
    "CountsSecond": ((JOIN, ("moved behind the first", "counted from 16")),),
    "OtherLayers": ((JOIN, ("layer 1: keys are those of layer 2",)),),
    "SecondKeysReversed": ((JOIN, ("keys are not in the slots of their values",)),),
}
SERVED: dict[str, type[Served]] = {name: globals()[name] for name in WORDS}
# What logits alone tell of the same code with a closed cache.
BY_LOGITS = "its logits are those of a cache in which"
CLOSED_WORDS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    name: tuple((trial, (BY_LOGITS, *words)) for trial, words in WORDS[name])
    for name in (
        "Backwards",
        "Twice",
        "NotRotated",
        "ByAllDropped",
        "ByFirstGap",
        "CountsFirstGap",
        "BySecondLength",
        "FirstMoved",
        "Overlapping",
        "OneTooFar",
        "CountsSecond",
    )
} | {
    "NotForwards": ((MIDDLE, (BY_LOGITS, "all keys are rotated back to position 0")),),
    "OneTooFew": ((ROLLING, (BY_LOGITS, "at the positions one behind their slots")),),
    "GoesOn": ((ROLLING, (BY_LOGITS, "at the positions of their slots", "24, 28")),),
    "OneRun": ((GAPS, (BY_LOGITS, "tokens 4 to 11 are dropped")),),
    "HalfTable": ((MIDDLE, ("differ by only 0.04%", "rounded to fewer bits")),),
    "CoarseTable": ((ROLLING, ("differ by only 0.4", "rounded to fewer bits")),),
    "ValuesOfHeads": ((ROLLING, ("logits alone do not tell what is wrong",)),),
    "ValuesExchanged": ((JOIN, ("logits alone do not tell what is wrong",)),),
    "FirstLayer": ((JOIN, ("logits alone do not tell what is wrong",)),),
}
