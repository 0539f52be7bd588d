"""Assertions for the tests of other projects, from pytest or without it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ropelab.conformance.calls import ask_function
from ropelab.conformance.check import check_tolerance, diagnose, judge_code
from ropelab.conformance.expected import (
    choose_layer,
    choose_positions,
    expect_config,
    expect_file,
    find_main,
)
from ropelab.conformance.observed import ask_module, has_layer_types


def assert_rope(
    module: Any,
    config: str | Path | Mapping[str, Any],
    *,
    length: int | None = None,
    layer_type: str = "",
    tolerance: float = 0.01,
) -> None:
    """Raise AssertionError with the mistake unless a rotary code follows a
    configuration.

    Args:
        module: a rotary class of transformers, a function of positions that returns cos and sin, or
            that rotates vectors, or a maker of tables and a function that uses them.
        config: a config.json, a model folder, or the configuration as a dict.
        length: tokens in the context, the claimed length if None.
        layer_type: of a model with several, as `full_attention` or `indexer` (of sparse
            attention); by default that of full attention.
        tolerance: radians that a phase may be off beyond what float32 loses.
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
        found = ask_module(
            module, expected.spec, choose_positions(expected), "float32", layer_type
        )
        done = diagnose(found, expected, tolerance)
    else:
        done = judge_code(
            lambda spec, at: ask_function(module, name, spec, at), expected, tolerance
        )
    if done.wrong:
        called = f" (called as {done.called})" if done.called else ""
        raise AssertionError(f"{name}: {done.answer}{called}; fix: {done.fix}")


def assert_positions(model: Any, allowed: tuple[str, ...] = ()) -> None:
    """Raise AssertionError with each broken law unless a model's code keeps all it can
    be asked.

    Args:
        model: a model of transformers, a callable from token ids, positions and a mask to logits,
            or what `ropelab doctor` takes.
        allowed: laws that it may break.
    """
    from ropelab.conformance.laws.doctor import doctor  # imports torch

    done = doctor(model)
    wrong = [
        r
        for r in done.rows["trials"]
        if r["verdict"] == "broken" and r["law"] not in allowed
    ]
    if wrong:
        said = [
            f"{r['law']}, {r['trial']}: {r['says'] or format(r['size'], '.1e')}"
            for r in wrong
        ]
        raise AssertionError("\n".join([done.answer, *said]))


__all__ = ["assert_positions", "assert_rope"]
