"""Precision: the positions that a number format still distinguishes, and the cast that
is wrong.

The experiment has two parts. First, encodings of positions are rounded to several
number formats, and positions with equal encodings are counted. An encoding has one
frequency, the many frequencies of RoPE, or the frequencies of the sinusoidal encoding.
Then an implementation of RoPE is compared with float64. It computes in stages:
position, inv_freq, angle, table, rotation, score. A cast says to which format a stage
is rounded. By default one stage is rounded at a time, to every format; `--preset` and
`--cast` name whole implementations instead. Roundings are modelled after the formats,
not measured on hardware.
"""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from ropelab.math.methods import resolve_scaling
from ropelab.math.models import Layout, fill_from_model
from ropelab.runs.config import (
    AsLengths,
    AsSequence,
    Base,
    Config,
    Count,
    EvaluationField,
    EvenCount,
    Formats,
    ModelField,
    Names,
    Natural,
    Positive,
)
from ropelab.runs.errors import check_known
from ropelab.runs.sentences import write_number
from ropelab.runs.spelling import read_formats

CANNOT_SHOW = (
    "How much a given model loses: `ropelab evaluate MODEL --casts` measures that. And"
    " what a fused kernel does, which rounds less often than the stages modelled here."
)
VERSION = 11
# The module with the functions of the experiment, imported when one of them is called.
FUNCTIONS_MODULE = "ropelab.experiments.precision.results"

# The encodings of a position: by one frequency, by the frequencies of RoPE, or by the
# frequencies of the sinusoidal encoding.
SCHEMES = ("single", "rope", "sinusoidal")
# The parts of an encoding that are rounded and compared. A pair is the cos and the sin
# of one frequency, a vector is all pairs, and a score is the product of two aligned
# vectors.
COMPONENTS = ("cos", "sin", "pair", "vector", "score")
# The components that one frequency has. Its vector would be its pair again, and its score
# would be its cosine.
OF_ONE_FREQUENCY = ("cos", "sin", "pair")


