"""Published configurations, where a folder of them lies beside the checkout: nothing is
guessed.
"""

import json
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ropelab.audit.audited import audit
from ropelab.audit.emit import emit
from ropelab.conformance.diagnosis import diagnose
from ropelab.conformance.expected import Expected, choose_positions
from ropelab.conformance.rotary_classes import ask_module, build_rotary
from ropelab.math.scaling import Yarn
from ropelab.readers import registry
from ropelab.readers.document import parse_document
from ropelab.readers.trace import find_language_part, find_rope_block
from ropelab.runs.errors import InputError
from tests.texts import mentions

FOLDER = next(
    (
        p / "shared" / "configs-real"
        for p in Path(__file__).parents
        if (p / "shared").is_dir()
    ),
    None,
)
FILES = sorted(FOLDER.glob("*.json")) if FOLDER else []
# Model types without a class in transformers, or whose class no reader computes.
UNREAD = {
    *("chatglm", "dbrx", "deepseek_ref", "internlm2"),
    *("kimi_k2", "kimi_linear", "mimo", "nemotron_h", "phi3small", "qwen", "step3p7"),
}
# Read by a later release than the one that is installed.
LATER = {"exaone"} - {*CONFIG_MAPPING.keys()}
real = pytest.mark.skipif(
    not FILES, reason="no published configurations beside the checkout"
)


def merged(config: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    deep = {
        name: merged(config[name], value)
        if name in ("text_config", "llm_config") and isinstance(value, dict)
        else value
        for name, value in patch.items()
    }
    return {**config, **deep}


def text_of(path: Path) -> Mapping[str, Any]:
    _, text = find_language_part(json.loads(path.read_text()))
    return text


def is_scaled(path: Path) -> bool:
    _, block = find_rope_block(text_of(path))
    kind = block.get("rope_type") or block.get("type") or "default"
    return kind not in ("default", "mrope")


READ = [path for path in FILES if text_of(path).get("model_type") not in UNREAD | LATER]
SCALED = [path for path in READ if is_scaled(path)]


@real
def test_most_files_are_read_and_many_are_scaled() -> None:
    assert len(READ) > 60
    assert len(SCALED) > 20


@real
@pytest.mark.parametrize("path", SCALED, ids=lambda path: path.stem)
def test_emit_keeps_the_files_own_method_in_transformers(
    path: Path, tmp_path: Path
) -> None:
    """Read back with the real class: the patched file makes the tables of the file
    itself.
    """
    spec = registry.read_main_rotation(str(path), json.loads(path.read_text()))
    done = emit(str(path), context=spec.length, target="hf5")
    assert done.replaced == ""
    config = json.loads(path.read_text())
    modules = []
    for name, content in (
        ("own", config),
        ("new", merged(config, json.loads(done.targets[0].text))),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(content))
        modules.append(build_rotary(folder))
    assert done.targets[0].lost == ()
    one, other = ({n: b.numpy() for n, b in m.named_buffers()} for m in modules)
    assert list(one) == list(other) != []
    for name, table in one.items():
        np.testing.assert_array_equal(table, other[name], err_msg=name)
    factors = [
        {n: v for n, v in vars(m).items() if "attention_scaling" in n} for m in modules
    ]
    assert factors[0] == factors[1]


# Four times the length where the file has no method of its own.
LONGER = ("aic_Qwen--Qwen3-8B", "ome_qwen2.5_3b", "ome_smollm_1.7b", "ome_stablelm_3b")
PATCHED = (
    *LONGER,
    *(
        "aic_Qwen--Qwen3-VL-4B-Instruct",
        "aic_meta-llama--Meta-Llama-3.1-8B",
        "ome_llama3_2_3b",
    ),
    *("ome_llama3_2_11b_vision", "aic_meta-llama--Llama-4-Scout-17B-16E-Instruct"),
    *(
        "aic_deepseek-ai--DeepSeek-R1",
        "aic_nvidia--Kimi-K2.5-NVFP4",
        "aic_openai--gpt-oss-20b",
    ),
    *("ome_phi3", "aic_mistralai--Mixtral-8x7B-v0.1"),
)


def overridden(config: dict[str, Any], text: str, target: str) -> dict[str, Any]:
    """A real file behind the flags of a server or a trainer, whose own code is not
    run.
    """
    if target == "axolotl":
        changes = yaml.safe_load(text)["overrides_of_model_config"]
    else:
        changes = json.loads(text if text.startswith("{") else shlex.split(text)[1])
    result = merged(config, changes)
    inner, new = find_language_part(result)[1], find_language_part(changes)[1]
    assert isinstance(inner, dict)
    # Overrides change what was read from the file, where rope_scaling is
    # rope_parameters already.
    if "rope_parameters" in new and "rope_scaling" not in new:
        inner.pop("rope_scaling", None)
    return result


@real
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "target", ["hf4", "hf5", "vllm", "sglang", "axolotl", "vllm-draft"]
)
@pytest.mark.parametrize("name", PATCHED)
def test_the_patched_file_takes_effect_in_transformers(
    name: str, target: str, tmp_path: Path
) -> None:
    assert FOLDER is not None
    config = json.loads((FOLDER / f"{name}.json").read_text())
    spec = registry.read_main_rotation(name, config)
    context = spec.length * (4 if name in LONGER else 1)
    done = emit(str(FOLDER / f"{name}.json"), context=context, target=target)
    (emission,) = done.targets
    # A length that the server rules by itself without its flag, a class that passes no
    # scaling on, models that are not in vLLM's registry or in that release of
    # transformers: said aloud.
    known = {
        ("aic_nvidia--Kimi-K2.5-NVFP4", "hf4"),
        ("ome_phi3", "vllm-draft"),
        ("ome_stablelm_3b", "sglang"),
        *(("ome_llama3_2_11b_vision", one) for one in ("vllm", "vllm-draft")),
    }
    patched = config
    if emission.changes:
        out_of_reach = target == "axolotl" and find_language_part(config)[0]
        is_known = bool(out_of_reach) or (name, target) in known
        assert bool(emission.lost) == is_known, emission.lost
        if out_of_reach:
            return
        patched = overridden(config, emission.text, target)
    else:
        # The file reaches the length as it is.
        assert context == spec.length
    (tmp_path / "config.json").write_text(json.dumps(patched))

    # SGLang alone has attn_factor; no file here needs it.
    wanted = Expected(done.rotation, context, {})
    observed = ask_module(
        build_rotary(tmp_path), wanted.spec, choose_positions(wanted), "float32"
    )
    found = diagnose(observed, wanted, 0.01)
    assert not found.wrong, found.answer
    if name in LONGER:
        assert type(done.rotation.scaling) is Yarn


