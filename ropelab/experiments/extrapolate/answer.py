"""What a run shows in the terminal: the answer in sentences, and short tables.

A row of a table is a method, in an arm: without fine-tuning, after it, with searched or
rounded parameters, and so on. Rows are named by labels, such as `yarn ×4`.
"""

from collections.abc import Hashable, Sequence

import pandas as pd

from ropelab.models.tasks import grid
from ropelab.models.tasks import tables as common
from ropelab.models.tasks.divergence import describe_divergence, shorten_divergence
from ropelab.models.tasks.rounded import describe_casts
from ropelab.runs import labels
from ropelab.runs.comparisons import tied_with
from ropelab.runs.leading import UNIFORM, find_lead
from ropelab.runs.tables import Tables, in_longest_context
from ropelab.runs.thresholds import LEARNED


def answer(tables: Tables) -> str:
    """Name the best methods at retrieval beyond the trained length, and at the end of
    long text.
    """
    findings = describe_divergence(tables)
    if "casts" in tables:
        findings += describe_casts(tables["casts"])

    # Rounded rows are compared above. Here they are left out.
    exact_tables = {}
    for name, table in tables.items():
        if "arm" in table:
            table = table[table["arm"] != labels.ROUNDED]
        exact_tables[name] = table

    for task in common.list_retrieval_tasks(tables):
        findings.append(_describe_retrieval(exact_tables, task))
    if "text_nll" in tables:
        findings.append(_describe_text(exact_tables))
    return common.write_sentences(findings, tables["comparisons"])


def summary(tables: Tables) -> pd.DataFrame:
    """Return the short table: a row per label, with losses of text in two buckets of
    positions, and accuracies at some distances.
    """
    columns: dict[str, pd.Series] = {}
    if "text_nll" in tables:
        losses = _pivot_by_label(tables["text_nll"], "bucket_end_tokens", common.NLL)
        for bucket_end in _choose_columns(losses, 2):
            columns[f"nll @{bucket_end}"] = losses[bucket_end]

    tasks = common.list_retrieval_tasks(tables)
    for task in tasks:
        table = in_longest_context(tables[f"{task}_accuracy"])
        if task in common.TASKS_WITH_KEYS:
            context = table["context_tokens"].iloc[0]
            columns[f"{task} @{context}"] = common.average_by_label(table, "accuracy")
            continue

        accuracy = _pivot_by_label(table, "distance_tokens", "accuracy")
        # The more tasks there are, the fewer distances of each are shown.
        most = max(1, 4 - len(tasks))
        for distance in _choose_columns(accuracy, most):
            columns[f"{task} @{distance}"] = accuracy[distance]

    return pd.concat(columns, axis=1).rename_axis("method").reset_index()


