"""Claims of the comparison tables: parameters, storage, work, caches, heads."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ropelab.encoding.base import Encoding
from ropelab.encoding.registry import make_encoding
from ropelab.encoding.shape import Shape
from ropelab.literature.arithmetic.published import angle_errors
from ropelab.literature.arithmetic.single_or_multi import census, many
from ropelab.literature.numbers import gaussian, largest, tiny
from ropelab.literature.record import Claim, Evidence, Finding, Passage, limit, part
from ropelab.literature.thresholds import ANGLE_RAD, ROUNDING, SLOW

MORE = "ropelab encodings"
LENGTH, LAYERS, HEADS, HEAD = 512, 4, 4, 32
"""The small model on which encodings are compared."""
Growth = Literal["none", "some", "with length"]


def encoding_for(name: str, length: int = LENGTH, seed: int = 0) -> Encoding:
    """The encoding of that name for small models of that trained length."""
    shape = Shape(layers=LAYERS, width=HEADS * HEAD, heads=HEADS, head_dim=HEAD, trained_len=length)
    return make_encoding(name, shape, seed)


def trains(name: str, length: int = LENGTH) -> int:
    """How many numbers it trains."""
    return sum(p.numel() for p in encoding_for(name, length).parameters())


def keeps(name: str, length: int) -> int:
    """How many numbers it keeps, trained or not."""
    encoding = encoding_for(name, length)
    return sum(x.numel() for x in (*encoding.parameters(), *encoding.buffers()))


def queries_and_keys(tokens: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random queries and keys of one layer, float32 [1, heads, tokens, head_dim]."""
    q, k = torch.from_numpy(gaussian(seed, 2, 1, HEADS, tokens, HEAD)).float()
    return q, k


def parameter_column(*, said: tuple[tuple[str, Growth], ...]) -> Evidence:
    """Count the trained numbers of each encoding at one length and at twice that length."""
    findings = [
        _counted(name, growth, trains(name), trains(name, 2 * LENGTH)) for name, growth in said
    ]
    return Evidence(
        expected=", ".join(f"{name} {growth}" for name, growth in said), findings=tuple(findings)
    )


def _counted(name: str, said: Growth, short: int, long: int) -> Finding:
    found = {"none": short == long == 0, "some": short > 0, "with length": long == 2 * short > 0}
    return part(f"{name}, said to train: {said}; trains", f"{short:,}", found[said], short)


def always_fixed(*, fixed: str = "sinusoidal", other: str = "learned") -> Evidence:
    """Count what the two absolute encodings train."""
    first, second = trains(fixed), trains(other)
    return Evidence(
        expected="nothing is trained",
        findings=(
            part(f"trained numbers of the {fixed} encoding", f"{first:,}", first == 0, first),
            limit(f"of a {other} table", f"{second:,}", second == 0, second),
        ),
    )


def relative_are_trained(
    *,
    tables: tuple[str, ...] = ("shaw", "t5"),
    others: tuple[str, ...] = ("alibi", "rope"),
) -> Evidence:
    """Count what relative encodings train."""
    return Evidence(
        expected="something is trained for every relative position",
        findings=(
            *(part(f"trained numbers of {x}", f"{trains(x):,}", trains(x) > 0) for x in tables),
            *(limit(f"of {x}", f"{trains(x):,}", trains(x) > 0) for x in others),
        ),
    )


def learned_stops(*, name: str = "learned") -> Evidence:
    """Ask a learned table for the first position after the trained ones."""
    encoding = encoding_for(name)
    try:
        encoding.embed(torch.zeros(1, 1, HEADS * HEAD), torch.tensor([LENGTH]))
        stops = False
    except IndexError:
        stops = True
    last = encoding.max_position
    return Evidence(
        expected="nothing beyond the trained length",
        findings=(
            part(f"at position {LENGTH} it has", "no vector" if stops else "a vector", stops),
            part("its last position", f"{last}", last == LENGTH - 1),
        ),
    )


def bias_matrix(*, name: str = "t5") -> Evidence:
    """Count the numbers that a bias adds to the scores, and how many of them differ."""
    grown = {}
    for tokens in (LENGTH, 2 * LENGTH):
        nothing = torch.zeros(1, HEADS, tokens, HEAD)
        positions = torch.arange(tokens)
        biases = encoding_for(name).scores(nothing, nothing, positions, positions)[0, 0]
        seen = biases[torch.ones_like(biases).tril() > 0]
        grown[tokens] = (biases.numel(), len(seen.unique()))
    (full, distinct), (full_2, distinct_2) = grown[LENGTH], grown[2 * LENGTH]
    return Evidence(
        expected="four times as many numbers for twice the tokens",
        findings=(
            part(
                f"scores that get a bias, {LENGTH} and {2 * LENGTH} tokens",
                f"{full:,} and {full_2:,} per head",
                full_2 == 4 * full,
                full_2 / full,
            ),
            limit(
                "different biases among them, which are all that has to be kept",
                f"{distinct} and {distinct_2}",
                distinct_2 >= 4 * distinct,
                distinct,
            ),
        ),
    )


def rope_space(*, name: str = "rope") -> Evidence:
    """Count what RoPE trains, and the cosines and sines that the printed code keeps."""
    short, long = trains(name), trains(name, 2 * LENGTH)
    tables = [2 * tokens * HEAD for tokens in (LENGTH, 2 * LENGTH)]
    return Evidence(
        expected="the same for twice the tokens",
        findings=(
            part(
                "trained numbers at one length and at twice it",
                f"{short} and {long}",
                short == long,
            ),
            limit(
                f"table entries that the printed code keeps for {LENGTH} and {2 * LENGTH} tokens",
                f"{tables[0]:,} and {tables[1]:,}",
                tables[0] == tables[1],
                tables[1] / tables[0],
            ),
        ),
    )


