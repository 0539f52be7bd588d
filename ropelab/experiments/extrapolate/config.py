"""My model was trained at one length: what happens at a longer one, under each scaling method?

A small model is trained twice, on real text and on copying, at `train_len`, and then evaluated up
to `test_len` with its frequencies changed by every method, without training on. On text beside
them stands the sliding window: simply not using more context than was trained.

What it cannot show: how a large model behaves. A model of this size hardly uses a long context for
predicting text, so on text it mainly shows what a method breaks; whether a long context can be
used at all is measured by copying. The method that wins here need not win there.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ropelab.config import (
    AsList,
    Base,
    Config,
    Count,
    Device,
    Dtype,
    EvenCount,
    Names,
    Naturals,
    read_number,
)
from ropelab.experiments.extrapolate.facts import read_facts
from ropelab.experiments.extrapolate.presets import PRESETS, Preset

if TYPE_CHECKING:
    from ropelab.experiments.extrapolate.methods import Choice
    from ropelab.lm.corpus import Corpus
    from ropelab.rope.frequencies import Geometry

QUESTION = "My model was trained at 2048 tokens: what happens at 8192 with PI, NTK, YaRN?"
CANNOT_SHOW = (
    "How a large model behaves: the models are small, so text shows mainly what a method "
    "breaks, and copying whether a long context can be used."
)
VERSION = 3
TaskName = Literal["text", "copy", "recall"]
ArmName = Literal["zero_shot", "finetuned", "ceiling"]
DEFAULT_METHODS = ("unscaled", "pi", "ntk", "dynamic_ntk", "ntk_by_parts", "yarn", "llama3")
SHORTEST = 64
"""Below this many tokens there is no curriculum, and rotary geometry degenerates."""


class ExtrapolateConfig(Config):
    """What is trained, at which length, and how it is tried beyond it."""

    train_len: Count = Field(2048, description="length the models are trained at, in tokens")
    test_len: Count = Field(8192, description="length they are evaluated at, in tokens")
    methods: Names = Field(
        DEFAULT_METHODS,
        description="scaling methods with their knobs, such as yarn(beta_fast=8),ntk(factor=8); "
        "the factor defaults to test_len/train_len (ntk: that and twice that)",
    )
    tasks: Annotated[tuple[TaskName, ...], AsList] = Field(
        ("text", "copy"),
        description="what is measured: text, copy, recall (looking up keys, by the copy model)",
    )
    arms: Annotated[tuple[ArmName, ...], AsList] = Field(
        ("zero_shot",),
        description="zero_shot: as trained; finetuned: trained on under each method, at "
        "finetune_len; ceiling: trained at test_len from the start, on as many tokens",
    )
    base: Base = Field(10000.0, description="base of the rotary frequencies in training")
    head_dim: EvenCount = Field(64, description="width of one head, all of it rotated")
    preset: Literal["small", "base", "large"] = Field(
        "small", description="size of the models: about 1, 10 or 120 million parameters"
    )
    text_steps: Count | None = Field(
        None, description="training steps on text, if not the preset's"
    )
    copy_steps: Count | None = Field(
        None, description="training steps on copying, if not the preset's"
    )
    finetune_steps: Count = Field(30, description="steps of the finetuned arm")
    finetune_len: Count | None = Field(
        None, description="length of the finetuned arm, in tokens, test_len if not given"
    )
    seeds: Naturals = Field((0,), description="training seeds; each is a model of its own")
    documents: Count = Field(50, description="held-out documents the text is measured on")
    sequences: Count = Field(6, description="sequences per distance of copy and recall")
    corpus: str = Field(
        "", description="text file or folder to use; empty: the standard library of this Python"
    )
    hf: str = Field(
        "", description="folder of a Hugging Face causal language model to evaluate instead"
    )
    device: Device = Field("auto", description="where tensors are computed")
    dtype: Dtype = Field(
        "auto",
        description="number format of training and evaluation; auto: bfloat16 where the "
        "processor has matrix units for it, else float32 (hf: float32)",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_model(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Length, base and head of `hf` are those of its config.json; it is read in float32."""
        if not values.get("hf"):
            return values
        facts = read_facts(values["hf"])
        for name, fact in facts.items():
            if name in values and read_number(values[name]) != fact:
                raise ValueError(f"{name} follows from the model ({fact}), leave it out")
        return {"dtype": "float32", **values, **facts}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.train_len < SHORTEST:
            raise ValueError(f"train_len must be at least {SHORTEST}, got {self.train_len}")
        if self.test_len < self.train_len:
            raise ValueError(
                f"test_len must be at least train_len ({self.train_len}), got {self.test_len}"
            )
        if not self.train_len <= self.tuned_len <= self.test_len:
            raise ValueError(
                f"finetune_len must lie between train_len ({self.train_len}) and test_len "
                f"({self.test_len}), got {self.finetune_len}"
            )
        if not (self.methods and self.tasks and self.arms):
            raise ValueError("methods, tasks and arms must name at least one each")
        if set(self.arms) == {"finetuned"} and not any(m.is_tunable for m in self.parsed_methods()):
            raise ValueError("a method searched on the trained model has no finetuned arm")
        if self.hf and ("recall" in self.tasks or self.arms != ("zero_shot",)):
            raise ValueError("a model given by hf takes the tasks text and copy, zero_shot only")
        searched_or_not_rope = [m.name for m in self.parsed_methods() if not m.is_plain_rope]
        if self.hf and searched_or_not_rope:
            raise ValueError(f"a model given by hf cannot be read by {searched_or_not_rope[0]}")
        return self

    def inputs(self) -> dict[str, str]:
        """Fingerprints of the corpus and of a model given; InputError if the corpus is no use."""
        corpus = {"corpus": self.read_corpus().fingerprint} if "text" in self.tasks else {}
        return {**corpus, **self._model_fingerprint()}

    def _model_fingerprint(self) -> dict[str, str]:
        if not self.hf:
            return {}
        from pathlib import Path

        from ropelab.lm.huggingface import fingerprint_of

        return {"hf": fingerprint_of(Path(self.hf))}

    @property
    def tuned_len(self) -> int:
        """The length of the finetuned arm."""
        return self.finetune_len or self.test_len

    @property
    def sizes(self) -> Preset:
        """The models that the preset means."""
        return PRESETS[self.preset]

    def geometry(self) -> "Geometry":
        """What the models were trained with."""
        from ropelab.rope.frequencies import Geometry

        return Geometry(self.head_dim, self.base, self.train_len)

    def parsed_methods(self) -> "tuple[Choice, ...]":
        """The methods, each once, in the order given."""
        from ropelab.experiments.extrapolate.methods import parse_methods

        return parse_methods(self.methods, self.geometry(), self.test_len)

    def read_corpus(self) -> "Corpus":
        """The corpus, known to be long enough for these lengths and this number of documents."""
        from pathlib import Path

        from ropelab.lm.corpus import read_corpus

        corpus = read_corpus(Path(self.corpus) if self.corpus else None, self.test_len + 1)
        corpus.check(self.train_len + 1, self.test_len + 1, self.documents)
        return corpus


CONFIG = ExtrapolateConfig
