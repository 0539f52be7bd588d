"""Name a mistake by its logits: the logits of each common mistake are computed, and
compared with the model's.

The mistakes are evictions that drop wrong tokens, rotate keys by a wrong number of
positions, or count new tokens wrongly, and wrong moves of the second of two joined
fragments. They are computed in one pass without a cache.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropelab.conformance.laws.eviction_trace import EQUAL, EvictionTrace
from ropelab.conformance.laws.forgetting import (
    DROPPED,
    FRAGMENT,
    PREFILLED,
    separate_fragments,
)
from ropelab.conformance.laws.law import TOKENS, Case, measure_differences
from ropelab.conformance.laws.subject import Stages

# The number of tokens behind the eviction.
LATER = TOKENS - PREFILLED
# The number of mistakes that are computed at once, each as a row of a batch.
ROWS = 16


class Guess(NamedTuple):
    """An eviction that may be a mistake, and the position of the next token."""

    # Tokens from `first` to before `end` are dropped.
    first: int
    end: int
    # The positions by which keys in front of the gap, and keys behind it, are rotated.
    front: int
    behind: int
    # The position of the first new token.
    next_position: int


def explain_logits(
    case: Case,
    trace: EvictionTrace,
    answers: Sequence[Stages],
    moves: tuple[int, int] | None,
) -> str:
    """Return in words the mistake that gives the same logits as the code; empty if no
    known mistake does.

    Args:
        case: the subject and its tokens.
        trace: what one eviction was asked for.
        answers: what the code computed.
        moves: the positions by which keys in front of the gap and behind it are
            rotated, if they were measured. Mistakes with these rotations are tried
            first, since other mistakes may have the same logits.
    """
    guesses = list(list_guesses(trace))
    if moves is not None:
        like_measured = []
        other_guesses = []
        for guess in guesses:
            if (guess.front, guess.behind) == moves:
                like_measured.append(guess)
            else:
                other_guesses.append(guess)
        guesses = like_measured + other_guesses

    for start in range(0, len(guesses), ROWS):
        batch = guesses[start : start + ROWS]
        logits = compute_guesses(case, batch)
        for guess, expected in zip(batch, logits, strict=True):
            for *_, answer_logits in answers:
                # The text is the only row.
                differences = measure_differences(answer_logits[0], expected)
                if float(differences.max()) <= EQUAL:
                    return describe_guess(guess, trace)
    return ""


def list_guesses(trace: EvictionTrace) -> Iterator[Guess]:
    """Yield common mistakes, the plainest first."""
    sinks = trace.schedule.sinks
    end = sinks + DROPPED
    left = PREFILLED - DROPPED
    # Positions that the next token may be given: the number of keys, the number of all
    # tokens, and numbers that are wrong by one or forget a part.
    counts = [left, PREFILLED, left + 1, left - 1, PREFILLED + 1, PREFILLED - 1, 0]
    counts += [sinks, DROPPED]
    if trace.first_position is not None:
        counts = [trace.first_position]

    # Positions by which keys in front of the gap, and behind it, may be rotated.
    moves = [(0, 0), (0, -DROPPED), (0, DROPPED)]
    for by in (-DROPPED - 1, -DROPPED + 1, -end, -left, -1, 1):
        moves.append((0, by))
    if sinks:
        for by in (-DROPPED, DROPPED, -sinks):
            moves += [(by, 0), (by, by)]
    for front, behind in moves:
        for count in counts:
            yield Guess(sinks, end, front, behind, count)

    # The first token that is dropped, and the first token after it that is not dropped.
    ranges = [
        (sinks, end + 1),
        (sinks, end - 1),
        (sinks + 1, end),
        (sinks + 1, end + 1),
    ]
    if sinks:
        ranges += [(sinks - 1, end), (sinks - 1, end - 1), (0, DROPPED)]
    ranges += [(PREFILLED - DROPPED, PREFILLED)]
    for first, stop in ranges:
        dropped = stop - first
        key_count = PREFILLED - dropped
        yield Guess(first, stop, 0, 0, PREFILLED)
        for count in (key_count, left):
            yield Guess(first, stop, 0, -dropped, count)
            yield Guess(first, stop, 0, -DROPPED, count)


def compute_guesses(case: Case, guesses: Sequence[Guess]) -> Tensor:
    """Return logits [guesses, later tokens, vocabulary].

    A row holds the prefix, a copy of the prefix, and the new tokens. The new tokens see
    the keys in front of the gap in the copy, and the keys behind the gap in the prefix
    itself, so that both may have any positions. Scores depend only on differences of
    positions: the prefix stays, and the copy and the new tokens are moved against it.
    """
    prefix = case.tokens[:, :PREFILLED]
    text = torch.cat([prefix, prefix, case.tokens[:, PREFILLED:]], dim=1)
    length = text.shape[1]
    # The first of the new tokens.
    new = 2 * PREFILLED
    positions_of_rows = []
    masks = []
    for guess in guesses:
        copies = torch.arange(PREFILLED) + guess.front - guess.behind
        later = torch.arange(LATER) + guess.next_position - guess.behind
        positions = torch.cat([torch.arange(PREFILLED), copies, later])
        # No position may be negative.
        positions_of_rows.append(positions - min(0, int(positions.min())))

        visible = torch.ones(length, length, dtype=torch.bool).tril()
        visible[PREFILLED:new, :PREFILLED] = False
        visible[new:, : guess.end] = False
        visible[new:, PREFILLED + guess.first : new] = False
        masks.append(visible)

    tokens = text.expand(len(guesses), -1)
    *_, logits = case.subject.read(
        tokens, torch.stack(positions_of_rows), visible=torch.stack(masks)
    )
    return logits[:, new:]


def describe_guess(guess: Guess, trace: EvictionTrace) -> str:
    """Return a mistake in words."""
    sinks = trace.schedule.sinks
    if (guess.first, guess.end) != (sinks, sinks + DROPPED):
        return (
            f"tokens {guess.first} to {guess.end - 1} are dropped, where tokens {sinks} to"
            f" {sinks + DROPPED - 1} were to be"
        )
    moved = describe_moves(guess.front, guess.behind, DROPPED)
    return f"{moved}, and {describe_count(guess.next_position, PREFILLED - DROPPED)}"


def describe_count(next_position: int, key_count: int) -> str:
    """Return where new tokens begin after an eviction that leaves this many keys."""
    if next_position == PREFILLED:
        return f"new tokens go on counting from {next_position}"
    counted = f"new tokens are counted from {next_position}"
    if next_position == key_count:
        counted += ", the number of keys"
    return counted


def describe_moves(front: int, behind: int, gap: int) -> str:
    """Return by how much keys were rotated when a gap was left, in words.

    Args:
        front: the positions by which keys in front of the gap were rotated.
        behind: the positions by which keys behind the gap were rotated.
        gap: the number of tokens that were dropped.
    """
    if front == behind == 0:
        return "keys keep their rotation"
    if front == 0 and behind == -gap:
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

    if behind not in (0, -gap):
        says += f", where moving up takes {-gap}"
    return says


def explain_joining(case: Case, got: Stages, position: int | None) -> str:
    """Return in words how the second of two joined fragments is moved, if it is known.

    Args:
        case: the subject and its tokens.
        got: what the code computed behind the two fragments.
        position: the position that the code gave the next token; None: it does not say.
    """
    # The positions that the next token may have been given, the likeliest first.
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
    """Return logits of the tokens behind two fragments.

    Args:
        case: the subject and its tokens.
        by: the position at which the second fragment begins.
        count: the position of the first token behind both.
    """
    positions = case.make_positions(0)
    positions[:, FRAGMENT:PREFILLED] += by - FRAGMENT
    positions[:, PREFILLED:] += count - PREFILLED
    positions -= min(0, int(positions.min()))
    visible = separate_fragments()
    stages = case.subject.read(case.tokens, positions, visible=visible[None])
    return stages[-1][:, PREFILLED:]
