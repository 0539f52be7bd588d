"""Emitting is the inverse of reading: what comes back is what was wanted, or the loss
is named.
"""

import json
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import ropelab
from ropelab.audit.audit_case import have_equal_rotation
from ropelab.audit.audited import audit
from ropelab.audit.emit import emit, list_differences, write_text
from ropelab.audit.targets import (
    FLAGS,
    KEYS,
    TARGETS,
    compute_usual_attention,
    write_hf4,
    write_nothing,
)
from ropelab.audit.wanted import ModelFile, WantedRotation
from ropelab.cli import emit as emit_command
from ropelab.conformance.rotary_classes import build_rotary
from ropelab.math.methods import parse_scaling
from ropelab.math.models import MODELS
from ropelab.math.scaling import (
    DynamicNtk,
    Llama3,
    LongRope,
    NtkAware,
    PositionInterpolation,
    Unscaled,
    Yarn,
)
from ropelab.readers import registry
from ropelab.readers.document import Document
from ropelab.readers.families import FIXED_TYPES
from ropelab.readers.flags import parse_flags
from ropelab.runs.errors import InputError
from tests.audit.test_audit import PHI3_VISION
from tests.test_cli import call
from tests.texts import mentions

__all__ = ["call"]  # a fixture

MODEL = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4}
factors = st.sampled_from((1.5, 2.0, 4.0, 8.0, 16.0))


@st.composite
def scalings(draw):
    factor = draw(factors)
    return draw(
        st.sampled_from(
            (
                Unscaled(),
                PositionInterpolation(factor=factor),
                NtkAware(factor=factor),
                DynamicNtk(factor=factor),
                Yarn(factor=factor),
                Yarn(factor=factor, attention_factor=1.0),
                Yarn(factor=factor, beta_fast=16.0, beta_slow=2.0),
                Yarn(factor=factor, truncate=False),
                Llama3(factor=factor),
                Llama3(factor=factor, low_freq_factor=2.0, high_freq_factor=8.0),
                LongRope(long_factor=(2.0,) * 16 + (5.0,) * 16, factor=factor),
            )
        )
    )


@st.composite
def specs(draw):
    scaling = draw(scalings())
    trained = draw(st.sampled_from((2048, 4096, 8192, 32768)))
    factor = getattr(scaling, "factor", 1.0)
    base = draw(st.sampled_from((10000.0, 500000.0, 1e6)))
    spec = WantedRotation(
        base=base,
        head_dim=64,
        rotary_dim=64,
        scaling=scaling,
        trained_len=trained,
        claimed_len=round(trained * factor),
        context=round(trained * factor),
        source=ModelFile(
            {**MODEL, "rope_theta": base, "max_position_embeddings": trained}
        ),
    )
    attention = scaling.plan(spec.geometry, spec.context).attention_factor
    return replace(spec, attention_factor=attention)


def as_llamafactory(config: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The configuration that LLaMA-Factory trains, by its documented rule of whole
    factors.
    """
    kind, limit = given["rope_scaling"], config["max_position_embeddings"]
    if kind is None or given["cutoff_len"] <= limit:
        return config
    factor = -(-given["cutoff_len"] // limit)
    block: dict[str, Any] = {"rope_type": kind, "factor": float(factor)}
    if kind != "linear":
        block["original_max_position_embeddings"] = limit
    if kind == "llama3":
        block |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return {**config, "max_position_embeddings": limit * factor, "rope_scaling": block}


def read_back(target, text, spec):
    """The target's reader on the text alone, laid over a file of the unscaled model."""
    plain, name = spec.source.config, TARGETS[target].runtimes[0]
    # Of trainers, the classes that they train.
    trained = {"axolotl": "transformers-5", "llamafactory": "transformers-4.57"}
    runtime = registry.RUNTIMES[trained.get(name, name)]
    if target == "lmstudio":
        loaded = json.loads(text)
        text = f"--ctx-size {loaded['contextLength']} "
        if "ropeFrequencyBase" in loaded:
            scale, base = loaded["ropeFrequencyScale"], loaded["ropeFrequencyBase"]
            text += f"--ropeconfig {scale} {base}"
    if target == "axolotl":
        given = yaml.safe_load(text)
        text = given.get("overrides_of_model_config", {})
        return registry.read(runtime, {**plain, **text}).main_spec
    if target == "llamafactory":
        return registry.read(
            runtime, as_llamafactory(plain, yaml.safe_load(text))
        ).main_spec
    if text.startswith("{"):
        return registry.read(runtime, {**plain, **json.loads(text)}).main_spec
    flags = parse_flags(text.replace("PARAMETER num_ctx", "-c"))
    spec = registry.read(
        runtime, flags.apply(runtime.name, plain), flags.settings
    ).main_spec
    if spec is not None and target in ("llama.cpp", "koboldcpp", "lmstudio"):
        # They go on beyond the length of the file, as far as their flag asks.
        return replace(spec, claimed_len=flags.lengths["llama.cpp"])
    return spec


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "portable"])
@settings(max_examples=40)
@given(spec=specs())
def test_what_was_emitted_reads_back_as_what_was_wanted(target, spec):
    emission = write_text(target, spec)
    got = read_back(target, emission.text, spec)
    if emission.lost:
        assert got is None or list_differences(got, spec)
    else:
        assert not list_differences(got, spec)


def llama(target, method=""):
    """The emission for Llama 3 at four times its trained length."""
    (emission,) = emit(
        model="llama-3-8b", context=32768, method=method, target=target
    ).targets
    return emission


@pytest.mark.parametrize("target", ["hf4", "hf5", "vllm", "sglang"])
def test_the_usual_targets_hold_yarn_whole(target):
    done = emit(model="llama-3-8b", context=32768, target=target)
    assert done.rotation.scaling == Yarn(factor=4.0)
    (emission,) = done.targets
    assert emission.lost == ()
    assert emission.text.count("original_max_position_embeddings") == 1


