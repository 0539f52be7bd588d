"""The answer in words and the short table, both from the tables alone.

Sentences begin with the kind of evidence they rest on; the short table is of the trained models.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ropelab.experiments.frequencies.plan import KEPT
from ropelab.experiments.frequencies.tables import COPY, NEARER, TEXT
from ropelab.runs.comparisons import said
from ropelab.runs.labels import roughly
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import LEARNED


def answer(tables: Tables) -> str:
    """What one token changes, what was learned with each scheme, and which bands are missed."""
    return " ".join((*_arithmetic(tables["representable"]), *_trained(tables), *_bands(tables)))


def _arithmetic(signals: pd.DataFrame) -> Iterator[str]:
    random = signals[(signals["vectors"] == "random") & (signals["score_step"] > 0)]
    if random.empty:
        return
    first = random.iloc[0]["scheme"]
    weakest = random.sort_values("score_step").iloc[0]["scheme"]
    moved = " and ".join(
        _moved(random[random["scheme"] == scheme]) for scheme in dict.fromkeys((first, weakest))
    )
    yield f"Arithmetic: one token on, a score of random vectors changes by {moved}."
    equal = signals[
        (signals["vectors"] == "aligned at 0")
        & (signals["format"] == "float32")
        & (signals["unchanged_fraction"] == 1)
        & (signals["score_step"] > 0)
    ]
    if not equal.empty:
        names = " and ".join(equal["scheme"])
        yield f"Where the key equals the query, every float32 score stays the same with {names}."


def _moved(rows: pd.DataFrame) -> str:
    """The change under one scheme, in nats, against float32 and after softmax."""
    row = rows[rows["format"] == "float32"].iloc[0]
    return (
        f"{roughly(row['score_step'])} with {row['scheme']} ({roughly(row['step_to_rounding'])} "
        f"times its rounding in float32; of two neighbours one gets "
        f"{roughly(100 * row['weight_change'])} % more weight)"
    )


def _trained(tables: Tables) -> Iterator[str]:
    copying = inside(tables["learned"], COPY)
    if not copying.empty:
        yield "Trained: " + _copying(copying, tables["schemes"])
    nearer = inside(tables["learned"], NEARER)
    if not nearer.empty:
        yield _nearer(nearer)
    yield said(tables["comparisons"])


def _copying(rows: pd.DataFrame, schemes: pd.DataFrame) -> str:
    """Copying inside the trained length by the number of frequencies: the best scheme of each."""
    mean = rows.groupby("scheme")["value"].mean().reset_index().merge(schemes)
    best = mean.sort_values("value", ascending=False).drop_duplicates("frequencies")
    parts = [
        f"{row['value']:.0%} with {row['scheme']}"
        for row in best.sort_values("frequencies").to_dict("records")
    ]
    return (
        "of what stood inside the trained length, for each number of frequencies, the best models "
        f"copy {', '.join(parts)}."
    )


def _nearer(rows: pd.DataFrame) -> str:
    """Whether any model tells the nearer of two equal cues from the other."""
    mean = rows.groupby("scheme")["value"].mean()
    best = f"{mean.idxmax()} finds {mean.max():.0%}"
    if mean.max() < LEARNED:
        return (
            f"Which of two equal cues is nearer no model learned ({best}; either at random: 50 %), "
            "so that decides nothing."
        )
    return f"Of two equal cues {best} of the nearer ones."


def _bands(tables: Tables) -> Iterator[str]:
    """What each band is missed for, near and far, in the trained and in the longest context."""
    table = tables.get("removed")
    if table is None or not (table["metric"] == COPY).any():
        return
    copies = table[table["metric"] == COPY]
    contexts = sorted({tables["learned"]["train_len_tokens"].iloc[0], *copies["context_tokens"]})
    places = [
        (context, distance)
        for context in (contexts[0], contexts[-1])
        for distance in _ends(copies[copies["context_tokens"] == context])
    ]
    for context, distance in dict.fromkeys(places):
        at = copies[(copies["context_tokens"] == context) & (copies["distance_tokens"] == distance)]
        changes = ", ".join(_change(row) for row in at.to_dict("records"))
        yield (
            f"Without a third of its frequencies the trained model's copying from {distance} back "
            f"in {context} tokens changes by {changes}."
        )


def _ends(rows: pd.DataFrame) -> tuple[int, int]:
    """The nearest distance and the farthest."""
    return int(rows["distance_tokens"].min()), int(rows["distance_tokens"].max())


def _change(row: Mapping[Any, Any]) -> str:
    """What one band costs or brings; `~` where noise decides."""
    noise = " (~)" if row["verdict"] == "~" else ""
    return f"{row['difference']:+.2f}{noise} ({row['removed_a']})"


def inside(learned: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of a metric at the trained length, of models read as they were trained."""
    chosen = (learned["metric"] == metric) & (learned["removed"] == KEPT)
    return learned[chosen & (learned["context_tokens"] == learned["train_len_tokens"])]


def summary(tables: Tables) -> pd.DataFrame:
    """A row per scheme and band removed: copying near and far, the nearer cue, text."""
    learned = tables["learned"]
    trained, longest = learned["train_len_tokens"].iloc[0], learned["context_tokens"].max()
    numbers = tables["schemes"].set_index("scheme")["frequencies"]
    rows = learned[["scheme", "removed"]].drop_duplicates()
    short = rows.assign(frequencies=rows["scheme"].map(numbers))
    wanted = [
        ("copy near", COPY, trained // 8, trained),
        ("copy far", COPY, trained // 2, trained),
        (f"copy in {longest}", COPY, longest // 2, longest),
        ("nearer", NEARER, trained // 8, trained),
        ("text", TEXT, None, trained),
        (f"text at {longest}", TEXT, None, longest),
    ]
    for name, metric, distance, context in wanted:
        at = learned[(learned["metric"] == metric) & (learned["context_tokens"] == context)]
        at = at[at["distance_tokens"] == distance] if distance else at
        if not at.empty:
            short = short.merge(
                at[["scheme", "removed", "value"]].rename(columns={"value": name}), how="left"
            )
    return short.reset_index(drop=True)
