"""FoX and PaTH against their papers, written out in NumPy, and where they equal others.

The oracles take a layer's input and what its weights are, and go from key to query one
token at a time, as the papers define it; nothing is shared with the encodings.
"""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.composed import compose
from ropelab.models.encoding.from_input import Path
from ropelab.models.encoding.registry import Shape, make_encoding
from ropelab.models.lm.model import Cache, LanguageModel, ModelSize, blocked_attention
from tests.models.drawn import drawn_weights

BATCH, HEADS, HEAD_DIM, WIDTH = 2, 2, 6, 12
SHAPE = Shape(layers=2, width=WIDTH, heads=HEADS, head_dim=HEAD_DIM, trained_len=64)
SIZE = ModelSize(vocabulary=11, layers=2, width=WIDTH, heads=HEADS, head_dim=HEAD_DIM)
NAMES = ("fox", "path", "forget(rope)", "forget(path)")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def weights_of(layer: nn.Module) -> dict[str, np.ndarray]:
    return {
        name: each.detach().double().numpy() for name, each in layer.named_parameters()
    }


def forgotten(
    weights: dict[str, np.ndarray], x: np.ndarray, i: int, j: int, head: int
) -> float:
    """log of the product of f_l = sigmoid(w_f x_l + b_f), l = j + 1 .. i
    (arXiv:2503.02130).
    """
    product = 1.0
    for token in range(j + 1, i + 1):
        logit = weights["gate.weight"][head] @ x[token] + weights["gate.bias"][head]
        product *= float(sigmoid(logit))
    return float(np.log(product))


def direction(
    weights: dict[str, np.ndarray], x: np.ndarray, token: int, head: int
) -> np.ndarray:
    """w_t: low rank, three taps of which the last is the token's own, SiLU, length
    1.
    """
    mine = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
    mixed = np.zeros(HEAD_DIM)
    for back in range(3):
        if token - back >= 0:
            raw = weights["up.weight"][mine] @ (
                weights["down.weight"] @ x[token - back]
            )
            mixed += weights["taps"][2 - back, head, 0] * raw
    mixed = mixed * sigmoid(mixed)
    return mixed / np.sqrt((mixed**2).sum())


def carried(
    weights: dict[str, np.ndarray], x: np.ndarray, i: int, j: int, head: int
) -> np.ndarray:
    """H_i H_(i-1) .. H_(j+1) with H_t = I - beta_t w_t w_t^T (arXiv:2505.16381, section
    2.2).
    """
    product = np.eye(HEAD_DIM)
    for token in range(j + 1, i + 1):
        logit = (
            weights["strength.weight"][head] @ x[token] + weights["strength.bias"][head]
        )
        w = direction(weights, x, token, head)
        product = (np.eye(HEAD_DIM) - 2 * sigmoid(logit) * np.outer(w, w)) @ product
    return product


def rotation(distance: int) -> np.ndarray:
    """R with q R k the score of RoPE, features m and m + d/2 a pair
    (arXiv:2104.09864).
    """
    matrix, half = np.zeros((HEAD_DIM, HEAD_DIM)), HEAD_DIM // 2
    for m in range(half):
        angle = distance * 10000.0 ** (-m / half)
        matrix[m, m] = matrix[m + half, m + half] = np.cos(angle)
        matrix[m, m + half], matrix[m + half, m] = np.sin(angle), -np.sin(angle)
    return matrix


def oracle(
    name: str,
    layer: Encoding,
    q: np.ndarray,
    k: np.ndarray,
    x: np.ndarray,
    at: tuple[int, ...],
) -> float:
    """The score of query i and key j in one head, of rows [tokens, features]."""
    i, j, head = at
    weights = weights_of(layer)
    inner = {key.removeprefix("inner."): each for key, each in weights.items()}
    between = np.eye(HEAD_DIM)
    if "path" in name:
        between = carried(inner, x, i, j, head)
    if "rope" in name:
        between = rotation(i - j)
    bias = forgotten(weights, x, i, j, head) if name != "path" else 0.0
    return float(q[i] @ between @ k[j] / np.sqrt(HEAD_DIM) + bias)


