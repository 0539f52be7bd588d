"""Vectors at positions of several axes: vectors of a kit, and vectors that an engine
wrote.

`make_axes_sheet` makes the arrays that `ropelab vectors` writes, and `explain_stored`
judges the arrays that an engine wrote for them. Positions are rows and columns of patches,
or times, heights and widths; the position ids of a whole prompt are among the arrays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ropelab.conformance.axes import explain_movement
from ropelab.conformance.axes_mistakes import list_commonest
from ropelab.conformance.axes_positions import choose_axes_positions
from ropelab.conformance.axes_reference import make_reference
from ropelab.conformance.axes_slow_pairs import describe_undecided, find_undecided_pairs
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Fault, Observed, are_bounded
from ropelab.conformance.pairs import measure_stray, pair_features, restore_pairs
from ropelab.conformance.prompts import (
    Counting,
    Segment,
    count_positions,
    describe_prompt,
    explain_prompt,
    list_countings,
    make_prompt,
    parse_prompt,
)
from ropelab.conformance.rotations import observe_tables, observe_vectors
from ropelab.math.axes import Positions, describe_pairs
from ropelab.readers.axes import PromptRule
from ropelab.readers.spec import RopeSpec
from ropelab.runs.errors import InputError

# The largest error of a rotated vector that counts as rounding, as a share of the
# largest number. bfloat16 makes less than half of it.
LARGEST_STRAY = 0.02

Arrays = Mapping[str, np.ndarray]
# The beginning of the names of arrays at positions of several axes.
PREFIX = "axes_"
# The array with the position ids of a prompt.
PROMPT = "prompt_positions"
# The end of the names of parts of an answer, as in `q at several axes`.
AT_AXES = " at several axes"
# The names of arrays that may be at positions of several axes, although they do not
# begin with PREFIX.
NAMES_WITHOUT_PREFIX = ("positions", "cos", "sin", "q", "k", "q_rotated", "k_rotated")


def choose_kit_axes_positions(expected: Expected) -> Positions:
    """Return rows and columns of a whole image, or times, heights and widths."""
    axes = expected.spec.axes
    assert axes is not None
    return choose_axes_positions(expected, is_grid=axes.centred)


def takes_prompt(spec: RopeSpec) -> bool:
    """Return True if positions are times, heights and widths, as those of prompts are."""
    return spec.axes is not None and spec.axes.count == 3


def make_axes_sheet(
    expected: Expected,
    vectors: Mapping[str, np.ndarray],
    rule: PromptRule | None,
    prompt_text: str = "",
) -> tuple[dict[str, np.ndarray], dict[str, str], dict[str, Any]]:
    """Return the arrays, a sentence for each mistake, and facts on axes and prompt.

    Args:
        expected: the rotation.
        vectors: queries and keys [vectors, head_dim], by name.
        rule: how the model counts positions of images; None if it does not.
        prompt_text: a prompt as people type it; a usual one if empty.
    """
    spec = expected.spec
    assert spec.axes is not None
    positions = choose_kit_axes_positions(expected)
    inv_freq = expected.inv_freq
    angles = spec.axes.angles(positions, inv_freq)
    cos = spec.attention_factor * np.cos(angles)
    sin = spec.attention_factor * np.sin(angles)

    arrays = {
        "axes_positions": positions,
        "axes_of_pairs": np.array(spec.axes.axis_of_pair),
        "axes_inv_freq": inv_freq,
        "axes_cos": cos,
        "axes_sin": sin,
    }
    for name, x in vectors.items():
        arrays[f"axes_{name}_rotated"] = expected.rotation.rotate(x, cos, sin)

    says = {}
    for name, movement in list_commonest(make_reference(expected, positions)):
        wrong_cos = spec.attention_factor * np.cos(movement.angles)
        wrong_sin = spec.attention_factor * np.sin(movement.angles)
        wrong = expected.rotation.rotate(vectors["k"], wrong_cos, wrong_sin)
        arrays[f"axes_mistake_{name}"] = wrong
        says[f"axes_{name}"] = movement.answer

    facts: dict[str, Any] = {
        "axes": list(spec.axes.names),
        "pairs_of_axes": describe_pairs(spec.axes.axis_of_pair, spec.axes.names),
    }
    if rule is not None and takes_prompt(spec):
        prompt = make_prompt(rule)
        if prompt_text:
            prompt = parse_prompt(prompt_text, rule)
        right_positions = count_positions(Counting(rule), prompt)
        arrays[PROMPT] = right_positions
        facts["prompt"] = describe_prompt(rule, prompt)
        for name, sentence, counting in list_countings(rule):
            wrong_positions = count_positions(counting, prompt)
            # Mistakes that do not show in this prompt are left out.
            if not np.array_equal(wrong_positions, right_positions):
                arrays[f"prompt_mistake_{name}"] = wrong_positions
                says[f"prompt_{name}"] = sentence
    return arrays, says, facts


def take_axes(arrays: Arrays) -> dict[str, np.ndarray]:
    """Return the arrays at positions of several axes, under the names of a kit."""
    arrays_of_axes = {}
    positions = arrays.get("positions")
    has_axes = positions is not None and positions.ndim == 2
    for name, array in arrays.items():
        if name.startswith(PREFIX) or name == PROMPT:
            arrays_of_axes[name] = array
        elif has_axes and name in NAMES_WITHOUT_PREFIX:
            arrays_of_axes[f"{PREFIX}{name}"] = array
    return arrays_of_axes


def explain_stored(
    path: Path,
    arrays: Arrays,
    expected: Expected,
    vectors: Mapping[str, np.ndarray],
    rule: PromptRule | None,
    prompt: Sequence[Segment] = (),
) -> dict[str, tuple[Fault | None, str]]:
    """Judge each part of what an engine wrote.

    Returns the fault of each part, and the answer for a part without a fault.

    Args:
        path: the file, to be named in errors.
        arrays: the arrays in the file, under the names of a kit.
        expected: the rotation.
        vectors: the queries and keys of a kit, which the file may leave out.
        rule: how the model counts positions of images; None if it does not.
        prompt: the parts of the prompt that position ids are for; the usual one if empty.
    """
    outcomes: dict[str, tuple[Fault | None, str]] = {}
    spec = expected.spec
    if spec.axes is None:
        return outcomes

    positions = read_axes_positions(path, arrays, expected)
    right_answer = f"axes of positions are right at {positions.shape[1]} positions"
    for part, observed in observe_stored(path, arrays, expected, vectors, positions):
        fault = observed.fault
        if not fault:
            fault = explain_movement(observed, expected, positions)
        answer = right_answer
        if not fault:
            undecided = find_undecided_pairs(observed, expected, positions)
            answer += describe_undecided(undecided, positions)
        outcomes[part + AT_AXES] = (fault, answer)

    if PROMPT in arrays:
        if rule is None:
            raise InputError(
                f"{path}: nobody looked at how this model counts positions"
            )
        answer, fix, is_wrong = explain_prompt(arrays[PROMPT], rule, prompt)
        fault = (answer, fix) if is_wrong else None
        outcomes[PROMPT] = (fault, answer)
    return outcomes


def read_axes_positions(path: Path, arrays: Arrays, expected: Expected) -> Positions:
    """Return the positions in a file, or else the positions of a kit; InputError: the
    file's array has no positions.
    """
    axes = expected.spec.axes
    assert axes is not None
    positions = arrays.get("axes_positions")
    if positions is None:
        return choose_kit_axes_positions(expected)

    if positions.ndim != 2 or axes.count not in positions.shape:
        raise InputError(
            f"{path}: positions have the shape {positions.shape} instead of"
            f" [{axes.count}, n]"
        )
    # A row per position is accepted as well as a row per axis.
    if len(positions) != axes.count:
        positions = positions.T

    whole = np.floor(positions)
    are_whole = are_bounded(positions) and np.array_equal(whole, positions)
    if not are_whole:
        raise InputError(f"{path}: positions must be whole numbers")
    return whole.astype(np.int64)


def observe_stored(
    path: Path,
    arrays: Arrays,
    expected: Expected,
    vectors: Mapping[str, np.ndarray],
    positions: Positions,
) -> list[tuple[str, Observed]]:
    """Return the tables of each part: cos and sin as they are, or the tables that
    rotated q and k.
    """
    spec = expected.spec
    count = positions.shape[1]
    # An `Observed` takes one number for each position. Positions with several axes are
    # numbered from 1, since a token at position 0 would count as one that does not rotate.
    order = np.arange(1, count + 1)

    parts = []
    if {"axes_cos", "axes_sin"} <= arrays.keys():
        tables = observe_tables(order, arrays["axes_cos"], arrays["axes_sin"], spec)
        parts.append(("cos and sin", tables))

    for name, kit_vectors in vectors.items():
        after = arrays.get(f"axes_{name}_rotated")
        if after is None:
            continue
        # The vectors before the rotation are in the file. If not, the vectors of the
        # kit are used.
        usual_vectors = arrays.get(name, kit_vectors)
        before = arrays.get(f"axes_{name}", usual_vectors)

        # One vector at each position may come without an axis of vectors.
        if before.shape == after.shape and after.ndim == 2:
            before = before[:, None]
            after = after[:, None]
        has_shape = (
            after.ndim == 3
            and after.shape[0] == count
            and after.shape[-1] == spec.head_dim
        )
        if not has_shape:
            right_shape = f"[{count}, {len(kit_vectors)}, {spec.head_dim}]"
            raise InputError(
                f"{path}: {name}_rotated has shape {after.shape} instead of"
                f" {right_shape}"
            )
        observed = observe_vectors(before, after, order, spec)
        if observed.fault is None:
            observed = replace(observed, fault=find_stray(before, after, spec))
        parts.append((name, observed))
    return parts


def find_stray(before: np.ndarray, after: np.ndarray, spec: RopeSpec) -> Fault | None:
    """Name the vector and the feature in which something stands beside the rotation.

    The tables come from what the vectors have in their pairs. Whatever else a vector
    has after the rotation is seen here alone.
    """
    first, second = pair_features(spec.pairing, spec.rotary_dim, spec.place)
    stray = min(
        (
            measure_stray(before, candidate, first, second)
            for candidate in (after, restore_pairs(after, spec))
        ),
        key=lambda errors: errors.max(),
    )
    if stray.max() <= LARGEST_STRAY * np.abs(before).max():
        return None
    place, vector, feature = np.unravel_index(stray.argmax(), stray.shape)
    answer = (
        f"feature {feature} of vector {vector} is off by {stray.max():.3g} at position"
        f" {place} of those looked at, beside what its pair makes of it"
    )
    return answer, "compare vector by vector"
