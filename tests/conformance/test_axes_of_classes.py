"""Axes as transformers' own classes have them."""

import json
from pathlib import Path
from typing import Any

import pytest

from ropelab.conformance.check import check
from tests.conformance.several_axes import ENCODERS, MODELS
from tests.texts import mentions


def write(folder: Path, config: dict[str, Any]) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize("name", MODELS)
def test_the_axes_of_language_models_and_their_encoders(
    name: str, tmp_path: Path
) -> None:
    done = check(write(tmp_path, MODELS[name]))
    assert not done.wrong
    assert mentions(done.answer, "axes of positions are right", "height and width move")


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_of_images_alone(name: str, tmp_path: Path) -> None:
    done = check(write(tmp_path, ENCODERS[name]))
    assert not done.wrong
    assert mentions(done.answer, "height and width move")
