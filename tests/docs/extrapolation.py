"""Entries for the lab on extrapolation."""

from collections.abc import Iterator

import pandas as pd

from ropelab.labels import row_labels
from tests.docs.entry import Entry
from tests.docs.reference import config_of, newest, table

TIMES = (0.5, 1, 1.5, 2, 3)
"""Distances in trained lengths, in the table of methods."""


def headline(name: str) -> pd.DataFrame:
    """A table of the run on all methods, zero-shot, with a label for every row."""
    found = table(newest("extrapolate", "hidden_accuracy"), name)
    if "method" not in found:
        return found
    found = found[found["arm"] == "zero_shot"]
    return found.assign(label=row_labels(found))


def lengths() -> tuple[int, int]:
    """The trained and the tested length."""
    config = config_of(newest("extrapolate", "hidden_accuracy") / "manifest.json")
    return int(config["train_len"]), int(config["test_len"])


def found_again(task: str, times: float) -> pd.Series:
    """Accuracy by label, that far back, in the whole tested length; means over seeds."""
    train_len, test_len = lengths()
    rows = headline(f"{task}_accuracy")
    rows = rows[
        (rows["context_tokens"] == test_len) & (rows["distance_tokens"] == train_len * times)
    ]
    return rows.groupby("label", sort=False)["accuracy"].mean()


def text_loss(end: float) -> pd.Series:
    """Loss by label in the bucket that ends there, in trained lengths; means over seeds."""
    rows = headline("text_nll")
    rows = rows[rows["bucket_end_tokens"] == lengths()[0] * end]
    return rows.groupby("label", sort=False)["nll_nats_per_byte"].mean()


def last_window(context: float) -> str:
    """Loss of the model as trained on the same last bytes, after so many trained lengths."""
    rows = headline("last_window")
    rows = rows[(rows["label"] == "unscaled") & (rows["context_tokens"] == lengths()[0] * context)]
    return f"{rows['nll_nats_per_byte'].mean():.3f}"


def method_row(label: str) -> list[str]:
    """Copying by distance, finding at twice the trained length, text inside it and at the end."""
    copies = [f"{found_again('copy', times)[label]:.2f}" for times in TIMES]
    found = f"{found_again('hidden', 2)[label]:.2f}"
    return [*copies, found, f"{text_loss(1)[label]:.3f}", f"{text_loss(4)[label]:.3f}"]


def best_copy(times: float) -> list[str]:
    """Who copies best that far back, and how much."""
    accuracy = found_again("copy", times)
    return [str(accuracy.idxmax()), f"{accuracy.max():.2f}"]


def text_verdict() -> list[str]:
    """The best method at the end of text, its loss, the window's, their difference, interval,
    and the verdict.
    """
    losses = text_loss(4)
    best = str(losses.drop("sliding_window").idxmin())
    rows = headline("comparisons")
    rows = rows[(rows["metric"] == "nll_bucket") & (rows["at_tokens"] == lengths()[1])]
    row = rows[(rows["method_a"] == best) & (rows["method_b"] == "sliding_window")].iloc[0]
    numbers = (losses[best], losses["sliding_window"], row.difference, row.ci_low, row.ci_high)
    return [best, *(f"{number:.3f}" for number in numbers), str(row.verdict)]


def told_apart() -> list[str]:
    """How many comparisons tell two rows apart, of how many."""
    verdicts = headline("comparisons")["verdict"]
    return [str((verdicts != "~").sum()), str(len(verdicts))]


def matched(times: float) -> list[str]:
    """Copying without a model, by the last 1, 2 and 3 tokens, that far back."""
    train_len, test_len = lengths()
    rows = headline("matched")
    rows = rows[(rows["task"] == "copy") & (rows["context_tokens"] == test_len)]
    rows = rows[rows["distance_tokens"] == train_len * times].set_index("n_gram_tokens")
    return [f"{rows.loc[n, 'accuracy']:.2f}" for n in (1, 2, 3)]


def extrapolate_entries() -> Iterator[Entry]:
    """README and the section on extrapolation of the findings."""
    here = "docs/findings.md"
    yield Entry(
        here,
        "cost {} nats per byte after 512 bytes of context, {} after 1024 and {} after 2048",
        lambda: [last_window(context) for context in (0.25, 0.5, 1)],
    )
    for label in dict.fromkeys(headline("text_nll")["label"]):
        if label == "sliding_window":
            row = "| `sliding_window` | – | – | – | – | – | – | {} | {} |"
            yield Entry(
                here, row, lambda: [f"{text_loss(at)['sliding_window']:.3f}" for at in (1, 4)]
            )
        else:
            row = f"| `{label}` |" + " {} |" * 8
            yield Entry(here, row, lambda label=label: method_row(label))
    for file in (here, "README.md"):
        yield Entry(
            file,
            "From 4096 tokens back `{}` copies most ({} of the symbols; unscaled {}, `pi ×4` {})",
            lambda: [
                *best_copy(2),
                *(f"{found_again('copy', 2)[m]:.2f}" for m in ("unscaled", "pi ×4")),
            ],
        )
        yield Entry(
            file,
            "At the end of 8192 bytes of text the best method, `{}`, has {} nats per byte, the "
            "sliding window of 2048 has {}; the difference is {} [{}, {}], the better one `{}`.",
            text_verdict,
        )
    yield Entry(here, "From 6144 tokens back `{}` copies most ({}).", lambda: best_copy(3))
    yield Entry(here, "{} of {} comparisons tell two rows apart", told_apart)
    yield Entry(
        here,
        "the last one, two and three tokens find {}, {} and {} of the copies from 6144 back",
        lambda: matched(3),
    )
