"""Which axis moves each pair, as a configuration and its class say."""

import copy
from typing import Any

import numpy as np
import pytest

from ropelab.audit.audited import audit
from ropelab.conformance.expected import expect_config
from ropelab.math.axes import describe_pairs
from ropelab.readers import registry
from ropelab.readers.axes import is_encoder, read_prompt_rule, read_vision
from ropelab.readers.document import Document
from ropelab.readers.spec import RopeSpec
from ropelab.runs.errors import InputError
from tests.conformance.several_axes import DINOV3, MODELS, PIXTRAL

ODD: list[Any] = [None, 0, -1, "x", [], {}, True, 2.5, 10**30]


def main_spec(config: dict[str, Any], runtime: str = registry.REFERENCE) -> RopeSpec:
    reading = registry.read(registry.RUNTIMES[runtime], config)
    assert reading.main_spec is not None
    return reading.main_spec


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("qwen2_vl", "pairs 0 to 3 time, 4 to 9 height, 10 to 15 width"),
        ("qwen3_vl", "pairs 0 to 14 time, height, width in turns, 15 time"),
        ("glm4v", "pairs 0 to 1 time, 2 to 4 height, 5 to 7 width"),
        ("ernie4_5_vl_moe", "pairs 0 to 9 height, width in turns, 10 to 15 time"),
    ],
)
def test_axes_of_language_models(name: str, says: str) -> None:
    axes = main_spec(MODELS[name]).axes
    assert axes is not None
    assert describe_pairs(axes.axis_of_pair, axes.names) == says


def test_sglang_goes_by_the_key_and_others_were_not_looked_at() -> None:
    config = copy.deepcopy(MODELS["qwen2_5_vl"])
    block = config["text_config"]["rope_parameters"]
    block["mrope_interleaved"] = True
    of_sglang = main_spec(config, "sglang").axes
    of_transformers = main_spec(config).axes
    assert of_sglang is not None
    assert of_transformers is not None
    assert of_sglang.arrangement == "turns"
    assert of_transformers.arrangement == "runs"
    assert main_spec(config, "vllm").axes is None


def test_a_class_without_sections_in_its_file_has_its_own() -> None:
    config = copy.deepcopy(MODELS["qwen2_vl"])
    text = config["text_config"]
    text |= {"head_dim": 128, "hidden_size": 512}
    del text["rope_parameters"]["mrope_section"]
    axes = main_spec(config).axes
    assert axes is not None
    assert axes.sections == (16, 24, 24)


@pytest.mark.parametrize(
    "sections", [[4, 6], [4, 6, 7], [4, 6, "6"], [-2, 9, 9], 16, None]
)
def test_sections_that_do_not_fit_are_not_believed(sections: Any) -> None:
    config = copy.deepcopy(MODELS["qwen2_vl"])
    config["text_config"]["rope_parameters"]["mrope_section"] = sections
    reading = registry.read(registry.RUNTIMES[registry.REFERENCE], config)
    assert reading.main_spec is None or reading.main_spec.axes is None


@pytest.mark.parametrize(
    ("name", "sections", "problem"),
    [
        ("qwen2_vl", [4, 6, 5], "[4, 6, 5] do not add up to 16 pairs"),
        ("qwen2_vl", None, "None do not add up to 16 pairs"),
        ("qwen3_vl", [4, 6], "[4, 6] are no three whole numbers"),
        ("glm4v", [3, 2, 2], "[3, 2, 2] do not add up to 8 pairs"),
        ("ernie4_5_vl_moe", [4, 6, 6], "[4, 6, 6] have other heights than widths"),
    ],
)
def test_sections_at_which_a_class_stops_are_refused(
    name: str, sections: Any, problem: str
) -> None:
    config = copy.deepcopy(MODELS[name])
    config["text_config"]["rope_parameters"]["mrope_section"] = sections
    reading = registry.read(registry.RUNTIMES[registry.REFERENCE], config)
    assert reading.outcome == "refused"
    assert reading.problem == f"sections {problem}"


@pytest.mark.parametrize(
    ("config", "base", "width"),
    [
        (PIXTRAL, 10000.0, 32),
        ({**PIXTRAL, "head_dim": 64}, 10000.0, 64),
        (DINOV3, 100.0, 32),
        (MODELS["qwen2_5_vl"], 10000.0, 32),
        (
            {
                "model_type": "llava",
                "vision_config": {**PIXTRAL, "rope_theta": 500.0},
            },
            500.0,
            32,
        ),
    ],
)
def test_encoders_of_images(config: Any, base: float, width: int) -> None:
    spec = read_vision(config)
    assert spec is not None
    assert (spec.base, spec.rotary_dim) == (base, width)
    assert spec.axes is not None
    assert spec.axes.names == ("height", "width")


def test_a_ladder_of_each_axis_begins_at_1() -> None:
    spec = read_vision(MODELS["qwen3_vl"])
    assert spec is not None
    own = 1e4 ** (-np.arange(8) / 8)
    np.testing.assert_allclose(spec.inv_freq(64), [*own, *own], rtol=1e-12)


def test_encoders_that_nobody_looked_at() -> None:
    part = {"model_type": "siglip_vision_model", "hidden_size": 64}
    assert read_vision({"model_type": "gemma3", "vision_config": part}) is None
    assert not is_encoder(MODELS["qwen2_vl"])
    assert is_encoder(PIXTRAL)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "key", ["spatial_merge_size", "hidden_size", "num_heads", "rope_theta", "head_dim"]
)
def test_odd_values_of_an_encoder_stop_nothing(key: str, odd: Any) -> None:
    config = copy.deepcopy(MODELS["qwen2_5_vl"])
    config["vision_config"][key] = odd
    audit(Document("config.json", "config", config), precision=False)
    expect_config("config.json", config, None)
    read_prompt_rule(config)


def test_an_encoder_alone_with_odd_values_is_refused() -> None:
    with pytest.raises(InputError, match="sizes or base"):
        expect_config("config.json", {**PIXTRAL, "hidden_size": "x"}, None)


def test_the_table_of_audit_has_a_row_per_pair_of_both_parts() -> None:
    document = Document("config.json", "config", MODELS["qwen2_vl"])
    rows = audit(document, precision=False).rows["axes"]
    by_layer = {
        layer: [r for r in rows if r["layers"] == layer] for layer in ("all", "vision")
    }
    assert [row["axis"] for row in by_layer["all"]][:5] == ["time"] * 4 + ["height"]
    assert len(by_layer["vision"]) == 16
    assert {row["rate"] for row in rows} == {"1"}


@pytest.mark.parametrize(("head_dim", "outcome"), [(128, "read"), (64, "refused")])
def test_ernies_class_stops_at_sections_of_other_heads(
    head_dim: int, outcome: str
) -> None:
    """It lays its frequencies out by its sections, 22, 22 and 20, when it is made."""
    config = {
        "model_type": "ernie4_5_vl_moe_text",
        "hidden_size": 8 * head_dim,
        "num_attention_heads": 8,
        "head_dim": head_dim,
        "num_hidden_layers": 4,
        "max_position_embeddings": 4096,
        "rope_theta": 5e5,
    }
    reading = registry.read(registry.RUNTIMES["transformers-5"], config)
    assert reading.outcome == outcome
    if outcome == "refused":
        assert reading.problem == "sections [22, 22, 20] do not add up to 32 pairs"
