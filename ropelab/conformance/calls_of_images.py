"""Ask a function that takes the size of an image instead of positions.

An image is cut into patches, which a model reads as tokens: the position of a patch is
its row and its column. The function of the user gets the size of the image, in one of
three ways: a height and a width in patches, a grid (frames, height, width) in patches, as
`grid_thw` in Qwen, or the pixels themselves. Its answer has a row for each patch, in the
order of reading.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropelab.conformance.answers import (
    call,
    name_parts,
    split_complex_table,
    to_numbers,
)
from ropelab.conformance.calls_of_axes import WRAP, make_signs, observe_axes
from ropelab.conformance.observation import Observed
from ropelab.conformance.parameters import (
    GRID_ROLES,
    ROLES,
    list_parameters,
    list_required,
)
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Int
from ropelab.runs.errors import InputError, describe_error

# Pixels along a side of a patch, the commonest numbers first.
PATCH_SIZES = (16, 14, 32, 28, 8, 12, 20, 24, 10, 4, 2, 1)


@dataclass(frozen=True)
class GridCode:
    """A function of the size of an image."""

    function: Callable[..., Any]
    # The role of each parameter: height, width, grid or image, which say the size, or
    # vectors, which are to be rotated.
    roles: Mapping[str, str]

    def __str__(self) -> str:
        type_name = type(self.function).__name__
        name = getattr(self.function, "__name__", type_name)
        return f"{name}({', '.join(self.roles)})"


def find_grid(made: Any, spec: RopeSpec) -> GridCode | None:
    """Return what the factory of the user made, if it takes the size of an image; None
    otherwise.
    """
    if not spec.has_patches or not callable(made):
        return None
    # The name of a parameter tells its role. A name that is in neither table has the
    # role "".
    roles = {}
    for name in list_required(list_parameters(made)):
        lower_name = name.lower()
        roles[name] = GRID_ROLES.get(lower_name, "") or ROLES.get(lower_name, "")
    roles_of_image = sorted(role for role in roles.values() if role != "vectors")
    if roles_of_image in (["height", "width"], ["grid"], ["image"]):
        return GridCode(made, roles)
    return None


def ask_grid(
    grid: GridCode,
    name: str,
    spec: RopeSpec,
    positions: Int[np.ndarray, "axes n"],
) -> dict[str, Observed]:
    """Ask for all patches of an image; return the observation of each part of the
    answer, such as queries and keys.

    Args:
        grid: the function.
        name: the words that an error begins with.
        spec: the rotation that it should compute.
        positions: the row and the column of each patch, in the order of reading.
    """
    rows, columns = (positions.max(axis=-1) + 1).tolist()
    count = rows * columns
    patches = np.indices((rows, columns)).reshape(2, -1)
    if not np.array_equal(patches, positions):
        raise InputError(f"{name} takes the rows and columns of a whole image")

    # A function that rotates vectors is given these, of numbers 1 and -1.
    signs = make_signs(count, spec.head_dim)
    values: dict[str, Any] = {
        "height": rows,
        "width": columns,
        "grid": np.array([[1, rows, columns]]),
        "vectors": signs,
    }
    if "image" in grid.roles.values():
        parts = ask_with_pixels(grid, name, values)
    else:
        parts = call_grid(grid, values)
    for array in parts.values():
        if array.size % count:
            raise InputError(
                f"{name} gives shape {array.shape} for {rows} x {columns} patches;"
                f" {WRAP}"
            )

    by_patch = {}
    for part, array in parts.items():
        by_patch[part] = array.reshape(count, -1)
    by_patch = split_complex_table(by_patch)
    return observe_axes(
        rows=by_patch,
        parts=set(by_patch),
        signs=signs,
        spec=spec,
        called=str(grid),
    )


def ask_with_pixels(
    grid: GridCode,
    name: str,
    values: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """Return the parts of the answer for an image of `height` x `width` patches.

    Both are in `values`. The size of a patch in pixels is not known, so that each usual
    one is tried until the answer has as many rows as there are patches.
    """
    rows = values["height"]
    columns = values["width"]
    # The error of the size that was tried last.
    problem = ""

    for size in PATCH_SIZES:
        image = np.zeros((1, 3, rows * size, columns * size))
        try:
            parts = call_grid(grid, {**values, "image": image})
        # The code may refuse an image whose sides are not multiples of its patches.
        except Exception as error:
            problem = f"raised {type(error).__name__}: {describe_error(error)}"
            continue

        # The last axis counts features, and all axes before it count patches.
        shapes = [array.shape for array in parts.values()]
        if all(math.prod(shape[:-1]) == rows * columns for shape in shapes):
            return parts
        problem = f"gives shape {shapes[0]} for an image of {image.shape[2:]} pixels"

    raise InputError(f"{name} {problem}; {WRAP}")


def call_grid(grid: GridCode, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the parts of the answer as arrays, by name.

    ``values``: what a parameter of each role is given.
    """
    arguments = {parameter: values[role] for parameter, role in grid.roles.items()}
    vector_names = [name for name, role in grid.roles.items() if role == "vectors"]
    answer = call(grid.function, arguments)
    is_array = hasattr(answer, "shape")
    if is_array and not vector_names and not np.iscomplexobj(to_numbers(answer)):
        # One real array can only be the angles.
        angles = to_numbers(answer)
        return {"cos": np.cos(angles), "sin": np.sin(angles)}

    parts = {}
    for name, part in name_parts(answer, vector_names).items():
        parts[name] = to_numbers(part)
    return parts
