"""The recommendation of each theory for one context, judged by the exact bound."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ropelab.experiments.base import BaseConfig
from ropelab.math.bounds import Similarity, first_negative, rules
from ropelab.math.bounds.published import men_fit
from ropelab.math.frequencies import Geometry
from ropelab.math.numerics.formats import FloatFormat, format_named, spacing

MEN = "Men et al. 2024, arXiv:2405.14591"
LIU = "Liu et al. 2023, arXiv:2310.05209"
# Bases at which the resolution of the slowest pair is tested, in steps of 0.2 %.
GRID = np.logspace(0.1, 18, 20_000)

# Name, kind, base, assumptions and source. Kinds: "at least" (a lower bound), "use" (a recipe),
# "at most" (an upper bound), "small" (far below the others, said to extrapolate after tuning).
Theory = tuple[str, str, float, str, str]


def theories(config: BaseConfig, similarity: Similarity, bound: Any) -> pd.DataFrame:
    """Judge every theory at the context of a row of the table `bound`, a row each.

    ``fails_at_tokens``: the first position whose sum of cosines is negative at that base, missing
    where the base is admissible. ``times_exact``: the base over the first admissible one.
    """
    first, context = bound.smallest_admissible_base, bound.context_tokens
    rows = []
    for name, kind, base, assumes, source in _recommended(config, bound):
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
        rows.append((context, name, kind, base, failing, base / first, verdict, assumes, source))
    columns = ["context_tokens", "theory", "kind", "base", "fails_at_tokens", "times_exact"]
    return pd.DataFrame(rows, columns=[*columns, "verdict", "assumes", "source"])


def _recommended(config: BaseConfig, bound: Any) -> Iterator[Theory]:
    context, d = int(bound.context_tokens), config.rotated
    here, smallest = "computed here", bound.smallest_admissible_base
    yield "recommended base", "use", bound.recommended_base, "two digits, all above work", here
    yield "stable base", "at least", bound.stable_base, bound.status, here
    yield "smallest admissible base", "at least", smallest, "", f"{MEN}, {here}"
    yield "published fit", "at least", men_fit(context), "head_dim 128, fully rotated", MEN
    su = "Su 2024, kexue.fm/archives/10122"
    yield "asymptote", "at least", rules.su_asymptote(context), "d to inf", su
    once = rules.one_rotation_base(d, context)
    yield (
        "every pair completes a rotation",
        "at most",
        once,
        "no unseen angle",
        "wavelength coverage",
    )
    yield from _extensions(Geometry(d, config.train_base, config.train_len), config, context)
    for name in config.formats:
        for channel in ("cosine", "cosine and sine"):
            base = blind_from(channel, format_named(name), d, context)
            source = "spacing of the format at the last position"
            yield f"{name}: slowest {channel} moves", "at most", base, "", source


def _extensions(trained: Geometry, config: BaseConfig, context: int) -> Iterator[Theory]:
    target = config.test_len or context
    # Nothing to extend inside the trained length, and a single pair ignores the base.
    if target <= trained.trained_len or trained.rotary_dim < 4:
        return
    start = f"{trained.base:g} at {trained.trained_len} tokens"
    critical = rules.critical_base(trained, target)
    source = f"{LIU}, theorem 2; koboldcpp pull request 910"
    yield "critical base = logarithmic rule", "use", critical, start, source
    yield "NTK-aware", "use", rules.ntk_aware(trained, target), start, "arXiv:2309.00071, eq. 16"
    # The base whose T_extra is the target: (L'/2 pi)^(d/d_c).
    share = trained.rotary_dim / rules.critical_dimension(trained)
    base = float((target / (2 * math.pi)) ** share)
    yield "T_extra reaches the context", "use", base, start, f"{LIU}, theorem 1"
    for name, base in zip(("2T/pi", "T/pi", "T/2pi"), rules.small_bases(trained), strict=True):
        yield f"small base {name}", "small", base, start, f"{LIU}, theorem 3"


def blind_from(channel: str, fmt: FloatFormat, rotary_dim: int, length: int) -> float:
    """Return the base from which a format no longer separates positions length-1 and length.

    ``channel``: "cosine", or "cosine and sine" (lost when both are). The base is within 0.2 %; nan
    where the positions are apart at every base up to 1e18.
    """
    if rotary_dim < 4:
        return math.nan
    # The slowest pair, in radians per token.
    theta = GRID ** (-(rotary_dim - 2) / rotary_dim)
    cos, sin = np.abs(np.cos(theta * length)), np.abs(np.sin(theta * length))
    # A component is lost when its change from one token to the next is below half the spacing at
    # its value. The cosine of a small angle is near 1, where the spacing is widest; its sine is
    # small, and floating point spaces small numbers finely.
    lost = theta * sin < spacing(cos, fmt) / 2
    if channel == "cosine and sine":
        lost &= theta * cos < spacing(sin, fmt) / 2
    apart = np.flatnonzero(~lost)
    # The last one counts: below it the loss comes and goes with the phase of the last position.
    first = int(apart[-1]) + 1 if len(apart) else 0
    return float(GRID[first]) if first < len(GRID) else math.nan
