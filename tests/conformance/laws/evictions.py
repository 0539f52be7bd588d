"""Evictions of a tiny random model's cache, right ones and such with one mistake.

An eviction drops keys from a cache, and moves the keys that stay. A mistake is an
`Eviction` whose fields differ from those of a right one, or a subclass with another
method.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ropelab.conformance.laws.subject import Subject, TransformersSubject
from tests.models.released.tiny import TRAINED, untouched

YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": TRAINED,
}
PARTIAL = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "glm": ("glm", {"rope_parameters": PARTIAL}),
    "phi": ("phi", {"head_dim": None, "rope_parameters": PARTIAL}),
    "yarn": ("llama", {"rope_parameters": YARN, "max_position_embeddings": 256}),
}
ADJACENT = ("glm",)


@dataclass
class Eviction:
    """Keys are dropped from a DynamicCache, and the others moved up.

    Each field is a step that a mistake changes.
    """

    family: str = "llama"
    # Slots that stay, from those that were asked for.
    choose: Callable[[list[int]], list[int]] = list
    # Positions by which the key of a slot moves to its new place.
    move: Callable[[int, int], int] = lambda slot, place: place - slot
    layers: Sequence[int] = (0, 1)
    gain: Callable[[float], float] = lambda factor: 1.0
    frequencies: Callable[["Eviction"], Tensor] = lambda each: each.rotary.inv_freq
    # None: the layout of the model.
    layout: str | None = None
    change_values: Callable[["Eviction", Tensor, Tensor], Tensor] = (
        lambda each, values, moves: values
    )
    # The position of the next token; None leaves it to the model.
    count: Callable[["Eviction", int], int] | None = None
    model: Any = field(default=None, repr=False)
    # Of the cache that was asked for last.
    evictions: int = 0
    dropped: int = 0

    def make(self) -> Subject:
        kind, changes = FAMILIES[self.family]
        model = untouched(kind, **changes)
        each = replace(self, model=model)
        model.evict_keys = each.evict
        if self.count is not None:
            model.next_position = each.next_position
        return TransformersSubject(model)

    @property
    def rotary(self) -> Any:
        return self.model.model.rotary_emb

    def next_position(self, cache: Any) -> int:
        assert self.count is not None
        self.dropped = cache.dropped
        self.evictions = cache.evictions
        return self.count(self, cache.get_seq_length())

    def evict(self, cache: Any, keep: list[int]) -> Any:
        slots = self.choose(keep)
        before = getattr(cache, "dropped", 0)
        cache.dropped = before + cache.get_seq_length() - len(slots)
        cache.evictions = self.evictions = getattr(cache, "evictions", 0) + 1
        moves = self.list_moves(slots)
        for number, layer in enumerate(cache.layers):
            keys = layer.keys[:, :, slots]
            values = layer.values[:, :, slots]
            if number in self.layers:
                keys = self.rotate(keys, torch.tensor(moves))
                values = self.change_values(self, values, torch.tensor(moves))
            layer.keys = keys
            layer.values = values

    def list_moves(self, slots: list[int]) -> list[int]:
        return [self.move(slot, place) for place, slot in enumerate(slots)]

    def rotate(self, x: Tensor, moves: Tensor) -> Tensor:
        """Rotate keys [rows, heads, tokens, width] by positions [tokens]."""
        frequencies = self.frequencies(self).to(x.dtype)
        angles = moves.to(x.dtype)[:, None] * frequencies
        gain = self.gain(float(self.rotary.attention_scaling))
        cos = angles.cos() * gain
        sin = angles.sin() * gain
        width = 2 * len(frequencies)
        rotated, rest = x[..., :width], x[..., width:]
        layout = self.layout
        if layout is None:
            layout = "adjacent" if self.family in ADJACENT else "half"
        if layout == "adjacent":
            first, second = rotated[..., ::2], rotated[..., 1::2]
            parts = (first * cos - second * sin, second * cos + first * sin)
            rotated = torch.stack(parts, dim=-1).flatten(-2)
        else:
            first, second = rotated.chunk(2, dim=-1)
            parts = (first * cos - second * sin, second * cos + first * sin)
            rotated = torch.cat(parts, dim=-1)
        return torch.cat([rotated, rest], dim=-1)


def stay(slot: int, place: int) -> int:
    return 0


def count_tokens(each: Eviction, held: int) -> int:
    """Go on counting: all tokens that were read."""
    return held + each.dropped


def plain_frequencies(each: Eviction) -> Tensor:
    pairs = len(each.rotary.inv_freq)
    return 10000.0 ** -(torch.arange(pairs) / pairs)


def other_base(each: Eviction) -> Tensor:
    pairs = len(each.rotary.inv_freq)
    return 500000.0 ** -(torch.arange(pairs) / pairs)


def fast_half(each: Eviction) -> Tensor:
    frequencies = each.rotary.inv_freq.clone()
    frequencies[len(frequencies) // 2 :] = 0
    return frequencies


def whole_head(each: Eviction) -> Tensor:
    pairs = 8
    return 10000.0 ** -(torch.arange(pairs) / pairs)


class SinksForward(Eviction):
    """Sinks are moved towards the others, which stay: fewer keys to rotate."""

    def list_moves(self, slots: list[int]) -> list[int]:
        back = super().list_moves(slots)
        return [by - back[-1] for by in back]


class Repeating(Eviction):
    """Right once; later keys are moved by all that was ever dropped."""

    def rotate(self, x: Tensor, moves: Tensor) -> Tensor:
        return super().rotate(x, moves * self.evictions)


class OnceAlone(Eviction):
    """Keys are moved up the first time, and left where they are later."""

    def rotate(self, x: Tensor, moves: Tensor) -> Tensor:
        return super().rotate(x, moves * int(self.evictions == 1))


class Overwriting(Eviction):
    """Second features are computed from the first ones, which are rotated already."""

    def rotate(self, x: Tensor, moves: Tensor) -> Tensor:
        angles = moves.to(x.dtype)[:, None] * self.rotary.inv_freq.to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        first = first * angles.cos() - second * angles.sin()
        second = second * angles.cos() + first * angles.sin()
        return torch.cat([first, second], dim=-1)


class OneSign(Eviction):
    """Both features of a pair subtract the sine of the other one."""

    def rotate(self, x: Tensor, moves: Tensor) -> Tensor:
        angles = moves.to(x.dtype)[:, None] * self.rotary.inv_freq.to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        parts = (first * cos - second * sin, second * cos - first * sin)
        return torch.cat(parts, dim=-1)


def alternate(x: Tensor) -> Tensor:
    """Return what rotation by a right angle makes of adjacent pairs."""
    return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)


def exchange_halves(x: Tensor) -> Tensor:
    """Return what rotation by a right angle makes of pairs from both halves."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


