"""Model types that servers run by files of their own: read, or nothing is said."""

from typing import Any

import pytest

from ropelab.readers import registry
from ropelab.readers.document import parse_document
from ropelab.readers.families import read_table
from ropelab.readers.served import FILES, SERVED, find_file
from ropelab.runs.errors import InputError

SIZES = {
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "max_position_embeddings": 4096,
    "rope_theta": 5e5,
}


def read(runtime: str, kind: str, name: str, **keys: Any) -> registry.Reading:
    config = {"model_type": kind, "architectures": [name], **SIZES, **keys}
    # None is for a key that the file does not have.
    config = {key: value for key, value in config.items() if value is not None}
    return registry.read(registry.RUNTIMES[runtime], config)


@pytest.mark.parametrize(
    ("runtime", "kind", "name"),
    [
        ("vllm", "k2_horizon", "K2HorizonForCausalLM"),
        ("vllm", "deepseek_v41", "DeepseekV41ForCausalLM"),
        ("vllm", "bailing_moe_v3", "BailingMoeV3ForCausalLM"),
        ("vllm", "grok-1", "Grok1ForCausalLM"),
        ("sglang", "gigachat35", "GigaChat35ForCausalLM"),
        ("sglang", "jet_nemotron", "JetNemotronForCausalLM"),
        ("sglang", "minicpm_sala", "MiniCPMSALAForCausalLM"),
        ("tensorrt-llm", "odd", "LlamaForCausalLM"),
        ("llama.cpp", "odd", "LlamaForCausalLM"),
        ("transformers-5", "odd", "LlamaForCausalLM"),
    ],
)
def test_nothing_is_said_of_code_that_was_not_read(
    runtime: str, kind: str, name: str
) -> None:
    reading = read(runtime, kind, name)
    assert reading.outcome == "not modelled"
    assert not reading.layers


@pytest.mark.parametrize("missing", ["rope_theta", "max_position_embeddings"])
def test_a_default_of_code_that_comes_with_the_weights_is_not_guessed(
    missing: str,
) -> None:
    assert read("vllm", "solar", "SolarForCausalLM").outcome == "read"
    silent = read("vllm", "solar", "SolarForCausalLM", **{missing: None})
    assert silent.outcome == "not modelled"


def test_alibi_is_no_rotation() -> None:
    raw = b'{"model_type": "step1", "num_attention_heads": 8, "rope_theta": 1e4}'
    with pytest.raises(InputError, match="no rotary positions"):
        parse_document("config.json", raw)


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_ernie_with_images_turns_neighbouring_features(runtime: str) -> None:
    name = "Ernie4_5_VLMoeForConditionalGeneration"
    reading = read(runtime, "ernie4_5_moe_vl", name)
    assert reading.layers["all"].pairing == "interleaved"


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_mistral_4_has_no_class_in_the_servers(runtime: str) -> None:
    text = {**SIZES, "model_type": "mistral4", "qk_rope_head_dim": 64}
    name = "Mistral3ForConditionalGeneration"
    assert read(runtime, "mistral3", name, text_config=text).outcome == "not modelled"


def test_hy_v4_is_paired_by_each_runtime_in_its_own_way() -> None:
    found = {
        name: read(name, "hy_v4", "HYV4ForCausalLM", qk_rope_head_dim=64)
        for name in ("transformers-5", "vllm")
    }
    assert found["transformers-5"].layers["all"].pairing == "half"
    assert found["vllm"].layers["all"].pairing == "interleaved"


def test_sglangs_exaone_4_has_a_base_of_its_own() -> None:
    reading = read("sglang", "exaone4", "Exaone4ForCausalLM")
    assert {spec.base for spec in reading.layers.values()} == {1e6}
    assert {key.status for key in reading.keys if key.path == "rope_theta"} == {
        "ignored"
    }


@pytest.mark.parametrize("runtime", sorted(SERVED))
def test_every_row_names_a_file_that_the_server_lists(runtime: str) -> None:
    rows = read_table("served")[runtime]
    listed = {*FILES[runtime].values()}
    inner = {*rows["texts"].values()} - {"text"}
    outer = {name for name in rows["texts"] if name not in FILES[runtime]}
    known = {*rows["read"].split(), *rows["files"]}
    assert outer <= listed
    assert inner <= known
    assert known - listed <= inner  # files that only serve as a language part
    assert not {*rows["read"].split()} & {*rows["files"]}


def test_the_file_of_an_architecture() -> None:
    part = {"architectures": ["Odd", "LlamaForCausalLM"]}
    assert find_file("vllm", part) == ("LlamaForCausalLM", "llama")
    assert find_file("vllm", {"model_type": "qwen3"}) == ("Qwen3ForCausalLM", "qwen3")
    assert find_file("vllm", {"model_type": "odd"}) == ("", "")


YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
}


