"""The keys and values of a cache before and after evictions, and how to compare them.

Keys and values have the shape [rows, heads, slots, head_dim]; a slot is the place of a
token in the cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from ropelab.conformance.laws.caches import CannotAskError, Entry
from ropelab.conformance.laws.forgetting import EvictionSchedule
from ropelab.conformance.laws.law import Case

# The largest difference, as a share of the spread, between keys, values or logits in
# float32 that count as equal. A position that is off by one moves the fastest pair by a
# whole radian.
EQUAL = 1e-3


@dataclass
class EvictionTrace:
    """The states of a cache that are remembered while a text is read and keys are
    dropped.
    """

    schedule: EvictionSchedule
    # A mistake that shows without logits, in words; empty if there is none.
    fault: str = ""
    # The position that the code gives the first token after the first eviction. None: it
    # does not say.
    first_position: int | None = None
    # The keys and values of each layer before the first eviction, after the first
    # eviction, and after the last eviction. Empty: the cache cannot be read.
    before: list[Entry] = field(default_factory=list)
    after: list[Entry] = field(default_factory=list)
    last: list[Entry] = field(default_factory=list)
    # The slots that were to stay at the first eviction.
    keep: list[int] = field(default_factory=list)
    # True if the eviction left keys in another order than their tokens have in the
    # text.
    is_reordered: bool = False

    @property
    def gap(self) -> int:
        """The number of keys that the first eviction drops."""
        return self.schedule.later_parts[0].dropped

    def remember_before(self, case: Case, cache: Any) -> None:
        """Remember the cache before the first eviction, if it can be read."""
        if not self.before:
            self.before = copy_entries(case, cache)

    def remember_after(self, case: Case, cache: Any, keep: Sequence[int]) -> None:
        """Remember the cache after an eviction.

        After the first eviction, ``fault`` names a layer with a wrong number of keys.
        """
        self.last = copy_entries(case, cache)
        if self.after:
            return
        self.after = self.last
        self.keep = list(keep)
        if not self.after:
            return

        for layer, entry in enumerate(self.after):
            key_count = len(keep) if entry is None else entry[0].shape[2]
            if key_count != len(keep) and not self.fault:
                self.fault = (
                    f"layer {layer} holds {key_count} keys, where {len(keep)} were to"
                    " stay"
                )
        # With a wrong number of keys the order of their slots says nothing.
        if self.fault:
            return
        left_tokens = compare_tokens(self.before[0], self.after[0], keep)
        self.is_reordered = left_tokens is not None and left_tokens.is_reordered


def find_distance(
    before: Tensor,
    after: Tensor,
    distances: Sequence[int],
    rotated_units: Tensor,
) -> int | None:
    """Return the distance whose rotation turns the keys before into the keys after;
    None if no distance does.

    Args:
        before: keys [..., head_dim].
        after: the keys that they became.
        distances: the distances to try, in positions.
        rotated_units: the unit vectors rotated by each distance: [distances, head_dim,
            head_dim].
    """
    for distance, matrix in zip(distances, rotated_units, strict=True):
        if are_equal(after, before.to(matrix.dtype) @ matrix):
            return distance
    return None


def copy_entries(case: Case, cache: Any) -> list[Entry]:
    """Return copies of each layer's keys and values; empty: they cannot be read."""
    try:
        entries = case.subject.entries(cache)
    except CannotAskError:
        return []
    copies: list[Entry] = []
    for entry in entries:
        if entry is None:
            copies.append(None)
        else:
            keys, values = entry
            copies.append((keys.clone(), values.clone()))
    return copies


class LeftTokens(NamedTuple):
    """The tokens that an eviction left, compared with the tokens that should have
    stayed.
    """

    # Tokens that were to stay and are gone.
    missing: list[int]
    # Tokens that are left and were not to stay.
    surplus: list[int]
    # True if the right tokens are left in another order.
    is_reordered: bool


def compare_tokens(
    before: Entry,
    after: Entry,
    keep: Sequence[int],
) -> LeftTokens | None:
    """Compare the tokens that are left in a layer with the tokens that should have
    stayed.

    A token is recognised by its values, which a right eviction leaves as they are. The
    result is None if a slot has values that no token had.

    Args:
        before: keys and values of the layer before the eviction.
        after: keys and values of the layer after the eviction.
        keep: the slots that were to stay.
    """
    if before is None or after is None:
        return None
    _, old_values = before
    _, new_values = after
    if old_values.shape[-1] != new_values.shape[-1]:
        return None
    tokens = match_tokens(old_values, new_values)
    if None in tokens:
        return None
    # Equal tokens have equal values. Each token is represented by the first token that
    # equals it.
    first_equal = match_tokens(old_values, old_values)

    surplus = [token for token in tokens if token is not None]
    missing = []
    for slot in keep:
        token = first_equal[slot]
        if token in surplus:
            surplus.remove(token)
        else:
            missing.append(slot)
    is_in_order = tokens == [first_equal[slot] for slot in keep]
    is_reordered = not missing and not is_in_order
    return LeftTokens(missing, surplus, is_reordered)


def match_tokens(before: Tensor, after: Tensor) -> list[int | None]:
    """Return for each slot after an eviction the slot that had equal values before it.

    None: no slot had them. ``before`` and ``after`` are keys or values
    [rows, heads, slots, head_dim].
    """
    spread = float(before.std())
    old_slots: list[int | None] = []
    for slot in range(after.shape[2]):
        differences = (before - after[:, :, slot : slot + 1]).abs()
        largest_by_slot = differences.amax(dim=(0, 1, 3))
        nearest = int(largest_by_slot.argmin())
        is_equal = float(largest_by_slot[nearest]) <= EQUAL * spread
        old_slots.append(nearest if is_equal else None)
    return old_slots


def are_equal(first: Tensor, second: Tensor) -> bool:
    """Return True if two tensors differ by at most EQUAL times the spread of the first."""
    difference = float((first - second).abs().max())
    spread = float(first.std())
    return difference <= EQUAL * spread


def list_ranges(numbers: Sequence[int | None]) -> str:
    """Return numbers in words, as `0 to 3, 5, 4 times 8`.

    A run of numbers that count up or down, or are equal, is named by its ends.
    """
    words: list[str] = []
    start = 0
    while start < len(numbers):
        first = numbers[start]
        # The numbers of entries from here on that are equal, count up, or count down.
        equal = count_run(numbers[start:], step=0)
        rising = count_run(numbers[start:], step=1)
        falling = count_run(numbers[start:], step=-1)

        if first is None:
            words.append("none")
            start += equal
        elif rising > 1:
            words.append(f"{first} to {first + rising - 1}")
            start += rising
        elif falling > 2:
            words.append(f"{first} to {first - falling + 1}")
            start += falling
        elif equal > 1:
            words.append(f"{equal} times {first}")
            start += equal
        else:
            words.append(str(first))
            start += 1

    return ", ".join(words)


def count_run(numbers: Sequence[int | None], step: int) -> int:
    """Return the length of the run at the beginning in which each number adds a step."""
    run = 1
    while run < len(numbers):
        before = numbers[run - 1]
        here = numbers[run]
        expected = None if before is None else before + step
        if here != expected:
            break
        run += 1
    return run
