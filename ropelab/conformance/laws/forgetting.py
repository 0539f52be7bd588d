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
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ropelab.conformance.laws.law import TOKENS, Case, join_passes
from ropelab.conformance.laws.subject import Stages

# The number of tokens that are read before the first eviction.
PREFILLED = 24
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
    # The number of tokens behind the sinks that were dropped until then.
    dropped: int


class EvictionSchedule(NamedTuple):
    """The first tokens that stay, and the parts in which a text is read."""

    sinks: int
    parts: tuple[Part, ...]

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
    before = Part(0, PREFILLED, 0)
    after = Part(PREFILLED, TOKENS, DROPPED)
    return EvictionSchedule(sinks, (before, after))


def roll_window(sinks: int) -> EvictionSchedule:
    """Return a schedule in which as many tokens are dropped as are then read."""
    parts = [Part(0, PREFILLED, 0)]
    for start in range(PREFILLED, TOKENS, STEP):
        dropped = start - PREFILLED + STEP
        parts.append(Part(start, start + STEP, dropped))
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


FRONT = drop_once(0)
MIDDLE = drop_once(SINKS)
ROLLING = roll_window(SINKS)


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
    first = schedule.sinks
    for part in schedule.later_parts:
        visible[part.start : part.end, first : first + part.dropped] = False
    return visible


def compute_moved(case: Case, schedule: EvictionSchedule) -> Stages:
    """Return what the later parts give if keys are moved up over each gap."""
    sinks = schedule.sinks
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


def compute_anew(case: Case, schedule: EvictionSchedule) -> Stages:
    """Return what the later parts give if the tokens that are left are read anew."""
    passes = []
    for part in schedule.later_parts:
        left = schedule.sinks + part.dropped
        sinks = case.tokens[:, : schedule.sinks]
        window = case.tokens[:, left : part.end]
        stages = case.subject.read(torch.cat([sinks, window], dim=1))
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