@pytest.mark.parametrize(
    "extra", [{"attention_factor": 1.0}, {"mscale": 1.0, "mscale_all_dim": 1.0}]
)
def test_vllms_gpt_oss_hands_no_factor_on_cos_and_sin_on(extra: dict[str, Any]) -> None:
    block = {**YARN, **extra}
    name = "GptOssForCausalLM"
    keys = {"head_dim": 64, "rope_scaling": block}
    factors = {
        runtime: read(runtime, "gpt_oss", name, **keys).layers["all"].attention_factor
        for runtime in ("transformers-5", "vllm")
    }
    assert factors["transformers-5"] == 1.0
    assert factors["vllm"] == pytest.approx(1.3465735902799727)


def test_vllms_gpt_oss_stops_without_a_key_that_it_hands_on() -> None:
    block = {key: value for key, value in YARN.items() if key != "beta_fast"}
    reading = read("vllm", "gpt_oss", "GptOssForCausalLM", rope_scaling=block)
    assert reading.outcome == "refused"
    assert "beta_fast" in reading.problem


LINEAR = {"type": "linear", "rope_type": "linear", "factor": 4.0}


@pytest.mark.parametrize(
    ("kind", "name", "wanted"),
    [
        ("lfm2", "Lfm2ForCausalLM", (128, 5e5)),
        ("lfm2_moe", "Lfm2MoeForCausalLM", (128, 5e5)),
        ("hrm_text", "HrmTextForCausalLM", (128, 5e5)),
        ("qwen2", "Qwen2ForSequenceClassification", (128, 5e5)),
        ("llama", "LlamaForSequenceClassification", (128, 5e5)),
        ("internlm2", "InternLM2ForCausalLM", (128, 5e5)),
        ("granitemoehybrid", "GraniteMoeHybridForCausalLM", (128, 5e5)),
        ("qwen3_next", "Qwen3NextForCausalLM", (32, 5e5)),
    ],
)
def test_files_of_sglang_that_follow_the_usual_rule(
    kind: str, name: str, wanted: tuple[int, float]
) -> None:
    sizes = {"head_dim": 128, "position_embedding_type": "rope"}
    reading = read("sglang", kind, name, rope_scaling=LINEAR, **sizes)
    spec = reading.layers["all"]
    assert (spec.rotary_dim, spec.base) == wanted
    assert spec.method == "pi(factor=4)"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("granitemoehybrid", "GraniteMoeHybridForCausalLM"),
        ("qwen3_next", "Qwen3NextForCausalLM"),
    ],
)
def test_a_configuration_class_of_sglangs_own_passes_over_rope_parameters(
    kind: str, name: str
) -> None:
    block = {"rope_type": "default", "rope_theta": 1e6}
    reading = read("sglang", kind, name, rope_theta=None, rope_parameters=block)
    assert reading.outcome == "not modelled"


BOTH = {
    "full_attention": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.5,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
OLD_DORY = {
    "attention_head_dim": 256,
    "rope_theta": 10000,
    "rope_theta_2": 10000000,
    "partial_rotary_factor_2": 0.5,
}


@pytest.mark.parametrize(
    ("runtime", "keys", "full", "sliding"),
    [
        ("vllm", {"rope_parameters": BOTH}, (1e7, 128), (1e4, 256)),
        ("transformers-5", {"rope_parameters": BOTH}, (1e7, 256), (1e4, 256)),
        # Each release reads neither of the second keys.
        ("vllm", OLD_DORY, (1e4, 256), (1e4, 256)),
        ("transformers-5", OLD_DORY, (1e7, 256), (1e4, 256)),
    ],
)
def test_dory_has_two_bases(
    runtime: str,
    keys: dict[str, Any],
    full: tuple[float, int],
    sliding: tuple[float, int],
) -> None:
    config = {
        "model_type": "dory",
        "architectures": ["DoryForCausalLM"],
        "hidden_size": 2560,
        "num_attention_heads": 16,
        "max_position_embeddings": 8192,
        **keys,
    }
    layers = registry.read(registry.RUNTIMES[runtime], config).layers
    assert {name: (s.base, s.rotary_dim, s.head_dim) for name, s in layers.items()} == {
        "full_attention": (*full, 256),
        "sliding_attention": (*sliding, 256),
    }


def test_vllms_dory_is_never_scaled() -> None:
    block = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}
    reading = read(
        "vllm", "dory", "DoryForCausalLM", rope_parameters=dict.fromkeys(BOTH, block)
    )
    assert reading.outcome == "refused"


LAGUNA = {
    "full_attention": {
        "rope_theta": 5e5,
        "rope_type": "yarn",
        "factor": 64.0,
        "original_max_position_embeddings": 4096,
        "attention_factor": 1.0,
        "partial_rotary_factor": 0.5,
    },
    "sliding_attention": {"rope_type": "default"},
}
LAYERS = ["full_attention", "sliding_attention"] * 2


def read_sglang(kind: str, name: str, **keys: Any) -> registry.Reading:
    sizes = {"head_dim": 128, "num_hidden_layers": 4, "layer_types": LAYERS}
    return read("sglang", kind, name, **sizes, **keys)


