"""The exact bound and the theories beside it: tables, answer and short table."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ropelab.experiments.base import BaseConfig
from ropelab.experiments.base.bound import cells, rounded_up, similarity_of
from ropelab.math.bounds import Fixed, Similarity, first_negative, lowest, rules
from ropelab.math.bounds.published import FIT_EXPONENT, FIT_FACTOR, MEN, judge, men_fit
from ropelab.math.frequencies import Geometry, inverse_frequencies, rotations
from ropelab.math.methods import parse_scaling, scaling_for
from ropelab.math.numerics.formats import FloatFormat, format_named, spacing
from ropelab.math.scaling.plan import parameter_text
from ropelab.runs.cell import Values
from ropelab.runs.errors import InputError
from ropelab.runs.files import table_beside
from ropelab.runs.sentences import count_of, typed
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
    for context in config.context:
        if config.base is not None:
            judged = Geometry(config.rotated, config.base, config.train_len)
            scaling_for(config, context)[0].plan(judged, context)
    for name in config.formats:
        format_named(name)


def tables(config: BaseConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return the exact bound, all theories, the given base judged, and the published
    values.
    """
    similarity, found = similarity_of(config), [values[cell] for cell in cells(config)]
    bound = pd.concat([each["bound"] for each in found], ignore_index=True)
    windows = [each["windows"] for each in found if len(each["windows"])]
    judged = [_theories(config, similarity, row) for row in bound.itertuples()]
    published = judge(bound)
    rotating = [round(a * config.rotated / 2) for a in similarity.exponents]
    return {
        "bound": bound,
        "windows": (
            pd.concat(windows, ignore_index=True) if windows else found[0]["windows"]
        ),
        "theories": pd.concat(judged, ignore_index=True),
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
    first, context = bound.smallest_admissible_base, bound.context_tokens
    rows = []
    for key, base, words in _recommended(config, bound):
        name, kind, assumes, source = (part.format(**words) for part in THEORIES[key])
        possible = math.isfinite(base) and base > 1
        fails = first_negative(similarity, base, context) if possible else None
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
        failing = math.nan if fails is None else float(fails)
        rows.append(
            (context, name, kind, base, failing, base / first, verdict, assumes, source)
        )
    columns = [
        "context_tokens",
        "theory",
        "kind",
        "base",
        "fails_at_tokens",
        "times_exact",
    ]
    return pd.DataFrame(rows, columns=[*columns, "verdict", "assumes", "source"])


def _recommended(config: BaseConfig, bound: Any) -> Iterator[Theory]:
    context, d = int(bound.context_tokens), config.rotated
    yield "recommended", bound.recommended_base, {"head": _head(bound)}
    yield "stable", bound.stable_base, {"status": bound.status}
    yield "smallest", bound.smallest_admissible_base, {}
    yield "fit", men_fit(context), {}
    yield "asymptote", rules.su_asymptote(context), {}
    yield "aliasing", rules.aliasing_base(context), {}
    for layers in sorted({1, config.layers}):
        words = {"layers": count_of(layers, "layer"), "cosine": f"{config.coherence:g}"}
        yield (
            "stability",
            rules.stability_base(context, config.coherence, layers),
            words,
        )
    yield "rotation", rules.one_rotation_base(d, context), {}
    trained = Geometry(d, config.train_base, config.train_len)
    yield from _extensions(trained, config.test_len or context)
    for name in config.formats:
        # Beside what the format resolves: a wall for cosines alone, if for anything.
        yield "ceiling", 1 / format_named(name).epsilon, {"format": name}
        for component in ("cosine", "cosine and sine"):
            words = {"format": name, "component": component}
            yield "moves", blind_from(component, format_named(name), d, context), words


def _extensions(trained: Geometry, target: int) -> Iterator[Theory]:
    # Nothing to extend inside the trained length, and a single pair ignores the base.
    if target <= trained.trained_len or trained.rotary_dim < 4:
        return
    words = {"trained": f"{trained.base:g} at {trained.trained_len} tokens"}
    yield "critical", rules.critical_base(trained, target), words
    yield "ntk", rules.ntk_aware(trained, target), words
    # The base whose T_extra is the target: (L'/2 pi)^(d/d_c).
    share = trained.rotary_dim / rules.critical_dimension(trained)
    yield "extra", float((target / (2 * math.pi)) ** share), words
    for name, base in zip(
        ("2T/pi", "T/pi", "T/2pi"), rules.small_bases(trained), strict=True
    ):
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
    cos, sin = np.abs(np.cos(theta * length)), np.abs(np.sin(theta * length))
    # A component is lost when its change over a token is below half the spacing at its
    # value: the cosine of a small angle is near 1, where that is widest, its sine is
    # small.
    lost = theta * sin < spacing(cos, fmt) / 2
    if component == "cosine and sine":
        lost &= theta * cos < spacing(sin, fmt) / 2
    apart = np.flatnonzero(~lost)
    # The last one counts: below it the loss comes and goes with the phase of the last
    # position.
    first = int(apart[-1]) + 1 if len(apart) else 0
    return float(GRID[first]) if first < len(GRID) else math.nan


def _given_base(
    config: BaseConfig, similarity: Similarity, rotating: list[int]
) -> pd.DataFrame:
    base, rows = config.base, []
    for context in config.context:
        if base is None:
            break
        scaling, factor = scaling_for(config, context)
        plan = scaling.plan(Geometry(config.rotated, base, config.train_len), context)
        scaled = Fixed(
            similarity.exponents, similarity.unrotated, tuple(plan.inv_freq[rotating])
        )
        fails = first_negative(scaled, base, context)
        place, value = lowest(scaled, base, context)
        failing = math.nan if fails is None else float(fails)
        rows.append(
            (context, base, scaling.label, factor, fails is None, failing, value, place)
        )
    columns = ["context_tokens", "base", "method", "factor_from", "admissible"]
    columns += ["first_failing_position_tokens", "lowest_sum", "lowest_sum_at_tokens"]
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
    for context, base in zip(
        usable["context_tokens"], usable["recommended_base"], strict=True
    ):
        bases[f"recommended for {context}"] = base
    rows = []
    for name, base in bases.items():
        made = rotations(inverse_frequencies(config.rotated, base), config.train_len)[
            rotating
        ]
        below, idle = int((made < 1).sum()), config.head_dim // 2 - len(rotating)
        rows.append((name, base, config.train_len, idle, below, len(rotating) - below))
    columns = ["which", "base", "train_len_tokens", "pairs_not_rotating"]
    columns += ["pairs_below_one_rotation", "pairs_at_least_one_rotation"]
    return pd.DataFrame(rows, columns=columns)


def _critical(config: BaseConfig) -> pd.DataFrame:
    trained = Geometry(config.rotated, config.train_base, config.train_len)
    about = (trained.base, trained.trained_len, trained.rotary_dim)
    critical = rules.critical_dimension(trained)
    bases = dict.fromkeys([trained.base, config.base or trained.base])
    rows = [
        (*about, critical, base, rules.extrapolation_limit(trained, base))
        for base in bases
    ]
    columns = ["trained_base", "train_len_tokens", "rotary_dim", "critical_dimension"]
    return pd.DataFrame(
        rows, columns=[*columns, "tuned_base", "supported_context_tokens"]
    )


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
    for part, where in ((known, ""), (within, " of its contexts")):
        if not where or len(within) < len(known):
            for name, column in FITTED.items():
                sets[name + where] = part[["context_tokens", column]].dropna()
    sets["paper values"] = published[["context_tokens", "paper_base"]]
    rows: list[tuple[str, float, float, float, int]] = []
    for name, points in sets.items():
        if len(points) < 3:
            continue
        x, y = np.log(points.to_numpy(dtype=np.float64)).T
        (slope, intercept), *_ = np.linalg.lstsq(
            np.stack((x, np.ones_like(x)), 1), y, rcond=None
        )
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
    context, smallest = int(bound.context_tokens), _from(bound.smallest_admissible_base)
    if not bound.certified:
        text = f"No base is admissible for {context} tokens ({_head(bound)})."
    elif bound.smallest_admissible_base <= 1:
        text = f"Every base is admissible for {context} tokens ({_head(bound)})."
    elif math.isnan(bound.recommended_base):
        text = (
            f"The sum of cosines stays at or above 0 with bases from {smallest} on; no"
            f" stable base was found ({context} tokens, {_head(bound)})."
        )
    else:
        text = (
            f"Base {typed(bound.recommended_base)} and every larger one keep the sum of"
            f" cosines at or above 0, by proof ({context} tokens, {_head(bound)})."
        )
        windows = tables["windows"][tables["windows"]["context_tokens"] == context]
        if not math.isnan(end := windows["high"].iloc[0]):
            smallest = _from(bound.smallest_admissible_base, end)
            gap = f"from {_from(end)} on the sum is negative again"
            text += f" The smallest admissible base is {smallest}, but {gap}."
    text += (
        " How far trained models reach is another question (docs/findings.md,"
        " section 4)."
    )
    for given in tables["given_base"].tail(1).itertuples():
        fails = f"fails first at position {given.first_failing_position_tokens:.0f}"
        method = "" if given.method == "unscaled" else f" with {given.method}"
        if isinstance(given.factor_from, str):
            method += f", its factor {given.factor_from},"
        verdict = "is admissible there" if given.admissible else fails
        base = parameter_text(given.base).removesuffix(".0")
        text += f" Base {base}{method} {verdict}."
    published, fitted = tables["published"], tables["fits"].set_index("values")
    if len(published) < 3:
        return text
    # On the paper's contexts if possible: an exponent depends on the range it is fitted
    # to.
    where = " of its contexts" if "exact values of its contexts" in fitted.index else ""
    names = ("exact values" + where, "recommended bases" + where, "paper values")
    powers = fitted.loc[[*names], ["exponent", "standard_error"]].to_numpy()
    own, usable, paper = (
        "context^({:.2f} ± {:.2f})".format(*power) for power in powers
    )
    loose = published[published.verdict == "loose"]
    worst = loose.times_exact.max() if len(loose) else 1.0
    return (
        f"{text} {len(loose)} of the paper's {len(published)} values here are loose, by"
        f" up to {worst:.2g} times; the exact ones grow as {own}, the paper's as"
        f" {paper}, the recommended bases as {usable} (standard errors)."
    )


def following(config: BaseConfig, tables: Tables) -> str:
    """Return the command on the precision of the recommended base, as far as there is
    one.
    """
    bound = tables["bound"].iloc[-1]
    if not bound.recommended_base > 1 or config.kept < 1 or config.dropped:
        return "ropelab base-empirical"
    head = {"base": typed(bound.recommended_base), "head_dim": config.head_dim}
    head |= {"rotary_dim": config.rotary_dim} if config.rotary_dim else {}
    return command_of("precision", {**head, "length": bound.context_tokens})


def _from(base: float, end: float = math.inf) -> str:
    """Write a base from which on something holds: rounded up, and if it can be not
    beyond `end`.
    """
    if not 1 < base < math.inf:
        return f"{base:.6g}"
    digits = next((n for n in range(6, 17) if rounded_up(base, n) < end), 17)
    return f"{rounded_up(base, digits):.{digits}g}"


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