@real
@pytest.mark.parametrize("path", READ, ids=lambda path: path.stem)
def test_the_reader_of_transformers_computes_what_its_class_does(
    path: Path, tmp_path: Path
) -> None:
    shutil.copy(path, tmp_path / "config.json")
    result = audit(str(path), runtime="transformers-5")
    module = build_rotary(tmp_path)
    buffers = dict(module.named_buffers())
    tables = {name: table for name, table in buffers.items() if "original" not in name}
    assert tables
    for name, table in tables.items():
        layer = name.removesuffix("inv_freq").removesuffix("_")
        spec = result.reference.layers.get(layer) or result.reference.main_spec
        assert spec is not None
        np.testing.assert_allclose(
            spec.inv_freq(64), table.numpy(), rtol=2e-6, atol=1e-12
        )
        factor = getattr(module, name.replace("inv_freq", "attention_scaling"), 1.0)
        if "phimoe" in path.stem:  # it takes the factor from the block instead
            factor = float(module(table, torch.arange(5000)[None])[0][0, 0, 0])
        assert spec.attention_factor == pytest.approx(factor, rel=1e-6)


@real
@pytest.mark.parametrize(
    "path",
    [path for path in FILES if text_of(path).get("model_type") in UNREAD],
    ids=lambda path: path.stem,
)
def test_files_that_no_reader_computes_are_refused(path: Path) -> None:
    with pytest.raises(InputError):
        audit(str(path), runtime="transformers-5")


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bert", "hidden_size": 768, "num_attention_heads": 12},
        {"model_type": "nemotron_h", "head_dim": 128, "rope_theta": 10000},
        {
            "model_type": "granitemoehybrid",
            "position_embedding_type": "nope",
            "head_dim": 64,
        },
        # its class rotates for "rope" only
        {"model_type": "granitemoehybrid", "head_dim": 64},
        {
            "model_type": "xlm-roberta",
            "position_embedding_type": "absolute",
            "head_dim": 64,
        },
        {"model_type": "my-own", "position_embedding_type": "learned", "head_dim": 64},
        {"model_type": "falcon", "alibi": True, "head_dim": 64},
        {"model_type": "zamba2", "attention_head_dim": 160, "rope_theta": 10000},
        {"model_type": "wav2vec2-bert", "rotary_embedding_base": 10000},
        {"model_type": "wav2vec2-conformer", "position_embeddings_type": None},
        {"model_type": "seamless_m4t", "position_embeddings_type": "relative"},
    ],
)
def test_models_without_rotary_positions_are_said_to_have_none(
    config: dict[str, Any],
) -> None:
    content = json.dumps(
        {"max_position_embeddings": 512, **config, "limits": [0.0, float("inf")]}
    )
    with pytest.raises(InputError, match="has no rotary positions"):
        parse_document("a file", content.encode())


