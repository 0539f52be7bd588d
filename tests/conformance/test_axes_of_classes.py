"""Axes as transformers' own classes have them."""

import copy
import json
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ropelab.conformance.check import check
from ropelab.readers import registry
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


# The rotary class of each model, by its name in the module of that model.
ROTARY = {
    "qwen2_vl": "Qwen2VLRotaryEmbedding",
    "qwen2_5_vl": "Qwen2_5_VLRotaryEmbedding",
    "qwen3_vl": "Qwen3VLTextRotaryEmbedding",
    "glm4v": "Glm4vTextRotaryEmbedding",
    "ernie4_5_vl_moe": "Ernie4_5_VLMoeTextRotaryEmbedding",
}


@pytest.mark.parametrize(
    ("name", "sections"),
    [
        ("qwen2_vl", [4, 6, 5]),
        ("qwen2_vl", [4, 6]),
        ("qwen2_vl", None),
        ("qwen2_vl", [8, 8]),
        ("qwen2_vl", [2, 3, 3, 2, 3, 3]),
        ("qwen2_5_vl", "missing"),
        ("qwen3_vl", [4, 6]),
        ("qwen3_vl", [4, 6, 5]),
        ("glm4v", [3, 2, 2]),
        ("glm4v", [2, 2, 4]),
        ("ernie4_5_vl_moe", [5, 5, 6]),
        ("ernie4_5_vl_moe", [4, 6, 6]),
        ("ernie4_5_vl_moe", [6, 6, 6]),
    ],
)
@pytest.mark.parametrize("scaled", [False, True])
def test_sections_are_refused_where_the_class_stops_at_them(
    name: str, sections: Any, scaled: bool
) -> None:
    config = copy.deepcopy(MODELS[name])
    block = config["text_config"]["rope_parameters"]
    block["mrope_section"] = sections
    if sections == "missing":
        del block["mrope_section"]
    if scaled:
        block |= {"rope_type": "yarn", "factor": 2.0}
        block["original_max_position_embeddings"] = 16384
    reading = registry.read(registry.RUNTIMES[registry.REFERENCE], config)

    module = f"transformers.models.{name}.modeling_{name}"
    rotary_class = resolve_name(f"{module}:{ROTARY[name]}")
    text_config = CONFIG_MAPPING[name].from_dict(config).get_text_config()
    try:
        rotary_class(text_config)(torch.zeros(1, 5, 8), torch.arange(5).expand(3, 1, 5))
        outcome = "read"
    except (RuntimeError, TypeError, IndexError, ValueError):
        outcome = "refused"
    assert reading.outcome == outcome