def drawn(name: str) -> Encoding:
    """A layer with all parameters drawn anew, so that none is 0."""
    layer = compose(name, SHAPE).for_layer(1).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5, generator=generator)
    return layer


def inputs(tokens: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values and the layer's input, float64."""
    generator = torch.Generator().manual_seed(seed)
    heads = torch.randn(
        3, BATCH, HEADS, tokens, HEAD_DIM, dtype=torch.float64, generator=generator
    )
    x = torch.randn(BATCH, tokens, WIDTH, dtype=torch.float64, generator=generator)
    return *heads, x


def stored(layer: Encoding, k: Tensor, x: Tensor, first: int = 0) -> Tensor:
    return layer.extend_key(layer.key(k, torch.arange(first, first + k.shape[2])), x)


def scored(
    layer: Encoding, q: Tensor, k: Tensor, x: Tensor, queries: int = 0
) -> Tensor:
    positions = torch.arange(q.shape[2])
    late = positions[-queries:]
    return layer.scores(
        layer.query(q[:, :, late], late), stored(layer, k, x), late, positions
    )


@pytest.mark.parametrize("queries", [23, 7, 1], ids=["whole", "block", "one"])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_scores_equal_the_papers(
    name: str, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "CHUNK", 5)
    layer, (q, k, _, x) = drawn(name), inputs(23)
    got = scored(layer, q, k, x, queries)
    assert got.shape == (BATCH, HEADS, queries, 23)
    tolerance = 1e-5 if "rope" in name else 1e-11
    for head in range(HEADS):
        rows = (each.numpy() for each in (q[1, head], k[1, head], x[1]))
        q_rows, k_rows, x_rows = rows
        for i in range(23 - queries, 23):
            for j in range(i + 1):
                want = oracle(name, layer, q_rows, k_rows, x_rows, (i, j, head))
                row = got[1, head, i - 23 + queries, j].item()
                assert row == pytest.approx(want, rel=tolerance, abs=tolerance)


@torch.no_grad()
def test_products_of_long_contexts_are_those_of_one_token_at_a_time() -> None:
    """Several chunks of the usual size: keys go through H_t with every token (section
    3.4).
    """
    layer, (q, k, _, x) = drawn("path"), inputs(300)
    assert isinstance(layer, Path)
    got, weights = scored(layer, q, k, x, 290), weights_of(layer)
    keys = np.zeros((300, HEAD_DIM))
    for token in range(300):
        logit = (
            weights["strength.weight"][0] @ x[0, token].numpy()
            + weights["strength.bias"][0]
        )
        w = direction(weights, x[0].numpy(), token, 0)
        keys -= 2 * sigmoid(logit) * np.outer(keys @ w, w)
        keys[token] = k[0, 0, token].numpy()
        if token >= 10:
            want = keys[: token + 1] @ q[0, 0, token].numpy() / np.sqrt(HEAD_DIM)
            mine = got[0, 0, token - 10, : token + 1].numpy()
            np.testing.assert_allclose(mine, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "same"), [("fox", "nope"), ("forget(rope)", "rope")])
@torch.no_grad()
def test_gates_of_one_are_the_encoding_inside(name: str, same: str) -> None:
    layer, plain, (q, k, _, x) = drawn(name), make_encoding(same, SHAPE), inputs(40)
    layer.get_parameter("gate.weight").zero_()
    layer.get_parameter("gate.bias").fill_(1e4)
    assert torch.equal(scored(layer, q, k, x), scored(plain, q, k, x))


