"""The tables of the base experiment: the exact bound on the base, what theories advise,
and the given base judged.

A base is admissible for a context if the sum of cosines of its frequencies is not
negative at any position of the context. Admissible bases are intervals, called windows.
"""

import math

import numpy as np
import pandas as pd

from ropelab.experiments.base import BaseConfig
from ropelab.experiments.base.answer import answer, suggest_command, summary
from ropelab.experiments.base.bound import cells, make_similarity
from ropelab.experiments.base.theories import judge_theories
from ropelab.math.bounds import (
    FixedSimilarity,
    Similarity,
    find_first_negative,
    find_lowest,
    rules,
)
from ropelab.math.bounds.published import (
    MEN,
    POWER_LAW_EXPONENT,
    POWER_LAW_FACTOR,
    judge,
)
from ropelab.math.frequencies import Geometry, inverse_frequencies, rotations
from ropelab.math.methods import parse_scaling, resolve_scaling
from ropelab.math.numerics.formats import format_named
from ropelab.runs.cell import Values
from ropelab.runs.errors import InputError

# The functions that `ropelab.experiments` calls.
__all__ = ["answer", "cells", "check", "suggest_command", "summary", "tables"]

# The longest context, in tokens, that is searched for a head of two pairs. With two pairs
# the sum is cos(m) + cos(m theta). As 355 is 113 pi + 3e-5, the first cosine is -1 at m =
# 355, and only theta < 9e-8 keeps the sum from being negative.
TWO_PAIRS_UP_TO = 355

# The bases whose growth with the context is fitted, and their columns of the table
# `bound`.
FITTED = {
    "exact values": "smallest_admissible_base",
    "recommended bases": "recommended_base",
}
# The least number of points for a fit. A power law has two parameters, so that a fit with
# a standard error needs three points.
FEWEST_POINTS = 3


def check(config: BaseConfig) -> None:
    """Raise InputError if a name is unknown, or if values do not fit each other."""
    similarity = make_similarity(config)
    is_two_pairs = len(similarity.exponents) == 2 and not similarity.unrotated
    if is_two_pairs and max(config.context) > TWO_PAIRS_UP_TO:
        raise InputError(
            f"a head of two pairs is searched up to {TWO_PAIRS_UP_TO} tokens only:"
            " there the first pair is back at half a turn, and no base below 1e14"
            " makes up for it"
        )
    if config.base is None and parse_scaling(config.method).name != "unscaled":
        raise InputError(
            f"{config.method} is judged with a base: give one (--base 500000)"
        )

    # `plan` and `format_named` raise InputError; their results are not needed here.
    if config.base is not None:
        head = Geometry(config.rotated, config.base, config.train_len)
        for context in config.context:
            scaling, _ = resolve_scaling(config, context)
            scaling.plan(head, context)
    for name in config.formats:
        format_named(name)