def test_losses_are_named():
    """MLX-LM truncates the ramp and reads no attention factor; llama.cpp computes its
    own.
    """
    plain = "yarn(attention_factor=1.0)"
    assert llama("sglang", plain).lost == ()
    for target in ("mlx", "llama.cpp", "trtllm", "tgi"):
        (loss,) = llama(target, plain).lost
        assert mentions(loss, 1.29648, "not 1")
    assert "frequencies" in llama("mlx", "yarn(truncate=false)").lost[0]
    assert llama("hf5", "yarn(truncate=false)").lost == ()


def test_llama_cpp_takes_flags():
    text = llama("llama.cpp").text
    assert text.split() == [
        *("-c", "32768", "--rope-scaling", "yarn"),
        *("--rope-scale", "4", "--yarn-orig-ctx", "8192"),
    ]


def test_portable_is_read_by_those_that_can_hold_yarn():
    assert llama("portable").lost == ()
    assert "ollama" not in TARGETS["portable"].runtimes


def test_a_modelfile_holds_a_length_and_no_scaling():
    emission = llama("ollama")
    assert emission.text == "PARAMETER num_ctx 32768"
    assert any("frequencies" in loss for loss in emission.lost)


def test_koboldcpp_holds_a_scale_or_a_base():
    for method, text in (("pi", "0.25 500000"), ("ntk", "1 2044497.12")):
        emission = llama("koboldcpp", method)
        assert emission.text.startswith(f"--contextsize 32768 --ropeconfig {text}")
        assert all("length" in loss for loss in emission.lost)


def test_ntk_is_another_base():
    emission = llama("hf5", "ntk")
    assert emission.lost == ()
    base = json.loads(emission.text)["rope_parameters"]["rope_theta"]
    assert base == pytest.approx(500000 * 4 ** (128 / 126))


def test_a_method_without_a_name_is_refused():
    with pytest.raises(InputError, match="no configuration has a name for resonance"):
        llama("hf5", "resonance(inner=yarn(factor=4))")


def test_a_target_that_is_named_twice_is_written_once():
    emitted = emit(model="llama-3.1-8b", context=262144, target="vllm,hf5,vllm")
    assert [each.target for each in emitted.targets] == ["vllm", "hf5"]


def test_a_list_without_a_target_is_refused():
    with pytest.raises(InputError, match="unknown target ','"):
        llama(",")


def test_less_than_the_trained_length_changes_nothing():
    done = emit(model="llama-3-8b", context=4096, target="hf5,vllm,llama.cpp")
    texts = [emission.text for emission in done.targets]
    assert texts == ["{}", "--max-model-len 4096", "-c 4096"]
    assert not any(emission.changes or emission.lost for emission in done.targets)


@pytest.mark.parametrize("name", ["gpt-neox-20b", "pythia-6.9b"])
def test_a_known_model_is_asked_by_its_own_type(name: str) -> None:
    """SGLang has no class of GPT-NeoX; that of Phi, which passes no scaling on, says
    nothing.
    """
    (emission,) = emit(model=name, context=8192, target="sglang").targets
    (loss,) = emission.lost
    assert mentions(loss, "sglang", "not asked", "'gpt_neox'")


def test_the_usual_attention_factor_of_yarn():
    wanted = emit(model="llama-3-8b", context=32768).rotation
    assert compute_usual_attention(wanted) == pytest.approx(1.138629436111989)


def test_servers_that_multiply_get_the_length_before_the_factor():
    text = llama("vllm", "pi").text
    assert json.loads(shlex.split(text)[1])["max_position_embeddings"] == 8192
    assert "--max-model-len 32768" in text


def test_emissions_are_tables_in_python():
    done = ropelab.emit(model="llama-3-8b", context=32768, target="hf5,mlx")
    assert list(done.tables["targets"].target) == ["hf5", "mlx"]
    columns = ["target", "text", "lost", "remarks"]
    assert list(done.tables["targets"].columns) == columns


def test_a_target_that_reads_a_file_otherwise_loses_something(
    tmp_path: Path,
) -> None:
    """vLLM multiplies the length by the factor, and scales from the product."""
    block = {"type": "yarn", "mrope_section": [16, 24, 24], "factor": 4.0}
    config = {
        "model_type": "qwen2_5_vl",
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
        "rope_scaling": {**block, "original_max_position_embeddings": 32768},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = emit(str(tmp_path / "config.json"), context=32768, target="vllm")
    (row,) = done.rows["targets"]
    assert row["text"] == "--max-model-len 32768"
    assert mentions(row["lost"][0], "from 131072 tokens instead of", "from 32768")
    assert not done.note

    # Of several runtimes, one that differs is remarked.
    done = emit(str(tmp_path / "config.json"), context=32768, target="portable")
    (row,) = done.rows["targets"]
    assert not row["lost"]
    assert any("from 131072 tokens" in each for each in row["remarks"])


@pytest.mark.parametrize(
    ("config", "context", "text"),
    [
        # The converter passes over a block that stands beside another.
        (
            {
                "model_type": "qwen3",
                "hidden_size": 4096,
                "num_attention_heads": 32,
                "head_dim": 128,
                "max_position_embeddings": 1048576,
                "rope_theta": 5000000.0,
                "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0},
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 262144,
                },
            },
            1048576,
            "-c 1048576 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 262144",
        ),
        # The flags that the converter's file makes idle are left out.
        (
            {
                "model_type": "qwen2",
                "hidden_size": 3584,
                "num_attention_heads": 28,
                "max_position_embeddings": 131072,
                "rope_theta": 1000000.0,
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32768,
                },
            },
            131072,
            "-c 131072",
        ),
    ],
)
def test_llamacpp_gets_the_flags_that_its_file_lacks(
    config: dict[str, Any], context: int, text: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = emit(str(tmp_path / "config.json"), context=context, target="llama.cpp")
    (emission,) = done.targets
    assert emission.text == text
    assert not emission.lost

    again = audit(
        Document("x", "config", config),
        runtime="llama.cpp",
        flags=text,
        precision=False,
    )
    assert have_equal_rotation(again.spec, done.rotation)


LLAMA31 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
MSCALES = {"mscale": 1.0, "mscale_all_dim": 1.0}
LATENT = {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
OWN: dict[str, dict[str, Any]] = {
    "llama-3.1": {
        "model_type": "llama",
        "head_dim": 128,
        "rope_theta": 500000.0,
        "rope_scaling": {**LLAMA31, "original_max_position_embeddings": 8192},
    },
    "gpt-oss": {
        "model_type": "gpt_oss",
        "head_dim": 64,
        "rope_theta": 150000,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
        },
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "rope_theta": 10000,
        **LATENT,
        "rope_scaling": {"type": "yarn", "factor": 40, **MSCALES},
    },
    "kimi-k2": {
        "model_type": "deepseek_v3",
        "rope_theta": 50000.0,
        **LATENT,
        "rope_scaling": {"type": "yarn", "factor": 32.0, "beta_fast": 1.0, **MSCALES},
    },
    "nested": {
        "model_type": "qwen3_vl_text",
        "head_dim": 128,
        "rope_theta": 5000000,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "mrope_section": [24, 20, 20],
        },
    },
}
SHAPE = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 131072,
}


