"""An audit as text: the sentence, findings worst first, keys, runtimes, context."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ropelab.audit.audit.run import Audit

Rows = Sequence[Mapping[str, Any]]


def lines(audit: Audit) -> Iterator[str]:
    """The whole report, line by line."""
    yield audit.sentence
    yield from audit.document.notes
    yield from section("findings", finding_lines(audit))
    yield from section("keys", table(key_rows(audit.tables["keys"])))
    title = f"runtimes at {audit.length} tokens"
    yield from section(title, table(runtime_rows(audit.tables["runtimes"])))
    yield from section("context", table(audit.tables["context"]))
    yield from section("precision", table(audit.tables["precision"]))


def section(title: str, body: Iterator[str]) -> Iterator[str]:
    """A title and its lines, nothing where there are none."""
    found = list(body)
    if found:
        yield ""
        yield title
        yield from (f"  {line}" for line in found)


def finding_lines(audit: Audit) -> Iterator[str]:
    """Two lines for a finding with advice, one without."""
    for finding in audit.findings:
        yield f"{finding.code} {finding.level}: {finding.says}"
        if finding.do:
            yield f"    instead: {finding.do}"


def key_rows(rows: Rows) -> list[dict[str, Any]]:
    """Keys with their status summed up over runtimes."""
    return [
        {
            "key": row["key"],
            "value": row["value"],
            "does": row["does"],
            "status": summed(row["status"]),
        }
        for row in rows
    ]


def summed(status: Mapping[str, str]) -> str:
    """'used' where all agree, else the counts and who ignores the key if they are few."""
    counts = Counter(status.values())
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{word} {count}" for word, count in counts.most_common())


def runtime_rows(rows: Rows) -> list[dict[str, Any]]:
    """The columns that fit on a line."""
    return [
        {
            "runtime": f"{row['runtime']} {row['version']}",
            "layers": row["layers"],
            "base": row.get("base"),
            "width": row.get("rotary_dim"),
            "kept/blended/divided": pair_counts(row),
            "logits x": row.get("logit_multiplier"),
            "claims": row.get("claimed_tokens"),
            "ratio": row.get("largest_ratio"),
            "off from": row.get("first_off_tokens"),
            "reader": row["problem"] or row["proof"],
        }
        for row in rows
    ]


def pair_counts(row: Mapping[str, Any]) -> str:
    """31/4/29."""
    if "pairs_kept" not in row:
        return "-"
    return "/".join(str(row[f"pairs_{role}"]) for role in ("kept", "blended", "divided"))


def table(rows: Rows) -> Iterator[str]:
    """Rows in columns: numbers to four digits, missing values as a dash."""
    if not rows:
        return
    names = list(rows[0])
    cells = [[shown(row.get(name)) for name in names] for row in rows]
    heads = [name.replace("_", " ") for name in names]
    widths = [max(len(c) for c in column) for column in zip(heads, *cells, strict=True)]
    for row in (heads, *cells):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()


def shown(value: Any) -> str:
    """A value for reading."""
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.5g}"
    return str(value)
