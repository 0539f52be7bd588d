"""Models evaluated under roundings, and the table of what the roundings cost.

A rounding is a cast (stages of RoPE are rounded) or a format of stored keys. Each
method is evaluated without roundings, and once more under each rounding. The table
`casts` has a row for each rounding, metric and length of context:

angle_error_rad
    predicted by arithmetic: the largest error of an angle up to that length
score_error
    predicted by arithmetic, as a share of the standard deviation of scores of random
    vectors: for a cast the spread, over positions, of a score at a fixed distance; for
    a format of keys the root mean square error of a score
cost
    measured: how much worse the method is with the rounding than without it, in nats
    per byte or as a share of what is found

The predictions are for the frequencies of the method or, for an unmodified model, for
the frequencies of the base in its configuration.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pandas as pd

from ropelab.math.frequencies import Geometry
from ropelab.math.numerics.angle_errors import find_worst
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.keys import BLOCK, Rounding, key_errors
from ropelab.math.numerics.spread import SpreadMeter
from ropelab.math.scaling import Scaling, Unscaled
from ropelab.models.methods.method import Method, Scaled
from ropelab.models.tasks.config import RoundingConfig, list_roundings
from ropelab.models.tasks.grid import choose_last_window
from ropelab.models.tasks.modes import Mode, Rounded
from ropelab.runs.comparisons import select_pair
from ropelab.runs.labels import AS_SHIPPED, label_method
from ropelab.runs.sentences import write_count, write_with_interval
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import LEAST_SCORE_ERROR

# The seed of the random vectors of a prediction.
SEED = 0
# The columns of the table `casts`.
COLUMNS = [
    "method",
    "factor",
    "rounding",
    "rounds",
    "metric",
    "at_tokens",
    "context_tokens",
    "angle_error_rad",
    "score_error",
    "cost",
    "ci_low",
    "ci_high",
    "seeds",
    "n",
    "verdict",
]
# The verdict on a rounded row that cannot be distinguished from the row without the
# rounding.
INDISTINGUISHABLE = "~"
# The verdicts on a rounded row that is worse, and on a rounded row that is better.
WORSE = "costs"
BETTER = "gains"
# The metric of text that sentences are about.
TEXT_METRIC = "nll_last_window"
# The number of roundings that a sentence names, the costliest first.
MOST_NAMED = 3
# Costs on fewer documents or contexts than this are said to be on "only" so many.
FEW_TEXTS = 10


def round_rows(
    config: RoundingConfig, label: str, mode: Mode, geometry: Geometry
) -> Iterator[tuple[str, Mode]]:
    """Yield a name and an evaluation mode for each rounding of a config.

    `label` and `mode` belong to the row without a rounding. A rounding that rounds
    nothing leaves the mode as it is.
    """
    for rounding in list_roundings(config):
        name = f"{label} + {rounding.label}"
        if rounding.rounds:
            yield name, Rounded(mode, rounding, geometry)
        else:
            yield name, mode


def make_casts_table(
    config: RoundingConfig,
    methods: Sequence[Method],
    geometry: Geometry,
    comparisons: pd.DataFrame,
    head_dim: int | None = None,
) -> Tables:
    """Return `casts` for the methods on frequencies; nothing without a rounding.

    `head_dim` are the features of a head; None: all of them rotate.
    """
    scalings: dict[tuple[str, float], Scaling] = {(AS_SHIPPED, 1.0): Unscaled()}
    for method in methods:
        if isinstance(method, Scaled):
            scalings[method.label, method.factor] = method.scaling

    @cache
    def predict(
        method_and_factor: tuple[str, float], rounding: Rounding, length: int
    ) -> tuple[float, float]:
        inv_freq = scalings[method_and_factor].plan(geometry, length).inv_freq
        spectrum = Spectrum(
            inv_freq, geometry.base, geometry.rotary_dim, head_dim=head_dim
        )
        return _predict_errors(rounding, spectrum, length)

    records = []
    for method_name, factor in scalings:
        for rounding in list_roundings(config):
            exact_label = label_method(method_name, factor)
            rounded_name = f"{method_name} + {rounding.label}"
            rounded_label = label_method(rounded_name, factor)
            first_columns = {
                "method": method_name,
                "factor": factor,
                "rounding": rounding.label,
                "rounds": "keys" if rounding.keys else "rotation",
            }
            # The differences are the rounded row minus the exact row.
            pairs = select_pair(comparisons, rounded_label, exact_label)
            for pair in pairs.to_dict("records"):
                length = int(pair["context_tokens"])
                errors = predict((method_name, factor), rounding, length)
                records.append({**first_columns, **_describe_cost(pair, errors)})
    if not records:
        return {}
    return {"casts": pd.DataFrame(records, columns=COLUMNS)}


def _describe_cost(
    comparison: Mapping[Hashable, Any], errors: tuple[float, float]
) -> dict[str, Any]:
    """Return the cost of a rounding from its comparison, and the predicted errors.

    `errors` are the error of an angle and the error of a score.
    """
    cost = comparison["difference"]
    low = comparison["ci_low"]
    high = comparison["ci_high"]
    is_loss = comparison["metric"].startswith("nll")
    if not is_loss:
        # A larger share is better, so that the cost has the opposite sign, and the ends
        # of its interval change places. Unlike a minus, the subtraction from 0 makes no
        # negative zero.
        cost = 0 - cost
        low, high = 0 - high, 0 - low

    if comparison["verdict"] == INDISTINGUISHABLE:
        verdict = INDISTINGUISHABLE
    elif cost > 0:
        verdict = WORSE
    else:
        verdict = BETTER
    angle_error, score_error = errors
    return {
        "metric": comparison["metric"],
        "at_tokens": comparison["at_tokens"],
        "context_tokens": comparison["context_tokens"],
        "angle_error_rad": angle_error,
        "score_error": score_error,
        "cost": cost,
        "ci_low": low,
        "ci_high": high,
        "seeds": comparison["seeds"],
        "n": comparison["n"],
        "verdict": verdict,
    }


def _predict_errors(
    rounding: Rounding, spectrum: Spectrum, length: int
) -> tuple[float, float]:
    """Return the angle error and the error of a score that arithmetic predicts.

    The error of a score is NaN for a format of keys in blocks that do not fit the head.
    """
    if rounding.keys is not None:
        # Keys are rotated exactly, and stored with the features that do not rotate.
        angle_error = 0.0
        features = 2 * spectrum.head_pairs
        has_blocks = rounding.keys.shared == "block"
        if has_blocks and features % BLOCK != 0:
            return angle_error, float("nan")
        errors = key_errors(rounding.keys, spectrum, length, SEED)
        return angle_error, errors.score

    phase = Chain(rounding.cast.phase, spectrum)
    angle_error = find_worst(phase, rounding.first, length).error_rad
    chain = Chain(rounding.cast, spectrum)
    meter = SpreadMeter(chain, rounding.first, length, SEED)
    return angle_error, meter.measure_overall().value


def describe_casts(casts: pd.DataFrame, trained_len: int) -> list[str]:
    """Say for each method what its roundings cost, in the longest context.

    There is a sentence for text, and for each task at its farthest place.
    """
    # A context below the trained length is tested as if it were the trained length.
    longest = int(casts["context_tokens"].max())
    last_tokens = choose_last_window(min(trained_len, longest))
    metrics = [TEXT_METRIC]
    metrics += [name for name in casts["metric"].unique() if "accuracy" in name]
    sentences = []
    for metric in metrics:
        rows_of_metric = casts[casts["metric"] == metric]
        for _, rows in rows_of_metric.groupby(["method", "factor"], sort=False):
            sentences.append(_say_costs(rows, metric, last_tokens))
    return sentences


def _say_costs(rows: pd.DataFrame, metric: str, last_tokens: int) -> str:
    rows = rows[rows["context_tokens"] == rows["context_tokens"].max()]
    rows = rows[rows["at_tokens"] == rows["at_tokens"].max()]
    if metric == TEXT_METRIC:
        task = "text"
        unit = f"nats per byte of the last {last_tokens} tokens"
        measured_on = "document"
    else:
        task = metric.removesuffix("_accuracy").replace("_", " ")
        unit = f"the share found in {task}"
        measured_on = "context"

    # All rows are of one method and length.
    first_row = rows.iloc[0]
    label = label_method(first_row["method"], first_row["factor"])
    lead = f"{label} at {first_row['context_tokens']} tokens: "
    is_worse = rows["verdict"] == WORSE
    costly_rows = rows[is_worse]
    if costly_rows.empty:
        return f"{lead}no cost to {task} of {len(rows)} roundings can be distinguished"

    count = f"{len(costly_rows)} of {len(rows)} roundings"
    if is_worse.all():
        all_rows = "both" if len(rows) == 2 else f"all {len(rows)}"
        count = f"{all_rows} roundings"
    verb = "costs" if len(costly_rows) == 1 < len(rows) else "cost"
    sentence = f"{lead}{count} {verb}, in {unit}: {_list_costs(costly_rows)}"
    if is_worse.all():
        return sentence
    least_costly = costly_rows.sort_values("score_error").iloc[0]
    why = ""
    if least_costly["score_error"] < LEAST_SCORE_ERROR:
        why = ", which changes angles alike at every place,"
    return (
        f"{sentence}; the smallest score spread that costs has"
        f" {_name_with_error(least_costly)}{why} and"
        f" {_describe_largest_free(rows[~is_worse], measured_on)}"
    )


def _describe_largest_free(free_rows: pd.DataFrame, measured_on: str) -> str:
    """Name the rounding with the largest predicted error among those whose cost is not
    shown, with the number of texts: on few texts a cost is easily missed.
    """
    by_error = free_rows.sort_values("score_error", na_position="first")
    row = by_error.iloc[-1]
    cost = write_with_interval(row["cost"], row["ci_low"], row["ci_high"])
    count = int(row["n"])
    few = "only " if count < FEW_TEXTS else ""
    return (
        f"the largest score spread without a shown cost has {_name_with_error(row)},"
        f" {cost} on {few}{write_count(count, measured_on)}"
    )


def _name_with_error(row: pd.Series) -> str:
    return f"{row['rounding']} (score spread {_write_error(row)})"


def _write_error(row: pd.Series) -> str:
    """Write the predicted error of a score with two digits, as figures do."""
    if row["score_error"] < LEAST_SCORE_ERROR:
        return "0"
    return f"{row['score_error']:.2g}"


def _list_costs(costly_rows: pd.DataFrame) -> str:
    """Name the costliest roundings with their costs, and count all other roundings."""
    worst_first = costly_rows.sort_values("cost", ascending=False)
    parts = []
    for _, row in worst_first.head(MOST_NAMED).iterrows():
        cost = write_with_interval(row["cost"], row["ci_low"], row["ci_high"])
        error = f"(score spread {_write_error(row)})"
        parts.append(f"{row['rounding']} {cost} {error}")
    unnamed_count = len(costly_rows) - len(parts)
    if unnamed_count:
        parts.append(f"{unnamed_count} more cost less")
    return ", ".join(parts)
