"""Files that transformers 5 refuses, as it refuses them; and headlines that hide no
difference.
"""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from ropelab.audit.audited import FileAudit, audit
from ropelab.audit.emit import emit
from ropelab.readers.document import Document
from ropelab.readers.registry import RUNTIMES, read
from ropelab.readers.spec import RefusedError, require_numbers
from ropelab.runs.errors import InputError
from tests.test_cli import call
from tests.texts import mentions

__all__ = ["call"]  # a fixture

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
MROPE = {"type": "mrope", "mrope_section": [16, 24, 24]}


def audited(config: dict[str, Any], **options: Any) -> FileAudit:
    return audit(Document("test", "config", config), precision=False, **options)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen2_moe", "qwen3"])
def test_axes_are_a_type_in_the_classes_of_images_only(kind: str) -> None:
    config = {**LLAMA, "model_type": kind, "rope_scaling": MROPE}
    reading = read(RUNTIMES["transformers-5"], config)
    assert (reading.outcome, reading.problem) == (
        "refused",
        "unknown rope type 'mrope'",
    )
    assert read(RUNTIMES["vllm"], config).main_spec is not None
    of_images = {**LLAMA, "model_type": "qwen2_vl_text", "rope_scaling": MROPE}
    assert read(RUNTIMES["transformers-5"], of_images).main_spec is not None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": 4099}, "hidden_size 4099 is not a multiple of 32 heads"),
        ({"hidden_size": 4099, "head_dim": 128}, "not a multiple of 32 heads"),
        ({"hidden_size": 4096.0}, "hidden_size must be of type int, not 4096.0"),
        ({"head_dim": 128.0}, "head_dim must be of type int or null, not 128.0"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers must be of type int, not 32"),
        (
            {"num_attention_heads": None},
            "num_attention_heads must be of type int, not None",
        ),
        (
            {"max_position_embeddings": None},
            "max_position_embeddings must be of type int",
        ),
        (
            {"rope_parameters": []},
            "rope_parameters must be of type dict or null, not a list",
        ),
        (
            {"layer_types": "full_attention"},
            "layer_types must be a list of known names",
        ),
        (
            {"layer_types": [1, 2, 3]},
            "layer_types must be a list of known names, not 1, 2, 3",
        ),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 names for 32 layers"),
        ({"dtype": "zfloat"}, "dtype 'zfloat' is no number format of torch"),
        (
            {"torch_dtype": "torch.bfloat16"},
            "'torch.bfloat16' is no number format of torch",
        ),
        (
            {"model_type": "llama4_text", "attn_temperature_tuning": 4},
            "must be of type bool",
        ),
        # What is odd and passes.
        ({"head_dim": None}, ""),
        ({"model_type": "mistral", "hidden_size": 4099}, ""),
        ({"rope_scaling": []}, ""),
        ({"dtype": "half"}, ""),
        ({"layer_types": ["full_attention"] * 32}, ""),
    ],
)
def test_the_classes_of_transformers_5_are_strict(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    config = {**LLAMA, **changes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused = pytest.raises(
        (TypeError, ValueError, AttributeError, StrictDataclassError)
    )
    with refused if says else nullcontext():
        AutoConfig.from_pretrained(tmp_path)
    for name in ("transformers-5", "vllm", "sglang"):
        reading = read(RUNTIMES[name], config)
        assert reading.outcome == ("refused" if says else "read"), reading.problem
        assert says in reading.problem
    assert read(RUNTIMES["llama.cpp"], config).problem != says or not says


def test_one_runtime_reads_and_does_not_agree() -> None:
    config = {**LLAMA, "rope_scaling": MROPE}
    answer = audited(config, runtime="transformers-5,vllm").answer
    assert mentions(answer, "one runtime", "not looked at")


@pytest.mark.parametrize("kind", [None, ""])
def test_what_finds_no_class_is_refused_by_all_that_look_for_one(
    kind: str | None, tmp_path: Path
) -> None:
    config = {**LLAMA, "model_type": kind}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="model type"):
        AutoConfig.from_pretrained(tmp_path)
    result = audited(config)
    (found,) = (f for f in result.findings if f.code == "E02")
    names = {r.runtime.name for r in result.readings if r.outcome == "refused"}
    assert {
        "transformers-5",
        "transformers-4.57",
        "vllm",
        "sglang",
        "tensorrt-llm",
    } <= names
    assert found.level == "error"
    assert "refused by transformers-5" in result.answer


def test_a_type_that_nobody_has_read_is_refused() -> None:
    with pytest.raises(InputError, match="frobnicator"):
        audited({**LLAMA, "model_type": "frobnicator"})


def test_code_of_its_own_is_read_by_servers_that_know_its_architecture() -> None:
    config = {**LLAMA, "model_type": "frobnicator", "auto_map": {"AutoConfig": "x.Y"}}
    result = audited(config)
    outcomes = {r.runtime.name: r.outcome for r in result.readings}
    assert outcomes["vllm"] == "read"
    assert outcomes["transformers-5"] != "read"


def test_a_head_of_one_pair_has_strict_json(call: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "head_dim": 2}))
    status, out, _ = call("audit", "config.json", "--json", "--fail-on", "never")
    (file,) = json.loads(out)["files"]
    assert (status, file["tables"]["context"][0]["base_one_turn"]) == (0, None)


