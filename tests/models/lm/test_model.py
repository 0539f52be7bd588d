"""The model: causal, the same through every attention path, and with a cache."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropelab.math.frequencies import Geometry
from ropelab.math.methods import parse_scaling
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm import model as module
from ropelab.models.lm.model import (
    Cache,
    FeedForward,
    LanguageModel,
    ModelSize,
    SquaredRelu,
)

SIZE = ModelSize(vocabulary=11, layers=2, width=24, heads=2, head_dim=8)
GEOMETRY = Geometry(8, 10000.0, 16)


class Unfused(Encoding):
    """No positions, through the blocked path."""

    fused = False


def random_model(encoding: Encoding) -> LanguageModel:
    """A model whose writers are not zero, so that attention matters."""
    model = LanguageModel(SIZE, encoding, seed=3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model


def rope(method: str = "unscaled") -> Rope:
    return Rope(parse_scaling(method, 4.0).plan(GEOMETRY, 64), "interleaved")


def tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(
        SIZE.vocabulary, (rows, length), generator=torch.Generator().manual_seed(1)
    )


def test_untrained_model_is_uniform() -> None:
    model = LanguageModel(SIZE, rope())
    batch = tokens(2, 9)
    loss = cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(SIZE.vocabulary), abs=1e-6)


def test_weights_follow_from_the_seed() -> None:
    same, other = LanguageModel(SIZE, rope(), 5), LanguageModel(SIZE, rope(), 6)
    first = LanguageModel(SIZE, rope(), 5)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name])
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


def test_no_token_sees_a_later_one() -> None:
    model = random_model(rope())
    before, after = tokens(1, 12), tokens(1, 12)
    after[0, 7:] = (after[0, 7:] + 1) % SIZE.vocabulary
    assert torch.equal(model(before)[:, :7], model(after)[:, :7])
    assert not torch.allclose(model(before)[:, 7:], model(after)[:, 7:])


@pytest.mark.parametrize("scores_per_block", [1, 50, 2**23])
def test_blocked_attention_equals_the_fused_kernel(
    scores_per_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SCORES_PER_BLOCK", scores_per_block)
    model, batch = random_model(Encoding()), tokens(2, 13)
    fused = model(batch)
    model.encoding = Unfused()
    torch.testing.assert_close(model(batch), fused, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "encoding", [Encoding(), Unfused(), rope(), rope("yarn")], ids=repr
)
@pytest.mark.parametrize("pieces", [[1] * 12, [5, 7], [5, 1, 6]])
def test_decoding_with_a_cache_equals_the_full_pass(
    encoding: Encoding, pieces: list[int]
) -> None:
    model, batch, cache = random_model(encoding), tokens(2, 12), Cache()
    parts = [model(piece, cache) for piece in batch.split(pieces, dim=1)]
    torch.testing.assert_close(
        torch.cat(parts, dim=1), model(batch), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("encoding", [Encoding(), Unfused(), rope("yarn")], ids=repr)
@pytest.mark.parametrize("last", [None, 1, 5, 11, 12])
def test_the_last_tokens_have_what_they_have_among_all(
    encoding: Encoding, last: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUERIES_PER_MASK", 4)
    model, batch = random_model(encoding), tokens(2, 12)
    first = 0 if last is None else 12 - last
    expected = model.hidden_states(batch)[:, first:]
    torch.testing.assert_close(
        model.hidden_states(batch, last=last), expected, rtol=1e-4, atol=1e-5
    )


def test_without_a_backward_pass_the_inner_features_are_squared_in_place() -> None:
    model, batch = random_model(rope()), tokens(2, 12)
    made: list[torch.Tensor] = []
    for part in model.modules():
        if isinstance(part, FeedForward):
            part.up.register_forward_hook(lambda *found: made.append(found[-1]))
            part.down.register_forward_pre_hook(lambda _, x: made.append(x[0]))
    learning = model(batch)
    with torch.no_grad():
        assert torch.equal(model(batch), learning)
    same = [
        inner is squared for inner, squared in zip(made[::2], made[1::2], strict=True)
    ]
    assert same == [False, False, True, True]


def test_exchanging_the_encoding_changes_the_outcome_and_back() -> None:
    model, batch = random_model(rope()), tokens(1, 12)
    before = model(batch)
    model.encoding = rope("pi")
    assert not torch.allclose(model(batch), before)
    model.encoding = rope()
    assert torch.equal(model(batch), before)


def test_squared_relu_has_the_gradient_of_its_formula() -> None:
    x = torch.randn(
        5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    assert torch.equal(SquaredRelu.apply(x), x.clamp(min=0) ** 2)
    assert torch.autograd.gradcheck(SquaredRelu.apply, x.requires_grad_())


def test_weights_are_counted_by_the_shape_alone() -> None:
    assert SIZE.weights == sum(
        p.numel() for p in LanguageModel(SIZE, rope()).parameters()
    )
