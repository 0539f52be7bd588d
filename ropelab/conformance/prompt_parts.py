"""Name mistakes in the position ids of a prompt part by part: text, image, clip, text.

Each image is compared with its grid behind the text before it, wherever that text
stands, and each text with the image before it. So several mistakes are told apart that
change all positions behind them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from ropelab.math.axes import Positions
from ropelab.runs.sentences import join_names

AXES = ("time", "height", "width")
# The steps along time between two frames that are looked for.
FRAME_STEPS = (1, 2, 3, 4, 5, 8, 10, 13, 20, 25, 30, 50, 100)
# The steps by which an image or clip may be off.
SHIFTS = (-3, -2, -1, 1, 2, 3)
# Patches along a side of a block, in whose order patches may come.
BLOCK = 2
# The answer about a part of a prompt: its mistake in words, empty if it is right, or None
# if the mistake is not known.
Said = str | None


@dataclass(frozen=True)
class Part:
    """A part of a prompt in tokens: text, or an image or clip of merged patches."""

    kind: str
    tokens: int
    # The frames, rows and columns of tokens of an image or clip.
    frames: int
    rows: int
    columns: int
    # Patches along a side of a token.
    merged: int
    # The time from one frame to the next.
    step: float


@dataclass(frozen=True)
class Grid:
    """An image or clip behind a text that ends one step before ``start``."""

    part: Part
    start: int

    def count(self) -> Positions:
        """Return the right positions of its tokens, [3, frames, rows, columns]."""
        part = self.part
        time, row, column = np.indices((part.frames, part.rows, part.columns))
        times = np.floor(part.step * time).astype(np.int64)
        return self.start + np.stack([times, row, column])


def explain_parts(got: Positions, parts: Sequence[Part]) -> str:
    """Return the mistakes of all parts; empty if the mistake of one part is not known.

    Args:
        got: time, height and width [3, tokens] that an engine gave each token.
        parts: the parts of the prompt.
    """
    mistakes: list[str] = []
    # The position at which the next part should begin, and the number of its first token.
    start = 0
    first = 0
    # The image or clip before a text.
    grid = None
    for part in parts:
        positions = got[:, first : first + part.tokens]
        if part.kind == "text":
            said = explain_text(positions, grid, start, first)
            start = int(positions[0, -1]) + 1
            grid = None
        else:
            grid = Grid(part, start)
            said = explain_grid(positions, grid)
            start += max(part.rows, part.columns)
        if said is None:
            return ""
        if said and said not in mistakes:
            mistakes.append(said)
        first += part.tokens
    return "; ".join(mistakes)


def explain_text(
    positions: Positions,
    grid: Grid | None,
    start: int,
    first: int,
) -> Said:
    """Name where a text begins, if it begins at another position than it should.

    Args:
        positions: the positions of its tokens.
        grid: the image or clip before it, if there is one.
        start: where the text should begin.
        first: the number of its first token in the prompt.
    """
    begin = int(positions[0, 0])
    line = begin + np.arange(positions.shape[1])
    if not np.array_equal(positions, np.stack([line] * 3)):
        return None
    if grid is None:
        return "" if begin == start else f"text is off by {begin - start:+d}"

    kind = grid.part.kind
    # Behind a clip text may also go on behind the largest position.
    largest = int(grid.count().max()) + 1
    if begin in (start, largest):
        return ""
    if begin == first:
        return (
            f"text behind the {kind} stands at its token's number in the prompt, as"
            " if each patch took a step"
        )
    if begin == grid.start:
        return f"text goes on as if the {kind} took no step"
    if begin == grid.start + 1:
        return f"text goes on as if the {kind} took one step"

    late = begin - start
    if abs(begin - largest) == 1:
        late = begin - largest
    return f"text behind the {kind} begins {describe_delay(late)}"


def describe_delay(steps: int) -> str:
    """Return a delay in words, such as `2 steps late` or `one step early`."""
    number = "one step" if abs(steps) == 1 else f"{abs(steps)} steps"
    return f"{number} late" if steps > 0 else f"{number} early"


def explain_grid(positions: Positions, grid: Grid) -> Said:
    """Name the mistake in the positions of an image's or clip's tokens."""
    for says, known_positions in list_grids(grid):
        if np.array_equal(positions, known_positions.reshape(3, -1)):
            return says

    right = grid.count().reshape(3, -1)
    late = int(positions[0, 0] - right[0, 0])
    if np.array_equal(positions - late, right):
        return (
            f"the {grid.part.kind} begins {describe_delay(late)} on all axes, at"
            f" {positions[0, 0]}"
        )
    return None


def list_grids(grid: Grid) -> Iterator[tuple[str, Positions]]:
    """Yield the right positions of a grid, and the positions by known mistakes."""
    part = grid.part
    kind = part.kind
    right = grid.count()
    time, row, column = right
    start = np.full_like(time, grid.start)
    count = np.arange(time.size).reshape(time.shape)
    yield "", right

    for order in permutations(range(3)):
        changed = right[list(order)]
        names = join_names([AXES[axis] for axis in order])
        yield f"the axes of the {kind} come in the order {names}", changed
    for name, axis in (("rows", 1), ("columns", 2)):
        backwards = right.copy()
        backwards[axis] = np.flip(right[axis], axis=axis)
        yield f"{name} of the {kind} are counted from the end", backwards

    transposed = np.indices((part.frames, part.columns, part.rows))
    transposed = grid.start + transposed.reshape(right.shape)
    transposed[0] = time
    yield (
        f"the {kind} is counted as {part.columns} rows of {part.rows} tokens instead of"
        f" {part.rows} of {part.columns}",
        transposed,
    )
    down = right.swapaxes(2, 3)
    yield f"patches of the {kind} are counted down the columns", down

    if part.rows % BLOCK == 0 and part.columns % BLOCK == 0:
        rows_and_columns = (part.rows // BLOCK, BLOCK, part.columns // BLOCK, BLOCK)
        blocks = right.reshape(3, part.frames, *rows_and_columns)
        answer = f"patches of the {kind} come in blocks of {BLOCK} x {BLOCK}"
        yield answer, blocks.swapaxes(3, 4)

    text = grid.start + count
    yield f"patches of the {kind} are counted as text", np.stack([text] * 3)
    yield f"the time of the {kind} counts its patches", np.stack([text, row, column])
    yield f"all patches of the {kind} stand at one position", np.stack([start] * 3)
    yield f"all axes of the {kind} have its time", np.stack([time] * 3)
    still = np.stack([start, row, column])
    yield "all frames of a clip stand at one time", still
    place = np.stack([row, column]) - grid.start
    unmerged = np.stack([time, *(grid.start + part.merged * place)])
    yield (
        f"rows and columns of the {kind} count patches before they are merged",
        unmerged,
    )
    middle = np.stack([row - part.rows // 2, column - part.columns // 2])
    yield (
        f"rows and columns of the {kind} are counted from its middle",
        np.stack([time, *middle]),
    )

    from_zero = right - grid.start
    yield f"the {kind} begins at 0 on all axes", from_zero
    yield f"the time of the {kind} begins at 0", np.stack([from_zero[0], row, column])
    yield f"rows and columns of the {kind} begin at 0", np.stack([time, *from_zero[1:]])
    frame = np.indices(time.shape)[0]
    apart = np.stack([start, row, column]) + frame * max(part.rows, part.columns)
    yield "each frame of the clip is counted as an image of its own", apart
    for step in FRAME_STEPS:
        times = grid.start + step * frame
        yield (
            f"frames of a clip are {step} apart along time",
            np.stack([times, row, column]),
        )

    for steps in SHIFTS:
        when = describe_delay(steps)
        yield f"the {kind} begins {when} on all axes", right + steps
        yield f"the time of the {kind} is {when}", np.stack([time + steps, row, column])
        yield (
            f"rows and columns of the {kind} begin {when}",
            np.stack([time, row + steps, column + steps]),
        )
        yield f"rows of the {kind} begin {when}", np.stack([time, row + steps, column])
        yield (
            f"columns of the {kind} begin {when}",
            np.stack([time, row, column + steps]),
        )
