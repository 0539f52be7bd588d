"""Sentences that say what small trained models showed, for commands that train no model.

`emit` writes a scaling, and `base` computes a bound. Neither shows how well a model then
reads. Experiments that train small models show it, and observed.toml has their numbers.
tools/docs.py writes this file from the committed results.
"""

import math
import tomllib
from importlib.resources import files
from typing import Any

FILE = "observed.toml"
# The page with the tables, controls and limits of these numbers.
READ_MORE = "docs/findings.md"


def read_observations(kind: str) -> list[dict[str, Any]]:
    """Return the observations of a kind: `scaling` or `base`."""
    text = (files("ropelab.cli") / FILE).read_text(encoding="utf-8")
    observations: list[dict[str, Any]] = tomllib.loads(text)[kind]
    return observations


def describe_scaling(method: str, factor: float) -> str:
    """Say how models recalled and read under a method; empty if the method was not
    measured.

    If several factors of the method were measured, the nearest factor is described.
    """
    rows = [row for row in read_observations("scaling") if row["method"] == method]
    if not rows:
        return ""

    def distance(row: dict[str, Any]) -> float:
        # Factors are compared by their ratio.
        return abs(math.log(row["factor"] / max(factor, 1.0)))

    row = min(rows, key=distance)
    label = method
    if row["factor"] != 1:
        label = f"{method} ×{row['factor']:g}"
    return (
        f"in {row['models']} small models trained at {row['trained_tokens']} tokens, not"
        f" in this one: with {label} they find {row['recall']} of the symbols"
        f" {row['distance_tokens']} tokens back in {row['tested_tokens']}, unscaled"
        f" {row['recall_unscaled']}; inside the trained length text costs"
        f" {row['text_cost']} nats per byte more ([low, high]: 95 % over models, of text"
        f" also over documents; {READ_MORE})"
    )


def describe_bases() -> str:
    """Say between which distances models with a base below the bound stop recalling."""
    clauses = []
    rows = read_observations("base")
    for row in rows:
        negative_from = row["negative_from_tokens"]
        # Recall can be below one half near by, and again far away.
        clauses.append(
            f"with base {row['base']:g} the sum is negative from {negative_from} tokens"
            " on, the last distance at which they recall one half lies between"
            f" {row['recalled_to_tokens']} and {row['fails_from_tokens']}, and of the"
            f" {row['distances_before']} distances below {negative_from} they recall less"
            f" at {row['failing_before']}"
        )
    models = f"{rows[0]['models']} small models"
    trained = f"{rows[0]['trained_tokens']} tokens"
    return f"in {models} trained at {trained}: {'; '.join(clauses)} ({READ_MORE})"
