"""Configurations whose outcome is known, and the command around them."""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt

import ropelab
from ropelab.audit.audited import audit
from ropelab.audit.comparison import compare
from ropelab.audit.words import group_alike
from ropelab.math.scaling import Yarn
from ropelab.readers.document import Document, parse_document
from ropelab.readers.flags import parse_flags
from ropelab.readers.registry import RUNTIMES, read
from ropelab.runs.errors import InputError
from ropelab.show.figures.audit import draw
from tests.imports import imported_by
from tests.readers.test_gguf import write
from tests.test_cli import call
from tests.texts import mentions

__all__ = ["call"]  # a fixture

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32}
QWEN: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
    },
}


def audited(config, **options):
    return audit(Document("test", "config", config), **options)


def codes(result, level=None):
    return {f.code for f in result.findings if level in (None, f.level)}


def spec_of(config, runtime, flags=None):
    return read(RUNTIMES[runtime], config, flags).main_spec


def test_the_model_cards_yarn_is_switched_off_by_some():
    """inv_freq[40] and the attention factor, recomputed by hand from the formulas."""
    for name in ("transformers-5", "vllm", "sglang", "mlx-lm"):
        spec = spec_of(QWEN, name)
        assert spec.inv_freq(1)[40] == pytest.approx(4.445698525097307e-05)
        assert spec.attention_factor == pytest.approx(1.138629436111989)
    for name in ("transformers-4.55", "transformers-4.51", "exllamav3"):
        spec = spec_of(QWEN, name)
        assert spec.inv_freq(1)[40] == pytest.approx(1.7782794100389227e-04)
        assert spec.attention_factor == 1.0
    assert spec_of(QWEN, "vllm").claimed_len == 32768
    result = audited(QWEN)
    # One cause, one finding, with what to write.
    assert codes(result) - {"N01", "N03"} == {"E02", "E08"}
    (found,) = (f for f in result.findings if f.code == "E08")
    assert "transformers-4.55" in found.says
    assert found.do.startswith('"max_position_embeddings": 131072 ')
    # The advice is tried in all runtimes; what it breaks is named with it.
    assert "transformers-4.48" in found.do

    mended = audited({**QWEN, "max_position_embeddings": 131072})
    (apart,) = (f for f in mended.findings if f.code == "W03")
    assert "transformers-4.48 131072" in apart.says


def test_advice_that_misleads_nobody_has_no_exception():
    result = audited(QWEN, runtime="transformers-5,transformers-4.55,vllm")
    (found,) = (f for f in result.findings if f.code == "E08")
    assert found.do == '"max_position_embeddings": 131072'
    (row,) = [r for r in result.rows["runtimes"] if r["runtime"] == "vllm"]
    assert (row["pairs_kept"], row["pairs_blended"], row["pairs_divided"]) == (
        24,
        16,
        24,
    )


def test_an_unknown_magnitude_key_is_read_by_one():
    block = {**QWEN["rope_scaling"], "attn_factor": 0.8782488562869419}
    config = {**QWEN, "max_position_embeddings": 131072, "rope_scaling": block}
    assert spec_of(config, "sglang").attention_factor == pytest.approx(1.0, rel=1e-12)
    assert spec_of(config, "transformers-5").attention_factor == pytest.approx(
        1.1386294
    )
    assert "W01" in codes(audited(config))


def test_attention_factor_one_is_a_factor_two_on_the_logits():
    block = {
        "rope_type": "yarn",
        "factor": 64.0,
        "original_max_position_embeddings": 4096,
    }
    config = {
        **LLAMA,
        "max_position_embeddings": 262144,
        "rope_theta": 500000.0,
        "rope_scaling": {**block, "attention_factor": 1.0},
    }
    multipliers = {
        n: spec_of(config, n).logit_multiplier for n in ("transformers-5", "sglang")
    }
    assert multipliers["transformers-5"] == 1.0
    assert multipliers["sglang"] == pytest.approx(1.415888**2, rel=1e-6)
    assert "W04" in codes(audited(config))


def test_the_untruncated_ramp_of_gpt_oss():
    config = {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "num_attention_heads": 64,
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "rope_theta": 150000,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
    }
    ours, mlx = (spec_of(config, name) for name in ("transformers-5", "mlx-lm"))
    ratio = mlx.inv_freq(1)[17] / ours.inv_freq(1)[17]
    assert max(ratio, 1 / ratio) == pytest.approx(1.7626823777263017)
    assert ours.attention_factor == pytest.approx(1.3465735902799727)


def test_two_types_are_an_error():
    block = {"type": "linear", "rope_type": "yarn", "factor": 4.0}
    block["original_max_position_embeddings"] = 4096
    config = {**LLAMA, "max_position_embeddings": 16384, "rope_scaling": block}
    assert spec_of(config, "transformers-5").scaling.name == "yarn"
    for name in ("transformers-4.57", "mlx-lm", "tensorrt-llm"):
        assert spec_of(config, name).scaling.name == "pi"
    assert read(RUNTIMES["vllm"], config).outcome == "refused"
    assert {"E01", "E02"} <= codes(audited(config), "error")


def test_a_length_that_counts_the_factor_twice():
    block = {"factor": 4.0, "type": "linear"}
    config = {**LLAMA, "max_position_embeddings": 16384, "rope_scaling": block}
    assert (
        spec_of(config, "vllm").claimed_len
        == spec_of(config, "sglang").claimed_len
        == 65536
    )
    assert spec_of(config, "transformers-5").claimed_len == 16384
    assert "E07" in codes(audited(config))


