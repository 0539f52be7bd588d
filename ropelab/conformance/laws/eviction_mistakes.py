"""Name the mistake of code that drops keys from its cache.

If the cache can be read, three things are looked at after each eviction: the tokens that
are left, by their values; values and keys, which are compared with the same ones before
the eviction; and the position of the next token. After several evictions the positions of
the keys that are left in the end are looked at, too. Of a cache that cannot be read,
logits are compared with those of common mistakes.
"""

from collections.abc import Iterator, Sequence

from ropelab.conformance.laws.eviction_guesses import (
    Guess,
    describe_count,
    describe_moves,
    explain_closed_cache,
    explain_unrotated_keys,
    guess_count,
    list_single_guesses,
)
from ropelab.conformance.laws.eviction_keys import (
    are_moved_rightly,
    describe_errors,
    explain_change,
    measure_moves,
)
from ropelab.conformance.laws.eviction_rolling import list_rolling_guesses
from ropelab.conformance.laws.eviction_trace import (
    Change,
    EvictionTrace,
    compare_tokens,
    find_distance,
    find_wrong_layer,
    list_ranges,
)
from ropelab.conformance.laws.forgetting import (
    PREFILLED,
    EvictionSchedule,
    list_kept,
)
from ropelab.conformance.laws.law import TOKENS, Case
from ropelab.conformance.laws.moved import find_turns
from ropelab.conformance.laws.subject import Stages


def explain(
    case: Case, trace: EvictionTrace, answers: Sequence[Stages], size: float
) -> str:
    """Return the mistake in words; empty if the code made no known mistake.

    Args:
        case: the model and its tokens.
        trace: the cache before and after evictions.
        answers: what the code computed for the tokens after the evictions.
        size: the difference from the right logits, over their spread.
    """
    if not trace.changes:
        guesses = list_guesses(trace)
        return explain_closed_cache(case, guesses, answers, first_step=1, size=size)
    if len(trace.schedule.later_parts) == 1:
        (change,) = trace.changes
        return explain_entries(case, change) or explain_positions(case, trace, answers)

    for number, change in enumerate(trace.changes):
        says = explain_entries(case, change)
        if says and number:
            says = f"at eviction {number + 1}: {says}"
        says = says or explain_step(case, trace, number)
        if says:
            return says
    return explain_later_positions(case, trace, answers)


def list_guesses(trace: EvictionTrace) -> Iterator[Guess]:
    """Return common mistakes of one eviction or several, the plainest first."""
    if len(trace.schedule.later_parts) == 1:
        return list_single_guesses(trace)
    return list_rolling_guesses(trace.schedule, trace.next_positions)


def explain_entries(case: Case, change: Change) -> str:
    """Return in words what is wrong with the keys or values that an eviction left."""
    return explain_tokens(change) or explain_change(case, change.put_in_order())


def explain_tokens(change: Change) -> str:
    """Name tokens that an eviction dropped or kept by mistake, in any layer."""
    wrong = find_wrong_layer(change)
    if wrong is None:
        return ""
    if wrong.has_right_keys:
        return f"{wrong.where}values are not those of their keys' tokens"
    missing = list_ranges(wrong.left_tokens.missing)
    says = f"{wrong.where}tokens that were to stay are dropped: {missing}"
    if wrong.left_tokens.surplus:
        says += f"; others are kept: {list_ranges(wrong.left_tokens.surplus)}"
    return says


def explain_positions(
    case: Case, trace: EvictionTrace, answers: Sequence[Stages]
) -> str:
    """Return in words the positions of keys and of the next token after one eviction."""
    (change,) = trace.changes
    ordered = change.put_in_order()
    moves = measure_moves(case, ordered)
    if moves is None:
        return explain_unrotated_keys(case, list_guesses(trace), answers, first_step=1)

    moved = describe_moves(moves, change.segments)
    count = guess_count(case, trace, answers, moves)
    if count is None:
        errors = describe_errors(case, ordered, moves)
        return errors or moved
    follows = count == PREFILLED + moves[-1]
    if follows and are_moved_rightly(moves, change.segments):
        return describe_errors(case, ordered, moves)
    return f"{moved}, and {describe_count(count, len(trace.keep))}"


