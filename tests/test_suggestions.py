"""What a command suggests can be typed: each suggestion is run in its turn."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.test_cli import call

__all__ = ["call"]  # a fixture

QWEN = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope_theta": 1e6,
}
# After `next` in an answer, after `type:` in an error, after `then:` in a sentence.
SUGGESTED = re.compile(r"(?:next +|type: |then: )ropelab ([^\n]+)")


def list_suggestions(text: str) -> list[list[str]]:
    """Return the words of each suggested command, without what a shell adds."""
    found = []
    for line in SUGGESTED.findall(text):
        command = line.partition(", with --flags")[0].partition(" > ")[0]
        found.append(shlex.split(command))
    return found


@pytest.mark.parametrize(
    "typed",
    [
        "audit qwen.json",
        "audit 'two words.json'",
        "audit qwen.json -o report.json",
        "audit folder --length 128k",
        "check",
        "check --config qwen.json",
        pytest.param("check folder", marks=pytest.mark.slow),
        "emit",
        "emit --factor 4",
        "emit --from 'two words.json' --context 128k --target vllm",
        "emit --from qwen.json --context 128k",
        "emit --from qwen.json --context 128k --target llama.cpp",
        "emit --from qwen.json -o out.json",
        "emit --model qwen3-8b",
        "emit --model qwen3-8b --context 64k --out out.json",
        "emit --model qwen3-8b --context 128k --target sglang",
        "emit --model qwen3-8b --factor 4",
        "emit qwen.json 128k",
        "freqs --base 51881.25",
        "freqs --base 1e6 --head-dim 96 --partial 0.5",
        "freqs --model 'two words.json'",
        "freqs --model qwen3-8b",
        "freqs qwen3-8b",
        "models qwen3-8b",
        "methods yarn",
        "run qwen.json",
        "vectors",
        "vectors --model qwen.json",
        "vectors --model qwen3-8b",
        "vectors -o kit",
        "vectors folder",
    ],
)
def test_a_suggested_command_runs(call: Any, typed: str) -> None:
    folder = Path("folder")
    folder.mkdir()
    for path in (Path("qwen.json"), Path("two words.json"), folder / "config.json"):
        path.write_text(json.dumps(QWEN))
    Path("config.json").write_text(json.dumps(QWEN))  # `emit --model` speaks of it

    _, out, err = call(*shlex.split(typed))
    suggestions = list_suggestions(out + err)
    assert suggestions, out + err
    for words in suggestions:
        if words[0] == "precision":  # a search that takes a while
            words = [*words, "--help"]
        status, _, problem = call(*words)
        assert status in (0, 3), (words, problem)


def test_a_base_is_suggested_with_all_its_digits(call: Any) -> None:
    _, out, err = call("freqs", "--base", "51881.25")
    assert any("51881.25" in words for words in list_suggestions(out + err))
