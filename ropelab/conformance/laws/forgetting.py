"""The right answers after keys were dropped from a cache, computed without a cache.

Keys are dropped from a cache behind its first tokens, the sinks. What later tokens must
see then depends on the positions that the remaining keys are given:

- Positions are kept (`compute_kept`): keys keep the positions at which they were
  computed, and new tokens go on counting. This is a pass over the whole text in which
  later tokens cannot see the dropped tokens. It is exact in every layer, because tokens
  that were read before the eviction still see the dropped tokens.
- Positions are moved up (`compute_moved`): keys behind the gap move next to the sinks,
  and new tokens count from the number of keys. A score depends only on the difference
  of positions, so that the sinks may move towards the other keys instead. A sink sees
  only sinks, so that a copy of the sinks further on has the same contents. This is a
  pass over the text and the copies, in which later tokens see the copies in place of
  the sinks.
- The tokens that are left are read anew (`compute_anew`). In all layers but the first they
  then have other contents, because they never saw the dropped tokens.

If several runs of tokens are dropped at once, there are several gaps. Keys are then moved
up by all gaps in front of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropelab.conformance.laws.eviction_layouts import Step, compute_layouts
from ropelab.conformance.laws.law import TOKENS, Case, join_passes
from ropelab.conformance.laws.subject import Stages

# The right outcome of an eviction.
KEPT = "its own eviction keeps positions"
MOVED = "its own eviction moves positions up"
EITHER = (
    "its own eviction of the first keys keeps positions or moves them up, which is the"
    " same without sinks"
)
ANEW = "its own eviction computes the tokens that are left anew"
# What is said of a cache that should drop keys by itself, and holds them all.
DROPS_NOTHING = f"its cache drops nothing within {TOKENS} tokens: let it hold 20"
# The number of tokens that are read before the first eviction.
PREFILLED = 24
# The tokens that are read after the first eviction.
LATER = range(PREFILLED, TOKENS)
# The number of first tokens that stay.
SINKS = 4
# The number of keys that are dropped if there is one eviction.
DROPPED = 8
# The number of tokens that are read, and of keys that are dropped, at each step of a
# rolling window.
STEP = 4
# The number of tokens of the first of two fragments that are joined. The second
# fragment has the remaining PREFILLED tokens.
FRAGMENT = 8


class Part(NamedTuple):
    """Tokens that are read in one pass, from ``start`` to before ``end``."""

    start: int
    end: int
    # The tokens that were dropped until then, in ascending order.
    gone: tuple[int, ...]

    @property
    def dropped(self) -> int:
        """The number of tokens that were dropped until then."""
        return len(self.gone)


class EvictionSchedule(NamedTuple):
    """The first tokens that stay, and the parts in which a text is read."""

    sinks: int
    parts: tuple[Part, ...]

    @property
    def has_several_gaps(self) -> bool:
        """True if dropped tokens are not all neighbours."""
        *_, last = self.parts
        return last.dropped > 0 and last.gone[-1] - last.gone[0] >= last.dropped

    @property
    def later_parts(self) -> tuple[Part, ...]:
        """The parts before which tokens were dropped: all but the first."""
        return self.parts[1:]

    @property
    def start(self) -> int:
        """The first token that is read after tokens were dropped."""
        first_part = self.parts[0]
        return first_part.end


def drop_once(sinks: int) -> EvictionSchedule:
    """Return a schedule with one eviction."""
    before = Part(0, PREFILLED, ())
    after = Part(PREFILLED, TOKENS, tuple(range(sinks, sinks + DROPPED)))
    return EvictionSchedule(sinks, (before, after))


def drop_twice(sinks: int, first: int, between: int) -> EvictionSchedule:
    """Return a schedule with one eviction that leaves two gaps.

    Args:
        sinks: the number of first tokens, which stay.
        first: the number of tokens in the first gap. Both gaps have DROPPED tokens.
        between: the number of tokens that stay between the gaps.
    """
    start = sinks + first + between
    gone = (*range(sinks, sinks + first), *range(start, start + DROPPED - first))
    before = Part(0, PREFILLED, ())
    return EvictionSchedule(sinks, (before, Part(PREFILLED, TOKENS, gone)))


def roll_window(sinks: int) -> EvictionSchedule:
    """Return a schedule in which as many tokens are dropped as are then read."""
    parts = [Part(0, PREFILLED, ())]
    for start in range(PREFILLED, TOKENS, STEP):
        dropped = start - PREFILLED + STEP
        gone = tuple(range(sinks, sinks + dropped))
        parts.append(Part(start, start + STEP, gone))
    return EvictionSchedule(sinks, tuple(parts))


def roll_by_token(sinks: int, dropped: Sequence[int]) -> EvictionSchedule:
    """Return a schedule that reads token by token from the first drop on.

    Args:
        sinks: the number of first tokens, which stay.
        dropped: the number of tokens that were dropped when each token is read.
    """
    start = TOKENS - 1
    for number, count in enumerate(dropped):
        if count:
            start = number
            break
    parts = [Part(0, start, ())]
    for number in range(start, TOKENS):
        gone = tuple(range(sinks, sinks + dropped[number]))
        parts.append(Part(number, number + 1, gone))
    return EvictionSchedule(sinks, tuple(parts))


def list_kept(key_count: int, sinks: int, dropped: int) -> list[int]:
    """Return the slots that stay when some keys behind the sinks are dropped. A slot is
    the place of a key in the cache.

    Args:
        key_count: the number of keys in the cache before.
        sinks: the number of first keys, which stay.
        dropped: the number of keys that are dropped behind the sinks.
    """
    return [*range(sinks), *range(sinks + dropped, key_count)]


def choose_different_tokens(case: Case) -> Case:
    """Return the same case with tokens that all differ, if there are enough of them.

    Values in the first layer then tell which token is in a slot.
    """
    ids = case.subject.vocabulary
    if ids < TOKENS:
        return case
    # The first ids mostly belong to special tokens, which are left out if others suffice.
    first = min(4, ids // 2)
    if ids - first < TOKENS:
        first = 0

    random = torch.Generator().manual_seed(0)
    texts = []
    for _ in case.tokens:
        order = torch.randperm(ids - first, generator=random)
        texts.append(first + order[:TOKENS])
    return case.with_tokens(torch.stack(texts))


FRONT = drop_once(0)
MIDDLE = drop_once(SINKS)
ROLLING = roll_window(SINKS)
# The two gaps have different lengths, so that mistakes of one are not those of the other.
TWO_GAPS = drop_twice(SINKS, first=3, between=5)
# The first tokens and some in the middle are dropped.
FRONT_AND_MIDDLE = drop_twice(0, first=3, between=5)


def compute_kept(case: Case, schedule: EvictionSchedule) -> Stages:
    """Return what the later parts give if keys keep their positions."""
    visible = hide_dropped(schedule)
    stages = case.subject.read(
        case.tokens, case.make_positions(0), visible=visible[None]
    )
    return [stage[:, schedule.start :] for stage in stages]


def hide_dropped(schedule: EvictionSchedule) -> Tensor:
    """Return a mask [queries, keys]: True if a token sees a token before it, or itself.

    No token that is read after an eviction sees a dropped token.
    """
    visible = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    for part in schedule.later_parts:
        visible[part.start : part.end, list(part.gone)] = False
    return visible


def compute_moved(case: Case, schedule: EvictionSchedule) -> Stages:
    """Return what the later parts give if keys are moved up over each gap."""
    sinks = schedule.sinks
    if schedule.has_several_gaps:
        return compute_moved_over_gaps(case, schedule)
    if not sinks:
        return compute_kept(case, schedule)

    # Behind the text come the copies of the sinks, one for each later part.
    copies = len(schedule.later_parts)
    length = TOKENS + copies * sinks
    visible = torch.zeros(length, length, dtype=torch.bool)
    visible[:TOKENS, :TOKENS] = hide_dropped(schedule)
    tokens = [case.tokens]
    positions = [case.make_positions(0)]

    start = TOKENS
    for part in schedule.later_parts:
        end = start + sinks
        tokens.append(case.tokens[:, :sinks])
        positions.append(case.make_positions(part.dropped, sinks))
        visible[start:end, start:end] = torch.ones(sinks, sinks).tril().bool()
        visible[part.start : part.end, :sinks] = False
        visible[part.start : part.end, start:end] = True
        start = end

    stages = case.subject.read(
        torch.cat(tokens, dim=1), torch.cat(positions, dim=1), visible=visible[None]
    )
    return [stage[:, schedule.start : TOKENS] for stage in stages]


def compute_moved_over_gaps(case: Case, schedule: EvictionSchedule) -> Stages:
    """Return what the only later part gives if keys are moved up over several gaps."""
    (part,) = schedule.later_parts
    left = list_left(part)
    seen = tuple((token, place - token) for place, token in enumerate(left))
    steps = (
        Step(0, part.start, 0),
        Step(part.start, part.end, len(left), seen),
    )
    (stages,) = compute_layouts(case, [steps], first_step=1)
    return stages


def list_left(part: Part) -> list[int]:
    """Return the tokens in front of a part that were not dropped."""
    return [token for token in range(part.start) if token not in part.gone]


def compute_anew(case: Case, schedule: EvictionSchedule) -> Stages:
    """Return what the later parts give if the tokens that are left are read anew."""
    passes = []
    for part in schedule.later_parts:
        read = [*list_left(part), *range(part.start, part.end)]
        stages = case.subject.read(case.tokens[:, read])
        length = part.end - part.start
        passes.append([stage[:, -length:] for stage in stages])
    return join_passes(passes)


def compute_joined(case: Case) -> Stages:
    """Return the answers for tokens that follow two joined fragments, where neither
    fragment saw the other.
    """
    visible = separate_fragments()
    stages = case.subject.read(
        case.tokens, case.make_positions(0), visible=visible[None]
    )
    return [stage[:, PREFILLED:] for stage in stages]


def separate_fragments() -> Tensor:
    """Return a mask [queries, keys]: True if a token sees a token before it, or itself.

    The second fragment does not see the first, and later tokens see both.
    """
    visible = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    visible[FRAGMENT:PREFILLED, :FRAGMENT] = False
    return visible
