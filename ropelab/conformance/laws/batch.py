"""Laws of one pass: shifted positions, padding, packed rows."""

from functools import partial

import torch
from torch import Tensor

from ropelab.conformance.laws.law import (
    TOKENS,
    Case,
    Comparison,
    Law,
    Trial,
    join_passes,
)
from ropelab.conformance.laws.subject import Stages, UnaskedError

# Lengths of the rows of a padded batch; where the second packed text begins.
LENGTHS = (TOKENS, 31, 7)
SECOND = 17


def compare_shifted(case: Case, by: int) -> Comparison:
    """Compare positions from `by` on with positions from 0."""
    got = case.subject.read(case.tokens, case.make_positions(by))
    # As it should be, or are positions not used?
    if all(map(torch.equal, got, case.whole)):
        spread = case.subject.read(case.tokens, case.make_positions(0) * 2)
        if all(map(torch.equal, spread, case.whole)):
            raise UnaskedError(
                "its logits do not depend on the positions that are given"
            )
    return Comparison(got, case.whole, reach=by + TOKENS)


def compare_padded(case: Case, left: bool, positions: bool) -> Comparison:
    """Compare a padded batch, with positions or its mask alone, with its rows."""
    tokens, segments, at = make_batch(case, left)
    given = at if positions else None
    return compare_rows(case, case.subject.read(tokens, given, segments), left)


def make_batch(case: Case, left: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first tokens as rows of several lengths, padded; segments; and
    positions.
    """
    tokens = torch.zeros(len(LENGTHS), TOKENS, dtype=torch.long)
    segments = torch.zeros_like(tokens)
    for row, length in enumerate(LENGTHS):
        own = slice(TOKENS - length, None) if left else slice(length)
        tokens[row, own] = case.tokens[0, :length]
        segments[row, own] = 1
    return tokens, segments, (segments.cumsum(dim=1) - 1).clamp(min=0)


def compare_rows(case: Case, got: Stages, left: bool) -> Comparison:
    """Compare a padded batch with each of its rows read by itself."""
    _, segments, at = make_batch(case, left)
    own = segments.bool()
    got = [stage[own.to(stage.device)] for stage in got]
    alone = [case.subject.read(case.tokens[:, :length]) for length in LENGTHS]
    return Comparison(got, join_passes(alone), at[own].tolist())


def compare_packed(
    case: Case,
    restarted: bool,
    masked: bool,
    sink: bool = False,
) -> Comparison:
    """Read two texts in one row; with a sink both begin as texts do."""
    if restarted and not masked and not case.subject.masks:
        raise UnaskedError("it is always given a mask")
    at = case.make_positions(0)
    segments = (at >= SECOND).long() + 1
    if restarted:
        at = torch.cat(
            [case.make_positions(0, SECOND), case.make_positions(0, TOKENS - SECOND)],
            dim=1,
        )
    tokens = case.tokens.clone()
    if sink:
        tokens[:, [0, SECOND]] = case.subject.first
    got = case.subject.read(tokens, at, segments if masked else None)

    texts = tokens.split([SECOND, TOKENS - SECOND], dim=1)
    return Comparison(got, join_passes([case.subject.read(text) for text in texts]))


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
