"""`check FOLDER` on transformers' own rotary classes, which are right."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.esm.modeling_esm import EsmRotaryEmbedding

from ropelab.conformance.check import check
from ropelab.runs.errors import InputError
from ropelab.testing import assert_rope
from tests.models.released.architectures import ARCHITECTURES
from tests.models.released.tiny import config
from tests.texts import mentions

# Rotation by a function of the module, not by a class.
NO_CLASS = {"codegen", "gptj"}
ESM: dict[str, Any] = {
    "position_embedding_type": "rotary",
    "max_position_embeddings": 1026,
}
ESM |= {"hidden_size": 1280, "num_attention_heads": 20}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_no_class_of_transformers_is_accused(name: str, tmp_path: Path) -> None:
    config(name, **ARCHITECTURES[name]).save_pretrained(tmp_path)
    if name in NO_CLASS:
        with pytest.raises(InputError, match="no rotary embedding in"):
            check(str(tmp_path))
        return
    done = check(str(tmp_path))
    assert not done.wrong, done.answer
    assert "nearest to float32" in done.answer
    assert not check(str(tmp_path), dtype="bfloat16").wrong


def test_every_layer_type_is_looked_at(tmp_path: Path) -> None:
    config("gemma3_text", **ARCHITECTURES["gemma3_text"]).save_pretrained(tmp_path)
    answer = check(str(tmp_path)).answer
    layer_types = "full_attention", "sliding_attention"
    assert mentions(answer, *layer_types, "within 0.01 rad")


def test_one_layer_type_is_looked_at_where_it_is_named(tmp_path: Path) -> None:
    config("gemma3_text", **ARCHITECTURES["gemma3_text"]).save_pretrained(tmp_path)
    answer = check(str(tmp_path), layer_type="sliding_attention").answer
    assert mentions(answer, "sliding_attention", "within 0.01 rad")
    assert "full_attention" not in answer


def test_a_configuration_with_other_layer_types_is_refused(tmp_path: Path) -> None:
    """The class of the folder has no table for the layers of the configuration."""
    gemma = tmp_path / "gemma"
    llama = tmp_path / "llama"
    config("gemma3_text", **ARCHITECTURES["gemma3_text"]).save_pretrained(gemma)
    config("llama", **ARCHITECTURES["llama"]).save_pretrained(llama)
    with pytest.raises(InputError, match="layer types full_attention, sliding_att"):
        check(str(gemma), config=str(llama / "config.json"))


@pytest.mark.parametrize("kind", ["internlm3", "iquestcoder"])
def test_a_model_type_without_a_module_of_its_own_has_the_class_of_its_model(
    tmp_path: Path, kind: str
) -> None:
    """transformers builds these two as Llamas."""
    config = {
        "model_type": kind,
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "head_dim": 128,
    }
    config["rope_scaling"] = {"rope_type": "linear", "factor": 2.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = check(str(tmp_path))
    assert not done.wrong, done.answer


def test_a_class_that_takes_a_layer_type_and_has_one_kind_of_layers(
    tmp_path: Path,
) -> None:
    config: Any = CONFIG_MAPPING["esm"].from_dict(ESM)
    config.save_pretrained(tmp_path)
    answer = check(str(tmp_path)).answer
    assert mentions(answer, "within 0.01 rad", 1025, "nearest to float32")
    assert_rope(EsmRotaryEmbedding(config), tmp_path)
    with pytest.raises(AssertionError, match="base 10000 instead of 500000"):
        assert_rope(EsmRotaryEmbedding(config), {**config.to_dict(), "rope_theta": 5e5})


@pytest.mark.parametrize(
    "broken",
    [
        {"num_attention_heads": None},
        {"max_position_embeddings": None},
        {"layer_types": [None, 3]},
        {"model_type": "dbrx", "ffn_config": {"ffn_act_fn": "silu"}},
        {
            "model_type": "qwen2_vl",
            "rope_scaling": {"type": "mrope", "mrope_section": [16, 24]},
        },
    ],
)
def test_a_file_at_which_the_class_stops_is_one_line(
    tmp_path: Path, broken: dict[str, Any]
) -> None:
    config: dict[str, Any] = {"model_type": "llama", "hidden_size": 1024}
    config |= {
        "num_attention_heads": 8,
        "max_position_embeddings": 8192,
        "rope_theta": 5e5,
        **broken,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError) as raised:
        check(str(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["llava", "voxtral", "glmasr"])
def test_a_part_is_built_by_the_class_of_the_whole(tmp_path: Path, kind: str) -> None:
    text = {"hidden_size": 1024, "num_attention_heads": 8, "rope_theta": 5e5}
    config = {"model_type": kind, "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert not check(str(tmp_path)).wrong


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_a_file_that_transformers_cannot_decode_is_refused(
    tmp_path: Path, encoding: str
) -> None:
    config = {"model_type": "llama", "hidden_size": 1024, "num_attention_heads": 8}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding=encoding)
    with pytest.raises(InputError, match="which transformers refuses"):
        check(str(tmp_path))


def test_a_default_device_of_other_code_is_not_that_of_the_class(
    tmp_path: Path,
) -> None:
    config("llama", **ARCHITECTURES["llama"]).save_pretrained(tmp_path)
    with torch.device("meta"):
        assert not check(str(tmp_path)).wrong
