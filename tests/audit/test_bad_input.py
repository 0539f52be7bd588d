"""Hostile and broken configurations: an audit or one clear line, never anything
else.
"""

import copy
import json
import random
from typing import Any

import pytest

from ropelab.audit.audited import audit, shorten_tables
from ropelab.readers.document import Document, load, parse_document
from ropelab.readers.families import explain_unrotated
from ropelab.readers.flags import Flags, parse_flags
from ropelab.readers.registry import choose_runtimes, read, read_by_reference
from ropelab.runs.errors import InputError
from ropelab.runs.files import MOST_BYTES
from tests.texts import mentions

MUTATIONS = 10_000
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    3,
    1e300,
    -1e300,
    10**30,
    1e-300,
    0.5,
    "",
    "yarn",
    "4.0",
    "x" * 5000,
    [],
    [1.0],
    [1.0] * 64,
    ["a"],
    {},
    {"factor": 2.0},
    {"full_attention": None},
    {"full_attention": {"rope_type": "yarn", "factor": "many"}},
)
KEYS = (
    "factor",
    "type",
    "rope_type",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "low_freq_factor",
    "short_factor",
    "long_factor",
    "rope_theta",
    "alpha",
    "partial_rotary_factor",
    "extrapolation_factor",
)


def mutated(config, rng):
    """A copy with keys of the file or of its block changed, added or removed."""
    config = copy.deepcopy(config)
    for _ in range(rng.choice((1, 1, 2, 4))):
        blocks = [config, *(v for v in config.values() if isinstance(v, dict))]
        place = rng.choice(blocks)
        names = list(place) + list(KEYS) + ["head_dim", "layer_types", "rope_scaling"]
        name = rng.choice(names)
        if rng.random() < 0.15:
            place.pop(name, None)
        else:
            place[name] = copy.deepcopy(rng.choice(VALUES))
    return config


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        (100, 11),
        pytest.param(300, 12, marks=pytest.mark.slow),
        pytest.param(MUTATIONS, 13, marks=pytest.mark.stress),
    ],
)
def test_mutated_configurations_are_audited_or_refused(golden, count, seed):
    rng, configs = random.Random(seed), list(golden.configs.values())
    refused = 0
    for _ in range(count):
        config = mutated(rng.choice(configs), rng)
        try:
            result = audit(Document("mutated", "config", config))
            "\n".join(f"{each.says} {each.do}" for each in result.findings)
            shorten_tables(result)
            json.dumps(result.rows, allow_nan=False)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)
            assert len(str(error)) < 2000
    assert 0 < refused < count


@pytest.mark.parametrize("kind", [[1], {"a": 1}, 5, True, ["llava"]])
@pytest.mark.parametrize("part", ["", "text_config"])
def test_a_model_type_that_is_no_text_names_no_class(kind: Any, part: str) -> None:
    """llama.cpp finds its class by the architecture."""
    text = {"hidden_size": 256, "num_attention_heads": 4}
    config = {
        "model_type": kind,
        "architectures": ["LlamaForCausalLM"],
        "rope_theta": 5e5,
        **({part: text} if part else text),
    }
    try:
        audit(Document("odd", "config", config))
    except InputError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not valid JSON"),
        (b"[1]", "must hold a JSON object"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": 1e999}', "not a finite number"),
        (b'{"a": ' * 10**6, "nested too deeply"),
        (b'{"a": ' * 200 + b"1" + b"}" * 200, "nested too deeply"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b" " * (MOST_BYTES + 1), "larger than 16 MB"),
        (b'{"vocab_size": 1000000000000}', "no keys of a model"),
        (
            b'{"model_type": "afm7", "num_heads": 16, "hidden_dim": 2048}',
            "the class of 'afm7' was not read",
        ),
    ],
)
def test_what_is_no_configuration_is_one_line(raw, says):
    with pytest.raises(InputError, match=says) as error:
        parse_document("config.json", raw)
    assert "\n" not in str(error.value)


def test_a_vocabulary_of_any_size_costs_nothing():
    config = {
        "hidden_size": 64,
        "num_attention_heads": 2,
        "max_position_embeddings": 2048,
    }
    result = audit(Document("big", "config", {**config, "vocab_size": 10**12}))
    assert result.reference.main_spec is not None
    assert result.reference.main_spec.head_dim == 32


