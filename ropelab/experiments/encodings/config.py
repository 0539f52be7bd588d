"""Would another position encoding extrapolate better, and what does each one cost?

The same small model learns once per encoding, at `train_len`, to read text in which passages are
quoted and keys are looked up, and is measured up to `test_len` without fine-tuning. Beside quality
stand the facts that tables of encodings usually put into adjectives: parameters, work, memory,
caches, sense of order.

What it cannot show: how large models rank. A small model trained for minutes learns some encodings
faster than others, and what an encoding reaches after a long training may differ. Every encoding
runs as its paper states it, trained by one recipe and without the tricks that later made some of
them reach farther.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ropelab.errors import unknown_name
from ropelab.models.tasks.config import (
    CorpusPath,
    Documents,
    FirstWindow,
    HeadDim,
    Heads,
    In,
    Layers,
    On,
    Seeds,
    ShapedConfig,
    Steps,
    TestLen,
    TokensPerStep,
    TrainLen,
    Width,
)
from ropelab.runs.config import AsList, Count, Names

QUESTION = "Would another position encoding extrapolate better, and what does each cost?"
CANNOT_SHOW = (
    "How large models rank: a small model trained for a minute learns some encodings faster than "
    "others."
)
VERSION = 4
ENCODINGS = (
    "nope",
    "sinusoidal",
    "learned",
    "shaw",
    "t5",
    "transformer_xl",
    "deberta",
    "alibi",
    "kerple_log",
    "kerple_power",
    "fire",
    "rope",
    "rope_interleaved",
    "rope_partial",
)
FURTHER = (
    "xpos",
    "mla",
    "rope_values",
    "rope_values_back",
    "tupe",
    "multiplied",
    "concatenated",
    "polynomial",
    "sines",
    "exponential",
    "gaussian",
    "learned_distance",
    "convolution",
)
"""Measured only where they are named."""
KNOWN = (*ENCODINGS, *FURTHER)
LEAST_HEAD = {"rope_partial": (8, "a quarter"), "mla": (4, "a half")}
"""Encodings that turn a share of each head, and the narrowest head that has a pair in it."""
SHORTEST = 64


class EncodingsConfig(ShapedConfig):
    """What is trained, with which encodings, and how far it is tried."""

    train_len: TrainLen = 512
    test_len: TestLen = 2048
    encodings: Names = Field(
        ENCODINGS,
        description=f"position encodings to compare; there are also {', '.join(FURTHER)}",
    )
    tasks: Annotated[tuple[Literal["text", "copy"], ...], AsList] = Field(
        ("text", "copy"), description="what is measured: text, copy (symbols among symbols)"
    )
    layers: Layers = 2
    width: Width = 128
    heads: Heads = 4
    head_dim: HeadDim = 32
    steps: Steps = 800
    tokens_per_step: TokensPerStep = 4096
    first_window: FirstWindow = 16
    seeds: Seeds = (0,)
    documents: Documents = 50
    sequences: Count = Field(8, description="copy sequences per distance")
    corpus: CorpusPath = ""
    device: On = "auto"
    dtype: In = "auto"

    @field_validator("encodings")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            raise ValueError(f"must name at least one of {', '.join(KNOWN)}")
        for name in names:
            if name not in KNOWN:
                raise unknown_name("encoding", name, KNOWN)
        return tuple(dict.fromkeys(names))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.check_lengths(SHORTEST)
        for name, (least, share) in LEAST_HEAD.items():
            if name in self.encodings and self.head_dim < least:
                raise ValueError(
                    f"head_dim must be at least {least} for {name}, which turns {share} of it, "
                    f"got {self.head_dim}"
                )
        if not self.tasks:
            raise ValueError("tasks must name at least one of text, copy")
        return self


CONFIG = EncodingsConfig