def keeps_no_vectors(*, name: str = "alibi") -> Evidence:
    """Numbers that an encoding keeps, for one length and for twice that length."""
    short, long = keeps(name, LENGTH), keeps(name, 2 * LENGTH)
    return Evidence(
        expected="as few at twice the length, and fewer than one vector",
        findings=(
            part(
                f"numbers that {name} keeps for {LENGTH} and {2 * LENGTH} tokens",
                f"{short} and {long}",
                short == long < HEADS * HEAD,
                short,
            ),
        ),
    )


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


def multiplications(encoding: Encoding, seed: int) -> int:
    """Multiplications in matrix products for the scores of a sequence of LENGTH tokens."""
    encoded = _encoded(encoding, *queries_and_keys(LENGTH, seed))
    with FlopCounterMode(display=False) as counter:
        encoding.scores(*encoded)
    return counter.get_total_flops()


def _encoded(encoding: Encoding, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `scores` takes for a whole sequence."""
    positions = torch.arange(q.shape[-2])
    return encoding.query(q, positions), encoding.key(k, positions), positions, positions


def cache_is_impossible(
    *, name: str = "transformer_xl", tokens: int = 64, seed: int = 0
) -> Evidence:
    """Decode token by token from cached keys and compare with the scores of the full pass."""
    encoding = encoding_for(name).for_layer(0)
    with torch.no_grad():
        q, k = queries_and_keys(tokens, seed)
        full = encoding.scores(*_encoded(encoding, q, k))
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
    plain = Encoding().scores(*_encoded(Encoding(), q, k)).tril()
    acting = []
    with torch.no_grad():
        for name in methods:
            encoding = encoding_for(name).for_layer(0)
            if largest(encoding.scores(*_encoded(encoding, q, k)).tril() - plain) > ROUNDING:
                acting.append(name)
    zero = torch.zeros_like(q)
    biases = encoding_for("alibi").scores(*_encoded(encoding_for("alibi"), zero, zero))[0, :, -1, 0]
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
        id="parameter-column",
        passages=(
            Passage(
                "003",
                "comparison",
                610,
                "Sinusoidal 固定正余弦公式 可以 无额外参数",
                "sinusoidal, a fixed formula of sines and cosines: yes; no extra parameters",
            ),
            Passage(
                "003",
                "methods, sinusoidal",
                412,
                "不会额外增加可学习的权重",
                "adds no learnable weights",
            ),
            Passage(
                "001",
                "§3.1",
                155,
                "需要存储大量参数(max_len × hidden_size)",
                "has to store many parameters (max_len x hidden_size)",
            ),
        ),
        statement="Sinusoidal and RoPE add no parameters, a learned table grows with the length, "
        "a relative encoding needs some.",
        check=partial(
            parameter_column,
            said=(
                ("sinusoidal", "none"),
                ("learned", "with length"),
                ("shaw", "some"),
                ("rope", "none"),
            ),
        ),
        command=MORE,
    ),
    Claim(
        id="alibi-trainable",
        passages=(
            Passage(
                "003",
                "comparison",
                614,
                "在注意力打分时添加线性距离偏置 可以 少量可训练",
                "adds a linear distance bias to the attention scores: yes; a few trainable",
            ),
        ),
        statement="ALiBi has a few trainable parameters, its slopes.",
        check=partial(parameter_column, said=(("alibi", "some"),)),
        command=MORE,
    ),
    Claim(
        id="alibi-stores-nothing",
        passages=(
            Passage(
                "003",
                "ALiBi",
                598,
                "无需显式保存位置编码向量",
                "no position vectors need to be stored",
            ),
        ),
        statement="ALiBi stores no position vectors.",
        check=keeps_no_vectors,
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
        id="absolute-fixed",
        passages=(
            Passage(
                "002",
                "§1",
                21,
                "这个偏置项是确定的不可训练的",
                "this bias is fixed and cannot be trained",
            ),
        ),
        statement="An absolute position encoding adds a fixed vector that is not trained.",
        check=always_fixed,
    ),
    Claim(
        id="relative-trained",
        passages=(
            Passage(
                "002",
                "§2",
                27,
                "每个相对位置关系,对应的emb是可以训练的",
                "the embedding of each relative position can be trained",
            ),
        ),
        statement="A relative encoding trains an embedding for each relative position.",
        check=relative_are_trained,
    ),
    Claim(
        id="learned-stops",
        passages=(
            Passage(
                "001",
                "§3.1",
                153,
                "无法外推到未见过的长度(训练512,测试1024就崩了)",
                "cannot extrapolate to unseen lengths (trained at 512, it collapses at 1024)",
            ),
            Passage(
                "003",
                "comparison",
                611,
                "无法泛化到超出训练时长度的序列",
                "cannot generalise to sequences longer than in training",
            ),
        ),
        statement="A learned absolute encoding cannot go beyond the trained length.",
        check=learned_stops,
        command=MORE,
    ),
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
        id="relative-space",
        passages=(
            Passage(
                "001",
                "§3.2",
                178,
                "需要额外的 bias 矩阵(O(seq_len²) 空间)",
                "needs an additional bias matrix (O(seq_len^2) space)",
            ),
        ),
        statement="T5's relative encoding needs an additional bias matrix of O(L^2) numbers.",
        check=bias_matrix,
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
        id="rope-space",
        passages=(
            Passage(
                "001", "§3.3", 198, "计算高效(O(1) 额外空间)", "efficient (O(1) additional space)"
            ),
        ),
        statement="RoPE needs O(1) additional space.",
        check=rope_space,
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
