"""Files of which something was passed over: constants of a class, other formats, other
parts.
"""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig
from transformers.models.codegen.modeling_codegen import CodeGenAttention
from transformers.models.esm.modeling_esm import EsmRotaryEmbedding
from transformers.models.gptj.modeling_gptj import GPTJAttention

from ropelab.audit.audited import FileAudit, audit
from ropelab.audit.emit import emit
from ropelab.readers.document import Document, parse_document
from ropelab.readers.flags import parse_flags
from ropelab.readers.registry import RUNTIMES, read
from ropelab.runs.errors import InputError
from tests.test_cli import call
from tests.texts import mentions

__all__ = ["call"]  # a fixture

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
GPTJ = {
    "model_type": "gptj",
    "n_embd": 256,
    "n_head": 4,
    "rotary_dim": 32,
    "n_positions": 2048,
}
ESM = {
    "model_type": "esm",
    "position_embedding_type": "rotary",
    "vocab_size": 33,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "max_position_embeddings": 1026,
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
PARAMS = {
    "dim": 4096,
    "n_layers": 32,
    "head_dim": 128,
    "n_heads": 32,
    "rope_theta": 1e6,
}


def audited(config: dict[str, Any]) -> FileAudit:
    return audit(Document("config.json", "config", config), precision=False)


def of_params(params: dict[str, Any]) -> FileAudit:
    return audit(
        parse_document("params.json", json.dumps(params).encode()), precision=False
    )


def says(result: FileAudit, code: str) -> str:
    return "; ".join(
        finding.says for finding in result.findings if finding.code == code
    )


@pytest.mark.filterwarnings("ignore::FutureWarning")  # ESM's class sets rope_scaling
@pytest.mark.parametrize(
    "keys", [{"rope_theta": 5e5}, {"rope_scaling": YARN, "rope_theta": 5e5}]
)
@pytest.mark.parametrize("kind", ["gptj", "codegen", "esm"])
def test_constants_of_a_class_are_what_it_computes(
    kind: str, keys: dict[str, Any], tmp_path: Path
) -> None:
    config = {**(ESM if kind == "esm" else GPTJ), "model_type": kind, **keys}
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded: Any = AutoConfig.from_pretrained(tmp_path)
    reading = read(RUNTIMES["transformers-5"], config)
    assert reading.main_spec is not None
    ours = reading.main_spec.inv_freq(8192)
    if kind == "esm":
        theirs = EsmRotaryEmbedding(loaded).inv_freq.numpy()
    else:  # sines of the positions, then cosines
        built = (GPTJAttention if kind == "gptj" else CodeGenAttention)(
            loaded, layer_idx=0
        )
        theirs = built.embed_positions[1, : len(ours)].arcsin().numpy()
        theirs[0] = 1.0  # radian
    assert ours == pytest.approx(theirs, rel=1e-5)
    older = read(RUNTIMES["transformers-4.57"], config).main_spec
    assert older is not None
    assert (older.base, older.method) == (10000.0, "unscaled")


@pytest.mark.parametrize("config", [GPTJ, {**GPTJ, "model_type": "codegen"}, ESM])
def test_emit_says_what_a_class_does_not_read(
    config: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = emit(str(tmp_path / "config.json"), context=4096, target="hf5,hf4,axolotl")
    for target in done.targets:
        assert mentions(target.lost[0], "reads no rope_scaling")
        assert "yarn" not in target.text


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        ({**GPTJ, "rope_theta": 5e5}, "E03", "vllm, sglang take base 500000"),
        ({**GPTJ, "rope_scaling": YARN}, "E08", "not applied by transformers-5"),
        (
            {**ESM, "rope_theta": 5e5},
            "E03",
            "base 10000 (constant of its class), not 500000",
        ),
        # No runtime that reads the file applies it.
        (
            {**ESM, "rope_scaling": {**YARN, "type": "yarn"}},
            "E08",
            "yarn is declared, but not",
        ),
        ({**LLAMA, "rope_scaling": {"type": "linear", "factor": 1.0}}, "E08", ""),
        (
            {**GPTJ, "model_type": "codegen", "rope_theta": 5e5},
            "W11",
            "rope_theta is 500000.0",
        ),
        (
            {**LLAMA, "model_type": "minimax", "head_dim": 128, "rotary_dim": 64},
            "W06",
            "mlx-lm rotates 64",
        ),
        (
            {**LLAMA, "model_type": "minimax", "head_dim": 128, "rotary_dim": 128},
            "W11",
            "",
        ),
        ({**LLAMA, "rope_theta": 0}, "E03", "transformers-5, transformers-4.57"),
        (
            {**LLAMA, "rope_theta": 1e-300},
            "E03",
            "base must be a finite number above 1, not 1e-300",
        ),
    ],
)
def test_what_has_no_effect_is_found(
    config: dict[str, Any], code: str, words: str
) -> None:
    found = says(audited(config), code)
    assert words in found if words else not found


