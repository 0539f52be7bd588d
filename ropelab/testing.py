"""Assertions for the tests of other projects, with pytest or without it."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any
from unittest import SkipTest

from ropelab.conformance.calls import ask_function
from ropelab.conformance.check import check_tolerance
from ropelab.conformance.check_code import judge_code
from ropelab.conformance.diagnosis import diagnose
from ropelab.conformance.expected import (
    choose_layer,
    choose_positions,
    expect_config,
    expect_file,
    find_main,
)
from ropelab.conformance.rotary_classes import ask_module, has_layer_types
from ropelab.runs.arguments import check_texts, copy_mapping, read_path
from ropelab.runs.errors import InputError, describe_error
from ropelab.runs.exits import refuse_exits


def assert_rope(
    module: Any,
    config: str | PathLike[str] | Mapping[str, Any],
    *,
    length: int | None = None,
    layer_type: str = "",
    tolerance: float = 0.01,
) -> None:
    """Raise AssertionError with the mistake unless rotary code follows a configuration.

    Errors that the code raises pass through unchanged, except those that would end the
    process or skip the test.

    Args:
        module: the code: a rotary class of transformers, a function of positions that
            returns cos and sin or that rotates vectors, or a maker of tables and a
            function that uses them.
        config: a config.json, a model folder, or the configuration as a dict.
        length: the number of tokens in the context; None for the claimed length.
        layer_type: a layer type of the model, such as `full_attention`, or `indexer`
            for the rotation of the indexer of sparse attention; empty for full
            attention.
        tolerance: the error of an angle, in radians, that is allowed beyond the rounding
            of float32.
    """
    check_tolerance(tolerance)
    check_texts(layer_type=layer_type)
    if isinstance(config, Mapping):
        copied = copy_mapping("the configuration", config)
        layers = expect_config("the configuration", copied, length)
    elif hasattr(config, "model_type") and hasattr(config, "to_dict"):
        # A configuration of transformers.
        raise InputError(
            f"config must be a path or a dict, not of type {type(config).__name__}; give"
            " config.to_dict()"
        )
    else:
        layers = expect_file(read_path("config", config), length)
    layer_type = layer_type or find_main(layers)
    expected = choose_layer(layers, layer_type)
    name = getattr(module, "__name__", type(module).__name__)

    with _fail_if_ended(name, module):
        if has_layer_types(module):
            positions = choose_positions(expected)
            observed = ask_module(
                module, expected.spec, positions, "float32", layer_type
            )
            diagnosis = diagnose(observed, expected, tolerance)
        else:
            diagnosis = judge_code(
                lambda spec, positions: ask_function(module, name, spec, positions),
                expected,
                tolerance,
            )
    if not diagnosis.wrong:
        return

    text = f"{name}: {diagnosis.answer}"
    if diagnosis.called:
        text += f" (called as {diagnosis.called})"
    raise AssertionError(f"{text}; fix: {diagnosis.fix}")


def assert_positions(model: Any, allowed: tuple[str, ...] = ()) -> None:
    """Raise AssertionError if a model's code breaks a law, and list the broken laws.

    A law is a property that correct code has: for example, padding changes no logits.

    Args:
        model: a model of transformers, a callable from token ids, positions and a mask
            to logits, or anything that `ropelab doctor` takes.
        allowed: laws that the model may break.
    """
    # Imported here, because it imports torch.
    from ropelab.conformance.laws.doctor import doctor

    name = getattr(model, "__name__", type(model).__name__)
    with _fail_if_ended(name, model):
        outcome = doctor(model)
    lines = []
    for row in outcome.rows["trials"]:
        if row["verdict"] == "broken" and row["law"] not in allowed:
            reason = row["says"] or format(row["size"], ".1e")
            lines.append(f"{row['law']}, {row['trial']}: {reason}")
    if lines:
        raise AssertionError("\n".join([outcome.answer, *lines]))


@contextmanager
def _fail_if_ended(name: str, code: Any) -> Iterator[None]:
    """Raise AssertionError if code under test ends the process or skips the test.

    Otherwise the assertion could seem to hold: SystemExit may end a script of tests with
    status 0, and a skipped test does not count as failed.
    """
    objects = code if isinstance(code, tuple) else (code,)
    try:
        with refuse_exits(filter(None, map(_find_file, objects))):
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, SkipTest):
            raise
        kind = type(error).__name__
        raise AssertionError(f"{name} raised {kind}: {describe_error(error)}") from None


def _find_file(code: Any) -> str | None:
    """Return the file that defines a function, or the class of an object."""
    module = getattr(code, "__module__", None) or type(code).__module__
    return getattr(sys.modules.get(module), "__file__", None)


__all__ = ["assert_positions", "assert_rope"]
