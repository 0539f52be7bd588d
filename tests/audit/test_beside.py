"""What acts beside the frequencies: layers without rotation, factors on queries,
position axes.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ropelab.audit.aspects import list_aspects
from ropelab.audit.audited import FileAudit, audit
from ropelab.audit.comparison import compare
from ropelab.audit.draft import compare_draft
from ropelab.cli.app import main
from ropelab.readers.document import Document
from tests.texts import mentions

SMOLLM3: dict[str, Any] = {
    "model_type": "smollm3",
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_hidden_layers": 12,
    "max_position_embeddings": 65536,
    "rope_theta": 5e6,
}
LLAMA4 = {
    "model_type": "llama4_text",
    "hidden_size": 5120,
    "num_attention_heads": 40,
    "head_dim": 128,
    "num_hidden_layers": 8,
    "max_position_embeddings": 1048576,
    "rope_theta": 500000.0,
}
QWEN2 = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "max_position_embeddings": 1010000,
    "rope_theta": 1e7,
}


def audited(config: dict[str, Any]) -> FileAudit:
    return audit(Document("config.json", "config", config), precision=False)


def says(config: dict[str, Any], code: str) -> str:
    return " | ".join(
        finding.says for finding in audited(config).findings if finding.code == code
    )


def does(config: dict[str, Any], name: str) -> Mapping[str, str]:
    """What the runtimes do about one aspect of a file."""
    for aspect in list_aspects(audited(config)):
        if aspect.name.startswith(name):
            return aspect.words_by_runtime
    raise LookupError(name)


def test_llama_cpp_skips_every_fourth_layer_whatever_the_list_says() -> None:
    config = {**SMOLLM3, "no_rope_layers": [1] * 12}
    found = says(config, "W16")
    rules = does(config, "layers without rotation")
    assert rules["transformers-5"] == "none of 12"
    assert rules["llama.cpp"] == "every 4th of 12"
    assert mentions(found, "none of 12", "llama.cpp")
    answer = audited(config).answer
    assert "do not: llama.cpp" in answer and "all" not in answer.split(";")[0]


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"no_rope_layer_interval": 3},
        {"no_rope_layers": [1, 0] * 6},
        {"no_rope_layers": [0] * 12},
    ],
)
def test_layers_without_rotation_are_those_of_the_class(keys: dict[str, Any]) -> None:
    """Names of layers compared with transformers' own configuration object."""
    from transformers import SmolLM3Config

    listed = SmolLM3Config(**{**SMOLLM3, **keys}).no_rope_layers
    skipped = [layer for layer, rotates in enumerate(listed or []) if not rotates]
    found = f"{says({**SMOLLM3, **keys}, 'W16')} {says({**SMOLLM3, **keys}, 'N04')}"
    words = found.partition("layers without rotation: ")[2].partition(" of 12")[0]
    if words.startswith("every "):
        step = int(words.removeprefix("every ")[:1])
        assert skipped == list(range(step - 1, 12, step))
    # every runtime that reads the file skips what the class does
    elif not found.strip():
        assert keys == {}
    elif words.startswith("all 12 in transformers-5, transformers-4.57,"):
        assert words.endswith("mlx-lm; every 4th")
        assert skipped == list(range(12))
    else:
        assert words.split(", ")[:6] == [str(layer) for layer in skipped]


@pytest.mark.parametrize("kind", ["afmoe", "cohere2", "exaone4", "exaone_moe", "flint"])
def test_layers_that_see_everything_may_rotate_nothing(kind: str) -> None:
    types = [
        "sliding_attention",
        "sliding_attention",
        "sliding_attention",
        "full_attention",
    ]
    config = {
        "model_type": kind,
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "head_dim": 128,
    }
    config |= {"num_hidden_layers": 8, "layer_types": types * 2, "sliding_window": 512}
    assert does(config, "layers without")["transformers-5"] == "every 4th of 8"


