"""Cells, tables, the recommendation, answer and summary.

`model` has the facts about positions and the weights' format, `recommendation` the row
to use at the tested length, for text and for each kind of retrieval; `casts`:
`ropelab.models.tasks.rounded`; `divergence`: `ropelab.models.tasks.divergence`; others:
`ropelab.models.tasks.tables`. A task that the unmodified model does not do inside its
trained length is not done beyond it: its status is `undecidable`, and no methods are
compared.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from typing import Any

import pandas as pd

from ropelab.experiments.evaluate import EvaluateConfig
from ropelab.math.scaling.plan import as_typed
from ropelab.models.methods.method import UNSCALED, Scaled
from ropelab.models.tasks import grid
from ropelab.models.tasks import tables as common
from ropelab.models.tasks.cells import (
    UNDECIDABLE,
    Checked,
    Evaluation,
    collect,
    is_found,
)
from ropelab.models.tasks.divergence import (
    describe_divergence,
    divergence_tables,
    make_divergence,
    pair_method_plans,
    pair_plans,
    shorten_divergence,
)
from ropelab.models.tasks.modes import Mode, SlidingWindow, Unmodified, WithMethod
from ropelab.models.tasks.needles import Needles
from ropelab.models.tasks.partial import summarize_finished as summarize_finished
from ropelab.models.tasks.plans import beyond_training
from ropelab.models.tasks.retrieval import Retrieval
from ropelab.models.tasks.rounded import casts_table, describe_casts, rounded_rows
from ropelab.models.tasks.task import Texts
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import select_pair, tied_with
from ropelab.runs.labels import AS_SHIPPED, ROUNDED, WINDOW, method_label
from ropelab.runs.leading import UNIFORM
from ropelab.runs.spelling import command_of, split_list
from ropelab.runs.tables import Tables, in_longest_context
from ropelab.runs.thresholds import HARDLY_READ

# The best row is better than the unmodified model; it is the unmodified model; the two
# are indistinguishable. A fourth status is UNDECIDABLE.
BETTER, KEPT, OPEN = "better", "unmodified", "open"
# The recommendation of a task: the label of the best row; its loss (nats per byte) or
# the share that it finds; those of the unmodified model and of the sliding window; best
# minus unmodified; labels indistinguishable from the best; the command that writes the
# best one's configuration.
ADVICE = [
    *(
        "task",
        "status",
        "at_tokens",
        "best",
        "value",
        "unmodified",
        "difference",
        "ci_low",
    ),
    *("ci_high", "not_significant", "window", "emit"),
]


def check(config: EvaluateConfig) -> None:
    """Raise InputError for a corpus that is too short, or more memory than
    --limit-memory.
    """
    config.reference().check_memory(config.limit_memory, config.context)
    for task in config.tasks:
        beyond_training(config, task, config.depths).check()


def cells(config: EvaluateConfig) -> list[Evaluation]:
    of_tasks = [cell for task in config.tasks for cell in evaluations(config, task)]
    return [*of_tasks, *divergences(config)]


def divergences(config: EvaluateConfig) -> list[Evaluation]:
    """Return a cell per document and cast, beside the cast of the comparison."""
    geometry = config.facts.geometry()
    pairs = [
        *pair_plans(config, AS_SHIPPED, 1.0, Unmodified(), geometry),
        *pair_method_plans(config, geometry),
    ]
    modes = [mode for pair in pairs for mode in (pair.mode, pair.other)]
    checked = check_model(config, modes)
    compared = []
    for pair in pairs:
        for part in make_divergence(config, pair).parts():
            cell = Evaluation(
                subject=config.reference(),
                task=part,
                mode=pair.mode,
                labels=pair.labels,
                checked=checked,
            )
            compared.append(cell)
    return compared


def check_model(config: EvaluateConfig, modes: Sequence[Mode]) -> Checked:
    """Return the check that the model loads and takes these modes."""
    return Checked(
        subject=config.reference(),
        modes=tuple(dict.fromkeys(modes)),
        train_len=config.grid_len,
        longest=config.context,
        limit_memory=config.limit_memory,
    )


def evaluations(config: EvaluateConfig, name: str) -> list[Evaluation]:
    """Return a task in every mode: unmodified first, the sliding window last."""
    # Each starts from the check of the model, and from a probe.
    # Where the checkpoint scales nothing, unscaled is the same, and is measured once.
    same = UNSCALED.label if config.facts.rope_type == "default" else None
    unmodified, geometry = Unmodified(), config.facts.geometry()
    rows: list[tuple[str, float, Mode]] = [(AS_SHIPPED, 1.0, unmodified)]
    under_casts = rounded_rows(config, AS_SHIPPED, unmodified, geometry)
    rounded = [(name, 1.0, mode) for name, mode in under_casts]
    for method in config.parsed_methods():
        changed = WithMethod(method, geometry)
        rows.append(
            (
                method.label,
                method.factor,
                unmodified if method.label == same else changed,
            )
        )
        if isinstance(method, Scaled) and method.label != same:
            of_method = rounded_rows(config, method.label, changed, geometry)
            rounded += [(name, method.factor, mode) for name, mode in of_method]
    rows += rounded
    if config.window < config.context:
        rows.append((WINDOW, 1.0, SlidingWindow(unmodified, config.window)))

    model, task = config.reference(), beyond_training(config, name, config.depths)
    checked = check_model(config, [mode for _, _, mode in rows])
    evaluation = partial(Evaluation, subject=model, checked=checked)
    probe, found = None, []
    easy = task.inside(config.grid_len)
    # A cell per document: those that were read are kept, whatever happens to the
    # others, and more of them can be asked for later.
    parts: Sequence[Texts | Retrieval | Needles] = task.parts()
    for part, (label, factor, mode) in product(parts, rows):
        # Nothing is drawn and nothing tuned: there is one seed.
        arm = ROUNDED if " + " in label else "zero_shot"
        labels = tuple(zip(common.ROW, (label, factor, 0, arm), strict=True))
        if label == AS_SHIPPED and easy is not None:
            probe = evaluation(task=easy, mode=mode, labels=labels)
        each = part.at_the_end(config.context) if label == WINDOW else part
        cell = evaluation(task=each, mode=mode, labels=labels, probe=probe)
        # At the trained length an unmodified probe of pass keys is all of the task.
        found.append(probe if probe and cell.key == probe.key else cell)
    return found


def tables(config: EvaluateConfig, values: Values) -> dict[str, pd.DataFrame]:
    lengths = grid.contexts(config.grid_len, config.context)
    short = [length for length in lengths if length <= config.train_len]
    decided: list[Evaluation] = []
    status: dict[str, str] = {}
    for task in config.tasks:
        of_task = evaluations(config, task)
        # Unmodified alone, at the trained length, the probe is all of the task.
        probe = of_task[-1].probe or (None if task == "text" else of_task[0])
        if probe is not None:
            status[probe.task.name] = (
                common.OK if is_found(values[probe]) else UNDECIDABLE
            )
        decided += (
            [probe] if probe and status[probe.task.name] == UNDECIDABLE else of_task
        )
    found = common.tables_of_tasks(
        collect(decided, values), config, AS_SHIPPED, short, status
    )
    methods, geometry = config.parsed_methods(), config.facts.geometry()
    found |= casts_table(config, methods, geometry, found["comparisons"])
    found |= divergence_tables(divergences(config), values)
    found["recommendation"] = recommendation(config, found)
    return {"model": model_table(config), **found}


def model_table(config: EvaluateConfig) -> pd.DataFrame:
    facts: dict[str, Any] = asdict(config.facts)
    windows = facts.pop("windows")
    lengths = {
        f"{name}_tokens": facts.pop(name) for name in ("train_len", "claimed_len")
    }
    lengths["layer_window_tokens"] = windows[0] if windows else None
    lengths["sliding_window_tokens"] = config.window
    return pd.DataFrame([{**facts, **lengths, "dtype": config.dtype}])


def recommendation(config: EvaluateConfig, tables: Tables) -> pd.DataFrame:
    names = [beyond_training(config, task, config.depths).name for task in config.tasks]
    return pd.DataFrame(
        [_advice(task, config, tables) for task in names], columns=ADVICE
    )


def _advice(task: str, config: EvaluateConfig, tables: Tables) -> dict[str, Any]:
    length, text = config.context, task == "text"
    metric, column = (
        ("nll_bucket", common.NLL) if text else (f"{task}_accuracy", "accuracy")
    )
    table = tables["text_nll" if text else metric]
    table = table[table["arm"] != ROUNDED]
    if not text and (table["status"] != common.OK).any():
        nothing = dict.fromkeys(("best", "not_significant", "emit"), "")
        return {"task": task, "status": UNDECIDABLE, "at_tokens": length, **nothing}
    table = table[table["bucket_end_tokens" if text else "context_tokens"] == length]
    if not text and task not in common.KEYS:
        table = table[table["distance_tokens"] == table["distance_tokens"].max()]
    values = common.by_label(table, column)
    best = str(values.idxmin() if text else values.idxmax())
    if text and len(values) > 1 and values[best] >= UNIFORM:
        nothing = dict.fromkeys(("best", "not_significant", "emit"), "")
        return {"task": task, "status": UNDECIDABLE, "at_tokens": length, **nothing}
    pairs = tables["comparisons"]
    pairs = pairs[(pairs["metric"] == metric) & (pairs["context_tokens"] == length)]
    pairs = pairs[pairs["at_tokens"] == pairs["at_tokens"].max()]
    others = {
        name: select_pair(pairs, best, name).iloc[0]
        for name in values.index
        if name != best
    }
    unmodified = others.get(AS_SHIPPED, {"verdict": AS_SHIPPED})
    status = {AS_SHIPPED: KEPT, "~": OPEN}.get(unmodified["verdict"], BETTER)
    return {
        "task": task,
        "status": status,
        "at_tokens": length,
        "best": best,
        "value": float(values[best]),
        "unmodified": float(values[AS_SHIPPED]),
        **{name: unmodified.get(name) for name in ("difference", "ci_low", "ci_high")},
        "not_significant": ", ".join(
            n for n, row in others.items() if row["verdict"] == "~"
        ),
        "window": float(values[WINDOW]) if WINDOW in values else None,
        "emit": _emit(best, config) if status == BETTER and best != WINDOW else "",
    }


def _emit(label: str, config: EvaluateConfig) -> str:
    """Return the command that writes down the method of a label."""
    (method,) = {
        as_typed(each.scaling if isinstance(each, Scaled) else each)
        for each in config.parsed_methods()
        if method_label(each.label, each.factor) == label
    }
    about = {"from": config.model, "context": config.context, "method": method}
    return command_of("emit", about)


def answer(tables: Tables) -> str:
    """Give the recommendation; then its cost."""
    model = tables["model"].iloc[0]
    # An empty text comes back from disk as a missing value.
    recommended = tables["recommendation"].astype(
        {"not_significant": object, "emit": object}
    )
    advice = [
        row
        for _, row in recommended.fillna({"not_significant": "", "emit": ""}).iterrows()
    ]
    alone = tables["comparisons"].empty
    findings = [_finding(row, model, alone) for row in advice]
    if "casts" in tables:
        # Without a method or a window nothing else was compared, and nothing is
        # recommended.
        alone = len(tables["casts"]) == len(tables["comparisons"])
        findings = [*describe_casts(tables["casts"]), *(() if alone else findings)]
    findings = [*describe_divergence(tables), *findings]
    more = []
    costs = tables["comparisons"].query(
        "metric == 'nll_short_context' & method_a == @AS_SHIPPED"
    )
    # The price of a method where none is needed.
    for label in dict.fromkeys(row["best"] for row in advice if row["emit"]):
        parts = [
            f"{-row.difference:+.3f} at"
            f" {row.at_tokens}{' (~)' if row.verdict == '~' else ''}"
            for row in costs[costs["method_b"] == label].itertuples()
        ]
        if parts:
            more.append(
                f"in short contexts {label} costs {', '.join(parts)} nats per byte"
            )
    if "text_nll" in tables:
        plain = tables["text_nll"].query("method == @AS_SHIPPED")[common.NLL].min()
        if plain > HARDLY_READ:
            chance = (
                f"it reads this text little better than chance ({plain:.2f} nats per"
                " byte)"
            )
            more.insert(0, f"{chance}; try --corpus")
    if model["windowed_layers"]:
        more.append(
            f"{model['windowed_layers']} of its {model['layers']} layers read a window"
            f" of {model['layer_window_tokens']:.0f} tokens, which no method changes"
        )
    return common.sentences(findings, tables["comparisons"], more)


def following(config: EvaluateConfig, tables: Tables) -> str:
    """Return the command that writes the best method down, else the one that checks the
    model.
    """
    commands = tables["recommendation"]["emit"].fillna("")
    return next(
        filter(None, commands), command_of("audit", {"model": config.model}, "model")
    )


def _finding(row: pd.Series, model: pd.Series, alone: bool) -> str:
    does, best = common.describe_success(row["task"]), row["best"]
    if row["status"] == UNDECIDABLE and row["task"] == "text":
        return (
            f"at {row['at_tokens']} tokens nothing is ranked: no method reads this text"
            f" better than guessing, which has {UNIFORM:.2f} nats per byte"
        )
    if row["status"] == UNDECIDABLE:
        inside = min(model["train_len_tokens"], row["at_tokens"])
        cases = f"in fewer than half of the cases inside {inside} tokens"
        return f"unmodified it {does} {cases}, so nothing is decided beyond"
    unit = (
        " nats per byte in the last bucket of positions"
        if row["task"] == "text"
        else ""
    )
    rivals = tied_with(split_list(row["not_significant"]))
    lead = f"at {row['at_tokens']} tokens"
    if alone:
        return f"{lead} the unmodified model {does}: {row['value']:.3f}{unit}"
    if row["status"] == KEPT:
        return (
            f"{lead} the unmodified model {does} best"
            f" ({row['value']:.3f}{unit}){rivals}"
        )
    named = (
        f"a sliding window of {model['sliding_window_tokens']}"
        if best == WINDOW
        else best
    )
    ends = (
        f"{row['ci_low']:.3g} to {row['ci_high']:.3g}"
        if pd.notna(row["ci_low"])
        else "n = 1"
    )
    gap = f"{row['difference']:+.3g} ({ends}){unit}"
    if row["status"] == BETTER:
        return f"{lead} {named} {does} best, {gap} against the unmodified model{rivals}"
    return (
        f"{lead} nothing {does} distinguishably better than the unmodified model:"
        f" {named} {gap}"
    )


def summary(tables: Tables) -> pd.DataFrame:
    """Return a row per evaluation mode: cost at short length, loss at the end, shares
    found.
    """
    columns: dict[str, pd.Series] = {}
    if "text_nll" in tables:
        losses = tables["last_window"]
        trained = losses["train_len_tokens"].iloc[0]
        longest = losses["context_tokens"].max()
        for at in dict.fromkeys((trained, longest)):
            rows = losses[losses["context_tokens"] == at]
            # Texts may be shorter than what the model was trained on.
            if len(rows):
                columns[f"nll @{at}"] = common.by_label(rows, common.NLL)
    for task in common.retrieval_of(tables):
        found = in_longest_context(tables[f"{task}_accuracy"])
        at = found["context_tokens"].iloc[0]
        columns[f"{task} @{at}"] = common.by_label(found, "accuracy")
    order = dict.fromkeys(
        label for column in columns.values() for label in column.index
    )
    return (
        pd.concat(columns, axis=1).loc[list(order)].rename_axis("method").reset_index()
    )


def further(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the short table of two casts, if they were compared."""
    return shorten_divergence(tables)
