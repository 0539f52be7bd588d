"""Codes of encoders of images: right ones in several styles, and one mistake each."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ropelab.conformance.calls import ask_function
from ropelab.conformance.check_code import judge_code
from ropelab.conformance.diagnosis import Check
from ropelab.conformance.expected import expect_config
from ropelab.runs.errors import InputError
from tests.conformance.several_axes import DINOV3, MODELS, PIXTRAL
from tests.texts import mentions

HEAD = 32
HALF = HEAD // 4
# A ladder for each axis, exponents over its 16 features.
OWN = 1e4 ** (-np.arange(HALF) / HALF)
WHOLE = 1e4 ** (-np.arange(2 * HALF) / (2 * HALF))
DINO = 100.0 ** (-np.arange(HALF) / HALF)


def checked(config: dict[str, Any], code: Any) -> Check:
    wanted = expect_config("config.json", config, None)["vision"]
    return judge_code(
        lambda spec, at: ask_function(code, "code", spec, at), wanted, 0.01
    )


def double(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    both = np.concatenate([angles, angles], -1)
    return np.cos(both), np.sin(both)


def of_positions(
    height: np.ndarray,
    width: np.ndarray,
    change: Callable[[np.ndarray], np.ndarray] = lambda places: places,
) -> Any:
    """Tables of positions [2, n], with these frequencies for rows and columns."""

    def tables(positions: np.ndarray) -> Any:
        rows, columns = change(positions.astype(np.float64))
        return double(
            np.concatenate([rows[:, None] * height, columns[:, None] * width], -1)
        )

    return tables


def test_pixtral_takes_every_second_frequency() -> None:
    done = checked(PIXTRAL, of_positions(WHOLE[::2], WHOLE[1::2]))
    assert not done.wrong
    assert mentions(done.answer, "height and width")


@pytest.mark.parametrize(
    ("height", "width", "says"),
    [
        (WHOLE[1::2], WHOLE[::2], "each other's frequencies"),
        (OWN, OWN, "a ladder of its own"),
        (WHOLE[:HALF], WHOLE[HALF:], "go on over the whole head"),
        (WHOLE[:HALF], WHOLE[:HALF], "start again at 0"),
    ],
)
def test_other_ladders_than_pixtral_s(height: Any, width: Any, says: str) -> None:
    done = checked(PIXTRAL, of_positions(height, width))
    assert done.wrong
    assert says in done.answer


def test_rows_and_columns_that_are_exchanged_keep_pixtral_s_frequencies() -> None:
    done = checked(PIXTRAL, of_positions(WHOLE[::2], WHOLE[1::2], lambda p: p[::-1]))
    assert done.wrong
    assert "height and width are exchanged" in done.answer


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (lambda n: (n // 32, n % 32), ""),
        (lambda n: (n % 32, n // 32), "height and width are exchanged"),
        (lambda n: (n, n), "all pairs read the number of the patch, row by row"),
    ],
)
def test_numbers_of_patches_in_the_largest_image(place: Any, says: str) -> None:
    """Pixtral's positions are row * 32 + column, of 32 patches along a side."""

    def tables(position_ids: np.ndarray) -> Any:
        positions = np.stack(place(np.asarray(position_ids)))
        return of_positions(WHOLE[::2], WHOLE[1::2])(positions)

    done = checked(PIXTRAL, tables)
    assert done.wrong == bool(says)
    assert says in done.answer


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: p[::-1], "exchanged"),
        (lambda p: p + 1, "height and width are off by 1"),
        (lambda p: p - (p.max(1, keepdims=True)) / 2, "from the centre"),
        (lambda p: p[:1].repeat(2, 0), "all pairs read the axis of height"),
        (lambda p: p // 2, "p // 2"),
        (lambda p: p * 14, "multiplied by 14"),
        (lambda p: p / (p.max(1, keepdims=True) + 1), "shares of the image"),
    ],
)
def test_other_positions_than_qwen_s(change: Any, says: str) -> None:
    done = checked(MODELS["qwen2_vl"], of_positions(OWN, OWN, change))
    assert done.wrong
    assert says in done.answer


def grid_code(
    place: Callable[[int, int], np.ndarray] = lambda n, _: (
        (2 * np.arange(n) + 1) / n - 1
    ),
    turn: float = 2 * math.pi,
) -> Any:
    """DINOv3's tables of an image, by its rows and columns of patches."""

    def tables(num_patches_h: int, num_patches_w: int) -> Any:
        rows = place(num_patches_h, num_patches_w)
        columns = place(num_patches_w, num_patches_h)
        grid = np.stack(np.meshgrid(rows, columns, indexing="ij")).reshape(2, -1)
        return double(
            turn * np.concatenate([axis[:, None] * DINO for axis in grid], -1)
        )

    return tables