def test_a_length_that_the_file_states_is_not_counted_twice():
    """Vicuna 1.5 16k: vLLM multiplies 4096, which is right; SGLang 16384, the length
    after it.
    """
    lengths = {"max_position_embeddings": 4096, "max_sequence_length": 16384}
    config = {**LLAMA, **lengths, "rope_scaling": {"factor": 4.0, "type": "linear"}}
    (one,) = [finding for finding in audited(config).findings if finding.code == "E07"]
    assert mentions(one.says, "sglang", 65536, 16384)
    other = {**config, "max_sequence_length": None, "vocab_size": 16384}
    assert codes(audited(other)) >= {"E07"}


def test_a_factor_of_1_is_no_scaling() -> None:
    """InternLM 2 in vLLM, and what llama.cpp's converter writes without a block."""
    dynamic = {"rope_scaling": {"type": "dynamic", "factor": 2.0}, **LENGTH}
    assert spec_of({**LLAMA, **dynamic}, "vllm").method == "unscaled"
    assert spec_of({**LLAMA, **LENGTH}, "llama.cpp").method == "unscaled"


def test_claimed_lengths_that_differ():
    """Command-R's file: vLLM and SGLang read model_max_length, the others do not."""
    config = {**LLAMA, "max_position_embeddings": 8192, "model_max_length": 131072}
    assert (
        spec_of(config, "vllm").claimed_len
        == spec_of(config, "sglang").claimed_len
        == 131072
    )
    (finding,) = [f for f in audited(config).findings if f.code == "W15"]
    assert "131072 in vllm, sglang" in finding.says


def test_a_version_5_file_loses_its_base_in_version_4():
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_theta": 500000.0,
    }
    config = {**LLAMA, "max_position_embeddings": 131072, "rope_parameters": llama3}
    assert spec_of(config, "transformers-4.57").base == 10000.0
    result = audited(config)
    assert {"E03", "E08"} <= codes(result, "error")
    # The base alone: mean cosine of the phase error at a few distances.
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 500000.0}
    right, wrong = (
        spec_of(config, n).inv_freq(1) for n in ("transformers-5", "mlx-lm")
    )
    means = [np.cos(d * (right - wrong)).mean() for d in (10, 100, 1000, 8192)]
    np.testing.assert_allclose(means, (0.8714, 0.5136, 0.1932, 0.0137), atol=5e-5)


def test_nesting_layers_and_latent_attention():
    gemma = {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "num_attention_heads": 8,
            "head_dim": 256,
            "max_position_embeddings": 131072,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        },
    }
    reading = read(RUNTIMES["transformers-5"], gemma)
    assert reading.layers["full_attention"].scaling.label == "pi(factor=8)"
    assert reading.layers["sliding_attention"].base == 10000.0
    assert any(use.path == "text_config.rope_scaling.factor" for use in reading.keys)
    latent = {
        "model_type": "deepseek_v3",
        "qk_rope_head_dim": 64,
        "num_attention_heads": 8,
    }
    spec = spec_of({**latent, "max_position_embeddings": 4096}, "transformers-5")
    assert (spec.rotary_dim, spec.pairing) == (64, "interleaved")


def test_a_row_for_each_layer_type_of_a_version_5_file():
    """Per layer type: base, width and scaling of its own block; sliding layers rotate
    faster.
    """
    layers = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    config = {
        "model_type": "gemma3_text",
        "head_dim": 256,
        "max_position_embeddings": 131072,
    }
    config["layer_types"] = ["sliding_attention", "full_attention"]
    result = audited(
        {**config, "rope_parameters": layers}, runtime=("transformers-5", "vllm")
    )
    rows = {(row["runtime"], row["layers"]): row for row in result.rows["runtimes"]}
    for name in ("transformers-5", "vllm"):
        full, sliding = rows[name, "full_attention"], rows[name, "sliding_attention"]
        assert (full["base"], full["pairs_divided"], full["pairs_kept"]) == (
            1e6,
            128,
            0,
        )
        assert (sliding["base"], sliding["pairs_divided"], sliding["pairs_kept"]) == (
            1e4,
            0,
            128,
        )
    assert [row["layers"] for row in result.rows["context"]] == list(layers)


def test_several_position_axes_change_no_frequency():
    block = {"type": "mrope", "mrope_section": [16, 24, 24]}
    config = {**LLAMA, "model_type": "qwen2_vl", "max_position_embeddings": 32768}
    for name in ("transformers-5", "transformers-4.57", "vllm"):
        spec = spec_of({**config, "rope_scaling": block}, name)
        assert (spec.scaling.name, spec.base) == ("unscaled", 1e6)


def test_entries_beside_layer_types_do_nothing():
    yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 5e5, "truncate": False}
    yarn["original_max_position_embeddings"] = 4096
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    config = {
        **LLAMA,
        "model_type": "mellum",
        "max_position_embeddings": 16384,
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": yarn,
            "sliding_attention": plain,
            "original_max_position_embeddings": 8192,
        },
    }
    reading = read(RUNTIMES["transformers-5"], config)
    assert reading.main_spec is not None
    assert reading.main_spec.trained_len == 4096
    assert isinstance(reading.main_spec.scaling, Yarn)
    assert reading.main_spec.scaling.truncate is True
    assert "W11" in codes(audited(config))