def test_sglangs_laguna_has_a_configuration_class_of_its_own() -> None:
    reading = read_sglang("laguna", "LagunaForCausalLM", rope_parameters=LAGUNA)
    full = reading.layers["full_attention"]
    sliding = reading.layers["sliding_attention"]
    # Unlike elsewhere in SGLang attention_factor counts.
    assert (full.base, full.rotary_dim, full.attention_factor) == (5e5, 64, 1.0)
    # What a dict for layers with a window leaves out is that of full attention.
    assert (sliding.base, sliding.rotary_dim, sliding.method) == (5e5, 64, "unscaled")

    flat = {"rope_type": "default", "rope_theta": 1e6}
    ignoring = read_sglang("laguna", "LagunaForCausalLM", rope_parameters=flat)
    assert ignoring.outcome == "not modelled"


def test_sglangs_mellum_rotates_the_whole_head() -> None:
    blocks = {
        **LAGUNA,
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    reading = read_sglang("mellum", "MellumForCausalLM", rope_parameters=blocks)
    full = reading.layers["full_attention"]
    assert (full.base, full.rotary_dim) == (5e5, 128)
    assert full.attention_factor == pytest.approx(1.4158883083359672)
    assert reading.layers["sliding_attention"].base == 1e4


def test_sglangs_mimo_needs_the_class_of_the_weights() -> None:
    name = "MiMoV2FlashForCausalLM"
    keys = {"swa_rope_theta": 1e4, "swa_head_dim": 96, "partial_rotary_factor": 0.5}
    assert read_sglang("mimo_v2_flash", name, **keys).outcome == "refused"

    remote = {"AutoConfig": "configuration_mimo_v2_flash.MiMoV2FlashConfig"}
    reading = read_sglang("mimo_v2_flash", name, auto_map=remote, **keys)
    full = reading.layers["full_attention"]
    sliding = reading.layers["sliding_attention"]
    assert (full.base, full.rotary_dim, full.head_dim) == (5e5, 64, 128)
    assert (sliding.base, sliding.rotary_dim, sliding.head_dim) == (1e4, 48, 96)


def test_sglangs_falcon_h1_has_a_base_and_a_size_of_its_own() -> None:
    name = "FalconH1ForCausalLM"
    keys = {"head_dim": 128, "rope_theta": None, "partial_rotary_factor": 0.5}
    silent = read("sglang", "falcon_h1", name, **keys)
    spec = silent.layers["all"]
    assert (spec.base, spec.rotary_dim) == (1e5, 64)
    assert read("sglang", "falcon_h1", name).outcome == "refused"


def test_sglangs_longcat_stops_without_a_scaling() -> None:
    name = "LongcatFlashForCausalLM"
    assert read("sglang", "longcat_flash", name).outcome == "refused"
    block = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    block |= {"mscale": 1.0, "mscale_all_dim": 1.0}
    scaled = read("sglang", "longcat_flash", name, rope_theta=None, rope_scaling=block)
    spec = scaled.layers["all"]
    assert (spec.base, spec.rotary_dim, spec.attention_factor) == (1e7, 128, 1.0)
    assert spec.softmax_factor > 1


@pytest.mark.parametrize("kind", ["git", "grok-1"])
def test_sglangs_grok_has_its_scaling_beside_the_base(kind: str) -> None:
    name = "Grok1ForCausalLM"
    plain = read("sglang", kind, name, head_dim=128).layers["all"]
    assert (plain.base, plain.rotary_dim, plain.method) == (5e5, 128, "unscaled")

    keys = {"rope_type": "yarn", "scaling_factor": 16.0, "beta_fast": 8}
    keys |= {"original_max_position_embeddings": 8192, "rope_rotate_half_dims": True}
    scaled = read("sglang", kind, name, **keys).layers["all"]
    assert scaled.method == "yarn(factor=16, beta_fast=8, attention_factor=1)"
    assert (scaled.rotary_dim, scaled.head_dim) == (64, 128)
    assert scaled.trained_len == 8192

    other = read("sglang", kind, name, **{**keys, "rope_type": "yarn_log"})
    assert other.outcome == "not modelled"


@pytest.mark.parametrize(
    ("kind", "name", "base"),
    [
        ("bailing_hybrid", "BailingMoeV2_5ForCausalLM", 6e5),
        ("exaone", "ExaoneForCausalLM", 1e4),
    ],
)
def test_a_configuration_class_of_sglangs_own_has_its_own_base(
    kind: str, name: str, base: float
) -> None:
    assert read("sglang", kind, name, rope_theta=None).layers["all"].base == base
    assert read("sglang", kind, name, rope_theta=7e4).layers["all"].base == 7e4


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bailing_hybrid", "BailingMoeV2_5ForCausalLM"),
        ("internlm2", "InternLM2ForCausalLM"),
        ("step3p5", "Step3p5ForCausalLM"),
    ],
)
def test_a_model_file_of_sglang_passes_over_a_base_in_rope_parameters(
    kind: str, name: str
) -> None:
    block = {"rope_type": "default", "rope_theta": 7e4}
    reading = read("sglang", kind, name, rope_theta=None, rope_parameters=block)
    assert reading.outcome == "not modelled"


