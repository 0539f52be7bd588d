"""What each theory says about one context, side by side, and each judged by the exact bound."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from ropelab.experiments.base.plan import Plan
from ropelab.experiments.base.precision import blind_from
from ropelab.experiments.base.search import Bound
from ropelab.math.bounds import first_negative, rules
from ropelab.math.bounds.published import men_fit
from ropelab.math.frequencies import Geometry


@dataclass(frozen=True)
class Theory:
    """One recommendation.

    ``kind``: "at least" (a lower bound), "use" (a recipe), "at most" (an upper bound), "small"
    (a base far below the others that is said to extrapolate after tuning).
    """

    name: str
    kind: str
    base: float
    source: str
    assumes: str = ""


MEN = "Men et al. 2024, arXiv:2405.14591"
LIU = "Liu et al. 2023, arXiv:2310.05209"


def theories(planned: Plan, bound: Bound) -> pd.DataFrame:
    """A row per theory for one context.

    ``fails_at_tokens``: the first position whose sum of cosines is negative at that base, missing
    where the base is admissible. ``times_exact``: the base over the first admissible one.
    """
    rows = [_judged(planned, bound, theory) for theory in _all(planned, bound)]
    return pd.DataFrame(rows)


def _judged(planned: Plan, bound: Bound, theory: Theory) -> dict[str, object]:
    known = math.isfinite(theory.base) and theory.base > 1
    fails = first_negative(planned.similarity, theory.base, bound.context) if known else None
    return {
        "context_tokens": bound.context,
        "theory": theory.name,
        "kind": theory.kind,
        "base": theory.base,
        "fails_at_tokens": math.nan if fails is None else float(fails),
        "times_exact": theory.base / bound.first,
        "verdict": _verdict(theory, bound, fails) if known else "no such base",
        "assumes": theory.assumes,
        "source": theory.source,
    }


def _verdict(theory: Theory, bound: Bound, fails: int | None) -> str:
    """Whether the theory agrees with the exact bound for this context."""
    if theory.kind == "at most":
        if not bound.windows:
            return "no admissible base"
        return "leaves room" if theory.base >= bound.first else "contradicts the bound"
    if fails is not None:
        return "below the bound" if theory.base < bound.first else "in a gap between windows"
    return "admissible"


def _all(planned: Plan, bound: Bound) -> Iterator[Theory]:
    yield from _exact(bound)
    yield from _bound_rules(planned, bound.context)
    yield from _extensions(planned.trained, planned.test_len or bound.context)
    yield from _precision(planned, bound.context)


def _exact(bound: Bound) -> Iterator[Theory]:
    yield Theory("usable base", "use", bound.usable, "computed here", "two digits, all above work")
    yield Theory("stable base", "at least", bound.stable, "computed here", bound.status)
    yield Theory("first admissible base", "at least", bound.first, f"{MEN}, computed here")


def _bound_rules(planned: Plan, context: int) -> Iterator[Theory]:
    fit = men_fit(context)
    yield Theory("published fit", "at least", fit, MEN, "head_dim 128, fully rotated")
    asymptote = rules.su_asymptote(context)
    yield Theory("asymptote", "at least", asymptote, "Su 2024, kexue.fm/archives/10122", "d to inf")
    turn = rules.one_turn_base(planned.rotary_dim, context)
    yield Theory("every pair turns once", "at most", turn, "wavelength coverage", "no unseen angle")


def _extensions(trained: Geometry, target: int) -> Iterator[Theory]:
    """The rules for going beyond the trained length; none inside it, or where no pair heeds b."""
    if target <= trained.trained_len or trained.rotary_dim < 4:
        return
    start = f"{trained.base:g} at {trained.trained_len} tokens"
    critical = rules.critical_base(trained, target)
    source = f"{LIU}, theorem 2; koboldcpp pull request 910"
    yield Theory("critical base = logarithmic rule", "use", critical, source, start)
    ntk = rules.ntk_aware(trained, target)
    yield Theory("NTK-aware", "use", ntk, "arXiv:2309.00071, eq. 16", start)
    limit = _reaching(trained, target)
    yield Theory("T_extra reaches the context", "use", limit, f"{LIU}, theorem 1", start)
    for name, base in zip(("2T/pi", "T/pi", "T/2pi"), rules.small_bases(trained), strict=True):
        yield Theory(f"small base {name}", "small", base, f"{LIU}, theorem 3", start)


def _reaching(trained: Geometry, target: int) -> float:
    """The base whose T_extra is the target: (L'/2 pi)^(d/d_c)."""
    share = trained.rotary_dim / rules.critical_dimension(trained)
    return float((target / (2 * math.pi)) ** share)


def _precision(planned: Plan, context: int) -> Iterator[Theory]:
    for fmt in planned.formats:
        for channel in ("cosine", "cosine and sine"):
            base = blind_from(channel, fmt, planned.rotary_dim, context)
            yield Theory(
                f"{fmt.name}: slowest {channel} moves",
                "at most",
                base,
                "spacing of the format at the last position",
            )
