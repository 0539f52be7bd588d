"""Who said it: title, author or site, year and link, by a short key.

The five notes are tutorials in Chinese, kept under the numbers 000 to 004 in the order in which
they were collected. Where a page does not say who wrote it, when, or where it stands, neither do
we. Lines are those of the page's text.
"""

from dataclasses import dataclass

from ropelab.claims.record import Passage
from ropelab.errors import unknown_name


@dataclass(frozen=True)
class Source:
    """One publication.

    Attributes:
        title: as it is printed there.
        author: its authors, or the site that it stands on; empty if unknown.
        year: of publication; None if unknown.
        link: where to read it; empty if unknown.
    """

    title: str
    author: str = ""
    year: int | None = None
    link: str = ""

    @property
    def label(self) -> str:
        """Author and year as they are cited; the title where there is neither."""
        said = " ".join(str(x) for x in (self.author, self.year) if x)
        return said or f"“{self.title}”"


def _arxiv(number: str, title: str, author: str) -> Source:
    return Source(title, author, 2000 + int(number[:2]), f"https://arxiv.org/abs/{number}")


def _github(path: str, title: str, author: str, year: int | None) -> Source:
    return Source(title, author, year, f"https://github.com/{path}")


_SCRIPTS = "joyehuang/minimind-notes"

SOURCES: dict[str, Source] = {
    "000": Source("ROPE位置编码:从理论到LLaMA的实践"),
    "001": Source(
        "RoPE位置编码:从排列不变性到多频率机制",
        "Joye",
        2025,
        "https://astro-pure.js.org/blog/20251217---rope-position-encoding/post",
    ),
    "002": Source("旋转位置编码"),
    "003": Source("Positional Embedding"),
    "004": Source("ROPE(旋转位置编码)简述"),
    "rope_basics": _github(_SCRIPTS, "rope_basics.py", "Joye", 2025),
    "rope_multi_frequency": _github(_SCRIPTS, "rope_multi_frequency.py", "Joye", 2025),
    "rope_why_multi_frequency": _github(_SCRIPTS, "rope_why_multi_frequency.py", "Joye", 2025),
    "rope_explained": _github(_SCRIPTS, "rope_explained.py", "Joye", 2025),
    "minimind-knowledge": _github(_SCRIPTS, "MiniMind knowledge base", "Joye", 2025),
    "minimind": _github("jingyaogong/minimind", "MiniMind, model_minimind.py", "MiniMind", 2025),
    "roformer": _arxiv(
        "2104.09864",
        "RoFormer: Enhanced Transformer with Rotary Position Embedding",
        "Su et al.",
    ),
    "pi": _arxiv(
        "2306.15595",
        "Extending Context Window of Large Language Models via Positional Interpolation",
        "Chen et al.",
    ),
    "yarn": _arxiv(
        "2309.00071",
        "YaRN: Efficient Context Window Extension of Large Language Models",
        "Peng et al.",
    ),
    "yarn-code": _github("jquesnelle/yarn", "YaRN", "Peng et al.", 2023),
    "yarn-19": _github("jquesnelle/yarn/issues/19", "Issue 19 of YaRN", "jquesnelle/yarn", None),
    "code-llama": _arxiv(
        "2308.12950", "Code Llama: Open Foundation Models for Code", "Rozière et al."
    ),
    "men": _arxiv("2405.14591", "Base of RoPE Bounds Context Length", "Men et al."),
    "su-10122": Source(
        "Transformer升级之路:18、RoPE的底数选择原则", "Su", 2024, "https://kexue.fm/archives/10122"
    ),
    "su-9675": Source(
        "Transformer升级之路:10、RoPE是一种β进制编码", "Su", 2023, "https://kexue.fm/archives/9675"
    ),
    "liu": _arxiv("2310.05209", "Scaling Laws of RoPE-based Extrapolation", "Liu et al."),
    "wang": _arxiv(
        "2411.13476",
        "When Precision Meets Position: BFloat16 Breaks Down RoPE in Long-Context Training",
        "Wang et al.",
    ),
    "alibi": _arxiv(
        "2108.12409",
        "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
        "Press et al.",
    ),
    "kazemnejad": _arxiv(
        "2305.19466",
        "The Impact of Positional Encoding on Length Generalization in Transformers",
        "Kazemnejad et al.",
    ),
    "deberta": _arxiv(
        "2006.03654",
        "DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
        "He et al.",
    ),
    "emozilla": Source(
        "Dynamically Scaled RoPE further increases performance of long context LLaMA with zero "
        "fine-tuning",
        "emozilla",
        2023,
        "https://www.reddit.com/r/LocalLLaMA/comments/14mrgpr",
    ),
    "qwen": _github("QwenLM/Qwen3/issues/1567", "Qwen model cards and issue 1567", "Qwen", None),
    "gpt-neox-1003": _github(
        "EleutherAI/gpt-neox/issues/1003",
        "RotaryEmbedding computation is wrong for certain position/feature pairs in reduced "
        "precision",
        "EleutherAI/gpt-neox",
        None,
    ),
    "candle-3520": _github(
        "huggingface/candle/pull/3520",
        "qwen2: build RoPE cos/sin tables in fp32",
        "huggingface/candle",
        None,
    ),
    "diffusers-13920": _github(
        "huggingface/diffusers/issues/13920",
        "Ideogram4MRoPE breaks under torch.autocast: all image positions collapse",
        "huggingface/diffusers",
        None,
    ),
    "modalities-462": _github(
        "Modalities/modalities/pull/462",
        "Fix rotary frequency precision",
        "Modalities/modalities",
        None,
    ),
    "tensorrt-llm-18774": _github(
        "NVIDIA/TensorRT-LLM/pull/18774",
        "Pin the float32 precision of the attention-plugin rotary table",
        "NVIDIA/TensorRT-LLM",
        None,
    ),
    "transformers-48428": _github(
        "huggingface/transformers/issues/48428",
        "RoPE corruption due to TF32",
        "huggingface/transformers",
        None,
    ),
    "mlx-lm-1076": _github(
        "ml-explore/mlx-lm/pull/1076",
        "Fix RoPE precision for long context (>262K)",
        "ml-explore/mlx-lm",
        None,
    ),
    "practice": Source(
        "Common practice", "rotary modules as they are written, such as Hugging Face's"
    ),
}


def source_named(key: str) -> Source:
    """The source of that key.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    if key not in SOURCES:
        raise unknown_name("source", key, SOURCES)
    return SOURCES[key]


def cited(passage: Passage) -> str:
    """Where something is said, as a reader finds it: author, year, place and line."""
    source = SOURCES[passage.source]
    line = f"line {passage.line}" if passage.line else ""
    return ", ".join(filter(None, (source.label, passage.place, line)))
