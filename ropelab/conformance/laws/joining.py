"""Trials that join the caches of two fragments, each of which was read from position 0.

The keys of the second fragment must be rotated by the length of the first, so that they
follow it. Or the second fragment is computed anew behind the first. Both are right.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ropelab.conformance.laws import forgetting, rows
from ropelab.conformance.laws.caches import CannotAskError, Entry
from ropelab.conformance.laws.eviction_guesses import (
    Guess,
    explain_closed_cache,
    explain_unrotated_keys,
    list_half_rotations,
)
from ropelab.conformance.laws.eviction_keys import (
    describe_errors,
    explain_change,
    measure_moves,
)
from ropelab.conformance.laws.eviction_layouts import Step
from ropelab.conformance.laws.eviction_trace import (
    EQUAL,
    Change,
    Segment,
    compare_tokens,
    copy_entries,
    find_wrong_count,
    find_wrong_layer,
    list_ranges,
)
from ropelab.conformance.laws.forgetting import FRAGMENT, LATER, PREFILLED
from ropelab.conformance.laws.law import (
    DESCRIBED_IN_SENTENCE,
    REFUSALS,
    TOKENS,
    Case,
    Comparison,
    Statement,
    describe_in_line,
    measure_size,
)
from ropelab.conformance.laws.moved import (
    fill_cache,
    list_whole_entries,
    move_keys,
)
from ropelab.conformance.laws.subject import Stages

JOINED = "its own joining puts the second fragment behind the first"
JOINED_ANEW = "its own joining computes the second fragment anew behind the first"
SEGMENTS = [
    Segment("of the first fragment", slice(FRAGMENT), 0, "where they stay as they are"),
    Segment(
        "of the second fragment",
        slice(FRAGMENT, None),
        FRAGMENT,
        f"where {FRAGMENT:+d} puts them behind the first",
    ),
]
# The position of each key before the join.
POSITIONS = [*range(FRAGMENT), *range(PREFILLED - FRAGMENT)]


def compare_with_joined(case: Case) -> Comparison:
    """Join the caches of two fragments, each read from position 0, and read on.

    The keys of the second fragment are moved behind the keys of the first.
    """
    first = fill_cache(case, case.tokens[:, :FRAGMENT])
    second = fill_cache(case, case.tokens[:, FRAGMENT:PREFILLED])
    before = list_pairs(case, first, second)
    entries_of_first = list_whole_entries(case, first, FRAGMENT)
    move_keys(case, second, FRAGMENT)
    entries_of_second = list_whole_entries(case, second, PREFILLED - FRAGMENT)

    for layer, (first_entry, second_entry) in enumerate(
        zip(entries_of_first, entries_of_second, strict=True)
    ):
        case.subject.set_entry(first, layer, join_entries(first_entry, second_entry))
    change = make_change(before, copy_entries(case, first))
    positions = case.make_positions(PREFILLED, len(LATER))
    got = case.subject.read(case.tokens[:, PREFILLED:], positions, cache=first)
    explain = partial(explain_joining, case, change, got, PREFILLED)
    return Comparison(got, forgetting.compute_joined(case), LATER, explain=explain)


def compare_own_joining(case: Case) -> Comparison | Statement:
    """Let the model's own code join the caches of two fragments, and read on."""
    if not hasattr(case.subject.code, "join_caches"):
        raise CannotAskError("it has no join_caches(first, second)")
    case = forgetting.choose_different_tokens(case)
    first = fill_cache(case, case.tokens[:, :FRAGMENT])
    second = fill_cache(case, case.tokens[:, FRAGMENT:PREFILLED])
    before = list_pairs(case, first, second)
    cache = case.subject.join(first, second)
    change = make_change(before, copy_entries(case, cache))
    if change is not None:
        fault = explain_missing(change)
        if fault:
            return Statement("broken", fault)

    position = case.subject.find_next_position(cache)
    start = PREFILLED if position is None else position
    positions = case.make_positions(start, len(LATER))
    try:
        got = case.subject.read(case.tokens[:, PREFILLED:], positions, cache=cache)
    except REFUSALS as error:
        said = describe_in_line(error)[:DESCRIBED_IN_SENTENCE]
        return Statement(
            "broken",
            f"behind two joined fragments the code raises {type(error).__name__}: {said}",
        )

    comparisons = []
    for row, row_case in enumerate(rows.split(case)):
        row_change = None if change is None else change.select_row(row)
        row_got = rows.select(got, row)
        nearest = find_reference(row_case, row_got)
        explain = partial(explain_joining, row_case, row_change, row_got, start)
        comparisons.append(nearest._replace(explain=explain))
    return rows.find_worst(comparisons)


