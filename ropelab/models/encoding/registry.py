"""Every encoding by name, with what its table row says: source, parameters, what it promises.

To add one: a class behind the hooks of `Encoding` in a file of its own, a record here, and a row in
the table of tests/encoding/test_encoding_formulas.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from ropelab.errors import unknown_name
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.alibi import Alibi
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.deberta import Deberta
from ropelab.models.encoding.decoupled import Decoupled
from ropelab.models.encoding.designed import (
    Convolution,
    Exponential,
    Gaussian,
    LearnedDistance,
    Polynomial,
    Sines,
)
from ropelab.models.encoding.fire import Fire
from ropelab.models.encoding.joined import Concatenated, Multiplied
from ropelab.models.encoding.kerple import KerpleLog, KerplePower
from ropelab.models.encoding.learned import Learned
from ropelab.models.encoding.rope import Rope
from ropelab.models.encoding.shape import Shape
from ropelab.models.encoding.shaw import Shaw
from ropelab.models.encoding.sinusoidal import Sinusoidal
from ropelab.models.encoding.t5 import T5Bias
from ropelab.models.encoding.transformer_xl import TransformerXL
from ropelab.models.encoding.tupe import Tupe
from ropelab.models.encoding.values import RopeValues
from ropelab.models.encoding.xpos import XPos

ROPE_BASE = 10000.0
RANDOM_STREAM = 2**31
"""Keeps an encoding's draws apart from those of a model with the same seed (32 bits count)."""


Family = Literal["embeddings", "scores", "bias", "rotation"]
"""Where positions enter: added to embeddings (or nowhere), as vectors in the scores, as numbers
added to the scores, or by turning queries and keys."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is known of an encoding before it is measured.

    Attributes:
        label: how figures call it.
        family: where positions enter.
        source: paper, and section or equation where it helps.
        parameters: how many it adds to the model, as a formula in the fields of `Shape`.
        claim: what its paper says about positions beyond the trained ones.
        make: from the shape of a model to the encoding, with freshly drawn parameters.
    """

    label: str
    family: Family
    source: str
    parameters: str
    claim: str
    make: Callable[[Shape], Encoding]


def plan_of(shape: Shape, share: float = 1.0) -> RopePlan:
    """Unscaled frequencies for the first `share` of every head."""
    return RopePlan(inverse_frequencies(2 * int(share * shape.head_dim / 2), ROPE_BASE), 1.0)


def rope(shape: Shape, pairing: Pairing = "half", share: float = 1.0) -> Rope:
    """Unscaled RoPE on the first `share` of every head."""
    return Rope(plan_of(shape, share), pairing)


