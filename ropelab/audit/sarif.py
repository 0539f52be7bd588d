"""Audits in SARIF 2.1.0, the format of results of code scanning."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ropelab.audit.audited import FileAudit
from ropelab.audit.finding import CODES
from ropelab.readers.document import Document

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
# The levels of SARIF, by the level of a finding, and by the first letter of a finding's
# code.
LEVELS = {"error": "error", "warn": "warning", "note": "note"}
LEVELS_OF_CODES = {"E": "error", "W": "warning", "N": "note"}
# The title of each code.
TITLES: dict[str, str] = {code: row["title"] for code, row in CODES.items()}


def write_sarif(audits: Sequence[FileAudit], version: str) -> dict[str, Any]:
    """Return one run of the tool over all files."""
    rules = []
    for code, title in TITLES.items():
        first_letter = code[0]
        rule = {
            "id": code,
            "shortDescription": {"text": title},
            "defaultConfiguration": {"level": LEVELS_OF_CODES[first_letter]},
        }
        rules.append(rule)

    order = list(TITLES)
    results = []
    for audit in audits:
        for finding in audit.findings:
            text = finding.says
            if finding.do:
                text += f"; fix: {finding.do}"
            result = {
                "ruleId": finding.code,
                "ruleIndex": order.index(finding.code),
                "level": LEVELS[finding.level],
                "message": {"text": text},
                "locations": [{"physicalLocation": find_location(audit.document)}],
            }
            results.append(result)
    driver = {"name": "ropelab", "version": version, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def find_location(document: Document) -> dict[str, Any]:
    """Return the URI of the file, and the line at which its rotary keys begin."""
    path = Path(document.name)
    # A relative reference may not begin with a slash, so that absolute paths become URIs.
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    line = 1
    if document.kind != "gguf" and path.is_file():
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        for number, text in enumerate(lines, 1):
            if '"rope_' in text:
                line = number
                break
    return {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}
