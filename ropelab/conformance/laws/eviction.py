"""Laws of a cache that forgets: keys are dropped, and the others kept or moved up."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ropelab.conformance.laws import eviction_mistakes, forgetting, forgetting_cache
from ropelab.conformance.laws.caches import UnaskedError
from ropelab.conformance.laws.eviction_guesses import explain_joining
from ropelab.conformance.laws.eviction_trace import EQUAL, EvictionTrace
from ropelab.conformance.laws.forgetting import (
    DROPPED,
    FRAGMENT,
    FRONT,
    MIDDLE,
    PREFILLED,
    ROLLING,
    EvictionSchedule,
)
from ropelab.conformance.laws.law import (
    REFUSALS,
    TOKENS,
    Case,
    Comparison,
    Law,
    Statement,
    Trial,
    join_passes,
    measure_differences,
)
from ropelab.conformance.laws.moved import (
    fill_cache,
    find_turns,
    list_whole_entries,
    move_keys,
)
from ropelab.conformance.laws.subject import Function, Given, Stages

LATER = range(PREFILLED, TOKENS)
# Formats of 16 bits bring logits no further apart, as a share of their spread.
NEAR = 0.1
KEPT = "its own eviction keeps positions"
MOVED = "its own eviction moves positions up"
EITHER = (
    "its own eviction of the first keys keeps positions or moves them up, which is the"
    " same without sinks"
)
ANEW = "its own eviction computes the tokens that are left anew"
JOINED = "its own joining puts the second fragment behind the first"


def compare_with_kept(case: Case, schedule: EvictionSchedule) -> Comparison:
    """Drop keys of a cache, let positions go on, and compare with one pass."""
    require_rotated_keys(case)
    got = read_and_drop(case, schedule, move=False)
    return Comparison(got, forgetting.compute_kept(case, schedule), LATER)


def compare_with_moved(case: Case, schedule: EvictionSchedule) -> Comparison:
    """Drop keys of a cache, move the others up, and compare with one pass."""
    require_rotated_keys(case)
    got = read_and_drop(case, schedule, move=True)
    return Comparison(got, forgetting.compute_moved(case, schedule), LATER)


def require_rotated_keys(case: Case) -> None:
    """Raise UnaskedError where dropping keys changes their positions, or cannot be."""
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    list_whole_entries(case, cache, PREFILLED)
    if not isinstance(case.subject, Function):
        return
    if all(turn is None for turn in find_turns(case, [1]).values()):
        raise UnaskedError("its keys are cached before their rotation")


def read_and_drop(case: Case, schedule: EvictionSchedule, move: bool) -> Stages:
    """Read the parts of a text, and drop keys between them.

    Without `move` positions are kept and go on.
    """
    subject = case.subject
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    sinks = schedule.sinks
    dropped = 0
    passes = []
    for part in schedule.later_parts:
        now = part.dropped - dropped
        dropped = part.dropped
        keep_slots(case, cache, list_kept(part.start - dropped + now, sinks, now))
        first = part.start
        if move:
            move_slots(case, cache, sinks, -now)
            first -= dropped

        tokens = case.tokens[:, part.start : part.end]
        positions = case.make_positions(first, part.end - part.start)
        passes.append(subject.read(tokens, positions, cache=cache))
    return join_passes(passes)


def list_kept(held: int, sinks: int, dropped: int) -> list[int]:
    """Return the slots that stay when some behind the sinks are dropped."""
    return [*range(sinks), *range(sinks + dropped, held)]


def keep_slots(case: Case, cache: Any, slots: Sequence[int]) -> None:
    """Drop all keys and values but those in these slots."""
    index = torch.tensor(slots)
    for layer, entry in enumerate(case.subject.entries(cache)):
        if entry is not None:
            keys, values = (part[:, :, index.to(part.device)] for part in entry)
            case.subject.set_entry(cache, layer, (keys, values))


def move_slots(case: Case, cache: Any, first: int, by: int) -> None:
    """Rotate the keys from a slot on, as a cache of their own."""
    subject = case.subject
    before = subject.entries(cache)
    whole = [entry for entry in before if entry is not None]
    keep_slots(case, cache, range(first, whole[0][0].shape[2]))
    move_keys(case, cache, by)

    after = subject.entries(cache)
    for layer, (entry, moved) in enumerate(zip(before, after, strict=True)):
        if entry is None or moved is None:
            continue
        keys = torch.cat([entry[0][:, :, :first], moved[0]], dim=2)
        values = torch.cat([entry[1][:, :, :first], moved[1]], dim=2)
        subject.set_entry(cache, layer, (keys, values))


def compare_with_joined(case: Case) -> Comparison:
    """Put the keys of a fragment behind another's, moved, and read on."""
    require_rotated_keys(case)
    first = fill_cache(case, case.tokens[:, :FRAGMENT])
    second = fill_cache(case, case.tokens[:, FRAGMENT:PREFILLED])
    before = list_whole_entries(case, first, FRAGMENT)
    move_keys(case, second, FRAGMENT)
    after = list_whole_entries(case, second, PREFILLED - FRAGMENT)

    for layer, (start, end) in enumerate(zip(before, after, strict=True)):
        keys = torch.cat([start[0], end[0]], dim=2)
        values = torch.cat([start[1], end[1]], dim=2)
        case.subject.set_entry(first, layer, (keys, values))
    got = read_later(case, first, case.make_positions(PREFILLED, len(LATER)))
    explain = partial(explain_joining, case, got, PREFILLED)
    return Comparison(got, forgetting.compute_joined(case), LATER, explain=explain)


