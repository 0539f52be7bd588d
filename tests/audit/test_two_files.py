"""Two files of one model, of which a trainer has one and a server the other: what is said
of pairs that rotate otherwise, and of pairs that only look so.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from ropelab.audit.audited import audit
from ropelab.audit.comparison import compare, describe_difference
from ropelab.readers.document import Document
from ropelab.runs.rows import Rows

Config = Mapping[str, Any]
RUNTIMES = "transformers-5,vllm,sglang,mlx-lm,llama.cpp"
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_hidden_layers": 8,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
LONG = [1.0 + pair for pair in range(48)]
LONGER = [*LONG[:20], 31.5, *LONG[21:]]
TABLES = {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": LONG}
PHI = {
    **LLAMA,
    "model_type": "phi3",
    "architectures": ["Phi3ForCausalLM"],
    "hidden_size": 3072,
    "rope_theta": 10000.0,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_scaling": TABLES,
}
GEMMA = {
    **LLAMA,
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "head_dim": 256,
    "num_hidden_layers": 12,
    "rope_local_base_freq": 10000.0,
    "sliding_window_pattern": 6,
}
DEEPSEEK = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
}
QWEN = {
    **LLAMA,
    "model_type": "qwen2_vl",
    "architectures": ["Qwen2VLForConditionalGeneration"],
    "num_attention_heads": 16,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {"depth": 2, "embed_dim": 1280, "num_heads": 16},
}
SMOL = {
    **LLAMA,
    "model_type": "smollm3",
    "architectures": ["SmolLM3ForCausalLM"],
    "no_rope_layers": [1, 1, 1, 0] * 2,
}
LLAMA_4 = {
    **LLAMA,
    "model_type": "llama4_text",
    "architectures": ["Llama4ForCausalLM"],
    "head_dim": 128,
    "no_rope_layers": [1, 1, 1, 0] * 2,
    "floor_scale": 8192,
}


def look(first: Config, second: Config, runtime: str = RUNTIMES) -> tuple[Rows, str]:
    """Return the differences of two files, and the sentence about them."""
    audits = [
        audit(Document("a", "config", config), runtime=runtime, precision=False)
        for config in (first, second)
    ]
    rows = compare(*audits)
    return rows, describe_difference(audits, rows)


@pytest.mark.parametrize(
    ("first", "change", "what", "values", "says"),
    [
        (
            PHI,
            {"rope_scaling": {**TABLES, "long_factor": LONGER}},
            "frequencies",
            ("pair 20 at 262144 tokens: 0.00102592", "0.000683948"),
            "other frequencies",
        ),
        (
            PHI,
            {"rope_scaling": {**TABLES, "short_factor": [1.1] * 48}},
            "frequencies",
            ("pair 0 at 64 tokens: 1", "0.909091"),
            "other frequencies",
        ),
        (
            {**LLAMA, "rope_scaling": YARN},
            {"rope_scaling": {**YARN, "original_max_position_embeddings": 4096}},
            "frequencies",
            ("pair 16 at 64 tokens: 0.000589256", "0.000353553"),
            "other frequencies",
        ),
        (
            GEMMA,
            {"sliding_window_pattern": 4},
            "sliding_window_pattern",
            ("6", "4"),
            "beside them: sliding_window_pattern",
        ),
        (
            DEEPSEEK,
            {"rope_interleave": False},
            "pairing",
            ("interleaved", "half"),
            "pairs of halves instead of adjacent features",
        ),
        (
            QWEN,
            {"rope_scaling": {"type": "mrope", "mrope_section": [24, 20, 20]}},
            "pairs per position axis, for images",
            ("16 to 39 height", "24 to 43 height"),
            "beside them: pairs per position axis",
        ),
        (
            QWEN,
            {"vision_config": {"depth": 2, "embed_dim": 1280, "num_heads": 20}},
            "rotation of the vision part",
            ("80 of 80 features", "64 of 64 features"),
            "beside them: rotation of the vision part",
        ),
        (
            SMOL,
            {"no_rope_layers": [1] * 8},
            "layers without rotation",
            ("every 4th of 8", "none of 8"),
            "beside them: layers without rotation",
        ),
        (
            LLAMA_4,
            {"floor_scale": 4096},
            "factor on queries in layers without rotation",
            ("/ 8192)", "/ 4096)"),
            "beside them: factor on queries",
        ),
    ],
)
def test_what_differs_is_named(
    first: Config,
    change: Config,
    what: str,
    values: tuple[str, str],
    says: str,
) -> None:
    rows, sentence = look(first, {**first, **change})
    found = [row for row in rows if row["what"] == what]
    assert found, rows
    assert values[0] in str(found[0]["first"])
    assert values[1] in str(found[0]["second"])
    assert says in sentence


@pytest.mark.parametrize(
    ("first", "change"),
    [
        (LLAMA, {"rope_scaling": None}),
        (LLAMA, {"head_dim": 64}),
        (LLAMA, {"rms_norm_eps": 1e-6, "vocab_size": 7}),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 1.0}}),
        ({**LLAMA, "rope_scaling": YARN}, {"rope_scaling": {**YARN, "beta_fast": 32}}),
        (LLAMA, {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}),
    ],
)
def test_what_only_looks_otherwise_is_not_accused(
    first: Config, change: Config
) -> None:
    rows, sentence = look(first, {**first, **change})
    assert not [row for row in rows if row["runtimes"]]
    assert sentence == "the main layers rotate alike in both files"


def test_lists_of_one_length_show_where_they_differ() -> None:
    second = {**PHI, "rope_scaling": {**TABLES, "long_factor": LONGER}}
    rows, _ = look(PHI, second, "transformers-5")
    (row,) = [row for row in rows if row["what"] == "rope_scaling.long_factor"]
    assert row["first"] == "list of 48, [20] = 21.0"
    assert row["second"] == "list of 48, [20] = 31.5"


def test_a_runtime_that_stops_at_one_file_has_one_row() -> None:
    """transformers 5 stops at Phi-3's first type where the length is not in the block."""
    second = {**PHI, "rope_scaling": {**TABLES, "type": "su"}}
    rows, sentence = look(PHI, second)
    (row,) = [row for row in rows if row["what"] == "file"]
    assert (row["first"], row["second"]) == ("read", "refused")
    assert row["runtimes"] == "transformers-5, vllm, sglang"
    assert sentence.startswith("as transformers-5 reads the first and ")


def test_a_difference_of_other_runtimes_alone_is_said() -> None:
    """vLLM, SGLang and MLX-LM read the key of the indexer, transformers 5 does not."""
    first = {**DEEPSEEK, "model_type": "glm_moe_dsa", "indexer_rope_interleave": True}
    first |= {"architectures": ["GlmMoeDsaForCausalLM"], "index_head_dim": 128}
    first |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    first.pop("rope_theta")
    rows, sentence = look(first, {**first, "indexer_rope_interleave": False})
    (row,) = [row for row in rows if row["what"] == "pairing, indexer"]
    assert "vllm" in row["runtimes"]
    assert sentence.endswith("other runtimes see a difference")