ENCODINGS: dict[str, Record] = {
    "nope": Record(
        label="none (NoPE)",
        family="embeddings",
        source="Kazemnejad et al. 2023, arXiv:2305.19466",
        parameters="0",
        claim="order is learned from the causal mask; generalises to longer inputs than RoPE",
        make=lambda shape: Encoding(),
    ),
    "sinusoidal": Record(
        label="sinusoidal",
        family="embeddings",
        source="Vaswani et al. 2017, arXiv:1706.03762, section 3.5",
        parameters="0",
        claim="may allow the model to extrapolate to longer sequences",
        make=lambda shape: Sinusoidal(),
    ),
    "learned": Record(
        label="learned",
        family="embeddings",
        source="Gehring et al. 2017, arXiv:1705.03122, section 3.1",
        parameters="trained_len * width",
        claim="none: no vector exists beyond the table",
        make=lambda shape: Learned(shape.trained_len, shape.width),
    ),
    "shaw": Record(
        label="Shaw",
        family="scores",
        source="Shaw et al. 2018, arXiv:1803.02155, equations 3 and 4, k = 16",
        parameters="layers * 2 * (16 + 1) * head_dim",
        claim="clipping enables the model to generalise to unseen lengths",
        make=lambda shape: Shaw(shape.layers, shape.head_dim),
    ),
    "t5": Record(
        label="T5 bias",
        family="bias",
        source="Raffel et al. 2019, arXiv:1910.10683, section 2.1",
        parameters="32 * heads",
        claim="none: far distances share the last bucket",
        make=lambda shape: T5Bias(shape.heads, shape.width),
    ),
    "transformer_xl": Record(
        label="Transformer-XL",
        family="scores",
        source="Dai et al. 2019, arXiv:1901.02860, section 3.3",
        parameters="layers * (width * heads * head_dim + 2 * heads * head_dim)",
        claim="generalises to longer attention lengths than trained on",
        make=lambda shape: TransformerXL(shape.layers, shape.width, shape.heads, shape.head_dim),
    ),
    "deberta": Record(
        label="DeBERTa",
        family="scores",
        source="He et al. 2020, arXiv:2006.03654, equation 4, causal",
        parameters="trained_len * width + layers * 2 * width * heads * head_dim",
        claim="distances from the table's end on look the same",
        make=lambda shape: Deberta(
            shape.layers, shape.width, shape.heads, shape.head_dim, shape.trained_len
        ),
    ),
    "alibi": Record(
        label="ALiBi",
        family="bias",
        source="Press et al. 2021, arXiv:2108.12409",
        parameters="0",
        claim="trained short, it tests long at no loss",
        make=lambda shape: Alibi(shape.heads),
    ),
    "kerple_log": Record(
        label="Kerple (log)",
        family="bias",
        source="Chi et al. 2022, arXiv:2205.09921",
        parameters="2 * heads",
        claim="extrapolates better than ALiBi",
        make=lambda shape: KerpleLog(shape.heads),
    ),
    "kerple_power": Record(
        label="Kerple (power)",
        family="bias",
        source="Chi et al. 2022, arXiv:2205.09921",
        parameters="2 * heads",
        claim="extrapolates",
        make=lambda shape: KerplePower(shape.heads),
    ),
    "fire": Record(
        label="FIRE",
        family="bias",
        source="Li et al. 2023, arXiv:2310.04418",
        parameters="layers * (2 + 2 * 32 + 32 * heads + heads)",
        claim="generalises to longer contexts by interpolating distances",
        make=lambda shape: Fire(shape.layers, shape.heads, max(1, shape.trained_len // 4)),
    ),
    "rope": Record(
        label="RoPE",
        family="rotation",
        source="Su et al. 2021, arXiv:2104.09864, eq. 34; halves paired",
        parameters="0",
        claim="flexible in sequence length",
        make=rope,
    ),
    "rope_interleaved": Record(
        label="RoPE, interleaved",
        family="rotation",
        source="Su et al. 2021, arXiv:2104.09864, eq. 34; neighbours paired",
        parameters="0",
        claim="flexible in sequence length",
        make=lambda shape: rope(shape, pairing="interleaved"),
    ),
    "rope_partial": Record(
        label="RoPE, a quarter",
        family="rotation",
        source="Black et al. 2022, arXiv:2204.06745: a quarter of each head is turned",
        parameters="0",
        claim="none; as good as turning all",
        make=lambda shape: rope(shape, share=0.25),
    ),
    "xpos": Record(
        label="xPos",
        family="rotation",
        source="Sun et al. 2022, arXiv:2212.10554, without its blockwise attention",
        parameters="0",
        claim="extrapolates better than RoPE, as scores decay with the distance",
        make=lambda shape: XPos(plan_of(shape)),
    ),
    "mla": Record(
        label="RoPE, separate key",
        family="rotation",
        source="DeepSeek-AI 2024, arXiv:2405.04434, section 2.1.3; half of each head turns",
        parameters="0",
        claim="none; allows a compressed cache",
        make=lambda shape: Decoupled(Rope(plan_of(shape, 0.5), "interleaved")),
    ),
    "rope_values": Record(
        label="RoPE, values too",
        family="rotation",
        source="RoPE with values turned like keys, which Su et al. 2021 leave alone",
        parameters="0",
        claim="none: absolute positions reach the output",
        make=lambda shape: RopeValues(plan_of(shape)),
    ),
    "rope_values_back": Record(
        label="RoPE, values there and back",
        family="rotation",
        source="values turned like keys, outputs turned back by the query's position",
        parameters="0",
        claim="none: distances reach the output",
        make=lambda shape: RopeValues(plan_of(shape), back=True),
    ),
    "tupe": Record(
        label="TUPE",
        family="bias",
        source="Ke et al. 2020, arXiv:2006.15595, TUPE-R",
        parameters="trained_len * width + 2 * width * heads * head_dim + 32 * heads",
        claim="none: no vector exists beyond the table",
        make=lambda shape: Tupe(shape.trained_len, shape.width, shape.heads, shape.head_dim),
    ),
    "multiplied": Record(
        label="sinusoidal, multiplied",
        family="embeddings",
        source="the code of Vaswani et al. 2017 as a factor; compare Wang et al. 2019, "
        "arXiv:1912.12333, with complex factors",
        parameters="0",
        claim="none",
        make=lambda shape: Multiplied(),
    ),
    "concatenated": Record(
        label="sinusoidal, beside",
        family="embeddings",
        source="the code of Vaswani et al. 2017 beside the embedding, and a layer behind both",
        parameters="2 * width * width",
        claim="none",
        make=lambda shape: Concatenated(shape.width),
    ),
    "polynomial": Record(
        label="polynomial",
        family="bias",
        source="a function of the distance that tutorials list: 1, r, r^2, r^3",
        parameters="4 * heads",
        claim="none: it grows without bound",
        make=lambda shape: Polynomial(shape.heads, shape.trained_len),
    ),
    "sines": Record(
        label="sines and cosines",
        family="bias",
        source="a function of the distance that tutorials list, with the code's frequencies",
        parameters="heads * head_dim",
        claim="none",
        make=lambda shape: Sines(shape.heads, shape.head_dim),
    ),
    "exponential": Record(
        label="exponential",
        family="bias",
        source="a function of the distance that tutorials list",
        parameters="2 * heads",
        claim="none: far distances look the same",
        make=lambda shape: Exponential(shape.heads, shape.trained_len),
    ),
    "gaussian": Record(
        label="Gaussian",
        family="bias",
        source="a function of the distance that tutorials list",
        parameters="3 * heads",
        claim="none: far distances look the same",
        make=lambda shape: Gaussian(shape.heads, shape.trained_len),
    ),
    "learned_distance": Record(
        label="learned, by distance",
        family="bias",
        source="a number per distance without clipping, as in windows of Liu et al. 2021, "
        "arXiv:2103.14030",
        parameters="trained_len * heads",
        claim="none: no number exists beyond the table",
        make=lambda shape: LearnedDistance(shape.heads, shape.trained_len),
    ),
    "convolution": Record(
        label="convolution",
        family="bias",
        source="a kernel of 16 distances, as tutorials list it",
        parameters="16 * heads",
        claim="none: blind beyond the kernel",
        make=lambda shape: Convolution(shape.heads),
    ),
}


def make_encoding(name: str, shape: Shape, seed: int = 0) -> Encoding:
    """The encoding of that name with parameters drawn from `seed`, and from nothing else.

    Raises:
        InputError: there is no such encoding; the message names the nearest.
    """
    if name not in ENCODINGS:
        raise unknown_name("encoding", name, ENCODINGS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(RANDOM_STREAM + seed)
        return ENCODINGS[name].make(shape)
