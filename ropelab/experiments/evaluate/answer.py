"""What a run shows in the terminal: the answer in sentences, and short tables.

The tables have a row per evaluation mode: the unmodified model, each method, rounded
values (`casts`), and the sliding window.
"""

import pandas as pd

from ropelab.experiments.evaluate import EvaluateConfig
from ropelab.experiments.evaluate.recommendation import (
    BETTER,
    KEPT,
    average_values,
)
from ropelab.models.tasks import tables as task_tables
from ropelab.models.tasks.cells import UNDECIDABLE
from ropelab.models.tasks.divergence import describe_divergence, shorten_divergence
from ropelab.models.tasks.grid import choose_last_window
from ropelab.models.tasks.rounded import describe_casts
from ropelab.runs.comparisons import name_tied
from ropelab.runs.labels import AS_SHIPPED, WINDOW, label_rows
from ropelab.runs.leading import LAST_LOSS, UNIFORM_LOSS
from ropelab.runs.sentences import write_with_interval
from ropelab.runs.spelling import split_list, write_command
from ropelab.runs.tables import Tables, select_longest_context
from ropelab.runs.thresholds import HARDLY_READ


def answer(tables: Tables) -> str:
    """Give the recommendation for each task, then its cost."""
    model = tables["model"].iloc[0]
    advice = _read_advice(tables)
    comparisons = tables["comparisons"]

    findings = describe_divergence(tables)
    compares_methods = True
    if "casts" in tables:
        trained_len = int(model["train_len_tokens"])
        findings += describe_casts(tables["casts"], trained_len)
        # Each rounded row is compared once. If a run has no other comparisons, it has
        # no method and no window, and nothing is recommended.
        compares_methods = len(tables["casts"]) != len(comparisons)
    if compares_methods:
        is_alone = comparisons.empty
        for row in advice:
            findings.append(_describe_advice(row, model, tables, is_alone))

    more = []
    if "text_nll" in tables:
        losses = tables["text_nll"]
        own_losses = losses[losses["method"] == AS_SHIPPED]
        lowest = own_losses.nsmallest(1, task_tables.NLL)
        if (lowest[task_tables.NLL] > HARDLY_READ).any():
            means = task_tables.average_with_intervals(
                lowest, task_tables.NLL, task_tables.NLL
            )
            loss = task_tables.write_mean(means, means.index[0])
            more.append(
                "it reads this text little better than chance"
                f" ({loss} nats per byte); try --corpus"
            )
    more += _describe_costs(comparisons, advice)
    if model["windowed_layers"]:
        more.append(
            f"{model['windowed_layers']} of its {model['layers']} layers read a window"
            f" of {model['layer_window_tokens']:.0f} tokens, which no method changes"
        )
    return task_tables.write_sentences(findings, comparisons, more)


def _read_advice(tables: Tables) -> list[pd.Series]:
    """Return the rows of the recommendation, with empty texts for missing texts."""
    # An empty text comes back from disk as a missing value.
    texts = ["not_significant", "emit"]
    table = tables["recommendation"].astype(dict.fromkeys(texts, object))
    table = table.fillna(dict.fromkeys(texts, ""))
    return [row for _, row in table.iterrows()]


def _describe_costs(comparisons: pd.DataFrame, advice: list[pd.Series]) -> list[str]:
    """Say what each recommended method costs at most in short contexts, where none is
    needed.
    """
    is_short = comparisons["metric"] == "nll_short_context"
    costs = comparisons[is_short & (comparisons["method_a"] == AS_SHIPPED)]
    # A method is recommended if there is a command that writes its configuration. One
    # method may be best at several tasks.
    recommended = dict.fromkeys(row["best"] for row in advice if row["emit"])

    sentences = []
    for label in recommended:
        costs_of_label = costs[costs["method_b"] == label]
        # The difference is unmodified minus method. Its negative is the cost, so that the
        # least difference is the largest cost.
        largest = costs_of_label.nsmallest(1, "difference")
        for row in largest.to_dict("records"):
            cost = write_with_interval(
                -row["difference"], -row["ci_high"], -row["ci_low"]
            )
            sentences.append(
                f"in short contexts {label} costs most at {row['at_tokens']} tokens:"
                f" {cost} nats per byte"
            )
    return sentences


def suggest_command(config: EvaluateConfig, tables: Tables) -> str:
    """Return the command that writes the best method down, else the command that audits
    the model.
    """
    for command in tables["recommendation"]["emit"].fillna(""):
        if command:
            return str(command)
    return write_command("audit", {"model": config.model}, "model")


