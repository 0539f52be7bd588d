"""Rare model types, each with what a runtime does with its files.

The values come from the sources of vLLM 0.33.0, SGLang 0.5.23 and MLX-LM 0.32.2, and from
running the classes of transformers 5.24.0.
"""

from typing import Any

import pytest

from ropelab.readers import registry
from ropelab.readers.registry import Reading
from ropelab.readers.spec import RopeSpec

SIZES: dict[str, Any] = {
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "max_position_embeddings": 8192,
}
REMOTE = {"auto_map": {"AutoConfig": "configuration.Config"}}


def read(runtime: str, kind: str, name: str, **keys: Any) -> registry.Reading:
    # None is written into the file as a null.
    config = {"model_type": kind, "architectures": [name], **keys}
    return registry.read(registry.RUNTIMES[runtime], config)


def read_main(runtime: str, kind: str, name: str, **keys: Any) -> RopeSpec:
    spec = read(runtime, kind, name, **keys).main_spec
    assert spec is not None
    return spec


def describe(spec: RopeSpec) -> tuple[float, int, int, str]:
    return spec.base, spec.rotary_dim, spec.head_dim, spec.pairing


@pytest.mark.parametrize(
    ("runtime", "kind", "name"),
    [
        ("vllm", "mimo", "MiMoForCausalLM"),
        ("vllm", "qwen2", "Qwen2ForRewardModel"),
        ("vllm", "orion", "OrionForCausalLM"),
        ("sglang", "baichuan", "BaichuanForCausalLM"),
    ],
)
def test_a_head_dim_is_not_read_by_attention_that_divides_the_sizes(
    runtime: str, kind: str, name: str
) -> None:
    sizes = SIZES | {"hidden_size": 4096, "num_attention_heads": 32}
    keys = {**sizes, **REMOTE, "head_dim": 64, "rope_theta": 640000.0}
    spec = read_main(runtime, kind, name, **keys)
    assert describe(spec) == (640000.0, 128, 128, "half")


def test_vllm_removes_the_block_of_midashenglm_and_sglang_keeps_it() -> None:
    block = {"rope_type": "default", "mrope_section": [16, 24, 24]}
    text = SIZES | {
        "model_type": "qwen2_5_omni_text",
        "rope_theta": 500000.0,
        "rope_scaling": block,
    }
    for runtime, base in (("vllm", 1e6), ("sglang", 500000.0)):
        spec = read_main(
            runtime, "midashenglm", "MiDashengLMModel", text_config=text, **REMOTE
        )
        assert describe(spec) == (base, 128, 128, "half")


@pytest.mark.parametrize(
    ("kind", "name", "part", "taken", "stops"),
    [
        (
            "internvl_chat",
            "InternVLChatModel",
            "llm_config",
            [["Qwen2ForCausalLM"], ["InternLM2ForCausalLM"]],
            [["LlamaForCausalLM"], ["Cohere2ForCausalLM"], [], None],
        ),
        (
            "interns1",
            "InternS1ForConditionalGeneration",
            "text_config",
            [["Qwen2ForCausalLM"], ["Qwen3ForCausalLM"]],
            [["InternLM2ForCausalLM"], ["LlamaForCausalLM"], None],
        ),
    ],
)
def test_sglangs_internvl_and_interns1_look_for_a_class_themselves(
    kind: str,
    name: str,
    part: str,
    taken: list[list[str]],
    stops: list[list[str] | None],
) -> None:
    for classes in [*taken, *stops]:
        text = SIZES | {"model_type": "qwen2", "rope_theta": 5e5, **REMOTE}
        if classes is not None:
            text["architectures"] = classes
        reading = read("sglang", kind, name, **{part: text}, **REMOTE)
        assert reading.outcome == ("read" if classes in taken else "refused")
    # vLLM looks up the class that the part names.
    text = SIZES | {
        "model_type": "llama",
        "rope_theta": 5e5,
        "architectures": ["LlamaForCausalLM"],
    }
    reading = read("vllm", kind, name, **{part: text}, **REMOTE)
    assert reading.outcome == "read"


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("kind", "name", "pairing"),
    [
        ("glm_ocr", "GlmOcrForConditionalGeneration", "interleaved"),
        ("glm4v", "Glm4vForConditionalGeneration", "interleaved"),
        ("glm4v_moe", "Glm4vMoeForConditionalGeneration", "half"),
    ],
)
def test_servers_fill_in_the_share_of_glms_language_model(
    runtime: str, kind: str, name: str, pairing: str
) -> None:
    for given, width in (({}, 64), ({"partial_rotary_factor": 0.25}, 32)):
        block = {"rope_type": "default", "rope_theta": 5e4, **given}
        text = SIZES | {
            "model_type": f"{kind}_text",
            "head_dim": 128,
            "rope_parameters": block,
        }
        spec = read_main(runtime, kind, name, text_config=text)
        assert describe(spec) == (5e4, width, 128, pairing)