def test_speech_encoders_rotate_where_the_file_says_so() -> None:
    config = {**SIZES, "position_embeddings_type": "rotary"}
    for kind in ("wav2vec2-bert", "wav2vec2-conformer"):
        with pytest.raises(InputError, match="rotates by numbers in its code"):
            registry.read_main_rotation(
                "a file", from_json_of({**config, "model_type": kind})
            )


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (
            {"text_config": {"rope_theta": 5e6}},
            "about rotation in vlm_config.text_config alone",
        ),
        ({"rope_scaling": {"rope_type": "yarn"}}, "about rotation in vlm_config alone"),
        ({"hidden_size": 64}, "has no keys of a model with rotary positions"),
    ],
)
def test_a_part_of_an_unknown_model_is_named_if_it_has_the_keys(
    inner: dict[str, Any], message: str
) -> None:
    config = {"model_type": "my-own", "vlm_config": inner}
    with pytest.raises(InputError, match=message):
        from_json_of(config)


SIZES = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("kind", "given", "bases"),
    [
        ("cohere2", "rope_gptj", {50000.0}),
        ("modernbert", "absolute", {160000.0, 10000.0}),
    ],
)
def test_a_key_that_a_class_passes_over_takes_no_rotation_away(
    kind: str, given: str, bases: set[float]
) -> None:
    config = {**SIZES, "model_type": kind, "position_embedding_type": given}
    config |= {"rope_theta": 50000} if kind == "cohere2" else {}
    layers = registry.read(
        registry.RUNTIMES["transformers-5"], from_json_of(config)
    ).layers
    assert {spec.base for spec in layers.values()} == bases


def from_json_of(config: dict[str, Any]) -> Mapping[str, Any]:
    return parse_document("a file", json.dumps(config).encode()).config


def test_jinas_rotary_roberta_has_code_that_was_not_read() -> None:
    config = {**SIZES, "model_type": "xlm-roberta", "position_embedding_type": "rotary"}
    with pytest.raises(
        InputError, match="rotates in code of its own, which was not read"
    ):
        registry.read_main_rotation(
            "a file", from_json_of({**config, "rotary_emb_base": 20000.0})
        )


def test_a_flat_file_of_a_model_of_images_is_read_where_the_class_reads_it() -> None:
    config = {
        **SIZES,
        "model_type": "glm4v",
        "partial_rotary_factor": 0.5,
        "rope_theta": 77777.0,
    }
    config["rope_scaling"] = {"type": "default", "mrope_section": [8, 12, 12]}
    for name in ("transformers-4.55", "transformers-4.57"):
        spec = registry.read(registry.RUNTIMES[name], config).main_spec
        assert spec is not None
        assert (spec.base, spec.head_dim, spec.rotary_dim, spec.length) == (
            77777,
            128,
            64,
            8192,
        )
    # The class of 5 builds a language model of its own defaults from such a file.
    for name in ("transformers-5", "transformers-4.51", "vllm"):
        assert registry.read(registry.RUNTIMES[name], config).outcome == "not modelled"


