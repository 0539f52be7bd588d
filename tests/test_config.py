"""Configs: every way in, and the sentence for every wrong way."""

import re
from pathlib import Path
from typing import Literal

import pytest
from pydantic import ValidationError

from ropelab.runs.config import (
    Base,
    Config,
    Count,
    Counts,
    Device,
    EvenCount,
    Names,
    Naturals,
    Positive,
    build,
    read_toml,
)
from ropelab.runs.errors import InputError, make_name_error
from ropelab.runs.files import parse
from ropelab.runs.spelling import read_list, read_number, write_command
from tests.texts import mentions


class Sample(Config):
    """One field of every kind that experiments use."""

    head_dim: EvenCount = 64
    base: Base = 1e6
    period: Positive = 1e6
    length: Count = 131072
    contexts: Counts = (1024,)
    methods: Names = ("yarn",)
    kind: Literal["text", "copy"] = "text"
    device: Device = "auto"
    reverse: bool = False


class Lengths(Config):
    """The fields that Hugging Face configs spell otherwise."""

    base: Base = 1e4
    head_dim: EvenCount = 64
    rotary_dim: EvenCount | None = None
    train_len: Count = 2048
    test_len: Count | None = None


def test_the_spellings_of_hugging_face_are_read():
    theirs = {
        "rope_theta": "5e5",
        "original_max_position_embeddings": "8k",
        "max_position_embeddings": "128k",
        "partial_rotary_factor": "0.25",
    }
    config = build(Lengths, theirs)
    assert config == Lengths(base=5e5, train_len=8192, test_len=131072, rotary_dim=16)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"base": 1e4, "rope_theta": 1e4},
            "base and rope_theta are the same; give one",
        ),
        ({"rotary_dim": 8, "partial_rotary_factor": 0.5}, "are the same; give one"),
        ({"partial_rotary_factor": 1.5}, "above 0 and up to 1, got 1.5"),
        ({"partial_rotary_factor": "half"}, "must be a number"),
        ({"rope_theta": 0}, "greater than 1"),
    ],
)
def test_two_spellings_or_a_bad_value_get_one_line(values, message):
    with pytest.raises(InputError, match=message) as caught:
        build(Lengths, values)
    assert "\n" not in str(caught.value)


def test_a_config_without_the_field_does_not_know_its_other_spelling():
    with pytest.raises(InputError, match="unknown key 'partial_rotary_factor'"):
        build(Sample, {"partial_rotary_factor": 0.5})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e6", 1_000_000),
        ("500000", 500_000),
        ("500_000", 500_000),
        ("128k", 131_072),
        ("2M", 2 * 1024**2),
        ("9007199254740993", 2**53 + 1),  # no float64
        ("1.5k", 1536),
        (" 4096 ", 4096),
        ("2^40", 2**40),
        ("0.1", 0.1),
        (".5", 0.5),
        ("-3", -3),
        (7, 7),
    ],
)
def test_numbers_read_as_people_write_them(text, number):
    assert read_number(text) == number
    assert type(read_number(text)) is type(number)


@pytest.mark.parametrize(
    "text", ["1__0", "1_", "_1", "1_.5", "1_e3", "1e-400", "-1e-400", "5e", "1e5.5"]
)
def test_what_is_no_number_is_not_read_as_a_near_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a number|too close to 0"):
        read_number(text)


@pytest.mark.parametrize("text", ["0", "0.0", "-0", "0e-400", "0_0", "٠"])
def test_zero_is_zero_however_it_is_written(text: str) -> None:
    assert read_number(text) == 0


def test_lists_split_outside_parentheses_only():
    assert read_list("yarn(factor=4,beta_fast=8), pi,") == (
        "yarn(factor=4,beta_fast=8)",
        "pi",
    )
    assert read_list(["a", "b"]) == ("a", "b")


@pytest.mark.parametrize(
    ("values", "typed"),
    [
        ({"base": "500k"}, "type 500000"),
        ({"base": "1.5M"}, "type 1500000"),
        ({"base": "1e6k"}, "either an exponent or 'k'"),
        ({"length": "1e3k"}, "either an exponent or 'k'"),
        ({"length": "32,768"}, "type 32768"),
        ({"contexts": "32,768"}, "type 32768, or '32, 768'"),
        ({"contexts": "1,048,576"}, "type 1048576, or '1, 048, 576'"),
    ],
)
def test_a_number_that_could_mean_two_is_refused_with_what_to_type(values, typed):
    with pytest.raises(InputError, match=re.escape(typed)):
        build(Sample, values)


