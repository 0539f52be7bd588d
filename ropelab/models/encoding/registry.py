"""Every encoding by name, without importing torch.

To add one: a subclass of `Encoding`, a record here, and its formula in test_encoding_formulas.py.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ropelab.runs.errors import unknown_name

if TYPE_CHECKING:
    from ropelab.models.encoding.base import Encoding

# Keeps an encoding's draws apart from those of a model with the same seed (32 bits count).
RANDOM_STREAM = 2**31

# Places where positions enter, by the file of a class.
FAMILIES = {
    "base": "embeddings",
    "absolute": "embeddings",
    "relative": "scores",
    "biases": "bias",
    "rope": "rotation",
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The model around an encoding, in features and tokens."""

    layers: int
    width: int
    heads: int
    head_dim: int
    trained_len: int  # the longest window seen in training


@dataclass(frozen=True, kw_only=True)
class Record:
    """An encoding before it is measured."""

    label: str  # in figures
    source: str  # paper, section or equation
    # Module and class (or class method) in ropelab.models.encoding; those of its parameters that
    # are fields of `Shape` are taken from there, the others from `options`.
    make: str
    options: Mapping[str, Any] = field(default_factory=dict)
    per_layer: bool = False  # every layer gets one of its own
    parameters: str = "0"  # that it adds to the model, as a formula in the fields of `Shape`
    claim: str = "none"  # of its paper about positions beyond the trained ones

    @property
    def family(self) -> str:
        return FAMILIES[self.make.partition(".")[0]]

    @property
    def least_head_dim(self) -> int:
        """The narrowest head whose rotated share has a pair of features."""
        return int(2 / self.options.get("share", 1.0))


# Compared by default.
STANDARD: dict[str, Record] = {
    "nope": Record(
        label="none (NoPE)",
        source="Kazemnejad et al. 2023, arXiv:2305.19466",
        make="base.Encoding",
        claim="order is learned from the causal mask; generalises to longer inputs than RoPE",
    ),
    "sinusoidal": Record(
        label="sinusoidal",
        source="Vaswani et al. 2017, arXiv:1706.03762, section 3.5",
        make="absolute.Sinusoidal",
        claim="may allow the model to extrapolate to longer sequences",
    ),
    "learned": Record(
        label="learned",
        source="Gehring et al. 2017, arXiv:1705.03122, section 3.1",
        make="absolute.Learned",
        parameters="trained_len * width",
        claim="none: no vector exists beyond the table",
    ),
    "shaw": Record(
        label="Shaw",
        source="Shaw et al. 2018, arXiv:1803.02155, equations 3 and 4, k = 16",
        make="relative.Shaw",
        per_layer=True,
        parameters="layers * 2 * (16 + 1) * head_dim",
        claim="clipping enables the model to generalise to unseen lengths",
    ),
    "t5": Record(
        label="T5 bias",
        source="Raffel et al. 2019, arXiv:1910.10683, section 2.1",
        make="biases.T5",
        parameters="32 * heads",
        claim="none: far distances share the last bucket",
    ),
    "transformer_xl": Record(
        label="Transformer-XL",
        source="Dai et al. 2019, arXiv:1901.02860, section 3.3",
        make="relative.TransformerXL",
        per_layer=True,
        parameters="layers * (width * heads * head_dim + 2 * heads * head_dim)",
        claim="generalises to longer attention lengths than trained on",
    ),
    "deberta": Record(
        label="DeBERTa",
        source="He et al. 2020, arXiv:2006.03654, equation 4, causal",
        make="relative.Deberta",
        parameters="trained_len * width + layers * 2 * width * heads * head_dim",
        claim="distances from the table's end on look the same",
    ),
    "alibi": Record(
        label="ALiBi",
        source="Press et al. 2021, arXiv:2108.12409",
        make="biases.Alibi",
        claim="trained short, it tests long at no loss",
    ),
    "kerple_log": Record(
        label="Kerple (log)",
        source="Chi et al. 2022, arXiv:2205.09921",
        make="biases.KerpleLog",
        parameters="2 * heads",
        claim="extrapolates better than ALiBi",
    ),
    "kerple_power": Record(
        label="Kerple (power)",
        source="Chi et al. 2022, arXiv:2205.09921",
        make="biases.KerplePower",
        parameters="2 * heads",
        claim="extrapolates",
    ),
    "fire": Record(
        label="FIRE",
        source="Li et al. 2023, arXiv:2310.04418",
        make="biases.Fire",
        per_layer=True,
        parameters="layers * (2 + 2 * 32 + 32 * heads + heads)",
        claim="generalises to longer contexts by interpolating distances",
    ),
    "rope": Record(
        label="RoPE",
        source="Su et al. 2021, arXiv:2104.09864, eq. 34; halves paired",
        make="rope.Rope.unscaled",
        claim="flexible in sequence length",
    ),
    "rope_interleaved": Record(
        label="RoPE, interleaved",
        source="Su et al. 2021, arXiv:2104.09864, eq. 34; neighbours paired",
        make="rope.Rope.unscaled",
        options={"pairing": "interleaved"},
        claim="flexible in sequence length",
    ),
    "rope_partial": Record(
        label="RoPE, a quarter",
        source="Black et al. 2022, arXiv:2204.06745: a quarter of each head is rotated",
        make="rope.Rope.unscaled",
        options={"share": 0.25},
        claim="none; as good as rotating all",
    ),
}

