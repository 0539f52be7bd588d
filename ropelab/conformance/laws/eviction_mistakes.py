"""What code that drops keys does in place of keeping their positions or moving them up.

Three things are looked at, the plainest first: the tokens that are left, by their
values in the first layer; logits, which are compared with those of common mistakes; and
each key, which is compared with the key before it, rotated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropelab.conformance.laws.caches import Entry, UnaskedError
from ropelab.conformance.laws.forgetting import (
    DROPPED,
    FRAGMENT,
    PREFILLED,
    Schedule,
)
from ropelab.conformance.laws.law import TOKENS, Case, measure_differences
from ropelab.conformance.laws.rotation import Turn, recover_turns
from ropelab.conformance.laws.subject import Stages, TransformersSubject
from ropelab.readers import registry
from ropelab.readers.spec import RopeSpec

LATER = TOKENS - PREFILLED
# Keys, values and logits that differ by less than this share of their spread are equal
# in float32; one position more moves the fastest pair by a radian.
EQUAL = 1e-3
# Mistakes are computed as rows of a batch, so many at once.
ROWS = 16
# Keys may have moved by any number of positions that the prefix has.
DISTANCES = range(-PREFILLED, PREFILLED + 1)


@dataclass
class Trace:
    """The keys and values before and after evictions."""

    schedule: Schedule
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

    def look(self, case: Case, cache: Any) -> None:
        """Remember the cache before the first eviction, if it can be read."""
        if not self.before:
            self.before = copy_entries(case, cache)

    def look_again(self, case: Case, cache: Any, keep: Sequence[int]) -> None:
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
        left = compare_tokens(self.before[0], self.after[0], keep)
        self.is_reordered = left is not None and left.is_reordered


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


class Guess(NamedTuple):
    """An eviction that may be a mistake, and the count of new tokens behind it."""

    # Tokens from `first` to before `end` are dropped.
    first: int
    end: int
    # Positions by which keys in front of the gap, and behind, are rotated.
    front: int
    behind: int
    # The position of the first new token.
    next_position: int


def explain(case: Case, trace: Trace, answers: Sequence[Stages]) -> str:
    """Return the mistake in words; empty if none is known."""
    is_single = len(trace.schedule.parts) == 2
    says = explain_tokens(trace)
    if not says and is_single:
        says = explain_logits(case, trace, answers)
    if not says and trace.after:
        says = explain_keys(case, trace)
    if not says and not is_single:
        says = explain_repetition(case, trace)
    return says


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


def explain_tokens(trace: Trace) -> str:
    """Compare the tokens that are left in the first layer with those to be kept."""
    if not trace.before:
        return ""
    before = trace.before[0]
    after = trace.after[0]
    left = compare_tokens(before, after, trace.keep)
    if left is None or before is None or after is None:
        return ""

    # Keys that are those of the right tokens have lost their values alone.
    if left.missing or left.is_reordered:
        keys_left = match_tokens(before[0], after[0])
        if keys_left == trace.keep:
            return "values are not those of their keys' tokens"
    if not left.missing:
        return ""
    says = f"it drops tokens {list_numbers(left.missing)}, which were to stay"
    if left.surplus:
        says += f", and keeps {list_numbers(left.surplus)}"
    return says


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


def list_numbers(numbers: Sequence[int | None]) -> str:
    return ", ".join(str(number) for number in numbers)


def explain_logits(case: Case, trace: Trace, answers: Sequence[Stages]) -> str:
    """Compare logits with those of common mistakes."""
    guesses = list(list_guesses(trace))
    moves = measure_moves(case, trace)
    if moves is not None:
        guesses.sort(key=lambda guess: (guess.front, guess.behind) != moves)
    for start in range(0, len(guesses), ROWS):
        batch = guesses[start : start + ROWS]
        logits = compute_guesses(case, batch)
        for guess, expected in zip(batch, logits, strict=True):
            for answer in answers:
                differences = measure_differences(answer[-1][0], expected)
                if float(differences.max()) <= EQUAL:
                    return describe_guess(guess, trace)
    return ""


def measure_moves(case: Case, trace: Trace) -> tuple[int, int] | None:
    """Return by how much keys in front of the gap and behind are rotated, measured.

    None: the cache cannot be read, or its keys are changed otherwise.
    """
    if not trace.after:
        return None
    for layer, turn in find_turns(case).items():
        before = trace.before[layer]
        after = trace.after[layer]
        if before is None or after is None or turn is None:
            continue
        maps = Maps(case, layer, turn, trace.gap)
        stayed = before[turn.part][:, :, trace.keep]
        distances = []
        for slots in list_sides(trace):
            keys = stayed[:, :, slots]
            moved = after[turn.part][:, :, slots]
            distances.append(maps.find_distance(keys, moved))
        front, behind = distances
        if front is None or behind is None:
            return None
        return front, behind
    return None


def find_turns(case: Case) -> dict[int, Turn | None]:
    """Return each layer's rotations by all distances."""
    key = len(DISTANCES)
    if key not in case.turns:
        case.turns[key] = recover_turns(case, torch.tensor(DISTANCES))
    turns: dict[int, Turn | None] = case.turns[key]
    return turns


