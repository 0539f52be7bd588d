"""ollama's converter, by hand from its source at fb30760: nothing of it can be run
here.

Numbers are worked out from the Go code of the file named in each test, not from our
reader.
"""

import math
from typing import Any

import numpy as np
import pytest

from ropelab.audit.audited import audit
from ropelab.readers.document import Document
from ropelab.readers.registry import RUNTIMES, read
from tests.texts import mentions

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 4096,
}
PHI3 = {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
    "hidden_size": 3072,
    "num_attention_heads": 32,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
QWEN2 = {
    **LLAMA,
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "rope_theta": 1e6,
}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "initial_context_length": 4096,
    "rope_theta": 150000,
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}


def reading(config, **changes):
    return read(RUNTIMES["ollama"], {**config, **changes})


def scaled(config, **block):
    return reading(config, rope_scaling=block)


def write_plainly(width, base):
    return base ** (-np.arange(0, width, 2) / width)


def statuses(result):
    return {use.path: use.status for use in result.keys}


def test_llama_without_scaling():
    spec = reading(LLAMA).main_spec
    np.testing.assert_allclose(spec.inv_freq(131072), write_plainly(128, 500000.0))
    assert (spec.attention_factor, spec.claimed_len) == (1.0, 131072)


def test_linear_counts_under_its_older_name_only():
    """convert_llama.go, KV: only RopeScaling.Type == "linear" writes a scaling type and
    factor.
    """
    older = scaled(LLAMA, type="linear", factor=4.0)
    np.testing.assert_allclose(
        older.main_spec.inv_freq(1), write_plainly(128, 500000.0) / 4
    )
    assert statuses(older)["rope_scaling.factor"] == "translated"
    newer = scaled(LLAMA, rope_type="linear", factor=4.0)
    np.testing.assert_allclose(
        newer.main_spec.inv_freq(1), write_plainly(128, 500000.0)
    )
    assert statuses(newer)["rope_scaling.rope_type"] == "ignored"
    assert statuses(newer)["rope_scaling.factor"] == "ignored"


def test_llama3_counts_under_its_newer_name_only_and_with_its_own_original_length():
    """convert_llama.go, ropeFactors: 4096 is taken from the block; the tensor divides.

    Wavelengths 2 pi 500000^(2i/128) below 4096/4 are kept: pairs 0 to 24 (pair 24 has
    862, pair 25 has 1058); above 4096 divided by 8: from pair 32 on (pair 31 has 3619,
    pair 32 has 4443).
    """
    read_ = scaled(LLAMA, rope_type="llama3", **LLAMA3)
    ratio = write_plainly(128, 500000.0) / read_.main_spec.inv_freq(64)
    assert (np.isclose(ratio, 1).sum(), np.isclose(ratio, 8).sum()) == (25, 32)
    wavelength = 2 * math.pi * 500000.0 ** (50 / 128)
    smooth = (4096 / wavelength - 1) / 3
    assert ratio[25] == pytest.approx(1 / ((1 - smooth) / 8 + smooth))
    assert (
        statuses(read_)["rope_scaling.original_max_position_embeddings"] == "translated"
    )
    older = scaled(LLAMA, type="llama3", **LLAMA3)
    np.testing.assert_allclose(
        older.main_spec.inv_freq(64), write_plainly(128, 500000.0)
    )


def test_what_llama3_leaves_out_has_defaults():
    """cmp.Or takes 8, 1, 4 and 8192 for what is missing or 0."""
    bare = scaled(LLAMA, rope_type="llama3").main_spec.inv_freq(64)
    full = {**LLAMA3, "original_max_position_embeddings": 8192}
    np.testing.assert_allclose(
        bare, scaled(LLAMA, rope_type="llama3", **full).main_spec.inv_freq(64)
    )
    zero = scaled(
        LLAMA, rope_type="llama3", factor=0, original_max_position_embeddings=0
    )
    np.testing.assert_allclose(bare, zero.main_spec.inv_freq(64))