def test_flags_belong_to_their_runtime():
    plain = {**LLAMA, "max_position_embeddings": 8192, "rope_theta": 500000.0}
    flags = parse_flags(
        "-c 32768 --rope-scaling yarn --rope-scale 4 --yarn-attn-factor 1.0"
    )
    result = audited(plain, flags=flags, runtime=("llama.cpp",))
    spec = result.reference.main_spec
    assert spec.attention_factor == pytest.approx(1.138629436111989)
    assert spec.claimed_len == 32768
    overrides = (
        '{"rope_parameters": {"rope_type": "linear", "rope_theta": 1e6, "factor": 2.0}}'
    )
    flags = parse_flags(f"--hf-overrides '{overrides}' --max-model-len 16384")
    assert (
        audited(plain, flags=flags, runtime=("vllm",)).reference.main_spec.base == 1e6
    )
    assert audited(plain, flags=flags).length == 16384
    unset = parse_flags("--rope-scaling linear --rope-scale 4 --yarn-ext-factor -1")
    assert (
        audited(
            plain, flags=unset, runtime=("llama.cpp",)
        ).reference.main_spec.scaling.factor
        == 4
    )
    with pytest.raises(InputError, match="--max-model-len must be a number"):
        parse_flags("--max-model-len banana")
    with pytest.raises(InputError, match="did you mean '--rope-scale'"):
        parse_flags("--rope-scal 4")


def test_a_key_from_a_flag_is_listed_where_the_file_has_null():
    config = {**LLAMA, "max_position_embeddings": 8192, "rope_scaling": None}
    flags = """--json-model-override-args '{"rope_scaling": {"type": "linear", "factor": 8.0}}'"""
    rows = audited(config, flags=parse_flags(flags)).rows["keys"]
    values = {row["key"]: row["value"] for row in rows}
    assert values["rope_scaling.factor"] == "from a flag"


@pytest.mark.parametrize(
    "runtimes", [("ollama", "transformers-5"), ("transformers-5", "ollama")]
)
def test_each_runtime_says_why_it_does_what_it_does_with_a_key(runtimes):
    config = {**LLAMA, "max_position_embeddings": 8192, "rope_theta": 500000.0}
    rows = audited(config, runtime=runtimes).rows["keys"]
    (row,) = (row for row in rows if row["key"] == "rope_theta")
    assert row["notes"] == {
        "transformers-5": "moved into rope_parameters",
        "ollama": "written as rope.freq_base",
    }


def test_a_clean_file_and_a_difference(tmp_path):
    one = audited({**LLAMA, "max_position_embeddings": 8192, "rope_theta": 500000.0})
    assert one.worst() == ""
    assert mentions(one.answer, f"all {len(RUNTIMES)} runtimes")
    other = audited({**LLAMA, "max_position_embeddings": 8192, "rope_theta": 10000.0})
    rows = compare(one, other)
    row = {"what": "rope_theta", "first": "500000.0", "second": "10000.0"}
    assert {**row, "runtimes": ""} in rows
    assert {**row, "what": "base", "runtimes": "all"} == {
        key: str(value) for key, value in rows[-1].items()
    }
    assert compare(one, one) == []


def test_a_file_without_model_type_is_noted(tmp_path: Path) -> None:
    from transformers import AutoConfig

    config = {key: value for key, value in QWEN.items() if key != "model_type"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="model_type"):
        AutoConfig.from_pretrained(tmp_path)
    assert "N06" in codes(audited(config), "note")
    assert "N06" not in codes(audited(QWEN))


def test_the_next_command_can_be_typed(tmp_path: Path, call: Any) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({**LLAMA, "max_position_embeddings": 8192})
    )
    write(tmp_path / "model.gguf")
    status, out, _ = call("audit", "config.json", "--length", "64")
    command = shlex.split(out.partition("next")[2])
    assert (status, command[:2]) == (0, ["ropelab", "emit"])
    assert call(*command[1:])[0] in (0, 3)
    assert "next" not in call("audit", "model.gguf")[1]


def test_layer_types_of_one_file_alone_are_differences() -> None:
    one = audited({**LLAMA, "max_position_embeddings": 8192, "rope_theta": 500000.0})
    other = audited(
        {**LLAMA, "max_position_embeddings": 8192, "model_type": "gemma3_text"}
    )
    for rows in (compare(one, other), compare(other, one)):
        assert {"base", "base, sliding_attention layers"} <= {
            row["what"] for row in rows
        }


def test_a_folder_with_a_short_tokenizer(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 2048}')
    assert "W14" in codes(audit(str(tmp_path), length=4096))
    assert "W14" in codes(audit(str(tmp_path)))
    assert "W14" not in codes(audit(str(tmp_path), length=2048))
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": true}')
    assert "W14" not in codes(audit(str(tmp_path)))


def test_mistrals_own_format():
    params = {"dim": 5120, "n_heads": 32, "head_dim": 128, "rope_theta": 1e6}
    params["max_position_embeddings"] = 131072
    yarn = {
        "factor": 8.0,
        "original_max_position_embeddings": 16384,
        "beta": 32,
        "alpha": 1,
    }
    document = parse_document(
        "params.json", json.dumps({**params, "yarn": yarn}).encode()
    )
    assert document.kind == "params"
    spec = audit(document).reference.main_spec
    assert spec is not None
    assert (spec.scaling.name, spec.head_dim, spec.trained_len) == ("yarn", 128, 16384)


def test_figures_title_what_they_show(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN))
    figures = draw(audit(str(path)).tables)
    assert mentions(figures["ratios"].axes[0].get_title(), "2 different ways")
    lines = figures["wavelengths"].axes[0].get_lines()
    assert len(lines) == 3  # two ways, and the length
    plt.close("all")