@pytest.mark.parametrize(
    ("codec", "says"),
    [
        ("utf-8-sig", "UTF-8 with a byte order mark"),
        ("utf-16", "UTF-16"),
        ("utf-16-be", "UTF-16-BE"),
    ],
)
def test_a_file_in_another_encoding_is_refused_and_said_so(
    codec: str, says: str, call: Any, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding=codec)
    with pytest.raises((OSError, ValueError)):
        AutoConfig.from_pretrained(tmp_path)
    for source in ("config.json", "."):
        status, out, _ = call("audit", source)
        assert status == 3
        assert mentions(out, "E09 error", says, "transformers refuses")
        assert mentions(out, "refused as", says, "UTF-8", "all 14")
    status, _, notes = call("emit", "--from", "config.json", "--context", "262144")
    assert f"transformers refuses {says}" in " ".join(notes.split())


def test_lengths_that_differ_are_no_agreement() -> None:
    cohere = {**LLAMA, "model_type": "cohere", "max_position_embeddings": 8192}
    del cohere["architectures"]
    for config, claims in (
        ({**cohere, "model_max_length": 131072}, "claims 8192 or 131072"),
        ({**LLAMA, "rope_scaling": {"factor": 2.0}}, "the file claims 131072."),
    ):
        answer = audited(config).answer
        assert mentions(answer, "not on the length")
        assert claims in answer
    assert "agree. As transformers-5 reads it: llama," in audited(LLAMA).answer


def test_the_length_that_qwen3_was_trained_with_is_noted() -> None:
    qwen = {
        **LLAMA,
        "model_type": "qwen3",
        "head_dim": 128,
        "max_position_embeddings": 40960,
    }
    (found,) = (f for f in audited(qwen).findings if f.code == "N07")
    assert mentions(found.says, 32768, 40960)
    scaled = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
    }
    for other in (
        {**qwen, "max_position_embeddings": 32768},
        {**qwen, "rope_scaling": scaled},
    ):
        assert "N07" not in {f.code for f in audited(other).findings}


STEP3 = {
    "model_type": "step3_text",
    "num_attention_heads": 64,
    "head_dim": 256,
    "rope_theta": 5e5,
}


@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        (
            {"max_position_embedding": 65536},
            "unscaled, trained at 65536 tokens; the file claims 65536",
        ),
        (
            {"max_seq_len": 65536},
            "unscaled, trained at 65536 tokens; the file claims 65536",
        ),
        ({}, "unscaled, trained at a length that is not stated; the file claims 2048"),
    ],
)
def test_a_trained_length_is_stated_or_said_not_to_be(
    lengths: dict[str, Any], says: str
) -> None:
    named = {"architectures": ["Step3VLForConditionalGeneration"]}
    config = {"model_type": "step3_vl", **named, "text_config": {**STEP3, **lengths}}
    assert says in audited(config, runtime="vllm,sglang").answer


LLAMA31 = {"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0}
LLAMA31 |= {"low_freq_factor": 1.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize("name", ["low_freq_factor", "high_freq_factor"])
def test_a_division_by_zero_is_an_error(name: str) -> None:
    config = {**LLAMA, "rope_scaling": {**LLAMA31, name: 0}}
    with pytest.raises(ZeroDivisionError):
        LlamaRotaryEmbedding(LlamaConfig(**config))
    result = audited(config)
    (found,) = (f for f in result.findings if f.code == "E02")
    assert found.level == "error"
    assert "refused by transformers-5" in found.says
    assert f"{name} is 0" in found.says
    assert "longrope" not in result.answer


def test_divisors_of_a_gguf_are_no_longrope(tmp_path: Path) -> None:
    config = {**LLAMA, "rope_scaling": LLAMA31}
    reading = read(RUNTIMES["llama.cpp"], config)
    assert reading.main_spec is not None
    assert mentions(reading.main_spec.method, "one table")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (emission,) = emit(str(tmp_path), context=1048576, target="llama.cpp").targets
    assert mentions(emission.lost[0], "one table", "llama3(factor=64)")


@pytest.mark.parametrize("name", ["audit", "emit"])
def test_a_type_that_a_release_lacks_is_an_error_that_names_it(
    name: str, call: Any, tmp_path: Path
) -> None:
    config = {
        **LLAMA,
        "model_type": "odd\nname\x1b[31m",
        "architectures": ["OddForCausalLM"],
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    more = (
        ("--from", "config.json", "--context", "262144")
        if name == "emit"
        else ("config.json",)
    )
    status, _, error = call(name, *more)
    assert status == 2
    assert r"'odd\nname\x1b[31m'" in error
    assert len(error.splitlines()) == 1


def test_a_type_of_two_lines_leaves_the_answer_on_one() -> None:
    with pytest.raises(InputError) as refusal:
        audited({**LLAMA, "model_type": "odd\nname"})
    assert r"odd\nname" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_list_that_is_too_long_is_refused_by_its_length():
    with pytest.raises(RefusedError, match="at most 65536 numbers, not 65537"):
        require_numbers([1.0] * 65537, "short_factor")