class PrecisionConfig(Config):
    """The encodings, formats and casts that are compared, and the positions."""

    common_options: ClassVar[tuple[str, ...]] = (
        "model",
        "base",
        "length",
        "formats",
        "cast",
    )

    # The model is not stored with the run, but the values that the model fills in are.
    model: ModelField[str] = Field(
        "",
        exclude=True,
        description="take unset options from this model (names: ropelab models)",
    )
    base: ModelField[Base] = Field(1e6, description="base of the rotary frequencies")
    head_dim: ModelField[EvenCount] = Field(64, description="features of one head")
    rotary_dim: ModelField[EvenCount | None] = Field(
        None, description="rotated features, if not all"
    )
    method: ModelField[str] = Field(
        "unscaled", description="method; its factor by default length / train_len"
    )
    train_len: ModelField[Count] = Field(
        8192, ge=2, description="trained length in tokens, for the method"
    )
    model_dim: ModelField[EvenCount] = Field(
        512, description="width of the sinusoidal encoding (base 10000)"
    )
    period: ModelField[Positive] = Field(
        1e6, ge=1e-9, description="period of the single frequency, in tokens"
    )
    length: Count = Field(131072, ge=2, description="number of positions")
    offset: Natural = Field(0, description="first position")
    schemes: Names = Field(
        ("single", "rope"), description="encodings: single, rope, sinusoidal"
    )
    components: Names = Field(
        COMPONENTS, description="of them: cos, sin, pair, vector, score"
    )
    formats: Formats = Field(
        ("float32", "float16", "bfloat16"), description="formats beside float64"
    )
    # Without it the default formats stand for "not given": encodings are then stored in
    # them, and single stages are rounded to further formats as well. A list of other
    # formats needs no such mark.
    only_formats: bool = Field(
        False,
        exclude_if=lambda is_marked: not is_marked,
        description="round single stages to formats alone, also to the default ones",
    )
    cast: str = Field("", description="casts, such as inv_freq=bfloat16,table=float16")
    preset: Names = Field(
        (), description="casts of real implementations, by name, or all"
    )
    # The fields with `exclude_if` are left out of a stored config while they have their
    # defaults, so that the name of a run does not change when a field is added to this
    # class.
    against: str = Field(
        "",
        exclude_if=lambda name: not name,
        description=(
            "a preset, a format or a cast that --cast and --preset are compared with, "
            "such as float32"
        ),
    )
    cache: Names = Field(
        (),
        exclude_if=lambda names: not names,
        description=(
            "formats of stored keys, such as q8_0, q4_0(before) or fp8_e4m3(head): the "
            "errors of keys by pair, and of scores"
        ),
    )
    sections: Annotated[tuple[Count, ...], AsSequence] = Field(
        (),
        exclude_if=lambda counts: not counts,
        description=(
            "pairs per axis of a position, such as 16,24,24 for time, height and width:"
            " what casts cost along each"
        ),
    )
    layout: Layout = Field(
        "mrope",
        exclude_if=lambda layout: layout == "mrope",
        description="of sections: mrope, mrope_interleaved, axial",
    )
    axis_lengths: Annotated[tuple[Count, ...], AsSequence] = Field(
        (),
        exclude_if=lambda lengths: not lengths,
        description=(
            "positions along each axis, by default 10000 frames, 4096 rows and columns"
        ),
    )
    tolerance: EvaluationField[Positive] = Field(
        0.01, lt=3.14, description="an angle is wrong if it is off by more, in radians"
    )
    long_lengths: EvaluationField[Annotated[tuple[Count, ...], AsLengths]] = Field(
        (1048576, 10_000_000), description="further lengths for float32 angles"
    )
    explain: Natural | None = Field(
        None, description="a position to explain, format by format, or cast by cast"
    )
    explain_pair: Natural = Field(0, description="the pair in which it is explained")
    samples: EvaluationField[Count] = Field(
        1024, description="positions at which steps of one token are sampled"
    )
    draws: EvaluationField[Count] = Field(
        32, description="random queries and keys per score"
    )
    seed: EvaluationField[Natural] = Field(
        0, description="seed of the random queries and keys"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Take the fields that are not given from the facts about `model`."""
        return fill_from_model(values, {"length": "promised_len"})

    @model_validator(mode="before")
    @classmethod
    def _mark_typed_formats(cls, values: Any) -> Any:
        """Set `only_formats` where the default formats were typed, in any order.

        The config of a stored run has the default formats as a list in their order,
        whether or not they were typed. Such a list is left as it is.
        """
        if not isinstance(values, dict) or "only_formats" in values:
            return values
        names_implementations = values.get("cast") or values.get("preset")
        if "formats" not in values or names_implementations:
            return values

        default = cls.model_fields["formats"].default
        given = values["formats"]
        try:
            names = read_formats(given)
        except ValueError:
            # The field itself says what is wrong with it, by its name.
            return values
        if not isinstance(names, tuple) or set(names) != set(default):
            return values
        if not isinstance(given, str) and names == default:
            return values
        return {**values, "only_formats": True}

    @property
    def scope(self) -> str:
        """The conditions of the answer, in words."""
        end = self.offset + self.length
        parts = [f"base {write_number(self.base)}", f"heads of {self.head_dim}"]
        if self.rotary_dim:
            parts.append(f"{self.rotary_dim} of them rotated")
        scaling, _ = resolve_scaling(self, end)
        if scaling.name != "unscaled":
            parts.append(f"frequencies scaled by {scaling.label}")
        parts.append(f"positions {self.offset} to {end - 1}")
        return f"{', '.join(parts)}; wrong: off by {self.tolerance:g} rad"

    @property
    def rotated(self) -> int:
        """The number of features that rotate."""
        return self.rotary_dim or self.head_dim

    def list_idle_fields(self) -> dict[str, str]:
        idle_fields = {}
        if self.explain is None:
            idle_fields["explain_pair"] = "--explain"
        if self.cast or self.preset:
            idle_fields["only_formats"] = "single stages, without --cast and --preset"
        if "sinusoidal" not in self.schemes:
            idle_fields["model_dim"] = "--schemes sinusoidal"
        if "single" not in self.schemes:
            idle_fields["period"] = "--schemes single"
        return idle_fields

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.rotated > self.head_dim:
            raise ValueError(
                f"rotary_dim {self.rotary_dim} is above head_dim {self.head_dim}"
            )

        if self.offset + max(self.length, *self.long_lengths, 1) > 2**53:
            raise ValueError(
                "positions must stay below 2^53, where float64 is still exact"
            )

        if self.explain is None and self.explain_pair >= self.rotated // 2:
            raise ValueError(
                f"explain_pair is {self.explain_pair}, not below {self.rotated // 2}"
            )

        if self.against and not (self.cast or self.preset):
            raise ValueError(
                "against is what casts are compared with: give cast or preset, too"
            )

        self._check_axes()
        for name in self.schemes:
            check_known("scheme", name, SCHEMES)
        for name in self.components:
            check_known("component", name, COMPONENTS)

        only_single = set(self.schemes) == {"single"}
        has_none_of_single = set(OF_ONE_FREQUENCY).isdisjoint(self.components)
        if only_single and self.components and has_none_of_single:
            raise ValueError(
                "a single frequency has no vector beside its pair, and its score is its"
                " cosine: give components cos, sin or pair"
            )
        return self

    def _check_axes(self) -> None:
        """Raise ValueError if sections, layout and axis_lengths do not go together."""
        if not self.sections:
            if self.axis_lengths or self.layout != "mrope":
                raise ValueError("axis_lengths and layout need sections")
            return

        pairs = self.rotated // 2
        if sum(self.sections) != pairs:
            raise ValueError(
                f"sections must add up to {pairs} pairs, got {sum(self.sections)}"
            )

        if self.axis_lengths and len(self.axis_lengths) != len(self.sections):
            raise ValueError(
                f"{len(self.sections)} axes need as many lengths, got"
                f" {len(self.axis_lengths)}"
            )
        if self.axis_lengths and max(self.axis_lengths) > 2**24:
            raise ValueError("axis_lengths must be at most 2^24")
        if self.layout == "axial" and self.method != "unscaled":
            raise ValueError("the axial layout takes no method here, freqs has one")