def test_a_release_reads_only_its_own_model_types() -> None:
    config = {"model_type": "qwen3", "head_dim": 128, "max_position_embeddings": 40960}
    found = {n: registry.read(r, config).outcome for n, r in registry.RUNTIMES.items()}
    assert found["transformers-4.48"] == "not modelled"
    assert found["transformers-4.51"] == found["transformers-5"] == "read"
    scout = {**config, "model_type": "llama4_text"}
    ones = {"low_freq_factor": 1.0, "high_freq_factor": 1.0, "factor": 16.0}
    ones["original_max_position_embeddings"] = 8192
    scout["rope_scaling"] = {"rope_type": "llama3", **ones}
    reading = registry.read(registry.RUNTIMES["transformers-5"], scout)
    assert reading.main_spec is not None
    assert reading.main_spec.pairing == "interleaved"


@pytest.mark.parametrize(
    ("base", "says"),
    [
        (1e38, ""),
        (2**63, ""),
        (3.5e38, "infinite in float32"),
        (1e60, "infinite in float32"),
        (2**64, "written as a whole number"),
        (10**40, "written as a whole number"),
    ],
)
def test_bases_that_no_runtime_can_hold_are_not_modelled(base, says) -> None:
    """Beyond float32 classes rotate the first pair alone; they stop at whole numbers
    of more than 64 bits.
    """
    config = {
        "model_type": "llama",
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "max_position_embeddings": 4096,
        "rope_theta": base,
    }
    reading = registry.read(registry.RUNTIMES["transformers-5"], config)
    assert (reading.main_spec is None) == bool(says)
    assert says in reading.problem


def test_bases_in_keys_of_their_own_are_read_where_the_code_was_read() -> None:
    """GLM-4's base is 10000 rope_ratio on half of each head; DBRX has its own in
    attn_config.
    """
    glm: dict[str, Any] = {"architectures": ["ChatGLMModel"], "model_type": "chatglm"}
    glm |= {
        "hidden_size": 4096,
        "kv_channels": 128,
        "num_attention_heads": 32,
        "rope_ratio": 500,
        "seq_length": 131072,
        "original_rope": True,
    }
    dbrx: dict[str, Any] = {"model_type": "dbrx", "d_model": 6144, "n_heads": 48}
    dbrx |= {"max_seq_len": 32768, "attn_config": {"rope_theta": 500000}}
    for config, base, width, length in (
        (glm, 5e6, 64, 131072),
        (dbrx, 5e5, 128, 32768),
    ):
        found = {n: registry.read(r, config) for n, r in registry.RUNTIMES.items()}
        read = {
            name: reading.main_spec
            for name, reading in found.items()
            if reading.main_spec
        }
        assert sorted(read) == ["llama.cpp", "sglang", "vllm"]
        for spec in read.values():
            assert (spec.base, spec.rotary_dim, spec.head_dim) == (base, width, 128)
            assert spec.claimed_len == length