def test_llama_4s_list_and_its_factor_on_queries() -> None:
    config = {**LLAMA4, "no_rope_layers": [1] * 8, "attn_scale": 0.2}
    found = says(config, "W16")
    rules = does(config, "layers without")
    assert rules["transformers-5"] == "none of 8"
    for name in ("transformers-4.51", "sglang", "llama.cpp"):
        assert rules[name] == "every 4th of 8"
    factors = does(config, "factor on queries")
    assert mentions(factors["transformers-5"], 0.2, 8192)
    assert mentions(factors["llama.cpp"], 0.1, 8192)
    assert mentions(found, 0.2, "transformers-5", 0.1, "llama.cpp")
    found = says({**LLAMA4, "attn_temperature_tuning": False}, "W16")
    assert "none in transformers-5" in found


def test_dual_chunk_attention_is_not_called_agreement() -> None:
    block = {
        "chunk_size": 262144,
        "local_size": 8192,
        "original_max_position_embeddings": 262144,
    }
    config = {**QWEN2, "dual_chunk_attention_config": block}
    found = says(config, "W16")
    effects = does(config, "dual_chunk_attention_config")
    assert effects["transformers-5"] == effects["mlx-lm"] == "without effect"
    assert effects["sglang"] == "chunks of 262144 tokens"
    assert "vllm" in found.partition("not looked at in")[2]
    assert "all" not in audited(config).answer.partition(";")[0]
    found = says({**QWEN2, "use_logn_attn": True, "use_dynamic_ntk": True}, "N04")
    for key in ("use_logn_attn", "use_dynamic_ntk"):
        assert mentions(found, key, "without effect", "transformers-5")
    assert found.count("transformers-5") == 2
    assert says({**QWEN2, "use_logn_attn": False}, "N04") == ""


def test_interleaved_axes_get_other_pairs_than_they_ask_for() -> None:
    """[16, 24, 24] becomes [22, 21, 21], counted in transformers' own tables."""
    from transformers import Qwen3VLTextConfig
    from transformers.models.qwen3_vl.modeling_qwen3_vl import (
        Qwen3VLTextRotaryEmbedding,
    )

    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4}
    rope["mrope_section"] = [16, 24, 24]
    sizes: dict[str, Any] = {
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "head_dim": 128,
    }
    module = Qwen3VLTextRotaryEmbedding(
        Qwen3VLTextConfig(**sizes, rope_parameters=rope)
    )
    counts = []
    for axis in range(3):
        positions = torch.zeros(3, 1, 1, dtype=torch.long)
        positions[axis] = 1000  # only the pairs of this axis rotate
        cos, _ = module(torch.zeros(1, 1, 128), positions)
        counts.append(int(np.count_nonzero(cos[0, 0, :64].numpy() != 1)))
    whole = {"model_type": "qwen3_vl_text", **sizes, "max_position_embeddings": 4096}
    found = says({**whole, "rope_scaling": {**rope, "mrope_interleaved": True}}, "N04")
    assert counts == [22, 21, 21]
    asked = "[22, 21, 21]", "interleaved", "[16, 24, 24]"
    assert mentions(found, *asked, "transformers-5", "sglang")
    found = says({**whole, "rope_scaling": rope}, "W16")
    assert mentions(found, "[16, 24, 24]", "in runs", "sglang")


def test_axes_of_ernie_are_not_called_agreement() -> None:
    config = {
        **QWEN2,
        "model_type": "ernie4_5_moe_vl",
        "rope_3d": True,
        "freq_allocation": 20,
    }
    config["architectures"] = ["Ernie4_5_VLMoeForConditionalGeneration"]
    assert mentions(says(config, "N04"), "axis", "not looked at", "vllm")
    assert mentions(audited(config).answer, "not looked at", "in all")
    assert says({**config, "rope_3d": False}, "N04") == ""


