"""What a run shows in the terminal: the answer in sentences, and short tables."""

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

    exact = {}
    for name, table in tables.items():
        if "arm" in table:
            exact[name] = table[table["arm"] != labels.ROUNDED]
        else:
            exact[name] = table

    findings += [_retrieval(exact, task) for task in common.retrieval_of(tables)]
    if "text_nll" in tables:
        findings.append(_text(exact))
    return common.write_sentences(findings, tables["comparisons"])


def summary(tables: Tables) -> pd.DataFrame:
    """Return a row per method: loss in the first and last bucket, accuracy within and
    beyond.
    """
    columns: dict[str, pd.Series] = {}
    if "text_nll" in tables:
        losses = _wide(tables["text_nll"], "bucket_end_tokens", common.NLL)
        for end in _spread(losses, 2):
            columns[f"nll @{end}"] = losses[end]

    tasks = common.retrieval_of(tables)
    for task in tasks:
        table = in_longest_context(tables[f"{task}_accuracy"])
        if task in common.KEYS:
            context = table["context_tokens"].iloc[0]
            columns[f"{task} @{context}"] = common.average_by_label(table, "accuracy")
            continue

        accuracy = _wide(table, "distance_tokens", "accuracy")
        for distance in _spread(accuracy, max(1, 4 - len(tasks))):
            columns[f"{task} @{distance}"] = accuracy[distance]

    return pd.concat(columns, axis=1).rename_axis("method").reset_index()