LATENT = {**SIZES, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "rope_theta": 1e5}
WIDE = {**SIZES, "head_dim": 128, "rope_theta": 1e6}
YARN: dict[str, Any] = {
    "type": "yarn",
    "factor": 40,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32,
}
DEEPSEEK = YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}
OLD = {
    "transformers-4.48",
    "transformers-4.51",
    "transformers-4.55",
    "transformers-4.57",
}
# Published types whose code is no class of transformers, or is named in another way:
# class, keys, and base, rotated and all features of a head in the runtimes that read
# them.
OWN_CODE: list[tuple[str, str, dict[str, Any], tuple[float, int, int], set[str]]] = [
    (
        "internlm",
        "InternLMForCausalLM",
        {"rotary": {"base": 2e4, "type": "origin"}},
        (2e4, 128, 128),
        OLD,
    ),
    (
        "llava",
        "LlavaLlamaForCausalLM",
        {"rope_theta": 5e6},
        (5e6, 128, 128),
        {"sglang"},
    ),
    ("llava", "LlavaQwenForCausalLM", {"rope_theta": 1e6}, (1e6, 128, 128), {"sglang"}),
    ("llava_llama", "LlavaLlamaForCausalLM", {}, (1e4, 128, 128), {"sglang"}),
    # It inherits from the first of these three (yivl.py:27).
    ("llava", "YiVLForCausalLM", {"rope_theta": 5e6}, (5e6, 128, 128), {"sglang"}),
    (
        *(
            "minimax_m3",
            "MiniMaxM3SparseForCausalLM",
            {**WIDE, "rotary_dim": 64},
            (1e6, 64, 128),
        ),
        {"vllm", "sglang", "llama.cpp", "tensorrt-llm"},
    ),
    (
        "minimax_m1",
        "MiniMaxM1ForCausalLM",
        {**WIDE, "rotary_dim": 64},
        (1e6, 64, 128),
        {"llama.cpp"},
    ),
    (
        *("bailing_moe_v2", "BailingMoeV2ForCausalLM"),
        {**WIDE, "rotary_dim": 64, "partial_rotary_factor": 0.5},
        *((1e6, 64, 128), {"vllm", "sglang", "llama.cpp"}),
    ),
    (
        "bailing_moe_linear",
        "BailingMoeLinearV2ForCausalLM",
        WIDE,
        (1e6, 128, 128),
        {"mlx-lm"},
    ),
    (
        *(
            "bailing_hybrid",
            "BailingMoeV2_5ForCausalLM",
            {**LATENT, "partial_rotary_factor": 0.5},
        ),
        *((1e5, 64, 64), {"transformers-5", "vllm", "sglang"}),
    ),
    (
        "dots_vlm",
        "DotsVLMForCausalLM",
        {**LATENT, "rope_scaling": DEEPSEEK},
        (1e5, 64, 64),
        {"sglang"},
    ),
    ("AXK1", "AXK1ForCausalLM", LATENT, (1e5, 64, 64), {"vllm"}),
    (
        "longcat_flash_ngram",
        "LongcatFlashNgramForCausalLM",
        LATENT,
        (1e5, 64, 64),
        {"vllm", "mlx-lm"},
    ),
    (
        "llada2_moe",
        "LLaDA2MoeModelLM",
        {**WIDE, "rotary_dim": 64},
        (1e6, 64, 128),
        {"sglang"},
    ),
    ("youtu_llm", "YoutuForCausalLM", LATENT, (1e5, 64, 64), {"llama.cpp", "mlx-lm"}),
    (
        *("sarvam_mla", "SarvamMLAForCausalLM"),
        {**LATENT, "rope_scaling": DEEPSEEK | {"type": "deepseek_yarn"}},
        *((1e5, 64, 64), {"transformers-5", "vllm", "sglang"}),
    ),
    (
        *("iquestcoder", "IQuestCoderForCausalLM"),
        # The servers' releases of transformers lack the type.
        WIDE | {"auto_map": {"AutoConfig": "configuration_iquestcoder.Config"}},
        (1e6, 128, 128),
        {"transformers-5", "mlx-lm", "vllm", "sglang", "llama.cpp"},
    ),
    (
        "telechat",
        "TeleChat2ForCausalLM",
        {"seq_length": 8192},
        (1e4, 128, 128),
        {"vllm"},
    ),
    (
        *("hunyuan", "HunYuanForCausalLM"),
        {
            "rope_theta": 1e4,
            "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
        },
        *((1e4, 128, 128), {"mlx-lm"}),
    ),
    (
        "param2moe",
        "Param2MoEForCausalLM",
        {"rope_theta": 5e5},
        (5e5, 128, 128),
        {"vllm"},
    ),
    ("llada", "LLaDAModelLM", {"rope_theta": 5e5}, (5e5, 128, 128), {"llama.cpp"}),
    (
        "plamo2",
        "Plamo2ForCausalLM",
        {"hidden_size_per_head": 64},
        (1e4, 64, 64),
        {"llama.cpp"},
    ),
    (
        *("openelm", "OpenELMForCausalLM"),
        {"head_dim": 64, "rope_freq_constant": 2e4, "max_context_length": 2048},
        *((2e4, 64, 64), {"llama.cpp", "mlx-lm"}),
    ),
    (
        *(
            "neobert",
            "NeoBERTLMHead",
            {"max_position_embeddings": None, "max_length": 4096},
        ),
        *((1e4, 128, 128), {"llama.cpp"}),
    ),
    ("codeshell", "CodeShellForCausalLM", {}, (1e4, 128, 128), {"llama.cpp"}),
    (
        "stablelm_epoch",
        "StableLMEpochForCausalLM",
        {"rope_pct": 0.25},
        (1e4, 32, 128),
        {"llama.cpp"},
    ),
    (
        "RefinedWebModel",
        "RWForCausalLM",
        {"multi_query": True},
        (1e4, 128, 128),
        {"llama.cpp"},
    ),
    (
        *(
            "phi4mm",
            "Phi4MMForCausalLM",
            {"partial_rotary_factor": 0.75},
            (1e4, 96, 128),
        ),
        {"vllm", "sglang", "tensorrt-llm"},
    ),
    ("zaya", "ZayaForCausalLM", {"head_dim": 128}, (5e6, 64, 128), {"transformers-5"}),
    (
        *("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", WIDE, (1e6, 128, 128)),
        OLD - {"transformers-4.48"}
        | {
            "transformers-5",
            "vllm",
            "sglang",
            "llama.cpp",
            "tensorrt-llm",
            "tgi",
            "mlx-lm",
        },
    ),
    (
        "",
        "OddForCausalLM",
        {},
        (1e4, 128, 128),
        OLD | {"transformers-5", "transformers-4.44"},
    ),
]