def test_bases_of_local_layers_that_a_reader_does_not_know() -> None:
    config = {
        "model_type": "laguna",
        "hidden_size": 2304,
        "num_attention_heads": 8,
        "head_dim": 256,
        "num_hidden_layers": 4,
        "layer_types": ["full_attention", "sliding_attention"] * 2,
        "max_position_embeddings": 32768,
    }
    found = says(config, "N04")
    assert mentions(found, "sliding_attention", "base 10000", "transformers-5")
    assert mentions(found, "not looked at", "tensorrt-llm")
    assert mentions(
        audited(config).answer, "not looked at", "in all", "sliding_attention"
    )


def test_gemma_3s_base_of_local_layers_is_read_in_every_runtime_that_has_it() -> None:
    config = {
        "model_type": "gemma3_text",
        "hidden_size": 2304,
        "num_attention_heads": 8,
        "head_dim": 256,
        "max_position_embeddings": 32768,
        "rope_theta": 1e6,
        "rope_local_base_freq": 10000.0,
    }
    assert says(config, "N04") == ""
    assert not says(config, "W16")


@pytest.mark.parametrize(
    "odd",
    [
        {"no_rope_layers": "1"},
        {"no_rope_layer_interval": 0},
        {"num_hidden_layers": 1e30},
        {"num_hidden_layers": 10**9},
        {"no_rope_layers": [1, 0]},
        {"mrope_section": [1]},
        {"dual_chunk_attention_config": "x" * 10000},
        {"rope_scaling": {"rope_type": "default", "mrope_section": [1, None, 2]}},
        {"attn_scale": "x" * 1000, "floor_scale": [1]},
    ],
)
def test_odd_values_are_not_looked_at(odd: dict[str, Any]) -> None:
    for config in (SMOLLM3, LLAMA4):
        assert len(audited({**config, **odd}).answer) < 1000


def test_a_smaller_second_file_is_a_draft_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = {**QWEN2, "num_hidden_layers": 28, "max_position_embeddings": 131072}
    block = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
    }
    target["rope_scaling"] = block
    small = {
        **QWEN2,
        "num_hidden_layers": 1,
        "max_position_embeddings": 2048,
        "rope_theta": 1e4,
    }
    found = [*compare_draft(audited(target), audited(small))]
    assert [(one.code, one.level) for one in found] == [
        ("W17", "warn"),
        ("N05", "note"),
    ]
    assert mentions(found[0].says, 2048, 131072)
    assert mentions(found[1].says, "base 10000", "1e7", "unscaled", "yarn(factor=4")
    assert not [
        *compare_draft(audited(small), audited(target))
    ]  # the larger is no draft
    assert not [*compare_draft(audited(target), audited(target))]
    asked = replace(audited(target), requested_length=2048)
    assert {one.code for one in compare_draft(asked, audited(small))} == {"N05"}
    same = {**target, "num_hidden_layers": 2}
    assert not [*compare_draft(audited(target), audited(same))]
    paths = []
    for name, config in (("target", target), ("draft", small)):
        paths.append(str(tmp_path / f"{name}.json"))
        Path(paths[-1]).write_text(json.dumps(config))
    with pytest.raises(SystemExit) as ended:
        main(["audit", *paths, "--fail-on", "warn"])
    assert ended.value.code == 3
    assert mentions(capsys.readouterr().out, "W17 warn")


INDEXED: dict[str, Any] = {
    "model_type": "glm_moe_dsa",
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 192,
    "index_head_dim": 128,
    "rope_theta": 1e6,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"indexer_rope_interleave": True}, "N04"),
        # transformers' class pairs neighbours without the key, SGLang's halves.
        ({}, "W16"),
        ({"model_type": "deepseek_v32"}, "N04"),
    ],
)
def test_the_indexer_is_a_rotation_of_its_own(changes: Any, code: str) -> None:
    config = {**INDEXED, **changes}
    result = audit(Document("a", "config", config), precision=False)
    (finding,) = (one for one in result.findings if "indexer" in one.says)
    assert finding.code == code
    assert "llama.cpp" in finding.says.partition("not looked at")[2]
    assert "W01" not in {one.code for one in result.findings}


