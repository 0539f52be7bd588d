"""Would another position encoding extrapolate better, and what does each one cost?

The same small model learns once per encoding, at `train_len`, to read text in which
passages are quoted and keys are looked up, and is measured up to `test_len` without
fine-tuning. Beside quality: parameters, work, memory, caches, sense of order. Every
encoding runs as its paper states it, trained by one recipe.
"""

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from ropelab.models.encoding.registry import (
    ENCODINGS,
    FURTHER,
    STANDARD,
    Shape,
    find_record,
)
from ropelab.models.tasks.config import (
    FirstWindow,
    ShapedConfig,
    TestLen,
    TokensPerStep,
    TrainLen,
)
from ropelab.runs.config import Count, EvaluationField, Names, NonEmptyTuple
from ropelab.runs.errors import InputError

if TYPE_CHECKING:
    from ropelab.math.frequencies import Geometry
    from ropelab.models.methods.method import FixedMethod

CANNOT_SHOW = (
    "How large models rank: a small model trained for a minute learns some encodings"
    " faster than others, and while windows grow (--first-window) late rows of a table"
    " are trained less. Nor what windows of attention save: here they hide keys that"
    " are computed and kept all the same."
)
VERSION = 6
# The encodings that the name `designs` stands for: RoPE, RoPE whose slow pairs do not
# rotate, and models in which some layers do not rotate, or see only a window.
DESIGNS = (
    "rope",
    "rope(fast=0.375)",
    "layers(rope,nope)",
    "every(2,nope,window(rope,64))",
    "every(2,rope,window(rope,64))",
)
# The encoding whose trained models are tested under methods, too.
TRAINED_ROPE = "rope"
# The module with the functions of the experiment, imported when one of them is called.
FUNCTIONS_MODULE = "ropelab.experiments.encodings.quality"


class EncodingsConfig(ShapedConfig):
    """The shape of the models, their encodings, and the lengths of training and test."""

    common_options: ClassVar[tuple[str, ...]] = (
        "encodings",
        "train_len",
        "test_len",
        "seeds",
    )

    train_len: TrainLen = 512
    test_len: TestLen = 2048
    encodings: Names = Field(
        tuple(STANDARD),
        description=(
            f"position encodings to compare; there are also {', '.join(FURTHER)};"
            " layers that differ as layers(rope, nope), every(2, nope), window(rope,"
            f" 64), rope(base=500000); designs: {', '.join(DESIGNS)}"
        ),
    )
    methods: Names = Field(
        (),
        exclude_if=lambda names: not names,
        description=(
            "methods under which the models of rope are tested too, without training,"
            " such as yarn,rerope: is a design better than a change at test time?"
        ),
    )
    tasks: NonEmptyTuple[Literal["text", "copy"]] = Field(
        ("text", "copy"),
        description=(
            "what is measured: text (its loss), copy (of a repeated stretch of random"
            " symbols)"
        ),
    )
    tokens_per_step: TokensPerStep = 4096
    first_window: FirstWindow = 16
    sequences: EvaluationField[Count] = Field(
        24,
        description=(
            "contexts of each length; each one asks for recall at every tested distance"
        ),
    )

    def shape(self, trained_len: int | None = None) -> Shape:
        """Return the sizes of the models, which encodings depend on.

        `trained_len` is `train_len` if it is not given.
        """
        return Shape(
            trained_len=trained_len or self.train_len,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            head_dim=self.head_dim,
        )

    def geometry(self) -> "Geometry":
        """Return the base and the sizes of the encoding `rope` in these models."""
        from ropelab.math.frequencies import Geometry
        from ropelab.models.encoding.rope import BASE

        return Geometry(self.head_dim, BASE, self.train_len)

    def parsed_methods(self) -> "tuple[FixedMethod, ...]":
        """Return the methods under which models of `rope` are tested.

        InputError: a method is unknown, or it trains or searches.
        """
        if not self.methods:
            return ()
        from ropelab.models.methods.method import FixedMethod
        from ropelab.models.methods.registry import parse_methods

        fixed = []
        for method in parse_methods(self.methods, self.geometry(), self.test_len):
            if not isinstance(method, FixedMethod) or method.recalibration:
                raise InputError(
                    f"{method.label} trains or searches; methods of encodings change a"
                    " model at test time alone (see ropelab extrapolate)"
                )
            fixed.append(method)
        return tuple(fixed)

    @field_validator("encodings")
    @classmethod
    def _check_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the encodings, each once, with `designs` replaced by what it stands
        for.
        """
        if not names:
            raise ValueError(f"must name at least one of {', '.join(ENCODINGS)}")

        encodings: list[str] = []
        for name in names:
            encodings += DESIGNS if name == "designs" else (name,)
        for encoding in encodings:
            # An unknown encoding is an error, which also suggests the name `designs`.
            find_record(encoding, "designs")
        without_blanks = ["".join(encoding.split()) for encoding in encodings]
        return tuple(dict.fromkeys(without_blanks))

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        # These names are notations, such as layers(rope, nope).
        composed = [name for name in self.encodings if name not in ENCODINGS]
        if composed:
            # This import loads torch, which takes seconds. Only notations of encodings
            # need it.
            from ropelab.models.encoding.composed import compose

            for name in composed:
                last_position = compose(name, self.shape()).max_position
                if last_position is None:
                    continue
                if last_position < self.train_len - 1:
                    raise ValueError(
                        f"{name} ends at position {last_position}, inside the trained"
                        " length"
                    )

        for name in self.encodings:
            least = find_record(name).least_head_dim
            if self.head_dim < least:
                raise ValueError(
                    f"head_dim must be at least {least} for {name}, which rotates "
                    f"1/{least // 2} of it, got {self.head_dim}"
                )
        if self.methods:
            if TRAINED_ROPE not in self.encodings:
                raise ValueError(
                    f"methods change models of {TRAINED_ROPE}, which encodings leave"
                    " out"
                )
            # A method that cannot be used is an error.
            self.parsed_methods()
        return self