@pytest.mark.parametrize(
    ("kind", "name", "keys", "wanted", "readers"),
    OWN_CODE,
    ids=[row[1] for row in OWN_CODE],
)
def test_a_type_is_read_where_its_code_was_read(
    kind: str,
    name: str,
    keys: dict[str, Any],
    wanted: tuple[float, int, int],
    readers: set[str],
) -> None:
    config = {"model_type": kind, "architectures": [name], **SIZES, **keys}
    config = dict(
        from_json_of({key: value for key, value in config.items() if value != ""})
    )
    found = {
        n: registry.read(r, config).main_spec for n, r in registry.RUNTIMES.items()
    }
    specs = {n: (s.base, s.rotary_dim, s.head_dim) for n, s in found.items() if s}
    assert specs == dict.fromkeys(readers, wanted)


PART: dict[str, Any] = {**SIZES, "head_dim": 64, "rope_theta": 77777.0}


@pytest.mark.parametrize(
    ("outer", "name", "part"),
    [
        ("t5gemma", "decoder", {"model_type": "t5_gemma_module", **PART}),
        ("dia", "decoder_config", {"model_type": "dia_decoder", **PART}),
        (
            "colpali",
            "vlm_config",
            {"model_type": "paligemma", "text_config": {"model_type": "gemma", **PART}},
        ),
        (
            "colqwen2",
            "vlm_config",
            {
                "model_type": "qwen2_vl",
                "text_config": {
                    "model_type": "qwen2_vl_text",
                    **PART,
                    "hidden_size": 64 * PART["num_attention_heads"],
                    "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
                },
            },
        ),
    ],
)
def test_a_language_model_under_another_name_is_found(
    outer: str, name: str, part: dict[str, Any]
) -> None:
    others = {
        "text_config": {
            "model_type": "gemma",
            "hidden_size": 64,
            "num_attention_heads": 1,
        }
    }
    config = from_json_of({"model_type": outer, name: part, **others})
    for release in ("transformers-5", "transformers-4.57"):
        spec = registry.read(registry.RUNTIMES[release], config).main_spec
        assert spec is not None
        assert (spec.base, spec.rotary_dim) == (77777.0, 64)


def test_the_first_internlm_scales_beyond_its_length_as_its_own_code_did() -> None:
    """Its code, run with these releases: base * (length / trained)^(d / (d - 2))."""
    config = {**SIZES, "model_type": "internlm"}
    for keys in ({"rotary": {"base": 10000, "type": "dynamic"}}, {}):
        for release in sorted(OLD):
            spec = registry.read(
                registry.RUNTIMES[release], from_json_of({**config, **keys})
            ).main_spec
            assert spec is not None
            slowest = (10000 * 4 ** (128 / 126)) ** (-126 / 128)
            assert spec.inv_freq(4 * 8192)[-1] == pytest.approx(slowest)
            assert spec.inv_freq(8192)[-1] == pytest.approx(10000 ** (-126 / 128))