@pytest.mark.parametrize(
    ("runtime", "kind", "name"),
    [
        ("vllm", "qwen2", "Qwen2ForCausalLM"),
        ("vllm", "qwen2_moe", "Qwen2MoeForCausalLM"),
        ("vllm", "olmoe", "OlmoeForCausalLM"),
        ("vllm", "stablelm", "StableLmForCausalLM"),
        ("vllm", "granitemoe", "GraniteMoeForCausalLM"),
        ("vllm", "lfm2", "Lfm2ForCausalLM"),
        ("vllm", "dbrx", "DbrxForCausalLM"),
        ("vllm", "nomic_bert", "NomicBertModel"),
        ("sglang", "mixtral", "MixtralForCausalLM"),
        ("sglang", "cohere", "CohereForCausalLM"),
        ("sglang", "olmo2", "Olmo2ForCausalLM"),
        ("sglang", "qwen2_moe", "Qwen2MoeForCausalLM"),
        ("sglang", "starcoder2", "Starcoder2ForCausalLM"),
    ],
)
def test_a_model_file_that_reads_no_head_dim_goes_by_the_sizes(
    runtime: str, kind: str, name: str
) -> None:
    reading = read(runtime, kind, name, head_dim=96)
    assert reading.layers["all"].head_dim == 128


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_latent_attention_in_servers_reads_no_head_dim(runtime: str) -> None:
    keys = {"qk_rope_head_dim": 64, "head_dim": 96}
    reading = read(runtime, "deepseek_v3", "DeepseekV3ForCausalLM", **keys)
    assert reading.layers["all"].rotary_dim == 64


def test_vllms_dbrx_passes_no_scaling_on() -> None:
    block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    keys = {"rope_scaling": block, "partial_rotary_factor": 0.5}
    spec = read("vllm", "dbrx", "DbrxForCausalLM", **keys).layers["all"]
    assert (spec.method, spec.rotary_dim) == ("unscaled", 128)


def test_vllms_falcon_h1_rotates_the_whole_head() -> None:
    keys = {"head_dim": 128, "partial_rotary_factor": 0.5}
    reading = read("vllm", "falcon_h1", "FalconH1ForCausalLM", **keys)
    assert reading.layers["all"].rotary_dim == 128


def test_vllms_mimo_has_its_keys_beside_the_dicts() -> None:
    keys = {"swa_rope_theta": 1e4, "swa_head_dim": 96, "partial_rotary_factor": 0.5}
    name = "MiMoV2FlashForCausalLM"
    layers = read("vllm", "mimo_v2_flash", name, head_dim=128, **keys).layers
    full, sliding = layers["full_attention"], layers["sliding_attention"]
    assert (full.base, full.rotary_dim) == (5e5, 64)
    assert (sliding.base, sliding.rotary_dim) == (1e4, 48)


def test_vllms_chatglm_pairs_features_by_a_key() -> None:
    keys = {"rope_theta": None, "seq_length": 8192}
    pairings = {}
    for given in (True, False):
        reading = read("vllm", "chatglm", "ChatGLMModel", original_rope=given, **keys)
        pairings[given] = reading.layers["all"].pairing
    assert pairings == {True: "interleaved", False: "half"}
    # chatglm.py:107 reads the key without a default.
    assert read("vllm", "chatglm", "ChatGLMModel", **keys).outcome == "refused"
    sglang = read("sglang", "chatglm", "ChatGLMModel", original_rope=False, **keys)
    assert sglang.layers["all"].pairing == "interleaved"


def test_a_share_of_vllms_param2moe_is_not_modelled() -> None:
    name = "Param2MoEForCausalLM"
    assert read("vllm", "param2moe", name).layers["all"].rotary_dim == 128
    cut = read("vllm", "param2moe", name, partial_rotary_factor=0.5)
    assert cut.outcome == "not modelled"


STEP = {
    "head_dim": 128,
    "num_hidden_layers": 4,
    "layer_types": LAYERS,
    "rope_theta": [5e6, 1e4] * 2,
    "partial_rotary_factors": [0.5, 1.0] * 2,
    "rope_scaling": LINEAR,
}


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_step_is_scaled_in_the_layers_that_it_names(runtime: str) -> None:
    name = "Step3p5ForCausalLM"
    named = read(runtime, "step3p5", name, **STEP, yarn_only_types=["full_attention"])
    full, sliding = named.layers["full_attention"], named.layers["sliding_attention"]
    assert (full.base, full.rotary_dim, full.method) == (5e6, 64, "pi(factor=4)")
    assert (sliding.base, sliding.rotary_dim, sliding.method) == (1e4, 128, "unscaled")
    assert read(runtime, "step3p5", name, **STEP).outcome == "not modelled"


