"""What theories advise about the base, each judged by the exact bound.

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
from ropelab.math.bounds import Similarity, first_negative, rules
from ropelab.math.bounds.published import men_fit
from ropelab.math.frequencies import Geometry
from ropelab.math.numerics.formats import FloatFormat, format_named, spacing
from ropelab.runs.files import table_beside
from ropelab.runs.sentences import count_of

# Bases at which the resolution of the slowest pair is tested, in steps of 0.2 %.
GRID = np.logspace(0.1, 18, 20_000)
# By key: name, kind, assumptions and source of a theory. Words of a run, such as
# {format}, are put into the braces.
THEORIES: dict[str, list[str]] = table_beside(__file__)


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
    missing if the base is admissible. ``times_exact``: the base over the smallest
    admissible one.
    """
    smallest = bound.smallest_admissible_base
    context = bound.context_tokens
    rows = []
    for advice in _list_advice(config, bound):
        texts = [text.format(**advice.words) for text in THEORIES[advice.theory]]
        name, kind, assumes, source = texts
        base = advice.base
        first_failing = None
        is_possible = math.isfinite(base) and base > 1
        if is_possible:
            first_failing = first_negative(similarity, base, context)

        if not is_possible:
            verdict = "no such base"
        elif kind == "at most" and not bound.certified:
            verdict = "no admissible base"
        elif kind == "at most":
            verdict = "leaves room" if base >= smallest else "contradicts the bound"
        elif first_failing is None:
            verdict = "admissible"
        elif base < smallest:
            verdict = "below the bound"
        else:
            verdict = "in a gap between windows"

        row = {
            "context_tokens": context,
            "theory": name,
            "kind": kind,
            "base": base,
            "fails_at_tokens": (
                math.nan if first_failing is None else float(first_failing)
            ),
            "times_exact": base / smallest,
            "verdict": verdict,
            "assumes": assumes,
            "source": source,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _list_advice(config: BaseConfig, bound: Any) -> Iterator[Advice]:
    """Yield what each theory advises at the context of a row of the table `bound`."""
    context = int(bound.context_tokens)
    rotated = config.rotated
    yield Advice("recommended", bound.recommended_base, {"head": describe_head(bound)})
    yield Advice("stable", bound.stable_base, {"status": bound.status})
    yield Advice("smallest", bound.smallest_admissible_base, {})
    yield Advice("fit", men_fit(context), {})
    yield Advice("asymptote", rules.su_asymptote(context), {})
    yield Advice("aliasing", rules.aliasing_base(context), {})

    for layers in sorted({1, config.layers}):
        base = rules.stability_base(context, config.coherence, layers)
        words = {"layers": count_of(layers, "layer"), "cosine": f"{config.coherence:g}"}
        yield Advice("stability", base, words)
    yield Advice("rotation", rules.one_rotation_base(rotated, context), {})

    trained = Geometry(rotated, config.train_base, config.train_len)
    yield from _list_extensions(trained, config.test_len or context)

    for name in config.formats:
        # Two rules about number formats: that of Liu (2026), which takes only cosines
        # into account, and what the format resolves.
        number_format = format_named(name)
        yield Advice("ceiling", 1 / number_format.epsilon, {"format": name})
        for component in ("cosine", "cosine and sine"):
            base = blind_from(component, number_format, rotated, context)
            yield Advice("moves", base, {"format": name, "component": component})


def _list_extensions(trained: Geometry, target: int) -> Iterator[Advice]:
    """Yield what rules advise that extend a trained model to `target` tokens."""
    # Inside the trained length there is nothing to extend, and a single pair ignores the
    # base.
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


def blind_from(component: str, fmt: FloatFormat, rotary_dim: int, length: int) -> float:
    """Return the base from which on a format no longer separates the positions length - 1
    and length, by the slowest pair.

    Args:
        component: "cosine", or "cosine and sine": the positions are separated if either
            differs.
        fmt: the format of the stored cos and sin.
        rotary_dim: the rotated features of a head.
        length: the context in tokens.

    Returns:
        The base within 0.2 %; nan if the format separates them at all bases up to 1e18,
        or if there is only one pair, which ignores the base.
    """
    if rotary_dim < 4:
        return math.nan

    # The frequency of the slowest pair at each base, in radians per token: [bases].
    theta = GRID ** (-(rotary_dim - 2) / rotary_dim)
    cos = np.abs(np.cos(theta * length))
    sin = np.abs(np.sin(theta * length))

    # The change of a cosine over one token is theta * sin, that of a sine is theta * cos.
    # A change below half the spacing of the format is lost. The cosine of a small angle
    # is near 1, where the spacing is widest; its sine is small.
    is_lost = theta * sin < spacing(cos, fmt) / 2
    if component == "cosine and sine":
        is_lost &= theta * cos < spacing(sin, fmt) / 2

    # The base after the last one that separates the positions counts: below it the loss
    # comes and goes with the phase of the last position.
    separating = np.flatnonzero(~is_lost)
    first_blind = 0
    if len(separating):
        first_blind = int(separating[-1]) + 1
    if first_blind == len(GRID):
        return math.nan
    return float(GRID[first_blind])
