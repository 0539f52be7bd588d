"""Ask a function at positions of several axes, as images and clips have them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ropelab.conformance.observation import Observed, Vectors
from ropelab.conformance.rotations import observe_pairs_of_axes, observe_tables
from ropelab.conformance.ways import Way
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Int
from ropelab.runs.errors import InputError

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
    """Ask at positions of several axes, one vector of 1 and -1 at each."""
    if not way.position_shape:
        raise InputError(f"{way} takes one position at a time")

    called = str(way)
    places = positions
    if spec.has_patches and not way.takes_axes:
        # Pixtral's code had one number per patch: row * side + column.
        side = spec.trained_len
        if positions.max() >= side:
            raise InputError(f"{name} takes numbers of patches, {side} a row; {WRAP}")
        rows, columns = positions
        places = rows * side + columns
        called += f", as row * {side} + column"

    signs = make_signs(positions.shape[-1], spec.head_dim)
    try:
        rows_of_parts = way.ask(signs, places)
    except InputError as error:
        advice = f"; {WRAP}" if spec.has_patches else ""
        raise InputError(f"{name} {error}{advice}") from None
    return observe_axes(rows_of_parts, parts, signs, spec, called)


def make_signs(count: int, width: int) -> Vectors:
    """Return vectors of 1 and -1, always the same."""
    return np.random.default_rng(0).choice([-1.0, 1.0], (count, width))


def observe_axes(
    rows: Mapping[str, np.ndarray],
    parts: set[str],
    signs: Vectors,
    spec: RopeSpec,
    called: str,
) -> dict[str, Observed]:
    """Return the tables, or those by which vectors were rotated, by the part."""
    order = np.arange(len(signs))
    if {"cos", "sin"} <= parts:
        tables = observe_tables(order, rows["cos"], rows["sin"], spec)
        return {"": replace(tables, called=called)}

    observed = {}
    for part in sorted(parts):
        seen = observe_pairs_of_axes(signs, rows[part], order, spec)
        observed[part] = replace(seen, called=called)
    return observed
