"""What a run shows in the terminal: the answer in sentences, and short tables.

A row of a table is a method, in an arm: without fine-tuning, after it, with searched or
rounded parameters, and so on. Rows are named by labels, such as `yarn ×4`.
"""

from collections.abc import Hashable, Sequence

import pandas as pd

from ropelab.models.tasks import grid
from ropelab.models.tasks import tables as task_tables
from ropelab.models.tasks.config import TASKS_WITH_KEYS
from ropelab.models.tasks.divergence import describe_divergence, shorten_divergence
from ropelab.models.tasks.rounded import describe_casts
from ropelab.runs import labels
from ropelab.runs.comparisons import name_tied
from ropelab.runs.leading import UNIFORM_LOSS, find_lead
from ropelab.runs.tables import Tables, select_longest_context
from ropelab.runs.thresholds import FAILS, LEARNED


def answer(tables: Tables) -> str:
    """Name the best methods at retrieval beyond the trained length, and at the end of
    long text.
    """
    findings = describe_divergence(tables)
    if "casts" in tables:
        findings += describe_casts(tables["casts"], _find_trained_len(tables))

    # `describe_casts` compares the rounded rows. All further findings leave them out.
    exact_tables = {}
    for name, table in tables.items():
        if "arm" in table:
            table = table[table["arm"] != labels.ROUNDED]
        exact_tables[name] = table

    for task in task_tables.list_retrieval_tasks(tables):
        findings.append(_describe_retrieval(exact_tables, task))
    if "text_nll" in tables:
        findings.append(_describe_text(exact_tables))
    return task_tables.write_sentences(findings, tables["comparisons"])


def _find_trained_len(tables: Tables) -> int:
    """Return the trained length, which all tables of losses and accuracies have."""
    for table in tables.values():
        if "train_len_tokens" in table and len(table):
            return int(table["train_len_tokens"].iloc[0])
    raise LookupError("no table has a trained length")


def summary(tables: Tables) -> pd.DataFrame:
    """Return the short table: a row per label, with losses of text in two buckets of
    positions, and accuracies at some distances, each with its interval.
    """
    columns: list[pd.DataFrame] = []
    if "text_nll" in tables:
        losses = tables["text_nll"]
        for bucket_end in _choose_values(losses["bucket_end_tokens"], 2):
            in_bucket = losses[losses["bucket_end_tokens"] == bucket_end]
            name = f"nll @{bucket_end}"
            columns.append(
                task_tables.average_with_intervals(in_bucket, task_tables.NLL, name)
            )

    tasks = task_tables.list_retrieval_tasks(tables)
    for task in tasks:
        table = select_longest_context(tables[f"{task}_accuracy"])
        if task in TASKS_WITH_KEYS:
            name = f"{task} @{table['context_tokens'].iloc[0]}"
            columns.append(task_tables.average_with_intervals(table, "accuracy", name))
            continue

        # The more tasks there are, the fewer distances of each are shown.
        distance_count = max(1, 4 - len(tasks))
        for distance in _choose_values(table["distance_tokens"], distance_count):
            at_distance = table[table["distance_tokens"] == distance]
            name = f"{task} @{distance}"
            columns.append(
                task_tables.average_with_intervals(at_distance, "accuracy", name)
            )

    return task_tables.join_by_label(columns)


