"""Compare a rotary code with the configuration that it should follow.

The code is a function, the rotary class that transformers builds for a model folder, or
arrays that an engine wrote. `check` finds out which, and hands it on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

from ropelab.conformance import stored
from ropelab.conformance.check_arrays import check_arrays
from ropelab.conformance.check_axes import check_axes, check_images
from ropelab.conformance.check_code import judge_code
from ropelab.conformance.diagnosis import Check, diagnose
from ropelab.conformance.expected import (
    Expected,
    choose_layer,
    choose_positions,
    expect_file,
)
from ropelab.conformance.observation import Answer, Observed, Positions
from ropelab.conformance.parts import combine
from ropelab.conformance.rotary_classes import ask_module, build_rotary, has_layer_types
from ropelab.conformance.user_code import ask_in_one_process, ask_in_process
from ropelab.conformance.vectors import ABOUT
from ropelab.readers.axes import VISION
from ropelab.readers.extra_rotations import EXTRA_ROTATIONS
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arguments import check_texts, read_path
from ropelab.runs.errors import InputError
from ropelab.runs.machine import use_library_defaults


def check(
    target: str | PathLike[str],
    *,
    config: str | PathLike[str] = "",
    length: int | None = None,
    dtype: str = "float32",
    tolerance: float = 0.01,
    layer_type: str = "",
) -> Check:
    """Compare a rotary code with the configuration that it should follow.

    Args:
        target: `package.module:factory`, a model folder, or a file of arrays.
        config: a config.json; may be empty for a model folder, which has its own, and
            for arrays in a folder that `ropelab vectors` wrote.
        length: tokens in the context, the claimed length if None.
        dtype: the number format in which the class of a model folder is asked.
        tolerance: radians by which an angle may be off beyond what float32 loses.
        layer_type: of a model with several rotations, such as `full_attention` or
            `indexer`; if empty, the layer type that sees the whole context.
    """
    check_tolerance(tolerance)
    check_texts(dtype=dtype)
    target = read_path("target", target)
    config = read_path("config", config)
    path = Path(target)
    is_folder = path.is_dir()
    is_arrays = path.suffix in stored.SUFFIXES and not is_folder
    if dtype != "float32" and not is_folder:
        raise InputError(
            "--dtype is for a model's folder: all else has numbers of its own"
        )
    has_kit = is_arrays and (path.parent / ABOUT).is_file()
    if not (config or is_folder or has_kit):
        raise InputError("which configuration should it follow? give --config FILE")

    if is_arrays:
        return check_arrays(path, config, length, tolerance, layer_type)
    layers = expect_file(config or target, length)
    expected = choose_layer(layers, layer_type)
    if is_folder:
        with use_library_defaults():
            return check_folder(path, layers, expected, dtype, tolerance, layer_type)

    def ask(spec: RopeSpec, positions: Positions) -> Answer:
        return ask_in_process(target, spec, positions)

    def ask_in_turn(
        spec: RopeSpec, positions_of_calls: Sequence[Positions]
    ) -> list[Answer | Exception]:
        return ask_in_one_process(target, spec, positions_of_calls)

    return judge_code(ask, expected, tolerance, ask_in_turn)


def check_tolerance(tolerance: float) -> None:
    """Raise InputError unless the tolerance can tell right code from wrong code."""
    # No phase is off by more than pi: with a larger tolerance all code would be right.
    if not (isinstance(tolerance, Real) and 0 < tolerance < math.pi):
        raise InputError(
            f"tolerance must be a positive number of radians below pi, not {tolerance!r}"
        )


def check_folder(
    folder: Path,
    layers: Mapping[str, Expected],
    expected: Expected,
    dtype: str,
    tolerance: float,
    layer_type: str,
) -> Check:
    """Judge transformers' own rotary class, built from the folder's config.json: one
    layer type, or all of them if `layer_type` is empty.
    """
    if expected.is_of_images:
        return check_encoder(folder, expected, dtype)
    module = build_rotary(folder)
    layers_of_class = {"": expected}
    if has_layer_types(module):
        # The class makes tables only for layers. An indexer and compressed keys take
        # their cos and sin from these tables.
        other_rotations = (*EXTRA_ROTATIONS, VISION)
        layers_of_class = {}
        for name, expected_of_layer in layers.items():
            if name not in other_rotations:
                layers_of_class[name] = expected_of_layer

        # --config may name a file of another model.
        if not layers_of_class.keys() <= module.rope_type.keys():
            raise InputError(
                f"{folder} is of a model with the layer types"
                f" {', '.join(module.rope_type)}, and the configuration of one with"
                f" {', '.join(layers_of_class) or 'none of them'}: give its own --config,"
                " or none"
            )
        if layer_type:
            if layer_type not in layers_of_class:
                raise InputError(
                    f"the class in {folder} makes no tables for {layer_type}: --layer-type"
                    f" may be {', '.join(layers_of_class)}"
                )
            layers_of_class = {layer_type: expected}

    checks = {}
    for name, expected_of_layer in layers_of_class.items():
        checks[name] = check_class(module, expected_of_layer, dtype, tolerance, name)
    result = combine(checks)
    if VISION not in layers or layer_type or result.wrong:
        return result

    encoder = check_encoder(folder, layers[VISION], dtype)
    answer = encoder.answer
    if not encoder.wrong:
        answer = f"{result.answer}; {answer}"
    return replace(result, answer=answer, wrong=encoder.wrong, fix=encoder.fix)


def check_class(
    module: Any,
    expected: Expected,
    dtype: str,
    tolerance: float,
    layer: str,
) -> Check:
    """Judge a rotary class of transformers, for layers of one type."""

    def ask(spec: RopeSpec, positions: Positions) -> dict[str, Observed]:
        return {"": ask_module(module, spec, positions, dtype, layer)}

    positions = choose_positions(expected)
    observed = ask_module(module, expected.spec, positions, dtype, layer)
    result = diagnose(observed, expected, tolerance)
    if expected.spec.axes:
        return check_axes(result, ask, expected)
    return result


def check_encoder(folder: Path, expected: Expected, dtype: str) -> Check:
    """Judge transformers' rotary class of an encoder of images."""
    module = build_rotary(folder, vision=True)

    def ask(spec: RopeSpec, positions: Positions) -> dict[str, Observed]:
        return {"": ask_module(module, spec, positions, dtype)}

    return check_images(ask, expected)
