"""Entries for the lab on bases in training."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from tests.docs.entry import Entry
from tests.docs.reference import newest, table

FINDINGS = "docs/findings.md"
SMALL = (30.0, 300.0)


def here() -> Path:
    """The run with most seeds."""
    return newest("base-empirical", "predictions")


def prediction(task: str, base: float) -> pd.Series:
    """What is predicted of one base and task, and what was found."""
    rows = table(here(), "predictions")
    return rows[(rows["task"] == task) & (rows["base"] == base)].iloc[0]


def by_distance(task: str, base: float, column: str = "accuracy") -> list[str]:
    """A column by distance, nearest first, over seeds."""
    rows = table(here(), f"{task}_accuracy")
    means = rows[rows["base"] == base].groupby("distance_tokens")[column].mean()
    return [f"{value:.2f}" for value in means]


def failing(task: str) -> list[str]:
    """Under both small bases: distances that fail beyond the prediction, of all; and before."""
    rows = [prediction(task, base) for base in SMALL]
    return [
        str(sum(int(row[f"{what}_{side}"]) for row in rows))
        for side in ("beyond", "before")
        for what in ("failing", "distances")
    ]


def text_worse() -> list[str]:
    """Text loss against the largest base, under both small ones, with intervals."""
    columns = [f"text_{name}_nats_per_byte" for name in ("difference", "ci_low", "ci_high")]
    return [f"{prediction('copy', base)[column]:.3f}" for base in SMALL for column in columns]


def read(base: float) -> list[str]:
    """Nats per byte in the last three buckets of the window, over seeds."""
    rows = table(here(), "text_nll")
    means = rows[rows["base"] == base].groupby("bucket_end_tokens")["nll_nats_per_byte"].mean()
    return [f"{value:.3f}" for value in means.iloc[-3:]]


def base_empirical_entries() -> Iterator[Entry]:
    """The section on bases in training of the findings."""
    for base in (*SMALL, 10000.0):
        for task in ("copy", "recall"):
            row = f"| {task}, base {base:g} |" + " {} |" * 6
            yield Entry(FINDINGS, row, lambda task=task, base=base: by_distance(task, base))
        yield Entry(
            FINDINGS,
            f"| the sum, base {base:g} |" + " {} |" * 6,
            lambda base=base: by_distance("copy", base, "cosine_sum"),
        )
    yield Entry(
        FINDINGS,
        "With base 30 the sum is negative first at {} tokens, with base 300 at {}.",
        lambda: [
            f"{prediction('copy', base)['first_failing_position_tokens']:.0f}" for base in SMALL
        ],
    )
    yield Entry(
        FINDINGS,
        "copying fails (below one half) at {} of {} distances, looking up at {} of {}; before it, "
        "where nothing is predicted to fail, at {} of {} and {} of {}.",
        lambda: [
            value
            for at in (slice(0, 2), slice(2, 4))
            for task in ("copy", "recall")
            for value in failing(task)[at]
        ],
    )
    yield Entry(
        FINDINGS,
        "by {} [{}, {}] with base 30 and {} [{}, {}] with base 300",
        text_worse,
    )
    yield Entry(
        FINDINGS,
        "base 10000 read at {}, {} and {} nats per byte up to 64, 128 and 256 tokens",
        lambda: read(10000.0),
    )
