"""The exact bound and the theories beside it: tables, answer and short table."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ropelab.experiments.base import BaseConfig
from ropelab.experiments.base.bound import cells, round_up, similarity_of
from ropelab.math.bounds import Fixed, Similarity, first_negative, lowest, rules
from ropelab.math.bounds.published import FIT_EXPONENT, FIT_FACTOR, MEN, judge, men_fit
from ropelab.math.frequencies import Geometry, inverse_frequencies, rotations
from ropelab.math.methods import parse_scaling, scaling_for
from ropelab.math.numerics.formats import FloatFormat, format_named, spacing
from ropelab.math.scaling.plan import parameter_text
from ropelab.runs.cell import Values
from ropelab.runs.errors import InputError
from ropelab.runs.files import table_beside
from ropelab.runs.sentences import count_of, write_number
from ropelab.runs.spelling import command_of
from ropelab.runs.tables import Tables

# 355 is 113 pi and 3e-5: from there on cos(355) + cos(355 theta) >= 0 needs theta <
# 9e-8.
TWO_PAIRS_UP_TO = 355
# Bases at which the resolution of the slowest pair is tested, in steps of 0.2 %.
GRID = np.logspace(0.1, 18, 20_000)

# Sets of bases whose growth with the context is fitted, and their columns of the table
# `bound`.
FITTED = {
    "exact values": "smallest_admissible_base",
    "recommended bases": "recommended_base",
}

THEORIES: dict[str, list[str]] = table_beside(__file__, "theories")
# A key of these, the base, and the words in braces.
Theory = tuple[str, float, dict[str, str]]


def check(config: BaseConfig) -> None:
    """Raise InputError where a name is unknown, or values do not fit each other."""
    similarity = similarity_of(config)
    two_pairs = len(similarity.exponents) == 2 and not similarity.unrotated
    if two_pairs and max(config.context) > TWO_PAIRS_UP_TO:
        raise InputError(
            f"a head of two pairs is searched up to {TWO_PAIRS_UP_TO} tokens only:"
            " there the first pair is back at half a turn, and no base below 1e14"
            " makes up for it"
        )
    if config.base is None and parse_scaling(config.method).name != "unscaled":
        raise InputError(
            f"{config.method} is judged with a base: give one (--base 500000)"
        )

    if config.base is not None:
        head = Geometry(config.rotated, config.base, config.train_len)
        for context in config.context:
            scaling, _ = scaling_for(config, context)
            scaling.plan(head, context)
    for name in config.formats:
        format_named(name)


def tables(config: BaseConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return the exact bound, all theories, the given base judged, and the published
    values.
    """
    similarity = similarity_of(config)
    searches = [values[cell] for cell in cells(config)]
    bound = pd.concat([search["bound"] for search in searches], ignore_index=True)
    windows = searches[0]["windows"]
    with_windows = [search["windows"] for search in searches if len(search["windows"])]
    if with_windows:
        windows = pd.concat(with_windows, ignore_index=True)

    theories = [_theories(config, similarity, row) for row in bound.itertuples()]
    published = judge(bound)
    rotating = [
        round(exponent * config.rotated / 2) for exponent in similarity.exponents
    ]
    return {
        "bound": bound,
        "windows": windows,
        "theories": pd.concat(theories, ignore_index=True),
        "given_base": _given_base(config, similarity, rotating),
        "coverage": _coverage(config, rotating, bound),
        "critical": _critical(config),
        "published": published,
        "fits": fits(bound, published),
    }


