"""What a figure shows, in one line for its title, read off the same rows."""

from collections.abc import Mapping

import pandas as pd

from ropelab.runs.comparisons import and_rivals, not_told_from
from ropelab.runs.labels import AS_SHIPPED, WINDOW, row_labels
from ropelab.runs.tables import in_longest_context
from ropelab.show.figures.style import tokens_label

FAR_BEHIND = 0.3
"""Nats per byte above the best loss from which on a method is said not to read."""


def retrieval(
    table: pd.DataFrame, comparisons: pd.DataFrame, task: str, does: str, how: str
) -> str:
    """Which method finds most from twice the trained length back in the longest context."""
    table = in_longest_context(table)
    trained, context = table["train_len_tokens"].iloc[0], table["context_tokens"].max()
    distances = sorted(table["distance_tokens"].unique())
    at = min(distances, key=lambda distance: (abs(distance - 2 * trained), distance))
    rows = table[table["distance_tokens"] == at]
    means = rows.groupby(row_labels(rows), sort=False)["accuracy"].mean()
    best = str(means.idxmax())
    plain = f"; unscaled {means['unscaled']:.2f}" if "unscaled" in means.drop(best) else ""
    about = {"at_tokens": at, "context_tokens": context, "metric": f"{task}_accuracy"}
    rivals = [x for x in not_told_from(best, comparisons, about) if x in means.index]
    where = f"{tokens_label(at)} back in {tokens_label(context)} tokens"
    share = f"{means.max():.2f}{and_rivals(rivals)}{plain}"
    return f"From {where} {best} {does} best:\n{share} ({how})"


def against_window(rows: pd.DataFrame, how: str) -> str:
    """How many methods end below the sliding window, outside the noise."""
    last = rows[rows["at_tokens"] == rows["at_tokens"].max()]
    better = [str(name) for name in last.loc[last["ci_high"] < 0, "method_a"]]
    end = tokens_label(rows["at_tokens"].max())
    if not better:
        return f"At {end} no method reads better than a sliding window ({how})"
    which = f"{better[0]} reads" if len(better) == 1 else f"{len(better)} of {len(last)} read"
    return f"At {end} {which} better than a sliding window ({how})"


def reading_more(table: pd.DataFrame, how: str) -> str:
    """Which method gains most by reading the longest context instead of the trained length.

    Of those that read at all: what a method gains that is far behind the best says nothing.
    """
    trained, longest = table["train_len_tokens"].iloc[0], table["context_tokens"].max()
    methods = table[table["method"] != WINDOW]
    means = methods.groupby([row_labels(methods), "context_tokens"])["nll_nats_per_byte"].mean()
    wide = means.unstack()
    if trained not in wide or longest == trained:
        return f"Loss of the same last tokens by what was read before them ({how})"
    readable = wide[wide[longest] <= wide[longest].min() + FAR_BEHIND]
    gains = (readable[longest] - readable[trained]).dropna()
    span = f"{tokens_label(longest)} instead of {tokens_label(trained)}"
    helped = gains[gains < 0].sort_values()
    if helped.empty:
        return f"Reading {span} helps no method with the same last tokens\n({how})"
    return (
        f"Reading {span} helps {helped.index[0]} most: {helped.iloc[0]:+.3f} nats per byte\n({how})"
    )


def tax(losses: Mapping[str, pd.Series], trained: int, longest: int) -> str:
    """Which scaled method costs least inside the trained length, and which ends lowest."""
    scaled = {
        name: loss
        for name, loss in losses.items()
        if name not in ("unscaled", AS_SHIPPED, WINDOW) and {trained, longest} <= set(loss.index)
    }
    if not scaled:
        return "What a method costs where it is not needed, and what it brings"
    cheapest = min(scaled, key=lambda name: scaled[name][trained])
    lowest = min(scaled, key=lambda name: scaled[name][longest])
    inside, beyond = tokens_label(trained), tokens_label(longest)
    if cheapest == lowest:
        return f"{lowest} costs least at {inside} and reads {beyond} best"
    return f"{cheapest} costs least at {inside}, {lowest} reads {beyond} best"


def fine_tuning(before: Mapping[str, float], after: Mapping[str, float], is_loss: bool) -> str:
    """How many methods fine-tuning brings forward, and which then stands best."""
    gained = [name for name in after if (after[name] < before[name]) == is_loss]
    best = min(after, key=lambda name: after[name] if is_loss else -after[name])
    return f"Fine-tuning helps {len(gained)} of {len(after)} methods; {best} then stands best"


def reads_farthest(table: pd.DataFrame, labels: pd.Series) -> str:
    """Which encoding has the lowest loss in the last bucket of the text; labels: by encoding."""
    ok = table[table["status"] == "ok"]
    end = ok["bucket_end_tokens"].max()
    losses = ok[ok["bucket_end_tokens"] == end].groupby("encoding")["nll_nats_per_byte"].mean()
    return (
        f"Near {tokens_label(end)} tokens {labels[losses.idxmin()]} reads best: "
        f"{losses.min():.2f} nats per byte"
    )


def copies_farthest(wide: pd.DataFrame) -> str:
    """Which encoding copies most from the longest distance; columns: context, distance."""
    last = wide.iloc[:, -1].dropna()
    return f"From {wide.columns[-1][1]} tokens back {last.idxmax()} copies best: {last.max():.2f}"
