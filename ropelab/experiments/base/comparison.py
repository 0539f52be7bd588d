"""The exact bound and the theories beside it: tables, answer and short table."""

import math

import numpy as np
import pandas as pd

from ropelab.experiments.base import BaseConfig
from ropelab.experiments.base.bound import cells, similarity_of
from ropelab.experiments.base.theories import theories
from ropelab.math.bounds import Fixed, Similarity, first_negative, lowest, rules
from ropelab.math.bounds.published import FIT_EXPONENT, FIT_FACTOR, MEN, Printed, judge
from ropelab.math.frequencies import Geometry, inverse_frequencies, rotations
from ropelab.math.methods import parse_scaling
from ropelab.math.numerics.formats import format_named
from ropelab.runs.cell import Values
from ropelab.runs.errors import InputError
from ropelab.runs.tables import Tables

# 355 is 113 pi and 3e-5: from there on cos(355) + cos(355 theta) >= 0 needs theta < 9e-8.
TWO_PAIRS_UP_TO = 355


def check(config: BaseConfig) -> None:
    """Raise InputError where a name does not exist, or values do not fit each other."""
    similarity = similarity_of(config)
    two_pairs = len(similarity.exponents) == 2 and not similarity.unrotated
    if two_pairs and max(config.context) > TWO_PAIRS_UP_TO:
        raise InputError(
            f"a head of two pairs is searched up to {TWO_PAIRS_UP_TO} tokens only: there the "
            "first pair is back at half a turn, and no base below 1e14 makes up for it"
        )
    scaling = parse_scaling(config.method)
    if config.base:
        judged = Geometry(config.rotated, config.base, config.train_len)
        scaling.plan(judged, max(config.context))
    for name in config.formats:
        format_named(name)