def test_sglangs_step_needs_a_number_for_each_layer() -> None:
    keys = {**STEP, "rope_theta": 5e6, "rope_scaling": None}
    assert read("sglang", "step3p5", "Step3p5ForCausalLM", **keys).outcome == "refused"


@pytest.mark.parametrize("runtime", ["transformers-5", "vllm", "sglang"])
@pytest.mark.parametrize(
    ("kind", "name"), [("gptj", "GPTJForCausalLM"), ("codegen", "CodeGenForCausalLM")]
)
def test_a_width_that_a_file_lacks_is_that_of_the_class(
    runtime: str, kind: str, name: str
) -> None:
    """`rotary_dim` is 64 in both classes, whatever the head."""
    if (runtime, kind) in (("vllm", "codegen"), ("sglang", "codegen")):
        pytest.skip("no file of its own there")
    silent = read(runtime, kind, name, hidden_size=2048)
    assert silent.outcome == "read", silent
    widths = {(layer.rotary_dim, layer.head_dim) for layer in silent.layers.values()}
    assert widths == {(64, 256)}
    given = read(runtime, kind, name, hidden_size=2048, rotary_dim=32)
    assert {layer.rotary_dim for layer in given.layers.values()} == {32}


SHARE_BESIDE = {"partial_rotary_factor": 0.5}
SHARE_INSIDE = {
    "rope_theta": None,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 5e5,
        "partial_rotary_factor": 0.5,
    },
}


@pytest.mark.parametrize(
    ("kind", "name", "width", "inside"),
    [
        ("llama", "LlamaForCausalLM", 64, 128),
        ("mistral", "MistralForCausalLM", 64, 128),
        ("phi3", "Phi3ForCausalLM", 64, 128),
        ("ernie4_5", "Ernie4_5_ForCausalLM", 64, 128),
        ("arcee", "ArceeForCausalLM", 64, 128),
        ("apertus", "ApertusForCausalLM", 64, 128),
        ("exaone", "ExaoneForCausalLM", 64, 128),
        ("afmoe", "AfmoeForCausalLM", 64, 128),
        ("falcon_h1", "FalconH1ForCausalLM", 64, 128),
        ("qwen3", "Qwen3ForCausalLM", 128, 128),
        # The default of the class counts, not the share of the block.
        ("phi", "PhiForCausalLM", 64, 64),
        ("persimmon", "PersimmonForCausalLM", 64, 64),
        ("stablelm", "StableLmForCausalLM", 64, 32),
        ("qwen3_5_text", "Qwen3_5ForCausalLM", 64, 32),
        # These look into the block first.
        ("glm4", "Glm4ForCausalLM", 64, 64),
        ("glm4_moe", "Glm4MoeForCausalLM", 64, 64),
    ],
)
def test_sglang_takes_the_share_from_beside_the_block(
    kind: str, name: str, width: int, inside: int
) -> None:
    sizes = {"head_dim": 128}
    beside = read("sglang", kind, name, **sizes, **SHARE_BESIDE)
    assert {spec.rotary_dim for spec in beside.layers.values()} == {width}
    within = read("sglang", kind, name, **sizes, **SHARE_INSIDE)
    assert {spec.rotary_dim for spec in within.layers.values()} == {inside}


def test_sglangs_gemma_3_takes_a_share_that_transformers_passes_over() -> None:
    reading = read("sglang", "gemma3_text", "Gemma3ForCausalLM", **SHARE_BESIDE)
    assert {spec.rotary_dim for spec in reading.layers.values()} == {128}


def test_a_share_of_null_stops_sglang() -> None:
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES}
    config["partial_rotary_factor"] = None
    reading = registry.read(registry.RUNTIMES["sglang"], config)
    assert reading.outcome != "read"


def test_sglangs_stablelm_reads_an_older_name_of_the_share() -> None:
    name = "StableLmForCausalLM"
    keys = {"rope_pct": 0.5, "partial_rotary_factor": 0.25}
    widths = {
        runtime: read(runtime, "stablelm", name, **keys).layers["all"].rotary_dim
        for runtime in ("vllm", "sglang")
    }
    assert widths == {"vllm": 32, "sglang": 64}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bailing_moe", "BailingMoeForCausalLM"),
        ("llada2_moe", "LLaDA2MoeModelLM"),
    ],
)
def test_a_share_comes_before_a_width_in_sglang(kind: str, name: str) -> None:
    width = {"rotary_dim": 32, "head_dim": 128}
    assert read("sglang", kind, name, **width).layers["all"].rotary_dim == 32
    both = read("sglang", kind, name, **width, **SHARE_BESIDE)
    assert both.layers["all"].rotary_dim == 64


