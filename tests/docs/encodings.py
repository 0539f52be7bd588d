"""Entries for the section on encodings."""

from collections.abc import Iterator

from tests.docs.entry import Entry
from tests.docs.reference import newest, table

SHOWN = {
    "ALiBi": "alibi",
    "FIRE": "fire",
    "Kerple (log)": "kerple_log",
    "Transformer-XL": "transformer_xl",
    "RoPE": "rope",
    "T5": "t5",
    "Shaw": "shaw",
}


def values(encoding: str) -> list[str]:
    """Copying and text loss at the trained length and at four times that, over seeds."""
    rows = table(newest("encodings", "quality"), "quality").query(f"encoding == '{encoding}'")
    wide = rows.pivot(index="metric", columns="times_trained_len", values="value")
    copies, losses = wide.loc["copy accuracy"], wide.loc["text loss"]
    return [*(f"{copies[times]:.2f}" for times in (1, 4)), *(f"{losses[t]:.3f}" for t in (1, 4))]


def encodings_entries() -> Iterator[Entry]:
    """The table of the section."""
    for label, encoding in SHOWN.items():
        yield Entry(
            "docs/findings.md",
            f"| {label} |" + " {} |" * 4,
            lambda encoding=encoding: values(encoding),
        )
