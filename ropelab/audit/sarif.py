"""Audits in SARIF 2.1.0, as code scanning reads it; and the codes of findings."""

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from ropelab.audit.audited import Audit

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "warn": "warning", "note": "note"}
OF_CODE = {"E": "error", "W": "warning", "N": "note"}
CODES: dict[str, str] = tomllib.loads(
    (files("ropelab.audit") / "codes.toml").read_text(encoding="utf-8")
)


def as_sarif(audits: Sequence[Audit], version: str) -> dict[str, Any]:
    """Return one run of the tool over all files."""
    rules = [
        {
            "id": code,
            "shortDescription": {"text": says},
            "defaultConfiguration": {"level": OF_CODE[code[0]]},
        }
        for code, says in CODES.items()
    ]
    results = [
        {
            "ruleId": finding.code,
            "ruleIndex": list(CODES).index(finding.code),
            "level": LEVELS[finding.level],
            "message": {"text": f"{finding.says}{f'; fix: {finding.do}' if finding.do else ''}"},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": audit.document.name}}}],
        }
        for audit in audits
        for finding in audit.findings
    ]
    driver = {"name": "ropelab", "version": version, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