def test_an_audit_is_tables_in_python(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN))
    call: Any = ropelab.audit  # the room itself is called
    tables = call(str(path), runtime="vllm", length=4096).tables
    assert list(tables["runtimes"].runtime) == ["vllm"]
    assert list(tables["context"].length_tokens) == [4096]
    assert len(tables["pairs"]) == 64


def run(*arguments, text=None):
    command = [sys.executable, "-m", "ropelab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, input=text)


@pytest.mark.processes
def test_the_command_and_its_statuses(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN))
    done = run("audit", str(path), "--json")
    assert done.returncode == 3
    (file,) = json.loads(done.stdout)["files"]
    assert set(file["tables"]) == {
        "runtimes",
        "keys",
        "pairs",
        "context",
        "precision",
        "findings",
    }
    assert run("audit", str(path), "--fail-on", "never").returncode == 0
    clean = json.dumps({**LLAMA, "max_position_embeddings": 8192})
    assert run("audit", "-", text=clean).returncode == 0
    nothing = run("audit", "-", text="{}")
    assert nothing.returncode == 2
    assert nothing.stderr.count("\n") == 1
    assert mentions(nothing.stderr, "no keys")


@pytest.mark.processes
def test_the_command_imports_nothing_heavy(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN))
    assert imported_by("audit", path, "--json") == (3, {"numpy"})
    assert imported_by("audit", path) == (3, {"numpy"})


def tables_of(config, **options):
    """Format and largest error of the stored cos and sin, by runtime."""
    rows = audited(config, length=64, **options).rows["precision"]
    return {
        name: (row["table_format"], row["table_error"])
        for row in rows
        for name in row["runtimes"].split(", ")
    }


def test_tables_follow_the_models_format_where_the_runtime_stores_them_so():
    """Rounding to p bits moves a value in [1/2, 1] by at most 2^-(p+1): 2^-9 in
    bfloat16.

    Angles are below 64 rad: half a last place of float32 is 2^-19 there, and the
    recurrence of llama.cpp rounds a few times.
    """
    config = {**LLAMA, "max_position_embeddings": 8192, "rope_theta": 500000.0}
    for name, precision in (("bfloat16", 8), ("float16", 11)):
        stored = tables_of(config, dtype=name)
        for runtime in ("transformers-5", "transformers-4.44", "vllm", "tgi"):
            assert stored[runtime][0] == name
            assert 0.4 < stored[runtime][1] * 2 ** (precision + 1) <= 1.01
        for runtime in (
            "sglang",
            "mlx-lm",
            "exllamav3",
            "tensorrt-llm",
            "llama.cpp",
            "ollama",
        ):
            assert stored[runtime][0] == "float32"
            assert stored[runtime][1] < 2**-17


def test_the_files_own_format_counts_unless_another_is_asked_for():
    config = {**LLAMA, "max_position_embeddings": 8192, "torch_dtype": "float16"}
    assert tables_of(config)["vllm"][0] == "float16"
    assert tables_of({**config, "torch_dtype": None})["vllm"][0] == "bfloat16"
    assert tables_of(config, dtype="float32")["vllm"][0] == "float32"


def test_sglang_keeps_the_tables_of_longrope_in_the_models_format():
    lists = {"short_factor": [1.0] * 64, "long_factor": [4.0] * 64}
    config = {**LLAMA, "max_position_embeddings": 131072, "torch_dtype": "float16"}
    config["original_max_position_embeddings"] = 4096
    config["rope_scaling"] = {"rope_type": "longrope", "type": "longrope", **lists}
    assert tables_of(config)["sglang"][0] == "float16"


def test_a_base_from_a_flag_names_the_flag() -> None:
    config = {**LLAMA, "max_position_embeddings": 8192, "rope_theta": 500000.0}
    found = audited(
        config, runtime="transformers-5,llama.cpp", flags="--rope-freq-base 20000"
    )
    (one,) = [finding for finding in found.findings if finding.code == "E03"]
    assert mentions(one.says, "llama.cpp", 20000, "--rope-freq-base", "not 500000")
    assert one.do == "leave --rope-freq-base off"


def test_precision_is_that_of_the_command_at_every_position():
    """One implementation: Llama 3.1 in ggml's chain is beyond 0.01 rad from 98,878."""
    block = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    block["original_max_position_embeddings"] = 8192
    config = {**LLAMA, "max_position_embeddings": 131072, "rope_theta": 500000.0}
    rows = {
        r["chain"]: r
        for r in audited({**config, "rope_scaling": block}).rows["precision"]
    }
    assert rows["ggml"]["angle_error_rad"] == pytest.approx(0.0134063, rel=1e-5)
    assert rows["ggml"]["beyond_from_tokens"] == 98878
    for chain in ("float32", "transformers_llama"):
        assert rows[chain]["angle_error_rad"] == pytest.approx(0.0093384, rel=1e-4)
        assert rows[chain]["beyond_from_tokens"] is None
    # Positions are searched in the order of bounds, so that a long context costs
    # little.
    start = time.process_time()
    audited(config, length=10 * 2**20)
    assert time.process_time() - start < 3


@pytest.mark.processes
def test_an_unknown_format_is_one_line(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN))
    done = run("audit", str(path), "--dtype", "bfloat61")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert mentions(done.stderr, "--dtype", "'bfloat61'", "'bfloat16'")


def test_unknown_runtimes_and_levels_are_named(tmp_path):
    with pytest.raises(InputError, match="did you mean 'sglang'"):
        audited(QWEN, runtime=("sglan",))