@pytest.mark.parametrize(
    ("params", "facts"),
    [
        (PARAMS, (128, "half", 128000, 128000)),
        ({**PARAMS, "max_seq_len": 32768}, (128, "half", 128000, 32768)),
        (
            {**PARAMS, "sliding_window": [None, 1024, 1024, 1024]},
            (128, "half", 128000, 128000),
        ),
        (
            {**PARAMS, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128},
            (64, "interleaved", 128000, 128000),
        ),
        (
            {**PARAMS, "qk_rope_head_dim": 64, "moe": {"num_shared_experts": 1}},
            (64, "interleaved", 128000, 128000),
        ),
        ({**PARAMS, "moe": {"num_experts": 8}}, (128, "half", 128000, 128000)),
    ],
)
def test_mistrals_params_are_read_as_vllm_reads_them(
    params: dict[str, Any], facts: tuple[Any, ...]
) -> None:
    result = of_params({**params, "llama_4_scaling": {"beta": 0.1}})
    spec = result.spec
    assert (spec.rotary_dim, spec.pairing, spec.trained_len, spec.claimed_len) == facts
    names = [reading.runtime.name for reading in result.readings]
    assert names == ["vllm", "sglang", "llama.cpp"]
    assert mentions(says(result, "N04"), "llama_4_scaling", "vllm")


def test_sglang_takes_the_length_of_params_from_a_key_of_its_own() -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 32768}
    params = {**PARAMS, "max_position_embeddings": 131072, "yarn": yarn}
    (finding,) = [f for f in of_params(params).findings if f.code == "W10"]
    assert finding.do == '"max_seq_len": 131072'


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (
            {"dim": 4096, "n_heads": 32, "n_layers": 32, "multiple_of": 256},
            "Meta's params.json",
        ),
        ({**PARAMS, "use_scaled_rope": True}, "Meta's params.json"),
        (
            {"model_type": "distilbert", "dim": 768, "n_heads": 12},
            "no rotary positions",
        ),
    ],
)
def test_other_files_with_dim_and_n_heads(file: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        of_params(file)


def test_emit_wants_a_config(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps(PARAMS))
    with pytest.raises(InputError, match=r"wants a config\.json"):
        emit(str(tmp_path / "params.json"), context=8192)


def test_deepseek_ocr_rotates_whole_heads_in_llama_cpp() -> None:
    latent = {
        "use_mla": False,
        "qk_rope_head_dim": 0,
        "qk_nope_head_dim": 0,
        "v_head_dim": 0,
    }
    text = {**LLAMA, "model_type": "deepseek_v2", "rope_theta": 10000.0, **latent}
    named = {
        "model_type": "deepseek_vl_v2",
        "architectures": ["DeepseekOCRForCausalLM"],
    }
    reading = read(RUNTIMES["llama.cpp"], {**named, "language_config": text})
    assert reading.main_spec is not None, reading.problem
    assert (reading.main_spec.rotary_dim, reading.main_spec.pairing) == (128, "half")
    assert (reading.main_spec.base, reading.main_spec.method) == (10000.0, "unscaled")


@pytest.mark.parametrize(("long", "tokens"), [(True, 16384), (False, 4096)])
def test_zamba2_sets_its_length_for_long_contexts(long: bool, tokens: int) -> None:
    sizes = {
        "hidden_size": 256,
        "num_attention_heads": 4,
        "max_position_embeddings": 4096,
    }
    config: dict[str, Any] = {
        "model_type": "zamba2",
        "use_mem_rope": True,
        **sizes,
        "use_long_context": long,
    }
    reading = read(RUNTIMES["transformers-5"], config)
    assert reading.main_spec is not None
    assert AutoConfig.for_model(**config).max_position_embeddings == tokens
    assert (reading.main_spec.trained_len, reading.main_spec.claimed_len) == (
        tokens,
        tokens,
    )


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("t5gemma", ("decoder", "encoder")),
        ("dia", ("decoder_config", "encoder_config")),
    ],
)
def test_an_encoder_beside_the_decoder_is_named(
    kind: str, parts: tuple[str, str], tmp_path: Path
) -> None:
    text: dict[str, Any] = {
        "model_type": {"t5gemma": "t5_gemma_module"}.get(kind, "dia_decoder")
    }
    text |= {"max_position_embeddings": 4096}
    config = {
        "model_type": kind,
        parts[0]: text,
        parts[1]: {"max_position_embeddings": 4096},
    }
    aside = says(audited(config), "N04")
    assert mentions(aside, parts[1], "not looked at", "transformers-5")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    for context, loss in ((8192, True), (4096, False)):
        (target,) = emit(str(path), context=context, target="hf5").targets
        assert any("encoder" in words for words in target.lost) == loss