def _theories(config: BaseConfig, similarity: Similarity, bound: Any) -> pd.DataFrame:
    """Judge every theory at the context of a row of the table `bound`, a row each."""
    # ``fails_at_tokens``: the first position with a negative sum at that base, missing
    # if admissible. ``times_exact``: the base over the first admissible one.
    first = bound.smallest_admissible_base
    context = bound.context_tokens
    rows = []
    for key, base, words in _recommended(config, bound):
        name, kind, assumes, source = (part.format(**words) for part in THEORIES[key])
        fails = None
        possible = math.isfinite(base) and base > 1
        if possible:
            fails = first_negative(similarity, base, context)

        if not possible:
            verdict = "no such base"
        elif kind == "at most" and not bound.certified:
            verdict = "no admissible base"
        elif kind == "at most":
            verdict = "leaves room" if base >= first else "contradicts the bound"
        elif fails is not None:
            verdict = "below the bound" if base < first else "in a gap between windows"
        else:
            verdict = "admissible"

        row = {
            "context_tokens": context,
            "theory": name,
            "kind": kind,
            "base": base,
            "fails_at_tokens": math.nan if fails is None else float(fails),
            "times_exact": base / first,
            "verdict": verdict,
            "assumes": assumes,
            "source": source,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _recommended(config: BaseConfig, bound: Any) -> Iterator[Theory]:
    context = int(bound.context_tokens)
    rotated = config.rotated
    yield "recommended", bound.recommended_base, {"head": _head(bound)}
    yield "stable", bound.stable_base, {"status": bound.status}
    yield "smallest", bound.smallest_admissible_base, {}
    yield "fit", men_fit(context), {}
    yield "asymptote", rules.su_asymptote(context), {}
    yield "aliasing", rules.aliasing_base(context), {}

    for layers in sorted({1, config.layers}):
        base = rules.stability_base(context, config.coherence, layers)
        words = {"layers": count_of(layers, "layer"), "cosine": f"{config.coherence:g}"}
        yield "stability", base, words
    yield "rotation", rules.one_rotation_base(rotated, context), {}

    trained = Geometry(rotated, config.train_base, config.train_len)
    yield from _extensions(trained, config.test_len or context)

    for name in config.formats:
        # Beside what the format resolves: a wall for cosines alone, if for anything.
        number_format = format_named(name)
        yield "ceiling", 1 / number_format.epsilon, {"format": name}
        for component in ("cosine", "cosine and sine"):
            base = blind_from(component, number_format, rotated, context)
            yield "moves", base, {"format": name, "component": component}


def _extensions(trained: Geometry, target: int) -> Iterator[Theory]:
    # Inside the trained length there is nothing to extend, and a single pair ignores the
    # base.
    if target <= trained.trained_len or trained.rotary_dim < 4:
        return

    words = {"trained": f"{trained.base:g} at {trained.trained_len} tokens"}
    yield "critical", rules.critical_base(trained, target), words
    yield "ntk", rules.ntk_aware(trained, target), words

    # The base whose T_extra is the target: (L'/2 pi)^(d/d_c).
    share = trained.rotary_dim / rules.critical_dimension(trained)
    yield "extra", float((target / (2 * math.pi)) ** share), words

    names = ("2T/pi", "T/pi", "T/2pi")
    for name, base in zip(names, rules.small_bases(trained), strict=True):
        yield "small", base, {**words, "small": name}


def blind_from(component: str, fmt: FloatFormat, rotary_dim: int, length: int) -> float:
    """Return the base from which a format no longer separates positions length-1 and
    length.

    Within 0.2 %; nan: they are apart up to 1e18. "cosine and sine" are lost when both
    are.
    """
    if rotary_dim < 4:
        return math.nan

    # The slowest pair, in radians per token.
    theta = GRID ** (-(rotary_dim - 2) / rotary_dim)
    cos = np.abs(np.cos(theta * length))
    sin = np.abs(np.sin(theta * length))

    # A component is lost when its change over a token is below half the spacing at its
    # value: the cosine of a small angle is near 1, where that is widest, its sine is
    # small.
    lost = theta * sin < spacing(cos, fmt) / 2
    if component == "cosine and sine":
        lost &= theta * cos < spacing(sin, fmt) / 2

    # The last one counts: below it the loss comes and goes with the phase of the last
    # position.
    apart = np.flatnonzero(~lost)
    first = int(apart[-1]) + 1 if len(apart) else 0
    if first == len(GRID):
        return math.nan
    return float(GRID[first])


def _given_base(
    config: BaseConfig, similarity: Similarity, rotating: list[int]
) -> pd.DataFrame:
    """Judge the given base at every context; no rows where none is given."""
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

    rows = []
    for context in config.context:
        scaling, factor = scaling_for(config, context)
        plan = scaling.plan(Geometry(config.rotated, base, config.train_len), context)
        inv_freq = tuple(plan.inv_freq[rotating])
        scaled = Fixed(similarity.exponents, similarity.unrotated, inv_freq)

        fails = first_negative(scaled, base, context)
        failing = math.nan if fails is None else float(fails)
        place, value = lowest(scaled, base, context)
        rows.append(
            (context, base, scaling.label, factor, fails is None, failing, value, place)
        )
    return pd.DataFrame(rows, columns=columns)


def _coverage(
    config: BaseConfig, rotating: list[int], bound: pd.DataFrame
) -> pd.DataFrame:
    """Count the pairs that complete no, less than one, or at least one rotation in
    training.
    """
    bases = {"trained base": config.train_base}
    if config.base:
        bases["given base"] = config.base
    usable = bound[bound["recommended_base"] > 1]
    contexts = usable["context_tokens"]
    for context, base in zip(contexts, usable["recommended_base"], strict=True):
        bases[f"recommended for {context}"] = base

    idle = config.head_dim // 2 - len(rotating)
    rows = []
    for name, base in bases.items():
        inv_freq = inverse_frequencies(config.rotated, base)
        turns = rotations(inv_freq, config.train_len)[rotating]
        below = int((turns < 1).sum())
        rows.append((name, base, config.train_len, idle, below, len(rotating) - below))

    columns = [
        "which",
        "base",
        "train_len_tokens",
        "pairs_not_rotating",
        "pairs_below_one_rotation",
        "pairs_at_least_one_rotation",
    ]
    return pd.DataFrame(rows, columns=columns)


def _critical(config: BaseConfig) -> pd.DataFrame:
    trained = Geometry(config.rotated, config.train_base, config.train_len)
    critical = rules.critical_dimension(trained)
    rows = []
    for base in dict.fromkeys([trained.base, config.base or trained.base]):
        row = {
            "trained_base": trained.base,
            "train_len_tokens": trained.trained_len,
            "rotary_dim": trained.rotary_dim,
            "critical_dimension": critical,
            "tuned_base": base,
            "supported_context_tokens": rules.extrapolation_limit(trained, base),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def fits(bound: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Fit base = coefficient * context^exponent by least squares in logarithms to each
    set.
    """
    # Needs three contexts, and three beyond the published ones; ``standard_error``: the
    # exponent's. A base of 1 means that every base is admissible: no point of a power
    # law.
    known = bound[bound["smallest_admissible_base"] > 1]
    within = known[known["context_tokens"].isin(published["context_tokens"])]
    sets = {}
    for name, column in FITTED.items():
        sets[name] = known[["context_tokens", column]].dropna()
    if len(within) < len(known):
        for name, column in FITTED.items():
            sets[f"{name} of its contexts"] = within[
                ["context_tokens", column]
            ].dropna()
    sets["paper values"] = published[["context_tokens", "paper_base"]]

    rows: list[tuple[str, float, float, float, int]] = []
    for name, points in sets.items():
        if len(points) >= 3:
            rows.append((name, *_fit_power(points), len(points)))
    if len(published) >= 3:
        rows.append(("printed fit", FIT_FACTOR, FIT_EXPONENT, math.nan, len(MEN)))
    columns = ["values", "coefficient", "exponent", "standard_error", "contexts"]
    return pd.DataFrame(rows, columns=columns)


def _fit_power(points: pd.DataFrame) -> tuple[float, float, float]:
    """Return coefficient and exponent of a power law, and the exponent's standard
    error.
    """
    x, y = np.log(points.to_numpy(dtype=np.float64)).T
    design = np.stack((x, np.ones_like(x)), 1)
    (slope, intercept), *_ = np.linalg.lstsq(design, y, rcond=None)

    # Two parameters are fitted, which leaves n - 2 degrees of freedom.
    residual = y - slope * x - intercept
    spread = math.sqrt(float(residual @ residual) / (len(x) - 2))
    error = spread / math.sqrt(float(((x - x.mean()) ** 2).sum()))
    return float(np.exp(intercept)), float(slope), error


def answer(tables: Tables) -> str:
    """Name the base to use, judge the given one, and compare the paper's values."""
    # Contexts ascend: the answer is for the longest.
    bound = tables["bound"].iloc[-1]
    text = _describe_bound(bound, tables["windows"])
    text += " How far trained models reach is another question (docs/findings.md)."
    for given in tables["given_base"].tail(1).itertuples():
        text += _describe_given(given)
    if len(tables["published"]) >= 3:
        text += _describe_published(tables["published"], tables["fits"])
    return text


def _describe_bound(bound: Any, windows: pd.DataFrame) -> str:
    """Say from which base on all are admissible, for a row of the table `bound`."""
    context = int(bound.context_tokens)
    head = _head(bound)
    if not bound.certified:
        return f"No base is admissible for {context} tokens ({head})."
    if bound.smallest_admissible_base <= 1:
        return f"Every base is admissible for {context} tokens ({head})."
    if math.isnan(bound.recommended_base):
        smallest = _round_up_below(bound.smallest_admissible_base)
        return (
            f"The sum of cosines stays at or above 0 with bases from {smallest} on; no"
            f" stable base was found ({context} tokens, {head})."
        )

    text = (
        f"Base {write_number(bound.recommended_base)} and every larger one keep the sum of"
        f" cosines at or above 0, by proof ({context} tokens, {head})."
    )
    end = windows[windows["context_tokens"] == context]["high"].iloc[0]
    if not math.isnan(end):
        smallest = _round_up_below(bound.smallest_admissible_base, end)
        text += (
            f" The smallest admissible base is {smallest}, but from {_round_up_below(end)} on the"
            " sum is negative again."
        )
    return text


def _describe_given(given: Any) -> str:
    """Judge the given base, from a row of the table `given_base`."""
    method = ""
    if given.method != "unscaled":
        method = f" with {given.method}"
    if isinstance(given.factor_from, str):
        method += f", its factor {given.factor_from},"

    if given.admissible:
        verdict = "is admissible there"
    else:
        first = given.first_failing_position_tokens
        verdict = f"fails first at position {first:.0f}"
    base = parameter_text(given.base).removesuffix(".0")
    return f" Base {base}{method} {verdict}."


def _describe_published(published: pd.DataFrame, fits: pd.DataFrame) -> str:
    """Count the loose values of the paper, and compare how the values grow."""
    by_values = fits.set_index("values")
    # On the paper's contexts if possible: an exponent depends on the range it is fitted
    # to.
    where = ""
    if "exact values of its contexts" in by_values.index:
        where = " of its contexts"

    growths = []
    for name in ("exact values" + where, "recommended bases" + where, "paper values"):
        fit = by_values.loc[name]
        growth = f"context^({fit['exponent']:.2f} ± {fit['standard_error']:.2f})"
        growths.append(growth)
    exact, recommended, paper = growths

    loose = published[published.verdict == "loose"]
    worst = loose.times_exact.max() if len(loose) else 1.0
    return (
        f" {len(loose)} of the paper's {len(published)} values here are loose, by"
        f" up to {worst:.2g} times; the exact ones grow as {exact}, the paper's as"
        f" {paper}, the recommended bases as {recommended} (standard errors)."
    )


def following(config: BaseConfig, tables: Tables) -> str:
    """Return the command on the precision of the recommended base, as far as there is
    one.
    """
    bound = tables["bound"].iloc[-1]
    if not bound.recommended_base > 1 or config.kept < 1 or config.dropped:
        return "ropelab base-empirical"

    options = {
        "base": write_number(bound.recommended_base),
        "head_dim": config.head_dim,
    }
    if config.rotary_dim:
        options["rotary_dim"] = config.rotary_dim
    options["length"] = bound.context_tokens
    return command_of("precision", options)


def _round_up_below(base: float, end: float = math.inf) -> str:
    """Write a base from which on something holds: rounded up, and if it can be not
    beyond `end`.
    """
    if not 1 < base < math.inf:
        return f"{base:.6g}"

    for digits in range(6, 17):
        rounded = round_up(base, digits)
        if rounded < end:
            return f"{rounded:.{digits}g}"
    return f"{round_up(base, 17):.17g}"


def _head(bound: Any) -> str:
    """Name the heads that a row of the table `bound` is about."""
    rotated = 2 * int(bound.rotating_pairs)
    part = "" if rotated == bound.head_dim else f", {rotated} of them rotated"
    return f"heads of {bound.head_dim} features{part}"


def summary(tables: Tables) -> pd.DataFrame:
    """Select the bound per context where there are several, else the theories for the
    one.
    """
    bound = tables["bound"]
    if len(bound) > 1:
        bases = ["recommended_base", "stable_base", "smallest_admissible_base"]
        return bound[["context_tokens", *bases, "status"]]
    return tables["theories"][["theory", "base", "times_exact", "verdict"]].head(12)