def test_vllms_glm4_moe_asks_for_a_head_dim_that_its_class_lacks() -> None:
    keys = SIZES | {"rope_theta": 1e4}
    name = "Glm4MoeForCausalLM"
    assert read("vllm", "glm4_moe", name, **keys).outcome == "refused"
    for head_dim in (64, None):
        reading = read("vllm", "glm4_moe", name, head_dim=head_dim, **keys)
        assert reading.outcome == "read"


@pytest.mark.parametrize(
    ("kind", "name", "outcome"),
    [
        ("granite", "GraniteForCausalLM", "refused"),
        ("apertus", "ApertusForCausalLM", "refused"),
        ("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", "refused"),
        ("phi3", "Phi3ForCausalLM", "refused"),
        # The class fills in the size, or the model file does.
        ("llama", "LlamaForCausalLM", "read"),
        ("qwen3_moe", "Qwen3MoeForCausalLM", "read"),
        ("glm4_moe", "Glm4MoeForCausalLM", "read"),
        # The class that comes with the weights was not read.
        ("xverse", "XverseForCausalLM", "not modelled"),
        ("TeleFLM", "TeleFLMForCausalLM", "not modelled"),
    ],
)
def test_a_head_dim_of_null_is_a_size_to_some_of_sglangs_files(
    kind: str, name: str, outcome: str
) -> None:
    keys = SIZES | REMOTE | {"rope_theta": 1e4}
    assert read("sglang", kind, name, head_dim=None, **keys).outcome == outcome
    assert read("sglang", kind, name, head_dim=64, **keys).outcome == "read"


@pytest.mark.parametrize("kind", ["mimo_v2", "mimo_v2_omni", "mimo_v2_flash"])
def test_a_block_of_null_replaces_no_base_of_mimo(kind: str) -> None:
    names = {
        "mimo_v2": "MiMoV2FlashForCausalLM",
        "mimo_v2_omni": "MiMoV2OmniForCausalLM",
        "mimo_v2_flash": "MiMoV2FlashForCausalLM",
    }
    keys = SIZES | REMOTE
    keys |= {"head_dim": 192, "swa_head_dim": 192, "partial_rotary_factor": 0.334}
    keys |= {"rope_theta": 5e6, "swa_rope_theta": 1e4, "rope_scaling": None}
    layers = read("vllm", kind, names[kind], **keys).layers
    assert describe(layers["full_attention"]) == (5e6, 64, 192, "half")
    assert describe(layers["sliding_attention"]) == (1e4, 64, 192, "half")


def test_sglangs_cohere_vision_with_experts_is_said_to_be_unread() -> None:
    kind, name = "cohere2_vision", "Cohere2VisionForConditionalGeneration"
    text = SIZES | {"rope_theta": 5e4, "sliding_window": 512, "model_type": "cohere2"}
    spec = read_main("sglang", kind, name, text_config=text)
    assert describe(spec) == (5e4, 128, 128, "interleaved")
    text["model_type"] = "cohere2_moe"
    reading = read("sglang", kind, name, text_config=text)
    assert reading.outcome == "not modelled"


@pytest.mark.parametrize(
    ("kind", "text_kind"),
    [
        ("aya_vision", "cohere2"),
        ("cohere2_vision", "cohere2"),
        ("granite_speech", "granite"),
        ("qwen2_audio", "qwen2"),
        ("llava", "llama"),
    ],
)
def test_a_scaling_beside_the_language_model_of_any_class_needs_a_length(
    kind: str, text_kind: str
) -> None:
    """Run with transformers 5.24.0: AttributeError, max_position_embeddings."""
    text = {**SIZES, "model_type": text_kind, "rope_theta": 2e4}
    keys: dict[str, Any] = {"text_config": text}
    keys["rope_scaling"] = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert read("transformers-5", kind, "", **keys).outcome == "refused"
    keys["max_position_embeddings"] = 8192
    spec = read("transformers-5", kind, "", **keys).main_spec
    assert spec is not None and spec.method == "unscaled" and spec.base == 2e4


