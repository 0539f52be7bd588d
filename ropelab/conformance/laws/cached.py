"""Laws of a cache: one pass in parts, in a batch, by generation, and across a change of
scaling.
"""

from collections.abc import Sequence
from functools import partial

import torch

from ropelab.conformance.laws.batch import LENGTHS, compare_rows, make_batch
from ropelab.conformance.laws.law import TOKENS, Case, Law, Pair, Trial, join_passes
from ropelab.conformance.laws.subject import Given, Stages, Tokens, UnaskedError

PREFILLED = 24
GENERATED = 6
# Tokens around the length at which scaling may change.
BEFORE, BEYOND = 3, 6


def compare_parts(case: Case, sizes: Sequence[int], given: bool = False) -> Pair:
    return Pair(
        read_in_parts(case, case.tokens, sizes, case.at(0) if given else None),
        case.whole,
    )


def read_in_parts(
    case: Case,
    tokens: Tokens,
    sizes: Sequence[int],
    at: Given = None,
    segments: Given = None,
) -> Stages:
    cache, found, end = case.subject.new_cache(), [], 0
    for size in sizes:
        part, end = slice(end, end + size), end + size
        here = None if at is None else at[:, part]
        seen = None if segments is None else segments[:, :end]
        found.append(case.subject.read(tokens[:, part], here, seen, cache))
    return join_passes(found)


def compare_batched(case: Case) -> Pair:
    """Read a left-padded batch, its last tokens one by one."""
    tokens, segments, at = make_batch(case, left=True)
    sizes = [TOKENS - GENERATED, *[1] * GENERATED]
    return compare_rows(
        case, read_in_parts(case, tokens, sizes, at, segments), left=True
    )


def compare_generated(case: Case) -> Pair:
    """Compare the logits that chose each new token with one pass over the result."""
    tokens, segments, _ = make_batch(case, left=True)
    new, logits = case.subject.generate(tokens, segments, GENERATED)
    rows = torch.cat([tokens, new.cpu()], dim=1).split(1)
    texts = [
        row[:, TOKENS - length :] for row, length in zip(rows, LENGTHS, strict=True)
    ]
    expected = torch.cat(
        [case.subject.read(t)[-1][:, -GENERATED - 1 : -1] for t in texts]
    )
    places = [length + n for length in LENGTHS for n in range(GENERATED)]
    return Pair([logits.to(expected.device)], [expected], places)


def compare_across(case: Case) -> Pair:
    """Compare token by token with one pass of each length, where scaling may change."""
    turn = case.subject.across
    if turn is None:
        raise UnaskedError("no length is known at which its scaling could change")
    first, lengths = turn - PREFILLED, range(PREFILLED - BEFORE, PREFILLED + BEYOND)
    if first < 0:
        raise UnaskedError(f"its trained length of {turn} is too short")
    sizes = [PREFILLED - BEFORE - 1, *[1] * len(lengths)]
    steps = read_in_parts(case, case.tokens, sizes, case.at(first))
    whole = [case.subject.read(case.tokens[:, :n], case.at(first, n)) for n in lengths]
    expected = join_passes([[stage[:, -1:] for stage in stages] for stages in whole])
    got = [stage[:, -len(lengths) :] for stage in steps]
    return Pair(got, expected, [first + n - 1 for n in lengths], reach=turn + BEYOND)


CHUNKS = (7, 7, 7, 7, 20)
CACHE = Law(
    "cache",
    "Do parts, steps and batches with a cache give the logits of one pass?",
    (
        Trial("token by token", partial(compare_parts, sizes=(1,) * TOKENS)),
        Trial("in chunks", partial(compare_parts, sizes=CHUNKS)),
        Trial("chunks, positions", partial(compare_parts, sizes=CHUNKS, given=True)),
        Trial("a padded batch", compare_batched),
        Trial("generate", compare_generated),
        Trial("at trained length", compare_across),
    ),
)