def list_extra(config: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the rows of a rotation beside that of attention, by runtime."""
    result = audit(Document("a", "config", config), precision=False)
    rows = [row for row in result.rows["runtimes"] if row["rotation"] == name]
    return {row["runtime"]: row for row in rows}


@pytest.mark.parametrize(
    ("changes", "pairings"),
    [
        # transformers' class has adjacent pairs in its code, MLX-LM's by default.
        ({}, {"transformers-5": "interleaved", "mlx-lm": "interleaved"}),
        ({}, {"vllm": "half", "sglang": "half"}),
        ({"indexer_rope_interleave": True}, {"vllm": "interleaved"}),
        ({"indexer_rope_interleave": False}, {"mlx-lm": "half"}),
        ({"model_type": "deepseek_v32"}, {"transformers-5": "half", "vllm": "half"}),
        ({"model_type": "hy_v4"}, {"transformers-5": "half"}),
        ({"model_type": "mistral_large4_text"}, {"transformers-5": "interleaved"}),
    ],
)
def test_the_indexer_has_a_row_for_each_runtime(
    changes: dict[str, Any], pairings: dict[str, str]
) -> None:
    config = {**INDEXED, "rope_parameters": {"rope_theta": 1e6}, **changes}
    rows = list_extra(config, "indexer")
    for runtime, pairing in pairings.items():
        row = rows[runtime]
        place = 64 if changes.get("model_type") == "hy_v4" else 0
        assert (row["pairing"], row["place"]) == (pairing, place)
        assert (row["rotary_dim"], row["head_dim"]) == (64, 128)


def test_a_runtime_whose_indexer_was_not_read_has_a_row_without_values() -> None:
    row = list_extra({**INDEXED, "model_type": "deepseek_v32"}, "indexer")["llama.cpp"]
    assert row["outcome"] == "not modelled"
    assert "base" not in row


def test_an_indexer_narrower_than_what_rotates_is_refused() -> None:
    row = list_extra({**INDEXED, "index_head_dim": 32}, "indexer")["transformers-5"]
    assert row["outcome"] == "refused"


def test_compressed_keys_have_the_frequencies_of_their_layers() -> None:
    block = {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536}
    config: dict[str, Any] = {"model_type": "deepseek_v4", "rope_theta": 10000.0}
    config |= {"compress_rope_theta": 160000.0, "rope_scaling": block}
    rows = list_extra(config, "compressed_keys")
    assert rows.keys() == {"transformers-5", "vllm", "sglang"}
    for row in rows.values():
        assert (row["base"], row["place"], row["pairing"]) == (
            160000,
            448,
            "interleaved",
        )
        assert row["pairs_divided"] > 0


def test_a_second_file_is_compared_by_each_rotation() -> None:
    adjacent = {**INDEXED, "indexer_rope_interleave": True}
    wider = {**adjacent, "index_head_dim": 256, "rope_theta": 1e4}
    first, second = (
        audit(Document("a", "config", config), precision=False)
        for config in (adjacent, wider)
    )
    changed = {row["what"] for row in compare(first, second)}
    assert {"base", "base, indexer"} <= changed


def test_sglang_has_a_table_of_deepseek_v4_without_a_factor() -> None:
    block = {"type": "yarn", "factor": 16, "original_max_position_embeddings": 4096}
    config = {"model_type": "deepseek_v4", "rope_theta": 10000, "rope_scaling": block}
    config["compress_rope_theta"] = 160000
    result = audit(Document("a", "config", config), precision=False)
    assert not {"W01", "W04"} & {one.code for one in result.findings}


def test_what_a_class_puts_into_its_block_is_known() -> None:
    block = {"type": "yarn", "factor": 128, "original_max_position_embeddings": 8192}
    block |= {"max_position_embeddings": 1048576, "llama_4_scaling_beta": 0.1}
    config = {**INDEXED, "model_type": "mistral4", "rope_parameters": block}
    result = audit(Document("a", "config", config), precision=False)
    assert "W01" not in {one.code for one in result.findings}


def test_mlx_lms_indexer_goes_by_the_key() -> None:
    says = {}
    for given in (None, True):
        config = {**INDEXED, "model_type": "deepseek_v32"}
        if given is not None:
            config["indexer_rope_interleave"] = given
        result = audit(Document("a", "config", config), precision=False)
        (says[given],) = (one.says for one in result.findings if "indexer" in one.says)
    assert "pairs of halves in transformers-5, vllm, sglang, mlx-lm" in says[None]
    assert "adjacent pairs in vllm, sglang, mlx-lm" in says[True]


MISTRAL4 = {
    "model_type": "mistral3",
    "architectures": ["Mistral3ForConditionalGeneration"],
    "text_config": {
        **INDEXED,
        "model_type": "mistral4",
        "head_dim": 128,
        "qk_nope_head_dim": 64,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 128.0,
            "original_max_position_embeddings": 8192,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
}


def test_runtimes_without_a_class_for_mistral_4_are_not_accused() -> None:
    """SGLang and vLLM have none; llama.cpp's factor is the same."""
    result = audit(Document("a", "config", MISTRAL4), precision=False)
    assert not {"W01", "W04", "W05", "W06"} & {one.code for one in result.findings}
    read = {each.runtime.name for each in result.readings if each.layers}
    assert "transformers-5" in read
    assert not {"vllm", "sglang"} & read


@pytest.mark.parametrize(("value", "codes"), [(True, []), (False, ["W16"])])
def test_pairs_that_some_runtimes_take_from_the_file(
    value: bool, codes: list[str]
) -> None:
    """vLLM and MLX-LM pair neighbours in latent attention, whatever the file says."""
    config = {
        "model_type": "deepseek_v3",
        "architectures": ["DeepseekV3ForCausalLM"],
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "qk_rope_head_dim": 64,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "rope_interleave": value,
    }
    pairs = does(config, "pairs of features")
    assert pairs["vllm"] == pairs["mlx-lm"] == "adjacent"
    assert pairs["transformers-5"] == ("adjacent" if value else "halves")
    found = [f.code for f in audited(config).findings if "pairs of" in f.says]
    assert found == codes


def test_sglang_alone_reads_the_pairs_of_a_llama() -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "rope_is_neox_style": False,
    }
    pairs = does(config, "pairs of features")
    assert pairs["sglang"] == "adjacent"
    assert {words for name, words in pairs.items() if name != "sglang"} == {"halves"}


