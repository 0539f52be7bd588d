"""What a file is, where it is no configuration of a language model."""

import json
from typing import Any

import pytest

from ropelab.readers import registry
from ropelab.readers.document import parse_document
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
        parse_document("config.json", json.dumps(config).encode())


PARAMS: dict[str, Any] = {
    "dim": 4096,
    "n_heads": 32,
    "n_layers": 4,
    "head_dim": 128,
    "rope_theta": 1e6,
    "max_position_embeddings": 262144,
}
PARAMS_YARN: dict[str, Any] = {
    "factor": 32,
    "original_max_position_embeddings": 8192,
    "beta": 32,
    "alpha": 1,
    "apply_scale": True,
}
QUERIES = {"beta": 0.1, "original_max_position_embeddings": 8192}


def read_params(runtime: str, **keys: Any) -> registry.Reading:
    document = parse_document("params.json", json.dumps({**PARAMS, **keys}).encode())
    assert document.kind == "params"
    return registry.read(registry.RUNTIMES[runtime], document.config)


# The magnitude of a scaling by 32, squared, where it counts. The file of a Mistral without a
# factor on queries gets the architecture of Llama, which does not load the field that
# takes it back.
@pytest.mark.parametrize(
    ("runtime", "applies", "queries", "multiplier"),
    [
        ("vllm", True, False, 1.8133),
        # mistral_utils.py:163 in SGLang makes DeepSeek's YaRN of it, whose two factors
        # cancel in cos and sin.
        ("sglang", True, False, 1.0),
        ("sglang", False, True, 1.0),
        ("vllm", False, False, 1.0),
        ("vllm", False, True, 1.0),
        ("llama.cpp", True, False, 1.8133),
        ("llama.cpp", True, True, 1.8133),
        ("llama.cpp", False, True, 1.0),
        ("llama.cpp", False, False, 1.8133),
    ],
)
def test_a_params_json_says_whether_its_scaling_counts_in_the_scores(
    runtime: str, applies: bool, queries: bool, multiplier: float
) -> None:
    keys: dict[str, Any] = {"yarn": {**PARAMS_YARN, "apply_scale": applies}}
    if queries:
        keys["llama_4_scaling"] = QUERIES
    spec = read_params(runtime, **keys).main_spec
    assert spec is not None
    assert (spec.base, spec.rotary_dim, spec.trained_len) == (1e6, 128, 8192)
    assert spec.logit_multiplier == pytest.approx(multiplier, abs=1e-4)


def test_sglang_rotates_the_pairs_of_a_params_json_as_they_are() -> None:
    """vLLM puts the weights of adjacent pairs into halves, SGLang does not."""
    pairs = {}
    for runtime in ("vllm", "sglang"):
        spec = read_params(runtime, yarn=PARAMS_YARN).main_spec
        assert spec is not None
        pairs[runtime] = spec.pairing
        theirs = read_params("vllm", yarn=PARAMS_YARN).main_spec
        assert theirs is not None
        assert spec.inv_freq(8192) == pytest.approx(theirs.inv_freq(8192))
    assert pairs == {"vllm": "half", "sglang": "interleaved"}


@pytest.mark.parametrize(
    ("keys", "claimed"), [({}, 128000), ({"max_seq_len": 32768}, 32768)]
)
def test_sglang_allows_what_max_seq_len_says(
    keys: dict[str, Any], claimed: int
) -> None:
    """It fills that key in, and takes it before max_position_embeddings."""
    for runtime, length in (("sglang", claimed), ("vllm", keys.get("max_seq_len"))):
        spec = read_params(runtime, **keys).main_spec
        assert spec is not None
        assert spec.claimed_len == (length or PARAMS["max_position_embeddings"])


def test_sglang_was_not_run_with_a_params_json() -> None:
    for runtime, was_run in (("vllm", True), ("sglang", False)):
        reading = read_params(runtime)
        assert (reading.model_type in reading.runtime.compared_types) == was_run


LARGE: dict[str, Any] = {
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "kv_lora_rank": 512,
    "v_head_dim": 128,
    "moe": {"num_shared_experts": 1},
}


@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        ({**LARGE, "llama_4_scaling": QUERIES}, "read"),
        (LARGE, "refused"),
        ({**LARGE, "moe": None}, "not modelled"),
        ({"moe": {"num_experts": 8}}, "not modelled"),
    ],
)
def test_which_params_json_sglang_loads(keys: dict[str, Any], outcome: str) -> None:
    reading = read_params("sglang", **keys, yarn=PARAMS_YARN)
    assert reading.outcome == outcome
    if outcome == "read":
        assert reading.main_spec is not None
        assert reading.main_spec.rotary_dim == 64
        assert reading.main_spec.pairing == "interleaved"
        assert reading.main_spec.logit_multiplier == pytest.approx(1.8133, abs=1e-4)


@pytest.mark.parametrize(("queries", "loaded"), [(True, True), (False, False)])
def test_the_ends_of_a_ramp_are_loaded_for_some_architectures(
    queries: bool, loaded: bool
) -> None:
    keys: dict[str, Any] = {"yarn": {**PARAMS_YARN, "beta": 16, "alpha": 2}}
    if queries:
        keys["llama_4_scaling"] = QUERIES
    ours = read_params("llama.cpp", **keys).main_spec
    usual = read_params("llama.cpp", yarn=PARAMS_YARN).main_spec
    theirs = read_params("vllm", **keys).main_spec
    assert ours is not None
    assert usual is not None
    assert theirs is not None
    same = (theirs if loaded else usual).inv_freq(8192)
    other = (usual if loaded else theirs).inv_freq(8192)
    assert ours.inv_freq(8192) == pytest.approx(same)
    assert ours.inv_freq(8192) != pytest.approx(other)


@pytest.mark.parametrize(
    ("queries", "status"), [(True, "translated"), (False, "ignored")]
)
def test_the_keys_of_a_params_json_have_a_status(queries: bool, status: str) -> None:
    keys: dict[str, Any] = {"yarn": {**PARAMS_YARN, "apply_scale": False}}
    if queries:
        keys["llama_4_scaling"] = QUERIES
    uses = {use.path: use.status for use in read_params("llama.cpp", **keys).keys}
    assert uses["rope_scaling.factor"] == uses["rope_theta"] == "translated"
    assert uses["rope_scaling.beta_fast"] == status
    assert uses["rope_scaling.attention_factor"] == status


@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        ({"yarn": {**PARAMS_YARN, "alpha": 0}}, "read"),
        ({"yarn": "on"}, "refused"),
        ({"yarn": {key: PARAMS_YARN[key] for key in ("factor", "beta")}}, "refused"),
        ({"head_dim": None}, "refused"),
        ({"max_position_embeddings": None}, "refused"),
        ({"moe": {"num_experts": 8}}, "not modelled"),
    ],
)
def test_what_llama_cpps_converter_asks_of_a_params_json(
    keys: dict[str, Any], outcome: str
) -> None:
    assert read_params("llama.cpp", **keys).outcome == outcome


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
