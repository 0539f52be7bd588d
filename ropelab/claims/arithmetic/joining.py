"""Claims about how a position code is joined to an embedding: added, multiplied, put beside it."""

import numpy as np
from jaxtyping import Float

from ropelab.claims.arithmetic.small_model import encoded, encoding_for, queries_and_keys, trains
from ropelab.claims.arithmetic.turning import split, turned
from ropelab.claims.arithmetic.waves import BASE, code
from ropelab.claims.numbers import Array, frequencies, gaussian, largest, tiny
from ropelab.claims.record import Claim, Evidence, Finding, Passage, limit, part
from ropelab.runs.thresholds import EXACT, ROUNDING

WIDTH, TOKENS = 64, 512
MORE = "ropelab encodings --encodings sinusoidal,multiplied,concatenated,rope"


def _codes(width: int, tokens: int) -> Float[Array, "tokens width"]:
    return code(np.arange(tokens), frequencies(width, BASE))


def concatenation_is_wider(*, width: int = WIDTH, beside: int = WIDTH, seed: int = 0) -> Evidence:
    """A linear layer on (x, p) against the same weights on x plus a projected p."""
    x = gaussian(seed, TOKENS, width)
    p = _codes(beside, TOKENS)
    weights = gaussian(seed + 1, width + beside, width)
    side_by_side = np.concatenate((x, p), -1) @ weights
    off = largest(side_by_side - (x @ weights[:width] + p @ weights[width:]))
    return Evidence(
        expected="more inputs of the next layer, and outputs that no sum gives",
        findings=(
            part(
                "inputs of the next layer",
                f"{width} for a sum, {width + beside} side by side",
                beside > 0,
                width + beside,
            ),
            limit(
                "what that layer puts out, against the sum of x and a projected code",
                f"{tiny(off)} apart",
                off > EXACT,
                off,
            ),
        ),
    )


def multiplying_changes_more(
    *, sizes: tuple[float, ...] = (1.0, 0.02), width: int = WIDTH, seed: int = 0
) -> Evidence:
    """How far the sinusoidal code takes an embedding away, as a factor and as a summand."""
    p = _codes(width, TOKENS)
    findings: list[Finding] = []
    for size in sizes:
        x = size * gaussian(seed, TOKENS, width)
        multiplied, added = (
            float(np.linalg.norm(change) / np.linalg.norm(x)) for change in (x * p - x, p)
        )
        make = limit if findings else part
        findings.append(
            make(
                f"change of embeddings of size {size:g}, of their length",
                f"{multiplied:.2f} multiplied, {added:.2f} added",
                multiplied > added,
                multiplied / added,
            )
        )
    return Evidence(expected="a larger change by multiplying", findings=tuple(findings))


def rope_multiplies(*, position: int = 17, seed: int = 0) -> Evidence:
    """The turned vector over the vector: one factor per pair, and one per feature?"""
    x = gaussian(seed, TOKENS, WIDTH)
    angles = position * frequencies(WIDTH, BASE)
    rotated = turned(x, angles, "interleaved")
    pairs, turned_pairs = (_complex(y) for y in (x, rotated))
    off = largest(turned_pairs - pairs * np.exp(1j * angles))
    ratio = rotated / x
    low, high = np.quantile(ratio, (0.05, 0.95), axis=0)
    spread = largest(high - low)
    return Evidence(
        expected="one factor for all vectors at a position",
        findings=(
            part(
                "turned vectors against one complex factor for each pair",
                f"{tiny(off)} apart",
                off <= EXACT,
                off,
            ),
            limit(
                f"one real factor for each feature at position {position}, 5 to 95 % of vectors",
                f"differ by up to {spread:.1f}",
                spread <= EXACT,
                spread,
            ),
        ),
    )


def _complex(x: Float[Array, "n width"]) -> np.ndarray:
    first, second = split(x, "interleaved")
    return np.asarray(first + 1j * second)


def coefficients_are_fixed(*, encoding: str = "sinusoidal", tokens: int = 16) -> Evidence:
    """What is trained of the code, and what a projection of it can make of its waves."""
    p = _codes(TOKENS, tokens)
    wanted = np.eye(tokens)
    weights = np.linalg.lstsq(p, wanted, rcond=None)[0]
    off = largest(p @ weights - wanted)
    count = trains(encoding)
    return Evidence(
        expected="no coefficient of the waves is learned",
        findings=(
            part("numbers that the code trains", f"{count:,}", count == 0, count),
            limit(
                f"a learned projection of the code picks out each of {tokens} positions, d = "
                f"{TOKENS}",
                f"to {tiny(off)}: it learns the coefficients instead",
                off > ROUNDING,
                off,
            ),
        ),
    )