def make_further_tables(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the short table of two casts, if they were compared."""
    return shorten_divergence(tables)


def _choose_values(column: pd.Series, count: int) -> Sequence[Hashable]:
    """Return up to `count` of the different values of a column, at even steps, the
    largest value among them.
    """
    values = sorted(column.unique())
    step = max(1, len(values) // count)
    # Steps are counted from the largest value down.
    from_largest = values[::-1][::step]
    return from_largest[:count][::-1]


def _describe_retrieval(tables: Tables, task: str) -> str:
    """Say which method retrieves best beyond the trained length."""
    table = tables[f"{task}_accuracy"]
    # A verb phrase, such as `copies`.
    does = task_tables.describe_success(task)
    trained_len = int(table["train_len_tokens"].iloc[0])
    if not _has_learned(table, task, trained_len):
        return (
            f"no model {does} inside {trained_len} tokens, so there is no verdict on"
            " that"
        )

    longest = select_longest_context(table)
    context = longest["context_tokens"].iloc[0]
    if task in TASKS_WITH_KEYS:
        # Pass keys are compared over all depths at once.
        distance = context
        where = f"in {context} tokens"
    else:
        distance = min(2 * trained_len, int(longest["distance_tokens"].max()))
        longest = longest[longest["distance_tokens"] == distance]
        times = f"{distance / trained_len:g} times the trained length"
        where = f"at {distance} tokens back, {times}, in {context} tokens"

    # Methods whose parameters were searched on this model are not ranked with methods that
    # have published parameters. The best of them is named at the end.
    is_searched = longest["arm"] == labels.SEARCHED
    means = task_tables.average_with_intervals(
        longest[~is_searched], "accuracy", "accuracy"
    )
    published = means["accuracy"]
    place = {
        "at_tokens": distance,
        "context_tokens": context,
        "metric": f"{task}_accuracy",
    }
    lead = find_lead(published, tables["comparisons"], place, lower_is_better=False)
    assert lead is not None, "a run has a row"
    first_value = task_tables.write_mean(means, lead.first)

    if len(published) > 1 and published[lead.first] < FAILS:
        finding = f"{where} no method {does} more than {first_value} ({lead.first})"
    elif len(published) > 1 and not lead.is_shown:
        finding = (
            f"{where} no method is shown to be better than another; {lead.first} has"
            f" {first_value} right"
        )
    else:
        finding = (
            f"{where} {lead.first} {does} best: {first_value} right"
            f"{name_tied(lead.tied)}"
        )
    if "unscaled" in published.index and lead.first != "unscaled":
        finding += f"; unscaled {task_tables.write_mean(means, 'unscaled')}"
    if is_searched.any():
        searched = task_tables.average_with_intervals(
            longest[is_searched], "accuracy", "accuracy"
        )
        best = str(searched["accuracy"].idxmax())
        finding += f", {best} on this model {task_tables.write_mean(searched, best)}"
    return finding


def _has_learned(table: pd.DataFrame, task: str, trained_len: int) -> bool:
    """Return True if some method does the task inside the trained length."""
    at_trained_len = table[table["context_tokens"] == trained_len]
    if task not in TASKS_WITH_KEYS:
        is_half = at_trained_len["distance_tokens"] == trained_len // 2
        at_trained_len = at_trained_len[is_half]

    # If no method does the task inside the trained length with every seed, the task says
    # nothing about longer contexts.
    by_seed = at_trained_len.groupby(["method", "seed"])["accuracy"].mean()
    worst_seed = by_seed.groupby("method").min()
    has_failed = worst_seed.max() < LEARNED
    # If nothing was measured there, the mean is nan, which does not count as a failure.
    return not has_failed


def _describe_text(tables: Tables) -> str:
    """Say which method reads best at the end of the longest text."""
    table = tables["text_nll"]
    text_length = table["bucket_end_tokens"].max()
    at_end = table[table["bucket_end_tokens"] == text_length]
    means = task_tables.average_with_intervals(at_end, task_tables.NLL, task_tables.NLL)
    losses = means[task_tables.NLL]

    ranked = _select_ranked(table)

    comparisons = tables["comparisons"]
    is_at_end = comparisons["at_tokens"] == text_length
    comparisons = comparisons[(comparisons["metric"] == "nll_bucket") & is_at_end]
    start = int(at_end["bucket_start_tokens"].iloc[0])
    finding = f"in tokens {start} to {text_length} of text "
    if ranked.empty:
        window_loss = task_tables.write_mean(means, labels.WINDOW)
        finding += f"the sliding window has {window_loss} nats per byte"
    else:
        ranked_losses = losses[ranked.index]
        best = str(ranked_losses.idxmin())
        best_loss = task_tables.write_mean(means, best)
        lead = find_lead(ranked_losses, comparisons, {}, lower_is_better=True)
        if lead is None:
            return (
                f"{finding}nothing is ranked: no method reads better than guessing,"
                f" which has {UNIFORM_LOSS:.3f} nats per byte ({best}:"
                f" {best_loss} nats per byte)"
            )
        if len(ranked) > 1 and not lead.is_shown:
            finding += (
                f"no method is shown to be better than another; {best} has"
                f" {best_loss} nats per byte"
            )
        else:
            finding += (
                f"the best method is {best} ({best_loss} nats per byte)"
                f"{name_tied(lead.tied)}"
            )
        arm = str(ranked.loc[best, "arm"])
        finding += _compare_with_window(best, arm, means, comparisons)

    if labels.FAR_CACHE in losses.index:
        finding += (
            "; counts of the n-grams that the window does not see lower its loss to "
            f"{task_tables.write_mean(means, labels.FAR_CACHE)}, those that it sees to "
            f"{task_tables.write_mean(means, labels.NEAR_CACHE)}, all to "
            f"{task_tables.write_mean(means, labels.WINDOW_CACHE)}"
        )
    return finding + _describe_context(tables["last_window"])


def _select_ranked(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per label whose loss is ranked.

    Baselines are not ranked. Rows with searched parameters are ranked only if there are no
    published methods.
    """
    rows = table.assign(label=labels.label_rows(table))
    rows = rows.drop_duplicates("label").set_index("label")
    is_window = rows["method"] == labels.WINDOW
    is_cache = rows["arm"] == labels.CACHE
    methods = rows[~is_window & ~is_cache]
    published = methods[methods["arm"] != labels.SEARCHED]
    if published.empty:
        return methods
    return published


def _compare_with_window(
    best: str, arm: str, means: pd.DataFrame, comparisons: pd.DataFrame
) -> str:
    """Say how the best method, whose row is in the arm `arm`, compares with the sliding
    window.
    """
    # A fine-tuned method is compared with the sliding window of a model that was
    # fine-tuned for the same number of steps.
    window_in_arm = labels.label_method(labels.WINDOW, 1, arm)
    window = labels.WINDOW
    if window_in_arm in means.index:
        window = window_in_arm
    is_best = comparisons["method_a"] == best
    pair = comparisons[is_best & (comparisons["method_b"] == window)]
    # The verdict is the label of the better row, or `~`.
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
        f" ({task_tables.write_mean(means, window)}{note})"
    )