def own_file(tmp_path: Path, name: str) -> Path:
    config = {**SHAPE, **OWN[name]}
    config["rope_scaling"] = {
        "original_max_position_embeddings": 4096,
        **config["rope_scaling"],
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"text_config": config} if name == "nested" else config))
    return path


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("target", ["hf5", "vllm", "sglang"])
def test_a_files_own_method_is_kept_with_its_parameters(
    name: str, target: str, tmp_path: Path
) -> None:
    path = own_file(tmp_path, name)
    done = emit(str(path), context=327680, target=target)
    (emission,) = done.targets
    assert (done.replaced, emission.lost) == ("", ())
    assert done.rotation.context == 327680
    text = emission.text if target == "hf5" else shlex.split(emission.text)[1]
    written = json.loads(text)
    written = written["text_config"] if name == "nested" else written
    block = written.get("rope_parameters") or written["rope_scaling"]
    own = dict(OWN[name]["rope_scaling"])
    own.pop("type", None)
    assert block["factor"] > own.pop("factor")
    assert own.items() <= block.items()
    # beside rope_parameters, a block under the older name would win
    if target == "hf5":
        assert written["rope_scaling"] is None


@pytest.mark.parametrize("name", OWN)
def test_inside_the_length_of_a_file_nothing_changes(name: str, tmp_path: Path) -> None:
    """The file's own scaling is there already: a server gets its length alone."""
    path = own_file(tmp_path, name)
    done = emit(str(path), context=65536, target="hf5,vllm,sglang")
    texts = [emission.text for emission in done.targets]
    assert texts == ["{}", "--max-model-len 65536", "--context-length 65536"]
    assert not any(emission.changes or emission.lost for emission in done.targets)
    assert done.replaced == ""


def test_betas_of_the_file_do_not_stay_behind_flags(tmp_path: Path) -> None:
    path = own_file(tmp_path, "kimi-k2")
    (emission,) = emit(
        str(path), context=262144, method="yarn", target="llama.cpp"
    ).targets
    assert emission.text.endswith("--yarn-orig-ctx 4096 --yarn-beta-fast 32")


@pytest.mark.parametrize("block", ["yarn", ["yarn"], 4.0])
def test_a_block_that_is_no_dict_is_refused_as_transformers_does(
    block: Any, tmp_path: Path
) -> None:
    config = {**SHAPE, **OWN["llama-3.1"], "rope_scaling": block}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match="rope_scaling must be a dict"):
        emit(str(path), context=262144, target="hf5")


def test_linear_keeps_its_factor(tmp_path: Path) -> None:
    """deepseek-coder: base 100000, linear by 4 up to 16384."""
    path = tmp_path / "config.json"
    block = {"type": "linear", "factor": 4.0}
    shape = {**SHAPE, "model_type": "llama", "max_position_embeddings": 16384}
    path.write_text(json.dumps({**shape, "rope_theta": 100000, "rope_scaling": block}))
    done = emit(str(path), context=16384, target="hf5,vllm,llama.cpp")
    assert all(emission.lost == () for emission in done.targets)
    assert done.targets[0].text == "{}"
    assert done.targets[2].text == "-c 16384"
    more = emit(str(path), context=32768, target="llama.cpp")
    scaled = ["--rope-scaling", "linear", "--rope-scale", "8"]
    assert more.targets[0].text.split() == ["-c", "32768", *scaled]
    assert mentions(more.note, "from 4 to 8")


@pytest.mark.parametrize("target", ["hf4", "hf5", "vllm", "sglang", "mlx"])
def test_a_length_after_the_factor_is_reached_by_it(
    target: str, tmp_path: Path
) -> None:
    """Vicuna 1.5 16k was trained with a factor of 4; its maximum is the length before
    that.
    """
    path = tmp_path / "config.json"
    lengths = {"max_position_embeddings": 4096, "max_sequence_length": 16384}
    block = {"type": "linear", "factor": 4.0}
    path.write_text(json.dumps({**MODEL, **lengths, "rope_scaling": block}))
    done = emit(str(path), context=16384, target=target)
    assert (done.rotation.method, done.rotation.length) == ("pi(factor=4)", 16384)
    assert done.targets[0].lost == ()


def test_a_longer_context_raises_the_factor_and_says_so(tmp_path: Path) -> None:
    done = emit(str(own_file(tmp_path, "llama-3.1")), context=262144, target="hf5")
    assert json.loads(done.targets[0].text)["rope_parameters"]["factor"] == 16.0
    assert mentions(done.note, "llama3", 131072, "from 8 to 16")
    lists: dict[str, object] = {
        "rope_type": "longrope",
        "short_factor": [1.0] * 64,
        "long_factor": [4.0] * 64,
    }
    lists["original_max_position_embeddings"] = 4096
    path = tmp_path / "phi.json"
    path.write_text(json.dumps({**SHAPE, "model_type": "llama", "rope_scaling": lists}))
    done = emit(str(path), context=262144, target="hf5,vllm")
    assert mentions(done.note, "longrope", 131072, "no factor")
    hf5, vllm = done.targets
    assert hf5.text == "{}"
    assert vllm.text.endswith("--max-model-len 131072")
    # Nothing takes effect beyond, which each target says, and no more than that: vLLM's
    # flag is the length, its default the original one.
    for target in done.targets:
        (loss,) = target.lost
        assert mentions(loss, "cannot reach", 262144)


