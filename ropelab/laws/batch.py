"""Laws of one pass: shifted positions, padding, packed rows."""

from functools import partial

import torch
from torch import Tensor

from ropelab.laws.law import TOKENS, Case, Law, Pair, Trial, places_of, rows_of
from ropelab.laws.subject import Stages, UnaskedError

# Lengths of the rows of a padded batch; where the second packed text begins.
LENGTHS = (TOKENS, 31, 7)
SECOND = 17
Span = tuple[int, int, int]


def shifted(case: Case, by: int) -> Pair:
    got = case.subject.read(case.tokens, case.at(by))
    whole = [(0, 0, TOKENS)]
    places = places_of(whole)
    return Pair(rows_of(got, whole), rows_of(case.whole, whole), places, reach=by + TOKENS)


def padded(case: Case, left: bool, positions: bool) -> Pair:
    tokens, segments, spans = batch(case, left)
    at = (segments.cumsum(dim=1) - 1).clamp(min=0) if positions else None
    got = case.subject.read(tokens, at, segments)
    return Pair(rows_of(got, spans), alone(case), places_of(spans))


def batch(case: Case, left: bool) -> tuple[Tensor, Tensor, list[Span]]:
    """Return the first tokens as rows of several lengths, padded; segments; and their spans."""
    tokens = torch.zeros(len(LENGTHS), TOKENS, dtype=torch.long)
    segments, spans = torch.zeros_like(tokens), []
    for row, length in enumerate(LENGTHS):
        first = TOKENS - length if left else 0
        spans.append((row, first, first + length))
        tokens[row, first : first + length] = case.tokens[0, :length]
        segments[row, first : first + length] = 1
    return tokens, segments, spans


def alone(case: Case) -> Stages:
    """Return each row of the batch read by itself."""
    found = [case.subject.read(case.tokens[:, :length]) for length in LENGTHS]
    return [torch.cat([stage[0] for stage in stages]) for stages in zip(*found, strict=True)]


def packed(case: Case, restarted: bool, masked: bool, sink: bool = False) -> Pair:
    """Read two texts in one row; with a sink both begin as texts do."""
    if restarted and not masked and not case.subject.masks:
        raise UnaskedError("it is always given a mask")
    spans = [(0, 0, SECOND), (0, SECOND, TOKENS)]
    at = torch.cat([torch.arange(end - first) for _, first, end in spans])[None]
    segments = (torch.arange(TOKENS)[None] >= SECOND).long() + 1
    tokens = case.tokens.clone()
    if sink:
        tokens[:, [0, SECOND]] = case.subject.first
    got = case.subject.read(tokens, at if restarted else case.at(0), segments if masked else None)
    parts = [case.subject.read(tokens[:, first:end]) for _, first, end in spans]
    expected = [torch.cat([stage[0] for stage in stages]) for stages in zip(*parts, strict=True)]
    return Pair(rows_of(got, spans), expected, range(TOKENS))


UNSHIFTED = "count positions from 0 in every row, and do not move or reuse cached keys"
MASKED = "apply the mask and the positions of each row in every layer"
SHIFT = Law(
    "shift",
    "Do positions from 0 and from k give the same logits?",
    tuple(
        Trial(f"by {by:,}", partial(shifted, by=by), "the absolute position enters", UNSHIFTED)
        for by in (1, 1000, 64000)
    ),
)
PADDING = Law(
    "padding",
    "Is a row in a padded batch read as it is read alone?",
    (
        Trial(
            "left, positions",
            partial(padded, left=True, positions=True),
            "padding on the left is seen, or each row's positions are not used",
            MASKED,
        ),
        Trial(
            "left, mask alone",
            partial(padded, left=True, positions=False),
            "padding on the left is seen, or counted where absolute positions enter",
            "give position_ids with left padding; if those fail, too: " + MASKED,
        ),
        Trial(
            "right, mask alone",
            partial(padded, left=False, positions=False),
            "padding on the right is seen by the text before it, or its length enters",
            MASKED,
        ),
    ),
)
PACKING = Law(
    "packing",
    "Are packed texts read as they are read apart?",
    (
        Trial(
            "restarted, no mask",
            partial(packed, restarted=True, masked=False),
            "packed texts see one another: positions that restart make no mask",
            "give a block mask, or do not pack",
        ),
        Trial(
            "restarted, mask",
            partial(packed, restarted=True, masked=True),
            "packed texts see one another, or windows are lost, under a block mask",
            "apply the block mask in every layer, or do not pack",
        ),
        Trial("mask alone", partial(packed, restarted=False, masked=True), cost=True),
        Trial("neither", partial(packed, restarted=False, masked=False), cost=True),
        Trial(
            "neither, with BOS",
            partial(packed, restarted=False, masked=False, sink=True),
            cost=True,
        ),
    ),
)
