"""From the values of tasks to tables with 95 % intervals, the same in all experiments.

text_nll         loss by bucket of positions, mean over documents: one causal pass over
each last_window      loss of the same final tokens (512, or a quarter of the trained
length if that is
                 less), which are part of context_tokens, as it grows; mean over documents
text_by_kind     loss after the longest context, a row per kind of document
text_by_document the same for every document, mean over the seeds context_by_kind  loss
of the same final tokens inside the trained length, by kind, unmodified model
<task>_accuracy  share of tokens found by distance and length of context; or of keys
found and
                 log-probability of the answer, by depth and context
comparisons      every pair of rows under every metric

`losses` and `accuracies` are of one training seed: documents (sequences) are drawn
anew, the model is given; `over_seeds` is of all. Units are sequences: tokens of one
succeed or fail together.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations

import pandas as pd

from ropelab.models.tasks.config import DOES, Evaluated
from ropelab.runs.comparisons import Measure, Pair, compared, significance
from ropelab.runs.labels import CACHE, ROUNDED, method_label, row_labels
from ropelab.runs.sentences import sentences_of
from ropelab.runs.stats import crossed_mean, crossed_proportion, mean_interval
from ropelab.runs.tables import Tables

NLL = "nll_nats_per_byte"
LOG_PROBABILITY = "log_probability_nats"
MEASURES: dict[str, Measure] = {NLL: "loss", LOG_PROBABILITY: "log_probability"}
INTERVAL = ["ci_low", "ci_high"]
BUCKET = ["bucket_start_tokens", "bucket_end_tokens"]
PLACE = ["distance_tokens", "context_tokens"]
# The columns that identify rows, and those that identify comparisons.
ROW = ["method", "factor", "seed", "arm"]
ABOUT = ["metric", "at_tokens", "context_tokens", "method_a", "method_b"]
KEYS = ("passkey", "multiquery", "indexing", "keyed")
OK = "ok"
Measured = Mapping[str, pd.DataFrame]
OF_TASK = "_accuracy"


def does_of(task: str) -> str:
    """Return the words for what a model does in a task."""
    return DOES.get(task, f"solves {task}")


def retrieval_of(tables: Tables) -> list[str]:
    """Return the retrieval tasks that tables are about, one's own last."""
    found = [name.removesuffix(OF_TASK) for name in tables if name.endswith(OF_TASK)]
    return sorted(found, key=lambda task: [*DOES, task].index(task))


