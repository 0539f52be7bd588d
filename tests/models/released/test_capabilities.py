"""What a model in a narrow number format can do is what float32 shows, not what
rounding hides.
"""

import pytest
import torch

from ropelab.models.encoding.extended import ReRope
from ropelab.models.released import forward
from ropelab.models.released.forward import ModelShape, upcast
from ropelab.models.released.model import (
    LARGEST_ERROR_RATIO,
    TESTED_TOKENS,
    ReleasedModel,
    measure_distance,
)
from ropelab.models.released.positions import PairLayout
from tests.models.released.architectures import ARCHITECTURES
from tests.models.released.tiny import TRAINED, rope, saved, tokens

DEEP = {"num_hidden_layers": 24}
NARROW = ["bfloat16", "float16"]


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """A model in which rounding grows through 24 layers."""
    return saved(tmp_path_factory.mktemp("deep"), "llama", **DEEP)


def exact_of(model: ReleasedModel) -> torch.Tensor:
    assert model.capabilities.exact_result is not None
    return model.capabilities.exact_result


@torch.inference_mode()
def read(model, of, longest=None):
    return model.pass_tokens(of, longest=longest)


@pytest.mark.parametrize("dtype", NARROW)
def test_upcast_weights_give_what_a_model_in_float32_gives(deep, dtype):
    model = ReleasedModel(deep, dtype=dtype)
    reference = ReleasedModel(deep)
    rounded = {
        n: p.to(getattr(torch, dtype)).float()
        for n, p in reference.lm.named_parameters()
    }
    reference.lm.load_state_dict(rounded, strict=False)
    exact = read(reference, model.capabilities.tokens)
    assert exact_of(model).dtype == torch.float32
    assert measure_distance(exact_of(model), exact) < 1e-5 * exact.std()
    assert (
        measure_distance(read(model, model.capabilities.tokens), exact)
        > 1e-3 * exact.std()
    )


def test_weights_are_the_same_objects_afterwards(deep):
    model = ReleasedModel(deep, dtype="bfloat16")
    before = dict(model.lm.named_parameters())
    with pytest.raises(IndexError), upcast(model.layers):
        read(model, torch.tensor([[10**6]]))
    with upcast(model.layers):
        read(model, model.capabilities.tokens)
    after = dict(model.lm.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())
    assert read(model, model.capabilities.tokens).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", NARROW)
def test_rounding_alone_keeps_no_model_from_what_it_can_do(deep, dtype):
    model = ReleasedModel(deep, dtype=dtype)
    model.capabilities.allow_parts()
    assert model.in_parts
    assert model.capabilities.layout == PairLayout("half")
    model.encoding = ReRope(rope(deep, "unscaled", TRAINED), 20)


def test_what_rounding_hides_in_bfloat16_is_more_than_closeness_allows(deep):
    """Without float32 to compare with, both of the above would be refused here."""
    model = ReleasedModel(deep, dtype="bfloat16")
    model.capabilities.exact_result = None
    model.capabilities.allow_parts()
    assert not model.in_parts
    assert model.capabilities.layout is None


@pytest.mark.parametrize(
    "model_type", ["recurrent_gemma", "llama", "gemma3_text", "lfm2"]
)
def test_parts_are_taken_where_they_are_as_near_to_float32(
    model_type, tmp_path, monkeypatch
):
    saved(tmp_path, model_type, **ARCHITECTURES[model_type])
    model = ReleasedModel(tmp_path, dtype="bfloat16")
    monkeypatch.setattr(model.capabilities, "_is_close", lambda *_: False)
    works = model_type != "recurrent_gemma"
    model.capabilities.allow_parts()
    assert model.in_parts == works
    model.in_parts = True
    whole, parts = (
        read(model, model.capabilities.tokens, n)
        for n in (TESTED_TOKENS, TESTED_TOKENS // 2)
    )
    errors = [measure_distance(found, exact_of(model)) for found in (parts, whole)]
    assert (
        (errors[0] < 1.1 * errors[1])
        if works
        else (errors[0] > 5 * LARGEST_ERROR_RATIO * errors[1])
    )


def test_long_contexts_in_bfloat16_are_as_near_in_parts(deep, monkeypatch):
    model, long = ReleasedModel(deep, dtype="bfloat16"), tokens(400, rows=1)
    with upcast(model.layers):
        exact = read(model, long)
    whole = read(model, long)
    monkeypatch.setattr(forward, "LONGEST_PASS", 100)
    calls = []
    model.layers.register_forward_pre_hook(lambda *_: calls.append(1))
    parts = read(model, long)
    assert len(calls) == 400 // 25
    assert measure_distance(parts, exact) < 1.1 * measure_distance(whole, exact)


@pytest.mark.parametrize(
    ("width", "inner", "dtype", "at_once"),
    [
        (576, 1536, torch.bfloat16, 16384),
        (4096, 14336, torch.bfloat16, 8192),
        (2048, 5632, torch.float32, 8192),
        (768, 2048, torch.bfloat16, 16384),
    ],
)
def test_a_narrow_model_reads_more_at_once(width, inner, dtype, at_once):
    shape = ModelShape(2, width, inner, 8, width // 8, 2 * width, dtype.itemsize)
    assert shape.find_longest_pass() == at_once