def further(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the short table of two casts, if they were compared."""
    return shorten_divergence(tables)


def _pivot_by_label(table: pd.DataFrame, column: str, value: str) -> pd.DataFrame:
    """Return the means over seeds of the column `value`: a row per label, and a column
    for each value of `column`.
    """
    row_labels = labels.row_labels(table)
    means = table.assign(label=row_labels).pivot_table(
        index="label", columns=column, values=value
    )
    # `pivot_table` sorts the labels. They get their first order again.
    return means.loc[list(dict.fromkeys(row_labels))]


def _choose_columns(table: pd.DataFrame, most: int) -> Sequence[Hashable]:
    """Return at most `most` columns at even steps, the last column among them."""
    columns = list(table.columns)
    step = max(1, len(columns) // most)
    # Steps are counted from the last column back.
    from_last = columns[::-1][::step]
    return from_last[:most][::-1]


def _describe_retrieval(tables: Tables, task: str) -> str:
    """Say which method retrieves best beyond the trained length."""
    table = tables[f"{task}_accuracy"]
    # A verb phrase, such as `copies`.
    does = common.describe_success(task)
    trained_len = int(table["train_len_tokens"].iloc[0])
    if not _has_learned(table, task, trained_len):
        return (
            f"no model {does} inside {trained_len} tokens, so there is no verdict on"
            " that"
        )

    longest = in_longest_context(table)
    context = longest["context_tokens"].iloc[0]
    if task in common.TASKS_WITH_KEYS:
        # Pass keys are compared over all depths at once.
        distance = context
        where = f"in {context} tokens"
    else:
        distance = min(2 * trained_len, int(longest["distance_tokens"].max()))
        longest = longest[longest["distance_tokens"] == distance]
        times = f"{distance / trained_len:g} times the trained length"
        where = f"from {distance} tokens back, {times}, in {context} tokens"

    # Parameters that were searched on this model are named apart from published ones.
    is_searched = longest["arm"] == labels.SEARCHED
    published = common.average_by_label(longest[~is_searched], "accuracy")
    published = published.sort_values(ascending=False, kind="stable")
    place = {
        "at_tokens": distance,
        "context_tokens": context,
        "metric": f"{task}_accuracy",
    }
    lead = find_lead(published, tables["comparisons"], place, lower_is_better=False)
    assert lead is not None, "a run has a row"

    if len(published) > 1 and not lead.is_shown:
        finding = (
            f"{where} no method is shown to be better than another; {lead.first} has"
            f" {lead.value:.2f} right"
        )
    else:
        finding = (
            f"{where} {lead.first} {does} best: {lead.value:.2f} right"
            f"{tied_with(lead.tied)}"
        )
    if "unscaled" in published.index and lead.first != "unscaled":
        finding += f"; unscaled {published['unscaled']:.2f}"
    if is_searched.any():
        searched = common.average_by_label(longest[is_searched], "accuracy")
        finding += f", {searched.idxmax()} on this model {searched.max():.2f}"
    return finding


def _has_learned(table: pd.DataFrame, task: str, trained_len: int) -> bool:
    """Return True if some method does the task inside the trained length."""
    at_trained_len = table[table["context_tokens"] == trained_len]
    if task not in common.TASKS_WITH_KEYS:
        is_half = at_trained_len["distance_tokens"] == trained_len // 2
        at_trained_len = at_trained_len[is_half]

    # If no method does the task inside the trained length with every seed, the task says
    # nothing about longer contexts.
    by_seed = at_trained_len.groupby(["method", "seed"])["accuracy"].mean()
    worst_seed = by_seed.groupby("method").min()
    has_failed = worst_seed.max() < LEARNED
    # If nothing was measured there, the mean is nan, which is no failure.
    return not has_failed


def _describe_text(tables: Tables) -> str:
    """Say which method reads best at the end of the longest text."""
    table = tables["text_nll"]
    losses_by_end = _pivot_by_label(table, "bucket_end_tokens", common.NLL)
    text_length = losses_by_end.columns[-1]
    losses = losses_by_end[text_length]

    # Baselines are not ranked. Rows with searched parameters are ranked only if there are
    # no published methods.
    rows = table.assign(label=labels.row_labels(table))
    rows = rows.drop_duplicates("label").set_index("label")
    is_window = rows["method"] == labels.WINDOW
    is_cache = rows["arm"] == labels.CACHE
    methods = rows[~is_window & ~is_cache]
    published = methods[methods["arm"] != labels.SEARCHED]
    ranked = methods if published.empty else published

    comparisons = tables["comparisons"]
    is_at_end = comparisons["at_tokens"] == text_length
    comparisons = comparisons[(comparisons["metric"] == "nll_bucket") & is_at_end]
    finding = f"at the end of text of {text_length} bytes "
    if ranked.empty:
        finding += f"the sliding window has {losses[labels.WINDOW]:.3f} nats per byte"
    else:
        ranked_losses = losses[ranked.index]
        best = str(ranked_losses.idxmin())
        lead = find_lead(ranked_losses, comparisons, {}, lower_is_better=True)
        if lead is None:
            return (
                f"{finding}nothing is ranked: no method reads better than guessing,"
                f" which has {UNIFORM:.3f} nats per byte ({best}: {losses[best]:.3f}"
                " nats per byte)"
            )
        if len(ranked) > 1 and not lead.is_shown:
            finding += (
                f"no method is shown to be better than another; {best} has"
                f" {losses[best]:.3f} nats per byte"
            )
        else:
            finding += (
                f"the best method is {best} ({losses[best]:.3f} nats per byte)"
                f"{tied_with(lead.tied)}"
            )
        arm = str(ranked.loc[best, "arm"])
        finding += _compare_with_window(best, arm, losses, comparisons)

    if labels.FAR_CACHE in losses:
        finding += (
            "; counts of the n-grams that the window does not see lower its loss to "
            f"{losses[labels.FAR_CACHE]:.3f}, those that it sees to "
            f"{losses[labels.NEAR_CACHE]:.3f}, all to {losses[labels.WINDOW_CACHE]:.3f}"
        )
    return finding + _describe_context(tables["last_window"])


def _compare_with_window(
    best: str, arm: str, losses: pd.Series, comparisons: pd.DataFrame
) -> str:
    """Say how the best method, which is in that arm, compares with the sliding window."""
    # A method is compared with the sliding window of a model that was trained as long.
    window_in_arm = labels.method_label(labels.WINDOW, 1, arm)
    window = labels.WINDOW
    if window_in_arm in losses:
        window = window_in_arm
    is_best = comparisons["method_a"] == best
    pair = comparisons[is_best & (comparisons["method_b"] == window)]
    # The verdict is the label of the better one, or `~`.
    verdict = str(pair["verdict"].iloc[0])
    if verdict == best:
        relation = "beats"
    elif verdict == window:
        relation = "is worse than"
    else:
        relation = "does not differ significantly from"

    note = ""
    if "finetuned" in window_in_arm and window == labels.WINDOW:
        # Stored runs of an earlier version have only the window of the model before
        # fine-tuning.
        note = ", less trained"
    return (
        f"; it {relation} the sliding window of the trained length"
        f" ({losses[window]:.3f}{note})"
    )


def _describe_context(last_window: pd.DataFrame) -> str:
    """Say what more context inside the trained length saves; an empty text if only one
    length of context was measured there.

    If context is worth little there, losses beyond the trained length say little.
    `last_window` has the losses of the same last tokens after growing contexts.
    """
    unscaled = last_window.query("method == 'unscaled'")
    is_inside = unscaled["context_tokens"] <= unscaled["train_len_tokens"]
    loss_by_context = unscaled[is_inside].groupby("context_tokens")[common.NLL].mean()
    if len(loss_by_context) < 2:
        return ""

    shortest = loss_by_context.index[0]
    longest = loss_by_context.index[-1]
    saved = loss_by_context[shortest] - loss_by_context[longest]
    # A context includes the last tokens, whose loss is measured.
    last_tokens = grid.last_window(int(unscaled["train_len_tokens"].iloc[0]))
    return (
        f"; {longest - last_tokens} instead of"
        f" {shortest - last_tokens} tokens before the last {last_tokens} save the"
        f" unscaled model {saved:.3f}"
    )