def only_at_the_product(*, name: str = "rope", shift: int = 100, seed: int = 0) -> Evidence:
    """What an encoding adds to the product of the queries and keys that it has changed."""
    layer = encoding_for(name).for_layer(0)
    q, k = queries_and_keys(16, seed)
    q_at, k_at, at, _ = encoded(layer, q, k)
    scores = layer.scores(q_at, k_at, at, at).detach().tril()
    product = (q_at @ k_at.mT / q.shape[-1] ** 0.5).tril()
    moved = layer.query(q, at + shift), layer.key(k, at + shift)
    change = largest(
        (layer.scores(*moved, at + shift, at + shift).detach().tril() - scores).numpy()
    )
    added = largest((scores - product).numpy())
    return Evidence(
        expected="something is added to the product, or multiplied with it",
        findings=(
            part(
                f"{name}: what is done to the product, while moving both tokens by {shift} changes "
                f"the score by {tiny(change)}",
                "nothing" if added <= ROUNDING else f"scores change by {added:.1f}",
                added > ROUNDING,
                added,
            ),
        ),
    )


def polynomial_fits(*, degree: int = 3, reach: int = 128, beyond: int = 4) -> Evidence:
    """The best polynomial of the distance for two biases, and what it is farther away."""
    distance = np.arange(reach)
    smooth = -np.log1p(distance)
    spike = np.where(distance == 1, 1.0, 0.0)
    fits = {name: np.polyfit(distance / reach, y, degree) for name, y in _named(smooth, spike)}
    shares = {
        name: 1 - np.var(y - np.polyval(fits[name], distance / reach)) / np.var(y)
        for name, y in _named(smooth, spike)
    }
    there = float(np.polyval(fits["log"], beyond))
    true = -float(np.log1p(beyond * reach))
    return Evidence(
        expected="any bias of the distance, 90 % of its variance",
        findings=(
            part(
                f"share of -ln(1 + r) that degree {degree} explains over {reach} tokens",
                f"{shares['log']:.0%}",
                bool(shares["log"] >= 0.9),
                float(shares["log"]),
            ),
            limit(
                "share of a bias for the token before",
                f"{shares['spike']:.0%}",
                bool(shares["spike"] >= 0.9),
                float(shares["spike"]),
            ),
            limit(
                f"the fit of the former at {beyond * reach} tokens",
                f"{there:.0f}, should be {true:.1f}",
                abs(there - true) <= 1,
                there,
            ),
        ),
    )


def _named(
    smooth: Float[Array, " n"], spike: Float[Array, " n"]
) -> tuple[tuple[str, Float[Array, " n"]], ...]:
    return ("log", smooth), ("spike", spike)


CLAIMS = (
    Claim(
        id="concatenation-wider",
        passages=(
            Passage(
                "003",
                "exam question 1",
                626,
                "因为这样不会改变维度,也最简单",
                "because this does not change the width and is simplest",
            ),
            Passage(
                "003",
                "exam question 1",
                628,
                "但需要把下游网络的维度调大,较麻烦",
                "but the layers behind must be made wider, which is a nuisance",
            ),
        ),
        statement="Adding a code keeps the width; putting it beside the embedding needs wider "
        "layers behind it.",
        check=concatenation_is_wider,
        command=MORE,
    ),
    Claim(
        id="multiplication-stronger",
        passages=(
            Passage(
                "003",
                "why positions",
                33,
                "乘法对词向量的影响更强、更复杂",
                "multiplying affects the embedding more strongly and in a more complex way",
            ),
        ),
        statement="A code that is multiplied changes the embeddings more than one that is added.",
        check=multiplying_changes_more,
        command=MORE,
    ),
    Claim(
        id="rope-multiplies",
        passages=(
            Passage(
                "003",
                "why positions",
                35,
                "例如LLaMA使用的旋转位置编码(RoPE),就是通过乘法实现的",
                "the RoPE that LLaMA uses, for example, works by multiplication",
            ),
            Passage(
                "003",
                "relative encodings §9",
                383,
                "它不通过加法,而是通过乘法来引入相对位置信息",
                "it brings in relative positions by multiplying, not by adding",
            ),
        ),
        statement="RoPE multiplies the vector by a code, element by element.",
        check=rope_multiplies,
    ),
    Claim(
        id="code-coefficients",
        passages=(
            Passage(
                "003",
                "§2",
                87,
                "系数 可学习或计算得到 固定值",
                "coefficients: learned or computed (Fourier series), fixed values (the code)",
            ),
        ),
        statement="Unlike those of a Fourier series the coefficients of the waves in a sinusoidal "
        "code are fixed.",
        check=coefficients_are_fixed,
    ),
    Claim(
        id="only-at-the-product",
        passages=(
            Passage(
                "003",
                "relative encodings §2",
                241,
                "就必须在这个点积结果上做文章",
                "it is this product that something must be done to",
            ),
            Passage(
                "003",
                "relative encodings",
                229,
                "它不是修饰数据本身,而是修饰注意力得分矩阵 A",
                "it changes not the data but the matrix A of attention scores",
            ),
        ),
        statement="Relative positions can enter only at the product of query and key.",
        check=only_at_the_product,
        command="ropelab encodings --encodings rope,t5",
    ),
    Claim(
        id="polynomial-distance",
        passages=(
            Passage(
                "003",
                "relative encodings §6",
                316,
                "这种做法类似于多项式拟合,可以表达复杂的非线性关系",
                "this resembles fitting a polynomial and can express complex non-linear relations",
            ),
        ),
        statement="A polynomial of the distance (1, r, r^2, r^3) expresses complex relations.",
        check=polynomial_fits,
        command="ropelab encodings --encodings polynomial,learned_distance,t5,rope",
    ),
)
