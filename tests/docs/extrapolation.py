"""Entries for the lab on extrapolation."""

from collections.abc import Iterator

import pandas as pd

from ropelab.claims.trained.stored import in_context
from ropelab.runs import comparisons
from ropelab.runs.labels import row_labels
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


def found_again(task: str, times: float, context: float = 4) -> pd.Series:
    """Accuracy by label, that far back in a context, in trained lengths; means over seeds."""
    train_len, _ = lengths()
    rows = headline(f"{task}_accuracy")
    rows = rows[rows["context_tokens"] == train_len * context]
    rows = rows[rows["distance_tokens"] == train_len * times]
    return rows.groupby("label", sort=False)["accuracy"].mean()


def compared(metric: str, at: int, a: str, b: str) -> pd.Series:
    """The comparison of two rows there, in the longest context; the difference is a - b."""
    rows = headline("comparisons")
    rows = in_context(rows[(rows["metric"] == metric) & (rows["at_tokens"] == at)], "at_tokens")
    pair = rows[rows["method_a"].isin([a, b]) & rows["method_b"].isin([a, b])].iloc[0]
    if pair["method_a"] == a:
        return pair
    turned = {"difference": -pair.difference, "ci_low": -pair.ci_high, "ci_high": -pair.ci_low}
    return pair.to_frame().T.assign(**turned).iloc[0]


def not_told_from(metric: str, at: int, best: str) -> list[str]:
    """Which rows cannot be told from the best one there."""
    about = {"metric": metric, "at_tokens": at, "context_tokens": lengths()[1]}
    return comparisons.not_told_from(best, headline("comparisons"), about)


def copies_inside() -> list[str]:
    """Copying of the worst and the best seed from up to half of the trained length back in it."""
    train_len, _ = lengths()
    rows = headline("copy_accuracy")
    rows = rows[(rows["label"] == "unscaled") & (rows["context_tokens"] == train_len)]
    rows = rows[rows["distance_tokens"] <= train_len // 2]
    by_seed = rows.groupby("seed")["accuracy"].mean()
    return [f"{by_seed.min():.3f}", f"{by_seed.max():.3f}"]


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
    """How many comparisons tell two rows apart, of how many; the same without those of PI."""
    rows = headline("comparisons")
    others = rows[(rows[["method_a", "method_b"]] != "pi ×4").all(axis=1)]
    return [str(n) for some in (rows, others) for n in ((some["verdict"] != "~").sum(), len(some))]


def by_kind(kind: str) -> list[str]:
    """How many documents of a kind, and their loss as contexts grow; means over seeds."""
    rows = headline("context_by_kind")
    rows = rows[(rows["kind"] == kind) & (rows["label"] == "unscaled")]
    means = rows.groupby("context_tokens")["nll_nats_per_byte"].mean()
    return [str(rows["documents"].iloc[0]), *(f"{value:.3f}" for value in means)]


def dynamic_text() -> list[str]:
    """How much better dynamic NTK reads than NTK near twice the trained length, its interval."""
    row = compared("nll_bucket", 2 * lengths()[0], "ntk ×4", "dynamic_ntk")
    return [f"{value:.3f}" for value in (row.difference, row.ci_low, row.ci_high)]


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
    yield Entry(
        here,
        "By kind of document: {} of tests {}, {}, {}; {} of code {}, {}, {}.",
        lambda: [*by_kind("tests"), *by_kind("code")],
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
            "From 4096 tokens back `{}` copies most ({} of the symbols; unscaled {}, `pi ×4` {}); "
            "`{}` cannot be told from it.",
            lambda: [
                *best_copy(2),
                *(f"{found_again('copy', 2)[m]:.2f}" for m in ("unscaled", "pi ×4")),
                *not_told_from("copy_accuracy", 4096, best_copy(2)[0]),
            ],
        )
        yield Entry(
            file,
            "At the end of 8192 bytes of text the best method, `{}`, has {} nats per byte, the "
            "sliding window of 2048 has {}; the difference is {} [{}, {}], in favour of `{}`.",
            text_verdict,
        )
    yield Entry(
        here,
        "each copies {} to {} of the symbols from up to 1024 tokens back in 2048.",
        copies_inside,
    )
    yield Entry(
        here,
        "From 6144 tokens back `{}` copies most ({}), and cannot be told from `{}`; symbols in "
        "text `yarn ×4` finds better from there ({} against {}).",
        lambda: [
            *best_copy(3),
            *not_told_from("copy_accuracy", 6144, best_copy(3)[0]),
            *(f"{found_again('hidden', 3)[method]:.2f}" for method in ("yarn ×4", "ntk ×8")),
        ],
    )
    yield Entry(
        here,
        "near 4096 bytes it reads better than that by {} [{}, {}], and from 2048 back in 4096 "
        "tokens it copies {} (unscaled {}).",
        lambda: [
            *dynamic_text(),
            *(f"{found_again('copy', 1, 2)[method]:.2f}" for method in ("dynamic_ntk", "unscaled")),
        ],
    )
    yield Entry(
        here,
        "{} of {} comparisons tell two rows apart, at a false discovery rate of 5 %; {} of {} of "
        "those without `pi ×4`.",
        told_apart,
    )
    yield Entry(
        here,
        "the last one, two and three tokens find {}, {} and {} of the copies from 6144 back",
        lambda: matched(3),
    )
