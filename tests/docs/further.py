"""Entries for what else was asked of models trained at 2048: other lengths, fine-tuning."""

from collections.abc import Iterator

import pandas as pd

from ropelab.labels import method_label
from tests.docs.entry import Entry
from tests.docs.reference import table, titled

FINDINGS = "docs/findings.md"
TWICE = "Twice the trained length"
FINETUNED = "After fine-tuning at 8k"
PROSE = "Trained at 2k, read at 8k, on English prose (Django's documentation)"


def of(title: str, name: str, arm: str) -> pd.DataFrame:
    """The rows of an arm in a table of the run with that title, with a label for every row."""
    rows = table(titled("extrapolate", title), name)
    rows = rows[rows["arm"] == arm]
    pairs = zip(rows["method"], rows["factor"], strict=True)
    return rows.assign(label=[method_label(*pair) for pair in pairs])


def copied(title: str, label: str, back: int, context: int, arm: str = "zero_shot") -> str:
    """Accuracy of copying from `back` tokens in `context` tokens; mean over seeds."""
    rows = of(title, "copy_accuracy", arm)
    rows = rows[(rows["distance_tokens"] == back) & (rows["context_tokens"] == context)]
    return f"{rows[rows['label'] == label]['accuracy'].mean():.2f}"


def read(title: str, label: str, end: int, arm: str = "zero_shot") -> str:
    """Nats per byte in the bucket of text that ends there; mean over seeds."""
    rows = of(title, "text_nll", arm)
    rows = rows[(rows["bucket_end_tokens"] == end) & (rows["label"] == label)]
    return f"{rows['nll_nats_per_byte'].mean():.3f}"


def further_entries() -> Iterator[Entry]:
    """The tables of the findings."""
    for label in dict.fromkeys(of(TWICE, "text_nll", "zero_shot")["label"]):
        yield Entry(
            FINDINGS,
            f"| `{label}` at 2 L |" + " {} |" * 4,
            lambda label=label: [
                *(copied(TWICE, label, back, 4096) for back in (1024, 2048, 3072)),
                read(TWICE, label, 4096),
            ],
        )
    for label in dict.fromkeys(of(PROSE, "text_nll", "zero_shot")["label"]):
        yield Entry(
            FINDINGS,
            f"| `{label}` on prose |" + " {} |" * 5,
            lambda label=label: [
                *(copied(PROSE, label, back, 8192) for back in (1536, 4096, 6144)),
                *(read(PROSE, label, end) for end in (2048, 8192)),
            ],
        )
    for label in dict.fromkeys(of(FINETUNED, "text_nll", "finetuned")["label"]):
        yield Entry(
            FINDINGS,
            f"| `{label}` fine-tuned |" + " {} |" * 6,
            lambda label=label: finetuned_row(label),
        )

    yield Entry(
        FINDINGS,
        "the best method, `{}`, differs from it by {} [{}, {}] nats per byte.",
        best_finetuned,
    )
    yield Entry(
        FINDINGS,
        "context the same last ones cost {}, {} and {} nats per byte):",
        prose_by_context,
    )


def best_finetuned() -> list[str]:
    """The fine-tuned method that reads the end best, and how it differs from the window."""
    end = 8192
    rows = of(FINETUNED, "text_nll", "finetuned")
    losses = rows[rows["bucket_end_tokens"] == end].groupby("label")["nll_nats_per_byte"].mean()
    best = str(losses.idxmin())
    pairs = table(titled("extrapolate", FINETUNED), "comparisons")
    pairs = pairs[(pairs["metric"] == "nll_bucket") & (pairs["at_tokens"] == end)]
    pair = pairs[
        (pairs["method_a"] == f"{best} finetuned") & (pairs["method_b"] == "sliding_window")
    ].iloc[0]
    return [best, *(f"{value:.3f}" for value in (pair.difference, pair.ci_low, pair.ci_high))]


def prose_by_context() -> list[str]:
    """Loss of the models of prose on the same last bytes, by context; means over seeds."""
    rows = of(PROSE, "last_window", "zero_shot")
    rows = rows[(rows["label"] == "unscaled") & (rows["context_tokens"] <= 2048)]
    return [f"{loss:.3f}" for loss in rows.groupby("context_tokens")["nll_nats_per_byte"].mean()]


def finetuned_row(label: str) -> list[str]:
    """Copying from 2 L and 3 L back and text at the end of 4 L, before and after."""
    arms = ("zero_shot", "finetuned")
    copies = [copied(FINETUNED, label, back, 8192, arm) for back in (4096, 6144) for arm in arms]
    return [*copies, *(read(FINETUNED, label, 8192, arm) for arm in arms)]