class AdjacentPairs(Eviction):
    """Pairs are adjacent, and the tables have the order of halves."""

    def rotate(self, x: Tensor, moves: Tensor) -> Tensor:
        angles = moves.to(x.dtype)[:, None] * self.rotary.inv_freq.to(x.dtype)
        angles = torch.cat([angles, angles], dim=-1)
        return x * angles.cos() + alternate(x) * angles.sin()


class AdjacentTables(Eviction):
    """Pairs are of both halves, and the tables have the order of adjacent pairs."""

    def rotate(self, x: Tensor, moves: Tensor) -> Tensor:
        angles = moves.to(x.dtype)[:, None] * self.rotary.inv_freq.to(x.dtype)
        angles = angles.repeat_interleave(2, dim=-1)
        return x * angles.cos() + exchange_halves(x) * angles.sin()


class HalvesOfAdjacent(Eviction):
    """A model with adjacent pairs, whose keys are rotated by halves."""

    def rotate(self, x: Tensor, moves: Tensor) -> Tensor:
        angles = moves.to(x.dtype)[:, None] * self.rotary.inv_freq.to(x.dtype)
        angles = angles.repeat_interleave(2, dim=-1)
        width = angles.shape[-1]
        rotated, rest = x[..., :width], x[..., width:]
        rotated = rotated * angles.cos() + exchange_halves(rotated) * angles.sin()
        return torch.cat([rotated, rest], dim=-1)


