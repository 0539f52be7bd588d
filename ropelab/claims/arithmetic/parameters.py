"""Claims of the comparison tables on what encodings train, keep and define."""

from functools import partial
from typing import Literal

import torch

from ropelab.claims.arithmetic.small_model import HEAD, HEADS, LENGTH, encoding_for, keeps, trains
from ropelab.claims.record import Claim, Evidence, Finding, Passage, limit, part

MORE = "ropelab encodings"
Growth = Literal["none", "some", "with length"]


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
        id="rope-space",
        passages=(
            Passage(
                "001", "§3.3", 198, "计算高效(O(1) 额外空间)", "efficient (O(1) additional space)"
            ),
        ),
        statement="RoPE needs O(1) additional space.",
        check=rope_space,
    ),
)
