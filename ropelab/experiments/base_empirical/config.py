"""Does the lower bound on the base predict where retrieval fails while perplexity stays low?

Men et al. 2024 (arXiv:2405.14591) hold that a model with too small a base has a superficial long
context: its text loss stays low, yet it cannot retrieve from positions where the sum of cosines is
negative. Here the same small model is trained at one length under several bases, on real text and
on copying (and looking up keys, if asked), and measured inside that length, so that no position is
new: what differs between the models is the base alone.

What it cannot show: what a large model does. Two layers trained for minutes choose few frequencies;
a base that they get by with may not do for many heads with many tasks, and the other way round.
"""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ropelab.config import AsList, Bases, Config, Count, Device, Dtype, EvenCount, Naturals

if TYPE_CHECKING:
    from ropelab.lm.corpus import Corpus
    from ropelab.rope.bounds import Similarity

QUESTION = "Does the bound on the base predict where retrieval fails while text loss stays low?"
CANNOT_SHOW = (
    "What a large model does: two layers trained for minutes choose few frequencies, and get by "
    "with bases that many heads with many tasks might not."
)
VERSION = 2
SHORTEST = 128


class BaseEmpiricalConfig(Config):
    """One model, trained at one length under several bases."""

    bases: Bases = Field(
        (30.0, 300.0, 10000.0),
        description="bases to train with, the largest is compared to",
    )
    train_len: Count = Field(256, description="length the models are trained at, in tokens")
    tasks: Annotated[tuple[Literal["text", "copy", "recall"], ...], AsList] = Field(
        ("text", "copy"),
        description="what is measured: text, copy, recall (looking up keys, by the copy model)",
    )
    layers: Count = Field(2, description="layers of the model")
    width: EvenCount = Field(128, description="width of the model")
    heads: Count = Field(1, description="heads of a layer")
    head_dim: EvenCount = Field(64, description="width of one head, all of it rotated")
    text_steps: Count = Field(300, description="training steps on text")
    retrieval_steps: Count = Field(800, description="training steps on copying")
    tokens_per_step: Count = Field(4096, description="tokens in one training step")
    seeds: Naturals = Field((0,), description="training seeds; each is a model of its own")
    documents: Count = Field(50, description="held-out documents the text is measured on")
    sequences: Count = Field(16, description="sequences per distance")
    corpus: str = Field(
        "", description="text file or folder to use; empty: the standard library of this Python"
    )
    device: Device = Field("auto", description="where tensors are computed")
    dtype: Dtype = Field(
        "auto",
        description="number format of training and evaluation; auto: bfloat16 where the "
        "processor has matrix units for it, else float32",
    )

    @field_validator("bases")
    @classmethod
    def _two(cls, bases: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(bases)) < 2:
            raise ValueError("must name at least two different bases to compare")
        return tuple(sorted(set(bases)))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.train_len < SHORTEST:
            raise ValueError(f"train_len must be at least {SHORTEST}, got {self.train_len}")
        if not self.tasks:
            raise ValueError("tasks must name at least one of text, copy, recall")
        return self

    def inputs(self) -> dict[str, str]:
        """The fingerprint of the corpus, if text is measured; raises InputError if it is no use."""
        return {"corpus": self.read_corpus().fingerprint} if "text" in self.tasks else {}

    def read_corpus(self) -> "Corpus":
        """The corpus, known to be long enough for this length and this number of documents."""
        from pathlib import Path

        from ropelab.lm.corpus import read_corpus

        length = self.train_len + 1
        corpus = read_corpus(Path(self.corpus) if self.corpus else None, length)
        corpus.check(length, length, self.documents)
        return corpus

    def similarity(self) -> "Similarity":
        """The sum of cosines that the bound is about."""
        from ropelab.rope.bounds import Similarity

        return Similarity.of_head(self.head_dim)


CONFIG = BaseEmpiricalConfig
