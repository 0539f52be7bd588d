"""The questions that the notes ask their readers, answered in one line by what was measured.

An answer is a sentence of ours in which `{id}` stands for what decided that claim in this run, so
its numbers are those of the ledger, and it stays silent where the ledger does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter

from ropelab.claims.record import Evidence, Passage


@dataclass(frozen=True)
class Question:
    """A question as it is asked, and an answer that claims fill in.

    Attributes:
        asked: where it stands, and its words.
        answer: a sentence with claims in braces.
    """

    asked: Passage
    answer: str

    @property
    def claims(self) -> tuple[str, ...]:
        """The claims that the answer rests on."""
        return tuple(name for _, name, _, _ in Formatter().parse(self.answer) if name)

    def answered(self, found: Mapping[str, Evidence]) -> str:
        """The answer, with what decided each claim in this run."""
        return self.answer.format_map({id_: found[id_].deciding.measured for id_ in self.claims})


QUESTIONS = (
    Question(
        Passage(
            "001",
            "§5.1",
            286,
            "如果旋转360度会回到原点,那位置0和位置360不就无法区分了吗?",
            "if 360 degrees lead back to the start, can positions 0 and 360 not be told apart?",
        ),
        "With one frequency of one degree per token they cannot (codes {turn-comes-back}); the "
        "slowest of MiniMind's 32 frequencies alone needs {many-unique} to come back.",
    ),
    Question(
        Passage(
            "001",
            "§7.1",
            442,
            "模型训练时最大长度是 2048,但推理时想处理 8192 个 token 怎么办?",
            "the model was trained at 2048; what if it is to read 8192 tokens?",
        ),
        "As it is, slow pairs meet angles that they never saw ({unseen-angles}). YaRN slows them "
        "until they meet none and multiplies every logit by {yarn-seen-angles}; the other methods, "
        "and what each is worth, are in `ropelab extrapolate --train-len 2048 --test-len 8192`.",
    ),
    Question(
        Passage(
            "001",
            "§8.3",
            478,
            "为什么 Attention 是排列不变的?",
            "why is attention invariant to permutations?",
        ),
        "Its scores are products of pairs of tokens, so another order only rearranges rows and "
        "columns; strictly it is equivariant, the output of a sentence read backwards is "
        "{same-output} row by row, and under a causal mask even that ends ({order-blind}).",
    ),
    Question(
        Passage(
            "001",
            "§8.3",
            479,
            "RoPE 如何同时包含绝对和相对位置?",
            "how does RoPE contain absolute and relative positions at once?",
        ),
        "Scores keep the distance only (moving both positions changes them by {relative-only}); "
        "a whole text that is moved leaves what attention puts out as it was ({absolute-too}), so "
        "absolute positions come from the causal mask and the start of the text.",
    ),
    Question(
        Passage(
            "001",
            "§8.3",
            480,
            "为什么不能只用一个超低频率?(核心)",
            "why not a single very low frequency? (the core)",
        ),
        "Not because float32 could not tell neighbours apart (lost with sin and cos: "
        "{one-frequency-neighbours}). What is small is the signal: one token on, cos changes by "
        "{script-cos-step}, and `ropelab precision --period 1e6` says by how much a score does. "
        "What models learn with it, by `ropelab frequencies`: {one-frequency-learned}.",
    ),
    Question(
        Passage("001", "§8.3", 481, "YaRN 如何实现长度外推?", "how does YaRN extrapolate?"),
        "It slows the slow pairs until none meets an angle that training did not show, keeps the "
        "fast ones and multiplies every logit by {yarn-seen-angles}.",
    ),
    Question(
        Passage(
            "003",
            "exam question 1",
            624,
            "位置编码与词向量的加法/拼接方式有区别吗?",
            "is there a difference between adding the code and concatenating it?",
        ),
        "Only one of size: a layer on the longer vector puts out what it would on the sum of the "
        "embedding and a projected code ({concatenation-wider}); a plain sum ties the two "
        "projections to each other.",
    ),
    Question(
        Passage(
            "003",
            "exam question 2",
            630,
            "序列长度非常大时怎么办?",
            "what if sequences are very long?",
        ),
        "Sinusoids stay distinct but their float32 angles drift ({sinusoid-unstable}); a learned "
        "table has {learned-stops} beyond its end; float32 RoPE is off by {float32-enough}.",
    ),
    Question(
        Passage(
            "003",
            "exam question 3",
            638,
            "为什么正弦和余弦有助于插值和外推?",
            "why do sine and cosine help interpolation and extrapolation?",
        ),
        "One rotation takes the code of any position to that of a later one ({sinusoid-shift}), "
        "but the code is not periodic in its slowest wave ({sinusoid-periodic}).",
    ),
    Question(
        Passage(
            "003",
            "exam question 4",
            642,
            "多头注意力下,每个头的位置信息是如何处理的?",
            "how is position information handled in each of several heads?",
        ),
        "Inside the heads by most methods of the page: {heads-unaffected}.",
    ),
)