def test_an_error_rests_on_a_reader_that_was_compared() -> None:
    """TGI passes over linear scaling, which only its source says."""
    config = {**LLAMA, **LENGTH, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    result = audited(config, runtime=("transformers-5", "tgi"))
    assert ("E08", "warn") in {(f.code, f.level) for f in result.findings}
    assert result.worst() == "warn"


def test_equal_runtimes_are_one_line() -> None:
    result = audited({**QWEN, "max_position_embeddings": 131072, "rope_scaling": None})
    ((words, names),) = group_alike(result, result.rows["runtimes"])
    assert mentions(words, "base 1e6", 128, "unscaled", 131072)
    run = {"vllm", "sglang", "mlx-lm", "exllamav3", "llama.cpp"}
    assert run | {"tensorrt-llm*", "tgi*"} <= set(names.split(", "))


def test_a_table_of_divisors_is_not_called_unscaled() -> None:
    factors = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling = {
        "rope_type": "llama3",
        **factors,
        "original_max_position_embeddings": 8192,
    }
    llama = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
    }
    llama |= {
        "num_attention_heads": 32,
        "max_position_embeddings": 131072,
        "rope_theta": 5e5,
    }
    result = audited({**llama, "rope_scaling": scaling})
    ((words, names),) = group_alike(result, result.rows["runtimes"])
    assert words.split(", ")[2] == "29/6/29 pairs kept/blended/divided"
    assert "llama.cpp" in names


GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 2880,
    "head_dim": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 24,
    "max_position_embeddings": 131072,
    "initial_context_length": 4096,
    "rope_theta": 150000,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
}


def test_the_same_counts_of_pairs_are_told_apart_by_the_pairs() -> None:
    result = audited(GPT_OSS)
    lines = group_alike(result, result.rows["runtimes"])
    (right, _), (other, names) = lines
    assert mentions(right, "9/9/14", "truncate=false")
    assert "9/9/14" not in other
    assert "mlx-lm" in names

    specs = dict(result.specs)
    ours, theirs = (
        specs[name].inv_freq(131072) for name in ("mlx-lm", "transformers-5")
    )
    different = np.flatnonzero(abs(ours / theirs - 1) > 1e-5)
    assert mentions(other, f"pairs {different[0]} to {different[-1]}", "position 46")


@pytest.mark.parametrize("kind", ["longrope", "yarn", "proportional"])
def test_the_counts_of_pairs_add_up(kind: str) -> None:
    tables = {"short_factor": [1.0] * 32, "long_factor": [1.0 + i for i in range(32)]}
    block: dict[str, Any] = {"rope_type": kind, "factor": 4.0}
    if kind == "longrope":
        block |= tables
    if kind == "proportional":
        block = {"rope_type": kind, "partial_rotary_factor": 0.25}
    block["original_max_position_embeddings"] = 8192
    config = {**GPT_OSS, "model_type": "llama", "rope_scaling": block}
    config["architectures"] = ["LlamaForCausalLM"]
    result = audited(config)
    rows = [row for row in result.rows["runtimes"] if "base" in row]
    assert rows
    for row in rows:
        names = ("kept", "blended", "divided", "otherwise")
        assert sum(row[f"pairs_{name}"] for name in names) == row["rotary_dim"] // 2

    row = rows[0]
    assert row["runtime"] == "transformers-5"
    assert (row["pairs_otherwise"] > 0) == (kind != "yarn")
    words, _ = group_alike(result, result.rows["runtimes"])[0]
    if kind == "longrope":
        assert mentions(words, "a divisor for each of 32 pairs")
        assert "kept" not in words


def test_a_type_that_a_registry_lacks_is_not_in_that_release() -> None:
    config = {**QWEN, "model_type": "exaone4", "rope_scaling": None}
    lacking = {
        name
        for name, runtime in RUNTIMES.items()
        if "is not in that release" in read(runtime, config).problem
    }
    assert {"tgi", "transformers-4.51", "transformers-4.44"} <= lacking
    assert not {"vllm", "sglang", "exllamav3", "transformers-5"} & lacking
    named = {**config, "architectures": ["LlamaForCausalLM"]}
    assert "not in that release" not in read(RUNTIMES["llama.cpp"], named).problem


def test_models_with_rules_of_their_own_in_some_runtimes() -> None:
    lists = {"short_factor": [1.0] * 16, "long_factor": [2.0] * 16}
    sizes = {"hidden_size": 2560, "num_attention_heads": 40, "qk_rope_head_dim": 32}
    block = {"type": "longrope", "original_max_position_embeddings": 4096, **lists}
    latent = {"model_type": "minicpm3", **sizes, "max_position_embeddings": 32768}
    # vLLM and SGLang give other models with latent attention DeepSeek's YaRN.
    done = audit(
        Document("x", "config", {**latent, "rope_scaling": block}), precision=False
    )
    assert not [finding for finding in done.findings if finding.code == "E02"]
    assert {"vllm", "sglang"} <= {name for name, _ in done.specs}
    switches = {
        "use_dynamic_ntk": True,
        "use_logn_attn": True,
        "rotary_emb_base": 10000,
    }
    qwen = {
        "model_type": "qwen",
        "architectures": ["QWenLMHeadModel"],
        **sizes,
        **switches,
    }
    qwen["max_position_embeddings"] = 8192
    done = audit(Document("x", "config", qwen), precision=False)
    assert [name for name, _ in done.specs] == ["mlx-lm", "llama.cpp"]
    assert {finding.code for finding in done.findings} == {"N03", "N04"}
    named = {"model_type": "phi3small", "architectures": ["Phi3SmallForCausalLM"]}
    phi = {
        **named,
        **sizes,
        "max_position_embeddings": 8192,
        "rope_embedding_base": 5e5,
    }
    done = audit(
        Document("x", "config", {**phi, "rope_position_scale": 1.0}), precision=False
    )
    assert [(name, spec.base) for name, spec in done.specs] == [
        ("sglang", 5e5),
        ("mlx-lm", 5e5),
    ]
    with pytest.raises(InputError, match="divides in SGLang and multiplies in MLX-LM"):
        audit(
            Document("x", "config", {**phi, "rope_position_scale": 4.0}),
            precision=False,
        )
    # Shortening by YaRN is a mistake of its own, and not one of the length.
    half = {
        "rope_type": "yarn",
        "factor": 0.5,
        "original_max_position_embeddings": 4096,
    }
    llama = {
        "model_type": "llama",
        **sizes,
        "max_position_embeddings": 4096,
        "rope_scaling": half,
    }
    done = audit(Document("x", "config", llama), precision=False)
    assert "W02" not in {finding.code for finding in done.findings}


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}


