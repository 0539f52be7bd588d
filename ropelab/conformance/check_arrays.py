"""Check the arrays that an engine wrote: tables, or rotated queries and keys.

An engine under test reads what `ropelab vectors` wrote, the kit: vectors, positions,
and a file of facts that holds the configuration. Its own numbers are expected in the
same folder. Arrays from elsewhere need a configuration to be named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ropelab.conformance import axes_sheet, stored
from ropelab.conformance.check_rotated import check_rotated
from ropelab.conformance.diagnosis import Check, diagnose
from ropelab.conformance.expected import (
    Expected,
    choose_layer,
    expect_config,
    load_config,
)
from ropelab.conformance.parts import combine
from ropelab.conformance.prompts import Segment, read_segments
from ropelab.conformance.vectors import ABOUT, choose_kit_positions, make_vectors
from ropelab.readers.axes import read_prompt_rule
from ropelab.readers.spec import RefusedError, require_whole
from ropelab.runs.errors import InputError, say
from ropelab.runs.files import MOST_BYTES, parse, read_regular


def check_arrays(
    path: Path,
    config: str,
    length: int | None,
    tolerance: float,
    layer_type: str = "",
) -> Check:
    """Judge the tables, or rotated queries and keys, in a file.

    Args:
        path: an .npz or .safetensors file.
        config: the configuration to follow; if empty, the configuration of the kit
            beside the file.
        length: tokens in the context, the claimed length if None.
        tolerance: radians by which an angle may be off beyond what float32 loses.
        layer_type: the layer type to follow; if empty, the main one of ``config``, or
            the one that the kit was written for.
    """
    if config:
        whole_config = load_config(config)
        layers = expect_config(config, whole_config, length)
        expected = choose_layer(layers, layer_type)
        prompt: list[Segment] = []
    else:
        expected, whole_config, prompt = expect_kit(
            path.parent / ABOUT, length, layer_type
        )
    arrays = stored.read_arrays(path)
    if length is not None:
        as_claimed = replace(expected, length=expected.spec.length)
        if not config:
            # A kit may have been written for another length than the claimed one.
            as_claimed, _, _ = expect_kit(path.parent / ABOUT, None, layer_type)
        say_idle_length(expected, as_claimed)

    checks = check_stored_axes(path, arrays, expected, whole_config, prompt)
    if any(part.endswith(axes_sheet.AT_AXES) for part in checks):
        # The note says that axes were not judged, and now they were.
        expected = replace(expected, note="")
    if checks:
        arrays = leave_out_axes(arrays)
        if not {"cos", "sin", "q_rotated", "k_rotated"} & arrays.keys():
            return combine(checks)

    positions = None
    for name in list_rotated(path, arrays):
        before, after, positions = stored.read_rotated(path, arrays, name, expected)
        checks[name] = check_rotated(before, after, positions, expected, tolerance)

    if not checks or {"cos", "sin"} <= arrays.keys():
        if positions is not None:
            arrays = {**arrays, "positions": positions}
        part = "cos and sin" if checks else ""
        checks[part] = check_tables(
            path, arrays, expected, tolerance, has_kit=not config
        )
    return combine(checks)


def check_tables(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    expected: Expected,
    tolerance: float,
    *,
    has_kit: bool,
) -> Check:
    """Judge cos and sin in a file.

    Without positions in the file, its rows are those of the positions 0, 1, 2, and so on.
    Beside a kit, as many rows as the kit has positions may be those of the kit.
    """
    tables = stored.read_tables(path, arrays, expected)
    result = diagnose(tables, expected, tolerance)
    kit_positions = choose_kit_positions(expected)
    are_counted = np.array_equal(tables.positions, np.arange(len(kit_positions)))
    if not (has_kit and result.wrong and are_counted):
        return result
    tables_of_kit = replace(tables, positions=kit_positions)
    return diagnose(tables_of_kit, expected, tolerance)


def say_idle_length(expected: Expected, as_claimed: Expected) -> None:
    """Say that --length has no effect, if the rotation is the one of the length that
    the configuration, or the kit, has.
    """
    is_same = (
        np.array_equal(expected.inv_freq, as_claimed.inv_freq)
        and expected.spec.attention_factor == as_claimed.spec.attention_factor
    )
    if is_same and expected.length != as_claimed.length:
        say(
            "--length has no effect: arrays hold their own positions, and this rotation"
            f" is the same at {expected.length} tokens as at {as_claimed.length}"
        )


def leave_out_axes(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays that are not at positions of several axes."""
    names_of_axes = {*axes_sheet.take_axes(arrays), "positions"}
    positions = arrays.get("positions")
    if positions is not None and positions.ndim == 2:
        names_of_axes |= {*axes_sheet.NAMES_WITHOUT_PREFIX}

    return {name: array for name, array in arrays.items() if name not in names_of_axes}


def check_stored_axes(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    expected: Expected,
    config: Mapping[str, Any],
    prompt: Sequence[Segment],
) -> dict[str, Check]:
    """Judge what an engine wrote at positions of several axes, and position ids.

    Empty: the engine wrote nothing at positions of several axes.
    """
    arrays_of_axes = axes_sheet.take_axes(arrays)
    if not arrays_of_axes:
        return {}
    if expected.spec.axes is None:
        # Arrays with the usual names may have positions of two axes for another reason.
        names = arrays_of_axes.keys() & arrays
        if all(name in axes_sheet.NAMES_WITHOUT_PREFIX for name in names):
            return {}
        raise InputError(
            f"{path} has positions of several axes, and the configuration has one, or"
            " nobody looked at which pairs they move"
        )

    rule = read_prompt_rule(config)
    vectors = make_vectors(expected.spec)
    explanations = axes_sheet.explain_stored(
        path, arrays_of_axes, expected, vectors, rule, prompt
    )
    checks = {}
    for part, (fault, answer) in explanations.items():
        checks[part] = Check(answer, wrong=False)
        if fault:
            answer, fix = fault
            checks[part] = Check(answer, wrong=True, fix=fix)
    return checks


def expect_kit(
    about: Path,
    length: int | None,
    layer_type: str = "",
) -> tuple[Expected, Mapping[str, Any], list[Segment]]:
    """Read the file of facts in a kit of `ropelab vectors`.

    Returns the rotation, the configuration, and the parts of a prompt; the last are
    empty if the model counts no positions of images.
    """
    try:
        facts = parse(str(about), read_regular(about, MOST_BYTES), finite=False)
        length = length or require_whole(facts["length"], "length")
        layers = expect_config(str(about), facts["config"], length)
        prompt = read_segments(facts.get("prompt", ()))
        expected = layers[facts["layer_type"]]
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RefusedError):
        raise InputError(
            f"{about} was not written by ropelab vectors: give --config"
        ) from None
    # Another layer type of the same configuration may be asked for.
    if layer_type:
        expected = choose_layer(layers, layer_type)
    return expected, facts["config"], prompt


def list_rotated(path: Path, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Return which of q and k have rotated vectors in a file, q first."""
    names = set()
    for name in arrays:
        if name[:1] in "qkQK" and name.endswith("_rotated"):
            names.add(name)
    strange = names - {"q_rotated", "k_rotated"}
    if strange:
        raise InputError(
            f"{path}: {min(strange)} is not read, call it q_rotated or k_rotated"
        )
    return [name for name in ("q", "k") if f"{name}_rotated" in names]