def test_a_file_that_cannot_be_extended_has_status_3(tmp_path: Path, call: Any) -> None:
    layers = {
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    text = {"model_type": "gemma4_text", "max_position_embeddings": 131072}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**text, "rope_parameters": layers}))
    for more, status in (((), 3), (("--method", "yarn"), 3)):
        found = call(
            "emit", "--from", str(path), "--context", "256k", "--target", "hf5", *more
        )
        assert found[0] == status
        assert ("cannot reach 262144 tokens" in found[2]) is not bool(more)
    assert (
        call("emit", "--from", str(path), "--context", "128k", "--target", "hf5")[0]
        == 0
    )


def test_a_target_that_was_not_read_back_is_not_said_to_lose(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**SHAPE, "model_type": "arcee"}))
    mlx, hf5 = emit(str(path), context=262144, target="mlx,hf5").targets
    (loss,) = mlx.lost
    assert mentions(loss, "mlx-lm", "not asked", "'arcee'")
    assert hf5.lost == ()
    path.write_text(json.dumps({**SHAPE, "model_type": "ministral"}))
    (hf4,) = emit(str(path), context=262144, target="hf4").targets
    assert all("refuses" in words for words in hf4.lost)


def test_a_factor_that_does_not_reach_the_context_is_not_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match="reaches 8192 tokens, not 131072"):
        emit(model="llama-2-7b", context=131072, method="yarn(factor=2)")
    with pytest.raises(InputError, match="reaches 8192 tokens, not 16384"):
        emit(model="llama-2-7b", context=16384, method="llama3(factor=2)")
    block = {
        "rope_type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 4096,
    }
    values = {**SHAPE, "model_type": "llama", "max_position_embeddings": 131072}
    path = tmp_path / "short.json"
    path.write_text(
        json.dumps({**values, "rope_parameters": {"rope_theta": 1e4, **block}})
    )
    done = emit(str(path), context=262144, target="hf5")
    assert mentions(done.note, "yarn", 8192, "from 2 to 64")
    assert json.loads(done.targets[0].text)["rope_parameters"]["factor"] == 64.0


def test_a_method_that_replaces_the_files_own_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = own_file(tmp_path, "llama-3.1")
    done = emit(str(path), context=131072, method="yarn", target="hf5")
    assert mentions(done.replaced, "llama3(factor=8)", "yarn(factor=16)")
    command = partial(emit_command.emit, context="128k", from_=str(path))
    assert command(method="yarn") == 3
    assert "replaced by yarn(factor=16)" in capsys.readouterr().err
    assert command() == 0


def test_flags_come_on_top_of_the_files_own_scaling(tmp_path: Path) -> None:
    """A GGUF of Llama 3.1 keeps llama3's divisors; LLaMA-Factory replaces the block."""
    path = own_file(tmp_path, "llama-3.1")
    names = "llama.cpp,ollama,llamafactory"
    done = emit(str(path), context=262144, method="yarn", target=names)
    llamacpp, ollama, llamafactory = (emission.lost for emission in done.targets)
    (loss,) = llamacpp
    assert mentions(loss, "llama.cpp", "not asked", "yarn", "divisors")
    assert "instead of yarn(factor=32)" in ollama[0]
    assert llamafactory == ()


def test_qwen3_is_scaled_from_the_length_that_it_was_trained_with(
    tmp_path: Path,
) -> None:
    """Its file allows 40960 tokens, 32768 of which its card scales from."""
    path = tmp_path / "config.json"
    shape = {**SHAPE, "model_type": "qwen3", "head_dim": 128, "rope_theta": 1000000}
    path.write_text(json.dumps({**shape, "max_position_embeddings": 40960}))
    for target in ("hf5", "vllm", "llama.cpp"):
        from_file = emit(str(path), context=131072, target=target)
        by_name = emit(model="qwen3-8b", context=131072, target=target)
        assert from_file.targets[0].text == by_name.targets[0].text
        assert mentions(from_file.note, "qwen3", 32768, 40960)
    assert emit(str(path), context=40960, target="hf5").rotation.scaling == Unscaled()


def test_keys_inside_a_part_are_out_of_reach_of_trainers(tmp_path: Path) -> None:
    path = own_file(tmp_path, "nested")
    done = emit(str(path), context=262144, target="axolotl,llamafactory")
    for emission in done.targets:
        assert mentions(emission.lost[-1], "no keys", "text_config")


def test_the_line_for_llama_cpp_is_one_that_audit_accepts(tmp_path: Path) -> None:
    path = own_file(tmp_path, "llama-3.1")
    (emission,) = emit(str(path), context=131072, target="llama.cpp").targets
    assert emission.text == "-c 131072"
    assert audit(str(path), flags=emission.text).worst() == ""


@pytest.mark.parametrize(
    ("given", "expected", "says"),
    [
        (
            1.2079441541679836,
            1.2772588722239782,
            "from 1.20794, the default for 8, to 1.27726",
        ),
        (1.0, 1.0, "its attention_factor stays 1"),
        (None, 1.2772588722239782, "raised from 8 to 16"),
    ],
)
def test_an_attention_factor_that_is_the_default_follows_the_factor(
    given: float | None, expected: float, says: str, tmp_path: Path
) -> None:
    """Olmo 3 writes 0.1 ln 8 + 1 out; gpt-oss leaves it to the factor."""
    block = {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
    }
    block |= {"attention_factor": given} if given else {}
    path = tmp_path / "config.json"
    config = {**MODEL, "max_position_embeddings": 65536, "rope_scaling": block}
    path.write_text(json.dumps(config))
    done = emit(str(path), context=131072, target="hf5")
    assert done.note.endswith(says)
    (emission,) = done.targets
    assert emission.lost == ()
    written = json.loads(emission.text)["rope_parameters"]
    assert written.get("attention_factor", expected) == pytest.approx(expected)
    assert done.rotation.attention_factor == pytest.approx(expected)
    assert not emit(str(path), context=65536, target="hf5").targets[0].changes