@pytest.mark.parametrize("is_whole", [False, True])
def test_axes_that_no_key_gives_are_said_to_be_unread(is_whole: bool) -> None:
    """Isaac in vLLM has sections of a quarter and two eighths of a head (isaac.py:829)."""
    part = {
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "head_dim": 128,
        "num_hidden_layers": 8,
        "max_position_embeddings": 8192,
        "rope_theta": 1e6,
    }
    names = {
        "model_type": "isaac",
        "architectures": ["IsaacForConditionalGeneration"],
        "auto_map": {"AutoConfig": "configuration.Config"},
    }
    config = {**names, **part}
    if is_whole:
        config = {**names, "text_config": {**part, "model_type": "qwen3"}}
    result = audit(Document("a", "config", config), runtime="vllm", precision=False)
    (note,) = [one for one in result.findings if one.code == "N04"]
    assert note.says == "pairs per position axis, for images: not looked at in vllm"


def test_factors_that_are_in_the_weights_alone_are_not_looked_at() -> None:
    """modeling_mistral_large4.py:123 of transformers 5.24.0 multiplies frequencies."""
    name = "factor on each frequency, in the weights"
    for kind, expected in (("mistral_large4_text", [name]), ("mistral4", [])):
        config = {**INDEXED, "model_type": kind, "rope_parameters": {"rope_theta": 1e6}}
        config["rope_parameters"]["llama_4_scaling_beta"] = 0.1
        config["rope_parameters"]["original_max_position_embeddings"] = 4096
        case_text = json.dumps(audit(Document("a", "config", config)).rows)
        assert [name] * (name in case_text) == expected
