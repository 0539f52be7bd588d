"""Rounded rotations and stored keys as further rows, and the table that says what they
cost.

casts  a row per rounding, metric and length: what arithmetic predicts beside what is
measured, each
       compared with the same row without the rounding. `angle_error_rad` is the worst up to that
       length; `score_error` of a cast is the spread of a score at a fixed distance over positions,
       of keys the root mean square error of a score: scores of random vectors have deviation 1.
       `cost` is positive where the rounded row is worse: nats per byte, or the share of what is
       found. Predictions are for the frequencies of the configuration's base, or of the method
"""

from collections.abc import Iterator, Sequence
from functools import cache

import pandas as pd

from ropelab.math.frequencies import Geometry
from ropelab.math.numerics.angle_errors import worst
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.keys import BLOCK, Rounding, key_errors
from ropelab.math.numerics.spread import Spreads
from ropelab.math.scaling import Unscaled
from ropelab.models.methods.method import Method, Scaled
from ropelab.models.tasks.config import Roundable, roundings
from ropelab.models.tasks.modes import Mode, Rounded
from ropelab.runs.comparisons import between
from ropelab.runs.labels import AS_SHIPPED, method_label
from ropelab.runs.tables import Tables

SEED = 0
COLUMNS = [
    *(
        "method",
        "factor",
        "rounding",
        "rounds",
        "metric",
        "at_tokens",
        "context_tokens",
    ),
    *(
        "angle_error_rad",
        "score_error",
        "cost",
        "ci_low",
        "ci_high",
        "seeds",
        "n",
        "verdict",
    ),
]
# Verdicts: indistinguishable, or worse or better than without the rounding.
FREE, WORSE, BETTER = "~", "costs", "gains"
# The one metric by which a sentence judges text.
AT_THE_END = "nll_last_window"
# So many roundings are named in a sentence, the costliest first.
NAMED = 3


def rounded_rows(
    config: Roundable, label: str, mode: Mode, geometry: Geometry
) -> Iterator[tuple[str, Mode]]:
    """Yield the name and the mode of a row under each rounding; as it is under one
    without any.
    """
    for rounding in roundings(config):
        rounded = Rounded(mode, rounding, geometry) if rounding.rounds else mode
        yield f"{label} + {rounding.label}", rounded


def casts_table(
    config: Roundable,
    methods: Sequence[Method],
    geometry: Geometry,
    comparisons: pd.DataFrame,
) -> Tables:
    """Return `casts`, of the methods on frequencies, or nothing where nothing is
    rounded.
    """
    scaled = {(m.label, m.factor): m.scaling for m in methods if isinstance(m, Scaled)}
    scalings = {(AS_SHIPPED, 1.0): Unscaled(), **scaled}

    @cache
    def predicted(
        row: tuple[str, float], rounding: Rounding, length: int
    ) -> tuple[float, float]:
        inv_freq = scalings[row].plan(geometry, length).inv_freq
        return _errors(
            rounding, Spectrum(inv_freq, geometry.base, geometry.rotary_dim), length
        )

    records = []
    for row in scalings:
        for rounding in roundings(config):
            exact = method_label(*row)
            rounded = method_label(f"{row[0]} + {rounding.label}", row[1])
            about = (*row, rounding.label, "keys" if rounding.keys else "rotation")
            for pair in between(comparisons, rounded, exact).to_dict("records"):
                ends = [pair[name] for name in ("difference", "ci_low", "ci_high")]
                if not pair["metric"].startswith("nll"):  # more is better
                    ends = [0 - ends[0], 0 - ends[2], 0 - ends[1]]
                verdict = WORSE if ends[0] > 0 else BETTER
                judged = FREE if pair["verdict"] == FREE else verdict
                at = [pair[name] for name in ("metric", "at_tokens", "context_tokens")]
                errors = predicted(row, rounding, int(pair["context_tokens"]))
                records.append(
                    (*about, *at, *errors, *ends, pair["seeds"], pair["n"], judged)
                )
    return {"casts": pd.DataFrame(records, columns=COLUMNS)} if records else {}


def _errors(rounding: Rounding, spectrum: Spectrum, length: int) -> tuple[float, float]:
    """Return the angle error and the error of a score that are to be expected."""
    if rounding.keys is not None:
        # Of heads that rotate as a whole.
        fits = rounding.keys.shared != "block" or 2 * spectrum.pairs % BLOCK == 0
        error = (
            key_errors(rounding.keys, spectrum, length, SEED).score
            if fits
            else float("nan")
        )
        return 0.0, error
    chain = Chain(rounding.cast, spectrum)
    spread = Spreads(chain, rounding.first, length, SEED).overall().value
    return (
        worst(Chain(rounding.cast.phase, spectrum), rounding.first, length).error_rad,
        spread,
    )


def said_of_casts(casts: pd.DataFrame) -> list[str]:
    """Say which roundings cost text anything, and what is found at the farthest
    place.
    """
    metrics = [
        AT_THE_END,
        *(name for name in casts["metric"].unique() if "accuracy" in name),
    ]
    return [
        _said(rows, metric)
        for metric in metrics
        for _, rows in casts[casts["metric"] == metric].groupby(
            ["method", "factor"], sort=False
        )
    ]


def _said(rows: pd.DataFrame, metric: str) -> str:
    rows = rows[rows["context_tokens"] == rows["context_tokens"].max()]
    rows = rows[rows["at_tokens"] == rows["at_tokens"].max()]
    task = (
        "text"
        if metric == AT_THE_END
        else metric.removesuffix("_accuracy").replace("_", " ")
    )
    unit = (
        "nats per byte of text"
        if metric == AT_THE_END
        else f"the share found in {task}"
    )
    label, length = (
        method_label(*rows.iloc[0][["method", "factor"]]),
        rows["context_tokens"].max(),
    )
    free, costly = (
        rows[(rows["verdict"] == WORSE) == worse] for worse in (False, True)
    )
    lead = f"{label} at {length} tokens: "
    if costly.empty:
        return f"{lead}no cost to {task} of {len(rows)} roundings can be distinguished"
    worst_first = costly.sort_values("cost", ascending=False)
    named = [
        f"{row.rounding} {row.cost:.3g} (score error {row.score_error:.2g})"
        for row in worst_first.head(NAMED).itertuples()
    ]
    if less := len(costly) - len(named):
        named.append(f"{less} more up to {worst_first['cost'].iloc[NAMED]:.3g}")
    upto = f" (score errors up to {free['score_error'].max():.2g})" if len(free) else ""
    return (
        f"{lead}{len(free)} of {len(rows)} roundings cost nothing that can be"
        f" distinguished{upto}; the others cost, in {unit}: {', '.join(named)}"
    )
