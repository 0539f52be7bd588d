"""Every record of a table has its function, and every function its record."""

import random

import pytest

from ropelab.readers import ollama, registry
from ropelab.readers.families import read_table
from ropelab.readers.scaling_types import MAKERS

# Names are the modules' own: what is imported here registers all functions.
METHODS = read_table("methods")


def test_every_scaling_type_has_a_function_and_every_function_a_type() -> None:
    records = {(name, kind) for name, rows in METHODS.items() for kind in rows}
    assert registry.RUNTIMES
    assert {*MAKERS} == records


def test_no_record_names_a_function() -> None:
    keys = {key for rows in METHODS.values() for row in rows.values() for key in row}
    assert keys <= {"needs", "defaults", "fixed"}


@pytest.mark.parametrize(
    ("kind", "writer"),
    [
        ("llama", ollama.write_llama),
        ("mixtral", ollama.write_llama),
        ("qwen2", ollama.write_qwen2),
        ("phi3", ollama.write_phi3),
        ("gpt_oss", ollama.write_gptoss),
    ],
)
def test_a_model_type_gets_ollamas_converter_by_name(kind: str, writer: object) -> None:
    assert ollama.WRITERS[ollama.ARCHITECTURES[kind]] is writer
    assert {*ollama.ARCHITECTURES.values()} == {*ollama.WRITERS}


def test_the_order_of_the_rows_pairs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "model_type": "qwen2",
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "max_position_embeddings": 4096,
        "rope_theta": 1e6,
    }
    before = registry.read(registry.RUNTIMES["ollama"], config)
    rows = list(ollama.ARCHITECTURES.items())
    writers = list(ollama.WRITERS.items())
    random.Random(0).shuffle(rows)
    monkeypatch.setattr(ollama, "ARCHITECTURES", dict(rows))
    monkeypatch.setattr(ollama, "WRITERS", dict(reversed(writers)))
    after = registry.read(registry.RUNTIMES["ollama"], config)
    assert before.outcome == "read"
    assert after.layers == before.layers
