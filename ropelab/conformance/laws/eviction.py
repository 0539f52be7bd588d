"""Laws of evictions: some keys are dropped from a cache, and all other keys stay or are
moved up.

An eviction leaves a gap. The keys behind the gap either keep their positions, and new
tokens go on counting; or they are moved up by the gap, which rotates them, and new
tokens count from the number of keys. Both are right. A schedule says which tokens are
read, and how many are dropped between them. Sinks are the first tokens, which a schedule
may keep. A slot is the place of a key in the cache. Trials with `own` in their names ask
the model's own code to drop keys. In all other trials this file drops and moves keys.

The right answers are computed in one pass without a cache (`forgetting`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from ropelab.conformance.laws import (
    eviction_mistakes,
    forgetting,
    forgetting_cache,
    forgetting_closed,
    joining,
    rows,
)
from ropelab.conformance.laws.caches import CannotAskError
from ropelab.conformance.laws.eviction_trace import (
    EQUAL,
    EvictionTrace,
    copy_entries,
)
from ropelab.conformance.laws.forgetting import (
    ANEW,
    DROPPED,
    EITHER,
    FRONT,
    FRONT_AND_MIDDLE,
    KEPT,
    LATER,
    MIDDLE,
    MOVED,
    PREFILLED,
    ROLLING,
    TWO_GAPS,
    EvictionSchedule,
    choose_different_tokens,
    list_kept,
    list_left,
)
from ropelab.conformance.laws.law import (
    DESCRIBED_IN_SENTENCE,
    REFUSALS,
    TOKENS,
    Case,
    Comparison,
    Law,
    Statement,
    Trial,
    describe_in_line,
    join_passes,
    measure_size,
)
from ropelab.conformance.laws.moved import (
    fill_cache,
    find_turns,
    list_whole_entries,
    move_keys,
)
from ropelab.conformance.laws.subject import Function, PerToken, Stages

# The largest difference of logits, as a share of their spread, that rounding to 16 bits
# explains.
ROUNDING_TO_16_BITS = 0.1


def compare_with_kept(case: Case, schedule: EvictionSchedule) -> Comparison:
    """Drop keys of a cache, let positions go on, and compare with one pass."""
    require_rotated_keys(case)
    got = read_and_drop(case, schedule, move=False)
    return Comparison(got, forgetting.compute_kept(case, schedule), LATER)


def compare_with_moved(case: Case, schedule: EvictionSchedule) -> Comparison:
    """Drop keys of a cache, move the keys behind them up, and compare with one pass."""
    require_rotated_keys(case)
    got = read_and_drop(case, schedule, move=True)
    return Comparison(got, forgetting.compute_moved(case, schedule), LATER)


def require_rotated_keys(case: Case) -> None:
    """Raise CannotAskError unless all keys can be read, and are rotated in the cache.

    If a model rotates keys only when it reads them, dropping keys already changes the
    positions of all keys behind the gap.
    """
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    list_whole_entries(case, cache, PREFILLED)
    if not isinstance(case.subject, Function):
        return
    if all(turn is None for turn in find_turns(case, [1]).values()):
        raise CannotAskError("its keys are cached before their rotation")


def read_and_drop(case: Case, schedule: EvictionSchedule, move: bool) -> Stages:
    """Read the parts of a text, and drop keys between them.

    With ``move`` keys behind the gap are moved up; otherwise positions go on.
    """
    subject = case.subject
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    sinks = schedule.sinks
    dropped_before = 0
    passes = []
    for part in schedule.later_parts:
        gap = part.dropped - dropped_before
        key_count = part.start - dropped_before
        keep_slots(case, cache, list_kept(key_count, sinks, gap))
        dropped_before = part.dropped
        first = part.start
        if move:
            move_slots(case, cache, sinks, -gap)
            first -= part.dropped

        tokens = case.tokens[:, part.start : part.end]
        positions = case.make_positions(first, part.end - part.start)
        passes.append(subject.read(tokens, positions, cache=cache))
    return join_passes(passes)


def keep_slots(case: Case, cache: Any, slots: Sequence[int]) -> None:
    """Drop all keys and values that are not in these slots."""
    index = torch.tensor(slots)
    for layer, entry in enumerate(case.subject.entries(cache)):
        if entry is not None:
            keys, values = (part[:, :, index.to(part.device)] for part in entry)
            case.subject.set_entry(cache, layer, (keys, values))


def move_slots(case: Case, cache: Any, first: int, by: int) -> None:
    """Rotate the keys from slot ``first`` on by some positions.

    `move_keys` moves all keys of a cache, so that the keys before slot ``first`` are
    taken out meanwhile.
    """
    subject = case.subject
    before = subject.entries(cache)
    some_keys, _ = next(entry for entry in before if entry is not None)
    key_count = some_keys.shape[2]
    keep_slots(case, cache, range(first, key_count))
    move_keys(case, cache, by)

    after = subject.entries(cache)
    for layer, (entry, moved) in enumerate(zip(before, after, strict=True)):
        if entry is None or moved is None:
            continue
        old_keys, old_values = entry
        moved_keys, moved_values = moved
        keys = torch.cat([old_keys[:, :, :first], moved_keys], dim=2)
        values = torch.cat([old_values[:, :, :first], moved_values], dim=2)
        subject.set_entry(cache, layer, (keys, values))


def join_with_rotated_keys(case: Case) -> Comparison:
    """Join the caches of two fragments; the keys of the second are moved here."""
    require_rotated_keys(case)
    return joining.compare_with_joined(case)


def join_two_rows(case: Case) -> Comparison | Statement:
    """Let the model's own code join caches with two rows."""
    return refuse_statement(joining.compare_own_joining(rows.double(case)))


