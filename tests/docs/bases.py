"""Entries for the lab on bases in training."""

from collections.abc import Iterator

from tests.docs.entry import Entry
from tests.docs.reference import newest, table


def predictions(task: str, base: float) -> list[str]:
    """Where the bound fails, accuracy there, the largest base's, the difference in text loss."""
    rows = table(newest("base-empirical", "predictions"), "predictions")
    row = rows[(rows["task"] == task) & (rows["base"] == base)].iloc[0]
    fails = f"{row['first_failing_position_tokens']:.0f}"
    found = (f"{row['accuracy']:.2f}", f"{row['reference_accuracy']:.2f}")
    return [fails, *found, f"{row['text_difference_nats_per_byte']:+.3f}"]


def copied(base: float, distance: int) -> str:
    """Accuracy of copying from so many tokens back, over seeds."""
    rows = table(newest("base-empirical", "predictions"), "copy_accuracy")
    rows = rows[(rows["base"] == base) & (rows["distance_tokens"] == distance)]
    return f"{rows['accuracy'].mean():.2f}"


def base_empirical_entries() -> Iterator[Entry]:
    """The section on bases in training of the findings."""
    for task in ("copy", "recall"):
        for base in (30.0, 300.0):
            row = f"| {task} | {base:g} |" + " {} |" * 4
            values = lambda task=task, base=base: predictions(task, base)  # noqa: E731
            yield Entry("docs/findings.md", row, values)
    yield Entry(
        "docs/findings.md",
        "With base 300 models still copy {} from 128 tokens back, and {} from 192;",
        lambda: [copied(300.0, 128), copied(300.0, 192)],
    )
