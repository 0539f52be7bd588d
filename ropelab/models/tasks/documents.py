"""Losses on text told apart by document and by kind of document, and what context is worth to each.

text_by_kind     loss after the longest context, a row per kind
text_by_document the same for every document, mean over the seeds
context_by_kind  loss of the same final tokens after the contexts inside the trained length, by
                 kind, of the model as it was trained
"""

from collections.abc import Collection, Sequence

import pandas as pd

from ropelab.models.lm.corpus import Origin
from ropelab.models.tasks.tables import NLL, losses

# The columns that tell rows apart when seeds are taken together.
TOGETHER = ["method", "factor", "arm"]


def told_apart(
    last_window: pd.DataFrame,
    origins: Sequence[Origin],
    row: Sequence[str],
    plain: Collection[str],
    train_len: int,
) -> dict[str, pd.DataFrame]:
    """The tables in the head of this file, as far as they have rows.

    Args:
        last_window: the columns `row`, document, context_tokens, nll_nats_per_byte.
        origins: name and kind of every document, by its number.
        row: the columns that tell rows apart.
        plain: the methods that read the model as it was trained.
    """
    about = pd.DataFrame(origins, columns=["name", "kind"]).rename_axis("document").reset_index()
    table = last_window.merge(about, on="document")
    longest = table[table["context_tokens"] == table["context_tokens"].max()]
    inside = table[(table["context_tokens"] <= train_len) & table["method"].isin(plain)]
    tables = {
        "text_by_kind": losses(longest, [*row, "kind"]),
        "text_by_document": _by_document(longest),
        "context_by_kind": losses(inside, [*row, "kind", "context_tokens"]),
    }
    return {name: table for name, table in tables.items() if not table.empty}


def worth_of_context(last_window: pd.DataFrame) -> str:
    """A sentence on the worth of context to a model as it was trained; empty if not measured.

    Without that, the losses of longer contexts say little.

    Args:
        last_window: rows of that model: context_tokens, train_len_tokens, nll_nats_per_byte.
    """
    inside = last_window[last_window["context_tokens"] <= last_window["train_len_tokens"]]
    means = inside.groupby("context_tokens")[NLL].mean()
    if len(means) < 2:
        return ""
    costs = ", ".join(f"{value:.3f}" for value in means)
    lengths = ", ".join(map(str, means.index))
    where = f"after {lengths} tokens"
    return f"Inside the trained length the same last tokens cost {costs} nats per byte {where}."


def _by_document(longest: pd.DataFrame) -> pd.DataFrame:
    """name, kind, method, factor, arm, seeds, nll_nats_per_byte."""
    groups = longest.groupby(["document", "name", "kind", *TOGETHER], sort=False)[NLL]
    means = groups.agg(["size", "mean"]).rename(columns={"size": "seeds", "mean": NLL})
    return means.reset_index().drop(columns="document")
