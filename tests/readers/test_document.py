"""What a file is, where it is no configuration of a language model."""

import json
from typing import Any

import pytest

from ropelab.readers import registry
from ropelab.readers.document import from_json
from ropelab.runs.errors import InputError

SIZES = {"hidden_size": 1024, "num_attention_heads": 8}


@pytest.mark.parametrize(
    ("config", "about"),
    [
        (
            {"_class_name": "FluxTransformer2DModel", "num_attention_heads": 24},
            "diffusers",
        ),
        (
            {
                **SIZES,
                "model_type": "dinov3_vit",
                "patch_size": 16,
                "rope_theta": 100.0,
            },
            "images",
        ),
    ],
)
def test_a_model_of_images_is_said_to_be_one(
    config: dict[str, Any], about: str
) -> None:
    with pytest.raises(InputError, match=about):
        from_json("config.json", json.dumps(config).encode())


@pytest.mark.parametrize(("applies", "multiplier"), [(True, 1.8133), (False, 1.0)])
def test_a_params_json_says_whether_its_scaling_counts_in_the_scores(
    applies: bool, multiplier: float
) -> None:
    params: dict[str, Any] = {
        "dim": 4096,
        "n_heads": 32,
        "n_layers": 4,
        "rope_theta": 1e6,
    }
    yarn = {"factor": 32, "original_max_position_embeddings": 8192, "beta": 32}
    params["yarn"] = {**yarn, "alpha": 1, "apply_scale": applies}
    params["head_dim"] = 128

    document = from_json("params.json", json.dumps(params).encode())
    spec = registry.read(registry.RUNTIMES["vllm"], document.config).main

    assert document.kind == "params"
    assert spec is not None
    assert spec.logit_multiplier == pytest.approx(multiplier, abs=1e-4)


@pytest.mark.parametrize("runtime", ["transformers-4.48", "transformers-4.57"])
def test_a_local_base_of_null_is_the_global_one(runtime: str) -> None:
    config = {
        **SIZES,
        "model_type": "modernbert",
        "global_rope_theta": 80000.0,
        "local_rope_theta": None,
    }
    reading = registry.read(registry.RUNTIMES[runtime], config)
    assert {spec.base for spec in reading.layers.values()} == {80000.0}
    newer = registry.read(registry.RUNTIMES["transformers-5"], config)
    assert newer.outcome == "refused"


def test_a_reading_is_shown_in_one_line() -> None:
    config = {**SIZES, "model_type": "llama", "rope_theta": 5e5}
    shown = repr(registry.read(registry.RUNTIMES["transformers-5"], config))
    assert len(shown) < 200
    assert "500000" in shown or "5e+05" in shown
