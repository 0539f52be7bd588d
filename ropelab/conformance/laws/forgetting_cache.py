"""A cache that drops keys by itself: which tokens it holds, and at which positions.

While a text is read token by token, `Steps` finds the tokens in the cache by their
values in the first layer, where values depend only on the token. The number of tokens
that are held after each step tells the schedule, with which right logits are computed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropelab.conformance.laws.caches import CannotAskError, Entry
from ropelab.conformance.laws.eviction_trace import (
    find_distance,
    list_ranges,
    match_tokens,
)
from ropelab.conformance.laws.forgetting import EvictionSchedule, Part
from ropelab.conformance.laws.law import TOKENS, Case
from ropelab.conformance.laws.moved import find_turns


def choose_tokens(case: Case) -> Case:
    """Return the same case with tokens that all differ."""
    ids = case.subject.vocabulary
    if ids < TOKENS:
        raise CannotAskError(
            f"a vocabulary of {ids} does not tell {TOKENS} tokens apart"
        )
    random = torch.Generator().manual_seed(0)
    other = Case(case.subject, case.dtype)
    other.tokens = torch.randperm(ids, generator=random)[None, :TOKENS]
    return other


class Steps:
    """The tokens in the first layer of a cache after each token that is read."""

    def __init__(self, case: Case) -> None:
        # Each token is read by itself, as a separate row, at position 0.
        cache = case.subject.new_cache()
        case.subject.read(case.tokens.mT, torch.zeros(TOKENS, 1).long(), cache=cache)
        entry_of_single_tokens = case.subject.entries(cache)[0]
        if entry_of_single_tokens is None:
            raise CannotAskError("its first layer keeps no keys")
        keys, values = entry_of_single_tokens
        # Rows become tokens: [1, heads, tokens, head_dim].
        self.keys = keys.transpose(0, 2)
        self.values = values.transpose(0, 2)

        # The tokens that are held after each step.
        self.held: list[list[int]] = []
        # Keys and values of all layers after the last step.
        self.last: list[Entry] = []
        # The newest key and value of each layer, after each token.
        self.newest: list[list[Entry]] = []

    def remember(self, entries: Sequence[Entry]) -> None:
        """Find the tokens that are held now; ``entries`` has the entries of all layers."""
        counts = {entry[0].shape[2] for entry in entries if entry is not None}
        first_entry = entries[0]
        if first_entry is None or len(counts) != 1:
            raise CannotAskError("its layers hold different numbers of keys")
        _, values = first_entry
        self.held.append(find_tokens(self.values, values))
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
        """Return two schedules, one of which the cache follows.

        A key is dropped either before the new token sees the keys in the cache, or
        after that.
        """
        lengths = [len(tokens) for tokens in self.held]
        # The number of tokens that were dropped until each token was read.
        dropped = [number + 1 - held for number, held in enumerate(lengths)]
        if dropped[-1] == 0:
            raise CannotAskError(
                f"its cache drops nothing within {TOKENS} tokens: let it hold 20"
            )
        sinks = self.count_sinks()
        dropped_before = make_schedule(sinks, dropped)
        dropped_after = make_schedule(sinks, [0, *dropped[:-1]])
        return [dropped_before, dropped_after]

    def count_sinks(self) -> int:
        """Return how many first tokens stay.

        CannotAskError: tokens stay that are neither among the first nor among the last.
        """
        last_tokens = self.held[-1]
        sinks = 0
        while sinks < len(last_tokens) and last_tokens[sinks] == sinks:
            sinks += 1

        for number, tokens in enumerate(self.held):
            window = len(tokens) - sinks
            recent = list(range(number + 1 - window, number + 1))
            has_dropped = number >= len(tokens)
            if has_dropped and tokens != [*range(sinks), *recent]:
                raise CannotAskError(
                    f"token {number} leaves tokens {tokens}, which are not the first"
                    " and the last ones"
                )
        return sinks


def find_tokens(single_values: Tensor, values: Tensor) -> list[int]:
    """Return the tokens that are held, in ascending order.

    Args:
        single_values: the values of all tokens, where each token was read by itself.
        values: the values in the cache.
    """
    tokens = []
    for token in match_tokens(single_values, values):
        if token is None:
            raise CannotAskError("values in its first layer are those of no token")
        tokens.append(token)
    return sorted(tokens)


def make_schedule(sinks: int, dropped: Sequence[int]) -> EvictionSchedule:
    """Return a schedule that reads token by token from the first drop on.

    ``dropped``: the number of tokens that were dropped when each token is read.
    """
    start = TOKENS - 1
    for number, count in enumerate(dropped):
        if count:
            start = number
            break
    parts = [Part(0, start, ())]
    for number in range(start, TOKENS):
        gone = tuple(range(sinks, sinks + dropped[number]))
        parts.append(Part(number, number + 1, gone))
    return EvictionSchedule(sinks, tuple(parts))


def explain(case: Case, steps: Steps) -> str:
    """Return in words the positions of the keys that are held in the end.

    They are found by rotating the key of each token as it was when the token was read
    by itself at position 0.
    """
    distances = range(2 * TOKENS)
    turn = find_turns(case, distances)[0]
    first_entry = steps.last[0]
    if turn is None or first_entry is None or turn.part != 0:
        return ""
    keys, _ = first_entry
    tokens = steps.held[-1]
    positions: list[int | None] = []
    for slot, token in enumerate(tokens):
        key_of_token = steps.keys[:, :, token]
        key = keys[:, :, slot]
        positions.append(
            find_distance(key_of_token, key, distances, turn.rotated_units)
        )

    moved_up = list(range(len(tokens)))
    if positions in (tokens, moved_up):
        says = compare_layers(case, steps)
        if says:
            return says

    measured = list_ranges(positions)
    right_positions = list_ranges(tokens)
    says = f"keys end at positions {measured}, where kept they are at {right_positions}"
    return f"{says}, and moved up at {list_ranges(moved_up)}"


def compare_layers(case: Case, steps: Steps) -> str:
    """Return in words the first layer whose keys were moved otherwise than in layer 0."""
    distances = range(-TOKENS, TOKENS + 1)
    tokens = steps.held[-1]
    moves_of_first: list[int | None] = []

    for layer, turn in find_turns(case, distances).items():
        entry = steps.last[layer]
        if turn is None or entry is None or turn.part != 0:
            continue

        # By how many positions each key was moved since its token was the newest.
        keys, _ = entry
        moves = []
        for slot, token in enumerate(tokens):
            newest = steps.newest[token][layer]
            assert newest is not None
            newest_key, _ = newest
            key = keys[:, :, slot : slot + 1]
            moves.append(find_distance(newest_key, key, distances, turn.rotated_units))

        if layer == 0:
            moves_of_first = moves
        elif moves != moves_of_first:
            return (
                f"keys that stay are moved by {list_ranges(moves)} positions in layer"
                f" {layer}, and by {list_ranges(moves_of_first)} in layer 0"
            )

    return ""