class Seeded(Config):
    """A list of whole numbers that may be 0, such as seeds and first positions."""

    seeds: Naturals = (0,)


@pytest.mark.parametrize("text", ["1,000", "32,768", "10,000,000"])
def test_a_seed_that_could_be_two_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="could be one number or several"):
        build(Seeded, {"seeds": text})
    apart = text.replace(",", ", ")
    numbers = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    assert build(Seeded, {"seeds": apart}).seeds == numbers


def test_seeds_are_listed_as_before() -> None:
    assert build(Seeded, {"seeds": "0,1,2,100"}).seeds == (0, 1, 2, 100)
    assert build(Seeded, {"seeds": [1, 0]}).seeds == (1, 0)


@pytest.mark.parametrize("text", [",".join(map(str, range(1001))), list(range(1001))])
def test_a_list_has_a_bound_and_its_error_an_end(text):
    with pytest.raises(InputError) as caught:
        build(Sample, {"methods": text if isinstance(text, str) else [*map(str, text)]})
    said = str(caught.value)
    assert mentions(said, "methods", "at most 1000", "not 1001")
    assert len(said) < 300


def test_seeds_that_would_draw_the_weights_of_another_are_refused():
    """torch takes the lowest 32 bits of a seed: 0 and 2^32 are one start."""
    from ropelab.experiments.extrapolate import ExtrapolateConfig

    largest = 2**31 - 1
    assert build(ExtrapolateConfig, {"seeds": [0, largest]}).seeds == (0, largest)
    for seed in (2**31, 2**32, 2**53):
        with pytest.raises(InputError, match=f"less than or equal to {largest}"):
            build(ExtrapolateConfig, {"seeds": [0, seed]})


def test_seeds_and_another_list_have_a_bound_together():
    from ropelab.experiments.extrapolate import ExtrapolateConfig

    methods = [f"yarn(factor={1 + n / 100})" for n in range(101)]
    with pytest.raises(InputError, match="10100 combinations; at most 10000"):
        build(ExtrapolateConfig, {"methods": methods, "seeds": list(range(100))})
    assert build(ExtrapolateConfig, {"methods": methods, "seeds": list(range(99))})


def test_a_list_with_blanks_is_a_list_and_its_command_too():
    assert build(Sample, {"contexts": "32, 768"}).contexts == (32, 768)
    command = write_command("base", {"context": [32, 768]})
    assert command == "ropelab base --context '32, 768'"
    # Numbers that nobody would write with such commas stay as they were.
    for lengths in ([512, 4096], [64, 256, 512], [128, 256]):
        text = ",".join(map(str, lengths))
        assert write_command("base", {"context": lengths}).endswith(f" {text}")
        assert build(Sample, {"contexts": text}).contexts == tuple(lengths)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("bf16,FP16,fp32", ("bfloat16", "float16", "float32")),
        ("half,float16", ("float16",)),
        (["torch.bfloat16", "tf32"], ("bfloat16", "tf32")),
    ],
)
def test_formats_are_understood_by_the_names_that_people_use(typed, name):
    from ropelab.experiments.base import BaseConfig
    from ropelab.experiments.precision import PrecisionConfig

    assert build(PrecisionConfig, {"formats": typed}).formats == name
    assert build(BaseConfig, {"formats": typed}).formats == name


def test_a_method_reads_k_as_1024_for_lengths_alone():
    from ropelab.math.methods import parse_scaling

    with pytest.raises(InputError, match="type 500000"):
        parse_scaling("abf(base=500k)")
    assert parse_scaling("abf(base=500000)") == parse_scaling("abf(base=5e5)")


@pytest.mark.parametrize(
    "contexts", ["1k,1024,2k,1_024", [1024, "1k", 2048], (1024.0, 1024, 2048)]
)
def test_what_is_given_twice_counts_once(contexts):
    config = build(Sample, {"contexts": contexts, "methods": "pi,yarn,pi"})
    assert config == Sample(contexts=(1024, 2048), methods=("pi", "yarn"))


def test_only_sections_may_be_equal():
    from ropelab.experiments.freqs import FreqsConfig

    assert build(FreqsConfig, {"sections": "24,20,20"}).sections == (24, 20, 20)


