"""What an audit finds does not depend on the order in which runtimes are named."""

import re
from itertools import combinations
from typing import Any

import pytest

from ropelab.audit.audited import FileAudit, audit
from ropelab.readers.document import Document
from ropelab.runs.errors import InputError
from tests.audit.files import QWEN, YARN

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 4096,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
GPTJ = {"model_type": "gptj", "n_embd": 256, "n_head": 4, "rotary_dim": 32}
FILES: dict[str, dict[str, Any]] = {
    "yarn, and a length of the card": {**QWEN, "rope_scaling": YARN},
    "yarn of a length between": {
        **QWEN,
        "max_position_embeddings": 65536,
        "rope_scaling": YARN,
    },
    "all in the block": {
        **LLAMA,
        "max_position_embeddings": 131072,
        "rope_parameters": LLAMA3,
    },
    "dynamic": {
        **LLAMA,
        "rope_theta": 1e4,
        "rope_scaling": {"rope_type": "dynamic", "factor": 4.0},
    },
    "linear": {**LLAMA, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "plain": LLAMA,
    "a constant of the class": {**GPTJ, "n_positions": 2048, "rope_theta": 5e5},
}
NAMES = ("transformers-4.57", "transformers-4.51", "vllm", "llama.cpp", "mlx-lm", "tgi")


def audit_by(config: dict[str, Any], *names: str) -> FileAudit:
    return audit(Document("test", "config", config), runtime=names, precision=False)


def summarize(result: FileAudit) -> set[tuple[Any, ...]]:
    """Return the findings, each without the order of the runtimes in its words."""
    summary: set[tuple[Any, ...]] = set()
    for finding in result.findings:
        words = sorted(re.split(r"[\s,;]+", f"{finding.says} {finding.do}"))
        summary.add((finding.code, finding.level, *words))
    return summary


@pytest.mark.parametrize("name", FILES)
def test_the_order_of_runtimes_changes_no_finding(name: str) -> None:
    for pair in combinations(NAMES, 2):
        try:
            forwards = audit_by(FILES[name], *pair)
        except InputError:
            with pytest.raises(InputError):
                audit_by(FILES[name], *reversed(pair))
            continue
        backwards = audit_by(FILES[name], *reversed(pair))
        assert forwards.reference.runtime.name == backwards.reference.runtime.name
        assert summarize(forwards) == summarize(backwards), pair


def test_a_default_is_never_written_over_a_declared_base() -> None:
    result = audit_by(FILES["all in the block"], "transformers-4.57", "vllm")
    (found,) = [each for each in result.findings if each.code == "E03"]
    assert found.says.startswith("transformers-4.57 takes base 10000")
    assert found.do == 'write "rope_theta": 500000.0 at top level'


def test_a_default_of_a_trainer_does_not_win_unasked() -> None:
    result = audit_by(FILES["plain"] | {"rope_theta": 5e5}, "vllm", "megatron-lm")
    assert result.reference.runtime.name == "megatron-lm"
    (found,) = [each for each in result.findings if each.code == "E03"]
    assert found.do.startswith("give megatron-lm the base 500000.0 if the model was")


def test_a_fix_does_not_mislead_whom_it_mends() -> None:
    card = FILES["yarn, and a length of the card"]
    for names in (("transformers-4.51",), ("transformers-4.51", "llama.cpp", "vllm")):
        result = audit_by(card, *names)
        (found,) = [each for each in result.findings if each.code == "E08"]
        assert found.do == '"max_position_embeddings": 131072'

    mended = audit_by(
        {**card, "max_position_embeddings": 131072}, "transformers-4.51", "vllm"
    )
    assert not {each.code for each in mended.findings} - {"N01"}


def test_a_base_in_another_place_is_to_be_moved() -> None:
    (found,) = [
        each
        for each in audit_by(FILES["all in the block"], "transformers-4.57").findings
        if each.code == "W11"
    ]
    assert found.do == 'write "rope_theta": 500000.0 at top level'
    moved = {**FILES["all in the block"], "rope_theta": 500000.0}
    assert audit_by(moved, "transformers-4.57").spec.base == 500000.0

    # A class with a base in its code takes none from a file.
    (found,) = [
        each
        for each in audit_by(
            FILES["a constant of the class"], "transformers-4.57"
        ).findings
        if each.code == "W11"
    ]
    assert "class of its own" in found.do


def test_a_finding_names_its_runtimes_if_the_reference_is_none_of_them() -> None:
    """Classes of GPT-J read no scaling, and vLLM's does."""
    gptj = {**GPTJ, "n_positions": 2048}
    result = audit_by(
        {**gptj, "rope_scaling": YARN}, "transformers-5", "sglang", "vllm"
    )
    says = {each.code: each.says for each in result.findings}
    assert says["N01"].startswith("static yarn by 4 in vllm also affects prompts")
    assert says["W05"].startswith("vllm (yarn")
    # One runtime alone scales, and so no two of them scale from different lengths.
    assert "W03" not in says

    # It is not named where it is one of them.
    result = audit_by(FILES["dynamic"], "vllm", "transformers-5")
    says = {each.code: each.says for each in result.findings}
    assert says["W07"].startswith("dynamic: keys already in the cache")
