"""Layers that differ: the notation, and what each layer then computes."""

import math

import pytest
import torch
from transformers import Llama4TextConfig
from transformers.models.llama4.modeling_llama4 import Llama4TextAttention

from ropelab.experiments.encodings import EncodingsConfig
from ropelab.models.encoding.base import (
    Encoding,
    disable_fused_kernel,
    list_nested_encodings,
)
from ropelab.models.encoding.composed import (
    LogScaled,
    ScalableSoftmax,
    Windowed,
    compose,
)
from ropelab.models.encoding.registry import ENCODINGS, Shape, make_encoding
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm.model import Cache, LanguageModel, ModelSize
from ropelab.runs.config import build
from ropelab.runs.errors import InputError
from tests.models.drawn import drawn_weights

SHAPE = Shape(layers=4, width=32, heads=2, head_dim=16, trained_len=8)
SIZE = ModelSize(vocabulary=50, layers=4, width=32, heads=2, head_dim=16)
NOTATIONS = [
    "layers(rope,rope,rope,nope)",
    "every(2,nope,window(rope,5))",
    "layers(log_scaled(nope),ssmax(rope))",
    "every(2,ssmax(fope),nope)",
    "window(t5,3)",
    "every(2,forget(rope),window(path,5))",
    "layers(log_scaled(fox),ssmax(path))",
    "every(4,shaw,rope(base=500,share=0.5,fast=0.5))",
    "layers(rounded(rope,half_cache_bfloat16),nope)",
]


def layers_of(text: str) -> list[Encoding]:
    return [compose(text, SHAPE).for_layer(index) for index in range(SHAPE.layers)]


def qkv() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 2, 20, 16, generator=generator) for _ in range(3))


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_a_name_alone_is_what_it_was(name: str) -> None:
    wide = Shape(layers=2, width=32, heads=2, head_dim=32, trained_len=8)
    ours, theirs = compose(name, wide, seed=3), make_encoding(name, wide, seed=3)
    assert type(ours) is type(theirs)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


class Short(Encoding):
    """Of one's own, with a parameter and an end."""

    def __init__(self, end: float) -> None:
        super().__init__()
        self.max_position = int(end)


def test_an_encoding_of_ones_own_says_what_is_missing_and_where_it_ends() -> None:
    name = f"{__name__}:Short"
    for text, says in (
        (name, "missing a required argument: 'end'"),
        (f"layers({name},rope)", "missing a required argument: 'end'"),
        (f"window({name}(end=10),8)", "ends at position 10, inside the trained length"),
    ):
        with pytest.raises(InputError, match=says):
            build(
                EncodingsConfig, {"encodings": text, "train_len": 64, "test_len": 128}
            )


def test_layers_are_named_in_order_and_repeated() -> None:
    kinds = [type(each) for each in layers_of("layers(rope,nope)")]
    assert kinds == [Rope, Encoding, Rope, Encoding]
    kinds = [type(each) for each in layers_of("every(4,nope)")]
    assert kinds == [Rope, Rope, Rope, Encoding]
    kinds = [
        type(each) for each in layers_of("every(2, log_scaled(nope), window(rope, 4))")
    ]
    assert kinds == [Windowed, LogScaled, Windowed, LogScaled]


def test_parameters_of_rope_are_heard() -> None:
    rope = layers_of("rope(base=500,share=0.5,fast=0.5)")[0]
    assert isinstance(rope, Rope)
    # 8 of 16 features rotate, in 4 pairs, the slower 2 of which stand still.
    assert rope.plan.inv_freq.tolist() == pytest.approx([1.0, 500**-0.25, 0.0, 0.0])