AXES = {"mrope_section": [16, 24, 24]}
IMAGES = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
    "rope_scaling": {"type": "mrope", **AXES},
}


@pytest.mark.parametrize("target", ["hf4", "hf5", "vllm", "sglang", "portable"])
def test_the_axes_of_images_stay_with_any_scaling(target: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(IMAGES))
    assert not emit(str(path), context=32768, target=target).targets[0].changes
    (emission,) = emit(str(path), context=131072, target=target).targets
    text = emission.text
    written = json.loads(text if text.startswith("{") else shlex.split(text)[1])
    # The class moves the flat keys of such a file into a part, where a flag has to set
    # them.
    written = written if text.startswith("{") else written["text_config"]
    block = written.get("rope_scaling") or written["rope_parameters"]
    assert block["mrope_section"] == AXES["mrope_section"]
    assert block["rope_type"] == "yarn"


def test_a_rotated_share_inside_the_block_stays(tmp_path: Path) -> None:
    own = {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1e6,
    }
    local = {"rope_type": "default", "rope_theta": 1e4}
    layers = {"full_attention": own, "sliding_attention": local}
    path = tmp_path / "config.json"
    config = {"model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512}
    path.write_text(json.dumps({**config, "rope_parameters": layers}))
    length = 2 * audit(str(path), runtime="transformers-5").length
    (emission,) = emit(str(path), context=length, method="ntk", target="hf5").targets
    written = json.loads(emission.text)["rope_parameters"]
    assert written["sliding_attention"] == local


def test_the_last_line_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my model.json"
    file.write_text(json.dumps({**MODEL, "max_position_embeddings": 4096}))
    emitting = partial(emit_command.emit, context="64k", target="hf5")
    sources: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"from_": str(file)}, f"'{file}'", f"'{file}'"),
        ({"model": str(file)}, f"'{file}'", f"'{file}'"),
        ({"model": "qwen3-8b"}, "the model's config.json", "config.json"),
    )
    for source, place, name in sources:
        emitting(**source)
        last = capsys.readouterr().err.splitlines()[-1]
        assert place in last
        assert last.endswith(f"ropelab audit {name}")