def test_deepseek_v2_multiplies_its_scores_from_transformers_5_on() -> None:
    block = {**YARN, "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707}
    for kind, factors in (
        ("deepseek_v2", [1.0, 1.0]),
        ("deepseek_v3", [1.5896258, 1.5896258]),
    ):
        sizes = {"qk_rope_head_dim": 64, "num_attention_heads": 16, "hidden_size": 2048}
        config = {"model_type": kind, **sizes, "rope_scaling": block}
        config["max_position_embeddings"] = 163840
        older = [
            spec_of(config, f"transformers-4.{n}").softmax_factor for n in (55, 57)
        ]
        assert older == pytest.approx(factors)
        for name in ("transformers-5", "vllm", "llama.cpp"):
            assert spec_of(config, name).softmax_factor == pytest.approx(1.5896258)


def test_a_length_that_the_file_leaves_out_is_the_classs() -> None:
    block = {"rope_type": "linear", "factor": 8.0}
    config = {"model_type": "gemma3_text", "head_dim": 128, "rope_scaling": block}
    assert {spec_of(config, name).claimed_len for name in ("vllm", "sglang")} == {
        131072
    }


def test_phimoes_factor_on_cos_and_sin_is_in_its_block() -> None:
    """1.2431631 squared; by the formula of longrope the logits would be multiplied by
    1.417.
    """
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    scales = {"short_mscale": 1.243163121016122, "long_mscale": 1.243163121016122}
    block = {
        "type": "longrope",
        **lists,
        **scales,
        "original_max_position_embeddings": 4096,
    }
    config = {"model_type": "phimoe", "hidden_size": 4096, "num_attention_heads": 32}
    config |= {"max_position_embeddings": 131072, "rope_scaling": block}
    for name in ("transformers-5", "transformers-4.57", "transformers-4.51"):
        assert spec_of(config, name).logit_multiplier == pytest.approx(1.5454545)
    # The class of 5 never takes the long table; those of 4 do.
    lowest = [
        spec_of(config, f"transformers-{n}").inv_freq(10**5)[0] for n in ("5", "4.57")
    ]
    assert lowest == [1.0, 0.5]
    for changed, outcome in ((2.0, "not modelled"), (None, "refused")):
        config["rope_scaling"] = {**block, "long_mscale": changed}
        for name in ("transformers-5", "transformers-4.57"):
            assert read(RUNTIMES[name], config).outcome == outcome


@pytest.mark.parametrize(
    ("kind", "block", "refused"),
    [
        ("mistral", YARN, {"4.55", "4.57"}),
        ("mixtral", {"type": "dynamic", "factor": 2.0}, {"4.55", "4.57", "5"}),
        ("mixtral", {"type": "linear", "factor": 2.0}, set()),
        (
            "phi3",
            {"type": "linear", "factor": 2.0},
            {"4.48", "4.51", "4.55", "4.57", "5"},
        ),
        (
            "granite",
            {"type": "linear", "factor": 2.0},
            {"4.48", "4.51", "4.55", "4.57"},
        ),
        ("granite", {"rope_type": "linear", "factor": 2.0}, set()),
        ("olmo2", YARN, {"4.48", "4.51", "4.55", "4.57"}),
        ("olmo2", {"type": "linear", "factor": 2.0}, set()),
    ],
)
def test_blocks_at_which_a_class_stops(
    kind: str, block: Any, refused: set[str]
) -> None:
    config = {
        **LLAMA,
        "model_type": kind,
        "max_position_embeddings": 8192,
        "rope_scaling": block,
    }
    names = ("4.48", "4.51", "4.55", "4.57", "5")
    found = {n: read(RUNTIMES[f"transformers-{n}"], config).outcome for n in names}
    assert {name for name, outcome in found.items() if outcome == "refused"} == refused
    assert set(found.values()) <= {"read", "refused"}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        # No base is written, and 2048 tokens whatever the file says.
        ({"model_type": "falcon", "rope_theta": 500042.0}, (10000.0, 128, 2048)),
        ({"model_type": "gemma3_text", "head_dim": 128}, (1e6, 128, 131072)),
        (
            {"model_type": "mimo_v2_flash", "partial_rotary_factor": 0.334},
            (5e6, 64, 131072),
        ),
        (
            {"model_type": "bailing_moe", "partial_rotary_factor": 0.5},
            (1e6, 64, 131072),
        ),
        ({"model_type": "minimax_text_01", "rotary_dim": 64}, (1e6, 64, 131072)),
    ],
)
def test_llama_cpps_converter_has_classes_with_rules_of_their_own(
    config: Any, found: Any
) -> None:
    head_dim = 192 if config["model_type"] == "mimo_v2_flash" else 128
    sizes = {"head_dim": head_dim, "hidden_size": 4096, "num_attention_heads": 32}
    if config["model_type"] == "falcon":
        del sizes["head_dim"]  # at which its class stops
    base = {"rope_theta": 5e6 if head_dim == 192 else 1e6}
    lengths = (
        {} if "gemma" in config["model_type"] else {"max_position_embeddings": 131072}
    )
    names = {
        "bailing_moe": "BailingMoeV2ForCausalLM",
        "minimax_text_01": "MiniMaxText01ForCausalLM",
    }
    named = (
        {"architectures": [names[kind]]}
        if (kind := config["model_type"]) in names
        else {}
    )
    spec = spec_of({**sizes, **base, **lengths, **named, **config}, "llama.cpp")
    assert (spec.base, spec.rotary_dim, spec.claimed_len) == found


