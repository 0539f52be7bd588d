"""Every reader against what its runtime computed, on random and on published
configurations.
"""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from ropelab.readers.registry import RUNTIMES, read
from ropelab.readers.unmodelled import has_class

BUILT = json.loads((Path(__file__).parent / "mlx.json").read_text())
RUN = [name for name, runtime in RUNTIMES.items() if runtime.proof == "run"]
ROUNDING = 2e-6
"""Runtimes compute in float32; the readers in float64."""
RECURRENCE = 2e-5
"""ggml multiplies its way from pair to pair in float32, and the error grows with the pairs."""


@pytest.mark.parametrize("name", RUN)
def test_a_reader_computes_what_its_runtime_computed(name, golden):
    compared = 0
    for config, answer in golden.answers[name].items():
        if golden.configs[config]["model_type"] not in RUNTIMES[name].compared_types:
            continue
        reading = read(RUNTIMES[name], golden.configs[config])
        if answer == "refused":
            assert reading.outcome == "refused", f"{config}: {reading.problem}"
        elif answer != "absent":
            assert reading.outcome == "read", f"{config}: {reading.problem}"
            compared += compare(config, reading, answer, golden)
    assert compared > 500


def compare(config, reading, answer, golden):
    for which, length in zip(("short", "long"), golden.lengths[config], strict=True):
        for layer, (table, attention) in answer[which].items():
            spec = reading.layers.get(layer) or reading.main_spec
            observed, ours = golden.tables[table], spec.inv_freq(length)
            assert ours.shape == observed.shape, f"{config}, {which}, {layer}"
            np.testing.assert_allclose(
                ours,
                observed,
                rtol=ROUNDING,
                atol=1e-12,
                err_msg=f"{config}, {which}, {layer}",
            )
            assert spec.attention_factor == pytest.approx(attention, rel=ROUNDING), (
                config
            )
    if "allowed" in answer:
        assert reading.main_spec.claimed_len == answer["allowed"], config
    return len(answer["short"]) + len(answer["long"])


def test_llama_cpp_writes_and_rotates_as_its_reader_says(golden):
    """Its converter's fields, read like a file's, and its kernel's rotations, against
    ours.
    """
    compared = 0
    for name, answer in golden.answers["llama.cpp"].items():
        config, runtime = golden.configs[name], RUNTIMES["llama.cpp"]
        # The kernel was handed the betas of each file. llama.cpp loads them for two
        # architectures, and takes them from flags for all.
        flags = flags_of(answer)
        reading = read(runtime, config, flags)
        if answer == "refused":
            assert reading.outcome == "refused", f"{name}: {reading.problem}"
        elif answer != "absent":
            file = read(runtime, as_file(config, answer["fields"], golden), flags)
            assert reading.main_spec is not None, f"{name}: {reading.problem}"
            assert file.main_spec is not None, f"{name}: {file.problem}"
            for which, length in zip(
                ("short", "long"), golden.lengths[name], strict=True
            ):
                table, attention = answer["kernel"][which]
                for spec in (reading.main_spec, file.main_spec):
                    turned = golden.tables[table]
                    np.testing.assert_allclose(
                        spec.inv_freq(length), turned, rtol=RECURRENCE, err_msg=name
                    )
                    assert spec.attention_factor == pytest.approx(
                        attention, rel=ROUNDING
                    ), name
            assert reading.main_spec.softmax_factor == pytest.approx(
                file.main_spec.softmax_factor
            )
            assert reading.main_spec.claimed_len == file.main_spec.claimed_len
            compared += 1
    assert compared > 300


def flags_of(answer):
    """The fields of a ramp as flags of the server."""
    if not isinstance(answer, dict):
        return {}
    start = "rope.scaling."
    names = ("yarn_beta_fast", "yarn_beta_slow", "yarn_ext_factor")
    fields = answer["fields"]
    return {name: fields[start + name] for name in names if start + name in fields}


def as_file(config, fields, golden):
    """The fields as a header: tables in their places, the head's size if nobody wrote
    it.
    """
    head = (
        config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    )
    plain = {
        name: (
            golden.tables[value["table"]].tolist() if isinstance(value, dict) else value
        )
        for name, value in fields.items()
    }
    kind = config["model_type"]
    if kind.startswith("deepseek"):
        kind = "deepseek2"
    start = {"model_type": kind, "attention.head_count": 1}
    return {**start, "attention.key_length": head, **plain}


@pytest.mark.parametrize("name", RUN)
def test_the_stated_version_is_the_one_that_answered(name, golden):
    assert golden.versions[name].split()[-1] == RUNTIMES[name].version


@pytest.mark.parametrize("name", [*RUN, "llama.cpp"])
def test_the_stated_model_types_are_those_that_were_compared(name, golden):
    answered = {
        golden.configs[config]["model_type"]
        for config, answer in golden.answers[name].items()
        if isinstance(answer, dict)
        and has_class(name, (golden.configs[config]["model_type"],))
    }
    if name == "mlx-lm":
        # Its model files were asked, too: test_mlx.py.
        answered |= {kind for kind, built in BUILT.items() if built}
    assert answered == RUNTIMES[name].compared_types


def test_versions_of_transformers_disagree_pairwise_on_random_configurations(golden):
    """The reason for one reader per release: no two of the five regimes are the
    same.
    """
    releases = [f"transformers-{v}" for v in ("4.44", "4.48", "4.55", "4.57", "5")]
    names = [name for name in golden.configs if name.startswith("random")]
    for one, other in combinations(releases, 2):
        different = sum(
            golden.answers[one][name] != golden.answers[other][name] for name in names
        )
        assert 5 < different < 0.5 * len(names), f"{one} and {other}: {different}"


def test_no_reading_leaves_a_key_without_status(golden):
    for config in golden.configs.values():
        statuses = {use.path: use.status for use in read(RUNTIMES["vllm"], config).keys}
        for block in ("rope_scaling", "rope_parameters"):
            for key in config.get(block) or {}:
                assert f"{block}.{key}" in statuses