def test_scalings_that_vllm_alone_reads() -> None:
    vllm, kind = registry.RUNTIMES["vllm"], "telechat3-yarn"
    block: dict[str, Any] = {
        "rope_type": kind,
        "factor": 8.0,
        "original_max_position_embeddings": 1024,
    }
    config: dict[str, Any] = {
        **WIDE,
        "model_type": "telechat3",
        "architectures": ["TeleChat3ForCausalLM"],
    }
    spec = registry.read(vllm, {**config, "rope_scaling": block}).main_spec
    assert spec is not None
    assert spec.attention_factor == pytest.approx(0.07 * np.log(8) + 1)
    assert spec.claimed_len == 8192
    assert spec.scaling == Yarn(factor=8.0, attention_factor=spec.attention_factor)
    reading = registry.read(vllm, {**config, "rope_scaling": block | {"factor": 0}})
    assert mentions(reading.problem, "factor", "at least 1")
    # The base times 8, and each frequency by 8^(2/d) on top.
    block = {"type": "ntk", "factor": 8.0}
    config = {
        **SIZES,
        "model_type": "gte",
        "architectures": ["GteModel"],
        "rope_theta": 2e4,
    }
    config["rope_scaling"] = block
    spec = registry.read(vllm, config).main_spec
    assert spec is not None
    pairs = np.arange(0, 128, 2) / 128
    np.testing.assert_allclose(spec.inv_freq(64), (8 * 2e4) ** -pairs / 8 ** (2 / 128))
    half = registry.read(vllm, {**config, "partial_rotary_factor": 0.5}).main_spec
    assert half is not None
    np.testing.assert_allclose(
        half.inv_freq(64), (8 * 2e4) ** -pairs[::2] / 8 ** (2 / 64)
    )
    block["mixed_b"] = 0.6
    assert registry.read(vllm, config).outcome == "not modelled"
    assert (
        registry.read(registry.RUNTIMES["transformers-5"], config).outcome == "refused"
    )


def test_molmo_2_with_layers_of_its_own_is_not_modelled() -> None:
    reader = registry.RUNTIMES["transformers-5"]
    config = {"model_type": "molmo2_text", **WIDE}
    for layers, outcome in ((None, "read"), ([1, 3], "not modelled")):
        reading = registry.read(reader, {**config, "rope_scaling_layers": layers})
        assert reading.outcome == outcome


def findings_of(config: dict[str, Any], tmp_path: Path) -> dict[str, str]:
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = audit(str(tmp_path / "config.json"), precision=False).findings
    return {finding.code: finding.do for finding in found}


def test_the_base_of_the_file_is_the_one_to_write(tmp_path: Path) -> None:
    """transformers 5 passes over it, and llama.cpp's converter does not."""
    nomic = {"model_type": "nomic_bert", "architectures": ["NomicBertModel"], **SIZES}
    fix = findings_of({**nomic, "rotary_emb_base": 10000}, tmp_path)["E03"]
    assert fix == 'write "rope_theta": 10000.0 at top level'


def test_a_fix_that_no_runtime_would_read_is_not_given(tmp_path: Path) -> None:
    """MLX-LM's class of the first Qwen takes no base from a file."""
    qwen = {"model_type": "qwen", "architectures": ["QWenLMHeadModel"], **SIZES}
    assert findings_of({**qwen, "rotary_emb_base": 1e6}, tmp_path)["E03"] == ""


def test_nomic_claims_what_its_classes_and_the_converter_take() -> None:
    nomic = {
        "model_type": "nomic_bert",
        "architectures": ["NomicBertModel"],
        "n_head": 12,
    }
    for given, converted in ((8192, 2048), (2048, 512)):
        config = {
            **nomic,
            "n_embd": 768,
            "n_positions": given,
            "max_trained_positions": 2048,
        }
        for name, length in (
            ("transformers-5", 2048),
            ("vllm", 2048),
            ("llama.cpp", converted),
        ):
            main = registry.read(registry.RUNTIMES[name], config).main_spec
            assert main is not None
            assert main.claimed_len == length


def test_the_converter_of_llama_cpp_takes_the_class_of_the_language_part() -> None:
    text = {"model_type": "qwen2", **SIZES, "architectures": ["Qwen2ForCausalLM"]}
    for key, kind in (("text_config", "internvl"), ("llm_config", "internvl_chat")):
        config = {"model_type": kind, "architectures": ["InternVLChatModel"], key: text}
        assert registry.read(registry.RUNTIMES["llama.cpp"], config).outcome == "read"
        config[key] = {**text, "architectures": ["NoSuchModel"]}
        assert (
            "not in that"
            in registry.read(registry.RUNTIMES["llama.cpp"], config).problem
        )