@pytest.mark.parametrize("scale", ["0", "-4", "0.0"])
def test_a_scale_of_zero_is_bad_input(scale: str) -> None:
    with pytest.raises(InputError, match="--rope-scale must be above 0"):
        parse_flags(f"--rope-scale {scale}")


def test_a_name_that_no_file_can_have_is_one_line(call: Any) -> None:
    status, _, err = call("audit", "a" * 5000)
    assert (status, "too long" in err) == (2, True)


def test_figures_that_cannot_be_written_are_bad_input(call, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "file").touch()
    status, out, err = call(
        "audit", tmp_path / "config.json", "--figures", tmp_path / "file"
    )
    assert (status, out) == (2, "")
    assert mentions(err, "cannot write", tmp_path / "file")


# A whole with the text of Mistral, by the keys that its language model has.
TEXT = {**LLAMA, "model_type": "mistral", "head_dim": 128}
WHOLE = {"model_type": "mistral3", "text_config": TEXT, "vision_config": {}}


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"rope_scaling": YARN}, "rope_scaling is beside text_config"),
        ({"rope_theta": 1e6}, "rope_theta is beside text_config"),
        ({"rope_parameters": {**YARN, "rope_theta": 5e5}}, "rope_parameters is beside"),
        ({"rope_scaling": YARN, "rope_theta": 1e6}, "rope_scaling, rope_theta are"),
        ({"rope_theta": 500000.0}, ""),
        ({"rope_scaling": None, "rope_parameters": {}}, ""),
        ({"rope_scaling": {"type": "default"}}, ""),
    ],
)
def test_keys_beside_the_language_model_are_named(
    keys: dict[str, Any], named: str
) -> None:
    result = audited({**WHOLE, **keys})
    assert named in says(result, "W11") if named else not says(result, "W11")


def test_a_block_that_is_repeated_beside_the_language_model_is_no_finding() -> None:
    text = {**TEXT, "rope_scaling": {**YARN, "type": "yarn"}}
    assert not says(
        audited({**WHOLE, "text_config": text, "rope_scaling": YARN}), "W11"
    )


LENGTH = {"max_position_embeddings": 8192}
BASE = {"rope_theta": 1e6}
LINEAR = {"type": "linear", "factor": 2.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}


