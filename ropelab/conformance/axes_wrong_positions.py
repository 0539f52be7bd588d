"""What implementations compute that read the right axes at wrong positions.

Positions are rows and columns of patches, and times of frames. On some axes positions
are counted from 0. On centred axes they are shares of the image, from -1 at one edge to
1 at the opposite edge, times 2 pi.
"""

import math
from collections.abc import Iterator
from itertools import combinations, permutations

import numpy as np

from ropelab.conformance.axes_positions import Coordinates, order_in_blocks
from ropelab.conformance.axes_reference import Movement, Reference
from ropelab.conformance.usual import FACTORS
from ropelab.math.axes import Axes, describe_pairs
from ropelab.runs.sentences import join_names

# Steps by which positions are shifted.
SHIFTS = (1.0, -1.0, 0.5, -0.5)
# Factors between pixels, patches, frames and seconds.
FACTORS_OF_IMAGES = (14.0, 25.0, 50.0)
# Patches along a side of a block, where an encoder merges the patches of a block.
BLOCK = 2
# How positions are wrong, in the words behind `positions of height`; what to do; and the
# wrong positions.
Variant = tuple[str, str, Coordinates]


def list_other_positions(
    right: Reference,
    most_axes: int | None = None,
) -> Iterator[Movement]:
    """Yield wrong positions on all axes, then on fewer and fewer axes.

    ``most_axes``: the largest number of axes that are wrong at once; None: all.
    """
    axes = right.axes
    right_coordinates = right.coordinates
    indices = right.positions.astype(np.float64)  # [axes, n], counted from 0
    sizes = indices.max(axis=1, keepdims=True) + 1  # [axes, 1], in patches or frames

    variants: list[Variant] = []
    if axes.centred:
        variants += list_uncentred(indices, sizes)
    else:
        variants += list_centred(indices, sizes)
    variants += list_changed(right_coordinates, indices, sizes, axes)

    for words, fix, changed in variants:
        for subset in list_subsets(axes.count, most_axes or axes.count):
            coordinates = right_coordinates.copy()
            coordinates[subset] = changed[subset]
            names = join_names([axes.names[axis] for axis in subset])
            answer = f"positions of {names} {words}"
            yield Movement(answer, fix, axes.axis_of_pair, right.inv_freq, coordinates)
    yield from list_joined(right)


def list_joined(right: Reference) -> Iterator[Movement]:
    """Yield positions on one axis that have those on another axis in them."""
    axes = right.axes
    coordinates = right.coordinates
    for axis, other in permutations(range(axes.count), 2):
        name = axes.names[axis]
        other_name = axes.names[other]
        joined = {
            f"are {other_name} + {name}": coordinates[axis] + coordinates[other],
            f"are {name} - {other_name}": coordinates[axis] - coordinates[other],
            f"are the larger of {other_name} and {name}": np.maximum(
                coordinates[axis], coordinates[other]
            ),
        }

        for words, places in joined.items():
            changed = coordinates.copy()
            changed[axis] = places
            answer = f"positions of {name} {words}"
            fix = "each axis has its own position"
            yield Movement(answer, fix, axes.axis_of_pair, right.inv_freq, changed)


def list_subsets(count: int, most: int) -> Iterator[list[int]]:
    """Yield every choice of ``most`` axes first, then of fewer and fewer axes."""
    for size in range(most, 0, -1):
        for subset in combinations(range(count), size):
            yield [*subset]


