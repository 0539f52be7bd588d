"""Read one document with the chosen runtimes and make its tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ropelab.audit.audit import context, findings, precision, tables
from ropelab.audit.audit.case import Finding
from ropelab.audit.runtimes import registry
from ropelab.audit.runtimes.document import Document, load
from ropelab.audit.runtimes.flags import Flags
from ropelab.audit.runtimes.registry import Reading
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.errors import InputError

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Options:
    """What was asked: runtimes by name (all if empty), a length in tokens, flags of the runtime,
    and the model's number format (the file's own if empty).
    """

    runtimes: tuple[str, ...] = ()
    length: int | None = None
    flags: Flags = field(default_factory=Flags)
    dtype: str = ""


@dataclass(frozen=True)
class Audit:
    """A document as the runtimes read it, with the tables and findings made from that."""

    document: Document
    readings: tuple[Reading, ...]
    reference: Reading
    length: int
    tables: Mapping[str, Rows]
    findings: tuple[Finding, ...]
    sentence: str

    def worst(self) -> str:
        """The highest level among the findings, empty without any."""
        levels = {finding.level for finding in self.findings}
        return next((level for level in ("error", "warn", "note") if level in levels), "")


def audit(document: Document, options: Options | None = None) -> Audit:
    """All tables for one document.

    Raises:
        InputError: an unknown runtime or format, or a configuration that no runtime makes sense of.
    """
    options = options or Options()
    runtimes = registry.chosen(options.runtimes, document.kind)
    dtype = precision.model_format(document.config, options.dtype)
    flags = options.flags
    readings = tuple(
        registry.read(r, flags.applied(r.name, document.config), flags.settings) for r in runtimes
    )
    reference = reference_of(readings)
    if reference.main is None:
        raise InputError(f"{document.name}: {reference.problem or 'no runtime reads it'}")
    length = options.length or longest_claim(reference.main)
    rows = {
        "runtimes": tables.runtimes(readings, reference, length),
        "keys": tables.keys(document, readings),
        "pairs": tables.pairs(readings, reference, length),
        "context": context.rows(reference, length),
        "precision": precision.rows(readings, length, dtype),
    }
    found = findings.collect(document, readings, reference, length, options.length)
    rows["findings"] = [finding.row() for finding in found]
    sentence = tables.sentence(document, readings, reference)
    return Audit(document, readings, reference, length, rows, found, sentence)


def reference_of(readings: tuple[Reading, ...]) -> Reading:
    """transformers 5 if it reads the file, else the first that does, else the first."""
    read = [reading for reading in readings if reading.main is not None]
    named = [reading for reading in read if reading.runtime.name == registry.REFERENCE]
    return (named or read or list(readings))[0]


def longest_claim(spec: RopeSpec) -> int:
    """The length to look at when none is given."""
    return spec.claimed_len or spec.trained_len


def compare_files(one: Audit, other: Audit) -> Rows:
    """Where two files differ: keys, and what each runtime makes of that."""
    mine = {row["key"]: row["value"] for row in one.tables["keys"]}
    theirs = {row["key"]: row["value"] for row in other.tables["keys"]}
    rows = [
        {"what": key, "first": mine.get(key, "absent"), "second": theirs.get(key, "absent")}
        for key in dict.fromkeys((*mine, *theirs))
        if mine.get(key) != theirs.get(key)
    ]
    return rows + _runtime_differences(one, other)


def _runtime_differences(one: Audit, other: Audit) -> Rows:
    rows = []
    second = {(row["runtime"], row["layers"]): row for row in other.tables["runtimes"]}
    for row in one.tables["runtimes"]:
        match = second.get((row["runtime"], row["layers"]), {})
        for name in ("base", "rotary_dim", "method", "attention_factor", "claimed_tokens"):
            if row.get(name) != match.get(name):
                what = f"{row['runtime']}, {row['layers']}: {name}"
                rows.append({"what": what, "first": row.get(name), "second": match.get(name)})
    return rows


def audit_file(source: str, **options: Any) -> Audit:
    """The audit of a file, for notebooks: `audit_file("config.json").tables["runtimes"]`.

    Args:
        source: a path, a model folder, or `-`.
        options: the fields of Options.
    Raises:
        InputError: as `load` and `audit`.
    """
    return audit(load(source), Options(**options))