def test_the_last_line_of_flags_is_an_audit_with_these_flags(
    tmp_path: Path, call: Any
) -> None:
    """A file cannot show what flags do."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**MODEL, "max_position_embeddings": 4096}))
    for target in ("vllm", "sglang", "llama.cpp"):
        status, _, err = call(
            "emit", "--from", str(file), "--context", "16k", "--target", target
        )
        command = shlex.split(err.splitlines()[-1])
        assert (status, command[1:3]) == (0, ["ropelab", "audit"])
        assert call(*command[2:])[0] == 0


def of_file(
    tmp_path: Path, config: dict[str, Any], context: int, target: str
) -> tuple[Any, Any]:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"max_position_embeddings": 32768, **config}))
    (emission,) = emit(str(path), context=context, target=target).targets
    return json.loads(emission.text), emission.lost


def test_a_class_that_builds_scaled_tables_from_a_head_dim_alone_gets_one(
    tmp_path: Path,
) -> None:
    config = {"model_type": "mixtral", "hidden_size": 4096, "num_attention_heads": 32}
    for target in ("hf4", "hf5"):
        text, lost = of_file(tmp_path, config, 131072, target)
        assert (text["head_dim"], lost) == (128, ())
        assert "head_dim" not in of_file(tmp_path, config, 32768, target)[0]
        assert (
            "head_dim"
            not in of_file(tmp_path, {**config, "head_dim": 64}, 131072, target)[0]
        )


def test_phi3_of_transformers_4_gets_the_three_keys_that_it_takes(
    tmp_path: Path,
) -> None:
    block = {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
    config = {"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32}
    config |= {"original_max_position_embeddings": 4096, "rope_scaling": block}
    assert of_file(tmp_path, config, 32768, "hf4") == ({}, ())
    spec = registry.read_main_rotation(
        "phi3", {"max_position_embeddings": 32768, **config}
    )
    source = ModelFile(config, language_part=config)
    rotation = WantedRotation(
        **vars(spec), context=32768, source=source, own_block=block
    )
    own = {**block, "rope_type": "longrope"}
    assert write_hf4(replace(rotation, own_block=own))["rope_scaling"] == block


@pytest.mark.parametrize("target", ["hf5", "hf4"])
def test_hunyuans_alpha_is_applied_once(tmp_path: Path, target: str) -> None:
    block = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}
    config = {"model_type": "hunyuan_v1_dense", "head_dim": 128, "rope_scaling": block}
    written = of_file(tmp_path, {**config, "rope_theta": 10000.0}, 32768, target)
    assert written == ({}, ())


HALF = {"factor": 8.0, "original_max_position_embeddings": 8192}
OLMO_YARN = {
    "rope_type": "yarn",
    **HALF,
    "attention_factor": 1.2,
    "beta_fast": 32,
    "beta_slow": 1,
}
SLIDING = {"rope_type": "default", "rope_theta": 10000.0}
# Models whose layer types rotate differently, with and without a dict for each in the
# file.
LAYERED: dict[str, dict[str, Any]] = {
    "gemma3": {
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        }
    },
    "gemma3_text": {
        "rope_local_base_freq": 20000,
        "rope_theta": 1000000,
        "rope_scaling": None,
    },
    "gemma4_text": {
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": 0.25,
                "rope_theta": 1e6,
            },
            "sliding_attention": SLIDING,
        }
    },
    "olmo3": {
        "max_position_embeddings": 65536,
        "rope_theta": 500000,
        "rope_scaling": OLMO_YARN,
    },
    "modernbert": {"global_rope_theta": 160000.0, "local_rope_theta": 20000.0},
    "laguna": {
        "max_position_embeddings": 65536,
        "rope_parameters": {
            "full_attention": {
                **OLMO_YARN,
                "rope_theta": 500000.0,
                "partial_rotary_factor": 0.5,
            },
            "sliding_attention": {**SLIDING, "partial_rotary_factor": 1.0},
        },
    },
    "step3p5": {
        "max_position_embeddings": 65536,
        "rope_theta": [5e6, 1e4, 1e4, 1e4],
        "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0],
        "layer_types": ["full_attention", *["sliding_attention"] * 3],
        "num_hidden_layers": 4,
        "sliding_window": 512,
        "rope_scaling": {
            **HALF,
            "rope_type": "llama3",
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    },
    "deepseek_v4": {
        "max_position_embeddings": 65536,
        "compress_rope_theta": 160000,
        "rope_theta": 10000,
        "rope_scaling": {**HALF, "type": "yarn", "beta_fast": 32, "beta_slow": 1},
    },
    "mimo_v2_flash": {"rope_theta": 5e6, "swa_rope_theta": 10000, "head_dim": 192},
    "lfm3": {},
    "zaya": {},
}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", LAYERED)
def test_each_layer_type_keeps_its_own_rotation(
    kind: str, times: int, tmp_path: Path
) -> None:
    """The patched file in transformers' class: one layer type is scaled, the others as
    before.
    """
    config = {"model_type": kind, **LAYERED[kind]}
    spec = registry.read_main_rotation(kind, config)
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.json").write_text(json.dumps(config))
    proportional = kind in ("gemma4_text", "lfm3") and times == 2
    method = "yarn" if proportional else ""
    context = times * spec.length
    done = emit(str(own / "config.json"), context=context, target="hf5", method=method)
    assert done.targets[0].lost == ()
    patch = json.loads(done.targets[0].text)
    part = patch.pop("text_config", {})
    new = {**config, **patch}
    if part:
        new["text_config"] = {**new["text_config"], **part}
    (tmp_path / "config.json").write_text(json.dumps(new))
    before, after = (build_rotary(folder) for folder in (own, tmp_path))
    tables = dict(before.named_buffers())
    changed = set()
    for name, table in after.named_buffers():
        if "original" in name:
            continue
        layer = name.removesuffix("_inv_freq")
        wanted = (
            done.rotation
            if layer == done.rotation.source.scaled_layer
            else done.rotation.source.other_layers[layer]
        )
        np.testing.assert_allclose(
            table.numpy(), wanted.inv_freq(64), rtol=2e-6, atol=1e-12
        )
        factor = getattr(after, f"{layer}_attention_scaling")
        assert factor == pytest.approx(wanted.attention_factor, rel=1e-6)
        if table.shape != tables[name].shape or not (table == tables[name]).all():
            changed.add(layer)
    assert changed == ({done.rotation.source.scaled_layer} if times == 2 else set())


@pytest.mark.parametrize("target", ["vllm", "sglang"])
def test_gemma3_keeps_its_length_and_both_bases_in_servers(
    target: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gemma3", **LAYERED["gemma3"]}))
    assert not emit(str(path), context=131072, target=target).targets[0].changes
    (emission,) = emit(str(path), context=262144, target=target).targets
    assert emission.lost == ()
    inner = json.loads(shlex.split(emission.text)[1])["text_config"]
    assert inner["max_position_embeddings"] == 262144
    assert inner["rope_parameters"]["full_attention"]["factor"] == 16.0
    assert inner["rope_parameters"]["sliding_attention"]["rope_theta"] == 10000.0


def test_the_local_base_goes_into_the_key_of_transformers_4(tmp_path: Path) -> None:
    config = {"model_type": "gemma3_text", "max_position_embeddings": 131072}
    linear = {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6}
    blocks = {
        "full_attention": linear,
        "sliding_attention": {**SLIDING, "rope_theta": 30000.0},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "rope_parameters": blocks}))
    (emission,) = emit(str(path), context=131072, target="hf4").targets
    assert emission.lost == ()
    written = json.loads(emission.text)
    assert (written["rope_theta"], written["rope_local_base_freq"]) == (2e6, 30000.0)


def test_a_layer_type_that_a_target_scales_too_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "olmo3", **LAYERED["olmo3"]}))
    (emission,) = emit(str(path), context=65536, target="tgi").targets
    assert emission.lost


def test_other_keys_of_the_length_are_raised_with_it(tmp_path: Path) -> None:
    """vLLM takes the shortest length of several keys."""
    config = {
        "model_type": "llama",
        "head_dim": 128,
        "rope_theta": 500000.0,
        "seq_length": 8192,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "max_position_embeddings": 8192}))
    (emission,) = emit(str(path), context=16384, target="vllm").targets
    assert emission.lost == ()


def test_one_key_for_the_bases_of_two_layer_types_holds_that_of_the_main_one(tmp_path):
    config: dict[str, Any] = {
        "model_type": "step3p5",
        "hidden_size": 256,
        "num_attention_heads": 4,
        "max_position_embeddings": 4096,
        "rope_theta": 5e6,
        "sliding_window": 512,
    }
    both = {"full_attention": 5e6, "sliding_attention": 1e4}
    blocks = {
        name: {"rope_type": "default", "rope_theta": base}
        for name, base in both.items()
    }
    with_both: dict[str, Any] = {"layer_types": [*both], "rope_parameters": blocks}
    for more in ({}, {"layer_types": ["full_attention"]}, with_both):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**config, **more}))
        (written,) = emit(str(path), context=8192, method="yarn", target="hf4").targets
        assert json.loads(written.text)["rope_theta"] == 5e6


def test_longrope_that_vllm_alone_reads_keeps_the_length_that_its_factor_comes_from(
    tmp_path: Path,
) -> None:
    """vLLM allows 4096 tokens of Phi-3-vision without a flag, and takes the factor from
    131072.
    """
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PHI3_VISION))
    for context in (4096, 131072):
        (emission,) = emit(str(path), context=context, target="vllm").targets
        assert emission.lost == ()
        assert emission.text == f"--max-model-len {context}"


PHI3: dict[str, Any] = {
    "model_type": "phi3",
    "hidden_size": 3072,
    "num_attention_heads": 32,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_scaling": {
        "type": "longrope",
        "short_factor": [1.0] * 48,
        "long_factor": [2.0] * 48,
    },
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
KIMI = {
    "model_type": "deepseek_v3",
    **LATENT,
    "rope_theta": 50000.0,
    "rope_scaling": YARN,
}


@pytest.mark.parametrize(
    ("config", "method", "target", "says"),
    [
        # vLLM's table of position axes is four times as long, and the ramp follows it.
        (IMAGES, "", "vllm", " from 131072 tokens instead of yarn(factor=4)"),
        (
            {**IMAGES, "model_type": "qwen3_vl_text", "rope_scaling": AXES},
            "",
            "vllm",
            "",
        ),
        # The flat keys are in a part by the time that a flag sets them.
        (IMAGES, "", "sglang", ""),
        (IMAGES, "", "axolotl", "sets no keys inside text_config"),
        # The length that a scaling starts from is named where it is another one.
        (
            {"model_type": "llama", "max_position_embeddings": 10000},
            *("yarn", "llamafactory", ") instead of yarn(factor=13.1072)"),
        ),
        (
            {"model_type": "mixtral", "max_position_embeddings": 32768},
            *("yarn", "sglang", "frequencies: unscaled instead of yarn(factor=4)"),
        ),
        # The class stops at a file without a block.
        (
            {"model_type": "mllama_text_model", "rope_scaling": LLAMA31},
            "ntk",
            "hf4",
            "",
        ),
        # A configuration class checks the type for servers, too.
        (
            PHI3,
            "pi",
            "vllm-draft",
            "vllm refuses it: 'phi3' takes no rope type 'linear'",
        ),
        # A filled-in original length stays in SGLang's block, so that no factor
        # multiplies.
        ({**PHI3, "model_type": "llama"}, "pi", "sglang", "length 4096, not 131072"),
        # Of the file's block, the type counts in loading only.
        ({"model_type": "llava", "text_config": {**SHAPE, **KIMI}}, "ntk", "vllm", ""),
        ({"model_type": "deepseek_v4"}, "pi", "vllm", "with anything but yarn"),
        ({"model_type": "deepseek_v4"}, "yarn", "sglang", ""),
        # The file of a class that transformers lacks: vLLM's reading says what is
        # wanted.
        (
            {
                **PHI3,
                "model_type": "phi3_v",
                "architectures": ["Phi3VForCausalLM"],
                "rope_theta": 1e4,
                "rope_scaling": {**PHI3["rope_scaling"], "type": "su"},
            },
            *("", "axolotl", "the class of 'phi3_v' was not read"),
        ),
    ],
)
def test_what_takes_no_effect_is_named_and_nothing_else(
    config: dict[str, Any], method: str, target: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**SHAPE, **config}))
    (emission,) = emit(str(path), context=131072, method=method, target=target).targets
    assert says in " ".join(emission.lost)
    assert bool(emission.lost) == bool(says), emission.lost


def test_sglang_gets_deepseek_v4s_one_block_with_the_base_of_plain_layers(
    tmp_path: Path,
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "deepseek_v4", **LAYERED["deepseek_v4"]}))
    (emission,) = emit(str(path), context=131072, target="sglang").targets
    block = json.loads(shlex.split(emission.text)[1])["rope_scaling"]
    assert (block["rope_theta"], block["factor"], emission.lost) == (10000, 16.0, ())


@pytest.mark.parametrize("times", [1, 2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_a_known_model_keeps_its_own_scaling(name: str, times: int) -> None:
    """Inside its length nothing changes; beyond, its own factor is raised, or YaRN."""
    model = MODELS[name]
    context = times * model.released_len
    done = emit(model=name, context=context, target="hf5")
    (emission,) = done.targets
    # The configuration class of Phi-3 takes a yarn for a longrope without its lists.
    refused = model.model_type == "phi3" and times > 1
    # The classes of RoFormer and GPT-J read no scaling.
    refused |= model.model_type in FIXED_TYPES and times > 1
    assert bool(emission.lost) == refused
    assert emission.changes == (times > 1)
    assert done.replaced == ""
    if model.scaled_by_file:
        own: Any = parse_scaling(model.method)
        wanted: Any = done.rotation.scaling
        assert type(wanted) is type(own)
        # The length of a file with linear is what its factor reaches.
        reach = (
            model.released_len if own.name == "pi" else own.factor * model.trained_len
        )
        needed = own.factor * max(1.0, context / max(reach, model.released_len))
        assert wanted.factor == pytest.approx(needed)
    else:
        kind = Unscaled if times == 1 else Yarn
        assert type(done.rotation.scaling) is kind


def test_a_known_model_and_its_file_are_given_the_same(tmp_path: Path) -> None:
    path = own_file(tmp_path, "llama-3.1")
    for context in (65536, 131072, 262144):
        by_name = emit(model="llama-3.1-8b", context=context, target="vllm,hf5,sglang")
        from_file = emit(str(path), context=context, target="vllm,hf5,sglang")
        assert by_name.rotation.scaling == from_file.rotation.scaling
        changes = [emission.changes for emission in by_name.targets]
        assert changes == [emission.changes for emission in from_file.targets]


WINDOWED: dict[str, Any] = {
    "model_type": "cohere2",
    "head_dim": 64,
    "num_hidden_layers": 8,
    "sliding_window": 512,
    "sliding_window_pattern": 4,
    "max_position_embeddings": 8192,
}


def test_layers_with_a_window_need_the_length_alone(tmp_path: Path) -> None:
    """In Cohere 2 the layers that see the whole context rotate nothing."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**MODEL, **WINDOWED}))
    done = emit(str(path), context=32768, target="hf5")
    (emission,) = done.targets
    assert json.loads(emission.text) == {"max_position_embeddings": 32768}
    assert (emission.lost, done.replaced) == ((), "")
    assert "512 tokens" in done.note

    forced = emit(str(path), context=32768, target="hf5", method="yarn")
    assert "512 tokens" in forced.replaced
    assert "yarn" in forced.targets[0].text