def drop_of_two_rows(case: Case, schedule: EvictionSchedule) -> Comparison | Statement:
    """Let the model's own code drop keys of two rows."""
    return refuse_statement(compare_own_eviction(rows.double(case), schedule))


def refuse_statement(answer: Comparison | Statement) -> Comparison:
    """Return the comparison of two rows.

    CannotAskError: the code raises an error, or keeps another number of keys. With one
    row this is a mistake, which other trials show. Code may be made for one row alone.
    """
    if isinstance(answer, Statement):
        raise CannotAskError(f"with two rows: {answer.says}")
    return answer


def read_later(case: Case, cache: Any, positions: PerToken) -> Stages:
    """Read the tokens that follow the tokens in the cache. With positions None, the
    model counts its own.
    """
    return case.subject.read(case.tokens[:, PREFILLED:], positions, cache=cache)


def find_count(case: Case) -> Statement:
    """Find the number from which a model counts new tokens if it is given no positions.

    The model's logits are compared with the logits of both possible numbers.
    """
    if isinstance(case.subject, Function):
        raise CannotAskError("it is given its positions")
    require_rotated_keys(case)

    def read_behind_gap(positions: PerToken) -> Tensor:
        cache = fill_cache(case, case.tokens[:, :PREFILLED])
        slots = list_kept(PREFILLED, MIDDLE.sinks, DROPPED)
        keep_slots(case, cache, slots)
        *_, logits = read_later(case, cache, positions)
        return logits

    number_of_keys = PREFILLED - DROPPED
    own_logits = read_behind_gap(None)
    logits_from_keys = read_behind_gap(case.make_positions(number_of_keys, len(LATER)))
    logits_from_tokens = read_behind_gap(case.make_positions(PREFILLED, len(LATER)))

    off_from_keys = measure_size(own_logits, logits_from_keys)
    off_from_tokens = measure_size(own_logits, logits_from_tokens)
    counts_keys = off_from_keys <= EQUAL
    counts_tokens = off_from_tokens <= EQUAL
    if counts_keys and counts_tokens:
        return Statement("holds", "positions of new tokens do not show")
    if not counts_keys and not counts_tokens:
        return Statement("broken", "", min(off_from_keys, off_from_tokens))
    if counts_keys:
        says = (
            "left to itself, the model counts new tokens from the number of cached"
            " keys: move keys up, or give position_ids that go on"
        )
        return Statement("holds", says)
    says = "left to itself, the model goes on counting: keep the positions of keys"
    return Statement("holds", says)


def compare_own_eviction(
    case: Case, schedule: EvictionSchedule
) -> Comparison | Statement:
    """Let the model's own code drop keys, and compare with each right computation."""
    require_own_eviction(case)
    case = choose_different_tokens(case)
    # The answers of the code, for each way of counting that it may expect.
    answers = []
    traces = []
    for go_on in list_counts(case):
        trace = EvictionTrace(schedule)
        answers.append(read_with_own_eviction(case, schedule, go_on, trace))
        if trace.fault:
            return Statement("broken", trace.fault)
        traces.append(trace)

    # The cache does not depend on the positions of new tokens.
    trace = traces[0]
    comparisons = []
    for row, row_case in enumerate(rows.split(case)):
        row_answers = [rows.select(answer, row) for answer in answers]
        nearest = find_reference(row_case, schedule, row_answers)
        if not are_near(nearest.got, nearest.expected) and not are_shifts_kept(
            row_case
        ):
            raise CannotAskError(
                "its logits change when all positions are shifted, so that passes cannot"
                " be compared"
            )
        row_trace = trace.select_row(row)
        explain = partial(
            eviction_mistakes.explain,
            row_case,
            row_trace,
            row_answers,
            nearest.size,
        )
        comparisons.append(nearest._replace(explain=explain))
    return rows.find_worst(comparisons)


