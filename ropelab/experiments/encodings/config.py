"""Would another position encoding extrapolate better, and what does each one cost?

The same small model is trained once per encoding on real text and once on copying, at `train_len`,
and measured up to `test_len` without training on. Beside quality stand the facts that tables of
encodings usually put into adjectives: parameters, work, memory, caches, sense of order.

What it cannot show: how large models rank. A small model trained for minutes learns some encodings
faster than others, and what an encoding reaches after a long training may differ; nor does a small
model use a long context of text for much. Every encoding runs as its paper states it, trained by
one recipe and without the tricks that later made some of them reach farther.
"""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ropelab.config import AsList, Config, Count, Device, Dtype, EvenCount, Names, Naturals

if TYPE_CHECKING:
    from ropelab.encoding.shape import Shape
    from ropelab.lm.corpus import Corpus

QUESTION = "Would another position encoding extrapolate better, and what does each cost?"
CANNOT_SHOW = (
    "How large models rank: a small model trained for minutes learns some encodings faster than "
    "others, and hardly uses a long context of text."
)
VERSION = 2
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
SHORTEST = 64


class EncodingsConfig(Config):
    """What is trained, with which encodings, and how far it is tried."""

    train_len: Count = Field(512, description="length the models are trained at, in tokens")
    test_len: Count = Field(2048, description="length they are measured at, in tokens")
    encodings: Names = Field(ENCODINGS, description="position encodings to compare")
    tasks: Annotated[tuple[Literal["text", "copy"], ...], AsList] = Field(
        ("text", "copy"), description="what is trained and measured"
    )
    layers: Count = Field(2, description="layers of the model")
    width: EvenCount = Field(128, description="width of the model")
    heads: Count = Field(4, description="heads of a layer")
    head_dim: EvenCount = Field(32, description="width of one head")
    text_steps: Count = Field(600, description="training steps on text")
    copy_steps: Count = Field(600, description="training steps on copying")
    tokens_per_step: Count = Field(4096, description="tokens in one training step")
    first_window: Count = Field(
        16, description="tokens in a window when training begins; doubled up to train_len"
    )
    seeds: Naturals = Field((0,), description="training seeds; each is a model of its own")
    documents: Count = Field(50, description="held-out documents the text is measured on")
    sequences: Count = Field(8, description="copy sequences per distance")
    corpus: str = Field(
        "", description="text file or folder to use; empty: the standard library of this Python"
    )
    device: Device = Field("auto", description="where tensors are computed")
    dtype: Dtype = Field(
        "auto",
        description="number format of training and evaluation; auto: bfloat16 where the "
        "processor has matrix units for it, else float32",
    )

    @field_validator("encodings")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        from ropelab.errors import unknown_name

        if not names:
            raise ValueError(f"must name at least one of {', '.join(ENCODINGS)}")
        for name in names:
            if name not in ENCODINGS:
                raise unknown_name("encoding", name, ENCODINGS)
        return tuple(dict.fromkeys(names))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.train_len < SHORTEST:
            raise ValueError(f"train_len must be at least {SHORTEST}, got {self.train_len}")
        if self.test_len < self.train_len:
            raise ValueError(
                f"test_len must be at least train_len ({self.train_len}), got {self.test_len}"
            )
        if "rope_partial" in self.encodings and self.head_dim < 8:
            raise ValueError(
                f"head_dim must be at least 8 for rope_partial, which turns a quarter of it, "
                f"got {self.head_dim}"
            )
        if not self.tasks:
            raise ValueError("tasks must name at least one of text, copy")
        return self

    def inputs(self) -> dict[str, str]:
        """The fingerprint of the corpus, if text is measured; raises InputError if it is no use."""
        return {"corpus": self.read_corpus().fingerprint} if "text" in self.tasks else {}

    def read_corpus(self) -> "Corpus":
        """The corpus, known to be long enough for these lengths and this number of documents."""
        from pathlib import Path

        from ropelab.lm.corpus import read_corpus

        corpus = read_corpus(Path(self.corpus) if self.corpus else None, self.test_len + 1)
        corpus.check(self.train_len + 1, self.test_len + 1, self.documents)
        return corpus

    def shape(self) -> "Shape":
        """What the encodings must know of the model."""
        from ropelab.encoding.shape import Shape

        return Shape(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            head_dim=self.head_dim,
            trained_len=self.train_len,
        )


CONFIG = EncodingsConfig
