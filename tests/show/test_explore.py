"""The page of sliders and the package agree on methods and their parameters, without a browser."""

import re
from dataclasses import fields
from importlib.resources import files

import pytest

from ropelab.math.methods import FREQUENCIES, scaling_class
from ropelab.show.page import explore

STATIC = files("ropelab.show.page") / "static"


def test_the_script_computes_every_method_but_those_of_lists():
    assert explore.computed() == set(FREQUENCIES) - explore.NOT_HERE


@pytest.mark.parametrize("name", sorted(explore.computed()))
def test_the_script_takes_parameters_that_the_method_has(name):
    script = (STATIC / "rotary.js").read_text()
    taken = re.search(rf"^  {name}: \(geometry, {{ ([^}}]*) }}", script, re.MULTILINE)
    used = re.findall(r"(\w+)(?:: \w+)?", taken[1]) if taken else []
    assert set(used) <= {parameter.name for parameter in fields(scaling_class(name))}


def test_types_of_a_config_are_methods_of_the_page():
    script = (STATIC / "sliders.js").read_text()
    (table,) = re.findall(r"const ROPE_TYPES = {([^}]*)}", script)
    assert set(re.findall(r': "(\w+)"', table)) <= set(explore.known()["methods"])


def test_a_method_without_a_formula_is_not_offered(tmp_path, monkeypatch):
    newcomer = {**FREQUENCIES, "newcomer": FREQUENCIES["pi"]}
    monkeypatch.setattr(explore, "FREQUENCIES", newcomer)
    assert set(explore.known()["methods"]) == explore.computed()
    assert "newcomer" not in explore.write_explore(tmp_path / "explore.html").read_text()