def test_a_width_comes_before_a_share_in_vllms_bailing() -> None:
    """Only vLLM's bailing_moe.py:132 asks for rotary_dim first."""
    keys = {"rotary_dim": 32, "head_dim": 128, "partial_rotary_factor": 0.5}
    name = "BailingMoeV2ForCausalLM"
    widths = {
        runtime: read(runtime, "bailing_moe_v2", name, **keys).layers["all"].rotary_dim
        for runtime in ("vllm", "sglang", "llama.cpp")
    }
    assert widths == {"vllm": 32, "sglang": 64, "llama.cpp": 64}


def test_minimax_m2_without_a_width() -> None:
    name = "MiniMaxM2ForCausalLM"
    whole = read("sglang", "minimax_m2", name, head_dim=128, **SHARE_BESIDE)
    assert whole.layers["all"].rotary_dim == 128
    # minimax_m2.py:274 reads the key without a default.
    silent = read("vllm", "minimax_m2", name, head_dim=128, **SHARE_BESIDE)
    assert silent.outcome == "refused"
    for runtime in ("vllm", "sglang"):
        given = read(runtime, "minimax_m2", name, head_dim=128, rotary_dim=32)
        assert given.layers["all"].rotary_dim == 32


@pytest.mark.parametrize(
    ("kind", "name", "keys"),
    [
        ("mixtral", "MixtralForCausalLM", {}),
        ("phimoe", "PhiMoEForCausalLM", {}),
        ("granitemoe", "GraniteMoeForCausalLM", {}),
        ("starcoder2", "Starcoder2ForCausalLM", {}),
        ("llama4_text", "Llama4ForCausalLM", {}),
        ("grok-1", "Grok1ForCausalLM", {}),
        ("laguna", "LagunaForCausalLM", {"head_dim": 128, "layer_types": LAYERS}),
        ("dbrx", "DbrxForCausalLM", {"attn_config": {"rope_theta": 1234.5}}),
    ],
)
def test_files_of_sglang_that_cut_the_base_to_a_whole_number(
    kind: str, name: str, keys: dict[str, Any]
) -> None:
    reading = read("sglang", kind, name, rope_theta=1234.5, **keys)
    assert {spec.base for spec in reading.layers.values()} == {1234.0}


def test_sglangs_llama_takes_the_base_as_given() -> None:
    reading = read("sglang", "llama", "LlamaForCausalLM", rope_theta=1234.5)
    assert reading.layers["all"].base == 1234.5


def test_sglangs_gptj_loses_its_base_with_a_scaling() -> None:
    def read_base(**keys: Any) -> float:
        reading = read("sglang", "gptj", "GPTJForCausalLM", **keys)
        return reading.layers["all"].base

    inside = {"rope_type": "default", "rope_theta": 5e5}
    assert read_base() == 5e5
    assert read_base(rope_scaling=LINEAR) == 1e4
    assert read_base(rope_theta=None, rope_parameters=inside) == 1e4
    assert read("vllm", "gptj", "GPTJForCausalLM").layers["all"].base == 5e5


def test_sglangs_afmoe_has_a_class_of_its_own_without_a_size() -> None:
    sizes = {
        runtime: read(runtime, "afmoe", "AfmoeForCausalLM", hidden_size=512)
        for runtime in ("vllm", "sglang")
    }
    assert sizes["vllm"].layers["all"].head_dim == 128
    assert sizes["sglang"].layers["all"].head_dim == 64


def test_vllms_param2moe_has_the_base_of_the_file() -> None:
    name = "Param2MoEForCausalLM"
    assert read("vllm", "param2moe", name).layers["all"].base == 5e5
    # The class comes with the weights, and its default is not known.
    assert read("vllm", "param2moe", name, rope_theta=None).outcome == "not modelled"


@pytest.mark.parametrize(
    ("given", "pairing"),
    [
        (None, "half"),
        ("rope", "half"),
        ("rope_llama4", "interleaved"),
        ("mistral_yarn", "interleaved"),
    ],
)
def test_vllms_nemotron_nas_pairs_features_by_a_key(
    given: str | None, pairing: str
) -> None:
    keys = {"position_embedding_type": given}
    reading = read("vllm", "nemotron-nas", "DeciLMForCausalLM", **keys)
    assert reading.layers["all"].pairing == pairing
    # SGLang's file reads rope_is_neox_style alone.
    sglang = read("sglang", "nemotron-nas", "DeciLMForCausalLM", **keys)
    assert sglang.layers["all"].pairing == "half"


def test_nemotron_nas_with_llama_4s_rotation_is_a_configuration_of_rope() -> None:
    raw = b'{"model_type": "nemotron-nas", "position_embedding_type": "rope_llama4",'
    raw += b' "hidden_size": 64, "num_attention_heads": 2, "rope_theta": 1e4}'
    assert parse_document("config.json", raw)


@pytest.mark.parametrize(
    "block",
    ['"rope_theta": null', '"rope_parameters": {"rope_theta": null}'],
)
def test_olmo_hybrid_without_a_base_rotates_nothing(block: str) -> None:
    raw = '{"model_type": "olmo_hybrid", "hidden_size": 64, ' + block + "}"
    with pytest.raises(InputError, match="no rotary positions"):
        parse_document("config.json", raw.encode())