def list_sides(trace: Trace) -> tuple[slice, slice]:
    """Return the slots in front of the gap and behind it."""
    sinks = trace.schedule.sinks
    return slice(sinks), slice(sinks, None)


def list_guesses(trace: Trace) -> Iterator[Guess]:
    """List common mistakes, the plainest first."""
    sinks = trace.schedule.sinks
    end = sinks + DROPPED
    left = PREFILLED - DROPPED
    counts = [left, PREFILLED, left + 1, left - 1, PREFILLED + 1, PREFILLED - 1, 0]
    counts += [sinks, DROPPED]
    if trace.first_position is not None:
        counts = [trace.first_position]

    moves = [(0, 0), (0, -DROPPED), (0, DROPPED)]
    for by in (-DROPPED - 1, -DROPPED + 1, -end, -left, -1, 1):
        moves.append((0, by))
    if sinks:
        for by in (-DROPPED, DROPPED, -sinks):
            moves += [(by, 0), (by, by)]
    for front, behind in moves:
        for count in counts:
            yield Guess(sinks, end, front, behind, count)

    ranges = [
        (sinks, end + 1),
        (sinks, end - 1),
        (sinks + 1, end),
        (sinks + 1, end + 1),
    ]
    if sinks:
        ranges += [(sinks - 1, end), (sinks - 1, end - 1), (0, DROPPED)]
    ranges += [(PREFILLED - DROPPED, PREFILLED)]
    for first, last in ranges:
        stay = PREFILLED - (last - first)
        yield Guess(first, last, 0, 0, PREFILLED)
        for count in (stay, left):
            yield Guess(first, last, 0, first - last, count)
            yield Guess(first, last, 0, -DROPPED, count)


def compute_guesses(case: Case, guesses: Sequence[Guess]) -> Tensor:
    """Return logits [guesses, later tokens, vocabulary], a row a guess.

    Keys behind the gap stay where they are; a copy of the first tokens, and the new
    ones, move against them.
    """
    prefix = case.tokens[:, :PREFILLED]
    text = torch.cat([prefix, prefix, case.tokens[:, PREFILLED:]], dim=1)
    length = text.shape[1]
    new = 2 * PREFILLED
    rows = []
    masks = []
    for guess in guesses:
        copies = torch.arange(PREFILLED) + guess.front - guess.behind
        later = torch.arange(LATER) + guess.next_position - guess.behind
        positions = torch.cat([torch.arange(PREFILLED), copies, later])
        rows.append(positions - min(0, int(positions.min())))

        visible = torch.ones(length, length, dtype=torch.bool).tril()
        visible[PREFILLED:new, :PREFILLED] = False
        visible[new:, : guess.end] = False
        visible[new:, PREFILLED + guess.first : new] = False
        masks.append(visible)

    tokens = text.expand(len(guesses), -1)
    stages = case.subject.read(tokens, torch.stack(rows), visible=torch.stack(masks))
    return stages[-1][:, new:]


