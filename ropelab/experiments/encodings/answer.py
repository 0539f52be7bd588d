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
from ropelab.runs.comparisons import MIXED, UNLEARNED, describe_significance
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
    """Name the rows that are shown to be better than the baseline at the longest context,
    and count the significant comparisons.
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
    return f"{join_sentences(sentences)} {counts}".rstrip()


def describe_against_methods(tables: Tables, times: int) -> str:
    """Compare the best design with the best change of RoPE at test time, for each
    metric.

    Both are the best by their means at a multiple of the trained length, `times`. The
    text is empty if there is nothing to compare.
    """
    label_of = tables["cost"].set_index("encoding")["label"]
    quality = tables["quality"].query("times_trained_len == @times and status == 'ok'")
    compared = tables[AGAINST_METHODS].query("times_trained_len == @times")

    findings = []
    for metric, rows in compared.groupby("metric", sort=False):
        metric = str(metric)
        wording = WORDING[metric]
        values = quality[quality["metric"] == metric].set_index("encoding")
        means = values["value"]
        # The first column has the designs, and the second has RoPE under each method.
        designs = means.filter(rows["encoding_a"].unique())
        best_design = _sort_best_first(designs, metric)[0]
        methods = means.filter(rows["encoding_b"].unique())
        best_method = _sort_best_first(methods, metric)[0]

        is_of_both = (rows["encoding_a"] == best_design) & (
            rows["encoding_b"] == best_method
        )
        row = rows[is_of_both].iloc[0]
        if row["status"] == UNLEARNED:
            continue
        design_value = _write_value(values, best_design, metric)
        method_value = _write_value(values, best_method, metric)
        findings.append(
            f"{wording.verb} {design_value} with {label_of[best_design]}, the best design,"
            f" and {method_value}{wording.unit} with {label_of[best_method]}, the best"
            f" change without training ({_describe_difference(row)})"
        )
    if not findings:
        return ""
    return f"at {times}x the trained length models {'; they '.join(findings)}"


def _sort_best_first(means: pd.Series, metric: str) -> list[str]:
    """Return the names of rows in the order of their means: the lowest loss first, or the
    largest share copied first.
    """
    in_order = means.sort_values(ascending=metric == TEXT)
    return [str(name) for name in in_order.index]


def _describe_difference(row: pd.Series) -> str:
    """Write the difference of a row of comparisons, and say so if no difference is shown
    (verdict `~`).
    """
    difference = write_with_interval(row["difference"], row["ci_low"], row["ci_high"])
    if row["verdict"] == "~":
        return f"no difference is shown: {difference}"
    return f"a difference of {difference}"


def describe_best(metric: str, tables: Tables, times: int) -> str:
    """Say which encodings are better than the baseline at a multiple of the trained
    length, `times`; an empty text if the metric has no values at that multiple.
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
        best = _list_best(values_here.loc[means.index], metric, label_of)
        return f"{among}the {wording.values} are {best}{wording.unit}"

    value = _write_value(values_here, baseline, metric)
    if_cut = ""
    better = f"{wording.better} than {label_of[baseline]} at {value}{wording.unit}"
    if metric == TEXT and times > 1:
        # A model may always be given a text that is cut to the trained length.
        at_trained_len = values[values["times_trained_len"] == 1]
        value_of_cut_text = _write_value(at_trained_len, baseline, metric)
        trained_len = int(tables["quality"]["train_len_tokens"].iloc[0])
        if_cut = (
            f"; {label_of[baseline]} has {value_of_cut_text} if it reads only the last"
            f" {trained_len} tokens"
        )

    comparisons = tables["comparisons"].query(
        "metric == @metric and times_trained_len == @times"
    )
    won_comparisons = comparisons.query(
        "status != @UNLEARNED and verdict == encoding_a"
    )
    winners = means.filter(won_comparisons["encoding_a"])
    untested = _describe_untested(
        comparisons, values_here.loc[means.index], metric, label_of
    )
    if winners.empty:
        nobody = "none" if among else "no encoding"
        return f"{among}{nobody} is shown to {better}{if_cut}{untested}"
    verb = "are" if len(winners) > 1 else "is"
    best = _list_best(values_here.loc[winners.index], metric, label_of)
    return f"{among}{best} {verb} shown to {better}{if_cut}{untested}"


def _describe_untested(
    comparisons: pd.DataFrame, values: pd.DataFrame, metric: str, label_of: pd.Series
) -> str:
    """Name the rows that no test compares with the baseline although their means are
    better, because some of their models learned the task and some did not.

    Args:
        comparisons: the comparisons with the baseline.
        values: rows of `quality` that take part, with the names of encodings as index.
        metric: the metric.
        label_of: the label of each encoding.
    """
    # A positive difference of a loss, or a negative difference of a share, is worse.
    is_better = comparisons["difference"] > 0
    if metric == TEXT:
        is_better = comparisons["difference"] < 0
    mixed = comparisons[(comparisons["status"] == MIXED) & is_better]
    names = [name for name in mixed["encoding_a"] if name in values.index]
    if not names:
        return ""
    best = _list_best(values.loc[names], metric, label_of)
    verb = "are" if len(names) > 1 else "is"
    return f"; {best} {verb} not tested, since their seeds are of two kinds"


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
    further_count = len(values) - len(best)
    if further_count:
        texts.append(f"{further_count} more")
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

        # Both are 1 if nothing longer than the trained length was tested. The set then
        # has a single number.
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


def explain_columns(tables: Tables) -> dict[str, str]:
    """Say what the columns of the short table are, by the beginnings of their names."""
    trained_len = int(tables["quality"]["train_len_tokens"].iloc[0])
    return {
        "adds": "parameters that the encoding adds",
        "work": "multiplications in training, 1 for plain attention",
        "text 1x": (
            f"loss of the same last tokens of a text, in nats per byte, read at the end of"
            f" {trained_len} tokens; text 4x: of four times as many"
        ),
        "copy": "share of symbols copied at half of the context back",
    }
