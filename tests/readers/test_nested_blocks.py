"""Blocks with a dict for each layer type, in classes that have one rotation."""

from copy import deepcopy
from typing import Any

import pytest

from ropelab.readers import registry
from ropelab.readers.registry import Reading

NESTED: dict[str, Any] = {
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "max_position_embeddings": 4096,
    "layer_types": ["full_attention"] * 4,
    "rope_theta": 77777.0,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e4},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
    },
}


def read(model_type: str, runtime: str = "transformers-5", **changes: Any) -> Reading:
    config = {"model_type": model_type, **NESTED, **changes}
    return registry.read(registry.RUNTIMES[runtime], config)


WITHOUT_LAYER_TYPES = ["llama", "mistral", "nemotron", "starcoder2"]


@pytest.mark.parametrize("model_type", WITHOUT_LAYER_TYPES)
def test_a_class_without_layer_types_reads_the_keys_beside_the_dicts(
    model_type: str,
) -> None:
    spec = read(model_type).main_spec
    assert spec is not None
    assert (spec.base, spec.method) == (77777.0, "unscaled")


@pytest.mark.slow
@pytest.mark.parametrize("model_type", WITHOUT_LAYER_TYPES)
def test_the_class_itself_has_these_frequencies(model_type: str) -> None:
    from importlib import import_module

    from transformers import AutoConfig

    config = AutoConfig.for_model(model_type, **deepcopy(NESTED))
    module = import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    (name,) = [each for each in vars(module) if each.endswith("RotaryEmbedding")]
    frequencies = getattr(module, name)(config=config).inv_freq.double().numpy()

    spec = read(model_type).main_spec
    assert spec is not None
    assert spec.inv_freq(64) == pytest.approx(frequencies, rel=2e-6)


@pytest.mark.parametrize("model_type", ["qwen2", "cohere2"])
def test_a_class_with_layer_types_and_one_rotation_stops(model_type: str) -> None:
    reading = read(model_type)
    assert reading.outcome == "refused"
    assert "one rotation" in reading.problem


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_servers_keep_tables_by_a_block_without_dicts(runtime: str) -> None:
    """They look for a table by the items of the block: a dict has no hash."""
    reading = read("llama", runtime, architectures=["LlamaForCausalLM"])
    assert reading.outcome == "refused"


@pytest.mark.parametrize("model_type", ["gemma4_text", "beam", "laguna", "lfm3"])
def test_dicts_in_the_older_key_are_not_said_to_be_missing(model_type: str) -> None:
    """The class takes them: only layers of full attention need one here."""
    part = {"rope_type": "default", "rope_theta": 5e4}
    changes: dict[str, Any] = {"rope_scaling": {"full_attention": part}}
    reading = read(model_type, rope_parameters=None, **changes)
    assert reading.outcome == "not modelled"
    changes = {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert read(model_type, rope_parameters=None, **changes).outcome == "refused"
