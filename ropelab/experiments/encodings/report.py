"""The answer in words and the short table for the terminal, both from the tables alone."""

import pandas as pd

from ropelab.claims.record import Verdict
from ropelab.models.tasks.documents import worth_of_context
from ropelab.runs.comparisons import said
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import LEARNED

TEXT, COPY = "text loss", "copy accuracy"


def answer(tables: Tables) -> str:
    """Which encoding is best at the longest context, and how it stands to RoPE."""
    sentences = [_context(tables), _text(tables), _copying(tables), said(tables["comparisons"])]
    sentences.append(_literature(tables["literature"]))
    return " ".join(filter(None, sentences))


def _context(tables: Tables) -> str:
    """What context is worth to the encoding that reads best inside the trained length."""
    quality = tables["quality"]
    near = quality[(quality["metric"] == TEXT) & (quality["times_trained_len"] == 1)]
    if near["value"].isna().all():
        return ""
    best = str(near.sort_values("value")["encoding"].iloc[0])
    table = tables["last_window"]
    worth = worth_of_context(table[table["encoding"] == best])
    return worth and f"{worth[:-1]} with {_label(tables, best)}, which reads best there."


def _text(tables: Tables) -> str:
    far = _farthest(tables["quality"], TEXT)
    if far.empty:
        return ""
    best = far.sort_values("value").iloc[0]
    times = best["times_trained_len"]
    sentence = (
        f"Reading text of {times}x the trained length, {_label(tables, best['encoding'])} has the "
        f"lowest loss at its end ({best['value']:.3f} nats per byte)"
    )
    growth = tables["extrapolation"]
    verdicts = list(growth.loc[growth["metric"] == TEXT, "verdict"])
    worse, better = verdicts.count("worse"), verdicts.count("better")
    told = f"of {len(verdicts)} encodings {worse} read worse than at 1x and {better} better"
    return f"{sentence}; {told}."


def _copying(tables: Tables) -> str:
    quality = tables["quality"]
    rows = quality[(quality["metric"] == COPY) & (quality["times_trained_len"] == 1)]
    every = rows[rows["worst_seed_value"] >= LEARNED]
    learned = rows[rows["value"] >= LEARNED]["encoding"]
    if rows.empty:
        return ""
    far = _farthest(quality, COPY)
    able = far[far["encoding"].isin(learned)]
    if able.empty:
        return "None learned to copy."
    best = able.sort_values("value").iloc[-1]
    return (
        f"{len(learned)} of {len(rows)} learned to copy inside the trained length ({LEARNED:.0%} "
        f"of tokens; {len(every)} with every seed); at "
        f"{best['times_trained_len']}x {_label(tables, best['encoding'])} copies best "
        f"({best['value']:.0%} of tokens)."
    )


def _literature(judged: pd.DataFrame) -> str:
    decided = judged[judged["verdict"] != Verdict.UNDECIDED]
    shown = (decided["verdict"] != Verdict.NOT_REPRODUCED).sum()
    if decided.empty:
        return ""
    return f"Of {len(decided)} published statements decided here {shown} are reproduced."


def _farthest(quality: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The defined rows at the longest context of one metric."""
    rows = quality[(quality["metric"] == metric) & (quality["status"] == "ok")]
    return rows[rows["times_trained_len"] == rows["times_trained_len"].max()]


def _label(tables: Tables, encoding: str) -> str:
    cost = tables["cost"]
    return str(cost.loc[cost["encoding"] == encoding, "label"].iloc[0])


def summary(tables: Tables) -> pd.DataFrame:
    """One row per encoding: what it adds, losses and copying at 1x and at the longest context."""
    cost = tables["cost"].set_index("encoding")
    columns = {"adds": cost["parameters"], "work": cost["train_flops_ratio"].round(2)}
    for metric, short in ((TEXT, "text"), (COPY, "copy")):
        rows = tables["quality"][tables["quality"]["metric"] == metric]
        wide = rows.pivot(index="encoding", columns="times_trained_len", values="value")
        for times in sorted({wide.columns.min(), wide.columns.max()}) if len(wide) else []:
            columns[f"{short} {times}x"] = wide[times]
    return pd.DataFrame(columns).loc[cost.index].rename_axis("encoding").reset_index()
