"""Vectors at positions of several axes for engines, and those that an engine wrote."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ropelab.conformance.axes import explain_movement
from ropelab.conformance.axes_mistakes import list_commonest
from ropelab.conformance.axes_positions import choose_axes_positions
from ropelab.conformance.axes_slow_pairs import describe_undecided, find_undecided_pairs
from ropelab.conformance.expected import Expected
from ropelab.conformance.observation import Fault, Observed, are_bounded
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
from ropelab.runs.errors import InputError

Arrays = Mapping[str, np.ndarray]
# Names of arrays at positions of several axes begin so.
PREFIX = "axes_"
PROMPT = "prompt_positions"
# The names of parts of an answer at such positions end so.
AT_AXES = " at several axes"
# Arrays that may have positions of several axes without that beginning.
PLAIN = ("positions", "cos", "sin", "q", "k", "q_rotated", "k_rotated")


def choose_kit_positions(expected: Expected) -> Positions:
    """Return rows and columns of a whole image, or times, heights and widths."""
    axes = expected.spec.axes
    assert axes is not None
    return choose_axes_positions(expected, is_grid=axes.centred)


def make_axes_sheet(
    expected: Expected,
    vectors: Mapping[str, np.ndarray],
    rule: PromptRule | None,
    prompt_text: str = "",
) -> tuple[dict[str, np.ndarray], dict[str, str], dict[str, Any]]:
    """Return the arrays, a sentence for each mistake, and facts on axes and prompt.

    ``prompt_text``: a prompt as people type it, instead of the usual one.
    """
    spec = expected.spec
    assert spec.axes is not None
    positions = choose_kit_positions(expected)
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
    for name, movement in list_commonest(spec, inv_freq, positions):
        wrong_cos = spec.attention_factor * np.cos(movement.angles)
        wrong_sin = spec.attention_factor * np.sin(movement.angles)
        wrong = expected.rotation.rotate(vectors["k"], wrong_cos, wrong_sin)
        arrays[f"axes_mistake_{name}"] = wrong
        says[f"axes_{name}"] = movement.answer

    facts: dict[str, Any] = {
        "axes": list(spec.axes.names),
        "pairs_of_axes": describe_pairs(spec.axes.axis_of_pair, spec.axes.names),
    }
    if rule is not None and spec.axes.count == 3:
        prompt = make_prompt(rule)
        if prompt_text:
            prompt = parse_prompt(prompt_text, rule)
        right = count_positions(Counting(rule), prompt)
        arrays[PROMPT] = right
        facts["prompt"] = describe_prompt(rule, prompt)
        for name, sentence, counting in list_countings(rule):
            wrong_positions = count_positions(counting, prompt)
            # A prompt without images shows few mistakes.
            if not np.array_equal(wrong_positions, right):
                arrays[f"prompt_mistake_{name}"] = wrong_positions
                says[f"prompt_{name}"] = sentence
    return arrays, says, facts


def take_axes(arrays: Arrays) -> dict[str, np.ndarray]:
    """Return the arrays at positions of several axes, under the names of a kit."""
    taken = {}
    positions = arrays.get("positions")
    are_plain = positions is not None and positions.ndim == 2
    for name, array in arrays.items():
        if name.startswith(PREFIX) or name == PROMPT:
            taken[name] = array
        elif are_plain and name in PLAIN:
            taken[f"{PREFIX}{name}"] = array
    return taken


def explain_stored(
    path: Path,
    arrays: Arrays,
    expected: Expected,
    vectors: Mapping[str, np.ndarray],
    rule: PromptRule | None,
    prompt: Sequence[Segment] = (),
) -> dict[str, tuple[Fault | None, str]]:
    """Return a fault, or what is right, of each part of what an engine wrote."""
    found: dict[str, tuple[Fault | None, str]] = {}
    spec = expected.spec
    if spec.axes is None:
        return found

    positions = read_axes_positions(path, arrays, expected)
    right = f"axes of positions are right at {positions.shape[1]} positions"
    for part, observed in observe_stored(path, arrays, expected, vectors, positions):
        fault = observed.fault
        if not fault:
            fault = explain_movement(observed, expected, positions)
        answer = right
        if not fault:
            undecided = find_undecided_pairs(observed, expected, positions)
            answer += describe_undecided(undecided, positions)
        found[part + AT_AXES] = (fault, answer)

    if PROMPT in arrays:
        if rule is None:
            raise InputError(
                f"{path}: nobody looked at how this model counts positions"
            )
        answer, fix, is_wrong = explain_prompt(arrays[PROMPT], rule, prompt)
        found[PROMPT] = ((answer, fix) if is_wrong else None, answer)
    return found


def read_axes_positions(path: Path, arrays: Arrays, expected: Expected) -> Positions:
    axes = expected.spec.axes
    assert axes is not None
    given = arrays.get("axes_positions")
    if given is None:
        return choose_kit_positions(expected)
    if given.ndim != 2 or axes.count not in given.shape:
        raise InputError(
            f"{path}: positions have the shape {given.shape} instead of"
            f" [{axes.count}, n]"
        )
    if len(given) != axes.count:
        given = given.T
    whole = np.floor(given)
    if not (are_bounded(given) and np.array_equal(whole, given)):
        raise InputError(f"{path}: positions must be whole numbers")
    return whole.astype(np.int64)


def observe_stored(
    path: Path,
    arrays: Arrays,
    expected: Expected,
    vectors: Mapping[str, np.ndarray],
    positions: Positions,
) -> list[tuple[str, Observed]]:
    """Return the tables of each part: cos and sin, or those that rotated q and k."""
    spec = expected.spec
    count = positions.shape[1]
    # Positions above 0 move; the order of tokens stands for theirs.
    order = np.arange(1, count + 1)
    parts = []
    if {"axes_cos", "axes_sin"} <= arrays.keys():
        tables = observe_tables(order, arrays["axes_cos"], arrays["axes_sin"], spec)
        parts.append(("cos and sin", tables))
    for name, kept in vectors.items():
        after = arrays.get(f"axes_{name}_rotated")
        if after is None:
            continue
        before = arrays.get(f"axes_{name}", arrays.get(name, kept))
        if before.shape == after.shape and after.ndim == 2:
            before = before[:, None]
            after = after[:, None]
        if (
            after.ndim != 3
            or after.shape[0] != count
            or after.shape[-1] != spec.head_dim
        ):
            wanted = f"[{count}, {len(kept)}, {spec.head_dim}]"
            raise InputError(
                f"{path}: {name}_rotated has shape {after.shape} instead of {wanted}"
            )
        parts.append((name, observe_vectors(before, after, order, spec)))
    return parts
