"""The keys and values of a cache before and after evictions, and how to compare them.

Keys and values have the shape [rows, heads, slots, head_dim]; a slot is the place of a
token in the cache.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from torch import Tensor

from ropelab.conformance.laws.caches import CannotAskError, Entry
from ropelab.conformance.laws.forgetting import EvictionSchedule
from ropelab.conformance.laws.law import Case

# The largest difference, as a share of the spread, between keys, values or logits in
# float32 that count as equal. A position that is off by one moves the fastest pair by a
# whole radian.
EQUAL = 1e-3
# The largest error of keys, values or logits, as a share of their spread, that rounding to
# 8 bits explains. Some code rounds twice.
LARGEST_ROUNDING = 0.03
ORDINALS = ("first", "second", "third", "next")


class Segment(NamedTuple):
    """Neighbouring slots of a changed cache whose keys should move alike."""

    # Where its keys are, as in `keys behind the gap`.
    where: str
    slots: slice
    # The positions by which the right change rotates its keys.
    distance: int
    # The right distance in words.
    right: str


@dataclass
class Change:
    """Keys and values of each layer before a change of a cache, and after it.

    A change drops keys, or puts the keys of one cache behind those of another.
    """

    before: list[Entry]
    after: list[Entry]
    # The slots before the change that are to be the slots after it, in this order.
    keep: list[int]
    segments: list[Segment]
    # The positions of these slots before the change; empty: they are not known.
    positions: list[int] = field(default_factory=list)

    def select_row(self, row: int) -> "Change":
        """Return the same change of one row of a batch."""
        return replace(
            self,
            before=select_row(self.before, row),
            after=select_row(self.after, row),
        )

    def put_in_order(self) -> "Change":
        """Return the change with its slots in the order of ``keep``.

        Code may put keys and their values in any order. Tokens are recognised by the
        values of the last layer, which differ between equal tokens.
        """
        layers = []
        for layer, entry in enumerate(self.after):
            if entry is not None and self.before[layer] is not None:
                layers.append(layer)
        if not layers:
            return self
        order = self.find_order(layers[-1])
        if order is None or order == sorted(order):
            return self
        return replace(self, after=select_slots(self.after, order))

    def find_order(self, layer: int) -> list[int] | None:
        """Return the slot of each token that was to stay; None: it is not known."""
        before, after = self.before[layer], self.after[layer]
        assert before is not None and after is not None
        old_keys, old_values = (part[:, :, self.keep] for part in before)
        new_keys, new_values = after
        if old_values.shape != new_values.shape:
            return None
        matched = match_tokens(old_values, new_values)
        tokens = [token for token in matched if token is not None]
        if sorted(tokens) != [*range(len(self.keep))]:
            return None

        order = sorted(range(len(tokens)), key=tokens.__getitem__)
        # Keys that did not move with their values have other lengths in their slots.
        old_lengths = old_keys.norm(dim=-1)
        new_lengths = new_keys[:, :, order].norm(dim=-1)
        return order if are_equal(new_lengths, old_lengths) else None


def map_entries(
    entries: Sequence[Entry], function: Callable[[Tensor], Tensor]
) -> list[Entry]:
    """Return what a function makes of the keys and of the values of each layer."""
    results: list[Entry] = []
    for entry in entries:
        if entry is None:
            results.append(None)
        else:
            keys, values = entry
            results.append((function(keys), function(values)))
    return results


def select_row(entries: Sequence[Entry], row: int) -> list[Entry]:
    """Return one row of the keys and values of each layer."""
    return map_entries(entries, lambda part: part[row : row + 1])


def select_slots(entries: Sequence[Entry], slots: Sequence[int]) -> list[Entry]:
    """Return copies of the keys and values in these slots, by layer."""
    return map_entries(entries, lambda part: part[:, :, list(slots)])


def list_segments(keep: Sequence[int]) -> list[Segment]:
    """Return the slots between gaps; moving up rotates keys by minus the gaps before."""
    starts = [0]
    for slot in range(1, len(keep)):
        if keep[slot] != keep[slot - 1] + 1:
            starts.append(slot)
    has_sinks = keep[0] == 0
    gap_count = len(starts) - has_sinks

    segments = []
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(keep)
        distance = start - keep[start]
        gap = number if has_sinks else number + 1
        if gap_count <= 1:
            where = "behind the gap" if gap else "in front of the gap"
        elif gap == 0:
            where = "in front of the gaps"
        else:
            where = f"behind the {ORDINALS[min(gap, len(ORDINALS)) - 1]} gap"
        right = "where they stay as they are"
        if distance:
            right = f"where moving up takes {distance:+d}"
        segments.append(Segment(where, slice(start, end), distance, right))
    return segments


@dataclass
class EvictionTrace:
    """The states of a cache that are remembered while a text is read and keys are
    dropped.
    """

    schedule: EvictionSchedule
    # A mistake that shows without logits, in words; empty if there is none.
    fault: str = ""
    # The position that the code gives the first token after each eviction. None: it does
    # not say.
    next_positions: list[int | None] = field(default_factory=list)
    # The keys and values of each layer before the next eviction.
    pending: list[Entry] = field(default_factory=list)
    # What each eviction did. Empty: the cache cannot be read.
    changes: list[Change] = field(default_factory=list)
    # The slots that were to stay at the first eviction.
    keep: list[int] = field(default_factory=list)
    # True if an eviction left keys in another order than their tokens have in the text.
    is_reordered: bool = False

    @property
    def gap(self) -> int:
        """The number of keys that the first eviction drops."""
        return self.schedule.later_parts[0].dropped

    @property
    def first_position(self) -> int | None:
        """The position of the first token after the first eviction, if it is known."""
        return self.next_positions[0] if self.next_positions else None

    @property
    def last(self) -> list[Entry]:
        """The keys and values of each layer after the last eviction."""
        return self.changes[-1].after if self.changes else []

    def remember_before(self, case: Case, cache: Any) -> None:
        """Remember the cache before an eviction, if it can be read."""
        self.pending = copy_entries(case, cache)

    def remember_after(self, case: Case, cache: Any, keep: Sequence[int]) -> None:
        """Remember the cache after an eviction; ``fault`` names a layer with a wrong
        number of keys.
        """
        self.keep = self.keep or list(keep)
        after = copy_entries(case, cache)
        if not after or not self.pending:
            return
        # Before the first eviction each key has the position of its slot.
        positions = [] if self.changes else list(keep)
        segments = list_segments(keep)
        change = Change(self.pending, after, list(keep), segments, positions)
        self.changes.append(change)
        if self.fault:
            return
        self.fault = find_wrong_count(after, len(keep))
        # With a wrong number of keys the order of their slots says nothing.
        if self.fault:
            number = len(self.changes)
            if number > 1:
                self.fault = f"after {number} evictions {self.fault}"
            return
        left_tokens = compare_tokens(change.before[0], after[0], keep)
        if left_tokens is not None and left_tokens.is_reordered:
            self.is_reordered = True

    def select_row(self, row: int) -> "EvictionTrace":
        """Return the same trace of one row of a batch."""
        return replace(self, changes=[each.select_row(row) for each in self.changes])


def find_wrong_count(
    entries: Sequence[Entry], count: int, were: str = "were to stay"
) -> str:
    """Name the first layer with another number of keys or values; empty: none has."""
    for layer, entry in enumerate(entries):
        if entry is None:
            continue
        for name, part in zip(("keys", "values"), entry, strict=True):
            if part.shape[2] != count:
                return (
                    f"layer {layer} holds {part.shape[2]} {name}, where {count} {were}"
                )
    return ""


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
    return map_entries(entries, Tensor.clone)


class LeftTokens(NamedTuple):
    """The tokens that an eviction left, compared with the tokens that should have
    stayed.
    """

    # The token of each slot. Of equal tokens it is the first one.
    tokens: list[int | None]
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
    return LeftTokens(tokens, missing, surplus, is_reordered)


class WrongLayer(NamedTuple):
    """A layer that holds wrong tokens, or values of other tokens than its keys."""

    # The layer in words, in front of a sentence; empty for the first one.
    where: str
    left_tokens: LeftTokens
    # True if the keys belong to the right tokens, so that the values are wrong.
    has_right_keys: bool


def find_wrong_layer(change: Change) -> WrongLayer | None:
    """Return the first layer that holds wrong tokens; None: there is none, or the tokens
    cannot be told.
    """
    for layer, (before, after) in enumerate(
        zip(change.before, change.after, strict=True)
    ):
        left_tokens = compare_tokens(before, after, change.keep)
        if left_tokens is None or before is None or after is None:
            continue
        if not left_tokens.missing and not left_tokens.is_reordered:
            continue

        # Tokens were recognised by their values. A rotation keeps the lengths of keys.
        old_keys, _ = before
        new_keys, _ = after
        old_lengths = old_keys[:, :, change.keep].norm(dim=-1)
        has_right_keys = are_equal(new_keys.norm(dim=-1), old_lengths)
        # Keys may be in another order if their values are, too.
        if has_right_keys or left_tokens.missing:
            where = f"layer {layer}: " if layer else ""
            return WrongLayer(where, left_tokens, has_right_keys)
    return None


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
