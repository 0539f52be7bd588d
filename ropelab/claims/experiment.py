"""The experiment `claims`: every statement of the ledger, with a verdict.

Two kinds of evidence decide statements. The first kind is a computation, program code
or a dated document. The second kind is small trained models: the stored runs of all
other experiments. The two kinds are counted apart, since only the first kind can call
a statement wrong.
"""

from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ropelab.runs import builtin
from ropelab.runs.config import Config, Natural, read_toml, take_label
from ropelab.runs.errors import check_known, is_installed
from ropelab.runs.files import read_table_beside
from ropelab.runs.folders import digest

CANNOT_SHOW = (
    "Whether a statement about large trained models holds there: the small models of"
    " this laboratory can fail to reproduce it, but not refute it."
)
VERSION = 14
# The module with the functions of the experiment, imported when one of them is called.
FUNCTIONS_MODULE = "ropelab.claims.verdicts"
# The folder of configs about released models. `--run` leaves them out, because the files
# of these models have to be fetched first.
RELEASED_CONFIGS = "released/"


class ClaimsConfig(Config):
    """The claims to check, and the seed of their checks."""

    # The field that may be typed without its flag, and its word in the help.
    bare: ClassVar[str] = "id"
    argument_word: ClassVar[str] = "ID"

    id: str = Field(default="", description="one claim, explained; empty: all of them")
    # A note is named by a number, 000 to 004, and any other source by a word, as yarn.
    source: str = Field(
        default="",
        description=(
            "one source, sentence by sentence: 000 to 004 for the notes, yarn, men, ..."
        ),
    )
    seed: Natural = Field(default=0, description="seed of the random queries and keys")
    # True: before the claims are judged, the runs that decide them are made, from the
    # configs that the claims name.
    run: bool = Field(
        default=False,
        description="make the runs first that decide the claims, by the configs they name",
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if self.id and self.source:
            raise ValueError("give id or source, not both")
        if self.id or self.source:
            from ropelab.claims.ledger import SOURCES, find_claim

            if self.id:
                find_claim(self.id)
            else:
                check_known("source", self.source, SOURCES)
        return self

    def inputs(self) -> dict[str, str]:
        """Return what a run depends on besides its config: the contents of the ledger, and
        whether torch is installed.
        """
        names = [path.stem for path in Path(__file__).parent.glob("*.toml")]
        ledger = digest({name: read_table_beside(__file__, name) for name in names})
        inputs = {"ledger": ledger}
        # Without torch, some claims take their findings from the committed results.
        if not is_installed("torch"):
            inputs["torch"] = "not installed"
        return inputs

    def list_read_experiments(self) -> tuple[str, ...]:
        """Return the experiments whose stored runs decide claims, each once."""
        from ropelab.claims.ledger import CLAIMS

        return tuple(dict.fromkeys(claim.reads for claim in CLAIMS if claim.reads))

    def list_idle_fields(self) -> dict[str, str]:
        from ropelab.claims.ledger import find_claim

        # Of a single claim it is known what its check takes. Among several there are
        # always some that draw vectors, and in the whole ledger some that read runs.
        idle_fields = {}
        if self.id and not find_claim(self.id).takes_seed:
            idle_fields["seed"] = "claims that draw random vectors"
        if self.run and not self.list_required_runs():
            idle_fields["run"] = "claims that runs of small models decide"
        return idle_fields

    def list_required_runs(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Return the runs that decide the chosen claims: for each config that a claim
        names, the experiment and the values of the config.
        """
        if not self.run:
            return ()
        from ropelab.claims.ledger import choose_claims

        names = []
        for claim in choose_claims(self.id, self.source):
            if claim.config and not claim.config.startswith(RELEASED_CONFIGS):
                names.append(claim.config)
        return tuple(_read_config(name) for name in dict.fromkeys(names))


def _read_config(name: str) -> tuple[str, dict[str, Any]]:
    """Return the experiment and the values of a config that comes with ropelab."""
    path = builtin.find_config(Path("configs", name))
    experiment, values = read_toml(path)
    _, fields = take_label(path, values)
    return experiment, fields
