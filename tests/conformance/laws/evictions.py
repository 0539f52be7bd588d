"""Evictions, right ones and such with a mistake, as methods of a tiny random model.

A further mistake is a row of MISTAKES: an `Eviction` whose fields differ from those of
a right one, or a subclass with another method, and the words that must name it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from ropelab.conformance.laws.subject import Function, Subject, TransformersSubject
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


class WindowLayer(DynamicLayer):
    """Four sinks and a window, which forgets when a token is read."""

    def __init__(self, rules: "Forgetting") -> None:
        super().__init__()
        self.rules = rules
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
        self.keys = self.rules.move(keys[:, :, slots], surplus)
        self.values = values[:, :, slots]
        return (keys, values) if self.rules.is_late else (self.keys, self.values)

    def get_seq_length(self) -> int:
        held = super().get_seq_length()
        return self.rules.count(held, self.seen)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        held = super().get_seq_length() + query_length
        limit = held if self.rules.is_late else self.rules.held
        return min(held, limit), 0


@dataclass
class Forgetting:
    """A cache that drops keys by itself, and what it does with positions."""

    held: int = 20
    # True where a token sees what is dropped when it is read.
    is_late: bool = True
    moves: bool = True
    count: Callable[[int, int], int] = lambda held, seen: held
    moves_newest: bool = True
    eviction: Eviction = field(default_factory=Eviction)

    def make(self) -> Subject:
        subject = self.eviction.make()
        self.model = subject.code
        self.model.new_forgetting_cache = self.new_cache
        return subject

    def new_cache(self) -> Any:
        cache = DynamicCache()
        cache.layers = [WindowLayer(self) for _ in range(2)]
        return cache

    def move(self, keys: Tensor, surplus: int) -> Tensor:
        if not self.moves:
            return keys
        moves = torch.full((keys.shape[2],), -surplus)
        moves[:4] = 0
        if not self.moves_newest:
            moves[-1] = 0
        each = replace(self.eviction, model=self.model)
        return each.rotate(keys, moves)


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


def own(code: Callable[[], nn.Module]) -> Callable[[], Subject]:
    return lambda: Function(code())


RIGHT: dict[str, Callable[[], Subject]] = {
    **{f"moved up, {name}": Eviction(name).make for name in FAMILIES},
    **{
        f"kept, {name}": Eviction(name, move=stay, count=count_tokens).make
        for name in FAMILIES
    },
    "sinks moved towards the others": SinksForward(count=count_tokens).make,
    "in another order": Eviction(
        choose=lambda keep: keep[:4] + keep[10:] + keep[4:10],
        move=stay,
        count=count_tokens,
    ).make,
    "all keys moved alike": Eviction(
        move=lambda slot, place: -7,
        count=lambda each, held: count_tokens(each, held) - 7 * each.evictions,
    ).make,
    "computed anew": Anew().make,
    "a list, kept": own(ListedKept),
    "a list, moved up": own(ListedMoved),
    "two layers in a list, moved up": own(SplitMoved),
    "rotated when they are read": own(Streaming),
    "a closed cache, moved up": own(Closed),
}


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


@dataclass(frozen=True)
class Mistake:
    name: str
    make: Callable[[], Subject]
    # Words of the row that must name it.
    says: tuple[str, ...]
    trial: str = "own, middle dropped"


def planted(name: str, says: Sequence[str], **changes: Any) -> Mistake:
    return Mistake(name, Eviction(**changes).make, tuple(says))


MISTAKES = (
    planted(
        "positions restart, keys not rotated",
        ["keys keep their rotation", "the number of keys"],
        move=stay,
    ),
    planted(
        "positions restart at 0",
        ["keys keep their rotation", "counted from 0"],
        move=stay,
        count=lambda each, held: 0,
    ),
    planted(
        "moved up, and the count goes on",
        ["keys behind the gap are moved up", "go on counting from 24"],
        count=count_tokens,
    ),
    planted(
        "moved up, counted one too far",
        ["keys behind the gap are moved up", "counted from 17"],
        count=lambda each, held: held + 1,
    ),
    planted(
        "kept, counted one too few",
        ["keys keep their rotation", "counted from 23"],
        move=stay,
        count=lambda each, held: count_tokens(each, held) - 1,
    ),
    planted(
        "in the wrong direction",
        ["keys behind the gap are rotated by +8 positions"],
        move=lambda slot, place: slot - place,
    ),
    planted(
        "one position too many",
        ["keys behind the gap are rotated by -9 positions"],
        move=lambda slot, place: place - slot - (slot != place),
    ),
    planted(
        "only the sinks are rotated",
        ["keys behind the gap keep their rotation", "in front of it by -8"],
        move=lambda slot, place: -8 if slot < 4 else 0,
    ),
    planted(
        "the sinks are rotated, too",
        ["all keys are rotated by -8", "go on counting from 24"],
        move=lambda slot, place: -8,
        count=count_tokens,
    ),
    planted("the other layout", ["pairs of the other layout"], layout="adjacent"),
    planted(
        "the other layout, partial",
        ["pairs of the other layout"],
        family="glm",
        layout="half",
    ),
    planted(
        "unscaled frequencies",
        ["frequencies that have no scaling"],
        family="yarn",
        frequencies=plain_frequencies,
    ),
    planted(
        "the attention factor twice",
        ["are multiplied by 1.139", "the attention factor, which keys have already"],
        family="yarn",
        gain=lambda factor: factor,
    ),
    planted(
        "the attention factor taken out",
        ["are multiplied by 0.878", "the attention factor is taken"],
        family="yarn",
        gain=lambda factor: 1 / factor,
    ),
    planted(
        "the whole head rotated",
        ["features of the head"],
        family="glm",
        frequencies=whole_head,
    ),
    planted(
        "values rotated",
        ["values are rotated, too"],
        change_values=lambda each, values, moves: each.rotate(values, moves),
    ),
    planted(
        "values of neighbours",
        ["values are not those of their keys' tokens"],
        change_values=lambda each, values, moves: values.roll(1, dims=2),
    ),
    planted(
        "one layer not rotated",
        ["by -8 positions in layer 0, and by +0 in layer 1"],
        layers=(0,),
    ),
    planted(
        "one dropped too many",
        ["layer 0 holds 15 keys, where 16 were to stay"],
        choose=lambda keep: keep[:4] + keep[5:],
    ),
    planted(
        "another one dropped",
        ["are dropped: 23", "are kept: 4"],
        choose=lambda keep: [*keep[:4], 4, *keep[4:-1]],
        move=stay,
        count=count_tokens,
    ),
    Mistake(
        "right once, then by all that was dropped",
        Repeating().make,
        ("after 6 evictions",),
        "own, rolling",
    ),
    Mistake(
        "closed, in the wrong direction",
        own(ClosedBackwards),
        ("keys behind the gap are rotated by +8 positions",),
    ),
    Mistake(
        "two layers in a list, in the wrong direction",
        own(SplitBackwards),
        ("keys behind the gap are rotated by +8 positions",),
    ),
    Mistake("closed, one dropped too many", own(ClosedGreedy), ("the code raises",)),
    Mistake(
        "closed, positions restart",
        own(ClosedRestarting),
        ("keys keep their rotation", "the number of keys"),
    ),
)
# Others, which were planted when the first were named.
FURTHER = (
    planted("another base", ["frequencies: pair 1 by -1.55"], frequencies=other_base),
    planted("half of the pairs", ["frequencies: pair 4 by +0"], frequencies=fast_half),
    planted(
        "by the number of keys that are left",
        ["are rotated by -16 positions, where moving up takes -8"],
        move=lambda slot, place: -16 if slot != place else 0,
    ),
    planted(
        "by the number of sinks",
        ["are rotated by -4 positions, where moving up takes -8"],
        move=lambda slot, place: -4 if slot != place else 0,
    ),
    Mistake("one head alone", FirstHead().make, ("-8, 0 positions, head by head",)),
    Mistake(
        "rotated to new places without being rotated back",
        ToNewPlaces().make,
        ("in front of the gap are rotated by 0 to 3 positions, slot by slot",),
    ),
    Mistake(
        "keys and values exchanged",
        Exchanged(move=stay, count=count_tokens).make,
        ("keys and values are exchanged",),
    ),
    Mistake(
        "one layer keeps other tokens",
        OtherTokens().make,
        ("layer 1: tokens that were to stay are dropped: 23; others are kept: 11",),
    ),
)
