"""Claims of the comparison tables on what encodings do to scores, and at what cost."""

from functools import partial

import torch
from torch import Tensor

from ropelab.claims.arithmetic.published import angle_errors
from ropelab.claims.arithmetic.single_or_multi import census, many
from ropelab.claims.arithmetic.small_model import (
    HEAD,
    HEADS,
    encoded,
    encoding_for,
    multiplications,
    queries_and_keys,
)
from ropelab.claims.numbers import gaussian, largest, tiny
from ropelab.claims.record import Claim, Evidence, Passage, limit, part
from ropelab.models.encoding.base import Encoding
from ropelab.runs.thresholds import ANGLE_RAD, ROUNDING, SLOW

MORE = "ropelab encodings"


def work(*, name: str, slow: bool, seed: int = 0) -> Evidence:
    """Multiplications of the scores of a sequence, against attention without positions."""
    encoding = encoding_for(name).for_layer(0)
    ratio = multiplications(encoding, seed) / multiplications(Encoding(), seed)
    return Evidence(
        expected=f"{'at least' if slow else 'less than'} {SLOW} times plain attention's",
        findings=(
            part(
                "multiplications of the scores, plain attention is 1",
                f"{ratio:.2f}",
                (ratio >= SLOW) == slow,
                ratio,
            ),
        ),
    )


def cache_is_impossible(
    *, name: str = "transformer_xl", tokens: int = 64, seed: int = 0
) -> Evidence:
    """Decode token by token from cached keys and compare with the scores of the full pass."""
    encoding = encoding_for(name).for_layer(0)
    with torch.no_grad():
        q, k = queries_and_keys(tokens, seed)
        full = encoding.scores(*encoded(encoding, q, k))
        alone = [encoding.key(k[:, :, i : i + 1], torch.tensor([i])) for i in range(tokens)]
        keys = torch.cat(alone, -2)
        apart = max(
            largest(_decoded(encoding, q, keys, i) - full[:, :, i : i + 1, : i + 1])
            for i in range(tokens)
        )
        ratio = multiplications(encoding, seed) / multiplications(Encoding(), seed)
    return Evidence(
        expected="decoding from cached keys gives other scores, and scores cost more",
        findings=(
            part(
                f"scores from cached keys against the full pass, {tokens} tokens",
                f"{tiny(apart)} apart",
                apart > ROUNDING,
                apart,
            ),
            part(
                "multiplications of the scores, plain attention is 1",
                f"{ratio:.1f}",
                ratio >= SLOW,
                ratio,
            ),
        ),
    )


def _decoded(encoding: Encoding, q: Tensor, keys: Tensor, token: int) -> Tensor:
    """Scores of one query with cached keys, each encoded alone when its token came."""
    here = torch.tensor([token])
    query = encoding.query(q[:, :, token : token + 1], here)
    return encoding.scores(query, keys[:, :, : token + 1], here, torch.arange(token + 1))


def is_relative(*, name: str, expected: bool, shift: int = 100, seed: int = 0) -> Evidence:
    """Move all positions on and compare the scores of equal tokens."""
    encoding = encoding_for(name)
    tokens = 16
    x = torch.from_numpy(gaussian(seed, 1, tokens, HEADS * HEAD)).float()
    scores = []
    with torch.no_grad():
        for start in (0, shift):
            positions = torch.arange(start, start + tokens)
            q = encoding.embed(x, positions).unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
            layer = encoding.for_layer(0)
            q, k = layer.query(q, positions), layer.key(q, positions)
            scores.append(layer.scores(q, k, positions, positions).tril())
    moved = largest(scores[1] - scores[0]) / largest(scores[0])
    return Evidence(
        expected="the same scores" if expected else "other scores",
        findings=(
            part(
                f"change of scores when all positions move by {shift}, of the largest",
                tiny(moved),
                (moved < ROUNDING) == expected,
                moved,
            ),
        ),
    )


def printed_sign(*, slope: float = 0.25) -> Evidence:
    """alpha times distance with alpha > 0, the distance signed (key minus query) or counted."""
    tokens = 8
    nothing, positions = torch.zeros(1, HEADS, tokens, HEAD), torch.arange(tokens)
    bias = encoding_for("alibi").scores(nothing, nothing, positions, positions)[0, 0].tril()
    signed = slope * (positions - positions[:, None]).tril()
    off, counted = largest(bias - signed), largest(bias + signed)
    return Evidence(
        expected="ALiBi's bias, which lowers the scores of far keys",
        findings=(
            part(
                f"alpha = {slope} with distance = key position minus query position",
                f"{tiny(off)} from the bias",
                off == 0,
                off,
            ),
            limit(
                "the same with distances counted from 0 up",
                f"far keys are preferred, {counted:.1f} from the bias",
                counted == 0,
                counted,
            ),
        ),
    )