def test_what_llama_cpps_converter_does_with_yarn_and_alpha_of_some() -> None:
    block = {
        **YARN,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
        "rope_theta": 1e6,
    }
    sizes = {"head_dim": 128, "max_position_embeddings": 32768}
    spec = spec_of(
        {"model_type": "ministral3", **sizes, "rope_parameters": block}, "llama.cpp"
    )
    assert spec.logit_multiplier == 1.0
    alpha = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}
    config = {"model_type": "hunyuan_v1_dense", **sizes, "rope_scaling": alpha}
    assert read(RUNTIMES["llama.cpp"], config).outcome == "not modelled"


def test_tensorrt_llm_is_not_asked_for_models_that_it_lacks() -> None:
    outcome = {}
    for kind in ("llama", "qwen3", "cohere2", "falcon", "olmo2", "gptj"):
        reading = read(
            RUNTIMES["tensorrt-llm"], {**LLAMA, "model_type": kind, **LENGTH}
        )
        outcome[kind] = reading.problem
    missing = {
        kind: f"'{kind}' is not in that release" for kind in ("falcon", "olmo2", "gptj")
    }
    assert outcome == {"llama": "", "qwen3": "", "cohere2": "", **missing}


LENGTH = {"max_position_embeddings": 8192}


def test_tgi_rotates_what_gpt_j_says() -> None:
    sizes = {"n_embd": 4096, "n_head": 16, "n_positions": 2048, "rotary_dim": 64}
    spec = spec_of({"model_type": "gptj", **sizes}, "tgi")
    assert (spec.head_dim, spec.rotary_dim, spec.pairing) == (256, 64, "interleaved")


def test_nemotron_of_transformers_4_reads_no_scaling() -> None:
    config = {**LLAMA, **LENGTH, "model_type": "nemotron", "rope_scaling": YARN}
    for name, method in (
        ("transformers-4.57", "unscaled"),
        ("transformers-4.48", "unscaled"),
    ):
        assert spec_of(config, name).method == method
    uses = {
        use.path: use.status for use in read(RUNTIMES["transformers-4.57"], config).keys
    }
    assert uses["rope_scaling.rope_type"] == uses["rope_scaling.factor"] == "ignored"
    assert spec_of(config, "transformers-5").method.startswith("yarn")


def test_the_reason_names_the_model_that_is_missing() -> None:
    text = {**LLAMA, **LENGTH, "model_type": "deepseek_v3", "qk_rope_head_dim": 64}
    config = {
        "model_type": "kimi_vl",
        "architectures": ["KimiVLForConditionalGeneration"],
    }
    reading = read(RUNTIMES["exllamav3"], {**config, "text_config": text})
    assert mentions(reading.problem, "'kimi_vl'")


def test_keys_of_published_files_are_not_called_misspelt() -> None:
    block = {"rope_type": "default", "interleaved": True, "mrope_section": [24, 20, 20]}
    config = {**LLAMA, **LENGTH, "rope_scaling": block, "rotary": True}
    config |= {"rotary_emb_interleaved": False, "rotary_scaling_factor": None}
    config |= {"no_rope_layers": [1, 0], "no_rope_layer_interval": 2}
    config |= {"rope_traditional": False, "use_rope": True}
    assert "W01" not in codes(audited(config))


LIKE_KNOWN_KEYS = {
    "rope_theta_2": "rope_theta",
    "rope_theta ": "rope_theta",
    " rope_theta": "rope_theta",
    "Rope_Theta": "rope_theta",
    "rope-theta": "rope_theta",
    "r\u043epe_theta": "rope_theta",
    "rope_th\u0435ta\u200b": "rope_theta",
    "max_position_embeddings\n": "max_position_embeddings",
    "rope_scalling": "rope_scaling",
    "ropeScaling": "rope_scaling",
    "Rope_Scaling": "rope_scaling",
    "rope_scaling ": "rope_scaling",
    "r\u043epe_scaling": "rope_scaling",
    "rope_parameter": "rope_parameters",
}


@pytest.mark.parametrize("name", LIKE_KNOWN_KEYS)
def test_a_key_that_only_looks_like_a_known_one_is_said(name: str) -> None:
    meant = LIKE_KNOWN_KEYS[name]
    value: object = 5e5
    if meant in ("rope_scaling", "rope_parameters"):
        value = {"rope_type": "yarn", "factor": 4.0}
    result = audited({**LLAMA, **LENGTH, name: value})
    said = [each for each in result.findings if each.code == "W01"]
    assert [each.do for each in said] == [f"did you mean {meant}?"]
    assert all(each.says.isascii() and "\n" not in each.says for each in said)


