"""Ask a function at positions of several axes, as images and clips have them.

A patch of an image has a row and a column, a patch of a clip also a time.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ropelab.conformance.observation import Observed, Vectors
from ropelab.conformance.rotations import observe_pairs_of_axes, observe_tables
from ropelab.conformance.ways import Way
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Int
from ropelab.runs.errors import InputError

# Advice for code that cannot be called.
WRAP = (
    "wrap it as f(height, width) that returns cos and sin of all patches of an image,"
    " row by row"
)


def ask_axes(
    way: Way,
    parts: set[str],
    name: str,
    spec: RopeSpec,
    positions: Int[np.ndarray, "axes n"],
) -> dict[str, Observed]:
    """Ask for one vector of 1 and -1 at each position; return what is seen of each part.

    Args:
        way: how the function is called.
        parts: the names of the parts of its answer.
        name: the words that an error begins with.
        spec: the rotation that it should compute.
        positions: the coordinates of each position.
    """
    if not way.position_shape:
        raise InputError(f"{way} takes one position at a time")

    called = str(way)
    given_positions = positions
    if spec.has_patches and not way.takes_axes:
        # Code such as Pixtral's numbers the patches of a square image row by row.
        side = spec.trained_len
        if positions.max() >= side:
            raise InputError(f"{name} takes numbers of patches, {side} a row; {WRAP}")
        rows, columns = positions
        given_positions = rows * side + columns
        called += f", as row * {side} + column"

    signs = make_signs(positions.shape[-1], spec.head_dim)
    try:
        rows_of_parts = way.ask(signs, given_positions)
    except InputError as error:
        advice = f"; {WRAP}" if spec.has_patches else ""
        raise InputError(f"{name} {error}{advice}") from None
    return observe_axes(rows_of_parts, parts, signs, spec, called)


def make_signs(count: int, width: int) -> Vectors:
    """Return vectors [count, width] of 1 and -1, the same at each call."""
    return np.random.default_rng(0).choice([-1.0, 1.0], (count, width))


def observe_axes(
    rows: Mapping[str, np.ndarray],
    parts: set[str],
    signs: Vectors,
    spec: RopeSpec,
    called: str,
) -> dict[str, Observed]:
    """Return the cos and sin of each part: its tables, or how its vectors are rotated.

    Args:
        rows: the parts of an answer [positions, columns], by name.
        parts: the names of the parts to return.
        signs: the vectors [positions, head_dim] that were rotated.
        spec: what should be rotated.
        called: the function with its arguments, in words.
    """
    # An `Observed` has one number for each position: here the number of its row.
    order = np.arange(len(signs))
    if {"cos", "sin"} <= parts:
        tables = observe_tables(order, rows["cos"], rows["sin"], spec)
        return {"": replace(tables, called=called)}

    observed_parts = {}
    for part in sorted(parts):
        observed = observe_pairs_of_axes(signs, rows[part], order, spec)
        observed_parts[part] = replace(observed, called=called)
    return observed_parts