def losses(values: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Make the columns given, documents, nll_nats_per_byte, ci_low, ci_high: means of
    documents.
    """
    records = []
    for key, group in values.groupby(list(columns), sort=False):
        mean = mean_interval(group[NLL])
        records.append((*key, mean.n, mean.value, mean.low, mean.high))
    return pd.DataFrame(records, columns=[*columns, "documents", NLL, *INTERVAL])


def accuracies(counts: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Make the columns given, sequences, trials, accuracy, ci_low, ci_high: shares
    found.
    """
    records = []
    for key, group in counts.groupby(list(columns), sort=False):
        shares = (group["correct"] / group["trials"]).to_numpy()
        found = crossed_proportion(shares[None, :], int(group["trials"].iloc[0]))
        ends = (found.value, found.low, found.high)
        records.append((*key, len(group), int(group["trials"].sum()), *ends))
    return pd.DataFrame(
        records, columns=[*columns, "sequences", "trials", "accuracy", *INTERVAL]
    )


def per_unit(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows as `over_seeds` takes them: losses of documents, or shares of
    sequences.
    """
    if NLL in table:
        return table.rename(columns={"document": "unit", NLL: "value"}).assign(trials=0)
    shares = table["correct"] / table["trials"]
    return table.rename(columns={"sequence": "unit"}).assign(value=shares)


def over_seeds(rows: pd.DataFrame) -> tuple[int, int, float, float, float]:
    """Return seeds, units, value, both ends of its interval over both."""
    # `rows` has seed, unit, trials (of a share; 0 for a mean) and value, each seed with
    # each unit.
    wide = rows.pivot(index="seed", columns="unit", values="value").to_numpy()
    trials = int(rows["trials"].iloc[0])
    found = (
        crossed_proportion(wide, trials) if trials else crossed_mean(wide).interval()
    )
    return *wide.shape, found.value, found.low, found.high


def tables_of_tasks(
    measured: Mapping[str, Measured],
    config: Evaluated,
    plain: str,
    short: Sequence[int],
    status: Mapping[str, str],
) -> dict[str, pd.DataFrame]:
    """Make the tables that the head of this file describes; only tasks that are OK are
    compared.

    `plain` leaves the model as it was trained. In the `short` contexts, inside the
    trained length, the loss of a method is its cost. `status` becomes a column of each
    task's tables.
    """
    found: dict[str, pd.DataFrame] = {}
    for task, values in measured.items():
        if task == "text":
            made = _of_text(values, config, plain)
        elif task in KEYS:
            answers, by = values["answers"], [*ROW, "depth_percent", "context_tokens"]
            means = answers.groupby(by, sort=False)[
                ["distance_tokens", LOG_PROBABILITY]
            ].mean()
            table = accuracies(answers, by).merge(means.reset_index(), on=by)
            made = {f"{task}_accuracy": table}
        else:
            made = {f"{task}_accuracy": accuracies(values["trials"], [*ROW, *PLACE])}
        column = {"status": status[task]} if task in status else {}
        lengths = {"train_len_tokens": config.train_len}
        found |= {
            name: table.assign(**column, **lengths) for name, table in made.items()
        }
    decided = {
        task: each for task, each in measured.items() if status.get(task, OK) == OK
    }
    return {**found, "comparisons": comparisons(decided, short, config.longest)}


def _of_text(
    values: Measured, config: Evaluated, plain: str
) -> dict[str, pd.DataFrame]:
    last = values["last_window"]
    origins = config.text.origins(config.longest + 1, config.documents)
    about = (
        pd.DataFrame(origins, columns=["name", "kind"])
        .rename_axis("document")
        .reset_index()
    )
    table = last.merge(about, on="document")
    longest = table[table["context_tokens"] == table["context_tokens"].max()]
    inside = table[
        (table["context_tokens"] <= config.train_len) & (table["method"] == plain)
    ]
    single = ["document", "name", "kind", "method", "factor", "arm"]
    means = longest.groupby(single, sort=False)[NLL].agg(["size", "mean"]).reset_index()
    by_document = means.drop(columns="document").set_axis(
        [*single[1:], "seeds", NLL], axis=1
    )
    tables = {
        "text_nll": losses(values["buckets"], [*ROW, *BUCKET]),
        "last_window": losses(last, [*ROW, "context_tokens"]),
        "text_by_kind": losses(longest, [*ROW, "kind"]),
        "text_by_document": by_document,
        "context_by_kind": losses(inside, [*ROW, "kind", "context_tokens"]),
    }
    return {name: table for name, table in tables.items() if not table.empty}


def comparisons(
    found: Mapping[str, Measured], short: Sequence[int], longest: int
) -> pd.DataFrame:
    """Compare all rows of each task under each of its metrics."""
    pairs = []
    for task, values in found.items():
        for about, group, unit, column in _metrics(task, values, short, longest):
            measure = MEASURES.get(column, "share")
            trials = 0
            if measure == "share":
                # An answer to a question is a share of one trial.
                trials = int(group["trials"].iloc[0]) if "trials" in group else 1
            labels = pd.Series(row_labels(group), group.index)
            by_row = {
                str(label): rows.set_index(["seed", unit])[column]
                for label, rows in group.groupby(labels, sort=False)
            }
            # A cache reads what methods do not: its easy discoveries are apart from
            # theirs. So are those of a rounded row, which is compared with the same row
            # without the rounding.
            apart = {*labels[group["arm"].isin((CACHE, ROUNDED))]}
            rounded = group[group["arm"] == ROUNDED].drop_duplicates(
                ["method", "factor"]
            )
            exact = {
                method_label(*row): method_label(row[0].split(" + ")[0], row[1])
                for row in rounded[["method", "factor"]].itertuples(index=False)
            }
            for a, b in combinations(by_row, 2):
                if {a, b} & {*exact} and a != exact.get(b):
                    continue
                family = (*about, bool({a, b} & apart))
                values_of = by_row[a], by_row[b]
                names = (*about, a, b)
                pairs.append(Pair(names, *values_of, (a, b), measure, family, trials))
    return compared(pairs, ABOUT)


def _metrics(
    task: str, measured: Measured, short: Sequence[int], longest: int
) -> Iterator[tuple[tuple[Hashable, ...], pd.DataFrame, str, str]]:
    """Yield name and place of each metric, its values, and their columns of units and
    of values.
    """
    if task == "text":
        for end, group in measured["buckets"].groupby("bucket_end_tokens"):
            yield ("nll_bucket", end, end), group, "document", NLL
        last = measured["last_window"]
        costs = [("nll_short_context", length) for length in short]
        for name, length in (("nll_last_window", longest), *costs):
            group = last[last["context_tokens"] == length]
            yield (name, length, length), group, "document", NLL
    elif task in KEYS:
        answers = measured["answers"]
        # Over all depths and sequences of a context; each is a unit of its own.
        unit = (
            answers["depth_percent"].astype(str) + " " + answers["sequence"].astype(str)
        )
        for context, group in answers.assign(unit=unit).groupby("context_tokens"):
            for name, column in (
                ("accuracy", "correct"),
                ("log_probability", LOG_PROBABILITY),
            ):
                yield (f"{task}_{name}", context, context), group, "unit", column
    else:
        trials = measured["trials"]
        shares = trials.assign(accuracy=trials["correct"] / trials["trials"])
        for place, group in shares.groupby(PLACE):
            yield (f"{task}_accuracy", *place), group, "sequence", "accuracy"


def by_label(table: pd.DataFrame, value: str) -> pd.Series:
    """Return the mean of a column for each label, in their order."""
    return table.groupby(row_labels(table), sort=False)[value].mean()


def sentences(
    findings: Sequence[str], comparisons: pd.DataFrame, more: Sequence[str] = ()
) -> str:
    """Return an answer: a sentence for each finding, then the counts of comparisons and
    more.
    """
    return sentences_of([*findings, "; ".join([significance(comparisons)[:-1], *more])])