def describe_guess(guess: Guess, trace: Trace) -> str:
    """Return a mistake in words."""
    sinks = trace.schedule.sinks
    if (guess.first, guess.end) != (sinks, sinks + DROPPED):
        return (
            f"it drops tokens {guess.first} to {guess.end - 1}, where tokens {sinks} to"
            f" {sinks + DROPPED - 1} were to be dropped"
        )
    left = PREFILLED - DROPPED
    counted = f"new tokens are counted from {guess.next_position}"
    if guess.next_position == PREFILLED:
        counted = f"new tokens go on counting from {guess.next_position}"
    elif guess.next_position == left:
        counted += ", the number of keys"
    return f"{describe_moves(guess.front, guess.behind)}, and {counted}"


def describe_moves(front: int, behind: int) -> str:
    """Return by how much keys were rotated, in words."""
    if front == behind == 0:
        return "keys keep their rotation"
    if front == 0 and behind == -DROPPED:
        return "keys behind the gap are moved up"
    if front == behind:
        return f"all keys are rotated by {front:+d} positions"
    parts = []
    if behind:
        parts.append(f"keys behind the gap are rotated by {behind:+d} positions")
    else:
        parts.append("keys behind the gap keep their rotation")
    if front:
        parts.append(f"those in front of it by {front:+d}")
    says = ", ".join(parts)
    if behind not in (0, -DROPPED):
        says += f" where {-DROPPED} moves them up"
    return says


def explain_keys(case: Case, trace: Trace) -> str:
    """Compare each layer's keys and values with those before the first eviction."""
    said = {}
    distances = {}
    for layer, turn in find_turns(case).items():
        before = trace.before[layer]
        after = trace.after[layer]
        if before is None or after is None or turn is None:
            continue
        stayed = (before[0][:, :, trace.keep], before[1][:, :, trace.keep])
        maps = Maps(case, layer, turn, trace.gap)
        says = ""
        if turn.part == 0:
            says = explain_values(stayed[1], after[1], maps, list_sides(trace))
        for slots, place in zip(
            list_sides(trace), ("in front of", "behind"), strict=True
        ):
            keys = stayed[turn.part][:, :, slots]
            if not keys.numel():
                continue
            moved = after[turn.part][:, :, slots]
            distances[layer] = maps.find_distance(keys, moved)
            change = maps.describe_change(keys, moved)
            if change and not says:
                says = f"keys {place} the gap {change}"
        said[layer] = says

    for layer, says in said.items():
        if not says:
            continue
        is_shared = list(said.values()).count(says) == len(said)
        return says if is_shared else f"layer {layer}: {says}"
    return compare_layers(distances)


def compare_layers(distances: dict[int, int | None]) -> str:
    """Return the first layer whose keys behind the gap are rotated otherwise."""
    first, *others = distances
    for layer in others:
        if distances[layer] != distances[first]:
            return (
                f"keys behind the gap are rotated by {distances[first]:+d} positions in"
                f" layer {first}, and by {distances[layer]:+d} in layer {layer}"
            )
    return ""


def explain_values(
    before: Tensor,
    after: Tensor,
    maps: "Maps",
    sides: Sequence[slice],
) -> str:
    """Return what happened to values in words; empty for nothing."""
    if are_equal(before, after):
        return ""
    if None not in match_tokens(before, after):
        return "values are not those of their keys' tokens"
    if before.shape[-1] == maps.width:
        for slots in sides:
            distance = maps.find_distance(before[:, :, slots], after[:, :, slots])
            if distance:
                return "values are rotated, too"
    return "values are changed"


def are_equal(first: Tensor, second: Tensor) -> bool:
    difference = float((first - second).abs().max())
    spread = float(first.std())
    return difference <= EQUAL * spread