def read_later(case: Case, cache: Any, positions: Given) -> Stages:
    return case.subject.read(case.tokens[:, PREFILLED:], positions, cache=cache)


def find_count(case: Case) -> Statement:
    """Find what new tokens are counted from when the model is left to itself."""
    if isinstance(case.subject, Function):
        raise UnaskedError("it is given its positions")
    require_rotated_keys(case)
    keys = PREFILLED - DROPPED
    logits = []
    for positions in (
        None,
        case.make_positions(keys, len(LATER)),
        case.make_positions(PREFILLED, len(LATER)),
    ):
        cache = fill_cache(case, case.tokens[:, :PREFILLED])
        slots = list_kept(PREFILLED, MIDDLE.sinks, DROPPED)
        keep_slots(case, cache, slots)
        logits.append(read_later(case, cache, positions)[-1])

    alone, by_keys, going_on = logits
    from_keys = float(measure_differences(alone, by_keys).max())
    from_tokens = float(measure_differences(alone, going_on).max())
    if from_keys <= EQUAL and from_tokens <= EQUAL:
        return Statement("holds", "positions of new tokens do not show")
    if from_keys > EQUAL and from_tokens > EQUAL:
        return Statement("broken", "", min(from_keys, from_tokens))
    if from_keys <= EQUAL:
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
    """Let the model's own code drop keys, and find which of the two it does."""
    require_own_eviction(case)
    trace = EvictionTrace(schedule)
    answers = []
    for go_on in list_counts(case):
        answers.append(read_with_own_eviction(case, schedule, go_on, trace))
    if trace.fault:
        return Statement("broken", trace.fault)

    best = find_reference(case, schedule, answers)
    if not are_near(best.got, best.expected) and not are_shifts_kept(case):
        raise UnaskedError(
            "its logits change when all positions are shifted, so that passes cannot be"
            " compared"
        )
    explain = partial(eviction_mistakes.explain, case, trace, answers)
    return best._replace(explain=explain)


def find_reference(
    case: Case,
    schedule: EvictionSchedule,
    answers: Sequence[Stages],
) -> Comparison:
    """Return the first right computation that an answer equals, or the nearest one."""
    candidates = []
    later = range(schedule.start, TOKENS)
    for says, compute in list_references(schedule).items():
        expected = compute(case, schedule)
        for got in answers:
            candidates.append(Comparison(got, expected, later, says=says))
        # In a single layer keys that are moved up are those of a text without a gap.
        nearest = min(candidates, key=measure_size)
        if measure_size(nearest) <= EQUAL:
            break
    return nearest


def are_near(first: Stages, second: Stages) -> bool:
    size = float(measure_differences(first[-1], second[-1]).max())
    return size <= NEAR


def are_shifts_kept(case: Case) -> bool:
    """Return True if positions from DROPPED on give the logits of those from 0."""
    shifted = case.subject.read(case.tokens, case.make_positions(DROPPED))
    return are_near(shifted, case.whole)


def require_own_eviction(case: Case) -> None:
    """Raise UnaskedError where the code drops no keys, or a layer keeps not all."""
    subject = case.subject
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    if not isinstance(subject, Function):
        list_whole_entries(case, cache, PREFILLED)
    if subject.evicts:
        return

    missing = "it has no evict_keys(cache, keep)"
    try:
        subject.entries(cache)
    except UnaskedError as error:
        raise UnaskedError(f"{error}, and {missing}") from None
    raise UnaskedError(missing)


