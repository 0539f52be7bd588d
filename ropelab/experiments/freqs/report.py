"""The answer in words and the short table for the terminal, both from the tables alone."""

import pandas as pd

from ropelab.runs.tables import Tables

ROLES = ("kept", "ramp", "interpolated", "moved", "dropped")


def answer(tables: Tables) -> str:
    """How many pairs play which role, which meet new angles, and what happens to the logits."""
    pairs, scaling = tables["pairs"], tables["scaling"].iloc[0]
    counts = pairs["role"].value_counts()
    told = ", ".join(f"{counts[role]} {role}" for role in ROLES if role in counts)
    new = int((pairs["unseen"] == "new angles").sum())
    return (
        f"{scaling['method']} at {scaling['test_len_tokens']} tokens: of {len(pairs)} pairs "
        f"{told}; {_count(new)} meet angles never seen in training, and every logit is multiplied "
        f"by {scaling['logit_multiplier']:.4g}.{_axes(pairs)}"
    )


def _axes(pairs: pd.DataFrame) -> str:
    """Which wavelengths each axis of a position has."""
    if "axis" not in pairs:
        return ""
    told = (
        f"{axis} has {len(mine)} pairs of {mine['wavelength_tokens'].min():.3g} to "
        f"{mine['wavelength_tokens'].max():.3g} positions"
        for axis, mine in pairs.groupby("axis", sort=False)
    )
    return f" Of the axes {'; '.join(told)}."


def summary(tables: Tables) -> pd.DataFrame:
    """About a dozen pairs, evenly spaced, the first and the last among them."""
    pairs = tables["pairs"]
    count = min(12, len(pairs))
    rows = [round(i * (len(pairs) - 1) / max(1, count - 1)) for i in range(count)]
    axis = ["axis"] if "axis" in pairs else []
    columns = ["pair", *axis, "wavelength_tokens", "trained_turns", "role", "weight", "divided_by"]
    return pairs.iloc[rows][[*columns, "unseen"]]


def _count(number: int) -> str:
    return str(number) if number else "none"
