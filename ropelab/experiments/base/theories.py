"""The advice of theories about the base. Each theory is judged by the exact bound.

A base is admissible for a context if the sum of cosines of its frequencies is not
negative at any position of the context. theories.toml has the words about each theory.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ropelab.experiments.base import BaseConfig
from ropelab.experiments.base.answer import describe_head
from ropelab.math.bounds import Similarity, find_first_negative, rules
from ropelab.math.bounds.published import men_fit
from ropelab.math.frequencies import Geometry
from ropelab.math.numerics.formats import FloatFormat, format_named, spacing
from ropelab.runs.files import read_table_beside
from ropelab.runs.sentences import write_count

# The bases at which `find_blind_base` tests the resolution of the slowest pair, in steps
# of 0.2 %.
GRID = np.logspace(0.1, 18, 20_000)
# Four texts for the key of each theory: its name, its kind, its assumptions and its
# source. A text may have braces, such as {format}, into which words of the run are put.
THEORIES: dict[str, list[str]] = read_table_beside(__file__)
# The keys of the bases that are no theory's: the table `bound` has them.
COMPUTED = ("recommended", "stable", "smallest")


class Advice(NamedTuple):
    """The base that a theory advises in a run."""

    # The key of the theory in THEORIES.
    theory: str
    # The base; nan or inf if the theory has none here.
    base: float
    # The words for the braces of the theory's texts.
    words: dict[str, str]


def judge_theories(
    config: BaseConfig, similarity: Similarity, bound: Any
) -> pd.DataFrame:
    """Return a row per theory, judged at the context of a row of the table `bound`.

    ``fails_at_tokens``: the first position with a negative sum at the advised base,
    missing if the base is admissible. ``times_exact``: the advised base divided by the
    smallest admissible base.
    """
    smallest = bound.smallest_admissible_base
    context = bound.context_tokens
    rows = []
    for advice in _list_advice(config, similarity, bound):
        texts = [text.format(**advice.words) for text in THEORIES[advice.theory]]
        name, kind, assumes, source = texts
        base = advice.base
        first_failing = None
        if _is_possible(base):
            first_failing = find_first_negative(similarity, base, context)

        row = {
            "context_tokens": context,
            "theory": name,
            "kind": kind,
            "base": base,
            "fails_at_tokens": (
                math.nan if first_failing is None else float(first_failing)
            ),
            "times_exact": base / smallest,
            "verdict": _judge_advice(advice, kind, first_failing, bound),
            "assumes": assumes,
            "source": source,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _is_possible(base: float) -> bool:
    """Return True for a number that can be a base; a theory without advice gives none."""
    return math.isfinite(base) and base > 1


def _judge_advice(
    advice: Advice, kind: str, first_failing: int | None, bound: Any
) -> str:
    """Return the verdict on a theory's advice, in words.

    Args:
        advice: the theory and its base.
        kind: the kind of the theory; "at most" is an upper limit of the base.
        first_failing: the first position with a negative sum; None if there is none.
        bound: the row of the table `bound`.
    """
    base = advice.base
    smallest = bound.smallest_admissible_base
    if advice.theory in COMPUTED:
        # A base of 1 stands for all bases here. A missing one was not found: of narrow
        # heads only the first window is searched, and there may be a stable base.
        if base == 1:
            return "every base"
        if math.isnan(base) and bound.certified:
            return "none found"
    if not _is_possible(base):
        return "no such base"

    if not bound.certified:
        return "no admissible base"
    if kind == "at most":
        if base >= smallest:
            return "leaves room"
        return "contradicts the bound"

    if first_failing is None:
        return "admissible"
    if base < smallest:
        return "below the bound"
    return "in a gap between windows"


def _list_advice(
    config: BaseConfig, similarity: Similarity, bound: Any
) -> Iterator[Advice]:
    """Yield what each theory advises at the context of a row of the table `bound`."""
    context = int(bound.context_tokens)
    rotated = config.rotated
    # Pairs that are left out turn at no base.
    slowest_exponent = max(similarity.exponents, default=0.0)
    yield Advice("recommended", bound.recommended_base, {"head": describe_head(bound)})
    yield Advice("stable", bound.stable_base, {"status": bound.status})
    yield Advice("smallest", bound.smallest_admissible_base, {})
    yield Advice("fit", men_fit(context), {})
    yield Advice("asymptote", rules.su_asymptote(context), {})
    yield Advice("aliasing", rules.aliasing_base(context), {})

    for layers in sorted({1, config.layers}):
        base = rules.stability_base(context, config.coherence, layers)
        words = {
            "layers": write_count(layers, "layer"),
            "cosine": f"{config.coherence:g}",
        }
        yield Advice("stability", base, words)
    yield Advice("rotation", rules.one_rotation_base(slowest_exponent, context), {})

    trained = Geometry(rotated, config.train_base, config.train_len)
    yield from _list_extensions(trained, config.test_len or context)

    for name in config.formats:
        # Two rules about number formats: the rule of Liu (2026), which takes only
        # cosines into account, and the base at which the format loses the motion of the
        # slowest pair (`find_blind_base`).
        number_format = format_named(name)
        yield Advice("ceiling", 1 / number_format.epsilon, {"format": name})
        for component in ("cosine", "cosine and sine"):
            base = find_blind_base(component, number_format, slowest_exponent, context)
            yield Advice("moves", base, {"format": name, "component": component})


def _list_extensions(trained: Geometry, target: int) -> Iterator[Advice]:
    """Yield the advice of rules that extend a trained model to `target` tokens."""
    # Inside the trained length there is nothing to extend, and the frequency of a single
    # pair is 1 at every base.
    if target <= trained.trained_len or trained.rotary_dim < 4:
        return

    words = {"trained": f"{trained.base:g} at {trained.trained_len} tokens"}
    yield Advice("critical", rules.critical_base(trained, target), words)
    yield Advice("ntk", rules.ntk_aware(trained, target), words)

    # Liu et al. (2023) call the context that a tuned base supports T_extra. This is the
    # base whose T_extra is the target: (L'/2 pi)^(d/d_c).
    exponent = trained.rotary_dim / rules.critical_dimension(trained)
    base_of_target = float((target / (2 * math.pi)) ** exponent)
    yield Advice("extra", base_of_target, words)

    names = ("2T/pi", "T/pi", "T/2pi")
    for name, base in zip(names, rules.small_bases(trained), strict=True):
        yield Advice("small", base, {**words, "small": name})


def find_blind_base(
    component: str, fmt: FloatFormat, slowest_exponent: float, length: int
) -> float:
    """Return the base from which on a format no longer separates the positions length - 1
    and length, by the slowest pair.

    Args:
        component: "cosine", or "cosine and sine": the positions are separated if either
            differs.
        fmt: the format of the stored cos and sin.
        slowest_exponent: a of the slowest pair, whose frequency is b^-a.
        length: the context in tokens.

    Returns:
        The base within 0.2 %; nan if the format separates the positions at all bases up
        to 1e18, or if the first pair alone rotates, whose frequency is 1 at every base.
    """
    if slowest_exponent == 0:
        return math.nan

    # The frequency of the slowest pair at each base, in radians per token: [bases].
    theta = GRID**-slowest_exponent
    cos = np.abs(np.cos(theta * length))
    sin = np.abs(np.sin(theta * length))

    # The change of a cosine over one token is theta * sin, and the change of a sine is
    # theta * cos. A change below half the spacing of the format is lost. The cosine of
    # a small angle is near 1, where the spacing is widest; its sine is small.
    is_lost = theta * sin < spacing(cos, fmt) / 2
    if component == "cosine and sine":
        is_lost &= theta * cos < spacing(sin, fmt) / 2

    # The answer is the base after the last base that separates the positions. At smaller
    # bases the loss comes and goes with the phase of the last position.
    separating = np.flatnonzero(~is_lost)
    first_blind = 0
    if len(separating):
        first_blind = int(separating[-1]) + 1
    if first_blind == len(GRID):
        return math.nan
    return float(GRID[first_blind])