def tables(config: BaseConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return all tables: `bound` and `windows` from the searches, and the tables that
    are made from these two.
    """
    similarity = make_similarity(config)
    searches = [values[cell] for cell in cells(config)]
    bound = pd.concat([search["bound"] for search in searches], ignore_index=True)
    # A table without rows has other column types. It is used only if all tables of
    # windows are empty.
    windows = searches[0]["windows"]
    filled_tables = [search["windows"] for search in searches if len(search["windows"])]
    if filled_tables:
        windows = pd.concat(filled_tables, ignore_index=True)

    theories = []
    for bound_row in bound.itertuples():
        theories.append(judge_theories(config, similarity, bound_row))
    published = judge(bound)
    # The numbers i of the rotating pairs follow from their exponents 2 i / d.
    rotating_pairs = []
    for exponent in similarity.exponents:
        rotating_pairs.append(round(exponent * config.rotated / 2))
    return {
        "bound": bound,
        "windows": windows,
        "theories": pd.concat(theories, ignore_index=True),
        "given_base": _judge_given_base(config, similarity, rotating_pairs),
        "coverage": _count_rotations(config, rotating_pairs, bound),
        "critical": _list_critical(config),
        "published": published,
        "fits": make_fits_table(bound, published),
    }


def _judge_given_base(
    config: BaseConfig, similarity: Similarity, rotating_pairs: list[int]
) -> pd.DataFrame:
    """Return `given_base`: a row per context; no rows if no base is given."""
    columns = [
        "context_tokens",
        "base",
        "method",
        "factor_from",
        "admissible",
        "first_failing_position_tokens",
        "lowest_sum",
        "lowest_sum_at_tokens",
    ]
    base = config.base
    if base is None:
        return pd.DataFrame(columns=columns)

    geometry = Geometry(config.rotated, base, config.train_len)
    rows = []
    for context in config.context:
        scaling, factor_in_words = resolve_scaling(config, context)
        plan = scaling.plan(geometry, context)
        inv_freq = tuple(plan.inv_freq[rotating_pairs])
        scaled = FixedSimilarity(similarity.exponents, similarity.unrotated, inv_freq)

        first_failing = find_first_negative(scaled, base, context)
        lowest_position, lowest_sum = find_lowest(scaled, base, context)
        row = {
            "context_tokens": context,
            "base": base,
            "method": scaling.label,
            "factor_from": factor_in_words,
            "admissible": first_failing is None,
            "first_failing_position_tokens": _convert_to_float(first_failing),
            "lowest_sum": lowest_sum,
            "lowest_sum_at_tokens": lowest_position,
        }
        rows.append(row)
    return pd.DataFrame(rows, columns=columns)


def _convert_to_float(position: int | None) -> float:
    """Return a position as a column of floats holds it: nan stands for None."""
    return math.nan if position is None else float(position)


def _count_rotations(
    config: BaseConfig, rotating_pairs: list[int], bound: pd.DataFrame
) -> pd.DataFrame:
    """Return `coverage`: for the trained, the given and the recommended bases, how many
    pairs do not rotate, complete less than one rotation, or at least one, in training.
    """
    cases = [("trained base", config.train_base, rotating_pairs)]
    if config.base:
        # A method stretches pairs after training, but those that it keeps at rest were
        # trained at rest.
        moving_pairs = _leave_out_resting(config, config.base, rotating_pairs)
        cases.append(("given base", config.base, moving_pairs))
    has_recommended = bound[bound["recommended_base"] > 1]
    for row in has_recommended.to_dict("records"):
        name = f"recommended for {row['context_tokens']}"
        cases.append((name, row["recommended_base"], rotating_pairs))

    all_pairs = config.head_dim // 2
    rows = []
    for name, base, moving_pairs in cases:
        inv_freq = inverse_frequencies(config.rotated, base)
        rotations_by_pair = rotations(inv_freq, config.train_len)[moving_pairs]
        below_one = int((rotations_by_pair < 1).sum())
        row = {
            "which": name,
            "base": base,
            "train_len_tokens": config.train_len,
            "pairs_not_rotating": all_pairs - len(moving_pairs),
            "pairs_below_one_rotation": below_one,
            "pairs_at_least_one_rotation": len(moving_pairs) - below_one,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _leave_out_resting(
    config: BaseConfig, base: float, rotating_pairs: list[int]
) -> list[int]:
    """Return the pairs that rotate with the method of the given base, too."""
    context = config.context[0]
    scaling, _ = resolve_scaling(config, context)
    geometry = Geometry(config.rotated, base, config.train_len)
    inv_freq = scaling.plan(geometry, context).inv_freq
    return [pair for pair in rotating_pairs if inv_freq[pair] != 0]


def _list_critical(config: BaseConfig) -> pd.DataFrame:
    """Return `critical`: the critical dimension of the trained base (the features of the
    pairs that complete a rotation in training), and the context that the theory of Liu et
    al. (2023) gives a base after tuning.
    """
    trained = Geometry(config.rotated, config.train_base, config.train_len)
    critical_dimension = rules.critical_dimension(trained)
    bases = [trained.base]
    if config.base and config.base != trained.base:
        bases.append(config.base)

    rows = []
    for base in bases:
        row = {
            "trained_base": trained.base,
            "train_len_tokens": trained.trained_len,
            "rotary_dim": trained.rotary_dim,
            "critical_dimension": critical_dimension,
            "tuned_base": base,
            "supported_context_tokens": rules.extrapolation_limit(trained, base),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def make_fits_table(bound: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return `fits`: base = coefficient * context^exponent, by least squares in
    logarithms, for each set of bases with enough contexts.

    ``standard_error`` is the standard error of the exponent. It is missing for fits
    that a paper prints.
    """
    # A base of 1 means that every base is admissible. A base of 1 is not a point of a
    # power law.
    bound = bound[bound["smallest_admissible_base"] > 1]
    is_published = bound["context_tokens"].isin(published["context_tokens"])
    published_bound = bound[is_published]

    # Each set is a table of two columns: context and base.
    points_by_set = {}
    for name, column in FITTED.items():
        points_by_set[name] = bound[["context_tokens", column]].dropna()
    # Fits to the contexts of the paper can be compared with the paper's fit. If the run
    # has no other contexts, they equal the fits to all contexts, and are left out.
    if len(published_bound) < len(bound):
        for name, column in FITTED.items():
            points = published_bound[["context_tokens", column]].dropna()
            points_by_set[f"{name} of its contexts"] = points
    points_by_set["paper values"] = published[["context_tokens", "paper_base"]]

    rows: list[tuple[str, float, float, float, int]] = []
    for name, points in points_by_set.items():
        if len(points) >= FEWEST_POINTS:
            coefficient, exponent, error = _fit_power(points)
            rows.append((name, coefficient, exponent, error, len(points)))
    if len(published) >= FEWEST_POINTS:
        rows.append(
            ("printed fit", POWER_LAW_FACTOR, POWER_LAW_EXPONENT, math.nan, len(MEN))
        )
    columns = ["values", "coefficient", "exponent", "standard_error", "contexts"]
    return pd.DataFrame(rows, columns=columns)


def _fit_power(points: pd.DataFrame) -> tuple[float, float, float]:
    """Return coefficient and exponent of a power law, and the exponent's standard
    error, for points of two columns: context and base.
    """
    logarithms = np.log(points.to_numpy(dtype=np.float64))
    log_context, log_base = logarithms.T
    # A column for the slope and a column for the intercept.
    design = np.stack((log_context, np.ones_like(log_context)), axis=1)
    solution, *_ = np.linalg.lstsq(design, log_base, rcond=None)
    slope, intercept = solution

    # Two parameters are fitted, which leaves n - 2 degrees of freedom.
    residual = log_base - slope * log_context - intercept
    deviation = math.sqrt(float(residual @ residual) / (len(log_context) - 2))
    centred = log_context - log_context.mean()
    error = deviation / math.sqrt(float((centred**2).sum()))
    return float(np.exp(intercept)), float(slope), error