class Maps:
    """The rotation of one layer, and what is computed in its place by mistake."""

    def __init__(self, case: Case, layer: int, turn: Turn, gap: int) -> None:
        self.images = turn.images
        self.width = turn.images.shape[-1]
        self.gap = gap
        self.spec = find_spec(case, layer)
        self.features = find_rotated_features(turn.images[-1])
        # Slow pairs move by less than can be seen.
        if self.spec is not None and self.spec.head_dim == self.width:
            self.features = torch.tensor(self.spec.rotated)

    def find_distance(self, before: Tensor, after: Tensor) -> int | None:
        """Return the positions by which all keys are rotated; None: they are not.

        No keys are rotated by 0.
        """
        if not before.numel():
            return 0
        for distance, image in zip(DISTANCES, self.images, strict=True):
            if are_equal(after, before.to(image.dtype) @ image):
                return distance
        return None

    def describe_change(self, before: Tensor, after: Tensor) -> str:
        """Return what happened to keys in words; empty for a rotation that moves up.

        Keys that stay as they are, or are moved up, need no words.
        """
        distance = self.find_distance(before, after)
        if distance is not None:
            if distance in (0, -self.gap):
                return ""
            return f"are rotated by {distance:+d} positions where {-self.gap} moves them up"

        distances = []
        for slot in range(before.shape[2]):
            here = slice(slot, slot + 1)
            distances.append(self.find_distance(before[:, :, here], after[:, :, here]))
        if None not in distances:
            return (
                f"are rotated by {list_numbers(distances)} positions where"
                f" {-self.gap} moves each up"
            )
        return self.describe_map(before, after)

    def describe_map(self, before: Tensor, after: Tensor) -> str:
        """Return which other map was applied, in words."""
        for words, images in self.list_mistakes():
            for image in images:
                if are_equal(after, before.to(image.dtype) @ image):
                    return words

        rest = [f for f in range(self.width) if f not in self.features]
        if rest and not are_equal(before[..., rest], after[..., rest]):
            return "are changed in features that do not rotate"
        gain = float(
            after[..., self.features].norm() / before[..., self.features].norm()
        )
        if abs(gain - 1) > EQUAL:
            scaled = after.clone()
            scaled[..., self.features] /= gain
            if self.find_distance(before, scaled) is not None:
                return (
                    f"are multiplied by {gain:.4g} besides being rotated: cos and sin"
                    " have a factor that keys have already"
                )
        return "are changed by no rotation of this layer"

    def list_mistakes(self) -> Iterator[tuple[str, Tensor]]:
        """List maps that are computed by mistake, one for each distance."""
        width = len(self.features)
        for first, second in ((0, 1), (1, 0)):
            orders = (order_features(width, "half"), order_features(width, "adjacent"))
            order = self.features[orders[first].argsort()[orders[second]]]
            images = self.images.clone()
            rows = self.features[:, None]
            images[:, rows, self.features] = self.images[:, order[:, None], order]
            yield "are rotated in the pairs of the other layout", images

        for words, frequencies in self.list_frequencies():
            for layout in ("half", "adjacent"):
                features = torch.arange(2 * len(frequencies))
                yield words, self.rotate(frequencies, features, layout)

    def list_frequencies(self) -> Iterator[tuple[str, Tensor]]:
        """List frequencies other than the layer's, in radians a position."""
        if self.spec is None:
            return
        pairs = len(self.features) // 2
        all_pairs = self.width // 2
        for words, count, size in (
            ("are rotated with frequencies that have no scaling", pairs, pairs),
            ("are rotated as if all features of the head did", all_pairs, all_pairs),
            ("are rotated with the exponents of the whole head", pairs, all_pairs),
        ):
            exponents = torch.arange(count, dtype=torch.float64) / size
            yield words, self.spec.base**-exponents

    def rotate(self, frequencies: Tensor, features: Tensor, layout: str) -> Tensor:
        """Return the images of unit vectors [distances, width, width]."""
        order = features[order_features(len(features), layout)]
        pairs = len(frequencies)
        first = order[:pairs]
        second = order[pairs:]
        images = torch.eye(self.width, dtype=torch.float64)
        images = images.repeat(len(DISTANCES), 1, 1)
        angles = torch.tensor(DISTANCES, dtype=torch.float64)[:, None] * frequencies
        images[:, first, first] = angles.cos()
        images[:, second, second] = angles.cos()
        images[:, first, second] = angles.sin()
        images[:, second, first] = -angles.sin()
        return images.to(self.images.dtype)


