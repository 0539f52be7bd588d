"""A cache that drops keys by itself: which tokens it holds, and at which positions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropelab.conformance.laws.caches import Entry, UnaskedError
from ropelab.conformance.laws.eviction_trace import (
    find_distance,
    list_ranges,
    match_tokens,
)
from ropelab.conformance.laws.forgetting import EvictionSchedule, Part
from ropelab.conformance.laws.law import TOKENS, Case
from ropelab.conformance.laws.moved import find_turns


def choose_tokens(case: Case) -> Case:
    """Return the same case with tokens of which no two are alike."""
    ids = case.subject.vocabulary
    if ids < TOKENS:
        raise UnaskedError(f"a vocabulary of {ids} does not tell {TOKENS} tokens apart")
    random = torch.Generator().manual_seed(0)
    other = Case(case.subject, case.dtype)
    other.tokens = torch.randperm(ids, generator=random)[None, :TOKENS]
    return other


class Steps:
    """The tokens in the first layer of a cache after each token is read."""

    def __init__(self, case: Case) -> None:
        # In the first layer keys and values depend on their own token alone.
        cache = case.subject.new_cache()
        case.subject.read(case.tokens.mT, torch.zeros(TOKENS, 1).long(), cache=cache)
        alone = case.subject.entries(cache)[0]
        if alone is None:
            raise UnaskedError("its first layer keeps no keys")
        # [1, heads, tokens, head_dim], all at position 0.
        self.keys = alone[0].transpose(0, 2)
        self.values = alone[1].transpose(0, 2)
        self.held: list[list[int]] = []
        self.entry: Entry = None
        self.last: list[Entry] = []
        # The newest key and value of each layer, token by token.
        self.newest: list[list[Entry]] = []

    def remember(self, entries: Sequence[Entry]) -> None:
        """Find the tokens that are held now."""
        counts = {entry[0].shape[2] for entry in entries if entry is not None}
        self.entry = entries[0]
        if self.entry is None or len(counts) != 1:
            raise UnaskedError("its layers hold different numbers of keys")
        self.held.append(find_tokens(self.values, self.entry[1]))
        self.last = list(entries)
        newest: list[Entry] = []
        for entry in entries:
            if entry is None:
                newest.append(None)
                continue
            keys, values = entry
            newest.append((keys[:, :, -1:].clone(), values[:, :, -1:].clone()))
        self.newest.append(newest)

    def list_schedules(self) -> list[EvictionSchedule]:
        """Return what queries may have seen.

        Keys are dropped before a token sees the others, or behind it.
        """
        lengths = [len(tokens) for tokens in self.held]
        dropped = [number + 1 - held for number, held in enumerate(lengths)]
        if not dropped[-1]:
            raise UnaskedError(
                f"its cache drops nothing within {TOKENS} tokens: let it hold 20"
            )
        sinks = self.count_sinks()
        before = make_schedule(sinks, dropped)
        behind = make_schedule(sinks, [0, *dropped[:-1]])
        return [before, behind]

    def count_sinks(self) -> int:
        """Return how many first tokens stay; UnaskedError: others stay too."""
        last = self.held[-1]
        sinks = 0
        while sinks < len(last) and last[sinks] == sinks:
            sinks += 1
        for number, tokens in enumerate(self.held):
            window = len(tokens) - sinks
            recent = list(range(number + 1 - window, number + 1))
            if number >= len(tokens) and tokens != [*range(sinks), *recent]:
                raise UnaskedError(
                    f"token {number} leaves tokens {tokens}, which are not the first"
                    " and the last ones"
                )
        return sinks


def find_tokens(alone: Tensor, values: Tensor) -> list[int]:
    """Return the tokens that are held, in their order."""
    tokens = []
    for token in match_tokens(alone, values):
        if token is None:
            raise UnaskedError("values in its first layer are those of no token")
        tokens.append(token)
    return sorted(tokens)


def make_schedule(sinks: int, dropped: Sequence[int]) -> EvictionSchedule:
    """Return the parts of single tokens that are read when so many were dropped."""
    start = next((n for n, count in enumerate(dropped) if count), TOKENS - 1)
    parts = [Part(0, start, 0)]
    for number in range(start, TOKENS):
        parts.append(Part(number, number + 1, dropped[number]))
    return EvictionSchedule(sinks, tuple(parts))


def explain(case: Case, steps: Steps) -> str:
    """Return the positions of the keys that are held in the end, in words."""
    distances = range(2 * TOKENS)
    turn = find_turns(case, distances)[0]
    if turn is None or steps.entry is None or turn.part != 0:
        return ""
    tokens = steps.held[-1]
    positions: list[int | None] = []
    for slot, token in enumerate(tokens):
        alone = steps.keys[:, :, token]
        held = steps.entry[0][:, :, slot]
        positions.append(find_distance(alone, held, distances, turn.images))

    moved_up = list(range(len(tokens)))
    if positions in (tokens, moved_up):
        says = compare_layers(case, steps)
        if says:
            return says

    found = list_ranges(positions)
    says = (
        f"keys end at positions {found}, where kept they are at {list_ranges(tokens)}"
    )
    return f"{says}, and moved up at {list_ranges(moved_up)}"


def compare_layers(case: Case, steps: Steps) -> str:
    """Return the first layer whose keys were moved otherwise than those of layer 0."""
    distances = range(-TOKENS, TOKENS + 1)
    tokens = steps.held[-1]
    moves_of_first: list[int | None] = []
    for layer, turn in find_turns(case, distances).items():
        entry = steps.last[layer]
        if turn is None or entry is None or turn.part != 0:
            continue
        moves = []
        for slot, token in enumerate(tokens):
            newest = steps.newest[token][layer]
            assert newest is not None
            key = entry[0][:, :, slot : slot + 1]
            moves.append(find_distance(newest[0], key, distances, turn.images))
        if layer == 0:
            moves_of_first = moves
        elif moves != moves_of_first:
            return (
                f"keys that stay are moved by {list_ranges(moves)} positions in layer"
                f" {layer}, and by {list_ranges(moves_of_first)} in layer 0"
            )
    return ""