def test_dinov3_runs_from_edge_to_edge() -> None:
    done = checked(DINOV3, grid_code())
    assert not done.wrong
    assert mentions(done.called, "num_patches_h", "num_patches_w")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (grid_code(lambda n, _: 2 * np.arange(n) / n - 1), "half a patch"),
        (grid_code(lambda n, _: 2 * np.arange(n) / (n - 1) - 1), "corner to corner"),
        (grid_code(lambda n, _: 1.0 * np.arange(n), 1.0), "not centred"),
        (grid_code(turn=1.0), "not multiplied by 2 pi"),
        (grid_code(turn=math.pi), "pi instead of 2 pi"),
        (
            grid_code(lambda n, m: (2 * np.arange(n) + 1 - n) / max(n, m)),
            "the longer side",
        ),
        (
            grid_code(lambda n, m: (2 * np.arange(n) + 1) / min(n, m) - 1),
            "the shorter side",
        ),
    ],
)
def test_patches_that_are_placed_otherwise(code: Any, says: str) -> None:
    done = checked(DINOV3, code)
    assert done.wrong
    assert says in done.answer


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (np.arange(16), ""),
        (np.arange(0, 32, 2), "adjacent pairing instead of half"),
        (np.r_[0:8, 16:24], "features of its own in halves"),
    ],
)
def test_pairs_of_rotated_vectors(first: np.ndarray, says: str) -> None:
    second = np.setdiff1d(np.arange(HEAD), first)

    def rotate(x: np.ndarray, h: int, w: int) -> np.ndarray:
        rows, columns = np.indices((h, w)).reshape(2, -1)
        angles = np.concatenate([rows[:, None] * OWN, columns[:, None] * OWN], -1)
        cos, sin = np.cos(angles), np.sin(angles)
        rotated = x.copy()
        rotated[:, first] = x[:, first] * cos - x[:, second] * sin
        rotated[:, second] = x[:, second] * cos + x[:, first] * sin
        return rotated

    done = checked(MODELS["qwen3_vl"], rotate)
    assert done.wrong == bool(says)
    assert says in done.answer


