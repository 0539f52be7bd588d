"""JSON schemas of the documents that --json prints.

The schemas are made from the types below, which tests compare with the documents.
"""

from typing import Any, Literal, NotRequired

from pydantic import TypeAdapter, create_model
from typing_extensions import TypedDict

from ropelab.experiments import NAMES, load
from ropelab.runs.errors import check_known

Row = dict[str, Any]
Tables = dict[str, list[Row]]


def document(name: str, /, **keys: Any) -> Any:
    """Return the type of a document that must have all these keys."""
    fields: dict[str, Any] = {
        key: (value_type, ...) for key, value_type in keys.items()
    }
    return create_model(name, **fields)


class Finding(TypedDict):
    """A finding of audit; codes keep their meaning (docs/audit.md)."""

    code: str
    level: Literal["error", "warn", "note"]
    says: str
    do: str


AUDIT_TABLES = document(
    "AuditTables",
    runtimes=list[Row],
    keys=list[Row],
    pairs=list[Row],
    context=list[Row],
    precision=list[Row],
    findings=list[Finding],
)
AUDITED = document(
    "AuditedFile",
    name=str,
    answer=str,
    length=int,
    tables=AUDIT_TABLES,
)


class Audit(TypedDict):
    experiment: Literal["audit"]
    files: list[AUDITED]  # type: ignore[valid-type]
    flags: NotRequired[list[str]]
    difference: NotRequired[list[Row]]
    draft: NotRequired[list[Row]]


EMISSION = document(
    "Emission",
    experiment=Literal["emit"],
    method=str,
    note=str,
    replaced=str,
    targets=list[Row],
)
CHECK = document(
    "Check",
    experiment=Literal["check"],
    target=str,
    answer=str,
    wrong=bool,
    fix=str,
    called=str,
    tables=Tables,
)
DOCTOR = document(
    "Doctor",
    experiment=Literal["doctor"],
    model=str,
    answer=str,
    broken=bool,
    cpu_s=float,
    peak_bytes=int,
    tables=Tables,
)
VECTORS = document("Vectors", experiment=Literal["vectors"], tables=Tables)
COMPARISON = document(
    "Comparison",
    experiment=Literal["compare"],
    answer=str,
    tables=Tables,
)
CATALOGUE = document("Catalogue", tables=Tables)
RUN = document(
    "Run",
    experiment=str,
    config=Row,
    answer=str,
    tables=Tables,
    run=str,
)

# The type of each command's document. All experiments have the type RUN.
SHAPES: dict[str, Any] = {
    "audit": Audit,
    "emit": EMISSION,
    "check": CHECK,
    "doctor": DOCTOR,
    "vectors": VECTORS,
    "compare": COMPARISON,
    "methods": CATALOGUE,
    "models": CATALOGUE,
}


def find_schema(command: str) -> dict[str, Any]:
    """Return the schema of a command's --json; InputError if it has none."""
    check_known("command with --json", command, (*SHAPES, *NAMES))
    schema = TypeAdapter(SHAPES.get(command, RUN)).json_schema()
    if command not in SHAPES:
        config = load(command).config.model_json_schema(mode="serialization")
        schema["$defs"] = config.pop("$defs", {})
        schema["properties"] |= {"experiment": {"const": command}, "config": config}
    return schema
