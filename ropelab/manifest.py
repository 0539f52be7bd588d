"""What the manifest of a finished run has to hold, so that whoever reads one can rely on it."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import StringConstraints

# Names become paths: they stay inside the run's folder.
TableName = Annotated[str, StringConstraints(pattern=r"^\w[\w-]*$")]
FigureName = Annotated[str, StringConstraints(pattern=r"^figures/\w[\w.+-]*$")]


@dataclass
class Table:
    """A table: how many rows, its columns with their units, and the hash of its file."""

    rows: int
    columns: dict[str, str | None]
    sha256: str


@dataclass
class Manifest:
    """What made the numbers, and what they say."""

    schema: int
    experiment: str
    version: int
    config: dict[str, Any]
    inputs: dict[str, str]
    question: str
    cannot_show: str
    answer: str
    summary: list[dict[str, Any]]
    command: str
    start: str
    seconds: float
    packages: dict[str, str | None]
    commit: str | None
    tables: dict[TableName, Table]
    figures: list[FigureName] | None