def heads_unaffected(
    *,
    methods: tuple[str, ...] = ("sinusoidal", "learned", "shaw", "rope", "alibi"),
    seed: int = 0,
) -> Evidence:
    """Which of the page's methods act inside the heads, after the features were divided?"""
    q, k = queries_and_keys(8, seed)
    plain = Encoding().scores(*encoded(Encoding(), q, k)).tril()
    acting = []
    with torch.no_grad():
        for name in methods:
            encoding = encoding_for(name).for_layer(0)
            if largest(encoding.scores(*encoded(encoding, q, k)).tril() - plain) > ROUNDING:
                acting.append(name)
    zero = torch.zeros_like(q)
    biases = encoding_for("alibi").scores(*encoded(encoding_for("alibi"), zero, zero))[0, :, -1, 0]
    different = len(biases.unique())
    return Evidence(
        expected="most of them act on the embeddings only",
        findings=(
            part(
                f"methods of the page that act inside every head, of {len(methods)}",
                f"{len(acting)} ({', '.join(acting)})",
                len(acting) < len(methods) / 2,
                len(acting),
            ),
            limit(
                f"different biases that ALiBi gives {HEADS} heads at one distance",
                f"{different}",
                different == 1,
                different,
            ),
        ),
    )


def unstable_or_coarse(*, length: int = 1 << 20) -> Evidence:
    """Sinusoids far out: angle errors in float32, and positions that share their code."""
    error = angle_errors("float32", 128, 10000.0, length)
    found = census(many(64, 10000.0), "vector", length)
    shared = {fmt: counted.adjacent_collisions for fmt, counted in found.items()}
    shown = ", ".join(f"{count} in {fmt}" for fmt, count in shared.items())
    return Evidence(
        expected=f"angles off by more than {ANGLE_RAD:g} rad, or neighbours that look alike",
        findings=(
            part(
                f"worst angle error in float32 up to {length:,}",
                f"{error.error_rad:.2g} rad",
                error.error_rad > ANGLE_RAD,
                error.error_rad,
            ),
            limit("neighbours with the same code", shown, any(shared.values())),
        ),
    )


CLAIMS = (
    Claim(
        id="learned-not-relative",
        passages=(
            Passage(
                "001",
                "§3.1",
                154,
                "没有显式的相对位置信息",
                "no explicit information on relative positions",
            ),
        ),
        statement="A learned absolute encoding gives no explicitly relative scores.",
        check=partial(is_relative, name="learned", expected=False),
        command=MORE,
    ),
    Claim(
        id="t5-relative",
        passages=(Passage("001", "§3.2", 173, "有相对位置信息", "has relative information"),),
        statement="T5's scores depend on relative positions.",
        check=partial(is_relative, name="t5", expected=True),
        command=MORE,
    ),
    Claim(
        id="rope-relative",
        passages=(
            Passage(
                "001",
                "§3.3",
                196,
                "自然包含相对位置信息(数学性质)",
                "contains relative information naturally (a mathematical property)",
            ),
        ),
        statement="RoPE's scores depend on relative positions by construction.",
        check=partial(is_relative, name="rope", expected=True),
        command=MORE,
    ),
    Claim(
        id="alibi-sign",
        passages=(
            Passage("003", "ALiBi", 592, r"\text{score}(Q, K) += \alpha \times (\text{distance})"),
            Passage(
                "003",
                "ALiBi",
                590,
                "或者说key的位置与query的位置之差",
                "or rather the difference of the key's and the query's position",
            ),
        ),
        statement="ALiBi adds alpha times the distance of key and query to the score.",
        check=printed_sign,
    ),
    Claim(
        id="t5-costly",
        passages=(Passage("001", "§3.2", 179, "计算复杂", "complex to compute"),),
        statement="T5's relative encoding is costly to compute.",
        check=partial(work, name="t5", slow=True),
        command=MORE,
    ),
    Claim(
        id="rope-efficient",
        passages=(
            Passage("003", "RoPE", 472, "计算简单高效", "simple and efficient to compute"),
            Passage("000", "summary", 58, "在保持计算效率的同时", "while staying efficient"),
        ),
        statement="RoPE is efficient to compute.",
        check=partial(work, name="rope", slow=False),
        command=MORE,
    ),
    Claim(
        id="transformer-xl-cache",
        passages=(
            Passage(
                "003",
                "Transformer-XL",
                440,
                "慢而且不能用kv cache",
                "slow, and cannot use a KV cache",
            ),
        ),
        statement="Transformer-XL's relative encoding is slow and cannot use a KV cache.",
        check=cache_is_impossible,
        command=MORE,
    ),
    Claim(
        id="heads-unaffected",
        passages=(
            Passage(
                "003",
                "exam question 4",
                644,
                "因此对多头注意力并没有额外影响",
                "so it has no additional effect on multi-head attention",
            ),
        ),
        statement="Positions live in the space of the embeddings and have no further effect on "
        "the heads.",
        check=heads_unaffected,
    ),
    Claim(
        id="sinusoid-unstable",
        passages=(
            Passage(
                "003",
                "exam question 2",
                632,
                "可能存在数值不稳定或分辨率不足的问题",
                "there may be numerical instability or too little resolution",
            ),
        ),
        statement="For very long sequences sinusoids may be numerically unstable or resolve too "
        "little.",
        check=unstable_or_coarse,
        command="ropelab precision --preset float32 --base 1e4 --head-dim 128 --length 1m",
    ),
)