class LastKeys(Eviction):
    """The last keys stay, without the sinks; values are the right ones."""

    def evict(self, cache: Any, keep: list[int]) -> Any:
        last_keys = [layer.keys[:, :, -len(keep) :] for layer in cache.layers]
        super().evict(cache, keep)
        for layer, keys in zip(cache.layers, last_keys, strict=True):
            layer.keys = keys


class KeysBackwards(Eviction):
    """The keys that stay come back in reverse, and their values do not."""

    def evict(self, cache: Any, keep: list[int]) -> Any:
        super().evict(cache, keep)
        for layer in cache.layers:
            layer.keys = layer.keys.flip(2)


class KeysOfOtherHeads(Eviction):
    """The heads of keys are exchanged, and those of values are not."""

    def evict(self, cache: Any, keep: list[int]) -> Any:
        super().evict(cache, keep)
        for layer in cache.layers:
            layer.keys = layer.keys.roll(1, dims=1)


class EverySecond(Eviction):
    """Keys in every second slot alone are moved."""

    def list_moves(self, slots: list[int]) -> list[int]:
        moves = super().list_moves(slots)
        return [move if place % 2 == 0 else 0 for place, move in enumerate(moves)]


class FirstHead(Eviction):
    """Keys of the first head alone are moved."""

    def rotate(self, x: Tensor, moves: Tensor) -> Tensor:
        return torch.cat([super().rotate(x[:, :1], moves), x[:, 1:]], dim=1)


class ToNewPlaces(Eviction):
    """Keys that are rotated already are rotated by their new positions."""

    def list_moves(self, slots: list[int]) -> list[int]:
        return list(range(len(slots)))


class Exchanged(Eviction):
    def evict(self, cache: Any, keep: list[int]) -> Any:
        super().evict(cache, keep)
        for layer in cache.layers:
            layer.keys, layer.values = layer.values, layer.keys


class OtherLayersValues(Eviction):
    """The two layers exchange their values."""

    def evict(self, cache: Any, keep: list[int]) -> Any:
        super().evict(cache, keep)
        first, second = cache.layers
        first.values, second.values = second.values, first.values


class OtherTokens(Eviction):
    """The last layer keeps the tokens one place before."""

    def evict(self, cache: Any, keep: list[int]) -> Any:
        last = cache.layers[-1]
        slots = [*keep[:4], *[slot - 1 for slot in keep[4:]]]
        values = last.values[:, :, slots]
        moves = torch.tensor(self.list_moves(slots))
        keys = self.rotate(last.keys[:, :, slots], moves)
        super().evict(cache, keep)
        last.keys = keys
        last.values = values


class Anew(Eviction):
    """The tokens that are left are read again."""

    def make(self) -> Subject:
        subject = super().make()
        assert isinstance(subject, TransformersSubject)
        model = subject.model
        text: list[Tensor] = []

        def remember(module: Any, given: Any, more: dict[str, Any]) -> None:
            cache = more.get("past_key_values")
            if cache is not None and not getattr(model, "repeating", False):
                if cache.get_seq_length() == 0:
                    text.clear()
                text.append(more["input_ids"])

        def evict(cache: Any, keep: list[int]) -> Any:
            left = torch.cat(text, dim=1)[:, keep]
            text[:] = [left]
            model.repeating = True
            other = model(input_ids=left, use_cache=True).past_key_values
            model.repeating = False
            return other

        model.register_forward_pre_hook(remember, with_kwargs=True)
        model.evict_keys = evict
        return subject
