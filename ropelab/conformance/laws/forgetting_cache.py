"""A cache that drops keys by itself: which tokens it holds, and at which positions.

While a text is read token by token, `Steps` finds the tokens in the cache by their
values in the first layer, where values depend only on the token. The number of tokens
that are held after each step tells the schedule, with which right logits are computed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ropelab.conformance.laws.caches import CannotAskError, Entry
from ropelab.conformance.laws.eviction_guesses import describe_moves
from ropelab.conformance.laws.eviction_keys import (
    are_moved_rightly,
    explain_change,
    measure_moves,
)
from ropelab.conformance.laws.eviction_trace import (
    Change,
    are_equal,
    find_distance,
    list_ranges,
    list_segments,
    match_tokens,
    select_slots,
)
from ropelab.conformance.laws.forgetting import (
    DROPS_NOTHING,
    EvictionSchedule,
    roll_by_token,
)
from ropelab.conformance.laws.law import TOKENS, Case
from ropelab.conformance.laws.moved import find_turns

# The least difference between the lengths of two tokens' keys, as a share of the spread
# of lengths, that rounding cannot make.
LEAST_OTHER_LENGTH = 0.1


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

        # The tokens that are held after each step, in ascending order.
        self.held: list[list[int]] = []
        # Keys and values of all layers after the last step, in the order of tokens.
        self.last: list[Entry] = []
        # What the first step did that dropped a token.
        self.first_drop: Change | None = None
        # The newest key and value of each layer, after each token.
        self.newest: list[list[Entry]] = []

    def remember(self, entries: Sequence[Entry]) -> None:
        """Find the tokens that are held now; ``entries`` has the entries of all layers."""
        counts = {entry[0].shape[2] for entry in entries if entry is not None}
        first_entry = entries[0]
        if first_entry is None or len(counts) != 1:
            raise CannotAskError("its layers hold different numbers of keys")
        keys, values = first_entry
        slots = self.find_slots(values)
        if len(self.held) > len(slots):
            compare_keys(self, keys[:, :, slots])
        before = self.last
        # A cache may write a new key into the slot of a dropped one.
        self.last = select_slots(entries, slots)
        self.newest.append(select_slots(self.last, [len(slots) - 1]))
        if self.first_drop is None and len(self.held) >= 2:
            self.first_drop = self.find_drop(before)

    def find_slots(self, values: Tensor) -> list[int]:
        """Return the slots of the tokens that are held, in the order of tokens."""
        tokens = find_tokens(self.values, values, self.held)
        self.held.append(sorted(tokens))
        return sorted(range(len(tokens)), key=tokens.__getitem__)

    def find_drop(self, before: list[Entry]) -> Change | None:
        """Return what the last step did to the keys before it; None: it dropped none."""
        *_, old_tokens, tokens = self.held
        kept = [token for token in tokens if token in old_tokens]
        if kept == old_tokens or not kept:
            return None
        keep = [old_tokens.index(token) for token in kept]
        slots = [tokens.index(token) for token in kept]
        after = select_slots(self.last, slots)
        return Change(before, after, keep, list_segments(keep), keep)

    def list_schedules(self) -> list[EvictionSchedule]:
        """Return two schedules, one of which the cache follows.

        A key is dropped either before the new token sees the keys in the cache, or
        after that.
        """
        lengths = [len(tokens) for tokens in self.held]
        # The number of tokens that were dropped until each token was read.
        dropped = [number + 1 - held for number, held in enumerate(lengths)]
        if dropped[-1] == 0:
            raise CannotAskError(DROPS_NOTHING)
        sinks = self.count_sinks()
        dropped_before = roll_by_token(sinks, dropped)
        dropped_after = roll_by_token(sinks, [0, *dropped[:-1]])
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


class WrongValuesError(Exception):
    """Dropping tokens has changed values; the message says how."""


def find_tokens(
    single_values: Tensor, values: Tensor, held: Sequence[Sequence[int]]
) -> list[int]:
    """Return the token of each slot.

    WrongValuesError: values were changed in a known way when tokens were dropped.

    Args:
        single_values: the values of all tokens, where each token was read by itself.
        values: the values in the cache.
        held: the tokens that were held before.
    """
    tokens = []
    for token in match_tokens(single_values, values):
        if token is None:
            break
        tokens.append(token)
    if len(tokens) == values.shape[2]:
        return tokens

    number = len(held)
    lengths = single_values.norm(dim=-1)
    matched = match_tokens(single_values.sort(dim=1).values, values.sort(dim=1).values)
    if None not in matched and number:
        raise WrongValuesError(
            f"from token {number} on values are those of other heads"
        )
    norms = match_tokens(lengths[..., None], values.norm(dim=-1)[..., None])
    if None not in norms and number:
        raise WrongValuesError(f"from token {number} on values are rotated, too")
    raise CannotAskError(
        "values in its first layer are those of no token: they are rounded or merged"
    )


def compare_keys(steps: Steps, keys: Tensor) -> None:
    """Raise WrongValuesError if keys are in the slots of other tokens' values.

    A rotation keeps the lengths of keys, which tell the tokens.

    Args:
        steps: the tokens that are held, by their values.
        keys: the keys in the first layer, in the order of these tokens.
    """
    lengths = keys.norm(dim=-1, keepdim=True)
    single_lengths = steps.keys.norm(dim=-1, keepdim=True)
    tokens_of_keys = match_tokens(single_lengths, lengths)
    # Keys of other lengths were changed otherwise.
    if None in tokens_of_keys:
        return
    tokens_of_values = steps.held[-1]
    differences = (single_lengths[:, :, tokens_of_values] - lengths).abs()
    # Two tokens may have keys of nearly the same length.
    if float(differences.max()) <= LEAST_OTHER_LENGTH * float(single_lengths.std()):
        return
    wrong_keys: list[int | None] = []
    wrong_values: list[int] = []
    for key, value in zip(tokens_of_keys, tokens_of_values, strict=True):
        if key != value:
            wrong_keys.append(key)
            wrong_values.append(value)
    raise WrongValuesError(
        f"from token {len(steps.held) - 1} on values are not those of their keys' tokens:"
        f" keys of tokens {list_ranges(wrong_keys)} have values of tokens"
        f" {list_ranges(wrong_values)}"
    )


def explain(case: Case, steps: Steps) -> str:
    """Return in words the positions of the keys that are held in the end.

    They are found by rotating the key of each token as it was when the token was read
    by itself at position 0.
    """
    if steps.first_drop is not None:
        says = explain_drop(case, steps.first_drop)
        if says:
            return f"when the first token is dropped, {says}"

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

    says = compare_values(steps)
    if says:
        return says
    moved_up = list(range(len(tokens)))
    if positions in (tokens, moved_up):
        says = compare_layers(case, steps)
        if says:
            return says

    measured = list_ranges(positions)
    right_positions = list_ranges(tokens)
    says = f"keys end at positions {measured}, where kept they are at {right_positions}"
    return f"{says}, and moved up at {list_ranges(moved_up)}"


def explain_drop(case: Case, change: Change) -> str:
    """Return in words what is wrong with keys or values after the first token is dropped;
    empty: nothing is.
    """
    says = explain_change(case, change)
    if says:
        return says
    moves = measure_moves(case, change)
    if moves is None or are_moved_rightly(moves, change.segments):
        return ""
    return describe_moves(moves, change.segments)


def compare_values(steps: Steps) -> str:
    """Return in words the first layer whose values are not those that were read."""
    for layer, entry in enumerate(steps.last):
        if entry is None:
            continue
        _, values = entry
        for slot, token in enumerate(steps.held[-1]):
            newest = steps.newest[token][layer]
            assert newest is not None
            _, newest_values = newest
            if not are_equal(values[:, :, slot : slot + 1], newest_values):
                return (
                    f"layer {layer}: the values of token {token} are other ones than when"
                    " it was read"
                )
    return ""


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
