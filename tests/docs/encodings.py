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


def by_context(encoding: str) -> list[str]:
    """Text loss after each context inside the trained length, over seeds."""
    rows = table(newest("encodings", "quality"), "last_window").query(f"encoding == '{encoding}'")
    inside = rows[rows["context_tokens"] <= rows["train_len_tokens"]]
    means = inside.groupby("context_tokens")["nll_nats_per_byte"].mean()
    return [f"{value:.3f}" for value in means]


def encodings_entries() -> Iterator[Entry]:
    """What context is worth, and the table of the section."""
    yield Entry(
        "docs/findings.md",
        "bytes cost RoPE {}, {} and {} nats per byte after 32, 64 and 128 tokens; NoPE, which does "
        "not use it, {}, {} and {}.",
        lambda: [*by_context("rope"), *by_context("nope")],
    )
    for label, encoding in SHOWN.items():
        yield Entry(
            "docs/findings.md",
            f"| {label} |" + " {} |" * 4,
            lambda encoding=encoding: values(encoding),
        )