@pytest.mark.parametrize("name", ["factor ", "Factor", "f\u0430ctor"])
def test_so_is_one_inside_the_block(name: str) -> None:
    block = {"rope_type": "linear", "factor": 2.0, name: 4.0}
    result = audited({**LLAMA, **LENGTH, "rope_scaling": block})
    said = [each for each in result.findings if each.code == "W01"]
    assert [each.do for each in said] == ["did you mean factor?"]


@pytest.mark.parametrize("name", ["rope_scaling_factor", "rope_scaling_config"])
def test_a_name_that_holds_that_of_a_block_is_one_of_its_own(name: str) -> None:
    result = audited({**LLAMA, **LENGTH, name: {"factor": 4.0}})
    assert "W01" not in {each.code for each in result.findings}


def test_a_key_that_is_used_is_no_unknown_one() -> None:
    """Grok has its rope_type beside the base, where it looks like rope_theta."""
    config = {**LLAMA, **LENGTH, "model_type": "grok-1", "rope_type": "yarn"}
    config |= {"scaling_factor": 16.0, "original_max_position_embeddings": 8192}
    config["architectures"] = ["Grok1ForCausalLM"]
    assert "W01" not in {each.code for each in audited(config).findings}


PHI_2 = {"model_type": "phi-msft", "n_embd": 2560, "n_head": 32, "n_positions": 2048}


def test_a_share_that_unknown_code_reads_is_no_whole_head() -> None:
    """Phi-2's first files rotate 32 of 80 features, and those of StableLM a quarter."""
    named = {"architectures": ["PhiForCausalLM"]}
    for config in (
        {**PHI_2, **named, "rotary_dim": 32},
        {**LLAMA, **LENGTH, "model_type": "stablelm_epoch", "rope_pct": 0.25},
    ):
        assert not any(read(runtime, config).layers for runtime in RUNTIMES.values())
    silent = {
        **LLAMA,
        **LENGTH,
        "model_type": "unknown",
        "architectures": ["LlamaForCausalLM"],
    }
    assert spec_of({**silent, "rotary_dim": None}, "vllm") == spec_of(silent, "vllm")
    whole = {**LLAMA, **LENGTH, "model_type": "qwen", "rotary_pct": 1.0}
    assert spec_of(whole, "mlx-lm").rotary_dim == 128


def test_a_part_is_not_read_by_runtimes_that_lack_the_whole() -> None:
    whole = {"model_type": "multi_modality", "language_config": {**LLAMA, **LENGTH}}
    named = {**whole, "architectures": ["MultiModalityCausalLM"]}
    for config in (whole, named):
        read_by = [
            name for name, runtime in RUNTIMES.items() if read(runtime, config).layers
        ]
        assert read_by == ["sglang"]


def test_deepseek_vl2_tiny_has_the_attention_of_deepseek_1() -> None:
    sizes = {
        "hidden_size": 1280,
        "num_attention_heads": 10,
        "max_position_embeddings": 4096,
    }
    text = {
        "model_type": "deepseek_v2",
        **sizes,
        "qk_rope_head_dim": 0,
        "use_mla": False,
    }
    config = {"model_type": "deepseek_vl_v2", "language_config": text}
    for name in ("vllm", "sglang"):
        spec = spec_of(config, name)
        assert (spec.head_dim, spec.rotary_dim, spec.pairing) == (128, 128, "half")
    assert codes(audited(config), "error") == set()


PHI3_VISION: dict[str, Any] = {
    "model_type": "phi3_v",
    "architectures": ["Phi3VForCausalLM"],
    "hidden_size": 3072,
    "num_attention_heads": 32,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_theta": 1e4,
    "rope_scaling": {
        "type": "su",
        "short_factor": [1.0] * 48,
        "long_factor": [2.0] * 48,
    },
}


def test_vllm_renames_su_and_takes_the_original_length_beside_it() -> None:
    spec = spec_of(PHI3_VISION, "vllm")
    assert (spec.trained_len, spec.claimed_len, spec.rotary_dim) == (4096, 4096, 96)
    assert spec.attention_factor == pytest.approx(
        (1 + np.log(32) / np.log(4096)) ** 0.5
    )


def test_tensorrt_llm_takes_base_and_share_as_loaded() -> None:
    block = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
    config = {**LLAMA, **LENGTH, "head_dim": 256, "model_type": "qwen3_5_text"}
    spec = spec_of({**config, "rope_parameters": block}, "tensorrt-llm")
    assert (spec.base, spec.rotary_dim) == (1e7, 64)
    assert spec_of(config, "tensorrt-llm").rotary_dim == 64
    for silent in (
        {**LLAMA, **LENGTH, "model_type": "gemma3_text"},
        {**LLAMA, **LENGTH, "rope_scaling": {**YARN, "rope_theta": 1e6}},
    ):
        assert spec_of(silent, "tensorrt-llm").base == 1e6


def test_what_follows_from_a_length_is_not_listed_again() -> None:
    """vLLM's start and the ratio of the lengths are two causes, and two findings."""
    block = {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}
    config = {
        "model_type": "qwen2_5_vl",
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "max_position_embeddings": 128000,
        "rope_theta": 1e6,
        "rope_scaling": {**block, "mrope_section": [16, 24, 24]},
    }
    assert codes(audited(config), "warn") == {"W02", "W03"}
