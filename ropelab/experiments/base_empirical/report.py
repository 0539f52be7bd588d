"""The answer in words and the short table for the terminal, both from the tables alone."""

import pandas as pd

from ropelab.claims.trained.base_bound import Outcome, tally
from ropelab.runs.tables import Tables


def answer(tables: Tables) -> str:
    """How often the bound was right, and whether it orders the bases."""
    table = tables["predictions"]
    if table.empty:
        return "Only text was measured, which the bound does not speak about."
    judged = table[table["agrees"].notna()]
    if judged.empty:
        return "Nothing can be said: the model with the largest base has not learned to retrieve."
    sentences = [f"The bound is right about {tally(judged)} against the largest base"]
    for task, part in judged.groupby("task"):
        below = part[part["distances_beyond"] > 0]
        if len(below):
            sentences.append(f"{task} {_failing(below)}")
    superficial = judged[judged["outcome"] == Outcome.SUPERFICIAL]
    if len(superficial):
        bases = ", ".join(f"{base:g}" for base in superficial["base"].unique())
        sentences.append(f"text loss stays low while retrieval fails with base {bases}")
    return "; ".join(sentences) + "."


def _failing(below: pd.DataFrame) -> str:
    """At how many distances retrieval fails under the bases that are below the bound."""
    beyond, before = (
        f"{below[f'failing_{side}'].sum()} of {below[f'distances_{side}'].sum()} distances"
        for side in ("beyond", "before")
    )
    return f"fails at {beyond} predicted to fail, and at {before} predicted to hold"


def summary(tables: Tables) -> pd.DataFrame:
    """The predictions: a row per base and task."""
    table = tables["predictions"]
    if table.empty:
        return tables["text_nll"].head(12)
    columns = {
        "task": "task",
        "base": "base",
        "first_failing_position_tokens": "fails_at",
        "reach_tokens": "reach",
        "accuracy": "accuracy",
        "text_difference_nats_per_byte": "text_difference",
        "outcome": "outcome",
    }
    return table[list(columns)].rename(columns=columns).head(12)
