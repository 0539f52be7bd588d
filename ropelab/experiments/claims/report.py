"""The answer in words and the short table for the terminal, both from the tables alone."""

from collections.abc import Mapping
from textwrap import shorten

import pandas as pd

from ropelab.experiments.claims.record import Verdict

Tables = Mapping[str, pd.DataFrame]
WIDTH = 26


def answer(tables: Tables) -> str:
    """How many claims got which verdict; for a single claim, the claim and what was found."""
    claims = tables["claims"]
    if len(claims) == 1:
        claim = claims.iloc[0]
        return f"“{claim['statement']}” ({claim['source']}) {_said(claim)}: {claim['measured']}."
    counts = claims["verdict"].value_counts()
    told = ", ".join(f"{counts.get(str(verdict), 0)} {_plural(verdict)}" for verdict in Verdict)
    return f"Of {len(claims)} claims, {told}."


def summary(tables: Tables) -> pd.DataFrame:
    """The ledger, a row per claim; for a single claim, a row per finding."""
    claims = tables["claims"]
    if len(claims) == 1:
        return tables["findings"][["role", "what", "measured", "agrees"]]
    short = claims["decided_at"].map(lambda text: shorten(text, WIDTH, placeholder=" …"))
    ledger = claims[["number", "id", "verdict"]].rename(columns={"number": "no"})
    return ledger.assign(measured=short)


def _said(claim: pd.Series) -> str:
    return {
        str(Verdict.HOLDS): "holds",
        str(Verdict.CONDITION): "holds with a condition",
        str(Verdict.WRONG): "is wrong",
        str(Verdict.UNDECIDED): "is not decidable here",
    }[claim["verdict"]]


def _plural(verdict: Verdict) -> str:
    return {
        Verdict.HOLDS: "hold",
        Verdict.CONDITION: "hold with a condition",
        Verdict.WRONG: "are wrong",
        Verdict.UNDECIDED: "are not decidable here",
    }[verdict]
