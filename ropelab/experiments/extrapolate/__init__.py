"""My model was trained at one length: what happens at a longer length, under each
scaling method?

A small model learns at `train_len` to read real text in which passages are quoted and
keys are looked up. It is then evaluated at up to `test_len` tokens with its frequencies
changed by every method, without fine-tuning: on text by position, and on recall of
earlier symbols by distance and length of context. Methods are compared with the sliding
window, which gives the model no more context than it was trained with.
"""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from ropelab.models.methods.registry import METHODS
from ropelab.models.tasks import config
from ropelab.runs.config import (
    Base,
    Count,
    EvaluationField,
    ModelField,
    Natural,
    NonEmptyTuple,
)
from ropelab.runs.files import read_table_beside
from ropelab.runs.sentences import join_names

if TYPE_CHECKING:
    from ropelab.math.frequencies import Geometry
    from ropelab.models.methods.method import Method

# The module with the functions of the experiment, imported when one of them is called.
FUNCTIONS_MODULE = "ropelab.experiments.extrapolate.results"
CANNOT_SHOW = (
    "How a large model behaves: the models have about a million parameters and are"
    " trained for minutes; the method that wins here need not win there."
)
VERSION = 7
# A number that replaces the preset's number if the user gives it.
InsteadOfPreset = Annotated[
    ModelField[Count | None], Field(exclude_if=lambda count: count is None)
]
# An arm is a way to evaluate a model: without fine-tuning, after it, trained at the tested
# length (the ceiling), or with counts of n-grams (the cache).
ArmName = Literal["zero_shot", "finetuned", "ceiling", "cache"]
DEFAULT_METHODS = (
    "unscaled",
    "pi",
    "ntk",
    "dynamic_ntk",
    "ntk_by_parts",
    "yarn",
    "llama3",
)


class Preset(NamedTuple):
    """The sizes of a model and its training. The width of a head is not among them: it is
    `head_dim` in every size.
    """

    layers: int
    width: int
    heads: int
    steps: int
    tokens_per_step: int
    # The highest learning rates: of the matrices, and of everything else.
    matrix_rate: float
    other_rate: float


PRESETS = {
    name: Preset(**row) for name, row in read_table_beside(__file__, "presets").items()
}


