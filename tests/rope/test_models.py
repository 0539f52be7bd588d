"""Known models are possible, sourced, and their methods run."""

import pytest

from ropelab.errors import InputError
from ropelab.rope.frequencies import Geometry
from ropelab.rope.models import MODELS, model_named
from ropelab.rope.scaling import parse_method


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_is_possible_and_sourced(name):
    model = MODELS[name]
    geometry = Geometry(model.rotated, model.base, model.trained_len)
    plan = parse_method(model.method).plan(geometry, model.promised)
    assert len(plan.inv_freq) == model.rotated // 2
    assert model.rotated <= model.head_dim
    assert model.promised >= model.trained_len
    assert "config.json" in model.source


def test_llama_3_1():
    model = model_named("Llama-3.1-8B")
    assert (model.base, model.head_dim, model.trained_len, model.promised) == (
        500000,
        128,
        8192,
        131072,
    )
    assert model.method == "llama3(factor=8)"


def test_an_unknown_model_gets_the_nearest():
    with pytest.raises(InputError, match=r"did you mean 'llama-3.1-8b'"):
        model_named("llama-3.1-9b")
