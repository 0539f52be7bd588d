"""Texts of which tokens are forgotten, computed anew without a cache.

Keys are dropped from a cache behind its first tokens, the sinks. What later tokens must
see then depends on where the other keys are said to be:

- Positions are kept: keys stay where they were computed, and new tokens go on counting.
  A pass over the whole text in which later tokens cannot see the dropped ones is exact
  in every layer, because dropped tokens were seen by those that were read before.
- Positions are moved up: keys behind the gap are those of positions without a gap, and
  new tokens count from the number of keys. Positions enter a score by their difference
  alone, so that the sinks may move towards the others instead. A sink sees only sinks,
  and a second copy of them further on has the same contents. A pass over the text and
  such copies, in which later tokens see the copies in place of the sinks, is exact too.
- A text without the dropped tokens has other contents in all layers but the first,
  where keys and values depend on their own token alone.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ropelab.conformance.laws.law import TOKENS, Case, join_passes
from ropelab.conformance.laws.subject import Stages

PREFILLED = 24
SINKS = 4
DROPPED = 8
# Tokens that are read, and keys that are dropped, at each step of a rolling window.
STEP = 4
# The length of the first of two fragments that are joined.
FRAGMENT = 8


class Part(NamedTuple):
    """Tokens that are read in one pass, when some before them were dropped."""

    start: int
    end: int
    # The number of tokens behind the sinks that are gone by then.
    dropped: int


class EvictionSchedule(NamedTuple):
    """The first tokens that stay, and the parts in which a text is read."""

    sinks: int
    parts: tuple[Part, ...]

    @property
    def later_parts(self) -> tuple[Part, ...]:
        """All parts but the first, before which nothing was dropped."""
        return self.parts[1:]

    @property
    def start(self) -> int:
        """The first token that is read when others were dropped."""
        return self.parts[0].end


def drop_once(sinks: int) -> EvictionSchedule:
    whole = Part(0, PREFILLED, 0)
    rest = Part(PREFILLED, TOKENS, DROPPED)
    return EvictionSchedule(sinks, (whole, rest))


def roll_window(sinks: int) -> EvictionSchedule:
    """Return a schedule in which as many tokens are dropped as are then read."""
    parts = [Part(0, PREFILLED, 0)]
    for start in range(PREFILLED, TOKENS, STEP):
        dropped = start - PREFILLED + STEP
        parts.append(Part(start, start + STEP, dropped))
    return EvictionSchedule(sinks, tuple(parts))


FRONT = drop_once(0)
MIDDLE = drop_once(SINKS)
ROLLING = roll_window(SINKS)


def compute_kept(case: Case, schedule: EvictionSchedule) -> Stages:
    """Return the later parts, computed where keys stay at their positions."""
    visible = hide_dropped(schedule)
    stages = case.subject.read(
        case.tokens, case.make_positions(0), visible=visible[None]
    )
    return [stage[:, schedule.start :] for stage in stages]


def hide_dropped(schedule: EvictionSchedule) -> Tensor:
    """Return True [queries, keys] where a token sees an earlier one."""
    visible = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    first = schedule.sinks
    for part in schedule.later_parts:
        visible[part.start : part.end, first : first + part.dropped] = False
    return visible


def compute_moved(case: Case, schedule: EvictionSchedule) -> Stages:
    """Return the later parts, computed where keys are moved up over each gap."""
    sinks = schedule.sinks
    if not sinks:
        return compute_kept(case, schedule)

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
    """Return the later parts, each read behind the tokens that are left."""
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
    """Return tokens behind two fragments of which neither saw the other."""
    visible = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    visible[FRAGMENT:PREFILLED, :FRAGMENT] = False
    stages = case.subject.read(
        case.tokens, case.make_positions(0), visible=visible[None]
    )
    return [stage[:, PREFILLED:] for stage in stages]