@pytest.mark.parametrize("text", NOTATIONS)
def test_decoding_from_a_cache_is_one_pass(text: str) -> None:
    model = drawn_weights(LanguageModel(SIZE, compose(text, SHAPE)))
    tokens = torch.randint(50, (2, 30), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        whole, cache = model(tokens), Cache()
        steps = [model(part, cache) for part in tokens.split([7, 1, 1, 12, 9], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=1e-4, atol=1e-4)


def test_a_window_hides_what_is_further_back() -> None:
    q, k, v = qkv()
    at = torch.arange(20)
    layer = compose("layers(window(rope,5))", SHAPE).for_layer(0)
    rotated = layer.query(q, at), layer.key(k, at)
    weights = (
        layer.scores(*rotated, at, at)
        .masked_fill(at[None] > at[:, None], -math.inf)
        .softmax(-1)
    )
    distance = at[:, None] - at[None]
    seen = (distance >= 0) & (distance < 5)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *rotated, v, attn_mask=seen
    )
    torch.testing.assert_close(layer.mix(weights, v, at, at), expected)


def test_the_temperature_is_that_of_llama_4() -> None:
    q, _, _ = qkv()
    at = torch.tensor([0, 6, 7, 8, 15, 16, 1000, 131071])
    q = q[:, :, : len(at)]
    ours = compose("layers(log_scaled(nope))", SHAPE).for_layer(0).query(q, at)
    config = Llama4TextConfig(floor_scale=SHAPE.trained_len)
    theirs = Llama4TextAttention(config, layer_idx=3)
    scales = (
        torch.log1p(torch.floor((at.float() + 1.0) / theirs.floor_scale))
        * theirs.attn_scale
        + 1
    )
    torch.testing.assert_close(ours, q * scales[:, None])


def test_scalable_softmax_begins_as_attention_at_the_trained_length_and_learns() -> (
    None
):
    q, _, _ = qkv()
    layer = compose("layers(ssmax(nope))", SHAPE).for_layer(0)
    assert isinstance(layer, ScalableSoftmax)
    found = layer.query(q[:, :, :1], torch.tensor([SHAPE.trained_len - 1]))
    torch.testing.assert_close(found, q[:, :, :1])
    with torch.no_grad():
        layer.s.fill_(0.43)
    found = layer.query(q[:, :, :1], torch.tensor([99]))
    torch.testing.assert_close(found, 0.43 * math.log(100) * q[:, :, :1])
    assert layer.s.requires_grad


def test_a_model_trains_under_a_cast() -> None:
    q, k, _ = qkv()
    at = torch.arange(2000, 2020)
    layer = layers_of("rounded(rope(base=500), position=bfloat16)")[0]
    plain = layers_of("rope(base=500)")[0]
    # bfloat16 has every 8th of these positions; torch rounds ties to even too.
    there = at.bfloat16().long()
    assert len(there.unique()) == 3
    torch.testing.assert_close(layer.query(q, at), plain.query(q, there))
    products = layers_of("rounded(rope(base=500), rotation=bfloat16)")[0]
    for rounded, seen, error in ((layer, there, 1e-6), (products, at, 0.02)):
        grads = []
        for rope, positions in ((rounded, at), (plain, seen)):
            learned = q.clone().requires_grad_()
            (rope.query(learned, positions) * k).sum().backward()
            assert learned.grad is not None
            grads.append(learned.grad)
        torch.testing.assert_close(*grads, rtol=error, atol=error)


def test_every_layer_has_parameters_of_its_own() -> None:
    first, second = layers_of("layers(ssmax(nope))")[:2]
    assert isinstance(first, ScalableSoftmax)
    assert isinstance(second, ScalableSoftmax)
    assert first.s is not second.s


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "layers(rope,rope,nope)",
            "is for 3 layers or a multiple, and the model has 4",
        ),
        ("layers()", "write it as layers"),
        ("every(4)", r"write it as every\(4, nope\)"),
        ("every(0,nope)", "whole number from 1 on"),
        ("every(x,nope)", "must be a number"),
        ("window(rope)", r"write it as window\(rope, 64\)"),
        ("window(rope,1.5)", "whole number"),
        ("window(every(2,nope),4)", "is of several layers and stands for one"),
        ("layers(sinusoidal,rope)", "acts on the embeddings"),
        ("rope(base=1e6, base=2e6)", "base is given twice"),
        ("rounded(nope, float32)", "needs a rope that rotates"),
        ("rounded(rope(fast=0), float32)", "needs a rope that rotates"),
        (
            "rounded(rope, rotation=float8_e4m3fn)",
            "its products in one of float32, float16, bfl",
        ),
        ("rounded(rope, float33)", "did you mean float32|nearest|'float33'"),
        ("rounded(rope)", r"write it as rounded\(rope, angle=bfloat16\)"),
        ("window(rope, 1e400)", "needs a whole number"),
        ("every(9e15, nope)", "is for 9000000000000000 layers"),
        ("rope(x=1)", "unknown parameter of rope 'x'; allowed: base, fast, share"),
        ("rope(4)", "write parameters as in"),
        ("rope(share=2)", "above 0 and up to 1"),
        ("rope(base=nan)", "must be a number"),
        ("shaw(k=3)", "shaw takes no parameters"),
        ("nope(x=1)", "nope takes no parameters"),
        ("nope(args=1)", "nope takes no parameters"),
        ("layers(rop,nope)", "did you mean rope|nearest|'rop'"),
        ("rop(3)", "'rop'"),
        ("layers(rope", "cannot read"),
    ],
)
def test_a_mistake_is_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        compose(text, SHAPE)


def test_a_config_refuses_layers_that_its_model_does_not_have() -> None:
    with pytest.raises(InputError, match="the model has 2"):
        build(EncodingsConfig, {"encodings": "every(4,nope)"})
    found = build(
        EncodingsConfig, {"encodings": "every( 4, nope ),every(4,nope)", "layers": 4}
    )
    assert found.encodings == ("every(4,nope)",)


def test_separate_products_are_asked_of_every_part_of_an_encoding():
    encoding = compose("layers(rope,window(rope,16))", SHAPE)
    assert any(part.fused for part in list_nested_encodings(encoding))
    assert disable_fused_kernel(encoding) is encoding
    assert not any(part.fused for part in list_nested_encodings(encoding))