def test_text_and_typed_values_give_the_same_config():
    typed = {
        "head_dim": 128,
        "base": 5e5,
        "contexts": [1024, 2048],
        "methods": ["pi", "ntk"],
    }
    text = {"head_dim": "128", "base": "5e5", "contexts": "1k,2k", "methods": "pi,ntk"}
    assert build(Sample, typed) == build(Sample, text)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"head_dim": "7"},
            "head_dim must be even: rotary features come in pairs, got '7'",
        ),
        ({"head_dim": "0"}, "head_dim must be greater than or equal to 2, got '0'"),
        ({"base": "1"}, "base must be greater than 1, got '1'"),
        ({"base": "nan"}, "base must be a number such as 4096, 1e6 or 128k, got 'nan'"),
        ({"base": float("nan")}, "base must be"),
        ({"base": float("inf")}, "base must be"),
        ({"period": "-1"}, "period must be greater than 0, got '-1'"),
        ({"length": "1.5"}, "length must be a whole number, got 1.5"),
        ({"length": "-4"}, "length must be greater than or equal to 1, got '-4'"),
        ({"length": "1e400"}, "length must be a finite number"),
        ({"length": 1e300}, "length is too large, got 1e+300"),
        ({"length": [1]}, "length must be a whole number, got [1]"),
        ({"base": [1.5]}, "base must be a number, got [1.5]"),
        ({"length": True}, "length must be a number, not true or false"),
        ({"contexts": ""}, "contexts must have at least one value, got ''"),
        (
            {"contexts": "1k,x"},
            "contexts must be a number such as 4096, 1e6 or 128k, got 'x'",
        ),
        (
            {"kind": "txt"},
            "unknown kind 'txt'; did you mean 'text'? allowed: copy, text",
        ),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"reverse": "perhaps"}, "reverse must be true or false, got 'perhaps'"),
        ({"hed_dim": 64}, "unknown key 'hed_dim'; did you mean 'head_dim'?"),
    ],
)
def test_each_wrong_value_gets_one_clear_line(values, sentence):
    with pytest.raises(InputError) as caught:
        build(Sample, values)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_sentence_names_the_field_as_the_user_typed_it():
    with pytest.raises(InputError, match="--head-dim must be even"):
        build(Sample, {"head_dim": 3}, lambda name: f"--{name.replace('_', '-')}")


def test_two_wrong_values_are_both_named():
    with pytest.raises(InputError, match=r"head_dim .*; base .*"):
        build(Sample, {"head_dim": 3, "base": 1})


def test_configs_are_frozen_and_say_what_changed():
    config = build(Sample, {"base": "5e5", "methods": "pi"})
    with pytest.raises(ValidationError):
        config.base = 2.0
    assert config.changed_fields() == {"base": 500000.0, "methods": ["pi"]}
    assert config.replace(base=1e6).changed_fields() == {"methods": ["pi"]}


def test_auto_names_a_real_device():
    assert Sample().device in ("cpu", "cuda")


def test_toml_gives_experiment_and_values(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text('experiment = "precision"\nbase = 1e6\n')
    assert read_toml(path) == ("precision", {"base": 1e6})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("base = 1", "must name its experiment"),
        ("base = = 1", "is not valid TOML"),
        (b"\xff\xfe", "cannot read the config file"),
        (f'experiment = "freqs"\nbase = 0x{"f" * 5000}', "too large for any setting"),
        (
            f'experiment = "run"\nseeds = [1, 0x{"f" * 400}]',
            "too large for any setting",
        ),
        ("[" + ".".join("a" * 3000) + "]", "nested too deeply"),
        ("experiment = 'freqs'\nx = " + "[" * 80 + "]" * 80, "nested too deeply"),
    ],
)
def test_bad_toml_is_one_line(tmp_path, text, sentence):
    path = tmp_path / "x.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=sentence):
        read_toml(path)


def test_a_long_unknown_name_is_cut_in_the_error():
    error = make_name_error("key", "k" * 500_000, ["base"])
    assert len(str(error)) < 300


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="no config file at"):
        read_toml(tmp_path / "missing.toml")


FREQS = b'experiment = "freqs"\nbase = 1e5\n'
MERGED = b"<<<<<<< HEAD\nbase = 1e4\n=======\nbase = 1e5\n>>>>>>> other\n"


def test_a_byte_order_mark_and_line_ends_of_windows_are_read_over(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xef\xbb\xbf" + FREQS.replace(b"\n", b"\r\n"))
    assert read_toml(path) == ("freqs", {"base": 1e5})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (FREQS + MERGED, "a merge"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"<!DOCTYPE html>\n<html>", "HTML"),
    ],
)
@pytest.mark.parametrize("kind", ["toml", "json"])
def test_a_file_that_is_something_else_is_named(
    tmp_path: Path, content: bytes, says: str, kind: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as error:
        if kind == "toml":
            read_toml(path)
        else:
            parse("c.json", content)
    assert "\n" not in str(error.value)
