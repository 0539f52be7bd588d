"""Claims about the rotation itself: what a rotated score depends on."""

from typing import Literal

import numpy as np
from jaxtyping import Float

from ropelab.claims.arithmetic.attention_order import attention
from ropelab.claims.arithmetic.turning import join, rotation_matrix, split, turned
from ropelab.claims.numbers import Array, frequencies, gaussian, largest, tiny
from ropelab.claims.record import Claim, Evidence, Passage, limit, part
from ropelab.runs.thresholds import EXACT

HEAD, BASE, DRAWS = 64, 10000.0, 256


def scores(
    q: Float[Array, "draws d"],
    k: Float[Array, "draws d"],
    m: int,
    n: int,
    base: float,
    sign: int = 1,
) -> Float[Array, " draws"]:
    """(R(m) q) . (R(n) k) for every draw."""
    inv_freq = sign * frequencies(q.shape[-1], base)
    return (turned(q, m * inv_freq) * turned(k, n * inv_freq)).sum(-1)


def relative_only(
    *,
    distance: int = 3,
    shifts: tuple[int, ...] = (1, 100, 4096),
    base: float = BASE,
    seed: int = 0,
) -> Evidence:
    """Shift both positions and look for a change; change the distance and look for one."""
    q, k = gaussian(seed, 2, DRAWS, HEAD)
    near = scores(q, k, 0, distance, base)
    moved = max(largest(scores(q, k, s, s + distance, base) - near) for s in shifts)
    farther = largest(scores(q, k, 0, distance + 1, base) - near)
    return Evidence(
        expected=f"equal distances give equal scores, to {EXACT:g}",
        findings=(
            part(
                f"change when both positions move by up to {max(shifts)}",
                tiny(moved),
                moved <= EXACT,
                moved,
            ),
            part("change with one more token between", f"{farther:.1f}", farther > EXACT, farther),
        ),
    )


def rotation_factor(*, distance: int = 3, seed: int = 0) -> Evidence:
    """Is there one factor of the distance: as a matrix between q and k, and as a number?"""
    q, k = gaussian(seed, 2, DRAWS, HEAD)
    rotated = scores(q, k, 0, distance, BASE)
    q_pairs, k_pairs = (join(*split(x, "half"), "interleaved") for x in (q, k))
    matrix = rotation_matrix(distance * frequencies(HEAD, BASE))
    off = largest(((q_pairs @ matrix) * k_pairs).sum(-1) - rotated)
    ratio = rotated / scores(q, k, 0, 0, BASE)
    low, high = np.quantile(ratio, (0.05, 0.95)).tolist()
    return Evidence(
        expected="one factor for all queries and keys",
        findings=(
            part(
                f"as a rotation matrix between q and k, at distance {distance}",
                f"{tiny(off)} apart",
                off <= EXACT,
                off,
            ),
            limit(
                "as a number behind the finished product q.k, 5 to 95 % of random q, k",
                f"{low:.2f} to {high:.2f}",
                high - low <= EXACT,
                high - low,
            ),
        ),
    )


def attended(
    shift: int, positions: Literal["rotated", "added"], seed: int, tokens: int = 16
) -> Float[Array, "tokens d"]:
    """What causal attention puts out with random tokens at positions shift, shift + 1, ..."""
    q, k, v = gaussian(seed, 3, tokens, HEAD)
    angles = np.arange(shift, shift + tokens)[:, None] * frequencies(HEAD, BASE)
    if positions == "added":
        code = join(np.sin(angles), np.cos(angles), "half")
        return attention(q + code, k + code, v, causal=True)
    return attention(turned(q, angles), turned(k, angles), v, causal=True)


def knows_absolute(
    *,
    positions: Literal["rotated", "added"] = "rotated",
    causal: bool = True,
    shifts: tuple[int, ...] = (1, 100, 4096),
    seed: int = 0,
) -> Evidence:
    """What a head can tell of a position: by the rotation, and by how much stands before it."""
    tokens = 16
    only_first = np.eye(tokens)[:, :1]
    weights = attention(np.zeros((tokens, 1)), np.zeros((tokens, 1)), only_first, causal)[:, 0]
    different = len(np.unique(weights.round(12)))
    q = gaussian(seed, 1, HEAD)
    inv_freq = frequencies(HEAD, BASE)
    codes = largest(turned(q, 10 * inv_freq) - turned(q, 5 * inv_freq))
    shifted = max(
        largest(attended(s, positions, seed) - attended(0, positions, seed)) for s in shifts
    )
    return Evidence(
        expected="something that a head puts out depends on the position",
        findings=(
            part("the rotated vectors at positions 5 and 10", f"{codes:.1f} apart", codes > EXACT),
            part(
                "weight of the first of n + 1 equal tokens under a causal mask",
                f"1/(n + 1): {different} values at {tokens} positions",
                different == tokens,
                different,
            ),
            limit(
                "what the rotation adds to that: attention's output after all positions move by "
                f"up to {max(shifts)}",
                f"{tiny(shifted)} apart",
                shifted > EXACT,
                shifted,
            ),
        ),
    )