def test_a_whole_with_a_length_of_its_own_takes_a_scaling_beside_its_part() -> None:
    """Run with transformers 5.24.0."""
    scaling = {"rope_type": "yarn", "factor": 4.0}
    keys: dict[str, Any] = {"text_config": {**SIZES, "rope_theta": 2e4}}
    keys["rope_scaling"] = scaling | {"original_max_position_embeddings": 8192}
    for base in ({}, {"rope_theta": 1e4}):
        spec = read("transformers-5", "vibevoice_asr", "", **keys, **base).main_spec
        assert spec is not None and spec.method == "unscaled" and spec.base == 2e4


@pytest.mark.parametrize(
    ("kind", "types", "outcome"),
    [
        # A property that cannot be set.
        ("bamba", ["full_attention"], "refused"),
        ("falcon_h1", ["full_attention"], "refused"),
        ("recurrent_gemma", ["full_attention"], "refused"),
        # The rotary class has no frequencies for the type.
        ("zaya", ["hybrid", "chunked_attention"], "refused"),
        ("zaya", ["hybrid"], "read"),
        ("gemma3_text", ["full_attention", "conv"], "refused"),
        ("olmo3", ["full_attention", "linear_attention"], "refused"),
        ("diffusion_gemma_text", ["full_attention", "hybrid"], "refused"),
        ("ultrabert", ["conv"], "refused"),
        # Layers that do not rotate.
        ("lfm3", ["full_attention", "conv"], "read"),
        ("deepseek_v4", ["sliding_attention"], "read"),
        # The configuration class checks names.
        ("deepseek_v4", ["full_attention"], "refused"),
        ("modernbert", ["chunked_attention"], "refused"),
        ("dory", ["hybrid"], "refused"),
        ("neomme", ["sliding_attention"], "refused"),
        ("neomme", ["sliding_attention", "full_attention"], "read"),
        ("olmo_hybrid", ["full_attention"], "refused"),
        ("olmo_hybrid", ["full_attention", "linear_attention"], "read"),
        ("qwen4_exp_text", ["sliding_attention"], "refused"),
        ("qwen4_exp_text", ["full_attention", "linear_attention"], "read"),
    ],
)
def test_a_layer_type_that_a_class_lacks_stops_it(
    kind: str, types: list[str], outcome: str
) -> None:
    """Run with transformers 5.24.0: the configuration, then the rotary class."""
    keys = {"num_hidden_layers": 4, "layer_types": (types * 4)[:4]}
    assert read("transformers-5", kind, "", **keys).outcome == outcome


@pytest.mark.parametrize("part", ["llm_config", "language_config"])
@pytest.mark.parametrize(
    "kind", ["internvl", "got_ocr2", "aya_vision", "unlimited_ocr"]
)
def test_a_part_under_a_key_that_a_class_does_not_read_is_not_its_language_model(
    kind: str, part: str
) -> None:
    """Run with transformers 5.24.0, where all classes but two read text_config alone."""
    text = {**SIZES, "model_type": "qwen2", "rope_theta": 2e6}
    if (kind, part) == ("unlimited_ocr", "language_config"):
        text["model_type"] = "unlimited_ocr_text"
        reading = read("transformers-5", kind, "", **{part: text})
        assert reading.outcome == "read"
        return
    reading = read("transformers-5", kind, "", **{part: text})
    assert reading.outcome == "not modelled"
    assert "text_config" in reading.problem


@pytest.mark.parametrize(
    ("kind", "text_kind", "base", "width"),
    [
        ("pixtral", "qwen2", 1e4, 64),
        ("llava", "qwen2", 1e4, 64),
        ("mistral3", "qwen2", 1e4, 64),
        ("llava", "vicuna", 1e4, 64),
        ("lfm2-vl", "llama", 1e6, 128),
        # These types have model files of their own in mistral3.py.
        ("mistral3", "ministral3", 2e5, 64),
        ("llava", "ministral3", 2e5, 64),
    ],
)
def test_some_wholes_in_mlx_lm_run_any_text_by_one_file(
    kind: str, text_kind: str, base: float, width: int
) -> None:
    text = {**SIZES, "model_type": text_kind, "head_dim": 64}
    block = {"rope_type": "default", "rope_theta": 2e5, "llama_4_scaling_beta": 0.1}
    if text_kind == "ministral3":
        text["rope_parameters"] = block | {"original_max_position_embeddings": 4096}
    spec = read_main("mlx-lm", kind, "", text_config=text)
    assert describe(spec) == (base, width, width, "half")