def find_reference(case: Case, got: Stages) -> Comparison:
    """Return the comparison with the first right computation that the answer equals,
    else with a fragment that is moved.
    """
    joined = Comparison(got, forgetting.compute_joined(case), LATER, says=JOINED)
    whole = [stage[:, PREFILLED:] for stage in case.whole]
    anew = Comparison(got, whole, LATER, says=JOINED_ANEW)
    for comparison in (joined, anew):
        if comparison.size <= EQUAL:
            return comparison
    return joined


def list_pairs(case: Case, first: Any, second: Any) -> list[Entry]:
    """Return the keys and values of both caches, one behind the other, by layer.

    Empty: they cannot be read.
    """
    pairs: list[Entry] = []
    for one, two in zip(
        copy_entries(case, first), copy_entries(case, second), strict=True
    ):
        pairs.append(None if one is None or two is None else join_entries(one, two))
    return pairs


def join_entries(
    first: tuple[torch.Tensor, torch.Tensor], second: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Put the keys and values of one layer behind those of another cache."""
    keys, values = (
        torch.cat(parts, dim=2) for parts in zip(first, second, strict=True)
    )
    return keys, values


def make_change(before: list[Entry], after: list[Entry]) -> Change | None:
    """Return what a join did; None: its caches cannot be read."""
    if not before or len(after) != len(before):
        return None
    return Change(before, after, [*range(PREFILLED)], SEGMENTS, POSITIONS)


def explain_missing(change: Change) -> str:
    """Name a wrong number of keys, with the tokens that are gone; empty: none is gone."""
    wrong_count = find_wrong_count(change.after, PREFILLED, "were joined")
    if not wrong_count:
        return ""
    for before, after in zip(change.before, change.after, strict=True):
        left_tokens = compare_tokens(before, after, change.keep)
        if left_tokens is not None and left_tokens.missing:
            return f"{wrong_count}: {describe_missing(left_tokens.missing)}"
    return wrong_count


def describe_missing(tokens: Sequence[int]) -> str:
    """Return in words which tokens of which fragment are missing."""
    parts = []
    for name, first, end in (
        ("first", 0, FRAGMENT),
        ("second", FRAGMENT, PREFILLED),
    ):
        numbers = [token - first for token in tokens if first <= token < end]
        if numbers:
            word = "token" if len(numbers) == 1 else "tokens"
            parts.append(f"{word} {list_ranges(numbers)} of the {name} fragment")
    return f"without {' and '.join(parts)}"


def explain_joining(
    case: Case, change: Change | None, got: Stages, position: int
) -> str:
    """Return in words what is wrong with two joined fragments; empty: it is not known.

    Args:
        case: the subject and its tokens.
        change: the keys and values before and after; None: they cannot be read.
        got: what the code computed behind the two fragments.
        position: the position of the next token.
    """
    if change is None:
        size = measure_size(got[-1], forgetting.compute_joined(case)[-1])
        guesses = list_guesses(position)
        return explain_closed_cache(case, guesses, [got], first_step=2, size=size)

    ordered = change.put_in_order()
    says = explain_tokens(change) or explain_change(case, ordered)
    if says:
        return says
    moves = measure_moves(case, ordered)
    if moves is None:
        guesses = list_guesses(position)
        return explain_unrotated_keys(case, guesses, [got], first_step=2)

    first, second = moves
    if second - first == FRAGMENT and position == PREFILLED + first:
        return describe_errors(case, ordered, moves)
    return f"{describe_moves(first, second)}, and {describe_count(position)}"


def explain_tokens(change: Change) -> str:
    """Name tokens that are missing, or whose values are those of other tokens."""
    wrong = find_wrong_layer(change)
    if wrong is None:
        return ""
    left_tokens = wrong.left_tokens
    if wrong.has_right_keys:
        return (
            f"{wrong.where}values are not those of their keys' tokens: they are those of"
            f" tokens {list_ranges(left_tokens.tokens)}, where those of the second"
            f" fragment begin with {FRAGMENT}"
        )
    says = f"{wrong.where}the joined cache is {describe_missing(left_tokens.missing)}"
    return f"{says}; others are there twice: {list_ranges(left_tokens.surplus)}"


def list_guesses(position: int) -> list[Guess]:
    """Return common mistakes of a join.

    ``position``: the position of the next token.
    """
    length = PREFILLED - FRAGMENT
    moves = [(0, by) for by in (0, FRAGMENT, -FRAGMENT, length, FRAGMENT - 1)]
    moves += [(0, by) for by in (FRAGMENT + 1, length - 1, length + 1, PREFILLED)]
    moves += [(0, by) for by in (-length, 1, -1)]
    moves += [(by, 0) for by in (length, FRAGMENT, -FRAGMENT, -length)]
    moves += [(by, by) for by in (FRAGMENT, -FRAGMENT)]
    counted = describe_count(position)
    guesses = []
    for first, second in moves:
        says = f"{describe_moves(first, second)}, and {counted}"
        guesses.append(make_guess(first, second, position, says))
    for moves_of_tokens, moved in list_half_rotations(POSITIONS):
        steps = make_steps(position, tuple(enumerate(moves_of_tokens)))
        guesses.append(Guess(steps, f"{moved}, and {counted}"))
    for first, second in ((0, FRAGMENT), (0, FRAGMENT - 1), (0, 0), (length, 0)):
        for token, name in (
            (FRAGMENT, "the first token of the second fragment is missing"),
            (FRAGMENT - 1, "the last token of the first fragment is missing"),
            (0, "the first token of the first fragment is missing"),
        ):
            guesses.append(make_guess(first, second, position, name, token))
    return guesses


def make_guess(
    first: int, second: int, position: int, says: str, missing: int | None = None
) -> Guess:
    """Return a join whose fragments are rotated by these numbers of positions.

    ``missing``: a token whose key is not in the joined cache.
    """
    seen = []
    for token in range(PREFILLED):
        if token != missing:
            seen.append((token, first if token < FRAGMENT else second))
    return Guess(make_steps(position, tuple(seen)), says)


def make_steps(position: int, seen: tuple[tuple[int, int], ...]) -> tuple[Step, ...]:
    """Return the steps of two fragments and the tokens behind them.

    Args:
        position: the position of the next token.
        seen: the tokens whose keys are joined, and the positions by which each key is
            rotated.
    """
    return (
        Step(0, FRAGMENT, 0),
        Step(FRAGMENT, PREFILLED, 0),
        Step(PREFILLED, TOKENS, position, seen),
    )


def describe_moves(first: int, second: int) -> str:
    """Return by how many positions the keys of both fragments are rotated, in words."""
    if second == 0 and first == PREFILLED - FRAGMENT:
        return "the second fragment is put in front of the first"
    if first:
        return (
            f"keys of the first fragment are rotated by {first:+d} positions, and those of"
            f" the second by {second:+d}, where 0 and {FRAGMENT:+d} put one behind the"
            " other"
        )
    if second == 0:
        return "keys of the second fragment are joined without a rotation"
    if second == FRAGMENT:
        return "keys of the second fragment are moved behind the first"
    return (
        f"keys of the second fragment are rotated by {second:+d} positions where"
        f" {FRAGMENT:+d} puts them behind the first"
    )


def describe_count(position: int) -> str:
    """Return where new tokens begin behind two fragments, in words."""
    says = f"new tokens are counted from {position}"
    if position != PREFILLED:
        says += f", where both fragments have {PREFILLED} tokens"
    return says