@torch.no_grad()
def test_transformations_of_strength_zero_are_no_positions() -> None:
    layer, (q, k, _, x) = drawn("path"), inputs(300)
    assert not torch.allclose(
        scored(layer, q, k, x).tril(), scored(Encoding(), q, k, x).tril()
    )
    layer.get_parameter("strength.weight").zero_()
    layer.get_parameter("strength.bias").fill_(-1e4)
    want = scored(Encoding(), q, k, x).tril()
    torch.testing.assert_close(
        scored(layer, q, k, x).tril(), want, rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_scores_depend_on_no_later_token_and_no_other_text(name: str) -> None:
    layer, (q, k, _, x) = drawn(name), inputs(30)
    whole, changed = scored(layer, q, k, x), x.clone()
    changed[:, 20:] += 1
    earlier = torch.ones(30, 30, dtype=torch.bool).tril()
    assert torch.equal(
        scored(layer, q, k, changed)[..., :20, :20].tril(), whole[..., :20, :20].tril()
    )
    assert not torch.allclose(
        scored(layer, q, k, changed)[..., earlier], whole[..., earlier]
    )
    alone = scored(layer, q[:1], k[:1], x[:1])
    torch.testing.assert_close(
        alone[..., earlier], whole[:1][..., earlier], rtol=1e-12, atol=1e-12
    )
    changed = x.clone()
    changed[1] += 1
    assert torch.equal(
        scored(layer, q, k, changed)[0][..., earlier], whole[0][..., earlier]
    )


@torch.no_grad()
def test_a_token_that_forgets_ends_the_text_before_it() -> None:
    layer, (q, k, v, x) = drawn("fox"), inputs(30)
    layer.get_parameter("gate.weight").zero_()
    layer.get_parameter("gate.weight")[:, 0] = 1e4
    layer.get_parameter("gate.bias").zero_()
    x[..., 0] = 1
    x[:, 12, 0] = -1
    together = blocked_attention(layer, q, stored(layer, k, x), v)
    rest = [each[:, :, 12:] for each in (q, k, v)]
    alone = blocked_attention(
        layer, rest[0], stored(layer, rest[1], x[:, 12:]), rest[2]
    )
    torch.testing.assert_close(together[:, :, 12:], alone, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_gates_far_into_a_text_lose_no_digits() -> None:
    """20,000 gates of 1/2 sum to -13863, where float32 has steps of 1e-3."""
    layer = compose("fox", SHAPE).for_layer(0)
    tokens, generator = 20_000, torch.Generator().manual_seed(0)
    k, q = torch.zeros(1, HEADS, tokens, HEAD_DIM), torch.zeros(1, HEADS, 2, HEAD_DIM)
    x = torch.randn(1, tokens, WIDTH, generator=generator)
    q_positions, k_positions = torch.arange(tokens - 2, tokens), torch.arange(tokens)
    got = (
        layer.scores(q, layer.extend_key(k, x), q_positions, k_positions)[
            0, 1, -1, -4:-1
        ]
        .double()
        .numpy()
    )
    weights, text = weights_of(layer), x[0].double().numpy()
    want = [
        forgotten(weights, text, tokens - 1, j, 1)
        for j in range(tokens - 4, tokens - 1)
    ]
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_near_float32(name: str) -> None:
    model = drawn_weights(LanguageModel(SIZE, compose(name, SHAPE)))
    text = torch.randint(11, (2, 60), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        exact = model(text)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough, cache = model(text).float(), Cache()
            model(text[:, :40], cache)
            decoded = model(text[:, 40:], cache).float()
    assert (rough - exact).square().mean().sqrt() < 0.05 * exact.square().mean().sqrt()
    assert (
        rough[:, 40:] - decoded
    ).square().mean().sqrt() < 0.05 * exact.square().mean().sqrt()


@pytest.mark.parametrize(
    ("name", "features"), [("fox", 1), ("path", 7), ("forget(path)", 8)]
)
@torch.no_grad()
def test_a_cache_keeps_what_the_text_decides(name: str, features: int) -> None:
    model, cache = LanguageModel(SIZE, compose(name, SHAPE)), Cache()
    model(torch.zeros(1, 9, dtype=torch.long), cache)
    keys, values = cache.layers[1]
    assert keys.shape[-1] == HEAD_DIM + features
    assert values.shape[-1] == HEAD_DIM
