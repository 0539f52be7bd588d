"""My model was trained at one length: what happens at a longer one, under each scaling method?

A small model learns at `train_len` to read real text in which passages are quoted and keys are
looked up, and is then read up to `test_len` with its frequencies changed by every method, without
fine-tuning. It is asked for text by position and for what stood earlier, by distance and length of
context. Beside the methods stands the sliding window: simply not using more context than was
trained.

What it cannot show: how a large model behaves. The method that wins here need not win there.
"""

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from ropelab.experiments.extrapolate.given.config import ASKED, GivenConfig
from ropelab.experiments.extrapolate.presets import PRESETS, Preset
from ropelab.models.methods.registry import METHODS
from ropelab.models.tasks.config import (
    CorpusPath,
    Documents,
    In,
    On,
    RotatedHeadDim,
    Seeds,
    TestLen,
    TrainLen,
    TrialConfig,
)
from ropelab.runs.config import AsList, Base, Config, Count, Names, Natural

if TYPE_CHECKING:
    from ropelab.math.frequencies import Geometry
    from ropelab.models.methods.method import Method

QUESTION = ASKED.format(2048, 8192)
CANNOT_SHOW = (
    "How a large model behaves: the models have about a million parameters and are trained for "
    "minutes; the method that wins here need not win there. A model given by --hf speaks for "
    "itself alone."
)
VERSION = 4
TaskName = Literal["text", "copy", "hidden", "recall", "nearer"]
ArmName = Literal["zero_shot", "finetuned", "ceiling"]
DEFAULT_METHODS = ("unscaled", "pi", "ntk", "dynamic_ntk", "ntk_by_parts", "yarn", "llama3")
SHORTEST = 64
"""Below this many tokens there is no curriculum, and rotary geometry degenerates."""


class ExtrapolateConfig(TrialConfig):
    """What is trained, at which length, and how it is tried beyond it."""

    train_len: TrainLen = 2048
    test_len: TestLen = 8192
    methods: Names = Field(
        DEFAULT_METHODS,
        description="methods with their knobs, such as yarn(beta_fast=8),ntk(factor=8); where "
        "the factor means the reach it defaults to test_len/train_len (ntk: that and twice that); "
        f"the table `ropelab methods` says more: {', '.join(METHODS)}",
    )
    tasks: Annotated[tuple[TaskName, ...], AsList] = Field(
        ("text", "copy", "hidden"),
        description="what is measured: text; copy (symbols among symbols), hidden (symbols in "
        "text), recall (values of keys), nearer (the nearer of two values)",
    )
    arms: Annotated[tuple[ArmName, ...], AsList] = Field(
        ("zero_shot",),
        description="zero_shot: as trained; finetuned: fine-tuned under each method, at "
        "finetune_len; ceiling: trained at test_len from the start, on as many tokens",
    )
    search: Natural = Field(
        0,
        description="evaluations in which the knobs of every method that has some, and LongRoPE's "
        "factors, are searched on the trained model, on sequences that are not tested; 0: none",
    )
    base: Base = Field(10000.0, description="base of the rotary frequencies in training")
    head_dim: RotatedHeadDim = 64
    preset: Literal["small", "base", "large"] = Field(
        "small", description="size of the model: about 1, 10 or 120 million parameters"
    )
    steps: Count | None = Field(None, description="training steps, if not the preset's")
    finetune_steps: Count = Field(30, description="steps of the finetuned arm")
    finetune_len: Count | None = Field(
        None, description="length of the finetuned arm, in tokens, test_len if not given"
    )
    seeds: Seeds = (0,)
    documents: Documents = 50
    sequences: Count = Field(6, description="sequences per distance and length of context")
    corpus: CorpusPath = ""
    hf: Literal[""] = Field("", description="a model of one's own")
    device: On = "auto"
    dtype: In = "auto"

    @classmethod
    def chosen_by(cls, values: Mapping[str, Any]) -> type[Config]:
        """That of a model given, where values name one."""
        return GivenConfig if values.get("hf") else cls

    @classmethod
    def flags(cls) -> dict[str, FieldInfo]:
        """Those of both kinds of models, each told what it is with the other."""
        others = GivenConfig.model_fields
        own = {name: _told(field, others.get(name)) for name, field in cls.model_fields.items()}
        own["hf"].description = others["hf"].description
        for name in ("hf", "dtype"):  # a model given can be in every format, and be one at all
            own[name].annotation = getattr(others[name], "annotation", None)
        return {**others, **own}

    @model_validator(mode="before")
    @classmethod
    def _not_of_a_model_given(cls, values: dict[str, Any]) -> dict[str, Any]:
        if "hf" in values:  # as with a variable of the shell that is not set
            raise ValueError("hf is empty and names no model")
        for name in values:
            if name in GivenConfig.model_fields and name not in cls.model_fields:
                raise ValueError(f"{name} is for a model given by hf, and none is given")
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.check_lengths(SHORTEST)
        if not self.train_len <= self.tuned_len <= self.test_len:
            raise ValueError(
                f"finetune_len must lie between train_len ({self.train_len}) and test_len "
                f"({self.test_len}), got {self.finetune_len}"
            )
        if not (self.methods and self.tasks and self.arms):
            raise ValueError("methods, tasks and arms must name at least one each")
        methods = self.parsed_methods()
        if set(self.arms) == {"finetuned"} and not any(method.is_tunable for method in methods):
            raise ValueError("a method searched on the trained model has no finetuned arm")
        if self.search and "zero_shot" not in self.arms:
            raise ValueError("search chooses knobs for the zero_shot arm, which arms leaves out")
        return self

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
        from ropelab.math.frequencies import Geometry

        return Geometry(self.head_dim, self.base, self.train_len)

    def asks(self, question: str) -> str:
        """With the lengths of this config."""
        return ASKED.format(self.train_len, self.test_len)

    def parsed_methods(self) -> "tuple[Method, ...]":
        """The methods, each once, in the order given."""
        from ropelab.models.methods.registry import parse_methods

        return parse_methods(self.methods, self.geometry(), self.test_len)


def _told(own: FieldInfo, given: FieldInfo | None) -> FieldInfo:
    """A field with what it is for a model given, where that is something else."""
    if given is None or (given.description, given.default) == (own.description, own.default):
        return own
    told = copy(own)
    told.description = f"{own.description}; with --hf: {given.description}"
    if isinstance(given.default, int | str | tuple):
        default = given.default if isinstance(given.default, tuple) else [given.default]
        told.description += f", default {','.join(map(str, default))}" if any(default) else ""
    return told


CONFIG = ExtrapolateConfig
