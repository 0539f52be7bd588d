"""A cache that drops keys by itself and cannot be read: what its logits tell.

The first token whose logits differ from those of one pass is the first that does not see
all tokens before it. Then the right computations are tried with each number of first
tokens that stay, and with each number of tokens that are dropped at once. If none of them
has the logits of the code, common mistakes are tried.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor

from ropelab.conformance.laws import forgetting
from ropelab.conformance.laws.caches import CannotAskError
from ropelab.conformance.laws.eviction_guesses import (
    BY_LOGITS,
    Guess,
    find_guess,
    list_rolling_guesses,
)
from ropelab.conformance.laws.eviction_layouts import compute_layouts
from ropelab.conformance.laws.eviction_trace import EQUAL
from ropelab.conformance.laws.forgetting import EvictionSchedule, Part
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


class Right(NamedTuple):
    """A right computation, and the words for it."""

    says: str
    compute: partial[Stages]


def compare_closed_cache(
    case: Case,
    passes: Sequence[Stages],
    next_positions: Sequence[int | None],
    words: tuple[str, str, str],
) -> Comparison:
    """Compare the logits of a cache that drops keys with those of right caches.

    CannotAskError: they are those of no right cache, and of no known mistake.

    Args:
        case: the subject and its tokens.
        passes: what the code computed for each token.
        next_positions: the position of each token, as far as the code says it.
        words: the words for positions that are kept, for positions that are moved up,
            and for tokens that are computed anew.
    """
    got = [stage.clone() for stage in join_passes(passes)]
    first = find_first_difference(got, case.whole)
    later = range(first, TOKENS)
    answer = [stage[:, first:] for stage in got]

    for schedule in list_schedules(first):
        for right in list_right(case, schedule, words):
            # The first token tells most wrong schedules at little cost.
            if not is_first_right(case, schedule, right, answer):
                continue
            expected = right.compute(schedule=schedule)
            if measure_size(answer[-1], expected[-1]) <= EQUAL:
                held = first - schedule.sinks
                says = (
                    f"{right.says}; by its logits a token sees the first"
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
        raise CannotAskError(
            f"its cache drops nothing within {TOKENS} tokens: let it hold 20"
        )
    return int(wrong[0])


def list_schedules(first: int) -> Iterator[EvictionSchedule]:
    """Yield schedules that drop the first tokens before token ``first`` is read."""
    for run in RUNS:
        for sinks in SINKS:
            if sinks + run < first:
                yield make_schedule(sinks, first, run)


def make_schedule(sinks: int, first: int, run: int) -> EvictionSchedule:
    """Return a schedule that drops ``run`` tokens whenever the cache is full."""
    parts = [Part(0, first, ())]
    for number in range(first, TOKENS):
        dropped = (number - first) // run * run + run
        parts.append(Part(number, number + 1, tuple(range(sinks, sinks + dropped))))
    return EvictionSchedule(sinks, tuple(parts))


def list_right(
    case: Case, schedule: EvictionSchedule, words: tuple[str, str, str]
) -> Iterator[Right]:
    """Yield the right computations."""
    kept, moved, anew = words
    yield Right(kept, partial(forgetting.compute_kept, case))
    if schedule.sinks:
        yield Right(moved, partial(forgetting.compute_moved, case))
    yield Right(anew, partial(forgetting.compute_anew, case))


def is_first_right(
    case: Case, schedule: EvictionSchedule, right: Right, answer: Stages
) -> bool:
    """Return True if the first token behind the first drop has the right logits."""
    short = EvictionSchedule(schedule.sinks, schedule.parts[:2])
    expected = right.compute(schedule=short)[-1][:, :1]
    # The spread is that of all tokens.
    difference = (answer[-1][:, :1] - expected).abs().max() / answer[-1].std()
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
        likely = select_likely(case, guesses, answer[-1])
        guess = find_guess(case, likely, [answer], first_step=1)
        if guess is not None:
            stays = f" (the first {sinks} tokens stay)"
            return schedule, Guess(guess.steps, guess.says + stays)
    raise CannotAskError(NOT_TOLD)


def select_likely(case: Case, guesses: Sequence[Guess], logits: Tensor) -> list[Guess]:
    """Return the guesses that give the first token its logits.

    Few copies are needed for one token, and many guesses differ only later.
    """
    shortened = dict.fromkeys(guess.steps[:2] for guess in guesses)
    layouts = list(shortened)
    spread = float(logits.std())
    fitting = set()
    for steps, stages in zip(layouts, compute_layouts(case, layouts, 1), strict=True):
        difference = (stages[-1] - logits[:, :1]).abs().max()
        if float(difference) <= EQUAL * spread:
            fitting.add(steps)
    return [guess for guess in guesses if guess.steps[:2] in fitting]
