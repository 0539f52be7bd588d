"""Which base fits this context length, and what do the theories disagree on?

The exact lower bound: a base is admissible for L tokens when sum_i cos(m b^(-2i/d)) >= 0 for every
m = 0..L-1 (Men et al. 2024, arXiv:2405.14591), so that on average a query prefers a key that equals
it over a random one, however far away. The set of admissible bases is computed with a certificate
and set beside the rules that people use.

What it cannot show: whether a model trained with a base learns to use it. The bound speaks about an
average over random queries and keys with equal weight on all pairs; trained heads weigh pairs
unequally. Whether it predicts where retrieval fails is measured by `ropelab base-empirical`.
"""

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from ropelab.config import (
    AsList,
    Base,
    Config,
    Count,
    Counts,
    EvenCount,
    Names,
    Natural,
    Real,
    read_number,
)

if TYPE_CHECKING:
    from ropelab.rope.bounds import Similarity
    from ropelab.rope.frequencies import Geometry

QUESTION = "Which base fits this context length, and what do the theories disagree on?"
CANNOT_SHOW = (
    "Whether a trained model uses its base: the bound averages over random queries and keys, "
    "trained heads weigh frequencies unequally."
)
VERSION = 1
TWO_PAIRS_REACH = 355
"""355 is 113 pi and 3e-5: from there on cos(355) + cos(355 theta) >= 0 needs theta < 9e-8."""


class BaseConfig(Config):
    """A head, the contexts asked about, and what the model was trained with."""

    context: Counts = Field((32768,), description="context lengths in tokens, such as 1k,32k")
    model: str = Field("", description="a known model; fills what is not given (see freqs --help)")
    head_dim: EvenCount = Field(128, description="features of one head")
    rotary_dim: EvenCount | None = Field(
        None, description="features that turn, if not all (partial rotary)"
    )
    kept: Real = Field(
        1.0, gt=0, le=1, description="share of the pairs that turn, fastest first (p-RoPE)"
    )
    dropped: Annotated[tuple[Natural, ...], AsList] = Field(
        (), description="single pairs that do not turn, by number"
    )
    base: Base | None = Field(None, description="a base to judge: where does it fail first?")
    from_: str = Field(
        "10000@4096", description="trained base@length that the extension rules start from"
    )
    to: Count | None = Field(None, description="length to extend to, if not the context")
    windows_up_to: Natural = Field(
        32768,
        description="longest context for which all windows and the stable base are searched, "
        "not only the first (of a head of 16 features or more); the time grows with its square",
    )
    formats: Names = Field(
        ("float32", "bfloat16", "float16"), description="number formats to judge the base by"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Known values of the named model and of --to, where nothing else was given."""
        if not isinstance(values, dict):
            return values
        filled = {"from_" if name == "from" else name: value for name, value in values.items()}
        if filled.get("to") is not None:
            filled.setdefault("context", (filled["to"],))
        return {**_of_model(filled.get("model")), **filled}

    @field_validator("context")
    @classmethod
    def _two_tokens(cls, context: tuple[int, ...]) -> tuple[int, ...]:
        if min(context) < 2:
            raise ValueError("must be at least 2 tokens")
        return tuple(sorted(set(context)))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        from ropelab.numerics.formats import format_named

        for name in self.formats:
            format_named(name)
        similarity = self.similarity()
        two_pairs = len(similarity.exponents) == 2 and not similarity.unrotated
        if two_pairs and max(self.context) > TWO_PAIRS_REACH:
            raise ValueError(
                f"a head of two pairs is searched up to {TWO_PAIRS_REACH} tokens only: there the "
                "first pair is back at half a turn, and no base below 1e14 makes up for it"
            )
        if self.trained().trained_len < 7:
            raise ValueError(f"from must name more than 6 trained tokens, got {self.from_!r}")
        if self.to is not None and self.to < 2:
            raise ValueError(f"to must be at least 2 tokens, got {self.to}")
        return self

    @property
    def rotated(self) -> int:
        """Features that turn."""
        return self.rotary_dim or self.head_dim

    def similarity(self) -> "Similarity":
        """The sum of cosines that the exact bound is about."""
        from ropelab.rope.bounds import Similarity

        return Similarity.of_head(self.head_dim, self.rotary_dim, self.kept, self.dropped)

    def trained(self) -> "Geometry":
        """What the extension rules start from."""
        from ropelab.rope.frequencies import Geometry

        try:
            base, length = map(read_number, self.from_.split("@"))
        except ValueError:
            raise ValueError(
                f"from must be base@length such as 500000@8192, got {self.from_!r}"
            ) from None
        assert isinstance(base, int | float)
        assert isinstance(length, int | float)
        return Geometry(self.rotated, float(base), int(length))


def _of_model(name: Any) -> dict[str, Any]:
    """What a known model says about the fields of this config."""
    if not name:
        return {}
    from ropelab.rope.models import model_named

    model = model_named(str(name))
    return {
        "head_dim": model.head_dim,
        "rotary_dim": model.rotary_dim,
        "base": model.base,
        "from_": f"{model.base:.10g}@{model.trained_len}",
        "context": (model.promised,),
    }


CONFIG = BaseConfig
