"""The header reader against the `gguf` package, and against files that lie."""

import random
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from ropelab.audit.audited import audit
from ropelab.cli import app
from ropelab.readers.document import (
    ROTATED_ARCHITECTURES,
    UNROTATED_ARCHITECTURES,
    load,
)
from ropelab.readers.gguf import Length, read_header
from ropelab.readers.registry import RUNTIMES, Reading, read
from ropelab.runs.errors import InputError
from tests.texts import mentions

MUTATIONS = 2000


def write(path, divisors=True, **extra):
    """A small Llama file with a vocabulary, made by the package."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(131072)
    writer.add_embedding_length(4096)
    writer.add_head_count(32)
    writer.add_rope_dimension_count(128)
    writer.add_rope_freq_base(500000.0)
    writer.add_token_list([f"token {i}" for i in range(500)])
    writer.add_token_scores([0.5] * 500)
    writer.add_bool("llama.rope.scaling.finetuned", True)
    for name, value in extra.items():
        getattr(writer, name)(value)
    freqs = np.linspace(1, 8, 64).astype(np.float32)
    if divisors:
        writer.add_tensor("rope_freqs.weight", freqs)
    writer.add_tensor("output.weight", np.zeros((4, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "model.gguf")


def test_the_header_is_what_the_package_reads(file):
    ours, theirs = read_header(file), gguf.GGUFReader(file)
    scalars = {
        name: field.contents()
        for name, field in theirs.fields.items()
        if not name.startswith("GGUF.") and field.types[0] != gguf.GGUFValueType.ARRAY
    }
    mine = {
        name: value
        for name, value in ours.fields.items()
        if not isinstance(value, Length)
    }
    assert mine == scalars
    assert ours.fields["tokenizer.ggml.tokens"] == Length(500)
    tensor = next(t for t in theirs.tensors if t.name == "rope_freqs.weight")
    np.testing.assert_array_equal(ours.tensors["rope_freqs.weight"], tensor.data)


def test_a_file_is_audited_from_its_keys_and_tensors(file):
    result = audit(load(str(file)))
    (row,) = result.rows["runtimes"]
    assert (row["runtime"], row["base"], row["rotary_dim"]) == (
        "llama.cpp",
        500000.0,
        128,
    )
    spec = result.reference.main_spec
    assert spec is not None
    plain = 500000.0 ** (-np.arange(0, 128, 2) / 128)
    np.testing.assert_allclose(
        spec.inv_freq(100), plain / np.linspace(1, 8, 64), rtol=1e-6
    )


def test_a_runtime_that_is_left_out_is_named(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        app.main(["audit", str(file), "--runtime", "vllm,llama.cpp", "--json"])
    assert ended.value.code in (None, 0, 3)
    out, err = capsys.readouterr()
    assert "vllm" not in out
    assert err == "vllm is left out: ropelab has no reader of such files for it\n"


def test_a_runtime_that_reads_no_such_file_is_named(file: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"^ropelab has no reader of gguf files for vllm, only for llama\.cpp$",
    ):
        audit(str(file), runtime="vllm")
    assert [
        r.runtime.name for r in audit(str(file), runtime="vllm,llama.cpp").readings
    ] == ["llama.cpp"]


def test_the_files_own_yarn_attention_factor_has_no_effect(tmp_path):
    def yarn(path, **extra):
        scaling = {
            "add_rope_scaling_factor": 4.0,
            "add_rope_scaling_orig_ctx_len": 32768,
        }
        kind = {"add_rope_scaling_type": gguf.RopeScalingType.YARN}
        path = write(tmp_path / path, divisors=False, **kind, **scaling, **extra)
        return read(RUNTIMES["llama.cpp"], load(str(path)).config)

    without = yarn("a.gguf").main_spec
    reading = yarn("b.gguf", add_rope_scaling_yarn_attn_factor=2.0)
    assert (
        reading.main_spec.attention_factor
        == without.attention_factor
        == pytest.approx(1.1386294)
    )
    statuses = {use.path: use.status for use in reading.keys}
    assert statuses["rope.scaling.yarn_attn_factor"] == "overridden"
    findings = audit(load(str(tmp_path / "b.gguf"))).findings
    assert any(f.code == "W12" and "no effect" in f.says for f in findings)


@pytest.mark.parametrize(
    ("architecture", "status", "factor"),
    [("llama", "ignored", 1.1386294), ("mistral3", "used", 1.0)],
)
def test_yarns_ramp_is_loaded_for_some_architectures(
    tmp_path: Path, architecture: str, status: str, factor: float
) -> None:
    def written(fast: float) -> Reading:
        path = tmp_path / f"{fast}.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_context_length(131072)
        writer.add_embedding_length(4096)
        writer.add_head_count(32)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(32768)
        writer.add_rope_scaling_yarn_beta_fast(fast)
        writer.add_rope_scaling_yarn_log_mul(1.0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return read(RUNTIMES["llama.cpp"], load(str(path)).config)

    usual, other = written(32.0), written(8.0)
    assert usual.main_spec is not None
    assert other.main_spec is not None
    same = usual.main_spec.inv_freq(131072) == pytest.approx(
        other.main_spec.inv_freq(131072)
    )
    assert same == (status == "ignored")
    assert usual.main_spec.attention_factor == pytest.approx(factor)
    statuses = {use.path: use.status for use in other.keys}
    assert statuses["rope.scaling.yarn_beta_fast"] == status
    assert statuses["rope.scaling.yarn_log_multiplier"] == status


@pytest.mark.parametrize(
    ("heads", "length", "width"),
    [([32, 16, 0], None, 128), ([64, 32], None, 64), ([0, 32], 80, 80)],
)
def test_heads_per_layer_are_read_and_the_first_decides(
    tmp_path: Path, heads: list[int], length: int | None, width: int
) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "deci")
    writer.add_context_length(8192)
    writer.add_embedding_length(4096)
    writer.add_head_count(heads)
    if length:
        writer.add_key_length(length)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert read_header(path).fields["deci.attention.head_count"] == heads
    (row,) = audit(load(str(path))).rows["runtimes"]
    assert (row["rotary_dim"], row["head_dim"]) == (width, width), row


HEADS = {
    "context_length": 8192,
    "embedding_length": 4096,
    "attention.head_count": 32,
    "rope.dimension_count": 128,
    "rope.freq_base": 5e5,
    "rope.scaling.factor": 8.0,
}


@pytest.mark.parametrize("architecture", ["deci", "falcon", "llama", "llama-embed"])
@pytest.mark.parametrize("rotated", [64, 256])
def test_architectures_of_whole_heads_refuse_a_part(architecture, rotated):
    fields = {**HEADS, "rope.dimension_count": rotated, "attention.key_length": 192}
    runtime = RUNTIMES["llama.cpp"]
    reading = read(runtime, {**fields, "model_type": architecture})
    assert reading.main_spec is None
    if rotated < 192:
        assert reading.outcome == "refused"
        assert mentions(reading.problem, "64", "192", "whole heads")
        other = read(runtime, {**fields, "model_type": "qwen2"}).main_spec
        assert other is not None
        assert (other.rotary_dim, other.head_dim) == (64, 192)


@pytest.mark.parametrize(
    ("architecture", "window", "base", "sliding"),
    [
        ("gemma3", 1024, None, 1e4),
        ("gemma3", 1024, 2e4, 2e4),
        ("gemma3", 0, None, None),
        ("gemma3", None, 2e4, None),
        ("gemma3n", None, None, 1e4),
        ("gemma-embedding", 512, None, 1e4),
        ("modern-bert", 128, None, 1e4),
        ("olmo2", 4096, None, 5e5),
        ("olmo2", None, None, None),
        ("llama", 4096, None, None),
    ],
)
def test_layers_with_a_window_rotate_by_a_base_of_their_own(
    architecture, window, base, sliding
):
    fields = {**HEADS, "model_type": architecture}
    if window is not None:
        fields["attention.sliding_window"] = window
    if base is not None:
        fields["rope.freq_base_swa"] = base
    layers = read(RUNTIMES["llama.cpp"], fields).layers
    if sliding is None:
        (spec,) = layers.values()
    else:
        spec = layers["full_attention"]
        local = layers["sliding_attention"]
        assert (local.base, local.scaling.name) == (sliding, "unscaled")
    assert (spec.base, spec.scaling.name) == (5e5, "pi")


def test_a_first_layer_without_heads_is_said(tmp_path: Path) -> None:
    fields = {"model_type": "deci", "context_length": 8192, "embedding_length": 4096}
    reading = read(RUNTIMES["llama.cpp"], {**fields, "attention.head_count": [0, 32]})
    assert reading.main_spec is None
    assert mentions(reading.problem, "first layer", "without heads")


def test_flags_on_top_of_divisors_divide_twice(file):
    config = load(str(file)).config
    plain = read(RUNTIMES["llama.cpp"], config).main_spec
    scaled = read(RUNTIMES["llama.cpp"], config, {"rope_scale": 4.0}).main_spec
    assert plain is not None
    assert scaled is not None
    np.testing.assert_allclose(scaled.inv_freq(9), plain.inv_freq(9) / 4, rtol=1e-12)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"GGUF", "ends before"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "byte order"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**62, 1), "more than any model"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**15), "ends before"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**31), "ends before"),
    ],
)
def test_a_lying_header_is_one_line(tmp_path, raw, says):
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=says) as error:
        load(str(path))
    assert "\n" not in str(error.value)


def test_arrays_longer_than_the_file_are_refused_at_once(tmp_path):
    name = b"llama.list"
    start = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(name)) + name
    for kind in (4, 8):
        path = tmp_path / f"{kind}.gguf"
        path.write_bytes(start + struct.pack("<IIQ", 9, kind, 2**40))
        with pytest.raises(InputError, match="longer than the file"):
            read_header(path)


def test_more_strings_than_any_vocabulary_has_are_refused_at_once(
    tmp_path: Path,
) -> None:
    name, path = b"llama.list", tmp_path / "sparse.gguf"
    start = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(name)) + name
    with path.open("wb") as file:
        file.write(start + struct.pack("<IIQ", 9, 8, 2**26))
        file.truncate(2**30)
    with pytest.raises(InputError, match="entries are more than any model has"):
        read_header(path)


TYPES = {"uint16": 2, "uint32": 4, "int32": 5, "float32": 6, "string": 8, "float64": 12}
CODES = {"uint16": "H", "uint32": "I", "int32": "i", "float32": "f", "float64": "d"}


def as_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def as_field(name: str, kind: str, value: float | str) -> bytes:
    """A key of a GGUF file with its type, which no writer has to get right."""
    if isinstance(value, str):
        written = as_text(value)
    else:
        written = struct.pack(f"<{CODES[kind]}", value)
    return as_text(name) + struct.pack("<I", TYPES[kind]) + written


def as_array(name: str, kind: int, entries: bytes, count: int) -> bytes:
    return as_text(name) + struct.pack("<IIQ", 9, kind, count) + entries


def as_tensor(name: str, elements: int, offset: int) -> bytes:
    return as_text(name) + struct.pack("<IQIQ", 1, elements, 0, offset)


FIELDS = {
    "general.architecture": as_field("general.architecture", "string", "llama"),
    "context_length": as_field("llama.context_length", "uint32", 4096),
    "embedding_length": as_field("llama.embedding_length", "uint32", 256),
    "head_count": as_field("llama.attention.head_count", "uint32", 4),
    "freq_base": as_field("llama.rope.freq_base", "float32", 5e5),
}


def write_raw(
    path: Path,
    changes: dict[str, bytes],
    tensors: tuple[bytes, ...] = (),
    data: bytes = b"",
) -> Path:
    """A file of fields as bytes, with some in the place of others, or after them."""
    fields = {**FIELDS, **changes}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    head += b"".join(fields.values()) + b"".join(tensors)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


DIVISORS = np.full(32, 2, "<f4").tobytes()


def test_fields_as_bytes_are_read(tmp_path: Path) -> None:
    tensors = (as_tensor("rope_freqs.weight", 32, 0), as_tensor("output", 8, 128))
    path = write_raw(tmp_path / "raw.gguf", {}, tensors, 2 * DIVISORS)
    spec = read(RUNTIMES["llama.cpp"], load(str(path)).config).main_spec
    assert spec is not None
    plain = 5e5 ** (-np.arange(0, 64, 2) / 64)
    np.testing.assert_allclose(spec.inv_freq(9), plain / 2, rtol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"again": FIELDS["freq_base"]},
        {"again": as_field("llama.rope.freq_base", "float32", 1e4)},
        {"freq_base": as_field("llama.rope.freq_base", "float64", 5e5)},
        {"freq_base": as_field("llama.rope.freq_base", "uint32", 500000)},
        {"freq_base": as_field("llama.rope.freq_base", "string", "500000")},
        {"freq_base": as_array("llama.rope.freq_base", 6, bytes(4), 1)},
        {"context_length": as_field("llama.context_length", "int32", 4096)},
        {"context_length": as_field("llama.context_length", "float32", 4096)},
        {"head_count": as_array("llama.attention.head_count", 6, bytes(8), 2)},
        {"more": as_field("llama.rope.scaling.factor", "uint32", 4)},
        {"more": as_field("llama.rope.scaling.type", "uint32", 1)},
        {"more": as_array("other.list", 9, struct.pack("<IQI", 4, 1, 7), 1)},
        {"more": as_array("other.list", 99, bytes(8), 1)},
        {"more": as_field("", "uint32", 1)},
        {"more": as_field("general.alignment", "uint32", 0)},
        {"more": as_field("general.alignment", "uint32", 7)},
        {"more": as_field("general.alignment", "uint32", 2**31 - 1)},
        {"more": as_field("general.alignment", "int32", 32)},
        {"more": as_field("general.alignment", "string", "32")},
    ],
)
def test_fields_that_llamacpp_refuses_are_refused(
    tmp_path: Path, changes: dict[str, bytes]
) -> None:
    """Sources: ggml/src/gguf.cpp, and GGUFMeta in src/llama-model-loader.cpp."""
    path = write_raw(tmp_path / "raw.gguf", changes)
    with pytest.raises(InputError) as error:
        load(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "tensors",
    [
        (as_tensor("rope_freqs.weight", 32, 1),),
        (as_tensor("rope_freqs.weight", 32, 32),),
        (as_tensor("rope_freqs.weight", 32, 2**63),),
        (as_tensor("rope_freqs.weight", 32, 0), as_tensor("output", 8, 64)),
        (as_tensor("rope_freqs.weight", 32, 0), as_tensor("output", 8, 0)),
        (as_tensor("rope_freqs.weight", 32, 0), as_tensor("output", 8, 130)),
        (
            as_tensor("rope_freqs.weight", 32, 0),
            as_tensor("rope_freqs.weight", 32, 128),
        ),
    ],
)
def test_tensors_that_do_not_follow_each_other_are_refused(
    tmp_path: Path, tensors: tuple[bytes, ...]
) -> None:
    path = write_raw(tmp_path / "raw.gguf", {}, tensors, 4 * DIVISORS)
    with pytest.raises(InputError):
        load(str(path))


@pytest.mark.parametrize(
    "name", ["rope_factors_long.weight", "rope_factors_short.weight"]
)
def test_one_of_two_tables_is_not_modelled(tmp_path: Path, name: str) -> None:
    path = write_raw(tmp_path / "raw.gguf", {}, (as_tensor(name, 32, 0),), DIVISORS)
    reading = read(RUNTIMES["llama.cpp"], load(str(path)).config)
    assert (reading.main_spec, reading.outcome) == (None, "not modelled")


@pytest.mark.parametrize("divisor", [0.0, -1.0, float("inf"), float("nan")])
def test_divisors_that_make_no_rotation_are_not_modelled(
    tmp_path: Path, divisor: float
) -> None:
    """llama.cpp divides by them: ggml_rope_cache_init in ggml-cpu/ops.cpp."""
    divisors = np.full(32, 2, "<f4")
    divisors[3] = divisor
    tensors = (as_tensor("rope_freqs.weight", 32, 0),)
    path = write_raw(tmp_path / "raw.gguf", {}, tensors, divisors.tobytes())
    reading = read(RUNTIMES["llama.cpp"], load(str(path)).config)
    assert (reading.main_spec, reading.outcome) == (None, "not modelled")
    assert "has a divisor of" in reading.problem


def of_architecture(path: Path, name: str) -> Path:
    fields = {
        key: value.replace(as_text("llama"), as_text(name))
        for key, value in FIELDS.items()
    }
    for key in ("context_length", "embedding_length", "head_count", "freq_base"):
        kind = FIELDS[key][8:].split(b".", 1)
        length = struct.unpack("<Q", FIELDS[key][:8])[0] + len(name) - len("llama")
        fields[key] = struct.pack("<Q", length) + name.encode() + b"." + kind[1]
    return write_raw(path, fields)


@pytest.mark.parametrize(
    "name", ["gpt2", "bloom", "mpt", "t5", "mamba2", "rwkv7", "bert", "starcoder"]
)
def test_architectures_that_rotate_nothing_are_refused(
    tmp_path: Path, name: str
) -> None:
    path = of_architecture(tmp_path / "raw.gguf", name)
    with pytest.raises(InputError, match="no rotary positions"):
        load(str(path))


def write_files(
    folder: Path, tensors_of_files: list[list[str]], **changes: bytes
) -> list[Path]:
    """Write the files of a model, as `llama-gguf-split` does; `changes` are fields of
    the first.
    """
    count = len(tensors_of_files)
    total = sum(map(len, tensors_of_files))
    paths = []
    for number, names in enumerate(tensors_of_files):
        fields = {
            "count": as_field("split.count", "uint16", count),
            "number": as_field("split.no", "uint16", number),
            "tensors": as_field("split.tensors.count", "int32", total),
        }
        if number == 0:
            fields |= changes
        given = {name: field for name, field in fields.items() if field}
        tensors = tuple(
            as_tensor(name, 32, 128 * place) for place, name in enumerate(names)
        )
        path = folder / f"m-{number + 1:05d}-of-{count:05d}.gguf"
        paths.append(write_raw(path, given, tensors, len(names) * DIVISORS))
    return paths


OUTSIDE_FIRST = [[], ["output.weight"], ["rope_freqs.weight"]]


def test_divisors_in_a_later_file_of_a_model_are_read(tmp_path: Path) -> None:
    """`llama-gguf-split --no-tensor-first-split` leaves the first file without tensors."""
    first, *_ = write_files(tmp_path, OUTSIDE_FIRST)
    plain = 5e5 ** (-np.arange(0, 64, 2) / 64)
    for source in (first, tmp_path):
        spec = read(RUNTIMES["llama.cpp"], load(str(source)).config).main_spec
        assert spec is not None
        np.testing.assert_allclose(spec.inv_freq(9), plain / 2, rtol=1e-6)


def test_a_model_without_all_its_files_is_refused(tmp_path: Path) -> None:
    first, second, third = write_files(tmp_path, OUTSIDE_FIRST)
    with pytest.raises(InputError, match="is file 2 of the 3"):
        load(str(second))
    content = third.read_bytes()

    third.unlink()
    with pytest.raises(InputError, match=f"{third.name} is not beside it"):
        load(str(first))
    third.mkdir()
    with pytest.raises(InputError, match=f"cannot read .*{third.name}"):
        load(str(first))
    third.rmdir()
    third.write_bytes(second.read_bytes())
    with pytest.raises(InputError, match="is file 2 of a model by its keys"):
        load(str(first))

    third.write_bytes(content)
    renamed = first.rename(tmp_path / "m.gguf")
    with pytest.raises(InputError, match="its name does not end in -00001-of-00003"):
        load(str(renamed))


@pytest.mark.parametrize(
    ("tensors_of_files", "changes"),
    [
        ([["rope_freqs.weight"], ["rope_freqs.weight"]], {}),
        (OUTSIDE_FIRST, {"tensors": as_field("split.tensors.count", "int32", 3)}),
        (OUTSIDE_FIRST, {"tensors": b""}),
        (OUTSIDE_FIRST, {"count": as_field("split.count", "uint32", 3)}),
        (OUTSIDE_FIRST, {"number": as_field("split.no", "uint32", 0)}),
    ],
)
def test_files_that_llamacpp_does_not_join_are_refused(
    tmp_path: Path, tensors_of_files: list[list[str]], changes: dict[str, bytes]
) -> None:
    first, *_ = write_files(tmp_path, tensors_of_files, **changes)
    with pytest.raises(InputError):
        load(str(first))


@pytest.mark.parametrize("kind", ["adapter", "imatrix", "mmproj"])
def test_files_beside_a_model_are_no_model(tmp_path: Path, kind: str) -> None:
    field = as_field("general.type", "string", kind)
    path = write_raw(tmp_path / "raw.gguf", {"kind": field})
    with pytest.raises(InputError, match="is no model but"):
        load(str(path))


def test_a_folder_of_several_models_asks_for_one(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        write_raw(tmp_path / name, {})
    with pytest.raises(InputError, match="several GGUF models"):
        load(str(tmp_path))


@pytest.mark.parametrize(("name", "is_known"), [("qwen3", True), ("zzzzz", False)])
def test_an_unknown_architecture_is_said(
    tmp_path: Path, name: str, is_known: bool
) -> None:
    path = of_architecture(tmp_path / "raw.gguf", name)
    findings = audit(load(str(path))).findings
    said = [each for each in findings if "not known here" in each.says]
    assert [each.code for each in said] == ([] if is_known else ["W12"])


def test_every_architecture_of_the_package_is_known() -> None:
    assert (
        set(gguf.MODEL_ARCH_NAMES.values())
        <= ROTATED_ARCHITECTURES | UNROTATED_ARCHITECTURES
    )
    assert not ROTATED_ARCHITECTURES & UNROTATED_ARCHITECTURES


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        (100, 7),
        pytest.param(300, 8, marks=pytest.mark.slow),
        pytest.param(MUTATIONS, 9, marks=pytest.mark.stress),
    ],
)
def test_mutated_headers_are_read_or_refused(file, tmp_path, count, seed):
    """Changed bytes never give anything but an audit or an InputError."""
    good, rng = bytearray(file.read_bytes()), random.Random(seed)
    path = tmp_path / "mutated.gguf"
    refused = 0
    for _ in range(count):
        raw = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 8))):
            place = rng.randrange(min(len(raw), 700))
            raw[place] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
        if rng.random() < 0.2:
            raw = raw[: rng.randrange(len(raw))]
        path.write_bytes(raw)
        try:
            audit(load(str(path)))
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)
    assert 0 < refused < count


def test_a_bare_vocabulary_is_no_model(tmp_path):
    path = tmp_path / "ggml-vocab-llama.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(4096)
    writer.add_head_count(32)
    writer.add_token_list(["a", "b"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InputError, match="a bare vocabulary"):
        load(str(path))