def test_a_target_that_rotates_other_layers_is_named(tmp_path: Path) -> None:
    """llama.cpp knows windows of EXAONE 4 in models of 64 layers only."""
    path = tmp_path / "config.json"
    types = ["sliding_attention"] * 3 + ["full_attention"]
    small: dict[str, Any] = {"model_type": "exaone4", "layer_types": types * 2}
    path.write_text(json.dumps({**MODEL, **WINDOWED, **small}))
    (emission,) = emit(str(path), context=8192, target="llama.cpp").targets
    said = (*emission.lost, *emission.remarks)
    assert any("other layers rotate, 8 of 8" in words for words in said)


def test_without_a_window_every_layer_of_exaone_rotates(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    small: dict[str, Any] = {"model_type": "exaone4", "sliding_window": None}
    small["layer_types"] = ["full_attention"] * WINDOWED["num_hidden_layers"]
    path.write_text(json.dumps({**MODEL, **WINDOWED, **small}))
    done = emit(str(path), context=32768, target="hf5")
    assert done.rotation.scaling == Yarn(factor=4.0)


def test_koboldcpp_gets_a_base_that_it_can_hold() -> None:
    """3072 of 2048 tokens, as the base of NTK-aware scaling by 1.5; YaRN is lost."""
    (emission,) = emit(model="phi-2", context=3072, target="koboldcpp").targets
    words = emission.text.split()
    assert words[:4] == ["--contextsize", "3072", "--ropeconfig", "1"]
    assert float(words[4]) == pytest.approx(10000 * 1.5 ** (32 / 30))
    assert any("frequencies" in loss for loss in emission.lost)


def test_koboldcpp_is_given_no_settings_without_effect() -> None:
    (emission,) = emit(model="llama-3-8b", context=8192, target="koboldcpp").targets
    assert emission.text == "--contextsize 8192"


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--model", "qwen3-8b", "--factor", "4"], "--context 131072"),
        (["--model", "llama-3-8b", "--factor", "2"], "--context 16384"),
        (["--model", "llama-3-8b"], "--context"),
    ],
)
def test_a_factor_is_answered_with_the_length(
    words: list[str], asked: str, call: Any
) -> None:
    status, _, err = call("emit", *words)
    assert status == 2
    assert asked in err