def list_counts(case: Case) -> list[bool]:
    """Return whether new tokens go on counting, or count from the number of keys.

    Code that is given positions and does not say which is asked for both.
    """
    says = hasattr(case.subject.code, "next_position")
    if says or not isinstance(case.subject, Function):
        return [True]
    return [True, False]


def list_references(
    schedule: EvictionSchedule,
) -> dict[str, Callable[[Case, EvictionSchedule], Stages]]:
    """Return the computations that are right, by what they are called."""
    if not schedule.sinks:
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
    """Read the parts of a text; the model's own code drops keys between them."""
    subject = case.subject
    sinks = schedule.sinks
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    held = PREFILLED
    dropped = 0
    passes = []
    for part in schedule.later_parts:
        keep = list_kept(held, sinks, part.dropped - dropped)
        dropped = part.dropped
        trace.remember_before(case, cache)
        subject.evict(cache, keep)
        trace.remember_after(case, cache, keep)
        if trace.is_reordered and part is not schedule.parts[-1]:
            raise UnaskedError("its slots do not stay in the order of their tokens")

        positions = None
        first = subject.find_next_position(cache)
        if trace.first_position is None:
            trace.first_position = first
        if first is None and isinstance(subject, Function):
            first = part.start if go_on else len(keep)
        if first is not None:
            positions = case.make_positions(first, part.end - part.start)

        tokens = case.tokens[:, part.start : part.end]
        try:
            passes.append(subject.read(tokens, positions, cache=cache))
        except REFUSALS as error:
            said = " ".join(str(error).split())[:60]
            trace.fault = trace.fault or (
                f"behind {len(keep)} kept keys the code raises"
                f" {type(error).__name__}: {said}"
            )
            return []
        held = len(keep) + part.end - part.start
    return join_passes(passes)


def compare_forgetting_cache(case: Case) -> Comparison | Statement:
    """Read token by token with a cache that forgets by itself, and find what it does."""
    subject = case.subject
    cache = subject.new_forgetting_cache()
    case = forgetting_cache.choose_tokens(case)
    steps = forgetting_cache.Steps(case)
    passes = []
    for number in range(TOKENS):
        first = subject.find_next_position(cache)
        positions = None if first is None else case.make_positions(first, 1)
        token = case.tokens[:, number : number + 1]
        passes.append(subject.read(token, positions, cache=cache))
        steps.remember(subject.entries(cache))

    candidates = []
    for schedule in steps.list_schedules():
        got = join_passes(passes[schedule.start :])
        candidates.append(find_reference(case, schedule, [got]))
    best = min(candidates, key=measure_size)
    explain = partial(forgetting_cache.explain, case, steps)
    return best._replace(explain=explain)


def measure_size(comparison: Comparison) -> float:
    logits = comparison.got[-1]
    return float(measure_differences(logits, comparison.expected[-1]).max())


def compare_own_joining(case: Case) -> Comparison:
    """Let the model's own code join the caches of two fragments, and read on."""
    first = fill_cache(case, case.tokens[:, :FRAGMENT])
    second = fill_cache(case, case.tokens[:, FRAGMENT:PREFILLED])
    cache = case.subject.join(first, second)
    position = case.subject.find_next_position(cache)
    positions = case.make_positions(
        PREFILLED if position is None else position, len(LATER)
    )
    got = read_later(case, cache, positions)
    explain = partial(explain_joining, case, got, position)
    return Comparison(
        got, forgetting.compute_joined(case), LATER, says=JOINED, explain=explain
    )


def price_kept(case: Case) -> Comparison:
    """Compare keys that keep their positions with a text of the tokens that stay."""
    require_rotated_keys(case)
    kept = forgetting.compute_kept(case, MIDDLE)
    return Comparison(kept, forgetting.compute_anew(case, MIDDLE), LATER)


def price_moved(case: Case, schedule: EvictionSchedule) -> Comparison:
    """Compare keys that are moved up with a text of the tokens that stay."""
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
        Trial("fragments joined", compare_with_joined),
        Trial("left to the model", find_count, once=True),
        Trial("own, front dropped", partial(compare_own_eviction, schedule=FRONT)),
        Trial("own, middle dropped", partial(compare_own_eviction, schedule=MIDDLE)),
        Trial("own, rolling", partial(compare_own_eviction, schedule=ROLLING)),
        Trial("own, fragments joined", compare_own_joining),
        Trial("own, by itself", compare_forgetting_cache),
        Trial("price: front dropped", partial(price_moved, schedule=FRONT), cost=True),
        Trial("price: kept", price_kept, cost=True),
        Trial("price: moved up", partial(price_moved, schedule=MIDDLE), cost=True),
        Trial("price: joined", price_joined, cost=True),
    ),
)
