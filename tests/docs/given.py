"""Entries for the models that were given: SmolLM2."""

from collections.abc import Iterator

import pandas as pd

from ropelab.runs.labels import WINDOW, row_labels
from tests.docs.entry import Entry
from tests.docs.reference import newest, only, table

FINDINGS = "docs/findings.md"
SHIPPED = "as_shipped"
ROWS = ("pi ×2", "ntk ×4", "llama3 ×2", "ntk_by_parts ×2", "yarn ×2")
"""Methods in the order of the findings' table."""


def text_loss(label: str) -> str:
    """Nats per byte in the last bucket."""
    rows = table(newest("extrapolate", "recommendation"), "text_nll")
    rows = rows[pd.Series(row_labels(rows), index=rows.index) == label]
    last = rows[rows["bucket_end_tokens"] == rows["bucket_end_tokens"].max()]
    return f"{only(last, 'nll_nats_per_byte'):.3f}"


def inside(label: str) -> str:
    """Nats per byte of the last tokens after the trained length."""
    rows = table(newest("extrapolate", "recommendation"), "last_window")
    rows = rows[pd.Series(row_labels(rows), index=rows.index) == label]
    rows = rows[rows["context_tokens"] == rows["train_len_tokens"]]
    return f"{only(rows, 'nll_nats_per_byte'):.3f}"


def by_context() -> list[str]:
    """Nats per byte of the last tokens after each context inside the trained length, as shipped."""
    rows = table(newest("extrapolate", "recommendation"), "last_window")
    rows = rows[pd.Series(row_labels(rows), index=rows.index) == SHIPPED]
    rows = rows[rows["context_tokens"] <= rows["train_len_tokens"]].sort_values("context_tokens")
    return [f"{value:.3f}" for value in rows["nll_nats_per_byte"]]


def advised() -> pd.DataFrame:
    """What is said of text."""
    return table(newest("extrapolate", "recommendation"), "recommendation").query("task == 'text'")


def given_entries() -> Iterator[Entry]:
    """README and the findings on SmolLM2."""
    yield Entry(
        "README.md",
        "{} nats per byte as shipped, {} with `yarn ×2`, {} with a sliding window of its "
        "8192 tokens",
        lambda: [text_loss(label) for label in (SHIPPED, "yarn ×2", WINDOW)],
    )
    yield Entry(
        FINDINGS,
        "the same last tokens cost it {}, {} and {} nats per byte after 2048, 4096 and 8192 tokens",
        by_context,
    )
    yield Entry(
        FINDINGS, "| `as_shipped` | {} | {} |", lambda: [inside(SHIPPED), text_loss(SHIPPED)]
    )
    for label in ROWS:
        yield Entry(
            FINDINGS,
            f"| `{label.replace(' ×', '(factor=')})` | {{}} | {{}} |",
            lambda label=label: [inside(label), text_loss(label)],
        )
    yield Entry(FINDINGS, "| `sliding_window` | not asked | {} |", lambda: [text_loss(WINDOW)])
    yield Entry(
        FINDINGS,
        "YaRN against the model as shipped: {} [{}, {}] nats per byte.",
        lambda: [
            f"{only(advised(), column):.2f}" for column in ("difference", "ci_low", "ci_high")
        ],
    )