def test_advice_names_no_text_that_the_file_has_already(tmp_path: Path) -> None:
    falcon = {"model_type": "falcon", **SIZES, "rope_theta": 500042.0}
    assert findings_of(falcon, tmp_path)["E03"] == "--rope-freq-base 500042.0"
    yarn = {"type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}
    llama = {"model_type": "llama", **SIZES, "max_position_embeddings": 131072}
    assert findings_of({**llama, "rope_scaling": yarn}, tmp_path)["W03"] == ""
    outside = {
        "original_max_position_embeddings": yarn.pop("original_max_position_embeddings")
    }
    found = findings_of({**llama, **outside, "rope_scaling": yarn}, tmp_path)
    assert found["W03"] == '"original_max_position_embeddings": 4096 inside the block'


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_theta": 3580165449.0},  # float32, as in a GGUF file, is off by 2e-8
        {"rope_interleaved": False},
        {"rotary_emb_scale_base": None},
        {"rope_scaling_layers": None},
        {"use_3d_rope": True, "rope_is_neox_style": True},
        {"rope_scaling": {"rope_type": "default", "xdrope_section": [16, 16, 16, 16]}},
    ],
)
def test_published_keys_raise_no_alarm(keys: dict[str, Any], tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        **SIZES,
        **keys,
    }
    assert set(findings_of(config, tmp_path)) <= {"N03", "N04"}


def test_hunyuans_first_name_of_its_scaling_is_known() -> None:
    block = {
        "type": "xdrope",
        "alpha": 1000.0,
        "factor": 1.0,
        "xdrope_section": [16, 16, 16, 16],
    }
    for kind, outcome in (("hunyuan_vl", "read"), ("llama", "refused")):
        config = {"model_type": kind, **WIDE, "rope_scaling": block}
        reading = registry.read(registry.RUNTIMES["transformers-5"], config)
        assert reading.outcome == outcome
        for spec in reading.layers.values():
            assert spec.inv_freq(64)[1] == pytest.approx(
                (1e6 * 1000 ** (128 / 126)) ** (-2 / 128)
            )


def test_plamo_3_has_a_base_for_local_layers_in_vllm() -> None:
    config = {**WIDE, "model_type": "plamo3", "rope_local_theta": 5e3}
    config["architectures"] = ["Plamo3ForCausalLM"]
    layers = registry.read(registry.RUNTIMES["vllm"], config).layers
    bases = {layer: spec.base for layer, spec in layers.items()}
    assert bases == {"full_attention": 1e6, "sliding_attention": 5e3}


@pytest.mark.parametrize("kind", ["phimoe", "minicpm3"])
def test_the_converters_that_write_longropes_tables(kind: str) -> None:
    pairs = {"phimoe": 64, "minicpm3": 16}[kind]
    tables = {"short_factor": [1.5] * pairs, "long_factor": [2.5] * pairs}
    config: dict[str, Any] = {
        "model_type": kind,
        "architectures": [
            {"phimoe": "PhiMoEForCausalLM", "minicpm3": "MiniCPM3ForCausalLM"}[kind]
        ],
        **({"head_dim": 128} if kind == "phimoe" else {"qk_rope_head_dim": 32}),
        "max_position_embeddings": 32768,
        "rope_scaling": {
            "type": "longrope",
            **tables,
            "original_max_position_embeddings": 4096,
        },
    }
    spec = registry.read(registry.RUNTIMES["llama.cpp"], config).main_spec
    assert spec is not None
    assert spec.inv_freq(64)[0] == pytest.approx(1 / 1.5)


@pytest.mark.parametrize("kind", [5, {}, [], False])
def test_a_model_type_is_a_name(kind: Any) -> None:
    config = {
        "model_type": kind,
        "head_dim": 64,
        "num_attention_heads": 2,
        "rope_theta": 1e4,
    }
    with pytest.raises(InputError, match="model_type must be a name, not "):
        parse_document("a file", json.dumps(config).encode())


def test_the_first_form_of_longrope_needs_its_length_in_the_block() -> None:
    """transformers 5 fills the length in before it takes `su` for longrope."""
    block: dict[str, Any] = {
        "type": "su",
        "short_factor": [1.0] * 48,
        "long_factor": [2.0] * 48,
    }
    config: dict[str, Any] = {
        "model_type": "phi3",
        "original_max_position_embeddings": 4096,
    }
    reader = registry.RUNTIMES["transformers-5"]
    assert registry.read(reader, {**config, "rope_scaling": block}).outcome == "refused"
    block = {**block, "original_max_position_embeddings": 4096}
    assert registry.read(reader, {**config, "rope_scaling": block}).outcome == "read"
