"""Laws of a cache: one pass in parts, in a batch, by generation, and across a change of scaling."""

from collections.abc import Sequence
from functools import partial

import torch

from ropelab.laws.batch import LENGTHS, batch
from ropelab.laws.law import TOKENS, Case, Law, Pair, Trial, places_of, rows_of
from ropelab.laws.subject import Stages, UnaskedError

PREFILLED = 24
GENERATED = 6
# Tokens around the length at which scaling may change.
BEFORE, BEYOND = 3, 6


def in_parts(case: Case, sizes: Sequence[int], given: bool = False) -> Pair:
    parts = read_in_parts(case, sizes, given)
    spans = [(0, 0, TOKENS)]
    return Pair(rows_of(parts, spans), rows_of(case.whole, spans), places_of(spans))


def read_in_parts(case: Case, sizes: Sequence[int], given: bool, first: int = 0) -> Stages:
    cache, found, at = case.subject.new_cache(), [], 0
    for size in sizes:
        positions = case.at(first + at, size) if given else None
        tokens = case.tokens[:, at : at + size]
        found.append(case.subject.read(tokens, positions, cache=cache))
        at += size
    return [torch.cat(stages, dim=1) for stages in zip(*found, strict=True)]


def batched(case: Case) -> Pair:
    """Read a left-padded batch, its last tokens one by one."""
    tokens, segments, spans = batch(case, left=True)
    at = (segments.cumsum(dim=1) - 1).clamp(min=0)
    cache, found = case.subject.new_cache(), []
    ends = [TOKENS - GENERATED + n for n in range(GENERATED + 1)]
    for first, end in zip([0, *ends], ends, strict=False):
        part = slice(first, end)
        found.append(case.subject.read(tokens[:, part], at[:, part], segments[:, :end], cache))
    got = [torch.cat(stages, dim=1) for stages in zip(*found, strict=True)]
    alone = [case.subject.read(case.tokens[:, :length]) for length in LENGTHS]
    expected = [torch.cat([stage[0] for stage in stages]) for stages in zip(*alone, strict=True)]
    return Pair(rows_of(got, spans), expected, places_of(spans))


def generated(case: Case) -> Pair:
    """Compare the logits that chose each new token with one pass over the result."""
    tokens, segments, spans = batch(case, left=True)
    new, logits = case.subject.generate(tokens, segments, GENERATED)
    whole = torch.cat([tokens, new.cpu()], dim=1)
    expected = []
    for row, first, _ in spans:
        stages = case.subject.read(whole[row : row + 1, first:])
        expected.append(stages[-1][0, -GENERATED - 1 : -1])
    got = logits.to(expected[0].device).flatten(0, 1)
    places = [length + n for length in LENGTHS for n in range(GENERATED)]
    return Pair([got], [torch.cat(expected)], places)


def across(case: Case) -> Pair:
    """Compare token by token with one pass of each length, where scaling may change."""
    turn = case.subject.across
    if turn is None:
        raise UnaskedError("no length is known at which its scaling could change")
    first, lengths = turn - PREFILLED, range(PREFILLED - BEFORE, PREFILLED + BEYOND)
    if first < 0:
        raise UnaskedError(f"its trained length of {turn} is too short")
    steps = read_in_parts(case, [PREFILLED - BEFORE - 1, *[1] * len(lengths)], True, first)
    whole = [case.subject.read(case.tokens[:, :n], case.at(first, n)) for n in lengths]
    expected = [torch.stack([stage[0, -1] for stage in s]) for s in zip(*whole, strict=True)]
    got = [stage[0, -len(lengths) :] for stage in steps]
    return Pair(got, expected, [first + n - 1 for n in lengths], reach=turn + BEYOND)


CHUNKS = (7, 7, 7, 7, 20)
BEHIND = "tokens behind a cache have other positions, masks or keys than in one pass"
COUNTED = "count positions on from the cache, rotate each key once, mask the future in every part"
CACHE = Law(
    "cache",
    "Do parts, steps and batches with a cache give the logits of one pass?",
    (
        Trial("token by token", partial(in_parts, sizes=(1,) * TOKENS), BEHIND, COUNTED),
        Trial("in chunks", partial(in_parts, sizes=CHUNKS), BEHIND, COUNTED),
        Trial("chunks, positions", partial(in_parts, sizes=CHUNKS, given=True), BEHIND, COUNTED),
        Trial(
            "a padded batch",
            batched,
            "rows of several lengths lose their positions or their padding behind a cache",
            "count each row's positions on from its own length; mask padding in the cache, too",
        ),
        Trial(
            "generate",
            generated,
            "generate() gives other positions, masks or caches than one pass has",
            "look at prepare_inputs_for_generation; pad on the right, or not at all, until then",
        ),
        Trial(
            "at trained length",
            across,
            "frequencies change there, and cached keys keep the former ones",
            "compute the whole text anew when it passes that length",
        ),
    ),
)
