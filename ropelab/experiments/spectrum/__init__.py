"""One frequency or many: what can be represented, and what does a model learn with
each?

A scheme is a choice of frequencies for the pairs of a head. There are two kinds of
evidence, in separate tables. Arithmetic compares the change of a score from one token
to the next with the rounding of scores, under each scheme. Training shows what a model
learns: models of the same size are trained, one per scheme and seed. Three tasks are then
measured, inside and beyond the trained length: to copy a repeated stretch of symbols, to
recall the more recent of two values, and to predict text. At last, bands of frequencies
are taken away from the models of the first scheme, and the tasks are measured again.
"""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ropelab.models.tasks.config import (
    FirstWindow,
    ShapedConfig,
    Steps,
    TestLen,
    TrainLen,
)
from ropelab.runs.config import (
    AsList,
    Base,
    Count,
    EvaluationField,
    ModelField,
    NonEmptyTuple,
)
from ropelab.runs.spelling import split_list

if TYPE_CHECKING:
    from ropelab.math.frequencies import Geometry
    from ropelab.math.scaling import Scaling

CANNOT_SHOW = (
    "What a large model, a longer training or another period does with few frequencies:"
    " the models have half a million parameters and are trained for less than a minute."
)
VERSION = 4
# The module with the functions of the experiment, imported when one of them is called.
FUNCTIONS_MODULE = "ropelab.experiments.spectrum.schemes"
# The default schemes. The field `schemes` of the config explains the notation.
SCHEMES = split_list(
    "unscaled, one(period=1e6), one(period=32), one(period=32, pairs=8),"
    " one(period=6.2832), spaced(n=2), spaced(n=4), spaced(n=8), spaced(n=16),"
    " spaced(n=4, uniform=true), spaced(n=16, uniform=true), without(band=fast),"
    " without(band=middle), without(band=slow), p_rope(p=0)"
)


class SpectrumConfig(ShapedConfig):
    """Schemes of frequencies, the models trained with them, and the lengths they are
    tested at.
    """

    common_options: ClassVar[tuple[str, ...]] = (
        "schemes",
        "train_len",
        "test_len",
        "seeds",
    )

    train_len: TrainLen = 128
    test_len: TestLen = 512
    schemes: NonEmptyTuple[str] = Field(
        tuple(SCHEMES),
        description=(
            "frequencies to train with: one(period=..., pairs=...) or spaced(n=...,"
            " uniform=..., pairs=...), where pairs=8 rotates only the first 8 pairs of"
            " a head; without(band=...); p_rope(p=0) for none; unscaled for the"
            " frequencies of RoPE at --base; or any other change of frequencies. All"
            " other schemes are compared with the first one"
        ),
    )
    bands: Annotated[tuple[Literal["fast", "middle", "slow"], ...], AsList] = Field(
        ("fast", "middle", "slow"),
        description=(
            "thirds of the frequencies to take away from the trained model of the first"
            " scheme"
        ),
    )
    tasks: NonEmptyTuple[Literal["text", "copy", "most_recent"]] = Field(
        ("text", "copy", "most_recent"),
        description=(
            "what is measured: text (its loss), copy (of a repeated stretch of random"
            " symbols), most_recent (recall of the nearer of a key's two values)"
        ),
    )
    base: ModelField[Base] = Field(
        10000.0, description="base of the frequencies of unscaled RoPE"
    )
    steps: Steps = 600
    first_window: FirstWindow = 16
    sequences: EvaluationField[Count] = Field(
        48,
        description=(
            "contexts of each length; each one asks for recall at every tested distance"
        ),
    )
    draws: EvaluationField[Count] = Field(
        200, le=2**16, description="random vectors of the arithmetic part"
    )

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        # Each of the three bands needs a pair of two features.
        if self.bands and self.head_dim < 6:
            raise ValueError(
                f"head_dim must be at least 6 for three bands, got {self.head_dim}"
            )
        # A scheme that does not exist or does not fit is an error.
        self.parsed_schemes()
        return self

    def geometry(self) -> "Geometry":
        """Return the base and the sizes of RoPE in the models."""
        from ropelab.math.frequencies import Geometry

        return Geometry(self.head_dim, self.base, self.train_len)

    def parsed_schemes(self) -> "dict[str, Scaling]":
        """Return the schemes by label, each once; InputError if a scheme does not fit a
        head.
        """
        from ropelab.math.methods import parse_scaling

        parsed = [parse_scaling(text) for text in self.schemes]
        for scheme in parsed:
            scheme.plan(self.geometry(), self.train_len)
        return {scheme.label: scheme for scheme in parsed}