@pytest.mark.parametrize("kind", [[], {}, [1.0], 3])
def test_a_type_that_is_no_name_is_no_defect(kind: object) -> None:
    config = {
        "model_type": kind,
        "num_attention_heads": 4,
        "max_position_embeddings": 4096,
    }
    assert explain_unrotated(config) == ""
    assert explain_unrotated({**config, "alibi": True}) == "alibi is true"


@pytest.mark.parametrize("block", [[1.0], "yarn", 3, None])
def test_a_block_that_is_no_table_is_replaced(block: object) -> None:
    wanted = {"rope_type": "yarn", "factor": 4.0}
    flags = Flags(overrides={"sglang": {"rope_scaling": wanted}})
    replaced = flags.apply("sglang", {"rope_scaling": block})["rope_scaling"]
    # Without one, the class fills in its base.
    assert replaced == wanted | ({"rope_theta": 10000.0} if block is None else {})


@pytest.mark.parametrize(
    "changes",
    [{"factor": 1e308}, {"factor": 1e299, "original_max_position_embeddings": 2**40}]
    + [{name: 10**400} for name in ("factor", "original_max_position_embeddings")],
)
def test_factors_beyond_all_numbers_are_no_defect(changes):
    yarn = {
        "type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 2048,
        **changes,
    }
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}
    config |= {"max_position_embeddings": 8192, "rope_theta": 1e4, "rope_scaling": yarn}
    done = audit(Document("config.json", "config", config), precision=False)
    assert "W02" not in {finding.code for finding in done.findings}


def test_divisors_that_no_frequency_survives_are_out_of_range():
    tables = {"short_factor": [1e-320] * 16, "long_factor": [1.0] * 16}
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}
    config |= {
        "max_position_embeddings": 8192,
        "original_max_position_embeddings": 2048,
    }
    config["rope_scaling"] = {"type": "longrope", "factor": 4.0, **tables}
    (reading,) = (read(r, config) for r in choose_runtimes(["transformers-5"]))
    assert (reading.outcome, "out of range" in reading.problem) == (
        "meaningless",
        True,
    )


@pytest.mark.parametrize(
    "changes",
    [
        # Too few features for a pair: transformers 5 rotates none, older ones all.
        {
            "rope_parameters": {
                "rope_type": "proportional",
                "partial_rotary_factor": 0.04,
            }
        },
        {"rope_theta": 3e38, "rope_scaling": {"type": "linear", "factor": 1e290}},
    ],
)
def test_pairs_that_hardly_rotate_leave_the_json_strict(changes):
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}
    config |= {"max_position_embeddings": 8192, "rope_theta": 1e4, **changes}
    done = audit(Document("config.json", "config", config))
    json.dumps(done.rows, allow_nan=False)
    waves = [row["wavelength_tokens"] for row in done.rows["pairs"]]
    assert None in waves
    apart = [row for row in done.rows["runtimes"] if row.get("first_off_tokens")]
    assert {"W05", "W06", "E08"} & {one.code for one in done.findings} or not apart


def test_huge_heads_are_refused():
    # TGI divides hidden_size, and reads no head_dim.
    config = {"model_type": "llama", "head_dim": 2**30, "num_attention_heads": 2}
    config["hidden_size"] = 2**31
    with pytest.raises(InputError, match="head_dim"):
        audit(Document("big", "config", config))


def test_huge_heads_of_other_parts_take_no_memory() -> None:
    vision = {"hidden_size": 2**40, "num_heads": 2}
    config = {**LLAMA, "model_type": "qwen2_5_vl", "vision_config": vision}
    text = {**LLAMA, "model_type": "gemma4_text", "global_head_dim": 2**40}
    assert audit(Document("x", "config", config), precision=False).rows["runtimes"]
    with pytest.raises(InputError, match="more than any head"):
        read_by_reference("x", text)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        load(str(tmp_path / "config.json"))
    with pytest.raises(InputError, match=r"neither config\.json nor params\.json"):
        load(str(tmp_path))


LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "max_position_embeddings": 4096,
    "rope_theta": 20000.0,
}


