"""Classes of transformers 4 and of llama.cpp's converter with rules of their own, as they ran."""

from typing import Any

import numpy as np
import pytest

from ropelab.audit.runtimes import registry
from ropelab.audit.runtimes.registry import Reading

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LINEAR = {"rope_type": "linear", "factor": 2.0}
LLAMA3 = {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SIZES = {"hidden_size": 1024, "num_attention_heads": 8, "max_position_embeddings": 4096}


def read(runtime: str, kind: str, **keys: Any) -> Reading:
    return registry.read(registry.RUNTIMES[runtime], {"model_type": kind, **SIZES, **keys})


def test_gemma_3n_has_a_base_for_local_layers() -> None:
    for release in ("transformers-4.55", "transformers-4.57"):
        layers = read(release, "gemma3n_text", rope_scaling=LINEAR).layers
        assert {name: spec.base for name, spec in layers.items()} == {
            "full_attention": 1e6,
            "sliding_attention": 1e4,
        }
        assert layers["sliding_attention"].method == "unscaled"


def test_olmo_3s_local_layers_have_the_base_of_the_others() -> None:
    for keys in ({}, {"rope_theta": 54321.0}):
        layers = read("transformers-4.57", "olmo3", **keys).layers
        assert len({spec.base for spec in layers.values()}) == 1
    scaled = read("transformers-4.57", "olmo3", rope_scaling=YARN).layers
    assert scaled["full_attention"].method != scaled["sliding_attention"].method == "unscaled"


def test_modernbert_scales_both_bases_or_stops() -> None:
    for release in ("transformers-4.48", "transformers-4.51"):
        assert read(release, "modernbert", rope_scaling=YARN).outcome == "refused"
        assert set(read(release, "modernbert").layers) == {"full_attention", "sliding_attention"}
    for release in ("transformers-4.55", "transformers-4.57"):
        layers = read(release, "modernbert", rope_scaling=LINEAR).layers
        assert {spec.method for spec in layers.values()} == {"pi(factor=2)"}


def test_a_share_beside_the_block_counts_for_these() -> None:
    for kind in ("gemma3_text", "qwen2_5_vl", "qwen2_vl"):
        spec = read("transformers-4.51", kind, head_dim=128, partial_rotary_factor=0.5).main
        assert spec is not None
        assert spec.rotary_dim == 64


def test_the_name_mrope_stops_classes_without_axes() -> None:
    block = {"type": "mrope", "mrope_section": [16, 24, 24]}
    for release in ("transformers-4.48", "transformers-4.57"):
        assert read(release, "qwen2", rope_scaling=block).outcome == "refused"
        assert read(release, "qwen2_vl", rope_scaling=block).outcome == "read"


@pytest.mark.parametrize("block", [YARN, LINEAR, {"rope_type": "default"}])
def test_llama_4_takes_every_block_for_llama3(block: dict[str, Any]) -> None:
    for release in ("transformers-4.51", "transformers-4.55", "transformers-4.57"):
        assert read(release, "llama4_text", rope_scaling=block).outcome == "refused"
        assert read(release, "llama4_text", rope_scaling=LLAMA3).outcome == "read"
        assert read(release, "llama4_text").outcome == "read"


def test_what_classes_need() -> None:
    assert read("transformers-4.57", "qwen3_vl_text").outcome == "refused"
    block = {"rope_type": "default", "mrope_section": [24, 20, 20]}
    assert read("transformers-4.57", "qwen3_vl_text", rope_scaling=block).outcome == "read"
    assert read("transformers-4.57", "ministral").outcome == "refused"
    assert read("transformers-4.57", "ministral", head_dim=128).outcome == "read"
    older = {"type": "linear", "factor": 2.0}
    assert read("transformers-4.57", "moonshine", rope_scaling=older).outcome == "refused"
    spec = read("transformers-4.57", "jetmoe").main
    assert spec is not None
    assert spec.head_dim == 128


def test_classes_that_nobody_asked_are_not_read() -> None:
    for kind in ("wav2vec2", "pixtral", "resnet"):
        for name in ("transformers-5", "transformers-4.57"):
            reading = read(name, kind)
            assert reading.outcome == "not modelled"
            assert "was not read" in reading.problem
    assert read("transformers-5", "internlm3").outcome == "read"


@pytest.mark.parametrize("kind", ["gemma", "gemma2", "gpt_neox", "phi", "stablelm"])
def test_converters_that_write_neither_base_nor_scaling(kind: str) -> None:
    keys = {"rope_theta": 54321.0, "rotary_emb_base": 54321.0, "rope_scaling": YARN}
    spec = read("llama.cpp", kind, **keys).main
    assert spec is not None
    assert (spec.base, spec.attention_factor) == (10000.0, 1.0)
    np.testing.assert_allclose(spec.inv_freq(64), spec.unscaled(10000.0).inv_freq(64))


def test_the_converter_gives_gemma_3_and_olmo_3_unscaled_local_layers() -> None:
    blocks = {"full_attention": LINEAR, "sliding_attention": {"rope_theta": 20000.0}}
    for kind, keys, base in (
        ("gemma3_text", {"rope_scaling": LINEAR}, 10000.0),
        ("gemma3_text", {"rope_parameters": blocks}, 20000.0),
        ("olmo3", {"rope_scaling": YARN, "rope_theta": 5e5}, 5e5),
    ):
        sliding = read("llama.cpp", kind, **keys).layers["sliding_attention"]
        assert (sliding.base, sliding.method) == (base, "unscaled")


@pytest.mark.parametrize("kind", ["qwen2", "gemma3_text", "olmo3"])
def test_llama3_is_read_where_the_converter_was_seen_to_write_it(kind: str) -> None:
    assert read("llama.cpp", kind, rope_scaling=LLAMA3).outcome == "not modelled"
    assert read("llama.cpp", "smollm3", rope_scaling=LLAMA3).outcome == "read"


@pytest.mark.parametrize("kind", ["gemma4_text", "granitemoehybrid", "grok", "laguna", "step3p5"])
def test_converters_that_were_not_compared_are_not_modelled(kind: str) -> None:
    assert read("llama.cpp", kind, head_dim=128).outcome == "not modelled"


def test_a_silent_file_of_gpt_oss_is_converted_with_the_class_default() -> None:
    spec = read("llama.cpp", "gpt_oss").main
    assert spec is not None
    assert spec.method.startswith("yarn(factor=32")


def test_deepseek_vl2_tiny_has_no_latent_attention() -> None:
    inner = {**SIZES, "model_type": "deepseek_v2", "qk_rope_head_dim": 0}
    config = {"model_type": "deepseek_vl_v2", "architectures": ["DeepseekVLV2ForCausalLM"]}
    reading = registry.read(registry.RUNTIMES["vllm"], {**config, "language_config": inner})
    assert reading.main is not None
    assert (reading.main.head_dim, reading.main.pairing) == (128, "half")


def test_step_3_5_has_the_layer_types_of_its_file() -> None:
    keys: dict[str, Any] = {"head_dim": 128, "rope_theta": [5e6, 1e4], "rope_scaling": LLAMA3}
    keys["partial_rotary_factors"] = [0.5, 1.0]
    keys["layer_types"] = ["full_attention", "sliding_attention"]
    layers = read("transformers-5", "step3p5", **keys).layers
    found = {name: (spec.base, spec.rotary_dim) for name, spec in layers.items()}
    assert found == {"full_attention": (5e6, 64), "sliding_attention": (1e4, 128)}
    assert layers["sliding_attention"].method == "unscaled"