def _describe_advice(
    row: pd.Series, model: pd.Series, tables: Tables, is_alone: bool
) -> str:
    """Say what is best at a task.

    Args:
        row: a row of `recommendation`.
        model: the row of the table `model`.
        tables: the tables of the run.
        is_alone: the unmodified model was compared with nothing.
    """
    # A verb phrase, such as `copies`.
    does = task_tables.describe_success(row["task"])
    lead = f"at {row['at_tokens']} tokens"
    if row["status"] == UNDECIDABLE and row["task"] == "text":
        return (
            f"{lead} nothing is ranked: no method reads this text better than guessing,"
            f" which has {UNIFORM_LOSS:.2f} nats per byte"
        )
    if row["status"] == UNDECIDABLE:
        # Nothing else was asked of a model that fails in this context.
        tested_len = tables[f"{row['task']}_accuracy"]["context_tokens"].max()
        return (
            f"unmodified it {does} in fewer than half of the cases inside {tested_len}"
            " tokens, so nothing is decided beyond"
        )

    unit = ""
    if row["task"] == "text":
        losses = tables["text_nll"]
        is_last = losses["bucket_end_tokens"] == row["at_tokens"]
        start = int(losses.loc[is_last, "bucket_start_tokens"].iloc[0])
        unit = f" nats per byte in tokens {start} to {row['at_tokens']}"
    if is_alone or row["status"] == KEPT:
        values = average_values(tables, row["task"], row["at_tokens"])
        value = task_tables.write_mean(values, AS_SHIPPED)
    if is_alone:
        return f"{lead} the unmodified model {does}: {value}{unit}"

    tied = name_tied(split_list(row["not_significant"]))
    if row["status"] == KEPT:
        return f"{lead} the unmodified model {does} best ({value}{unit}){tied}"

    best = row["best"]
    if best == WINDOW:
        best = f"a sliding window of {model['sliding_window_tokens']}"
    difference = write_with_interval(
        row["difference"], row["ci_low"], row["ci_high"], "+f"
    )
    gap = f"{difference}{unit}"
    if row["task"] != "text" and max(abs(row["ci_low"]), abs(row["ci_high"])) > 1:
        # A share cannot change by more than 1: so few cases give no interval.
        gap = f"finds {_count_found(row, tables)}, too few cases for an interval"
    if row["status"] == BETTER:
        return f"{lead} {best} {does} best, {gap} against the unmodified model{tied}"
    return (
        f"{lead} nothing {does} demonstrably better than the unmodified model:"
        f" {best} {gap}"
    )


def _count_found(row: pd.Series, tables: Tables) -> str:
    """Write how many cases the best method finds, beside the unmodified model."""
    table = tables[f"{row['task']}_accuracy"]
    table = table[table["context_tokens"] == row["at_tokens"]]
    table = table.assign(label=label_rows(table))
    counts = []
    for label in (row["best"], AS_SHIPPED):
        rows = table[table["label"] == label]
        found_count = round((rows["accuracy"] * rows["trials"]).sum())
        counts.append((found_count, int(rows["trials"].sum())))
    (found_count, trials), (found_unmodified, _) = counts
    return f"{found_count} of {trials}, unmodified {found_unmodified}"


def summary(tables: Tables) -> pd.DataFrame:
    """Return a row per evaluation mode: cost at short length, loss at the end, shares
    found, each with its interval.
    """
    columns: list[pd.DataFrame] = []
    if "text_nll" in tables:
        losses = tables["last_window"]
        trained = losses["train_len_tokens"].iloc[0]
        longest = losses["context_tokens"].max()
        for length in dict.fromkeys((trained, longest)):
            in_context = losses[losses["context_tokens"] == length]
            # Texts may be shorter than the trained length.
            if len(in_context):
                name = f"{LAST_LOSS} @{length}"
                columns.append(
                    task_tables.average_with_intervals(
                        in_context, task_tables.NLL, name
                    )
                )

    for task in task_tables.list_retrieval_tasks(tables):
        shares = select_longest_context(tables[f"{task}_accuracy"])
        name = f"{task} @{shares['context_tokens'].iloc[0]}"
        columns.append(task_tables.average_with_intervals(shares, "accuracy", name))
    return _drop_repeated(task_tables.join_by_label(columns))


def _drop_repeated(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out the row `unscaled` if it repeats the row of the unmodified model, as it
    does for every model whose configuration declares no scaling.
    """
    is_unmodified = table["method"] == AS_SHIPPED
    is_unscaled = table["method"] == "unscaled"
    values = table.drop(columns="method")
    unmodified = values[is_unmodified].reset_index(drop=True)
    unscaled = values[is_unscaled].reset_index(drop=True)
    if len(unscaled) and unmodified.equals(unscaled):
        return table[~is_unscaled].reset_index(drop=True)
    return table


def explain_columns(tables: Tables) -> dict[str, str]:
    """Say what the columns of the short table are, by the beginnings of their names."""
    explained = {}
    if "text_nll" in tables:
        losses = tables["last_window"]
        # The shortest context is a quarter of the length from which all lengths follow. That
        # length is less than the trained one if the tested context is.
        last_tokens = choose_last_window(4 * int(losses["context_tokens"].min()))
        explained[f"{LAST_LOSS} @N"] = (
            f"loss of the same last {last_tokens} tokens of a text, in nats per byte, when"
            " the model reads them at the end of N tokens"
        )
    for task in task_tables.list_retrieval_tasks(tables):
        explained[f"{task} @N"] = "share found in N tokens"
    return explained


def make_further_tables(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the short table of two casts, if they were compared."""
    return shorten_divergence(tables)
