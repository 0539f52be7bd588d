"""The answer of the experiment in sentences, and its short table.

A row is an encoding, or RoPE under a method, which changes a trained model when it is
tested. Rows are compared by two metrics: the loss of text and the share of symbols
copied.
"""

from typing import NamedTuple

import pandas as pd

from ropelab.experiments.encodings.comparisons import (
    AGAINST_METHODS,
    BASELINE,
    COPY,
    TEXT,
    find_learners,
)
from ropelab.runs.comparisons import UNLEARNED, describe_significance
from ropelab.runs.sentences import join_names, join_sentences, write_with_interval
from ropelab.runs.tables import Tables


class Wording(NamedTuple):
    """How the answer speaks about a metric."""

    # The words before a value, which say what models do.
    verb: str
    # The words for what the best rows do better than all other rows.
    better: str
    # The word for the listed rows, in the plural.
    values: str
    # "%" if a value is a share, written as a percentage; else "f".
    form: str
    # The unit, with a space before it.
    unit: str


WORDING = {
    TEXT: Wording(
        verb="read with a loss of",
        better="read text better",
        values="text losses",
        form="f",
        unit=" nats per byte",
    ),
    COPY: Wording(
        verb="copy",
        better="copy more",
        values="shares copied",
        form="%",
        unit="",
    ),
}
# A list names this many rows, and counts all further rows.
NAMED = 3


def answer(tables: Tables) -> str:
    """Name what is shown to be better than the baseline at the longest context, and count
    the significant comparisons.
    """
    quality = tables["quality"]
    longest_tested = quality["times_trained_len"].max()
    # Encodings that are not defined so far have no values at the longest context.
    has_value = quality["status"] == "ok"
    longest = quality.loc[has_value, "times_trained_len"].max()

    sentences = []
    if AGAINST_METHODS in tables:
        against_methods = describe_against_methods(tables, longest)
        if against_methods:
            sentences.append(against_methods)

    findings = [describe_best(metric, tables, longest) for metric in WORDING]
    listed = "; ".join(finding for finding in findings if finding)
    sentence = f"at {longest}x the trained length {listed}"
    if longest < longest_tested:
        sentence = (
            f"no encoding has a value beyond {longest}x the trained length; {sentence}"
        )
    sentences.append(sentence)
    counts = describe_significance(tables["comparisons"])
    return f"{join_sentences(sentences)} {counts}"


def describe_against_methods(tables: Tables, times: int) -> str:
    """Compare the best design with the best change of RoPE at test time, for each
    metric.

    Both are the best by their means at that multiple of the trained length. An empty
    text: there is nothing to compare.
    """
    label_of = tables["cost"].set_index("encoding")["label"]
    quality = tables["quality"].query("times_trained_len == @times and status == 'ok'")
    compared = tables[AGAINST_METHODS].query("times_trained_len == @times")

    findings = []
    for metric, rows in compared.groupby("metric", sort=False):
        metric = str(metric)
        wording = WORDING[metric]
        rows_here = quality[quality["metric"] == metric].set_index("encoding")
        means = rows_here["value"]
        # Designs are in the first column, RoPE under methods in the second.
        design = _sort_best_first(means.filter(rows["encoding_a"].unique()), metric)[0]
        changed = _sort_best_first(means.filter(rows["encoding_b"].unique()), metric)[0]

        row = rows.query("encoding_a == @design and encoding_b == @changed").iloc[0]
        if row["status"] == UNLEARNED:
            continue
        design_value = _write_value(rows_here, design, metric)
        changed_value = _write_value(rows_here, changed, metric)
        findings.append(
            f"{wording.verb} {design_value} with {label_of[design]}, the best design, and"
            f" {changed_value}{wording.unit} with {label_of[changed]}, the best"
            f" change without training ({_describe_difference(row)})"
        )
    if not findings:
        return ""
    return f"at {times}x the trained length models {'; they '.join(findings)}"


def _sort_best_first(means: pd.Series, metric: str) -> list[str]:
    """Return the rows in the order of their means: of losses the lowest first."""
    in_order = means.sort_values(ascending=metric == TEXT)
    return [str(name) for name in in_order.index]


def _describe_difference(row: pd.Series) -> str:
    """Write the difference of a row of comparisons; `~` is written if the comparison
    shows no difference.
    """
    difference = write_with_interval(row["difference"], row["ci_low"], row["ci_high"])
    if row["verdict"] == "~":
        return f"no difference is shown: {difference}"
    return f"a difference of {difference}"


