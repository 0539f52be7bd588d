"""The figures of extrapolate: how well methods read beyond the trained length.

An experiment compares methods in arms: without fine-tuning, with parameters searched on
the model, and after fine-tuning. Each arm has separate figures for retrieval and for
text loss, which are drawn by the files extrapolate_retrieval.py and
extrapolate_loss.py.
"""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from ropelab.runs.labels import AS_SHIPPED, CACHE, ROUNDED, WINDOW, label_rows
from ropelab.runs.tables import Tables, select_longest_context
from ropelab.show.figures import rounded
from ropelab.show.figures.extrapolate_lines import (
    ARMS,
    BASELINES,
    WORDS,
    average_methods,
    is_ok,
)
from ropelab.show.figures.extrapolate_loss import (
    draw_loss_by_context,
    draw_loss_by_kind,
    draw_loss_by_position,
    draw_tax_and_gain,
)
from ropelab.show.figures.extrapolate_retrieval import (
    draw_by_distance,
    draw_depth_by_length,
    draw_heatmap,
    select_lines,
    write_retrieval_title,
)
from ropelab.show.figures.extrapolate_tuned import draw_against_zero_shot

# Tables that are drawn by depth and length of the text, with words for what is sought.
DEPTH_TABLES = WORDS["found"]


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw every figure for which the tables have rows, by its name."""
    measured = _select_measured(tables)
    arms = _list_arms(measured)
    figures: dict[str, Figure] = {}
    if "casts" in tables:
        figures |= rounded.draw(tables["casts"])
    if "divergence_by_place" in tables:
        figures |= rounded.draw_divergence(tables["divergence_by_place"])
    for arm in arms:
        tables_of_arm = {}
        for name, table in measured.items():
            tables_of_arm[name] = _select_arm(table, arm)
        figures |= _draw_arm(tables_of_arm, tables["comparisons"], arm)

    if "text_by_document" in tables:
        by_document = tables["text_by_document"]
        # The rows of these arms repeat methods, mixed with counts of n-grams or rounded.
        is_derived = by_document["arm"].isin((CACHE, ROUNDED))
        if _is_compared(by_document, _is_beyond_trained(tables["text_nll"])):
            figures["loss_by_kind"] = draw_loss_by_kind(by_document[~is_derived])
    for name, sought in DEPTH_TABLES.items():
        if name in tables:
            figure = f"{name.removesuffix('_accuracy')}_depth_by_length"
            figures[figure] = draw_depth_by_length(tables[name], sought)
    if {"zero_shot", "finetuned"} <= set(arms):
        figures["finetuned_against_zero_shot"] = draw_against_zero_shot(measured)
    return figures


def _select_measured(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the tables of tasks that compare methods: retrieval first, then loss."""
    retrieval = [name for name in tables if _is_retrieval(name)]
    measured = {}
    for name in (*retrieval, "text_nll", "last_window"):
        # A task that is too hard for the model even at its trained length says nothing
        # about methods. The column `status` tells that, and the task is left out.
        if name not in tables or not is_ok(tables[name]):
            continue
        if _is_compared(tables[name], _is_beyond_trained(tables[name])):
            measured[name] = tables[name]
    return measured


def _is_retrieval(name: str) -> bool:
    return name.endswith("_accuracy") and name not in DEPTH_TABLES


def _list_arms(measured: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the arms in which methods were tried, in the order of ARMS."""
    tried = set()
    for table in measured.values():
        is_method = table["method"] != WINDOW
        tried |= set(table.loc[is_method, "arm"])
    arms = [arm for arm in ARMS if arm in tried]
    if not arms:
        # All rows belong to baselines.
        return ["zero_shot"]
    return arms


def _draw_arm(
    measured: Mapping[str, pd.DataFrame], comparisons: pd.DataFrame, arm: str
) -> dict[str, Figure]:
    """Draw the figures of one arm: retrieval by distance, then text loss."""
    suffix = "" if arm == "zero_shot" else f"_{arm}"
    figures = {}
    for name, table in measured.items():
        if not _is_retrieval(name):
            continue
        task = name.removesuffix("_accuracy")
        title = write_retrieval_title(table, comparisons, task, arm)
        by_distance = average_methods(
            select_longest_context(table), "distance_tokens", "accuracy"
        )
        selected_lines = select_lines(by_distance, title)
        figures[f"{task}_by_distance{suffix}"] = draw_by_distance(
            table, task, title, selected_lines
        )
        if len(selected_lines) < len(by_distance):
            figures[f"{task}_by_distance_all{suffix}"] = draw_by_distance(
                table, task, title, by_distance
            )
        figures[f"{task}_heatmap{suffix}"] = draw_heatmap(table, task, title)
    if "text_nll" not in measured:
        return figures

    # Loss by position, and the loss of the last tokens by the length of their context.
    text = measured["text_nll"]
    # A released model that reads no text longer than its trained length has no sliding
    # window.
    if (text["method"] == WINDOW).any():
        by_position = draw_loss_by_position(text, comparisons, arm)
        figures[f"loss_by_position{suffix}"] = by_position
    last = measured["last_window"]
    figures[f"loss_by_context{suffix}"] = draw_loss_by_context(last, arm)
    labels = set(label_rows(last))
    has_baseline = bool({AS_SHIPPED, "unscaled"} & labels)
    has_methods = bool(labels - set(BASELINES))
    # In texts up to the trained length a method can gain nothing.
    if arm == "zero_shot" and has_baseline and has_methods and _is_beyond_trained(last):
        figures["tax_and_gain"] = draw_tax_and_gain(last, comparisons)
    return figures


def _is_beyond_trained(table: pd.DataFrame) -> bool:
    """Return True if texts are longer than the trained length of the models."""
    ends = "context_tokens" if "context_tokens" in table else "bucket_end_tokens"
    return bool(table[ends].max() > table["train_len_tokens"].iloc[0])


def _is_compared(table: pd.DataFrame, reaches_beyond: bool) -> bool:
    """Return True if a table has several methods or baselines to compare.

    Rows with rounded angles or keys do not count. Up to the trained length a sliding
    window is the same as the model itself, and does not count either.
    """
    counted = table[table["arm"] != ROUNDED]
    if not reaches_beyond:
        counted = counted[counted["method"] != WINDOW]
    return len(set(label_rows(counted))) > 1


def _select_arm(table: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Select the rows of an arm, the rows of a model trained at the tested length
    (`ceiling`), and the rows of a sliding window. If the arm has no sliding window, the
    window without fine-tuning is taken.
    """
    is_chosen = table["arm"].isin([arm, "ceiling"])
    is_window = table["method"] == WINDOW
    has_window = (is_chosen & is_window).any()
    if not has_window:
        is_chosen |= is_window & (table["arm"] == "zero_shot")
    return table[is_chosen]
