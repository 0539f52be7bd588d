"""Laws of a cache: reading in parts with a cache gives the logits of one pass.

The parts may be single tokens or rows of a padded batch, new tokens may be generated, and
the parts may cross the length at which the scaling of a model changes.
"""

from collections.abc import Sequence
from functools import partial

import torch

from ropelab.conformance.laws.batch import LENGTHS, compare_rows, make_batch
from ropelab.conformance.laws.caches import CannotAskError
from ropelab.conformance.laws.law import (
    TOKENS,
    Case,
    Comparison,
    Law,
    Trial,
    join_passes,
)
from ropelab.conformance.laws.subject import PerToken, Stages, Tokens

# The number of tokens of the text up to the length at which scaling may change.
PREFILLED = 24
# The number of tokens of a batch that are read or generated one by one.
GENERATED = 6
# The numbers of lengths that are looked at: below the length at which scaling may
# change, and from this length on.
LENGTHS_BEFORE = 3
LENGTHS_FROM = 6


def compare_parts(
    case: Case, sizes: Sequence[int], gives_positions: bool = False
) -> Comparison:
    """Compare one text in parts of these sizes with one pass.

    ``gives_positions``: True if the model is given positions.
    """
    positions = None
    if gives_positions:
        positions = case.make_positions(0)
    stages = read_in_parts(case, case.tokens, sizes, positions)
    return Comparison(stages, case.whole)


def read_in_parts(
    case: Case,
    tokens: Tokens,
    sizes: Sequence[int],
    positions: PerToken = None,
    segments: PerToken = None,
) -> Stages:
    """Read tokens in parts of these sizes, with one cache."""
    cache = case.subject.new_cache()
    passes = []
    end = 0

    for size in sizes:
        part = slice(end, end + size)
        end += size

        positions_of_part = None if positions is None else positions[:, part]
        # The segments belong to all tokens so far, also to the tokens in the cache.
        segments_so_far = None if segments is None else segments[:, :end]
        stages = case.subject.read(
            tokens[:, part], positions_of_part, segments_so_far, cache
        )
        passes.append(stages)
    return join_passes(passes)


def compare_batched(case: Case) -> Comparison:
    """Read a left-padded batch, its last tokens one by one, and compare with its texts."""
    tokens, segments, positions = make_batch(case, left=True)
    prefilled = TOKENS - GENERATED
    sizes = [prefilled] + GENERATED * [1]
    stages = read_in_parts(case, tokens, sizes, positions, segments)
    return compare_rows(case, stages, left=True)


def compare_generated(case: Case) -> Comparison:
    """Compare the logits that chose each new token with one pass over the result."""
    tokens, segments, _ = make_batch(case, left=True)
    new, logits = case.subject.generate(tokens, segments, GENERATED)
    texts = torch.cat([tokens, new.cpu()], dim=1)
    rows = texts.split(1)

    choosing_logits = []
    places: list[int] = []
    for row, length in zip(rows, LENGTHS, strict=True):
        text = row[:, TOKENS - length :]
        *_, logits_of_text = case.subject.read(text)
        # The logits at a token choose the next token.
        choosing_logits.append(logits_of_text[:, -GENERATED - 1 : -1])
        places += range(length, length + GENERATED)
    expected = torch.cat(choosing_logits)
    return Comparison([logits.to(expected.device)], [expected], places)


def compare_across(case: Case) -> Comparison:
    """Compare reading token by token with one pass for each length, around the length
    at which scaling may change.

    The positions of the text are chosen so that it crosses the trained length.
    """
    trained = case.subject.trained_length
    if trained is None:
        raise CannotAskError("no length is known at which its scaling could change")
    first = trained - PREFILLED
    if first < 0:
        raise CannotAskError(f"its trained length of {trained} is too short")

    lengths = range(PREFILLED - LENGTHS_BEFORE, PREFILLED + LENGTHS_FROM)
    count = len(lengths)
    sizes = [lengths.start - 1] + count * [1]
    positions = case.make_positions(first)
    steps = read_in_parts(case, case.tokens, sizes, positions)
    got = [stage[:, -count:] for stage in steps]

    last_tokens = []
    places = []
    for length in lengths:
        positions = case.make_positions(first, length)
        stages = case.subject.read(case.tokens[:, :length], positions)
        last_tokens.append([stage[:, -1:] for stage in stages])
        places.append(first + length - 1)
    return Comparison(
        got, join_passes(last_tokens), places, largest_position=trained + LENGTHS_FROM
    )


# The sizes of parts that have more than one token.
CHUNKS = (7, 7, 7, 7, 20)
CACHE = Law(
    "cache",
    "Do parts, steps and batches with a cache give the logits of one pass?",
    (
        Trial("token by token", partial(compare_parts, sizes=(1,) * TOKENS)),
        Trial("in chunks", partial(compare_parts, sizes=CHUNKS)),
        Trial(
            "chunks, positions",
            partial(compare_parts, sizes=CHUNKS, gives_positions=True),
        ),
        Trial("a padded batch", compare_batched),
        Trial("generate", compare_generated),
        Trial("at trained length", compare_across),
    ),
)