def order_patches(block: int, by_columns: bool = False) -> Any:
    """Tables of the patches of an image in another order."""

    def tables(h: int, w: int) -> Any:
        rows, columns = np.indices((h, w))
        shape = (h // block, block, w // block, block)
        if by_columns:
            rows, columns = rows.T, columns.T
        else:
            rows = rows.reshape(shape).swapaxes(1, 2)
            columns = columns.reshape(shape).swapaxes(1, 2)
        angles = [rows.reshape(-1, 1) * OWN, columns.reshape(-1, 1) * OWN]
        return double(np.concatenate(angles, -1))

    return tables


def test_encoders_that_merge_patches_have_them_in_blocks() -> None:
    assert not checked(MODELS["qwen3_vl"], order_patches(2)).wrong
    assert not checked(MODELS["qwen3_vl"], order_patches(1)).wrong


def test_patches_column_by_column_are_named() -> None:
    done = checked(MODELS["qwen3_vl"], order_patches(1, by_columns=True))
    assert done.wrong
    assert mentions(done.answer, "column by column")


QWEN: dict[str, Any] = MODELS["qwen2_5_vl"]
BY_POSITION = 1e4 ** (-np.arange(HALF) / HALF) * np.arange(512.0)[:, None]


def test_a_table_that_is_looked_up_by_rows_and_columns() -> None:
    """Such code takes text as well, and gives it half of the columns."""

    def tables(pos_ids: np.ndarray) -> Any:
        angles = BY_POSITION[pos_ids]
        angles = angles.reshape(len(angles), -1)
        return np.cos(angles), np.sin(angles)

    assert not checked(QWEN, tables).wrong

    def exchanged(pos_ids: np.ndarray) -> Any:
        return tables(pos_ids[..., ::-1])

    done = checked(QWEN, exchanged)
    assert done.wrong
    assert "height and width are exchanged" in done.answer


def block_positions(rows: int, columns: int) -> np.ndarray:
    patches = np.indices((rows, columns)).reshape(2, rows // 2, 2, columns // 2, 2)
    return patches.swapaxes(2, 3).reshape(2, -1)


@pytest.mark.parametrize("gives_angles", [False, True])
@pytest.mark.parametrize("is_exchanged", [False, True])
def test_a_grid_of_frames_rows_and_columns(
    is_exchanged: bool, gives_angles: bool
) -> None:
    def rot_pos_emb(grid_thw: Any) -> Any:
        ((_, rows, columns),) = grid_thw
        places = block_positions(rows, columns)
        if is_exchanged:
            places = places[::-1]
        angles = np.concatenate([BY_POSITION[axis] for axis in places], -1)
        if gives_angles:
            return angles
        return double(angles)

    assert checked(QWEN, rot_pos_emb).wrong == is_exchanged


@pytest.mark.parametrize("patch_size", [14, 16])
@pytest.mark.parametrize("is_exchanged", [False, True])
def test_pixels_of_an_image(is_exchanged: bool, patch_size: int) -> None:
    def forward(pixel_values: Any) -> Any:
        height, width = pixel_values.shape[-2:]
        if height % patch_size or width % patch_size:
            raise ValueError("no whole patches")
        rows, columns = height // patch_size, width // patch_size
        row, column = np.indices((rows, columns)).reshape(2, -1)
        of_rows = np.outer((2 * row + 1) / rows - 1, 2 * math.pi * DINO)
        of_columns = np.outer((2 * column + 1) / columns - 1, 2 * math.pi * DINO)
        parts = [of_rows, of_columns]
        if is_exchanged:
            parts.reverse()
        return double(np.concatenate(parts, -1))

    assert checked(DINOV3, forward).wrong == is_exchanged


@pytest.mark.parametrize("side", [32, 33])
def test_numbers_of_patches_that_pixtral_takes(side: int) -> None:
    """An image has 512 pixels and patches of 16, so that a row has 32 numbers."""

    def forward(x: np.ndarray, position_ids: np.ndarray) -> Any:
        row, column = np.divmod(position_ids, side)
        return double(
            np.concatenate(
                [np.outer(row, WHOLE[::2]), np.outer(column, WHOLE[1::2])], -1
            )
        )

    assert checked(PIXTRAL, forward).wrong == (side == 33)


def test_other_code_of_images_is_told_how_to_be_wrapped() -> None:
    def forward(windows: Any, sizes: Any) -> Any:
        raise TypeError("windows of sizes")

    with pytest.raises(InputError, match=r"wrap it as f\(height, width\)"):
        checked(QWEN, forward)


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (DINOV3, grid_code()),
        (DINOV3, grid_code(turn=1.0)),
        (PIXTRAL, of_positions(OWN, OWN)),
    ],
)
def test_shares_of_an_image_and_wrong_code_are_asked_for_whole_images_alone(
    config: dict[str, Any], code: Any
) -> None:
    """Patches in no order are no image, and would hide what the whole image showed."""
    whole_images = []

    def ask(spec: Any, positions: np.ndarray) -> Any:
        rows, columns = positions
        size = (rows.max() + 1) * (columns.max() + 1)
        whole_images.append(positions.shape[1] == size)
        return ask_function(code, "code", spec, positions)

    expected = expect_config("config.json", config, None)["vision"]
    judge_code(ask, expected, 0.01)
    assert whole_images
    assert all(whole_images)


def in_blocks(
    ladder: np.ndarray,
    change: Callable[[np.ndarray], np.ndarray] = lambda places: places,
) -> Any:
    """Qwen2-VL's: patches in the order of the 2 x 2 blocks that are merged."""

    def tables(grid_thw: np.ndarray) -> Any:
        ((_, height, width),) = np.asarray(grid_thw)
        patches = np.indices((height, width))
        blocks = patches.reshape(2, height // 2, 2, width // 2, 2).swapaxes(2, 3)
        rows, columns = change(blocks.reshape(2, -1))
        return double(
            np.concatenate([rows[:, None] * ladder, columns[:, None] * ladder], -1)
        )

    return tables


@pytest.mark.parametrize(
    ("ladder", "change", "says"),
    [
        (OWN, lambda p: p[::-1], "height and width are exchanged"),
        (OWN, lambda p: p // 2, "are p // 2"),
        (OWN, lambda p: p + 1, "are off by 1"),
        (1e6 ** (-np.arange(HALF) / HALF), lambda p: p, "base 1e6 instead of 10000"),
        (WHOLE[:HALF], lambda p: p, "start again at 0 on each axis"),
    ],
)
def test_mistakes_are_named_where_patches_come_in_blocks(
    ladder: np.ndarray, change: Any, says: str
) -> None:
    assert not checked(MODELS["qwen2_vl"], in_blocks(OWN)).wrong
    done = checked(MODELS["qwen2_vl"], in_blocks(ladder, change))
    assert done.wrong
    assert says in done.answer
