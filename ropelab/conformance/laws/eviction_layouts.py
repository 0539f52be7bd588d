"""The logits behind any cache, computed in one pass without a cache.

A text is read in steps. Each step sees keys of earlier steps, which may have been rotated
since they were computed. A key has only one position in a pass, so that a rotated key is
that of a copy: a copy of its whole step, with copies of all keys that the step saw, moved
by the same number of positions. Scores depend only on differences of positions, so that
the copy has the same contents. This is exact in every layer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ropelab.conformance.laws.law import Case
from ropelab.conformance.laws.subject import Stages

# The number of texts that are read at once, each as a row of a batch.
ROWS = 16


class Step(NamedTuple):
    """Tokens that are read in one pass, from ``start`` to before ``end``."""

    start: int
    end: int
    # The position of the first token.
    position: int
    # The keys of earlier steps that the tokens see: the token of each, and the positions
    # by which its key was rotated since the token was read.
    seen: tuple[tuple[int, int], ...] = ()


class CopiedText:
    """A text with the copies of steps that its last steps need."""

    def __init__(self, steps: Sequence[Step], first_step: int) -> None:
        self.steps = steps
        # The number of each token in the case's text, its position, and the places in
        # this text that it sees.
        self.numbers: list[int] = []
        self.positions: list[int] = []
        self.visible: list[list[int]] = []
        # The place of the first token of each step, by the step and by the positions by
        # which it is moved.
        self.placed: dict[tuple[int, int], int] = {}
        # The places of the steps that are asked for.
        self.wanted: list[int] = []
        for number in range(first_step, len(steps)):
            first = self.place(number)
            step = steps[number]
            self.wanted += range(first, first + step.end - step.start)

    def place(self, number: int, by: int = 0) -> int:
        """Append a step, moved by some positions; return the place of its first token."""
        key = (number, by)
        if key in self.placed:
            return self.placed[key]

        step = self.steps[number]
        seen = []
        for token, rotated_by in step.seen:
            source = self.find_step(token)
            first = self.place(source, by + rotated_by)
            seen.append(first + token - self.steps[source].start)

        first = len(self.numbers)
        for offset in range(step.end - step.start):
            self.numbers.append(step.start + offset)
            self.positions.append(step.position + by + offset)
            self.visible.append([*seen, *range(first, first + offset + 1)])
        self.placed[key] = first
        return first

    def find_step(self, token: int) -> int:
        """Return the step in which a token is read."""
        for number, step in enumerate(self.steps):
            if step.start <= token < step.end:
                return number
        raise LookupError(f"token {token} is read in no step")


def compute_layouts(
    case: Case,
    layouts: Sequence[Sequence[Step]],
    first_step: int,
) -> list[Stages]:
    """Return the stages [1, tokens, width] of the steps from ``first_step`` on, for each
    layout.
    """
    texts = [CopiedText(steps, first_step) for steps in layouts]
    results: list[Stages] = []
    batch: list[CopiedText] = []
    for text in texts:
        # Short texts are not filled up to the length of a long one.
        is_much_longer = batch and len(text.numbers) > 2 * len(batch[0].numbers)
        if is_much_longer or len(batch) == ROWS:
            results += read_batch(case, batch)
            batch = []
        batch.append(text)
    return results + read_batch(case, batch)


def read_batch(case: Case, texts: Sequence[CopiedText]) -> list[Stages]:
    """Return the stages of each text, all of which are rows of one batch."""
    if not texts:
        return []
    length = max(len(text.numbers) for text in texts)
    numbers = torch.zeros(len(texts), length, dtype=torch.long)
    positions = torch.zeros(len(texts), length, dtype=torch.long)
    # A place that only fills up its row sees itself.
    visible = torch.eye(length, dtype=torch.bool).repeat(len(texts), 1, 1)
    for row, text in enumerate(texts):
        count = len(text.numbers)
        numbers[row, :count] = torch.tensor(text.numbers)
        # No position may be negative. A common shift changes nothing.
        shift = min(0, *text.positions)
        positions[row, :count] = torch.tensor(text.positions) - shift
        for place, seen in enumerate(text.visible):
            visible[row, place, seen] = True

    tokens = case.tokens[0][numbers]
    stages = case.subject.read(tokens, positions, visible=visible)
    results = []
    for row, text in enumerate(texts):
        results.append([stage[row : row + 1, text.wanted] for stage in stages])
    return results
