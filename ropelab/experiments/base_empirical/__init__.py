"""Does the lower bound on RoPE's base predict where retrieval fails while text loss
stays low?

Men et al. 2024 (arXiv:2405.14591) hold that a model with too small a base has a
superficial long context: its text loss stays low, yet it cannot retrieve from distances
at which the sum of the cosines of the rotation angles is negative. Here the same small
model learns at one length, under several bases, to read text in which passages are
quoted and keys are looked up, and is measured inside that length. The models differ by
nothing but the base.
"""

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from ropelab.models.tasks.config import Heads, RotatedHeadDim, ShapedConfig, TrainLen
from ropelab.runs.config import Bases, Count, EvaluationField, NonEmptyTuple

CANNOT_SHOW = (
    "What a large model does: two layers trained for minutes choose few frequencies,"
    " and get by with bases that many heads with many tasks might not."
)
VERSION = 8
# The module with the functions of the experiment, imported when one of them is called.
FUNCTIONS_MODULE = "ropelab.experiments.base_empirical.retrieval"


class BaseEmpiricalConfig(ShapedConfig):
    """One model, trained at one length under several bases."""

    common_options: ClassVar[tuple[str, ...]] = ("bases", "train_len", "tasks", "seeds")

    # The nearest tested distance is a 32nd of the window. A copied passage has to fit into
    # it, and to be longer than the cue that asks for it.
    shortest_train_len = 256
    bases: Bases = Field(
        (30.0, 300.0, 10000.0), description="bases; the largest is the reference"
    )
    train_len: TrainLen = 256
    tasks: NonEmptyTuple[Literal["text", "copy", "associative_recall"]] = Field(
        ("text", "copy", "associative_recall"),
        description=(
            "what is measured: text (its loss), copy (of a repeated stretch of random"
            " symbols), associative_recall (of the value of a key)"
        ),
    )
    heads: Heads = 1
    head_dim: RotatedHeadDim = 64
    sequences: EvaluationField[Count] = Field(
        48,
        description="contexts; each one asks for recall at every tested distance",
    )

    @field_validator("bases")
    @classmethod
    def _sort_at_least_two(cls, bases: tuple[float, ...]) -> tuple[float, ...]:
        different_bases = set(bases)
        if len(different_bases) < 2:
            raise ValueError("must name at least two different bases to compare")
        return tuple(sorted(different_bases))

    @property
    def longest(self) -> int:
        """The longest context that is tested."""
        return self.train_len