@pytest.mark.parametrize(
    ("kind", "name", "silent"),
    [
        ("llama", "LlamaForCausalLM", "half"),
        ("mistral", "MistralForCausalLM", "half"),
        ("granite", "GraniteForCausalLM", "half"),
        ("exaone", "ExaoneForCausalLM", "half"),
        ("ernie4_5", "Ernie4_5_ForCausalLM", "interleaved"),
        ("paddleocr_vl", "PaddleOCRVLForConditionalGeneration", "interleaved"),
    ],
)
def test_a_key_pairs_features_in_sglang(kind: str, name: str, silent: str) -> None:
    pairings = {}
    for given in (None, True, False):
        reading = read("sglang", kind, name, rope_is_neox_style=given)
        pairings[given] = reading.layers["all"].pairing
    assert pairings == {None: silent, True: "half", False: "interleaved"}


def test_vllm_pairs_by_no_such_key() -> None:
    keys = {"rope_is_neox_style": False}
    for kind, name in (
        ("llama", "LlamaForCausalLM"),
        ("paddleocr_vl", "PaddleOCRVLForConditionalGeneration"),
    ):
        assert read("vllm", kind, name, **keys).layers["all"].pairing == "half"


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_chatglm_has_no_base_but_its_ratio_and_no_scaling(runtime: str) -> None:
    keys = {"original_rope": True, "rope_ratio": 50, "rope_scaling": LINEAR}
    spec = read(runtime, "chatglm", "ChatGLMModel", **keys).layers["all"]
    assert (spec.base, spec.method) == (5e5, "unscaled")
    other = read(runtime, "chatglm", "ChatGLMModel", **{**keys, "rope_ratio": 1})
    assert other.layers["all"].base == 1e4
    inside = {"original_rope": True, **SHARE_INSIDE, "partial_rotary_factor": 0.25}
    passed_over = read(runtime, "chatglm", "ChatGLMModel", **inside).layers["all"]
    assert (passed_over.base, passed_over.rotary_dim) == (1e4, 64)


def test_sglangs_minimax_m3_rotates_64_features_where_a_file_is_silent() -> None:
    text = {**SIZES, "model_type": "minimax_m3_vl_text", "head_dim": 128}
    name = "MiniMaxM3SparseForConditionalGeneration"
    widths = []
    for keys in ({}, {"rotary_dim": 32}):
        config = {"text_config": {**text, **keys}}
        reading = read("sglang", "minimax_m3_vl", name, **config)
        widths.append(reading.layers["all"].rotary_dim)
    assert widths == [64, 32]


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [("granite", "GraniteForCausalLM"), ("granitemoe", "GraniteMoeForCausalLM")],
)
def test_a_base_of_0_is_no_rotation_in_granite(
    runtime: str, kind: str, name: str
) -> None:
    reading = read(runtime, kind, name, rope_theta=0)
    assert reading.outcome == "not modelled"
    assert "rotate nothing" in reading.problem


def test_types_that_the_servers_releases_of_transformers_lack_need_code() -> None:
    """transformers 5.20 and 5.19, which vLLM and SGLang ask for, have no InternLM 3."""
    code = {"auto_map": {"AutoConfig": "configuration_internlm3.InternLM3Config"}}
    for runtime in ("vllm", "sglang"):
        bare = read(runtime, "internlm3", "InternLM3ForCausalLM")
        assert bare.outcome == "refused"
        coded = read(runtime, "internlm3", "InternLM3ForCausalLM", **code)
        assert coded.outcome == "read"


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [
        ("cohere2_moe", "Cohere2MoeForCausalLM"),
        ("cohere_compass_text", "CohereCompassForCausalLM"),
        ("minicpm_sala", "MiniCPMSALAForCausalLM"),
        ("iquest_q1", "IQuestQ1ForCausalLM"),
        ("iquestloopcoder", "IQuestLoopCoderForCausalLM"),
        ("muse_glimmer_text", "MuseGlimmerForCausalLM"),
        ("muse_spark_text", "MuseSparkForConditionalGeneration"),
    ],
)
def test_a_model_file_that_was_not_read_is_not_said_to_agree(
    kind: str, architecture: str
) -> None:
    config = {
        "model_type": kind,
        "architectures": [architecture],
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 8,
        "max_position_embeddings": 131072,
        "rope_theta": 50000.0,
    }
    for name in ("vllm", "sglang"):
        reading = registry.read(registry.RUNTIMES[name], config)
        assert reading.outcome == "not modelled"
        assert "not read" in reading.problem or "not in" in reading.problem