def tables(config: BaseConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return the exact bound, all theories, the given base judged, and the published values."""
    similarity, found = similarity_of(config), [values[cell] for cell in cells(config)]
    bound = pd.concat([each["bound"] for each in found], ignore_index=True)
    windows = [each["windows"] for each in found if len(each["windows"])]
    judged = [theories(config, similarity, row) for row in bound.itertuples()]
    published = judge(bound)
    rotating = [round(a * config.rotated / 2) for a in similarity.exponents]
    return {
        "bound": bound,
        "windows": pd.concat(windows, ignore_index=True) if windows else found[0]["windows"],
        "theories": pd.concat(judged, ignore_index=True),
        "given_base": _given_base(config, similarity, rotating),
        "coverage": _coverage(config, rotating, bound),
        "critical": _critical(config),
        "published": published,
        "fits": fits(bound, published),
    }


def _given_base(config: BaseConfig, similarity: Similarity, rotating: list[int]) -> pd.DataFrame:
    scaling, base, rows = parse_scaling(config.method), config.base, []
    for context in config.context:
        if base is None:
            break
        plan = scaling.plan(Geometry(config.rotated, base, config.train_len), context)
        inv_freq = plan.inv_freq[rotating]
        scaled = Fixed(similarity.exponents, similarity.unrotated, tuple(inv_freq))
        fails = first_negative(scaled, base, context)
        place, value = lowest(scaled, base, context)
        failing = math.nan if fails is None else float(fails)
        rows.append((context, base, scaling.label, fails is None, failing, value, place))
    columns = ["context_tokens", "base", "method", "admissible", "first_failing_position_tokens"]
    return pd.DataFrame(rows, columns=[*columns, "lowest_sum", "lowest_sum_at_tokens"])


def _coverage(config: BaseConfig, rotating: list[int], bound: pd.DataFrame) -> pd.DataFrame:
    """Count the pairs that complete no, less than one, or at least one rotation in training."""
    bases = {"trained base": config.train_base}
    if config.base:
        bases["given base"] = config.base
    usable = bound[bound["recommended_base"] > 1]
    for context, base in zip(usable["context_tokens"], usable["recommended_base"], strict=True):
        bases[f"recommended for {context}"] = base
    rows = []
    for name, base in bases.items():
        made = rotations(inverse_frequencies(config.rotated, base), config.train_len)[rotating]
        below, idle = int((made < 1).sum()), config.head_dim // 2 - len(rotating)
        rows.append((name, base, config.train_len, idle, below, len(rotating) - below))
    columns = [
        "which",
        "base",
        "train_len_tokens",
        "pairs_not_rotating",
        "pairs_below_one_rotation",
    ]
    return pd.DataFrame(rows, columns=[*columns, "pairs_at_least_one_rotation"])


def _critical(config: BaseConfig) -> pd.DataFrame:
    trained = Geometry(config.rotated, config.train_base, config.train_len)
    about = (trained.base, trained.trained_len, trained.rotary_dim)
    critical = rules.critical_dimension(trained)
    bases = dict.fromkeys([trained.base, config.base or trained.base])
    rows = [(*about, critical, base, rules.extrapolation_limit(trained, base)) for base in bases]
    columns = ["trained_base", "train_len_tokens", "rotary_dim", "critical_dimension"]
    return pd.DataFrame(rows, columns=[*columns, "tuned_base", "supported_context_tokens"])


def fits(bound: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Fit base = coefficient * context^exponent by least squares in logarithms to each set.

    ``standard_error`` belongs to the exponent. Needs three contexts. Where there are more exact
    than published values, another fit has the published contexts only.
    """
    # A base of 1 means that every base is admissible: no point of a power law.
    known = bound[bound["smallest_admissible_base"] > 1]
    sets = {"exact values": known[["context_tokens", "smallest_admissible_base"]]}
    if len(published) < len(known):
        sets["exact values of its contexts"] = published[["context_tokens", "exact_base"]]
    sets["paper values"] = published[["context_tokens", "paper_base"]]
    rows: list[tuple[str, float, float, float, int]] = []
    for name, points in sets.items():
        if len(points) < 3:
            continue
        x, y = np.log(points.to_numpy(dtype=np.float64)).T
        (slope, intercept), *_ = np.linalg.lstsq(np.stack((x, np.ones_like(x)), 1), y, rcond=None)
        residual = y - slope * x - intercept
        # Two parameters are fitted, which leaves n - 2 degrees of freedom.
        spread = math.sqrt(float(residual @ residual) / (len(x) - 2))
        error = spread / math.sqrt(float(((x - x.mean()) ** 2).sum()))
        rows.append((name, float(np.exp(intercept)), float(slope), error, len(x)))
    if len(published) >= 3:
        rows.append(("printed fit", FIT_FACTOR, FIT_EXPONENT, math.nan, len(MEN)))
    columns = ["values", "coefficient", "exponent", "standard_error", "contexts"]
    return pd.DataFrame(rows, columns=columns)


def answer(tables: Tables) -> str:
    """Name the base to use, judge the given one, and compare the paper's values."""
    # Contexts ascend: the answer is for the longest.
    bound = tables["bound"].iloc[-1]
    context, smallest = int(bound.context_tokens), f"{bound.smallest_admissible_base:.6g}"
    if not bound.certified:
        width = bound.rotary_dim
        return f"No base is admissible for {context} tokens with a rotary_dim of {width}."
    if bound.smallest_admissible_base <= 1:
        return f"Every base is admissible for {context} tokens: enough features do not rotate."
    if math.isnan(bound.recommended_base):
        text = f"{context} tokens need a base of at least {smallest}; no stable base was found."
    else:
        # As people type it: 3.4e6, 27000.
        usable = f"{bound.recommended_base:g}".replace("e+0", "e").replace("e+", "e")
        text = f"Use base {usable} for {context} tokens: it and every larger base work, by proof."
        windows = tables["windows"][tables["windows"]["context_tokens"] == context]
        if not math.isnan(end := windows["high"].iloc[0]):
            gap = f"from {end:.6g} on bases fail again"
            text += f" (The smallest admissible base is {smallest}, but {gap}.)"
    for given in tables["given_base"].tail(1).itertuples():
        fails = f"fails first at position {given.first_failing_position_tokens:.0f}"
        method = "" if given.method == "unscaled" else f" with {given.method}"
        verdict = "is admissible there" if given.admissible else fails
        text += f" Base {given.base:g}{method} {verdict}."
    published, exponent = tables["published"], tables["fits"].set_index("values")["exponent"]
    if len(published) < 3:
        return text
    # On the paper's contexts if possible: an exponent depends on the range it is fitted to.
    own = exponent.get("exact values of its contexts", exponent["exact values"])
    loose = published[published.verdict == Printed.LOOSE]
    worst = loose.times_exact.max() if len(loose) else 1.0
    return (
        f"{text} {len(loose)} of the paper's {len(published)} values here are loose, by up to "
        f"{worst:.2g} times; the exact ones grow as context^{own:.2f}, "
        f"the paper's as context^{exponent['paper values']:.2f}."
    )


def summary(tables: Tables) -> pd.DataFrame:
    """Select the bound per context where there are several, else the theories for the one."""
    bound = tables["bound"]
    if len(bound) > 1:
        bases = ["recommended_base", "stable_base", "smallest_admissible_base"]
        return bound[["context_tokens", *bases, "status"]]
    return tables["theories"][["theory", "kind", "base", "times_exact", "verdict"]].head(12)
