"""Name a mistake by its logits: the logits of each common mistake are computed, and
compared with the model's.

The mistakes are evictions and joins that rotate keys by a wrong number of positions, keep
wrong tokens, or count new tokens wrongly. They are computed in one pass without a cache
(`eviction_layouts`). Logits show only how positions differ: if all keys and all new
tokens are moved alike, logits stay the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ropelab.conformance.laws.eviction_layouts import ROWS, Step, compute_layouts
from ropelab.conformance.laws.eviction_trace import (
    EQUAL,
    LARGEST_ROUNDING,
    EvictionTrace,
    Segment,
    list_segments,
)
from ropelab.conformance.laws.forgetting import (
    PREFILLED,
    STEP,
    EvictionSchedule,
    list_left,
)
from ropelab.conformance.laws.law import TOKENS, Case, measure_size
from ropelab.conformance.laws.subject import Stages

# What an answer begins with that only logits tell, and what is said if they do not tell.
BY_LOGITS = "its cache cannot be read; its logits are those of a cache in which"
UNDECIDED = (
    "its cache cannot be read, and logits alone do not tell what is wrong: they fit none"
    " of the wrong positions and wrongly dropped tokens that are tried"
)


class Guess(NamedTuple):
    """What may have been done to a cache, as the steps of a pass, and in words."""

    steps: tuple[Step, ...]
    says: str


def find_guess(
    case: Case,
    guesses: Iterable[Guess],
    answers: Sequence[Stages],
    first_step: int,
) -> Guess | None:
    """Return the first guess that has the logits of one of the answers, as far as it is
    computed; None: no guess has them.

    ``first_step``: the first step of each guess that an answer has.
    """
    remaining = iter(guesses)
    while batch := list(islice(remaining, ROWS)):
        results = compute_layouts(case, [guess.steps for guess in batch], first_step)
        for guess, (*_, expected) in zip(batch, results, strict=True):
            for *_, logits in answers:
                got = logits[:1, : expected.shape[1]]
                if measure_size(got, expected) <= EQUAL:
                    return guess
    return None


def explain_unrotated_keys(
    case: Case, guesses: Iterable[Guess], answers: Sequence[Stages], first_step: int
) -> str:
    """Return in words the guess that has the logits of the code; empty: none has them.

    Keys that are cached before their rotation show no positions themselves.
    """
    guess = find_guess(case, guesses, answers, first_step)
    return "" if guess is None else f"its logits show that {guess.says}"


def explain_closed_cache(
    case: Case,
    guesses: Iterable[Guess],
    answers: Sequence[Stages],
    first_step: int,
    size: float,
) -> str:
    """Return in words what the logits of a cache that cannot be read tell.

    ``size``: the difference from the right logits, over their spread.
    """
    guess = None
    if size > EQUAL:
        guess = find_guess(case, guesses, answers, first_step)
    if guess is not None:
        return f"{BY_LOGITS} {guess.says}"
    if size > LARGEST_ROUNDING:
        return UNDECIDED
    return (
        f"its cache cannot be read; its logits differ by only {size:.2%} of their spread"
        " from right ones, as they do if something is rounded to fewer bits"
    )


def make_guess(
    tokens: Sequence[int],
    moves: Sequence[int],
    next_position: int,
    says: str,
) -> Guess:
    """Return one eviction.

    Args:
        tokens: the tokens that are left.
        moves: the positions by which the key of each is rotated.
        next_position: the position of the first new token.
        says: the mistake in words.
    """
    seen = tuple(zip(tokens, moves, strict=True))
    before = Step(0, PREFILLED, 0)
    after = Step(PREFILLED, TOKENS, next_position, seen)
    return Guess((before, after), says)


def guess_count(
    case: Case,
    trace: EvictionTrace,
    answers: Sequence[Stages],
    moves: Sequence[int],
) -> int | None:
    """Return the position of the first new token, by logits, if keys moved like this.

    None: no position gives the logits of the code.
    """
    counts = list_counts(trace)
    if trace.first_position is None:
        counts += [count for count in range(TOKENS + STEP) if count not in counts]
    tokens = list_left(trace.schedule.later_parts[0])
    moves_of_tokens = spread_moves(moves, list_segments(tokens), len(tokens))
    guesses = []
    for count in counts:
        says = describe_count(count, len(tokens))
        guesses.append(make_guess(tokens, moves_of_tokens, count, says))
    guess = find_guess(case, guesses, answers, first_step=1)
    return None if guess is None else guess.steps[-1].position


def spread_moves(
    moves: Sequence[int], segments: Sequence[Segment], count: int
) -> list[int]:
    """Return the positions by which each of ``count`` keys is rotated."""
    moves_of_tokens = [0] * count
    for by, segment in zip(moves, segments, strict=True):
        for slot in range(count)[segment.slots]:
            moves_of_tokens[slot] = by
    return moves_of_tokens


def list_counts(trace: EvictionTrace) -> list[int]:
    """Return positions that the next token may be given, the likeliest first."""
    if trace.first_position is not None:
        return [trace.first_position]
    (part, *_) = trace.schedule.later_parts
    tokens = list_left(part)
    left = len(tokens)
    # The number of keys, the number of all tokens, and numbers that are wrong by one or
    # forget a part.
    counts = [left, PREFILLED, left + 1, left - 1, PREFILLED + 1, PREFILLED - 1, 0]
    counts += [trace.schedule.sinks, trace.gap]
    for segment in list_segments(tokens):
        counts += [PREFILLED + segment.distance, left - segment.distance]
    return list(dict.fromkeys(counts))


def list_moves(segments: Sequence[Segment], sinks: int, gap: int) -> list[list[int]]:
    """Return the positions by which the keys of each segment may be rotated, the right
    ones first.

    Args:
        segments: the slots between gaps.
        sinks: the number of keys in front of the first gap.
        gap: the number of tokens that are dropped.
    """
    right = [segment.distance for segment in segments]
    left = PREFILLED - gap

    def move_behind(by: int) -> list[int]:
        return [by if distance else 0 for distance in right]

    moves = [
        [0] * len(right),
        right,
        # In the wrong direction, and twice.
        [-distance for distance in right],
        [2 * distance for distance in right],
        # By one position too many or too few.
        [distance and distance - 1 for distance in right],
        [distance and distance + 1 for distance in right],
        # All by the same number: all gaps, the first one, or another length.
        *(move_behind(by) for by in (-gap, gap, *right)),
        *(move_behind(by) for by in (-sinks - gap, -left, -sinks, -1, 1)),
        # By the own gap alone.
        [after - before for before, after in zip([0, *right], right, strict=False)],
    ]
    # Keys in front of the gap are rotated, too, or alone.
    if sinks:
        for by in (-gap, gap, -sinks):
            moves += [[by, *[0] * (len(right) - 1)], [by] * len(right)]
    unique = []
    for change in moves:
        if change not in unique:
            unique.append(change)
    return unique


def list_single_guesses(trace: EvictionTrace) -> Iterator[Guess]:
    """Yield common mistakes of one eviction, the plainest first."""
    schedule = trace.schedule
    (part,) = schedule.later_parts
    tokens = list_left(part)
    segments = list_segments(tokens)
    for moves in list_moves(segments, schedule.sinks, part.dropped):
        moves_of_tokens = spread_moves(moves, segments, len(tokens))
        moved = describe_moves(moves, segments)
        for count in list_counts(trace):
            says = f"{moved}, and {describe_count(count, len(tokens))}"
            yield make_guess(tokens, moves_of_tokens, count, says)

    for moves_of_tokens, moved in list_half_rotations(tokens):
        for count in list_counts(trace)[:2]:
            says = f"{moved}, and {describe_count(count, len(tokens))}"
            yield make_guess(tokens, moves_of_tokens, count, says)

    wanted = " and ".join(name_runs(part.gone))
    for gone in list_wrong_tokens(schedule):
        left = [token for token in range(PREFILLED) if token not in gone]
        dropped = " and ".join(name_runs(gone))
        says = f"tokens {dropped} are dropped, where tokens {wanted} were to be"
        yield make_guess(left, [0] * len(left), PREFILLED, says)
        moved_up = [place - token for place, token in enumerate(left)]
        moved_by_wanted = [-part.dropped if by else 0 for by in moved_up]
        for count in dict.fromkeys([len(left), len(tokens)]):
            yield make_guess(left, moved_up, count, says)
            yield make_guess(left, moved_by_wanted, count, says)


def list_half_rotations(positions: Sequence[int]) -> list[tuple[list[int], str]]:
    """Return the moves of keys that are rotated back and not forwards, and of those that
    are rotated forwards without being rotated back, each with its words.

    ``positions``: the positions of the keys before.
    """
    back = [-position for position in positions]
    forwards = list(range(len(positions)))
    return [
        (back, "all keys are rotated back to position 0"),
        (forwards, "all keys are rotated to new places without being rotated back"),
    ]


def list_wrong_tokens(schedule: EvictionSchedule) -> Iterator[list[int]]:
    """Yield tokens that may be dropped by mistake."""
    (part,) = schedule.later_parts
    first = part.gone[0]
    end = part.gone[-1] + 1
    dropped = part.dropped
    if schedule.has_several_gaps:
        # One run of as many tokens, all between the first token and the last one, or one
        # of the runs.
        yield [*range(first, first + dropped)]
        yield [*range(end - dropped, end)]
        yield [*range(first, end)]
        yield from split_runs(part.gone)
        return

    ranges = [(first, end + 1), (first, end - 1), (first + 1, end)]
    ranges += [(first + 1, end + 1)]
    if first:
        ranges += [(first - 1, end), (first - 1, end - 1), (0, dropped)]
    ranges += [(PREFILLED - dropped, PREFILLED)]
    for start, stop in ranges:
        yield [*range(start, stop)]


def split_runs(tokens: Sequence[int]) -> list[list[int]]:
    """Return runs of neighbouring tokens."""
    runs: list[list[int]] = []
    for token in tokens:
        if runs and token == runs[-1][-1] + 1:
            runs[-1].append(token)
        else:
            runs.append([token])
    return runs


def name_runs(tokens: Sequence[int]) -> list[str]:
    """Return the first and the last token of each run in words."""
    return [f"{run[0]} to {run[-1]}" for run in split_runs(tokens)]


def describe_count(next_position: int, key_count: int) -> str:
    """Return where new tokens begin after an eviction that leaves this many keys."""
    if next_position == PREFILLED:
        return f"new tokens go on counting from {next_position}"
    counted = f"new tokens are counted from {next_position}"
    if next_position == key_count:
        counted += ", the number of keys"
    return counted


def describe_moves(moves: Sequence[int], segments: Sequence[Segment]) -> str:
    """Return by how much keys were rotated when gaps were left, in words.

    ``moves``: the positions by which the keys of each segment were rotated.
    """
    right = [segment.distance for segment in segments]
    gaps = "gaps" if len(segments) - (right[0] == 0) > 1 else "gap"
    if not any(moves):
        return "keys keep their rotation"
    if list(moves) == right:
        return f"keys behind the {gaps} are moved up"
    if len(set(moves)) == 1:
        return f"all keys are rotated by {moves[0]:+d} positions"
    if len(segments) == 2 and not right[0]:
        return describe_two_moves(moves[0], moves[1], -right[1])

    says = ""
    for by, segment in zip(moves, segments, strict=True):
        if not by and not segment.distance:
            continue
        if says:
            says += f", those {segment.where} by {by:+d}"
        else:
            says = f"keys {segment.where} are rotated by {by:+d} positions"
    right_distances = [f"{distance:+d}" for distance in right if distance]
    return f"{says}, where moving up takes {' and '.join(right_distances)}"


def describe_two_moves(front: int, behind: int, gap: int) -> str:
    """Return by how much keys in front of the only gap and behind it were rotated."""
    parts = []
    if behind:
        parts.append(f"keys behind the gap are rotated by {behind:+d} positions")
    else:
        parts.append("keys behind the gap keep their rotation")
    if front:
        parts.append(f"those in front of it by {front:+d}")
    says = ", ".join(parts)

    if behind not in (0, -gap):
        says += f", where moving up takes {-gap}"
    return says
