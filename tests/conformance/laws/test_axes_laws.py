"""Laws of several axes, on tiny random models of transformers' own classes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ropelab.conformance.laws.axes import MROPE
from ropelab.conformance.laws.doctor import examine
from ropelab.conformance.laws.law import Law
from ropelab.conformance.laws.model import find_subject
from ropelab.conformance.laws.subject import TransformersSubject
from tests.conformance.several_axes import MODELS
from tests.small import mostly_slow

AFTER = "text after a prompt with an image"
# Asked in float32 alone, so that it takes a moment.
ONCE = Law(
    MROPE.name,
    MROPE.question,
    tuple(trial._replace(once=True) for trial in MROPE.trials),
)


def build(name: str, folder: Path) -> TransformersSubject:
    (folder / "config.json").write_text(json.dumps(MODELS[name]))
    subject = find_subject(str(folder))
    assert isinstance(subject, TransformersSubject)
    return subject


def verdicts(subject: TransformersSubject) -> dict[str, str]:
    subject.convertible = False
    trials, _ = examine(subject, [ONCE])
    return {row["trial"]: row["verdict"] for row in trials}


@pytest.mark.parametrize("name", mostly_slow(MODELS, ()))
def test_classes_keep_all_laws_but_one(name: str, tmp_path: Path) -> None:
    asked = verdicts(build(name, tmp_path))
    # Without generate() the offset of the last image stays.
    assert asked.pop(AFTER) == "broken"
    assert asked.keys() == {trial.name for trial in MROPE.trials} - {AFTER}
    assert set(asked.values()) <= {"holds", "rounding only"}


def change_positions(
    subject: TransformersSubject,
    change: Callable[[Tensor], Tensor],
) -> None:
    """Change the positions [3, rows, tokens] that the rotary class is given."""
    rotary: Any = subject.model.model.language_model.rotary_emb
    forward = rotary.forward

    def changed(x: Tensor, position_ids: Tensor) -> Any:
        return forward(x, change(position_ids.expand(3, -1, -1)))

    rotary.forward = changed


def exchange_axes(positions: Tensor) -> Tensor:
    return positions[[0, 2, 1]]


def square_height(positions: Tensor) -> Tensor:
    return torch.stack([positions[0], positions[1] ** 2 // 16, positions[2]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "trial"),
    [(exchange_axes, "sections"), (square_height, "height shifted")],
)
def test_axes_that_a_code_mixes_up(change: Any, trial: str, tmp_path: Path) -> None:
    subject = build("qwen2_vl", tmp_path)
    change_positions(subject, change)
    assert verdicts(subject)[trial] == "broken"


def test_equal_ids_that_a_code_takes_otherwise_than_plain_positions(
    tmp_path: Path,
) -> None:
    subject = build("qwen2_vl", tmp_path)
    part: Any = subject.model.model.language_model
    forward = part.forward

    def doubled(*arguments: Any, **named: Any) -> Any:
        positions = named.get("position_ids")
        if positions is not None and positions.ndim == 3:
            named["position_ids"] = 2 * positions
        return forward(*arguments, **named)

    part.forward = doubled
    assert verdicts(subject)["equal ids"] == "broken"


def test_nothing_of_an_image_is_left_behind_the_law(tmp_path: Path) -> None:
    subject = build("qwen2_vl", tmp_path)
    asked = verdicts(subject)
    assert asked[AFTER] == "broken"
    assert {name for name, verdict in asked.items() if verdict == "broken"} == {AFTER}
    left = [getattr(module, "rope_deltas", None) for module in subject.model.modules()]
    assert not any(each is not None for each in left)


def count_from_tokens(model: Any) -> None:
    """Text behind an image begins after as many steps as the image has tokens."""
    count = model.get_rope_index

    def counted(input_ids: Tensor, *arguments: Any, **named: Any) -> Any:
        positions, deltas = count(input_ids, *arguments, **named)
        line = torch.arange(input_ids.shape[1]).expand_as(positions)
        behind = positions[0] == positions[1]
        behind &= positions[1] == positions[2]
        return torch.where(behind, line, positions), 0 * deltas

    model.get_rope_index = counted


def forget_offset(model: Any) -> None:
    """Tokens behind an image are counted on from the number of tokens."""
    count = model.get_rope_index

    def counted(*arguments: Any, **named: Any) -> Any:
        positions, deltas = count(*arguments, **named)
        return positions, 0 * deltas

    model.get_rope_index = counted


@pytest.mark.parametrize(
    ("change", "trial"),
    [
        (count_from_tokens, "image counted"),
        (forget_offset, "text behind an image"),
    ],
)
def test_images_that_a_code_counts_otherwise(
    change: Any, trial: str, tmp_path: Path
) -> None:
    subject = build("qwen2_vl", tmp_path)
    change(subject.model.model)
    assert verdicts(subject)[trial] == "broken"
