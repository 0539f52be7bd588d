"""Every statement of the ledger, decided by a computation, program code or a dated
document, or asked of small trained models by the stored runs of the other experiments.

The two kinds of evidence are counted apart: only the first can call a statement wrong.
"""

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from ropelab.runs.config import Config, Natural
from ropelab.runs.errors import is_installed, known
from ropelab.runs.files import table_beside
from ropelab.runs.folders import digest

CANNOT_SHOW = (
    "Whether a statement about large trained models holds there: the small models of"
    " this laboratory can fail to reproduce it, but not refute it."
)
VERSION = 8
BODY = "ropelab.claims.verdicts"
# The experiments of which `--run` makes a run, and with which values; the contexts of
# `base` are those of the published table, 1k to 1M tokens.
DECIDING: dict[str, dict[str, Any]] = {
    "base": {"context": [1024 * 2**i for i in range(11)], "windows_up_to": 16384},
    "base-empirical": {},
    "extrapolate": {},
    "encodings": {},
    "spectrum": {},
}


class ClaimsConfig(Config):
    """The claims to check, and their seed."""

    id: str = Field(default="", description="one claim, explained; empty: all of them")
    source: str = Field(
        default="",
        description=(
            "one source, sentence by sentence: 000 to 004 for the notes, yarn, men, ..."
        ),
    )
    seed: Natural = Field(default=0, description="seed of the random queries and keys")
    run: bool = Field(
        default=False, description="make the runs first that the trained claims need"
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.id and self.source:
            raise ValueError("give id or source, not both")
        if self.id or self.source:
            from ropelab.claims.ledger import SOURCES, find

            if self.id:
                find(self.id)
            else:
                known("source", self.source, SOURCES)
        return self

    def inputs(self) -> dict[str, str]:
        """Name the ledger, and tell runs without torch, where some findings are
        committed ones.
        """
        names = [path.stem for path in Path(__file__).parent.glob("*.toml")]
        ledger = digest({name: table_beside(__file__, name) for name in names})
        return {
            "ledger": ledger,
            **({} if is_installed("torch") else {"torch": "not installed"}),
        }

    def reads(self) -> tuple[str, ...]:
        """Name the experiments whose stored runs decide claims."""
        return (*DECIDING, "evaluate")

    def requires(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        return tuple(DECIDING.items()) if self.run else ()
