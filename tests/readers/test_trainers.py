"""Trainers against what they computed: six packages, on a CPU
(oracles/observe_trainers.py).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropelab.audit.audited import audit
from ropelab.readers.document import Document
from ropelab.readers.flags import parse_flags
from ropelab.readers.registry import TRAINERS, read
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import Trace
from ropelab.readers.trainers import TorchTitan, extend_length
from tests.texts import mentions

HERE = Path(__file__).parent
MEGATRON = json.loads((HERE / "megatron.json").read_text())
LLAMAFACTORY = json.loads((HERE / "llamafactory.json").read_text())
OBSERVED = json.loads((HERE / "trainers.json").read_text())
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
}
BANDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA_31 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    **BANDS,
}


@pytest.mark.parametrize(
    "row", MEGATRON["rows"], ids=lambda row: row["flags"] or "none"
)
def test_megatron_computes_this(row: dict[str, Any]) -> None:
    reading = read(TRAINERS["megatron-lm"], LLAMA, parse_flags(row["flags"]).settings)
    assert reading.main_spec is not None, reading.problem
    ours = reading.main_spec.inv_freq(4096)
    np.testing.assert_allclose(ours, row["inv_freq"], rtol=2e-6, atol=1e-12)
    assert reading.main_spec.attention_factor == 1.0
    interleaved = "--rotary-interleaved" in row["flags"]
    assert reading.main_spec.pairing == ("interleaved" if interleaved else "half")


@pytest.mark.parametrize("row", LLAMAFACTORY["rows"])
def test_llamafactory_replaces_the_block_by_this(row: dict[str, Any]) -> None:
    config = {**LLAMA, "max_position_embeddings": 8192, "rope_scaling": row["own"]}
    flags = {"rope_scaling": row["kind"], "cutoff_len": row["cutoff"]}
    names = ("rope_scaling", "max_position_embeddings")
    done = {**config, **extend_length(Trace(config, flags), row["kind"])}
    assert {name: done[name] for name in names} == {name: row[name] for name in names}


def rows_of(name: str) -> list[Any]:
    return [
        pytest.param(name, row, id=f"{name}-{n}")
        for n, row in enumerate(OBSERVED[name]["rows"])
    ]


@pytest.mark.parametrize(
    ("name", "row"),
    [*rows_of("unsloth"), *rows_of("axolotl"), *rows_of("megatron-bridge")],
)
def test_a_trainer_computes_this_from_a_file(name: str, row: dict[str, Any]) -> None:
    flags = parse_flags(row.get("flags", ""))
    reading = read(TRAINERS[name], flags.apply(name, row["config"]), flags.settings)
    if "refused" in row:
        assert reading.outcome == "refused", reading.problem
        return
    assert reading.main_spec is not None, reading.problem
    assert row["config"]["model_type"] in TRAINERS[name].compared_types
    same_at_every_length(reading.main_spec, row["inv_freq"])
    ours = reading.main_spec.attention_factor, reading.main_spec.softmax_factor
    assert ours == pytest.approx((row["factor"], row.get("score", 1.0)), rel=1e-6)


def same_at_every_length(spec: RopeSpec, inv_freq: list[float]) -> None:
    for length in (16, 2 * spec.length):
        np.testing.assert_allclose(
            spec.inv_freq(length), inv_freq, rtol=2e-6, atol=1e-12
        )


@pytest.mark.parametrize(
    "row", OBSERVED["torchtitan"]["rows"], ids=lambda row: row["model"]
)
def test_torchtitan_builds_this_model(row: dict[str, Any]) -> None:
    name, size = row["model"].split()
    sizes = dict(zip(TorchTitan.sizes, row["sizes"], strict=True))
    width = 256 if name == "qwen3_5" else 2 * len(row["inv_freq"])
    rows = [
        row for row in TorchTitan.models if row["name"] == name and size in row["sizes"]
    ]
    kinds = [kind for row in rows for kind in row["types"]]
    assert kinds
    for kind in kinds:
        config = {
            "model_type": kind,
            **sizes,
            "num_attention_heads": 64,
            "head_dim": width,
        }
        reading = read(TRAINERS["torchtitan"], config)
        assert reading.main_spec is not None, (kind, reading.problem)
        assert row["model"] in reading.main_spec.base_source
        same_at_every_length(reading.main_spec, row["inv_freq"])
        assert reading.main_spec.logit_multiplier == pytest.approx(
            row["factor"], rel=1e-6
        )


def test_what_was_trained_is_compared_with_what_serves_it() -> None:
    document = Document("config.json", "config", {**LLAMA, "rope_scaling": LLAMA_31})

    def found(flags: str) -> str:
        done = audit(document, runtime="megatron-lm,vllm", flags=flags, precision=False)
        return f"{done.answer} {' '.join(one.says for one in done.findings)}"

    assert mentions(found("--rotary-base 500000 --use-rope-scaling"), "all 2 runtimes")
    unscaled = found("--use-rope-scaling")
    assert mentions(unscaled, "base 500000 (rope_theta)", "not 10000")
    assert "do not: vllm" in found("--rotary-base 500000")
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
        assert reading.main_spec is None, flags
        assert reading.problem
    flags_of = {"rope_scaling": "longrope"}
    assert read(TRAINERS["llamafactory"], LLAMA, flags_of).outcome == "refused"