def find_spec(case: Case, layer: int) -> RopeSpec | None:
    """Return the rotation that the configuration gives a layer; None: there is none."""
    if not isinstance(case.subject, TransformersSubject):
        return None
    text = case.subject.text
    reading = registry.read(registry.RUNTIMES[registry.REFERENCE], text.to_dict())
    kinds = getattr(text, "layer_types", None)
    if not kinds:
        return reading.main
    return reading.layers.get(kinds[layer], reading.main)


def order_features(width: int, layout: str) -> Tensor:
    """Return the first features of all pairs, then the second ones."""
    features = torch.arange(width)
    if layout == "half":
        return features
    return torch.cat([features[::2], features[1::2]])


def find_rotated_features(image: Tensor) -> Tensor:
    """Return the features that a rotation by one position changes."""
    unmoved = torch.eye(len(image), dtype=image.dtype, device=image.device)
    # Slow pairs move by little; they lie between the features that move.
    changes = (image - unmoved).abs().amax(dim=1)
    return (changes > EQUAL / 10).nonzero().flatten()


def explain_repetition(case: Case, trace: Trace) -> str:
    """Look at the positions of keys after the last of several evictions.

    A key of the first layer depends on its own token and position alone.
    """
    if not trace.last or trace.last[0] is None:
        return "one eviction is right, and several are not"
    turns = recover_turns(case, torch.tensor(range(-TOKENS, TOKENS + 1)))
    turn = turns.get(0)
    cache = case.subject.new_cache()
    case.subject.read(case.tokens, case.make_positions(0), cache=cache)
    whole = case.subject.entries(cache)[0]
    if turn is None or whole is None:
        return "one eviction is right, and several are not"

    last = trace.schedule.later_parts[-1]
    sinks = trace.schedule.sinks
    keep = [*range(sinks), *range(sinks + last.dropped, last.start)]
    left = compare_tokens(whole, trace.last[0], keep)
    if left is not None and left.missing:
        return (
            f"after {len(trace.schedule.later_parts)} evictions tokens"
            f" {list_numbers(left.missing)} are gone, which were to stay"
        )

    moves = []
    for slot, token in enumerate(keep):
        before = whole[turn.part][:, :, token]
        after = trace.last[0][turn.part][:, :, slot]
        distance = None
        for by, image in zip(range(-TOKENS, TOKENS + 1), turn.images, strict=True):
            if are_equal(after, before.to(image.dtype) @ image):
                distance = by
        moves.append(distance)
    return (
        f"after {len(trace.schedule.later_parts)} evictions keys are rotated by"
        f" {list_numbers(moves)} positions, where {-last.dropped} moves those behind the"
        " gap up"
    )


def explain_joining(case: Case, got: Stages, position: int | None) -> str:
    """Return by how much the second of two joined fragments is off, in words."""
    counts = [PREFILLED, PREFILLED - FRAGMENT, FRAGMENT, PREFILLED + 1, PREFILLED - 1]
    if position is not None:
        counts = [position]
    for by in (0, FRAGMENT, -FRAGMENT, FRAGMENT - 1, FRAGMENT + 1, 2 * FRAGMENT):
        for count in counts:
            expected = compute_fragments(case, by, count)
            if float(measure_differences(got[-1], expected).max()) > EQUAL:
                continue
            says = f"keys of the second fragment are rotated by {by:+d} positions"
            if by == 0:
                says = "keys of the second fragment are joined without a rotation"
            elif by == FRAGMENT:
                says = "keys of the second fragment are moved behind the first"
            else:
                says += f" where {FRAGMENT:+d} puts them behind the first"
            return f"{says}, and new tokens are counted from {count}"
    return ""


def compute_fragments(case: Case, by: int, count: int) -> Tensor:
    """Return logits behind two fragments; the second begins at a position."""
    positions = case.make_positions(0)
    positions[:, FRAGMENT:PREFILLED] += by - FRAGMENT
    positions[:, PREFILLED:] += count - PREFILLED
    positions -= min(0, int(positions.min()))
    visible = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    visible[FRAGMENT:PREFILLED, :FRAGMENT] = False
    stages = case.subject.read(case.tokens, positions, visible=visible[None])
    return stages[-1][:, PREFILLED:]
