"""A cache that drops keys by itself and cannot be read: what its logits tell.

The first token whose logits differ from those of one pass is the first that does not see
all tokens before it. Then the right computations are tried with each number of first
tokens that stay, and with each number of tokens that are dropped at once. If none of them
has the logits of the code, common mistakes are tried.
"""

from collections.abc import Callable, Iterator, Sequence

from ropelab.conformance.laws import forgetting
from ropelab.conformance.laws.caches import CannotAskError
from ropelab.conformance.laws.eviction_guesses import (
    BY_LOGITS,
    Guess,
    find_guess,
)
from ropelab.conformance.laws.eviction_layouts import compute_layouts
from ropelab.conformance.laws.eviction_rolling import list_rolling_guesses
from ropelab.conformance.laws.eviction_trace import EQUAL
from ropelab.conformance.laws.forgetting import (
    ANEW,
    DROPS_NOTHING,
    KEPT,
    MOVED,
    EvictionSchedule,
    roll_by_token,
)
from ropelab.conformance.laws.law import (
    TOKENS,
    Case,
    Comparison,
    join_passes,
    measure_differences,
    measure_size,
)
from ropelab.conformance.laws.subject import Stages

# The numbers of first tokens that may stay, the likeliest first.
SINKS = (4, 0, 1, 2, 3, 5, 6, 7, 8)
# The numbers of tokens that may be dropped at once.
RUNS = (1, 2, 4, 8)
NOT_TOLD = (
    "its cache cannot be read, and its logits do not tell which tokens it holds at which"
    " positions: give it layers with keys and values"
)


def compare_closed_cache(
    case: Case,
    passes: Sequence[Stages],
    next_positions: Sequence[int | None],
) -> Comparison:
    """Compare the logits of a cache that drops keys with those of right caches.

    CannotAskError: they are those of no right cache, and of no known mistake.

    Args:
        case: the subject and its tokens.
        passes: what the code computed for each token.
        next_positions: the position of each token, as far as the code says it.
    """
    got = [stage.clone() for stage in join_passes(passes)]
    first = find_first_difference(got, case.whole)
    later = range(first, TOKENS)
    answer = [stage[:, first:] for stage in got]

    for schedule in list_schedules(first):
        # The first token tells most wrong schedules at little cost.
        first_drop = EvictionSchedule(schedule.sinks, schedule.parts[:2])
        for right, compute in list_references(schedule).items():
            if not is_first_equal(answer, compute(case, first_drop)):
                continue
            expected = compute(case, schedule)
            if measure_size(answer[-1], expected[-1]) <= EQUAL:
                held = first - schedule.sinks
                says = (
                    f"{right}; by its logits a token sees the first"
                    f" {schedule.sinks} tokens and at most the last {held}"
                )
                return Comparison(answer, expected, later, says=says)

    schedule, guess = find_mistake(case, first, answer, next_positions[first:])
    expected = forgetting.compute_kept(case, schedule)
    return Comparison(
        answer, expected, later, explain=lambda: f"{BY_LOGITS} {guess.says}"
    )


def find_first_difference(got: Stages, whole: Stages) -> int:
    """Return the first token with other logits than in one pass."""
    differences = measure_differences(got[-1], whole[-1])
    wrong = (differences > EQUAL).nonzero().flatten().tolist()
    if not wrong:
        raise CannotAskError(DROPS_NOTHING)
    return int(wrong[0])


def list_schedules(first: int) -> Iterator[EvictionSchedule]:
    """Yield schedules that drop the first tokens before token ``first`` is read."""
    for run in RUNS:
        for sinks in SINKS:
            if sinks + run < first:
                yield make_schedule(sinks, first, run)


def make_schedule(sinks: int, first: int, run: int) -> EvictionSchedule:
    """Return a schedule that drops ``run`` tokens whenever the cache is full."""
    dropped = [0] * first
    for number in range(TOKENS - first):
        dropped.append(number // run * run + run)
    return roll_by_token(sinks, dropped)


def list_references(
    schedule: EvictionSchedule,
) -> dict[str, Callable[[Case, EvictionSchedule], Stages]]:
    """Return the computations that are right, by the words for them."""
    references: dict[str, Callable[[Case, EvictionSchedule], Stages]] = {
        KEPT: forgetting.compute_kept,
    }
    if schedule.sinks:
        references[MOVED] = forgetting.compute_moved
    references[ANEW] = forgetting.compute_anew
    return references


def is_first_equal(answer: Stages, expected: Stages) -> bool:
    """Return True if the first token has these logits, by the spread of all tokens."""
    *_, logits = answer
    *_, expected_logits = expected
    difference = (logits[:, :1] - expected_logits[:, :1]).abs().max() / logits.std()
    return float(difference) <= EQUAL


def find_mistake(
    case: Case,
    first: int,
    answer: Stages,
    next_positions: Sequence[int | None],
) -> tuple[EvictionSchedule, Guess]:
    """Return a mistake that has the logits of the code, and its schedule."""
    for sinks in SINKS:
        if sinks + 1 >= first:
            continue
        schedule = make_schedule(sinks, first, run=1)
        guesses = list(list_rolling_guesses(schedule, next_positions, is_by_token=True))
        likely = select_likely(case, guesses, answer)
        guess = find_guess(case, likely, [answer], first_step=1)
        if guess is not None:
            stays = f" (the first {sinks} tokens stay)"
            return schedule, Guess(guess.steps, guess.says + stays)
    raise CannotAskError(NOT_TOLD)


def select_likely(case: Case, guesses: Sequence[Guess], answer: Stages) -> list[Guess]:
    """Return the guesses that give the first token its logits.

    Few copies are needed for one token, and many guesses differ only later.
    """
    shortened = dict.fromkeys(guess.steps[:2] for guess in guesses)
    layouts = list(shortened)
    fitting = set()
    for steps, stages in zip(layouts, compute_layouts(case, layouts, 1), strict=True):
        if is_first_equal(answer, stages):
            fitting.add(steps)
    return [guess for guess in guesses if guess.steps[:2] in fitting]
