"""A length that a model does not have is found, and flags that were read are shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from ropelab.audit.audited import FileAudit, audit
from ropelab.readers.document import Document
from ropelab.readers.flags import parse_flags
from ropelab.runs.errors import InputError
from tests.test_cli import call
from tests.texts import mentions

__all__ = ["call"]  # a fixture

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "rope_theta": 500000.0,
    "max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}


def audited(config: dict[str, Any], **options: Any) -> FileAudit:
    return audit(Document("a", "config", config), precision=False, **options)


def levels(result: FileAudit) -> dict[str, str]:
    return {finding.code: finding.level for finding in result.findings}


@pytest.mark.parametrize(
    "options", [{"length": 32768}, {"flags": "--max-model-len 32768"}]
)
def test_a_length_beyond_the_file_is_refused_or_warned_of(
    options: dict[str, Any],
) -> None:
    result = audited(LLAMA, **options)
    found = levels(result)
    assert (found["E10"], found["W18"]) == ("error", "warn")
    (refusals, warning) = (
        [finding.says for finding in result.findings if finding.code == code]
        for code in ("E10", "W18")
    )
    assert [words.split()[0] for words in refusals] == ["vllm", "sglang"]
    assert "transformers-5" in warning[0]
    assert "vllm" not in warning[0]
    assert {"E10", "W18"}.isdisjoint(levels(audited(LLAMA, length=8192)))


def test_a_flag_of_llama_cpp_asks_llama_cpp_alone() -> None:
    found = audited(LLAMA, flags="-c 32768").findings
    (warning,) = (finding for finding in found if finding.code == "W18")
    assert mentions(warning.says, "in llama.cpp", "goes on")
    assert "E10" not in {finding.code for finding in found}


def test_flags_that_scale_reach_the_length() -> None:
    flags = "-c 32768 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 8192"
    result = audited(LLAMA, flags=flags, runtime="llama.cpp")
    assert "W18" not in levels(result)


def test_a_scaling_counts_where_the_length_of_the_file_does_not() -> None:
    """vLLM goes by max_position_embeddings alone, the others by what is rotated."""
    short = {**LLAMA, "rope_scaling": YARN}
    result = audited(short, length=32768, runtime="transformers-5,vllm")
    assert levels(result)["E10"] == "error"
    assert "W18" not in levels(result)
    long = {**short, "max_position_embeddings": 32768}
    assert {"E10", "W18"}.isdisjoint(levels(audited(long, length=32768)))


def test_a_factor_without_end_is_no_length() -> None:
    endless = {**YARN, "factor": 1e300}
    result = audited({**LLAMA, "rope_scaling": endless}, length=32768)
    assert "inf" not in result.answer
    json.dumps(result.rows, allow_nan=False)


def test_a_linear_scaling_has_no_length_to_start_from() -> None:
    linear = {"rope_type": "linear", "factor": 8.0}
    result = audited({**LLAMA, "rope_scaling": linear}, length=4096)
    assert "not stated" in result.answer
    assert "N02" not in levels(result)


def test_windows_of_layers_that_rotate_are_in_the_first_line() -> None:
    config = {
        **LLAMA,
        "model_type": "cohere2",
        "num_hidden_layers": 8,
        "sliding_window": 512,
        "sliding_window_pattern": 4,
    }
    result = audited(config)
    assert mentions(result.answer, "6 of 8 layers", 512)
    whole = audited({**config, "model_type": "exaone4", "sliding_window": None})
    assert "layers" not in whole.answer.partition("(")[2]


def test_keys_that_name_layers_are_used_where_they_are_read() -> None:
    config = {**LLAMA, "model_type": "smollm3", "num_hidden_layers": 8}
    result = audited({**config, "no_rope_layers": [1, 1, 1, 0] * 2})
    assert mentions(result.answer, "6 of 8 layers")
    (row,) = (row for row in result.rows["keys"] if row["key"] == "no_rope_layers")
    assert row["status"]["transformers-5"] == "used"
    assert row["status"]["vllm"] == "ignored"


@pytest.mark.parametrize("kind", ["deepseek_v3", "gpt_oss", "olmo3"])
def test_a_model_that_was_trained_with_yarn_is_told_no_news(kind: str) -> None:
    config = {**LLAMA, "model_type": kind, "qk_rope_head_dim": 64, "rope_scaling": YARN}
    assert "N01" not in levels(audited(config))
    assert "N01" in levels(audited({**LLAMA, "rope_scaling": YARN}))


def test_flags_that_were_read_are_shown(tmp_path: Path, call: Any) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    flags = ("--flags", "--max-model-len 32768")
    status, out, _ = call("audit", str(path), *flags, "--fail-on", "warn")
    assert status == 3
    assert "--max-model-len 32768" in out
    _, out, _ = call("audit", str(path), *flags, "--json")
    assert json.loads(out)["flags"] == ["--max-model-len 32768"]


@pytest.mark.parametrize("params", [True, False])
def test_a_file_that_emit_does_not_read_has_no_suggestion(
    params: bool, tmp_path: Path, call: Any
) -> None:
    path = tmp_path / ("params.json" if params else "config.json")
    sizes = {"dim": 4096, "n_heads": 32, "n_layers": 4, "head_dim": 128}
    lengths = {"max_position_embeddings": 8192, "rope_theta": 1e6}
    path.write_text(json.dumps({**sizes, **lengths} if params else LLAMA))
    _, out, _ = call("audit", str(path))
    assert ("ropelab emit" in out) != params


def test_runtimes_that_are_left_out_are_counted(tmp_path: Path, call: Any) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "model_type": "qwen3"}))
    _, out, _ = call("audit", str(path))
    assert "N03" not in out
    assert "runtimes left out (--verbose)" in out
    # The row of each runtime has the reason, once.
    verbose = call("audit", str(path), "--verbose")[1]
    assert "N03" not in verbose
    assert "is not in that release" in verbose


@pytest.mark.parametrize(
    ("flags", "typed"),
    [
        ("--rope-freq-base 500k", "500000"),
        ("-c 32k", "32000"),
        ("--yarn-orig-ctx=8K", "8000"),
        ("--context-length 128k", "128000"),
        ("--rotary-base 1M", "1000000"),
        ("--ropeconfig 1.0 500k", "500000"),
    ],
)
def test_a_suffix_at_which_a_server_stops_reading_is_refused(
    flags: str, typed: str
) -> None:
    with pytest.raises(InputError, match=f"type {typed}, got"):
        parse_flags(flags)


@pytest.mark.parametrize(
    ("value", "length"), [("128k", 128_000), ("128K", 131_072), ("131072", 131_072)]
)
def test_vllm_reads_a_suffix_by_its_case(value: str, length: int) -> None:
    assert parse_flags(f"--max-model-len {value}").settings == {"length": length}
