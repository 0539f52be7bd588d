"""Laws of one pass without a cache: shifted positions, padded batches, packed rows.

A law asks for two computations that must agree. Each of its trials is one way to ask; in
a trial with `cost=True` the two computations may differ, and their difference is
reported as the cost of an approximation.

A packed row holds two texts, the second after the first. Positions may restart with the
second, and a mask may keep the two apart.
"""

from functools import partial

import torch
from torch import Tensor

from ropelab.conformance.laws.caches import CannotAskError
from ropelab.conformance.laws.law import (
    TOKENS,
    Case,
    Comparison,
    Law,
    Trial,
    join_passes,
)
from ropelab.conformance.laws.subject import Stages

# The lengths of the texts in a padded batch.
LENGTHS = (TOKENS, 31, 7)
# The numbers by which positions are shifted. With the last two numbers, positions in
# integers of 16 bits overflow within the text: at 32,768 with a sign, at 65,536
# without.
SHIFTS = (1, 1000, 32744, 65512)
# The index in a packed row of the first token of the second text.
SECOND_BEGIN = 17


def compare_shifted(case: Case, by: int) -> Comparison:
    """Compare positions from `by` on with positions from 0."""
    got = case.subject.read(case.tokens, case.make_positions(by))
    # A model that does not use positions gives equal logits, too. To recognise such a
    # model, the distances of tokens are doubled: its logits are equal even then.
    if are_equal(got, case.whole):
        doubled_positions = 2 * case.make_positions(0)
        doubled = case.subject.read(case.tokens, doubled_positions)
        if are_equal(doubled, case.whole):
            raise CannotAskError(
                "its logits do not depend on the positions that are given"
            )
    return Comparison(got, case.whole, largest_position=by + TOKENS)


def are_equal(first: Stages, second: Stages) -> bool:
    """Return True if all stages are equal bit for bit."""
    return all(map(torch.equal, first, second))


def compare_padded(case: Case, left: bool, gives_positions: bool) -> Comparison:
    """Compare a padded batch with each of its texts read by itself.

    Args:
        case: the model.
        left: True for padding on the left.
        gives_positions: False if the model is given only the mask.
    """
    tokens, segments, positions_of_rows = make_batch(case, left)
    given_positions = positions_of_rows if gives_positions else None
    stages = case.subject.read(tokens, given_positions, segments)
    return compare_rows(case, stages, left)


def make_batch(case: Case, left: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return padded rows of the first tokens, their segments and their positions.

    The segment is 1 for a token of the text and 0 for padding.
    """
    tokens = torch.zeros(len(LENGTHS), TOKENS, dtype=torch.long)
    segments = torch.zeros_like(tokens)
    for row, length in enumerate(LENGTHS):
        if left:
            text = slice(TOKENS - length, TOKENS)
        else:
            text = slice(0, length)
        tokens[row, text] = case.tokens[0, :length]
        segments[row, text] = 1

    positions = segments.cumsum(dim=1) - 1
    return tokens, segments, positions.clamp(min=0)


def compare_rows(case: Case, got: Stages, left: bool) -> Comparison:
    """Compare the answers for a padded batch with the answers for each of its texts
    read by itself.
    """
    _, segments, positions = make_batch(case, left)
    is_text = segments.bool()
    got = [stage[is_text.to(stage.device)] for stage in got]

    separate_stages = []
    for length in LENGTHS:
        separate_stages.append(case.subject.read(case.tokens[:, :length]))
    places = positions[is_text].tolist()
    return Comparison(got, join_passes(separate_stages), places)


def compare_packed(
    case: Case,
    restarted: bool,
    masked: bool,
    sink: bool = False,
) -> Comparison:
    """Compare two texts in one row with each text read by itself.

    Args:
        case: the model.
        restarted: True if positions restart with the second text.
        masked: True if a mask keeps the texts apart.
        sink: True if both begin with the token that texts begin with.
    """
    # A function of tokens, positions and a mask leaves it to the mask to separate texts.
    # Restarted positions alone mean nothing to it.
    only_restarted = restarted and not masked
    if only_restarted and not case.subject.separates_restarts:
        raise CannotAskError("it separates texts by a mask, not by their positions")

    lengths = [SECOND_BEGIN, TOKENS - SECOND_BEGIN]
    positions = case.make_positions(0)
    segments = 1 + (positions >= SECOND_BEGIN).long()
    if restarted:
        parts = [case.make_positions(0, length) for length in lengths]
        positions = torch.cat(parts, dim=1)
    tokens = case.tokens.clone()
    if sink:
        tokens[:, [0, SECOND_BEGIN]] = case.subject.first_token

    got = case.subject.read(tokens, positions, segments if masked else None)
    texts = tokens.split(lengths, dim=1)
    separate_stages = [case.subject.read(text) for text in texts]
    return Comparison(got, join_passes(separate_stages))


SHIFT = Law(
    "shift",
    "Do positions from 0 and from k give the same logits?",
    tuple(Trial(f"by {by:,}", partial(compare_shifted, by=by)) for by in SHIFTS),
)
PADDING = Law(
    "padding",
    "Is a row in a padded batch read as it is read alone?",
    (
        Trial(
            "left, positions", partial(compare_padded, left=True, gives_positions=True)
        ),
        Trial(
            "left, mask alone",
            partial(compare_padded, left=True, gives_positions=False),
        ),
        Trial(
            "right, mask alone",
            partial(compare_padded, left=False, gives_positions=False),
        ),
    ),
)
UNMARKED = partial(compare_packed, restarted=False, masked=False)
PACKING = Law(
    "packing",
    "Are packed texts read as they are read apart?",
    (
        Trial(
            "restarted, no mask", partial(compare_packed, restarted=True, masked=False)
        ),
        Trial("restarted, mask", partial(compare_packed, restarted=True, masked=True)),
        Trial(
            "mask alone",
            partial(compare_packed, restarted=False, masked=True),
            cost=True,
        ),
        Trial("neither", UNMARKED, cost=True),
        Trial("neither, with BOS", partial(UNMARKED, sink=True), cost=True),
    ),
)