def test_two_classes_fill_in_their_own_bases_for_a_null() -> None:
    """Run with transformers 5.24.0."""
    layers = read("transformers-5", "dory", "", rope_scaling=None).layers
    assert layers["full_attention"].base == 1e7
    assert layers["sliding_attention"].base == 1e4
    layers = read("transformers-5", "neomme", "", rope_theta=None).layers
    assert layers["full_attention"].base == 1e6
    assert layers["sliding_attention"].base == 1e4


def test_vllms_telechat2_sizes_heads_otherwise_than_their_weights() -> None:
    keys = SIZES | REMOTE | {"rope_theta": 1e4}
    kind, name = "telechat2", "TeleChat2ForCausalLM"
    assert describe(read_main("vllm", kind, name, **keys)) == (1e4, 128, 128, "half")
    assert read("vllm", kind, name, head_dim=128, **keys).outcome == "read"
    assert read("vllm", kind, name, head_dim=64, **keys).outcome == "not modelled"


def test_sglangs_deepseek_ocr_is_read_without_a_rotary_part() -> None:
    text = SIZES | {"model_type": "deepseek_v2", "use_mla": False, "rope_theta": 1e4}
    kind, name = "deepseek_vl_v2", "DeepseekOCRForCausalLM"
    for width, outcome in ((0, "read"), (64, "not modelled")):
        part = {**text, "qk_rope_head_dim": width}
        reading = read("sglang", kind, name, language_config=part)
        assert reading.outcome == outcome
    part = {**text, "qk_rope_head_dim": 0}
    spec = read_main("sglang", kind, name, language_config=part)
    assert describe(spec) == (1e4, 128, 128, "half")


def read_language_part(runtime: str, model_type: str, key: str) -> Reading:
    """Read a model whose language part, a Qwen 2 of base 1e6, is under a key."""
    part = {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "num_hidden_layers": 4,
        "max_position_embeddings": 4096,
        "rope_theta": 1e6,
    }
    architectures = {
        "internvl_chat": "InternVLChatModel",
        "ovis": "Ovis",
        "bagel": "BagelForConditionalGeneration",
    }
    config = {
        "model_type": model_type,
        "architectures": [architectures[model_type]],
        "auto_map": {"AutoConfig": "configuration.Config"},
        key: part,
    }
    return registry.read(registry.RUNTIMES[runtime], config)


@pytest.mark.parametrize(
    ("runtime", "model_type"),
    [("sglang", "internvl_chat"), ("vllm", "ovis"), ("vllm", "bagel")],
)
def test_a_part_under_another_key_is_not_the_one_that_a_server_takes(
    runtime: str, model_type: str
) -> None:
    """The configuration class of the server takes its own defaults then: of InternLM 2 in
    SGLang's InternVL, which have base 10000.
    """
    right = read_language_part(runtime, model_type, "llm_config")
    assert right.main_spec is not None
    assert right.main_spec.base == 1e6
    wrong = read_language_part(runtime, model_type, "text_config")
    assert wrong.outcome == "not modelled"
    assert "llm_config, which is missing" in wrong.problem


def test_olmo_hybrid_needs_layers_of_both_types() -> None:
    for layers, outcome in (
        (["linear_attention"] * 4, "refused"),
        (["full_attention"] * 4, "refused"),
        (["linear_attention"] * 3 + ["full_attention"], "read"),
    ):
        config = {
            "model_type": "olmo_hybrid",
            "hidden_size": 512,
            "num_attention_heads": 8,
            "num_hidden_layers": 4,
            "max_position_embeddings": 4096,
            "rope_theta": 5e5,
            "layer_types": layers,
        }
        reading = registry.read(registry.RUNTIMES["transformers-5"], config)
        assert reading.outcome == outcome, layers


