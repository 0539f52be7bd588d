"""Models of one or two layers whose cache is a list of (keys, values)."""

from typing import Any

import torch
from torch import Tensor, nn


class Listed(nn.Module):
    """One layer of rotated attention, whose cache is a list of (keys, values).

    Keys [rows, tokens, head_dim] are rotated when they are cached, or when they are
    read.
    """

    vocabulary = 50
    rotates_when_read = False

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 50)
        self.maps = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def new_cache(self) -> Any:
        return []

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        pairs = torch.arange(8, dtype=torch.float32)
        angles = at[..., None].float() * 100.0 ** (-pairs / 8)
        first, second = x[..., :8], x[..., 8:]
        cos, sin = angles.cos(), angles.sin()
        parts = (first * cos - second * sin, second * cos + first * sin)
        return torch.cat(parts, dim=-1)

    def find_key_positions(self, at: Tensor, length: int, cache: Any) -> Tensor:
        """Return positions of keys, of which the last are those of new tokens."""
        before = length - at.shape[1]
        if not before:
            return at
        first = at[:, :1] - before
        return torch.cat([first + torch.arange(before), at], dim=1)

    def store(self, cache: Any, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if cache:
            k = torch.cat([cache[0][0], k], dim=1)
            v = torch.cat([cache[0][1], v], dim=1)
        cache[:] = [(k, v)]
        return k, v

    def forward(
        self, tokens: Tensor, at: Tensor, mask: Tensor, cache: Any = None
    ) -> Tensor:
        x = self.embedding(tokens)
        q, k, v = (each(x) for each in self.maps)
        if not self.rotates_when_read:
            k = self.rotate(k, at)
        if cache is not None:
            k, v = self.store(cache, k, v)
        if self.rotates_when_read:
            k = self.rotate(k, self.find_key_positions(at, k.shape[1], cache))
        scores = self.rotate(q, at) @ k.mT / 4
        return self.head(x + scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ v)


class ListedKept(Listed):
    """Its eviction drops keys, and positions go on."""

    def evict_keys(self, cache: Any, keep: list[int]) -> None:
        ((keys, values),) = cache
        cache[:] = [(keys[:, keep], values[:, keep])]


class ListedMoved(ListedKept):
    """Its eviction moves keys up."""

    def evict_keys(self, cache: Any, keep: list[int]) -> None:
        super().evict_keys(cache, keep)
        ((keys, values),) = cache
        moves = torch.arange(len(keep)) - torch.tensor(keep)
        cache[:] = [(self.rotate(keys, moves), values)]


class Streaming(ListedKept):
    """Keys are cached before their rotation, which follows their place in the cache."""

    rotates_when_read = True

    def next_position(self, cache: Any) -> int:
        return int(cache[0][0].shape[1])


class Counting(Streaming):
    """Keys have the positions of their slots, whatever positions are given."""

    def find_key_positions(self, at: Tensor, length: int, cache: Any) -> Tensor:
        return torch.arange(length)[None]


class Split(Listed):
    """Two layers, whose keys are [rows, tokens, heads, head_dim] with one head."""

    def forward(
        self, tokens: Tensor, at: Tensor, mask: Tensor, cache: Any = None
    ) -> Tensor:
        x = self.embedding(tokens)
        for layer in range(2):
            q, k, v = (each(x) for each in self.maps)
            k = self.rotate(k, at)
            if cache is not None:
                k, v = self.append(cache, layer, k, v)
            scores = self.rotate(q, at) @ k.mT / 4
            x = x + scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ v
        return self.head(x)

    def append(self, cache: Any, layer: int, k: Tensor, v: Tensor) -> Any:
        pair = (k[:, :, None], v[:, :, None])
        if layer < len(cache):
            keys, values = cache[layer]
            pair = (torch.cat([keys, pair[0]], dim=1), torch.cat([values, pair[1]], 1))
            cache[layer] = pair
        else:
            cache.append(pair)
        return pair[0][:, :, 0], pair[1][:, :, 0]


class SplitMoved(Split):
    """Its eviction returns another cache, in which keys are moved up."""

    sign = 1

    def evict_keys(self, cache: Any, keep: list[int]) -> Any:
        moves = self.sign * (torch.arange(len(keep)) - torch.tensor(keep))
        other = []
        for keys, values in cache:
            moved = self.rotate(keys[:, keep, 0], moves)
            other.append((moved[:, :, None], values[:, keep]))
        return other


class SplitBackwards(SplitMoved):
    sign = -1


class Joining(Listed):
    """Keys of a second text are rotated behind those of a first."""

    def join_caches(self, first: Any, second: Any) -> Any:
        (keys, values), (more_keys, more_values) = first[0], second[0]
        moved = self.shift(more_keys, keys.shape[1])
        return [
            (torch.cat([keys, moved], dim=1), torch.cat([values, more_values], dim=1))
        ]

    def shift(self, keys: Tensor, by: int) -> Tensor:
        return self.rotate(keys, torch.tensor([by]))


class Stacking(Joining):
    """Keys are joined, and moved, with the rotation that they had."""

    def shift(self, keys: Tensor, by: int) -> Tensor:
        return keys

    def shift_keys(self, cache: Any, by: int) -> None:
        cache[:] = [(self.shift(keys, by), values) for keys, values in cache]


class Closed(ListedMoved):
    """A cache that cannot be read."""

    def new_cache(self) -> Any:
        return {}

    def store(self, cache: Any, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return super().store(cache.setdefault("all", []), k, v)

    def evict_keys(self, cache: Any, keep: list[int]) -> None:
        super().evict_keys(cache["all"], keep)


class Sealed(Listed):
    """A cache that cannot be read, and no method to change it."""

    def new_cache(self) -> Any:
        return {}

    def store(self, cache: Any, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return super().store(cache.setdefault("all", []), k, v)


class ClosedBackwards(Closed):
    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        return super().rotate(x, -at if at.ndim == 1 else at)


class ClosedGreedy(Closed):
    def evict_keys(self, cache: Any, keep: list[int]) -> None:
        super().evict_keys(cache, keep[:4] + keep[5:])


class ClosedRestarting(Closed):
    """Keys keep their rotation, and the count restarts."""

    def evict_keys(self, cache: Any, keep: list[int]) -> None:
        ListedKept.evict_keys(self, cache["all"], keep)

    def next_position(self, cache: Any) -> int:
        return int(cache["all"][0][0].shape[1])
