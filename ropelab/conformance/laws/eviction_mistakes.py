"""What code that drops keys does in place of keeping their positions or moving them up.

Three things are looked at, the plainest first: the tokens that are left, by their
values; logits, which are compared with those of common mistakes; and each key, which is
compared with the key before it, rotated.
"""

from collections.abc import Sequence

from ropelab.conformance.laws.eviction_guesses import (
    describe_count,
    describe_moves,
    explain_logits,
)
from ropelab.conformance.laws.eviction_keys import explain_keys, measure_moves
from ropelab.conformance.laws.eviction_trace import (
    EvictionTrace,
    compare_tokens,
    find_distance,
    list_ranges,
    match_tokens,
)
from ropelab.conformance.laws.forgetting import PREFILLED
from ropelab.conformance.laws.law import TOKENS, Case
from ropelab.conformance.laws.moved import find_turns
from ropelab.conformance.laws.subject import Stages


def explain(case: Case, trace: EvictionTrace, answers: Sequence[Stages]) -> str:
    """Return the mistake in words; empty if none is known."""
    is_single = len(trace.schedule.parts) == 2
    says = explain_tokens(trace)
    if not says and is_single:
        says = explain_logits(case, trace, answers, measure_moves(case, trace))
    if not says and trace.after:
        says = explain_keys(case, trace)
    if not says and not is_single:
        says = explain_count(case, trace) or explain_repetition(case, trace)
    return says


def explain_tokens(trace: EvictionTrace) -> str:
    """Compare the tokens that are left in each layer with those to be kept."""
    for layer, (before, after) in enumerate(
        zip(trace.before, trace.after, strict=True)
    ):
        left = compare_tokens(before, after, trace.keep)
        if left is None or before is None or after is None:
            continue
        where = f"layer {layer}: " if layer else ""

        # Keys that are those of the right tokens have lost their values alone.
        if left.missing or left.is_reordered:
            keys_left = match_tokens(before[0], after[0])
            if keys_left == trace.keep:
                return f"{where}values are not those of their keys' tokens"
        if left.missing:
            missing = list_ranges(left.missing)
            says = f"{where}tokens that were to stay are dropped: {missing}"
            if left.surplus:
                says += f"; others are kept: {list_ranges(left.surplus)}"
            return says
    return ""


def explain_count(case: Case, trace: EvictionTrace) -> str:
    """Return where new tokens begin behind the first eviction, if they should not."""
    moves = measure_moves(case, trace)
    if moves is None or trace.first_position is None:
        return ""
    _, behind = moves
    # New tokens follow the newest key, whether it was moved or not.
    if trace.first_position == PREFILLED + behind:
        return ""
    moved = describe_moves(*moves, trace.gap)
    return f"{moved}, and {describe_count(trace.first_position, len(trace.keep))}"


def explain_repetition(case: Case, trace: EvictionTrace) -> str:
    """Look at the positions of keys after the last of several evictions.

    A key of the first layer depends on its own token and position alone.
    """
    if not trace.last or trace.last[0] is None:
        return ""
    distances = range(-TOKENS, TOKENS + 1)
    turn = find_turns(case, distances).get(0)
    cache = case.subject.new_cache()
    case.subject.read(case.tokens, case.make_positions(0), cache=cache)
    whole = case.subject.entries(cache)[0]
    if turn is None or whole is None:
        return ""

    last = trace.schedule.later_parts[-1]
    sinks = trace.schedule.sinks
    keep = [*range(sinks), *range(sinks + last.dropped, last.start)]
    left = compare_tokens(whole, trace.last[0], keep)
    if left is not None and left.missing:
        return (
            f"after {len(trace.schedule.later_parts)} evictions tokens"
            f" {list_ranges(left.missing)} are gone, which were to stay"
        )

    moves = []
    for slot, token in enumerate(keep):
        before = whole[turn.part][:, :, token]
        after = trace.last[0][turn.part][:, :, slot]
        moves.append(find_distance(before, after, distances, turn.images))
    return (
        f"after {len(trace.schedule.later_parts)} evictions keys are rotated by"
        f" {list_ranges(moves)} positions, where {-last.dropped} moves those behind the"
        " gap up"
    )
