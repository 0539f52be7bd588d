"""Fixes of an audit, typed and audited again: the finding goes, and nothing else moves."""

import json
import math
import re
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from ropelab.audit.audit_case import have_equal_rotation
from ropelab.audit.audited import FileAudit, audit
from ropelab.audit.emit import emit
from ropelab.readers.document import Document
from ropelab.readers.trace import find_language_part
from ropelab.runs.errors import InputError
from tests.audit.files import BARE_YARN, QWEN, YARN

QWEN3_VL = {
    "model_type": "qwen3_vl_text",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0},
    "rope_scaling": {**YARN, "original_max_position_embeddings": 262144},
}
# A change as a fix has it: a key of the file, or of its rope block.
CHANGE = re.compile(r'"(\w+)": ([\d.e+]+)( inside the block| in \S+)?')


def audit_file(config: dict[str, Any], **options: Any) -> FileAudit:
    return audit(Document("test", "config", config), precision=False, **options)


def find_agreeing(result: FileAudit) -> set[str]:
    """Return the names of the runtimes that rotate as the reference does."""
    return {
        name for name, spec in result.specs if have_equal_rotation(spec, result.spec)
    }


def find_fix(result: FileAudit, code: str) -> str:
    (fix,) = {finding.do for finding in result.findings if finding.code == code}
    return fix


def type_fix(config: dict[str, Any], fix: str) -> dict[str, Any]:
    """Return the file with the fix in it, as a user would type it."""
    typed = deepcopy(config)
    changes = CHANGE.findall(fix)
    assert changes, fix
    for key, number, place in changes:
        value = json.loads(number)
        part: Any = typed
        if place == " inside the block" or key in ("factor", "attention_factor"):
            _, language_part = find_language_part(typed)
            part = language_part["rope_scaling"]
        elif place:
            for name in place.removeprefix(" in ").split("."):
                part = part[name]
        part[key] = value
    return typed


def test_a_length_of_training_is_written_beside_the_length_that_is_reached() -> None:
    config = {**QWEN, "rope_scaling": BARE_YARN}
    before = audit_file(config)
    fix = find_fix(before, "W10")
    assert fix == (
        '"original_max_position_embeddings": 32768 inside the block and'
        ' "max_position_embeddings": 131072, if the model was trained at 32768 tokens'
        " (with which transformers-4.48 would be wrong)"
    )
    after = audit_file(type_fix(config, fix))
    assert have_equal_rotation(after.spec, before.spec)
    assert not {finding.code for finding in after.findings} & {"W10", "E08"}


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "transformers-5"])
def test_a_length_is_claimed_where_one_runtime_is_asked(runtime: str) -> None:
    """vLLM alone scales alike without the claim, and would allow no more tokens."""
    config = {**QWEN, "rope_scaling": BARE_YARN}
    before = audit_file(config, runtime=runtime)
    fix = find_fix(before, "W10")
    assert '"max_position_embeddings": 131072' in fix
    after = audit_file(type_fix(config, fix), runtime=runtime)
    assert have_equal_rotation(after.spec, before.spec)
    assert after.spec.claimed_len == 131072
    assert "W10" not in {finding.code for finding in after.findings}


@pytest.mark.parametrize("outer", [{}, {"model_type": "qwen3_vl"}])
def test_a_declared_base_is_written_where_it_is_read(outer: dict[str, Any]) -> None:
    """A block pasted beside another takes its place in transformers 5."""
    config = {**outer, "text_config": QWEN3_VL} if outer else QWEN3_VL
    before = audit_file(config)
    fix = find_fix(before, "E03")
    place = "in text_config" if outer else "at top level"
    assert fix == f'write "rope_theta": 5000000.0 {place}'

    after = audit_file(type_fix(config, fix))
    assert {spec.base for _, spec in after.specs} == {5000000.0}
    assert "E03" not in {finding.code for finding in after.findings}


