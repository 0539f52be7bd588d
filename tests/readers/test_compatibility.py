"""The page of published models says what the readers read."""

import json
from datetime import date
from pathlib import Path

import pytest

from ropelab.audit.compatibility import (
    FILE,
    Line,
    PublishedConfig,
    TableCell,
    compare_model,
    compare_models,
    count_verdicts,
    list_columns,
    read_published,
)
from ropelab.readers import registry
from tests.imports import loaded

compatibility_page = loaded(Path(__file__).parents[2] / "tools" / "compatibility.py")
PAGE = compatibility_page.PAGE
write_page = compatibility_page.write_page


def line_of(config: dict[str, object]) -> Line:
    return compare_model(PublishedConfig("mine", "here", "2026-11-28", config))


LLAMA: dict[str, object] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}


def test_the_page_is_what_the_readers_read() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_page(), "make compatibility"


def test_a_hundred_models_each_with_its_source_and_date() -> None:
    checked, models = read_published()
    assert len(models) >= 100
    assert len({model.name for model in models}) == len(models)
    for model in models:
        assert model.source
        assert date.fromisoformat(model.date) <= date.fromisoformat(checked)


def test_facts_alone_are_kept() -> None:
    """Nothing of a file but what its rotation depends on: no texts, ids or weights."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))["models"]
    keys = {key for row in kept for key in row["config"]}
    assert not {key for key in keys if "token" in key or "vocab" in key}


def test_every_runtime_has_one_column_and_transformers_4_its_newest() -> None:
    names = [runtime.name for runtime in list_columns()]
    assert names[0] == registry.REFERENCE
    older = [name for name in names if name.startswith("transformers-4")]
    assert older == ["transformers-4.57"]
    assert {*names} <= {*registry.RUNTIMES}


def test_a_runtime_that_applies_no_scaling_differs() -> None:
    """YaRN in llama.cpp and ExLlamaV3: the factor comes from the lengths there."""
    scaling = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
    }
    line = line_of({**LLAMA, "rope_scaling": scaling})
    assert line.cells[registry.REFERENCE] == TableCell("own code", "run")
    assert line.cells["vllm"].verdict == "agrees"
    assert line.cells["exllamav3"].verdict == "differs"
    assert line.cells["exllamav3"].code == "E08"
    assert "x4" in line.cells["exllamav3"].words


def test_a_model_without_a_class_is_compared_with_nothing() -> None:
    _, models = read_published()
    line = compare_model(next(each for each in models if each.name == "ChatGLM3-6B"))
    assert line.spec is None
    assert line.cells["vllm"].verdict == "reads"
    assert line.cells[registry.REFERENCE].verdict == "not read"


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "llama.cpp", "mlx-lm"])
def test_counts_add_up(runtime: str) -> None:
    lines = list(compare_models())
    known = [line for line in lines if line.spec is not None]
    assert sum(count_verdicts(lines, runtime).values()) == len(known)
