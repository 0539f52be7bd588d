"""The keys and values of a cache before and after evictions, and how to compare them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from ropelab.conformance.laws.caches import Entry, UnaskedError
from ropelab.conformance.laws.forgetting import EvictionSchedule
from ropelab.conformance.laws.law import Case

# Keys, values and logits that differ by less than this share of their spread are equal
# in float32; one position more moves the fastest pair by a radian.
EQUAL = 1e-3


@dataclass
class EvictionTrace:
    """The keys and values before and after evictions."""

    schedule: EvictionSchedule
    # A mistake that shows without logits.
    fault: str = ""
    # The position that the code gives the first token behind the first eviction.
    first_position: int | None = None
    # Entries before and after the first eviction, and the slots that were to stay.
    before: list[Entry] = field(default_factory=list)
    after: list[Entry] = field(default_factory=list)
    keep: list[int] = field(default_factory=list)
    # Entries after the last eviction.
    last: list[Entry] = field(default_factory=list)
    # True if keys have other slots than the order of their tokens gives them.
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
        """Remember the cache after an eviction; count its keys."""
        self.last = copy_entries(case, cache)
        if self.after:
            return
        self.after = self.last
        self.keep = list(keep)
        if not self.after:
            return

        for layer, entry in enumerate(self.after):
            held = len(keep) if entry is None else entry[0].shape[2]
            if held != len(keep) and not self.fault:
                self.fault = (
                    f"layer {layer} holds {held} keys, where {len(keep)} were to stay"
                )
        # Slots of a cache that holds too many or too few keys say nothing of the order.
        if self.fault:
            return
        left = compare_tokens(self.before[0], self.after[0], keep)
        self.is_reordered = left is not None and left.is_reordered


def find_distance(
    before: Tensor,
    after: Tensor,
    distances: Sequence[int],
    images: Tensor,
) -> int | None:
    """Return the distance whose rotation takes keys to others; None if none does.

    Args:
        before: keys [..., head_dim].
        after: the keys that they became.
        distances: the distances that may have been meant.
        images: for each distance the rotated unit vectors [distances, head_dim, head_dim].
    """
    for distance, image in zip(distances, images, strict=True):
        if are_equal(after, before.to(image.dtype) @ image):
            return distance
    return None


def copy_entries(case: Case, cache: Any) -> list[Entry]:
    """Return copies of keys and values; none if the cache cannot be read."""
    try:
        entries = case.subject.entries(cache)
    except UnaskedError:
        return []
    copies: list[Entry] = []
    for entry in entries:
        copies.append(None if entry is None else (entry[0].clone(), entry[1].clone()))
    return copies


class Left(NamedTuple):
    """Tokens that are left, compared with those that were to stay."""

    missing: list[int]
    surplus: list[int]
    is_reordered: bool


def compare_tokens(
    before: Entry,
    after: Entry,
    keep: Sequence[int],
) -> Left | None:
    """Compare the tokens that are left with those to be kept, by their values.

    None: values do not tell tokens.
    """
    if before is None or after is None or before[1].shape[-1] != after[1].shape[-1]:
        return None
    places = match_tokens(before[1], after[1])
    # Equal tokens have equal values, and stand for one another.
    stand_ins = match_tokens(before[1], before[1])
    if None in places:
        return None

    surplus = [place for place in places if place is not None]
    missing = []
    for slot in keep:
        stand_in = stand_ins[slot]
        if stand_in in surplus:
            surplus.remove(stand_in)
        else:
            missing.append(slot)
    is_in_order = places == [stand_ins[slot] for slot in keep]
    return Left(missing, surplus, not missing and not is_in_order)


def match_tokens(before: Tensor, after: Tensor) -> list[int | None]:
    """Return the place before of each part after, by equal values.

    None: no place has them.
    """
    spread = float(before.std())
    places: list[int | None] = []
    for slot in range(after.shape[2]):
        distances = (before - after[:, :, slot : slot + 1]).abs()
        by_place = distances.amax(dim=(0, 1, 3))
        place = int(by_place.argmin())
        is_equal = float(by_place[place]) <= EQUAL * spread
        places.append(place if is_equal else None)
    return places


def are_equal(first: Tensor, second: Tensor) -> bool:
    difference = float((first - second).abs().max())
    spread = float(first.std())
    return difference <= EQUAL * spread


def list_ranges(numbers: Sequence[int | None]) -> str:
    """Return numbers in words: those that count on, and those that are all alike."""
    words: list[str] = []
    start = 0
    while start < len(numbers):
        first = numbers[start]
        alike = count_run(numbers[start:], step=0)
        counting = count_run(numbers[start:], step=1)
        backwards = count_run(numbers[start:], step=-1)
        if first is None:
            words.append("none")
            start += alike
        elif counting > 1:
            words.append(f"{first} to {first + counting - 1}")
            start += counting
        elif backwards > 2:
            words.append(f"{first} to {first - backwards + 1}")
            start += backwards
        elif alike > 1:
            words.append(f"{alike} times {first}")
            start += alike
        else:
            words.append(str(first))
            start += 1
    return ", ".join(words)


def count_run(numbers: Sequence[int | None], step: int) -> int:
    """Return how many numbers at the beginning differ by a step from each to the next."""
    run = 1
    while run < len(numbers):
        before = numbers[run - 1]
        here = numbers[run]
        expected = None if before is None else before + step
        if here != expected:
            break
        run += 1
    return run
