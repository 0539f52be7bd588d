"""The page of sliders and the package agree on methods and their parameters, without a
browser.
"""

import re
from dataclasses import fields
from importlib.resources import files

import pytest

from ropelab.math.methods import FREQUENCIES, find_scaling_class, parse_scaling
from ropelab.math.models import MODELS
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
    assert computed() == set(FREQUENCIES) - explore.NOT_HERE


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
