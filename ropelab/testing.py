"""Assertions for the tests of other projects, from pytest or without it."""

from typing import Any


def assert_positions(model: Any, allowed: tuple[str, ...] = ()) -> None:
    """Raise AssertionError with each broken law unless a model's code keeps all it can be asked.

    Args:
        model: a model of transformers, a callable from token ids, positions and a mask to logits,
            or what `ropelab doctor` takes.
        allowed: laws that it may break.
    """
    from ropelab.laws.doctor import doctor  # imports torch

    done = doctor(model)
    broken = [row for row in done.rows["trials"] if row["verdict"] == "broken"]
    wrong = [row for row in broken if row["law"] not in allowed]
    if wrong:
        said = [f"{r['law']}, {r['trial']}: {r['says'] or format(r['size'], '.1e')}" for r in wrong]
        raise AssertionError("\n".join([done.answer, *said]))


__all__ = ["assert_positions"]
