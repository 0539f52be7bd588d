"""Laws of one pass: shifted positions, padding, packed rows."""

from functools import partial

import torch
from torch import Tensor

from ropelab.conformance.laws.caches import UnaskedError
from ropelab.conformance.laws.law import (
    TOKENS,
    Case,
    Comparison,
    Law,
    Trial,
    join_passes,
)
from ropelab.conformance.laws.subject import Stages

# Lengths of the rows of a padded batch; where the second packed text begins.
LENGTHS = (TOKENS, 31, 7)
SECOND = 17


def compare_shifted(case: Case, by: int) -> Comparison:
    """Compare positions from `by` on with positions from 0."""
    got = case.subject.read(case.tokens, case.make_positions(by))
    # Equal stages are as they should be, unless the model does not use positions.
    if are_equal(got, case.whole):
        spread_positions = 2 * case.make_positions(0)
        spread = case.subject.read(case.tokens, spread_positions)
        if are_equal(spread, case.whole):
            raise UnaskedError(
                "its logits do not depend on the positions that are given"
            )
    return Comparison(got, case.whole, largest_position=by + TOKENS)


def are_equal(first: Stages, second: Stages) -> bool:
    return all(map(torch.equal, first, second))


def compare_padded(case: Case, left: bool, positions: bool) -> Comparison:
    """Compare a padded batch, with positions or its mask alone, with its rows."""
    tokens, segments, own_positions = make_batch(case, left)
    given = own_positions if positions else None
    stages = case.subject.read(tokens, given, segments)
    return compare_rows(case, stages, left)


def make_batch(case: Case, left: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return padded rows of the first tokens, their segments and their positions."""
    tokens = torch.zeros(len(LENGTHS), TOKENS, dtype=torch.long)
    segments = torch.zeros_like(tokens)
    for row, length in enumerate(LENGTHS):
        if left:
            own = slice(TOKENS - length, TOKENS)
        else:
            own = slice(0, length)
        tokens[row, own] = case.tokens[0, :length]
        segments[row, own] = 1

    positions = segments.cumsum(dim=1) - 1
    return tokens, segments, positions.clamp(min=0)


def compare_rows(case: Case, got: Stages, left: bool) -> Comparison:
    """Compare a padded batch with each of its rows read by itself."""
    _, segments, positions = make_batch(case, left)
    is_text = segments.bool()
    got = [stage[is_text.to(stage.device)] for stage in got]

    alone = []
    for length in LENGTHS:
        alone.append(case.subject.read(case.tokens[:, :length]))
    places = positions[is_text].tolist()
    return Comparison(got, join_passes(alone), places)


def compare_packed(
    case: Case,
    restarted: bool,
    masked: bool,
    sink: bool = False,
) -> Comparison:
    """Read two texts in one row; with a sink both begin as texts do."""
    if restarted and not masked and not case.subject.separates_restarts:
        raise UnaskedError("it is always given a mask")

    lengths = [SECOND, TOKENS - SECOND]
    positions = case.make_positions(0)
    segments = 1 + (positions >= SECOND).long()
    if restarted:
        parts = [case.make_positions(0, length) for length in lengths]
        positions = torch.cat(parts, dim=1)
    tokens = case.tokens.clone()
    if sink:
        tokens[:, [0, SECOND]] = case.subject.first

    got = case.subject.read(tokens, positions, segments if masked else None)
    texts = tokens.split(lengths, dim=1)
    alone = [case.subject.read(text) for text in texts]
    return Comparison(got, join_passes(alone))


SHIFT = Law(
    "shift",
    "Do positions from 0 and from k give the same logits?",
    tuple(
        Trial(f"by {by:,}", partial(compare_shifted, by=by)) for by in (1, 1000, 64000)
    ),
)
PADDING = Law(
    "padding",
    "Is a row in a padded batch read as it is read alone?",
    (
        Trial("left, positions", partial(compare_padded, left=True, positions=True)),
        Trial("left, mask alone", partial(compare_padded, left=True, positions=False)),
        Trial(
            "right, mask alone", partial(compare_padded, left=False, positions=False)
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
