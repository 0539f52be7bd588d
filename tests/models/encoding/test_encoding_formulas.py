"""Every encoding equals its paper's formula: whole contexts, blocks of queries, single
queries.

First the formulas, one score at a time, in plain Python: slow, and easy to check by
eye. `FORMULAS[name](encoding, q_i, k_j, i, j, head)` is the score of query i and key j
<= i in one head, where q_i and k_j are what the projections gave, and `encoding` is
read for its parameters only. A new encoding is a formula, and a row in FORMULAS.
"""

import cmath
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.biases import (
    T5,
    Alibi,
    Convolution,
    Exponential,
    Fire,
    Gaussian,
    KerpleLog,
    KerplePower,
    LearnedDistance,
    Polynomial,
    Sines,
    Tupe,
)
from ropelab.models.encoding.registry import ENCODINGS, Shape, make_encoding
from ropelab.models.encoding.relative import DebertaLayer, Shaw, TransformerXL
from ropelab.models.encoding.rope import Rope
from ropelab.models.encoding.rope_variants import Fope, XPos

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


def write_plainly(
    encoding: Encoding, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> float:
    return dot(q, k) / math.sqrt(len(q))


def shaw(encoding: Shaw, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """Equation 4; clip(j - i, 16) and only its half of earlier keys."""
    return dot(q, k + encoding.keys[min(i - j, 16)]) / math.sqrt(len(q))


def t5(encoding: T5, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """32 buckets, 16 of them exact, the others growing up to distance 128."""
    distance = i - j
    if distance >= 16:
        distance = min(31, 16 + int(16 * math.log(distance / 16) / math.log(128 / 16)))
    return dot(q, k) / math.sqrt(len(q)) + encoding.table[head, distance].item()


def transformer_xl(
    encoding: TransformerXL, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> float:
    """Section 3.3: (q + u) . k + (q + v) . W R_(i-j), divided by sqrt(head_dim)."""
    sine = torch.tensor(sinusoid(i - j, encoding.width), dtype=q.dtype)
    w_r = (encoding.project.weight @ sine)[head * len(q) : (head + 1) * len(q)]
    u, v = encoding.u[head, 0], encoding.v[head, 0]
    return (dot(q + u, k) + dot(q + v, w_r)) / math.sqrt(len(q))


def deberta(
    encoding: DebertaLayer, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> float:
    """Equation 4 with delta(i, j) = i - j for earlier keys, clipped to the last row of
    P.
    """
    p = encoding.table[min(i - j, len(encoding.table) - 1)]
    mine = slice(head * len(q), (head + 1) * len(q))
    k_r, q_r = (encoding.to_key.weight @ p)[mine], (encoding.to_query.weight @ p)[mine]
    return (dot(q, k) + dot(q, k_r) + dot(k, q_r)) / math.sqrt(3 * len(q))


def alibi(encoding: Alibi, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """For two heads the slopes are 2^-4 and 2^-8."""
    return write_plainly(encoding, q, k, i, j, head) - (i - j) * 2.0 ** (
        -4 * (head + 1)
    )


def kerple_log(
    encoding: KerpleLog, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> float:
    r1, r2 = math.exp(encoding.log_r1[head]), math.exp(encoding.log_r2[head])
    return write_plainly(encoding, q, k, i, j, head) - r1 * math.log(1 + r2 * (i - j))


def kerple_power(
    encoding: KerplePower, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> float:
    r1, r2 = (
        math.exp(encoding.log_r1[head]),
        2 / (1 + math.exp(-encoding.logit_r2[head])),
    )
    return write_plainly(encoding, q, k, i, j, head) - r1 * (i - j) ** r2


def fire(encoding: Fire, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    c, threshold = float(encoding.c), float(encoding.stretch) * encoding.start
    x = math.log(c * (i - j) + 1) / math.log(c * max(threshold, i) + 1)
    weights = {
        name: value.tolist() for name, value in encoding.network.named_parameters()
    }
    bias = weights["2.bias"][head]
    for unit in range(32):
        hidden = max(0.0, weights["0.weight"][unit][0] * x + weights["0.bias"][unit])
        bias += weights["2.weight"][head][unit] * hidden
    return write_plainly(encoding, q, k, i, j, head) + bias


def rope(encoding: Rope, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """Real part of q conj(k) exp(i (m - n) theta), equation 16 of arXiv:2104.09864."""
    width, score = encoding.rotary_dim, 0.0
    for pair in range(width // 2):
        half = encoding.pairing == "half"
        a, b = (pair, pair + width // 2) if half else (2 * pair, 2 * pair + 1)
        turn = cmath.exp(1j * (i - j) * 10000 ** (-2 * pair / width))
        q_pair, k_pair = (
            complex(float(q[a]), float(q[b])),
            complex(float(k[a]), float(k[b])),
        )
        score += (q_pair * k_pair.conjugate() * turn).real
    return (score + dot(q[width:], k[width:])) / math.sqrt(len(q))


def xpos(encoding: XPos, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """Neighbours turned, pair p of n times ((p/n + 0.4) / 1.4)^((i - j) / 512)."""
    score, pairs = 0.0, len(q) // 2
    for pair in range(pairs):
        turn = cmath.exp(1j * (i - j) * 10000 ** (-pair / pairs))
        decay = ((pair / pairs + 0.4) / 1.4) ** ((i - j) / 512)
        q_pair, k_pair = (complex(*x[2 * pair : 2 * pair + 2].tolist()) for x in (q, k))
        score += decay * (q_pair * k_pair.conjugate() * turn).real
    return score / math.sqrt(len(q))


def fope(encoding: Fope, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """Equations 11 to 13, query and key rotated one by one; below 2 pi / 30 nothing
    rotates.
    """
    pairs = len(q) // 2
    frequencies = [10000 ** (-pair / pairs) for pair in range(pairs)]
    kept = sum(frequency >= 2 * math.pi / 30 for frequency in frequencies)
    of_cos, of_sin = encoding.weights[:, head].tolist()

    def turned(x: Tensor, position: int) -> list[float]:
        first, second = [], []
        for m in range(pairs):
            cos, sin = 1.0, 0.0
            if m < kept:
                angles = [position * frequency for frequency in frequencies[:kept]]
                cos = sum(
                    of_cos[n][m] * math.cos(angle) for n, angle in enumerate(angles)
                )
                sin = sum(
                    of_sin[n][m] * math.sin(angle) for n, angle in enumerate(angles)
                )
            a, b = float(x[m]), float(x[m + pairs])
            first.append(a * cos - b * sin)
            second.append(a * sin + b * cos)
        return first + second

    return dot(*(torch.tensor(turned(*each)) for each in ((q, i), (k, j)))) / math.sqrt(
        len(q)
    )


def tupe(encoding: Tupe, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    """TUPE-R: words and positions, each over sqrt(2 d), and T5's bias."""
    mine = slice(head * len(q), (head + 1) * len(q))
    p_q = (encoding.to_query.weight @ encoding.table.weight[i])[mine]
    p_k = (encoding.to_key.weight @ encoding.table.weight[j])[mine]
    relative = t5(encoding.relative, 0 * q, k, i, j, head)
    return (dot(q, k) + dot(p_q, p_k)) / math.sqrt(2 * len(q)) + relative


def polynomial(
    encoding: Polynomial, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> float:
    r, w = (i - j) / 30, encoding.weights[head].tolist()
    return (
        write_plainly(encoding, q, k, i, j, head)
        + w[0]
        + w[1] * r
        + w[2] * r * r
        + w[3] * r * r * r
    )


def sines(encoding: Sines, q: Tensor, k: Tensor, i: int, j: int, head: int) -> float:
    waves = encoding.amplitudes[head].tolist()
    bias = sum(a * x for a, x in zip(waves, sinusoid(i - j, len(waves)), strict=True))
    return write_plainly(encoding, q, k, i, j, head) + bias


def exponential(
    encoding: Exponential, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> float:
    height, scale = float(encoding.height[head]), math.exp(encoding.log_scale[head])
    return write_plainly(encoding, q, k, i, j, head) + height * math.exp(
        (j - i) / scale
    )


def gaussian(
    encoding: Gaussian, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> float:
    centre, scale = (
        math.exp(x[head]) for x in (encoding.log_centre, encoding.log_scale)
    )
    bias = float(encoding.height[head]) * math.exp(
        -0.5 * ((i - j - centre) / scale) ** 2
    )
    return write_plainly(encoding, q, k, i, j, head) + bias


def learned_distance(
    encoding: LearnedDistance, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> float:
    return write_plainly(encoding, q, k, i, j, head) + float(
        encoding.table[head, i - j]
    )


def convolution(
    encoding: Convolution, q: Tensor, k: Tensor, i: int, j: int, head: int
) -> float:
    bias = float(encoding.kernel[head, i - j]) if i - j < 16 else 0.0
    return write_plainly(encoding, q, k, i, j, head) + bias


FORMULAS: dict[str, Score] = {
    "nope": write_plainly,
    "sinusoidal": write_plainly,
    "learned": write_plainly,
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
    "rope_values": rope,
    "rope_values_back": rope,
    "xpos": xpos,
    "fope": fope,
    "tupe": tupe,
    "multiplied": write_plainly,
    "concatenated": write_plainly,
    "polynomial": polynomial,
    "sines": sines,
    "exponential": exponential,
    "gaussian": gaussian,
    "learned_distance": learned_distance,
    "convolution": convolution,
}
# Encodings whose score is no function of one head: they have a test of their own.
ACROSS_HEADS = {"mla"}
# Of all the tokens between: test_from_input.py.
FROM_INPUT = {"fox", "path"}


TOKENS = 40
SHAPE = Shape(layers=2, width=12, heads=2, head_dim=8, trained_len=TOKENS - 10)
NAMES = sorted(FORMULAS)


def randomised(module: nn.Module) -> nn.Module:
    """All parameters drawn anew, so that none is left at 0 where a mistake would not
    show.
    """
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
    assert set(FORMULAS) | ACROSS_HEADS | FROM_INPUT == set(ENCODINGS)


@pytest.mark.parametrize("queries", [TOKENS, 7, 1], ids=["whole", "block", "one"])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_scores_equal_the_formula(name: str, queries: int) -> None:
    layer = layer_of(name)
    tokens = (
        TOKENS if layer.max_position is None else min(TOKENS, layer.max_position + 1)
    )
    queries = min(queries, tokens)
    positions = torch.arange(tokens)
    q, k = random_heads(tokens), random_heads(tokens)
    late = positions[-queries:]
    turned = layer.query(q[:, :, -queries:], late), layer.key(k, positions)
    got = layer.scores(*turned, late, positions)
    assert got.shape == (3, SHAPE.heads, queries, tokens)
    # Rotary tables are kept in float32, and so is a rotation.
    tolerance = 2e-6 if name.startswith(("rope", "xpos", "fope")) else 1e-12
    for row, i in enumerate(late.tolist()):
        for j in range(i + 1):
            want = FORMULAS[name](layer, q[1, 1, i], k[1, 1, j], i, j, 1)
            assert got[1, 1, row, j].item() == pytest.approx(
                want, abs=tolerance, rel=tolerance
            )


@torch.no_grad()
def test_shaw_adds_its_vectors_to_the_values_of_equation_3() -> None:
    layer, positions = layer_of("shaw"), torch.arange(TOKENS)
    values = layer.get_parameter("values")
    weights = torch.rand(3, SHAPE.heads, 5, TOKENS, dtype=torch.float64)
    weights = weights * (positions[None, :] <= positions[-5:, None])
    v = random_heads()
    got = layer.mix(weights, v, positions[-5:], positions)
    for row, i in enumerate(range(TOKENS - 5, TOKENS)):
        want = torch.zeros(SHAPE.head_dim, dtype=torch.float64)
        for j in range(i + 1):
            want += weights[2, 0, row, j] * (v[2, 0, j] + values[min(i - j, 16)])
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


@torch.no_grad()
def test_learned_distances_end_with_the_table() -> None:
    encoding = make_encoding("learned_distance", SHAPE)
    assert encoding.max_position == SHAPE.trained_len - 1
    inside, beyond = (torch.arange(SHAPE.trained_len + more) for more in (0, 1))
    q = torch.randn(1, SHAPE.heads, len(beyond), SHAPE.head_dim)
    assert encoding.scores(q[:, :, :-1], q[:, :, :-1], inside, inside).isfinite().all()
    with pytest.raises(IndexError):
        encoding.scores(q, q, beyond, beyond)


@torch.no_grad()
def test_one_rotary_key_serves_all_heads_beside_their_own_content() -> None:
    """Equations 14 to 18 of arXiv:2405.04434, one score at a time."""
    encoding, positions = make_encoding("mla", SHAPE).double(), torch.arange(20)
    q, k = random_heads(20), random_heads(20)
    got = encoding.scores(
        encoding.query(q, positions), encoding.key(k, positions), positions, positions
    )
    for head in range(SHAPE.heads):
        for i, j in ((19, 19), (19, 0), (7, 3)):
            score = dot(q[1, head, i, :4], k[1, head, j, :4])
            for pair, frequency in ((4, 1.0), (6, 0.01)):
                turn = cmath.exp(1j * (i - j) * frequency)
                q_pair = complex(*q[1, head, i, pair : pair + 2].tolist())
                k_pair = complex(*k[1, 0, j, pair : pair + 2].tolist())
                score += (q_pair * k_pair.conjugate() * turn).real
            assert got[1, head, i, j].item() == pytest.approx(
                score / math.sqrt(8), abs=2e-6
            )


@torch.no_grad()
def test_the_code_as_a_factor_and_beside_the_embedding() -> None:
    x, positions = torch.randn(2, 5, 12, dtype=torch.float64), torch.arange(100, 105)
    code = torch.tensor(
        [sinusoid(p, 12) for p in positions.tolist()], dtype=torch.float64
    )
    factor = make_encoding("multiplied", SHAPE).embed(x, positions)
    torch.testing.assert_close(factor, x * code, rtol=0, atol=1e-13)
    beside = make_encoding("concatenated", SHAPE).double()
    weight = dict(beside.named_parameters())["project.weight"]
    assert torch.equal(weight[:, :12], torch.eye(12, dtype=torch.float64))
    weight[:, :12] = torch.randn(12, 12)
    want = torch.cat((x, code.expand(2, 5, 12)), -1) @ weight.T
    torch.testing.assert_close(beside.embed(x, positions), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("back", [False, True])
@torch.no_grad()
def test_values_turned_with_their_keys_and_back_with_the_query(back: bool) -> None:
    layer = layer_of("rope_values_back" if back else "rope_values")
    positions = torch.arange(TOKENS)
    weights = torch.rand(3, SHAPE.heads, 5, TOKENS, dtype=torch.float64)
    v = random_heads()
    got = layer.mix(weights, v, positions[-5:], positions)
    for row, i in enumerate(range(TOKENS - 5, TOKENS)):
        for pair in range(4):
            want = 0j
            for j in range(TOKENS):
                value = complex(float(v[2, 0, j, pair]), float(v[2, 0, j, pair + 4]))
                turn = cmath.exp(1j * (j - back * i) * 10000 ** (-pair / 4))
                want += float(weights[2, 0, row, j]) * value * turn
            assert complex(*got[2, 0, row, pair::4].tolist()) == pytest.approx(
                want, abs=1e-4
            )