def test_a_negative_factor_of_dynamic_scaling_has_no_real_base() -> None:
    block = {"rope_type": "dynamic", "factor": -2.0}
    (runtime,) = choose_runtimes(["transformers-5"])
    assert read(runtime, {**LLAMA, "rope_scaling": block}).outcome == "meaningless"
    # Servers would allow a negative number of tokens.
    done = audit(Document("config.json", "config", {**LLAMA, "rope_scaling": block}))
    assert all(spec.length > 0 for _, spec in done.specs)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LISTS_OF_ZEROS = {"short_factor": [0.0] * 32, "long_factor": [1.0] * 32}


@pytest.mark.parametrize(
    ("block", "value"),
    [
        ({**YARN, "beta_fast": 1.0, "beta_slow": 32.0}, "beta_slow=32"),
        ({**YARN, "beta_slow": -1.0}, "beta_slow=-1"),
        ({**YARN, "factor": -4.0}, "-4"),
        ({**YARN, "factor": 0.0}, "0"),
        ({**YARN, "factor": 5e-324}, "e-324"),
        ({**YARN, "attention_factor": -1.0}, "-1"),
        ({**YARN, "original_max_position_embeddings": 1}, "1"),
        ({"rope_type": "linear", "factor": 0.0}, "0"),
        ({"rope_type": "dynamic", "factor": -2.0}, "-2"),
        ({**LISTS_OF_ZEROS, "rope_type": "longrope"}, "short_factor"),
    ],
)
def test_a_value_without_meaning_is_an_error_in_the_first_line(block, value) -> None:
    config = {**LLAMA, "rope_scaling": {**block}}
    done = audit(Document("config.json", "config", config), precision=False)
    said = [finding for finding in done.findings if finding.code == "E11"]
    assert {finding.level for finding in said} == {"error"}
    assert all(finding.do for finding in said)
    assert done.worst() == "error"
    assert any(value in finding.says for finding in said)
    assert all(finding.says.split(": ropelab")[0] in done.answer for finding in said)

    # Nothing says of a value that it was not read.
    outcomes = {row["outcome"] for row in done.rows["runtimes"]}
    notes = [finding.says for finding in done.findings if finding.code == "N03"]
    assert "meaningless" in outcomes
    assert not any(value in note for note in notes if len(value) > 2)


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [({}, False), ({"rope_theta": -1.0}, True), ({"hidden_size": 0}, True)],
)
def test_a_value_without_meaning_in_the_encoder_of_images_is_said(
    changes, is_said: bool
) -> None:
    vision = {"hidden_size": 1280, "num_heads": 16, **changes}
    config = {**LLAMA, "model_type": "qwen2_5_vl", "vision_config": vision}
    done = audit(Document("x", "config", config), precision=False)
    codes = {finding.code for finding in done.findings}
    assert ("E11" in codes) == is_said


def test_a_runtime_that_passes_over_a_value_is_no_answer_for_a_model_of_others() -> (
    None
):
    named = {"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"]}
    block = {**YARN, "beta_fast": 1.0, "beta_slow": 32.0}
    config = {**LLAMA, **named, "qk_rope_head_dim": 64, "rope_scaling": block}
    with pytest.raises(InputError, match="beta_slow"):
        read_by_reference("config.json", config)


def test_layer_types_that_are_all_null_are_said_to_rotate_nothing() -> None:
    blocks = dict.fromkeys(("full_attention", "sliding_attention"))
    (runtime,) = choose_runtimes(["transformers-5"])
    reading = read(runtime, {"model_type": "gemma4_text", "rope_parameters": blocks})
    assert reading.outcome == "not modelled"
    assert mentions(reading.problem, "no layer type")


def test_values_that_the_reference_does_not_model_are_not_those_of_another_runtime() -> (
    None
):
    block = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
    }
    swapped = {**LLAMA, "rope_scaling": {**block, "beta_fast": 1.0, "beta_slow": 32.0}}
    with pytest.raises(InputError, match="beta_slow"):
        read_by_reference("config.json", swapped)
    # A model that the reference lacks is one that others may have.
    named = {"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"]}
    kimi = {**LLAMA, **named, "qk_rope_head_dim": 64}
    assert read_by_reference("config.json", kimi).main_spec is not None


