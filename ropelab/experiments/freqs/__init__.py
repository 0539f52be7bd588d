"""Every frequency pair of a head, before and after scaling.

The table has a row per pair: its frequency, wavelength and rotations, and the effect of
the scaling method on them. It also says whether the pair meets angles at the target
length that training did not show. `ropelab extrapolate` measures what new angles do to a
small model.
"""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from ropelab.math.methods import FREQUENCY_METHODS
from ropelab.math.models import Layout, fill_from_model
from ropelab.runs.config import (
    AsSequence,
    Base,
    Config,
    Count,
    EvenCount,
    ModelField,
    Real,
)
from ropelab.runs.sentences import write_number

CANNOT_SHOW = (
    "What a model makes of it: the table says which angles are new, not whether"
    " attention breaks."
)
VERSION = 4
# The module with the functions of the experiment, imported when one of them is called.
FUNCTIONS_MODULE = "ropelab.experiments.freqs.pairs"


class FreqsConfig(Config):
    """A head, its training, and the method that scales it."""

    common_options: ClassVar[tuple[str, ...]] = (
        "model",
        "base",
        "method",
        "factor",
        "train_len",
    )

    model: ModelField[str] = Field(
        "", description="take unset options from this model (names: ropelab models)"
    )
    base: ModelField[Base] = Field(10000.0, description="base of the frequencies")
    head_dim: ModelField[EvenCount] = Field(128, description="features of one head")
    rotary_dim: ModelField[EvenCount | None] = Field(
        None, description="rotated features, if not all"
    )
    train_len: ModelField[Count] = Field(
        4096, ge=2, description="trained length in tokens, before scaling"
    )
    extended_len: ModelField[Count | None] = Field(
        None,
        description="length of training after scaling by the method, if there was any",
    )
    test_len: Count | None = Field(
        None, description="tokens, if not factor times the trained ones"
    )
    method: str = Field(
        "yarn",
        description=f"such as yarn(beta_fast=16): {', '.join(FREQUENCY_METHODS)}",
    )
    factor: Real = Field(
        4.0,
        ge=1,
        description=(
            "context length over trained length, for methods whose factor means that "
            "(table: ropelab methods), unless given among their parameters"
        ),
    )
    sections: ModelField[Annotated[tuple[Count, ...], AsSequence]] = Field(
        (),
        description=(
            "pairs per axis of a position, such as 16,24,24 for time, height and width"
        ),
    )
    layout: ModelField[Layout] = Field(
        "mrope",
        description=(
            "of sections: mrope (runs of pairs), mrope_interleaved (alternating), axial"
            " (each axis with frequencies of its own)"
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Take the fields that are not given from the facts about `model`."""
        # The fact about a model that each field is filled with.
        fact_of_field = {
            "factor": "factor",
            "sections": "sections",
            "extended_len": "extended_len",
        }
        # If a factor is given, the tested length follows from it.
        if "factor" not in values:
            fact_of_field["test_len"] = "promised_len"
        return fill_from_model(values, fact_of_field)

    @property
    def scope(self) -> str:
        """The conditions of the answer, in words."""
        scope = f"base {write_number(self.base)}, heads of {self.head_dim}"
        if self.rotary_dim:
            scope += f", {self.rotary_dim} of them rotated"
        return scope

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.rotary_dim and self.rotary_dim > self.head_dim:
            raise ValueError(
                f"rotary_dim {self.rotary_dim} is above head_dim {self.head_dim}"
            )
        rotated_pairs = (self.rotary_dim or self.head_dim) // 2
        if self.sections and sum(self.sections) != rotated_pairs:
            raise ValueError(
                f"sections must add up to {rotated_pairs} pairs, got {sum(self.sections)}"
            )
        return self
