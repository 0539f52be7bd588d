"""The page of sliders and the package agree on methods and their parameters, without a
browser.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib.resources import files
from typing import Any

import pytest

from ropelab.math.methods import FREQUENCY_METHODS, find_scaling_class, parse_scaling
from ropelab.math.models import MODELS
from ropelab.readers.registry import REFERENCE, RUNTIMES, read
from ropelab.show.page import explore
from tests.show.test_explore_in_browser import PARAMETERS

STATIC = files("ropelab.show.page") / "static"


def computed() -> set[str]:
    """The methods whose formulas are in rotary.js, one to a line."""
    table = (
        (STATIC / "rotary.js")
        .read_text()
        .split("const METHODS = {")[1]
        .split("\n};")[0]
    )
    return set(re.findall(r"^  (\w+): \(", table, re.MULTILINE))


def test_the_script_computes_every_method_but_those_of_lists():
    assert computed() == set(FREQUENCY_METHODS) - explore.NOT_HERE


@pytest.mark.parametrize("name", sorted(computed()))
def test_the_script_takes_parameters_that_the_method_has(name):
    script = (STATIC / "rotary.js").read_text()
    taken = re.search(rf"^  {name}: \(geometry, {{ ([^}}]*) }}", script, re.MULTILINE)
    used = re.findall(r"(\w+)(?:: \w+)?", taken[1]) if taken else []
    assert set(used) <= {
        parameter.name for parameter in fields(find_scaling_class(name))
    }


def test_methods_with_a_factor_are_compared_with_one():
    with_factor = set()
    for name in computed():
        if "factor" in {field.name for field in fields(find_scaling_class(name))}:
            with_factor.add(name)
    compared = {name for name, text in PARAMETERS.items() if "factor=" in text}
    assert with_factor == compared


def test_types_of_a_config_are_methods_of_the_page():
    script = (STATIC / "sliders.js").read_text()
    (table,) = re.findall(r"const ROPE_TYPES = {([^}]*)}", script)
    assert set(re.findall(r': "(\w+)"', table)) <= set(explore.list_known()["methods"])


def test_models_are_set_as_the_package_knows_them():
    found = explore.list_known()["models"]
    assert set(found) == set(MODELS)
    for name, model in MODELS.items():
        assert (found[name]["base"], found[name]["rotary_dim"]) == (
            model.base,
            model.rotary_width,
        )
        assert found[name]["method"] == parse_scaling(model.method).name
    llama = found["llama-3.1-8b"]
    assert (llama["trained"], llama["target"]) == (8192, 131072)
    assert llama["parameters"]["factor"] == 8


SIZES = {"num_attention_heads": 32, "max_position_embeddings": 8192}
BLOCKS: dict[str, dict[str, Any]] = {
    "unscaled": {"rope_type": "default"},
    "pi": {"rope_type": "linear", "factor": 4.0},
    "dynamic_ntk": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 2048,
    },
    "llama3": {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 2048,
    },
}


def list_files(
    rules: Mapping[str, Any],
) -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    """Files that state what the page asks for, and what the page reads of each: base,
    features of a head and rotated ones, method, trained length.
    """
    shares: list[float | None]
    shares = [0.5, 0.25] if "share" in rules["stated"] else [None]
    if rules["share"]:
        shares.append(0.5)
    heads = [128, 160] if "head_dim" in rules["stated"] else [None, 128]
    bases = [7e6] if "rope_theta" in rules["stated"] else [7e6, None]
    methods = list(BLOCKS) if rules["scaled"] else ["unscaled"]
    for method in methods:
        for share in shares:
            for head in heads:
                for base in bases:
                    file: dict[str, Any] = {
                        **SIZES,
                        "hidden_size": 4096 if head else 2560,
                    }
                    stated = {
                        "head_dim": head,
                        "rope_theta": base,
                        "partial_rotary_factor": share,
                    }
                    file |= {k: v for k, v in stated.items() if v is not None}
                    if method != "unscaled":
                        file["rope_scaling"] = dict(BLOCKS[method])
                    width = head or 80
                    trained = BLOCKS[method].get(
                        "original_max_position_embeddings", 8192
                    )
                    rotated = int(width * (share or 1))
                    yield file, (base or 10000.0, width, rotated, method, trained)


@pytest.mark.parametrize("name", sorted(explore.list_types()))
def test_the_page_reads_a_file_as_the_class_of_its_type(name):
    for file, expected in list_files(explore.list_types()[name]):
        reading = read(RUNTIMES[REFERENCE], {"model_type": name, **file})
        assert reading.main_spec is not None, (file, reading.problem)
        spec = reading.layers[reading.main_layer]
        found = spec.base, spec.head_dim, spec.rotary_dim, spec.scaling.name
        assert (*found, spec.trained_len) == expected, file
        assert spec.softmax_factor == 1


@pytest.mark.parametrize(
    "name", ["deepseek_v3", "gemma4_text", "glm_moe_dsa", "nemotron_h", "chatglm"]
)
def test_types_that_rotate_by_other_keys_are_not_read(name):
    assert name not in explore.list_types()
