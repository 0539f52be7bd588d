"""Claims about who was first and who uses what, decided by dated publications."""

from functools import partial

from ropelab.claims.record import Claim, Evidence, Finding, Passage, limit, part
from ropelab.math.models import MODELS

ROPE = "2104.09864"


def month(arxiv: str) -> str:
    """Year and month in which an arXiv number begins.

    >>> month("2104.09864")
    '2021-04'
    """
    return f"20{arxiv[:2]}-{arxiv[2:4]}"


def could_use(*, name: str, user: str, used: str = ROPE) -> Evidence:
    """A model described before a method was published does not use it; no `user`: unpublished."""
    if not user:
        finding = part(f"{name}'s architecture", "not published", None)
    else:
        text = f"{month(user)} (arXiv:{user}), RoPE in {month(used)}"
        finding = part(f"{name}'s paper appeared in", text, float(user) >= float(used))
    return Evidence(expected="a published architecture, not older than RoPE", findings=(finding,))


def is_configured(*, models: tuple[str, ...] = ("llama-2-7b", "mistral-7b-v0.1")) -> Evidence:
    """Look for a rotary base in the models' published configurations."""
    found = {name: MODELS.get(name) for name in models}
    shown = "; ".join(
        f"{name}: base {model.base:g}, {model.rotated} of {model.head_dim} features"
        for name, model in found.items()
        if model
    )
    return Evidence(
        expected="a rotary base for each",
        findings=(
            part(
                "what the configurations say",
                shown or "nothing",
                all(found.values()) or None,
            ),
        ),
    )


Named = tuple[str, str]
"""Who, and the arXiv number."""


def generations(
    *,
    said: tuple[tuple[str, int, Named], ...] = (
        ("absolute codes", 2018, ("sinusoids, Vaswani et al.", "1706.03762")),
        ("relative encodings", 2019, ("Shaw et al.", "1803.02155")),
        ("RoPE", 2021, ("Su et al.", ROPE)),
    ),
) -> Evidence:
    """The year given for each kind against the first paper on it."""
    return Evidence(
        expected=", ".join(f"{what} {year}" for what, year, _ in said),
        findings=tuple(_dated(what, year, *first) for what, year, first in said),
    )


def _dated(what: str, year: int, name: str, arxiv: str) -> Finding:
    found = int(month(arxiv)[:4])
    return part(f"{what}, said to begin in {year}", f"{name}, {month(arxiv)}", found == year, found)


def is_earliest(
    *,
    paper: Named = ("Shaw et al.", "1803.02155"),
    others: tuple[Named, ...] = (
        ("Transformer-XL", "1901.02860"),
        ("T5", "1910.10683"),
        ("DeBERTa", "2006.03654"),
        ("RoPE", ROPE),
    ),
    outside: Named = (
        "biases by distance in attention without a Transformer, Parikh et al.",
        "1606.01933",
    ),
) -> Evidence:
    """Is the paper older than the others on relative positions, and than those on attention?"""
    earliest = all(float(paper[1]) < float(number) for _, number in others)
    shown = ", ".join(f"{name} {month(number)}" for name, number in others)
    return Evidence(
        expected="older than all others",
        findings=(
            part(f"{paper[0]} {month(paper[1])}, the others", shown, earliest),
            limit(outside[0], month(outside[1]), float(paper[1]) < float(outside[1])),
        ),
    )


def year_of(*, name: str, arxiv: str, said: int) -> Evidence:
    """The year that a citation gives against that of the preprint."""
    found = int(month(arxiv)[:4])
    return Evidence(
        expected=str(said),
        findings=(part(f"{name}, arXiv:{arxiv}", month(arxiv), found == said, found),),
    )


CLAIMS = (
    Claim(
        id="three-generations",
        passages=(
            Passage(
                "001",
                "§3",
                122,
                "第一代:绝对位置编码(BERT, 2018)",
                "first generation: absolute position encoding (BERT, 2018)",
            ),
            Passage(
                "001",
                "§3",
                157,
                "第二代:相对位置编码(T5, 2019)",
                "second generation: relative position encoding (T5, 2019)",
            ),
        ),
        statement="Absolute encodings began in 2018, relative ones in 2019, RoPE in 2021.",
        check=generations,
    ),
    Claim(
        id="shaw-earliest",
        passages=(
            Passage(
                "003",
                "methods, relative",
                432,
                "最早出现在Self-Attention with Relative Position Representations这篇论文里",
                "first appeared in the paper Self-Attention with Relative Position Representations",
            ),
        ),
        statement="Relative encodings appeared first in the paper of Shaw et al.",
        check=is_earliest,
    ),
    Claim(
        id="deberta-year",
        passages=(Passage("002", "§2", 45, "He et al.[2022]"),),
        statement="That the two middle terms suffice was proposed by He et al. in 2022.",
        check=partial(year_of, name="DeBERTa, He et al.", arxiv="2006.03654", said=2022),
    ),
    Claim(
        id="llama-rope",
        passages=(
            Passage(
                "003",
                "RoPE",
                476,
                "在一些开源的大模型(如Llama)以及多模态大模型中",
                "in open models (such as Llama) and in multimodal ones",
            ),
            Passage(
                "001",
                "§3.3",
                200,
                "现代 LLM 的标配(GPT-3, Llama, Mistral, MiniMind)",
                "standard in modern LLMs (GPT-3, Llama, Mistral, MiniMind)",
            ),
        ),
        statement="Llama, Mistral, MiniMind and multimodal models use RoPE.",
        check=partial(
            is_configured, models=("llama-2-7b", "mistral-7b-v0.1", "minimind", "qwen2-vl-7b")
        ),
        command="ropelab freqs --model minimind",
    ),
    Claim(
        id="gpt-3-rope",
        passages=(
            Passage(
                "001",
                "§3.3",
                200,
                "现代 LLM 的标配(GPT-3, Llama, Mistral, MiniMind)",
                "standard in modern LLMs (GPT-3, Llama, Mistral, MiniMind)",
            ),
        ),
        statement="GPT-3 uses RoPE.",
        check=partial(could_use, name="GPT-3", user="2005.14165"),
    ),
    Claim(
        id="gpt-4-rope",
        passages=(
            Passage(
                "000",
                "§1",
                3,
                "被广泛应用于GPT-3.5/4、LLaMA等大模型",
                "widely used in large models such as GPT-3.5/4 and LLaMA",
            ),
        ),
        statement="GPT-3.5 and GPT-4 use RoPE.",
        check=partial(could_use, name="GPT-4", user=""),
    ),
)