def compare_own_gaps(case: Case, schedule: EvictionSchedule) -> Comparison | Statement:
    """Let the model's own code drop several runs of tokens at once.

    Code that refuses this, and says so, is not broken.
    """
    require_own_eviction(case)
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    (part,) = schedule.later_parts
    try:
        case.subject.evict(cache, list_left(part))
    except (NotImplementedError, ValueError) as error:
        said = describe_in_line(error)[:DESCRIBED_IN_SENTENCE]
        raise CannotAskError(
            f"it refuses to drop several runs of tokens at once: {said}"
        ) from None
    return compare_own_eviction(case, schedule)


def find_reference(
    case: Case,
    schedule: EvictionSchedule,
    answers: Sequence[Stages],
) -> Comparison:
    """Return the comparison of an answer with the first right computation that it equals.

    If none is equal, it is the comparison with the smallest difference.
    """
    candidates = []
    later = range(schedule.start, TOKENS)
    for says, compute in list_references(schedule).items():
        expected = compute(case, schedule)
        for got in answers:
            candidates.append(Comparison(got, expected, later, says=says))
        # Once a right computation equals the answer, the remaining computations are not
        # compared, and the result is named by this one. Several may be equal: a model
        # of one layer, for example, computes the same for keys that are moved up and
        # for a text without the dropped tokens.
        nearest = min(candidates, key=attrgetter("size"))
        if nearest.size <= EQUAL:
            break
    return nearest


def are_near(first: Stages, second: Stages) -> bool:
    """Return True for logits that differ by no more than rounding to 16 bits."""
    return measure_size(first[-1], second[-1]) <= ROUNDING_TO_16_BITS


def are_shifts_kept(case: Case) -> bool:
    """Return True if the text has nearly the same logits at shifted positions."""
    # Rounding to 16 bits may look like a difference. The model is asked in float32, too.
    if case.dtype in (torch.bfloat16, torch.float16):
        return True
    shifted = case.subject.read(case.tokens, case.make_positions(DROPPED))
    return are_near(shifted, case.whole)


def require_own_eviction(case: Case) -> None:
    """Raise CannotAskError unless the code can drop keys, and all layers keep all keys."""
    subject = case.subject
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    if not isinstance(subject, Function):
        list_whole_entries(case, cache, PREFILLED)
    if subject.evicts:
        return

    missing = "it has no evict_keys(cache, keep)"
    try:
        subject.entries(cache)
    except CannotAskError as error:
        raise CannotAskError(f"{error}, and {missing}") from None
    raise CannotAskError(missing)


def list_counts(case: Case) -> list[bool]:
    """Return the ways of counting that the code is asked with.

    True: new tokens go on counting; False: they count from the number of keys. Code
    that is given positions, and does not say which positions it expects, is asked in
    both ways. All other code counts itself, and the way does not matter.
    """
    tells_position = hasattr(case.subject.code, "next_position")
    if tells_position or not isinstance(case.subject, Function):
        return [True]
    return [True, False]


def list_references(
    schedule: EvictionSchedule,
) -> dict[str, Callable[[Case, EvictionSchedule], Stages]]:
    """Return the computations that are right, by the words for them."""
    if not schedule.sinks and not schedule.has_several_gaps:
        return {EITHER: forgetting.compute_kept, ANEW: forgetting.compute_anew}
    return {
        KEPT: forgetting.compute_kept,
        MOVED: forgetting.compute_moved,
        ANEW: forgetting.compute_anew,
    }


def read_with_own_eviction(
    case: Case,
    schedule: EvictionSchedule,
    go_on: bool,
    trace: EvictionTrace,
) -> Stages:
    """Read the parts of a text; the model's own code drops keys between them.

    ``trace`` remembers the caches, and a fault at which reading stops. ``go_on``: see
    `list_counts`.
    """
    subject = case.subject
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    held = list(range(PREFILLED))
    passes = []
    for part in schedule.later_parts:
        keep = [slot for slot, token in enumerate(held) if token not in part.gone]
        held = [*[held[slot] for slot in keep], *range(part.start, part.end)]
        trace.remember_before(case, cache)
        subject.evict(cache, keep)
        trace.remember_after(case, cache, keep)
        if trace.is_reordered and part is not schedule.parts[-1]:
            raise CannotAskError("its slots do not stay in the order of their tokens")

        positions = None
        first = subject.find_next_position(cache)
        trace.next_positions.append(first)
        if first is None and isinstance(subject, Function):
            first = part.start if go_on else len(keep)
        if first is not None:
            positions = case.make_positions(first, part.end - part.start)

        tokens = case.tokens[:, part.start : part.end]
        try:
            passes.append(subject.read(tokens, positions, cache=cache))
        except REFUSALS as error:
            said = describe_in_line(error)[:DESCRIBED_IN_SENTENCE]
            trace.fault = trace.fault or (
                f"behind {len(keep)} kept keys the code raises"
                f" {type(error).__name__}: {said}"
            )
            return []
    return join_passes(passes)


