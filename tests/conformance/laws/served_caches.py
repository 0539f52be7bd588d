"""A model of three layers as servers write it, whose cache knows the positions of its
keys.

Four query heads share two heads of keys. Pairs are interleaved, and a part of each head
rotates. When keys get other positions, they are rotated back from the old one and
forwards to the new one, with a stored table of cosines and sines. Other right code is a
subclass with another method, and so is each of `served_mistakes`.
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
        # The number of evictions, and of keys that they dropped.
        self.evictions = 0
        self.dropped = 0


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
        store.dropped += len(store.at) - len(keep)
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


def close(code: type[Served]) -> type[Served]:
    """Return the same code with a cache that nobody else can read."""
    return type(f"Closed{code.__name__}", (code,), {"is_closed": True})


SERVED_RIGHT: dict[str, type[Served]] = {
    "moved up": Served,
    "kept": Kept,
    "sinks forwards": SinksForwards,
    "both texts moved": FirstBackwards,
    "second text in front": SecondInFront,
    "one gap only": OneGapOnly,
    "joined anew": JoinedAnew,
    "with a factor": Scaled,
    "closed, moved up": close(Served),
    "closed, kept": close(Kept),
    "closed, both texts moved": close(FirstBackwards),
}