def further(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the short table of two casts, if they were compared."""
    return shorten_divergence(tables)


def _wide(table: pd.DataFrame, column: str, value: str) -> pd.DataFrame:
    """Return the means over seeds, a row per method and a column per position."""
    names = labels.row_labels(table)
    wide = table.assign(label=names).pivot_table(
        index="label", columns=column, values=value
    )
    return wide.loc[list(dict.fromkeys(names))]


def _spread(table: pd.DataFrame, most: int) -> Sequence[Hashable]:
    """Return at most `most` columns at even steps, the last column among them."""
    columns = list(table.columns)
    step = max(1, len(columns) // most)
    return columns[::-1][::step][:most][::-1]


def _retrieval(tables: Tables, task: str) -> str:
    """Say which method retrieves best beyond the trained length."""
    table = tables[f"{task}_accuracy"]
    does = common.describe_success(task)
    trained_len = int(table["train_len_tokens"].iloc[0])
    if not _has_learned(table, task, trained_len):
        return (
            f"no model {does} inside {trained_len} tokens, so there is no verdict on"
            " that"
        )

    longest = in_longest_context(table)
    context = longest["context_tokens"].iloc[0]
    if task in common.KEYS:
        # Keys are compared over all depths at once.
        distance = context
        where = f"in {context} tokens"
    else:
        distance = min(2 * trained_len, int(longest["distance_tokens"].max()))
        longest = longest[longest["distance_tokens"] == distance]
        times = f"{distance / trained_len:g} times the trained length"
        where = f"from {distance} tokens back, {times}, in {context} tokens"

    is_searched = longest["arm"] == labels.SEARCHED
    published = common.average_by_label(longest[~is_searched], "accuracy")
    published = published.sort_values(ascending=False, kind="stable")
    compared = {
        "at_tokens": distance,
        "context_tokens": context,
        "metric": f"{task}_accuracy",
    }
    lead = find_lead(published, tables["comparisons"], compared, lower_is_better=False)
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
    inside = table[table["context_tokens"] == trained_len]
    if task not in common.KEYS:
        inside = inside[inside["distance_tokens"] == trained_len // 2]

    # If no method does the task inside the trained length with every seed, the task says
    # nothing about longer contexts.
    by_seed = inside.groupby(["method", "seed"])["accuracy"].mean()
    worst_seed = by_seed.groupby("method").min()
    return not worst_seed.max() < LEARNED


def _text(tables: Tables) -> str:
    """Say which method reads best at the end of the longest text."""
    table = tables["text_nll"]
    losses = _wide(table, "bucket_end_tokens", common.NLL).iloc[:, -1]
    methods = table.assign(label=labels.row_labels(table)).drop_duplicates("label")
    methods = methods.set_index("label")
    # Rows with searched parameters are ranked only if no published formula is.
    is_baseline = (methods["method"] == labels.WINDOW) | (
        methods["arm"] == labels.CACHE
    )
    own = methods[~is_baseline]
    published = own[own["arm"] != labels.SEARCHED]
    shown = own if published.empty else published

    comparisons = tables["comparisons"]
    at_end = comparisons["at_tokens"] == losses.name
    comparisons = comparisons[(comparisons["metric"] == "nll_bucket") & at_end]
    finding = f"at the end of text of {losses.name} bytes "
    if shown.empty:
        finding += f"the sliding window has {losses[labels.WINDOW]:.3f} nats per byte"
    else:
        shown_losses = losses[shown.index]
        best = str(shown_losses.idxmin())
        lead = find_lead(shown_losses, comparisons, {}, lower_is_better=True)
        if lead is None:
            return (
                f"{finding}nothing is ranked: no method reads better than guessing,"
                f" which has {UNIFORM:.3f} nats per byte ({best}: {losses[best]:.3f}"
                " nats per byte)"
            )
        if len(shown) > 1 and not lead.is_shown:
            finding += (
                f"no method is shown to be better than another; {best} has"
                f" {losses[best]:.3f} nats per byte"
            )
        else:
            finding += (
                f"the best method is {best} ({losses[best]:.3f} nats per byte)"
                f"{tied_with(lead.tied)}"
            )
        finding += _against_window(
            best, str(shown.loc[best, "arm"]), losses, comparisons
        )

    if labels.FAR_CACHE in losses:
        finding += (
            "; counts of the n-grams that the window does not see lower its loss to "
            f"{losses[labels.FAR_CACHE]:.3f}, those that it sees to "
            f"{losses[labels.NEAR_CACHE]:.3f}, all to {losses[labels.WINDOW_CACHE]:.3f}"
        )
    return finding + _worth_of_context(tables["last_window"])


def _against_window(
    best: str, arm: str, losses: pd.Series, comparisons: pd.DataFrame
) -> str:
    """Say how the best method compares with the sliding window."""
    # A method is compared with the sliding window of a model that was trained as long.
    tuned = labels.method_label(labels.WINDOW, 1, arm)
    window = tuned if tuned in losses else labels.WINDOW
    of_best = comparisons["method_a"] == best
    pair = comparisons[of_best & (comparisons["method_b"] == window)]
    verdict = str(pair["verdict"].iloc[0])
    if verdict == best:
        relation = "beats"
    elif verdict == window:
        relation = "is worse than"
    else:
        relation = "does not differ significantly from"

    note = ""
    if "finetuned" in tuned and window == labels.WINDOW:
        # Older runs have no window of the fine-tuned model, only the window of the model
        # before fine-tuning.
        note = ", less trained"
    return (
        f"; it {relation} the sliding window of the trained length"
        f" ({losses[window]:.3f}{note})"
    )


def _worth_of_context(last_window: pd.DataFrame) -> str:
    """Say what context inside the trained length saves; nothing if only one length of
    context inside it was measured.
    """
    # If context is worth little inside the trained length, losses beyond that length say
    # little.
    unscaled = last_window.query("method == 'unscaled'")
    inside = unscaled[unscaled["context_tokens"] <= unscaled["train_len_tokens"]]
    costs = inside.groupby("context_tokens")[common.NLL].mean()
    if len(costs) < 2:
        return ""

    scored = grid.last_window(int(unscaled["train_len_tokens"].iloc[0]))
    saved = costs.iloc[0] - costs.iloc[-1]
    return (
        f"; {costs.index[-1] - scored} instead of"
        f" {costs.index[0] - scored} tokens before the last {scored} save the unscaled"
        f" model {saved:.3f}"
    )
