"""JSON schemas of what --json prints, made from types that tests compare with the output."""

from typing import (
    Any,
    Literal,
    NotRequired,  # typing's, from 3.12 on
)

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from ropelab.experiments import NAMES, load
from ropelab.runs.errors import known

Row = dict[str, Any]
Tables = dict[str, list[Row]]


class Finding(TypedDict):
    """A finding of audit; codes keep their meaning (docs/audit.md)."""

    code: str
    level: Literal["error", "warn", "note"]
    says: str
    do: str


class AuditTables(TypedDict):
    runtimes: list[Row]
    keys: list[Row]
    pairs: list[Row]
    context: list[Row]
    precision: list[Row]
    findings: list[Finding]


class AuditedFile(TypedDict):
    name: str
    answer: str
    length: int
    tables: AuditTables


class Audit(TypedDict):
    experiment: Literal["audit"]
    files: list[AuditedFile]
    difference: NotRequired[list[Row]]
    draft: NotRequired[list[Row]]


class Emission(TypedDict):
    experiment: Literal["emit"]
    method: str
    note: str
    replaced: str
    targets: list[Row]


class Check(TypedDict):
    experiment: Literal["check"]
    target: str
    answer: str
    wrong: bool
    fix: str
    tables: Tables


class Vectors(TypedDict):
    experiment: Literal["vectors"]
    tables: Tables


class Doctor(TypedDict):
    experiment: Literal["doctor"]
    model: str
    answer: str
    broken: bool
    cpu_s: float
    peak_bytes: int
    tables: Tables


class Catalogue(TypedDict):
    tables: Tables


class Comparison(TypedDict):
    experiment: Literal["compare"]
    answer: str
    tables: Tables


class Run(TypedDict):
    experiment: str
    config: Row
    answer: str
    tables: Tables
    run: str


SHAPES: dict[str, Any] = {
    "audit": Audit,
    "emit": Emission,
    "check": Check,
    "doctor": Doctor,
    "vectors": Vectors,
    "compare": Comparison,
    "methods": Catalogue,
    "models": Catalogue,
}


def schema_of(command: str) -> dict[str, Any]:
    """Return the schema of a command's --json; InputError if it has none."""
    known("command with --json", command, (*SHAPES, *NAMES))
    if command in SHAPES:
        return TypeAdapter(SHAPES[command]).json_schema()
    found = TypeAdapter(Run).json_schema()
    found["properties"]["experiment"] = {"const": command}
    config = load(command).config.model_json_schema(mode="serialization")
    found["$defs"] = config.pop("$defs", {})
    found["properties"]["config"] = config
    return found