@pytest.mark.parametrize("kind", ["yarn", "dynamic", "longrope"])
def test_llama_drops_the_other_methods(kind):
    """No branch of KV or ropeFactors names them."""
    for name in ("type", "rope_type"):
        result = scaled(LLAMA, **{name: kind}, **YARN)
        np.testing.assert_allclose(
            result.main_spec.inv_freq(1 << 18), write_plainly(128, 500000.0)
        )
        assert result.main_spec.attention_factor == 1.0
        assert statuses(result)[f"rope_scaling.{name}"] == "ignored"


def test_dropped_yarn_is_an_error_of_the_audit():
    config = {**LLAMA, "rope_scaling": {"rope_type": "yarn", **YARN}}
    found = audit(Document("yarn", "config", config), runtime="transformers-5,ollama")
    (finding,) = [finding for finding in found.findings if finding.code == "E08"]
    assert mentions(finding.says, "yarn", "not applied", "ollama")


def test_a_file_of_version_5_loses_base_and_scaling():
    """rope_parameters is no field of llamaModel; without RopeTheta no rope.freq_base is
    written, and llama.cpp takes 10000; ropeFactors gives nothing either.
    """
    bare = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    block = {"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA3}
    result = reading(bare, rope_parameters=block)
    np.testing.assert_allclose(
        result.main_spec.inv_freq(64), write_plainly(128, 10000.0)
    )
    assert {statuses(result)[f"rope_parameters.{key}"] for key in block} == {"ignored"}
    unscaled = reading(bare, rope_scaling={"rope_type": "llama3", **LLAMA3})
    np.testing.assert_allclose(
        unscaled.main_spec.inv_freq(64), write_plainly(128, 10000.0)
    )
    document = Document("v5", "config", {**bare, "rope_parameters": block})
    findings = audit(document, runtime="transformers-5,ollama").findings
    assert "ollama takes base 10000" in next(
        f.says for f in findings if f.code == "E03"
    )


def test_a_head_that_is_not_hidden_size_over_heads_is_refused():
    """Mistral-Nemo's sizes: rope.dimension_count = 5120 / 32 = 160,
    attention.key_length = 128; llama.cpp stops a Llama at "invalid n_rot: 160, expected
    128".
    """
    result = reading(LLAMA, hidden_size=5120, head_dim=128)
    assert result.outcome == "refused"
    assert "160" in result.problem
    assert statuses(result)["head_dim"] == "refused"
    assert reading(LLAMA, head_dim=128).main_spec.rotary_dim == 128


def test_go_reads_whole_numbers_only_where_they_are_written_as_such():
    """encoding/json refuses 131072.0 and -1 for a uint32."""
    for value in (131072.0, -1, "131072", True):
        assert reading(LLAMA, max_position_embeddings=value).outcome == "refused"
    assert scaled(LLAMA, type=4).outcome == "refused"
    assert reading(LLAMA, rope_scaling="linear").outcome == "refused"


def test_a_base_is_a_number_of_32_bits():
    assert reading(LLAMA, rope_theta=2044497.12).main_spec.base == 2044497.125


def test_qwen2_stops_at_a_factor():
    """convert_qwen2.go: Factor is of type ropeFactor, a list, so a number fails in
    Unmarshal; a type other than yarn, mrope and default panics; the list type cannot be
    written to a GGUF.
    """
    for block in (
        {"type": "yarn", **YARN},
        {"rope_type": "yarn", **YARN},
        {"type": "yarn"},
        {"type": "linear"},
    ):
        assert scaled(QWEN2, **block).outcome == "refused"
    plain_ones: tuple[dict[str, Any], ...] = (
        {},
        {"rope_type": "default"},
        {"type": "mrope", "mrope_section": [16, 24, 24]},
    )
    for unscaled in plain_ones:
        np.testing.assert_allclose(
            scaled(QWEN2, **unscaled).main_spec.inv_freq(1), write_plainly(128, 1e6)
        )


def test_qwen2_takes_its_width_from_hidden_size():
    """head_dim is no field of qwen2Model."""
    result = reading(QWEN2, head_dim=64)
    assert result.main_spec.rotary_dim == 128
    assert statuses(result)["head_dim"] == "ignored"


def test_qwen2_without_a_base_at_top_level_has_no_frequencies():
    """The base is written even where it is 0."""
    bare = {key: value for key, value in QWEN2.items() if key != "rope_theta"}
    result = reading(bare, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    assert result.outcome == "not modelled"
    assert "a base of 0" in result.problem


def test_phi3s_tables_and_factor():
    """convert_phi3.go: sqrt(1 + ln(131072/4096) / ln(4096)) = 1.190238 from the lengths
    at top level; llama.cpp switches tables by the original length; attention_factor is
    no field.
    """
    lists = {"short_factor": [1.5] * 48, "long_factor": [6.0] * 48}
    result = scaled(PHI3, type="longrope", attention_factor=2.0, **lists)
    spec = result.main_spec
    np.testing.assert_allclose(spec.inv_freq(4096), write_plainly(96, 10000.0) / 1.5)
    np.testing.assert_allclose(spec.inv_freq(4097), write_plainly(96, 10000.0) / 6)
    assert spec.attention_factor == pytest.approx(1.190238, abs=1e-6)
    assert statuses(result)["rope_scaling.attention_factor"] == "ignored"
    yarn = scaled(PHI3, type="yarn", **lists).main_spec
    assert yarn.attention_factor == pytest.approx(1 + 0.1 * math.log(32))


def test_phi3s_refusals():
    """A type other than su, longrope, yarn panics; without lists empty tensors are
    written, which are not one number per pair; `partial_rotary_factor` is no field, so
    36 numbers are too few.
    """
    lists = {"short_factor": [1.5] * 36, "long_factor": [6.0] * 36}
    assert scaled(PHI3, type="linear", factor=2.0).outcome == "refused"
    assert mentions(reading(PHI3).problem, "0 divisors", "48 pairs")
    block = {"type": "longrope", **lists}
    partial = reading(PHI3, partial_rotary_factor=0.75, rope_scaling=block)
    assert mentions(partial.problem, "36 divisors", "48 pairs")
    assert statuses(partial)["partial_rotary_factor"] == "ignored"


def test_gpt_oss_is_read_but_for_truncate():
    """convert_gptoss.go has no field truncate and llama.cpp rounds the ends: pairs 0..8
    are kept and from pair 18 on divided by 32.
    """
    block = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0}
    block["original_max_position_embeddings"] = 4096
    result = scaled(GPT_OSS, truncate=False, **block)
    ratio = write_plainly(64, 150000.0) / result.main_spec.inv_freq(131072)
    assert (np.isclose(ratio, 1).sum(), np.isclose(ratio, 32).sum()) == (9, 14)
    assert result.main_spec.attention_factor == pytest.approx(1 + 0.1 * math.log(32))
    assert statuses(result)["rope_scaling.truncate"] == "ignored"


def test_gpt_osss_own_names_win():
    """cmp.Or(rope_scaling_factor, rope_scaling.factor), and yarn where no type is
    named.
    """
    own = reading(GPT_OSS, rope_scaling_factor=16.0, rope_scaling={"factor": 32.0})
    assert own.main_spec.scaling.factor == 16.0
    assert own.main_spec.trained_len == 4096
    assert statuses(own)["rope_scaling.factor"] == "overridden"


@pytest.mark.parametrize(
    "name", ["Qwen3ForCausalLM", "MistralForCausalLM", "DeepseekV3ForCausalLM"]
)
def test_other_architectures_are_not_guessed(name):
    """The first two have no case in convert.go; the third has one that was not read."""
    result = reading(LLAMA, architectures=[name])
    assert result.outcome == "not modelled"
    assert name in result.problem


def test_llama_cpps_flags_are_not_ollamas():
    flags = {"rope_scale": 4.0, "rope_scaling": "linear"}
    assert read(RUNTIMES["ollama"], LLAMA, flags).main_spec == reading(LLAMA).main_spec


def test_the_output_says_that_it_was_only_read():
    result = audit(Document("llama", "config", LLAMA), runtime="ollama")
    assert mentions(result.rows["runtimes"][0]["proof"], "source", "not run")
