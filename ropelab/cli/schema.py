"""JSON schemas of what --json prints, made from types that tests compare with the
output.
"""

from typing import Any, Literal, NotRequired

from pydantic import TypeAdapter, create_model
from typing_extensions import TypedDict

from ropelab.experiments import NAMES, load
from ropelab.runs.errors import known

Row = dict[str, Any]
Tables = dict[str, list[Row]]


def document(name: str, /, **keys: Any) -> Any:
    """Return the type of a document with these keys, each of which it must have."""
    fields: dict[str, Any] = {key: (kind, ...) for key, kind in keys.items()}
    return create_model(name, **fields)


class Finding(TypedDict):
    """A finding of audit; codes keep their meaning (docs/audit.md)."""

    code: str
    level: Literal["error", "warn", "note"]
    says: str
    do: str


_ROWS = dict.fromkeys(("runtimes", "keys", "pairs", "context", "precision"), list[Row])
AUDIT_TABLES = document("AuditTables", **_ROWS, findings=list[Finding])
AUDITED = document("AuditedFile", name=str, answer=str, length=int, tables=AUDIT_TABLES)


class Audit(TypedDict):
    experiment: Literal["audit"]
    files: list[AUDITED]  # type: ignore[valid-type]
    flags: NotRequired[list[str]]
    difference: NotRequired[list[Row]]
    draft: NotRequired[list[Row]]


_CHECKED = {"target": str, "answer": str, "wrong": bool, "fix": str, "called": str}
_EXAMINED = {
    "model": str,
    "answer": str,
    "broken": bool,
    "cpu_s": float,
    "peak_bytes": int,
}
_WRITTEN = {"method": str, "note": str, "replaced": str, "targets": list[Row]}
CATALOGUE = document("Catalogue", tables=Tables)
RUN = document("Run", experiment=str, config=Row, answer=str, tables=Tables, run=str)

SHAPES: dict[str, Any] = {
    "audit": Audit,
    "emit": document("Emission", experiment=Literal["emit"], **_WRITTEN),
    "check": document("Check", experiment=Literal["check"], **_CHECKED, tables=Tables),
    "doctor": document(
        "Doctor", experiment=Literal["doctor"], **_EXAMINED, tables=Tables
    ),
    "vectors": document("Vectors", experiment=Literal["vectors"], tables=Tables),
    "compare": document(
        "Comparison", experiment=Literal["compare"], answer=str, tables=Tables
    ),
    "methods": CATALOGUE,
    "models": CATALOGUE,
}


def schema_of(command: str) -> dict[str, Any]:
    """Return the schema of a command's --json; InputError if it has none."""
    known("command with --json", command, (*SHAPES, *NAMES))
    found = TypeAdapter(SHAPES.get(command, RUN)).json_schema()
    if command not in SHAPES:
        config = load(command).config.model_json_schema(mode="serialization")
        found["$defs"] = config.pop("$defs", {})
        found["properties"] |= {"experiment": {"const": command}, "config": config}
    return found
