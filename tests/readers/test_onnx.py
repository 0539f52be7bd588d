"""The builder of ONNX Runtime GenAI against the tables that it made
(oracles/observe_onnx.py).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropelab.audit.audited import audit
from ropelab.readers.document import Document
from ropelab.readers.registry import EXPORTERS, choose_runtimes, read
from tests.texts import mentions

OBSERVED = json.loads((Path(__file__).parent / "onnx.json").read_text())
BOTH = tuple(OBSERVED)
ROWS = [
    pytest.param(name, row, id=f"{name}-{n}")
    for name, answers in OBSERVED.items()
    for n, row in enumerate(answers["rows"])
]
QWEN: dict[str, Any] = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 1536,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "num_hidden_layers": 28,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
    "rope_scaling": None,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 8192,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_the_builder_makes_this_table(name: str, row: dict[str, Any]) -> None:
    reading = read(EXPORTERS[name], row["config"])
    assert row["config"]["model_type"] in EXPORTERS[name].compared_types
    if "refused" in row:
        assert reading.outcome == "refused", reading.problem
        return
    assert reading.main_spec is not None, reading.problem
    longer = reading.main_spec.inv_freq(65536)
    np.testing.assert_allclose(longer, row["inv_freq"], rtol=3e-6)
    shorter = row.get("short", row["inv_freq"])
    np.testing.assert_allclose(reading.main_spec.inv_freq(16), shorter, rtol=3e-6)
    assert reading.main_spec.attention_factor == pytest.approx(row["factor"], rel=1e-6)
    assert row.get("long_factor", row["factor"]) == row["factor"]


def test_the_answers_are_of_the_versions_that_are_named() -> None:
    assert OBSERVED["onnxruntime-genai"]["transformers"].startswith("5.")
    assert OBSERVED["onnxruntime-genai-4.57"]["transformers"] == "4.57.1"
    assert {name: each.version for name, each in EXPORTERS.items()} == dict.fromkeys(
        BOTH, "0.18.0"
    )


def test_exporters_are_asked_by_name_alone() -> None:
    assert not {each.name for each in choose_runtimes(())} & {*BOTH}
    assert tuple(each.name for each in choose_runtimes(["onnxruntime-genai"])) == BOTH


def test_a_null_block_stops_the_builder_with_the_older_release_alone() -> None:
    document = Document("config.json", "config", QWEN)
    result = audit(document, runtime="onnxruntime-genai", precision=False)
    newer, older = result.readings
    assert newer.main_spec is not None
    assert (newer.main_spec.base, newer.main_spec.rotary_dim) == (1e6, 128)
    assert older.outcome == "refused"
    assert mentions(older.problem, "rope_scaling", "null", "TypeError")
    assert "E02" in {finding.code for finding in result.findings}


def test_llama_loses_its_yarn_in_the_builder() -> None:
    config = {**QWEN, "model_type": "llama", "rope_scaling": YARN}
    config["architectures"] = ["LlamaForCausalLM"]
    document = Document("config.json", "config", config)
    chosen = ("transformers-5", "onnxruntime-genai")
    result = audit(document, runtime=chosen, precision=False)
    assert "E08" in {finding.code for finding in result.findings}


@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        ({"model_type": "smollm3"}, "not modelled"),
        ({"rope_position_scale": 2.0}, "not modelled"),
        ({"rope_scaling": {**YARN, "factor": None}}, "refused"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "refused"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "refused"),
    ],
)
def test_what_the_builder_does_not_make(keys: dict[str, Any], outcome: str) -> None:
    reading = read(EXPORTERS["onnxruntime-genai"], {**QWEN, **keys})
    assert reading.outcome == outcome
