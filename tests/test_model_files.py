"""A configuration file in the place of a known model's name."""

import json
from pathlib import Path
from typing import Any

import pytest

from ropelab.lab import Lab
from ropelab.runs.errors import InputError

QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope_theta": 1e6,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32768,
}


def config_of(name: str, values: dict[str, Any]) -> Any:
    return Lab().prepare(name, values).config


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["freqs", "precision", "base"])
def test_a_file_fills_in_what_the_model_of_its_numbers_does(here, name):
    Path("model").mkdir()
    Path("model/config.json").write_text(json.dumps(QWEN3))
    for given in ("model/config.json", "model", "./model/"):
        config = config_of(name, {"model": given})
        assert config.head_dim == 128
        assert config.train_len == 40960
        assert getattr(config, "train_base" if name == "base" else "base") == 1e6
        # The run is named by its numbers, so the file need not stay.
        assert config.model == ""


def test_its_scaling_and_its_flags_are_taken(here):
    scaled = QWEN3 | {"rope_scaling": YARN, "max_position_embeddings": 131072}
    Path("qwen3.json").write_text(json.dumps(scaled))
    config = config_of("freqs", {"model": "qwen3.json"})
    assert config.method.startswith("yarn(factor=4")
    assert (config.train_len, config.test_len) == (32768, 131072)
    given = {"model": "qwen3.json", "base": "5e5"}
    assert config_of("freqs", given).base == 5e5


@pytest.mark.parametrize("name", ["nothing.json", "broken.json", "empty"])
def test_a_file_that_is_no_model_is_refused_by_its_name(here, name):
    Path("broken.json").write_text("{}")
    Path("empty").mkdir()
    with pytest.raises(InputError, match=name):
        Lab().prepare("freqs", {"model": name})


def test_a_known_name_wins_over_a_folder_of_that_name(here):
    Path("qwen3-8b").mkdir()
    assert config_of("freqs", {"model": "qwen3-8b"}).model == "qwen3-8b"
