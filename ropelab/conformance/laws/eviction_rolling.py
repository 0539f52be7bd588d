"""Common mistakes of evictions that are repeated.

Only the first evictions are computed. A mistake rotates the keys in front of the gap and
those behind it by wrong numbers of positions, or counts new tokens wrongly.
"""

from collections.abc import Iterator, Sequence

from ropelab.conformance.laws.eviction_guesses import Guess
from ropelab.conformance.laws.eviction_layouts import Step
from ropelab.conformance.laws.forgetting import EvictionSchedule, list_left

# The later parts of a schedule that are computed. With each part more copies of earlier
# parts are needed.
COMPUTED_PARTS = 3
MOVED_UP = "keys behind the gap are moved up at each eviction"

# A number of positions for each eviction that is computed, by what it means in words.
Numbers = dict[str, list[int]]


def list_rolling_guesses(
    schedule: EvictionSchedule,
    next_positions: Sequence[int | None],
    is_by_token: bool = False,
) -> Iterator[Guess]:
    """Yield common mistakes of evictions that are repeated, the plainest first.

    Args:
        schedule: which tokens are dropped when.
        next_positions: the position of the first token after each eviction, as far as
            it is known.
        is_by_token: one token is read after each eviction, and the cache may treat the
            newest key in another way.
    """
    parts = schedule.later_parts[:COMPUTED_PARTS]
    counts = list_rolling_counts(schedule, next_positions)
    moves_behind = list_moves_behind(schedule)
    moves_in_front = list_moves_in_front(schedule)

    still = [0] * len(parts)
    moved_up = moves_behind[MOVED_UP]
    key_counts = [len(list_left(part)) for part in parts]
    right = [
        make_rolling_steps(schedule, still, still, [part.start for part in parts]),
        make_rolling_steps(schedule, still, moved_up, key_counts),
    ]
    for moved_in_front, front in moves_in_front.items():
        for moved, behind in moves_behind.items():
            for counted, positions in counts.items():
                steps = make_rolling_steps(schedule, front, behind, positions)
                says = f"{moved}{moved_in_front}, and new tokens are {counted}"
                if steps not in right:
                    yield Guess(steps, says)

    for counted, positions in counts.items():
        for beyond, words in ((0, "of "), (1, "one behind "), (-1, "one before ")):
            steps = make_placed_steps(schedule, beyond, positions)
            says = f"keys behind the gap are at the positions {words}their slots"
            if steps not in right:
                yield Guess(steps, f"{says}, and new tokens are {counted}")
        if is_by_token:
            steps = make_rolling_steps(schedule, still, moved_up, positions, delay=1)
            says = f"{MOVED_UP}, but not the newest key"
            yield Guess(steps, f"{says}, and new tokens are {counted}")


def list_rolling_counts(
    schedule: EvictionSchedule, next_positions: Sequence[int | None]
) -> Numbers:
    """Return the positions that the first token after each eviction may be given.

    If the code says the positions, there are no others.
    """
    parts = schedule.later_parts[:COMPUTED_PARTS]
    left = [len(list_left(part)) for part in parts]
    said = next_positions[: len(parts)]
    known = [position for position in said if position is not None]
    if len(known) == len(parts):
        return {name_positions(known, left): known}

    first_left = left[0]
    ends = [part.start for part in parts]
    end = ends[0]
    gap = parts[0].dropped
    return {
        f"counted from {first_left}, the number of keys": left,
        f"counted on from {end}": ends,
        f"counted from {first_left + 1}, one more than there are keys": add(left, 1),
        f"counted from {first_left - 1}, one less than there are keys": add(left, -1),
        f"counted on from {end + 1}": add(ends, 1),
        f"counted on from {end - 1}": add(ends, -1),
        "counted from 0 after each eviction": [0] * len(parts),
        f"counted on from {end - gap}": add(ends, -gap),
    }


def add(numbers: Sequence[int], by: int) -> list[int]:
    return [number + by for number in numbers]


def list_moves_behind(schedule: EvictionSchedule) -> Numbers:
    """Return the positions by which each eviction may rotate keys behind the gap."""
    parts = schedule.later_parts[:COMPUTED_PARTS]
    gap = parts[0].dropped
    count = len(parts)
    moves = {
        "keys keep their rotation": [0] * count,
        MOVED_UP: [-gap] * count,
        f"keys behind the gap are rotated in the wrong direction, by {gap:+d} positions"
        " at each eviction": [gap] * count,
        "keys behind the gap are moved by all that was ever dropped at each eviction": [
            -part.dropped for part in parts
        ],
        "the first eviction alone moves keys up": [-gap, *[0] * (count - 1)],
    }
    for by in (-gap - 1, -gap + 1, -2 * gap, -1, 1):
        # Some of these have a name above.
        if by not in (0, -gap, gap):
            says = (
                f"keys behind the gap are rotated by {by:+d} positions at each eviction,"
                f" where moving up takes {-gap:+d}"
            )
            moves[says] = [by] * count
    return moves


def list_moves_in_front(schedule: EvictionSchedule) -> Numbers:
    """Return the positions by which each eviction may rotate the keys of sinks."""
    parts = schedule.later_parts[:COMPUTED_PARTS]
    gap = parts[0].dropped
    moves = {"": [0] * len(parts)}
    if schedule.sinks:
        for by in (-gap, gap):
            moves[f", and those in front of it by {by:+d}"] = [by] * len(parts)
    return moves


def name_positions(positions: Sequence[int], key_counts: Sequence[int]) -> str:
    if list(positions) == list(key_counts):
        return f"counted from {positions[0]}, the number of keys"
    return f"counted from {', '.join(map(str, positions))} after the first evictions"


def make_rolling_steps(
    schedule: EvictionSchedule,
    front: Sequence[int],
    behind: Sequence[int],
    positions: Sequence[int],
    delay: int = 0,
) -> tuple[Step, ...]:
    """Return the steps of evictions that are repeated.

    Args:
        schedule: which tokens are dropped when.
        front: the positions by which each eviction rotates the keys of sinks.
        behind: the positions by which each eviction rotates all other keys.
        positions: the position of the first token after each eviction.
        delay: the number of evictions that a new key stays as it is.
    """
    parts = schedule.later_parts[: len(positions)]
    steps = [Step(0, parts[0].start, 0)]
    for number, part in enumerate(parts):
        seen = []
        for token in list_left(part):
            by_eviction = front if token < schedule.sinks else behind
            # The evictions since the token was read.
            first = sum(each.start <= token for each in parts)
            # The last token of the prefix is the newest key at the first eviction.
            if token >= parts[0].start - delay:
                first += delay
            seen.append((token, sum(by_eviction[first : number + 1])))
        steps.append(Step(part.start, part.end, positions[number], tuple(seen)))
    return tuple(steps)


def make_placed_steps(
    schedule: EvictionSchedule,
    beyond: int,
    positions: Sequence[int],
) -> tuple[Step, ...]:
    """Return the steps of evictions that put each key at the position of its slot.

    Args:
        schedule: which tokens are dropped when.
        beyond: the number that is added to the positions of keys behind the gap.
        positions: the position of the first token after each eviction.
    """
    parts = schedule.later_parts[: len(positions)]
    steps = [Step(0, parts[0].start, 0)]
    for number, part in enumerate(parts):
        seen = []
        for slot, token in enumerate(list_left(part)):
            source = next(step for step in steps if step.start <= token < step.end)
            read_at = source.position + token - source.start
            place = slot if token < schedule.sinks else slot + beyond
            seen.append((token, place - read_at))
        steps.append(Step(part.start, part.end, positions[number], tuple(seen)))
    return tuple(steps)
