"""The position ids of a prompt of text, images and clips, by a model's own rule.

A position has a time, a height and a width. A token of text has one number on all three,
which counts on by 1. The patches of an image have the time at which the image begins, and
that time plus their row and column as height and width. Text behind an image goes on
behind its longer side.

Oracle: get_rope_index of transformers 5.23.0 (tests/conformance/test_prompts.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ropelab.conformance.observation import LARGEST_POSITION
from ropelab.conformance.prompt_parts import Part, explain_parts
from ropelab.math.axes import Positions
from ropelab.readers.axes import PromptRule
from ropelab.runs.errors import InputError, check_known
from ropelab.runs.rows import Rows

Kind = Literal["text", "image", "clip"]
# Where text goes on behind an image: at the length of its longer side (side), behind the
# largest position so far (largest), after as many steps as the image has tokens, rows,
# columns, or rows and columns together, at the length of its shorter side, or one step
# early or late (before, after).
Behind = Literal[
    "side",
    "largest",
    "largest if right",
    "tokens",
    "rows",
    "columns",
    "rows and columns",
    "shorter side",
    "before",
    "after",
]
# Returns the steps behind an image from its rows and columns of tokens.
STEPS_BEHIND: dict[Behind, Callable[[int, int], int]] = {
    "side": max,
    "rows": lambda rows, columns: rows,
    "columns": lambda rows, columns: columns,
    "rows and columns": lambda rows, columns: rows + columns,
    "shorter side": min,
    "before": lambda rows, columns: max(rows, columns) - 1,
    "after": lambda rows, columns: max(rows, columns) + 1,
}
EXAMPLE = "type such as 'text 5, image 8x12, text 3, clip 4x4x8'"
# The most patches of an image or clip in a prompt.
MOST_PATCHES = 2**20
# The most tokens of a prompt. A kit holds some twenty arrays of its size.
MOST_TOKENS = 2**20
# The time from one frame of a clip to the next, unless a kit says another.
SECONDS_PER_FRAME = 2.0


@dataclass(frozen=True)
class Segment:
    """A part of a prompt: text, or a grid of frames, rows and columns of patches."""

    kind: Kind
    # The tokens of a text.
    tokens: int = 0
    # The sizes of an image or clip, in frames and patches before they are merged.
    frames: int = 1
    rows: int = 0
    columns: int = 0
    # The time from one frame that the model sees to the next.
    seconds_per_frame: float = 1.0


@dataclass(frozen=True)
class Counting:
    """How positions are counted: right by default, or with one mistake."""

    # The number of patches that the model merges, and the way in which its clips count
    # time.
    rule: PromptRule
    behind: Behind = "side"
    # Where text goes on behind a clip. None: as behind an image.
    behind_clip: Behind | None = None
    # The steps by which times, and rows and columns, of patches are off.
    moved: tuple[int, int] = (0, 0)
    # True if heights and widths are exchanged.
    exchanged: bool = False
    # True if patches count on by 1 on all axes, as text does.
    as_text: bool = False
    # The axes on which every image begins at 0.
    from_zero: Literal["", "rows and columns", "time", "all axes"] = ""
    # True if rows and columns count patches before they are merged.
    unmerged: bool = False
    # True if rows and columns are counted from the middle of an image.
    centred: bool = False
    # True if all frames of a clip have the time at which the clip begins.
    still: bool = False
    # The steps along time between two frames of a clip. None: the steps of the rule.
    step: int | None = None
    # True if patches come column by column.
    by_columns: bool = False


def make_prompt(rule: PromptRule) -> list[Segment]:
    """Return the usual prompt: text, a wide image, text, a high clip, and text.

    Some models have a timestamp before each frame, here of two tokens.
    """
    side = rule.merged
    image = Segment("image", rows=4 * side, columns=6 * side)
    clip = Segment(
        "clip",
        frames=4,
        rows=4 * side,
        columns=2 * side,
        seconds_per_frame=SECONDS_PER_FRAME,
    )

    clips = [clip]
    if rule.frames_apart:
        clips = []
        for _ in range(clip.frames):
            clips += [Segment("text", tokens=2), replace(clip, frames=1)]

    text = Segment("text", tokens=5)
    return [text, image, replace(text, tokens=3), *clips, replace(text, tokens=4)]


def parse_prompt(text: str, rule: PromptRule) -> list[Segment]:
    """Return the parts of a prompt as people type it, `text 5, image 8x12, text 3`.

    The sizes of images are rows x columns of patches before they are merged, and the
    sizes of clips are frames x rows x columns. InputError: the text is not a prompt, or
    the model cannot read it.
    """
    segments = []
    for part in text.split(","):
        kind, _, size = part.strip().partition(" ")
        check_known("part of a prompt", kind, ("text", "image", "clip"))
        sizes = [read_size(number, part) for number in size.split("x")]
        count_of_sizes = {"text": 1, "image": 2, "clip": 3}[kind]
        if len(sizes) != count_of_sizes:
            raise InputError(f"'{part.strip()}' is no part of a prompt: {EXAMPLE}")
        segments.append(make_segment(kind, sizes, rule))
    tokens = sum(measure_in_tokens(rule, segment).tokens for segment in segments)
    if tokens > MOST_TOKENS:
        raise InputError(
            f"a prompt may have at most {MOST_TOKENS:,} tokens, and this one has {tokens:,}"
        )
    return segments


def read_size(number: str, part: str) -> int:
    """Return a whole number from 1 to a million, or raise InputError."""
    text = number.strip()
    if not text.isdecimal() or not 1 <= int(text) <= 10**6:
        raise InputError(f"'{part.strip()}' is no part of a prompt: {EXAMPLE}")
    return int(text)


def make_segment(kind: str, sizes: Sequence[int], rule: PromptRule) -> Segment:
    """Return a part of a prompt of these sizes; InputError: the model cannot read it."""
    if kind == "text":
        (tokens,) = sizes
        return Segment("text", tokens=tokens)

    if kind == "clip":
        frames, rows, columns = sizes
    else:
        rows, columns = sizes
        frames = 1
    if rows % rule.merged or columns % rule.merged:
        raise InputError(
            f"rows and columns of {kind} {rows}x{columns} must be multiples of"
            f" {rule.merged}, as so many patches along a side are one token"
        )
    if frames % rule.merged_frames and kind == "clip":
        raise InputError(f"frames of a clip must be multiples of {rule.merged_frames}")
    if rule.frames_apart and frames > 1:
        raise InputError(
            "this model has a timestamp before every frame: type 'text N, clip"
            f" 1x{rows}x{columns}' for each"
        )
    if frames * rows * columns > MOST_PATCHES:
        raise InputError(f"{kind} has more than {MOST_PATCHES} patches")
    if kind == "image":
        return Segment("image", rows=rows, columns=columns)
    return Segment(
        "clip",
        frames=frames,
        rows=rows,
        columns=columns,
        seconds_per_frame=SECONDS_PER_FRAME,
    )


def read_segments(rows: Rows) -> list[Segment]:
    """Return the parts of a prompt from rows that `describe_prompt` made.

    ValueError, TypeError, KeyError: the rows are from elsewhere.
    """
    segments = []
    for row in rows:
        if row["kind"] == "text":
            segments.append(Segment("text", tokens=int(row["tokens"])))
            continue

        frames, height, width = (int(size) for size in row["grid_thw"])
        seconds = float(row.get("seconds_per_frame", 1.0))
        kind: Kind = "clip" if row["kind"] == "clip" else "image"
        segments.append(
            Segment(
                kind,
                frames=frames,
                rows=height,
                columns=width,
                seconds_per_frame=seconds,
            )
        )
    return segments


def measure_in_tokens(rule: PromptRule, segment: Segment) -> Part:
    """Return a part of a prompt in tokens: neighbouring patches are merged to one."""
    frames = segment.frames
    rows = segment.rows // rule.merged
    columns = segment.columns // rule.merged
    # The time from one frame to the next.
    step = 1.0
    if segment.kind == "clip":
        frames //= rule.merged_frames
        if rule.steps_per_second is not None:
            step = rule.steps_per_second * segment.seconds_per_frame

    tokens = segment.tokens
    if segment.kind != "text":
        tokens = frames * rows * columns
    return Part(segment.kind, tokens, frames, rows, columns, rule.merged, step)


def count_positions(counting: Counting, prompt: Sequence[Segment]) -> Positions:
    """Return time, height and width [3, tokens] of every token of a prompt."""
    # The position at which the next part begins.
    start = 0
    parts: list[np.ndarray] = []
    for segment in prompt:
        if segment.kind == "text":
            line = start + np.arange(segment.tokens)
            parts.append(np.stack([line, line, line]))
            start += segment.tokens
            continue

        grid = count_grid(counting, segment, start)
        parts.append(grid)
        start = find_next(counting, segment, start, grid)
    return np.concatenate(parts, axis=1).astype(np.int64)


def count_grid(counting: Counting, segment: Segment, start: int) -> Positions:
    """Return the positions [3, tokens] of the merged patches of an image or clip.

    ``start``: the position at which it begins.
    """
    rule = counting.rule
    part = measure_in_tokens(rule, segment)
    step = part.step
    if segment.kind == "clip" and counting.step is not None:
        step = counting.step
    if counting.still:
        step = 0.0

    # The number of the frame, the row and the column of each token, in the shape of the
    # grid.
    time, row, column = np.indices((part.frames, part.rows, part.columns))
    if counting.by_columns:
        time, row, column = (axis.swapaxes(1, 2) for axis in (time, row, column))
    if counting.exchanged:
        row, column = column, row
    if counting.unmerged:
        row = rule.merged * row
        column = rule.merged * column
    if counting.centred:
        row = row - part.rows // 2
        column = column - part.columns // 2
    # Times are rounded down to whole numbers.
    axes = [np.floor(step * time), row, column]
    grid = np.stack(axes).reshape(3, -1).astype(np.int64)
    if counting.as_text:
        count = grid.shape[1]
        grid = np.stack([np.arange(count)] * 3)

    shifts = np.full((3, 1), start)
    if counting.from_zero in ("time", "all axes"):
        shifts[0] = 0
    if counting.from_zero in ("rows and columns", "all axes"):
        shifts[1:] = 0
    time_is_off, place_is_off = counting.moved
    shifts[0] += time_is_off
    shifts[1:] += place_is_off
    return grid + shifts


def find_next(
    counting: Counting,
    segment: Segment,
    start: int,
    grid: Positions,
) -> int:
    """Return the position of the first token behind an image or clip.

    Args:
        counting: how positions are counted.
        segment: the image or clip.
        start: the position at which it begins.
        grid: the positions of its tokens.
    """
    behind = counting.behind
    if segment.kind == "clip" and counting.behind_clip is not None:
        behind = counting.behind_clip
    if behind == "largest" or counting.as_text:
        return int(grid.max()) + 1
    if behind == "largest if right":
        right = Counting(counting.rule, still=counting.still, step=counting.step)
        return int(count_grid(right, segment, start).max()) + 1
    if behind == "tokens":
        return start + grid.shape[1]

    merged = 1 if counting.unmerged else counting.rule.merged
    count_steps = STEPS_BEHIND[behind]
    return start + count_steps(segment.rows // merged, segment.columns // merged)


def list_countings(rule: PromptRule) -> Iterator[tuple[str, str, Counting]]:
    """Yield name, sentence and counting of each known mistake."""
    right = Counting(rule)
    says = "text behind an image begins after as many steps as the image has tokens"
    yield "tokens", says, replace(right, behind="tokens")
    says = "text behind an image begins one step early"
    yield "early", says, replace(right, behind="before")
    says = "text behind an image begins one step late"
    yield "late", says, replace(right, behind="after")
    sides: tuple[Behind, ...] = ("columns", "rows", "shorter side", "rows and columns")
    for side in sides:
        says = f"text behind an image begins behind its {side}, not at its longer side"
        name = f"behind_{side.replace(' ', '_')}"
        yield name, says, replace(right, behind=side)
    says = "height and width are exchanged"
    yield "exchanged", says, replace(right, exchanged=True)
    says = "patches are counted one after another, as if they were text"
    yield "as_text", says, replace(right, as_text=True)
    for axes in ("rows and columns", "time", "all axes"):
        verb = "begins" if axes == "time" else "begin"
        says = f"{axes} of an image {verb} at 0, not behind the text before it"
        name = f"zero_{axes.split()[0]}"
        yield name, says, replace(right, from_zero=axes)
    says = "rows and columns of an image begin one step late"
    yield "place_late", says, replace(right, moved=(0, 1))
    says = "the time of an image is one step late"
    yield "time_late", says, replace(right, moved=(1, 0))
    says = f"rows and columns count patches before {rule.merged} of them are merged"
    yield "unmerged", says, replace(right, unmerged=True)
    says = "rows and columns are counted from the middle of an image"
    yield "centred", says, replace(right, centred=True)
    says = "patches are counted down the columns"
    yield "columns", says, replace(right, by_columns=True)

    if not rule.frames_apart:
        says = "all frames of a clip stand at one time"
        yield "still", says, replace(right, still=True)
    if rule.steps_per_second is not None:
        says = "a frame is one step along time, whatever seconds it lasts"
        rule_without_rate = replace(rule, steps_per_second=None)
        yield "rate", says, replace(right, rule=rule_without_rate)
        says = "the steps along time are doubled"
        doubled = replace(rule, steps_per_second=2 * rule.steps_per_second)
        yield "double_rate", says, replace(right, rule=doubled)
    elif not rule.frames_apart:
        says = "frames are steps of their seconds along time, and should be 1 apart"
        timed = replace(rule, steps_per_second=1)
        yield "timed", says, replace(right, rule=timed)


def describe_prompt(rule: PromptRule, prompt: Sequence[Segment]) -> Rows:
    """Return a row for each part of a prompt, with the number of its tokens.

    `grid_thw` is the argument of that name of get_rope_index in transformers.
    """
    rows: list[dict[str, Any]] = []
    for segment in prompt:
        if segment.kind == "text":
            rows.append({"kind": "text", "tokens": segment.tokens})
            continue

        row: dict[str, Any] = {
            "kind": segment.kind,
            "tokens": measure_in_tokens(rule, segment).tokens,
            "grid_thw": [segment.frames, segment.rows, segment.columns],
        }
        if segment.kind == "clip":
            row["seconds_per_frame"] = segment.seconds_per_frame
        rows.append(row)
    return rows


def explain_prompt(
    got: Positions,
    rule: PromptRule,
    prompt: Sequence[Segment] = (),
) -> tuple[str, str, bool]:
    """Return what position ids show, what to do, and True if they are wrong.

    transformers 4.57.1 lets text go on behind the largest position of a clip, and 5.23.0
    behind its longer side. Models were trained with the older rule, so that both are
    right.

    Args:
        got: time, height and width [3, tokens] that an engine gave each token.
        rule: how the model counts.
        prompt: the parts of the prompt; the usual one if empty.
    """
    if not prompt:
        prompt = make_prompt(rule)
    right = Counting(rule)
    right_positions = count_positions(right, prompt)
    if np.array_equal(got, right_positions):
        return "position ids are right", "", False
    older = count_positions(replace(right, behind="largest"), prompt)
    if np.array_equal(got, older):
        remark = "position ids are right, as transformers 4.57.1 counts behind a clip"
        return remark, "", False

    fix = "compare prompt_positions of vectors.npz, part by part of about.json"
    if got.shape != right_positions.shape:
        right_shape = right_positions.shape
        answer = f"position ids have the shape {got.shape} instead of {right_shape}"
        return answer, fix, True
    # NaN compares False, so that it counts as unreadable.
    is_readable = np.abs(got) <= LARGEST_POSITION
    if not is_readable.all():
        return "position ids hold numbers that are no positions", fix, True
    for _, says, counting in list_countings(rule):
        # A mistake in images may come with either rule for the text behind a clip.
        candidates = [counting]
        if counting.behind == "side":
            candidates.append(replace(counting, behind="largest"))
            candidates.append(replace(counting, behind_clip="largest if right"))
        else:
            candidates.append(replace(counting, behind_clip="side"))
            candidates.append(replace(counting, behind_clip="largest"))
        for candidate in candidates:
            if np.array_equal(got, count_positions(candidate, prompt)):
                return says, fix, True

    first_time = got[0, 0]
    shift = int(first_time - right_positions[0, 0])
    for positions in (right_positions, older):
        if np.array_equal(got - shift, positions):
            return f"all position ids are off by {shift:+d}", "count from 0", True
    step = find_step(got, rule, prompt)
    if step:
        for behind_clip in (None, "largest"):
            timed = replace(right, step=step, behind_clip=behind_clip)
            if np.array_equal(got, count_positions(timed, prompt)):
                right_step = find_step(right_positions, rule, prompt)
                answer = (
                    f"frames of a clip are {step} steps apart along time instead of"
                    f" {right_step}"
                )
                fix = "check the steps per second and the seconds per frame"
                return answer, fix, True

    answer = explain_parts(
        got, [measure_in_tokens(rule, segment) for segment in prompt]
    )
    if answer:
        return answer, fix, True
    is_different = (got != right_positions).any(axis=0)
    token = int(is_different.argmax())
    place = ", ".join(f"{position:g}" for position in got[:, token].tolist())
    answer = (
        f"token {token} stands at ({place}) (time, height, width)"
        f" instead of {tuple(right_positions[:, token].tolist())}"
    )
    return answer, fix, True


def find_step(got: Positions, rule: PromptRule, prompt: Sequence[Segment]) -> int:
    """Return the steps along time between two frames of the first clip.

    0: the prompt has no clip, or the model sees the clip as a single frame.
    """
    start = 0
    times = got[0]
    for segment in prompt:
        part = measure_in_tokens(rule, segment)
        if part.kind == "clip" and not rule.frames_apart:
            if part.frames < 2:
                return 0
            return int(times[start + part.tokens // part.frames] - times[start])
        start += part.tokens
    return 0