def compare_forgetting_cache(case: Case) -> Comparison | Statement:
    """Read token by token with a cache that drops keys by itself.

    The values in the cache show which tokens the cache has dropped (`Steps`). The
    answers are compared with what is right for each schedule that drops these tokens. Of
    a cache that cannot be read, logits are compared with those of common schedules.
    """
    subject = case.subject
    cache = subject.new_forgetting_cache()
    case = forgetting_cache.choose_tokens(case)
    steps: forgetting_cache.Steps | None = None
    passes = []
    next_positions = []
    for number in range(TOKENS):
        position = subject.find_next_position(cache)
        next_positions.append(position)
        positions = None if position is None else case.make_positions(position, 1)
        token = case.tokens[:, number : number + 1]
        passes.append(subject.read(token, positions, cache=cache))

        entries = copy_entries(case, cache)
        is_open = any(entry is not None for entry in entries)
        if is_open and not number:
            steps = forgetting_cache.Steps(case)
        if steps is not None:
            try:
                steps.remember(entries)
            except forgetting_cache.WrongValuesError as error:
                return Statement("broken", str(error))
    if steps is None:
        return forgetting_closed.compare_closed_cache(case, passes, next_positions)

    candidates = []
    for schedule in steps.list_schedules():
        got = join_passes(passes[schedule.start :])
        candidates.append(find_reference(case, schedule, [got]))
    nearest = min(candidates, key=attrgetter("size"))
    explain = partial(forgetting_cache.explain, case, steps)
    return nearest._replace(explain=explain)


def price_kept(case: Case) -> Comparison:
    """Compare reading with keys that keep their positions, and reading a text that has
    only the tokens that stay.
    """
    require_rotated_keys(case)
    stages_of_kept = forgetting.compute_kept(case, MIDDLE)
    return Comparison(stages_of_kept, forgetting.compute_anew(case, MIDDLE), LATER)


def price_moved(case: Case, schedule: EvictionSchedule) -> Comparison:
    """Compare reading with keys that are moved up, and reading a text that has only the
    tokens that stay.
    """
    require_rotated_keys(case)
    moved = forgetting.compute_moved(case, schedule)
    return Comparison(moved, forgetting.compute_anew(case, schedule), LATER)


def price_joined(case: Case) -> Comparison:
    """Compare two fragments that were read apart with one text."""
    require_rotated_keys(case)
    whole = [stage[:, PREFILLED:] for stage in case.whole]
    return Comparison(forgetting.compute_joined(case), whole, LATER)


EVICTION = Law(
    "eviction",
    "Are keys that stay, when others are dropped, read at their positions?",
    (
        Trial("positions kept", partial(compare_with_kept, schedule=ROLLING)),
        Trial("moved up", partial(compare_with_moved, schedule=ROLLING)),
        Trial("fragments joined", join_with_rotated_keys),
        Trial("left to the model", find_count, once=True),
        Trial("own, front dropped", partial(compare_own_eviction, schedule=FRONT)),
        Trial("own, middle dropped", partial(compare_own_eviction, schedule=MIDDLE)),
        Trial("own, two gaps", partial(compare_own_gaps, schedule=TWO_GAPS)),
        Trial(
            "own, front and middle dropped",
            partial(compare_own_gaps, schedule=FRONT_AND_MIDDLE),
        ),
        Trial("own, rolling", partial(compare_own_eviction, schedule=ROLLING)),
        Trial("own, two rows", partial(drop_of_two_rows, schedule=MIDDLE)),
        Trial("own, fragments joined", joining.compare_own_joining),
        Trial("own, two rows joined", join_two_rows),
        Trial("own, by itself", compare_forgetting_cache),
        Trial("price: front dropped", partial(price_moved, schedule=FRONT), cost=True),
        Trial("price: kept", price_kept, cost=True),
        Trial("price: moved up", partial(price_moved, schedule=MIDDLE), cost=True),
        Trial("price: joined", price_joined, cost=True),
    ),
)
