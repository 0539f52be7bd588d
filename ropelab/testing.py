"""Assertions for the tests of other projects, with pytest or without it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def assert_rope(
    module: Any,
    config: str | Path | Mapping[str, Any],
    *,
    length: int | None = None,
    layer_type: str = "",
    tolerance: float = 0.01,
) -> None:
    """Raise AssertionError with the mistake unless rotary code follows a configuration.

    Args:
        module: the code: a rotary class of transformers, a function of positions that
            returns cos and sin or that rotates vectors, or a maker of tables and a
            function that uses them.
        config: a config.json, a model folder, or the configuration as a dict.
        length: the number of tokens in the context; None for the claimed length.
        layer_type: a layer type of the model, such as `full_attention`, or `indexer`
            for that of sparse attention; empty for that of full attention.
        tolerance: the error of an angle, in radians, that is allowed beyond the rounding
            of float32.
    """
    check_tolerance(tolerance)
    if isinstance(config, Mapping):
        layers = expect_config("the configuration", config, length)
    else:
        layers = expect_file(str(config), length)
    layer_type = layer_type or find_main(layers)
    expected = choose_layer(layers, layer_type)
    name = getattr(module, "__name__", type(module).__name__)

    if has_layer_types(module):
        positions = choose_positions(expected)
        observed = ask_module(module, expected.spec, positions, "float32", layer_type)
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
    """Raise AssertionError, with each broken law, if a model's code breaks one.

    Args:
        model: a model of transformers, a callable from token ids, positions and a mask
            to logits, or anything that `ropelab doctor` takes.
        allowed: laws that the model may break.
    """
    # Imported here, because it imports torch.
    from ropelab.conformance.laws.doctor import doctor

    outcome = doctor(model)
    lines = []
    for row in outcome.rows["trials"]:
        if row["verdict"] == "broken" and row["law"] not in allowed:
            reason = row["says"] or format(row["size"], ".1e")
            lines.append(f"{row['law']}, {row['trial']}: {reason}")
    if lines:
        raise AssertionError("\n".join([outcome.answer, *lines]))


__all__ = ["assert_positions", "assert_rope"]