@pytest.mark.filterwarnings("ignore:.rope_scaling. is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("keys", "stops"),
    [
        ({"rope_scaling": YARN, **BASE}, True),
        ({"rope_scaling": YARN}, True),
        ({"rope_parameters": {**YARN, **BASE}}, True),
        ({"rope_scaling": YARN, **BASE, **LENGTH}, True),
        ({**LENGTH, "rope_scaling": YARN, **BASE}, True),
        ({"rope_scaling": YARN, **LENGTH}, False),
        ({**LENGTH, "rope_parameters": {**YARN, **BASE}}, False),
        ({"rope_scaling": LINEAR, **BASE}, False),
        ({"rope_scaling": {"type": "linear"}}, True),
        ({"rope_parameters": {"rope_type": "longrope"}, **LENGTH}, True),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}, **LENGTH}, True),
        ({"rope_parameters": LLAMA3, **LENGTH}, True),
        ({"rope_parameters": {**LLAMA3, **BASE}, **LENGTH}, False),
        ({"rope_scaling": LLAMA3, **BASE, **LENGTH}, True),
        ({"rope_scaling": {"type": "longrope"}, "rope_parameters": LINEAR}, False),
        ({"rope_parameters": {"type": "longrope"}, "rope_scaling": LINEAR}, False),
        ({"rope_scaling": LINEAR, "rope_parameters": {"type": "longrope"}}, True),
        (
            {"rope_parameters": {"type": "longrope"}, "rope_scaling": LINEAR, **BASE},
            True,
        ),
        ({"rope_parameters": YARN, "max_position_embeddings": None}, True),
    ],
)
def test_transformers_5_stops_at_a_scaling_beside_the_language_model(
    keys: dict[str, Any], stops: bool
) -> None:
    config = {**WHOLE, **keys}
    for name in ("transformers-5", "vllm", "sglang"):
        assert read(RUNTIMES[name], config).outcome == ("refused" if stops else "read")

    # The class fills in the blocks that it is given, which other cases share.
    made = deepcopy(config)
    kind = made.pop("model_type")
    if stops:
        reasons = "no attribute|Missing required keys|NoneType"
        with pytest.raises(Exception, match=reasons):
            AutoConfig.for_model(kind, **made)
    else:
        AutoConfig.for_model(kind, **made)


def test_the_converter_takes_a_block_from_beside_the_language_model() -> None:
    """conversion/base.py:1354: the language part is laid over the whole."""
    block = {**YARN, "rope_theta": 5e5}
    beside = read(RUNTIMES["llama.cpp"], {**WHOLE, "rope_parameters": block})
    inside = read(
        RUNTIMES["llama.cpp"],
        {**WHOLE, "text_config": {**TEXT, "rope_parameters": block}},
    )
    assert (beside.outcome, inside.outcome) == ("not modelled", "read")
    # transformers 4.57, with which it loads, has filled in the older keys.
    older = read(RUNTIMES["llama.cpp"], {**WHOLE, "rope_theta": 1e6})
    assert older.main_spec is not None
    assert older.main_spec.base == 500000.0


def test_a_factor_in_a_block_without_a_type_is_named() -> None:
    block = {key: value for key, value in YARN.items() if key != "rope_type"}
    found = says(audited({**LLAMA, "rope_scaling": block}), "W11")
    assert "rope_scaling.factor" in found
    assert "transformers-5" in found
    assert "transformers-4.57" not in found  # which stops
    assert not says(audited({**LLAMA, "rope_scaling": YARN}), "W11")
    assert not says(audited({**LLAMA, "rope_scaling": {"factor": 1}}), "W11")


@pytest.mark.parametrize(
    ("runtime", "flags", "idle"),
    [
        ("vllm", "-c 65536 --rope-freq-base 5000", ["--rope-freq-base 5000"]),
        ("llama.cpp", "-c 65536 --rope-freq-base 5000", []),
        ("", "--rope-freq-base 5000", []),
        ("vllm", """--hf-overrides '{"rope_theta": 5000}'""", []),
        ("mlx-lm", "--use-rope-scaling", ["--use-rope-scaling"]),
        ("transformers-5", "--ropeconfig 1 5000", ["--ropeconfig 1 5000"]),
        # The file says so already.
        ("llama.cpp", "--rope-freq-base 10000", ["--rope-freq-base 10000"]),
        # Each of the two changes what the other one does.
        ("llama.cpp", "--rope-scaling yarn --rope-scale 4", []),
    ],
)
def test_a_flag_that_no_audited_runtime_reads_is_named(
    tmp_path: Path, call: Any, runtime: str, flags: str, idle: list[str]
) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 1,
        "max_position_embeddings": 65536,
        "rope_theta": 10000.0,
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    words = ("--runtime", runtime) if runtime else ()
    status, out, err = call("audit", file, *words, "--flags", flags, "--json")
    assert status in (0, 3)
    assert json.loads(out)["experiment"] == "audit"
    says = "changes nothing that the audited runtimes compute"
    assert err.splitlines() == [f"{flag} {says}" for flag in idle]