def test_every_writer_has_its_target_and_every_target_a_writer() -> None:
    written = {*KEYS, *FLAGS}
    # Of a Modelfile, a length is all that is written.
    assert written == TARGETS.keys() - {"ollama"}
    for name, target in TARGETS.items():
        assert target.write_keys is KEYS.get(name, write_nothing)
        assert target.write_flags is FLAGS.get(name, write_nothing)


@pytest.mark.parametrize(
    ("name", "context"),
    [("gemma-3-4b", 131072), ("qwen3-8b", 40960), ("qwen3-8b", 32768)],
)
def test_within_the_length_of_a_model_nothing_is_to_change(
    name: str, context: int, call: Any
) -> None:
    status, out, error = call("emit", "--model", name, "--context", context)
    assert (status, json.loads(out)) == (0, {})
    assert "nothing to change" in error


def test_a_runtime_that_does_not_know_a_model_loses_nothing(call: Any) -> None:
    asked = ("emit", "--model", "qwen3-8b", "--context", 98304)
    status, _, error = call(*asked)
    assert status == 0
    assert "tgi was not asked" in error
    assert call(*asked, "--target", "tgi")[0] == 3


@pytest.mark.parametrize("model", ["roformer", "gpt-j-6b"])
def test_a_class_that_reads_no_scaling_gets_the_length_alone(model: str) -> None:
    (hf5,) = emit(model=model, context=8192, target="hf5").targets
    assert json.loads(hf5.text) == {"max_position_embeddings": 8192}
    assert mentions(" ".join(hf5.lost), "reads no rope_scaling")

    forced = emit(model=model, context=8192, method="yarn", target="hf5")
    (hf5,) = forced.targets
    assert json.loads(hf5.text)["rope_parameters"]["rope_type"] == "yarn"
    assert mentions(" ".join(hf5.lost), "unscaled instead of yarn")
    assert mentions(forced.replaced, "reads no rope_scaling")


def test_a_server_with_a_class_of_its_own_may_scale_it() -> None:
    (vllm,) = emit(model="gpt-j-6b", context=8192, target="vllm").targets
    assert '"yarn"' in vllm.text
    assert vllm.lost == ()


def test_a_scaling_that_no_class_reads_has_status_3(call: Any) -> None:
    short = call("emit", "--model", "roformer", "--context", "1536")
    assert short[0] == 0
    for more in ((), ("--method", "yarn")):
        asked = ("emit", "--model", "roformer", "--context", "4096", "--target", "hf5")
        assert call(*asked, *more)[0] == 3


def write_dynamic(folder: Path, factor: float) -> Path:
    """Write a file with dynamic scaling, of 8192 tokens."""
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "max_position_embeddings": 8192,
        "rope_theta": 500000.0,
        "rope_scaling": {"type": "dynamic", "factor": factor},
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("factor", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("context", [8192, 16384, 65536])
@pytest.mark.parametrize("target", ["vllm", "sglang"])
def test_a_server_allows_the_length_of_a_dynamic_file(
    tmp_path: Path, target: str, context: int, factor: float
) -> None:
    """Half of the length of the file was written, and the server refused to start."""
    path = write_dynamic(tmp_path, factor)
    (emission,) = emit(path, context=context, target=target).targets
    read = audit(path, runtime=target, flags=emission.text, precision=False)
    assert not [finding for finding in read.findings if finding.code == "E10"]


def test_a_length_that_a_runtime_without_dynamic_scaling_lacks_is_named(
    tmp_path: Path,
) -> None:
    path = write_dynamic(tmp_path, 2.0)
    emissions = emit(path, context=16384, target="llama.cpp,hf5").targets
    lost = {emission.target: emission.lost for emission in emissions}
    assert "llama.cpp: length 8192, not 16384" in lost["llama.cpp"]
    assert not lost["hf5"]


@pytest.mark.parametrize(
    ("method", "is_observed"),
    [("pi(factor=1)", False), ("pi(factor=2)", True), ("dynamic_ntk(factor=1)", True)],
)
def test_what_scales_nothing_is_said_to_cost_nothing(
    method: str, is_observed: bool
) -> None:
    said = emit_command.describe_observation(parse_scaling(method))
    assert bool(said) is is_observed