def values_left_alone(*, shift: int = 100, seed: int = 0) -> Evidence:
    """Move all positions: what attention puts out with plain and with rotated values."""
    tokens = 16
    q, k, v = gaussian(seed, 3, tokens, HEAD)
    outputs = []
    for start in (0, shift):
        angles = np.arange(start, start + tokens)[:, None] * frequencies(HEAD, BASE)
        q_at, k_at = turned(q, angles), turned(k, angles)
        outputs.append([attention(q_at, k_at, x, True) for x in (v, turned(v, angles))])
    plain, rotated = (largest(there - here) for here, there in zip(*outputs, strict=True))
    return Evidence(
        expected="with plain values positions change weights only, with rotated ones the content",
        findings=(
            part(
                f"output after all positions move by {shift}, values as they are",
                f"{tiny(plain)} apart",
                plain <= EXACT,
                plain,
            ),
            part("the same with rotated values", f"{rotated:.2f} apart", rotated > EXACT, rotated),
        ),
    )


def either_direction(*, distance: int = 3, seed: int = 0) -> Evidence:
    """Turn the other way, with the same and with mirrored queries and keys."""
    q, k = gaussian(seed, 2, DRAWS, HEAD)
    there = scores(q, k, 0, distance, BASE)
    back = scores(q, k, 0, distance, BASE, sign=-1)
    mirror = np.repeat([1.0, -1.0], HEAD // 2)
    mirrored = scores(q * mirror, k * mirror, 0, distance, BASE, sign=-1)
    same, apart = largest(mirrored - there), largest(back - there)
    return Evidence(
        expected="equal scores",
        findings=(
            part(
                "with the second feature of each pair mirrored",
                f"{tiny(same)} apart",
                same <= EXACT,
            ),
            limit("with the same features", f"{apart:.1f} apart", apart <= EXACT, apart),
        ),
    )


def same_distance_same_score(
    *, tokens: Literal["different", "same"] = "different", seed: int = 0
) -> Evidence:
    """Scores at equal distance, as the script prints them."""
    q, k = gaussian(seed, 2, 2, DRAWS, HEAD)
    if tokens == "same":
        q, k = (np.broadcast_to(x[:1], x.shape) for x in (q, k))
    first, second = (scores(q[i], k[i], i, i, BASE) for i in (0, 1))
    typical = float(np.sqrt(np.square(first - second).mean()))
    return Evidence(
        expected="q0.k0 is about q1.k1",
        findings=(
            part(
                f"typical difference of q0.k0 and q1.k1, {tokens} tokens at 0 and 1",
                f"{typical:.1f}",
                typical <= 1e-3,
                typical,
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="relative-only",
        passages=(
            Passage(
                "001",
                "§4.2",
                257,
                "Attention 分数只依赖相对距离 (n-m)",
                "attention scores depend on the relative distance (n-m) only",
            ),
            Passage(
                "002",
                "§3",
                51,
                "我们需要一个仅仅依赖$q_m$,$k_n$和m-n的函数",
                "we need a function of q_m, k_n and m-n alone",
            ),
            Passage(
                "000",
                "§1",
                3,
                "ROPE能更灵活地建模相对位置关系",
                "RoPE models relative positions more flexibly",
            ),
        ),
        statement="The score of a rotated query and a rotated key depends on n - m only.",
        check=relative_only,
    ),
    Claim(
        id="rotation-factor",
        passages=(
            Passage(
                "003",
                "relative encodings §9",
                384,
                "让 Q 和 K 在内积时乘上一个与相对位置相关的旋转因子",
                "let Q and K be multiplied, in their inner product, by a rotation factor that "
                "depends on the relative position",
            ),
            Passage(
                "003",
                "relative encodings §9",
                387,
                "通常用复数或旋转矩阵表示",
                "usually written as a complex number or a rotation matrix",
            ),
            Passage("minimind-knowledge", "§2.3"),
        ),
        statement="RoPE multiplies the score q.k by a factor, a complex number or a rotation "
        "matrix, that depends on the distance only.",
        check=rotation_factor,
    ),
    Claim(
        id="absolute-too",
        passages=(
            Passage(
                "001",
                "§4.3",
                267,
                "模型可以知道”这个词在位置5”",
                "the model can know that 'this word stands at position 5'",
            ),
        ),
        statement="RoPE holds absolute positions too: the model can tell that a word stands at "
        "position 5.",
        check=knows_absolute,
    ),
    Claim(
        id="values-left-alone",
        passages=(
            Passage(
                "001",
                "§8.1",
                470,
                "只旋转 Q、K:位置用于相似度,不影响内容 V",
                "only Q and K are rotated: positions serve similarity and leave the content V "
                "alone",
            ),
        ),
        statement="Because only queries and keys are rotated, positions act on the weights and "
        "not on the content that is passed on.",
        check=values_left_alone,
    ),
    Claim(
        id="either-direction",
        passages=(Passage("rope_multi_frequency"),),
        statement="Turning clockwise or counterclockwise has the same effect.",
        check=either_direction,
    ),
    Claim(
        id="script-equal-scores",
        passages=(Passage("rope_explained"),),
        statement="With random q and k at every position, q0.k0 is about q1.k1 because the "
        "distance is the same.",
        check=same_distance_same_score,
    ),
)