@pytest.mark.parametrize("attention", [{}, {"attention_factor": 0.1 * math.log(4) + 1}])
def test_a_smaller_factor_takes_its_companions_along(attention: dict[str, Any]) -> None:
    """transformers 4.51 and ExLlamaV3 compute the factor from the lengths."""
    block = {**YARN, **attention}
    config = {**QWEN, "max_position_embeddings": 131072, "rope_scaling": block}
    before = audit_file(config, length=65536)
    agreeing = find_agreeing(before)
    after = audit_file(type_fix(config, find_fix(before, "N02")), length=65536)
    assert agreeing
    assert find_agreeing(after) >= agreeing
    assert after.spec.method.startswith("yarn(factor=2")
    assert after.spec.attention_factor == pytest.approx(0.1 * math.log(2) + 1, rel=1e-5)
    assert "N02" not in {finding.code for finding in after.findings}


def test_a_command_is_advised_only_where_its_text_works() -> None:
    block = {**YARN, "original_max_position_embeddings": 262144}
    config = {
        **QWEN,
        "max_position_embeddings": 1048576,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "rope_scaling": block,
    }
    fix = find_fix(audit_file(config), "E08")
    assert fix == (
        "ropelab emit --from FILE --context 1048576 --target portable, for the form that"
        " is read"
    )

    dynamic = {**QWEN, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
    assert find_fix(audit_file(dynamic, runtime="vllm"), "E08") == (
        "nothing that emit writes makes vllm apply it"
    )


def test_a_scaling_that_a_flag_replaces_is_not_passed_over(tmp_path: Path) -> None:
    """NTK-aware scaling is written as another base, in place of the file's block."""
    config = {**QWEN, "max_position_embeddings": 131072, "rope_scaling": YARN}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for target in ("vllm", "sglang"):
        done = emit(
            str(tmp_path / "config.json"), context=65536, method="ntk", target=target
        )
        (emission,) = done.targets
        again = audit_file(config, runtime=target, flags=emission.text)
        assert "E08" not in {finding.code for finding in again.findings}

    # Without the flag, a runtime that passes over it is named.
    dynamic = {**QWEN, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
    again = audit_file(dynamic, runtime="vllm", flags="--max-model-len 32768")
    assert "E08" in {finding.code for finding in again.findings}


def test_a_length_does_not_mislead_the_one_runtime_that_it_mends() -> None:
    """Classes of Phi-3 take no YaRN; ExLlamaV3 does, by the ratio of the lengths."""
    block = {**YARN, "factor": 8.0, "original_max_position_embeddings": 131072}
    config = {
        "model_type": "phi3",
        "hidden_size": 3072,
        "num_attention_heads": 32,
        "max_position_embeddings": 131072,
        "rope_theta": 10000.0,
        "rope_scaling": block,
    }
    fixes = {each.do for each in audit_file(config).findings if each.code == "E08"}
    assert '"max_position_embeddings": 1048576' in fixes


def write_gguf(
    path: Path,
    scaling: dict[str, Any],
    base: float | None = 1e6,
    architecture: str = "qwen2",
) -> None:
    """Write the header of a model of 32,768 tokens, with keys of rope.scaling."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(32768)
    writer.add_embedding_length(3584)
    writer.add_head_count(28)
    if base is not None:
        writer.add_rope_freq_base(base)
    for key, value in scaling.items():
        name = f"{architecture}.rope.scaling.{key}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_uint32(name, value)
    writer.add_tensor("output.weight", np.zeros((4, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("architecture", ["qwen2", "gemma2", "phi2", "stablelm"])
def test_a_base_is_missing_where_the_converter_writes_one(
    tmp_path: Path, architecture: str
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {}, base=None, architecture=architecture)
    result = audit(path, precision=False)
    assert result.spec.base == 10000
    codes = {each.code for each in result.findings}
    assert codes == ({"W12"} if architecture == "qwen2" else set())


def test_a_gguf_file_gets_a_flag(tmp_path: Path) -> None:
    """It has no max_position_embeddings, and is not edited by hand."""
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 32768}
    write_gguf(tmp_path / "model.gguf", yarn)
    result = audit(tmp_path / "model.gguf", precision=False)
    assert find_fix(result, "W10") == "--ctx-size 131072"


def test_flags_make_a_gguf_file_reach_a_length(tmp_path: Path) -> None:
    """`emit` takes none. A factor of six digits reaches the length that it was for."""
    path = tmp_path / "model.gguf"
    write_gguf(path, {})
    fix = find_fix(audit(path, precision=False, length=100000), "W18")
    assert fix == "--rope-scaling yarn --rope-scale 3.05176 --ctx-size 100000"
    after = audit(path, precision=False, flags=fix)
    assert after.spec.method.startswith("yarn(factor=3.05176")
    assert {each.code for each in after.findings} == {"N01"}

    # No flag is advised where the file has a scaling of its own.
    write_gguf(path, {"type": "yarn", "factor": 2.0, "original_context_length": 16384})
    assert find_fix(audit(path, precision=False, length=100000), "W18") == ""


def test_what_a_flag_gives_is_not_missing(tmp_path: Path) -> None:
    """The fix is typed: a finding that says that the field is missing goes."""
    path = tmp_path / "model.gguf"
    write_gguf(path, {"factor": 4.0}, base=None)
    codes = {each.code for each in audit(path, precision=False).findings}
    assert "W12" in codes
    flags = "--rope-freq-base 500000 --rope-scaling yarn"
    result = audit(path, precision=False, flags=flags)
    assert "W12" not in {each.code for each in result.findings}
    assert result.spec.base == 500000


def test_llama_cpp_reads_its_own_factor_on_attention(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 8192}
    write_gguf(path, {**yarn, "attn_factor": 1.2})
    result = audit(path, precision=False)
    assert result.spec.attention_factor == pytest.approx(1.2 * (0.1 * math.log(4) + 1))
    assert {each.code for each in result.findings} == {"N01"}


def test_a_flag_of_the_context_claims_the_length(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 32768}
    write_gguf(path, yarn)
    for flags, code in (("", "W10"), ("--ctx-size 131072", ""), ("-c 65536", "N02")):
        result = audit(path, precision=False, flags=flags)
        codes = {each.code for each in result.findings} - {"N01"}
        assert codes == {code} - {""}


def test_a_gguf_file_without_the_factor_of_its_scaling(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {"type": "yarn", "original_context_length": 8192})
    result = audit(path, precision=False)
    assert find_fix(result, "W12") == "--rope-scale, with the factor that is meant"
    assert not audit(path, precision=False, flags="--rope-scale 4").findings[1:]


MISTRAL: dict[str, Any] = {
    "dim": 5120,
    "n_layers": 40,
    "n_heads": 32,
    "head_dim": 128,
    "rope_theta": 1e6,
    "max_position_embeddings": 131072,
    "max_seq_len": 131072,
    "yarn": {
        "original_max_position_embeddings": 8192,
        "factor": 16,
        "apply_scale": False,
        "beta": 32,
        "alpha": 1,
    },
}


def audit_params(folder: Path, params: dict[str, Any], **options: Any) -> FileAudit:
    (folder / "params.json").write_text(json.dumps(params))
    return audit(folder / "params.json", precision=False, **options)


def test_fixes_of_a_params_json_are_typed_into_it(tmp_path: Path) -> None:
    """Servers take max_seq_len first, and llama.cpp reads the block yarn itself."""
    short = {**MISTRAL, "max_seq_len": 32768}
    assert find_fix(audit_params(tmp_path, short), "W10") == '"max_seq_len": 131072'
    short = {**short, "max_position_embeddings": 32768}
    fix = find_fix(audit_params(tmp_path, short), "W02")
    assert fix == '"max_position_embeddings": 131072 and "max_seq_len": 131072'

    # Its translation has a default of 128,000 tokens, which the file does not state.
    del short["max_position_embeddings"]
    findings = audit_params(tmp_path, short).findings
    says = {each.code: each.says for each in findings}
    assert "W02" not in says
    assert says["W10"].endswith("vllm, sglang allow 32768")

    before = audit_params(tmp_path, MISTRAL, length=65536)
    fix = find_fix(before, "N02")
    lengths = {"max_position_embeddings": 65536, "max_seq_len": 65536}
    assert fix == " and ".join(
        ['"factor": 8.0', *(f'"{key}": {value}' for key, value in lengths.items())]
    )
    yarn = {**MISTRAL["yarn"], "factor": 8.0}
    after = audit_params(tmp_path, {**MISTRAL, **lengths, "yarn": yarn}, length=65536)
    assert {getattr(spec.scaling, "factor", 1) for _, spec in after.specs} == {8.0}
    assert not {each.code for each in after.findings} & {"N02", "W02", "W10"}


def test_emit_is_advised_where_it_takes_the_file(tmp_path: Path) -> None:
    result = audit_params(tmp_path, MISTRAL, length=200000)
    assert find_fix(result, "E10") == "a length up to 131072"
    assert find_fix(result, "W18") == ""


def test_a_length_is_claimed_in_the_part_of_the_language_model() -> None:
    config = {
        "model_type": "qwen3_vl",
        "text_config": {**QWEN3_VL, "rope_scaling": YARN},
    }
    fix = find_fix(audit_file(config, runtime="vllm"), "W02")
    assert fix == '"max_position_embeddings": 131072 in text_config'


def test_a_missing_factor_is_to_be_written_for_whom_it_mends() -> None:
    """transformers 4.51 takes the ratio of the lengths; llama.cpp scales nothing."""
    block = {**YARN, "facter": 4.0}
    del block["factor"]
    config = {**QWEN, "max_position_embeddings": 131072, "rope_scaling": block}
    assert find_fix(audit_file(config), "E08") == '"factor": 4 inside the block'


MIXTRAL: dict[str, Any] = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 65536,
    "rope_theta": 1e6,
    "rope_scaling": YARN,
}


def test_who_scales_by_the_ratio_is_named_beside_who_does_not_scale() -> None:
    """SGLang and MLX-LM drop Mixtral's scaling, which hid the others."""
    result = audit_file({**MIXTRAL, "head_dim": 128})
    says = {each.code: each.says for each in result.findings}
    assert "E08" in says
    assert "use 2 (transformers-4.55, transformers-4.51, exllamav3)" in says["W02"]


def test_a_reference_takes_the_factor_and_the_length_of_the_file() -> None:
    """Without a width of its heads, transformers 5 refuses the file."""
    result = audit_file(MIXTRAL)
    assert result.spec.trained_len == 32768
    assert result.spec.method.startswith("yarn(factor=4")


def test_a_text_of_emit_mends_older_runtimes_and_misleads_none(tmp_path: Path) -> None:
    """It has the block under both names: the converter of llama.cpp looks at the newer
    one first, and older releases at the other.
    """
    block = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = {**QWEN, "model_type": "llama", "max_position_embeddings": 65536}
    del config["rope_theta"]
    config["rope_parameters"] = block
    before = audit_file(config)
    assert {"transformers-4.48", "ollama"}.isdisjoint(find_agreeing(before))
    assert find_fix(before, "E08") == (
        "ropelab emit --from FILE --context 65536 --target portable, for the form that"
        " is read"
    )
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    (emission,) = emit(path, context=65536, target="portable").targets
    after = audit_file({**config, **json.loads(emission.text)})
    assert find_agreeing(after) == {name for name, _ in after.specs}
    assert find_agreeing(after) >= {"transformers-4.48", "ollama", "llama.cpp"}


def test_a_text_of_emit_names_whom_it_misleads() -> None:
    """transformers 4.48 takes the claimed length for the trained one."""
    config = {**QWEN, "rope_scaling": YARN}
    del config["max_position_embeddings"]
    fix = find_fix(audit_file(config), "E08")
    assert fix.endswith("(with which transformers-4.48 would be wrong)")


@pytest.mark.parametrize(
    ("block", "fix"),
    [
        ({"type": "llama3"}, '"rope_type": "llama3" inside the block'),
        (
            {"rope_type": "linear", "factor": 4.0},
            '"type": "linear" inside the block (for ollama)',
        ),
    ],
)
def test_the_type_is_advised_under_its_other_name(
    block: dict[str, Any], fix: str
) -> None:
    bands = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = {**QWEN, "model_type": "llama", "max_position_embeddings": 65536}
    config["rope_scaling"] = block if "factor" in block else {**block, **bands}
    assert find_fix(audit_file(config), "E08") == fix
    name = fix.split('"')[1]
    config["rope_scaling"] |= {name: next(iter(block.values()))}
    assert "ollama" in find_agreeing(audit_file(config))


TWO_BLOCKS = {
    **QWEN,
    "rope_scaling": {**YARN, "factor": 8.0},
    "rope_parameters": {**YARN, "rope_theta": 1e4},
}


def test_two_blocks_that_differ_are_named_with_who_reads_which() -> None:
    """The converter of llama.cpp looks into rope_parameters first, transformers last."""
    names = ("transformers-5", "vllm", "llama.cpp")
    (found,) = [
        each
        for each in audit_file(TWO_BLOCKS, runtime=names).findings
        if each.code == "W20"
    ]
    assert found.says == (
        "rope_scaling and rope_parameters differ in factor: rope_scaling is read by"
        " transformers-5, vllm; rope_parameters is read by llama.cpp"
    )
    assert found.do == "write what is meant into both"
    typed = {**TWO_BLOCKS, "rope_scaling": YARN}
    typed["rope_parameters"] = {**YARN, "rope_theta": 1e6}
    assert find_agreeing(audit_file(typed, runtime=names)) == set(names)
    # A base in one of them alone contradicts nothing, and neither do other words.
    same = {**TWO_BLOCKS, "rope_scaling": {**YARN, "type": "yarn"}}
    assert "W20" not in {each.code for each in audit_file(same).findings}
    axes = {"type": "mrope", "mrope_section": [16, 24, 24]}
    plain = {"rope_type": "default", "mrope_section": [16, 24, 24]}
    same = {**QWEN, "rope_scaling": axes, "rope_parameters": plain}
    assert "W20" not in {each.code for each in audit_file(same).findings}


def test_a_factor_is_changed_in_the_block_that_is_read() -> None:
    result = audit_file(TWO_BLOCKS, runtime="llama.cpp", length=65536)
    assert find_fix(result, "N02") == (
        '"factor": 2.0 inside rope_parameters and "max_position_embeddings": 65536'
    )
    assert find_fix(result, "W02") == '"max_position_embeddings": 131072'
    result = audit_file(TWO_BLOCKS, length=65536)
    assert find_fix(result, "N02").startswith('"factor": 2.0 inside rope_scaling')

    # The reference scales by llama3 here, whose factor is another.
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    mixed = {**TWO_BLOCKS, "model_type": "llama", "rope_scaling": llama3}
    assert find_fix(audit_file(mixed, length=65536), "N02") == ""


def test_a_factor_of_one_is_passed_over_by_nobody() -> None:
    """transformers 4.51 takes the ratio of the lengths in its place, and scales."""
    block = {**YARN, "factor": 1.0}
    config = {**QWEN, "max_position_embeddings": 131072, "rope_scaling": block}
    codes = {each.code for each in audit_file(config).findings}
    assert "E08" not in codes
    assert "W02" in codes


def test_a_length_is_not_advised_to_whom_it_misleads() -> None:
    """transformers 4.48 takes the claimed length for the trained one."""
    config = {**QWEN, "rope_scaling": YARN}
    assert find_fix(audit_file(config, runtime="transformers-4.48"), "W02") == ""
    assert find_fix(audit_file(config, runtime="vllm"), "W02") == (
        '"max_position_embeddings": 131072'
    )


@pytest.mark.parametrize("factor", [1.0, 1.6])
def test_a_smaller_factor_leaves_the_lengths_in_agreement(factor: float) -> None:
    config = {**QWEN, "max_position_embeddings": 131072, "rope_scaling": YARN}
    length = 16384 if factor == 1 else round(factor * 32768)
    before = audit_file(config, runtime="vllm", length=length)
    after = audit_file(
        type_fix(config, find_fix(before, "N02")), runtime="vllm", length=length
    )
    assert not {each.code for each in after.findings} & {"N02", "W02", "E08"}


# Releases of transformers that take the claimed length for the trained one are left out:
# a fix that claims a length names them.
NAMES = ("transformers-5", "transformers-4.51", "vllm", "exllamav3", "llama.cpp")
ASKED = [*((name,) for name in NAMES), NAMES, ("transformers-4.51", "llama.cpp")]


@pytest.mark.slow
@pytest.mark.parametrize("names", ASKED, ids=",".join)
@pytest.mark.parametrize("claimed", [None, 32768, 65536, 1310720])
def test_each_length_and_factor_that_is_advised_ends_its_finding(
    names: tuple[str, ...], claimed: int | None
) -> None:
    typed = 0
    for factor, original, has_attention, length in product(
        (2.0, 40.0), (None, 32768), (False, True), (None, 16384, 65536)
    ):
        block: dict[str, Any] = {"type": "yarn", "factor": factor}
        if original:
            block["original_max_position_embeddings"] = original
        if has_attention:
            block["attention_factor"] = 0.1 * math.log(factor) + 1
        config = {**QWEN, "rope_scaling": block, "max_position_embeddings": claimed}
        if claimed is None:
            del config["max_position_embeddings"]
        try:
            before = audit_file(config, runtime=names, length=length)
        except InputError:
            # A runtime alone may refuse a block or a file without a length.
            continue
        for finding in before.findings:
            if not CHANGE.findall(finding.do):
                continue
            typed += 1
            changed = type_fix(config, finding.do)
            after = audit_file(changed, runtime=names, length=length)
            assert finding.code not in {each.code for each in after.findings}, changed
            assert after.spec.trained_len == before.spec.trained_len, changed
            if finding.code in ("W03", "W10"):
                assert have_equal_rotation(after.spec, before.spec), changed
    assert typed > 5 or (claimed is None and names == ("exllamav3",))


def override(key: str, **changes: Any) -> str:
    """Return vLLM's flag that lays keys over the file's, a block among them."""
    block = {**YARN, "rope_theta": 1e6, **changes}
    return f"--hf-overrides '{json.dumps({key: block})}'"


@pytest.mark.parametrize(
    ("runtime", "flags", "fix"),
    [
        (
            "llama.cpp",
            "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768 -c 65536",
            "--rope-scale 2",
        ),
        (
            "llama.cpp",
            "--rope-scaling yarn --rope-freq-scale 0.25 --yarn-orig-ctx 32768 -c 65536",
            "--rope-freq-scale 0.5",
        ),
        (
            "vllm",
            f"{override('rope_parameters')} --max-model-len 65536",
            '"factor": 2.0 in --hf-overrides',
        ),
    ],
)
@pytest.mark.parametrize("scaling", [{}, {"rope_scaling": YARN}])
def test_a_factor_is_advised_where_it_was_given(
    runtime: str, flags: str, fix: str, scaling: dict[str, Any]
) -> None:
    """A factor in the file is for nobody whose server has a flag for it."""
    config = {**QWEN, **scaling, "max_position_embeddings": 131072}
    assert find_fix(audit_file(config, runtime=runtime, flags=flags), "N02") == fix
    old, new = {
        "--rope-scale 2": ("--rope-scale 4", fix),
        "--rope-freq-scale 0.5": ("--rope-freq-scale 0.25", fix),
    }.get(fix, ('"factor": 4.0', '"factor": 2.0'))
    typed = flags.replace(old, new)
    assert typed != flags
    after = audit_file(config, runtime=runtime, flags=typed)
    assert "N02" not in {each.code for each in after.findings}


def test_a_length_is_claimed_for_a_scaling_by_a_flag() -> None:
    """The block of the flag states the length of training, and the file has no block."""
    flags = override("rope_parameters")
    before = audit_file(QWEN, runtime="vllm", flags=flags)
    fix = find_fix(before, "W10")
    assert fix == '"max_position_embeddings": 131072'
    typed = {**QWEN, "max_position_embeddings": 131072}
    after = audit_file(typed, runtime="vllm", flags=flags)
    assert "W10" not in {each.code for each in after.findings}
    assert have_equal_rotation(after.spec, before.spec)


@pytest.mark.parametrize(
    ("runtime", "flag"), [("vllm", "--max-model-len"), ("sglang", "--context-length")]
)
@pytest.mark.parametrize("length", [32768, 131072])
def test_a_server_that_is_given_its_length_needs_no_other(
    runtime: str, flag: str, length: int
) -> None:
    """Both multiply the length of a file with linear scaling, until they are told."""
    config = {**QWEN, "rope_scaling": {"type": "linear", "factor": 4.0}}
    before = audit_file(config, runtime=runtime)
    assert find_fix(before, "E07") == "give the server the length you mean"
    assert before.answer.endswith("the file claims 32768.")
    after = audit_file(config, runtime=runtime, flags=f"{flag} {length}")
    assert not after.findings
    assert [row["claimed_tokens"] for row in after.rows["runtimes"]] == [length]


def test_linear_scaling_by_flags_reaches_its_factor_times_the_length() -> None:
    flags = "--rope-scaling linear --rope-scale 4 -c"
    for length, code in ((131072, ""), (131073, "W18")):
        result = audit_file(QWEN, runtime="llama.cpp", flags=f"{flags} {length}")
        assert {each.code for each in result.findings} == {code} - {""}
    # The file states the length that its own scaling reaches.
    config = {**QWEN, "rope_scaling": {"type": "linear", "factor": 4.0}}
    result = audit_file(config, runtime="llama.cpp", flags=f"{flags} 65536")
    assert "W18" in {each.code for each in result.findings}


def test_llama3_reaches_as_far_in_a_table_of_divisors() -> None:
    block = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = {**QWEN, "model_type": "llama", "rope_scaling": block}
    config["max_position_embeddings"] = 131072
    for runtime in ("transformers-5", "llama.cpp"):
        for length, code in ((262144, ""), (262145, "W18")):
            result = audit_file(config, runtime=runtime, length=length)
            assert {each.code for each in result.findings} == {code} - {""}


GEMMA: dict[str, Any] = {
    "model_type": "gemma3_text",
    "hidden_size": 2560,
    "num_attention_heads": 8,
    "head_dim": 256,
    "num_hidden_layers": 34,
    "sliding_window": 1024,
    "max_position_embeddings": 65536,
    "rope_parameters": {
        "full_attention": {**YARN, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}


def test_a_dict_for_each_layer_type_is_the_block_of_the_main_layers() -> None:
    """Gemma 3 as transformers 5 saves it: a key beside the dicts has no effect."""
    before = audit_file(GEMMA)
    assert find_fix(before, "W02") == '"max_position_embeddings": 131072'
    fix = find_fix(audit_file(GEMMA, length=40000), "N02")
    assert fix == (
        '"factor": 1.220703125 inside rope_parameters.full_attention and'
        ' "max_position_embeddings": 40000'
    )
    typed = deepcopy(GEMMA)
    typed["rope_parameters"]["full_attention"]["factor"] = 1.220703125
    typed["max_position_embeddings"] = 40000
    after = audit_file(typed, length=40000)
    assert not {each.code for each in after.findings} & {"N02", "W02", "W10", "W11"}
    assert getattr(after.spec.scaling, "factor", 1.0) == pytest.approx(1.220703125)


def test_a_scaling_beside_the_dicts_goes_to_the_layers_that_it_is_meant_for() -> None:
    config = deepcopy(GEMMA)
    config["max_position_embeddings"] = 131072
    full = {"rope_type": "default", "rope_theta": 1e6}
    config["rope_parameters"]["full_attention"] = full
    config["rope_parameters"] |= {"factor": 8.0, "rope_type": "linear"}
    before = audit_file(config)
    assert find_fix(before, "W11") == (
        "move it into the dict of the layers that it is meant for, such as"
        " rope_parameters.full_attention"
    )
    assert find_fix(before, "E08").startswith(
        "move factor, rope_type into rope_parameters.full_attention (for transformers-5,"
    )
    full |= {"factor": 8.0, "rope_type": "linear"}
    del config["rope_parameters"]["factor"], config["rope_parameters"]["rope_type"]
    after = audit_file(config)
    assert getattr(after.spec.scaling, "factor", 1.0) == 8
    assert "W11" not in {each.code for each in after.findings}
    local = after.reference.layers["sliding_attention"]
    assert (local.base, local.method) == (1e4, "unscaled")


@pytest.mark.parametrize("context", [40000, 80000])
@pytest.mark.parametrize("kind", ["dynamic", "linear"])
def test_a_text_for_a_file_that_servers_alone_read(
    tmp_path: Path, context: int, kind: str
) -> None:
    """They multiply the length of the file, which is not what the file states."""
    block = {"rope_type": kind, "factor": 2.0}
    part = {**QWEN, "max_position_embeddings": 40000, "rope_scaling": block}
    config = {
        "model_type": "internvl_chat",
        "architectures": ["InternVLChatModel"],
        "llm_config": part,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    (emission,) = emit(path, context=context, target="portable").targets
    if context == 40000 or kind == "dynamic":
        assert emission.text == "{}"
    else:
        written = json.loads(emission.text)["llm_config"]
        assert written["max_position_embeddings"] == context
    assert ("it cannot reach 80000 tokens" in emission.lost) == (
        context == 80000 and kind == "dynamic"
    )


@pytest.mark.parametrize(
    ("block", "is_optional"),
    [
        ({**YARN, "factor": 0}, False),
        ({"type": "linear", "factor": 0}, False),
        ({**YARN, "attention_factor": -1.0}, True),
        ({**YARN, "beta_fast": 1, "beta_slow": 32}, True),
    ],
)
def test_a_key_is_left_out_only_if_it_has_a_default(
    block: dict[str, Any], is_optional: bool
) -> None:
    config = {**QWEN, "rope_scaling": block}
    fix = find_fix(audit_file(config), "E11")
    assert fix.startswith("the value from the model's card")
    assert fix.endswith("for the default") == is_optional
    for key in ("factor", "attention_factor", "beta_fast", "beta_slow"):
        if f" {key} " in fix:
            del block[key]
    if is_optional:
        after = audit_file({**QWEN, "rope_scaling": block})
        assert "E11" not in {each.code for each in after.findings}


def test_a_base_is_written_into_the_block_that_is_read() -> None:
    """Of two blocks, transformers 5 reads the one and llama.cpp the other."""
    part = {
        **QWEN3_VL,
        "model_type": "qwen3_5_text",
        "rope_theta": 1e6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 2e6},
    }
    config = {"model_type": "qwen3_5", "text_config": part}
    before = audit_file(config)
    fix = find_fix(before, "E03")
    assert fix == 'write "rope_theta": 1000000.0 in text_config.rope_parameters'
    part["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6}
    after = audit_file(config)
    assert {spec.base for _, spec in after.specs} == {1e6}


def test_a_text_has_the_block_under_the_name_that_a_model_file_reads(
    tmp_path: Path,
) -> None:
    """MLX-LM's file for Qwen 3.5 looks into rope_parameters alone."""
    part = {**QWEN3_VL, "model_type": "qwen3_5_text", "rope_theta": 1e6}
    del part["rope_parameters"]
    config = {"model_type": "qwen3_5", "text_config": part}
    before = audit_file(config)
    assert "mlx-lm" not in find_agreeing(before)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    context = before.spec.length
    (emission,) = emit(path, context=context, target="portable").targets
    assert not emission.lost
    part |= json.loads(emission.text)["text_config"]
    after = audit_file(config)
    assert find_agreeing(after) == {name for name, _ in after.specs}
    assert "mlx-lm" in find_agreeing(after)