def explain_later_positions(
    case: Case, trace: EvictionTrace, answers: Sequence[Stages]
) -> str:
    """Return in words the positions of keys and of new tokens after several evictions."""
    first_moves = measure_moves(case, trace.changes[0])
    if first_moves is None:
        return explain_unrotated_keys(case, list_guesses(trace), answers, first_step=1)

    for change in trace.changes:
        moves = measure_moves(case, change)
        if moves is not None and moves == first_moves:
            errors = describe_errors(case, change, moves)
            if errors:
                return errors
    return explain_repetition(case, trace)


def explain_step(case: Case, trace: EvictionTrace, number: int) -> str:
    """Return in words wrong positions of keys or new tokens at one of several evictions.

    Whether later evictions move keys as the first one did, is looked at in the end.
    """
    change = trace.changes[number]
    moves = measure_moves(case, change)
    if moves is None:
        return ""
    if not number and not are_moved_rightly(moves, change.segments):
        return describe_moves(moves, change.segments)

    # The position behind the newest key before the eviction.
    newest_end = PREFILLED
    if number:
        before = trace.next_positions[number - 1]
        if before is None:
            return ""
        part = trace.schedule.later_parts[number - 1]
        newest_end = before + part.end - part.start
    position = trace.next_positions[number]
    # New tokens follow the newest key, whether it was moved or not.
    follows = newest_end + moves[-1]
    if position is None or position == follows:
        return ""
    if number:
        return (
            f"after {number + 1} evictions new tokens are counted from {position}, where"
            f" {follows} follows the newest key"
        )
    moved = describe_moves(moves, change.segments)
    return f"{moved}, and {describe_count(position, len(change.keep))}"


def explain_repetition(case: Case, trace: EvictionTrace) -> str:
    """Return in words where keys are after the last of several evictions.

    In the first layer a key depends only on its token and position, so that it can be
    compared with the key of that token in a pass over the whole text.
    """
    # The entries belong to the first layer.
    left_entry = trace.last[0] if trace.last else None
    if left_entry is None:
        return ""
    *_, last = trace.schedule.later_parts
    keep = list_kept(last.start, trace.schedule.sinks, last.dropped)
    mistakes = dict(list_wrong_repetitions(trace.schedule, keep))
    # Where keys are moved too often, they are moved further than the text is long.
    distances = sorted({*range(-TOKENS, TOKENS + 1)}.union(*mistakes.values()))
    turn = find_turns(case, distances).get(0)
    cache = case.subject.new_cache()
    case.subject.read(case.tokens, case.make_positions(0), cache=cache)
    whole_entry = case.subject.entries(cache)[0]
    if turn is None or whole_entry is None:
        return ""

    count = len(trace.schedule.later_parts)
    left_tokens = compare_tokens(whole_entry, left_entry, keep)
    if left_tokens is not None and left_tokens.missing:
        return (
            f"after {count} evictions tokens {list_ranges(left_tokens.missing)} are gone,"
            " which were to stay"
        )

    moves = []
    for slot, token in enumerate(keep):
        before = whole_entry[turn.part][:, :, token]
        after = left_entry[turn.part][:, :, slot]
        moves.append(find_distance(before, after, distances, turn.rotated_units))
    known = [answer for answer, wrong in mistakes.items() if wrong == moves]
    lead = f"{known[0]}: " if known else ""
    return (
        f"{lead}after {count} evictions keys are rotated by {list_ranges(moves)} positions,"
        f" where {-last.dropped} moves those behind the gap up"
    )


def list_wrong_repetitions(
    schedule: EvictionSchedule, tokens: Sequence[int]
) -> Iterator[tuple[str, list[int]]]:
    """Yield evictions that are right once and wrong later, each with the positions by
    which it has rotated the keys of these tokens after the last eviction.
    """
    # The tokens that were dropped up to each eviction.
    dropped = [part.dropped for part in schedule.later_parts]
    first_alone = [0] * len(dropped)
    first_alone[0] = -dropped[0]
    # The positions by which each eviction rotates keys.
    turns_by_answer = {
        "the first eviction alone moves keys up": first_alone,
        "each eviction moves keys by all that was ever dropped": [-n for n in dropped],
    }

    for answer, turns in turns_by_answer.items():
        moves = []
        for token in tokens:
            # The evictions that came before the token was read.
            before = sum(part.start <= token for part in schedule.later_parts)
            # Its position was the number of keys, which is smaller by what was dropped.
            offset = -dropped[before - 1] if before else 0
            is_sink = token < schedule.sinks
            moves.append(0 if is_sink else offset + sum(turns[before:]))
        yield answer, moves