def test_overrides_of_a_part_leave_its_other_keys() -> None:
    yarn = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
    }
    block = {"rope_theta": 20000.0, **yarn}
    own = {"rope_type": "linear", "factor": 2.0, "mrope_section": [16, 16]}
    config = {"model_type": "llava", "text_config": {**LLAMA, "rope_scaling": own}}
    for name, key in (("vllm", "rope_parameters"), ("sglang", "rope_scaling")):
        changes = {"text_config": {"max_position_embeddings": 16384, key: block}}
        applied = Flags(overrides={name: changes}).apply(name, config)
        (runtime,) = choose_runtimes([name])
        spec = read(runtime, applied).main_spec
        assert spec is not None
        assert (spec.head_dim, spec.claimed_len, spec.scaling.name) == (
            64,
            16384,
            "yarn",
        )
        # _update_nested of vLLM merges a block inside a part, update of SGLang replaces
        # it.
        assert ("mrope_section" in applied["text_config"][key]) is (name == "vllm")


@pytest.mark.parametrize(
    ("model_type", "odd"),
    [
        ("gemma3_text", {"rope_parameters": {"sliding_attention": 5}}),
        ("gemma3_text", {"rope_parameters": {"sliding_attention": [1e4]}}),
        ("step3p5", {"rope_parameters": {"full_attention": 5}}),
        ("step3p5", {"layer_types": [{}]}),
    ],
)
def test_layer_types_that_are_no_dicts_are_refused_by_who_reads_them(model_type, odd):
    config = {
        "model_type": model_type,
        "hidden_size": 256,
        "num_attention_heads": 4,
        **odd,
    }
    document = Document("odd", "config", {**config, "max_position_embeddings": 4096})
    if model_type == "step3p5":  # which one runtime reads
        with pytest.raises(InputError):
            audit(document)
    else:
        assert "must be a dict" in " ".join(
            finding.says for finding in audit(document).findings
        )


REPEATED = {
    "rope_theta": '"rope_theta": 1e4, "rope_theta": 5e5',
    "factor": '"rope_scaling": {"type": "linear", "factor": 2, "factor": 4}',
    "rope_scaling": '"rope_scaling": {"type": "linear", "factor": 2}, "rope_scaling": null',
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_key_with_two_values_is_said(name: str) -> None:
    plain = json.dumps({**LLAMA, "max_position_embeddings": 4096})
    assert "W19" not in {
        f.code for f in audit(parse_document("x", plain.encode())).findings
    }
    text = f"{plain[:-1]}, {REPEATED[name]}}}"
    said = [
        f for f in audit(parse_document("x", text.encode())).findings if f.code == "W19"
    ]
    assert len(said) == 1
    assert name in said[0].says


def test_more_keys_than_any_model_has_are_refused() -> None:
    many = {f"key{i}": i for i in range(20_000)}
    for config in ({**LLAMA, **many}, {**LLAMA, "rope_scaling": many}):
        with pytest.raises(InputError, match="keys in one object"):
            parse_document(
                "x", json.dumps({**config, "max_position_embeddings": 1}).encode()
            )


@pytest.mark.parametrize("value", ["-5", "1", "1.5", "1e300", "2^41"])
def test_a_context_of_a_server_is_a_number_of_tokens(tmp_path, value):
    path = tmp_path / "config.json"
    model = {"num_attention_heads": 4, "hidden_size": 256, "rope_theta": 1e4}
    path.write_text(json.dumps({**model, "max_position_embeddings": 4096}))
    with pytest.raises(InputError, match="--ctx-size"):
        audit(str(path), flags=f"--ctx-size {value}")


@pytest.mark.parametrize("value", ["-1", "0", "1", "4096.5", "1e400", "2e12"])
@pytest.mark.parametrize(
    "flag",
    ["--max-model-len", "--context-length", "--contextsize", "--cutoff-len"],
)
def test_the_length_of_a_server_is_a_number_of_tokens(flag: str, value: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_flags(f"{flag} {value}")
    limits = "must be a whole number of tokens from 2 to 2^40"
    assert str(refused.value) == f"{flag} {limits}, got '{value}'"
    assert list(parse_flags(f"{flag} 4096.0").settings.values()) == [4096]