@pytest.mark.parametrize(
    "architecture",
    ["DeepseekVLV2ForCausalLM", "DeepseekVL2ForCausalLM", "MultiModalityCausalLM"],
)
def test_each_architecture_of_a_remote_type_is_known(architecture: str) -> None:
    """No server finds a class by a type that it does not know."""
    config = {"model_type": "nonsense", "architectures": [architecture]}
    assert "no type of transformers" in registry.explain_missing_class(config)


@pytest.mark.parametrize(
    ("kind", "keys", "outcome"),
    [
        # These classes have no tokens of a window, and take those of the file.
        ("llama", {}, "refused"),
        ("llama", {"sliding_window": None}, "refused"),
        ("llama", {"sliding_window": 512}, "read"),
        ("seed_oss", {}, "refused"),
        ("phi3", {}, "refused"),
        ("phi3", {"sliding_window": 512}, "read"),
        # These have tokens of their own.
        ("mistral", {}, "read"),
        ("mistral", {"sliding_window": None}, "refused"),
        ("gemma2", {}, "read"),
        ("gpt_oss", {"sliding_window": None}, "refused"),
        # These drop them without a second key.
        ("qwen3", {"sliding_window": 512}, "refused"),
        ("qwen3", {"use_sliding_window": True}, "read"),
        ("qwen3", {"use_sliding_window": True, "sliding_window": None}, "refused"),
        # These have masks for other types alone.
        ("lfm2", {"sliding_window": 512}, "refused"),
        ("qwen3_next", {"sliding_window": 512}, "refused"),
        # An encoder makes no cache.
        ("eurobert", {}, "read"),
    ],
)
def test_layers_with_a_window_stop_a_class_that_has_none(
    kind: str, keys: dict[str, Any], outcome: str
) -> None:
    """Run with transformers 5.24.0: a forward pass of a small random model."""
    types = ["sliding_attention", "full_attention"]
    config = {**SIZES, "num_hidden_layers": 2, "layer_types": types, **keys}
    assert read("transformers-5", kind, "", **config).outcome == outcome

    config["layer_types"] = ["full_attention"] * 2
    assert read("transformers-5", kind, "", **config).outcome == "read"


@pytest.mark.parametrize(
    ("kind", "keys", "outcome"),
    [
        ("llama", {}, "refused"),
        ("llama", {"attention_chunk_size": 512}, "read"),
        ("mistral", {}, "refused"),
        ("llama4_text", {}, "read"),
    ],
)
def test_layers_with_chunks_need_their_size(
    kind: str, keys: dict[str, Any], outcome: str
) -> None:
    """Run with transformers 5.24.0: a forward pass of a small random model."""
    types = ["chunked_attention", "full_attention"]
    config = {**SIZES, "num_hidden_layers": 2, "layer_types": types, **keys}
    assert read("transformers-5", kind, "", **config).outcome == outcome


def test_types_of_layers_are_as_many_as_the_layers_of_the_class() -> None:
    """Run with transformers 5.24.0: the configuration."""
    zamba2 = {**SIZES, "num_hidden_layers": 4, "use_mem_rope": True}
    blocks = ["mamba", "mamba", "hybrid", "mamba"]
    for count, outcome in ((4, "read"), (3, "refused")):
        keys = {**zamba2, "layers_block_type": blocks[:count]}
        assert read("transformers-5", "zamba2", "", **keys).outcome == outcome

    # A token passes two stacks of 4 layers 2 * (3 + 1) times.
    hrm = {**SIZES, "num_hidden_layers": 4}
    for count, outcome in ((32, "read"), (4, "refused")):
        keys = {**hrm, "layer_types": ["full_attention"] * count}
        assert read("transformers-5", "hrm_text", "", **keys).outcome == outcome
    keys = {**hrm, "layer_types": ["full_attention"] * 4, "num_layers_per_stack": 1}
    assert read("transformers-5", "hrm_text", "", **keys).outcome == "read"


@pytest.mark.parametrize("runtime", ["transformers-5", "vllm", "sglang"])
def test_a_layer_type_that_no_layer_has_gets_no_rotation(runtime: str) -> None:
    """modeling_gemma3.py:146 loops over the types of the file."""
    for kind in ("full_attention", "sliding_attention"):
        keys = {**SIZES, "num_hidden_layers": 2, "layer_types": [kind] * 2}
        reading = read(runtime, "gemma3_text", "Gemma3ForCausalLM", **keys)
        assert list(reading.layers) == [kind]
