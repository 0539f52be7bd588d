"""Name the mistake of code that drops keys from its cache.

Three things are looked at, the plainest first: the tokens that are left, by their
values; logits, which are compared with the logits of common mistakes; and each key,
which is compared with the same key before the eviction, rotated. After several
evictions the positions of the keys that are left in the end are looked at instead.
"""

from collections.abc import Iterator, Sequence

from ropelab.conformance.laws.eviction_guesses import (
    describe_count,
    describe_moves,
    explain_logits,
)
from ropelab.conformance.laws.eviction_keys import explain_keys, measure_moves
from ropelab.conformance.laws.eviction_trace import (
    EvictionTrace,
    are_equal,
    compare_tokens,
    find_distance,
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


def explain(case: Case, trace: EvictionTrace, answers: Sequence[Stages]) -> str:
    """Return the mistake in words; empty if the code made no known mistake.

    Args:
        case: the model and its tokens.
        trace: the cache before and after evictions.
        answers: what the code computed for the tokens after the evictions.
    """
    has_one_eviction = len(trace.schedule.later_parts) == 1
    says = explain_tokens(trace)
    if not says and has_one_eviction:
        says = explain_logits(case, trace, answers, measure_moves(case, trace))
    if not says and trace.after:
        says = explain_keys(case, trace)
    if not says and not has_one_eviction:
        says = explain_count(case, trace) or explain_repetition(case, trace)
    return says


def explain_tokens(trace: EvictionTrace) -> str:
    """Name tokens that the first eviction dropped or kept by mistake, in any layer."""
    for layer, (before, after) in enumerate(
        zip(trace.before, trace.after, strict=True)
    ):
        left_tokens = compare_tokens(before, after, trace.keep)
        if left_tokens is None or before is None or after is None:
            continue
        where = f"layer {layer}: " if layer else ""

        # The tokens that are left were recognised by their values. If the keys belong
        # to the right tokens, the values are wrong.
        if left_tokens.missing or left_tokens.is_reordered:
            old_keys, _ = before
            new_keys, _ = after
            # A rotation keeps the lengths of keys.
            old_lengths = old_keys[:, :, trace.keep].norm(dim=-1)
            new_lengths = new_keys.norm(dim=-1)
            if are_equal(new_lengths, old_lengths):
                return f"{where}values are not those of their keys' tokens"
        if left_tokens.missing:
            missing = list_ranges(left_tokens.missing)
            says = f"{where}tokens that were to stay are dropped: {missing}"
            if left_tokens.surplus:
                says += f"; others are kept: {list_ranges(left_tokens.surplus)}"
            return says
    return ""


def explain_count(case: Case, trace: EvictionTrace) -> str:
    """Return in words where new tokens begin after the first eviction, if wrongly."""
    moves = measure_moves(case, trace)
    if moves is None or trace.first_position is None:
        return ""
    in_front, behind = moves
    # New tokens follow the newest key, whether it was moved or not.
    if trace.first_position == PREFILLED + behind:
        return ""
    moved = describe_moves(in_front, behind, trace.gap)
    return f"{moved}, and {describe_count(trace.first_position, len(trace.keep))}"


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