def test_sglangs_hunyuan_v3_hands_no_scaling_on() -> None:
    """hunyuan_v3.py:382 drops what get_rope_config returns beside the base."""
    keys = {"head_dim": 128, "rope_scaling": YARN}
    methods = {
        runtime: read(runtime, "hy_v3", "HYV3ForCausalLM", **keys).layers["all"].method
        for runtime in ("vllm", "sglang")
    }
    assert methods["sglang"] == "unscaled"
    assert methods["vllm"].startswith("yarn(factor=32")


LATENT_HEADS = {
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "kv_lora_rank": 512,
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("deepseek_v3", "DeepseekV3ForCausalLM"),
        ("axk1", "AXK1ForCausalLM"),
        ("glm4_moe_lite", "Glm4MoeLiteForCausalLM"),
        ("sarvam_mla", "SarvamMLAForCausalLM"),
    ],
)
def test_latent_attention_has_adjacent_pairs_in_vllm(kind: str, name: str) -> None:
    """Its model files pass is_neox_style=False, whatever rope_interleave says."""
    others = ["tensorrt-llm", "tgi"] if kind == "deepseek_v3" else []
    if kind == "sarvam_mla":
        others = ["sglang"]
    for value in (True, False):
        keys = {**LATENT_HEADS, "rope_interleave": value}
        for runtime in others:
            pairs = read(runtime, kind, name, **keys).layers["all"].pairing
            assert pairs == "interleaved", runtime
        spec = read("vllm", kind, name, **LATENT_HEADS, rope_interleave=value)
        assert spec.layers["all"].pairing == "interleaved"
        own = read("transformers-5", kind, name, **LATENT_HEADS, rope_interleave=value)
        assert own.layers["all"].pairing == ("interleaved" if value else "half")


@pytest.mark.parametrize("kind", ["hunyuan_v1_dense", "hunyuan_v1_moe"])
def test_sglangs_hunyuan_stops_without_a_head_dim(kind: str) -> None:
    """Its class in transformers has None then, of which hunyuan.py:211 makes a number."""
    name = {"hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM"}.get(
        kind, "HunYuanMoEV1ForCausalLM"
    )
    assert read("sglang", kind, name).outcome == "refused"
    assert read("sglang", kind, name, head_dim=96).layers["all"].rotary_dim == 96


def test_heads_of_deepseek_s_first_models_follow_from_their_sizes() -> None:
    """vllm/model_executor/models/deepseek_v2.py:180, sglang/srt/models/deepseek.py:258."""
    config = {
        "model_type": "deepseek",
        "architectures": ["DeepseekForCausalLM"],
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
    }
    for name in ("vllm", "sglang"):
        spec = registry.read(registry.RUNTIMES[name], config).main_spec
        assert spec is not None
        assert spec.rotary_dim == 128


@pytest.mark.parametrize(
    ("runtime", "kind", "expected"),
    [
        # The file of the whole was not read.
        ("vllm", "muse_glimmer_text", None),
        ("vllm", "muse_spark_text", None),
        ("sglang", "diffusion_gemma_text", None),
        # glm4.py fills in a share of one half.
        ("vllm", "glm4v_text", (48, "interleaved")),
        ("sglang", "glm_ocr_text", (48, "interleaved")),
        # ernie4.py:168 in SGLang
        ("sglang", "paddleocr_vl_text", (96, "interleaved")),
        # qwen2.py:141 in vLLM reads no head_dim, qwen2.py:278 in SGLang does.
        ("vllm", "qwen2_vl_text", (128, "half")),
        ("sglang", "qwen2_vl_text", (96, "half")),
    ],
)
def test_a_language_part_by_itself_is_run_by_the_file_of_its_whole(
    runtime: str, kind: str, expected: tuple[int, str] | None
) -> None:
    config = {"model_type": kind, **SIZES, "head_dim": 96}
    reading = registry.read(registry.RUNTIMES[runtime], config)
    if expected is None:
        assert reading.outcome == "not modelled"
        assert "was not read" in reading.problem
        return
    spec = reading.layers["all"]
    assert (spec.rotary_dim, spec.pairing) == expected


def test_qwen_3_asr_is_published_with_a_thinker() -> None:
    """transformers_utils/configs/qwen3_asr.py:418 in vLLM, configs/qwen3_asr.py:150 in
    SGLang; the class of transformers has text_config alone.
    """
    part = {"text_config": {"model_type": "qwen3", **SIZES, "head_dim": 128}}
    name = "Qwen3ASRForConditionalGeneration"
    older = {"model_type": "qwen3_asr", "architectures": [name], "thinker_config": part}
    newer = {"model_type": "qwen3_asr", "architectures": [name], **part}

    for config, runtimes in (
        (older, {"vllm", "sglang"}),
        (newer, {"vllm", "transformers-5"}),
    ):
        readings = {
            runtime: registry.read(registry.RUNTIMES[runtime], config)
            for runtime in ("vllm", "sglang", "transformers-5")
        }
        found = {name for name, each in readings.items() if each.outcome == "read"}
        assert found == runtimes
        assert all(readings[runtime].layers["all"].base == 5e5 for runtime in runtimes)