# Compared only where they are named.
FURTHER: dict[str, Record] = {
    "xpos": Record(
        label="xPos",
        source="Sun et al. 2022, arXiv:2212.10554, without its blockwise attention",
        make="rope.XPos.unscaled",
        claim="extrapolates better than RoPE, as scores decay with the distance",
    ),
    "mla": Record(
        label="RoPE, separate key",
        source="DeepSeek-AI 2024, arXiv:2405.04434, section 2.1.3; half of each head rotates",
        make="rope.Decoupled",
        options={"share": 0.5},
        claim="none; allows a compressed cache",
    ),
    "rope_values": Record(
        label="RoPE, values too",
        source="RoPE with values rotated like keys, which Su et al. 2021 leave alone",
        make="rope.RopeValues.unscaled",
        claim="none: absolute positions reach the output",
    ),
    "rope_values_back": Record(
        label="RoPE, values there and back",
        source="values rotated like keys, outputs rotated back by the query's position",
        make="rope.RopeValues.unscaled",
        options={"back": True},
        claim="none: distances reach the output",
    ),
    "tupe": Record(
        label="TUPE",
        source="Ke et al. 2020, arXiv:2006.15595, TUPE-R",
        make="biases.Tupe",
        parameters="trained_len * width + 2 * width * heads * head_dim + 32 * heads",
        claim="none: no vector exists beyond the table",
    ),
    "multiplied": Record(
        label="sinusoidal, multiplied",
        source="the encoding of Vaswani et al. 2017 as a factor; compare Wang et al. 2019, "
        "arXiv:1912.12333, with complex factors",
        make="absolute.Multiplied",
    ),
    "concatenated": Record(
        label="sinusoidal, beside",
        source="the encoding of Vaswani et al. 2017 beside the embedding, and a layer behind both",
        make="absolute.Concatenated",
        parameters="2 * width * width",
    ),
    "polynomial": Record(
        label="polynomial",
        source="a function of the distance that tutorials list: 1, r, r^2, r^3",
        make="biases.Polynomial",
        parameters="4 * heads",
        claim="none: it grows without bound",
    ),
    "sines": Record(
        label="sines and cosines",
        source="a function of the distance that tutorials list, with sinusoidal frequencies",
        make="biases.Sines",
        parameters="heads * head_dim",
    ),
    "exponential": Record(
        label="exponential",
        source="a function of the distance that tutorials list",
        make="biases.Exponential",
        parameters="2 * heads",
        claim="none: far distances look the same",
    ),
    "gaussian": Record(
        label="Gaussian",
        source="a function of the distance that tutorials list",
        make="biases.Gaussian",
        parameters="3 * heads",
        claim="none: far distances look the same",
    ),
    "learned_distance": Record(
        label="learned, by distance",
        source="a number per distance without clipping, as in windows of Liu et al. 2021, "
        "arXiv:2103.14030",
        make="biases.LearnedDistance",
        parameters="trained_len * heads",
        claim="none: no number exists beyond the table",
    ),
    "convolution": Record(
        label="convolution",
        source="a kernel of 16 distances, as tutorials list it",
        make="biases.Convolution",
        parameters="16 * heads",
        claim="none: blind beyond the kernel",
    ),
}

ENCODINGS = STANDARD | FURTHER


def make_encoding(name: str, shape: Shape, seed: int = 0) -> "Encoding":
    """Return an encoding by name with parameters drawn from `seed` only; InputError if unknown."""
    import torch

    from ropelab.models.encoding.base import PerLayer

    if name not in ENCODINGS:
        raise unknown_name("encoding", name, ENCODINGS)
    record = ENCODINGS[name]
    module, _, attribute = record.make.partition(".")
    make = attrgetter(attribute)(import_module(f"ropelab.models.encoding.{module}"))
    wanted = inspect.signature(make).parameters
    arguments = {size: value for size, value in vars(shape).items() if size in wanted}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(RANDOM_STREAM + seed)
        if record.per_layer:
            return PerLayer(make(**arguments, **record.options) for _ in range(shape.layers))
        return make(**arguments, **record.options)