class ExtrapolateConfig(config.TaskConfig):
    """The training, its length, and how the model is evaluated beyond it."""

    common_options: ClassVar[tuple[str, ...]] = (
        "methods",
        "train_len",
        "test_len",
        "corpus",
    )

    train_len: config.TrainLen = 2048
    test_len: config.TestLen = 8192
    methods: NonEmptyTuple[str] = Field(
        DEFAULT_METHODS,
        description=(
            "methods with their parameters, such as yarn(beta_fast=8),ntk(factor=8);"
            " where the factor means the reach it defaults to test_len/train_len (ntk:"
            " that and twice that); the table `ropelab methods` says more:"
            f" {', '.join(METHODS)}"
        ),
    )
    factor: config.Factor = None
    tasks: config.Tasks = ("text", "copy", "copy_in_text")
    arms: NonEmptyTuple[ArmName] = Field(
        ("zero_shot",), description=config.TEXTS["extrapolate"]["arms"]
    )
    casts: config.Casts = Field((), exclude_if=lambda names: not names)
    cache: config.KeyFormats = Field((), exclude_if=lambda names: not names)
    against: config.Against = Field("", exclude_if=lambda name: not name)
    offsets: config.Offsets = Field((0,), exclude_if=lambda firsts: firsts == (0,))
    search: EvaluationField[Natural] = Field(
        0, description=config.TEXTS["extrapolate"]["search"]
    )
    base: ModelField[Base] = Field(
        10000.0, description="base of the rotary frequencies in training"
    )
    head_dim: config.RotatedHeadDim = 64
    preset: ModelField[Literal["tiny", "small", "medium", "base", "large", "xl"]] = (
        Field(
            "small",
            description=(
                "size of the model: about 0.4, 1, 4, 11, 38 or 120 million parameters"
            ),
        )
    )
    steps: ModelField[Count | None] = Field(
        None, description="training steps, if not the preset's"
    )
    tokens_per_step: InsteadOfPreset = Field(
        None, description="tokens in a training step, likewise"
    )
    heads: InsteadOfPreset = Field(None, description="heads of a layer, likewise")
    finetune_steps: ModelField[Count] = Field(
        30, description="steps of the finetuned arm"
    )
    finetune_len: ModelField[Count | None] = Field(
        None,
        description="length of the finetuned arm, in tokens, test_len if not given",
    )
    pretrained: bool = Field(
        False,
        exclude_if=lambda is_pretrained: not is_pretrained,
        description=(
            "evaluate the five models that come with ropelab, trained at 512 tokens"
            " (seeds 0 to 4), instead of training; a default of --quick"
        ),
    )
    seeds: config.Seeds = (0,)
    documents: config.Documents = 50
    sequences: EvaluationField[Count] = Field(
        12, description=config.TEXTS["about"]["sequences"]
    )
    depths: config.Depths = (0, 25, 50, 75, 100)
    corpus: config.CorpusPath = ""
    device: config.DeviceField = "auto"
    dtype: config.DtypeField = "auto"

    @model_validator(mode="before")
    @classmethod
    def _choose_methods(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values with fewer default methods if there are casts."""
        # Each cast is evaluated under every method that acts on frequencies.
        if values.get("casts") or values.get("cache"):
            return {"methods": ("unscaled", "yarn"), **values}
        return values

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        from ropelab.models.methods.method import FixedMethod

        # These raise ValueError; the result of the first is not needed here.
        config.list_roundings(self, self.head_dim)
        config.check_against(self, self.against, self.head_dim)
        if self.tuned_len < self.train_len or self.tuned_len > self.test_len:
            raise ValueError(
                f"finetune_len must lie between train_len ({self.train_len}) and"
                f" test_len ({self.test_len}), got {self.finetune_len}"
            )

        config.check_depths(self.depths)
        methods = self.parsed_methods()
        can_be_tuned = any(isinstance(method, FixedMethod) for method in methods)
        if set(self.arms) == {"finetuned"} and not can_be_tuned:
            raise ValueError(
                "a method searched on the trained model has no finetuned arm"
            )

        if "cache" in self.arms and "text" not in self.tasks:
            raise ValueError("cache is an arm of the task text, which tasks leaves out")
        if self.search and "zero_shot" not in self.arms:
            raise ValueError("search is for the arm zero_shot, which arms leaves out")
        return self

    @property
    def scope(self) -> str:
        """The conditions of the answer, in words."""
        if self.pretrained:
            return f"{super().scope}; the models came with ropelab"
        return super().scope

    @property
    def interval_over(self) -> str:
        from ropelab.runs.stats import FEWEST_UNITS

        texts = join_names(config.count_texts(self))
        models = len(self.seeds)
        # Means over few models have intervals over texts (`average_with_intervals`).
        if models < FEWEST_UNITS:
            return texts
        if self.casts or self.cache:
            return f"{models} models, of costs also over {texts}"
        return f"{models} models"

    def list_idle_fields(self) -> dict[str, str]:
        idle_fields = super().list_idle_fields()
        if "finetuned" not in self.arms:
            idle_fields["finetune_steps"] = "--arms finetuned"
            idle_fields["finetune_len"] = "--arms finetuned"
        return idle_fields

    @property
    def tuned_len(self) -> int:
        """The length of the finetuned arm."""
        return self.finetune_len or self.test_len

    @property
    def sizes(self) -> Preset:
        """The preset, with the numbers that this config has instead."""
        replaced = {}
        for name in ("steps", "tokens_per_step", "heads"):
            value = getattr(self, name)
            if value is not None:
                replaced[name] = value
        return PRESETS[self.preset]._replace(**replaced)

    def geometry(self) -> "Geometry":
        """Return the base and the sizes of RoPE in the model."""
        from ropelab.math.frequencies import Geometry

        return Geometry(self.head_dim, self.base, self.train_len)

    def adapt_question(self, question: str) -> str:
        """Return the question with the lengths of this config."""
        has_roundings = bool(self.casts or self.cache)
        return config.ask_what_happens(self.train_len, self.test_len, has_roundings)

    def parsed_methods(self) -> "tuple[Method, ...]":
        from ropelab.models.methods.registry import parse_methods

        return parse_methods(self.methods, self.geometry(), self.test_len, self.factor)
