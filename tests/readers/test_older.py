"""Classes of transformers 4 and of llama.cpp's converter with rules of their own, as
they ran.
"""

import math
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ropelab.readers import registry
from ropelab.readers.registry import Reading
from tests.texts import mentions

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LINEAR = {"rope_type": "linear", "factor": 2.0}
LLAMA3 = {
    **YARN,
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
SIZES = {"hidden_size": 1024, "num_attention_heads": 8, "max_position_embeddings": 4096}


def read(runtime: str, kind: str, **keys: Any) -> Reading:
    return registry.read(
        registry.RUNTIMES[runtime], {"model_type": kind, **SIZES, **keys}
    )


def test_gemma_3_has_a_base_for_local_layers_in_tgi() -> None:
    layers = read(
        "tgi", "gemma3_text", head_dim=128, rope_scaling=LINEAR, rope_theta=1e6
    ).layers
    assert {name: (s.base, s.method) for name, s in layers.items()} == {
        "full_attention": (1e6, "unscaled"),  # it applies no linear scaling
        "sliding_attention": (1e4, "unscaled"),
    }


@pytest.mark.parametrize(
    "kind", ["gemma2", "mixtral", "olmo", "phi", "stablelm", "starcoder2"]
)
def test_files_of_sglang_that_pass_no_scaling_on(kind: str) -> None:
    for runtime, method in (("sglang", "unscaled"), ("transformers-5", "yarn")):
        spec = read(runtime, kind, head_dim=128, rope_scaling=YARN).main_spec
        assert spec is not None
        assert spec.method.startswith(method)


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
    assert (
        scaled["full_attention"].method
        != scaled["sliding_attention"].method
        == "unscaled"
    )


def test_modernbert_scales_both_bases_or_stops() -> None:
    for release in ("transformers-4.48", "transformers-4.51"):
        assert read(release, "modernbert", rope_scaling=YARN).outcome == "refused"
        assert set(read(release, "modernbert").layers) == {
            "full_attention",
            "sliding_attention",
        }
    for release in ("transformers-4.55", "transformers-4.57"):
        layers = read(release, "modernbert", rope_scaling=LINEAR).layers
        assert {spec.method for spec in layers.values()} == {"pi(factor=2)"}


def test_a_share_beside_the_block_counts_for_these() -> None:
    for kind in ("gemma3_text", "qwen2_5_vl", "qwen2_vl"):
        spec = read(
            "transformers-4.51", kind, head_dim=128, partial_rotary_factor=0.5
        ).main_spec
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
    assert (
        read("transformers-4.57", "qwen3_vl_text", rope_scaling=block).outcome == "read"
    )
    assert read("transformers-4.57", "ministral").outcome == "refused"
    assert read("transformers-4.57", "ministral", head_dim=128).outcome == "read"
    older = {"type": "linear", "factor": 2.0}
    assert (
        read("transformers-4.57", "moonshine", rope_scaling=older).outcome == "refused"
    )
    spec = read("transformers-4.57", "jetmoe").main_spec
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
    spec = read("llama.cpp", kind, **keys).main_spec
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


@pytest.mark.parametrize(
    "kind", ["gemma4_text", "granitemoehybrid", "grok", "laguna", "step3p5"]
)
def test_converters_that_were_not_compared_are_not_modelled(kind: str) -> None:
    assert read("llama.cpp", kind, head_dim=128).outcome == "not modelled"


def test_a_silent_file_of_gpt_oss_is_converted_with_the_class_default() -> None:
    spec = read("llama.cpp", "gpt_oss").main_spec
    assert spec is not None
    assert spec.method.startswith("yarn(factor=32")


def test_deepseek_vl2_tiny_has_no_latent_attention() -> None:
    inner = {**SIZES, "model_type": "deepseek_v2", "qk_rope_head_dim": 0}
    config = {
        "model_type": "deepseek_vl_v2",
        "architectures": ["DeepseekVLV2ForCausalLM"],
    }
    reading = registry.read(
        registry.RUNTIMES["vllm"], {**config, "language_config": inner}
    )
    assert reading.main_spec is not None
    assert (reading.main_spec.head_dim, reading.main_spec.pairing) == (128, "half")


def test_step_3_5_has_the_layer_types_of_its_file() -> None:
    keys: dict[str, Any] = {
        "head_dim": 128,
        "rope_theta": [5e6, 1e4],
        "rope_scaling": LLAMA3,
    }
    keys["partial_rotary_factors"] = [0.5, 1.0]
    keys["layer_types"] = ["full_attention", "sliding_attention"]
    keys["sliding_window"] = 512
    layers = read("transformers-5", "step3p5", **keys).layers
    found = {name: (spec.base, spec.rotary_dim) for name, spec in layers.items()}
    assert found == {"full_attention": (5e6, 64), "sliding_attention": (1e4, 128)}
    assert layers["sliding_attention"].method == "unscaled"


# Where classes have their language model, if not in text_config, which they pass over.
PARTS = {
    "colpali": "vlm_config",
    "colqwen2": "vlm_config",
    "dia": "decoder_config",
    "qwen2_5_omni": "thinker_config",
    "qwen3_omni_moe": "thinker_config",
    "t5gemma": "decoder",
}


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("runtime", ["transformers-4.57", "transformers-5", "vllm"])
def test_a_part_that_the_class_passes_over_is_not_read(kind: str, runtime: str) -> None:
    config = {"model_type": kind, "text_config": {**SIZES, "rope_theta": 54321.0}}
    reading = registry.read(registry.RUNTIMES[runtime], config)
    assert reading.outcome == "not modelled"
    if "not in that release" not in reading.problem:
        assert f"in {PARTS[kind]}, which is missing" in reading.problem


def test_the_part_that_the_class_has_is_read() -> None:
    inner = {"model_type": "qwen2_5_omni_text", **SIZES, "rope_theta": 54321.0}
    config = {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": inner}}
    for name in ("transformers-4.57", "transformers-5"):
        spec = registry.read(registry.RUNTIMES[name], config).main_spec
        assert spec is not None
        assert (spec.base, spec.head_dim) == (54321.0, 128)


@pytest.mark.parametrize("runtime", ["transformers-4.57", "transformers-5"])
def test_voxtral_fills_its_text_with_defaults_of_its_own(runtime: str) -> None:
    for keys, head in (
        ({}, 128),
        ({"hidden_size": 1024, "num_attention_heads": 16}, 128),
    ):
        config = {
            "model_type": "voxtral",
            "text_config": {"model_type": "llama", **keys},
        }
        spec = registry.read(registry.RUNTIMES[runtime], config).main_spec
        assert spec is not None
        assert (spec.base, spec.head_dim, spec.claimed_len) == (1e8, head, 131072)
    plain = registry.read(registry.RUNTIMES[runtime], {"model_type": "llama"}).main_spec
    assert plain is not None
    assert plain.base == 10000.0


def test_glm_asr_and_voxtral_realtime_have_defaults_of_their_own() -> None:
    for kind, base, length in (
        ("glmasr", 1e4, 8192),
        ("voxtral_realtime", 1e6, 131072),
    ):
        config = {"model_type": kind, "text_config": {"num_attention_heads": 16}}
        spec = registry.read(registry.RUNTIMES["transformers-5"], config).main_spec
        assert spec is not None
        assert (spec.base, spec.head_dim, spec.claimed_len) == (base, 128, length)


LINEAR = {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("block", "is_filled_in"),
    [
        ({}, True),
        ({"rope_scaling": {}}, True),
        ({"rope_scaling": LINEAR}, False),
        ({"rope_parameters": LINEAR}, False),
        ({"rope_parameters": None}, False),
    ],
)
def test_the_block_of_glm_asr_comes_before_a_base_if_the_file_has_none(
    block: dict[str, Any], is_filled_in: bool
) -> None:
    text = {"model_type": "llama", "rope_theta": 5.0, **block}
    config = {"model_type": "glmasr", "text_config": text}
    spec = registry.read(registry.RUNTIMES["transformers-5"], config).main_spec
    made = CONFIG_MAPPING["glmasr"].from_dict(deepcopy(config))
    base = made.get_text_config().rope_parameters["rope_theta"]
    assert spec is not None
    assert spec.base == base == (10000.0 if is_filled_in else 5.0)


@pytest.mark.parametrize("kind", ["fuyu", "qwen2_vl", "qwen2_5_vl"])
def test_a_head_size_outside_text_config_is_not_modelled(kind: str) -> None:
    for release in ("transformers-4.57", "transformers-5"):
        assert read(release, kind).outcome == "read"
        # The flat classes divide the sizes for attention, and stop at other tables.
        known = "qwen" in kind and release != "transformers-5"
        assert read(release, kind, head_dim=48).outcome == (
            "refused" if known else "not modelled"
        )
        for usual in (128, None):  # hidden_size / num_attention_heads
            assert read(release, kind, head_dim=usual).outcome == "read"


def test_a_head_size_at_which_classes_stop_is_not_modelled() -> None:
    for release in ("transformers-4.48", "transformers-4.55", "transformers-5"):
        assert read(release, "falcon").outcome == "read"
        stopped = read(release, "falcon", head_dim=64)
        assert mentions(stopped.problem, "class stops")
    # Attention stops unless it is hidden_size / num_attention_heads.
    for release in ("transformers-4.55", "transformers-4.57"):
        assert read(release, "qwen2_moe").outcome == "read"
        assert read(release, "qwen2_moe", head_dim=64).outcome == "not modelled"
    assert read("transformers-4.48", "qwen2_moe", head_dim=64).outcome == "refused"


# Models of their own code, whose converters are found by the name of the class.
CLASSES = {
    "baichuan": "BaichuanForCausalLM",
    "chatglm": "ChatGLMModel",
    "exaone": "ExaoneForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
}


def converted(kind: str, **keys: Any) -> Reading:
    named = {"architectures": [CLASSES[kind]]} if kind in CLASSES else {}
    return read("llama.cpp", kind, **named, **keys)


@pytest.mark.parametrize("kind", ["bitnet", "gpt_oss", "llama", "qwen3", "smollm3"])
def test_the_converter_finds_the_base_that_a_class_fills_in_before_one_of_gpt_neox(
    kind: str,
) -> None:
    spec, usual = (
        read("llama.cpp", kind, **k).main_spec
        for k in ({"rotary_emb_base": 54321.0}, {})
    )
    assert spec is not None
    assert usual is not None
    assert spec.base == usual.base
    # which transformers lacks
    other = converted("baichuan", rotary_emb_base=54321.0).main_spec
    assert other is not None
    assert other.base == 54321.0


WITHOUT_HEADS = ["dbrx", "granite", "gpt_neox", "nemotron", "phi", "phi3", "stablelm"]


@pytest.mark.parametrize("kind", WITHOUT_HEADS)
def test_converters_that_pass_over_a_head_size_are_read_where_it_is_the_usual(
    kind: str,
) -> None:
    assert read("llama.cpp", kind, head_dim=128).outcome == "read"
    assert read("llama.cpp", kind, head_dim=96).outcome == "not modelled"


def test_dbrx_and_chatglm_are_converted_with_bases_of_their_own() -> None:
    for kind, keys in (("dbrx", {}), ("chatglm", {"seq_length": 8192})):
        for name in ("rope_theta", "global_rope_theta"):
            spec = converted(kind, **keys, **{name: 54321.0}).main_spec
            assert spec is not None
            assert spec.base == 10000.0
    assert "seq_length" in converted("chatglm").problem


@pytest.mark.parametrize(
    "kind", ["dbrx", "falcon", "gemma", "gpt_neox", "phi", "phi3", "stablelm"]
)
def test_converters_that_write_no_local_base(kind: str) -> None:
    assert set(read("llama.cpp", kind, rope_local_base_freq=7777.0).layers) == {"all"}
    assert len(read("llama.cpp", "llama", rope_local_base_freq=7777.0).layers) == 2


def test_rotated_shares_that_converters_read() -> None:
    for kind, keys, width in (
        ("gpt_neox", {"partial_rotary_factor": 0.5}, 32),
        ("gpt_neox", {"rotary_pct": 0.5}, 64),
        ("exaone", {"partial_rotary_factor": 0.5}, 64),
        ("cohere2", {"rotary_pct": 0.5}, 64),
    ):
        spec = converted(kind, **keys).main_spec
        assert spec is not None
        assert spec.rotary_dim == width


def test_converters_that_ask_for_a_key_of_the_rotation() -> None:
    for kind, key in (
        ("cohere2", "rotary_pct"),
        ("minimax_m2", "rotary_dim"),
        ("glm_moe_dsa", "qk_rope_head_dim"),
        ("kimi_k2", "qk_rope_head_dim"),
    ):
        reading = converted(kind)
        assert (reading.outcome, key in reading.problem) == ("not modelled", True)
    # The classes of transformers 4 that fill it in are those of that release.
    assert read("llama.cpp", "qwen3_5_text").outcome == "not modelled"
    assert read("llama.cpp", "qwen3_5_text", head_dim=128).outcome == "read"
    assert read("llama.cpp", "ministral3").outcome == "not modelled"
    keys = {"mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
    assert (
        read(
            "llama.cpp", "ministral3", head_dim=128, rope_parameters=YARN | keys
        ).outcome
        == "read"
    )


@pytest.mark.parametrize("mscale", [0.0, 0.5, 1.0])
def test_ministral_takes_its_factor_back_by_a_second_mscale(mscale: float) -> None:
    keys = {"mscale": 1.0, "mscale_all_dim": mscale, "llama_4_scaling_beta": 0.1}
    factor = YARN["factor"]
    assert isinstance(factor, float)
    magnitude = 0.1 * math.log(factor) + 1
    for runtime in ("llama.cpp", "transformers-5"):
        block = YARN | keys
        spec = read(
            runtime, "ministral3", head_dim=128, rope_parameters=block
        ).main_spec
        assert spec is not None
        wanted = magnitude / (0.1 * mscale * math.log(factor) + 1)
        assert spec.attention_factor == pytest.approx(wanted)
        assert spec.plan(spec.length).attention_factor == pytest.approx(wanted)


def test_the_converter_takes_the_rotated_part_of_latent_heads() -> None:
    for keys, width in (({"qk_rope_head_dim": 32}, 32), ({}, 64)):
        spec = read("llama.cpp", "deepseek_v3", head_dim=96, **keys).main_spec
        assert spec is not None
        assert spec.rotary_dim == width


BEFORE_5 = ("transformers-4.57", "transformers-4.55", "transformers-4.51")


@pytest.mark.parametrize("release", BEFORE_5)
@pytest.mark.parametrize(
    "block", [{}, {"factor": 4.0}, {"rope_type": None, "factor": 4.0}, {"type": None}]
)
def test_a_block_without_a_type_stops_classes_of_transformers_4(
    release: str, block: dict[str, Any]
) -> None:
    """As 4.57.1 ran: KeyError in 69 of 72 classes, since no function is named None.

    Nemotron's takes the plain frequencies, whatever the block says.
    """
    for kind in ("llama", "qwen2", "gemma2", "cohere", "glm"):
        assert read(release, kind, rope_scaling=block).outcome == "refused"
    assert read(release, "nemotron", rope_scaling=block).outcome == "read"
    # transformers 5 fills in what is missing, and keeps a null.
    outcome = "refused" if None in block.values() else "read"
    assert read("transformers-5", "llama", rope_scaling=block).outcome == outcome


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        # Its configuration class copies the older name over the newer one.
        ("llama", "pi"),
        ("qwen2", "pi"),
        ("deepseek_v3", "pi"),
        # As 4.57.1 ran: the type of the rotary class is that of the newer name.
        ("gemma2", "yarn"),
        ("granite", "yarn"),
        ("glm", "yarn"),
        ("cohere2", "yarn"),
    ],
)
def test_which_name_of_a_type_wins_in_transformers_4(kind: str, method: str) -> None:
    block = {**YARN, "type": "linear"}
    spec = read("transformers-4.57", kind, rope_scaling=block).main_spec
    assert spec is not None
    assert spec.method.startswith(method)


def test_idefics_had_its_frequencies_in_code() -> None:
    """modeling_idefics.py:556 of 4.57.1: IdeficsEmbedding(self.head_dim)."""
    for release in BEFORE_5:
        spec = read(release, "idefics", rope_scaling=YARN, rope_theta=5e5).main_spec
        assert spec is not None
        assert (spec.base, spec.method) == (1e4, "unscaled")


def test_hunyuan_of_transformers_4_wants_an_alpha() -> None:
    """KeyError('alpha') in its rotary class of 4.57.1."""
    block = {"type": "dynamic", "factor": 2.0}
    keys: dict[str, Any] = {"head_dim": 128}
    kind = "hunyuan_v1_dense"
    found = read("transformers-4.57", kind, rope_scaling=block, **keys)
    with_alpha = read(
        "transformers-4.57", kind, rope_scaling={**block, "alpha": 10.0}, **keys
    )
    assert (found.outcome, with_alpha.outcome) == ("refused", "read")


def test_zamba_2_of_transformers_4_stretches_its_base() -> None:
    """As 4.57.1 ran: Zamba2Config(use_mem_rope=True, use_long_context=True).rope_theta."""
    keys = {
        "hidden_size": 2560,
        "num_attention_heads": 32,
        "use_mem_rope": True,
        "use_long_context": True,
        "head_dim": 64,  # of which these releases take no notice
    }
    for release in BEFORE_5:
        spec = read(release, "zamba2", **keys).main_spec
        assert spec is not None
        assert spec.base == pytest.approx(82133.72235993925, rel=1e-12)
        assert spec.rotary_dim == 160
    newer = read("transformers-5", "zamba2", **keys).main_spec
    assert newer is not None
    assert newer.base == 1e4


def test_bamba_of_transformers_4_takes_the_share_of_the_file() -> None:
    """As 4.57.1 ran: a key of the file is set behind the number in the class."""
    for share, width in ((0.25, 32), (None, 64)):
        keys = {} if share is None else {"partial_rotary_factor": share}
        spec = read("transformers-4.57", "bamba", **keys).main_spec
        assert spec is not None
        assert spec.rotary_dim == width


@pytest.mark.parametrize("kind", ["deepseek_v3", "longcat_flash"])
@pytest.mark.parametrize("key", ["beta_fast", "beta_slow", "factor"])
def test_a_null_of_which_a_float_is_made_stops_the_class(kind: str, key: str) -> None:
    found = read("transformers-4.57", kind, rope_scaling={**YARN, key: None})
    assert found.outcome == "refused"
    if key != "factor":
        assert read(
            "transformers-4.51", "deepseek_v3", rope_scaling={**YARN, key: None}
        ).layers


def test_both_rotations_of_modernbert_s_decoder_had_the_global_base() -> None:
    """modeling_modernbert_decoder.py:422 and :423 of 4.57.1: one configuration for both."""
    bases = {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    local = {
        "transformers-5": 1e4,
        "transformers-4.57": 1.6e5,
        "transformers-4.55": 1.6e5,
    }
    for release, base in local.items():
        layers = read(release, "modernbert-decoder", **bases).layers
        assert layers["full_attention"].base == 160000.0
        assert layers["sliding_attention"].base == base


@pytest.mark.parametrize(
    ("kind", "width"),
    [("glm4", 64), ("glm4_moe", 64), ("qwen3_next", 32), ("phi3", 128)],
)
def test_a_share_of_null_is_a_missing_one_to_the_converter(
    kind: str, width: int
) -> None:
    """conversion/base.py:1374, glm.py:26 and :158, qwen.py:392, phi.py:155."""
    spec = read("llama.cpp", kind, partial_rotary_factor=None, head_dim=128).main_spec
    assert spec is not None
    assert spec.rotary_dim == width
    block = {"rope_type": "default", "partial_rotary_factor": None, "rope_theta": 1e4}
    inside = read("llama.cpp", kind, rope_parameters=block, head_dim=128)
    assert inside.outcome == "refused"


@pytest.mark.parametrize("kind", ["phi", "stablelm", "nemotron"])
def test_a_share_of_null_stops_these_classes_of_the_converter(kind: str) -> None:
    """phi.py:22, stablelm.py:32, nemotron.py:174: a KeyError."""
    assert read("llama.cpp", kind, partial_rotary_factor=None).outcome == "refused"


FLAT = {"rope_type": "linear", "factor": 2.0, "rope_theta": 777.0}


@pytest.mark.parametrize("kind", ["gemma3_text", "gemma3n_text", "olmo3"])
def test_an_empty_scaling_stops_classes_with_dicts_of_layer_types(kind: str) -> None:
    """As 5.24.0 ran: KeyError('full_attention')."""
    keys = {"rope_scaling": {}, "rope_parameters": FLAT}
    assert read("transformers-5", kind, **keys).outcome == "refused"
    assert read("transformers-5", kind, rope_parameters=FLAT).layers
    assert read("transformers-5", kind, rope_scaling={}).layers


def test_step_3_5_fills_in_no_original_length_of_the_older_block() -> None:
    """As 5.24.0 ran: the keys required of yarn and llama3 lack it."""
    for block in ({"rope_type": "yarn", "factor": 4.0}, {**LLAMA3}):
        block.pop("original_max_position_embeddings", None)
        assert (
            read("transformers-5", "step3p5", rope_scaling=block).outcome == "refused"
        )
    assert read("transformers-5", "step3p5", rope_scaling=YARN).layers


def test_a_key_beside_dicts_of_layer_types_stops_modernbert() -> None:
    """As 5.24.0 ran: rope_parameters takes dicts alone."""
    dicts = {"full_attention": FLAT, "sliding_attention": FLAT}
    for kind in ("modernbert", "modernbert-decoder"):
        assert read("transformers-5", kind, rope_parameters=dicts).layers
        beside = read(
            "transformers-5", kind, rope_parameters={**dicts, "rope_theta": 5.0}
        )
        assert beside.outcome == "refused"
