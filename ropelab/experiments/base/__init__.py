"""Bases for a context length: the exact lower bound, and the theories judged by it.

A base is admissible for L tokens when sum_i cos(m b^(-2i/d)) >= 0 for every m = 0..L-1
(Men et al. 2024, arXiv:2405.14591), so that on average a query prefers a key that
equals it over a random one, at any distance. The admissible bases are computed with a
certificate and compared with the rules that people use. `ropelab base-empirical` tests
the bound on trained models.
"""

from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from ropelab.math.models import fill_from_model
from ropelab.runs.config import (
    AsList,
    Base,
    Config,
    Count,
    Counts,
    EvaluationField,
    EvenCount,
    Formats,
    ModelField,
    Natural,
    Real,
)

CANNOT_SHOW = (
    "Whether a trained model uses its base: the bound averages over random queries and"
    " keys, trained heads weigh frequencies unequally."
)
VERSION = 6
# The module with the functions of the experiment, imported when one of them is called.
FUNCTIONS_MODULE = "ropelab.experiments.base.results"


class BaseConfig(Config):
    """A head, contexts, a base to judge, and the base and length of a training, which
    the rules for extending a trained model start from.
    """

    common_options: ClassVar[tuple[str, ...]] = (
        "context",
        "base",
        "model",
        "head_dim",
        "formats",
    )

    context: Counts = Field(
        (32768,), description="context lengths in tokens, such as 1k,32k"
    )
    model: ModelField[str] = Field(
        "", description="take unset options from this model (names: ropelab models)"
    )
    head_dim: ModelField[EvenCount] = Field(128, description="features of one head")
    rotary_dim: ModelField[EvenCount | None] = Field(
        None, description="rotated features, if not all"
    )
    kept: ModelField[Real] = Field(
        1.0, gt=0, le=1, description="share of the pairs that rotate (p-RoPE)"
    )
    dropped: ModelField[Annotated[tuple[Natural, ...], AsList]] = Field(
        (), description="single pairs that do not rotate, by number"
    )
    base: Base | None = Field(
        None, description="a base to judge, with its first failing position"
    )
    method: ModelField[str] = Field(
        "unscaled",
        description=(
            "scaling of the given base; without a factor: context / the given train_len"
        ),
    )
    train_base: ModelField[Base] = Field(
        10000.0, description="base that the extension rules start from"
    )
    # The critical dimension and base of a model are undefined up to 2 pi tokens, so that
    # 7 is the shortest trained length.
    train_len: ModelField[Count] = Field(
        4096, ge=7, description="trained length in tokens"
    )
    test_len: Count | None = Field(
        None, ge=2, description="tokens to extend to, else the context"
    )
    windows_up_to: EvaluationField[Natural] = Field(
        32768,
        description=(
            "longest context for which all windows are searched, not only the first and"
            " the last (of a head of 16 features or more); the time grows with its"
            " square"
        ),
    )
    layers: EvaluationField[Count] = Field(
        32, description="attention layers, for Liu's stability bound"
    )
    # The default is ours: the summaries of Liu's paper name no value.
    coherence: EvaluationField[Real] = Field(
        0.9, gt=0, lt=1, description="slowest cosine that Liu's bound keeps"
    )
    formats: EvaluationField[Formats] = Field(
        ("float32", "bfloat16", "float16"), description="number formats"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Take the fields that are not given from the facts about `model`, and the context
        from `test_len`.
        """
        if isinstance(values, dict) and values.get("test_len") is not None:
            values = {"context": (values["test_len"],), **values}
        return fill_from_model(
            values, {"train_base": "base", "context": "promised_len"}
        )

    @field_validator("context")
    @classmethod
    def _two_tokens(cls, context: tuple[int, ...]) -> tuple[int, ...]:
        if min(context) < 2:
            raise ValueError("must be at least 2 tokens")
        # The search of a context starts from the results of all shorter contexts.
        return tuple(sorted(set(context)))

    @property
    def rotated(self) -> int:
        """The number of features that rotate, before any pair is left out."""
        return self.rotary_dim or self.head_dim