def list_centred(indices: Coordinates, sizes: Coordinates) -> list[Variant]:
    """Return wrong positions where rows and columns should be counted from 0.

    They are counted from the centre of the image, or are shares of its sides.

    Args:
        indices: the positions counted from 0.
        sizes: [axes, 1], the number of patches along each axis.
    """
    fix = "count rows and columns from 0"
    centre = "are counted from the centre of the image"
    shares = "are shares of the image"

    # From -1 to 1 at the middles of the patches.
    between = (2 * indices + 1) / sizes - 1

    # The centre is taken at half of the last index, at half of the size, or at half of
    # the size rounded down.
    return [
        (centre, fix, indices - (sizes - 1) / 2),
        (centre, fix, indices - sizes / 2),
        (centre, fix, indices - sizes // 2),
        (f"{shares}, from 0 to 1", fix, indices / sizes),
        (f"{shares}, from 0 to 1", fix, indices / np.maximum(sizes - 1, 1)),
        (f"{shares}, from -1 to 1", fix, between),
        (f"{shares}, from -1 to 1, times 2 pi", fix, 2 * math.pi * between),
    ]


def list_uncentred(indices: Coordinates, sizes: Coordinates) -> list[Variant]:
    """Return wrong positions where they should run from -1 to 1, times 2 pi.

    Args:
        indices: the positions counted from 0.
        sizes: [axes, 1], the number of patches along each axis.
    """
    fix = "2 pi ((2p + 1) / n - 1) for row or column p of n"
    turn = 2 * math.pi

    # From -1 to 1 at the middles of the patches.
    between = (2 * indices + 1) / sizes - 1
    sides = {"longer": sizes.max(), "shorter": sizes.min()}
    steps_between_ends = np.maximum(sizes - 1, 1)

    variants: list[Variant] = []
    for name, side in sides.items():
        answer = f"are divided by the {name} side of the image"
        variants.append((answer, fix, turn * ((2 * indices + 1 - sizes) / side)))
        variants.append((answer, fix, turn * ((2 * indices + 1) / side - 1)))

    return [
        ("are counted from 0 and not centred", fix, indices),
        ("are counted from 0 and not centred", fix, turn * indices),
        (
            "are counted from the centre, but not divided",
            fix,
            indices - (sizes - 1) / 2,
        ),
        ("are not multiplied by 2 pi", fix, between),
        ("are multiplied by pi instead of 2 pi", fix, math.pi * between),
        ("are off by half a patch", fix, turn * (2 * indices / sizes - 1)),
        ("are off by half a patch", fix, turn * (2 * (indices + 1) / sizes - 1)),
        (
            "run from corner to corner",
            fix,
            turn * (2 * indices / steps_between_ends - 1),
        ),
        ("run from 0 to 1, not from -1", fix, turn * (indices + 0.5) / sizes),
        *variants,
    ]


def list_changed(
    right: Coordinates,
    indices: Coordinates,
    sizes: Coordinates,
    axes: Axes,
) -> list[Variant]:
    """Return positions that are shifted, multiplied, left out, or counted backwards.

    Args:
        right: the right positions.
        indices: the positions counted from 0.
        sizes: [axes, 1], the number of patches along each axis.
        axes: says whether right positions are centred.
    """
    variants: list[Variant] = []
    for shift in SHIFTS:
        moved = right + shift
        if axes.centred:
            # Positions run from -2 pi to 2 pi, so that one patch is 4 pi divided by the
            # number of patches.
            patch = 4 * math.pi / sizes
            moved = right + shift * patch
        answer = f"are off by {shift:g}"
        variants.append((answer, "count from 0 in every image and text", moved))

    both_ends = right.max(axis=1, keepdims=True) + right.min(axis=1, keepdims=True)
    if not axes.centred:
        both_ends = sizes - 1
    variants.append(("are counted from the end", "count from 0", both_ends - right))
    variants.append(("turn the wrong way", "one sign for all axes", -right))
    variants.append(("do not move any pair", "use every axis", 0 * right))
    for factor in sorted({*FACTORS, *FACTORS_OF_IMAGES}):
        if factor <= 1:
            continue
        answer = f"are multiplied by {factor:g}"
        fix = "check patch size, merging and the rate of frames"
        variants.append((answer, fix, right * factor))
        variants.append((f"are divided by {factor:g}", fix, right / factor))
        if not axes.centred:
            variants.append((f"are p // {factor:g}", fix, indices // factor))
    return variants


def list_numbered(right: Reference) -> Iterator[Movement]:
    """Yield patches that are numbered one after another, as if they were text."""
    axes = right.axes
    # The last two axes are rows and columns; a time may come before them.
    height, width = right.positions[-2:].max(axis=1) + 1
    rows, columns = right.positions[-2:].astype(np.float64)

    # Patches may be numbered as in this image, or as in the largest square image.
    side = right.spec.trained_len
    numberings = []
    for image_height, image_width in ((height, width), (side, side)):
        numberings.append(("row by row", rows * image_width + columns))
        numberings.append(("column by column", columns * image_height + rows))
    # The number of a patch is the only axis, which all pairs read.
    axis_of_pair = [0] * len(right.inv_freq)
    for order, numbers in numberings:
        for frequencies in (right.inv_freq, right.spec.geometry.inv_freq):
            answer = f"all pairs read the number of the patch, {order}"
            fix = describe_pairs(axes.axis_of_pair, axes.names)
            yield Movement(answer, fix, axis_of_pair, frequencies, numbers[None])


def list_reordered(right: Reference) -> Iterator[Movement]:
    """Yield the patches of an image in another order."""
    axes = right.axes
    positions = right.positions
    # `lexsort` sorts by the last axis first, which is the axis of columns.
    by_columns = positions[:, np.lexsort(positions)]
    orders = {
        "column by column": by_columns,
        "in blocks of 2 x 2": order_in_blocks(positions, BLOCK),
    }

    for order, changed in orders.items():
        answer = f"the patches of an image come {order} instead of row by row"
        coordinates = axes.coordinates(changed)
        fix = "the last row of positions changes first"
        yield Movement(answer, fix, axes.axis_of_pair, right.inv_freq, coordinates)