def describe_best(metric: str, tables: Tables, times: int) -> str:
    """Say which encodings are better than the baseline at a multiple of the trained
    length; an empty text if the metric has no values there.
    """
    wording = WORDING[metric]
    label_of = tables["cost"].set_index("encoding")["label"]
    baseline = BASELINE if BASELINE in label_of else label_of.index[0]
    values = tables["quality"].query("metric == @metric and status == 'ok'")
    values = values.set_index("encoding")
    values_here = values[values["times_trained_len"] == times]
    means = values_here["value"]

    among = ""
    if metric == COPY and len(means):
        # An encoding that did not learn the task says nothing about extrapolation.
        learned = find_learners(tables["quality"])
        if not learned:
            return "none learned to copy"
        if len(learned) == 1:
            (only,) = learned
            return f"only {label_of[only]} learned to copy with every seed"
        means = means[means.index.isin(learned)]
        among = f"of {len(learned)} that learned to copy with every seed "

    if means.empty:
        return ""
    if baseline not in means or len(means) == 1:
        ranked = _list_best(values_here.loc[means.index], metric, label_of)
        return f"{among}the {wording.values} are {ranked}{wording.unit}"

    value = _write_value(values_here, baseline, metric)
    better = f"{wording.better} than {label_of[baseline]} at {value}{wording.unit}"
    if metric == TEXT and times > 1:
        # A model may always be given a text that is cut to the trained length.
        at_trained_len = values[values["times_trained_len"] == 1]
        cut = _write_value(at_trained_len, baseline, metric)
        better += f", at {cut} if that is cut to 1x"

    comparisons = tables["comparisons"].query(
        "metric == @metric and times_trained_len == @times"
    )
    won = comparisons.query("status != @UNLEARNED and verdict == encoding_a")
    winners = means.filter(won["encoding_a"])
    if winners.empty:
        nobody = "none" if among else "no encoding"
        return f"{among}{nobody} is shown to {better}"
    verb = "are" if len(winners) > 1 else "is"
    best = _list_best(values_here.loc[winners.index], metric, label_of)
    return f"{among}{best} {verb} shown to {better}"


def _write_value(values: pd.DataFrame, encoding: str, metric: str) -> str:
    """Write the value of an encoding with its interval, if it has one.

    `values` are rows of `quality` with the names of encodings as their index.
    """
    row = values.loc[[encoding], ["value", "ci_low", "ci_high"]]
    value, low, high = row.to_numpy(dtype=float)[0]
    return write_with_interval(value, low, high, WORDING[metric].form)


def _list_best(values: pd.DataFrame, metric: str, label_of: pd.Series) -> str:
    """Name the best NAMED of some rows of `quality`, and count all further rows.

    The rows have the names of encodings as their index.
    """
    best = _sort_best_first(values["value"], metric)[:NAMED]
    texts = []
    for name in best:
        value = _write_value(values, name, metric)
        texts.append(f"{label_of[name]} at {value}")
    others = len(values) - len(best)
    if others:
        texts.append(f"{others} more")
    return join_names(texts)


def summary(tables: Tables) -> pd.DataFrame:
    """Return a row per encoding: its cost, losses and copying at 1x and at the longest
    context, with intervals.
    """
    cost = tables["cost"].set_index("encoding")
    quality = tables["quality"]
    # All columns have the encodings as their index, in different orders.
    columns = {"adds": cost["parameters"], "work": cost["train_flops_ratio"].round(2)}
    for metric, short_name in ((TEXT, "text"), (COPY, "copy")):
        rows = quality[quality["metric"] == metric]
        if rows.empty:
            continue

        # The two are one if nothing longer than the trained length was tested.
        shortest = rows["times_trained_len"].min()
        longest = rows["times_trained_len"].max()
        for times in sorted({shortest, longest}):
            name = f"{short_name} {times}x"
            at_times = rows[rows["times_trained_len"] == times].set_index("encoding")
            columns[name] = at_times["value"]
            columns[f"{name} ci_low"] = at_times["ci_low"]
            columns[f"{name} ci_high"] = at_times["ci_high"]

    table = pd.DataFrame(columns).loc[cost.index]
    return table.rename_axis("encoding").reset_index()
