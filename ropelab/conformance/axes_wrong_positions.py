"""Codes whose positions on an axis are shifted, centred, multiplied, or in another order."""

import math
from collections.abc import Iterator
from itertools import chain, combinations

import numpy as np

from ropelab.conformance.axes_positions import Coordinates, order_in_blocks
from ropelab.conformance.axes_reference import Movement
from ropelab.conformance.explained import FACTORS
from ropelab.math.axes import Axes, Positions, describe_pairs
from ropelab.math.frequencies import Frequencies
from ropelab.readers.spec import RopeSpec
from ropelab.runs.sentences import join_names

SHIFTS = (1.0, -1.0, 0.5, -0.5)
# Patches along a side of the blocks in which such encoders order patches.
BLOCK = 2


def list_other_positions(
    axes: Axes,
    inv_freq: Frequencies,
    positions: Positions,
    most_axes: int | None = None,
) -> Iterator[Movement]:
    """Yield positions that are shifted, centred, multiplied, or turned round.

    ``most_axes``: the largest number of axes that have the mistake at once; all if None.
    """
    right = axes.coordinates(positions)
    plain = positions.astype(np.float64)
    sizes = plain.max(axis=1, keepdims=True) + 1

    variants: list[tuple[str, str, Coordinates]] = []
    if axes.centred:
        variants += list_uncentred(plain, sizes)
    else:
        variants += list_centred(plain, sizes)
    variants += list_changed(right, plain, sizes, axes)

    for answer, fix, changed in variants:
        for subset in list_subsets(axes.count, most_axes or axes.count):
            coordinates = right.copy()
            coordinates[list(subset)] = changed[list(subset)]
            names = join_names([axes.names[axis] for axis in subset])
            words = f"positions of {names} {answer}"
            yield Movement(words, fix, axes.axis_of_pair, inv_freq, coordinates)


def list_subsets(count: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield the most of some axes first, then fewer and fewer of them."""
    sizes = range(most, 0, -1)
    yield from chain.from_iterable(combinations(range(count), size) for size in sizes)


def list_centred(
    plain: Coordinates,
    sizes: Coordinates,
) -> list[tuple[str, str, Coordinates]]:
    """Return positions that are counted from a centre or as shares of an image."""
    fix = "count rows and columns from 0"
    centre = "are counted from the centre of the image"
    shares = "are shares of the image"
    between = (2 * plain + 1) / sizes - 1
    return [
        (centre, fix, plain - (sizes - 1) / 2),
        (centre, fix, plain - sizes / 2),
        (centre, fix, plain - sizes // 2),
        (f"{shares}, from 0 to 1", fix, plain / sizes),
        (f"{shares}, from 0 to 1", fix, plain / np.maximum(sizes - 1, 1)),
        (f"{shares}, from -1 to 1", fix, between),
        (f"{shares}, from -1 to 1, times 2 pi", fix, 2 * math.pi * between),
    ]


def list_uncentred(
    plain: Coordinates,
    sizes: Coordinates,
) -> list[tuple[str, str, Coordinates]]:
    """Return positions that do not run from -1 to 1, or lose their 2 pi."""
    fix = "2 pi ((2p + 1) / n - 1) for row or column p of n"
    turn = 2 * math.pi
    between = (2 * plain + 1) / sizes - 1
    longest = sizes.max()
    ends = np.maximum(sizes - 1, 1)
    return [
        ("are counted from 0 and not centred", fix, plain),
        ("are counted from 0 and not centred", fix, turn * plain),
        ("are counted from the centre, but not divided", fix, plain - (sizes - 1) / 2),
        ("are not multiplied by 2 pi", fix, between),
        ("are multiplied by pi instead of 2 pi", fix, math.pi * between),
        ("are off by half a patch", fix, turn * (2 * plain / sizes - 1)),
        ("are off by half a patch", fix, turn * (2 * (plain + 1) / sizes - 1)),
        ("run from corner to corner", fix, turn * (2 * plain / ends - 1)),
        ("run from 0 to 1, not from -1", fix, turn * (plain + 0.5) / sizes),
        (
            "are divided by the longer side of the image",
            fix,
            turn * ((2 * plain + 1 - sizes) / longest),
        ),
        (
            "are divided by the longer side of the image",
            fix,
            turn * ((2 * plain + 1) / longest - 1),
        ),
    ]


def list_changed(
    right: Coordinates,
    plain: Coordinates,
    sizes: Coordinates,
    axes: Axes,
) -> list[tuple[str, str, Coordinates]]:
    """Return positions that are shifted, multiplied, left out, or counted backwards."""
    variants = []
    for shift in SHIFTS:
        moved = right + shift
        if axes.centred:
            # A patch is a share of the image.
            moved = right + shift * (4 * math.pi / sizes)
        answer = f"are off by {shift:g}"
        variants.append((answer, "count from 0 in every image and text", moved))

    last = right.max(axis=1, keepdims=True) + right.min(axis=1, keepdims=True)
    if not axes.centred:
        last = sizes - 1
    variants.append(("are counted from the end", "count from 0", last - right))
    variants.append(("turn the wrong way", "one sign for all axes", -right))
    variants.append(("do not move any pair", "use every axis", 0 * right))
    for factor in sorted({*FACTORS, 14.0, 25.0, 50.0}):
        if factor <= 1:
            continue
        answer = f"are multiplied by {factor:g}"
        fix = "check patch size, merging and the rate of frames"
        variants.append((answer, fix, right * factor))
        variants.append((f"are divided by {factor:g}", fix, right / factor))
        if not axes.centred:
            variants.append((f"are p // {factor:g}", fix, plain // factor))
    return variants


def list_numbered(
    spec: RopeSpec,
    inv_freq: Frequencies,
    positions: Positions,
) -> Iterator[Movement]:
    """Yield patches that are numbered one after another, as if they were text."""
    axes = spec.axes
    assert axes is not None
    sizes = positions.max(axis=1) + 1
    exact = positions.astype(np.float64)
    rows, columns = exact[-2:]
    # Patches may be numbered in this image, or in the largest square one.
    numbers = []
    for height, width in (sizes[-2:], (spec.trained_len, spec.trained_len)):
        numbers.append(("row by row", rows * width + columns))
        numbers.append(("column by column", columns * height + rows))
    everywhere = [0] * len(inv_freq)
    for order, number in numbers:
        for frequencies in (inv_freq, spec.geometry.inv_freq):
            answer = f"all pairs read the number of the patch, {order}"
            fix = describe_pairs(axes.axis_of_pair, axes.names)
            yield Movement(answer, fix, everywhere, frequencies, number[None])


def list_reordered(
    axes: Axes,
    inv_freq: Frequencies,
    positions: Positions,
) -> Iterator[Movement]:
    """Yield the patches of an image in another order."""
    by_columns = positions[:, np.lexsort(positions)]
    orders = {
        "column by column": by_columns,
        "in blocks of 2 x 2": order_in_blocks(positions, BLOCK),
    }
    for order, changed in orders.items():
        answer = f"the patches of an image come {order} instead of row by row"
        coordinates = axes.coordinates(changed)
        fix = "the last row of positions changes first"
        yield Movement(answer, fix, axes.axis_of_pair, inv_freq, coordinates)
