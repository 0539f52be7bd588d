"""Trainers against what they computed: megatron-core 0.16.1 and llamafactory 0.9.5."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropelab.audit.audited import audit
from ropelab.audit.document import Document
from ropelab.audit.flags import parse_flags
from ropelab.audit.runtimes.registry import TRAINERS, read
from ropelab.audit.runtimes.trace import Trace
from ropelab.audit.runtimes.trainers import replaced

HERE = Path(__file__).parent
MEGATRON = json.loads((HERE / "megatron.json").read_text())
LLAMAFACTORY = json.loads((HERE / "llamafactory.json").read_text())
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
}
BANDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA_31 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192, **BANDS}


@pytest.mark.parametrize("row", MEGATRON["rows"], ids=lambda row: row["flags"] or "none")
def test_megatron_computes_this(row: dict[str, Any]) -> None:
    reading = read(TRAINERS["megatron-lm"], LLAMA, parse_flags(row["flags"]).settings)
    assert reading.main is not None, reading.problem
    ours = reading.main.inv_freq(4096)
    np.testing.assert_allclose(ours, row["inv_freq"], rtol=2e-6, atol=1e-12)
    assert reading.main.attention_factor == 1.0
    interleaved = "--rotary-interleaved" in row["flags"]
    assert reading.main.pairing == ("interleaved" if interleaved else "half")


@pytest.mark.parametrize("row", LLAMAFACTORY["rows"])
def test_llamafactory_replaces_the_block_by_this(row: dict[str, Any]) -> None:
    config = {**LLAMA, "max_position_embeddings": 8192, "rope_scaling": row["own"]}
    flags = {"rope_scaling": row["kind"], "cutoff_len": row["cutoff"]}
    names = ("rope_scaling", "max_position_embeddings")
    done = {**config, **replaced(Trace(config, flags), row["kind"])}
    assert {name: done[name] for name in names} == {name: row[name] for name in names}


def test_what_was_trained_is_compared_with_what_serves_it() -> None:
    document = Document("config.json", "config", {**LLAMA, "rope_scaling": LLAMA_31})

    def found(flags: str) -> str:
        done = audit(document, runtime="megatron-lm,vllm", flags=flags, precision=False)
        return f"{done.answer} {' '.join(one.says for one in done.findings)}"

    assert "all 2 runtimes that read it agree" in found("--rotary-base 500000 --use-rope-scaling")
    assert "base 500000 (rope_theta), not 10000" in found("--use-rope-scaling")
    assert "not vllm" in found("--rotary-base 500000")
    assert audit(document, precision=False).rows["runtimes"][-1]["runtime"] == "ollama"


def test_bad_flags_of_trainers_refuse() -> None:
    for flags in (
        "--kv-channels 0",
        "--kv-channels 1e12",
        "--rotary-percent 0",
        "--use-rope-scaling --rope-scaling-factor 0",
        "--use-rope-scaling --rotary-seq-len-interpolation-factor 4",
    ):
        reading = read(TRAINERS["megatron-lm"], LLAMA, parse_flags(flags).settings)
        assert reading.main is None, flags
        assert reading.problem
    flags_of = {"rope_scaling": "longrope"}
    assert read(TRAINERS["llamafactory"], LLAMA, flags_of).outcome == "refused"
