"""Every encoding equals its paper's formula: whole contexts, blocks of queries, single queries.

First the formulas, one score at a time, in plain Python: slow, and easy to check by eye.
`FORMULAS[name](encoding, q_i, k_j, i, j, head)` is the score of query i and key j <= i in one head,
where q_i and k_j are what the projections gave, and `encoding` is read for its parameters only.
A new encoding is a formula, and a row in FORMULAS.
"""

import cmath
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ropelab.encoding.alibi import Alibi
from ropelab.encoding.base import Encoding
from ropelab.encoding.deberta import DebertaLayer
from ropelab.encoding.fire import FireBias
from ropelab.encoding.kerple import KerpleLog, KerplePower
from ropelab.encoding.registry import ENCODINGS, make_encoding
from ropelab.encoding.rope import Rope
from ropelab.encoding.shape import Shape
from ropelab.encoding.shaw import ShawLayer
from ropelab.encoding.t5 import T5Bias
from ropelab.encoding.transformer_xl import TransformerXLLayer

Score = Callable[..., float]


def dot(a: Tensor, b: Tensor) -> float:
    return math.fsum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


def sinusoid(position: int, width: int) -> list[float]:
    """Section 3.5 of arXiv:1706.03762."""
    vector = []
    for i in range(width // 2):
        angle = position / 10000 ** (2 * i / width)
        vector += [math.sin(angle), math.cos(angle)]
    return vector


def plain(encoding: Encoding, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    return dot(q, k) / math.sqrt(len(q))


def shaw(encoding: ShawLayer, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """Equation 4; clip(j - i, 16) and only its half of earlier keys."""
    return dot(q, k + encoding.keys[min(i - j, 16)]) / math.sqrt(len(q))


def t5(encoding: T5Bias, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """32 buckets, 16 of them exact, the others growing up to distance 128."""
    distance = i - j
    if distance >= 16:
        distance = min(31, 16 + int(16 * math.log(distance / 16) / math.log(128 / 16)))
    return dot(q, k) / math.sqrt(len(q)) + encoding.table[head, distance].item()


def transformer_xl(
    encoding: TransformerXLLayer, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> float:
    """Section 3.3: (q + u) . k + (q + v) . W R_(i-j), divided by sqrt(head_dim)."""
    sine = torch.tensor(sinusoid(i - j, encoding.width), dtype=q.dtype)
    w_r = (encoding.project.weight @ sine)[head * len(q) : (head + 1) * len(q)]
    u, v = encoding.u[head, 0], encoding.v[head, 0]
    return (dot(q + u, k) + dot(q + v, w_r)) / math.sqrt(len(q))


def deberta(encoding: DebertaLayer, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """Equation 4 with delta(i, j) = i - j for earlier keys, clipped to the last row of P."""
    p = encoding.table[min(i - j, len(encoding.table) - 1)]
    mine = slice(head * len(q), (head + 1) * len(q))
    k_r, q_r = (encoding.to_key.weight @ p)[mine], (encoding.to_query.weight @ p)[mine]
    return (dot(q, k) + dot(q, k_r) + dot(k, q_r)) / math.sqrt(3 * len(q))


def alibi(encoding: Alibi, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """For two heads the slopes are 2^-4 and 2^-8."""
    return plain(encoding, q, k, i, j, head) - (i - j) * 2.0 ** (-4 * (head + 1))


def kerple_log(encoding: KerpleLog, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    r1, r2 = math.exp(encoding.log_r1[head]), math.exp(encoding.log_r2[head])
    return plain(encoding, q, k, i, j, head) - r1 * math.log(1 + r2 * (i - j))


def kerple_power(encoding: KerplePower, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    r1, r2 = math.exp(encoding.log_r1[head]), 2 / (1 + math.exp(-encoding.logit_r2[head]))
    return plain(encoding, q, k, i, j, head) - r1 * (i - j) ** r2


def fire(encoding: FireBias, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    c, threshold = float(encoding.c), float(encoding.stretch) * encoding.start
    x = math.log(c * (i - j) + 1) / math.log(c * max(threshold, i) + 1)
    first, _, second = encoding.network
    bias = float(second.bias[head])
    for unit in range(32):
        hidden = max(0.0, float(first.weight[unit, 0]) * x + float(first.bias[unit]))
        bias += float(second.weight[head, unit]) * hidden
    return plain(encoding, q, k, i, j, head) + bias


def rope(encoding: Rope, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """Real part of q conj(k) exp(i (m - n) theta), equation 16 of arXiv:2104.09864."""
    width, score = encoding.rotary_dim, 0.0
    for pair in range(width // 2):
        half = encoding.pairing == "half"
        a, b = (pair, pair + width // 2) if half else (2 * pair, 2 * pair + 1)
        turn = cmath.exp(1j * (i - j) * 10000 ** (-2 * pair / width))
        q_pair, k_pair = complex(float(q[a]), float(q[b])), complex(float(k[a]), float(k[b]))
        score += (q_pair * k_pair.conjugate() * turn).real
    return (score + dot(q[width:], k[width:])) / math.sqrt(len(q))


FORMULAS: dict[str, Score] = {
    "nope": plain,
    "sinusoidal": plain,
    "learned": plain,
    "shaw": shaw,
    "t5": t5,
    "transformer_xl": transformer_xl,
    "deberta": deberta,
    "alibi": alibi,
    "kerple_log": kerple_log,
    "kerple_power": kerple_power,
    "fire": fire,
    "rope": rope,
    "rope_interleaved": rope,
    "rope_partial": rope,
}


TOKENS = 40
SHAPE = Shape(layers=2, width=12, heads=2, head_dim=8, trained_len=TOKENS - 10)
NAMES = sorted(ENCODINGS)


def randomised(module: nn.Module) -> nn.Module:
    """All parameters drawn anew, so that none is left at 0 where a mistake would not show."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double()


def layer_of(name: str) -> Encoding:
    encoding = make_encoding(name, SHAPE)
    randomised(encoding)
    return encoding.for_layer(1)


def random_heads(tokens: int = TOKENS) -> Tensor:
    return torch.randn(3, SHAPE.heads, tokens, SHAPE.head_dim, dtype=torch.float64)


def test_every_encoding_has_an_oracle() -> None:
    assert set(FORMULAS) == set(ENCODINGS)


@pytest.mark.parametrize("queries", [TOKENS, 7, 1], ids=["whole", "block", "one"])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_scores_equal_the_formula(name: str, queries: int) -> None:
    layer, positions = layer_of(name), torch.arange(TOKENS)
    q, k = random_heads(), random_heads()
    late = positions[-queries:]
    turned = layer.query(q[:, :, -queries:], late), layer.key(k, positions)
    got = layer.scores(*turned, late, positions)
    assert got.shape == (3, SHAPE.heads, queries, TOKENS)
    # Rotary tables are kept in float32, and so is a rotation.
    tolerance = 2e-6 if name.startswith("rope") else 1e-12
    for row, i in enumerate(late.tolist()):
        for j in range(i + 1):
            want = FORMULAS[name](layer, q[1, 1, i], k[1, 1, j], i, j, 1)
            assert got[1, 1, row, j].item() == pytest.approx(want, abs=tolerance, rel=tolerance)


@torch.no_grad()
def test_shaw_adds_its_vectors_to_the_values_of_equation_3() -> None:
    layer, positions = layer_of("shaw"), torch.arange(TOKENS)
    weights = torch.rand(3, SHAPE.heads, 5, TOKENS, dtype=torch.float64)
    weights = weights * (positions[None, :] <= positions[-5:, None])
    v = random_heads()
    got = layer.mix(weights, v, positions[-5:], positions)
    for row, i in enumerate(range(TOKENS - 5, TOKENS)):
        want = torch.zeros(SHAPE.head_dim, dtype=torch.float64)
        for j in range(i + 1):
            want += weights[2, 0, row, j] * (v[2, 0, j] + layer.values[min(i - j, 16)])
        torch.testing.assert_close(got[2, 0, row], want, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_sinusoidal_adds_sines_and_cosines() -> None:
    x, positions = torch.randn(2, 5, 12, dtype=torch.float64), torch.arange(100, 105)
    got = make_encoding("sinusoidal", SHAPE).embed(x, positions)
    for row, position in enumerate(positions.tolist()):
        code = torch.tensor(sinusoid(position, 12), dtype=torch.float64)
        torch.testing.assert_close(got[:, row], x[:, row] + code, rtol=0, atol=1e-13)


@torch.no_grad()
def test_learned_adds_its_rows_and_has_none_beyond_the_table() -> None:
    encoding = make_encoding("learned", SHAPE)
    x, last = torch.randn(2, 1, 12), SHAPE.trained_len - 1
    assert encoding.max_position == last
    row = dict(encoding.named_parameters())["table.weight"][last]
    assert torch.equal(encoding.embed(x, torch.tensor([last])), x + row)
    with pytest.raises(IndexError):
        encoding.embed(x, torch.tensor([last + 1]))