def _describe_context(last_window: pd.DataFrame) -> str:
    """Say what more context inside the trained length saves; an empty text if only one
    length of context was measured there.

    If context is worth little there, losses beyond the trained length say little.
    `last_window` has the losses of the same last tokens after growing contexts.
    """
    unscaled = last_window.query("method == 'unscaled'")
    is_inside = unscaled["context_tokens"] <= unscaled["train_len_tokens"]
    inside = unscaled[is_inside]
    if inside["context_tokens"].nunique() < 2:
        return ""

    losses = {}
    shortest = inside["context_tokens"].min()
    longest = inside["context_tokens"].max()
    for context in (shortest, longest):
        rows = inside[inside["context_tokens"] == context]
        means = task_tables.average_with_intervals(
            rows, task_tables.NLL, task_tables.NLL
        )
        losses[context] = task_tables.write_mean(means, means.index[0])
    # A context includes the last tokens, whose loss is measured.
    last_tokens = grid.choose_last_window(int(unscaled["train_len_tokens"].iloc[0]))
    before = {
        shortest: "with no token before them",
        longest: f"with {longest - last_tokens} tokens before them",
    }
    if shortest > last_tokens:
        before[shortest] = f"with {shortest - last_tokens}"
    return (
        f"; {before[longest]} the last {last_tokens} tokens of a text within the trained"
        f" length cost the unscaled model {losses[longest]} nats per byte,"
        f" {before[shortest]} {losses[shortest]}"
    )


def explain_columns(tables: Tables) -> dict[str, str]:
    """Say what the columns of the short table are, by the beginnings of their names."""
    explained = {}
    if "text_nll" in tables:
        losses = tables["text_nll"]
        starts = losses.groupby("bucket_end_tokens")["bucket_start_tokens"].first()
        start_of = starts.to_dict()
        for end in _choose_values(losses["bucket_end_tokens"], 2):
            explained[f"nll @{end}"] = (
                f"loss of tokens {start_of[end]} to {end}, in nats per byte"
            )
    for task in task_tables.list_retrieval_tasks(tables):
        table = select_longest_context(tables[f"{task}_accuracy"])
        context = table["context_tokens"].iloc[0]
        if task in TASKS_WITH_KEYS:
            explained[f"{task} @{context}"] = f"share found in {context} tokens"
        else:
            explained[f"{task} @N"] = f"share found at N tokens back in {context}"
    return explained
