"""Is what the textbooks say true?

Every claim is decided by a computation: the mathematics in float64, the numerics by exact rounding,
and what needs a trained model by the stored runs of the other experiments.

What it cannot show: whether a claim about large trained models holds there. Claims of that kind are
decided on the small models of this laboratory, and where no such run is stored, left open.
"""

from typing import Any

from pydantic import Field, field_validator

from ropelab.config import Config, Natural

QUESTION = "Is what the textbooks say about rotary embeddings true?"
CANNOT_SHOW = (
    "Claims that need a trained model are decided on the small models of this laboratory; "
    "whether they hold at the size of a real one is not shown."
)
VERSION = 2
DECIDING: dict[str, dict[str, Any]] = {
    "base": {
        "context": [1024 * 2**i for i in range(11)],
        "windows_up_to": 16384,
    },
    "base-empirical": {},
    "extrapolate": {},
    "encodings": {},
}
"""The experiments whose stored runs decide claims, and the run of each that `run` asks for."""


class ClaimsConfig(Config):
    """Which claims to check, and with what."""

    id: str = Field("", description="one claim, by id or number, explained; empty: all of them")
    seed: Natural = Field(0, description="seed of the random queries and keys")
    run: bool = Field(False, description="make the runs first that the trained claims need")

    @field_validator("id")
    @classmethod
    def _known(cls, value: str) -> str:
        if not value:
            return value
        from ropelab.experiments.claims.ledger import find

        return find(value).id

    def reads(self) -> tuple[str, ...]:
        """The experiments whose stored runs decide the trained claims."""
        return tuple(DECIDING)

    def requires(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """A run of each, if asked for."""
        return tuple(DECIDING.items()) if self.run else ()


CONFIG = ClaimsConfig
