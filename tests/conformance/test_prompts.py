"""Position ids of prompts, as transformers' get_rope_index counts them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ropelab.conformance.prompts import (
    Behind,
    Counting,
    Segment,
    count_positions,
    describe_prompt,
    explain_prompt,
    list_countings,
    make_prompt,
    parse_prompt,
    read_segments,
)
from ropelab.readers.axes import PromptRule, read_prompt_rule
from ropelab.runs.errors import InputError
from tests.conformance.several_axes import MODELS
from tests.texts import mentions


def rule_of(name: str) -> PromptRule:
    rule = read_prompt_rule(MODELS[name])
    assert rule is not None
    return rule


def ask_class(name: str, rule: PromptRule, prompt: list[Segment]) -> np.ndarray:
    """The ids that the class of a model counts itself."""
    config: Any = CONFIG_MAPPING[name].from_dict(MODELS[name])
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config).model
    kinds: list[int] = []
    images: list[list[int]] = []
    frames: list[list[int]] = []
    for row in describe_prompt(rule, prompt):
        kinds += row["tokens"] * [{"text": 0, "image": 1, "clip": 2}[row["kind"]]]
        if row["kind"] == "image":
            images.append(row["grid_thw"])
        if row["kind"] == "clip":
            frames.append(row["grid_thw"])
    if rule.frames_apart:
        # One clip, whose frames the class takes apart.
        frames = [[len(frames), *frames[0][1:]]]
    more = {}
    if rule.steps_per_second is not None:
        more["second_per_grid_ts"] = torch.tensor([2.0])
    positions, _ = model.get_rope_index(
        torch.zeros(1, len(kinds), dtype=torch.long),
        torch.tensor([kinds]),
        image_grid_thw=torch.tensor(images),
        video_grid_thw=torch.tensor(frames),
        **more,
    )
    return positions[:, 0].numpy()


@pytest.mark.parametrize("name", MODELS)
def test_positions_are_those_of_the_model_s_own_class(name: str) -> None:
    rule = rule_of(name)
    prompt = make_prompt(rule)
    ours = count_positions(Counting(rule), prompt)
    np.testing.assert_array_equal(ours, ask_class(name, rule, prompt))


def test_text_behind_an_image_begins_at_its_longer_side() -> None:
    rule = rule_of("qwen2_vl")
    image = Segment("image", rows=4, columns=10)
    text = Segment("text", tokens=2)
    positions = count_positions(Counting(rule), [text, image, text])
    # 2 of text, 2 x 5 merged patches from 2 on, text from 2 + 5 on.
    assert positions[0].tolist() == [0, 1, *[2] * 10, 7, 8]
    assert positions[1].tolist() == [0, 1, *[2] * 5, *[3] * 5, 7, 8]
    assert positions[2].tolist() == [0, 1, *range(2, 7), *range(2, 7), 7, 8]


@pytest.mark.parametrize("name", MODELS)
def test_every_mistake_is_named(name: str) -> None:
    rule = rule_of(name)
    prompt = make_prompt(rule)
    right = count_positions(Counting(rule), prompt)
    assert explain_prompt(right, rule) == ("position ids are right", "", False)
    for _, says, counting in list_countings(rule):
        got = count_positions(counting, prompt)
        answer, _, wrong = explain_prompt(got, rule)
        assert wrong
        assert answer == says


@pytest.mark.parametrize(
    ("counting", "says"),
    [
        ({"behind": "tokens"}, "as many steps as the image has tokens"),
        ({"behind": "rows"}, "begins behind its rows"),
        ({"behind": "after"}, "begins one step late"),
        ({"moved": (0, 1)}, "rows and columns of an image begin one step late"),
        ({"moved": (1, 0)}, "the time of an image is one step late"),
        ({"from_zero": "time"}, "time of an image begins at 0"),
        ({"centred": True}, "counted from the middle"),
        ({"step": 2}, "2 steps apart along time instead of 4"),
    ],
)
def test_mistakes_in_images_are_named_under_the_older_rule(
    counting: dict[str, Any], says: str
) -> None:
    """transformers 4.57.1 lets text go on behind the largest position of a clip."""
    rule = rule_of("qwen2_5_vl")
    mistaken = Counting(rule, **counting, behind_clip="largest if right")
    got = count_positions(mistaken, make_prompt(rule))
    answer, _, wrong = explain_prompt(got, rule)
    assert wrong
    assert says in answer


def test_a_shift_under_the_older_rule() -> None:
    rule = rule_of("qwen2_5_vl")
    older = count_positions(Counting(rule, behind="largest"), make_prompt(rule))
    answer, _, wrong = explain_prompt(older - 1, rule)
    assert wrong
    assert "off by -1" in answer


@pytest.mark.parametrize(
    ("name", "step"), [("qwen2_5_vl", 50), ("qwen2_vl", 25), ("ernie4_5_vl_moe", 5)]
)
def test_another_rate_is_told_in_steps(name: str, step: int) -> None:
    rule = rule_of(name)
    got = count_positions(Counting(rule, step=step), make_prompt(rule))
    answer, _, wrong = explain_prompt(got, rule)
    assert wrong
    assert f"{step} steps apart" in answer


@pytest.mark.parametrize("name", MODELS)
def test_a_constant_shift_of_all_positions(name: str) -> None:
    rule = rule_of(name)
    right = count_positions(Counting(rule), make_prompt(rule))
    answer, _, wrong = explain_prompt(right + 1, rule)
    assert wrong
    assert "off by +1" in answer


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_text_behind_one_side_of_an_image_is_seen(name: str, axis: Behind) -> None:
    """The usual prompt has a wide image and a high clip."""
    rule = rule_of(name)
    got = count_positions(Counting(rule, behind=axis), make_prompt(rule))
    answer, _, wrong = explain_prompt(got, rule)
    assert wrong
    assert f"behind its {axis}" in answer


def test_the_rule_of_older_releases_is_not_accused() -> None:
    rule = rule_of("qwen2_5_vl")
    older = count_positions(Counting(rule, behind="largest"), make_prompt(rule))
    answer, _, wrong = explain_prompt(older, rule)
    assert not wrong
    assert mentions(answer, "4.57.1")


def test_a_token_out_of_place_is_named() -> None:
    rule = rule_of("qwen3_vl")
    got = count_positions(Counting(rule), make_prompt(rule))
    got[2, 7] += 3
    answer, _, wrong = explain_prompt(got, rule)
    assert wrong
    assert mentions(answer, "token 7")


TYPED = "text 3, image 4x6, text 2, image 8x4, text 1"


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_as_people_type_it(name: str) -> None:
    rule = rule_of(name)
    prompt = parse_prompt(TYPED, rule)
    assert read_segments(describe_prompt(rule, prompt)) == prompt
    ours = count_positions(Counting(rule), prompt)
    # Text 0 to 2, 2 x 3 tokens from 3 on, text 6 and 7, 4 x 2 from 8 on, text at 12.
    assert ours.max(axis=0).tolist()[:3] == [0, 1, 2]
    assert ours[:, -1].tolist() == [12, 12, 12]
    answer, _, wrong = explain_prompt(ours[[0, 2, 1]], rule, prompt)
    assert wrong
    assert answer == "height and width are exchanged"


@pytest.mark.parametrize(
    "text",
    ["", "text", "text 0", "image 4", "image 3x4", "picture 4x4", "text 5 image 4x4"],
)
def test_what_is_no_prompt_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_prompt(text, rule_of("qwen2_vl"))


def test_a_prompt_that_fills_the_memory_is_refused() -> None:
    rule = rule_of("qwen2_vl")
    longest = f"text {10**6}, image 2x{2 * 48_576}"
    assert len(parse_prompt(longest, rule)) == 2
    with pytest.raises(InputError, match="at most 1,048,576 tokens"):
        parse_prompt(f"{longest}, text 1", rule)


def test_frames_with_timestamps_are_typed_one_by_one() -> None:
    with pytest.raises(InputError, match="timestamp"):
        parse_prompt("text 2, clip 4x4x4", rule_of("qwen3_vl"))
    prompt = parse_prompt("text 2, clip 1x4x4, text 2", rule_of("qwen3_vl"))
    assert [segment.kind for segment in prompt] == ["text", "clip", "text"]


Change = Callable[[np.ndarray, Segment], tuple[np.ndarray, int]]


def count_changed(rule: PromptRule, change: Change) -> np.ndarray:
    """Positions whose images are changed, and text that goes on where the change says.

    ``change`` takes a grid [3, frames, rows, columns] from 0 on and its segment.
    """
    start = 0
    parts = []
    for segment in make_prompt(rule):
        if segment.kind == "text":
            parts.append(np.stack([start + np.arange(segment.tokens)] * 3))
            start += segment.tokens
            continue
        sides = segment.rows // rule.merged, segment.columns // rule.merged
        grid, steps = change(np.indices((segment.frames, *sides)), segment)
        parts.append(start + grid.reshape(3, -1))
        start += steps
    return np.concatenate(parts, axis=1)


def longer(grid: np.ndarray) -> int:
    return max(grid.shape[2:])


def in_the_other_order(grid: np.ndarray, segment: Segment) -> tuple[np.ndarray, int]:
    frames, rows, columns = grid.shape[1:]
    return np.indices((frames, columns, rows)), longer(grid)


def in_blocks(grid: np.ndarray, segment: Segment) -> tuple[np.ndarray, int]:
    frames, rows, columns = grid.shape[1:]
    blocks = grid.reshape(3, frames, rows // 2, 2, columns // 2, 2)
    return blocks.swapaxes(3, 4).reshape(grid.shape), longer(grid)


def frames_apart(grid: np.ndarray, segment: Segment) -> tuple[np.ndarray, int]:
    side = longer(grid)
    moved = np.stack([0 * grid[0], grid[1], grid[2]]) + side * grid[0]
    return moved, side * grid.shape[1]


def numbered(grid: np.ndarray, segment: Segment) -> tuple[np.ndarray, int]:
    numbers = np.arange(grid[0].size).reshape(grid[0].shape)
    return np.stack([numbers, grid[1], grid[2]]), grid[0].size


PARTS: dict[str, tuple[Change, str]] = {
    "late": (lambda grid, _: (grid, int(grid.max()) + 2), "begins one step late"),
    "transposed": (in_the_other_order, "6 rows of 4 tokens instead of 4 of 6"),
    "one position": (lambda grid, _: (0 * grid, 1), "stand at one position"),
    "no steps": (lambda grid, _: (grid, 1), "as if the image took one step"),
    "numbered": (numbered, "the time of the image counts its patches"),
    "from below": (
        lambda grid, _: (
            np.stack([grid[0], grid[1].max() - grid[1], grid[2]]),
            longer(grid),
        ),
        "rows of the image are counted from the end",
    ),
    "axes": (lambda grid, _: (grid[[1, 0, 2]], longer(grid)), "height, time and width"),
    "unmerged": (
        lambda grid, _: (grid * np.reshape([1, 2, 2], (3, 1, 1, 1)), longer(grid)),
        "count patches before they are merged",
    ),
    "early": (lambda grid, _: (grid - 1, longer(grid)), "one step early on all axes"),
    "far back": (
        lambda grid, _: (grid - 7, longer(grid)),
        "begins 7 steps early on all axes",
    ),
    "in blocks": (in_blocks, "patches of the image come in blocks of 2 x 2"),
    "frames": (
        frames_apart,
        "each frame of the clip is counted as an image of its own",
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_mistakes_of_parts_are_named_one_by_one(name: str) -> None:
    change, says = PARTS[name]
    rule = rule_of("qwen2_vl")
    answer, _, wrong = explain_prompt(count_changed(rule, change), rule)
    assert wrong
    assert says in answer


@pytest.mark.parametrize(
    ("begin", "says"),
    [(64, "stands at its token's number in the prompt"), (25, "begins 7 steps late")],
)
def test_the_last_text_by_another_offset(begin: int, says: str) -> None:
    """The offset of images is forgotten, or is that of another prompt."""
    rule = rule_of("qwen2_vl")
    got = count_positions(Counting(rule), make_prompt(rule))
    assert got[0, -4:].tolist() == [18, 19, 20, 21]
    got[:, -4:] = begin + np.arange(4)
    answer, _, wrong = explain_prompt(got, rule)
    assert wrong
    assert mentions(answer, "behind the clip", says)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e50])
def test_numbers_that_are_no_positions_are_named(number: float) -> None:
    rule = rule_of("qwen2_vl")
    got = count_positions(Counting(rule), make_prompt(rule)).astype(np.float64)
    got[0, 0] = number
    answer, _, wrong = explain_prompt(got, rule)
    assert wrong
    assert answer == "position ids hold numbers that are no positions"
